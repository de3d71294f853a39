"""Order of elements: sort, argsort, topk, median, bucketize."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces import order as cut
from ..pieces.cut import apply, check_time, converted, copy_pieces, pieces, positions, taken
from ._arrays import copy_if_overlapping, copy_if_overlapping_differently
from ._blocks import row_blocks
from ._kernel import kernel
from .checks import WrongValue, check_out, need_numbers
from .kinds import Axis, Flag, Int, Integers, Numbers, Out, OutLike, a_choice, taken_by

__all__: list[str] = []

Ordered: TypeAlias = Annotated[NDArray[Any], taken_by(np.less)]
Results: TypeAlias = Annotated[str, a_choice("both", "values", "indices")]


@kernel("sort")
def sort(x: Ordered, axis: Axis, descending: Flag, out: OutLike) -> None:
    """out = x sorted along an axis, the least element first, or the greatest if descending.  NaN
    counts as greater than all numbers.  Uses memory for a copy of a row."""
    # Backwards, the greatest element comes first.
    view = np.flip(out, axis) if descending else out
    x = _comparable(copy_if_overlapping_differently(x, out))
    for rows, found in row_blocks(np.moveaxis(x, axis, -1), np.moveaxis(view, axis, -1)):
        if rows.shape[-1] <= _ALONE:
            np.copyto(found, np.sort(rows, -1), casting="unsafe")
        else:
            for row, written in zip(_each(rows), _each(found), strict=True):
                check_time()
                cut.sort(row, written)


@kernel("argsort")
def argsort(x: Ordered, axis: Axis, descending: Flag, out: Numbers) -> None:
    """out = the indices that sort x along an axis as `sort` does, those of equal elements in
    increasing order.  out: x's shape, of any number type.  Uses memory for a row and its indices,
    twice for a long row."""
    check_out(out, out.dtype, x.shape)
    source = np.moveaxis(_comparable(copy_if_overlapping(x, out)), axis, -1)
    for rows, found in row_blocks(source, np.moveaxis(out, axis, -1)):
        copy_pieces(found, _order(rows, descending))


@kernel("topk")
def topk(x: Ordered, k: Int, axis: Axis, ret_type: Results, largest: Flag, *outs: Out) -> None:
    """outs = the k greatest elements of x along an axis, the greatest first, or the k least, the
    least first, if not largest.  ret_type: "both" has two outs, the elements and their indices;
    "values" has the first of these, "indices" the second.  Of equal elements those with the least
    indices are taken; NaN counts as greater than all numbers.  A k below 1 means all elements."""
    length = x.shape[axis]
    k = length if k < 1 else k
    if k > length:
        raise WrongValue(f"k: expected at most {length}, the length of axis {axis}, got {k}")
    if len(outs) != (2 if ret_type == "both" else 1):
        expected = "2 outs" if ret_type == "both" else "1 out"
        raise WrongValue(f"expected {expected} with ret_type {ret_type!r}, got {len(outs)}")
    values = None if ret_type == "indices" else outs[0]
    indices = None if ret_type == "values" else outs[-1]
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    if indices is not None:
        need_numbers(f"outs[{len(outs) - 1}]", indices)
        check_out(indices, indices.dtype, shape)
    if values is not None:
        check_out(values, x.dtype, shape)
    for out in outs:
        x = copy_if_overlapping(x, out)
    written = [np.moveaxis(out, axis, -1) for out in outs]
    for rows, *found in row_blocks(np.moveaxis(_comparable(x), axis, -1), *written):
        order = _first(rows, k, largest)
        if indices is not None:
            copy_pieces(found[-1], order)
        if values is None:
            continue
        if rows.shape[-1] <= _ALONE:
            np.copyto(found[0], np.take_along_axis(rows, order, -1), casting="unsafe")
            continue
        for row, at, out in zip(_each(rows), _each(order), _each(found[0]), strict=True):
            copy_pieces(out, taken(row, at))


@kernel("median")
def median(x: Ordered, axis: Axis | None, *outs: Out) -> None:
    """outs = the median of x along an axis, the lesser one of two, and its index, int64; with None,
    of all elements, and no index.  outs: x's shape with the axis removed, or kept with length 1; x
    has elements along it.  NaN counts as greater than all numbers.  Memory: as of `argsort`."""
    if len(outs) != (1 if axis is None else 2):
        expected = "1 out without an axis" if axis is None else "2 outs"
        raise WrongValue(f"expected {expected}, got {len(outs)}")
    gone = range(x.ndim) if axis is None else (axis,)
    dropped = tuple([dim for i, dim in enumerate(x.shape) if i not in gone])
    kept = tuple([1 if i in gone else dim for i, dim in enumerate(x.shape)])
    for i, out in enumerate(outs):
        check_out(out, np.dtype(np.int64) if i else x.dtype, dropped, kept)
    source = x.reshape(-1) if axis is None else np.moveaxis(x, axis, -1)
    length = source.shape[-1]
    if not length:
        raise WrongValue(f"x: expected elements along the axis, got {describe(x)}")
    for out in outs:
        source = copy_if_overlapping(source, out)
    written = [
        (out if out.ndim < x.ndim else out.reshape(dropped))[..., None]
        if axis is None or out.ndim < x.ndim
        else np.moveaxis(out, axis, -1)
        for out in outs
    ]
    for rows, *found in row_blocks(_comparable(source), *written):
        order = _order(rows, descending=False)[..., (length - 1) // 2, None]
        np.copyto(found[0], np.take_along_axis(rows, order, -1), casting="unsafe")
        if axis is not None:
            copy_pieces(found[1], order)


@kernel("bucketize")
def bucketize(x: Numbers, boundaries: Numbers, right: Flag, out: Integers) -> None:
    """out = for each element of x how many boundaries, a vector in increasing order, are below it;
    if right, those equal to it count, too.  out: x's shape, of any integer type."""
    if boundaries.ndim != 1:
        raise WrongValue(f"boundaries: expected a vector, got {describe(boundaries)}")
    check_out(out, out.dtype, x.shape)
    x, boundaries = [_comparable(copy_if_overlapping(each, out)) for each in (x, boundaries)]
    side: Literal["left", "right"] = "right" if right else "left"
    for written, numbers in pieces(out, x):
        np.copyto(written, boundaries.searchsorted(numbers, side), casting="unsafe")


