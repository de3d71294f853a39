"""Normalize: every function in normal form, with its types inferred."""

from __future__ import annotations

from typing import Any

from ..ir import BlockBuilder, Function, IRModule
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["Normalize"]


def Normalize() -> Pass:
    """Nested expressions get bindings (ANF), and everything a type; see `BlockBuilder`."""

    @function_pass(name="Normalize")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return BlockBuilder(mod).normalize(func)

    return run
