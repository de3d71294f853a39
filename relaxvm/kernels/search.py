"""Sorting: sort, argsort, topk."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ._arrays import copy_if_overlapping, copy_if_overlapping_differently
from ._blocks import row_blocks
from ._kernel import kernel
from ._pieces import PIECE, check_time
from .checks import WrongValue, check_out, need_numbers
from .kinds import Axis, Flag, Int, Numbers, Out, OutLike, a_choice, taken_by

__all__: list[str] = []

Ordered: TypeAlias = Annotated[NDArray[Any], taken_by(np.less)]
Results: TypeAlias = Annotated[str, a_choice("both", "values", "indices")]


@kernel("sort")
def sort(x: Ordered, axis: Axis, descending: Flag, out: OutLike) -> None:
    """out = x sorted along an axis, the least element first, or the greatest if descending.  NaN
    counts as greater than all numbers.  Uses memory for a row."""
    # Backwards, the greatest element comes first.
    view = np.flip(out, axis) if descending else out
    if view.size <= _LONG:
        np.copyto(view, np.sort(x, axis))
        return
    source = np.moveaxis(copy_if_overlapping_differently(x, out), axis, -1)
    for rows, found in row_blocks(source, np.moveaxis(view, axis, -1)):
        _check_sort(rows)
        np.copyto(found, np.sort(rows, -1))


@kernel("argsort")
def argsort(x: Ordered, axis: Axis, descending: Flag, out: Numbers) -> None:
    """out = the indices that sort x along an axis as `sort` does, those of equal elements in
    increasing order.  out: x's shape, of any number type.  Uses memory for a row and its
    indices."""
    check_out(out, out.dtype, x.shape)
    source = np.moveaxis(copy_if_overlapping(x, out), axis, -1)
    for rows, found in row_blocks(source, np.moveaxis(out, axis, -1)):
        _check_sort(rows)
        np.copyto(found, _order(rows, descending), casting="unsafe")


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
    for rows, *found in row_blocks(np.moveaxis(x, axis, -1), *written):
        _check_sort(rows)
        order = _first(rows, k, largest)
        if indices is not None:
            np.copyto(found[-1], order, casting="unsafe")
        if values is not None:
            np.copyto(found[0], np.take_along_axis(rows, order, -1))


def _order(rows: NDArray[Any], descending: bool) -> NDArray[Any]:
    """The indices that sort rows, stably.

    numpy sorts without Python's lock, and reads elements again that it has counted before: what
    another thread writes meanwhile would lead it out of its memory.  So it gets copies: here, as
    by `np.sort` and `np.partition`, and of views backwards it makes one itself.
    """
    if not descending:
        return np.argsort(rows.copy(), -1, kind="stable")
    # Sorted backwards, equal elements come out backwards too.
    order = np.argsort(rows[..., ::-1], -1, kind="stable")[..., ::-1]
    np.subtract(rows.shape[-1] - 1, order, out=order)
    return order


def _check_sort(rows: NDArray[Any]) -> None:
    """Check that there is time for sorting rows, which numpy does without interruption."""
    if rows.size > PIECE:
        check_time(_SORT * rows.size)


_SORT: Final = 1e-9
"""Seconds that sorting takes at least for each element of a row of more than a million."""

_LONG: Final = 512
"""Length of a row from which on it is faster to select the elements before sorting them."""


def _first(rows: NDArray[Any], k: int, largest: bool) -> NDArray[Any]:
    """The first k indices of `_order`."""
    length = rows.shape[-1]
    if length < _LONG or k > length // 4:
        return _order(rows, largest)[..., :k]
    found = np.empty((*rows.shape[:-1], k), np.intp)
    for row, first in zip(rows.reshape(-1, length), found.reshape(-1, k), strict=True):
        at = length - k if largest else k - 1
        last = np.partition(row, at)[at]
        outside = row < last if largest else row > last
        # Comparisons with NaN are false: if `last` is NaN, all elements are candidates.
        candidates = np.flatnonzero(~outside)
        first[:] = candidates[_order(row[candidates], largest)[:k]]
    return found
