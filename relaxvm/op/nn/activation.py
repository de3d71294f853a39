"""Activations: functions of one tensor, element by element, and softmax."""

from __future__ import annotations

from typing import Final

from ...ir.expr import Call, Expr, TensorType, TupleType, Type
from ..elementwise import clip, unary
from ..kinds import IllValued
from ..registry import composite, operator
from ..rules import axis_of, need_floats, need_numbers

__all__ = ["dropout", "log_softmax", "relu6", "softmax"]

_ACTIVATIONS: Final[dict[str, str]] = {
    "gelu": "``data * (1 + erf(data / sqrt(2))) / 2``",
    "gelu_tanh": "`gelu`, with tanh for erf: ``sqrt(2 / pi) * (data + 0.044715 * data**3)`` in it.",
    "silu": "``data * sigmoid(data)``",
}

unary("nn.relu", need_numbers, "The greater of data and 0; NaN of NaN.", operand="data")
for _name, _doc in _ACTIVATIONS.items():
    unary(f"nn.{_name}", need_floats, _doc, operand="data")


@composite("nn.relu6")
def relu6(data: Expr) -> Call:
    """data, kept within 0 and 6."""
    call: Call = clip(data, 0, 6)
    return call


@operator("nn.softmax")
def softmax(data: TensorType, axis: int = -1) -> Type:
    """exp(data) / the sum of exp(data) along an axis."""
    need_floats(data=data)
    axis_of("axis", axis, data.ndim)
    return data


@operator("nn.log_softmax")
def log_softmax(data: TensorType, axis: int = -1) -> Type:
    """data - the logarithm of the sum of exp(data) along an axis."""
    need_floats(data=data)
    axis_of("axis", axis, data.ndim)
    return data


@operator("nn.dropout", takes=lambda call: call.args)
def dropout(data: TensorType, rate: float = 0.5) -> Type:
    """data as it is, and a mask of ones: what dropout is when nothing is trained."""
    if not 0 <= rate <= 1:
        raise IllValued(f"rate: expected 0 to 1, got {rate}")
    return TupleType((data, data))
