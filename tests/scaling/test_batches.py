"""Models over batches: columns to inputs, outputs to columns."""

from __future__ import annotations

import pickle
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, Limits, VMExecutable
from relaxvm.contrib.batches import BatchError, Predictor, run_to_end
from relaxvm.contrib.batches.long_runs import checkpoint_name
from relaxvm.errors import LimitError, MissingExtraError
from relaxvm.script import ir as I
from relaxvm.script import relax as R

from ..serving import programs
from .programs import counting, functions_of_counting, ticks


@I.ir_module
class _Fixed:
    """Takes three rows at a time."""

    @R.function
    def main(x: R.Tensor((3, 2), "float32")) -> R.Tensor((3, 2), "float32"):
        with R.dataflow():
            y = R.multiply(x, R.const(10.0, "float32"))
            R.output(y)
        return y


@I.ir_module
class _Threshold:
    """One output says whether the other is large; the threshold is for all rows."""

    @R.function
    def main(
        x: R.Tensor(("n", 1), "int32"), limit: R.Tensor((), "int32")
    ) -> R.Tuple(R.Tensor(("n", 1), "int32"), R.Tensor(("n",), "bool")):
        with R.dataflow():
            y = R.add(x, x)
            large = R.squeeze(R.greater(y, limit), axis=[1])
            z = (y, large)
            R.output(z)
        return z


@pytest.fixture(scope="module")
def fixed() -> VMExecutable:
    return relaxvm.compile(_Fixed)


@pytest.fixture(scope="module")
def threshold() -> VMExecutable:
    return relaxvm.compile(_Threshold)


NUMBERS = {name: np.arange(5, dtype=np.float32) + i for i, name in enumerate("abcd")}
ONES = np.ones((5, 4), np.float32)
SUM = 2 * (np.stack([*NUMBERS.values()], axis=1) + ONES)


def table() -> dict[str, np.ndarray]:
    return {"id": np.array(list("vwxyz"), object), **NUMBERS, "y": ONES}


# Columns


def test_columns_are_put_side_by_side_and_others_stay() -> None:
    predict = Predictor(programs.double(), inputs={"x": list("abcd")})
    got = predict(table())
    assert list(got) == ["id", "output_0"]
    assert got["id"].tolist() == list("vwxyz")
    np.testing.assert_array_equal(got["output_0"], SUM)


def test_outputs_get_names_and_are_spread() -> None:
    predict = Predictor(
        programs.double(), inputs={"x": "y"}, outputs={"output_0": list("pqrs")}, keep=["b", "a"]
    )
    got = predict({**table(), "y": ONES})
    assert list(got) == ["b", "a", "p", "q", "r", "s"]
    np.testing.assert_array_equal(got["r"], 4 * np.ones(5))


def test_a_frame_of_pandas() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({**NUMBERS, "y": list(ONES)}, index=[7, 8, 9, 3, 1])
    frame["a"] = frame["a"].astype("Int16")  # one that can have missing values
    got = Predictor(programs.double(), inputs={"x": list("abcd")})(frame)
    assert got.index.tolist() == [7, 8, 9, 3, 1]
    np.testing.assert_array_equal(np.stack(got["output_0"]), SUM)
    empty = Predictor(programs.double(), inputs={"x": list("abcd")})(frame[:0])
    assert list(empty) == ["output_0"]
    assert len(empty) == 0
    frame.loc[8, "a"] = pd.NA
    with pytest.raises(BatchError, match=r"column a: 1 of 5 values are missing; fill them"):
        Predictor(programs.double(), inputs={"x": list("abcd")})(frame)


