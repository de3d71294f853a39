"""Operators of networks, alone and in chains: time beside onnxruntime, and the machine's roof.

    python bench/bench_nn.py [FAMILY ...] [--python OTHER] [--set avx2] [--threads N] [--rounds N]
                             [--cpu-time] [--length N] [--json FILE]

FAMILY is one of `FAMILIES`; without any, all of them.  Each case is a model of one operator, of
two, and of ten after each other: onnxruntime reorders the image before and after a lone
convolution, so that a node alone says little about a network.  Those of the family ``tiny`` are
1, 10, 100 and 1,000 operators long: what is measured is the time between kernels.  `--length`
measures chains of one length alone.

For each case: milliseconds of both sides, their ratio, and for relaxvm the products and sums per
second (GFLOP/s) and the bytes per second of operands and results (GB/s), the larger one of both as
a share of what this machine does: of a large product of matrices in numpy, and of copying arrays
that do not fit in the caches.  Operands that stay in a cache are read faster than that: their share
may be above 100 %.  Both are measured first, by as many threads as `--threads`, on memory that was
written before: pages that were not are one page of zeros in the cache.

The other options are those of `compare_models.py`, which runs the models.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import clean
import compare_models
import numpy as np

LENGTHS: Final = (1, 2, 10)
TINY: Final = (1, 10, 100, 1000)
FLOAT: Final = 1  # onnx.TensorProto.FLOAT


@dataclass(frozen=True)
class Case:
    """An operator whose result has the shape of its operand, so that it can follow itself."""

    name: str
    operator: str
    shape: tuple[int, ...]
    weights: tuple[tuple[int, ...], ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    flops: int = 0
    """Products and sums of one operator."""
    then: tuple[str, ...] = ()
    """Operators of one operand that follow each."""
    lengths: tuple[int, ...] = LENGTHS

    @property
    def bytes(self) -> int:
        """Of the operand, the result and the weights, each once."""
        return 4 * (2 * math.prod(self.shape) + sum(map(math.prod, self.weights)))


def convolutions() -> Iterator[Case]:
    for window, channels, side in (
        (3, 64, 56), (3, 128, 28), (3, 256, 14), (3, 512, 7), (3, 16, 55), (3, 96, 28),
        (1, 64, 56), (1, 256, 28), (1, 512, 14), (1, 1024, 7), (5, 32, 28),
    ):  # fmt: skip
        yield convolution(channels, side, window, 1)


def depthwise() -> Iterator[Case]:
    for window, channels, side in (
        (3, 32, 112), (3, 144, 56), (3, 576, 14), (3, 960, 7), (5, 96, 28), (7, 96, 56),
    ):  # fmt: skip
        yield convolution(channels, side, window, channels)


def convolution(channels: int, side: int, window: int, groups: int) -> Case:
    weight = channels, channels // groups, window, window
    return Case(
        f"conv {window}x{window} {channels}x{side}x{side}" + f" groups {groups}" * (groups > 1),
        "Conv",
        (1, channels, side, side),
        (weight,),
        {"pads": [window // 2] * 4, "group": groups},
        2 * math.prod(weight) * side * side,
    )


def products() -> Iterator[Case]:
    for rows, columns in ((1, 1024), (1, 4096), (16, 768), (64, 1024), (128, 768), (512, 512)):
        yield Case(
            f"matmul {rows}x{columns}x{columns}", "MatMul", (rows, columns), ((columns, columns),),
            {}, 2 * rows * columns * columns,
        )  # fmt: skip


def functions() -> Iterator[Case]:
    for operator in ("Sigmoid", "Tanh", "Erf", "Relu", "HardSwish"):
        for shape in ((1, 4096), (1, 64, 56, 56)):
            size = "x".join(map(str, shape))
            yield Case(f"{operator.lower()} {size}", operator, shape)


def elementwise() -> Iterator[Case]:
    for operator in ("Add", "Mul", "Max"):
        for shape, other in (((1, 4096), (4096,)), ((1, 64, 56, 56), (64, 1, 1)),
                             ((1, 64, 112, 112), (1, 64, 112, 112))):  # fmt: skip
            size = "x".join(map(str, shape))
            yield Case(f"{operator.lower()} {size}", operator, shape, (other,))


def rows() -> Iterator[Case]:
    for shape in ((128, 128), (128, 768), (1536, 128)):
        size = "x".join(map(str, shape))
        yield Case(f"softmax {size}", "Softmax", shape, (), {"axis": -1})
        vectors = ((shape[-1],), (shape[-1],))
        yield Case(f"layer norm {size}", "LayerNormalization", shape, vectors, {"axis": -1})
    for shape in ((1, 64, 56, 56), (1, 192, 28, 28)):
        yield Case(f"lrn {'x'.join(map(str, shape))}", "LRN", shape, (), {"size": 5})


def pools() -> Iterator[Case]:
    for operator in ("MaxPool", "AveragePool"):
        for channels, side in ((64, 112), (192, 28), (832, 7)):
            attributes = {"kernel_shape": [3, 3], "pads": [1] * 4}
            name = f"{operator.lower()} 3x3 {channels}x{side}x{side}"
            yield Case(name, operator, (1, channels, side, side), (), attributes)


def movement() -> Iterator[Case]:
    """Transposes to the same shape.  Two of them would be one, or none, for both sides."""
    for shape, perm in (
        ((1024, 1024), (1, 0)), ((1, 128, 128, 64), (0, 2, 1, 3)), ((1, 56, 56, 56), (0, 2, 3, 1)),
        ((1, 56, 56, 56), (0, 3, 1, 2)),
    ):  # fmt: skip
        name = f"transpose {'x'.join(map(str, shape))} {''.join(map(str, perm))}"
        yield Case(name, "Transpose", shape, (), {"perm": perm}, lengths=(1,))


def tiny() -> Iterator[Case]:
    for operator in ("Add", "Mul"):
        for count in (4, 64):
            yield Case(
                f"{operator.lower()} {count}", operator, (count,), ((count,),), {}, count, (), TINY
            )
    yield Case("tanh 4", "Tanh", (4,), (), {}, 4, (), TINY)
    weights = (8, 8), (8,)
    yield Case("layer 8x8 and relu", "Gemm", (8, 8), weights, {}, 1088, ("Relu",), TINY)
    yield Case("layer 1x8 and relu", "Gemm", (1, 8), weights, {}, 136, ("Relu",), TINY)


FAMILIES: Final[dict[str, Callable[[], Iterator[Case]]]] = {
    "convolutions": convolutions,
    "depthwise": depthwise,
    "products": products,
    "functions": functions,
    "elementwise": elementwise,
    "rows": rows,
    "pools": pools,
    "movement": movement,
    "tiny": tiny,
}


def model_of(case: Case, length: int) -> Any:
    """So many of the operator after each other, with weights that keep the size of results."""
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes, weights = [], []
    for i in range(length):
        names = []
        for k, shape in enumerate(case.weights):
            terms = max(1, math.prod(shape[1:] if case.operator == "Conv" else shape[:1]))
            scale = 1.0 if len(shape) == 1 else terms**-0.5
            drawn = (rng.standard_normal(shape) * scale).astype(np.float32)
            names.append(f"w{i}_{k}")
            if case.operator == "Mul":
                drawn = np.exp2(drawn / 100)  # else most products of a chain are subnormal numbers
            weights.append(numpy_helper.from_array(drawn, names[-1]))
        between = [f"x{i}", *(f"y{i}_{k}" for k in range(len(case.then))), f"x{i + 1}"]
        nodes.append(
            helper.make_node(case.operator, [between[0], *names], [between[1]], **case.attributes)
        )
        for k, operator in enumerate(case.then, 1):
            nodes.append(helper.make_node(operator, [between[k]], [between[k + 1]]))
    shape = list(case.shape)
    ends = [helper.make_tensor_value_info(n, FLOAT, shape) for n in ("x0", f"x{length}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def roof(threads: int, cpu_time: bool) -> tuple[float, float]:
    """GFLOP/s of products of matrices and GB/s of copies, reading and writing, of so many threads
    at once: the best of some tries."""
    clock = time.thread_time if cpu_time else time.perf_counter
    size, length = 1024, 1 << 24
    factors = np.ones((size, size), np.float32)
    products = [np.zeros((size, size), np.float32) for _ in range(threads)]
    pairs = [(np.ones(length, np.float32), np.zeros(length, np.float32)) for _ in range(threads)]

    def multiply(i: int) -> float:
        start = clock()
        np.matmul(factors, factors, products[i])
        return clock() - start

    def copy(i: int) -> float:
        start = clock()
        np.copyto(*pairs[i][::-1])
        return clock() - start

    with ThreadPoolExecutor(threads) as pool:
        flops, copied = (
            min(max(pool.map(work, range(threads))) for _ in range(10)) for work in (multiply, copy)
        )
    return threads * 2 * size**3 / flops / 1e9, threads * 8 * length / copied / 1e9


def measured_roof(options: argparse.Namespace) -> tuple[float, float]:
    """The same of a process whose BLAS library uses no threads of its own."""
    command = [sys.executable, __file__, "--roof", f"--threads={options.threads}"]
    command += ["--cpu-time"] * options.cpu_time
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    flops, copied = json.loads(done.stdout)
    return flops, copied


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--python", default=sys.executable, help="interpreter with onnxruntime")
    parser.add_argument("--set", help="instructions of our kernels, such as avx2")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--length", type=int, action="append", help="of the chains")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    parser.add_argument("--roof", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.roof:
        print(json.dumps(roof(options.threads, options.cpu_time)))
        return 0
    for name in options.families:
        if name not in FAMILIES:
            parser.error(f"unknown family {name!r}; there are: {', '.join(FAMILIES)}")
    options.dim, options.value, options.limit, options.profile = [], [], 600, False
    options.peers = {}
    import onnx

    flops, copied = measured_roof(options)
    kernels = options.set or "the best set"
    print(f"{clean.machine()}; threads: {options.threads}; kernels: {kernels}")
    print(f"roof: {flops:.0f} GFLOP/s, {copied:.0f} GB/s", flush=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for family in options.families or FAMILIES:
            for case in FAMILIES[family]():
                for length in options.length or case.lengths:
                    path = Path(folder) / f"{case.name}, {length}.onnx"
                    onnx.save(model_of(case, length), path)
                    row = compare_models.compared(path, options)
                    path.unlink()
                    row.update(family=family, case=case.name, length=length)
                    if row.get("relaxvm"):  # else a side failed, or the clock saw nothing
                        row["gflops"] = case.flops * length / row["relaxvm"] / 1e9
                        row["gbytes"] = case.bytes * length / row["relaxvm"] / 1e9
                        row["share"] = max(row["gflops"] / flops, row["gbytes"] / copied)
                        print(f"    {row['gflops']:8.1f} GFLOP/s {row['gbytes']:8.1f} GB/s "
                              f"{row['share']:6.0%} of the roof", flush=True)  # fmt: skip
                    rows.append(row)
    for length in sorted({row["length"] for row in rows}):
        ratios = [row["ratio"] for row in rows if row["length"] == length and "ratio" in row]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"chains of {length}: geometric mean of {len(ratios)} ratios: {mean:.2f}")
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    clean.restart()
    sys.exit(main())
