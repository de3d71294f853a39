"""Pools of windows along one to three axes, and adaptive pools."""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..dtypes import extreme_of
from ..messages import describe
from ..pieces.cut import PIECE, apply, check_time, copy_pieces, pieces
from ._arrays import copy_if_overlapping
from ._blocks import row_blocks
from ._kernel import kernel
from ._windows import Windows, taps
from .checks import Dims, WrongValue, check_out, native, working_dtype
from .kinds import Flag, Floats, Out, ints, taken_by

__all__ = ["Size2d", "avg_pool2d", "max_pool2d"]

Ordered: TypeAlias = Annotated[NDArray[Any], taken_by(np.maximum)]
Size1d: TypeAlias = Annotated[Dims, ints(count=1, least=1)]
Size2d: TypeAlias = Annotated[Dims, ints(count=2, least=1)]
Size3d: TypeAlias = Annotated[Dims, ints(count=3, least=1)]
Padding1d: TypeAlias = Annotated[Dims, ints(count=2, least=0)]
Padding2d: TypeAlias = Annotated[Dims, ints(count=4, least=0)]
Padding3d: TypeAlias = Annotated[Dims, ints(count=6, least=0)]
Sizes: TypeAlias = Annotated[Dims, ints(least=1)]
Paddings: TypeAlias = Annotated[Dims, ints(least=0)]
Indices: TypeAlias = NDArray[np.int64]


@kernel("nn.max_pool1d")
def max_pool1d(
    x: Ordered,
    pool_size: Size1d,
    strides: Size1d,
    padding: Padding1d,
    dilation: Size1d,
    ceil_mode: Flag,
    out: Out,
) -> None:
    """As `nn.max_pool2d`, along one axis: x[batch, channels, width]; pool_size, strides and
    dilation: one number; padding: left, right."""
    _max_pool(x, _windows(x, pool_size, strides, padding, dilation, ceil_mode), out)


@kernel("nn.max_pool2d")
def max_pool2d(
    x: Ordered,
    pool_size: Size2d,
    strides: Size2d,
    padding: Padding2d,
    dilation: Size2d,
    ceil_mode: Flag,
    out: Out,
) -> None:
    """out = the greatest element of each window, NaN if one is.  x[batch, channels, height, width];
    pool_size, strides and dilation: a number for height and one for width; padding: top, left,
    bottom, right; ceil_mode: whether a last window may extend beyond the padding, if it begins on
    the image or in the padding before it.  The result of a window without elements is the least
    number of the data type."""
    _max_pool(x, _windows(x, pool_size, strides, padding, dilation, ceil_mode), out)


@kernel("nn.max_pool3d")
def max_pool3d(
    x: Ordered,
    pool_size: Size3d,
    strides: Size3d,
    padding: Padding3d,
    dilation: Size3d,
    ceil_mode: Flag,
    out: Out,
) -> None:
    """As `nn.max_pool2d`, along depth, height and width: x[batch, channels, depth, height, width];
    pool_size, strides and dilation: three numbers; padding: front, top, left, back, bottom, right.
    """
    _max_pool(x, _windows(x, pool_size, strides, padding, dilation, ceil_mode), out)


def _max_pool(x: NDArray[Any], windows: Windows, out: NDArray[Any]) -> None:
    check_out(out, x.dtype, (*x.shape[:2], *windows.count))
    images = copy_if_overlapping(x, out)
    for image, written in row_blocks(images, out, row=len(windows.size)):
        copy_pieces(written, extreme_of(native(x.dtype), greatest=False))
        for _, elements, results in taps(windows, image, written):
            np.maximum(results, elements, out=results)


