"""Formulas of operators that gather elements, and of triangles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir import prim
from ..ir.arith import simplify
from ..ir.expr import Expr
from ..ir.prim import as_scalar
from ..op.index import slice_of
from ..tir import intrinsics
from .tensor import Tensor, compute

__all__ = [
    "gather_elements",
    "gather_nd",
    "index_tensor",
    "one_hot",
    "reverse_sequence",
    "slice_scatter",
    "triangle",
]


def _from_front(index: Expr, length: Expr) -> Expr:
    """An index counted from the front."""
    index = prim.cast(index, "int64")
    found: Expr = prim.select(index < 0, index + length, index)
    return found


def gather_elements(data: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """The formula of ``gather_elements``."""
    axis %= data.ndim

    def element(*i: Expr) -> Expr:
        place = _from_front(indices[i], data.shape[axis])
        return data[(*i[:axis], place, *i[axis + 1 :])]

    return compute(indices.shape, element, "T_gather_elements")


def gather_nd(data: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """The formula of ``gather_nd``."""
    rank = indices.ndim - 1
    count = int(indices.shape[-1])  # type: ignore[call-overload]
    end = batch_dims + count

    def element(*i: Expr) -> Expr:
        places = [
            _from_front(indices[(*i[:rank], k)], data.shape[batch_dims + k]) for k in range(count)
        ]
        return data[(*i[:batch_dims], *places, *i[rank:])]

    return compute([*indices.shape[:-1], *data.shape[end:]], element, "T_gather_nd")


def index_tensor(data: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """The formula of ``index_tensor``."""
    rank = max(each.ndim for each in indices)
    shape: list[Expr] = []
    for i in range(rank):
        dims = [each.shape[i - rank + each.ndim] for each in indices if i >= rank - each.ndim]
        shape.append(next((dim for dim in dims if not _is_one(dim)), dims[0]))

    def element(*i: Expr) -> Expr:
        places = []
        for each, length in zip(indices, data.shape, strict=False):
            at = i[rank - each.ndim : rank]
            own = [
                as_scalar(0, "int64") if _is_one(dim) else index
                for dim, index in zip(each.shape, at, strict=True)
            ]
            places.append(_from_front(each[tuple(own)], length))
        return data[(*places, *i[rank:])]

    return compute([*shape, *data.shape[len(indices) :]], element, "T_index_tensor")


def _is_one(dim: Expr) -> bool:
    return getattr(dim, "value", None) == 1


def reverse_sequence(
    data: Tensor, seq_lengths: Tensor, seq_axis: int = 1, batch_axis: int = 0
) -> Tensor:
    """The formula of ``reverse_sequence``."""
    seq_axis, batch_axis = seq_axis % data.ndim, batch_axis % data.ndim

    def element(*i: Expr) -> Expr:
        length = prim.cast(seq_lengths[i[batch_axis]], "int64")
        at = i[seq_axis]
        place = prim.select(at < length, length - 1 - at, at)
        return data[(*i[:seq_axis], place, *i[seq_axis + 1 :])]

    return compute(data.shape, element, "T_reverse_sequence")


def slice_scatter(
    input_tensor: Tensor, src: Tensor, start: Expr, end: Expr, step: Expr, axis: int = 0
) -> Tensor:
    """The formula of ``slice_scatter``."""
    axis %= input_tensor.ndim
    by = int(step)  # type: ignore[call-overload]
    first, count = slice_of(input_tensor.shape[axis], start, end, by, assume_inbound=False)

    def element(*i: Expr) -> Any:
        offset: Any = i[axis] - first
        place = prim.floordiv(offset, by)
        inside = prim.logical_and(offset >= 0, place < count)
        if by != 1:
            inside = prim.logical_and(inside, prim.equal(prim.floormod(offset, by), 0))
        return intrinsics.if_then_else(
            inside, src[(*i[:axis], place, *i[axis + 1 :])], input_tensor[i]
        )

    return compute(input_tensor.shape, element, "T_slice_scatter")


def one_hot(indices: Tensor, on_value: Expr, off_value: Expr, depth: int, axis: int = -1) -> Tensor:
    """The formula of ``one_hot``."""
    axis %= indices.ndim + 1

    def element(*i: Expr) -> Any:
        index = indices[(*i[:axis], *i[axis + 1 :])]
        place = prim.cast(i[axis], "int64")
        return prim.select(prim.equal(prim.cast(index, "int64"), place), on_value, off_value)

    shape = [*indices.shape[:axis], as_scalar(depth, "int64"), *indices.shape[axis:]]
    return compute([simplify(dim) for dim in shape], element, "T_one_hot")


def triangle(keeps: Callable[[Any, Any], Any]) -> Callable[..., Tensor]:
    """The formula of ``tril`` and ``triu``: `keeps` takes column and diagonal of an element."""

    def make(x: Tensor, k: Expr) -> Tensor:
        def element(*i: Expr) -> Any:
            line = i[-2] + prim.cast(k, "int64")
            return prim.select(keeps(i[-1], line), x[i], as_scalar(0, x.dtype))

        return compute(x.shape, element, "T_triangle")

    return make
