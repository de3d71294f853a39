"""Keywords that a function does not have: the error lists those that it has."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from .errors import did_you_mean

__all__ = ["lists_fields", "lists_parameters"]

P = ParamSpec("P")
T = TypeVar("T")


def lists_parameters(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function, which has no ``**kwargs``, list its parameters where a keyword is none of
    them."""
    code = function.__code__
    names = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    known = [name for name in names if name != "self"]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        for name in kwargs:
            if name not in known:
                title = function.__qualname__.removesuffix(".__init__")
                raise TypeError(
                    f"{title}() got an unexpected keyword argument {name!r}, it has "
                    f"{', '.join(known)}{did_you_mean(name, known)}"
                )
        return function(*args, **kwargs)

    return call


def lists_fields(cls: type[T]) -> type[T]:
    """`lists_parameters` for the creation of a dataclass's objects."""
    init: Any = cls.__init__
    cls.__init__ = lists_parameters(init)  # type: ignore[method-assign]
    return cls
