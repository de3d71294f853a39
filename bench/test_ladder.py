"""Benchmarks from an empty function up to a small network, each next to the same work in Python.

    pytest bench

They use pytest-benchmark.  Results are compared before anything is timed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, VMExecutable

sys.path.insert(0, str(Path(__file__).parent))
from relaxvm.testing.dispatch_rows import ROWS, Row, identity

relaxvm.register_func("bench.identity", identity, override=True)

X = np.linspace(-1, 1, 32, dtype="float32").reshape(4, 8)


def empty() -> tuple[VMExecutable, Callable[..., Any], tuple[Any, ...]]:
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        b.emit_ret(b.r(0))
    return b.get(), lambda x: x, (X,)


def python_calls(count: int) -> tuple[VMExecutable, Callable[..., Any], tuple[Any, ...]]:
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        for i in range(count):
            b.emit_call("bench.identity", [b.r(i)], dst=b.r(i + 1))
        b.emit_ret(b.r(count))

    def plain(x: Any) -> Any:
        for _ in range(count):
            x = identity(x)
        return x

    return b.get(), plain, (X,)


def countdown(count: int) -> tuple[VMExecutable, Callable[..., Any], tuple[Any, ...]]:
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        again, done = b.label(), b.label()
        b.bind(again)
        b.emit_if(b.r(0), done)
        b.emit_call("bench.minus_one", [b.r(0)], dst=b.r(0))
        b.emit_goto(again)
        b.bind(done)
        b.emit_ret(b.r(0))

    def plain(n: int) -> int:
        while n:
            n = minus_one(n)
        return n

    return b.get(), plain, (count,)


def minus_one(n: int) -> int:
    return n - 1


relaxvm.register_func("bench.minus_one", minus_one, override=True)


def tuples(count: int) -> tuple[VMExecutable, Callable[..., Any], tuple[Any, ...]]:
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        for _ in range(count):
            b.emit_call("vm.builtin.make_tuple", [b.r(0), b.r(0)], dst=b.r(1))
            b.emit_call("vm.builtin.tuple_getitem", [b.r(1), b.imm(1)], dst=b.r(0))
        b.emit_ret(b.r(0))

    def plain(x: Any) -> Any:
        for _ in range(count):
            pair = (x, x)
            x = pair[1]
        return x

    return b.get(), plain, (X,)


def network() -> tuple[VMExecutable, Callable[..., Any], tuple[Any, ...]]:
    """Two dense layers in destination-passing style, with static allocations."""
    rng = np.random.default_rng(0)
    w1, w2 = (rng.standard_normal(s, dtype="float32") for s in ((8, 16), (16, 4)))
    global_, float32 = "global", np.dtype("float32")
    b = ExecBuilder()

    def array(register: int, shape: tuple[int, ...]) -> int:
        b.emit_call("vm.builtin.alloc_storage",
                    [b.vm_state(), (int(np.prod(shape)),), b.imm(0), float32,
                     b.convert_constant(global_)], dst=b.r(20))  # fmt: skip
        b.emit_call("vm.builtin.alloc_tensor", [b.r(20), b.imm(0), shape, float32],
                    dst=b.r(register))
        b.emit_call("vm.builtin.null_value", [], dst=b.r(20))
        return b.r(register)

    with b.function("main", num_inputs=1):
        hidden = array(1, (4, 16))
        b.emit_call("relaxvm.kernel.matmul", [b.r(0), w1, hidden])
        b.emit_call("relaxvm.kernel.relu", [hidden, hidden])
        out = array(2, (4, 4))
        b.emit_call("relaxvm.kernel.matmul", [hidden, w2, out])
        b.emit_ret(out)

    def plain(x: Any) -> Any:
        hidden = np.empty((4, 16), "float32")
        np.matmul(x, w1, out=hidden)
        np.maximum(hidden, 0.0, out=hidden)
        out = np.empty((4, 4), "float32")
        return np.matmul(hidden, w2, out=out)

    return b.get(), plain, (X,)


STEPS = {
    "empty function": empty,
    "1 call": lambda: python_calls(1),
    "10 calls": lambda: python_calls(10),
    "100 calls": lambda: python_calls(100),
    "loop of 1,000": lambda: countdown(1000),
    "100 tuples": lambda: tuples(100),
    "two dense layers": network,
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("side", ["relaxvm", "python"])
def test_step(benchmark: Any, step: str, side: str) -> None:
    executable, plain, args = STEPS[step]()
    main = relaxvm.VirtualMachine(executable)["main"]
    np.testing.assert_allclose(main(*args), plain(*args), rtol=1e-5)
    benchmark.group = step
    benchmark(main if side == "relaxvm" else plain, *args)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_instruction(benchmark: Any, row: Row) -> None:
    """Times a program of `row.count` repetitions; divide by that for the cost of one."""
    main = relaxvm.VirtualMachine(row.executable(), optimize=row.optimize)["main"]
    benchmark.group = "instructions"
    benchmark.extra_info["repetitions"] = row.count
    assert main(*row.args) is row.args[0]
    benchmark(main, *row.args)
