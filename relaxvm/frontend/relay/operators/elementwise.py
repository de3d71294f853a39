"""Operators that work element by element."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from .... import op
from ....ir import Expr
from .operands import as_bool, axis_of, dtype_of, rank_of, scalar_like
from .table import Make, relay

__all__ = ["RENAMED", "along"]

_SAME: Final = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "cos"),
    *("cosh", "erf", "exp", "floor", "isfinite", "isinf", "isnan", "log", "logical_not"),
    *("negative", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh"),
    *("trunc", "nn.relu", "add", "bitwise_and", "bitwise_or", "bitwise_xor", "divide", "equal"),
    *("floor_divide", "floor_mod", "greater", "greater_equal", "left_shift", "less", "less_equal"),
    *("logical_and", "logical_or", "logical_xor", "maximum", "minimum", "mod", "multiply"),
    *("not_equal", "power", "right_shift", "subtract", "nn.cross_entropy_with_logits"),
)

RENAMED: Final = {
    **{name: name for name in _SAME},
    "fast_erf": "erf",
    "fast_exp": "exp",
    "fast_tanh": "tanh",
    "trunc_mod": "mod",
}
"""Operators of Relay without attributes -> operators of relaxvm with the same operands."""


def _maker(name: str) -> Any:
    made: Any = op
    for part in name.split("."):
        made = getattr(made, part)
    return made


def _renamed(name: str) -> Make:
    make = _maker(name)
    if len(op.OPERATORS[name].parameters) == 1:
        return lambda x: make(x)
    return lambda x, y: make(x, y)


for _relay_name, _own_name in RENAMED.items():
    relay(_relay_name)(_renamed(_own_name))


def _in_range(x: Expr, value: Any, what: str) -> float:
    """A bound, limited to what the data type of a tensor of integers can hold."""
    if not isinstance(value, (int, float)):
        raise TypeError(f"{what}: expected a number, got {value!r}")
    dtype = np.dtype(dtype_of(x)) if dtype_of(x)[:3] in ("int", "uin") else None
    if dtype is None:
        return float(value)
    bounds = np.iinfo(dtype)
    return int(min(max(value, bounds.min), bounds.max))


@relay("clip")
def _clip(x: Expr, *, a_min: float, a_max: float) -> Any:
    return op.clip(x, _in_range(x, a_min, "a_min"), _in_range(x, a_max, "a_max"))


@relay("cast")
def _cast(x: Expr, *, dtype: str) -> Any:
    return op.astype(x, dtype)


@relay("cast_like")
def _cast_like(x: Expr, like: Expr) -> Any:
    return _cast(x, dtype=dtype_of(like))


@relay("copy", "annotation.stop_fusion", "annotation.checkpoint", "annotation.cast_hint")
def _copy(x: Expr) -> Any:
    return x


@relay("on_device", "device_copy")
def _on_device(
    x: Expr,
    *,
    virtual_device: Any = None,
    src_virtual_device: Any = None,
    dst_virtual_device: Any = None,
    src_dev_type: Any = None,
    dst_dev_type: Any = None,
    constrain_result: Any = None,
    constrain_body: Any = None,
) -> Any:
    return x


@relay("log2")
def _log2(x: Expr) -> Any:
    return op.divide(op.log(x), scalar_like(x, math.log(2)))


@relay("log10")
def _log10(x: Expr) -> Any:
    return op.divide(op.log(x), scalar_like(x, math.log(10)))


@relay("trunc_divide")
def _trunc_divide(x: Expr, y: Expr) -> Any:
    quotient = op.divide(x, y)
    return quotient if dtype_of(x)[:3] in ("int", "uin") else op.trunc(quotient)


@relay("nn.leaky_relu")
def _leaky_relu(x: Expr, *, alpha: float = 0.25) -> Any:
    scaled = op.multiply(x, scalar_like(x, alpha))
    return op.where(op.greater(x, scalar_like(x, 0)), x, scaled)


@relay("nn.prelu")
def _prelu(x: Expr, alpha: Expr, *, axis: int = 1) -> Any:
    scaled = op.multiply(x, along(alpha, axis, x))
    return op.where(op.greater(x, scalar_like(x, 0)), x, scaled)


def along(vector: Expr, axis: int, x: Expr) -> Any:
    """A vector with an element for each index of an axis of x, so that it broadcasts to x."""
    after = rank_of(x) - axis_of(axis, rank_of(x)) - 1
    return vector if not after else op.expand_dims(vector, list(range(1, after + 1)))


@relay("nn.bias_add")
def _bias_add(x: Expr, bias: Expr, *, axis: int = 1) -> Any:
    return op.add(x, along(bias, axis, x))


@relay("where")
def _where(condition: Expr, x: Expr, y: Expr) -> Any:
    return op.where(as_bool(condition), x, y)


@relay("zeros_like")
def _zeros_like(x: Expr) -> Any:
    return op.zeros_like(x)


@relay("ones_like")
def _ones_like(x: Expr) -> Any:
    return op.ones_like(x)
