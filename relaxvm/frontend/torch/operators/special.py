"""Special functions of elements, by series in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.emitter import Emitter, Problem
from ..forms import (
    Tensor,
    broadcast_dims,
    cast,
    dims_of,
    dtype_of,
    each_of,
    floating,
    number,
    promoted,
    promoted_dtype,
    rank_of,
    tensor_type,
)
from ..registry import aten
from .shapes import expand

__all__: list[str] = []

_WIDE = "float64"


def _in_float64(function: Callable[[Emitter, Tensor], Tensor]) -> Callable[..., Tensor]:
    """A function of float64 as one of any data type; integers become float32."""

    def convert(c: Emitter, self: Tensor) -> Tensor:
        return cast(c, function(c, cast(c, self, _WIDE)), floating(dtype_of(self)))

    convert.__doc__ = function.__doc__
    return convert


def _of_x(function: Callable[[Emitter, Tensor], Tensor]) -> Callable[..., Tensor]:
    """The same for an operator whose argument is named x."""
    inner = _in_float64(function)

    def convert(c: Emitter, x: Tensor) -> Tensor:
        return inner(c, x)

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


# By quadrature: the trapezoidal rule on a period, and on functions that fall off as fast as
# exp(-exp(t)), gains digits with each node (Trefethen and Weideman, SIAM Review 56, 2014).


def _weighted(c: Emitter, terms: Tensor, weights: NDArray[np.floating[Any]]) -> Tensor:
    """The weighted sum along the last axis."""
    return c.op("matmul", terms, c.expr(weights))


def _nodes(c: Emitter, x: Tensor, nodes: NDArray[np.floating[Any]]) -> Tensor:
    """The product of each element with each node, along a last axis."""
    return c.op("multiply", c.op("expand_dims", x, rank_of(x)), c.expr(nodes))


_PERIOD = (np.arange(64) + 0.5) * (math.pi / 64)
_FAR = 25.0
"""From here on the asymptotic series of Bessel functions have all digits of float64."""


def _hankel(order: int) -> tuple[list[float], list[float]]:
    """The coefficients of P and x Q, as polynomials in 1 / x^2, the highest first (Abramowitz and
    Stegun 9.2.9 and 9.2.10)."""
    factors = [1.0]
    for k in range(1, 16):
        factors.append(factors[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8 * k))
    signs = [(-1.0) ** (k // 2) for k in range(16)]
    terms = [sign * each for sign, each in zip(signs, factors, strict=True)]
    return terms[0::2][::-1], terms[1::2][::-1]


def _far(c: Emitter, size: Tensor, order: int, is_second: bool) -> Tensor:
    """A Bessel function for large numbers."""
    safe = c.op("maximum", size, _number(c, _FAR))
    square = c.op("divide", _number(c, 1.0), c.op("multiply", safe, safe))
    p, q = (_horner(c, square, each) for each in _hankel(order))
    q = c.op("divide", q, safe)
    angle = c.op("subtract", safe, _number(c, (order / 2 + 0.25) * math.pi))
    cosine, sine = c.op("cos", angle), c.op("sin", angle)
    if is_second:
        wave = c.op("add", c.op("multiply", p, sine), c.op("multiply", q, cosine))
    else:
        wave = c.op("subtract", c.op("multiply", p, cosine), c.op("multiply", q, sine))
    root = c.op("sqrt", c.op("divide", _number(c, 2 / math.pi), safe))
    return c.op("multiply", wave, root)


def _bessel_j(c: Emitter, x: Tensor, order: int) -> Tensor:
    """A Bessel function of the first kind: the mean of cos(order t - x sin t) over a period, and
    Hankel's series for large numbers."""
    size = c.op("abs", x)
    near = c.op("minimum", size, _number(c, _FAR))
    angles = c.op("subtract", c.expr(order * _PERIOD), _nodes(c, near, np.sin(_PERIOD)))
    found = _weighted(c, c.op("cos", angles), np.full(64, 1 / 64))
    is_near = c.op("less", size, _number(c, _FAR))
    found = c.op("where", is_near, found, _far(c, size, order, False))
    return c.op("multiply", found, c.op("sign", x)) if order else found


