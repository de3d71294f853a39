"""ToNonDataflow: replace dataflow blocks by plain blocks."""

from __future__ import annotations

from typing import Any

from ..ir import (
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    IRModule,
    SeqExpr,
    Var,
)
from ._renaming import Renamer
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["ToNonDataflow"]


class _Rewriter(Renamer):
    def visit_var_def(self, var: Var) -> Var:
        var = super().visit_var_def(var)
        return Var(var.name, var.ty, var.span) if isinstance(var, DataflowVar) else var

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        block = super().visit_block(block)
        is_dataflow = isinstance(block, DataflowBlock)
        return BindingBlock(block.bindings, block.span) if is_dataflow else block

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        seq = super().visit_seq(seq)
        if len(seq.blocks) < 2:
            return seq
        bindings = [binding for block in seq.blocks for binding in block.bindings]
        return SeqExpr([BindingBlock(bindings, seq.blocks[0].span)], seq.body, span=seq.span)


def to_non_dataflow(func: Function) -> Function:
    """See `ToNonDataflow`."""
    new = _Rewriter().visit(func)
    assert isinstance(new, Function)
    return new


def ToNonDataflow() -> Pass:
    """Replace each DataflowVar by a plain variable; parameters and outputs stay the same objects.
    The blocks of a sequence are joined.

    Why: later passes add side effects, which are not allowed in a DataflowBlock.
    """

    @function_pass(name="ToNonDataflow")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return to_non_dataflow(func)

    return run
