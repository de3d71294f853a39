"""Conversion of the arguments of builtins to the expected kind of value, with clear errors.

Every function takes the value and a *subject*, the start of the error message
(``alloc_tensor: offset``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..dtypes import as_dtype
from ..messages import describe
from ..registry import StaticArg
from ..values import Shape

__all__ = [
    "as_array",
    "as_callable",
    "as_context",
    "as_data_type",
    "as_float",
    "as_int",
    "as_machine",
    "as_sequence",
    "as_shape",
    "as_str",
    "size_of",
    "static_int",
]


def _wrong(subject: str, expected: str, got: object) -> TypeError:
    return TypeError(f"{subject}: expected {expected}, got {describe(got)}")


def as_int(value: Any, subject: str) -> int:
    """Return an int; bools are converted, floats are refused."""
    if type(value) is int:
        return value
    if isinstance(value, (int, np.integer, np.bool_)):
        return int(value)
    raise _wrong(subject, "an int", value)


def as_float(value: Any, subject: str) -> float:
    """Return a float; ints and bools are converted."""
    if isinstance(value, (float, int, np.floating, np.integer, np.bool_)):
        return float(value)
    raise _wrong(subject, "a number", value)


def as_str(value: Any, subject: str) -> str:
    if isinstance(value, str):
        return value
    raise _wrong(subject, "a string", value)


def as_array(value: Any, subject: str) -> NDArray[Any]:
    if isinstance(value, np.ndarray):
        return value
    raise _wrong(subject, "a tensor", value)


def as_shape(value: Any, subject: str) -> Shape:
    """Return a Shape; a tuple of ints is converted."""
    if isinstance(value, Shape):
        return value
    if isinstance(value, (tuple, list)):
        return Shape(as_int(dim, f"{subject}, dimension {i}") for i, dim in enumerate(value))
    raise _wrong(subject, "a Shape", value)


def as_sequence(value: Any, subject: str) -> Sequence[Any]:
    """Return a tuple value; a Shape is refused."""
    if isinstance(value, (tuple, list)) and not isinstance(value, Shape):
        return value
    raise _wrong(subject, "a tuple", value)


def as_data_type(value: Any, subject: str) -> np.dtype[Any]:
    """Return a dtype; the name of one is converted."""
    if isinstance(value, np.dtype):
        return value
    if isinstance(value, str):
        return as_dtype(value)
    raise _wrong(subject, "a dtype", value)


def as_callable(value: Any, subject: str) -> Callable[..., Any]:
    """Return a closure or function."""
    if callable(value):
        func: Callable[..., Any] = value
        return func
    raise _wrong(subject, "a closure or function", value)


def as_machine(value: Any, subject: str) -> Any:
    """Return the VM state: any object with devices and their allocators."""
    if hasattr(value, "allocators") and hasattr(value, "devices"):
        return value
    raise _wrong(subject, "the VM state", value)


def as_context(err: Any) -> str:
    """Return the caller's error context as the prefix of a message, a long one shortened; empty for
    None."""
    if err is None:
        return ""
    if not isinstance(err, str):
        raise _wrong("error context", "a string", err)
    context: str = err
    if len(context) > _LONGEST_CONTEXT:
        context = f"{context[:_LONGEST_CONTEXT]}..."
    return context if not context or context[-1].isspace() else context + " "


_LONGEST_CONTEXT: Final = 10_000
_MOST_BYTES: Final = 1 << 64


def size_of(dims: Iterable[int], itemsize: int = 1) -> int:
    """Return the product of dimensions >= 0 and an item size: exact up to 2**64, otherwise some
    larger number.

    A shape may have thousands of dimensions; their exact product would be slow to compute and
    slower to print.
    """
    total = itemsize
    for dim in sorted(dims):  # zeros first
        total *= dim
        if total > _MOST_BYTES or not total:
            break
    return total


def static_int(args: Sequence[StaticArg], index: int) -> int | None:
    """Return the int at `index` in a load-time check; None if it is only known at run time."""
    if index < len(args) and args[index][0] in ("int", "bool"):
        value = args[index][1]
        return None if value is None else int(value)
    return None