def _bessel_j0(c: Emitter, x: Tensor) -> Tensor:
    """The Bessel function of the first kind, of order 0."""
    return _bessel_j(c, x, 0)


def _bessel_j1(c: Emitter, x: Tensor) -> Tensor:
    """The Bessel function of the first kind, of order 1."""
    return _bessel_j(c, x, 1)


_ARC, _ARC_WEIGHTS = np.polynomial.legendre.leggauss(48)
_ARC, _ARC_WEIGHTS = (_ARC + 1) * (math.pi / 2), _ARC_WEIGHTS / 2
_RAYS = np.exp(math.pi / 2 * np.sinh(np.arange(-64, 65) / 16))
_RAY_WEIGHTS = _RAYS * (math.pi / 32) * np.cosh(np.arange(-64, 65) / 16)
"""From 0 to infinity: the double exponential rule, exp(pi/2 sinh u)."""


def _small_y(order: int) -> list[float]:
    """The power series in x^2 / 4 of what the logarithm leaves of a Bessel function of the second
    kind (Abramowitz and Stegun 9.1.11), the highest first; for order 1 it is divided by x."""
    found = []
    for k in range(12):
        digammas = [sum(1 / i for i in range(1, n)) - _EULER for n in (k + 1, k + 1 + order)]
        size = math.factorial(k) * math.factorial(k + order) * math.pi * 2**order
        found.append((-1.0) ** (k + 1) * sum(digammas) / size)
    return found[::-1]


_EULER = 0.5772156649015329


def _bessel_y(c: Emitter, x: Tensor, order: int) -> Tensor:
    """A Bessel function of the second kind: its series below 1, its two integrals (Abramowitz and
    Stegun 9.1.22, with v = sinh t in the second), and Hankel's series for large numbers."""
    one = _number(c, 1.0)
    near = c.op("maximum", c.op("minimum", x, _number(c, _FAR)), one)
    angles = c.op("subtract", _nodes(c, near, np.sin(_ARC)), c.expr(order * _ARC))
    found = _weighted(c, c.op("sin", angles), _ARC_WEIGHTS)
    factors = _RAY_WEIGHTS * _RAYS**order / np.sqrt(1 + _RAYS**2)
    falls = c.op("exp", _nodes(c, near, -_RAYS))
    found = c.op("subtract", found, _weighted(c, falls, factors * (2 / math.pi)))
    found = c.op("where", c.op("less", x, _number(c, _FAR)), found, _far(c, x, order, True))

    is_positive = c.op("greater", x, _number(c, 0.0))
    small = c.op("where", is_positive, c.op("minimum", x, one), one)
    half = c.op("multiply", small, _number(c, 0.5))
    series = _horner(c, c.op("multiply", half, half), _small_y(order))
    log = c.op("multiply", c.op("log", half), _number(c, 2 / math.pi))
    log = c.op("multiply", log, _bessel_j(c, small, order))
    if order:
        series = c.op("multiply", series, small)
        series = c.op("subtract", series, c.op("divide", _number(c, 2 / math.pi), small))
    low = c.op("add", log, series)
    return _of_positive(c, x, c.op("where", c.op("less", x, one), low, found), -math.inf)


def _of_positive(c: Emitter, x: Tensor, found: Tensor, at_zero: float) -> Tensor:
    """A function that negative numbers do not have."""
    zero = _number(c, 0.0)
    ends = c.op("where", c.op("equal", x, zero), _number(c, at_zero), _number(c, math.nan))
    return c.op("where", c.op("greater", x, zero), found, ends)


def _bessel_y0(c: Emitter, x: Tensor) -> Tensor:
    """The Bessel function of the second kind, of order 0."""
    return _bessel_y(c, x, 0)


def _bessel_y1(c: Emitter, x: Tensor) -> Tensor:
    """The Bessel function of the second kind, of order 1."""
    return _bessel_y(c, x, 1)


_SPAN = np.arange(141) * 0.2
_SPAN_WEIGHTS = np.where(np.arange(141) == 0, 0.1, 0.2)


