"""Generated kernels beside the package's own: reductions in order, in lanes, and in Python;
products in loops and in tiles; elementwise nests.

    python bench/bench_prim_funcs.py [--repeats N]

Each row is a PrimFunc made of tensor expressions, compiled to C with the options that it has by
default and with ``reassociate=True``, and the operator's own kernel in C.  Times are of the
processor, the least of some rounds in which all take turns; results are compared with the own
kernel's first.  The Python form, for machines without a compiler, runs once.

Products are in the order of the source in both forms, so they are the same bit for bit; the own
kernel and numpy's BLAS fuse multiplications and additions, and do not keep the order.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import relaxvm
from relaxvm import te, topi
from relaxvm.ir.expr import Var
from relaxvm.kernels.cpu import CPU
from relaxvm.tir import PrimFunc
from relaxvm.tir.build import compile_prim_func
from relaxvm.tir.products import TILES

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def layer_norm(n: int, m: int) -> tuple[PrimFunc, list[Any], str, list[Any]]:
    x, scale, bias = (te.placeholder(s, name=name)
                      for s, name in (((n, m), "x"), ((m,), "s"), ((m,), "b")))  # fmt: skip
    func = te.create_prim_func([x, scale, bias, topi.nn.layer_norm(x, scale, bias, [1], 1e-5)])
    args = [floats(n, m), floats(m), floats(m)]
    return func, args, "nn.layer_norm_rows", [*args, 1e-5]


def softmax(n: int, m: int) -> tuple[PrimFunc, list[Any], str, list[Any]]:
    x = te.placeholder((n, m), name="x")
    args = [floats(n, m)]
    return te.create_prim_func([x, topi.nn.softmax(x)]), args, "nn.softmax_rows", [*args, 1.0]


def total(n: int, m: int, name: str = "sum") -> tuple[PrimFunc, list[Any], str, list[Any]]:
    x = te.placeholder((n, m), name="x")
    args = [floats(n, m)]
    func = te.create_prim_func([x, getattr(topi, name)(x, axis=1)])
    return func, args, name, [*args, relaxvm.Shape((1,))]


def dense(n: int, k: int, m: int) -> tuple[PrimFunc, list[Any], str, list[Any]]:
    a, b = te.placeholder((n, k), name="a"), te.placeholder((m, k), name="b")
    args = [floats(n, k), floats(m, k)]
    return te.create_prim_func([a, b, topi.nn.dense(a, b)]), args, "matmul", [args[0], args[1].T]


def matmul(n: int, k: int, m: int) -> tuple[PrimFunc, list[Any], str, list[Any]]:
    a, b = te.placeholder((n, k), name="a"), te.placeholder((k, m), name="b")
    args = [floats(n, k), floats(k, m)]
    return te.create_prim_func([a, b, topi.nn.matmul(a, b)]), args, "matmul", args


def elementwise(n: int, m: int) -> tuple[PrimFunc, list[Any], str, list[Any]]:
    x = te.placeholder((n, m), name="x")
    args = [floats(n, m)]
    return te.create_prim_func([x, topi.tanh(x)]), args, "tanh", args


ROWS: tuple[tuple[str, tuple[PrimFunc, list[Any], str, list[Any]]], ...] = (
    ("sum 128 x 512", total(128, 512)),
    ("max 128 x 512", total(128, 512, "max")),
    ("layer_norm 128 x 768", layer_norm(128, 768)),
    ("softmax 128 x 512", softmax(128, 512)),
    ("tanh 128 x 512", elementwise(128, 512)),
    ("a @ b 64", matmul(64, 64, 64)),
    ("a @ b 256", matmul(256, 256, 256)),
    ("a @ b.T 64", dense(64, 64, 64)),
    ("a @ b.T 32 x 768 x 768", dense(32, 768, 768)),
)


PRODUCTS: tuple[tuple[int, int, int], ...] = (
    (64, 64, 64), (256, 256, 256), (512, 512, 512), (67, 129, 31), (4, 768, 768), (3, 64, 64),
)  # fmt: skip
"""Rows, terms and columns."""


def least(runs: list[Callable[[], Any]], repeats: int) -> list[float]:
    """Microseconds of each, in turns."""
    best = [float("inf")] * len(runs)
    for _ in range(repeats):
        for i, run in enumerate(runs):
            begun = time.process_time()
            run()
            spent = time.process_time() - begun
            calls = max(1, int(2e-3 / max(spent, 1e-7)))
            begun = time.process_time()
            for _ in range(calls):
                run()
            best[i] = min(best[i], (time.process_time() - begun) / calls * 1e6)
    return best


def products(repeats: int) -> None:
    """Billions of operations in a second, with sizes that the function knows, and any."""
    print("\nGFLOP/s, sizes known, and any")
    print(f"{'':24}{'loops':>10}{'tiles':>10}{'loops':>10}{'tiles':>10}{'own':>10}{'numpy':>10}")
    own = relaxvm.get_func("relaxvm.kernel.matmul")
    for make, sizes in itertools.product((matmul, dense), PRODUCTS):
        n, k, m = sizes
        name = f"{'a @ b' if make is matmul else 'a @ b.T'} {n} x {k} x {m}"
        known, args, _, own_args = make(n, k, m)
        dims = [Var(each, "int64") for each in "nkm"]
        runs: list[Callable[[], Any]] = []
        outs = [np.zeros((n, m), np.float32) for _ in range(6)]
        for func in (known, make_any(make, *dims)):
            for tiles in (False, True):
                run = compile_prim_func(func.with_attr(TILES, tiles))
                runs.append(partial(run, *args, outs[len(runs)]))
        runs.append(partial(own, *own_args, outs[4]))
        runs.append(partial(np.matmul, *own_args, out=outs[5]))
        for run in runs:
            run()
        assert len({out.tobytes() for out in outs[:4]}) == 1, name
        np.testing.assert_allclose(outs[0], outs[4], rtol=1e-3, atol=1e-3, err_msg=name)
        speeds = [2e-3 * n * k * m / micros for micros in least(runs, repeats)]
        print(f"{name:24}" + "".join(f"{speed:10.1f}" for speed in speeds), flush=True)


def make_any(make: Callable[..., Any], n: Var, k: Var, m: Var) -> PrimFunc:
    a = te.placeholder((n, k), name="a")
    b = te.placeholder((k, m) if make is matmul else (m, k), name="b")
    out = topi.nn.matmul(a, b) if make is matmul else topi.nn.dense(a, b)
    return te.create_prim_func([a, b, out])


def nests(repeats: int) -> None:
    """Microseconds of elementwise functions of 300,000 elements, in one loop and in rows."""
    print(f"\nmicroseconds\n{'':24}{'one axis':>10}{'two axes':>10}{'any two':>10}")
    values, out = floats(300_000), np.empty(300_000, np.float32)
    for name, columns in itertools.product(("exp", "tanh"), (3, 10, 100)):
        rows = 300_000 // columns
        runs: list[Callable[[], Any]] = []
        for shape in ((300_000,), (rows, columns), (Var("n", "int64"), Var("m", "int64"))):
            x = te.placeholder(shape, name="x")
            run = compile_prim_func(te.create_prim_func([x, getattr(topi, name)(x)]))
            size = (300_000,) if len(shape) == 1 else (rows, columns)
            runs.append(partial(run, values.reshape(size), out.reshape(size)))
        times = least(runs, repeats)
        print(f"{f'{name} {rows} x {columns}':24}" + "".join(f"{t:10.0f}" for t in times))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    relaxvm.set_num_threads(1)
    print(f"one thread, {CPU}; microseconds")
    print(f"{'':24}{'in order':>10}{'in lanes':>10}{'own':>10}{'lanes/own':>11}{'Python':>10}")
    for name, (func, args, own_name, own_args) in ROWS:
        own = relaxvm.get_func(f"relaxvm.kernel.{own_name}")
        shape = [int(dim) for dim in func.params[-1].shape]
        outs = [np.zeros(shape, np.float32) for _ in range(4)]
        in_order = compile_prim_func(func)
        in_lanes = compile_prim_func(func, reassociate=True)
        in_python = compile_prim_func(func, reassociate=True, prefer="python")
        runs: list[Callable[[], Any]] = [
            partial(in_order, *args, outs[0]),
            partial(in_lanes, *args, outs[1]),
            partial(own, *own_args, outs[2]),
        ]
        for run in runs:
            run()
        begun = time.process_time()
        in_python(*args, outs[3])
        python = (time.process_time() - begun) * 1e6
        assert outs[3].tobytes() == outs[1].tobytes(), name
        for out in outs[:2]:
            np.testing.assert_allclose(out, outs[2], rtol=1e-3, atol=1e-3, err_msg=name)
        times = least(runs, options.repeats)
        print(f"{name:24}{times[0]:10.1f}{times[1]:10.1f}{times[2]:10.1f}"
              f"{times[1] / times[2]:11.2f}{python:10.0f}", flush=True)  # fmt: skip
    products(options.repeats)
    nests(options.repeats)


if __name__ == "__main__":
    main()
