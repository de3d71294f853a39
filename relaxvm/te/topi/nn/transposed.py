"""Transposed convolutions: every element of the data adds a copy of the kernel to the result."""

from __future__ import annotations

import functools
from typing import Any

from ....ir import prim
from ....ir.arith import simplify
from ....ir.expr import Expr
from ....ir.prim import as_scalar
from ....tir import intrinsics
from ... import tensor as te
from ...tensor import Tensor, compute
from .layers import _named, _paddings, _tuple

__all__ = [
    "conv1d_transpose_ncw",
    "conv2d_transpose_nchw",
    "conv3d_transpose_ncdhw",
    "group_conv1d_transpose_ncw",
    "group_conv2d_transpose_nchw",
    "group_conv3d_transpose_ncdhw",
]


def _transposed(
    data: Tensor,
    kernel: Tensor,
    strides: Any,
    padding: Any,
    out_dtype: Any,
    output_padding: Any,
    groups: int,
    name: str,
) -> Tensor:
    """A transposed convolution of data [N, C, ...] with a kernel [I, O / groups, ...].

    An element of the result at y takes part of the data at x through tap t of the kernel if
    ``y + padding = x * stride + t``.
    """
    count = data.ndim - 2
    if kernel.ndim != data.ndim:
        raise ValueError(f"{name}: expected a kernel of {data.ndim} dimensions, got {kernel.ndim}")
    steps = _tuple(strides, count, f"{name}: strides")
    extra = _tuple(output_padding, count, f"{name}: output_padding")
    if any(more >= step and more for more, step in zip(extra, steps, strict=True)):
        raise ValueError(
            f"{name}: output_padding: expected less than the strides {steps}, got {extra}"
        )
    before, after = _paddings(padding, kernel.shape[2:], name)
    dtype = str(out_dtype) if out_dtype else data.dtype
    dims = [data.shape[0], simplify(kernel.shape[1] * groups)]
    for k in range(count):
        whole = (data.shape[k + 2] - 1) * steps[k] + kernel.shape[k + 2] + extra[k]
        dims.append(simplify(whole - before[k] - after[k]))
    per_group = simplify(prim.floordiv(data.shape[1], groups))
    channel = te.reduce_axis((0, per_group), "dc")
    taps = [te.reduce_axis((0, size), f"d{'dhw'[3 - count + k]}")
            for k, size in enumerate(kernel.shape[2:])]  # fmt: skip

    def formula(*i: Expr) -> Any:
        group = prim.floordiv(i[1], kernel.shape[1])
        source = simplify(group * per_group + channel.var)
        places: list[Expr] = []
        fits: list[Expr] = []
        for k, tap in enumerate(taps):
            offset = i[k + 2] + before[k] - tap.var
            place = prim.floordiv(offset, steps[k])
            places.append(place)
            fits += [offset >= 0, place < data.shape[k + 2]]
            if steps[k] != 1:
                fits.append(prim.equal(prim.floormod(offset, steps[k]), 0))
        value = prim.cast(data[(i[0], source, *places)], dtype)
        weight = kernel[(source, prim.floormod(i[1], kernel.shape[1]), *[t.var for t in taps])]
        zero = as_scalar(0.0 if prim.is_float(dtype) else 0, dtype)
        product = intrinsics.if_then_else(
            functools.reduce(prim.logical_and, fits), value * prim.cast(weight, dtype), zero
        )
        return te.sum(product, [channel, *taps])

    return compute(dims, formula, name, varargs_names=_named("i", len(dims)))


def conv1d_transpose_ncw(
    data: Tensor, kernel: Tensor, stride: Any, padding: Any, out_dtype: Any, output_padding: Any
) -> Tensor:
    """A transposed convolution of [N, C, W] with a kernel [C, O, W]."""
    return _transposed(data, kernel, stride, padding, out_dtype, output_padding, 1,
                       "conv1d_transpose_ncw")  # fmt: skip


def group_conv1d_transpose_ncw(
    data: Tensor,
    kernel: Tensor,
    stride: Any,
    padding: Any,
    out_dtype: Any,
    output_padding: Any,
    groups: int,
) -> Tensor:
    """A transposed convolution of [N, C, W] with a kernel [C, O / groups, W]."""
    return _transposed(data, kernel, stride, padding, out_dtype, output_padding, groups,
                       "conv1d_transpose_ncw")  # fmt: skip


def conv2d_transpose_nchw(
    Input: Tensor, Filter: Tensor, strides: Any, padding: Any, out_dtype: Any, output_padding: Any
) -> Tensor:
    """A transposed convolution of [N, C, H, W] with a kernel [C, O, H, W]."""
    return _transposed(Input, Filter, strides, padding, out_dtype, output_padding, 1,
                       "conv2d_transpose_nchw")  # fmt: skip


def group_conv2d_transpose_nchw(
    data: Tensor,
    kernel: Tensor,
    stride: Any,
    padding: Any,
    out_dtype: Any,
    output_padding: Any,
    groups: int,
) -> Tensor:
    """A transposed convolution of [N, C, H, W] with a kernel [C, O / groups, H, W]."""
    return _transposed(data, kernel, stride, padding, out_dtype, output_padding, groups,
                       "conv2d_transpose_nchw")  # fmt: skip


def conv3d_transpose_ncdhw(
    Input: Tensor, Filter: Tensor, strides: Any, padding: Any, out_dtype: Any, output_padding: Any
) -> Tensor:
    """A transposed convolution of [N, C, D, H, W] with a kernel [C, O, D, H, W]."""
    return _transposed(Input, Filter, strides, padding, out_dtype, output_padding, 1,
                       "conv3d_transpose_ncdhw")  # fmt: skip


def group_conv3d_transpose_ncdhw(
    data: Tensor,
    kernel: Tensor,
    strides: Any,
    padding: Any,
    out_dtype: Any,
    output_padding: Any,
    groups: int,
) -> Tensor:
    """A transposed convolution of [N, C, D, H, W] with a kernel [C, O / groups, D, H, W]."""
    return _transposed(data, kernel, strides, padding, out_dtype, output_padding, groups,
                       "conv3d_transpose_ncdhw")  # fmt: skip
