"""CompileShapeFunctions: arithmetic of shapes becomes kernels, not programs for the VM."""

from __future__ import annotations

from ..ir import IRModule
from ..tir import PrimFunc
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["CompileShapeFunctions"]

_OF_HOST = "tirx.is_host_func"


def CompileShapeFunctions() -> Pass:
    """PrimFuncs that VMShapeLower and ComputePrimValue have made become as others.

    Why: relaxvm has a builtin that does arithmetic on the shape heap, which saves the kernels; a VM
    that has not calls kernels.
    """

    @module_pass(name="CompileShapeFunctions")
    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        new = mod.copy()
        for var, func in mod.functions.items():
            if isinstance(func, PrimFunc) and func.attrs.get(_OF_HOST):
                new[var] = func.without_attr(_OF_HOST)
        return new

    return run
