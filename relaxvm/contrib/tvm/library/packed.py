"""Functions of TVM's runtime that compiled kernels call by name, on arrays.

They write their results to arguments.  Equal elements keep their order, as in TVM's stable sort.
Source: ``tvm.contrib.sort`` (src/runtime/contrib/sort).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....core._deadlines import check_time
from ....pieces.order import argsort as argsort_row
from ....registry import get_func

__all__ = ["PACKED", "find"]


_SORTED: Final = 1 << 18
"""Elements that are sorted at once."""


def _order(x: NDArray[Any], axis: int, ascending: bool) -> NDArray[np.intp]:
    """Return the positions of elements in sorted order; equal ones keep their order."""
    if ascending:
        return _stable(x, axis)
    # Reversed twice, so that equal elements keep their order.
    return np.flip(x.shape[axis] - 1 - _stable(np.flip(x, axis), axis), axis)


def _stable(x: NDArray[Any], axis: int) -> NDArray[np.intp]:
    """As ``numpy.argsort(x, axis, "stable")``, with checks of the time limit."""
    if x.size <= _SORTED:
        return np.argsort(x, axis=axis, kind="stable")
    places = np.empty(x.shape, np.intp)
    rows, found = np.moveaxis(x, axis, -1), np.moveaxis(places, axis, -1)
    for index in np.ndindex(rows.shape[:-1]):
        found[index] = argsort_row(rows[index])
        check_time()
    return places


def sort(x: NDArray[Any], out: NDArray[Any], axis: int, ascending: bool) -> None:
    """Sort along an axis."""
    out[...] = np.take_along_axis(x, _order(x, axis, ascending), axis)


def argsort(x: NDArray[Any], out: NDArray[Any], axis: int, ascending: bool) -> None:
    """Write the positions that would sort along an axis, in the data type of `out`."""
    out[...] = _order(x, axis, ascending)


def argsort_nms(
    x: NDArray[Any], counts: NDArray[Any], out: NDArray[Any], axis: int, ascending: bool
) -> None:
    """Apply `argsort` to the first elements along an axis, whose number per run is in `counts`; the
    others keep their positions."""
    rows, places = np.moveaxis(x, axis, -1), np.moveaxis(out, axis, -1)
    for index in np.ndindex(rows.shape[:-1]):
        count = int(counts[index])
        places[index] = np.arange(rows.shape[-1])
        places[index][:count] = _order(rows[index][:count], 0, ascending)


def topk(x: NDArray[Any], *args: Any) -> None:
    """Write the largest or smallest elements along an axis.

    Args:
        x: the elements.
        args: the result arrays (values, positions, or both), then the number of elements (all, if
            less than 1), the axis, the kind of results ("both", "values", "indices"), and whether
            the smallest come first.
    """
    *outs, k, axis, results, ascending = args
    order = _order(x, axis, ascending)
    if k >= 1:
        order = np.take(order, np.arange(min(k, order.shape[axis])), axis)
    if results in ("both", "values"):
        outs[0][...] = np.take_along_axis(x, order, axis)
    if results in ("both", "indices"):
        outs[-1][...] = order


PACKED: Final[dict[str, Callable[..., Any]]] = {
    "tvm.contrib.sort.sort": sort,
    "tvm.contrib.sort.argsort": argsort,
    "tvm.contrib.sort.argsort_nms": argsort_nms,
    "tvm.contrib.sort.topk": topk,
}


def find(name: str) -> Callable[..., Any] | None:
    """Return a function that kernels call: a registered one, else one of this module."""
    return get_func(name, allow_missing=True) or PACKED.get(name)
