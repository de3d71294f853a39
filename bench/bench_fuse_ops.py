"""Programs of elementwise operators with and without FuseOps.

    python bench/bench_fuse_ops.py [--repeats N]

Each program is Relax script, built by the default pipeline with and without FuseOps.  Results are
compared bit for bit before anything is timed, and the two sides alternate.  The program allocates
its outputs, as in normal use.  The exit status is 1 if fusing makes a program slower on large
tensors, or one with an operand for each channel on any of its pictures.
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

CHANNELS = {
    "bias, relu": ("x, b", ("a = R.add(x, b)", "out = R.nn.relu(a)")),
    "scale, bias": ("x, s, b", ("a = R.multiply(x, s)", "out = R.add(a, b)")),
    "bias, silu": ("x, b", (
        "a = R.add(x, b)", "c = R.sigmoid(a)", "out = R.multiply(a, c)",
    )),
}  # fmt: skip
"""Programs whose operands after the first have one element for each channel."""
PICTURES = ((1, 512, 7, 7), (1, 64, 56, 56), (1, 64, 112, 112))


def program(params: str, lines: tuple[str, ...], types: str) -> Any:
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
    print(f"{'':22}{'shape':>14}{'plain':>11}{'fused':>11}{'ratio':>8}")
    slower = False
    for name, (params, lines) in PROGRAMS.items():
        types = ", ".join(f'{p}: R.Tensor(("n", "m"), "float32")' for p in params.split(", "))
        for size in SIZES:
            ratio = measure(
                name, program(params, lines, types), [(size, size)] * len(params.split(", ")),
                options.repeats,
            )  # fmt: skip
            slower = slower or (size == max(SIZES) and ratio < 1)
    for title, (params, lines) in CHANNELS.items():
        for shape in PICTURES:
            shapes = [shape] + [(1, shape[1], 1, 1)] * (len(params.split(", ")) - 1)
            named = zip(params.split(", "), shapes, strict=True)
            types = ", ".join(f'{name}: R.Tensor({each}, "float32")' for name, each in named)
            ratio = measure(title, program(params, lines, types), shapes, options.repeats)
            slower = slower or ratio < 1
    return int(slower)


def measure(name: str, mod: Any, shapes: list[tuple[int, ...]], repeats: int) -> float:
    """Print a row, and return how many times faster the fused program is."""
    fuse = transform.Sequential([transform.LegalizeOps(), transform.FuseOps()])
    plain, fused = (relaxvm.VirtualMachine(relaxvm.build(m))["main"] for m in (mod, fuse(mod)))
    rng = np.random.default_rng(shapes[0][-1])
    args = [rng.random(shape, dtype=np.float32) for shape in shapes]
    assert plain(*args).tobytes() == fused(*args).tobytes(), "results differ"
    best = [float("inf")] * 2
    for _ in range(repeats):
        for side, call in enumerate((plain, fused)):
            start = time.perf_counter_ns()
            call(*args)
            best[side] = min(best[side], (time.perf_counter_ns() - start) / 1000)
    ratio = best[0] / best[1]
    shape = "x".join(map(str, shapes[0]))
    print(f"{name:22}{shape:>14}{best[0]:11.1f}{best[1]:11.1f}{ratio:8.2f}", flush=True)
    return ratio


if __name__ == "__main__":
    clean.restart()
    sys.exit(main())