def _bessel_k(c: Emitter, x: Tensor, order: int, is_scaled: bool) -> Tensor:
    """A modified Bessel function of the second kind; scaled by exp(x), if asked: the integral of
    exp(-x (cosh t - 1)) cosh(order t), with nodes that come closer for large x."""
    size = c.op("abs", x)
    one = _number(c, 1.0)
    spread = c.op("sqrt", c.op("add", c.op("multiply", size, _number(c, 0.125)), one))
    cosines = c.op("cosh", _nodes(c, c.op("divide", one, spread), _SPAN))
    wide = c.op("expand_dims", size, rank_of(x))
    terms = c.op("exp", c.op("multiply", wide, c.op("subtract", one, cosines)))
    if order:
        terms = c.op("multiply", terms, cosines)
    found = c.op("divide", _weighted(c, terms, _SPAN_WEIGHTS), spread)
    if not is_scaled:
        found = c.op("multiply", found, c.op("exp", c.op("negative", size)))
    return _of_positive(c, x, found, math.inf)


def _bessel_k0(c: Emitter, x: Tensor) -> Tensor:
    """The modified Bessel function of the second kind, of order 0."""
    return _bessel_k(c, x, 0, False)


def _bessel_k1(c: Emitter, x: Tensor) -> Tensor:
    """The modified Bessel function of the second kind, of order 1."""
    return _bessel_k(c, x, 1, False)


def _scaled_k0(c: Emitter, x: Tensor) -> Tensor:
    """The modified Bessel function of the second kind, of order 0, times exp(x)."""
    return _bessel_k(c, x, 0, True)


def _scaled_k1(c: Emitter, x: Tensor) -> Tensor:
    """The modified Bessel function of the second kind, of order 1, times exp(x)."""
    return _bessel_k(c, x, 1, True)


def _spherical_j0(c: Emitter, x: Tensor) -> Tensor:
    """sin(x) / x."""
    return _sinc(c, c.op("multiply", x, _number(c, 1 / math.pi)))


def _erfcx(c: Emitter, x: Tensor) -> Tensor:
    """exp(x^2) erfc(x): the integral of exp(-t^2 - 2 x t) from 0 to infinity."""
    size = c.op("abs", x)
    weights = _RAY_WEIGHTS * np.exp(-np.minimum(_RAYS, 30) ** 2) * (2 / math.sqrt(math.pi))
    found = _weighted(c, c.op("exp", _nodes(c, size, -2 * np.minimum(_RAYS, 30))), weights)
    below = c.op("minimum", x, _number(c, 0.0))
    grows = c.op("multiply", c.op("exp", c.op("multiply", below, below)), _number(c, 2.0))
    is_low = c.op("less", x, _number(c, 0.0))
    return c.op("where", is_low, c.op("subtract", grows, found), found)


def _log_ndtr(c: Emitter, x: Tensor) -> Tensor:
    """The logarithm of the distribution function of the normal distribution."""
    half = _number(c, 0.5)
    is_low = c.op("less", x, _number(c, -1.0))
    scaled = c.op("multiply", x, _number(c, -math.sqrt(0.5)))
    square = c.op("multiply", c.op("multiply", x, x), half)
    low = c.op("where", is_low, scaled, _number(c, 0.0))
    below = c.op("subtract", c.op("log", c.op("multiply", _erfcx(c, low), half)), square)
    high = c.op("where", is_low, _number(c, 0.0), c.op("negative", scaled))
    falls = c.op("exp", c.op("negative", c.op("multiply", high, high)))
    tail = c.op("multiply", c.op("multiply", _erfcx(c, high), falls), half)
    return c.op("where", is_low, below, c.op("log1p", c.op("negative", tail)))


def _ndtri(c: Emitter, x: Tensor) -> Tensor:
    """The inverse of the distribution function of the normal distribution."""
    doubled = c.op("subtract", c.op("multiply", x, _number(c, 2.0)), _number(c, 1.0))
    return c.op("multiply", _erfinv(c, doubled), _number(c, math.sqrt(2.0)))


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
    (("special_modified_bessel_i0",), _i0),
    (("special_modified_bessel_i1",), _i1),
    (("special_bessel_j0",), _bessel_j0),
    (("special_bessel_j1",), _bessel_j1),
    (("special_bessel_y0",), _bessel_y0),
    (("special_bessel_y1",), _bessel_y1),
    (("special_modified_bessel_k0",), _bessel_k0),
    (("special_modified_bessel_k1",), _bessel_k1),
    (("special_erfcx",), _erfcx),
    (("special_log_ndtr",), _log_ndtr),
    (("special_ndtri",), _ndtri),
):
    aten(*_names)(_in_float64(_function))

