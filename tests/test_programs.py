"""Whole programs, from script to result: control flow, closures, shapes, and users' mistakes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import relaxvm as rx
from relaxvm import Shape, VirtualMachine
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

F32 = np.float32


def vm_of(mod: Any, **functions: Any) -> VirtualMachine:
    return VirtualMachine(rx.build(mod), functions=functions or None)


def floats(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=F32).reshape(shape)


# Control flow


@I.ir_module
class Recursion:
    @R.function(pure=False)
    def power(x: R.Tensor((), "float32"), n: R.Prim("int64")) -> R.Tensor((), "float32"):
        if n <= 0:
            r = R.const(1.0)
        else:
            rest = Recursion.power(x, n - 1)
            r = R.multiply(x, rest)
        return r

    @R.function
    def is_even(n: R.Prim("int64")) -> R.Prim("bool"):
        if n <= 0:
            r = R.prim_value(True)
        else:
            r = Recursion.is_odd(n - 1)
        return r

    @R.function
    def is_odd(n: R.Prim("int64")) -> R.Prim("bool"):
        if n <= 0:
            r = R.prim_value(False)
        else:
            r = Recursion.is_even(n - 1)
        return r

    @R.function
    def count(x: R.Tensor((3,), "float32"), n: R.Prim("int64")) -> R.Tensor((3,), "float32"):
        if n <= 0:
            r = x
        else:
            y = R.add(x, R.const(1.0))
            r = Recursion.count(y, n - 1)
        return r


def test_recursion() -> None:
    assert vm_of(Recursion).power(np.array(2, F32), 10) == 1024


@pytest.mark.parametrize("n", range(6))
def test_mutual_recursion(n: int) -> None:
    vm = vm_of(Recursion)
    assert bool(vm.is_even(n)) == (n % 2 == 0)
    assert bool(vm.is_odd(n)) == (n % 2 == 1)


def test_tail_call_needs_one_frame() -> None:
    """A tail-recursive function is a loop: a million iterations at a depth of two calls."""
    vm = VirtualMachine(rx.build(Recursion), limits=rx.Limits(call_depth=2))
    result = vm.count(np.zeros(3, F32), 100_000)
    np.testing.assert_array_equal(result, np.full(3, 100_000, F32))


def test_other_recursion_is_limited() -> None:
    vm = VirtualMachine(rx.build(Recursion), limits=rx.Limits(call_depth=50))
    with pytest.raises(rx.errors.LimitError, match="call_depth"):
        vm.power(np.array(1, F32), 100)


@I.ir_module
class Branches:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32"), c: R.Tensor((), "bool")) -> R.Tensor("float32"):
        if c:
            r = R.sum(x, axis=0)
        else:
            r = R.concat((x, x), axis=0)
        return r


def test_branches_of_different_shapes() -> None:
    vm, x = vm_of(Branches), floats(2, 3)
    np.testing.assert_array_equal(vm.main(x, np.array(True)), x.sum(0))
    np.testing.assert_array_equal(vm.main(x, np.array(False)), np.concatenate([x, x]))


# Closures and tuples


@I.ir_module
class Closures:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), k: R.Prim("int64")) -> R.Tensor("float32", ndim=1):
        n = T.int64()

        @R.function
        def scaled(y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            z = R.multiply(y, x)
            return z

        @R.function
        def twice(y: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            a = scaled(y)
            b = scaled(a)
            return b

        r = twice(x)
        return r

    @R.function
    def maker(x: R.Tensor((2,), "float32")) -> R.Any:
        @R.function
        def add(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            z = R.add(x, y)
            return z

        return add


def test_closures_that_capture() -> None:
    x = np.array([1, 2, 3], F32)
    np.testing.assert_array_equal(vm_of(Closures).main(x, 0), x**3)


def test_closure_as_result() -> None:
    vm = vm_of(Closures)
    add = vm.maker(np.array([1, 2], F32))
    y = np.array([10, 20], F32)
    np.testing.assert_array_equal(vm.invoke_closure(add, y), [11, 22])
    np.testing.assert_array_equal(add(y), [11, 22])


@I.ir_module
class Tuples:
    @R.function
    def main(
        t: R.Tuple(
            R.Tensor(("n",), "float32"), R.Tuple(R.Tensor(("n",), "float32"), R.Shape(["n"]))
        ),
    ) -> R.Tuple(R.Tuple(R.Tensor(("n",), "float32")), R.Shape(["n", 2])):
        n = T.int64()
        a = t[0]
        b = t[1]
        c = b[0]
        d = R.add(a, c)
        return ((d,), R.shape([n, 2]))


def test_nested_tuples_and_shapes() -> None:
    x = floats(3)
    (result,), shape = vm_of(Tuples).main((x, (x, Shape((3,)))))
    np.testing.assert_array_equal(result, x + x)
    assert shape == (3, 2)


def test_tuple_of_another_length() -> None:
    with pytest.raises(ValueError, match=r"param\[0\], param=t.*expected .*2 elements, got .*1"):
        vm_of(Tuples).main((floats(3),))


def test_dimension_inside_a_tuple() -> None:
    with pytest.raises(RuntimeError, match=r"expected 3 .*got 4") as caught:
        vm_of(Tuples).main((floats(3), (floats(4), Shape((3,)))))
    assert "h[0] = 3, set by " in "\n".join(caught.value.__notes__)


# Shapes and scalars


@I.ir_module
class Shapes:
    @R.function
    def main(s: R.Shape(["n", "m"]), k: R.Prim("int64")) -> R.Tensor(("n", "m + 1"), "float32"):
        n, m = T.int64(), T.int64()
        z = R.zeros(R.shape([n, m + 1]), "float32")
        return z

    @R.function
    def grow(x: R.Tensor(("n",), "float32"), k: R.Prim("int64")) -> R.Tensor("float32", ndim=1):
        n = T.int64()
        y = R.full(R.shape([n * 2 + k]), R.const(7.0), "float32")
        z = R.concat((x, y))
        return z

    @R.function(pure=False)
    def data_dependent(x: R.Tensor(("n",), "float32")) -> R.Tensor("float32", ndim=1):
        k = T.int64()
        found = R.call_packed("keep", x, ty_args=R.Tensor("float32", ndim=1))
        y = R.match_cast(found, R.Tensor((k,), "float32"))
        z = R.add(y, y)
        return z


@pytest.mark.parametrize("dims", [(2, 3), (0, 0), (1, 0)])
def test_shape_arguments(dims: tuple[int, int]) -> None:
    result = vm_of(Shapes, keep=abs).main(Shape(dims), 0)
    assert result.shape == (dims[0], dims[1] + 1)
    assert result.dtype == F32


@pytest.mark.parametrize("k", [0, 1, 5])
def test_scalar_in_a_dimension(k: int) -> None:
    result = vm_of(Shapes, keep=abs).grow(floats(3), k)
    np.testing.assert_array_equal(result, [0, 1, 2, *[7] * (6 + k)])


def test_dimension_that_only_the_run_knows() -> None:
    vm = vm_of(Shapes, keep=lambda x: x[x > 2])
    np.testing.assert_array_equal(vm.data_dependent(floats(6)), [6, 8, 10])
    assert vm.data_dependent(floats(2)).shape == (0,)


# Mistakes of callers


@I.ir_module
class Checked:
    @R.function
    def main(
        x: R.Tensor(("n", "m"), "float32"), w: R.Tensor(("m", "k"), "float32")
    ) -> R.Tensor(("n", "k"), "float32"):
        y = R.matmul(x, w)
        return y

    @R.function
    def cast(x: R.Tensor(("n",), "float32"), o: R.Any) -> R.Tensor("float32", ndim=2):
        n = T.int64()
        p = R.match_cast(o, R.Tensor((n, n * 2), "float32"))
        return p


def mistake(function: str, *args: Any) -> tuple[BaseException, str]:
    """Return the exception of a call, and its text with notes."""
    vm = vm_of(Checked)
    with pytest.raises(Exception) as caught:
        vm[function](*args)
    assert vm.main(floats(1, 2), floats(2, 3)).shape == (1, 3)  # the VM is still usable
    error = caught.value
    return error, "\n".join([str(error), *getattr(error, "__notes__", [])])


MISTAKES = {
    "dimension": (
        ("main", floats(2, 3), floats(4, 5)), RuntimeError,
        [r"param=w", r"dimension 0 of float32\[4, 5\]: expected 3",
         r"m = 3, set by argument x axis 1"],
    ),
    "rank": (("main", floats(2, 3), floats(3)), ValueError, ["param=w", "ndim 2, got ndim 1"]),
    "data type": (
        ("main", floats(2, 3).astype(np.float64), floats(3, 3)), ValueError,
        ["param=x", "dtype float32, got dtype float64"],
    ),
    "no tensor": (("main", 3, floats(3, 3)), TypeError, ["param=x", "a tensor, got int 3"]),
    "too few": (
        ("main", floats(2, 3)), RuntimeError, [r"main: expects 2 arguments \(x, w\), got 1"],
    ),
    "cast, dimension": (
        ("cast", floats(2), floats(2, 5)), RuntimeError,
        ["match_cast, ty=R.Tensor", r"dimension 1 of float32\[2, 5\]: expected 4",
         r"n \* 2 = 4", r"n = 2, set by argument x axis 0"],
    ),
    "cast, rank": (
        ("cast", floats(2), floats(2)), ValueError, ["match_cast", "ndim 2, got ndim 1"],
    ),
    "cast, kind": (
        ("cast", floats(2), "a"), TypeError, ["match_cast", "expected a tensor, got str"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name: str) -> None:
    call, cls, patterns = MISTAKES[name]
    error, text = mistake(*call)
    assert isinstance(error, cls), text
    for pattern in patterns:
        assert re.search(pattern, text), f"{pattern} is not in:\n{text}"
    if name != "too few":
        assert "test_programs.py:" in text  # the location in the source
