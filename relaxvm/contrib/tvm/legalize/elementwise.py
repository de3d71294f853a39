"""Operators that work element by element, and activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ....ir import prim
from ....ir.expr import Expr
from ....ir.prim import as_scalar, is_float
from ....te import Tensor, compute, topi
from ....te.topi import basic
from ....tir import intrinsics
from .rules import loops

__all__: list[str] = []

_UNARY = (
    "acos acosh asin asinh atan atanh bitwise_not ceil cos cosh exp floor "
    "log logical_not negative rsqrt sigmoid sin sinh sqrt tan tanh trunc"
)
for _name in _UNARY.split():
    loops(_name, hint=f"tir_{_name}")(getattr(topi, _name))

_BINARY = (
    "add subtract multiply divide power equal greater greater_equal less less_equal not_equal "
    "maximum minimum logical_and logical_or bitwise_and bitwise_or bitwise_xor left_shift "
    "right_shift atan2"
)
for _name in _BINARY.split():
    loops(_name)(getattr(topi, _name))


def _each(formula: Callable[[Expr], Any]) -> Callable[..., Tensor]:
    """A formula for each element."""

    def make(x: Tensor) -> Tensor:
        names = [f"i{k}" for k in range(x.ndim)]
        return compute(x.shape, lambda *i: formula(x[i]), "compute", varargs_names=names)

    return make


def _like(value: float, e: Expr) -> Expr:
    number: Expr = as_scalar(float(value) if is_float(e.dtype) else int(value), e.dtype)
    return number


def _cast_each(x: Tensor, dtype: str) -> Any:
    return _each(lambda e: prim.cast(e, dtype))(x)


@loops("erf")
def _erf(x: Tensor) -> Any:
    """Of float16 in float32."""
    if x.dtype != "float16":
        return topi.erf(x)
    return _cast_each(topi.erf(_cast_each(x, "float32")), x.dtype)


loops("round", hint="tir_round")(_each(intrinsics.nearbyint))


def _is_infinite(e: Expr) -> Any:
    return prim.equal(intrinsics.abs(e), intrinsics.infinity(e.dtype))


@loops("isnan", hint="tir_isnan")
@_each
def _isnan(e: Expr) -> Any:
    return intrinsics.isnan(prim.cast(e, "float32") if e.dtype == "float16" else e)


@loops("isinf", hint="tir_isinf")
@_each
def _isinf(e: Expr) -> Any:
    return prim.logical_and(_is_infinite(e), prim.logical_not(intrinsics.isnan(e)))


@loops("isfinite", hint="tir_isfinite")
@_each
def _isfinite(e: Expr) -> Any:
    nan = intrinsics.isnan(e)
    return prim.logical_and(
        prim.logical_or(prim.NE(intrinsics.abs(e), intrinsics.infinity(e.dtype)), nan),
        prim.logical_not(nan),
    )


@loops("abs", hint="tir_abs")
@_each
def _abs(e: Expr) -> Any:
    if is_float(e.dtype):
        return intrinsics.abs(e)
    return prim.select(prim.cast(e, "int64") >= 0, e, _like(0, e) - e)


loops("square", hint="tir_square")(_each(lambda e: e * e))


@loops("sign", hint="tir_sign")
@_each
def _sign(e: Expr) -> Any:
    below = prim.select(e < _like(0, e), _like(-1, e), _like(0, e))
    return prim.select(e > _like(0, e), _like(1, e), below)


def _floor_mod(a: Expr, b: Expr) -> Any:
    if not is_float(a.dtype):
        return prim.floormod(a, b)
    return a - intrinsics.floor(intrinsics.div(a, b)) * b


def _floor_divide(a: Expr, b: Expr) -> Any:
    return intrinsics.floor(intrinsics.div(a, b)) if is_float(a.dtype) else prim.floordiv(a, b)


loops("floor_mod")(basic._binary("floor_mod", _floor_mod, ""))
loops("floor_divide")(basic._binary("floor_divide", _floor_divide, ""))
loops("mod")(basic._binary("mod", prim.truncmod, ""))
loops("log_add_exp")(
    basic._binary(
        "log_add_exp",
        lambda a, b: intrinsics.log(intrinsics.exp(a) + intrinsics.exp(b)),
        "",
    )
)
loops("logical_xor")(basic._binary("logical_xor", prim.BitwiseXor, ""))


@loops("clip", hint="tir_clip")
def _clip(x: Tensor, low: Any, high: Any) -> Any:
    least, most = (prim.cast(as_scalar(each), x.dtype) for each in (low, high))
    return _each(lambda e: intrinsics.max(intrinsics.min(e, most), least))(x)


@loops("astype", hint="cast")
def _astype(x: Tensor, dtype: str) -> Any:
    return topi.cast(x, dtype)


@loops("where")
def _where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """TVM compares the condition with 0 as an int64."""
    shape = list(condition.shape)
    for each in (x, y):
        shape = basic.broadcast_shape(shape, each.shape, "where")

    def element(*i: Expr) -> Any:
        test, a, b = (basic._element(each, i, shape) for each in (condition, x, y))
        if test.dtype == "bool":
            test = prim.cast(test, "int64")
        return prim.select(test > _like(0, test), a, b)

    return compute(shape, element, "T_where", varargs_names=[f"ax{k}" for k in range(len(shape))])


# Activations


loops("nn.relu")(topi.nn.relu)


@loops("nn.gelu")
def _gelu(x: Tensor) -> Any:
    inner = _erf(topi.multiply(x, math.sqrt(0.5)))
    return topi.multiply(x, topi.add(0.5, topi.multiply(inner, 0.5)))


@loops("nn.gelu_tanh")
def _gelu_tanh(x: Tensor) -> Any:
    half = topi.multiply(0.5, x)
    scaled = topi.multiply(math.sqrt(2 / math.pi), x)
    cubic = topi.add(1.0, topi.multiply(topi.multiply(0.044715, x), x))
    return topi.multiply(half, topi.add(1.0, topi.tanh(topi.multiply(scaled, cubic))))


@loops("nn.silu")
def _silu(x: Tensor) -> Any:
    return topi.multiply(x, topi.sigmoid(x))


@loops("nn.selu")
def _selu(x: Tensor) -> Any:
    curve = topi.multiply(1.6732632423543772, topi.subtract(topi.exp(x), 1.0))
    return topi.multiply(
        1.0507009873554805, topi.add(topi.maximum(x, 0.0), topi.minimum(0.0, curve))
    )


@loops("nn.softplus")
def _softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Any:
    scale, most = as_scalar(beta, x.dtype), as_scalar(threshold, x.dtype)

    def element(e: Expr) -> Any:
        scaled = e if beta == 1 else scale * e
        soft = intrinsics.log(_like(1, e) + intrinsics.exp(scaled))
        if beta != 1:
            soft = as_scalar(1 / beta, x.dtype) * soft
        return prim.select(scaled > most, e, soft)

    return _each(element)(x)


@loops("nn.leakyrelu", hint="leaky_relu")
def _leaky_relu(x: Tensor, alpha: float) -> Any:
    return topi.nn.leaky_relu(x, alpha)


@loops("nn.prelu")
def _prelu(x: Tensor, slope: Tensor, axis: int) -> Any:
    return topi.nn.prelu(x, slope, axis)


@loops("quantize")
def _quantize(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, out_dtype: str) -> Tensor:
    least: Any = intrinsics.min_value(out_dtype)
    most: Any = intrinsics.max_value(out_dtype)

    def element(*i: Expr) -> Any:
        by, zero = (_of_channel(each, i, axis) for each in (scale, zero_point))
        value = intrinsics.round(x[i] / by) + prim.cast(zero, x.dtype)
        low, high = (as_scalar(float(each.value), value.dtype) for each in (least, most))
        return prim.cast(intrinsics.max(intrinsics.min(value, high), low), out_dtype)

    names = [f"i{k}" for k in range(x.ndim)]
    return compute(x.shape, element, "quantized", varargs_names=names)


@loops("dequantize")
def _dequantize(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, out_dtype: str) -> Tensor:
    within = out_dtype if is_float(x.dtype) else "int32"

    def element(*i: Expr) -> Any:
        by, zero = (_of_channel(each, i, axis) for each in (scale, zero_point))
        difference = prim.cast(x[i], within) - prim.cast(zero, within)
        value = prim.cast(difference, "float32") * prim.cast(by, "float32")
        if out_dtype == "float16":
            most = as_scalar(65504.0, "float32")
            value = intrinsics.max(intrinsics.min(value, most), as_scalar(-65504.0, "float32"))
        return prim.cast(value, out_dtype)

    names = [f"i{k}" for k in range(x.ndim)]
    return compute(x.shape, element, "dequantized", varargs_names=names)


def _of_channel(value: Any, i: tuple[Expr, ...], axis: int) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value[()] if value.ndim == 0 else value[i[axis]]
