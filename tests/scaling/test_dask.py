"""Models on a cluster of Dask: real processes, one of which is killed."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from relaxvm import ExecBuilder
from relaxvm.contrib import dask as rvm_dask
from relaxvm.contrib.batches import BatchError
from relaxvm.contrib.dask import Predictor, long_run, map_blocks, map_partitions

from ..serving import programs
from .programs import (
    INPUTS,
    ROWS,
    counting,
    expected,
    frame,
    functions_of_counting,
    ticks,
    wait_until,
)  # fmt: skip

dask = pytest.importorskip("dask")
dd = pytest.importorskip("dask.dataframe")
da = pytest.importorskip("dask.array")
pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
distributed = pytest.importorskip("distributed")

@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options, silence_logs=50) as cluster,
        distributed.Client(cluster) as made,
    ):
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    programs.double().save(tmp_path / "double.vmexec")
    return tmp_path / "double.vmexec"


@pytest.mark.parametrize("is_path", [True, False])
def test_partitions(client, path: Path, is_path: bool) -> None:
    data = dd.from_pandas(frame(), npartitions=7)
    got = map_partitions(data, path if is_path else programs.double(), inputs=INPUTS,
                         outputs={"output_0": list("pqrs")})  # fmt: skip
    assert got.dtypes.astype(str).tolist() == ["int64"] + ["float32"] * 4
    assert got.npartitions == 7
    table = got.compute()
    assert table["id"].tolist() == list(range(ROWS))
    np.testing.assert_array_equal(table[list("pqrs")].to_numpy(), expected(frame()))


def test_from_parquet_to_parquet(client, path: Path, tmp_path: Path) -> None:
    dd.from_pandas(frame(), npartitions=3).to_parquet(tmp_path / "in")
    data = dd.read_parquet(tmp_path / "in")
    names = {"output_0": list("pqrs")}
    map_partitions(data, path, inputs=INPUTS, outputs=names).to_parquet(tmp_path / "out")
    table = pd.read_parquet(tmp_path / "out")
    np.testing.assert_array_equal(table[list("pqrs")].to_numpy(), expected(frame()))

    # Dask does not know what is in columns of arrays.
    lists = pa.schema([("id", pa.int64()), ("output_0", pa.list_(pa.float32()))])
    map_partitions(data, path, inputs=INPUTS).to_parquet(tmp_path / "lists", schema=lists)
    table = pd.read_parquet(tmp_path / "lists")
    np.testing.assert_array_equal(np.stack(table["output_0"]), expected(frame()))


def test_a_process_opens_a_path_once(client, path: Path) -> None:
    predictor = Predictor(path, inputs=INPUTS)
    data = dd.from_pandas(frame(), npartitions=40)
    map_partitions(data, predictor).compute()
    token = predictor.__dask_tokenize__()
    found = client.run(lambda: {each: id(p) for each, p in rvm_dask._predictors.items()})
    assert any(token in kept for kept in found.values())
    map_partitions(data, predictor).compute()
    again = client.run(lambda: {each: id(p) for each, p in rvm_dask._predictors.items()})
    for worker, kept in found.items():
        if token in kept:
            assert again[worker][token] == kept[token]


def test_kernels_have_one_thread_in_workers(client, path: Path) -> None:
    import relaxvm

    before = relaxvm.get_num_threads()
    data = dd.from_pandas(frame(), npartitions=8)
    map_partitions(data, path, inputs=INPUTS).compute()
    map_partitions(data, path, inputs=INPUTS).compute(scheduler="threads")
    assert relaxvm.get_num_threads() == before

    def threads(partition):
        import relaxvm

        return partition.assign(threads=relaxvm.get_num_threads())[["threads"]]

    predicted = map_partitions(data, path, inputs=INPUTS)
    assert predicted.map_partitions(threads).compute()["threads"].unique().tolist() == [1]


def test_equal_calls_have_equal_names(path: Path) -> None:
    data = dd.from_pandas(frame(), npartitions=2)
    first, second = (map_partitions(data, path, inputs=INPUTS) for _ in range(2))
    assert first._name == second._name
    assert first._name != map_partitions(data, path, inputs=INPUTS, keep=[])._name


def test_functions_are_told_apart_by_what_they_do(client, tmp_path: Path) -> None:
    """Their text may be the same: one may be where another was in memory."""

    class Scale:
        def __init__(self, k: int) -> None:
            self.k = k

        def __call__(self, x):
            return x * self.k

        def __repr__(self) -> str:
            return "<function <lambda> at 0x7f0000000000>"

    eb = ExecBuilder()
    with eb.function("main", num_inputs=1, param_names=["x"]):
        eb.emit_call("scale", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_ret(eb.r(1))
    eb.get().save(tmp_path / "scale.vmexec")
    x = np.arange(4.0)
    for k in (1, 2, 3):
        functions = {"scale": Scale(k)}
        got = map_blocks(da.from_array(x, chunks=2), tmp_path / "scale.vmexec", functions=functions)
        np.testing.assert_array_equal(got.compute(), k * x)


def test_blocks(client) -> None:
    x = np.random.default_rng(1).random((20, 4), np.float32)
    array = da.from_array(x, chunks=(6, 4))
    got = map_blocks({"x": array, "y": array}, programs.double())
    assert got.chunks == ((6, 6, 6, 2), (4,))
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got.compute(), 4 * x)
    named = map_blocks({"x": array, "y": array}, programs.double(), outputs=["output_0"])
    np.testing.assert_array_equal(named["output_0"].sum(axis=1).compute(), (4 * x).sum(axis=1))


def test_blocks_that_do_not_fit() -> None:
    array = da.ones((20, 4), chunks=(6, 2), dtype=np.float32)
    model = programs.double()
    with pytest.raises(BatchError, match=r"input x: expected one chunk in all dimensions but the"):
        map_blocks({"x": array, "y": array}, model)
    whole = array.rechunk({1: -1})
    with pytest.raises(BatchError, match=r"inputs: expected equal chunks of rows"):
        map_blocks({"x": whole, "y": whole.rechunk({0: 5})}, model)
    with pytest.raises(BatchError, match=r"expected an array for each input, as a dict: x, y"):
        map_blocks(whole, model)
    with pytest.raises(BatchError, match=r"inputs are missing: y"):
        map_blocks({"x": whole}, model)
    with pytest.raises(BatchError, match=r"unknown output z"):
        map_blocks({"x": whole, "y": whole}, model, outputs="z")
    with pytest.raises(TypeError, match=r"map_blocks: expected an array of Dask, got"):
        map_blocks({"x": np.ones((2, 4)), "y": whole}, model)


def test_mistakes_are_found_before_anything_is_computed(path: Path) -> None:
    data = dd.from_pandas(frame(), npartitions=2)
    with pytest.raises(BatchError, match=r"input y: the batch has no column of that name"):
        map_partitions(data, path, inputs={"x": ["a"]})
    with pytest.raises(BatchError, match=r"unknown input z"):
        map_partitions(data, path, inputs={"z": ["a"]})
    with pytest.raises(TypeError, match=r"expected a dataframe of Dask, got"):
        map_partitions(frame(), path, inputs=INPUTS)
    with pytest.raises(TypeError, match=r"keep: the predictor has its options already"):
        map_partitions(data, Predictor(path), keep=[])


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_types_are_checked_before_anything_is_computed(path: Path) -> None:
    made = dd.from_pandas(frame(), npartitions=2)
    with pytest.raises(BatchError, match=r"column a: expected float32, got datetime64"):
        map_partitions(made.assign(a=pd.Timestamp("2020-01-01")), path, inputs=INPUTS)
    x = da.ones((4, 3), chunks=(2, 3))
    with pytest.raises(BatchError, match=r"input x: expected the shape \[n, 4\], got \[0, 3\]"):
        map_blocks({"x": x, "y": x}, path)
    with pytest.raises(BatchError, match=r"unknown input z; expected x, y"):
        map_blocks({"x": x, "y": x, "z": x}, path)


def test_a_file_that_workers_cannot_read_is_an_error_of_the_task(client, path: Path) -> None:
    """And not the end of the worker's connection, which would run the task again without end."""
    lazy = map_partitions(dd.from_pandas(frame(), npartitions=2), path, inputs=INPUTS)
    workers = set(client.scheduler_info()["workers"])
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(BatchError, match=r"is another file on this machine: it has"):
        lazy.compute()
    path.unlink()
    lazy = lazy.assign(other=1)  # of which Dask does not know the error
    with pytest.raises((BatchError, OSError)):
        lazy.compute()
    assert set(client.scheduler_info()["workers"]) == workers


