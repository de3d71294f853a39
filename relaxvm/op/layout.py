"""The operator that changes the layout of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.expr import Call, Expr, TensorType, Type, is_scalar
from ..ir.index_map import IndexMap
from ..ir.infer import infer_type
from ..ir.prim import as_scalar, is_float
from ..messages import describe
from .kinds import IllTyped, IllValued
from .lowering import is_allocatable
from .registry import operator
from .rules import like, without_shape_var

__all__ = ["layout_transform"]


def _arguments(
    x: Expr,
    index_map: IndexMap | Callable[..., Any],
    pad_value: Any = None,
    axis_separators: Sequence[int] | None = None,
    input_axis_separators: Sequence[int] | None = None,
) -> tuple[Any, ...]:
    if not isinstance(index_map, IndexMap):
        if not callable(index_map):
            raise IllTyped(f"index_map: expected a function, got {describe(index_map)}")
        index_map = IndexMap.from_func(index_map)
    return (x, index_map, _padding(x, pad_value), tuple(axis_separators or ()),
            tuple(input_axis_separators or ()))  # fmt: skip


def _padding(x: Expr, value: Any) -> Any:
    """A number as a scalar of the data type of x, where it is one."""
    if value is None or isinstance(value, Expr):
        return value
    ty = infer_type(x).ty if isinstance(x, Expr) else None
    dtype = ty.dtype if type(ty) is TensorType else None
    if dtype is None or (isinstance(value, float) and not is_float(dtype)):
        return as_scalar(value)
    return as_scalar(float(value) if is_float(dtype) else int(value), dtype)


def _as_loops(builder: Any, call: Call) -> Expr:
    if not is_allocatable(call.ty) or call.args[0].ty.dims is None:
        return call
    op: Any = call.op
    found: Expr = builder.call_te(
        op.record.loops.formula, call.args[0], **call.attrs,
        primfunc_name_hint="layout_transform", ty_args=call.ty,
    )  # fmt: skip
    return found


@operator("layout_transform", lower=_as_loops, arguments=_arguments, loops="layout_transform")
def layout_transform(
    x: TensorType,
    index_map: Any,
    pad_value: Any,
    axis_separators: Any,
    input_axis_separators: Any,
) -> Type:
    """x in another layout: the element at ``i`` goes to the place ``index_map(*i)``.

    The result has room for all places that there are; those that no element goes to hold
    `pad_value`.  Without one they are 0, unless a pass leaves out what sets them.  The separators
    are groups of axes, for memory of several dimensions; they have no effect.
    """
    if not isinstance(index_map, IndexMap):
        raise IllTyped(f"index_map: expected an IndexMap, got {describe(index_map)}")
    if pad_value is not None:
        is_number = isinstance(pad_value, Expr) and is_scalar(pad_value)
        if not is_number or (x.dtype is not None and pad_value.ty.dtype != x.dtype):
            raise IllTyped(f"pad_value: expected a number of type {x.dtype}, got {pad_value}")
    given, made = len(index_map.initial_indices), len(index_map.final_indices)
    if x.ndim not in (-1, given):
        raise IllValued(f"index_map: expected one for {x.ndim} dimensions, got {index_map}")
    if x.dims is None:
        return like(without_shape_var(x), None, ndim=made)
    try:
        shape = index_map.map_shape(x.dims)
    except ValueError as error:
        raise IllValued(f"index_map: {error}") from None
    return like(without_shape_var(x), shape)
