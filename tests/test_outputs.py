"""Results in arrays of the caller: ``vm.main(x, out=y)``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import relaxvm
from relaxvm import VirtualMachine
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@I.ir_module
class Programs:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
        return R.add(x, x)

    @R.function
    def same(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return x

    @R.function
    def swap(
        x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")
    ) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
        return (y, x)

    @R.function
    def nested(x: R.Tensor((4,), "float32")):
        y = R.add(x, x)
        return (x, (y, R.multiply(x, x)))

    @R.function
    def named(out: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        return R.add(out, out)

    @R.function
    def number(x: R.Tensor((4,), "float32")):
        return R.prim_value(3)


@pytest.fixture(scope="module")
def vm() -> VirtualMachine:
    return VirtualMachine(relaxvm.build(Programs))


X = np.arange(6, dtype=np.float32).reshape(2, 3)
V = np.arange(4, dtype=np.float32)


def test_an_array_gets_the_result(vm: VirtualMachine) -> None:
    y = np.zeros((2, 3), np.float32)
    assert vm.main(X, out=y) is y
    np.testing.assert_array_equal(y, X + X)
    assert vm["main"](x=X, out=None) is not None


def test_arrays_need_not_be_contiguous(vm: VirtualMachine) -> None:
    wide = np.full((4, 6), -1, np.float32)
    vm.main(X, out=wide[::2, ::2])
    np.testing.assert_array_equal(wide[::2, ::2], X + X)
    assert (wide[1::2] == -1).all()


def test_an_argument_may_be_the_target(vm: VirtualMachine) -> None:
    x = X.copy()
    vm.main(x, out=x)
    np.testing.assert_array_equal(x, X + X)
    v = np.arange(5, dtype=np.float32)
    vm.same(v[:4], out=v[1:])
    np.testing.assert_array_equal(v, [0, 0, 1, 2, 3])


def test_results_that_are_arguments_are_swapped(vm: VirtualMachine) -> None:
    a, b = V.copy(), V + 10
    assert vm.swap(a, b, out=(a, b))[0] is a
    np.testing.assert_array_equal(a, V + 10)
    np.testing.assert_array_equal(b, V)


def test_tuples_within_tuples_and_results_that_are_not_copied(vm: VirtualMachine) -> None:
    a, c = np.empty(4, np.float32), np.empty(4, np.float32)
    got = vm.nested(V, out=[a, (None, c)])
    assert type(got) is list
    assert got[0] is a
    np.testing.assert_array_equal(got[1][0], V + V)
    np.testing.assert_array_equal(a, V)
    np.testing.assert_array_equal(c, V * V)


def test_a_parameter_of_that_name_comes_first(vm: VirtualMachine) -> None:
    np.testing.assert_array_equal(vm.named(out=V[:2]), V[:2] * 2)


def test_a_bound_function_takes_it_too(vm: VirtualMachine) -> None:
    a, b = np.empty(4, np.float32), np.empty(4, np.float32)
    vm["swap"].bind(V)(V + 1, out=(a, b))
    np.testing.assert_array_equal(a, V + 1)


def read_only() -> np.ndarray[Any, Any]:
    array = np.zeros((2, 3), np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("name", "args", "out", "kind", "match"),
    [
        ("main", [X], np.zeros((3, 2), np.float32), ValueError,
         r"main: out: expected float32\[2, 3\], as the result is, got float32\[3, 2\]"),
        ("main", [X], np.zeros((2, 3)), ValueError, r"expected float32\[2, 3\].*got float64"),
        ("main", [X], np.zeros((2, 3), ">f4"), ValueError, r"expected float32\[2, 3\]"),
        ("main", [X], read_only(), ValueError, "main: out: expected an array that can be written"),
        ("main", [X], as_strided(np.zeros(8, np.float32), (2, 3), (4, 4)), ValueError,
         r"main: out: expected an array whose elements have memory of their own, got "
         r"float32\[2, 3\] with strides \(4, 4\)"),
        ("main", [X], [[0.0]], TypeError, r"out\[0\]\[0\]: expected an array"),
        ("main", [X], "y", TypeError, "main: out: expected an array, or a tuple of arrays, got"),
        ("main", [X], (np.zeros((2, 3), np.float32),), TypeError,
         r"out: got a tuple of 1, the result is float32\[2, 3\]"),
        ("swap", [V, V], np.zeros(4, np.float32), TypeError,
         "out: got an array, the result is a tuple of 2"),
        ("swap", [V, V], (np.zeros(4, np.float32),), TypeError, "out: expected 2 arrays, got 1"),
        ("number", [V], np.zeros((), np.int64), TypeError, "out: got an array, the result is"),
    ],
)  # fmt: skip
def test_what_does_not_fit(
    vm: VirtualMachine, name: str, args: list[Any], out: Any, kind: type[Exception], match: str
) -> None:
    with pytest.raises(kind, match=match):
        vm[name](*args, out=out)


def test_targets_that_overlap(vm: VirtualMachine) -> None:
    memory = np.zeros(6, np.float32)
    with pytest.raises(ValueError, match=r"swap: out\[1\]: overlaps an array of another result"):
        vm.swap(V, V, out=(memory[:4], memory[2:]))
    halves = np.zeros(8, np.float32)
    vm.swap(V, V + 1, out=(halves[::2], halves[1::2]))
    np.testing.assert_array_equal(halves[::2], V + 1)
    woven = as_strided(np.zeros(6, np.float32), (2, 3), (4, 8))
    expected = vm.main(X)
    assert vm.main(X, out=woven) is woven
    np.testing.assert_array_equal(woven, expected)


def test_nothing_is_written_if_one_does_not_fit(vm: VirtualMachine) -> None:
    a, b = np.zeros(4, np.float32), np.zeros(5, np.float32)
    with pytest.raises(ValueError, match=r"swap: out\[1\]: expected float32\[4\]"):
        vm.swap(V, V + 1, out=(a, b))
    assert not a.any()
