"""State that a VM keeps from one call to the next, and arguments that a program changes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import copied, copy_pieces
from .arguments import as_array, as_int, as_str
from .registration import OWN_PREFIX, builtin

__all__ = ["assign", "state_read", "state_write", "within"]

_MOST: Final = (1 << 63) - 1
"""A bound that is none."""


def _state_of(ctx: Any, subject: str) -> dict[str, NDArray[Any]]:
    state = getattr(ctx, "state", None)
    if isinstance(state, dict):
        return state
    raise TypeError(f"{subject}: ctx: expected the VM state, got {describe(ctx)}")


@builtin("state_read", "ctx: vm, name: str, initial: tensor", result="tensor", prefix=OWN_PREFIX)
def state_read(ctx: Any, name: Any, initial: Any) -> NDArray[Any]:
    """Return what the VM keeps under a name; `initial` until something is written.

    Raises:
        TypeError: an argument is of the wrong kind, or the user put a value of another data type or
            shape into ``vm.state``.
    """
    state = _state_of(ctx, "state_read")
    key, first = as_str(name, "state_read: name"), as_array(initial, "state_read: initial")
    found = state.get(key)
    if found is None:
        return first
    if not isinstance(found, np.ndarray) or found.dtype != first.dtype or (
        found.shape != first.shape
    ):  # fmt: skip
        raise TypeError(f"vm.state[{key!r}]: expected {describe(first)}, got {describe(found)}")
    return found


@builtin("state_write", "ctx: vm, name: str, value: tensor", result="none", prefix=OWN_PREFIX)
def state_write(ctx: Any, name: Any, value: Any) -> None:
    """Let the VM keep a copy of a tensor under a name.

    Raises:
        TypeError: an argument is of the wrong kind.
    """
    state = _state_of(ctx, "state_write")
    key, new = as_str(name, "state_write: name"), as_array(value, "state_write: value")
    state[key] = copied(new)


@builtin("assign", "x: tensor, value: tensor, name: str", result="none", prefix=OWN_PREFIX)
def assign(x: Any, value: Any, name: Any) -> None:
    """Write the elements of a tensor into another one of the same data type and shape.

    Args:
        name: begins messages of errors.

    Raises:
        TypeError: an argument is of the wrong kind.
        ValueError: data types or shapes differ, or x is read-only.
    """
    subject = as_str(name, "assign: name")
    target, new = as_array(x, subject), as_array(value, f"{subject}: value")
    if target.dtype != new.dtype or target.shape != new.shape:
        raise ValueError(f"{subject}: expected {describe(target)}, got {describe(new)}")
    if not target.flags.writeable:
        raise ValueError(f"{subject}: the program changes this tensor, but it is read-only")
    copy_pieces(target, new)


@builtin("within", "number: int, least: int, most: int, name: str", result="none",
         prefix=OWN_PREFIX)  # fmt: skip
def within(number: Any, least: Any, most: Any, name: Any) -> None:
    """Check a number.

    Args:
        least, most: what it may be.
        name: begins messages of errors.

    Raises:
        TypeError: an argument is of the wrong kind.
        ValueError: the number is out of range.
    """
    subject = as_str(name, "within: name")
    value = as_int(number, subject)
    low, high = as_int(least, "within: least"), as_int(most, "within: most")
    if not low <= value <= high:
        expected = f"{low} to {high}"
        if high == _MOST:
            expected = f"at least {low}"
        elif low == -_MOST:
            expected = f"at most {high}"
        raise ValueError(f"{subject}: expected {expected}, got {value}")
