"""Models on a cluster of Ray: several nodes on this machine, one of which is killed."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import relaxvm
from relaxvm.contrib.batches import BatchError
from relaxvm.contrib.ray import Predictor, RemoteMachine, deployment, long_run, map_batches
from relaxvm.errors import ArityError, RelaxVMError
from relaxvm.script import ir as I
from relaxvm.script import relax as R

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

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")
pd = pytest.importorskip("pandas")
cluster_utils = pytest.importorskip("ray.cluster_utils")

@pytest.fixture(scope="module")
def cluster():
    """A head, and a node with two processors of its own."""
    # Workers import relaxvm from where this process has it.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    made = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 80 << 20}
    )
    made.add_node(num_cpus=2, object_store_memory=80 << 20)
    ray.init(address=made.address, logging_level=logging.ERROR, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
        del os.environ["PYTHONPATH"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    programs.double().save(tmp_path / "double.vmexec")
    return tmp_path / "double.vmexec"


@pytest.mark.parametrize("format_", ["pyarrow", "numpy", "pandas"])
@pytest.mark.parametrize("is_path", [True, False])
def test_batches(cluster, path: Path, format_: str, is_path: bool) -> None:
    data = ray.data.from_pandas(frame()).repartition(5)
    got = map_batches(
        data, path if is_path else programs.double(), workers=2, batch_size=64,
        batch_format=format_, inputs=INPUTS,
    ).to_pandas().sort_values("id")  # fmt: skip
    assert got["id"].tolist() == list(range(ROWS))
    np.testing.assert_array_equal(np.stack(got["output_0"]), expected(frame()))


def test_from_parquet_to_parquet_with_the_class(cluster, path: Path, tmp_path: Path) -> None:
    frame().to_parquet(tmp_path / "in.parquet")
    data = ray.data.read_parquet(os.fspath(tmp_path / "in.parquet"))
    data.map_batches(
        Predictor, fn_constructor_args=(os.fspath(path),), fn_constructor_kwargs={"inputs": INPUTS},
        batch_format="pyarrow", compute=ray.data.ActorPoolStrategy(size=1),
    ).write_parquet(os.fspath(tmp_path / "out"))  # fmt: skip
    table = pd.read_parquet(tmp_path / "out").sort_values("id")
    np.testing.assert_array_equal(np.stack(table["output_0"]), expected(frame()))


def test_mistakes_are_found_before_anything_is_computed(cluster, path: Path) -> None:
    data = ray.data.from_pandas(frame())
    with pytest.raises(BatchError, match=r"unknown input z"):
        map_batches(data, path, inputs={"z": "a"})
    with pytest.raises(FileNotFoundError):
        map_batches(data, "no such file")


@I.ir_module
class _Product:
    @R.function
    def main(
        x: R.Tensor(("n", 1000), "float32"), w: R.Tensor((1000, 100), "float32")
    ) -> R.Tensor(("n", 100), "float32"):
        with R.dataflow():
            y = R.matmul(x, w)
            R.output(y)
        return y


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_weights_are_in_shared_memory(cluster) -> None:
    weights = np.random.default_rng(0).random((1000, 100), np.float32)
    executable = relaxvm.compile(_Product, params={"w": weights})

    def places(references):
        from relaxvm.contrib.ray.common import received

        executable = received(references[0])
        found = []
        for constant in executable.constants:
            if isinstance(constant, np.ndarray) and constant.size > 1000:
                address = constant.__array_interface__["data"][0]
                with open("/proc/self/maps") as file:
                    for line in file:
                        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
                        if begin <= address < end:
                            found.append(line)
        return found

    found = ray.get(ray.remote(places).remote([ray.put(executable)]))
    assert found
    assert all("plasma" in place for place in found), found


@pytest.fixture
def spare_nodes(cluster):
    """Two nodes with one processor each, and a resource "spare" of their own."""
    nodes = [
        cluster.add_node(num_cpus=1, object_store_memory=80 << 20, resources={"spare": 1})
        for _ in range(2)
    ]
    yield nodes
    for node in nodes:
        cluster.remove_node(node)


def kill_node_of(cluster, nodes: list, process: int) -> None:
    """Kill the node of a worker process, and take it out of the list."""
    with open(f"/proc/{process}/stat") as file:
        raylet = int(file.read().rsplit(")", 1)[1].split()[1])  # the parent
    (node,) = [n for n in nodes if n.all_processes["raylet"][0].process.pid == raylet]
    nodes.remove(node)
    cluster.remove_node(node, allow_graceful=False)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_each_row_is_once_in_the_output_though_a_node_is_killed(
    cluster, spare_nodes, tmp_path: Path
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    functions = functions_of_counting(log, 0.01)
    data = ray.data.from_pandas(pd.DataFrame({"x": np.arange(ROWS), "id": np.arange(ROWS)}))
    todo = map_batches(
        data.repartition(40), counting(5), workers=2, batch_size=10, functions=functions,
        outputs={"output_0": "y"}, ray_options={"resources": {"spare": 1}},
    )  # fmt: skip
    failed = []

    def work() -> None:
        try:
            todo.write_parquet(os.fspath(out))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: failed or len(ticks(log)) > 25)
    first = ticks(log)[-1][1]
    kill_node_of(cluster, spare_nodes, first)
    thread.join()
    assert not failed
    processes = [process for _, process in ticks(log)]
    assert len(processes) - processes.index(first) > 100, "the job had ended before"
    got = pd.read_parquet(out)
    assert sorted(got["id"]) == list(range(ROWS))
    assert (got["y"] == got["id"] + 5).all()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_long_run_goes_on_with_another_node(cluster, spare_nodes, tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "checkpoints"
    reference = long_run(
        counting(600), np.array([5.0]), checkpoints=folder, every=0.05,
        functions=functions_of_counting(log, 0.005), ray_options={"resources": {"spare": 1}},
    )  # fmt: skip
    wait_until(lambda: len(ticks(log)) > 50 and list(folder.glob("*.ckpt")))
    first = ticks(log)[-1][1]
    kill_node_of(cluster, spare_nodes, first)
    assert ray.get(reference).tolist() == [605.0]
    numbers = [number for number, process in ticks(log) if process != first]
    assert numbers[-1] == 599
    assert numbers[0] > 0, "it has begun anew"
    assert not list(folder.glob("*.ckpt"))


# Machines


def test_a_machine_keeps_its_state_and_outputs(cluster) -> None:
    with RemoteMachine(programs.counter()) as vm, RemoteMachine(programs.counter()) as other:
        assert vm.functions == ["main"]
        for _ in range(3):
            vm.set_input("main", np.ones(1, np.float32))
            vm.invoke_stateful("main")
        other.set_input("main", ray.put(np.ones(1, np.float32)))
        other.invoke_stateful("main")
        assert vm.get_outputs("main").tolist() == [3.0]
        assert other.get_outputs("main").tolist() == [1.0]


def test_errors_are_those_of_a_machine(cluster, tmp_path: Path) -> None:
    with RemoteMachine(programs.counter()) as vm:
        with pytest.raises(ValueError, match=r"unknown function: VM has no function 'other'"):
            vm.set_input("other", 1)
        with pytest.raises(ArityError, match=r"main: expects 1 argument, got 2"):
            vm.set_input("main", 1, 2)
        with pytest.raises(ValueError, match=r"main: no output is saved"):
            vm.get_outputs("main")
    with pytest.raises(RelaxVMError, match=r"the machine was closed"):
        vm.get_outputs("main")
    (tmp_path / "it.py").write_text("print()")
    with pytest.raises(ValueError, match=r"reading a Python script runs it"):
        RemoteMachine(tmp_path / "it.py")
    with pytest.raises(ValueError, match=r"expiry: expected seconds above 0, got 0"):
        RemoteMachine(programs.counter(), expiry=0)


def test_a_machine_expires(cluster) -> None:
    vm = RemoteMachine(programs.counter(), expiry=0.5)
    vm.set_input("main", np.ones(1, np.float32))

    def has_ended() -> bool:
        time.sleep(1.0)
        try:
            vm.get_outputs("main")
        except RelaxVMError as error:
            return "the actor has ended" in str(error)
        except ValueError:
            return False
        return False

    wait_until(has_ended)


# Ray Serve


def test_a_deployment(cluster, path: Path) -> None:
    serve = pytest.importorskip("ray.serve")
    pytest.importorskip("prometheus_client")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    try:
        port = _free_port()
        serve.start(http_options={"port": port, "host": "127.0.0.1"})
        handle = serve.run(deployment(path, num_replicas=2, num_cpus=0.5), route_prefix="/")
        results = [handle.infer.remote({"x": x, "y": x}) for _ in range(8)]
        for each in results:
            np.testing.assert_array_equal(each.result()["output_0"], 4 * x)
        with pytest.raises(ValueError, match=r"inputs are missing: y"):
            handle.infer.remote({"x": x}).result()
        url = f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(f"{url}/v2/models/double") as answer:
            assert b'"name":"x"' in answer.read()
        other = serve.run(deployment(programs.double(), name="of_memory"), name="other",
                          route_prefix="/other")  # fmt: skip
        got = other.infer.remote({"x": x, "y": x}, model="of_memory").result()
        np.testing.assert_array_equal(got["output_0"], 4 * x)
        with urllib.request.urlopen(f"{url}/other/v2/health/ready") as answer:
            assert answer.status == 200
    finally:
        serve.shutdown()


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port
