"""Quantization: numbers as integers, or narrow floats, times a scale.

Products of quantized tensors are computed in floats that hold all sums exactly, for which there are
fast kernels, and become int32 again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....dtypes import as_dtype
from ....ir import Expr, IntImm, TensorType, TupleGetItem, TupleType
from ....op.lowering import kernel_call
from ...common.values import Value
from ..graph import Graph, Problem
from ..registry import onnx
from ..tensors import dtype_of
from .conversions import FLOAT8, converted
from .ranks import (
    axis_in_the_middle,
    by_row,
    in_shape,
    part,
    rank_of,
    shape_vector,
    where_axis,
    with_rank,
)
from .windows import conv, spatial_axes

__all__ = [
    "dequantized",
    "exact_product",
    "is_zero",
    "quantized",
    "requantized",
]

LIMITS: Final = {
    "uint8": (0, 255),
    "int8": (-128, 127),
    "uint16": (0, 65535),
    "int16": (-32768, 32767),
    "uint4": (0, 15),
    "int4": (-8, 7),
    "uint2": (0, 3),
    "int2": (-2, 1),
}
"""The least and the greatest number of the integers that tensors are quantized to."""
_FLOATS: Final = (*FLOAT8, "float4_e2m1fn")


def as_value(x: Any) -> Value:
    """An expression or array as a value."""
    if isinstance(x, Value):
        return x
    return Value(known=x) if isinstance(x, np.ndarray) else Value(x)


def as_float(g: Graph, x: Any, dtype: str = "float32") -> Value:
    """A value of a wide float type; known elements are converted here."""
    value = as_value(x)
    if value.dtype == dtype:
        return value
    known = value.constant()
    if known is not None:
        return Value(known=known.astype(as_dtype(dtype)))
    return as_value(converted(g, value, dtype))


def is_zero(value: Value | None) -> bool:
    """Whether a zero point is not there, or is known to be 0."""
    if value is None:
        return True
    known = value.constant()
    return known is not None and not known.astype(np.float32).any()


def _along(g: Graph, p: Value, x: Value, axis: int, block_size: int, what: str) -> Value:
    """A scale or zero point in a shape that broadcasts to x."""
    if p.ndim == 0:
        return p
    if p.ndim == 1 and p.length == 1 and not block_size:
        return _reshaped(g, p, ())
    if x.ndim < 0 or (block_size > 0 and p.ndim < 0):
        return _along_in_any_rank(g, p, x, axis, block_size)
    if not -x.ndim <= axis < x.ndim:
        raise Problem(f"axis: expected an axis of a tensor of rank {x.ndim}, got {axis}")
    axis %= x.ndim
    if not block_size:
        if p.ndim not in (-1, 1):
            raise Problem(f"{what}: expected a number or a vector, got {p.type}")
        return _reshaped(g, p, (-1, *[1] * (x.ndim - axis - 1)))
    if block_size < 0:
        raise Problem(f"block_size: expected at least 0, got {block_size}")
    if p.ndim != x.ndim:
        raise Problem(f"{what}: expected as many axes as x has, {x.ndim}, got {p.type}")
    length = None if x.dims is None else x.dims[axis]
    known = p.constant()
    if known is not None and isinstance(length, IntImm):
        wide = np.repeat(known, block_size, axis)
        if not 0 <= wide.shape[axis] - length.value < block_size:
            raise Problem(
                f"{what}: expected {-(-length.value // block_size)} blocks of {block_size} for "
                f"length {length}, got {known.shape[axis]}"
            )
        at = (slice(None),) * axis
        return Value(known=wide[(*at, slice(length.value))])
    found = g.op("repeat", p, block_size, axis)
    dims = p.dims
    blocks = None if dims is None else dims[axis]
    counts = [each.value for each in (blocks, length) if isinstance(each, IntImm)]
    if len(counts) == 2 and counts[0] * block_size == counts[1]:
        return Value(found)
    if length is None:
        raise Problem(f"{what}: the shape of x is not known")
    return Value(g.op("strided_slice", found, [axis], [0], [length]))


def _along_in_any_rank(g: Graph, p: Value, x: Value, axis: int, block_size: int) -> Value:
    """The same, where only the run knows how many axes there are."""
    shape = shape_vector(g, x)
    if not block_size:
        count = g.op("prod", shape_vector(g, p), [0])
        ones = g.op("ones_like", shape)
        return in_shape(g, p, where_axis(g, shape, axis, count, ones), x.ndim)
    wide = g.op("repeat", axis_in_the_middle(g, p, axis), block_size, 1)
    end = g.shape_in(part(g, part(g, shape, axis), 0, 1))
    ty = TensorType(None, p.dtype, ndim=3)
    cut = g.run("strided_slice", [wide, [1], [0], end, None], ty, p.dtype or "?")
    dims = where_axis(g, shape, axis, np.array(-1), shape_vector(g, p))
    return in_shape(g, cut, dims, x.ndim)


def _reshaped(g: Graph, p: Value, shape: tuple[int, ...]) -> Value:
    known = p.constant()
    if known is not None:
        return Value(known=known.reshape(shape))
    return Value(g.op("reshape", p, shape))


def quantized(
    g: Graph,
    x: Value | Expr,
    scale: Value,
    zero_point: Value | None,
    dtype: str,
    saturate: int = 1,
    precision: str | None = None,
) -> Expr | Value:
    """round(x / scale) + zero_point within the limits of an integer type, or x / scale as a narrow
    float.  scale and zero_point broadcast to x.

    Args:
        g: the graph.
        x, scale, zero_point: the operands.
        dtype: of the result.
        saturate: as of Cast.
        precision: the data type of the division; that of the scale by default.
    """
    working = precision or (scale.dtype if scale.dtype in ("float16", "bfloat16") else "float32")
    if working not in ("float16", "bfloat16", "float32", "float64"):
        raise Problem(f"precision: expected a float type, got {working}")
    if _suits_quantize(as_value(x), scale, zero_point, dtype, working):
        point = Value(known=np.zeros((), dtype)) if is_zero(zero_point) else zero_point
        return g.op("quantize", x, scale, point, -1, dtype)
    ratio = g.op("divide", as_float(g, x, working), as_float(g, scale, working))
    if dtype in _FLOATS:
        return converted(g, Value(ratio), dtype, saturate)
    if dtype not in LIMITS:
        raise Problem(f"quantization to {dtype} is not supported")
    found: Any = as_float(g, g.op("round", ratio), _holding(working))
    if not is_zero(zero_point):
        found = g.op("add", found, as_float(g, zero_point, _holding(working)))
    found = g.op("clip", found, *LIMITS[dtype])
    return g.op("astype", found, dtype)


def _suits_quantize(
    x: Value, scale: Value, zero_point: Value | None, dtype: str, working: str
) -> bool:
    """Whether this is what R.quantize is for: bytes of float32 with axes, and numbers for all."""
    return (
        dtype in ("int8", "uint8")
        and (x.dtype, scale.dtype, working) == ("float32",) * 3
        and x.ndim > 0
        and scale.ndim == 0
        and (is_zero(zero_point) or zero_point is None
             or (zero_point.ndim == 0 and zero_point.dtype == dtype))
    )  # fmt: skip


def _holding(dtype: str) -> str:
    """A data type in which a zero point can be added exactly."""
    return dtype if dtype == "float64" else "float32"


def dequantized(
    g: Graph, x: Value, scale: Value, zero_point: Value | None, dtype: str | None = None
) -> Expr | Value:
    """(x - zero_point) * scale, computed in float32.  scale and zero_point broadcast to x.

    Args:
        g: the graph.
        x, scale, zero_point: the operands.
        dtype: of the result; that of the scale by default.
    """
    has_offset = x.dtype not in _FLOATS and not is_zero(zero_point)
    if x.dtype == "int32" and has_offset:  # float32 does not hold all int32
        x, has_offset = Value(g.op("subtract", x, zero_point)), False
    wide: Any = as_float(g, x)
    if has_offset:
        wide = g.op("subtract", wide, as_float(g, zero_point))
    is_matrix = x.dtype in ("int8", "uint8") and x.constant() is not None and x.ndim >= 2
    # FoldQuantization looks for integers that are multiplied by scales.
    multiply = g.op_of_constants if is_matrix else g.op
    found = multiply("multiply", wide, as_float(g, scale))
    return converted(g, Value(found), dtype or scale.dtype or "float32")


@onnx("QuantizeLinear", since=10)
def quantize_linear(
    g: Graph,
    x: Value,
    y_scale: Value,
    y_zero_point: Value | None = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
) -> Expr | Value:
    """round(x / y_scale) + y_zero_point, for the tensor, along an axis, or in blocks."""
    stated = dtype_of(output_dtype, "output_dtype") if output_dtype else None
    dtype = (y_zero_point.dtype if y_zero_point is not None else stated) or "uint8"
    if stated not in (None, dtype):
        raise Problem(f"output_dtype: expected {dtype}, as y_zero_point has, got {stated}")
    scale = _along(g, y_scale, x, axis, block_size, "y_scale")
    zero = None if y_zero_point is None or dtype in _FLOATS else _along(
        g, y_zero_point, x, axis, block_size, "y_zero_point"
    )  # fmt: skip
    working = dtype_of(precision, "precision") if precision else None
    return quantized(g, x, scale, zero, dtype, saturate, working)


@onnx("DequantizeLinear", since=10)
def dequantize_linear(
    g: Graph,
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Expr | Value:
    """(x - x_zero_point) * x_scale, for the tensor, along an axis, or in blocks."""
    if x_zero_point is not None and x_zero_point.dtype != x.dtype:
        raise Problem(f"x_zero_point: expected {x.dtype}, as x has, got {x_zero_point.dtype}")
    scale = _along(g, x_scale, x, axis, block_size, "x_scale")
    zero = None if is_zero(x_zero_point) or x_zero_point is None else _along(
        g, x_zero_point, x, axis, block_size, "x_zero_point"
    )  # fmt: skip
    stated = dtype_of(output_dtype, "output_dtype") if output_dtype else None
    return dequantized(g, x, scale, zero, stated)


@onnx("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(g: Graph, x: Value) -> Any:
    """x as uint8, with the scale and zero point that its least and greatest element need."""
    types = [TensorType.of((), dtype) for dtype in ("float32", "uint8")]
    inputs = g.expr(x), g.none()
    found = g.emit(kernel_call("quantization_range", inputs, TupleType(types)))
    scale, point = (Value(TupleGetItem(found, i)) for i in range(2))
    return as_value(quantized(g, x, scale, point, "uint8")), scale, point


# Products of integers


def _greatest(x: Value, zero_point: Value | None) -> float:
    """A bound of |x - zero_point|."""
    if x.dtype not in LIMITS:
        return math.inf
    low, high = LIMITS[x.dtype]
    zero = np.zeros(1) if zero_point is None else zero_point.constant()
    if zero is None:
        return float(high - low)
    zeros = zero.astype(np.float64)
    return float(max(np.abs(low - zeros).max(), np.abs(high - zeros).max()))


def exact_product(
    g: Graph,
    product: Callable[[Value, Value], Expr],
    x: Value,
    x_zero: Value | None,
    w: Value,
    w_zero: Value | None,
    count: int | None,
    sums: Callable[[NDArray[Any]], Any],
) -> Expr:
    """A product of integers minus their zero points, in float32 if that holds all sums exactly, in
    float64 otherwise.

    Args:
        g: the graph.
        product: makes the product of two floats.
        x, w: integers of at most 16 bits.
        x_zero, w_zero: the zero points, which broadcast.
        count: how many products are added up; None if it is not known.
        sums: takes |w - w_zero|, and returns the sums that meet an element of the result.
    """
    known = w.constant()
    zero = np.zeros((), np.float64) if w_zero is None else w_zero.constant()
    if known is not None and zero is not None:
        weights = known.astype(np.float64) - zero.astype(np.float64)
        bound = _greatest(x, x_zero) * float(np.max(sums(np.abs(weights)), initial=0))
        dtype = "float32" if bound < 1 << 24 else "float64"
        right = Value(known=weights.astype(dtype))
    else:
        bound = _greatest(x, x_zero) * _greatest(w, w_zero) * (math.inf if count is None else count)
        dtype = "float32" if bound < 1 << 24 else "float64"
        right = _centered(g, w, w_zero, dtype)
    return product(_centered(g, x, x_zero, dtype), right)


def _centered(g: Graph, x: Value, zero_point: Value | None, dtype: str) -> Value:
    wide = as_float(g, x, dtype)
    if is_zero(zero_point):
        return wide
    return Value(g.op("subtract", wide, as_float(g, zero_point, dtype)))


def matmul_integer(
    g: Graph, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None
) -> Expr:
    """The exact product of matrices, as floats."""
    if 0 in (a.ndim, b.ndim):
        raise Problem(f"expected matrices, got {a.type} and {b.type}")
    a_zero = None if a_zero is None else by_row(g, a_zero, a)
    if b_zero is not None and b_zero.length == 1:
        b_zero = _reshaped(g, b_zero, ())
    inner = None if a.dims is None else a.dims[-1]
    return exact_product(
        g,
        lambda x, w: g.op("matmul", x, w),
        a, a_zero, b, b_zero,
        inner.value if isinstance(inner, IntImm) else None,
        lambda w: w.sum(-2 if w.ndim > 1 else 0),
    )  # fmt: skip


@onnx("MatMulInteger", since=10)
def matmul_integer_(
    g: Graph, a: Value, b: Value, a_zero_point: Value | None = None,
    b_zero_point: Value | None = None,
) -> Expr:  # fmt: skip
    """The product of (a - a_zero_point) and (b - b_zero_point), as int32."""
    return as_int32(g, matmul_integer(g, a, b, a_zero_point, b_zero_point))


def as_int32(g: Graph, x: Expr) -> Expr:
    """Exact sums as int32; those that do not fit wrap."""
    if x.ty.dtype == "float64":
        x = g.op("astype", x, "int64")
    return g.op("astype", x, "int32")


def _per_channel(g: Graph, p: Value | None, x: Value) -> Value | None:
    """A number for the weights, or for each output channel, with axes for those after it."""
    if p is None or p.ndim == 0:
        return p
    if p.length == 1:
        return _reshaped(g, p, ())
    return _reshaped(g, p, (-1, *[1] * (x.ndim - 1)))


def _conv_integer(
    g: Graph, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None, **attrs: Any
) -> Expr:
    settings = [attrs[name] for name in ("kernel_shape", "strides", "dilations")]
    settings.append((attrs["pads"] or [])[::2])
    w = with_rank(g, w, spatial_axes(w, "w", *settings) + 2, "w")
    x = with_rank(g, x, w.ndim, "x")
    lengths = w.lengths(1)
    count = None if lengths is None else math.prod(lengths)
    if x_zero is not None and x_zero.ndim != 0:
        x_zero = _reshaped(g, x_zero, ())
    return exact_product(
        g,
        lambda left, right: conv(g, left, right, **attrs),
        x, x_zero, w, _per_channel(g, w_zero, w), count,
        lambda weights: weights.sum(tuple(range(1, weights.ndim))),
    )  # fmt: skip


@onnx("ConvInteger", since=10)
def conv_integer(
    g: Graph,
    x: Value,
    w: Value,
    x_zero_point: Value | None = None,
    w_zero_point: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    """The convolution of (x - x_zero_point) and (w - w_zero_point), as int32."""
    found = _conv_integer(
        g, x, w, x_zero_point, w_zero_point, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return as_int32(g, found)


def requantized(
    g: Graph, x: Expr, scales: list[Value], y_scale: Value, y_zero: Value | None, dtype: str
) -> Expr | Value:
    """An exact product times the scales of its operands, quantized; the scales broadcast."""
    known = [each.constant() for each in (*scales, y_scale)]
    factor: Any
    if all(each is not None for each in known):
        wide = [np.asarray(each, np.float32) for each in known]
        factor = Value(known=np.asarray(np.prod(np.broadcast_arrays(*wide[:-1]), 0) / wide[-1],
                                        np.float32))  # fmt: skip
    else:
        factor = as_float(g, scales[0])
        for each in scales[1:]:
            factor = g.op("multiply", factor, as_float(g, each))
        factor = g.op("divide", factor, as_float(g, y_scale))
    real = Value(g.op("multiply", as_float(g, x), factor))
    one = Value(known=np.ones((), np.float32))
    if _suits_quantize(real, one, y_zero, dtype, "float32"):
        return quantized(g, real, one, y_zero, dtype)
    found = g.op("round", real)
    if not is_zero(y_zero):
        found = g.op("add", found, as_float(g, y_zero))
    if dtype not in LIMITS:
        raise Problem(f"quantization to {dtype} is not supported")
    return g.op("astype", g.op("clip", found, *LIMITS[dtype]), dtype)


def _number(g: Graph, p: Value) -> Value:
    return p if p.ndim == 0 else _reshaped(g, p, ())


@onnx("QLinearMatMul", since=10)
def qlinear_matmul(
    g: Graph,
    a: Value,
    a_scale: Value,
    a_zero_point: Value,
    b: Value,
    b_scale: Value,
    b_zero_point: Value,
    y_scale: Value,
    y_zero_point: Value,
) -> Expr | Value:
    """The product of quantized matrices, quantized."""
    product = matmul_integer(g, a, b, a_zero_point, b_zero_point)
    if b_scale.length == 1:
        b_scale = _number(g, b_scale)
    a_scale, y_scale, y_zero_point = [by_row(g, p, a) for p in (a_scale, y_scale, y_zero_point)]
    return requantized(
        g, product, [a_scale, b_scale], y_scale, y_zero_point, y_zero_point.dtype or "uint8"
    )


@onnx("QLinearConv", since=10)
def qlinear_conv(
    g: Graph,
    x: Value,
    x_scale: Value,
    x_zero_point: Value,
    w: Value,
    w_scale: Value,
    w_zero_point: Value,
    y_scale: Value,
    y_zero_point: Value,
    b: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr | Value:
    """The convolution of quantized tensors, quantized."""
    found = _conv_integer(
        g, x, w, x_zero_point, w_zero_point, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    channels = (-1, *[1] * (found.ty.ndim - 2))
    if b is not None:
        if found.ty.dtype == "float32":  # sums with the bias may need more digits
            found = g.op("astype", found, "float64")
        found = g.op("add", found, _reshaped(g, as_float(g, b, "float64"), channels))
    if rank_of(w_scale, "w_scale", 0, 1) == 1:
        w_scale = _reshaped(g, w_scale, () if w_scale.length == 1 else channels)
    scales = [_number(g, x_scale), w_scale]
    return requantized(
        g, found, scales, _number(g, y_scale), _number(g, y_zero_point), y_zero_point.dtype or ""
    )
