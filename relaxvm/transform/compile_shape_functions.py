"""CompileShapeFunctions: compile shape functions to kernels instead of shape programs."""

from __future__ import annotations

from ..ir import IRModule
from ..tir import PrimFunc
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["CompileShapeFunctions"]

_OF_HOST = "tirx.is_host_func"


def CompileShapeFunctions() -> Pass:
    """Treat the PrimFuncs that VMShapeLower and ComputePrimValue have added like other PrimFuncs.

    Why: relaxvm runs them as shape programs by a builtin; other VMs do not have it and need
    kernels.
    """

    @module_pass(name="CompileShapeFunctions")
    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        new = mod.copy()
        for var, func in mod.functions.items():
            if isinstance(func, PrimFunc) and func.attrs.get(_OF_HOST):
                new[var] = func.without_attr(_OF_HOST)
        return new

    return run
