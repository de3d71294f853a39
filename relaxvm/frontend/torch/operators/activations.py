"""Activations and softmax."""

from __future__ import annotations

import math
from typing import Any

from ...common.emitter import Emitter, Problem
from ..forms import (
    Tensor,
    axis_of,
    cast,
    dims_of,
    dtype_of,
    each_of,
    is_float,
    number,
    rank_of,
    reshaped,
    sliced,
)
from ..registry import aten

__all__ = ["log_sigmoid_of"]


@aten("relu")
def relu(c: Emitter, self: Tensor) -> Tensor:
    """R.nn.relu."""
    return c.op("nn.relu", self)


@aten("relu6")
def relu6(c: Emitter, self: Tensor) -> Tensor:
    """x limited to 0 and 6."""
    return hardtanh(c, self, 0, 6)


@aten("hardtanh")
def hardtanh(c: Emitter, self: Tensor, min_val: Any = -1, max_val: Any = 1) -> Tensor:
    """x limited to two numbers."""
    dtype = dtype_of(self)
    low, high = number(c, min_val, dtype), number(c, max_val, dtype)
    return c.op("minimum", c.op("maximum", self, low), high)


@aten("leaky_relu")
def leaky_relu(c: Emitter, self: Tensor, negative_slope: Any = 0.01) -> Tensor:
    """x where it is positive, else x * negative_slope."""
    dtype = dtype_of(self)
    below = c.op("multiply", self, number(c, negative_slope, dtype))
    return c.op("where", c.op("greater", self, number(c, 0, dtype)), self, below)


@aten("rrelu", "rrelu_with_noise")
def rrelu(
    c: Emitter, self: Tensor, noise: Tensor | None = None, lower: Any = 0.125, upper: Any = 1 / 3,
    training: bool = False, generator: Any = None,
) -> Tensor:  # fmt: skip
    """leaky_relu with the mean slope, outside of training."""
    if training:
        raise Problem("rrelu in training is not supported")
    return leaky_relu(c, self, (lower + upper) / 2)


@each_of("prelu", "_prelu_kernel")
def prelu(name: str, c: Emitter, self: Tensor, weight: Tensor) -> Tensor:
    """x where it is positive, else x * weight, which has an element for each channel."""
    dtype = dtype_of(self)
    if name == "prelu" and rank_of(weight) == 1:
        after = max(rank_of(self) - 2, 0)
        weight = reshaped(c, weight, [*dims_of(weight), *[1] * after])
        if rank_of(self) == 0:
            weight = reshaped(c, weight, [])
    below = c.op("multiply", self, weight)
    return c.op("where", c.op("greater", self, number(c, 0, dtype)), self, below)


