"""Tensors of given shapes: filled with a value, or numbers in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..ir.arith import simplify
from ..ir.expr import Call, Expr, FloatImm, IntImm, PrimType, TensorType, Type, int_imm
from ..ir.module import VDevice
from ..ir.prim import is_float
from .base import shape_of
from .kinds import DType, IllTyped, IllValued, Operand, Scalar, ShapeLike
from .lowering import call_result_form, results_text
from .registry import Returns, operator
from .rules import like, product

__all__ = [
    "arange",
    "eye",
    "eye_like",
    "full",
    "full_like",
    "hamming_window",
    "ones",
    "ones_like",
    "size",
    "zeros",
    "zeros_like",
]


def _value(call: Call) -> Sequence[Expr]:
    return call.args[1:]


def _nothing(call: Call) -> Sequence[Expr]:
    return ()


def _filled(shape: Expr, dtype: str | None, vdevice: VDevice | None = None) -> TensorType:
    """The type of a tensor of a shape.

    Raises:
        IllValued: a dimension is negative.
    """
    for dim in shape.ty.values or ():
        if isinstance(dim, IntImm) and dim.value < 0:
            raise IllValued(f"shape: expected dimensions of 0 or more, got {shape}")
    return TensorType(shape, dtype, vdevice)


def _of_same_shape(kernel: str) -> Returns:
    """The result form of a kernel whose result has the shape of the first operand."""

    def returns(call: Call) -> tuple[str, list[Any]]:
        x, *values = call.args
        return kernel, [*values, shape_of(x), results_text(call)]

    return returns


def _check_fill(fill_value: TensorType | PrimType) -> None:
    if type(fill_value) is TensorType and fill_value.ndim not in (-1, 0):
        raise IllValued(f"fill_value: expected a scalar or a tensor of rank 0, got {fill_value}")


@operator("full", loops="full", takes=_value)
def full(shape: ShapeLike, fill_value: Operand, dtype: DType | None = None) -> Type:
    """A tensor filled with one value, a scalar or a tensor of rank 0."""
    _check_fill(fill_value)
    vdevice = fill_value.vdevice if type(fill_value) is TensorType else None
    return _filled(shape, fill_value.dtype if dtype is None else dtype, vdevice)


@operator(
    "full_like",
    loops="full_like",
    kernel="full",
    takes=_value,
    returns=_of_same_shape("full"),
)
def full_like(x: TensorType, fill_value: Operand, dtype: DType | None = None) -> Type:
    """A tensor of x's shape filled with one value; of x's data type if none is given."""
    _check_fill(fill_value)
    return like(x, dtype=x.dtype if dtype is None else dtype)


@operator("ones", loops="ones", takes=_nothing)
def ones(shape: ShapeLike, dtype: DType) -> Type:
    """A tensor of ones."""
    return _filled(shape, dtype)


@operator(
    "ones_like",
    loops="ones_like",
    kernel="ones",
    takes=_nothing,
    returns=_of_same_shape("ones"),
)
def ones_like(x: TensorType, dtype: DType | None = None) -> Type:
    """A tensor of ones, of x's shape, and of x's data type if none is given."""
    return like(x, dtype=x.dtype if dtype is None else dtype)


@operator("zeros", loops="zeros", takes=_nothing)
def zeros(shape: ShapeLike, dtype: DType) -> Type:
    """A tensor of zeros."""
    return _filled(shape, dtype)


@operator(
    "zeros_like",
    loops="zeros_like",
    kernel="zeros",
    takes=_nothing,
    returns=_of_same_shape("zeros"),
)
def zeros_like(x: TensorType, dtype: DType | None = None) -> Type:
    """A tensor of zeros, of x's shape, and of x's data type if none is given."""
    return like(x, dtype=x.dtype if dtype is None else dtype)


def _arange_arguments(
    start: Any, end: Any = None, step: Any = 1, dtype: Any = None
) -> tuple[Any, ...]:
    if end is None:
        start, end = 0, start
    if dtype is None:
        bounds = (start, end, step)
        dtype = "float32" if any(map(_is_float, bounds)) else "int64"
    return start, end, step, dtype


def _is_float(value: Any) -> bool:
    return is_float(value.dtype) if isinstance(value, Expr) else isinstance(value, float)


@operator(
    "arange",
    loops="arange",
    takes=lambda call: call.args,
    arguments=_arange_arguments,
)
def arange(start: Scalar, end: Scalar, step: Scalar, dtype: DType) -> Type:
    """The numbers start, start + step, start + 2 * step and so on, up to but excluding end.

    The data type is int64, or float32 if one of the bounds is a float, unless one is given.  With
    one number, start is 0 and the number is end.
    """
    bounds = (start, end, step)
    if any(map(_is_float, bounds)) and None in map(_number, bounds):
        return TensorType(dtype=dtype, ndim=1)
    return TensorType((arange_length(start, end, step),), dtype)


def arange_length(start: Any, end: Any, step: Any) -> Expr:
    """The number of elements of `arange`.

    Raises:
        IllTyped, IllValued: there is no such range.
    """
    low, high, by = [_number(value) for value in (start, end, step)]
    if by == 0:
        raise IllValued("step: expected a number other than 0, got 0")
    if low is not None and high is not None and by is not None:
        return int_imm(max(0, math.ceil((high - low) / by)))
    if any(map(_is_float, (start, end, step))):
        raise IllTyped("bounds that are not known have to be integers, got floats")
    if by is not None and by < 0:
        return simplify((start - end - step - 1) // -step)
    if by is None:
        count: Expr = (end + step - start - 1) // step  # as TVM writes it
        return count
    return simplify((end - start + by - 1) // by)


def _number(value: Expr) -> int | float | None:
    return value.value if isinstance(value, (IntImm, FloatImm)) else None


def _eye_arguments(n: Any, m: Any = None, k: Any = 0, dtype: Any = "float32") -> tuple[Any, ...]:
    return n, n if m is None else m, k, dtype


def _need_integers(**scalars: Expr) -> None:
    for name, value in scalars.items():
        if "int" not in value.ty.dtype:
            raise IllTyped(f"{name}: expected an integer, got {value} of type {value.ty}")


@operator("eye", loops="eye", takes=lambda call: [call.args[2]], arguments=_eye_arguments)
def eye(n: Scalar, m: Scalar, k: Scalar, dtype: DType) -> Type:
    """A matrix of n rows and m columns, n if m is not given, with 1 on diagonal k and 0 elsewhere;
    diagonal 0 is the main one, and k > 0 is above it."""
    _need_integers(n=n, m=m, k=k)
    return TensorType((n, m), dtype)


@operator(
    "eye_like",
    loops="eye_like",
    kernel="eye",
    takes=_value,
    returns=_of_same_shape("eye"),
)
def eye_like(x: TensorType, k: Scalar = 0, dtype: DType | None = None) -> Type:
    """A matrix of the shape of x with 1 on diagonal k and 0 elsewhere, of x's data type if none is
    given."""
    _need_integers(k=k)
    if x.ndim not in (-1, 2):
        raise IllValued(f"x: expected a matrix, got {x}")
    return like(x, None, ndim=2, dtype=x.dtype if dtype is None else dtype) if x.dims is None else (
        like(x, dtype=x.dtype if dtype is None else dtype)
    )


@operator("hamming_window", loops="hamming_window", takes=lambda call: call.args)
def hamming_window(
    window_size: Scalar, periodic: Scalar, alpha: Scalar, beta: Scalar, dtype: DType
) -> Type:
    """A vector of `window_size` elements ``alpha - beta * cos(2 * pi * i / n)`` for its indices i;
    n is `window_size` if `periodic`, else one less."""
    _need_integers(window_size=window_size)
    if isinstance(window_size, IntImm) and window_size.value < 1:
        raise IllValued(f"window_size: expected 1 or more, got {window_size.value}")
    if "float" not in dtype:
        raise IllTyped(f"dtype: expected floats, got {dtype}")
    return TensorType((window_size,), dtype)


def _count_as_tensor(builder: Any, call: Call) -> Expr:
    dims = call.args[0].ty.dims
    if dims is None:
        return call_result_form("size", call.args, call.ty)
    count: Expr = full((), product(dims), "int64")
    return count


@operator("size", lower=_count_as_tensor)
def size(expr: TensorType) -> Type:
    """The number of elements of a tensor: an int64 tensor of rank 0."""
    return TensorType((), "int64", expr.vdevice)
