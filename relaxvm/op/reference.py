"""Operators on references: mutable cells that hold a value.

They have side effects or depend on them, so a function that uses them is not pure.
"""

from __future__ import annotations

from ..ir.adt import RefType
from ..ir.expr import ANY, AnyType, Type
from ..ir.infer import is_base_of
from .kinds import IllTyped, Value
from .registry import operator
from .rules import VOID

__all__ = ["ref", "ref_read", "ref_write"]


def _held(ref: Value) -> Type:
    """The type of what a reference holds."""
    if type(ref.ty) is RefType:
        return ref.ty.value
    if type(ref.ty) is AnyType:
        return ANY
    raise IllTyped(f"ref: expected a reference, got {ref} of type {ref.ty}")


@operator("ref", kernel=False, pure=False)
def ref(value: Value) -> Type:
    """A new reference that holds a value."""
    return RefType(value.ty)


@operator("ref_read", kernel=False, pure=False)
def ref_read(ref: Value) -> Type:
    """The value that a reference holds."""
    return _held(ref)


@operator("ref_write", kernel=False, pure=False)
def ref_write(ref: Value, value: Value) -> Type:
    """Make a reference hold another value of the same type."""
    held = _held(ref)
    if not is_base_of(held, value.ty):
        raise IllTyped(
            f"value: expected {held}, which the reference holds, got {value} of type {value.ty}"
        )
    return VOID
