"""The dataflow executor beside the sequential one: networks with branches, and chains.

    python bench/compare_dataflow.py [--rounds 40] [--threads 2] [--model PATH ...]

Each program runs on both machines in turn, with one thread for each kernel, and the results are
compared bit by bit.  The ratio is the time in order over the time side by side, of the fastest
runs.  With ``--kernel-threads`` kernels may use so many threads in order, as they do by default.
Networks that are not written here need the package onnx; ``--model`` takes other files, which run
on drawn inputs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clean
import numpy as np

import relaxvm
from relaxvm import BlockBuilder, get_pipeline, op
from relaxvm.ir import ShapeExpr, TensorType, Var


def tensor(name: str, *shape: int) -> Var:
    return Var(name, TensorType(ShapeExpr(list(shape)), "float32"))


def program(make: Callable[..., Any], **shapes: tuple[int, ...]) -> Any:
    """An IRModule whose ``main`` has parameters of these shapes."""
    builder = BlockBuilder()
    params = [tensor(name, *shape) for name, shape in shapes.items()]
    with builder.function("main", params):
        with builder.dataflow():
            made = make(builder, *params)
            result = builder.emit_output(made)
        builder.emit_func_output(result)
    return builder.get()


def perceptron(builder: Any, x: Any, *weights: Any) -> Any:
    for weight in weights:
        x = builder.emit(op.nn.softmax(builder.emit(op.matmul(x, weight))))
    return x


def towers(rows: int) -> tuple[Any, list[Any]]:
    """A recommender: a network for the user, one for the item, and their product."""

    def make(builder: Any, user: Any, item: Any, *weights: Any) -> Any:
        left = perceptron(builder, user, *weights[:3])
        right = perceptron(builder, item, *weights[3:])
        return op.sum(builder.emit(op.multiply(left, right)), axis=[1])

    shapes = {"user": (rows, 512), "item": (rows, 512), **{f"w{i}": (512, 512) for i in range(6)}}
    return program(make, **shapes), drawn(shapes)


def ensemble(rows: int, members: int) -> tuple[Any, list[Any]]:
    """The mean of several networks."""

    def make(builder: Any, x: Any, *weights: Any) -> Any:
        outs = [perceptron(builder, x, *weights[2 * i : 2 * i + 2]) for i in range(members)]
        total = outs[0]
        for out in outs[1:]:
            total = builder.emit(op.add(total, out))
        return total

    shapes = {"x": (rows, 256), **{f"w{i}": (256, 256) for i in range(2 * members)}}
    return program(make, **shapes), drawn(shapes)


def chain(rows: int, length: int) -> tuple[Any, list[Any]]:
    """One network after the other."""

    def make(builder: Any, x: Any, w: Any) -> Any:
        return perceptron(builder, x, *[w] * length)

    shapes = {"x": (rows, 256), "w": (256, 256)}
    return program(make, **shapes), drawn(shapes)


def small_chain(length: int) -> tuple[Any, list[Any]]:
    def make(builder: Any, x: Any, y: Any) -> Any:
        for _ in range(length):
            x = builder.emit(op.matmul(x, y))
        return x

    shapes = {"x": (8, 8), "y": (8, 8)}
    return program(make, **shapes), drawn(shapes)


def small_branches(count: int) -> tuple[Any, list[Any]]:
    """Independent calls that take less time than it takes to wake a thread."""

    def make(builder: Any, x: Any, y: Any) -> Any:
        outs = [builder.emit(op.matmul(x, y)) for _ in range(count)]
        total = outs[0]
        for out in outs[1:]:
            total = builder.emit(op.add(total, out))
        return total

    shapes = {"x": (8, 8), "y": (8, 8)}
    return program(make, **shapes), drawn(shapes)


def drawn(shapes: dict[str, tuple[int, ...]]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [(rng.standard_normal(s) / s[-1] ** 0.5).astype(np.float32) for s in shapes.values()]


def programs(models: list[str]) -> Iterator[tuple[str, Any, list[Any]]]:
    """Names, programs or files, and arguments."""
    yield "towers, 64 rows", *towers(64)
    yield "towers, 512 rows", *towers(512)
    yield "ensemble of 4, 256 rows", *ensemble(256, 4)
    yield "chain of 8, 256 rows", *chain(256, 8)
    yield "chain of 200 products 8x8", *small_chain(200)
    yield "50 independent products 8x8", *small_branches(50)
    rng = np.random.default_rng(0)
    image = rng.random((1, 3, 224, 224), dtype=np.float32)
    try:
        import onnx
        import onnx_models
    except ImportError:
        print("(inception and resnet are left out: they need the package onnx)")
    else:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("inception_v1", "inception_v2", "squeezenet", "resnet50"):
                path = Path(folder) / f"{name}.onnx"
                onnx.save(onnx_models.light(name), path)
                yield name, str(path), [image]
    for path in models:
        vm = relaxvm.VirtualMachine(path)
        args = [
            rng.random([dim if isinstance(dim, int) and dim > 0 else 1 for dim in each.shape],
                       dtype=np.float32)
            for each in relaxvm.contrib.onnxruntime.InferenceSession(path).get_inputs()
        ]  # fmt: skip
        del vm
        yield Path(path).name, path, args


def compare(source: Any, args: list[Any], rounds: int, threads: int) -> tuple[float, float, float]:
    """Seconds in order, and side by side; and how many calls ran at once."""
    executable = compiled(source, keep_apart=True)
    ordinary = compiled(source, keep_apart=False)
    in_order = relaxvm.VirtualMachine(ordinary)
    beside = relaxvm.VirtualMachine(executable, executor="dataflow", threads=threads)
    for _ in range(5):
        same(beside["main"](*args), in_order["main"](*args))
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for found, vm in zip(times, (in_order, beside), strict=True):
            main = vm["main"]
            start = time.perf_counter()
            main(*args)
            found.append(time.perf_counter() - start)
    with relaxvm.schedule(beside) as schedule:
        beside["main"](*args)
    return min(times[0]), min(times[1]), schedule.gain


def compiled(source: Any, *, keep_apart: bool) -> relaxvm.VMExecutable:
    """Compile as a model, also what is no file."""
    pipeline = get_pipeline("model", keep_apart=keep_apart)
    return relaxvm.compile(source, relax_pipeline=pipeline, cache=False)


def same(got: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        for a, b in zip(got, expected, strict=True):
            same(a, b)
    else:
        np.testing.assert_array_equal(got, expected)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kernel-threads", type=int, default=1)
    parser.add_argument("--model", action="append", default=[])
    options = parser.parse_args()
    clean.restart()
    relaxvm.set_num_threads(options.kernel_threads)
    print(f"{clean.machine()}; {options.kernel_threads} thread(s) per kernel, "
          f"{options.threads} for independent calls")
    print(f"{'':32}{'in order':>12}{'side by side':>14}{'ratio':>8}{'at once':>9}")
    for name, source, args in programs(options.model):
        one, other, gain = compare(source, args, options.rounds, options.threads)
        print(f"{name:32}{1e3 * one:9.3f} ms{1e3 * other:11.3f} ms{one / other:8.2f}{gain:9.2f}")


if __name__ == "__main__":
    main()
