"""Tuples, copies of references, and conditions."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core import reset_tuple_item
from ..errors import InternalError
from ..values import describe
from .arguments import as_int, as_sequence
from .registration import builtin

__all__ = ["copy", "make_tuple", "move", "read_if_cond", "tuple_getitem", "tuple_reset_item"]


@builtin("make_tuple", "*items: any", result="tuple")
def make_tuple(*items: Any) -> tuple[Any, ...]:
    """A tuple of the arguments."""
    return items


def _element(items: Any, index: Any, subject: str) -> int:
    """The index of an element, checked."""
    i = as_int(index, f"{subject}: index")
    if not 0 <= i < len(items):
        raise IndexError(f"{subject}: index {i}: expected 0 to {len(items) - 1}, "
                         f"the tuple has {len(items)} elements")
    return i


@builtin("tuple_getitem", "items: tuple, index: int")
def tuple_getitem(items: Any, index: Any) -> Any:
    """An element of a tuple.

    Raises:
        TypeError: not a tuple; a Shape is none.
        IndexError: no such element; negative indices do not count from the end.
    """
    elements = as_sequence(items, "tuple_getitem")
    return elements[_element(elements, index, "tuple_getitem")]


@builtin("tuple_reset_item", "items: tuple, index: int", result="none")
def tuple_reset_item(items: Any, index: Any) -> None:
    """Set an element of a tuple to None, in place: every register that holds the tuple sees it.

    Programs that transform weights give each one up this way once it has been used.  A program that
    names this builtin gets tuples from outside as copies, so that it changes only its own.

    Raises:
        TypeError: not a tuple; a Shape is none.
        IndexError: no such element.
    """
    elements: Any = as_sequence(items, "tuple_reset_item")
    i = _element(elements, index, "tuple_reset_item")
    if isinstance(elements, tuple):
        reset_tuple_item(elements, i)
    else:
        elements[i] = None


@builtin("copy", "x: any")
def copy(x: Any) -> Any:
    """The same object: a second register for it, not a second value."""
    return x


@builtin("move", "x: any", aliases=("vm.move",))
def move(x: Any) -> Any:
    """The same object: the design documents' name of `copy`."""
    return x


@builtin("read_if_cond", "x: tensor|bool|int|object", result="bool")
def read_if_cond(x: Any) -> bool:
    """The condition of an ``if``: of a bool, an int, or the first element of an integer or bool
    tensor.

    Raises:
        TypeError: something else.
        InternalError: a tensor of another data type, or without elements.
    """
    if isinstance(x, (int, np.bool_, np.integer)):
        return bool(x)
    if not isinstance(x, np.ndarray):
        raise TypeError(f"read_if_cond: expected a bool, an int or a tensor, got {describe(x)}")
    if x.dtype.kind not in "iub" or x.size == 0:
        raise InternalError(f"read_if_cond: expected a tensor with an integer or bool element, "
                            f"got {describe(x)}")
    return bool(x[(0,) * x.ndim])