for _name, _function in (
    ("special_scaled_modified_bessel_k0", _scaled_k0),
    ("special_scaled_modified_bessel_k1", _scaled_k1),
    ("special_spherical_bessel_j0", _spherical_j0),
):
    aten(_name)(_of_x(_function))


# Of two arguments


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def _zeta_of_positive(c: Emitter, x: Tensor, q: Tensor) -> Tensor:
    """Hurwitz's zeta function by Euler and Maclaurin's formula, for q > 0."""
    one = _number(c, 1.0)
    less = c.op("negative", x)
    found = c.op("power", q, less)
    for k in range(1, 10):
        found = c.op("add", found, c.op("power", c.op("add", q, _number(c, k)), less))
    end = c.op("add", q, _number(c, 10))
    last = c.op("power", end, less)
    rest = c.op("divide", c.op("multiply", last, end), c.op("subtract", x, one))
    found = c.op("add", c.op("add", found, rest), c.op("multiply", last, _number(c, 0.5)))
    factor, size = x, c.op("divide", last, end)
    for i, bernoulli in enumerate(_BERNOULLI, 1):
        term = c.op("multiply", c.op("multiply", factor, size),
                    _number(c, bernoulli / math.factorial(2 * i)))  # fmt: skip
        found = c.op("add", found, term)
        for k in (2 * i - 1, 2 * i):
            factor = c.op("multiply", factor, c.op("add", x, _number(c, k)))
        size = c.op("divide", size, c.op("multiply", end, end))
    return found


def _zeta(c: Emitter, x: Tensor, q: Tensor) -> Tensor:
    """Hurwitz's zeta function.

    Where q is negative and x an integer, the terms of negative numbers, (f - 1)^-x to q^-x with f
    the part of q after the point, are those of two zeta functions of positive numbers.  NaN where
    they are not real, and for x below 1; infinite for x = 1 and where q is 0, -1, -2, ...
    """
    zero, one = _number(c, 0.0), _number(c, 1.0)
    part = c.op("subtract", q, c.op("floor", q))
    is_low = c.op("less_equal", q, zero)
    is_pole = c.op("logical_and", is_low, c.op("equal", part, zero))
    part = c.op("where", is_pole, _number(c, 0.5), part)
    found = _zeta_of_positive(c, x, c.op("where", is_low, part, q))
    first = _zeta_of_positive(c, x, c.op("subtract", one, part))
    rest = _zeta_of_positive(c, x, c.op("subtract", one, c.op("minimum", q, zero)))
    half = c.op("multiply", x, _number(c, 0.5))
    is_even = c.op("equal", half, c.op("floor", half))
    mirrored = c.op("subtract", first, rest)
    mirrored = c.op("where", is_even, mirrored, c.op("negative", mirrored))
    mirrored = c.op("where", c.op("equal", x, c.op("floor", x)), mirrored, _number(c, math.nan))
    found = c.op("where", is_low, c.op("add", found, mirrored), found)
    is_pole = c.op("logical_or", is_pole, c.op("equal", x, one))
    found = c.op("where", is_pole, _number(c, math.inf), found)
    return c.op("where", c.op("less", x, one), _number(c, math.nan), found)


@aten("special_zeta")
def zeta(c: Emitter, self: Any, other: Any) -> Tensor:
    """Hurwitz's zeta function."""
    tensors = [each for each in (self, other) if not isinstance(each, (int, float))]
    dtype = floating(promoted_dtype(*tensors))
    x, q = (_number(c, each) if isinstance(each, (int, float)) else cast(c, each, _WIDE)
            for each in (self, other))  # fmt: skip
    return cast(c, _zeta(c, x, q), dtype)


