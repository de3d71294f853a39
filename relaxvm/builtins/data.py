"""Tuples, copies of registers, and conditions."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core import reset_tuple_item
from ..errors import InternalError
from ..messages import describe
from .arguments import as_int, as_sequence
from .registration import builtin

__all__ = ["copy", "make_tuple", "move", "read_if_cond", "tuple_getitem", "tuple_reset_item"]


@builtin("make_tuple", "*items: any", result="tuple")
def make_tuple(*items: Any) -> tuple[Any, ...]:
    """Return a tuple of the arguments."""
    return items


def _element(items: Any, index: Any, subject: str) -> int:
    """Return the index of an element after checking it."""
    i = as_int(index, f"{subject}: index")
    if not 0 <= i < len(items):
        raise IndexError(f"{subject}: index {i}: expected 0 to {len(items) - 1}, "
                         f"the tuple has {len(items)} elements")
    return i


@builtin("tuple_getitem", "items: tuple, index: int")
def tuple_getitem(items: Any, index: Any) -> Any:
    """Return an element of a tuple.

    Raises:
        TypeError: not a tuple; a Shape does not count as one.
        IndexError: the index is out of range; negative indices are not supported.
    """
    elements = as_sequence(items, "tuple_getitem")
    return elements[_element(elements, index, "tuple_getitem")]


@builtin("tuple_reset_item", "items: tuple, index: int", result="none")
def tuple_reset_item(items: Any, index: Any) -> None:
    """Set an element of a tuple to None, in place: the change is visible in every register that
    holds the tuple.

    Programs that transform weights use this to release each one as soon as it has been used.  A
    program that names this builtin receives copies of the tuples that its caller passes, so the
    caller's tuples do not change.

    Raises:
        TypeError: not a tuple; a Shape does not count as one.
        IndexError: the index is out of range.
    """
    elements: Any = as_sequence(items, "tuple_reset_item")
    i = _element(elements, index, "tuple_reset_item")
    if isinstance(elements, tuple):
        reset_tuple_item(elements, i)
    else:
        elements[i] = None


@builtin("copy", "x: any")
def copy(x: Any) -> Any:
    """Return the argument, the same object: the register is copied, not the value."""
    return x


@builtin("move", "x: any", aliases=("vm.move",))
def move(x: Any) -> Any:
    """Return the argument, the same object: the name of `copy` in the design documents."""
    return x


@builtin("read_if_cond", "x: tensor|bool|int|object", result="bool")
def read_if_cond(x: Any) -> bool:
    """Return the condition of an ``if`` as a bool: that of a bool, an int, or the first element of
    an integer or bool tensor.

    Raises:
        TypeError: the argument is of another kind.
        InternalError: the tensor has another data type or no elements.
    """
    if isinstance(x, (int, np.bool_, np.integer)):
        return bool(x)
    if not isinstance(x, np.ndarray):
        raise TypeError(f"read_if_cond: expected a bool, an int or a tensor, got {describe(x)}")
    if x.dtype.kind not in "iub" or x.size == 0:
        raise InternalError(f"read_if_cond: expected a tensor with an integer or bool element, "
                            f"got {describe(x)}")
    return bool(x[(0,) * x.ndim])