def test_a_table_of_arrow_is_not_copied() -> None:
    pa = pytest.importorskip("pyarrow")
    numbers = pa.array(np.arange(8, dtype=np.float32))
    rows = pa.FixedSizeListArray.from_arrays(numbers, 4)
    batch = pa.table({"x": rows, "y": rows, "id": pa.array([1, 2])})
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1, param_names=["x"]):
        eb.emit_call("tests.address", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_ret(eb.r(1))

    def address(x):
        return np.full(len(x), x.__array_interface__["data"][0])

    predict = Predictor(eb.get(), functions={"tests.address": address}, keep=["id"])
    got = predict(batch)
    assert got.schema.names == ["id", "output_0"]
    assert set(got["output_0"].to_pylist()) == {numbers.buffers()[1].address}

    double = Predictor(programs.double())(batch)
    assert pa.types.is_fixed_size_list(double.schema.field("output_0").type)
    assert double["output_0"].to_pylist() == [[0, 4, 8, 12], [16, 20, 24, 28]]
    assert Predictor(programs.double())(batch[:0]).schema == double.schema
    assert Predictor(programs.double())(batch.to_batches()[0]).schema == double.schema


@pytest.mark.parametrize("kind", ["list", "large_list", "tensor", "slice", "chunks"])
def test_tensors_of_arrow(kind: str) -> None:
    pa = pytest.importorskip("pyarrow")
    lists = ONES.tolist()
    column = {
        "list": lambda: pa.array(lists, pa.list_(pa.float32())),
        "large_list": lambda: pa.array(lists, pa.large_list(pa.float32())),
        "tensor": lambda: pa.FixedShapeTensorArray.from_numpy_ndarray(ONES),
        "slice": lambda: pa.array([[9.0] * 4, *lists, [8.0] * 4], pa.list_(pa.float32(), 4))[1:-1],
        "chunks": lambda: pa.chunked_array([pa.array(lists[:2]), pa.array(lists[2:])]),
    }[kind]()
    got = Predictor(programs.double())(pa.table({"x": column, "y": column}))
    np.testing.assert_array_equal(np.array(got["output_0"].to_pylist()), 4 * ONES)


def test_arrow_columns_that_do_not_fit() -> None:
    pa = pytest.importorskip("pyarrow")
    predict = Predictor(programs.double())
    ragged = pa.array([[1.0, 2.0], [3.0]])
    with pytest.raises(BatchError, match=r"column x: expected rows of one length, got 1 to 2"):
        predict(pa.table({"x": ragged, "y": ragged}))
    holes = pa.array([1.0, None])
    with pytest.raises(BatchError, match=r"column x: 1 of 2 values are missing"):
        predict(pa.table({"x": holes, "y": holes}))


# Data types and shapes


def test_numbers_keep_their_values(threshold: VMExecutable) -> None:
    predict = Predictor(threshold, constants={"limit": np.array(5, np.int32)})
    got = predict({"x": np.array([1, 2, 3], np.int64)})  # of one dimension less, and wider
    assert got["output_0"].tolist() == [[2], [4], [6]]
    assert got["output_1"].tolist() == [False, False, True]
    with pytest.raises(BatchError, match=r"input x: expected int32, got int64 with 4294967296"):
        predict({"x": np.array([1, 2**32])})
    with pytest.raises(BatchError, match=r"input x: expected int32, got float64; convert"):
        predict({"x": np.array([1.0])})
    with pytest.raises(BatchError, match=r"input x: expected the shape \[n, 1\], got \[1, 1, 1\]"):
        predict({"x": np.ones((1, 1, 1), np.int32)})


def test_a_fixed_number_of_rows(fixed: VMExecutable) -> None:
    for count in (0, 1, 2, 3, 4, 7):
        x = np.arange(2.0 * count).reshape(count, 2)
        np.testing.assert_array_equal(Predictor(fixed)({"x": x})["output_0"], 10 * x)


def test_no_rows_have_the_types_of_outputs(threshold: VMExecutable) -> None:
    predict = Predictor(threshold, constants={"limit": np.array(5, np.int32)})
    got = predict({"x": np.zeros(0, np.int64)})
    assert got["output_0"].shape == (0, 1)
    assert got["output_1"].dtype == bool


def test_a_single_input_takes_the_only_column(fixed: VMExecutable) -> None:
    x = np.ones((3, 2), np.float32)
    assert list(Predictor(fixed)({"data": x})) == ["output_0"]


# Mistakes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": None}, r"input y: the batch has no column of that name; it has id, a, b, c, d"),
        ({"a": None}, r"unknown column a; the batch has id, b, c, d, y"),
        ({"a": np.ones(4)}, r"columns: expected one length"),
        ({"a": np.ones((5, 1, 1))}, r"column a: expected a number or a list of numbers"),
        ({"a": np.array(list("vwxyz"), object)}, r"column a: expected numbers, since several"),
        ({"a": [None, 1, 2, 3, 4]}, r"column a: 1 of 5 values are missing"),
        ({"y": [[1], [1, 2], [1], [1], [1]]}, r"column y: expected rows of one shape, got"),
        ({"y": [[[1], [1, 2]]] * 5}, r"column y: a row is a nested list whose parts differ"),
        ({"y": [object()] * 5}, r"column y: expected numbers, arrays of numbers, or text, got"),
        ({"output_0": np.ones(5)}, r"output output_0: there is a column output_0 already"),
    ],
)
def test_batches_that_do_not_fit(change: dict, message: str) -> None:
    batch = {name: value for name, value in {**table(), **change}.items() if value is not None}
    with pytest.raises(BatchError, match=message):
        Predictor(programs.double(), inputs={"x": list("abcd")})(batch)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": {"z": "a"}}, r"unknown input z; the model has x, limit"),
        ({"constants": {"limits": 1}}, r"unknown input limits; did you mean 'limit'\?"),
        ({}, r"input limit is a number, the same for all rows: it needs a value in constants="),
        ({"function": "mian"}, r"there is no function mian; did you mean 'main'\?"),
    ],
)
def test_options_that_do_not_fit(threshold: VMExecutable, options: dict, message: str) -> None:
    with pytest.raises(BatchError, match=message):
        Predictor(threshold, **options)


