"""Other layers: convolutions by layout, response normalization, losses, scaling."""

from __future__ import annotations

from typing import Any

from ....ir import prim
from ....ir.arith import simplify
from ....ir.expr import Expr
from ....ir.prim import as_scalar
from ....tir import intrinsics
from ... import tensor as te
from ...tensor import Tensor, compute
from .. import basic
from .._loops import axis_of as _axis
from .layers import _convolution, _named, _number, pad, softmax

__all__ = [
    "conv1d_ncw",
    "conv1d_nwc",
    "conv3d_ndhwc",
    "depthwise_conv2d_nhwc",
    "fast_softmax",
    "fifo_buffer",
    "group_conv1d_ncw",
    "group_conv1d_nwc",
    "group_conv2d_nhwc",
    "lrn",
    "nll_loss",
    "scale_shift_nchw",
    "scale_shift_nhwc",
    "strided_slice",
    "unpack_NCHWc_to_nchw",
    "upsampling3d",
]

strided_slice = basic.strided_slice
fast_softmax = softmax
"""Here the exact one."""


# Convolutions by layout; the shapes of the operands say how many groups there are


def conv1d_ncw(
    data: Tensor,
    kernel: Tensor,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution of [N, C, W] with a kernel [O, I, W]."""
    return _convolution(data, kernel, strides, padding, dilation, ("NCW", "OIW"), out_dtype,
                        "conv1d_ncw")  # fmt: skip


def conv1d_nwc(
    data: Tensor,
    kernel: Tensor,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution of [N, W, C] with a kernel [W, I, O]."""
    return _convolution(data, kernel, strides, padding, dilation, ("NWC", "WIO"), out_dtype,
                        "conv1d_nwc")  # fmt: skip


def group_conv1d_ncw(
    data: Tensor,
    kernel: Tensor,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution of [N, C, W] with a kernel [O, I / groups, W]."""
    return conv1d_ncw(data, kernel, strides, padding, dilation, out_dtype)


def group_conv1d_nwc(
    data: Tensor,
    kernel: Tensor,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution of [N, W, C] with a kernel [W, I / groups, O]."""
    return conv1d_nwc(data, kernel, strides, padding, dilation, out_dtype)


def group_conv2d_nhwc(
    Input: Tensor,
    Filter: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution of [N, H, W, C] with a kernel [H, W, I / groups, O]."""
    return _convolution(Input, Filter, stride, padding, dilation, ("NHWC", "HWIO"), out_dtype,
                        "group_conv2d_nhwc")  # fmt: skip


def conv3d_ndhwc(
    Input: Tensor,
    Filter: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    out_dtype: str = "float32",
) -> Tensor:
    """A convolution of [N, D, H, W, C] with a kernel [D, H, W, I / groups, O]."""
    return _convolution(Input, Filter, stride, padding, dilation, ("NDHWC", "DHWIO"), out_dtype,
                        "conv3d_ndhwc")  # fmt: skip


def depthwise_conv2d_nhwc(
    Input: Tensor,
    Filter: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    kernel_layout: str = "HWOI",
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution of [N, H, W, C] of each channel by itself, with a kernel [H, W, C, M] for M
    results of each ("HWOI"), or [H, W, M, C] ("HWIO").

    Raises:
        ValueError: another layout of the kernel.
    """
    if kernel_layout not in ("HWOI", "HWIO"):
        raise ValueError(
            f"depthwise_conv2d_nhwc: kernel_layout: expected 'HWOI' or 'HWIO', got "
            f"{kernel_layout!r}"
        )
    if Filter.ndim != 4:
        raise ValueError(f"depthwise_conv2d_nhwc: Filter: expected 4 dimensions, got {Filter}")
    c, m = (2, 3) if kernel_layout == "HWOI" else (3, 2)
    channels, copies = Filter.shape[c], Filter.shape[m]
    dims = [*Filter.shape[:2], simplify(channels * copies), 1]

    def weight(y: Expr, x: Expr, o: Expr, _: Expr) -> Any:
        at = {c: prim.floordiv(o, copies), m: prim.floormod(o, copies)}
        return Filter[y, x, at[2], at[3]]

    joined = compute(dims, weight, "kernel", varargs_names=None)
    return _convolution(Input, joined, stride, padding, dilation, ("NHWC", "HWOI"), out_dtype,
                        "depthwise_conv2d_nhwc")  # fmt: skip


def unpack_NCHWc_to_nchw(packed_out: Tensor, out_dtype: str) -> Tensor:
    """[N, C, H, W, c] with blocks of channels as [N, C * c, H, W]."""
    if packed_out.ndim != 5:
        raise ValueError(
            f"unpack_NCHWc_to_nchw: packed_out: expected 5 dimensions, got {packed_out}"
        )
    n, outer, h, w, block = packed_out.shape

    def element(b: Expr, c: Expr, y: Expr, x: Expr) -> Any:
        value = packed_out[b, prim.floordiv(c, block), y, x, prim.floormod(c, block)]
        return prim.cast(value, out_dtype)

    return compute((n, simplify(outer * block), h, w), element, "output_unpack")


# Others


def lrn(
    data: Tensor,
    size: Any,
    axis: int = 1,
    alpha: float = 0.0001,
    beta: float = 0.75,
    bias: float = 2,
) -> Tensor:
    """``data / (bias + alpha * s / size) ** beta``, where s is the sum of squares of `size`
    neighbours along an axis.

    Raises:
        ValueError: the size is even, or there is no such axis.
    """
    at = _axis(axis, data.ndim, "lrn")
    width = int(getattr(size, "value", size))
    if width % 2 == 0:
        raise ValueError(f"lrn: size: expected an odd number, got {width}")
    margin = [width // 2 if k == at else 0 for k in range(data.ndim)]
    padded = pad(data, margin, margin, name="pad_data")
    near = te.reduce_axis((0, width), "rxs")

    def squares(*i: Expr) -> Any:
        value = padded[(*i[:at], i[at] + near.var, *i[at + 1 :])]
        return te.sum(value * value, near)

    total = compute(data.shape, squares, "tensor", varargs_names=_named("ax", data.ndim))
    scale, start, power = (_number(v, data.dtype) for v in (alpha / width, bias, beta))

    def element(*i: Expr) -> Any:
        return data[i] / intrinsics.pow(start + scale * total[i], power)

    return compute(data.shape, element, "T_divide", varargs_names=_named("ax", data.ndim))


local_response_norm = lrn


def nll_loss(
    predictions: Tensor, targets: Tensor, weights: Tensor, reduction: str, ignore_index: int
) -> Tensor:
    """Negative log likelihood: ``-predictions[target] * weights[target]``.

    Args:
        predictions: [N, C, ...], or [C].
        targets: [N, ...], or a scalar.
        weights: [C].
        reduction: "none", "sum", or "mean", which divides by the sum of weights.
        ignore_index: a target that does not count.

    Raises:
        ValueError: another reduction.
    """
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(
            f"nll_loss: reduction: expected 'none', 'sum' or 'mean', got {reduction!r}"
        )
    zero = _number(0, predictions.dtype)

    def counted(value: Any) -> Tensor:
        def element(*i: Expr) -> Any:
            target = targets[i]
            is_counted = prim.logical_not(prim.equal(target, as_scalar(ignore_index, target.dtype)))
            return intrinsics.if_then_else(is_counted, value(i, target), zero)

        return compute(targets.shape, element, "nll_loss")

    def loss(i: tuple[Expr, ...], target: Any) -> Any:
        place = (*i[:1], target, *i[1:]) if targets.ndim else (target,)
        return -predictions[place] * weights[target]

    losses = counted(loss)
    if reduction == "none":
        return losses
    total: Tensor = basic.sum(losses)
    if reduction == "sum":
        return total
    result: Tensor = basic.divide(total, basic.sum(counted(lambda i, target: weights[target])))
    return result


def scale_shift_nchw(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:
    """``Input * Scale + Shift``, by channel of [N, C, H, W]."""
    return compute(
        Input.shape, lambda b, c, i, j: Input[b, c, i, j] * Scale[c] + Shift[c], "ScaleShift"
    )


def scale_shift_nhwc(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:
    """``Input * Scale + Shift``, by channel of [N, H, W, C]."""
    return compute(
        Input.shape, lambda b, i, j, c: Input[b, i, j, c] * Scale[c] + Shift[c], "ScaleShift"
    )


def fifo_buffer(data: Tensor, buffer: Tensor, axis: int) -> Tensor:
    """The buffer with the data at its end along an axis, and as many elements less at its start."""
    at = _axis(axis, buffer.ndim, "fifo_buffer")
    if data.ndim != buffer.ndim:
        raise ValueError(f"fifo_buffer: data: expected the rank of {buffer}, got {data}")
    rest = simplify(buffer.shape[at] - data.shape[at])

    def element(*i: Expr) -> Any:
        old = buffer[(*i[:at], i[at] + data.shape[at], *i[at + 1 :])]
        new = data[(*i[:at], i[at] - rest, *i[at + 1 :])]
        return intrinsics.if_then_else(i[at] < rest, old, new)

    return compute(buffer.shape, element, "new_buffer", varargs_names=_named("i", buffer.ndim))


def upsampling3d(
    data: Tensor,
    scale_d: Any,
    scale_h: Any,
    scale_w: Any,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
    output_shape: Any = None,
) -> Tensor:
    """A volume enlarged by whole factors: every element is repeated.

    Raises:
        NotImplementedError: another method, or a shape; ``topi.image.resize3d`` has them.
        ValueError: the layout is neither NCDHW nor NDHWC, or a factor is not whole.
    """
    if method != "nearest_neighbor" or output_shape is not None:
        raise NotImplementedError(
            f"upsampling3d: method {method!r} and output_shape: topi.image.resize3d has them"
        )
    if layout not in ("NCDHW", "NDHWC") or data.ndim != 5:
        raise ValueError(
            f"upsampling3d: layout: expected 'NCDHW' or 'NDHWC' of 5 dimensions, got {layout!r} of "
            f"{data.ndim}"
        )
    scales = {}
    for letter, scale in (("D", scale_d), ("H", scale_h), ("W", scale_w)):
        number = float(getattr(scale, "value", scale))
        if number < 1 or number != int(number):
            raise ValueError(f"upsampling3d: expected whole factors, got {number:g}")
        scales[layout.index(letter)] = int(number)
    dims = [simplify(dim * scales.get(k, 1)) for k, dim in enumerate(data.shape)]

    def element(*i: Expr) -> Any:
        at = [prim.floordiv(p, scales[k]) if k in scales else p for k, p in enumerate(i)]
        return data[tuple(at)]

    return compute(dims, element, "resize", varargs_names=_named("i", 5))
