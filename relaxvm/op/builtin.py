"""Operators ``relax.builtin.*``: allocation before memory is planned."""

from __future__ import annotations

from ..ir.expr import TensorType, Type
from .kinds import DTypeValue, Scalar, ShapeLike, StrValue
from .registry import operator

__all__ = ["alloc_tensor", "stop_lift_params"]


@operator("builtin.alloc_tensor", kernel=False)
def alloc_tensor(
    shape: ShapeLike,
    dtype: DTypeValue,
    runtime_device_index: Scalar,
    storage_scope: StrValue = "global",
) -> Type:
    """A new tensor, whose elements are not set."""
    return TensorType(shape, dtype)


@operator("builtin.stop_lift_params", kernel=False, lower=lambda builder, call: call.args[0])
def stop_lift_params(x: TensorType) -> Type:
    """A tensor as it is; what it is computed of is not lifted out of the function."""
    return x
