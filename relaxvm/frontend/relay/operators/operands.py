"""Facts of operands, for the functions of the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .... import op
from ....ir import Constant, Expr, TensorType, TupleType
from ....ir import const as constant

__all__ = [
    "as_bool",
    "axes_of",
    "axis_of",
    "dims_of",
    "dtype_of",
    "integers_of",
    "items_of",
    "number_of",
    "or_none",
    "rank_of",
    "scalar_like",
    "tensor_of",
]


def tensor_of(x: Expr) -> TensorType:
    if not isinstance(x.ty, TensorType):
        raise TypeError(f"expected a tensor, got a value of type {x.ty}")
    if x.ty.ndim < 0 or x.ty.dtype is None:
        raise TypeError(f"expected a tensor of known rank and data type, got {x.ty}")
    return x.ty


def rank_of(x: Expr) -> int:
    return tensor_of(x).ndim


def dtype_of(x: Expr) -> str:
    dtype = tensor_of(x).dtype
    assert dtype is not None
    return dtype


def dims_of(x: Expr) -> Sequence[Expr]:
    """The dimensions of a tensor; expressions of its shape where the type does not have them."""
    ty = tensor_of(x)
    if ty.dims is None:
        raise TypeError(f"expected a tensor whose dimensions are known or named, got {ty}")
    return ty.dims


def axis_of(axis: Any, rank: int) -> int:
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise TypeError(f"axis: expected a number, got {axis!r}")
    if not rank and axis not in (0, -1):
        raise ValueError(f"axis: the tensor has no dimensions, got {axis}")
    if not -rank <= axis < max(rank, 1) and rank:
        raise ValueError(f"axis: expected {-rank} to {rank - 1}, got {axis}")
    return axis % rank if rank else 0


def axes_of(axis: Any, x: Expr, exclude: bool) -> list[int] | None:
    rank = rank_of(x)
    if axis is None or axis == []:
        if exclude and axis is not None:
            return list(range(rank))
        return None
    axes = [axis_of(a, rank) for a in (axis if isinstance(axis, list) else [axis])]
    return [a for a in range(rank) if a not in axes] if exclude else axes


def integers_of(value: Any, what: str) -> list[int]:
    """A list of integers that an attribute is; one integer is a list of it."""
    items = value if isinstance(value, list) else [value]
    if any(not isinstance(item, int) or isinstance(item, bool) for item in items):
        raise TypeError(f"{what}: expected integers, got {value!r}")
    return list(items)


def number_of(x: Expr, what: str) -> Any:
    """The number that a constant of rank 0 is."""
    if isinstance(x, Constant) and x.data.size == 1:
        return x.data.item()
    raise TypeError(f"{what}: expected a constant number, which is known when the program is "
                    "compiled")  # fmt: skip


def or_none(dtype: str | None) -> str | None:
    return dtype or None


def scalar_like(x: Expr, value: float) -> Constant:
    dtype = dtype_of(x)
    return constant(np.array(value).astype(dtype), dtype)


def items_of(tensors: Expr) -> Any:
    if isinstance(tensors.ty, TupleType):
        return list(tensors)
    raise TypeError(f"expected a tuple of tensors, got a value of type {tensors.ty}")


def as_bool(x: Expr) -> Any:
    return x if dtype_of(x) == "bool" else op.not_equal(x, scalar_like(x, 0))
