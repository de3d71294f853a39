"""Arithmetic, comparisons, logic and functions, element by element."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ....dtypes import as_dtype
from ....ir import Expr, TupleType
from ...common.emitter import Emitter, Problem
from ..checked import divisor
from ..forms import (
    Tensor,
    cast,
    dims_of,
    dtype_of,
    each_of,
    floating,
    is_bool,
    is_float,
    is_integral,
    is_tensor,
    items,
    number,
    promoted,
    promoted_dtype,
    tensor_type,
)
from ..registry import aten

__all__: list[str] = []


# Functions of one operand

_OF_FLOATS: Final = {
    "acos": "acos", "arccos": "acos", "acosh": "acosh", "arccosh": "acosh", "asin": "asin",
    "arcsin": "asin", "asinh": "asinh", "arcsinh": "asinh", "atan": "atan", "arctan": "atan",
    "atanh": "atanh", "arctanh": "atanh", "cos": "cos", "cosh": "cosh", "erf": "erf",
    "special_erf": "erf", "exp": "exp", "expm1": "expm1", "special_expm1": "expm1", "log": "log",
    "log1p": "log1p", "special_log1p": "log1p", "rsqrt": "rsqrt", "sigmoid": "sigmoid",
    "special_expit": "sigmoid", "sin": "sin", "sinh": "sinh", "sqrt": "sqrt", "tan": "tan",
    "tanh": "tanh",
}  # fmt: skip
"""Of integers and bools they are those of floats."""
_KEEPING: Final = {
    "abs": "abs", "absolute": "abs", "ceil": "ceil", "floor": "floor", "neg": "negative",
    "negative": "negative", "trunc": "trunc", "fix": "trunc", "bitwise_not": "bitwise_not",
    "square": "square", "sign": "sign", "sgn": "sign",
}  # fmt: skip
"""Their results have the data type of the operand."""


def _of_floats(name: str, target: str) -> None:
    def convert(c: Emitter, self: Tensor) -> Tensor:
        return c.op(target, cast(c, self, floating(dtype_of(self))))

    convert.__doc__ = f"R.{target}, of floats."
    aten(name)(convert)


def _keeping(name: str, target: str) -> None:
    def convert(c: Emitter, self: Tensor) -> Tensor:
        if is_bool(dtype_of(self)):
            if target == "square":
                return cast(c, self, "int64")
            if target in ("sign", "abs"):
                return self
        return c.op(target, self)

    convert.__doc__ = f"R.{target}."
    aten(name)(convert)


for _name, _target in _OF_FLOATS.items():
    _of_floats(_name, _target)
for _name, _target in _KEEPING.items():
    _keeping(_name, _target)


def _scaled(name: str, target: str, factor: float) -> None:
    def convert(c: Emitter, self: Tensor) -> Tensor:
        x = cast(c, self, floating(dtype_of(self)))
        return c.op("multiply", c.op(target, x), number(c, factor, dtype_of(x)))

    convert.__doc__ = f"R.{target} * {factor:.6g}."
    aten(name)(convert)


_scaled("log2", "log", 1 / math.log(2))
_scaled("log10", "log", 1 / math.log(10))


@aten("exp2", "special_exp2")
def exp2(c: Emitter, self: Tensor) -> Tensor:
    """2 to the power of x."""
    x = cast(c, self, floating(dtype_of(self)))
    return c.op("power", number(c, 2, dtype_of(x)), x)


@aten("deg2rad")
def deg2rad(c: Emitter, self: Tensor) -> Tensor:
    """x * pi / 180."""
    x = cast(c, self, floating(dtype_of(self)))
    return c.op("multiply", x, number(c, math.pi / 180, dtype_of(x)))


@aten("rad2deg")
def rad2deg(c: Emitter, self: Tensor) -> Tensor:
    """x * 180 / pi."""
    x = cast(c, self, floating(dtype_of(self)))
    return c.op("multiply", x, number(c, 180 / math.pi, dtype_of(x)))


@aten("reciprocal")
def reciprocal(c: Emitter, self: Tensor) -> Tensor:
    """1 / x."""
    x = cast(c, self, floating(dtype_of(self)))
    return c.op("divide", number(c, 1, dtype_of(x)), x)


@aten("round", "round.decimals")
def round_(c: Emitter, self: Tensor, decimals: int = 0) -> Tensor:
    """R.round, to a number of digits."""
    if decimals == 0 or not is_float(dtype_of(self)):
        return c.op("round", self)
    factor = number(c, 10.0 ** abs(decimals), dtype_of(self))
    there, back = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
    return c.op(back, c.op("round", c.op(there, self, factor)), factor)


@aten("frac")
def frac(c: Emitter, self: Tensor) -> Tensor:
    """x without its integer part."""
    return c.op("subtract", self, c.op("trunc", self))


@each_of("isfinite", "isinf", "isnan")
def classified(name: str, c: Emitter, self: Tensor) -> Tensor:
    """R.isfinite, R.isinf or R.isnan."""
    return c.op(name, self)


@aten("isposinf")
def isposinf(c: Emitter, self: Tensor) -> Tensor:
    """Whether x is infinity."""
    return _is_infinity(c, self, math.inf)


@aten("isneginf")
def isneginf(c: Emitter, self: Tensor) -> Tensor:
    """Whether x is minus infinity."""
    return _is_infinity(c, self, -math.inf)


def _is_infinity(c: Emitter, x: Tensor, bound: float) -> Tensor:
    if not is_float(dtype_of(x)):
        return c.op("zeros_like", x, "bool")
    return c.op("equal", x, number(c, bound, dtype_of(x)))


@aten("isreal")
def isreal(c: Emitter, self: Tensor) -> Tensor:
    """True, for numbers that are real."""
    return c.op("ones_like", self, "bool")


@aten("signbit")
def signbit(c: Emitter, self: Tensor) -> Tensor:
    """Whether the sign of x is set, also that of -0."""
    dtype = dtype_of(self)
    if dtype == "bool":
        return c.op("zeros_like", self, "bool")
    if not is_float(dtype):
        return c.op("less", self, number(c, 0, dtype))
    # atan2 of -0 and -1 is -pi, of 0 and -1 it is pi.
    zero = number(c, 0, dtype)
    angle = c.op("atan2", self, number(c, -1, dtype))
    return c.op("less", angle, zero)


_GREATEST: Final = {"bfloat16": 3.3895313892515355e38}


@aten("nan_to_num")
def nan_to_num(
    c: Emitter,
    self: Tensor,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """x, with numbers in place of NaN and infinities."""
    dtype = dtype_of(self)
    if not is_float(dtype):
        return self
    greatest = _GREATEST.get(dtype) or float(np.finfo(as_dtype(dtype)).max)
    found = c.op("where", c.op("isnan", self), number(c, nan or 0.0, dtype), self)
    for bound, value, default in ((math.inf, posinf, greatest), (-math.inf, neginf, -greatest)):
        is_bound = c.op("equal", self, number(c, bound, dtype))
        fill = number(c, default if value is None else value, dtype)
        found = c.op("where", is_bound, fill, found)
    return found


@aten("logit", "special_logit")
def logit(c: Emitter, self: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), of x limited to eps and 1 - eps."""
    x = cast(c, self, floating(dtype_of(self)))
    dtype = dtype_of(x)
    if eps is not None:
        low, high = number(c, eps, dtype), number(c, 1 - eps, dtype)
        x = c.op("where", c.op("less", x, low), low, c.op("minimum", x, high))
    return c.op("log", c.op("divide", x, c.op("subtract", number(c, 1, dtype), x)))


