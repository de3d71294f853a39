"""Dimensions of operands that must be equal.

Relay takes two dimensions that are ``?`` for equal where an operator needs that, and checks it when
the program runs.  In relaxvm they are different symbols, so one operand is cast to have the
dimension of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....ir import Expr, IntImm, TensorType, Tuple, TupleGetItem, TupleType, structural_equal

__all__ = [
    "Cast",
    "Equal",
    "all_but_axis",
    "all_dims",
    "batch_dims",
    "channels",
    "with_equal_dims",
]

Place = tuple[int, int | None, int]
"""A dimension: the number of an operand, of a field if the operand is a tuple, and of the axis."""
Equal = Callable[[Sequence[Expr], Mapping[str, Any]], list[list[Place]]]
"""From operands and attributes to groups of dimensions that must be equal."""
Cast = Callable[[Expr, TensorType], Expr]


def with_equal_dims(
    args: Sequence[Expr], groups: Sequence[Sequence[Place]], cast: Cast
) -> Sequence[Expr]:
    """Return operands with casts where dimensions that must be equal are not known to be."""
    new: dict[tuple[int, int | None], dict[int, Expr]] = {}
    for group in groups:
        dims = [(place, _dim(args, place)) for place in group]
        known = [dim for _, dim in dims if isinstance(dim, IntImm)]
        first = dims[0][1] if dims else None
        if first is None or any(dim is None for _, dim in dims):
            continue
        wanted = known[0] if known else first
        for (operand, field, axis), dim in dims:
            if not isinstance(dim, IntImm) and not structural_equal(dim, wanted):
                new.setdefault((operand, field), {})[axis] = wanted
    if not new:
        return args
    found = list(args)
    for (operand, field), changes in new.items():
        whole = found[operand]
        part = whole if field is None else _field(whole, field)
        made = cast(part, _with_dims(part.ty, changes))
        if field is not None:
            fields = [_field(whole, i) for i in range(len(whole.ty.fields))]
            fields[field] = made
            made = Tuple(fields)
        found[operand] = made
    return found


def _field(whole: Expr, position: int) -> Expr:
    if isinstance(whole, Tuple):
        return whole.fields[position]
    return TupleGetItem(whole, position)


def _dim(args: Sequence[Expr], place: Place) -> Expr | None:
    operand, field, axis = place
    ty = args[operand].ty
    if field is not None:
        ty = ty.fields[field]
    return ty.dims[axis] if isinstance(ty, TensorType) and ty.dims is not None else None


def _with_dims(ty: TensorType, changes: Mapping[int, Expr]) -> TensorType:
    assert ty.dims is not None
    return TensorType([changes.get(i, dim) for i, dim in enumerate(ty.dims)], ty.dtype)


# Which dimensions


def _fields(args: Sequence[Expr]) -> Sequence[TensorType]:
    """The types of tensors of one rank that are the fields of the operand; none if it is not so,
    which the operator reports."""
    ty = args[0].ty
    if not isinstance(ty, TupleType) or not ty.fields:
        return ()
    fields = [field for field in ty.fields if isinstance(field, TensorType)]
    if len(fields) < len(ty.fields) or len({field.ndim for field in fields}) > 1:
        return ()
    return fields


def all_dims(args: Sequence[Expr], attrs: Mapping[str, Any]) -> list[list[Place]]:
    """All dimensions of tensors in a tuple."""
    fields = _fields(args)
    rank = fields[0].ndim if fields else 0
    return [[(0, i, axis) for i in range(len(fields))] for axis in range(rank)]


def all_but_axis(args: Sequence[Expr], attrs: Mapping[str, Any]) -> list[list[Place]]:
    """All dimensions of tensors in a tuple but one."""
    groups, axis = all_dims(args, attrs), attrs["axis"]
    if not -len(groups) <= axis < len(groups):
        return []
    del groups[axis]
    return groups


def batch_dims(args: Sequence[Expr], attrs: Mapping[str, Any]) -> list[list[Place]]:
    """The dimensions of two stacks of matrices but the last two; 1 is broadcast."""
    types = [arg.ty for arg in args]
    if not all(isinstance(ty, TensorType) for ty in types) or types[0].ndim != types[1].ndim:
        return []
    groups: list[list[Place]] = [[(0, None, i), (1, None, i)] for i in range(types[0].ndim - 2)]
    return [group for group in groups if not any(_is_one(_dim(args, place)) for place in group)]


def _is_one(dim: Expr | None) -> bool:
    return isinstance(dim, IntImm) and dim.value == 1


def channels(args: Sequence[Expr], attrs: Mapping[str, Any]) -> list[list[Place]]:
    """A dimension of the first operand, and the vectors that are the others."""
    types, axis = [arg.ty for arg in args], attrs["axis"]
    if not all(isinstance(ty, TensorType) for ty in types) or (
        any(ty.ndim != 1 for ty in types[1:]) or not -types[0].ndim <= axis < types[0].ndim
    ):
        return []
    vectors: list[Place] = [(i, None, 0) for i in range(1, len(types))]
    return [[(0, None, axis % types[0].ndim), *vectors]]
