"""Containers of ``tvm_ffi``: here, Python's own."""

from __future__ import annotations

from collections.abc import Iterable
from types import GenericAlias
from typing import Any

__all__ = ["Array", "Dict", "List", "Map", "ObjectConvertible"]

List = list
Map = Dict = dict


class _ArrayType(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (list, tuple))


class Array(metaclass=_ArrayType):
    """A sequence of values: a list, or a tuple, as functions of a VM return."""

    def __new__(cls, input_list: Iterable[Any] = ()) -> Any:
        """Return the values as a list."""
        return list(input_list)

    def __class_getitem__(cls, item: Any) -> GenericAlias:
        return GenericAlias(cls, item)


class ObjectConvertible:
    """Base of classes whose `asobject` returns the object to pass instead."""

    def asobject(self) -> Any:
        """The object to pass."""
        raise NotImplementedError(f"{type(self).__name__}.asobject")
