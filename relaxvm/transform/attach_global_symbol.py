"""AttachGlobalSymbol: public functions know the name they are called by."""

from __future__ import annotations

from typing import Any

from ..ir import IRModule
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["AttachGlobalSymbol"]


def AttachGlobalSymbol() -> Pass:
    """Functions without the attribute "global_symbol" get their name in the module as such.

    Why: the code generator and the linker know functions by that symbol.
    """

    @module_pass(name="AttachGlobalSymbol")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        new = mod.copy()
        for var, func in mod.functions.items():
            if "global_symbol" not in func.attrs:
                new[var] = func.with_attr("global_symbol", var.name_hint)
        return new

    return run