@kernel("nn.max_pool_indices")
def max_pool_indices(
    x: Ordered,
    pool_size: Sizes,
    strides: Sizes,
    padding: Paddings,
    dilation: Sizes,
    ceil_mode: Flag,
    is_column_major: Flag,
    out: Out,
) -> None:
    """out = int64, for each window of `nn.max_pool1d` and the others the place of its greatest
    element in x, which has any number of axes after channels: the first of several, the first NaN
    if there is one, -1 for a window without elements.  Places count all elements of x; those of an
    image are counted along the last axis first, or along the first if is_column_major.  Uses memory
    for the places of an image."""
    axes = x.ndim - 2
    if axes < 1 or {len(pool_size), len(strides), len(dilation)} != {axes} or (
        len(padding) != 2 * axes
    ):
        raise WrongValue(
            f"expected x[batch, channels, ...], a number for each further axis in pool_size, "
            f"strides and dilation, and two in padding, got x {describe(x)} and "
            f"{len(pool_size)}, {len(strides)}, {len(dilation)} and {len(padding)} numbers"
        )
    windows = Windows(x.shape[2:], pool_size, strides, padding, dilation, ceil_mode=ceil_mode)
    check_out(out, np.dtype(np.int64), (*x.shape[:2], *windows.count))
    image_shape = x.shape[2:]
    area = math.prod(image_shape)
    places: NDArray[Any] = np.arange(area)
    if is_column_major:
        places = places.reshape(image_shape[::-1]).T
    else:
        places = places.reshape(image_shape)
    before = np.arange(math.prod(x.shape[:2])) * area
    starts = before.reshape(*x.shape[:2], *[1] * axes)
    images = copy_if_overlapping(x, out)
    for image, written, start in row_blocks(images, out, starts, row=axes):
        copy_pieces(written, -1)
        best = np.empty(written.shape, native(x.dtype))
        copy_pieces(best, extreme_of(best.dtype, greatest=False))
        both = zip(taps(windows, image, best), taps(windows, places, written), strict=True)
        for (_, elements, greatest), (_, at, results) in both:
            is_better = elements > greatest
            is_better |= results < 0
            is_better |= (elements != elements) & (greatest == greatest)
            np.copyto(greatest, elements, where=is_better)
            np.copyto(results, at, where=is_better)
        for part, first in pieces(written, np.broadcast_to(start, written.shape)):
            np.add(part, first, out=part, where=part >= 0)


@kernel("nn.avg_pool1d")
def avg_pool1d(
    x: Floats,
    pool_size: Size1d,
    strides: Size1d,
    padding: Padding1d,
    dilation: Size1d,
    ceil_mode: Flag,
    count_include_pad: Flag,
    out: Out,
) -> None:
    """As `nn.avg_pool2d`, along one axis: x[batch, channels, width]; pool_size, strides and
    dilation: one number; padding: left, right."""
    windows = _windows(x, pool_size, strides, padding, dilation, ceil_mode)
    _avg_pool(x, windows, count_include_pad, out)


@kernel("nn.avg_pool2d")
def avg_pool2d(
    x: Floats,
    pool_size: Size2d,
    strides: Size2d,
    padding: Padding2d,
    dilation: Size2d,
    ceil_mode: Flag,
    count_include_pad: Flag,
    out: Out,
) -> None:
    """out = the mean of each window, of floats; otherwise as `nn.max_pool2d`.  count_include_pad:
    whether the padding counts, as zeros.  The result of a window without elements is 0."""
    windows = _windows(x, pool_size, strides, padding, dilation, ceil_mode)
    _avg_pool(x, windows, count_include_pad, out)


@kernel("nn.avg_pool3d")
def avg_pool3d(
    x: Floats,
    pool_size: Size3d,
    strides: Size3d,
    padding: Padding3d,
    dilation: Size3d,
    ceil_mode: Flag,
    count_include_pad: Flag,
    out: Out,
) -> None:
    """As `nn.avg_pool2d`, along depth, height and width: x[batch, channels, depth, height, width];
    pool_size, strides and dilation: three numbers; padding: front, top, left, back, bottom, right.
    """
    windows = _windows(x, pool_size, strides, padding, dilation, ceil_mode)
    _avg_pool(x, windows, count_include_pad, out)


