"""RecognizeOps: operators that a program has in parts, as exporters write them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from .. import dpl, op
from ..dpl.pattern import DFPattern, is_const, is_op, wildcard
from ..ir import Constant, Expr, Function, IntImm, IRModule, TensorType
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


_FLOATS: Final = frozenset(("float32", "float64"))

RECOGNIZED: Final[tuple[Callable[[], _Recognized], ...]] = (
    _silu,
    lambda: _gelu(0),
    lambda: _gelu(1),
    lambda: _gelu(2),
    lambda: _layer_norm(has_offset=True),
    lambda: _layer_norm(has_offset=False),
    _power,
)
"""The formulas, in the order in which they are tried."""


def RecognizeOps() -> Pass:
    """Replace formulas by the operators that they are: gelu, silu, and layer normalization along
    the last axis; and second and third powers by products.

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
