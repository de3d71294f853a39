"""Ctrl-C ends endless kernels, and checks for it do not prevent optimization of memory loops."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from relaxvm.native.toolchain import compiler
from relaxvm.script import tir as T
from relaxvm.tir.lower_c import c_source
from relaxvm.tir.normalize import normalize

from . import children, tir_kernels

FOREVER = 2**40

BACKENDS = [
    pytest.param("c", marks=pytest.mark.skipif(compiler() is None, reason="needs a C compiler")),
    "python",
]


@T.prim_func
def one_loop(A: T.Buffer((4,), "float32"), n: T.int64):
    for _ in range(n):
        A[0] = A[0] * T.float32(0.5) + T.float32(1)


@T.prim_func
def one_loop_of_a_known_number(A: T.Buffer((4,), "float32"), n: T.int64):
    for _ in range(2**40):
        A[0] = A[0] * T.float32(0.5) + T.float32(1)


@T.prim_func
def short_loops_within(A: T.Buffer((4,), "float32"), n: T.int64):
    for _, i in T.grid(n, 4):
        A[i] = A[i] * T.float32(0.5) + T.float32(1)


@T.prim_func
def steps(A: T.Buffer((4,), "float32"), n: T.int64):
    for i in T.serial(0, n, step=2):
        A[i % T.int64(4)] = A[0] + T.float32(1)


@T.prim_func
def loops_that_seldom_run(A: T.Buffer((4,), "float32"), n: T.int64):
    for i in range(n):
        if A[0] > T.float32(0):
            for j in range(4):
                A[j] = A[j] + T.Cast("float32", i)
        A[1] = A[1] * T.float32(0.5) + T.float32(1)


@T.prim_func
def loops_of_numbers_that_are_computed(A: T.Buffer((4,), "float32"), n: T.int64):
    for i in range(n):
        for j in range(T.if_then_else(A[0] > T.float32(0), i % T.int64(4), T.int64(0))):
            A[j] = A[j] * T.float32(0.5)
        A[1] = A[1] * T.float32(0.5) + T.float32(1)


@T.prim_func
def a_loop_that_waits(A: T.Buffer((4,), "float32"), n: T.int64):
    for i in range(2):
        while A[i] < T.float32(1):
            A[i] = A[i] * T.float32(0.5)


@T.prim_func
def a_product_of_many_terms(A: T.Buffer((4,), "float32"), n: T.int64):
    C = T.sblock_alloc_buffer((4, 8), "float32")
    for i, j, _ in T.grid(4, 8, n):
        C[i, j] = C[i, j] + A[i] * A[j % 4]
    A[0] = C[0, 0]


KERNELS = [one_loop, one_loop_of_a_known_number, short_loops_within, steps, loops_that_seldom_run,
           loops_of_numbers_that_are_computed, a_loop_that_waits,
           a_product_of_many_terms]  # fmt: skip

PROGRAM = """
import signal, sys
import numpy as np
from relaxvm.tir.build import build_prim_funcs
from tests import test_tir_interrupt as this

kernels = build_prim_funcs({k.attrs["global_symbol"]: k for k in this.KERNELS}, prefer=sys.argv[1])
for name, kernel in kernels.items():
    signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.05)  # of processor time: the kernel runs by then
    try:
        kernel(np.zeros(4, "float32"), this.FOREVER)
    except KeyboardInterrupt:
        print(name)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="alarms of POSIX")
@pytest.mark.parametrize("prefer", BACKENDS)
def test_ctrl_c_ends_loops(prefer: str) -> None:
    done = children.run(
        [sys.executable, "-c", PROGRAM, prefer], capture_output=True, text=True
    )
    names = [kernel.attrs["global_symbol"] for kernel in KERNELS]
    assert done.stdout.split() == names, done.stderr


@T.prim_func
def copy(a: T.handle, b: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (n, m), "float32")
    for i, j in T.grid(n, m):
        B[i, j] = A[i, j]


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler")
def test_rows_without_elements_take_no_time() -> None:
    import numpy as np

    from relaxvm.tir.build import compile_prim_func

    empty = np.empty((2**40, 0), "float32")
    compile_prim_func(copy)(empty, empty.copy())


def _body(func: Any) -> str:
    text = c_source([normalize(func, "f")])
    return text[text.index("/* ---- f ---- */") :]


def test_loops_over_memory_do_not_check() -> None:
    assert "CHECK_INTERRUPT" not in _body(copy)
    assert "CHECK_INTERRUPT" not in _body(tir_kernels.softmax)
    # A matrix product checks once per tile, in loops once per row of the result.
    product = _body(tir_kernels.matmul)
    checks = re.findall(r"( +)CHECK_INTERRUPT\((.*)\);", product)
    assert [number for _, number in checks] == [
        "(uint64_t)((end - begin) * each * 4)",
        "1 + (uint64_t)(m_) + (uint64_t)(k_) + (uint64_t)(k_) * (uint64_t)(m_)",
    ]
    loops = (r"for \(int64_t top", r"for \(int64_t i_ ")
    for (indentation, _), loop in zip(checks, loops, strict=True):
        outermost = re.search(f"( +){loop}", product)
        assert outermost is not None
        assert len(indentation) == len(outermost[1]) + 2
