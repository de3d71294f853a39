"""Formulas of operators on images: padding, convolutions and pools."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..ir import prim
from ..ir.arith import simplify
from ..ir.expr import Expr
from ..ir.prim import as_scalar
from ..op.nn._windows import in_layout, pooled, windows
from ..tir import intrinsics
from . import tensor as te
from .tensor import Tensor, compute

__all__ = ["average_pool", "convolution", "pad", "pool"]


def _all(conditions: Sequence[Expr]) -> Expr:
    return functools.reduce(prim.logical_and, conditions, as_scalar(True, "bool"))


def _is_within(place: Expr, least: Any, end: Any) -> Expr:
    return prim.logical_and(place >= least, place < end)


# Padding


def pad(
    data: Tensor, pad_width: Sequence[int], pad_mode: str = "constant", pad_value: float = 0.0
) -> Tensor:
    """The formula of ``nn.pad``."""
    before, after = pad_width[::2], pad_width[1::2]
    if pad_mode != "constant" and min(pad_width, default=0) < 0:
        raise ValueError(
            f"nn.pad: pad_width: expected widths that go with mode {pad_mode!r}, got "
            f"{list(pad_width)}"
        )
    shape = [simplify(dim + (a + b)) for dim, a, b in zip(data.shape, before, after, strict=True)]

    def element(*i: Expr) -> Any:
        places = [index - front for index, front in zip(i, before, strict=True)]
        if pad_mode != "constant":
            return data[tuple(map(_SOURCES[pad_mode], places, data.shape))]
        inside = _all([_is_within(p, 0, dim) for p, dim in zip(places, data.shape, strict=True)])
        value = prim.cast(as_scalar(float(pad_value), "float64"), data.dtype)
        return intrinsics.if_then_else(inside, data[tuple(places)], value)

    return compute(shape, element, "T_pad")


def _mirrored(place: Expr, length: Expr) -> Expr:
    last = length - 1
    inside = prim.select(place > last, 2 * last - place, place)
    result: Expr = prim.select(place < 0, -place, inside)
    return result


def _nearest(place: Expr, length: Expr) -> Expr:
    result: Expr = prim.minimum(prim.maximum(place, 0), length - 1)
    return result


_SOURCES: Final[dict[str, Callable[[Expr, Expr], Expr]]] = {
    "reflect": _mirrored,
    "replicate": _nearest,
    "circular": prim.floormod,
}
"""The elements of data that are at places before and after it, by mode."""


# Windows


def convolution(
    data: Tensor,
    weight: Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_layout: str,
    out_dtype: str | None,
) -> Tensor:
    """The formula of ``nn.conv2d`` and its like: sums in float32 or wider."""
    dtype = data.dtype if out_dtype is None else out_dtype
    within = "float32" if dtype in ("float16", "bfloat16") else dtype
    spatial = [letter for letter in kernel_layout if letter not in "OI"]
    spatial.sort()  # D before H before W
    x = dict(zip(data_layout, data.shape, strict=True))
    w = dict(zip(kernel_layout, weight.shape, strict=True))
    result, widths = {"N": x["N"], "C": w["O"]}, dict.fromkeys(data_layout, (0, 0))
    for i, letter in enumerate(spatial):
        widths[letter] = padding[i], padding[i + len(spatial)]
        result[letter] = windows(
            letter, x[letter], w[letter], strides[i], widths[letter], dilation[i]
        )
    padded = data
    if any(padding):
        padded = pad(data, [width for letter in data_layout for width in widths[letter]])
    taps = {letter: te.reduce_axis((0, w[letter]), f"r{letter}") for letter in ("I", *spatial)}

    def element(*i: Expr) -> Expr:
        at = dict(zip(out_layout, i, strict=True))
        channel = taps["I"].var
        if groups > 1:
            channel = prim.floordiv(at["C"], prim.floordiv(w["O"], groups)) * w["I"] + channel
        read: dict[str, Any] = {"N": at["N"], "C": channel}
        weigh: dict[str, Any] = {"O": at["C"], "I": taps["I"].var}
        for k, letter in enumerate(spatial):
            tap = weigh[letter] = taps[letter].var
            read[letter] = at[letter] * strides[k] + tap * dilation[k]
        a = padded[tuple(read[letter] for letter in data_layout)]
        b = weight[tuple(weigh[letter] for letter in kernel_layout)]
        return te.sum(prim.cast(a, within) * prim.cast(b, within), list(taps.values()))

    out = compute(in_layout(result, out_layout), element, "T_conv")
    if within == dtype:
        return out
    return compute(out.shape, lambda *i: prim.cast(out[i], dtype), "T_cast")


Reduction = Callable[..., Expr]
"""Takes an element, the axes to reduce over, and the condition under which it counts."""


def pool(
    reduction: Reduction,
    data: Tensor,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    layout: str,
    out_layout: str,
) -> Tensor:
    """The formula of pools: a reduction of each window, without what is not on the image."""
    spatial = sorted(letter for letter in layout if letter not in "NC")
    dims = dict(zip(layout, data.shape, strict=True))
    result = pooled(dims, spatial, pool_size, strides, padding, dilation, ceil_mode)
    taps = [te.reduce_axis((0, size), f"r{a}") for size, a in zip(pool_size, spatial, strict=True)]

    def element(*i: Expr) -> Expr:
        at: dict[str, Any] = dict(zip(out_layout, i, strict=True))
        for k, letter in enumerate(spatial):
            at[letter] = at[letter] * strides[k] + taps[k].var * dilation[k] - padding[k]
        inside = _all([_is_within(at[letter], 0, dims[letter]) for letter in spatial])
        return reduction(data[tuple(at[letter] for letter in layout)], taps, inside)

    return compute(in_layout(result, out_layout), element, "T_pool")


def average_pool(
    data: Tensor,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    layout: str,
    out_layout: str,
) -> Tensor:
    """The formula of ``nn.avg_pool2d`` and its like."""
    total = pool(te.sum, data, pool_size, strides, padding, dilation, ceil_mode, count_include_pad,
                 layout, out_layout)  # fmt: skip
    spatial = sorted(letter for letter in layout if letter not in "NC")
    lengths = dict(zip(layout, data.shape, strict=True))
    taps = [te.reduce_axis((0, size), f"c{a}") for size, a in zip(pool_size, spatial, strict=True)]
    one = as_scalar(1.0, data.dtype)

    def count(*i: Expr) -> Expr:
        conditions = []
        for k, letter in enumerate(spatial):
            place = i[k] * strides[k] + taps[k].var * dilation[k] - padding[k]
            least, end = 0, lengths[letter]
            if count_include_pad:
                least, end = -padding[k], end + padding[k + len(spatial)]
            conditions.append(_is_within(place, least, end))
        return te.sum(one, taps, _all(conditions))

    dims = dict(zip(out_layout, total.shape, strict=True))
    counts = compute([dims[letter] for letter in spatial], count, "T_count")

    def element(*i: Expr) -> Any:
        at = dict(zip(out_layout, i, strict=True))
        return total[i] / prim.maximum(counts[tuple(at[letter] for letter in spatial)], one)

    return compute(total.shape, element, "T_mean")
