"""The distinct elements of tensors, and the places of elements that are not zero."""

from __future__ import annotations

from typing import Any

from ..ir.expr import Call, Expr, IntImm, TensorType, TupleType, Type
from .base import null_value, run
from .kinds import IllTyped, IllValued, Scalar, axis_of
from .registry import operator
from .rules import like

__all__ = ["nonzero", "unique"]


@operator("nonzero", lower=run)
def nonzero(x: TensorType) -> Type:
    """The places of the elements that are not zero, in row-major order: an int64 matrix with a row
    for each axis of x, one row if x has rank 0."""
    return like(x, None, dtype="int64", ndim=2)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, IntImm):
        raise IllTyped(f"{name}: expected a known bool, got {value} of type {value.ty}")
    return bool(value.value)


def _with_axis(builder: Any, call: Call) -> Expr:
    if len(call.args) < 6:
        call = Call(call.op, [*call.args, null_value()], None, (), ret_ty=call.ty, span=call.span)
    return run(builder, call)


@operator("unique", lower=_with_axis)
def unique(
    x: TensorType,
    sorted: Scalar = True,  # noqa: A002
    return_index: Scalar = False,
    return_inverse: Scalar = False,
    return_counts: Scalar = False,
    axis: Scalar | None = None,
) -> Type:
    """The distinct elements of x, a vector; with an axis, the distinct slices along it.

    They are in increasing order, or with ``sorted=False`` in the order of their first occurrence.
    With `return_index`, `return_inverse` or `return_counts`, the result is a tuple, and has the
    places where they occur first, for each element or slice of x the place of its equal in the
    result, and how often each occurs: vectors of int64.
    """
    _flag("sorted", sorted)
    flags = {
        "return_index": return_index,
        "return_inverse": return_inverse,
        "return_counts": return_counts,
    }
    count = sum(_flag(name, value) for name, value in flags.items())
    if axis is not None:
        if not isinstance(axis, IntImm):
            raise IllValued(f"axis: expected a known integer, got {axis}")
        axis_of("axis", axis.value, x.ndim)
    values = like(x, None, ndim=1 if axis is None else x.ndim)
    if not count:
        return values
    return TupleType((values, *[like(x, None, dtype="int64", ndim=1)] * count))
