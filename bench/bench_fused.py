"""Fused chains of elementwise kernels, compared with separate calls of the same kernels.

    python bench/bench_fused.py [--repeats N] [--json FILE]

Both sides run on relaxvm: one calls ``relaxvm.kernel.fused`` once, the other one kernel per step,
each with its own preallocated output.  On small tensors a program repeats the chain many times.
Results are compared bit for bit before anything is timed, and the two sides alternate.  The exit
status is 1 if fusing makes a chain slower on a large tensor.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import clean
import numpy as np

import relaxvm
from relaxvm import ExecBuilder, VMExecutable
from relaxvm.kernels.fused import Ref, parse

CHAINS = {
    "2 of arithmetic": "multiply($0, $1); add(%0, $0) -> %1",
    "4 of arithmetic": "multiply($0, 0.5); add(%0, $1); maximum(%1, 0.0); subtract(%2, $0) -> %3",
    "8 of arithmetic": "multiply($0, $0); add(%0, 1.0); multiply(%1, $1); subtract(%2, $0); "
                       "maximum(%3, $1); minimum(%4, 4.0); negative(%5); add(%6, $0) -> %7",
    "with a comparison": "greater($0, $1); subtract($0, $1); multiply(%1, %1); "
                         "where(%0, %1, %2); add(%3, 1.0) -> %4",
    "with exp and tanh": "multiply($0, $1); exp(%0); add(%1, 1.0); divide($0, %2); tanh(%3); "
                         "add(%4, $1) -> %5",
}  # fmt: skip
SIZES = (1, 4, 1 << 6, 1 << 10, 1 << 12, 1 << 16, 1 << 20, 1 << 24)
LARGE = 1 << 20


def fused(chain: str, count: int) -> VMExecutable:
    """``main(x, y, out)``: the fused chain, `count` times."""
    b = ExecBuilder()
    with b.function("main", num_inputs=3):
        args = [b.r(0), b.r(1), b.convert_constant(chain), b.r(2)]
        for _ in range(count):
            b.emit_call("relaxvm.kernel.fused", args)
        b.emit_ret(b.r(2))
    return b.get()


def separate(chain: str, count: int) -> VMExecutable:
    """``main(x, y, out of step 0, out of step 1, ...)``: the separate kernels, `count` times."""
    steps = parse(chain).steps
    b = ExecBuilder()
    with b.function("main", num_inputs=2 + len(steps)):
        for i, step in [*enumerate(steps)] * count:
            operands = [b.r(x.number + 2 * (x.kind == "%")) if isinstance(x, Ref)
                        else b.convert_constant(x) for x in step.operands]  # fmt: skip
            b.emit_call(f"relaxvm.kernel.{step.name}", [*operands, b.r(2 + i)])
        b.emit_ret(b.r(1 + len(steps)))
    return b.get()


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1000


def calls(size: int) -> int:
    """Return how many times a program runs a chain on tensors of `size` elements."""
    return max(1, min(100, (1 << 16) // size))


def sides(chain: str, size: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return calls of the fused and of the separate kernels, on the same inputs."""
    rng = np.random.default_rng(size)
    x, y = (rng.random(size, dtype=np.float32) for _ in range(2))
    out = np.zeros_like(x)
    outs = [np.zeros(size, bool if step.name == "greater" else np.float32)
            for step in parse(chain).steps]  # fmt: skip
    one = relaxvm.VirtualMachine(fused(chain, calls(size)))["main"]
    many = relaxvm.VirtualMachine(separate(chain, calls(size)))["main"]
    assert one(x, y, out).tobytes() == many(x, y, *outs).tobytes(), "results differ"
    return lambda: one(x, y, out), lambda: many(x, y, *outs)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="times each side runs")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    options = parser.parse_args()

    print(f"relaxvm {relaxvm.__version__}, CPython {platform.python_version()}, "
          f"numpy {np.__version__}, {clean.machine()}")
    print("microseconds")
    print(f"{'':20}{'float32s':>10}{'separate':>11}{'fused':>11}{'ratio':>8}")
    table = []
    for name, chain in CHAINS.items():
        for size in SIZES:
            best = [float("inf")] * 2
            both = sides(chain, size)
            for _ in range(options.repeats * (1 if size >= LARGE else 20)):
                best = [min(b, timed(side) / calls(size))
                        for b, side in zip(best, both, strict=True)]  # fmt: skip
            ratio = best[1] / best[0]
            print(f"{name:20}{size:10}{best[1]:11.3f}{best[0]:11.3f}{ratio:8.2f}", flush=True)
            table.append({"name": name, "size": size, "separate_us": best[1], "fused_us": best[0]})
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(table, file, indent=1)
    return int(any(row["size"] >= LARGE and row["separate_us"] < row["fused_us"] for row in table))


if __name__ == "__main__":
    clean.restart()
    sys.exit(main())
