"""The modules with builtins, imported when one of their builtins is looked up."""

from __future__ import annotations

import importlib
from functools import cache

from ._homes import BUILTINS

__all__ = ["import_all", "import_home"]

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


def import_all() -> None:
    """Import all modules with builtins."""
    for module in BUILTINS:
        importlib.import_module(f"{_PACKAGE}.{module}")
