"""What the operators of `topi` do first: their arguments are checked against their signatures."""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ...ir.expr import Expr
from ...messages import describe
from ..tensor import Tensor

__all__ = ["check_arguments"]


def check_arguments(module: Mapping[str, Any]) -> dict[str, Any]:
    """Return the public functions of a module, with checks of what they are called with.

    The operators call each other without these.
    """
    return {name: _checked(name, module[name]) for name in module["__all__"]
            if inspect.isfunction(module[name])}  # fmt: skip


def _checked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; a wrong type of argument is a TypeError that names both.  Other exceptions get
    a note that names the function."""
    signature = inspect.signature(function)
    checks = {
        parameter.name: check
        for parameter in signature.parameters.values()
        if (check := _CHECKS.get(parameter.annotation)) is not None
    }

    @functools.wraps(function)
    def operator(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # Python's own message names the function
        for parameter, value in given.items():
            if parameter in checks:
                checks[parameter](f"topi.{name}: {parameter}", value)
        try:
            return function(*args, **kwargs)
        except Exception as error:
            error.add_note(f"in topi.{name}")
            raise

    return operator


def _tensor(what: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{what}: expected a te.Tensor, got {_described(value)}")


def _tensors(what: str, value: Any) -> None:
    if isinstance(value, (str, Expr)) or not isinstance(value, Iterable):
        raise TypeError(f"{what}: expected a list of te.Tensor, got {_described(value)}")
    empty = True
    for k, each in enumerate(value):
        _tensor(f"{what}[{k}]", each)
        empty = False
    if empty:
        raise ValueError(f"{what}: expected at least one te.Tensor, got none")


def _text(what: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{what}: expected a str, got {_described(value)}")


def _integer(what: str, value: Any) -> None:
    if not isinstance(value, Expr) and not hasattr(value, "__index__"):
        raise TypeError(f"{what}: expected an integer, got {_described(value)}")


def _number(what: str, value: Any) -> None:
    if not isinstance(value, (Expr, numbers.Real)):
        raise TypeError(f"{what}: expected a number, got {_described(value)}")


def _list(what: str, value: Any) -> None:
    if isinstance(value, str) or not (isinstance(value, Iterable) or hasattr(value, "values")):
        raise TypeError(f"{what}: expected a list of integers, got {_described(value)}")


def _described(value: Any) -> str:
    return repr(value) if isinstance(value, (Tensor, Expr)) else describe(value)


def _or_none(check: Callable[[str, Any], None]) -> Callable[[str, Any], None]:
    def optional(what: str, value: Any) -> None:
        if value is not None:
            check(what, value)

    return optional


_REQUIRED: Final = {
    "Tensor": _tensor,
    "Sequence[Tensor]": _tensors,
    "Sequence[Any]": _list,
    "Sequence[int]": _list,
    "str": _text,
    "int": _integer,
    "float": _number,
    "builtins.float": _number,
}
_CHECKS: Final = {
    **_REQUIRED,
    **{f"{annotation} | None": _or_none(check) for annotation, check in _REQUIRED.items()},
}
"""Annotation of a parameter -> what its argument has to be."""
