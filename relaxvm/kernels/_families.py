"""The modules with kernels, imported when one of their kernels is looked up."""

from __future__ import annotations

import importlib
from functools import cache

from ..registry import KERNEL_PREFIX, RESULT_PREFIX
from . import _kernel
from ._homes import KERNELS

__all__ = ["import_all", "import_home"]

_PACKAGE = __name__.rpartition(".")[0]


@cache
def _homes() -> dict[str, str]:
    return {name: module for module, names in KERNELS.items() for name in names}


def import_home(name: str) -> bool:
    """Import the module of a kernel, by the kernel's full name or that of its other form.

    Returns:
        Whether the name is known; a new kernel may be missing in the table.
    """
    homes = _homes()
    plain = name.removeprefix(KERNEL_PREFIX)
    module = homes.get(plain) or homes.get(plain.removeprefix(RESULT_PREFIX))
    if module is None:
        return False
    importlib.import_module(f"{_PACKAGE}.{module}")
    _kernel.make(name)
    return True


def import_all() -> None:
    """Import all modules with kernels."""
    from pkgutil import iter_modules  # here, since running a program does not need it

    package = importlib.import_module(_PACKAGE)
    for module in iter_modules(package.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{_PACKAGE}.{module.name}")
    _kernel.make_all()
