"""Normalize: convert functions to normal form and infer their types."""

from __future__ import annotations

from typing import Any

from ..ir import BlockBuilder, Function, IRModule
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["Normalize"]


def Normalize() -> Pass:
    """Bind nested expressions to variables (ANF) and infer all types; see `BlockBuilder`."""

    @function_pass(name="Normalize")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return BlockBuilder(mod).normalize(func)

    return run
