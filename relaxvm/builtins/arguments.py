"""What builtins make of their arguments: the right kind of value, or an error that says what it is.

Every function takes the value and a *subject*, the words that open the message
(``alloc_tensor: offset``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..registry import StaticArg
from ..values import Shape, as_dtype, describe

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
    """An int; a bool counts as one, a float never does."""
    if type(value) is int:
        return value
    if isinstance(value, (int, np.integer, np.bool_)):
        return int(value)
    raise _wrong(subject, "an int", value)


def as_float(value: Any, subject: str) -> float:
    """A float; ints and bools convert."""
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
    """A Shape; a tuple of ints becomes one."""
    if isinstance(value, Shape):
        return value
    if isinstance(value, (tuple, list)):
        return Shape(as_int(dim, f"{subject}, dimension {i}") for i, dim in enumerate(value))
    raise _wrong(subject, "a Shape", value)


def as_sequence(value: Any, subject: str) -> Sequence[Any]:
    """A tuple value.  A Shape is none."""
    if isinstance(value, (tuple, list)) and not isinstance(value, Shape):
        return value
    raise _wrong(subject, "a tuple", value)


def as_data_type(value: Any, subject: str) -> np.dtype[Any]:
    """A dtype, or the name of one."""
    if isinstance(value, np.dtype):
        return value
    if isinstance(value, str):
        return as_dtype(value)
    raise _wrong(subject, "a dtype", value)


def as_callable(value: Any, subject: str) -> Callable[..., Any]:
    """A closure or function."""
    if callable(value):
        func: Callable[..., Any] = value
        return func
    raise _wrong(subject, "a closure or function", value)


def as_machine(value: Any, subject: str) -> Any:
    """The VM state: anything with devices and their allocators."""
    if hasattr(value, "allocators") and hasattr(value, "devices"):
        return value
    raise _wrong(subject, "the VM state", value)


def as_context(err: Any) -> str:
    """The caller's error context, ready to stand before a message; empty for None."""
    if err is None:
        return ""
    if not isinstance(err, str):
        raise _wrong("error context", "a string", err)
    return err if not err or err[-1].isspace() else err + " "


_MOST_BYTES: Final = 1 << 64


def size_of(dims: Iterable[int], itemsize: int = 1) -> int:
    """Product of dimensions >= 0 and an item size: exact up to 2**64, else some number above it.

    A shape may have thousands of dimensions; the exact product of all would be slow to compute and
    slower to print.
    """
    total = itemsize
    for dim in sorted(dims):  # zeros first
        total *= dim
        if total > _MOST_BYTES or not total:
            break
    return total


def static_int(args: Sequence[StaticArg], index: int) -> int | None:
    """The int that a load-time check finds at `index`, None where only the run knows it."""
    if index < len(args) and args[index][0] in ("int", "bool"):
        value = args[index][1]
        return None if value is None else int(value)
    return None
