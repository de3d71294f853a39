"""Containers of ``tvm_ffi``: here, Python's own."""

from __future__ import annotations

from typing import Any

__all__ = ["Array", "Dict", "List", "Map", "ObjectConvertible"]

Array = List = list
Map = Dict = dict


class ObjectConvertible:
    """Base of classes whose `asobject` returns the object to pass instead."""

    def asobject(self) -> Any:
        """The object to pass."""
        raise NotImplementedError(f"{type(self).__name__}.asobject")
