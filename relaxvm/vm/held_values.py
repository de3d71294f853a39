"""Values that a virtual machine holds: saved arguments, inputs and outputs.

A function of a machine refers to it.  A machine that held one would keep itself alive until the
garbage collector runs, so it holds a description in its place, also in closures and tuples.  Values
of data types are held as they are: to look through a long list would take longer than the call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import deep
from .._core import Closure, Machine, VMFunction
from ..errors import BugError
from ..nested import convert_nested

__all__ = ["Held"]


class _OwnFunction:
    """A function of the machine that holds it.  Closures take it for a function."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __call__(self, *args: Any) -> Any:
        raise BugError(f"function {self.index} is called by its description")


class Held(NamedTuple):
    """A value that a machine holds.

    Attributes:
        form: the value; functions of the machine are described.
        is_described: whether there are any.
    """

    form: Any
    is_described: bool

    @classmethod
    def by(cls, machine: Machine, value: Any) -> Held:
        """Return a value in the form in which `machine` can hold it."""

        def describe(leaf: Any) -> Any:
            if type(leaf) is VMFunction and leaf.machine is machine:
                return _OwnFunction(leaf.index)
            return leaf

        form = convert_nested(value, _has_parts, describe, _with_parts, items_of=_parts)
        return cls(form, form is not value)

    def value_for(self, machine: Machine) -> Any:
        """Return the value, with functions of `machine` where they are described."""
        if not self.is_described:
            return self.form

        def restore(leaf: Any) -> Any:
            return machine._function(leaf.index) if type(leaf) is _OwnFunction else leaf

        return convert_nested(self.form, _has_parts, restore, _with_parts, items_of=_parts)

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, stored = deep.reduce(self.form)
        return _unpickled, (rebuild, stored, self.is_described)


def _unpickled(rebuild: Callable[..., Any], stored: tuple[Any, ...], is_described: bool) -> Held:
    return Held(rebuild(*stored), is_described)


def _has_parts(value: Any) -> bool:
    return type(value) in (tuple, Closure)


def _parts(value: Any) -> tuple[Any, ...]:
    return (value.func, *value.captured) if type(value) is Closure else value


def _with_parts(outer: Any, parts: list[Any]) -> Any:
    if all(map(operator.is_, parts, _parts(outer))):
        return outer
    return Closure(parts[0], parts[1:]) if type(outer) is Closure else tuple(parts)