def _avg_pool(
    x: NDArray[Any], windows: Windows, count_include_pad: bool, out: NDArray[Any]
) -> None:
    check_out(out, x.dtype, (*x.shape[:2], *windows.count))
    working = working_dtype(native(x.dtype))
    first, *rest = [
        windows.taps_inside(axis, length, padded=bool(count_include_pad))
        for axis, length in enumerate(x.shape[2:])
    ]
    of_plane: Any = np.ones((), np.int64)
    for each in rest:
        of_plane = np.multiply.outer(of_plane, each)

    def counts(rows: slice) -> NDArray[Any]:
        """How many elements each window of some rows has, at least 1."""
        found: NDArray[Any] = np.maximum(np.multiply.outer(first[rows], of_plane), 1)
        return found.astype(working)

    step = max(1, PIECE // max(1, of_plane.size))
    parts = [slice(start, start + step) for start in range(0, len(first), step)]
    whole = counts(parts[0]) if len(parts) == 1 else None
    axes = len(windows.size)
    inner = (slice(None),) * (axes - 1)
    for image, written in row_blocks(copy_if_overlapping(x, out), out, row=axes):
        total = written if written.dtype == working else np.empty(written.shape, working)
        copy_pieces(total, 0)
        for _, elements, results in taps(windows, image, total):
            np.add(results, elements, out=results)
        for rows in parts:
            of_rows: Any = (..., rows, *inner)
            part = total[of_rows]
            apply(np.divide, part, part, counts(rows) if whole is None else whole)
            if whole is None:
                check_time()
        if total is not written:
            copy_pieces(written, total)


def _windows(
    x: NDArray[Any], size: Dims, strides: Dims, padding: Dims, dilation: Dims, ceil_mode: bool
) -> Windows:
    _check_rank(x, len(size))
    return Windows(x.shape[2:], size, strides, padding, dilation, ceil_mode=ceil_mode)


def _check_rank(x: NDArray[Any], axes: int) -> None:
    if x.ndim != axes + 2:
        spatial = ("depth", "height", "width")[-axes:]
        raise WrongValue(
            f"x: expected a tensor [batch, channels, {', '.join(spatial)}], got {describe(x)}"
        )


# Adaptive pools


@kernel("nn.adaptive_avg_pool1d")
def adaptive_avg_pool1d(x: Floats, output_size: Size1d, out: Out) -> None:
    """As `nn.adaptive_avg_pool2d`, along one axis: x[batch, channels, width]."""
    _adaptive_avg_pool(x, output_size, out)


@kernel("nn.adaptive_avg_pool2d")
def adaptive_avg_pool2d(x: Floats, output_size: Size2d, out: Out) -> None:
    """out = the mean of each of the parts that images x are divided into: output_size of them along
    height and width.  Part i of n reaches from the element length * i // n to before length * (i +
    1) / n, rounded up; neighbours may have an element in common.  x[batch, channels, height,
    width]."""
    _adaptive_avg_pool(x, output_size, out)


@kernel("nn.adaptive_avg_pool3d")
def adaptive_avg_pool3d(x: Floats, output_size: Size3d, out: Out) -> None:
    """As `nn.adaptive_avg_pool2d`, along depth, height and width: x[batch, channels, depth, height,
    width]."""
    _adaptive_avg_pool(x, output_size, out)


def _adaptive_avg_pool(x: NDArray[Any], size: Dims, out: NDArray[Any]) -> None:
    _check_rank(x, len(size))
    if 0 in x.shape[2:]:
        raise WrongValue(f"x: expected elements along each axis, got {describe(x)}")
    check_out(out, x.dtype, (*x.shape[:2], *size))
    working = working_dtype(native(x.dtype))
    images = copy_if_overlapping(x, out)
    axes = len(size)
    for image, written in row_blocks(images, out, row=axes):
        part = image.astype(working) if image.dtype != working else image
        for axis in range(-1, -axes - 1, -1):
            part = _means(part, axis, size[axis])
        copy_pieces(written, part)


def _means(x: NDArray[Any], axis: int, count: int) -> NDArray[Any]:
    """The means of `count` parts along an axis."""
    x = np.moveaxis(x, axis, -1)
    length = x.shape[-1]
    steps = np.arange(count + 1, dtype=np.int64) * length
    starts, ends = steps[:-1] // count, -(-steps[1:] // count)
    counts = (ends - starts).astype(x.dtype)
    out = np.empty((*x.shape[:-1], count), x.dtype)
    for rows, means in pieces(x, out, row=1):
        np.divide(_sums(rows, starts, ends), counts, out=means)
    return np.moveaxis(out, -1, axis)


def _sums(x: NDArray[Any], starts: Indices, ends: Indices) -> NDArray[Any]:
    """The sums of parts of rows, which have an element in common at most.  Of long rows, some parts
    at a time, and long parts in pieces."""
    if x.shape[-1] <= PIECE:
        return _sums_at_once(x, starts, ends)
    found = np.zeros((*x.shape[:-1], len(starts)), x.dtype)
    first = 0
    while first < len(starts):
        check_time()
        start = starts[first]
        end = max(int(np.searchsorted(ends, start + PIECE, "right")), first + 1)
        if ends[end - 1] - start <= PIECE:
            rows = x[..., start : ends[end - 1]]
            parts = starts[first:end] - start, ends[first:end] - start
            found[..., first:end] = _sums_at_once(rows, *parts)
        else:
            for at in range(start, ends[first], PIECE):
                check_time()
                found[..., first] += x[..., at : min(at + PIECE, ends[first])].sum(-1)
        first = end
    return found


def _sums_at_once(x: NDArray[Any], starts: Indices, ends: Indices) -> NDArray[Any]:
    if (ends - starts).max(initial=0) <= 2:
        found = x[..., starts]
        two = np.flatnonzero(ends - starts == 2)
        found[..., two] += x[..., starts[two] + 1]
        return found
    if np.array_equal(starts[1:], ends[:-1]):
        return np.add.reduceat(x, starts, -1)
    # At even places are the sums of parts; those between a part and the next are not used.
    places = np.stack([starts, ends], 1).reshape(-1)[:-1]
    return np.add.reduceat(x, places, -1)[..., ::2]
