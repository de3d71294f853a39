"""AttachGlobalSymbol: give every function the name that it has at run time."""

from __future__ import annotations

from typing import Any

from ..ir import ExternFunc, IRModule
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["AttachGlobalSymbol"]


def AttachGlobalSymbol() -> Pass:
    """Set the attribute "global_symbol" of functions that have none to their name in the module.

    Why: the code generator and the linker refer to functions by this symbol.
    """

    @module_pass(name="AttachGlobalSymbol")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        new = mod.copy()
        for var, func in mod.functions.items():
            if "global_symbol" not in func.attrs and not isinstance(func, ExternFunc):
                new[var] = func.with_attr("global_symbol", var.name_hint)
        return new

    return run
