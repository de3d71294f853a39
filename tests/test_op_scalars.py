"""Operators of two scalars, whose result is a scalar, and comparisons of two data types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import op
from relaxvm.dtypes import as_dtype
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


_NAMES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64", "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "int2", "int4", "uint1",
    "uint2", "uint4", "float4_e2m1fn",
]  # fmt: skip


def _is_known(name: str) -> bool:
    try:
        as_dtype(name)
    except relaxvm.errors.MissingExtraError:
        return False
    return True


def _numbers(name: str) -> np.ndarray:
    """Small numbers that a data type has."""
    dtype = as_dtype(name)
    with np.errstate(all="ignore"):
        found = np.array([-2, -1, 0, 1, 2, 3], np.int64).astype(dtype)
    has = [number == int(each) for number, each in zip((-2, -1, 0, 1, 2, 3), found, strict=True)]
    return found[has]


@pytest.mark.parametrize("left", _NAMES)
def test_any_two_data_types_are_compared(left: str) -> None:
    """Those of ml_dtypes, too, for which numpy and ml_dtypes name no data type that has both."""
    pytest.importorskip("ml_dtypes")
    known = [name for name in _NAMES if _is_known(name)]
    if left not in known:
        pytest.skip(f"this ml_dtypes has no {left}")
    a = _numbers(left)[:, None]
    operands = [_numbers(right) for right in known]
    builder = BlockBuilder()
    params = [Var(f"x{i}", TensorType(x.shape, x.dtype.name)) for i, x in enumerate([a, *operands])]
    with builder.function("main", params):
        outs = [builder.emit(op.less(params[0], each)) for each in params[1:]]
        builder.emit_func_output(outs)
    results = relaxvm.VirtualMachine(relaxvm.build(builder.get()))["main"](a, *operands)
    for right, b, got in zip(known, operands, results, strict=True):
        assert got.tolist() == (a.astype("f8") < b.astype("f8")).tolist(), right


def test_two_data_types_are_compared_where_a_rank_is_not_known() -> None:
    """The conversion of the operand whose shape is known is lowered, too."""
    got = result("less", [TensorType([3], "uint8"), TensorType(None, "float16")],
                 np.arange(3, dtype="u1"), np.array([[1.0]], "f2"))  # fmt: skip
    assert got.tolist() == [[True, False, False]]
