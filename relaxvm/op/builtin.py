"""Operators ``relax.builtin.*``: allocation before memory is planned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.expr import (
    Call,
    DataTypeImm,
    Expr,
    ShapeExpr,
    ShapeType,
    StringImm,
    TensorType,
    Type,
    convert_to_expr,
)
from .kinds import IllTyped
from .registry import constructor, make_call, operator

__all__ = ["alloc_tensor", "stop_lift_params"]


def _type_of_alloc(call: Call) -> Type:
    if len(call.args) != 4:
        raise IllTyped(f"expected 4 operands, got {len(call.args)}")
    shape, dtype, _device, _scope = call.args
    if type(shape.ty) is not ShapeType:
        raise IllTyped(f"shape: expected a shape, got {shape} of type {shape.ty}")
    if not isinstance(dtype, DataTypeImm):
        raise IllTyped(f"dtype: expected a data type, got {dtype}")
    return call.ty_args[0] if call.ty_args else TensorType(shape, dtype.value)


@constructor("builtin.alloc_tensor", _type_of_alloc)
def alloc_tensor(
    shape: Any,
    dtype: Any,
    runtime_device_index: Any = 0,
    storage_scope: str | Expr = "global",
    *,
    ty_args: Type | Sequence[Type] = (),
) -> Call:
    """A new tensor with uninitialized elements.

    Args:
        shape: its shape.
        dtype: its data type.
        runtime_device_index: index of the device among those of the VM.
        storage_scope: kind of memory.
        ty_args: its type, if more is known than shape and data type.
    """
    args = (
        shape if isinstance(shape, Expr) else ShapeExpr(shape),
        dtype if isinstance(dtype, Expr) else DataTypeImm(dtype),
        convert_to_expr(runtime_device_index),
        StringImm(storage_scope) if isinstance(storage_scope, str) else storage_scope,
    )
    types = (ty_args,) if isinstance(ty_args, Type) else tuple(ty_args)
    return make_call("builtin.alloc_tensor", args, None, types)


@operator("builtin.stop_lift_params", kernel=False, lower=lambda builder, call: call.args[0])
def stop_lift_params(x: TensorType) -> Type:
    """The tensor itself; the computations before it are not lifted out of the function."""
    return x
