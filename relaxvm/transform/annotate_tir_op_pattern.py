"""AnnotateTIROpPattern: find out which PrimFuncs can be fused."""

from __future__ import annotations

from typing import Any

from ..ir import IRModule
from ..tir.function import PrimFunc
from ..tir.op_pattern import analyze_op_pattern_kind
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["OP_PATTERN", "AnnotateTIROpPattern"]

OP_PATTERN = "op_pattern"
"""The attribute of a PrimFunc that says how it can be fused: a number of `OpPatternKind`."""


def AnnotateTIROpPattern() -> Pass:
    """Give every PrimFunc the attribute "op_pattern", which `FuseOps` reads: a number of
    `relaxvm.tir.op_pattern.OpPatternKind`.  One that has it keeps it, unless it is 0.

    Source: ``relax.transform.AnnotateTIROpPattern`` of apache-tvm 0.27.
    """

    @module_pass(name="AnnotateTIROpPattern")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        result = mod.copy()
        for var, func in mod.items():
            if isinstance(func, PrimFunc) and not func.attrs.get(OP_PATTERN):
                kind = int(analyze_op_pattern_kind(func))
                result[var] = func.with_attr(OP_PATTERN, kind)
        return result

    return run
