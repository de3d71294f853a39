"""RecognizeOps: operators that a program has in parts, as exporters write them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from .. import dpl, op
from ..dpl.pattern import DFPattern, is_const, is_op, wildcard
from ..ir import Constant, Expr, FloatImm, Function, IntImm, IRModule, TensorType
from ..op.lowering import kernel_call
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["RecognizeOps"]

_TOLERANCE: Final = 1e-4
"""How far a number may be from the one that a formula has, relative to it: exporters round."""


class _Recognized(NamedTuple):
    """A formula: its pattern, and what makes the operator of the matched parts, or None if numbers
    or shapes are others."""

    pattern: DFPattern
    make: Callable[[dict[DFPattern, Expr]], Any]


def _number(expr: Expr) -> float:
    """The value of a constant with one element; NaN for others."""
    if isinstance(expr, Constant) and expr.data.size == 1:
        return float(expr.data.reshape(-1)[0])
    return math.nan


def _is_near(expr: Expr, value: float) -> bool:
    return abs(_number(expr) - value) <= _TOLERANCE * abs(value)


def _either(name: str, a: DFPattern, b: DFPattern) -> Any:
    """A call of an operator whose operands may be exchanged, which patterns do by themselves."""
    return is_op(name)(a, b)


# Functions of elements


def _silu() -> _Recognized:
    x = wildcard()
    pattern = _either("relax.multiply", x, is_op("relax.sigmoid")(x))
    return _Recognized(pattern, lambda found: op.nn.silu(found[x]))


def _gelu(form: int) -> _Recognized:
    """``x * (1 + erf(x / sqrt(2))) / 2``, with one half in three places."""
    x, root, one, half = wildcard(), is_const(), is_const(), is_const()
    quotient = is_op("relax.divide")(x, root)
    product = is_op("relax.multiply")(x, root)
    weight = _either("relax.add", is_op("relax.erf")(quotient | product), one)
    if form == 0:
        pattern = _either("relax.multiply", _either("relax.multiply", x, weight), half)
    elif form == 1:
        pattern = _either("relax.multiply", _either("relax.multiply", x, half), weight)
    else:
        pattern = _either("relax.multiply", x, _either("relax.multiply", weight, half))

    def make(found: dict[DFPattern, Expr]) -> Any:
        factor = 1 / math.sqrt(2) if product in found else math.sqrt(2)
        fits = _is_near(found[root], factor) and _number(found[one]) == 1
        return op.nn.gelu(found[x]) if fits and _number(found[half]) == 0.5 else None

    return _Recognized(pattern, make)


def _hard_swish() -> _Recognized:
    """``x * clip(x + 3, 0, 6) / 6``, with the sixth in three places, or ``x * clip(x / 6 + 1 / 2,
    0, 1)``."""
    x, offset, low, high, sixth, before = (
        wildcard(), is_const(), wildcard(), wildcard(), is_const(), is_const()
    )  # fmt: skip
    scaled = _either("relax.multiply", x, before)
    shifted = _either("relax.add", x | scaled, offset)
    bounded = is_op("relax.minimum")(is_op("relax.maximum")(shifted, low), high)
    gate = bounded | is_op("relax.clip")(shifted, low, high)
    over, times = is_op("relax.divide")(gate, sixth), _either("relax.multiply", gate, sixth)
    product = _either("relax.multiply", x, gate | over | times)
    product_over = is_op("relax.divide")(product, sixth)
    product_times = _either("relax.multiply", product, sixth)
    pattern = product_over | product_times | product

    def make(found: dict[DFPattern, Expr]) -> Any:
        ty = found[x].ty
        after = 1.0
        if over in found or product_over in found:
            after = 1 / _number(found[sixth])
        elif times in found or product_times in found:
            after = _number(found[sixth])
        factor = _number(found[before]) if scaled in found else 1.0
        numbers = [factor * after, _number(found[offset]) * after, _value(found[high]) * after]
        fits = all(abs(a - b) <= _TOLERANCE for a, b in zip(numbers, (1 / 6, 0.5, 1), strict=True))
        if not fits or _value(found[low]) != 0:
            return None
        if not isinstance(ty, TensorType) or ty.dtype != "float32" or ty.dims is None:
            return None
        if any(found[each].ty.ndim > ty.ndim for each in (offset, sixth, before) if each in found):
            return None
        return kernel_call("nn.apply", (found[x], "hard_swish"), ty)

    return _Recognized(pattern, make)


def _value(expr: Expr) -> float:
    """A number, or the value of a constant with one element; NaN for others."""
    return float(expr.value) if isinstance(expr, (IntImm, FloatImm)) else _number(expr)


def _power() -> _Recognized:
    """The second and the third power."""
    x, exponent = wildcard(), is_const()

    def make(found: dict[DFPattern, Expr]) -> Any:
        base, number = found[x], found[exponent]
        ty, power = base.ty, _number(number)
        if not isinstance(ty, TensorType) or ty.dtype not in _FLOATS or power not in (2, 3):
            return None
        if ty.ndim < number.ty.ndim or number.ty.dtype != ty.dtype:
            return None
        square = op.multiply(base, base)
        return square if power == 2 else op.multiply(square, base)

    return _Recognized(is_op("relax.power")(x, exponent), make)


# Normalizations


def _layer_norm(*, has_offset: bool) -> _Recognized:
    """The distance from the mean along the last axis, over the deviation."""
    x, epsilon, exponent, scale, offset = (
        wildcard(), is_const(), is_const(), wildcard(), wildcard()
    )  # fmt: skip
    mean = is_op("relax.mean")(x)
    distance = is_op("relax.subtract")(x, mean)
    power = is_op("relax.power")(distance, exponent)
    square = is_op("relax.multiply")(distance, distance) | is_op("relax.square")(distance)
    variance = is_op("relax.mean")(square | power)
    spread = _either("relax.add", variance, epsilon)
    inverse = is_op("relax.rsqrt")(spread)
    normal = _either("relax.multiply", distance, inverse) | is_op("relax.divide")(
        distance, is_op("relax.sqrt")(spread)
    )
    scaled = _either("relax.multiply", normal, scale)
    pattern = _either("relax.add", scaled, offset) if has_offset else scaled

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
        if power in found and _number(found[exponent]) != 2:
            return None
        if not _number(found[epsilon]) >= 0:
            return None
        if not has_offset:
            vectors.append(Constant(np.zeros(last.value, of.dtype)))
        return op.nn.layer_norm(found[x], *vectors, axes=[-1], epsilon=_number(found[epsilon]))

    return _Recognized(pattern, make)


# Attention


def _attention(*, has_bias: bool) -> _Recognized:
    """``softmax(query @ key transposed * scale + bias) @ value``, by heads.  The key's last axes
    are exchanged alone, or together with the change to heads; the scale may be part of the key or
    of the product."""
    query, key, value, bias = wildcard(), wildcard(), wildcard(), wildcard()
    factor, divisor, key_factor = is_const(), is_const(), is_const()
    moved = is_op("relax.permute_dims")(key)
    scaled_key = _either("relax.multiply", moved, key_factor)
    product = is_op("relax.matmul")(query, moved | scaled_key)
    multiplied = _either("relax.multiply", product, factor)
    divided = is_op("relax.divide")(product, divisor)
    scores = multiplied | divided | product
    if has_bias:
        scores = _either("relax.add", scores, bias)
    weights = is_op("relax.nn.softmax")(scores)
    pattern = is_op("relax.matmul")(weights, value)

    def make(found: dict[DFPattern, Expr]) -> Any:
        operands = [found[each] for each in (query, key, value)]
        if has_bias:
            operands.append(found[bias])
        if not all(_is_of_heads(each.ty) for each in operands):
            return None
        softmax: Any = found[weights]
        if int(softmax.attrs["axis"]) % 4 != 3:
            return None
        scale = 1.0
        for number, is_inverse in ((factor, False), (divisor, True), (key_factor, False)):
            if number in found:
                value_of = _number(found[number])
                if not value_of > 0 or not math.isfinite(value_of):
                    return None
                scale *= 1 / value_of if is_inverse else value_of
        permuted: Any = found[moved]
        axes = [int(axis) % 4 for axis in permuted.attrs["axes"] or (3, 2, 1, 0)]
        by_position = [op.permute_dims(found[query], _EXCHANGED), found[key],
                       op.permute_dims(found[value], _EXCHANGED)]  # fmt: skip
        if axes == [0, 1, 3, 2]:
            by_position[1] = op.permute_dims(found[key], _EXCHANGED)
        elif axes != [0, 2, 3, 1]:
            return None
        try:
            made = op.nn.attention(*by_position, *([found[bias]] if has_bias else []), scale=scale)
        except (TypeError, ValueError):
            return None  # products that broadcast
        return op.permute_dims(made, _EXCHANGED)

    return _Recognized(pattern, make)


_EXCHANGED: Final = [0, 2, 1, 3]
"""Axes: from by position to by head, and back."""


def _is_of_heads(ty: Any) -> bool:
    return isinstance(ty, TensorType) and ty.ndim == 4 and ty.dtype == "float32"


def _permuted_twice() -> _Recognized:
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

    return _Recognized(pattern, make)


_FLOATS: Final = frozenset(("float32", "float64"))

RECOGNIZED: Final[tuple[Callable[[], _Recognized], ...]] = (
    _silu,
    _hard_swish,
    lambda: _gelu(0),
    lambda: _gelu(1),
    lambda: _gelu(2),
    lambda: _layer_norm(has_offset=True),
    lambda: _layer_norm(has_offset=False),
    _power,
    lambda: _attention(has_bias=True),
    lambda: _attention(has_bias=False),
    _permuted_twice,
)
"""The formulas, in the order in which they are tried."""


def RecognizeOps() -> Pass:
    """Replace formulas by what they are: gelu, silu, hard swish of float32, layer normalization
    along the last axis, and attention of float32, by heads; and second and third powers by
    products.  Axes that are exchanged twice are exchanged once, or not at all.

    Why: older ONNX models and decomposed programs of torch have only their parts, each of which
    would be computed apart.  Results differ by rounding.
    """

    @function_pass(name="RecognizeOps")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        for formula in RECOGNIZED:
            pattern, make = formula()

            def rewrite(expr: Expr, found: dict[DFPattern, Expr], make: Any = make) -> Any:
                made = make(found)
                return expr if made is None else made

            func = dpl.rewrite_call(pattern, rewrite, func)
        return func

    return run
