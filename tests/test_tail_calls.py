"""Tail calls of a function to itself run in one frame, however many there are."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Limits, VirtualMachine
from relaxvm.errors import LimitError

from .passes import module

COUNT = """
@R.function
def main(i: R.Tensor((), "int64"), total: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
    cls = Module
    more = R.greater(i, R.const(0, "int64"))
    if more:
        less = R.subtract(i, R.const(1, "int64"))
        sum = R.add(total, i)
        r = cls.main(less, sum)
    else:
        r = total
    return r
"""

SHALLOW = Limits(call_depth=5)


def scalar(value: int) -> Any:
    return np.array(value, np.int64)


def machine(*functions: str, mode: str = "bytecode", **options: Any) -> VirtualMachine:
    return VirtualMachine(relaxvm.build(module(*functions), exec_mode=mode), **options)


def test_a_million_calls_in_one_frame() -> None:
    vm = machine(COUNT, limits=SHALLOW)
    assert vm["main"](scalar(1_000_000), scalar(0)) == 500_000_500_000


def test_memory_does_not_grow() -> None:
    vm = machine(COUNT, limits=SHALLOW)
    peaks = []
    tracemalloc.start()
    for turns in (100, 20_000):
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        vm["main"](scalar(turns), scalar(0))
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    assert peaks[1] < peaks[0] + 10_000


def test_other_recursion_needs_frames() -> None:
    vm = machine("""
@R.function
def main(i: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
    cls = Module
    more = R.greater(i, R.const(0, "int64"))
    if more:
        less = R.subtract(i, R.const(1, "int64"))
        rest = cls.main(less)
        r = R.add(rest, i)
    else:
        r = i
    return r
""", limits=SHALLOW)  # fmt: skip
    assert vm["main"](scalar(3)) == 6
    with pytest.raises(LimitError, match="calls are nested deeper than 5 frames"):
        vm["main"](scalar(10))


def test_swapped_arguments() -> None:
    vm = machine("""
@R.function
def main(
    i: R.Tensor((), "int64"), a: R.Tensor((), "int64"), b: R.Tensor((), "int64"),
    c: R.Tensor((), "int64")
) -> R.Tuple(R.Tensor((), "int64"), R.Tensor((), "int64"), R.Tensor((), "int64")):
    cls = Module
    more = R.greater(i, R.const(0, "int64"))
    if more:
        less = R.subtract(i, R.const(1, "int64"))
        r = cls.main(less, b, c, a)
    else:
        r = (a, b, c)
    return r
""", limits=SHALLOW)  # fmt: skip
    for turns in range(7):
        got = vm["main"](scalar(turns), scalar(0), scalar(1), scalar(2))
        assert [int(x) for x in got] == [(turns + k) % 3 for k in range(3)]


def test_an_argument_twice_and_a_constant() -> None:
    vm = machine("""
@R.function
def main(a: R.Tensor((), "int64"), b: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
    cls = Module
    more = R.greater(a, R.const(0, "int64"))
    if more:
        c = R.subtract(b, R.const(1, "int64"))
        r = cls.main(c, c)
    else:
        s = R.add(a, b)
        again = R.greater(b, R.const(5, "int64"))
        if again:
            t = cls.main(R.const(0, "int64"), R.const(2, "int64"))
        else:
            t = s
        r = t
    return r
""", limits=SHALLOW)  # fmt: skip
    assert vm["main"](scalar(1), scalar(4)) == 0
    assert vm["main"](scalar(0), scalar(9)) == 2


def test_values_of_an_iteration_are_freed() -> None:
    alive: list[int] = []

    class Counted:
        count = 0

        def __init__(self) -> None:
            Counted.count += 1

        def __del__(self) -> None:
            Counted.count -= 1

    def make(i: Any) -> Any:
        alive.append(Counted.count)
        return Counted()

    vm = machine("""
@R.function(pure=False)
def main(i: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
    cls = Module
    a = R.call_packed("make", i, ty_args=R.Any)
    more = R.greater(i, R.const(0, "int64"))
    if more:
        less = R.subtract(i, R.const(1, "int64"))
        r = cls.main(less)
    else:
        r = i
    return r
""", limits=SHALLOW, functions={"make": make})  # fmt: skip
    assert vm["main"](scalar(20)) == 0
    assert max(alive) <= 1
    assert Counted.count == 0


def test_dynamic_shapes_are_matched_in_every_iteration() -> None:
    seen = []

    def look(x: Any, out: Any) -> None:
        seen.append(x.shape[0])
        out[...] = x[: len(out)]

    vm = machine("""
@R.function
def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(ndim=1, dtype="float32"):
    n = T.int64()
    cls = Module
    if n > 1:
        y = R.call_dps_packed("look", (x,), out_ty=R.Tensor((n // 2,), "float32"))
        r = cls.main(y)
    else:
        r: R.Tensor(ndim=1, dtype="float32") = x
    return r
""", limits=SHALLOW, functions={"look": look})  # fmt: skip
    assert vm["main"](np.arange(1000, dtype=np.float32)).tolist() == [0]
    assert seen == [1000, 500, 250, 125, 62, 31, 15, 7, 3]


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_local_functions_loop_as_well(mode: str) -> None:
    vm = machine("""
@R.function
def main(i: R.Tensor((), "int64"), step: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
    @R.function
    def loop(k: R.Tensor((), "int64"), total: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        more = R.greater(k, R.const(0, "int64"))
        if more:
            less = R.subtract(k, R.const(1, "int64"))
            sum = R.add(total, step)
            r = loop(less, sum)
        else:
            r = total
        return r
    result = loop(i, R.const(0, "int64"))
    return result
""", mode=mode, limits=SHALLOW if mode == "bytecode" else None)  # fmt: skip
    assert vm["main"](scalar(100), scalar(3)) == 300