def test_paths_are_those_of_the_caller(client, path: Path, monkeypatch) -> None:
    monkeypatch.chdir(path.parent)  # the workers are elsewhere
    got = map_partitions(dd.from_pandas(frame(), npartitions=2), path.name, inputs=INPUTS).compute()
    assert len(got) == ROWS


def test_each_row_is_once_in_the_output_though_a_worker_is_killed(client, tmp_path: Path) -> None:
    out = tmp_path / "out"
    table = pd.DataFrame({"x": np.arange(ROWS), "id": np.arange(ROWS)})
    data = dd.from_pandas(table, npartitions=40)
    steps = np.array(2000)  # some ten milliseconds
    todo = map_partitions(data, programs.add(), constants={"times": steps}, outputs={
        "output_0": "y"}).to_parquet(out, compute=False)  # fmt: skip
    future = client.compute(todo)
    wait_until(lambda: future.done() or len(list(out.glob("*.parquet"))) > 3)
    assert not future.done()
    processes = client.run(os.getpid)
    os.kill(next(iter(processes.values())), signal.SIGKILL)
    future.result()
    got = pd.read_parquet(out)
    assert sorted(got["id"]) == list(range(ROWS))
    assert (got["y"] == got["id"] + 2000).all()
    client.wait_for_workers(2)


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_a_long_run_goes_on_with_another_worker(client, tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "checkpoints"
    functions = functions_of_counting(log, 0.005)
    run = long_run(counting(400), np.array([5.0]), checkpoints=folder, every=0.05,
                   functions=functions)  # fmt: skip
    future = client.compute(run)
    wait_until(lambda: len(ticks(log)) > 50 and list(folder.glob("*.ckpt")))
    first = ticks(log)[-1][1]
    os.kill(first, signal.SIGKILL)
    assert future.result().tolist() == [405.0]
    numbers = [number for number, process in ticks(log) if process != first]
    assert numbers[-1] == 399
    assert numbers[0] > 0, "it has begun anew"
    assert not list(folder.glob("*.ckpt"))
    client.wait_for_workers(2)


def test_a_predictor_is_made_once_for_threads(path: Path) -> None:
    data = dd.from_pandas(frame(), npartitions=16)
    predictor = Predictor(path, inputs=INPUTS)
    with dask.config.set(scheduler="threads"):
        table = map_partitions(data, predictor).compute()
    np.testing.assert_array_equal(np.stack(table["output_0"]), expected(frame()))
    assert threading.active_count() < 100
