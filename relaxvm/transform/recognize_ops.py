"""RecognizeOps: operators that a program has in parts, as exporters write them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .. import op
from ..dpl.pattern import DFPattern, is_const, is_op, wildcard
from ..ir import Call, Constant, Expr, FloatImm, IntImm, ShapeExpr, TensorType
from ..op.lowering import kernel_call
from ._formulas import TOLERANCE, Formula, either_order, is_near, number_of, replacing
from .pass_infra import Pass

__all__ = ["RecognizeOps"]

# Functions of elements


def _silu() -> Formula:
    x = wildcard()
    pattern = either_order("relax.multiply", x, is_op("relax.sigmoid")(x))
    return Formula(pattern, lambda found: op.nn.silu(found[x]))


def _gelu(form: int) -> Formula:
    """``x * (1 + erf(x / sqrt(2))) / 2``, with one half in three places."""
    x, root, one, half = wildcard(), is_const(), is_const(), is_const()
    quotient = is_op("relax.divide")(x, root)
    product = is_op("relax.multiply")(x, root)
    weight = either_order("relax.add", is_op("relax.erf")(quotient | product), one)
    if form == 0:
        pattern = either_order("relax.multiply", either_order("relax.multiply", x, weight), half)
    elif form == 1:
        pattern = either_order("relax.multiply", either_order("relax.multiply", x, half), weight)
    else:
        pattern = either_order("relax.multiply", x, either_order("relax.multiply", weight, half))

    def make(found: dict[DFPattern, Expr]) -> Any:
        factor = 1 / math.sqrt(2) if product in found else math.sqrt(2)
        fits = is_near(found[root], factor) and number_of(found[one]) == 1
        return op.nn.gelu(found[x]) if fits and number_of(found[half]) == 0.5 else None

    return Formula(pattern, make)


def _hard_swish() -> Formula:
    """``x * clip(x + 3, 0, 6) / 6``, with the sixth in three places, or ``x * clip(x / 6 + 1 / 2,
    0, 1)``."""
    x, offset, low, high, sixth, before = (
        wildcard(), is_const(), wildcard(), wildcard(), is_const(), is_const()
    )  # fmt: skip
    scaled = either_order("relax.multiply", x, before)
    shifted = either_order("relax.add", x | scaled, offset)
    bounded = is_op("relax.minimum")(is_op("relax.maximum")(shifted, low), high)
    gate = bounded | is_op("relax.clip")(shifted, low, high)
    over, times = is_op("relax.divide")(gate, sixth), either_order("relax.multiply", gate, sixth)
    product = either_order("relax.multiply", x, gate | over | times)
    product_over = is_op("relax.divide")(product, sixth)
    product_times = either_order("relax.multiply", product, sixth)
    pattern = product_over | product_times | product

    def make(found: dict[DFPattern, Expr]) -> Any:
        ty = found[x].ty
        after = 1.0
        if over in found or product_over in found:
            after = 1 / number_of(found[sixth])
        elif times in found or product_times in found:
            after = number_of(found[sixth])
        factor = number_of(found[before]) if scaled in found else 1.0
        numbers = [factor * after, number_of(found[offset]) * after, _value(found[high]) * after]
        fits = all(abs(a - b) <= TOLERANCE for a, b in zip(numbers, (1 / 6, 0.5, 1), strict=True))
        if not fits or _value(found[low]) != 0:
            return None
        if not isinstance(ty, TensorType) or ty.dtype != "float32" or ty.dims is None:
            return None
        if any(found[each].ty.ndim > ty.ndim for each in (offset, sixth, before) if each in found):
            return None
        return kernel_call("nn.apply", (found[x], "hard_swish"), ty)

    return Formula(pattern, make)


def _value(expr: Expr) -> float:
    """A number, or the value of a constant with one element; NaN for others."""
    return float(expr.value) if isinstance(expr, (IntImm, FloatImm)) else number_of(expr)


def _power() -> Formula:
    """The second and the third power."""
    x, exponent = wildcard(), is_const()

    def make(found: dict[DFPattern, Expr]) -> Any:
        base, number = found[x], found[exponent]
        ty, power = base.ty, number_of(number)
        if not isinstance(ty, TensorType) or ty.dtype not in _FLOATS or power not in (2, 3):
            return None
        if ty.ndim < number.ty.ndim or number.ty.dtype != ty.dtype:
            return None
        square = op.multiply(base, base)
        return square if power == 2 else op.multiply(square, base)

    return Formula(is_op("relax.power")(x, exponent), make)


# Normalizations


def _layer_norm(*, has_offset: bool) -> Formula:
    """The distance from the mean along the last axis, over the deviation."""
    x, epsilon, exponent, scale, offset = (
        wildcard(), is_const(), is_const(), wildcard(), wildcard()
    )  # fmt: skip
    mean = is_op("relax.mean")(x)
    distance = is_op("relax.subtract")(x, mean)
    power = is_op("relax.power")(distance, exponent)
    square = is_op("relax.multiply")(distance, distance) | is_op("relax.square")(distance)
    variance = is_op("relax.mean")(square | power)
    spread = either_order("relax.add", variance, epsilon)
    inverse = is_op("relax.rsqrt")(spread)
    normal = either_order("relax.multiply", distance, inverse) | is_op("relax.divide")(
        distance, is_op("relax.sqrt")(spread)
    )
    scaled = either_order("relax.multiply", normal, scale)
    pattern = either_order("relax.add", scaled, offset) if has_offset else scaled

    def make(found: dict[DFPattern, Expr]) -> Any:
        of = found[x].ty
        vectors = [found[each] for each in ([scale, offset] if has_offset else [scale])]
        if not isinstance(of, TensorType) or of.dims is None or of.dtype not in _FLOATS:
            return None
        last = of.dims[-1] if of.dims else None
        if not isinstance(last, IntImm) or last.value < 1:
            return None
        for vector in vectors:
            ty = vector.ty
            if not isinstance(ty, TensorType) or ty.dims is None or ty.dtype != of.dtype:
                return None
            if [getattr(dim, "value", None) for dim in ty.dims] != [last.value]:
                return None
        for each in (mean, variance):
            call: Any = found[each]
            axes = call.attrs["axis"]
            if axes is None or len(axes) != 1 or not call.attrs["keepdims"]:
                return None
            if int(axes[0]) % len(of.dims) != len(of.dims) - 1:
                return None
        if power in found and number_of(found[exponent]) != 2:
            return None
        if not number_of(found[epsilon]) >= 0:
            return None
        if not has_offset:
            vectors.append(Constant(np.zeros(last.value, of.dtype)))
        return op.nn.layer_norm(found[x], *vectors, axes=[-1], epsilon=number_of(found[epsilon]))

    return Formula(pattern, make)


def _lrn(size: int) -> Formula:
    """``x / (bias + factor * sum) ** power``, where sum is that of slices of x * x with zeros
    before the first channel and after the last one."""
    x, factor, bias, exponent = wildcard(), is_const(), is_const(), is_const()
    padded = is_op("relax.nn.pad")(is_op("relax.multiply")(x, x))
    # Operands that say where a slice begins and ends are looked at in `make`.
    parts = [
        is_op("relax.strided_slice")(padded, *[wildcard() for _ in range(3)]) for _ in range(size)
    ]
    total: Any = parts[0]
    for part in parts[1:]:
        total = is_op("relax.add")(total, part)
    base = either_order("relax.add", either_order("relax.multiply", total, factor), bias)
    root = is_op("relax.sqrt")(base)
    roots = either_order("relax.multiply", root, is_op("relax.sqrt")(root))
    power = is_op("relax.power")(base, exponent)
    pattern = is_op("relax.divide")(x, roots | power)

    def make(found: dict[DFPattern, Expr]) -> Any:
        ty, padding = found[x].ty, found[padded]
        if not isinstance(ty, TensorType) or ty.dtype != "float32" or ty.dims is None:
            return None
        channels = ty.dims[1] if len(ty.dims) > 1 else None
        if not isinstance(channels, IntImm):
            return None
        widths = [0, 0, (size - 1) // 2, size // 2, *[0] * (2 * len(ty.dims) - 4)]
        if not isinstance(padding, Call) or not _pads_with_zeros(padding, widths):
            return None
        for i, part in enumerate(parts):
            call: Any = found[part]
            places = [[1], [i], [channels.value + i]]
            if [_ints(each) for each in call.args[1:]] != places:
                return None
        numbers = number_of(found[factor]), 0.75, number_of(found[bias])
        if power in found:
            numbers = numbers[0], number_of(found[exponent]), numbers[2]
        if any(math.isnan(each) for each in numbers):
            return None
        return kernel_call("nn.lrn", (found[x], size, *numbers), ty)

    return Formula(pattern, make)


def _ints(expr: Expr) -> list[int] | None:
    """The numbers of a shape or of a tuple, if they are known."""
    values = expr.values if isinstance(expr, ShapeExpr) else getattr(expr, "fields", ())
    numbers = [each.value for each in values if isinstance(each, IntImm)]
    return numbers if len(numbers) == len(values) else None


def _pads_with_zeros(call: Call, widths: list[int]) -> bool:
    attrs: Any = call.attrs
    if attrs["pad_mode"] != "constant" or attrs["pad_value"] != 0:
        return False
    return [int(each) for each in attrs["pad_width"]] == widths


# Axes


def _permuted_twice() -> Formula:
    x = wildcard()
    first = is_op("relax.permute_dims")(x)
    pattern = is_op("relax.permute_dims")(first)

    def make(found: dict[DFPattern, Expr]) -> Any:
        outer: Any = found[pattern]
        inner: Any = found[first]
        ndim = found[x].ty.ndim if isinstance(found[x].ty, TensorType) else -1
        if ndim < 0 or outer.attrs["axes"] is None or inner.attrs["axes"] is None:
            return None
        axes = [int(inner.attrs["axes"][int(axis)]) % ndim for axis in outer.attrs["axes"]]
        return found[x] if axes == list(range(ndim)) else op.permute_dims(found[x], axes)

    return Formula(pattern, make)


_FLOATS: Final = frozenset(("float32", "float64"))

RECOGNIZED: Final[tuple[Callable[[], Formula], ...]] = (
    _silu,
    _hard_swish,
    lambda: _gelu(0),
    lambda: _gelu(1),
    lambda: _gelu(2),
    lambda: _layer_norm(has_offset=True),
    lambda: _layer_norm(has_offset=False),
    lambda: _lrn(3),
    lambda: _lrn(5),
    _power,
    _permuted_twice,
)
"""The formulas, in the order in which they are tried."""


def RecognizeOps() -> Pass:
    """Replace formulas by what they are: gelu, silu, hard swish of float32, layer normalization
    along the last axis, and local response normalization of float32 over 3 or 5 channels (the
    kernel ``nn.lrn``); and second and third powers by products.  Axes that are exchanged twice are
    exchanged once, or not at all.

    Why: older ONNX models and decomposed programs of torch have only their parts, each of which
    would be computed apart.  Results differ by rounding.
    """
    return replacing("RecognizeOps", RECOGNIZED)
