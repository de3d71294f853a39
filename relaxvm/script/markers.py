"""Markers: the values of statements of a script, such as ``R.output(...)``, for the parser."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.expr import Expr, Type

__all__ = [
    "Annotations",
    "Dataflow",
    "FunctionAttrs",
    "Incomplete",
    "MatchCastPair",
    "MetaVar",
    "ModuleAttrs",
    "ModuleGlobalInfos",
    "Output",
]


class Annotations(enum.Enum):
    """What the parser does with a type that is written and cannot be proved."""

    PROVED = "an error that suggests R.match_cast"
    CHECKED = "the type is checked when the program runs, as by R.match_cast"
    TRUSTED = "it is believed"


class MatchCastPair:
    """``R.match_cast(value, ty)``, the right side of an assignment."""

    __slots__ = ("ty", "value")

    def __init__(self, value: Expr, ty: Type) -> None:
        self.value = value
        self.ty = ty


class MetaVar:
    """``I.meta_var(value)``: names a Python value without creating a binding."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Incomplete:
    """``R.incomplete(value)``, after ``match``."""

    __slots__ = ("value",)

    def __init__(self, value: Expr) -> None:
        self.value = value


class Dataflow:
    """``R.dataflow()``, the context of a block.  Outside of scripts it is a block of the
    `relaxvm.script.ir_builder` around it."""

    __slots__ = ("_frame",)

    def __enter__(self) -> Any:
        from .ir_builder import dataflow

        self._frame = dataflow()
        return self._frame.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._frame.__exit__(*error)


class Output:
    """``R.output(...)``: the variables of a dataflow block that are visible outside."""

    __slots__ = ("variables",)

    def __init__(self, variables: Sequence[Any]) -> None:
        self.variables = tuple(variables)


class FunctionAttrs:
    """``R.func_attr({...})``"""

    __slots__ = ("attrs",)

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self.attrs = dict(attrs)


class ModuleAttrs(FunctionAttrs):
    """``I.module_attrs({...})``"""

    __slots__ = ()


class ModuleGlobalInfos:
    """``I.module_global_infos({...})``"""

    __slots__ = ("infos",)

    def __init__(self, infos: Mapping[str, Sequence[Any]]) -> None:
        self.infos = {kind: list(values) for kind, values in infos.items()}
