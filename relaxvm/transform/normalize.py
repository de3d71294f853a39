"""Normalize: convert functions to normal form and infer their types."""

from __future__ import annotations

from typing import Any

from ..ir import BlockBuilder, Function, IRModule, declared_ret_type
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["Normalize"]


def Normalize() -> Pass:
    """Bind nested expressions to variables (ANF), infer all types, and join adjacent blocks of one
    kind; see `BlockBuilder`.  The type of a result becomes the inferred one if that says more."""

    @function_pass(name="Normalize")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        new: Any = BlockBuilder(mod).normalize(func)
        if new.ret_ty is None:
            return new
        ret_ty = declared_ret_type(new.ret_ty, new.params, new.body)
        return new if ret_ty is new.ret_ty else new.replace(ret_ty=ret_ty)

    return run
