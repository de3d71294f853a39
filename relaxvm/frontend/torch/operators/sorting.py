"""Sorting, the greatest elements, distinct elements, and places in sorted vectors."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ....ir import Expr, prim
from ...common.emitter import Emitter, Problem
from ...common.values import Value
from ..forms import (
    Tensor,
    axis_of,
    cast,
    dims_of,
    dtype_of,
    items,
    length,
    number,
    numel,
    promoted,
    promoted_dtype,
    rank_of,
    reshaped,
)
from ..registry import aten
from .indexing import nonzero_places
from .shapes import moved

__all__: list[str] = []

_END: Final = 1 << 48
"""Beyond the end of each axis."""


@aten("sort", "sort.stable")
def sort(
    c: Emitter, self: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> Any:
    """The elements along an axis in order, and their indices."""
    if rank_of(self) == 0:
        return self, number(c, 0, "int64")
    axis = axis_of(self, dim)
    x = cast(c, self, "uint8") if dtype_of(self) == "bool" else self
    order = c.op("argsort", x, axis, bool(descending), "int64")
    return c.op("gather_elements", self, order, axis), order


@aten("argsort", "argsort.stable")
def argsort(
    c: Emitter, self: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> Tensor:
    """R.argsort."""
    found: Tensor = sort(c, self, dim, descending)[1]
    return found


@aten("msort")
def msort(c: Emitter, self: Tensor) -> Tensor:
    """R.sort along the first axis."""
    return self if rank_of(self) == 0 else c.op("sort", self, 0)


@aten("topk")
def topk(
    c: Emitter, self: Tensor, k: Any, dim: int = -1, largest: bool = True,
    sorted: bool = True,  # noqa: A002
) -> Any:  # fmt: skip
    """The k greatest or least elements along an axis, and their indices."""
    count = length(k)
    if rank_of(self) == 0:
        return self, number(c, 0, "int64")
    axis = axis_of(self, dim)
    dims = dims_of(self)
    if isinstance(count, int) and count == 0:
        dims[axis] = 0
        return c.op("zeros", dims, dtype_of(self)), c.op("zeros", dims, "int64")
    if isinstance(count, int) and isinstance(dims[axis], int):
        call = c.op("topk", self, count, axis, "both", bool(largest), "int64")
        values, indices = items(c, call)
        return values, indices
    order = c.op("argsort", self, axis, bool(largest), "int64")
    best = c.op("strided_slice", order, [axis], [0], [count], [1])
    return c.op("gather_elements", self, best, axis), best


# Distinct elements


def _named(c: Emitter, x: Expr, rank: int) -> Expr:
    value = Value(x)
    if value.dims is None and c.named_dims(value, rank) is None:
        raise Problem(f"expected a tensor of rank {rank}")
    return c.expr(value)


def _distinct(
    c: Emitter, x: Tensor, axis: int | None, return_inverse: bool, return_counts: bool,
    is_sorted: bool = True,
) -> Any:  # fmt: skip
    flags = [bool(return_inverse), bool(return_counts)]
    dims = dims_of(x)
    given = reshaped(c, x, [-1]) if axis is None else x
    found = c.op("unique", given, is_sorted, False, *flags, axis)
    parts = items(c, found) if any(flags) else [found]
    values = _named(c, parts[0], 1 if axis is None else rank_of(x))
    empty = c.op("zeros", [0], "int64")
    inverse: Any = empty
    counts: Any = empty
    if return_inverse:
        size = dims if axis is None else [dims[axis]]
        inverse = reshaped(c, _as_vector(c, parts[1], given, axis), size)
    if return_counts:
        counts = _named(c, parts[-1], 1)
    return values, inverse, counts


def _as_vector(c: Emitter, x: Expr, like: Tensor, axis: int | None) -> Tensor:
    value = Value(x)
    if value.dims is None:
        c.named_dims(value, 1)
    return value


@aten("_unique2", "unique", "_unique")
def unique(
    c: Emitter, self: Tensor, sorted: bool = True, return_inverse: bool = False,  # noqa: A002
    return_counts: bool = False,
) -> Any:  # fmt: skip
    """R.unique of all elements."""
    return _distinct(c, self, None, return_inverse, return_counts)


@aten("unique_dim")
def unique_dim(
    c: Emitter, self: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False,  # noqa: A002
    return_counts: bool = False,
) -> Any:  # fmt: skip
    """R.unique of slices along an axis; torch returns places and counts in any case."""
    return _distinct(c, self, axis_of(self, dim), True, True)


@aten("unique_consecutive")
def unique_consecutive(
    c: Emitter, self: Tensor, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None,
) -> Any:  # fmt: skip
    """The first of each run of equal elements, or of equal slices along an axis; then torch returns
    places and counts in any case."""
    axis = 0 if dim is None else axis_of(self, dim)
    rows = reshaped(c, self, [-1]) if dim is None else moved(c, self, axis, 0)
    dims = dims_of(rows)
    count = dims[0]
    before = c.op("strided_slice", rows, [0], [0], [-1])
    after = c.op("strided_slice", rows, [0], [1], [_END])
    differs: Tensor = c.op("not_equal", after, before)
    if rank_of(rows) > 1:
        width = numel(dims[1:])
        flat = reshaped(c, cast(c, differs, "int64"), [dims_of(differs)[0], width])
        differs = cast(c, c.op("max", flat, [1], False), "bool") if width != 0 else c.op(
            "zeros", [dims_of(differs)[0]], "bool"
        )
    first = c.op("ones", [prim.minimum(count, 1)], "bool")
    is_first = c.op("concat", [first, differs], 0)
    places = nonzero_places(c, is_first)
    found = dims_of(places)[1]
    starts = reshaped(c, places, [found])
    values = c.op("take", rows, starts, 0)
    inverse: Any = c.op("zeros", [0], "int64")
    counts: Any = inverse
    if return_inverse or dim is not None:
        numbers = c.op("cumsum", cast(c, is_first, "int64"), 0)
        inverse = c.op("subtract", numbers, number(c, 1, "int64"))
        if dim is None:
            inverse = reshaped(c, inverse, dims_of(self))
    if return_counts or dim is not None:
        end = c.op("full", [prim.minimum(count, 1)], c.expr(np.array(0)), "int64")
        end = c.op("add", end, number(c, count, "int64"))
        bounds = c.op("concat", [starts, end], 0)
        counts = c.op("subtract", c.op("strided_slice", bounds, [0], [1], [_END]),
                      c.op("strided_slice", bounds, [0], [0], [-1]))  # fmt: skip
        counts = reshaped(c, counts, [found])
    return (values if dim is None else moved(c, values, 0, axis)), inverse, counts


# Places in sorted vectors


@aten("bucketize.Tensor", "bucketize.Scalar")
def bucketize(
    c: Emitter, self: Any, boundaries: Tensor, out_int32: bool = False, right: bool = False
) -> Tensor:
    """R.bucketize."""
    x, bounds = promoted(c, self, boundaries, dtype=promoted_dtype(self, boundaries))
    # The operator's `right` counts boundaries that are equal; so does torch's.
    return c.op("bucketize", x, bounds, bool(out_int32), bool(right))


@aten("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    c: Emitter, sorted_sequence: Tensor, self: Any, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """How many elements of a sorted row are below a value, or not above it."""
    is_right = right or side == "right"
    values, sequence = promoted(c, self, sorted_sequence,
                                dtype=promoted_dtype(self, sorted_sequence))  # fmt: skip
    if sorter is not None:
        sequence = c.op("gather_elements", sequence, sorter, rank_of(sequence) - 1)
    if rank_of(sequence) == 1:
        return c.op("bucketize", values, sequence, bool(out_int32), is_right)
    dims = dims_of(values)
    wide = reshaped(c, values, [*dims, 1])
    rows = dims_of(sequence)
    row = reshaped(c, sequence, [*rows[:-1], 1, rows[-1]])
    below = c.op("less_equal" if is_right else "less", row, wide)
    dtype = "int32" if out_int32 else "int64"
    return c.op("sum", cast(c, below, dtype), [rank_of(wide) - 1], False)


