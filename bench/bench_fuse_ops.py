"""Programs of elementwise operators with and without FuseOps.

    python bench/bench_fuse_ops.py [--repeats N]

Each program is Relax script, built by the default pipeline with and without FuseOps.  Results are
compared bit for bit before anything is timed, and the two sides alternate.  The program allocates
its outputs, as in normal use.  The exit status is 1 if fusing makes a program slower on large
tensors.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from typing import Any

import clean
import numpy as np

import relaxvm
from relaxvm import transform
from relaxvm.script import from_source

PROGRAMS = {
    "gelu by tanh": ("x", (
        "a = R.multiply(x, x)", "b = R.multiply(a, x)",
        "c = R.multiply(b, R.const(0.044715, 'float32'))", "d = R.add(x, c)",
        "e = R.multiply(d, R.const(0.7978845608, 'float32'))", "f = R.tanh(e)",
        "g = R.add(f, R.const(1.0, 'float32'))", "h = R.multiply(x, g)",
        "out = R.multiply(h, R.const(0.5, 'float32'))",
    )),
    "update of a weight": ("x, y, z", (
        "a = R.multiply(z, R.const(0.9, 'float32'))", "b = R.multiply(y, R.const(0.1, 'float32'))",
        "c = R.add(a, b)", "d = R.multiply(c, R.const(0.01, 'float32'))", "out = R.subtract(x, d)",
    )),
    "clipped difference": ("x, y", (
        "a = R.subtract(x, y)", "b = R.abs(a)", "c = R.minimum(b, R.const(1.0, 'float32'))",
        "d = R.multiply(c, c)", "out = R.add(d, x)",
    )),
    "gate": ("x, y", (
        "a = R.sigmoid(x)", "b = R.multiply(a, y)", "c = R.subtract(y, b)", "out = R.nn.relu(c)",
    )),
}  # fmt: skip
SIZES = (64, 1024, 4096)
"""Rows and columns."""


def program(params: str, lines: tuple[str, ...]) -> Any:
    types = ", ".join(f'{name}: R.Tensor(("n", "m"), "float32")' for name in params.split(", "))
    body = "\n".join(f"            {line}" for line in lines)
    return from_source(
        f"@I.ir_module\nclass Module:\n    @R.function\n    def main({types}):\n"
        f"        with R.dataflow():\n{body}\n            R.output(out)\n        return out\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30, help="times each side runs")
    options = parser.parse_args()

    print(f"relaxvm {relaxvm.__version__}, CPython {platform.python_version()}, "
          f"numpy {np.__version__}, {clean.machine()}")
    print("microseconds; tensors of float32")
    print(f"{'':22}{'shape':>12}{'plain':>11}{'fused':>11}{'ratio':>8}")
    slower = False
    fuse = transform.Sequential([transform.LegalizeOps(), transform.FuseOps()])
    for name, (params, lines) in PROGRAMS.items():
        mod = program(params, lines)
        plain, fused = (relaxvm.VirtualMachine(relaxvm.build(m))["main"] for m in (mod, fuse(mod)))
        for size in SIZES:
            rng = np.random.default_rng(size)
            args = [rng.random((size, size), dtype=np.float32) for _ in params.split(", ")]
            assert plain(*args).tobytes() == fused(*args).tobytes(), "results differ"
            best = [float("inf")] * 2
            for _ in range(options.repeats):
                for side, call in enumerate((plain, fused)):
                    start = time.perf_counter_ns()
                    call(*args)
                    best[side] = min(best[side], (time.perf_counter_ns() - start) / 1000)
            print(f"{name:22}{f'{size}x{size}':>12}{best[0]:11.1f}{best[1]:11.1f}"
                  f"{best[0] / best[1]:8.2f}", flush=True)  # fmt: skip
            slower = slower or (size == max(SIZES) and best[1] > best[0])
    return int(slower)


if __name__ == "__main__":
    clean.restart()
    sys.exit(main())
