"""The error function, which numpy does not have, as steps of a chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["erf32", "erf64"]

Add = Callable[..., str]
"""``add(name, *operands)`` appends a step to a chain and returns the text for its result."""

# Source of the coefficients: W. J. Cody, Rational Chebyshev approximations for the error function,
# Mathematics of Computation 23 (1969), 631-637.  The coefficient of the highest power comes first.
# Near 0, erf(x) is x * P(x*x) / Q(x*x); farther off, 1 - erf(x) is exp(-x*x) * P(x) / Q(x).
_NEAR: Final = 0.46875
_NEAR_P: Final = (
    1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
    3.20937758913846947e3,
)  # fmt: skip
_NEAR_Q: Final = (
    1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3,
)  # fmt: skip
_FAR_P: Final = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
    2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
    1.23033935479799725e3,
)  # fmt: skip
_FAR_Q: Final = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
    3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
)  # fmt: skip
_END: Final = 6.0
"""From here on erf is 1 in float64.  Cody takes other coefficients from 4 on, for the digits of
1 - erf; those of erf do not need them."""


# In float32, least-squares fits at Chebyshev points, the coefficient of the highest power first:
# near 0, of erf(x) / x - 1 in x*x; farther off, of the logarithm of 1 - erf(x).
_NEAR32: Final = 0.875
_NEAR32_P: Final = (
    -6.2185029e-4, 5.0351224e-3, -2.6793452e-2, 1.12825103e-1, -3.76125544e-1, 1.28379151e-1,
)  # fmt: skip
_FAR32_P: Final = (
    1.6054321e-6, -4.5415043e-5, 5.9124536e-4, -4.7328663e-3, 2.634318e-2, -1.0993917e-1,
    -6.3197988e-1, -1.1301409, 2.9666504e-4,
)  # fmt: skip
_END32: Final = 4.0
"""From here on erf is 1 in float32."""


def erf32(add: Add, x: str) -> str:
    """Append the error function of float32: under 1.5 units in the last place off."""
    size = add("minimum", add("abs", x), _END32)
    far = add("subtract", 1, add("exp", _polynomial(add, _FAR32_P, size)))
    near = add("multiply", _polynomial(add, _NEAR32_P, add("square", size)), size)
    near = add("add", near, size)
    return add("numpy.copysign", add("where", add("less", size, _NEAR32), near, far), x)


def erf64(add: Add, x: str) -> str:
    """Append the error function of float64: under 1e-15 off, relative to it."""
    size = add("minimum", add("abs", x), _END)
    far = add("exp", add("negative", add("square", size)))
    far = add("multiply", far, _polynomial(add, _FAR_P, size))
    far = add("subtract", 1, add("divide", far, _polynomial(add, _FAR_Q, size)))
    square = add("square", size)
    near = add("multiply", size, _polynomial(add, _NEAR_P, square))
    near = add("divide", near, _polynomial(add, _NEAR_Q, square))
    return add("numpy.copysign", add("where", add("less_equal", size, _NEAR), near, far), x)


def _polynomial(add: Add, coefficients: tuple[float, ...], x: str) -> str:
    """By Horner's rule, the coefficient of the highest power first."""
    value = add("multiply", x, coefficients[0])
    for coefficient in coefficients[1:-1]:
        value = add("multiply", add("add", value, coefficient), x)
    return add("add", value, coefficients[-1])
