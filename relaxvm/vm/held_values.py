"""Values that a virtual machine holds: saved arguments, inputs and outputs.

A function or closure of a machine refers to it.  A machine that held one would keep itself alive
until the garbage collector runs, so it holds a description in its place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .._core import Closure, Machine, VMFunction
from ..nested import convert_nested

__all__ = ["Held"]


class _OwnFunction(NamedTuple):
    """A function of the machine that holds it."""

    func_index: int


class _OwnClosure(NamedTuple):
    """A closure that has functions of the machine that holds it: their descriptions are in it."""

    func: Any
    captured: tuple[Any, ...]


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

        form = convert_nested(value, _is_nested, describe, _described, items_of=_items)
        return cls(form, form is not value)

    def value_for(self, machine: Machine) -> Any:
        """Return the value, with functions of `machine` where they are described."""
        if not self.is_described:
            return self.form

        def restore(leaf: Any) -> Any:
            return machine._function(leaf.func_index) if type(leaf) is _OwnFunction else leaf

        return convert_nested(self.form, _is_nested_form, restore, _restored)


def _is_nested(value: Any) -> bool:
    return type(value) is tuple or type(value) is Closure


def _items(value: Any) -> tuple[Any, ...]:
    return (value.func, *value.captured) if type(value) is Closure else value


def _described(outer: Any, items: list[Any]) -> Any:
    if all(new is old for new, old in zip(items, _items(outer), strict=True)):
        return outer
    return _OwnClosure(items[0], tuple(items[1:])) if type(outer) is Closure else tuple(items)


def _is_nested_form(form: Any) -> bool:
    return type(form) is tuple or type(form) is _OwnClosure


def _restored(outer: Any, items: list[Any]) -> Any:
    if type(outer) is _OwnClosure:
        func, captured = items
        return Closure(func, captured)
    return tuple(items)