def test_outputs_that_do_not_fit() -> None:
    batch = {"x": ONES, "y": ONES}
    with pytest.raises(BatchError, match=r"unknown output z; the model has output_0"):
        Predictor(programs.double(), outputs=["z"])(batch)
    with pytest.raises(BatchError, match=r"output_0: expected 2 numbers in a row, one for each"):
        Predictor(programs.double(), outputs={"output_0": ["p", "q"]})(batch)
    with pytest.raises(BatchError, match=r"keep: unknown column idd"):
        Predictor(programs.double(), keep=["idd"])(batch)
    with pytest.raises(BatchError, match=r"output output_0: expected a row for each of the 5 rows"):
        Predictor(programs.total())({"x": np.ones((5, 2), np.float32)})


def test_a_model_with_state_is_refused() -> None:
    with pytest.raises(BatchError, match=r"keeps state from call to call, so results would depend"):
        Predictor(programs.counter())


@pytest.mark.parametrize("batch", [None, 5, [1, 2], np.ones(3), "x"])
def test_other_things_are_no_batches(batch: object) -> None:
    with pytest.raises(TypeError, match=r"batch: expected a dict of arrays, a pandas DataFrame"):
        Predictor(programs.double())(batch)


def test_errors_of_the_model_name_the_batch() -> None:
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1, param_names=["x"]):
        eb.emit_call("tests.fail", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_ret(eb.r(1))

    def fail(x):
        raise ZeroDivisionError("in the model")

    predict = Predictor(eb.get(), functions={"tests.fail": fail})
    with pytest.raises(ZeroDivisionError, match="in the model") as caught:
        predict({"x": np.ones((5, 2))})
    assert caught.value.__notes__[-1] == "in a batch of 5 rows: x: float64[5, 2]"


def test_limits_hold() -> None:
    predict = Predictor(programs.endless(), limits=Limits(fuel=1000))
    with pytest.raises(LimitError, match="fuel"):
        predict({"arg0": np.ones(3)})


def test_many_threads_use_one_predictor() -> None:
    predict = Predictor(programs.double(), inputs={"x": list("abcd")})
    wrong = []

    def work() -> None:
        for _ in range(50):
            if not np.array_equal(predict(table())["output_0"], SUM):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_a_missing_engine_is_named(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] in (engine, "distributed")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, engine, None)
    calls = {
        "dask": lambda: relaxvm.contrib.dask.map_partitions(None, programs.double()),
        "ray": lambda: relaxvm.contrib.ray.map_batches(None, programs.double()),
    }
    with pytest.raises(MissingExtraError, match=rf"needs the package {engine}; install relaxvm\["):
        calls[engine]()


# Other processes


def test_a_predictor_of_an_executable_is_pickled() -> None:
    predict = Predictor(programs.double(), inputs={"x": list("abcd")})
    for protocol in (2, 4, 5):
        again = pickle.loads(pickle.dumps(predict, protocol))
        np.testing.assert_array_equal(again(table())["output_0"], SUM)


