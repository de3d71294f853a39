"""Operators on numbers: fixed-point products, bits, fast functions by TVM's names."""

from __future__ import annotations

import math
from typing import Any

from ...ir import prim
from ...ir.expr import Expr
from ...ir.prim import as_scalar
from ...tir import intrinsics
from ..tensor import Tensor, compute
from . import basic
from ._loops import axis_of, index

__all__ = [
    "ceil_log2",
    "fast_erf",
    "fast_exp",
    "fast_tanh",
    "fixed_point_multiply",
    "fixed_point_multiply_per_axis",
    "hamming_window",
    "log_add_exp",
    "reinterpret",
]

fast_exp = basic.exp
fast_tanh = basic.tanh
fast_erf = basic.erf
"""Here the exact functions."""


def _elementwise(x: Tensor, formula: Any, name: str) -> Tensor:
    return compute(
        x.shape, lambda *i: formula(x[i]), name, varargs_names=[f"i{k}" for k in range(x.ndim)]
    )


def reinterpret(x: Any, dtype: str) -> Any:
    """The same bits as another data type of the same size."""
    if not isinstance(x, Tensor):
        return intrinsics.reinterpret(dtype, as_scalar(x))
    return _elementwise(x, lambda e: intrinsics.reinterpret(dtype, e), "T_reinterpret")


def ceil_log2(x: Any) -> Any:
    """The least number whose power of 2 is not less, of integers or floats."""

    def formula(e: Any) -> Any:
        if prim.is_float(e.dtype):
            return intrinsics.ceil(intrinsics.log2(e))
        bits = 64 if e.dtype.endswith("64") else 32
        whole = prim.cast(e - 1, f"int{bits}")
        return prim.cast(bits - intrinsics.clz(whole), e.dtype)

    return _elementwise(x, formula, "T_ceil_log2") if isinstance(x, Tensor) else formula(
        as_scalar(x)
    )


def log_add_exp(lhs: Any, rhs: Any) -> Any:
    """``log(exp(lhs) + exp(rhs))``, without overflow."""
    high, low = basic.maximum(lhs, rhs), basic.minimum(lhs, rhs)
    small = basic.exp(basic.subtract(low, high))
    return basic.add(high, basic.log(basic.add(small, 1.0)))


def _multiplied(value: Any, multiplier: Any, shift: Any) -> Any:
    """``value * multiplier * 2 ** (shift - 31)``, rounded half up."""
    wide = prim.cast(value, "int64") * prim.cast(multiplier, "int64")
    by = as_scalar(31, "int64") - prim.cast(shift, "int64")
    half = intrinsics.shift_left(as_scalar(1, "int64"), by - 1)
    return prim.cast(intrinsics.shift_right(wide + half, by), "int32")


def fixed_point_multiply(x: Tensor, multiplier: int, shift: int) -> Tensor:
    """``round(x * multiplier * 2 ** (shift - 31))`` of int32.

    Raises:
        ValueError: the shift is not from -31 to 30.
    """
    if not -31 <= shift <= 30:
        raise ValueError(f"fixed_point_multiply: shift: expected -31 to 30, got {shift}")
    factor, by = as_scalar(multiplier, "int64"), as_scalar(shift, "int64")
    return _elementwise(x, lambda e: _multiplied(e, factor, by), "fixed_point_multiply")


def fixed_point_multiply_per_axis(
    x: Tensor,
    y: Tensor,
    lshift: Tensor,
    rshift: Tensor,
    is_lshift_required: int,
    is_rshift_required: int,
    axes: Any,
) -> Tensor:
    """`fixed_point_multiply` with a multiplier and shifts for each place of some axes."""
    places = [axis_of(axis, x.ndim, "fixed_point_multiply_per_axis") for axis in axes]

    def element(*i: Expr) -> Any:
        at = tuple([i[place] for place in places])
        left = lshift[at] if is_lshift_required else as_scalar(0, "int32")
        right = rshift[at] if is_rshift_required else as_scalar(0, "int32")
        shifted = intrinsics.shift_left(prim.cast(x[i], "int64"), prim.cast(left, "int64"))
        return _multiplied(shifted, y[at], -prim.cast(right, "int64"))

    return compute(x.shape, element, "fixed_point_multiply_per_axis",
                   varargs_names=[f"i{k}" for k in range(x.ndim)])  # fmt: skip


def hamming_window(
    window_size: Any, periodic: Any, alpha: Any, beta: Any, dtype: str = "float32"
) -> Tensor:
    """``alpha - beta * cos(2 * pi * n / size)``, where the size is one less unless `periodic`."""
    size, start, scale = (
        int(window_size), float(getattr(alpha, "value", alpha)), float(getattr(beta, "value", beta))
    )  # fmt: skip
    if size == 1:
        return compute([index(1)], lambda i: as_scalar(1.0, dtype), "hamming_window")
    if size < 0:
        raise ValueError(f"hamming_window: window_size: expected at least 0, got {size}")
    period = max(size, 1) if bool(getattr(periodic, "value", periodic)) else size - 1

    def element(i: Expr) -> Any:
        angle = prim.cast(i, dtype) * as_scalar(2 * math.pi / period, dtype)
        return as_scalar(start, dtype) - as_scalar(scale, dtype) * intrinsics.cos(angle)

    return compute([index(size)], element, "hamming_window")
