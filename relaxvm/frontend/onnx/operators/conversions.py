"""Conversions between data types, with ONNX's rules for values that do not fit."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....dtypes import as_dtype
from ....ir import Expr
from ...common.values import Value, is_symbolic
from ..graph import Graph, Problem
from ..messages import DataType
from ..registry import onnx
from ..tensors import dtype_of
from .text import numbers_as_strings, strings_as_numbers

__all__ = ["FLOAT8", "converted"]

FLOAT8: Final = {
    "float8_e4m3fn": 448.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2": 57344.0,
    "float8_e5m2fnuz": 57344.0,
}
"""The float8 types with a sign, with their greatest numbers."""
_POWERS: Final = "float8_e8m0fnu"
_WIDE: Final = ("float16", "bfloat16", "float32", "float64")
"""Floats that hold all numbers of the float8 types."""
_NARROW: Final = frozenset(
    {*FLOAT8, _POWERS, "float4_e2m1fn", "int4", "uint4", "int2", "uint2", "bfloat16"}
)


def _fold_cast(x: NDArray[Any], *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    if to not in (DataType.INT64, DataType.INT32, DataType.FLOAT, DataType.BOOL, DataType.DOUBLE):
        return None
    if is_symbolic(x):
        return Value(known=x) if to == DataType.INT64 else None
    if x.dtype == object or x.dtype.name in _NARROW:
        return None
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        return None
    return x.astype(dtype_of(to, "to"))


@onnx("Cast", since=6, fold=_fold_cast)
def cast(
    g: Graph, x: Value, *, to: int, saturate: int = 1, round_mode: str = "up"
) -> Expr | Value:
    """R.astype; with saturate, what is out of range becomes the greatest float8."""
    return converted(g, x, dtype_of(to, "to"), saturate, round_mode)


@onnx("CastLike", since=15)
def cast_like(
    g: Graph, x: Value, like: Value, *, saturate: int = 1, round_mode: str = "up"
) -> Expr | Value:
    """As Cast, to the data type of another value."""
    if like.dtype is None:
        raise Problem("the data type to convert to is not known")
    return converted(g, x, like.dtype, saturate, round_mode)


@onnx("BitCast", since=26)
def bit_cast(g: Graph, x: Value, *, to: int) -> Expr | Value:
    """R.memory.view: the same bits as another data type of the same size."""
    dtype = dtype_of(to, "to")
    if "str" in (dtype, x.dtype) or x.dtype is None:
        raise Problem("expected a tensor of numbers of a known data type")
    old, new = as_dtype(x.dtype).itemsize, as_dtype(dtype).itemsize
    if old != new:
        raise Problem(f"to: expected a data type of {old} bytes, got {dtype}, which has {new}")
    return g.op("memory.view", x, None, dtype)


def converted(
    g: Graph, x: Value | Expr, dtype: str, saturate: int = 1, round_mode: str = "up"
) -> Expr | Value:
    """A value of another data type.

    Args:
        g: the graph.
        x: the value.
        dtype: the data type by name.
        saturate: whether numbers that are out of the range of a float8 become the greatest or the
            least number of that type, rather than NaN or infinite.
        round_mode: "up", "down" or "nearest", for powers of two (float8_e8m0fnu).
    """
    x = x if isinstance(x, Value) else Value(x)
    if x.dtype == dtype:
        return x
    if dtype == "str":
        return numbers_as_strings(g, x)
    if x.dtype == "str":
        return strings_as_numbers(g, x, dtype)
    if dtype == "int32" and x.known is not None and is_symbolic(x.known):
        # Converters of TensorFlow compute shapes as int32.  They stay expressions of dimensions,
        # which have no width: nothing wraps around before the elements are needed as a tensor.
        return Value(known=x.known, dtype=dtype)
    if dtype.startswith("complex"):
        raise Problem(f"conversions to {dtype} are not supported")
    if dtype == _POWERS:
        return _power_of_two(g, x, saturate, round_mode)
    if dtype in FLOAT8 and saturate:
        most = FLOAT8[dtype]
        wide = x if x.dtype in _WIDE else g.op("astype", x, "float32")
        like = as_dtype(wide.dtype if isinstance(wide, Value) else "float32")
        below = g.op("minimum", wide, np.array(most, like))
        return g.op("astype", g.op("maximum", below, np.array(-most, like)), dtype)
    if x.dtype in _NARROW and dtype in _NARROW:  # ml_dtypes converts them to numpy's types only
        return g.op("astype", g.op("astype", x, "float32"), dtype)
    return g.op("astype", x, dtype)


def _power_of_two(g: Graph, x: Value, saturate: int, round_mode: str) -> Expr:
    """The exponents of floats, as float8_e8m0fnu; signs are dropped."""
    if round_mode not in ("up", "down", "nearest"):
        raise Problem(f"round_mode: expected up, down or nearest, got {round_mode!r}")
    wide = x if x.dtype == "float32" else g.op("astype", x, "float32")
    bits = g.op("memory.view", wide, None, "uint32")
    shifted = g.op("right_shift", bits, np.array(23, np.uint32))
    exponent = g.op("bitwise_and", shifted, np.array(255, np.uint32))
    fraction = g.op("bitwise_and", bits, np.array(0x7FFFFF, np.uint32))
    limit = 254 if saturate else 255
    may_grow: Any = g.op("less", exponent, np.array(limit, np.uint32))
    rounded: Any = exponent
    if round_mode != "down":
        if round_mode == "up":
            above = g.op("greater", fraction, np.array(0, np.uint32))
        else:  # a half goes up, unless the exponent is the least one
            normal = g.op("greater", exponent, np.array(0, np.uint32))
            half = g.op("add", fraction, g.op("astype", normal, "uint32"))
            above = g.op("greater", half, np.array(0x400000, np.uint32))
        step = g.op("astype", g.op("logical_and", above, may_grow), "uint32")
        rounded = g.op("add", exponent, step)
    return g.op("memory.view", g.op("astype", rounded, "uint8"), None, _POWERS)
