"""Operators that put elements in order, and that look for places in what is in order.

Sorting is stable: of equal elements the first one stays the first.  It is a merge sort, so it takes
n log n steps for n elements.  What is not a number counts as greater than all numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir import prim
from ...ir.expr import Expr
from ...tir import intrinsics
from ...tir.buffer import Buffer
from ...tir.stmt import AllocBuffer, Stmt
from ..extern import extern
from ..tensor import INDEX_DTYPE, Tensor
from ._loops import Cell, array, axis_of, index, loop, nest, run, store, when, whilst

__all__ = ["argsort", "searchsorted", "sort", "topk"]

Element = Callable[[Any], Any]
"""The element at a place of a row."""


def sort(data: Tensor, axis: int = -1, is_ascend: Any = 1) -> Tensor:
    """The elements of an axis in order."""
    at = axis_of(axis, data.ndim, "sort")

    def finish(row: _Row, places: Buffer, outs: Sequence[Buffer]) -> Stmt:
        return loop(row.length, lambda k: store(outs[0], row.at(k), row.element(places[k])), "k")

    out: Tensor = _sorted(data, at, is_ascend, [data.shape], [data.dtype], "sort", finish)
    return out


def argsort(
    data: Tensor,
    valid_count: Tensor | None = None,
    axis: int = -1,
    is_ascend: Any = 1,
    dtype: str = "float32",
) -> Tensor:
    """The places of the elements of an axis, in the order of the elements.

    Args:
        valid_count: how many elements of each row count, a tensor with the other dimensions; the
            places of the rest come after them, as they are.
    """
    at = axis_of(axis, data.ndim, "argsort")

    def finish(row: _Row, places: Buffer, outs: Sequence[Buffer]) -> Stmt:
        return loop(row.length, lambda k: store(outs[0], row.at(k), places[k]), "k")

    out: Tensor = _sorted(
        data, at, is_ascend, [data.shape], [dtype], "argsort", finish, valid_count
    )
    return out


def topk(
    data: Tensor,
    k: Any = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: Any = False,
    dtype: str = "int64",
) -> Any:
    """The greatest elements of an axis, or the least ones if `is_ascend`, in order.

    Args:
        k: how many; all if less than 1.
        ret_type: "both" for the elements and their places, "values" or "indices" for one of these.
        dtype: of the places.

    Raises:
        ValueError: `ret_type` is none of these, or there is no such axis.
    """
    if ret_type not in ("both", "values", "indices"):
        raise ValueError(
            f"topk: ret_type: expected 'both', 'values' or 'indices', got {ret_type!r}"
        )
    at = axis_of(axis, data.ndim, "topk")
    count = getattr(k, "value", k)
    length = data.shape[at] if isinstance(count, int) and count < 1 else index(count)
    dims = [*data.shape[:at], length, *data.shape[at + 1 :]]
    kinds = [kind for kind in ("values", "indices") if ret_type in ("both", kind)]
    dtypes = [data.dtype if kind == "values" else dtype for kind in kinds]

    def finish(row: _Row, places: Buffer, outs: Sequence[Buffer]) -> Stmt:
        def one(j: Any) -> Stmt:
            values = {"values": row.element(places[j]), "indices": places[j]}
            stores = zip(outs, kinds, strict=True)
            return run(*[store(out, row.at(j), values[kind]) for out, kind in stores])

        return loop(length, one, "k")

    return _sorted(data, at, is_ascend, [dims] * len(kinds), dtypes, "topk", finish)


class _Row:
    """The elements of a buffer along an axis, at one place of the others."""

    def __init__(self, data: Buffer, axis: int, others: Sequence[Expr]) -> None:
        self._data = data
        self._axis = axis
        self.others = tuple(others)
        self.length = data.shape[axis]

    def at(self, place: Any) -> tuple[Any, ...]:
        """The indices of a place of the row."""
        return (*self.others[: self._axis], place, *self.others[self._axis :])

    def element(self, place: Any) -> Any:
        """The element at a place of the row."""
        return self._data[self.at(place)]


def _sorted(
    data: Tensor,
    axis: int,
    is_ascend: Any,
    shapes: Sequence[Any],
    dtypes: Sequence[str],
    name: str,
    finish: Callable[[_Row, Buffer, Sequence[Buffer]], Stmt],
    valid_count: Tensor | None = None,
) -> Any:
    """What `finish` writes from the places of every row, which are in the order of its elements."""
    ascends = bool(getattr(is_ascend, "value", is_ascend))
    others = [*data.shape[:axis], *data.shape[axis + 1 :]]
    places, spare = (
        array([data.shape[axis]], INDEX_DTYPE.get(), each) for each in ("places", "spare")
    )

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        def of_row(i: tuple[Expr, ...]) -> Stmt:
            row = _Row(ins[0], axis, i)
            count = row.length if valid_count is None else prim.cast(ins[1][i], row.length.dtype)
            return run(
                _merge_sort(row.element, count, row.length, places, spare, ascends),
                finish(row, places, outs),
            )

        return run(AllocBuffer(places), AllocBuffer(spare), nest(others, of_row))

    inputs = [data] if valid_count is None else [data, valid_count]
    listed = shapes[0] if len(shapes) == 1 else list(shapes)
    return extern(listed, inputs, body, f"{name}_cpu", list(dtypes))


def _merge_sort(
    element: Element, count: Any, length: Any, places: Buffer, spare: Buffer, ascends: bool
) -> Stmt:
    """Statements that fill `places` with 0 to `length`, the first `count` in order of `element`.

    Runs of `width` places are in order; two neighbours at a time are merged into one.
    """
    width, low, middle, high = (Cell(name) for name in ("width", "low", "middle", "high"))
    left, right = Cell("left"), Cell("right")

    def merge(k: Any) -> Stmt:
        a, b = element(places[left.value]), element(places[right.value])
        takes_right = intrinsics.if_then_else(
            right.value < high.value,
            intrinsics.if_then_else(
                left.value < middle.value,
                _is_less(b, a) if ascends else _is_less(a, b),
                prim.as_scalar(True),
            ),
            prim.as_scalar(False),
        )
        return when(
            takes_right,
            run(store(spare, [low.value + k], places[right.value]), right.set(right.value + 1)),
            run(store(spare, [low.value + k], places[left.value]), left.set(left.value + 1)),
        )

    pair = run(
        middle.set(intrinsics.min(low.value + width.value, count)),
        high.set(intrinsics.min(middle.value + width.value, count)),
        left.set(low.value),
        right.set(middle.value),
        loop(high.value - low.value, merge, "k"),
        low.set(high.value),
    )
    cells = [cell.declared for cell in (width, low, middle, high, left, right)]
    return run(
        loop(length, lambda k: store(places, [k], k), "k"),
        cells,
        width.set(1),
        whilst(
            width.value < count,
            low.set(0),
            whilst(low.value < count, pair),
            loop(count, lambda k: store(places, [k], spare[k]), "k"),
            width.set(width.value * 2),
        ),
    )


def _is_less(a: Any, b: Any) -> Any:
    """Whether one element comes before another in ascending order."""
    if not prim.is_float(a.dtype):
        return a < b
    is_last = prim.logical_and(intrinsics.isnan(b), prim.logical_not(intrinsics.isnan(a)))
    return prim.logical_or(a < b, is_last)


def searchsorted(
    sorted_sequence: Tensor, values: Tensor, right: bool = False, out_dtype: str = "int64"
) -> Tensor:
    """The places where values go in rows that are in ascending order: before the elements that are
    not less, or after those that are not greater if `right`.

    Args:
        sorted_sequence: rows along the last axis: one for all values, or as many as `values` has.

    Raises:
        ValueError: there are several rows, and `values` has other dimensions before its last.
    """
    shared = sorted_sequence.ndim == 1
    if not shared and sorted_sequence.ndim != values.ndim:
        raise ValueError(
            f"searchsorted: expected values of {sorted_sequence.ndim} dimensions, got {values.ndim}"
        )

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        rows, wanted = ins
        low, high, middle = Cell("low"), Cell("high"), Cell("middle")

        def find(i: tuple[Expr, ...]) -> Stmt:
            at = (middle.value,) if shared else (*i[:-1], middle.value)
            is_before = rows[at] <= wanted[i] if right else rows[at] < wanted[i]
            return run(
                low.set(0),
                high.set(sorted_sequence.shape[-1]),
                whilst(
                    low.value < high.value,
                    middle.set(prim.floordiv(low.value + high.value, 2)),
                    when(is_before, low.set(middle.value + 1), high.set(middle.value)),
                ),
                store(outs[0], i, low.value),
            )

        cells = [cell.declared for cell in (low, high, middle)]
        return run(cells, nest(values.shape, find))

    out: Tensor = extern(values.shape, [sorted_sequence, values], body, "searchsorted", out_dtype)
    return out
