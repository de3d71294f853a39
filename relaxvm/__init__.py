"""relaxvm: a register-based virtual machine for tensor programs.

Build an executable with `ExecBuilder` or read one with `load`, run it with `VirtualMachine`.  Every
name below is imported on first use, so that ``import relaxvm`` costs next to nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from . import errors, isa, registry, values
    from ._core import Closure, Storage
    from .exec_builder import ExecBuilder
    from .executable import FunctionInfo, VMExecutable
    from .isa import FuncKind
    from .limits import Limits
    from .loading import load, loads, parse_text
    from .native import NativeFunction, load_kernels
    from .observe.profiler import profile
    from .registry import Registry, get_func, list_funcs, register_func
    from .source import DebugInfo, Span
    from .values import Device, Shape, cpu, device
    from .verify import Report, verify
    from .versions import get_include, show_versions
    from .vm import VirtualMachine, VMInstrumentReturnKind

__version__ = "0.1.0"

__all__ = [
    "Closure",
    "DebugInfo",
    "Device",
    "ExecBuilder",
    "FuncKind",
    "FunctionInfo",
    "Limits",
    "NativeFunction",
    "Registry",
    "Report",
    "Shape",
    "Span",
    "Storage",
    "VMExecutable",
    "VMInstrumentReturnKind",
    "VirtualMachine",
    "__version__",
    "cpu",
    "device",
    "errors",
    "get_func",
    "get_include",
    "isa",
    "list_funcs",
    "load",
    "load_kernels",
    "loads",
    "parse_text",
    "profile",
    "register_func",
    "registry",
    "show_versions",
    "values",
    "verify",
]

_HOME: Final = {
    "Closure": "_core",
    "DebugInfo": "source",
    "Device": "values",
    "ExecBuilder": "exec_builder",
    "FuncKind": "isa",
    "FunctionInfo": "executable",
    "Limits": "limits",
    "NativeFunction": "native",
    "Registry": "registry",
    "Report": "verify",
    "Shape": "values",
    "Span": "source",
    "Storage": "_core",
    "VMExecutable": "executable",
    "VMInstrumentReturnKind": "vm",
    "VirtualMachine": "vm",
    "cpu": "values",
    "device": "values",
    "get_func": "registry",
    "get_include": "versions",
    "list_funcs": "registry",
    "load": "loading",
    "load_kernels": "native",
    "loads": "loading",
    "parse_text": "loading",
    "profile": "observe.profiler",
    "register_func": "registry",
    "show_versions": "versions",
    "verify": "verify",
}
"""Public name -> the module that defines it."""

_SUBMODULES: Final = frozenset({"errors", "isa", "registry", "values"})


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    module = sys.modules[__name__]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=module)


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


class _Package(ModuleType):
    """Importing a submodule binds its name in the package.  Where a public name is spelled the same
    (`verify`), the name stays the function."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
