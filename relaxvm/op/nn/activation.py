"""Activations that are not elementwise, and relu6; the others are in `relaxvm.elementwise`."""

from __future__ import annotations

from ...ir.expr import Call, Expr, TensorType, TupleType, Type
from ..elementwise import clip
from ..kinds import Axis, IllValued
from ..registry import composite, operator
from ..rules import need_floats

__all__ = ["dropout", "log_softmax", "relu6", "softmax"]

@composite("nn.relu6")
def relu6(data: Expr) -> Call:
    """data limited to the range from 0 to 6."""
    call: Call = clip(data, 0, 6)
    return call


@operator("nn.softmax", loops="nn.softmax")
def softmax(data: TensorType, axis: Axis = -1) -> Type:
    """exp(data) / the sum of exp(data) along an axis."""
    need_floats(data=data)
    return data


@operator("nn.log_softmax", loops="nn.log_softmax")
def log_softmax(data: TensorType, axis: Axis = -1) -> Type:
    """data - the logarithm of the sum of exp(data) along an axis."""
    need_floats(data=data)
    return data


@operator("nn.dropout", loops="nn.dropout", takes=lambda call: call.args)
def dropout(data: TensorType, rate: float = 0.5) -> Type:
    """data unchanged, and a mask of ones: dropout at inference."""
    if not 0 <= rate <= 1:
        raise IllValued(f"rate: expected 0 to 1, got {rate}")
    return TupleType((data, data))
