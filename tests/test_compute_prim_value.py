"""Computed scalars: on the shape heap if possible, otherwise by functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import transform
from relaxvm.ir import IRModule
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T
from relaxvm.tir import PrimFunc


@I.ir_module
class Countdown:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), acc: R.Tensor((), "float32")) -> R.Tensor(
        (), "float32"
    ):
        n = T.int64()
        if R.prim_value(T.Or(n == 0, n < -3)):
            done = acc
        else:
            first = R.squeeze(R.strided_slice(x, [0], [0], [1], assume_inbound=True), 0)
            rest = R.strided_slice(x, [0], [T.min(n, 1)], [n], assume_inbound=True)
            done = Countdown.main(rest, R.add(acc, first))
        return done


@I.ir_module
class Division:
    @R.function
    def main(x: R.Tensor(("n",)), y: R.Tensor(("m",))) -> R.Shape(ndim=1):
        n, m = T.int64(), T.int64()
        if R.prim_value(m == 0):
            s = R.call_pure_packed("vm.builtin.shape_of", x, ty_args=R.Shape(ndim=1))
        else:
            s = R.call_pure_packed("test.as_shape", R.prim_value(n // m), ty_args=R.Shape(ndim=1))
        return s


@I.ir_module
class Bool:
    @R.function
    def main(x: R.Tensor(("n",))) -> R.Prim("bool"):
        n = T.int64()
        return R.prim_value(n > 2)


def functions_of(mod: IRModule) -> list[Any]:
    return [func for func in mod.functions.values() if isinstance(func, PrimFunc)]


def test_arithmetic_of_shapes_needs_no_function() -> None:
    left = transform.ComputePrimValue(use_heap=True)(transform.LegalizeOps()(Countdown))
    assert functions_of(left) == []
    lifted = transform.ComputePrimValue()(transform.LegalizeOps()(Countdown))
    assert len(functions_of(lifted)) >= 1


def test_such_a_program_can_be_saved_and_loaded() -> None:
    executable = relaxvm.build(Countdown)
    assert not executable.kernels
    vm = relaxvm.VirtualMachine(relaxvm.loads(executable.to_bytes()))
    for count in (0, 1, 5):
        x = np.arange(count, dtype=np.float32)
        np.testing.assert_array_equal(vm.main(x, np.zeros((), np.float32)), x.sum())


def test_a_division_waits_until_it_is_needed() -> None:
    """Values on the heap are computed early, but a branch not taken must not divide by 0."""
    executable = relaxvm.build(Division)
    assert len(executable.kernels) == 1
    vm = relaxvm.VirtualMachine(
        executable, functions={"test.as_shape": lambda n: relaxvm.Shape([n])}
    )
    x = np.zeros(7, np.float32)
    assert vm.main(x, x[:0]) == (7,)
    assert vm.main(x, x[:2]) == (3,)


@pytest.mark.parametrize(("n", "expected"), [(2, False), (3, True)])
def test_a_bool_is_a_bool(n: int, expected: bool) -> None:
    vm = relaxvm.VirtualMachine(relaxvm.build(Bool))
    assert vm.main(np.zeros(n)) is expected