_LONG: Final = 512
"""Length of a row from which on it is faster to select the elements before sorting them."""

_SELECTED: Final = 1 << 18
"""The most elements that are selected from a row, rather than sorting it; and a quarter of those
that numpy selects from at once."""

_ALONE: Final = 1 << 16
"""Rows with more elements are sorted one by one, in pieces."""


def _comparable(x: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in a data type of numpy: those of ml_dtypes have no place for NaN in their
    order."""
    return converted(x, np.float32) if x.dtype.kind == "V" else x


def _each(rows: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Views of the rows along the last axis."""
    return map(rows.__getitem__, np.ndindex(rows.shape[:-1]))


def _order(rows: NDArray[Any], descending: bool) -> NDArray[Any]:
    """The indices that sort rows, stably.

    numpy sorts without Python's lock, and reads elements again that it has counted before: what
    another thread writes meanwhile would lead it out of its memory.  So it gets copies: here, as
    by `np.sort` and `np.partition`.
    """
    # Sorted backwards, equal elements come out backwards too.
    backwards = rows[..., ::-1] if descending else rows
    if rows.shape[-1] <= _ALONE:
        order = np.argsort(backwards.copy(), -1, kind="stable")
    else:
        order = np.empty(rows.shape, np.intp)
        for row, found in zip(_each(backwards), _each(order), strict=True):
            found[:] = cut.argsort(row)
    if not descending:
        return order
    for (part,) in pieces(order):
        np.subtract(rows.shape[-1] - 1, part, out=part)
    return order[..., ::-1]


def _first(rows: NDArray[Any], k: int, largest: bool) -> NDArray[Any]:
    """The first k indices of `_order`."""
    length = rows.shape[-1]
    if length < _LONG or k > min(length // 4, _SELECTED):
        return _order(rows, largest)[..., :k]
    found = np.empty((*rows.shape[:-1], k), np.intp)
    for row, first in zip(_each(rows), _each(found), strict=True):
        last = _last(row, k, largest)
        is_candidate = np.empty(length, np.bool_)
        # Comparisons with NaN are false: if `last` is NaN, all elements are candidates.
        apply(np.less if largest else np.greater, is_candidate, row, last)
        apply(np.logical_not, is_candidate, is_candidate)
        candidates = positions(is_candidate)
        first[:] = candidates[_order(taken(row, candidates), largest)[:k]]
    return found


def _last(row: NDArray[Any], k: int, largest: bool) -> Any:
    """The last one of the first k elements in sorted order."""
    while len(row) > 4 * _SELECTED:  # those of each part are enough
        parts = []
        for (part,) in pieces(row, most=4 * _SELECTED):
            count = min(k, len(part))
            at = len(part) - count if largest else count - 1
            ordered = np.partition(part, at)
            parts.append(ordered[at:] if largest else ordered[: at + 1])
        row = np.concatenate(parts)
    at = len(row) - k if largest else k - 1
    return np.partition(row, at)[at]
