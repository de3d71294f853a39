"""Quantized operators of com.microsoft.

Operators without products convert to float32, compute, and quantize the result, as their
definitions say.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ir import Expr, IntImm, TensorType
from ...common.values import Value
from ..graph import Graph, Problem
from ..registry import MICROSOFT, onnx
from .attention import dims_of, length_of
from .neural import stepwise_softmax
from .quantized import (
    as_float,
    as_value,
    dequantize_linear,
    dequantized,
    dynamic_quantize_linear,
    matmul_integer,
    quantize_linear,
    quantized,
    requantized,
)
from .ranks import rank_of, with_rank
from .recurrent import long_short_term
from .windows import average_pool, spatial_axes

__all__: list[str] = []


def _number(g: Graph, p: Value | None) -> Value | None:
    """A scale or zero point of a whole tensor, without axes."""
    if p is None or p.ndim == 0:
        return p
    known = p.constant()
    return Value(known=known.reshape(())) if known is not None else Value(g.op("reshape", p, ()))


def _real(g: Graph, x: Value, scale: Value, zero: Value | None) -> Value:
    number = _number(g, scale)
    assert number is not None
    return as_value(dequantized(g, x, number, _number(g, zero)))


def _whole(
    g: Graph, x: Value | Expr, scale: Value, zero: Value | None, dtype: str | None
) -> Expr | Value:
    number = _number(g, scale)
    assert number is not None
    return quantized(g, x, number, _number(g, zero), dtype or "uint8")


@onnx("QuantizeLinear", since=1, domain=MICROSOFT)
def microsoft_quantize(
    g: Graph, x: Value, y_scale: Value, y_zero_point: Value | None = None, *, axis: int = 1,
    block_size: int = 0,
) -> Expr | Value:  # fmt: skip
    """QuantizeLinear of ai.onnx."""
    return quantize_linear(g, x, y_scale, y_zero_point, axis=axis, block_size=block_size)


@onnx("DequantizeLinear", since=1, domain=MICROSOFT)
def microsoft_dequantize(
    g: Graph, x: Value, x_scale: Value, x_zero_point: Value | None = None, *, axis: int = 1,
    block_size: int = 0,
) -> Expr | Value:  # fmt: skip
    """DequantizeLinear of ai.onnx."""
    return dequantize_linear(g, x, x_scale, x_zero_point, axis=axis, block_size=block_size)


def _binary(name: str, target: str) -> None:
    def convert(
        g: Graph,
        a: Value,
        a_scale: Value,
        a_zero: Value | None,
        b: Value,
        b_scale: Value,
        b_zero: Value | None,
        c_scale: Value,
        c_zero: Value | None = None,
    ) -> Expr | Value:
        left, right = _real(g, a, a_scale, a_zero), _real(g, b, b_scale, b_zero)
        return _whole(g, g.op(target, left, right), c_scale, c_zero, a.dtype)

    convert.__doc__ = f"R.{target} of quantized tensors."
    onnx(name, since=1, domain=MICROSOFT)(convert)


_binary("QLinearAdd", "add")
_binary("QLinearMul", "multiply")


@onnx("QLinearSigmoid", since=1, domain=MICROSOFT)
def qlinear_sigmoid(
    g: Graph, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value,
    y_zero: Value | None = None,
) -> Expr | Value:  # fmt: skip
    """R.sigmoid of a quantized tensor."""
    return _whole(g, g.op("sigmoid", _real(g, x, x_scale, x_zero)), y_scale, y_zero, x.dtype)


@onnx("QLinearLeakyRelu", since=1, domain=MICROSOFT)
def qlinear_leaky_relu(
    g: Graph, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value,
    y_zero: Value | None = None, *, alpha: float = 0.01,
) -> Expr | Value:  # fmt: skip
    """x where it is not negative, else alpha * x, of a quantized tensor."""
    wide = _real(g, x, x_scale, x_zero)
    below = g.op("multiply", wide, np.array(alpha, np.float32))
    bent = g.op("where", g.op("less", wide, np.array(0, np.float32)), below, wide)
    return _whole(g, bent, y_scale, y_zero, x.dtype)


@onnx("QLinearSoftmax", since=1, domain=MICROSOFT)
def qlinear_softmax(
    g: Graph, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value, *,
    axis: int = -1, opset: int,
) -> Expr | Value:  # fmt: skip
    """R.nn.softmax of a quantized tensor."""
    if opset < 13 and axis != -1 and axis % rank_of(x, "X") != x.ndim - 1:
        raise Problem(f"expected for versions below 13 the last axis of {x.type}, got {axis}")
    wide = _real(g, x, x_scale, x_zero)
    return _whole(g, stepwise_softmax(g, wide, axis), y_scale, y_zero, x.dtype)


@onnx("QLinearConcat", since=1, domain=MICROSOFT)
def qlinear_concat(
    g: Graph, y_scale: Value, y_zero: Value, *inputs: Value, axis: int
) -> Expr | Value:
    """R.concat of quantized tensors, each with its scale and zero point."""
    if not inputs or len(inputs) % 3:
        raise Problem(f"expected a tensor, a scale and a zero point each, got {len(inputs)} inputs")
    parts = [g.expr(_real(g, *inputs[i : i + 3])) for i in range(0, len(inputs), 3)]
    whole = g.op("concat", parts, axis) if len(parts) > 1 else parts[0]
    return _whole(g, whole, y_scale, y_zero, y_zero.dtype)


@onnx("QLinearWhere", since=1, domain=MICROSOFT)
def qlinear_where(
    g: Graph, condition: Value, x: Value, x_scale: Value, x_zero: Value, y: Value, y_scale: Value,
    y_zero: Value, z_scale: Value, z_zero: Value,
) -> Expr | Value:  # fmt: skip
    """R.where of quantized tensors."""
    chosen = g.op("where", condition, _real(g, x, x_scale, x_zero), _real(g, y, y_scale, y_zero))
    return _whole(g, chosen, z_scale, z_zero, z_zero.dtype)


def _channels_first(g: Graph, x: Value, channels_last: int) -> Value:
    if not channels_last:
        return x
    return Value(g.op("permute_dims", x, (0, x.ndim - 1, *range(1, x.ndim - 1))))


def _as_given(g: Graph, x: Expr, ndim: int, channels_last: int) -> Expr:
    return g.op("permute_dims", x, (0, *range(2, ndim), 1)) if channels_last else x


@onnx("QLinearGlobalAveragePool", since=1, domain=MICROSOFT)
def qlinear_global_average_pool(
    g: Graph, x: Value, x_scale: Value, x_zero: Value, y_scale: Value, y_zero: Value, *,
    channels_last: int = 0,
) -> Expr | Value:  # fmt: skip
    """The mean of each channel of a quantized tensor."""
    spatial_axes(x, "X")
    axes = list(range(1, x.ndim - 1) if channels_last else range(2, x.ndim))
    mean = g.op("mean", _real(g, x, x_scale, x_zero), axes, True)
    return _whole(g, mean, y_scale, y_zero, x.dtype)


@onnx("QLinearAveragePool", since=1, domain=MICROSOFT)
def qlinear_average_pool(
    g: Graph,
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr | Value:
    """AveragePool of a quantized tensor."""
    x = with_rank(g, x, spatial_axes(x, "X", kernel_shape) + 2, "X")
    wide = _channels_first(g, _real(g, x, x_scale, x_zero), channels_last)
    found = average_pool(
        g, wide, auto_pad=auto_pad, ceil_mode=ceil_mode, count_include_pad=count_include_pad,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    laid = _as_given(g, g.expr(found), x.ndim, channels_last)
    return _whole(g, laid, y_scale, y_zero, x.dtype)


# Products


@onnx("QGemm", since=1, domain=MICROSOFT)
def qgemm(
    g: Graph,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    c: Value | None = None,
    y_scale: Value | None = None,
    y_zero: Value | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Expr | Value:
    """Gemm of quantized matrices, quantized if there is y_scale."""
    left = Value(g.op("permute_dims", a, (1, 0))) if transA else a
    known = b.constant()
    right = b
    if transB:
        right = Value(known=known.T.copy()) if known is not None else Value(
            g.op("permute_dims", b, (1, 0))
        )  # fmt: skip
    product = matmul_integer(g, left, right, _number(g, a_zero), b_zero)
    if c is not None:  # int32, in units of both scales
        if product.ty.dtype == "float32":
            product = g.op("astype", product, "float64")
        product = g.op("add", product, as_float(g, c, "float64"))
    if b_scale.length == 1:
        b_scale = _number(g, b_scale) or b_scale
    first = as_float(g, _number(g, a_scale))
    if alpha != 1:
        first = Value(g.op("multiply", first, np.array(alpha, np.float32)))
    if y_scale is None:
        factor = g.op("multiply", first, b_scale)
        return g.op("multiply", as_float(g, product), factor)
    number = _number(g, y_scale)
    assert number is not None
    return requantized(g, product, [first, b_scale], number, _number(g, y_zero),
                       (y_zero.dtype if y_zero is not None else a.dtype) or "uint8")  # fmt: skip


def _product_as_float(
    g: Graph, a: Value, b: Value, scales: list[Value | None], a_zero: Value | None,
    b_zero: Value | None, bias: Value | None,
) -> Expr:  # fmt: skip
    found: Any = as_float(g, matmul_integer(g, a, b, _number(g, a_zero), b_zero))
    factor: Any = None
    for scale in scales:
        assert scale is not None
        if scale.length == 1:
            scale = _number(g, scale)
        factor = scale if factor is None else g.op("multiply", factor, scale)
    found = g.op("multiply", found, factor)
    return found if bias is None else g.op("add", found, bias)


@onnx("MatMulIntegerToFloat", since=1, domain=MICROSOFT)
def matmul_integer_to_float(
    g: Graph, a: Value, b: Value, a_scale: Value, b_scale: Value, a_zero: Value | None = None,
    b_zero: Value | None = None, bias: Value | None = None,
) -> Expr:  # fmt: skip
    """The product of quantized matrices, as floats."""
    return _product_as_float(g, a, b, [a_scale, b_scale], a_zero, b_zero, bias)


@onnx("DynamicQuantizeMatMul", since=1, domain=MICROSOFT)
def dynamic_quantize_matmul(
    g: Graph, a: Value, b: Value, b_scale: Value, b_zero: Value | None = None,
    bias: Value | None = None,
) -> Expr:  # fmt: skip
    """The product of a tensor, which is quantized first, and a quantized matrix, as floats."""
    narrow, scale, zero = dynamic_quantize_linear(g, a)
    return _product_as_float(g, narrow, b, [scale, b_scale], zero, b_zero, bias)


@onnx("DynamicQuantizeLSTM", since=1, domain=MICROSOFT)
def dynamic_quantize_lstm(
    g: Graph,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    lengths: Value | None,
    initial_h: Value | None,
    initial_c: Value | None,
    p: Value | None,
    w_scale: Value,
    w_zero: Value,
    r_scale: Value,
    r_zero: Value,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,
    input_forget: int = 0,
) -> Any:
    """R.nn.lstm with quantized weights, inputs and states."""
    wide = []
    for weights, scale, zero in ((w, w_scale, w_zero), (r, r_scale, r_zero)):
        rank = rank_of(scale, "scales of each direction", 1, 2)
        shape = (-1, 1, 1) if rank == 1 else (dims_of(g, scale, 2, "scale")[0], 1, -1)
        laid = [Value(g.op("reshape", each, shape)) for each in (scale, zero)]
        real = as_value(dequantized(g, weights, laid[0], laid[1]))
        wide.append(Value(g.op("permute_dims", real, (0, 2, 1))))
    return long_short_term(
        g, x, wide[0], wide[1], b, lengths, initial_h, initial_c, p, activation_alpha,
        activation_beta, activations, clip, direction, input_forget, quantized=True,
    )  # fmt: skip


@onnx("MatMulNBits", since=1, domain=MICROSOFT)
def matmul_nbits(
    g: Graph,
    a: Value,
    b: Value,
    scales: Value,
    zero_points: Value | None = None,
    g_idx: Value | None = None,
    bias: Value | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    weight_prepacked: int = 0,
) -> Expr:
    """The product with a matrix of 2, 4 or 8 bits, quantized in blocks, which stays packed."""
    if g_idx is not None or weight_prepacked:
        raise Problem("g_idx and prepacked weights are not supported")
    if bits not in (2, 4, 8) or block_size < 16 or K < 1 or N < 1:
        raise Problem(f"expected bits 2, 4 or 8, got {bits}, and blocks of 16 or more")
    dims = a.dims
    length = length_of(dims[-1]) if dims else None
    if length not in (None, K):
        raise Problem(f"A: expected {K} columns, got {a.type}")
    blocks = -(-K // block_size)
    packed = g.op("reshape", b, (N, blocks, block_size * bits // 8))
    zeros = zero_points
    if zeros is not None and zeros.dtype not in ("uint8", scales.dtype):
        raise Problem(f"zero_points: expected uint8 or {scales.dtype}, got {zeros.dtype}")
    if scales.dtype != a.dtype:
        scales = as_value(as_float(g, scales, a.dtype or "float32"))
        if zeros is not None and zeros.dtype != "uint8":
            zeros = as_value(as_float(g, zeros, a.dtype or "float32"))
    shape = None if dims is None else (*dims[:-1], IntImm("int64", N))
    ty = TensorType.of(shape, a.dtype, ndim=a.ndim)
    found: Expr = g.run("matmul_packed", [a, packed, scales, zeros, bits, block_size], ty,
                        str(a.dtype))  # fmt: skip
    return found if bias is None else g.op("add", found, bias)
