"""Containers of ``tvm_ffi``: here, Python's own."""

from __future__ import annotations

__all__ = ["Array", "Dict", "List", "Map"]

Array = List = list
Map = Dict = dict
