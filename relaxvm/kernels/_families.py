"""The modules with kernels, imported when one of their kernels is looked up."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..core._deferred import Deferred
from ..registry import GLOBAL, KERNEL_PREFIX, RESULT_PREFIX, PackedFunc
from ._homes import ALIASES, KERNELS, UFUNCS
from .implementations import DispatchedKernel, dispatched, implementations_of

__all__ = ["deferred", "import_all", "import_home", "quick_of_deferred"]

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
    from . import _kernel  # here, since a program from a file runs most kernels in C

    _kernel.make(name)
    return True


def deferred(name: str) -> tuple[Callable[..., Any], Deferred] | None:
    """What a program links for a kernel, or its other form, whose module need not be imported yet,
    and what finds the function in Python; None for other names."""
    homes = _homes()
    kernel = name.removeprefix(KERNEL_PREFIX)
    if kernel not in homes and name.removeprefix(RESULT_PREFIX) not in homes:
        return None

    def find() -> Callable[..., Any]:
        function = GLOBAL.get(name)
        return function.reference if isinstance(function, DispatchedKernel) else function

    function = Deferred(find)
    implementations = implementations_of(ALIASES.get(kernel, kernel))
    if not implementations or kernel == name:
        return function, function
    return dispatched(function, implementations, _ufunc_of(kernel)), function


def quick_of_deferred(record: PackedFunc) -> np.ufunc | Callable[..., Any] | None:
    """What the core calls for a deferred kernel without Python code: the ufunc that it is, or its
    implementations in C; None if it has neither."""
    if not record.name.startswith(KERNEL_PREFIX):
        return None
    ufunc = _ufunc_of(record.name.removeprefix(KERNEL_PREFIX))
    is_in_c = isinstance(record.func, DispatchedKernel)
    return ufunc or (record.func if is_in_c else None)


def _ufunc_of(kernel: str) -> np.ufunc | None:
    name = UFUNCS.get(kernel)
    return None if name is None else getattr(np, name)


def import_all() -> None:
    """Import all modules with kernels."""
    from pkgutil import iter_modules  # here, since running a program does not need it

    from . import _kernel

    package = importlib.import_module(_PACKAGE)
    for module in iter_modules(package.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{_PACKAGE}.{module.name}")
    _kernel.make_all()
