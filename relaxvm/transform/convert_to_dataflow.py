"""ConvertToDataflow: find dataflow blocks."""

from __future__ import annotations

from typing import Any

from ..analysis import contains_impure_call
from ..ir import (
    Binding,
    BindingBlock,
    DataflowBlock,
    ExprMutator,
    Function,
    If,
    IRModule,
    Match,
    SeqExpr,
    joined_blocks,
)
from .canonicalize_bindings import canonicalize_bindings
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["ConvertToDataflow"]


class _Extractor(ExprMutator):
    def __init__(self, min_size: int) -> None:
        super().__init__()
        self._min_size = min_size

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        seq = super().visit_seq(seq)
        blocks: list[BindingBlock] = []
        run: list[Binding] = []
        others: list[Binding] = []

        def close() -> None:
            nonlocal run, others
            if len(run) < self._min_size:
                others += run
            else:
                blocks.extend((BindingBlock(others), DataflowBlock(run)))
                others = []
            run = []

        for block in seq.blocks:
            for binding in block.bindings:
                if isinstance(block, DataflowBlock) or _is_dataflow(binding):
                    run.append(binding)
                else:
                    close()
                    others.append(binding)
        close()
        blocks.append(BindingBlock(others))
        new = joined_blocks(blocks)
        if [(type(b), b.bindings) for b in new] == [(type(b), b.bindings) for b in seq.blocks]:
            return seq
        return SeqExpr(new, seq.body, span=seq.span)


def _is_dataflow(binding: Binding) -> bool:
    value = binding.value
    return not isinstance(value, (If, Match)) and (
        isinstance(value, Function) or not contains_impure_call(value)
    )


def convert_to_dataflow(func: Function, min_size: int = 2) -> Function:
    """See `ConvertToDataflow`."""
    return canonicalize_bindings(_Extractor(min_size).visit(func))


def ConvertToDataflow(min_size: int = 2) -> Pass:
    """Put bindings without side effects or control flow that follow each other into dataflow
    blocks, which grow around those that are there, and run `CanonicalizeBindings`.

    Args:
        min_size: the number of bindings from which on a block is made, at least 1.

    Raises:
        ValueError: `min_size` is less than 1.
    """
    if min_size < 1:
        raise ValueError(f"ConvertToDataflow: min_size: expected at least 1, got {min_size}")

    @function_pass(name="ConvertToDataflow")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return convert_to_dataflow(func, min_size)

    return run