@aten("polygamma", "special_polygamma")
def polygamma(c: Emitter, n: int, self: Tensor) -> Tensor:
    """A derivative of the digamma function: n! times Hurwitz's zeta function of n + 1."""
    x = cast(c, self, _WIDE)
    if n < 0:
        raise Problem(f"polygamma: expected an order of at least 0, got {n}")
    if n == 0:
        found = _digamma(c, x)
    else:
        found = _zeta(c, _number(c, n + 1.0), x)
        sign = -1.0 if n % 2 == 0 else 1.0
        found = c.op("multiply", found, _number(c, sign * math.factorial(n)))
    return cast(c, found, floating(dtype_of(self)))


@aten("mvlgamma", "special_multigammaln")
def mvlgamma(c: Emitter, self: Tensor, p: int) -> Tensor:
    """The logarithm of the gamma function of p dimensions."""
    x = cast(c, self, _WIDE)
    found = _number(c, p * (p - 1) / 4 * math.log(math.pi))
    for i in range(p):
        found = c.op("add", found, _lgamma(c, c.op("subtract", x, _number(c, i / 2))))
    return cast(c, found, floating(dtype_of(self)))


# Chebyshev's polynomials of any degree: by angles between -1 and 1, by hyperbolic ones beyond.


def _chebyshev(
    c: Emitter, x: Any, n: Any, above: float, below: str | None, is_shifted: bool
) -> Tensor:
    """f((n + above) t) / f(t / 2 or t), with x = cos(t) or cosh(t).

    Args:
        above: what is added to the degree: 0, 1/2 or 1.
        below: the function of the denominator: ``sin`` or ``cos``; None if there is none.
    """
    dtype = floating(promoted_dtype(x, n))
    x, degree = (
        _number(c, each) if isinstance(each, (int, float)) else cast(c, each, _WIDE)
        for each in (x, n)
    )
    degree = c.op("trunc", degree)
    one, zero = _number(c, 1.0), _number(c, 0.0)
    if is_shifted:
        x = c.op("subtract", c.op("multiply", x, _number(c, 2.0)), one)
    factor = c.op("add", degree, _number(c, above))
    size = c.op("abs", x)
    is_low = c.op("less", x, zero)
    half = c.op("multiply", degree, _number(c, 0.5))
    is_odd = c.op("not_equal", half, c.op("floor", half))
    # Of -x it is the same polynomial, or (V and W) the other one, with a sign if the degree is odd.
    turned = {"sin": "cos", "cos": "sin"}[below or "cos"] if above == 0.5 else below
    found = [_by_angle(c, size, factor, above, each) for each in (below, turned)]
    mirrored = c.op("where", is_odd, c.op("negative", found[1]), found[1])
    result = c.op("where", is_low, mirrored, found[0])
    result = c.op("where", c.op("less", degree, zero), zero, result)
    return cast(c, result, dtype)


def _by_angle(
    c: Emitter, size: Tensor, factor: Tensor, above: float, below: str | None
) -> Tensor:
    """The quotient for x of at least 0."""
    one = _number(c, 1.0)
    outside = c.op("maximum", size, one)
    inside = c.op("minimum", size, one)
    scale = _number(c, 0.5 if above == 0.5 else 1.0)
    name = below or "cos"
    parts = []
    for prefix, angle in (
        ("", c.op("acos", inside)), ("h", c.op("acosh", outside)),
    ):  # fmt: skip
        value = c.op(name + prefix, c.op("multiply", factor, angle))
        if below is not None:
            under = c.op(name + prefix, c.op("multiply", angle, scale))
            is_zero = c.op("equal", under, _number(c, 0.0))
            limit = c.op("divide", factor, scale)
            value = c.op("divide", value, c.op("where", is_zero, one, under))
            value = c.op("where", is_zero, limit, value)
        parts.append(value)
    return c.op("where", c.op("greater", size, one), parts[1], parts[0])


def _chebyshev_operator(
    name: str, above: float, below: str | None, is_shifted: bool
) -> Callable[..., Tensor]:
    def convert(c: Emitter, x: Any, n: Any) -> Tensor:
        return _chebyshev(c, x, n, above, below, is_shifted)

    shifted = " of 2 x - 1" if is_shifted else ""
    convert.__doc__ = f"Chebyshev's polynomial {name.upper()}{shifted}, of any degree."
    return convert