def test_a_predictor_of_a_path_is_pickled_as_the_path(tmp_path: Path) -> None:
    path = tmp_path / "it.vmexec"
    programs.double().save(path)
    pickled = pickle.dumps(Predictor(path, inputs={"x": list("abcd")}))
    assert len(pickled) < 1000
    np.testing.assert_array_equal(pickle.loads(pickled)(table())["output_0"], SUM)
    programs.total().save(path)
    with pytest.raises(BatchError, match=r"is another file on this machine: it has \d+ bytes, and"):
        pickle.loads(pickled)


def test_weights_in_a_buffer_out_of_band_are_not_copied() -> None:
    weights = np.random.default_rng(0).random(10_000)
    eb = ExecBuilder()
    with eb.function("main", num_inputs=0):
        eb.emit_call("vm.builtin.copy", args=[eb.convert_constant(weights)], dst=eb.r(0))
        eb.emit_ret(eb.r(0))
    buffers: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(eb.get(), 5, buffer_callback=buffers.append)
    assert len(stream) < 1000
    (buffer,) = buffers
    raw = buffer.raw()
    memory = np.zeros(raw.nbytes + 128, np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    shared = memory[start : start + raw.nbytes]
    shared[:] = np.frombuffer(raw, np.uint8)
    shared.flags.writeable = False
    again = pickle.loads(stream, buffers=[shared])
    assert again == eb.get()
    (constant,) = again.constants
    assert np.shares_memory(constant, shared)
    # Tensors that would not be aligned are copied.
    shared = memory[start - 8 :][: raw.nbytes] if start >= 8 else memory[start + 8 :][: raw.nbytes]
    shared[:] = np.frombuffer(raw, np.uint8)
    (constant,) = pickle.loads(stream, buffers=[shared]).constants
    assert not np.shares_memory(constant, shared)
    np.testing.assert_array_equal(constant, weights)


# Long runs


def test_a_run_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "checkpoints"
    functions = functions_of_counting(log, 0.0)
    tick = functions["tests.tick"]

    def breaks(n):
        saved = list(folder.iterdir())
        if int(n) == 3:
            for path in saved:
                path.unlink()
        elif int(n) > 4 and saved:  # after the third
            raise OSError("the node goes away")
        time.sleep(0.001)
        return tick(n)

    program, x = counting(5000), np.array([1.0, 2.0])
    with pytest.raises(OSError, match="goes away"):
        run_to_end(program, x, checkpoints=folder, every=1e-6,
                   functions={**functions, "tests.tick": breaks})  # fmt: skip
    (saved,) = folder.iterdir()
    assert saved.suffix == ".ckpt"
    before = len(ticks(log))
    got = run_to_end(program, x, checkpoints=folder, functions=functions)
    assert got.tolist() == [5001.0, 5002.0]
    numbers = [number for number, _ in ticks(log)]
    assert numbers[before] > 2
    assert numbers[before:] == list(range(numbers[before], 5000))
    assert not list(folder.iterdir())


def test_runs_of_other_arguments_are_other_runs(tmp_path: Path) -> None:
    functions = functions_of_counting(tmp_path / "log", 0.0)
    program = counting(3)
    arguments = [np.array([1.0]), np.array([2.0]), np.array([1.0], np.float32), (1, 2), (1, (2,)),
                 "1", 1, True, None]  # fmt: skip
    names = {checkpoint_name(program, "main", [each]) for each in arguments}
    assert len(names) == len(arguments)
    assert checkpoint_name(counting(4), "main", arguments[:1]) not in names
    assert checkpoint_name(program, "main", [np.array([1.0])]) in names
    x = np.array([2.0])
    run = relaxvm.VirtualMachine(program, functions=functions)["main"].start(np.array([7.0]))
    run.save(tmp_path / checkpoint_name(program, "main", [np.array([7.0])]))
    got = run_to_end(program, x, checkpoints=tmp_path, functions=functions)
    assert got.tolist() == [5.0]


def test_arguments_without_a_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"run_to_end: expected arrays, numbers, text, or tuples"):
        run_to_end(counting(3), object(), checkpoints=tmp_path,
                   functions=functions_of_counting(tmp_path / "log", 0.0))  # fmt: skip
