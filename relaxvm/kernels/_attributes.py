"""Checks of attributes: the plain values that a kernel takes between its inputs and `out`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from ..values import Shape, describe
from ._kernel import Dims, axis_of

__all__ = ["axes_of", "choice_of", "flag_of", "int_of", "ints_of", "number_of"]


def int_of(name: str, parameter: str, value: Any, least: int | None = None) -> int:
    """An int, not a bool.

    Raises:
        TypeError: something else.
        ValueError: below `least`.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}: {parameter}: expected an int, got {describe(value)}")
    if least is not None and value < least:
        raise ValueError(f"{name}: {parameter}: expected at least {least}, got {value}")
    return value


def ints_of(
    name: str, parameter: str, value: Any, count: int | None = None, least: int | None = None
) -> Dims:
    """A tuple of ints, from a Shape, a tuple or a list.

    Args:
        name: of the kernel.
        parameter: of the kernel.
        value: the argument.
        count: how many there must be, None for any number.
        least: the least that each may be.

    Raises:
        TypeError: something else.
        ValueError: another number of ints, or one below `least`.
    """
    if type(value) is not Shape and (
        not isinstance(value, (tuple, list)) or not all(type(item) is int for item in value)
    ):
        raise TypeError(f"{name}: {parameter}: expected a shape of ints, got {describe(value)}")
    if count is not None and len(value) != count:
        number = "1 int" if count == 1 else f"{count} ints"
        raise ValueError(f"{name}: {parameter}: expected {number}, got {list(value)}")
    if least is not None and any(item < least for item in value):
        raise ValueError(
            f"{name}: {parameter}: expected ints of at least {least}, got {list(value)}"
        )
    return tuple(value)


def axes_of(name: str, x: NDArray[Any], axes: Sequence[Any]) -> Dims:
    """Axes of `x`, each counted from the front.

    Raises:
        TypeError: one is not an int.
        ValueError: `x` does not have one, or one is there twice.
    """
    found = tuple([axis_of(name, x, axis) for axis in axes])
    if len(set(found)) < len(found):
        raise ValueError(f"{name}: axes: expected each axis once, got {list(axes)}")
    return found


def flag_of(name: str, parameter: str, value: Any) -> bool:
    """A bool; bytecode passes it as 0 or 1.

    Raises:
        TypeError: neither a bool nor an int.
        ValueError: another int.
    """
    if not isinstance(value, int):
        raise TypeError(f"{name}: {parameter}: expected a bool, got {describe(value)}")
    if value not in (0, 1):
        raise ValueError(f"{name}: {parameter}: expected a bool, got {describe(value)}")
    return bool(value)


def number_of(name: str, parameter: str, value: Any) -> float:
    """A number as a float.

    Raises:
        TypeError: not a number.
        ValueError: it is not finite.
    """
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{name}: {parameter}: expected a number, got {describe(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name}: {parameter}: expected a finite number, got {describe(value)}")
    return number


def choice_of(name: str, parameter: str, value: Any, choices: Sequence[str]) -> str:
    """One of some strings.

    Raises:
        TypeError: not a string.
        ValueError: another string.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name}: {parameter}: expected a string, got {describe(value)}")
    if value not in choices:
        expected = " or ".join(map(repr, choices))
        raise ValueError(f"{name}: {parameter}: expected {expected}, got {value!r}")
    return value