for _prefix in ("special_", "special_shifted_"):
    for _name, _above, _below in (
        ("t", 0.0, None), ("u", 1.0, "sin"), ("v", 0.5, "cos"), ("w", 0.5, "sin"),
    ):  # fmt: skip
        _full = f"{_prefix}chebyshev_polynomial_{_name}"
        aten(_full, f"{_full}.x_scalar", f"{_full}.n_scalar")(
            _chebyshev_operator(_name, _above, _below, "shifted" in _prefix)
        )


# Functions that a kernel computes


def _by_kernel(c: Emitter, name: str, *operands: Tensor) -> Tensor:
    dims = broadcast_dims(*map(dims_of, operands))
    dtype = dtype_of(operands[0])
    given = [c.expr(each) for each in operands]
    return c.run("special", [*given, name], tensor_type(dims, dtype), dtype)


@aten("special_airy_ai")
def airy_ai(c: Emitter, x: Tensor) -> Tensor:
    """Airy's function Ai."""
    return _by_kernel(c, "airy_ai", cast(c, x, floating(dtype_of(x))))


@each_of("igamma", "igammac", "special_gammainc", "special_gammaincc")
def igamma(name: str, c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """The lower or the upper incomplete gamma function, divided by the gamma function."""
    dtype = floating(promoted_dtype(self, other))
    operands = promoted(c, self, other, dtype=dtype)
    return _by_kernel(c, "igammac" if name.endswith("c") and name != "special_gammainc" else
                      "igamma", *operands)  # fmt: skip


@each_of("nextafter", "gcd", "lcm")
def by_kernel(name: str, c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """The next number towards another one; the greatest common divisor; the least common
    multiple."""
    a, b = promoted(c, self, other)
    if name == "nextafter" and dtype_of(a) == "bfloat16":
        return _next_bfloat16(c, a, b)
    return _by_kernel(c, name, a, b)


def _next_bfloat16(c: Emitter, a: Tensor, b: Tensor) -> Tensor:
    """The next number by its bits, which numpy has no function for: one more away from zero, one
    less towards it."""
    size = broadcast_dims(dims_of(a), dims_of(b))
    a, b = expand(c, a, size), expand(c, b, size)
    one = number(c, 1, "int16")
    nothing = number(c, 0, "bfloat16")
    patterns = c.op("memory.view", a, None, "int16")
    is_away = c.op("equal", c.op("greater", b, a), c.op("greater", a, nothing))
    step = c.op("where", is_away, one, c.op("negative", one))
    is_positive = c.op("greater", b, nothing)
    least = c.op("where", is_positive, one, number(c, -0x7FFF, "int16"))
    moved = c.op("where", c.op("equal", a, nothing), least, c.op("add", patterns, step))
    moved = c.op("where", c.op("equal", a, b), c.op("memory.view", b, None, "int16"), moved)
    found = c.op("memory.view", moved, None, "bfloat16")
    is_nan = c.op("logical_or", c.op("not_equal", a, a), c.op("not_equal", b, b))
    return c.op("where", is_nan, number(c, math.nan, "bfloat16"), found)


def _polynomial_operator(name: str) -> Callable[..., Tensor]:
    def convert(c: Emitter, x: Any, n: Any) -> Tensor:
        operands = promoted(c, x, n, dtype=floating(promoted_dtype(x, n)))
        return _by_kernel(c, name, *operands)

    family = {"he": "Hermite", "la": "Laguerre", "le": "Legendre"}[name[:2]]
    kind = name.rpartition("_")[2].capitalize()
    convert.__doc__ = f"{family}'s polynomials {kind}, of degrees that a tensor has."
    return convert


for _family, _kind in (
    ("hermite", "h"), ("hermite", "he"), ("laguerre", "l"), ("legendre", "p"),
):  # fmt: skip
    _full = f"special_{_family}_polynomial_{_kind}"
    aten(_full, f"{_full}.x_scalar", f"{_full}.n_scalar")(
        _polynomial_operator(f"{_family}_{_kind}")
    )
