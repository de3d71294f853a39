"""Kernels on small tensors: the C implementation, compared with the reference in Python.

    python bench/bench_kernels.py [--repeats N] [--json FILE]

Both are called from Python with the same arguments.  Results are compared bit for bit before
anything is timed, and the two sides alternate.  The exit status is 1 if a kernel is slower in C.
Kernels that are chains of ufuncs are timed too; they have only one implementation.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import clean
import numpy as np

import relaxvm
from relaxvm.messages import describe

RNG = np.random.default_rng(0)
CALLS = 100
"""That are timed together."""


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


ROWS: tuple[tuple[str, tuple[Any, ...], tuple[np.ndarray, ...]], ...] = (
    ("add", (floats(1, 1, 64), floats(64)), (floats(1, 1, 64),)),
    ("nn.relu", (floats(64),), (floats(64),)),
    ("where", (floats(64) > 0, floats(64), floats(64)), (floats(64),)),
    ("clip", (floats(64), -1.0, 1.0), (floats(64),)),
    ("full", (0.0,), (floats(64),)),
    ("nn.softmax", (floats(1, 96), -1), (floats(1, 96),)),
    ("nn.log_softmax", (floats(1, 96), -1), (floats(1, 96),)),
    ("nn.rms_norm", (floats(1, 1, 64), floats(64), relaxvm.Shape((-1,)), 1e-5),
     (floats(1, 1, 64),)),
    ("nn.layer_norm", (floats(1, 64), floats(64), floats(64), relaxvm.Shape((-1,)), 1e-5, True,
                       True), (floats(1, 64),)),
    ("nn.attention", (floats(1, 1, 8, 8), floats(1, 64, 8, 8), floats(1, 64, 8, 8),
                      floats(1, 8, 1, 64), None, None), (floats(1, 1, 8, 8),)),
    ("matmul", (floats(1, 1, 64), floats(64, 64)), (floats(1, 1, 64),)),
    ("concat", (floats(1, 63, 8, 8), floats(1, 1, 8, 8), 1), (floats(1, 64, 8, 8),)),
    ("stack", (floats(64), floats(64), 0), (floats(2, 64),)),
    ("split", (floats(1, 1, 192), 3, 2), tuple(floats(1, 1, 64) for _ in range(3))),
    ("take", (floats(96, 64), np.array([7]), 0), (floats(1, 64),)),
    ("sum", (RNG.integers(0, 9, (1, 96)), relaxvm.Shape((1,))), (np.zeros(1, np.int64),)),
    ("argmax", (floats(1, 96), 1), (np.zeros(1, np.int64),)),
    ("permute_dims", (floats(1, 8, 8, 4), relaxvm.Shape((0, 2, 1, 3))), (floats(1, 8, 8, 4),)),
)  # fmt: skip
CHAINS = ("rsqrt", "sigmoid", "nn.silu", "nn.gelu_tanh", "erf", "nn.gelu")


def timed(call: Callable[..., Any], args: tuple[Any, ...]) -> float:
    """Return the microseconds per call."""
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        call(*args)
    return (time.perf_counter_ns() - start) / 1000 / CALLS


def bits(call: Callable[..., Any], args: tuple[Any, ...], outs: tuple[np.ndarray, ...]) -> Any:
    call(*args, *outs)
    return [out.tobytes() for out in outs]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30, help="times each side runs 100 calls")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    options = parser.parse_args()

    print(f"relaxvm {relaxvm.__version__}, CPython {platform.python_version()}, "
          f"numpy {np.__version__}, {clean.machine()}")
    print("microseconds per call")
    print(f"{'':18}{'in Python':>11}{'in C':>9}{'ratio':>8}   tensors")
    table: list[dict[str, Any]] = []
    for name, args, outs in ROWS:
        direct = relaxvm.get_func(f"relaxvm.kernel.{name}")
        sides = (direct, direct.__wrapped__)
        assert bits(sides[0], args, outs) == bits(sides[1], args, outs), "results differ"
        best = [float("inf")] * 2
        for _ in range(options.repeats):
            best = [min(b, timed(side, (*args, *outs)))
                    for b, side in zip(best, sides, strict=True)]  # fmt: skip
        tensors = ", ".join(describe(x) for x in args if isinstance(x, np.ndarray))
        print(f"{name:18}{best[1]:11.2f}{best[0]:9.2f}{best[1] / best[0]:8.1f}   {tensors}",
              flush=True)  # fmt: skip
        table.append({"name": name, "python_us": best[1], "c_us": best[0]})
    for name in CHAINS:
        chain = relaxvm.get_func(f"relaxvm.kernel.{name}")
        args = np.abs(floats(64)), floats(64)
        fastest = min(timed(chain, args) for _ in range(options.repeats))
        print(f"{name:18}{'':11}{fastest:9.2f}{'':8}   {describe(args[0])}", flush=True)
        table.append({"name": name, "c_us": fastest})
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(table, file, indent=1)
    return int(any(row.get("python_us", math.inf) < row["c_us"] for row in table))


if __name__ == "__main__":
    clean.restart()
    sys.exit(main())
