"""Operators of two scalars, whose result is a scalar, and comparisons of two data types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import op
from relaxvm.ir import BlockBuilder, PrimType, TensorType, Var


def result(name: str, types: list[Any], *args: Any) -> Any:
    builder = BlockBuilder()
    params = [Var(letter, ty) for letter, ty in zip("xy", types, strict=True)]
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(getattr(op, name)(*params)))
    return relaxvm.VirtualMachine(relaxvm.build(builder.get()))["main"](*args)


@pytest.mark.parametrize(
    ("name", "dtype", "a", "b", "want"),
    [
        ("add", "int64", 7, -2, 5),
        ("subtract", "float32", 1.5, 2.5, -1.0),
        ("multiply", "float64", 1.5, -2.0, -3.0),
        ("divide", "float64", 7.5, 2.0, 3.75),
        ("maximum", "int64", 7, -2, 7),
        ("minimum", "float32", 1.5, 2.5, 1.5),
        ("floor_mod", "float64", -7.5, 2.0, 0.5),
        ("less", "int64", -2, 7, True),
        ("equal", "float32", 1.5, 1.5, True),
    ],
)
def test_scalars(name: str, dtype: str, a: Any, b: Any, want: Any) -> None:
    assert result(name, [PrimType(dtype)] * 2, a, b) == want


def test_the_type_is_that_of_a_scalar() -> None:
    x, y = Var("x", PrimType("int64")), Var("y", PrimType("int64"))
    assert op.add(x, y).ty.dtype == "int64"
    assert op.less(x, y).ty.dtype == "bool"


def test_scalars_of_two_data_types() -> None:
    x, y = Var("x", PrimType("int64")), Var("y", PrimType("float32"))
    with pytest.raises(TypeError, match="add: expected operands of one data type, got x1 int64"):
        op.add(x, y)


def test_comparisons_of_two_data_types() -> None:
    """Integers become floats; others the least data type with the numbers of both."""
    floats, ints = np.array([0.5, 2, 3], "f4"), np.array([1, 2, 2], "i4")
    types = [TensorType((3,), "float32"), TensorType((3,), "int32")]
    assert result("less", types, floats, ints).tolist() == [True, False, False]
    assert result("equal", types[::-1], ints, floats).tolist() == [False, True, False]
    small, large = np.array([-1, 127], "i1"), np.array([255, 127], "u1")
    n = Var("n", "int64")
    types = [TensorType((n,), "int8"), TensorType((n,), "uint8")]
    assert result("equal", types, small, large).tolist() == [False, True]