@aten("erfc", "special_erfc")
def erfc(c: Emitter, self: Tensor) -> Tensor:
    """1 - erf(x), in float64: the difference is small for large x."""
    dtype = floating(dtype_of(self))
    x = cast(c, self, "float64")
    return cast(c, c.op("subtract", number(c, 1, "float64"), c.op("erf", x)), dtype)


# Arithmetic


def _with_alpha(c: Emitter, other: Any, alpha: Any, dtype: str) -> Tensor:
    if not is_tensor(other):
        if isinstance(other, Expr) or isinstance(alpha, Expr):
            return number(c, other * alpha, dtype)
        return number(c, other * alpha if alpha != 1 else other, dtype)
    other = cast(c, other, dtype)
    return other if alpha == 1 else c.op("multiply", other, number(c, alpha, dtype))


@aten("add.Tensor", "add.Scalar")
def add(c: Emitter, self: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    """R.add of x and alpha * y."""
    dtype = promoted_dtype(self, other)
    target = "logical_or" if dtype == "bool" else "add"
    return c.op(target, cast(c, self, dtype), _with_alpha(c, other, alpha, dtype))


@aten("sub.Tensor", "sub.Scalar", "subtract.Tensor", "subtract.Scalar")
def sub(c: Emitter, self: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    """R.subtract of x and alpha * y."""
    dtype = promoted_dtype(self, other)
    return c.op("subtract", cast(c, self, dtype), _with_alpha(c, other, alpha, dtype))


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(c: Emitter, self: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    """R.subtract of y and alpha * x."""
    dtype = promoted_dtype(self, other)
    first = cast(c, other, dtype) if is_tensor(other) else number(c, other, dtype)
    return c.op("subtract", first, _with_alpha(c, self, alpha, dtype))


@aten("mul.Tensor", "mul.Scalar", "multiply.Tensor", "multiply.Scalar")
def mul(c: Emitter, self: Tensor, other: Any) -> Tensor:
    """R.multiply."""
    a, b = promoted(c, self, other)
    return c.op("logical_and" if dtype_of(a) == "bool" else "multiply", a, b)


@aten("div.Tensor", "div.Scalar", "divide.Tensor", "divide.Scalar", "true_divide.Tensor",
      "true_divide.Scalar", "div.Tensor_mode", "div.Scalar_mode", "divide.Tensor_mode",
      "divide.Scalar_mode")  # fmt: skip
def div(c: Emitter, self: Tensor, other: Any, rounding_mode: str | None = None) -> Tensor:
    """R.divide of floats, or rounded down or towards zero."""
    dtype = promoted_dtype(self, other)
    if rounding_mode is None:
        a, b = promoted(c, self, other, dtype=floating(dtype))
        return c.op("divide", a, b)
    if dtype == "bool":
        raise Problem("division of bools with rounding is not defined")
    a, b = promoted(c, self, other, dtype=dtype)
    b = divisor(c, b, "div")
    if rounding_mode == "trunc":
        found = c.op("divide", a, b)
        return c.op("trunc", found) if is_float(dtype) else found
    return c.op("floor_divide", a, b)


@aten("floor_divide", "floor_divide.Scalar")
def floor_divide(c: Emitter, self: Any, other: Any) -> Tensor:
    """R.floor_divide."""
    a, b = promoted(c, self, other)
    return c.op("floor_divide", a, divisor(c, b, "floor_divide"))


@aten("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(c: Emitter, self: Any, other: Any) -> Tensor:
    """R.floor_mod."""
    a, b = promoted(c, self, other)
    return c.op("floor_mod", a, divisor(c, b, "remainder"))


@aten("fmod.Tensor", "fmod.Scalar")
def fmod(c: Emitter, self: Tensor, other: Any) -> Tensor:
    """R.mod."""
    a, b = promoted(c, self, other)
    return c.op("mod", a, divisor(c, b, "fmod"))


@each_of("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar", "float_power.Tensor_Tensor",
      "float_power.Tensor_Scalar", "float_power.Scalar")  # fmt: skip
def pow_(name: str, c: Emitter, self: Any, exponent: Any) -> Tensor:
    """R.power."""
    dtype = promoted_dtype(self, exponent)
    if name == "float_power":
        dtype = "float64"
    elif dtype == "bool":
        dtype = "uint8"
        a, b = promoted(c, self, exponent, dtype=dtype)
        return cast(c, c.op("power", a, b), "bool")
    if isinstance(exponent, (int, float)) and is_tensor(self):
        x = cast(c, self, dtype)
        if exponent == 2:
            return c.op("multiply", x, x)
        if exponent == 1:
            return x
        if is_float(dtype):
            if exponent == 0.5:
                return c.op("sqrt", x)
            if exponent == -0.5:
                return c.op("rsqrt", x)
            if exponent == -1:
                return c.op("divide", number(c, 1, dtype), x)
            if exponent == 3:
                return c.op("multiply", c.op("multiply", x, x), x)
    a, b = promoted(c, self, exponent, dtype=dtype)
    if is_integral(dtype):
        # A negative exponent of integers gives 0, unless the base is 1 or -1.
        return _integer_power(c, a, b, dtype, exponent)
    return c.op("power", a, b)


def _integer_power(c: Emitter, a: Tensor, b: Tensor, dtype: str, exponent: Any) -> Tensor:
    if isinstance(exponent, int) and exponent >= 0:
        return c.op("power", a, b)
    zero, one = number(c, 0, dtype), number(c, 1, dtype)
    is_negative = c.op("less", b, zero)
    found = c.op("power", a, c.op("where", is_negative, zero, b))
    odd = c.op("not_equal", c.op("bitwise_and", b, one), zero)
    sign = c.op("where", odd, a, one)
    magnitude = c.op("equal", c.op("abs", a), one)
    inverse = c.op("where", magnitude, sign, zero)
    return c.op("where", is_negative, inverse, found)


@aten("hypot")
def hypot(c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """The square root of x * x + y * y."""
    a, b = promoted(c, self, other)
    dtype = dtype_of(a)
    big = c.op("maximum", c.op("abs", a), c.op("abs", b))
    zero, one = number(c, 0, dtype), number(c, 1, dtype)
    is_plain = c.op("logical_and", c.op("isfinite", big), c.op("greater", big, zero))
    scale = c.op("where", is_plain, big, one)
    x, y = c.op("divide", a, scale), c.op("divide", b, scale)
    total = c.op("add", c.op("multiply", x, x), c.op("multiply", y, y))
    found = c.op("multiply", c.op("sqrt", total), scale)
    is_infinite = c.op("logical_or", c.op("isinf", a), c.op("isinf", b))
    return c.op("where", is_infinite, number(c, math.inf, dtype), found)


@aten("maximum", "max.other")
def maximum(c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """R.maximum."""
    return c.op("maximum", *promoted(c, self, other))


@aten("minimum", "min.other")
def minimum(c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """R.minimum."""
    return c.op("minimum", *promoted(c, self, other))


@aten("fmax")
def fmax(c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """The greater of x and y; where one is NaN, the other."""
    return _without_nan(c, "maximum", self, other)


@aten("fmin")
def fmin(c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """The lesser of x and y; where one is NaN, the other."""
    return _without_nan(c, "minimum", self, other)


def _without_nan(c: Emitter, name: str, self: Tensor, other: Tensor) -> Tensor:
    a, b = promoted(c, self, other)
    if not is_float(dtype_of(a)):
        return c.op(name, a, b)
    first = c.op("where", c.op("isnan", a), b, a)
    second = c.op("where", c.op("isnan", b), a, b)
    return c.op(name, first, second)


@aten("atan2", "arctan2")
def atan2(c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """R.atan2."""
    return c.op("atan2", *promoted(c, self, other, dtype=floating(promoted_dtype(self, other))))


@aten("frexp.Tensor")
def frexp(c: Emitter, self: Tensor) -> Any:
    """The mantissa, from 1/2 to 1, and the exponent of each element."""
    dims, dtype = dims_of(self), dtype_of(self)
    types = TupleType([tensor_type(dims, dtype), tensor_type(dims, "int32")])
    return items(c, c.run("frexp", [c.expr(self)], types, f"{dtype},int32"))


@aten("logaddexp", "special_logaddexp")
def logaddexp(c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """R.log_add_exp."""
    return c.op("log_add_exp", *promoted(c, self, other))


@aten("logaddexp2")
def logaddexp2(c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """The logarithm of 2**x + 2**y to the base 2."""
    a, b = promoted(c, self, other)
    two = number(c, math.log(2), dtype_of(a))
    found = c.op("log_add_exp", c.op("multiply", a, two), c.op("multiply", b, two))
    return c.op("divide", found, two)


@aten("copysign.Tensor", "copysign.Scalar")
def copysign(c: Emitter, self: Tensor, other: Any) -> Tensor:
    """The magnitude of x with the sign of y."""
    dtype = floating(promoted_dtype(self, other))
    a, b = promoted(c, self, other, dtype=dtype)
    size = c.op("abs", a)
    return c.op("where", signbit(c, b), c.op("negative", size), size)


@aten("xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other", "special_xlogy",
      "special_xlogy.self_scalar", "special_xlogy.other_scalar")  # fmt: skip
def xlogy(c: Emitter, self: Any, other: Any) -> Tensor:
    """x * log(y), and 0 where x is 0, unless y is NaN."""
    return _times_log(c, self, other, "log")


@aten("special_xlog1py", "special_xlog1py.self_scalar", "special_xlog1py.other_scalar")
def xlog1py(c: Emitter, self: Any, other: Any) -> Tensor:
    """x * log1p(y), and 0 where x is 0, unless y is NaN."""
    return _times_log(c, self, other, "log1p")


def _times_log(c: Emitter, self: Any, other: Any, name: str) -> Tensor:
    dtype = floating(promoted_dtype(self, other))
    a, b = promoted(c, self, other, dtype=dtype)
    zero = number(c, 0, dtype)
    product = c.op("multiply", a, c.op(name, b))
    is_zero = c.op("logical_and", c.op("equal", a, zero), c.op("logical_not", c.op("isnan", b)))
    return c.op("where", is_zero, zero, product)


@aten("heaviside")
def heaviside(c: Emitter, self: Tensor, values: Tensor) -> Tensor:
    """0 for negative x, 1 for positive ones, and values for 0."""
    a, b = promoted(c, self, values)
    dtype = dtype_of(a)
    zero = number(c, 0, dtype)
    step = cast(c, c.op("greater", a, zero), dtype)
    return c.op("where", c.op("equal", a, zero), b, step)


@aten("addcmul")
def addcmul(c: Emitter, self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any = 1) -> Tensor:
    """x + value * a * b."""
    dtype = promoted_dtype(self, tensor1, tensor2)
    x, a, b = promoted(c, self, tensor1, tensor2, dtype=dtype)
    product = c.op("multiply", a, b)
    if value != 1:
        product = c.op("multiply", product, number(c, value, dtype))
    return c.op("add", x, product)


@aten("addcdiv")
def addcdiv(c: Emitter, self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any = 1) -> Tensor:
    """x + value * a / b."""
    dtype = promoted_dtype(self, tensor1, tensor2)
    x, a, b = promoted(c, self, tensor1, tensor2, dtype=dtype)
    quotient = c.op("divide", a, b)
    if value != 1:
        quotient = c.op("multiply", quotient, number(c, value, dtype))
    return c.op("add", x, quotient)


@aten("lerp.Tensor", "lerp.Scalar")
def lerp(c: Emitter, self: Tensor, end: Tensor, weight: Any) -> Tensor:
    """x + weight * (end - x)."""
    a, b = promoted(c, self, end)
    w = cast(c, weight, dtype_of(a)) if is_tensor(weight) else number(c, weight, dtype_of(a))
    return c.op("add", a, c.op("multiply", w, c.op("subtract", b, a)))


# Limits


def _limited(c: Emitter, x: Tensor, low: Any, high: Any) -> Tensor:
    dtype = promoted_dtype(x, low, high)
    found = cast(c, x, dtype)
    for name, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            limit = cast(c, bound, dtype) if is_tensor(bound) else number(c, bound, dtype)
            found = c.op(name, found, limit)
    return found


@aten("clamp", "clamp.Tensor", "clip", "clip.Tensor")
def clamp(c: Emitter, self: Tensor, min: Any = None, max: Any = None) -> Tensor:  # noqa: A002
    """The lesser of max and the greater of min and x."""
    return _limited(c, self, min, max)


@aten("clamp_min", "clamp_min.Tensor")
def clamp_min(c: Emitter, self: Tensor, min: Any) -> Tensor:  # noqa: A002
    """The greater of min and x."""
    return _limited(c, self, min, None)


@aten("clamp_max", "clamp_max.Tensor")
def clamp_max(c: Emitter, self: Tensor, max: Any) -> Tensor:  # noqa: A002
    """The lesser of max and x."""
    return _limited(c, self, None, max)


# Comparisons and logic

_COMPARISONS: Final = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal", "not_equal": "not_equal", "less": "less", "less_equal": "less_equal",
    "greater": "greater", "greater_equal": "greater_equal",
}  # fmt: skip


def _comparison(name: str, target: str) -> None:
    def convert(c: Emitter, self: Tensor, other: Any) -> Tensor:
        return c.op(target, *promoted(c, self, other))

    convert.__doc__ = f"R.{target}."
    aten(f"{name}.Tensor", f"{name}.Scalar")(convert)


for _name, _target in _COMPARISONS.items():
    _comparison(_name, _target)


@aten("logical_not")
def logical_not(c: Emitter, self: Tensor) -> Tensor:
    """R.logical_not."""
    return c.op("logical_not", self)


@each_of("logical_and", "logical_or", "logical_xor")
def logical(name: str, c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """R.logical_and, R.logical_or or R.logical_xor."""
    return c.op(name, *promoted(c, self, other))


@each_of("bitwise_and.Tensor", "bitwise_and.Scalar", "bitwise_and.Scalar_Tensor",
         "bitwise_or.Tensor", "bitwise_or.Scalar", "bitwise_or.Scalar_Tensor",
         "bitwise_xor.Tensor", "bitwise_xor.Scalar", "bitwise_xor.Scalar_Tensor")  # fmt: skip
def bitwise(name: str, c: Emitter, self: Any, other: Any) -> Tensor:
    """R.bitwise_and, R.bitwise_or or R.bitwise_xor."""
    return c.op(name, *promoted(c, self, other))


@each_of("__and__.Tensor", "__and__.Scalar", "__or__.Tensor", "__or__.Scalar", "__xor__.Tensor",
      "__xor__.Scalar")  # fmt: skip
def bitwise_operator(name: str, c: Emitter, self: Any, other: Any) -> Tensor:
    """R.bitwise_and, R.bitwise_or or R.bitwise_xor."""
    return c.op(f"bitwise_{name.strip('_')}", *promoted(c, self, other))


@aten("bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar",
      "bitwise_left_shift.Scalar_Tensor", "__lshift__.Tensor", "__lshift__.Scalar")  # fmt: skip
def left_shift(c: Emitter, self: Any, other: Any) -> Tensor:
    """R.left_shift."""
    a, b = promoted(c, self, other)
    if is_float(dtype_of(a)):
        return c.op("multiply", a, c.op("power", number(c, 2, dtype_of(a)), b))
    return c.op("left_shift", a, b)


@aten("bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar",
      "bitwise_right_shift.Scalar_Tensor", "__rshift__.Tensor", "__rshift__.Scalar")  # fmt: skip
def right_shift(c: Emitter, self: Any, other: Any) -> Tensor:
    """R.right_shift."""
    a, b = promoted(c, self, other)
    if is_float(dtype_of(a)):
        return c.op("divide", a, c.op("power", number(c, 2, dtype_of(a)), b))
    return c.op("right_shift", a, b)


@aten("isclose")
def isclose(
    c: Emitter, self: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8,
    equal_nan: bool = False,
) -> Tensor:  # fmt: skip
    """Whether ``|x - y| <= atol + rtol * |y|``, or they are equal."""
    a, b = promoted(c, self, other)
    dtype = dtype_of(a)
    found = c.op("equal", a, b)
    if equal_nan and is_float(dtype):
        both = c.op("logical_and", c.op("isnan", a), c.op("isnan", b))
        found = c.op("logical_or", found, both)
    if rtol == 0 and atol == 0:
        return found
    working = floating(dtype)
    x, y = cast(c, a, working), cast(c, b, working)
    bound = c.op("add", number(c, atol, working),
                 c.op("multiply", number(c, rtol, working), c.op("abs", y)))  # fmt: skip
    distance = c.op("abs", c.op("subtract", x, y))
    near = c.op("logical_and", c.op("isfinite", distance), c.op("less_equal", distance, bound))
    return c.op("logical_or", found, near)


@aten("where.self", "where.Scalar", "where.ScalarSelf", "where.ScalarOther")
def where(c: Emitter, condition: Tensor, self: Any, other: Any) -> Tensor:
    """R.where."""
    a, b = promoted(c, self, other)
    return c.op("where", cast(c, condition, "bool"), a, b)


@aten("ldexp.Tensor")
def ldexp(c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """x * 2 ** y."""
    dtype = floating(promoted_dtype(self, other))
    power = c.op("power", number(c, 2, dtype), cast(c, other, dtype))
    return c.op("multiply", cast(c, self, dtype), power)
