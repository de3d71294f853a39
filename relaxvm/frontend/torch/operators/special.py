"""Special functions of elements, by series in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...common.emitter import Emitter
from ..forms import Tensor, cast, dtype_of, floating, number
from ..registry import aten

__all__: list[str] = []

_WIDE = "float64"


def _in_float64(function: Callable[[Emitter, Tensor], Tensor]) -> Callable[..., Tensor]:
    """A function of float64 as one of any data type; integers become float32."""

    def convert(c: Emitter, self: Tensor) -> Tensor:
        return cast(c, function(c, cast(c, self, _WIDE)), floating(dtype_of(self)))

    convert.__doc__ = function.__doc__
    return convert


def _number(c: Emitter, value: float) -> Tensor:
    return number(c, value, _WIDE)


def _horner(c: Emitter, x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """The polynomial with these coefficients, the highest first."""
    found = _number(c, coefficients[0])
    for each in coefficients[1:]:
        found = c.op("add", c.op("multiply", found, x), _number(c, each))
    return found


def _erfinv(c: Emitter, x: Tensor) -> Tensor:
    """The inverse of the error function: an approximation by S. Winitzki, and Newton's method."""
    one = _number(c, 1.0)
    a = 0.147
    log = c.op("log", c.op("subtract", one, c.op("multiply", x, x)))
    t = c.op("add", _number(c, 2 / (math.pi * a)), c.op("multiply", log, _number(c, 0.5)))
    root = c.op("sqrt", c.op("subtract", c.op("multiply", t, t),
                             c.op("multiply", log, _number(c, 1 / a))))  # fmt: skip
    y = c.op("multiply", c.op("sign", x), c.op("sqrt", c.op("subtract", root, t)))
    for _ in range(3):
        slope = c.op("multiply", c.op("exp", c.op("negative", c.op("multiply", y, y))),
                     _number(c, 2 / math.sqrt(math.pi)))  # fmt: skip
        y = c.op("subtract", y, c.op("divide", c.op("subtract", c.op("erf", y), x), slope))
    is_end = c.op("equal", c.op("abs", x), one)
    return c.op("where", is_end, c.op("multiply", x, _number(c, math.inf)), y)


_SHIFT = 8


def _lgamma(c: Emitter, x: Tensor) -> Tensor:
    """The logarithm of the absolute value of the gamma function: Stirling's series."""
    half, one = _number(c, 0.5), _number(c, 1.0)
    is_low = c.op("less", x, half)
    y = c.op("where", is_low, c.op("subtract", one, x), x)
    product = y
    for i in range(1, _SHIFT):
        product = c.op("multiply", product, c.op("add", y, _number(c, i)))
    z = c.op("add", y, _number(c, _SHIFT))
    inverse = c.op("divide", one, z)
    series = _horner(c, c.op("multiply", inverse, inverse),
                     [1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12])  # fmt: skip
    found = c.op("multiply", c.op("subtract", z, half), c.op("log", z))
    found = c.op("add", c.op("subtract", found, z), _number(c, math.log(2 * math.pi) / 2))
    found = c.op("add", found, c.op("multiply", series, inverse))
    found = c.op("subtract", found, c.op("log", product))
    sine = c.op("abs", c.op("sin", c.op("multiply", x, _number(c, math.pi))))
    sine = c.op("where", c.op("equal", x, c.op("floor", x)), _number(c, 0.0), sine)
    mirrored = c.op("subtract", c.op("log", c.op("divide", _number(c, math.pi), sine)), found)
    return c.op("where", is_low, mirrored, found)


def _digamma(c: Emitter, x: Tensor) -> Tensor:
    """The derivative of the logarithm of the gamma function."""
    half, one = _number(c, 0.5), _number(c, 1.0)
    is_low = c.op("less", x, half)
    y = c.op("where", is_low, c.op("subtract", one, x), x)
    found = c.op("negative", c.op("divide", one, y))
    for i in range(1, _SHIFT):
        found = c.op("subtract", found, c.op("divide", one, c.op("add", y, _number(c, i))))
    z = c.op("add", y, _number(c, _SHIFT))
    inverse = c.op("divide", one, z)
    square = c.op("multiply", inverse, inverse)
    series = _horner(c, square, [1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12, 0.0])
    found = c.op("add", found, c.op("subtract", c.op("log", z), c.op("multiply", inverse, half)))
    found = c.op("subtract", found, series)
    angle = c.op("multiply", c.op("subtract", x, c.op("floor", x)), _number(c, math.pi))
    mirrored = c.op("subtract", found, c.op("divide", _number(c, math.pi), c.op("tan", angle)))
    is_pole = c.op("logical_and", is_low, c.op("equal", x, c.op("floor", x)))
    pole = c.op("where", c.op("equal", x, _number(c, 0.0)), _number(c, -math.inf),
                _number(c, math.nan))  # fmt: skip
    return c.op("where", is_pole, pole, c.op("where", is_low, mirrored, found))


