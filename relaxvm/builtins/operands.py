"""Checks of the elements of operands.

Other frameworks refuse what operators here have a meaning for: an index that counts from the end,
an integer divided by zero.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import pieces
from ..pieces.reduce import reduced
from .arguments import as_int, as_str
from .registration import OWN_PREFIX, builtin

__all__ = ["indices_within", "nonzero_divisor"]

_MOST: Final = (1 << 63) - 1


def _integers(x: Any, subject: str) -> NDArray[Any]:
    if isinstance(x, np.ndarray) and x.dtype.kind in "iu":
        return x
    raise TypeError(f"{subject}: expected an integer tensor, got {describe(x)}")


@builtin("indices_within", "x: tensor, least: int, end: int, name: str", prefix=OWN_PREFIX)
def indices_within(x: Any, least: Any, end: Any, name: Any) -> NDArray[Any]:
    """Return an integer tensor, whose elements are checked.

    Args:
        least: the least that an element may be.
        end: what elements are below.
        name: begins messages of errors.

    Raises:
        TypeError: an argument is of the wrong kind.
        IndexError: an element is out of range.
    """
    subject = as_str(name, "indices_within: name")
    found = _integers(x, subject)
    low, high = as_int(least, "indices_within: least"), as_int(end, "indices_within: end")
    if found.size == 1:
        smallest = greatest = found.item()
    elif found.size:
        every = tuple(range(-found.ndim, 0))
        if (
            low == 0
            and found.dtype == np.int64
            # Negative numbers are great ones without a sign.
            and reduced(np.maximum, found.view(np.uint64), every).item() < high
        ):
            return found
        smallest, greatest = (reduced(f, found, every).item() for f in (np.minimum, np.maximum))
    else:
        return found
    if smallest < low or greatest >= high:
        wrong = smallest if smallest < low else greatest
        expected = f"at least {low}" if high == _MOST else f"numbers from {low} to {high - 1}"
        raise IndexError(f"{subject}: expected {expected}, got {wrong}")
    return found


@builtin("nonzero_divisor", "x: tensor, name: str", prefix=OWN_PREFIX)
def nonzero_divisor(x: Any, name: Any) -> NDArray[Any]:
    """Return an integer tensor that has no element 0.

    Args:
        name: begins messages of errors.

    Raises:
        TypeError: an argument is of the wrong kind.
        ZeroDivisionError: an element is 0.
    """
    subject = as_str(name, "nonzero_divisor: name")
    found = _integers(x, subject)
    for (part,) in pieces(found):
        if not part.all():
            raise ZeroDivisionError(f"{subject}: division of integers by zero")
    return found
