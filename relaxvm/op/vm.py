"""Operators ``relax.vm.*``: calls of the VM's own functions."""

from __future__ import annotations

from ..ir.expr import ANY, ShapeType, TensorType, TupleType, Type
from .kinds import DTypeValue, IllTyped, Scalar, ShapeLike, StrValue, Value
from .registry import operator
from .rules import VOID

__all__ = ["alloc_storage", "alloc_tensor", "call_tir_dyn", "kill_object"]


@operator("vm.alloc_storage", kernel=False)
def alloc_storage(
    shape: ShapeLike,
    runtime_device_index: Scalar,
    dtype: DTypeValue,
    storage_scope: StrValue = "global",
) -> Type:
    """Memory of a size in bytes, or of a shape."""
    return ANY


@operator("vm.alloc_tensor", kernel=False)
def alloc_tensor(
    storage: Value,
    offset: Scalar,
    shape: ShapeLike,
    dtype: DTypeValue,
    runtime_device_ind: Scalar = 0,
) -> Type:
    """A tensor in memory, at an offset in bytes."""
    ty = shape.ty
    if ty.values is not None:
        return TensorType(ty.values, dtype)
    return TensorType(None, dtype, ndim=ty.ndim)


@operator("vm.kill_object", kernel=False, pure=False)
def kill_object(obj: Value) -> Type:
    """End of the use of a value."""
    return VOID


@operator("vm.call_tir_dyn", kernel=False, pure=False)
def call_tir_dyn(func: Value, args: Value) -> Type:
    """Call a PrimFunc with tensors and, as the last argument, a shape, whose dimensions are passed
    as integers."""
    if type(args.ty) is not TupleType or not args.ty.fields:
        raise IllTyped(f"args: expected a tuple that ends in a shape, got {args}")
    if type(args.ty.fields[-1]) is not ShapeType:
        raise IllTyped(
            f"args: expected a shape as the last, got a value of type {args.ty.fields[-1]}"
        )
    return VOID
