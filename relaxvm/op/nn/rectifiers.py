"""Activations with parameters: they are made of elementwise operators, or have a kernel."""

from __future__ import annotations

from typing import Any, Final

from ...ir.expr import Call, Expr, TensorType, Type, const
from ..elementwise import where
from ..kinds import Axis, IllValued
from ..registry import CONSTRUCTORS, Unsupported, operator
from ..rules import common_dtype, common_vdevice, differ, like, need_floats

__all__ = ["leakyrelu", "prelu", "selu", "softplus"]

_SELU_ALPHA: Final = 1.6732632423543772
_SELU_SCALE: Final = 1.0507009873554805


def _number(value: float, x: Expr) -> Expr:
    return const(value, x.ty.dtype)


def _lower_leakyrelu(builder: Any, call: Call) -> Expr:
    x = call.args[0]
    if x.ty.dtype is None:
        return call
    is_positive = builder.emit(CONSTRUCTORS["greater"](x, _number(0, x)))
    scaled = builder.emit(CONSTRUCTORS["multiply"](x, _number(call.attrs["alpha"], x)))
    found: Expr = where(is_positive, x, scaled)
    return found


@operator("nn.leakyrelu", lower=_lower_leakyrelu, elementwise=True)
def leakyrelu(data: TensorType, alpha: float = 0.01) -> Type:
    """data where it is positive, else ``data * alpha``."""
    need_floats(data=data)
    return data


def _lower_selu(builder: Any, call: Call) -> Expr:
    x = call.args[0]
    if x.ty.dtype is None:
        return call
    op, zero = CONSTRUCTORS, _number(0, x)
    positive = builder.emit(op["maximum"](x, zero))
    power = builder.emit(op["expm1"](builder.emit(op["minimum"](x, zero))))
    scaled = builder.emit(op["multiply"](power, _number(_SELU_ALPHA, x)))
    total = builder.emit(op["add"](positive, scaled))
    found: Expr = op["multiply"](total, _number(_SELU_SCALE, x))
    return found


@operator("nn.selu", lower=_lower_selu, elementwise=True)
def selu(data: TensorType) -> Type:
    """``scale * data`` where data is positive, else ``scale * alpha * (exp(data) - 1)``; alpha is
    1.67326, scale 1.0507."""
    need_floats(data=data)
    return data


def _lower_softplus(builder: Any, call: Call) -> Expr:
    x = call.args[0]
    if x.ty.dtype is None:
        return call
    op = CONSTRUCTORS
    beta, threshold = _number(call.attrs["beta"], x), _number(call.attrs["threshold"], x)
    scaled = builder.emit(op["multiply"](x, beta))
    is_large = builder.emit(op["greater"](scaled, threshold))
    power = builder.emit(op["exp"](builder.emit(op["minimum"](scaled, threshold))))
    soft = builder.emit(op["divide"](builder.emit(op["log1p"](power)), beta))
    found: Expr = where(is_large, x, soft)
    return found


@operator("nn.softplus", lower=_lower_softplus, elementwise=True)
def softplus(data: TensorType, beta: float = 1.0, threshold: float = 20.0) -> Type:
    """``log(1 + exp(beta * data)) / beta``; data where ``beta * data`` is above the threshold."""
    need_floats(data=data)
    if beta == 0:
        raise IllValued("beta: expected a number other than 0, got 0.0")
    return data


@operator("nn.prelu", loops=Unsupported("The kernel chooses where it multiplies."))
def prelu(data: TensorType, alpha: TensorType, axis: Axis = 1) -> Type:
    """data where it is positive, else ``data * alpha``; alpha has an element for each index of an
    axis of data, or one."""
    need_floats(data=data, alpha=alpha)
    common_dtype(data=data, alpha=alpha)
    vdevice = common_vdevice(data=data, alpha=alpha)
    if alpha.ndim not in (-1, 1):
        raise IllValued(f"alpha: expected a tensor of rank 1, got {alpha}")
    if data.dims is not None and alpha.dims is not None:
        length = alpha.dims[0]
        if differ(length, data.dims[axis]) and getattr(length, "value", 0) != 1:
            raise IllValued(
                f"alpha: expected 1 element, or the {data.dims[axis]} of axis {axis}, got {length}"
            )
    return like(data, vdevice=vdevice)
