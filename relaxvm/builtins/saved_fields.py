"""Checks of the fields of states that come from a file: see `relaxvm.vm.saved_runs.states`.

Each function returns the field, and raises a ValueError that names it and what was expected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..messages import describe

__all__ = ["as_count", "as_counts", "as_fields", "as_flag", "as_function", "as_rows", "as_tensor"]

_MOST = (1 << 62) - 1


def _wrong(name: str, expected: str, got: object) -> ValueError:
    return ValueError(f"{name}: expected {expected}, got {describe(got)}")


def as_fields(value: Any, count: int, name: str) -> tuple[Any, ...]:
    """A tuple of so many items."""
    if type(value) is not tuple or len(value) != count:
        raise _wrong(name, f"a tuple of {count}", value)
    return value


def as_rows(value: Any, name: str) -> tuple[Any, ...]:
    """A tuple of any length."""
    if type(value) is not tuple:
        raise _wrong(name, "a tuple", value)
    return value


def as_count(value: Any, name: str, most: int = _MOST, least: int = 0) -> int:
    """An int in a range."""
    if type(value) is not int or not least <= value <= most:
        raise _wrong(name, f"a number from {least} to {most}", value)
    return value


def as_counts(value: Any, name: str, most: int = _MOST, least: int = 0) -> tuple[int, ...]:
    """A tuple of ints in a range."""
    return tuple([as_count(item, name, most, least) for item in as_rows(value, name)])


def as_flag(value: Any, name: str) -> bool:
    """A bool."""
    if type(value) is not bool:
        raise _wrong(name, "a bool", value)
    return value


def as_function(value: Any, name: str) -> Callable[..., Any] | None:
    """A function, or None."""
    if value is not None and not callable(value):
        raise _wrong(name, "a function or None", value)
    found: Callable[..., Any] | None = value
    return found


def as_tensor(
    value: Any,
    name: str,
    shape: Sequence[int | None] | None = None,
    dtype: Any = None,
    *,
    writeable: bool = False,
) -> NDArray[Any]:
    """A tensor.

    Args:
        shape: its dimensions; None for one that may be any, and for all of them.
        dtype: its data type.
        writeable: whether it must be possible to write to it.
    """
    if type(value) is not np.ndarray or value.dtype.hasobject:
        raise _wrong(name, "a tensor", value)
    fits = shape is None or (
        len(shape) == value.ndim
        and all(a is None or a == b for a, b in zip(shape, value.shape, strict=True))
    )
    if not fits or (dtype is not None and value.dtype != dtype):
        shown = "" if shape is None else str(["?" if dim is None else dim for dim in shape])
        raise _wrong(name, f"a tensor {dtype or ''}{shown}", value)
    if writeable and not value.flags.writeable:
        raise _wrong(name, "a tensor that can be written to", value)
    return value
