"""Models on Dask and Ray: rows per second on one and two workers, and the overhead of a batch.

The other side is a plain numpy function of the same model, on the same engine with the same
batches.  Clusters are processes of this machine, and every kernel has one thread.  A figure is the
difference between a long and a short job, so the start of a cluster and of its actors is not in it.

    python bench/compare_scaling.py --engine dask ray
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import clean
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
WIDTH = 64


def weights(hidden: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    return (rng.standard_normal((WIDTH, hidden), np.float32) / 8,
            rng.standard_normal((hidden, WIDTH), np.float32) / 8)  # fmt: skip


def make_model(hidden: int, repeats: int, path: Path) -> None:
    """A network of so many pairs of layers, as an ONNX file."""
    from onnx import TensorProto, helper, numpy_helper, save

    a, b = weights(hidden)
    nodes, value = [], "x"
    for number in range(repeats):
        nodes += [
            helper.make_node("MatMul", [value, "a"], [f"h{number}"]),
            helper.make_node("Relu", [f"h{number}"], [f"r{number}"]),
            helper.make_node("MatMul", [f"r{number}", "b"], [f"y{number}"]),
        ]
        value = f"y{number}"
    graph = helper.make_graph(
        nodes, "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["n", WIDTH])],
        [numpy_helper.from_array(a, "a"), numpy_helper.from_array(b, "b")],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


class Plain:
    """The same network in numpy."""

    def __init__(self, hidden: int, repeats: int) -> None:
        self.a, self.b = weights(hidden)
        self.repeats = repeats

    def predict(self, x: Array) -> Array:
        for _ in range(self.repeats):
            x = np.maximum(x @ self.a, 0) @ self.b
        return x

    def __call__(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": self.predict(batch["x"])}


# Engines: each makes a function of (side, batches), which runs a job


def on_dask(workers: int, rows: int, network: tuple[int, int], path: str) -> Any:
    import dask.array as da
    from distributed import Client, LocalCluster

    from relaxvm.contrib.dask import map_blocks

    cluster = LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=50
    )
    client = Client(cluster)
    plain = Plain(*network)

    def job(side: str, batches: int) -> None:
        x = da.ones((batches * rows, WIDTH), chunks=(rows, WIDTH), dtype=np.float32)
        if side == "numpy":
            y = x.map_blocks(plain.predict, dtype=np.float32)
        else:
            y = map_blocks(x, path)
        client.compute(y.sum()).result()

    def close() -> None:
        client.close()
        cluster.close()

    return job, close


def on_ray(workers: int, rows: int, network: tuple[int, int], path: str) -> Any:
    import ray
    import ray.data

    from relaxvm.contrib.ray import map_batches

    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    ray.init(num_cpus=workers + 1, object_store_memory=500 << 20, log_to_driver=False,
             logging_level=logging.ERROR)  # fmt: skip
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)

    def job(side: str, batches: int) -> None:
        x = np.ones((rows, WIDTH), np.float32)
        data = ray.data.from_blocks([_table(x)] * batches)
        if side == "numpy":
            done = data.map_batches(
                Plain, fn_constructor_args=network, batch_size=None, batch_format="numpy",
                num_cpus=1, compute=ray.data.ActorPoolStrategy(size=workers),
            )  # fmt: skip
        else:
            done = map_batches(data, path, workers=workers, batch_size=None, batch_format="numpy")
        assert done.materialize().count() == rows * batches

    return job, ray.shutdown


def _table(x: Array) -> Any:
    import pyarrow as pa

    return pa.table({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(x)})


ENGINES = {"dask": on_dask, "ray": on_ray}


def per_batch(job: Callable[[str, int], None], side: str, count: int, rounds: int) -> float:
    """Seconds for a batch: between a job of so many and one of three times as many."""
    times = []
    for _ in range(rounds):
        taken = []
        for batches in (count, 3 * count):
            begun = time.perf_counter()
            job(side, batches)
            taken.append(time.perf_counter() - begun)
        times.append((taken[1] - taken[0]) / (2 * count))
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--rows", type=int, default=2048, help="of a batch")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=8, help="pairs of layers")
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    clean.restart()
    import relaxvm

    print(f"{clean.machine()}, relaxvm {relaxvm.__version__}, numpy {np.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        for engine in options.engine:
            compare(engine, options, Path(folder))


def compare(engine: str, options: argparse.Namespace, folder: Path) -> None:
    large, small = (options.hidden, options.repeats), (64, 1)
    print(f"\n{engine}: {options.rows} rows of {WIDTH} numbers, {large[1]} pairs of layers of "
          f"{large[0]}")  # fmt: skip
    rates: dict[tuple[str, int], float] = {}
    make_model(*large, folder / "large.onnx")
    for workers in (1, 2):
        job, close = ENGINES[engine](workers, options.rows, large, str(folder / "large.onnx"))
        try:
            for side in ("numpy", "relaxvm"):
                job(side, 2)  # processes are there
                seconds = per_batch(job, side, options.batches, options.rounds)
                rates[side, workers] = options.rows / seconds
        finally:
            close()
    print("| rows per second | 1 worker | 2 workers | ratio |\n|---|---:|---:|---:|")
    for side in ("numpy", "relaxvm"):
        one, two = rates[side, 1], rates[side, 2]
        print(f"| {side} | {one:,.0f} | {two:,.0f} | {two / one:.2f} |")

    make_model(*small, folder / "small.onnx")
    job, close = ENGINES[engine](1, 16, small, str(folder / "small.onnx"))
    try:
        for side in ("numpy", "relaxvm"):
            job(side, 2)
        times = {
            side: per_batch(job, side, 4 * options.batches, options.rounds)
            for side in ("numpy", "relaxvm")
        }
    finally:
        close()
    print(f"a batch of 16 rows and one pair of layers of 64: numpy {1e3 * times['numpy']:.2f} ms, "
          f"relaxvm {1e3 * times['relaxvm']:.2f} ms")  # fmt: skip


if __name__ == "__main__":
    main()
