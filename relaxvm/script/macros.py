"""Macros: functions of Python whose statements are parsed where they are used."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from types import FrameType, FunctionType
from typing import Any

from .entry import enclosing_names
from .scope import CURRENT
from .source import Source

__all__ = ["Macro", "macro"]


class Macro:
    """A macro.  A call of it in a Relax function has the effect of its statements, with the
    arguments in the place of its parameters, and the value that it returns.

    Attributes:
        node: its definition.
        source: the file of the definition.
        names: values of the names that are visible there.
        hygienic: whether names that are not parameters have those values; if not, they have the
            values that they have where the macro is used.
    """

    __slots__ = ("__name__", "__signature__", "hygienic", "names", "node", "source")

    def __init__(self, func: FunctionType, names: Mapping[str, Any], hygienic: bool) -> None:
        self.source = Source.of_file(func.__code__.co_filename, func.__globals__)
        self.node: ast.FunctionDef = self.source.function_at(func.__code__)
        self.names = dict(names)
        self.hygienic = hygienic
        self.__name__ = func.__name__
        self.__signature__ = inspect.signature(func)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        parser = CURRENT.get()
        if parser is None or parser.body is None:
            raise TypeError(f"macro {self.__name__!r}: expected to be called in a Relax function")
        bound = self.__signature__.bind(*args, **kwargs)
        bound.apply_defaults()
        return parser.body.expand(self, bound.arguments)

    def __repr__(self) -> str:
        return f"<macro {self.__name__}{self.__signature__}>"


def macro(func: Any, frame: FrameType, hygienic: bool) -> Macro:
    """Return a function that Python has defined in a frame as a macro.

    Raises:
        TypeError: `func` is not a function.
    """
    if not isinstance(func, FunctionType):
        raise TypeError(f"R.macro: expected a function, got {type(func).__name__}")
    return Macro(func, enclosing_names(frame, [func]), hygienic)
