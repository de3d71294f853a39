"""ToNonDataflow: dataflow blocks become plain ones."""

from __future__ import annotations

from typing import Any

from ..ir import (
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    ExprMutator,
    Function,
    IRModule,
    SeqExpr,
    Var,
)
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["ToNonDataflow"]


class _Rewriter(ExprMutator):
    def visit_var_def(self, var: Var) -> Var:
        return Var(var.name, var.ty, var.span) if type(var) is DataflowVar else var

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        block = super().visit_block(block)
        return BindingBlock(block.bindings, block.span) if type(block) is DataflowBlock else block

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        seq = super().visit_seq(seq)
        if len(seq.blocks) < 2:
            return seq
        bindings = [binding for block in seq.blocks for binding in block.bindings]
        return SeqExpr([BindingBlock(bindings, seq.blocks[0].span)], seq.body, span=seq.span)


def ToNonDataflow() -> Pass:
    """Each DataflowVar becomes a plain variable; parameters and outputs stay the same objects.  The
    blocks of a sequence, now of one kind, become one.

    Why: what follows makes effects explicit, and they may not stand in a DataflowBlock.
    """

    @function_pass(name="ToNonDataflow")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return _Rewriter().visit(func)

    return run
