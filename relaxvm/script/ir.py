"""The namespace ``I`` of script: modules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from ..ir import expr
from ..ir.json import load_json
from ..ir.module import DummyGlobalInfo, IRModule, VDevice
from ..ir.op import Op
from .entry import decorated_class
from .markers import MetaVar, ModuleAttrs, ModuleGlobalInfos
from .scope import CURRENT
from .type_forms import type_of

__all__ = [
    "GlobalVar",
    "Op",
    "StringType",
    "dummy_global_info",
    "from_json",
    "ir_module",
    "meta_var",
    "module_attrs",
    "module_global_infos",
    "unwritten",
    "vdevice",
]


@overload
def ir_module(cls: type, /) -> Any: ...
@overload
def ir_module(
    *, check_well_formed: bool = ..., s_tir: bool = ...
) -> Callable[[type], Any]: ...
def ir_module(
    cls: type | None = None, *, check_well_formed: bool = True, s_tir: bool = False
) -> Any:
    """Decorator: parse the class and replace it by an `IRModule`.

    Args:
        check_well_formed: whether to reject a program that is not well-formed.
        s_tir: accepted for compatibility and ignored; each TIR function says it itself.

    Raises:
        DiagnosticError: there is an error in the script.
    """
    frame = sys._getframe(1)
    if cls is not None:
        return decorated_class(cls, frame, check_well_formed)

    def decorate(cls: type) -> IRModule:
        return decorated_class(cls, sys._getframe(1), check_well_formed)

    return decorate


def module_attrs(attrs: Mapping[str, Any]) -> ModuleAttrs:
    """Set the attributes of the module."""
    return ModuleAttrs(attrs)


def module_global_infos(infos: Mapping[str, Sequence[Any]]) -> ModuleGlobalInfos:
    """Set the global infos of the module, by kind: ``{"vdevice": [I.vdevice("llvm")]}``."""
    return ModuleGlobalInfos(infos)


def vdevice(
    target: str | Mapping[str, Any] = "llvm", vdevice_id: int = 0, memory_scope: str = "global"
) -> VDevice:
    """A device that tensors are placed on."""
    name = target if isinstance(target, str) else str(target["kind"])
    return VDevice(name, vdevice_id, memory_scope)


def StringType() -> expr.Type:
    """The type of strings in TVM's text; in relaxvm it is `R.Any`."""
    return expr.ANY


def dummy_global_info() -> DummyGlobalInfo:
    """An empty global info."""
    return DummyGlobalInfo()


def GlobalVar(name: str, ty: Any = None) -> expr.GlobalVar:
    """A global function that is not defined in the text.

    Args:
        ty: its type; required if it is called.
    """
    ty = None if ty is None else type_of(ty)
    parser = CURRENT.get()
    return expr.GlobalVar(name, ty) if parser is None else parser.foreign_global_var(name, ty)


def from_json(text: str) -> Any:
    """An attribute value that has no other text form, as written by `relaxvm.ir.save_json`."""
    return load_json(text)


def unwritten(kind: str) -> Any:
    """A placeholder for an attribute value that has no text form.

    Raises:
        ValueError: always, when the text is parsed.
    """
    raise ValueError(
        f"the program has an attribute of class {kind}, which script cannot express: set it by "
        "with_attr after the program is parsed"
    )


def meta_var(value: Any) -> MetaVar:
    """``n = I.meta_var(value)``: name a Python value without creating a binding."""
    return MetaVar(value)
