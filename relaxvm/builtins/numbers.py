"""Numbers out of tensors that only the run knows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from .arguments import as_int, as_str
from .registration import OWN_PREFIX, builtin

__all__ = ["int_within", "number_from"]


def _element(x: Any, kinds: str, expected: str, subject: str) -> Any:
    if not isinstance(x, np.ndarray) or x.dtype.kind not in kinds or x.size != 1:
        raise TypeError(f"{subject}: expected {expected} with one element, got {describe(x)}")
    array: NDArray[Any] = x.reshape(-1)
    return array[0].item()


@builtin("number_from", "x: tensor", prefix=OWN_PREFIX)
def number_from(x: Any) -> int | float | bool:
    """Return the element of a tensor that has one, as an int, float or bool.

    Raises:
        TypeError: the argument is something else.
    """
    if isinstance(x, np.ndarray) and x.dtype.kind == "V":  # bfloat16 and others of ml_dtypes
        x = x.astype(np.float32)
    number: int | float | bool = _element(x, "biuf", "a tensor of numbers", "number_from")
    return number


@builtin("int_within", "x: tensor, least: int, most: int, name: str", result="int",
         prefix=OWN_PREFIX)  # fmt: skip
def int_within(x: Any, least: Any, most: Any, name: Any) -> int:
    """Return the element of an integer tensor that has one.

    Args:
        least, most: what it may be.
        name: begins messages of errors.

    Raises:
        TypeError: the argument is something else.
        ValueError: it is out of range.
    """
    subject = as_str(name, "int_within: name")
    number: int = _element(x, "iu", "an integer tensor", subject)
    low, high = as_int(least, "int_within: least"), as_int(most, "int_within: most")
    if not low <= number <= high:
        raise ValueError(f"{subject}: expected a number from {low} to {high}, got {number}")
    return number