@aten("elu")
def elu(c: Emitter, self: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Tensor:
    """scale * x where it is positive, else scale * alpha * (exp(input_scale * x) - 1)."""
    dtype = dtype_of(self)
    bent = self if input_scale == 1 else c.op("multiply", self, number(c, input_scale, dtype))
    if input_scale > 0:  # exp of large numbers, which is not used, overflows
        bent = c.op("minimum", bent, number(c, 0, dtype))
    below = c.op("expm1", bent)
    if alpha * scale != 1:
        below = c.op("multiply", below, number(c, alpha * scale, dtype))
    above = self if scale == 1 else c.op("multiply", self, number(c, scale, dtype))
    return c.op("where", c.op("greater", self, number(c, 0, dtype)), above, below)


@aten("selu")
def selu(c: Emitter, self: Tensor) -> Tensor:
    """elu with two constants."""
    return elu(c, self, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@aten("celu")
def celu(c: Emitter, self: Tensor, alpha: Any = 1.0) -> Tensor:
    """x where it is positive, else alpha * (exp(x / alpha) - 1)."""
    return elu(c, self, alpha, 1, 1 / alpha)


@aten("silu")
def silu(c: Emitter, self: Tensor) -> Tensor:
    """R.nn.silu."""
    return c.op("nn.silu", self)


@aten("gelu")
def gelu(c: Emitter, self: Tensor, approximate: str = "none") -> Tensor:
    """R.nn.gelu, or R.nn.gelu_tanh."""
    if approximate not in ("none", "tanh"):
        raise Problem(f"approximate: expected none or tanh, got {approximate!r}")
    return c.op("nn.gelu_tanh" if approximate == "tanh" else "nn.gelu", self)


@aten("mish")
def mish(c: Emitter, self: Tensor) -> Tensor:
    """x * tanh(softplus(x))."""
    return c.op("multiply", self, c.op("tanh", _softplus(c, self)))


def _softplus(c: Emitter, x: Tensor) -> Tensor:
    return c.op("log_add_exp", x, number(c, 0, dtype_of(x)))


@aten("softplus")
def softplus(c: Emitter, self: Tensor, beta: Any = 1, threshold: Any = 20) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x where beta * x is above the threshold."""
    dtype = dtype_of(self)
    bent = self if beta == 1 else c.op("multiply", self, number(c, beta, dtype))
    found = _softplus(c, bent)
    if beta != 1:
        found = c.op("divide", found, number(c, beta, dtype))
    return c.op("where", c.op("greater", bent, number(c, threshold, dtype)), self, found)


def log_sigmoid_of(c: Emitter, x: Tensor) -> Tensor:
    """-log(1 + exp(-x))."""
    return c.op("negative", _softplus(c, c.op("negative", x)))


@aten("log_sigmoid")
def log_sigmoid(c: Emitter, self: Tensor) -> Tensor:
    """-log(1 + exp(-x))."""
    return log_sigmoid_of(c, self)


@aten("log_sigmoid_forward")
def log_sigmoid_forward(c: Emitter, self: Tensor) -> Any:
    """The same, with zeros in place of what its gradient needs."""
    return log_sigmoid_of(c, self), c.op("zeros_like", self)


@aten("hardsigmoid")
def hardsigmoid(c: Emitter, self: Tensor) -> Tensor:
    """x / 6 + 1 / 2, limited to 0 and 1."""
    dtype = dtype_of(self)
    line = hardtanh(c, c.op("add", self, number(c, 3, dtype)), 0, 6)
    return c.op("divide", line, number(c, 6, dtype))


@aten("hardswish")
def hardswish(c: Emitter, self: Tensor) -> Tensor:
    """x * hardsigmoid(x)."""
    return c.op("multiply", self, hardsigmoid(c, self))


@aten("hardshrink")
def hardshrink(c: Emitter, self: Tensor, lambd: Any = 0.5) -> Tensor:
    """x, and 0 where its magnitude is at most lambd."""
    dtype = dtype_of(self)
    is_small = c.op("less_equal", c.op("abs", self), number(c, lambd, dtype))
    return c.op("where", is_small, number(c, 0, dtype), self)


@aten("softshrink")
def softshrink(c: Emitter, self: Tensor, lambd: Any = 0.5) -> Tensor:
    """x moved towards 0 by lambd."""
    dtype = dtype_of(self)
    low, high = number(c, -lambd, dtype), number(c, lambd, dtype)
    return c.op("subtract", self, c.op("minimum", c.op("maximum", self, low), high))


@aten("softsign")
def softsign(c: Emitter, self: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return c.op("divide", self, c.op("add", c.op("abs", self), number(c, 1, dtype_of(self))))


@aten("tanhshrink")
def tanhshrink(c: Emitter, self: Tensor) -> Tensor:
    """x - tanh(x)."""
    return c.op("subtract", self, c.op("tanh", self))


@aten("threshold")
def threshold(c: Emitter, self: Tensor, threshold: Any, value: Any) -> Tensor:
    """x where it is above the threshold, else a value."""
    dtype = dtype_of(self)
    is_above = c.op("greater", self, number(c, threshold, dtype))
    if is_float(dtype):  # NaN is not at most the threshold
        is_above = c.op("logical_or", is_above, c.op("isnan", self))
    return c.op("where", is_above, self, number(c, value, dtype))


@aten("glu")
def glu(c: Emitter, self: Tensor, dim: int = -1) -> Tensor:
    """The first half along an axis times the sigmoid of the second."""
    axis = axis_of(self, dim)
    size = dims_of(self)[axis]
    half = size // 2
    first, second = sliced(c, self, axis, 0, half), sliced(c, self, axis, half, size)
    return c.op("multiply", first, c.op("sigmoid", second))


# Softmax


def _normalized(c: Emitter, name: str, x: Tensor, dim: int, dtype: str | None) -> Tensor:
    x = cast(c, x, dtype)
    if not is_float(dtype_of(x)):
        x = cast(c, x, "float32")
    axis = axis_of(x, dim)
    if rank_of(x) == 0:
        return reshaped(c, c.op(name, reshaped(c, x, [1]), 0), [])
    return c.op(name, x, axis)


@each_of("softmax.int", "_softmax", "special_softmax", "_safe_softmax")
def softmax(
    name: str, c: Emitter, self: Tensor, dim: int, dtype: str | None = None,
    half_to_float: bool = False,
) -> Tensor:  # fmt: skip
    """R.nn.softmax; 0 for _safe_softmax where all elements are minus infinity."""
    found = _normalized(c, "nn.softmax", self, dim, "float32" if half_to_float else dtype)
    if name != "_safe_softmax":
        return found
    top = c.op("max", self, [axis_of(self, dim)], True)
    is_masked = c.op("equal", top, number(c, -math.inf, dtype_of(self)))
    return c.op("where", is_masked, number(c, 0, dtype_of(found)), found)


@aten("log_softmax.int", "_log_softmax", "special_log_softmax")
def log_softmax(
    c: Emitter, self: Tensor, dim: int, dtype: str | None = None, half_to_float: bool = False
) -> Tensor:
    """R.nn.log_softmax."""
    return _normalized(c, "nn.log_softmax", self, dim, "float32" if half_to_float else dtype)
