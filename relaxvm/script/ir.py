"""``I``: modules of a script."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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


def ir_module(
    cls: type | None = None, *, check_well_formed: bool = True, s_tir: bool = False
) -> Any:
    """Decorator: the class is the text of an `IRModule`, which takes its place.

    Args:
        check_well_formed: whether to refuse a program that is not well-formed.
        s_tir: taken for compatibility; functions of TIR say it themselves.

    Raises:
        DiagnosticError: the script is wrong.
    """
    frame = sys._getframe(1)
    if cls is not None:
        return decorated_class(cls, frame, check_well_formed)

    def decorate(cls: type) -> IRModule:
        return decorated_class(cls, sys._getframe(1), check_well_formed)

    decorator: Callable[[type], IRModule] = decorate
    return decorator


def module_attrs(attrs: Mapping[str, Any]) -> ModuleAttrs:
    """Attributes of the module."""
    return ModuleAttrs(attrs)


def module_global_infos(infos: Mapping[str, Sequence[Any]]) -> ModuleGlobalInfos:
    """What functions of the module share, by kind: ``{"vdevice": [I.vdevice("llvm")]}``."""
    return ModuleGlobalInfos(infos)


def vdevice(
    target: str | Mapping[str, Any] = "llvm", vdevice_id: int = 0, memory_scope: str = "global"
) -> VDevice:
    """A device that tensors are placed on."""
    name = target if isinstance(target, str) else str(target["kind"])
    return VDevice(name, vdevice_id, memory_scope)


def StringType() -> expr.Type:
    """The type that TVM writes for strings; here they are values like any others."""
    return expr.ANY


def dummy_global_info() -> DummyGlobalInfo:
    """A global info without content."""
    return DummyGlobalInfo()


def GlobalVar(name: str, ty: Any = None) -> expr.GlobalVar:
    """A function of a module that is not in the text.

    Args:
        ty: its type, which a call of it needs.
    """
    ty = None if ty is None else type_of(ty)
    parser = CURRENT.get()
    return expr.GlobalVar(name, ty) if parser is None else parser.loose_var(name, ty)


def from_json(text: str) -> Any:
    """A value of an attribute that has no form of its own, as `relaxvm.ir.save_json` writes it."""
    return load_json(text)


def unwritten(kind: str) -> Any:
    """What stands for a value of an attribute that cannot be written.

    Raises:
        ValueError: always.
    """
    raise ValueError(
        f"the program has an attribute of the class {kind}, which script cannot hold: set it by "
        "with_attr when the program is read"
    )


def meta_var(value: Any) -> MetaVar:
    """``n = I.meta_var(value)``: a value of Python under a name, without a binding."""
    return MetaVar(value)
