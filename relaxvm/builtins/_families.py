"""The modules with builtins, imported when one of their builtins is looked up."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

from ..core._deferred import Deferred
from ._homes import AT_ONCE, BUILTINS
from .registration import reference_of

__all__ = ["deferred", "import_all", "import_home"]

_PACKAGE = __name__.rpartition(".")[0]


@cache
def _homes() -> dict[str, str]:
    return {name: module for module, names in BUILTINS.items() for name in names}


def import_home(name: str) -> None:
    """Import the module of a builtin, by its full name or by an alias; do nothing for other
    names."""
    module = _homes().get(name)
    if module is not None:
        importlib.import_module(f"{_PACKAGE}.{module}")


def deferred(name: str) -> tuple[Callable[..., Any], Deferred] | None:
    """What a program links for a builtin whose module need not be imported yet, and what finds the
    function; None for other names."""
    if name not in _homes() or name in AT_ONCE:
        return None

    def find() -> Callable[..., Any]:
        import_home(name)
        return reference_of(name)

    function = Deferred(find)
    return function, function


def import_all() -> None:
    """Import all modules with builtins."""
    for module in BUILTINS:
        importlib.import_module(f"{_PACKAGE}.{module}")
