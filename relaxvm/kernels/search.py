"""Sorting: sort, argsort, topk."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..values import describe
from ._attributes import choice_of, flag_of, int_of
from ._blocks import row_blocks
from ._kernel import assign, axis_of, check_out, check_tensors, kernel, private, result_dtype

__all__: list[str] = []


@kernel("sort", "x: tensor, axis: int, descending: bool|int, out: tensor")
def sort(x: NDArray[Any], axis: int, descending: Any, out: NDArray[Any]) -> None:
    """out = x sorted along an axis, the least element first, or the greatest if descending.  NaN
    counts as greater than all numbers."""
    _check("sort", x)
    axis = axis_of("sort", x, axis)
    descending = flag_of("sort", "descending", descending)
    check_out("sort", out, x.dtype, x.shape)
    assign(out, x)
    # Backwards, the greatest element comes first.
    view = np.flip(out, axis) if descending else out
    view.sort(axis)


@kernel("argsort", "x: tensor, axis: int, descending: bool|int, out: tensor")
def argsort(x: NDArray[Any], axis: int, descending: Any, out: NDArray[Any]) -> None:
    """out = the indices that sort x along an axis as `sort` does, those of equal elements in
    increasing order.  out: x's shape, of any number type.  Uses memory for the indices of a row."""
    _check("argsort", x)
    axis = axis_of("argsort", x, axis)
    descending = flag_of("argsort", "descending", descending)
    _check_indices("argsort", "out", out)
    check_out("argsort", out, out.dtype, x.shape)
    source = np.moveaxis(private(x, out), axis, -1)
    for rows, found in row_blocks(source, np.moveaxis(out, axis, -1)):
        np.copyto(found, _order(rows, descending), casting="unsafe")


_RESULTS: Final = ("both", "values", "indices")


@kernel(
    "topk",
    "x: tensor, k: int, axis: int, ret_type: str, largest: bool|int, *outs: tensor",
)
def topk(*args: Any) -> None:
    """outs = the k greatest elements of x along an axis, the greatest first, or the k least, the
    least first, if not largest.  ret_type: "both" has two outs, the elements and their indices;
    "values" the one, "indices" the other.  Of equal elements those with the least indices are
    taken; NaN counts as greater than all numbers.  k: all if it is below 1."""
    if len(args) < 6:
        raise TypeError(
            f"topk: expected x, k, axis, ret_type, largest and outs, got {len(args)} arguments"
        )
    x, k, axis, ret_type, largest, *outs = args
    _check("topk", x)
    check_tensors("topk", **{f"outs[{i}]": out for i, out in enumerate(outs)})
    axis = axis_of("topk", x, axis)
    length = x.shape[axis]
    k = int_of("topk", "k", k)
    k = length if k < 1 else k
    if k > length:
        raise ValueError(f"topk: k: expected at most {length}, the length of axis {axis}, got {k}")
    largest = flag_of("topk", "largest", largest)
    ret_type = choice_of("topk", "ret_type", ret_type, _RESULTS)
    if len(outs) != (2 if ret_type == "both" else 1):
        expected = "2 outs" if ret_type == "both" else "1 out"
        raise ValueError(f"topk: expected {expected} with ret_type {ret_type!r}, got {len(outs)}")
    values = None if ret_type == "indices" else outs[0]
    indices = None if ret_type == "values" else outs[-1]
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    if indices is not None:
        _check_indices("topk", f"outs[{len(outs) - 1}]", indices)
        check_out("topk", indices, indices.dtype, shape)
    if values is not None:
        check_out("topk", values, x.dtype, shape)
    for out in outs:
        x = private(x, out)
    written = [np.moveaxis(out, axis, -1) for out in outs]
    for rows, *found in row_blocks(np.moveaxis(x, axis, -1), *written):
        order = _first(rows, k, largest)
        if indices is not None:
            np.copyto(found[-1], order, casting="unsafe")
        if values is not None:
            np.copyto(found[0], np.take_along_axis(rows, order, -1))


def _check(name: str, x: Any) -> None:
    check_tensors(name, x=x)
    result_dtype(name, np.less, x=x, other=x)  # has an order


def _check_indices(name: str, parameter: str, out: Any) -> None:
    check_tensors(name, **{parameter: out})
    if out.dtype.kind not in "iuf":
        raise TypeError(f"{name}: {parameter}: expected a tensor of numbers, got {describe(out)}")


def _order(rows: NDArray[Any], descending: bool) -> NDArray[Any]:
    """The indices that sort rows, stably."""
    if not descending:
        return np.argsort(rows, -1, kind="stable")
    # Sorted backwards, equal elements come out backwards too.
    order = np.argsort(rows[..., ::-1], -1, kind="stable")[..., ::-1]
    np.subtract(rows.shape[-1] - 1, order, out=order)
    return order


_LONG: Final = 512
"""Elements of a row from which on selecting before sorting pays."""


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
        # Comparisons with NaN are false: if the last one is NaN, all elements are candidates.
        candidates = np.flatnonzero(~outside)
        first[:] = candidates[_order(row[candidates], largest)[:k]]
    return found