def _sinc(c: Emitter, x: Tensor) -> Tensor:
    """sin(pi x) / (pi x)."""
    angle = c.op("multiply", x, _number(c, math.pi))
    is_zero = c.op("equal", x, _number(c, 0.0))
    below = c.op("where", is_zero, _number(c, 1.0), angle)
    return c.op("where", is_zero, _number(c, 1.0), c.op("divide", c.op("sin", angle), below))


def _entr(c: Emitter, x: Tensor) -> Tensor:
    """-x log(x); 0 for 0, and -inf for negative numbers."""
    zero = _number(c, 0.0)
    is_positive = c.op("greater", x, zero)
    safe = c.op("where", is_positive, x, _number(c, 1.0))
    found = c.op("negative", c.op("multiply", safe, c.op("log", safe)))
    low = c.op("where", c.op("less", x, zero), _number(c, -math.inf), found)
    return c.op("where", c.op("isnan", x), x, low)


def _ndtr(c: Emitter, x: Tensor) -> Tensor:
    """The distribution function of the normal distribution."""
    scaled = c.op("multiply", x, _number(c, math.sqrt(0.5)))
    return c.op("multiply", c.op("add", c.op("erf", scaled), _number(c, 1.0)), _number(c, 0.5))


_I0_LOW = (0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0)
_I0_HIGH = (0.00392377, -0.01647633, 0.02635537, -0.02057706, 0.00916281, -0.00157565, 0.00225319,
            0.01328592, 0.39894228)  # fmt: skip
_I1_LOW = (0.00032411, 0.00301532, 0.02658733, 0.15084934, 0.51498869, 0.87890594, 0.5)
_I1_HIGH = (-0.00420059, 0.01787654, -0.02895312, 0.02282967, -0.01031555, 0.00163801, -0.00362018,
            -0.03988024, 0.39894228)  # fmt: skip
"""Coefficients of Abramowitz and Stegun 9.8.1 to 9.8.4, the highest first."""
_BOUND = 3.75


def _bessel(c: Emitter, x: Tensor, order: int, is_scaled: bool = False) -> Tensor:
    """A modified Bessel function of the first kind; scaled by exp(-|x|), if asked."""
    low, high = (_I0_LOW, _I0_HIGH) if order == 0 else (_I1_LOW, _I1_HIGH)
    size = c.op("abs", x)
    part = c.op("divide", x, _number(c, _BOUND))
    small = _horner(c, c.op("multiply", part, part), low)
    if order:
        small = c.op("multiply", small, size)
    safe = c.op("maximum", size, _number(c, 1.0))
    large = _horner(c, c.op("divide", _number(c, _BOUND), safe), high)
    large = c.op("divide", large, c.op("sqrt", safe))
    if is_scaled:
        small = c.op("multiply", small, c.op("exp", c.op("negative", size)))
    else:
        large = c.op("multiply", large, c.op("exp", size))
    found = c.op("where", c.op("less", size, _number(c, _BOUND)), small, large)
    return c.op("multiply", found, c.op("sign", x)) if order else found


def _i0(c: Emitter, x: Tensor) -> Tensor:
    """The modified Bessel function of the first kind, of order 0."""
    return _bessel(c, x, 0)


def _i0e(c: Emitter, x: Tensor) -> Tensor:
    """The modified Bessel function of the first kind, of order 0, times exp(-|x|)."""
    return _bessel(c, x, 0, is_scaled=True)


def _i1(c: Emitter, x: Tensor) -> Tensor:
    """The modified Bessel function of the first kind, of order 1."""
    return _bessel(c, x, 1)


def _i1e(c: Emitter, x: Tensor) -> Tensor:
    """The modified Bessel function of the first kind, of order 1, times exp(-|x|)."""
    return _bessel(c, x, 1, is_scaled=True)


for _names, _function in (
    (("erfinv", "special_erfinv"), _erfinv),
    (("lgamma", "special_gammaln"), _lgamma),
    (("digamma", "special_digamma", "special_psi"), _digamma),
    (("sinc", "special_sinc"), _sinc),
    (("special_entr",), _entr),
    (("special_ndtr",), _ndtr),
    (("i0", "special_i0"), _i0),
    (("special_i0e",), _i0e),
    (("special_i1",), _i1),
    (("special_i1e",), _i1e),
):
    aten(*_names)(_in_float64(_function))
