"""Samples of images at coordinates, grids of coordinates, and boxes that overlap."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import PIECE, check_time, copy_pieces, pieces
from ._arrays import copy_if_overlapping
from ._kernel import kernel
from .checks import Dims, WrongValue, check_out, native, need_numbers, working_dtype
from .kinds import Flag, Floats, Out, Tensor, a_choice, ints
from .resize import cubic

__all__: list[str] = []

Method: TypeAlias = Annotated[str, a_choice("nearest", "bilinear", "bicubic")]
Padding: TypeAlias = Annotated[str, a_choice("zeros", "border", "reflection")]
Sizes: TypeAlias = Annotated[Dims, ints(least=0)]
Places: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]

_FAR: Final = float(1 << 40)
"""Coordinates beyond it are as far outside."""


@kernel("image.grid_sample")
def grid_sample(
    x: Tensor,
    grid: Tensor,
    method: Method,
    padding_mode: Padding,
    align_corners: Flag,
    coordinates_first: Flag,
    channels_last: Flag,
    out: Out,
) -> None:
    """out = images x, of any number of axes, at coordinates.  x[batch, channels, ..., height,
    width], or with channels last; grid[batch, coordinates, ...] or grid[batch, ..., coordinates]:
    floats, along width, height and so on; -1 and 1 are the outermost elements if align_corners, the
    outer edges of these otherwise.  method: the "nearest" element, or the mean of two or four
    neighbours along each axis.  padding_mode: elements outside are "zeros", the outermost ones
    ("border"), or the mirror image, for each of the neighbours."""
    if channels_last:
        x = np.moveaxis(x, -1, 1) if x.ndim > 2 else x
    grid = np.moveaxis(grid, 1, -1) if coordinates_first and grid.ndim > 1 else grid
    axes = x.ndim - 2
    if axes < 1 or grid.ndim != axes + 2 or grid.shape[-1] != axes or len(grid) != len(x):
        raise WrongValue(
            f"expected x[batch, channels, ...] and a grid of as many coordinates as x has other "
            f"axes, got x {describe(x)}, grid {describe(grid)}"
        )
    need_numbers("x", x)
    if working_dtype(native(grid.dtype)) is None:
        raise WrongValue(f"grid: expected floats, got {describe(grid)}")
    shape = (*x.shape[:2], *grid.shape[1:-1])
    wanted = (shape[0], *shape[2:], shape[1]) if channels_last else shape
    check_out(out, native(x.dtype), wanted)
    lengths = x.shape[2:]
    if 0 in shape:
        return
    if 0 in lengths and padding_mode != "zeros":
        raise WrongValue(f"x: expected elements along each axis, got {describe(x)}")
    written = np.moveaxis(out, -1, 1) if channels_last else out
    x, grid = copy_if_overlapping(x, out), copy_if_overlapping(grid, out)
    dtype = working_dtype(native(x.dtype)) or np.dtype(np.float64)
    channels = x.shape[1]
    most = max(1, PIECE // max(1, channels * 4**axes // 4))
    for image, points, result in zip(x, grid, written, strict=True):
        flat = image.reshape(channels, -1)
        at = points.reshape(-1, axes)
        found = np.empty((channels, len(at)), dtype)
        for start in range(0, len(at), most):
            part = at[start : start + most].astype(np.float64)
            along = [
                _taps(part[:, axes - 1 - i], n, method, padding_mode, align_corners)
                for i, n in enumerate(lengths)
            ]
            found[:, start : start + most] = _weighted(flat, lengths, along, dtype)
            check_time()
        copy_pieces(result, found.reshape(channels, *shape[2:]))


def _weighted(
    image: NDArray[Any],
    lengths: Dims,
    along: list[list[tuple[Indices, Places]]],
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """Sums of elements of image[channel, place], with indices and weights along each axis."""
    points = len(along[0][0][0])
    total = np.zeros((len(image), points), dtype)
    if 0 in lengths:
        return total
    for taps in itertools.product(*along):
        place: Any = 0
        weight: Any = 1.0
        for (index, factor), length in zip(taps, lengths, strict=True):
            place = place * length + index
            weight = weight * factor
        part = image[:, place].astype(dtype, copy=False)
        # An element that does not count may be infinite.
        np.multiply(part, weight.astype(dtype), out=part, where=weight != 0)
        np.copyto(part, 0, where=weight == 0)
        np.add(total, part, out=total)
    return total


def _taps(
    at: Places, length: int, method: str, padding: str, align_corners: bool
) -> list[tuple[Indices, Places]]:
    """The elements of an axis for coordinates, and their weights."""
    places = (at + 1) / 2 * (length - 1) if align_corners else ((at + 1) * length - 1) / 2
    places = np.clip(np.nan_to_num(places, nan=-_FAR), -_FAR, _FAR)
    low, high = (0.0, length - 1.0) if align_corners else (-0.5, length - 0.5)
    if method == "nearest":
        places = np.rint(places)
    if padding == "border" and method != "bicubic":  # whose neighbours are clipped one by one
        places = np.clip(places, 0, length - 1)
    elif padding == "reflection":
        places = np.where((places < low) | (places > high), _mirrored(places, low, high), places)
    if method == "nearest":
        return [_tap(np.rint(places), np.ones_like(places), length, padding, low, high)]
    base = np.floor(places)
    ratio = places - base
    offsets = (0, 1) if method == "bilinear" else (-1, 0, 1, 2)
    found = []
    for offset in offsets:
        distance = np.abs(offset - ratio)
        weight = 1 - distance if method == "bilinear" else cubic(distance, -0.75)
        found.append(_tap(base + offset, weight, length, padding, low, high))
    return found


def _tap(
    place: Places, weight: Places, length: int, padding: str, low: float, high: float
) -> tuple[Indices, Places]:
    if padding == "zeros":
        weight = np.where((place < 0) | (place >= length), 0, weight)
    elif padding == "reflection":
        place = _mirrored(place, low, high)
    return np.clip(place, 0, max(0, length - 1)).astype(np.int64), weight


def _mirrored(places: Places, low: float, high: float) -> Places:
    """Places outside an interval, mirrored at its ends until they are inside."""
    span = high - low
    if span <= 0:
        return np.full_like(places, low)
    apart = np.abs(places - low) % (2 * span)
    found: Places = low + np.minimum(apart, 2 * span - apart)
    return found


@kernel("image.affine_grid")
def affine_grid(
    theta: Floats, size: Sizes, align_corners: Flag, coordinates_first: Flag, out: Out
) -> None:
    """out = the coordinates of the elements of images of a size, transformed by matrices.
    theta[batch, 2, 3] or theta[batch, 3, 4]: floats; size: height and width, or depth, height and
    width; out[batch, coordinates, ...] if coordinates_first, else out[batch, ..., coordinates].
    align_corners: as of `image.grid_sample`."""
    count = len(size)
    if theta.ndim != 3 or theta.shape[1:] != (count, count + 1) or count not in (2, 3):
        raise WrongValue(
            f"expected theta[batch, n, n + 1] and n lengths, 2 or 3, got theta {describe(theta)}, "
            f"size {list(size)}"
        )
    batch = len(theta)
    shape = (batch, count, *size) if coordinates_first else (batch, *size, count)
    check_out(out, native(theta.dtype), shape)
    written = out if coordinates_first else np.moveaxis(out, -1, 1)
    matrices = copy_if_overlapping(theta, out).astype(np.float64)
    coordinates = []
    for axis, length in enumerate(size):
        at = np.arange(length, dtype=np.float64)
        if not align_corners:
            at = (2 * at + 1) / max(1, length) - 1
        elif length > 1:
            at = at * 2 / (length - 1) - 1
        coordinates.append(at.reshape(-1, *[1] * (count - 1 - axis)))
    ones = [1] * count
    for i in range(count):
        rows = matrices[:, i].reshape(batch, count + 1, *ones)
        operands = [np.broadcast_to(each, (batch, *size)) for each in coordinates[::-1]]
        factors = [np.broadcast_to(rows[:, j], (batch, *size)) for j in range(count + 1)]
        for result, *parts in pieces(written[:, i], *operands, *factors):
            total = parts[2 * count] * np.ones(())
            for at, factor in zip(parts[:count], parts[count : 2 * count], strict=True):
                total = total + at * factor
            np.copyto(result, total, casting="same_kind")


@kernel("image.center_crop_pad")
def center_crop_pad(x: Tensor, axes: Sizes, size: Sizes, out: Out) -> None:
    """out = the middle of x along axes, with lengths of size; zeros are around it where x is
    shorter."""
    if len(axes) != len(size) or len(set(axes)) < len(axes) or any(a >= x.ndim for a in axes):
        raise WrongValue(
            f"expected different axes of x and as many lengths, got x {describe(x)}, axes "
            f"{list(axes)}, size {list(size)}"
        )
    shape = list(x.shape)
    for axis, length in zip(axes, size, strict=True):
        shape[axis] = length
    check_out(out, native(x.dtype), tuple(shape))
    read: list[Any] = [slice(None)] * x.ndim
    written: list[Any] = [slice(None)] * x.ndim
    for axis, (old, new) in enumerate(zip(x.shape, shape, strict=True)):
        start, first = max(0, old - new) // 2, max(0, new - old) // 2
        common = min(old, new)
        read[axis], written[axis] = slice(start, start + common), slice(first, first + common)
    x = copy_if_overlapping(x, out)
    if out.size != x[tuple(read)].size:
        copy_pieces(out, out.dtype.type(0))
    copy_pieces(out[tuple(written)], x[tuple(read)])


@kernel("vision.select_boxes")
def select_boxes(
    boxes: Floats,
    scores: Floats,
    most: Tensor | None,
    iou_threshold: Tensor | None,
    score_threshold: Tensor | None,
    are_centers: Flag,
    out: Out,
) -> None:
    """out = int64[n, 3], the batch, class and index of boxes, the best of each class first, without
    those that overlap with a better one.  boxes[batch, n, 4]: two opposite corners (y, x), or
    center and size (x, y, width, height) if are_centers; scores[batch, classes, n].  most: of a
    class, 0 if not given; iou_threshold: the common area / the area of both that is too much, 0 if
    not given; score_threshold: the score that is not enough, if there is one; each is a tensor of
    one number."""
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[2] != 4 or (
        len(boxes) != len(scores) or boxes.shape[1] != scores.shape[2]
    ):
        raise WrongValue(
            f"expected boxes[batch, n, 4] and scores[batch, classes, n], got boxes "
            f"{describe(boxes)}, scores {describe(scores)}"
        )
    count = number_of("most", most)
    limit = number_of("iou_threshold", iou_threshold)
    least = number_of("score_threshold", score_threshold)
    chosen: list[tuple[int, int, int]] = []
    for b in range(len(boxes) if count else 0):
        corners = corners_of(boxes[b], are_centers)
        for c in range(scores.shape[1]):
            indices = suppressed(corners, scores[b, c], count, limit or 0.0, least)
            chosen += [(b, c, i) for i in indices]
    check_out(out, np.dtype(np.int64), (len(chosen), 3))
    if chosen:
        out[...] = chosen


def number_of(name: str, number: NDArray[Any] | None) -> Any:
    """The number of a tensor of one element; None if it is not given."""
    if number is None:
        return None
    if number.size != 1 or (number.dtype.kind not in "iuf"):
        raise WrongValue(f"{name}: expected a tensor of one number, got {describe(number)}")
    return number.reshape(-1)[0].item()


def corners_of(boxes: NDArray[Any], are_centers: bool) -> NDArray[Any]:
    """Rows of least y, least x, greatest y and greatest x."""
    dtype = working_dtype(native(boxes.dtype))
    a, b, c, d = boxes.T.astype(dtype)
    if are_centers:
        return np.stack([b - d / 2, a - c / 2, b + d / 2, a + c / 2])
    low_y, high_y = np.minimum(a, c), np.maximum(a, c)
    return np.stack([low_y, np.minimum(b, d), high_y, np.maximum(b, d)])


def suppressed(
    corners: NDArray[Any],
    scores: NDArray[Any],
    most: float,
    iou_threshold: float,
    score_threshold: float | None,
) -> list[int]:
    """The indices of boxes that are kept, the best first."""
    check_time()  # there may be many classes without boxes
    order = np.argsort(-scores, kind="stable")
    if score_threshold is not None:
        order = order[scores[order] > score_threshold]
    top, left, bottom, right = corners[:, order]
    areas = (bottom - top) * (right - left)
    alive = np.ones(len(order), bool)
    kept: list[int] = []
    at = 0
    while len(kept) < most and at < len(order):
        if not alive[at]:
            at += 1
            continue
        kept.append(int(order[at]))
        rest = slice(at + 1, None)
        height = np.minimum(bottom[at], bottom[rest]) - np.maximum(top[at], top[rest])
        width = np.minimum(right[at], right[rest]) - np.maximum(left[at], left[rest])
        common = np.maximum(height, 0) * np.maximum(width, 0)
        union = areas[at] + areas[rest] - common
        alive[rest] &= ~((common > iou_threshold * union) & (union > 0))
        at += 1
        check_time()
    return kept
