"""EliminateCommonSubexpr: reuse values that have been computed already."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from ..analysis import contains_impure_call, overwritten_vars
from ..ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowVar,
    Expr,
    Function,
    IRModule,
    Op,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    expr_key,
    is_base_of,
)
from ..ir.node import KINDS
from ._renaming import Renamer
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["EliminateCommonSubexpr", "eliminate_common_subexpr"]

_ALLOCATIONS: Final = frozenset(
    map(Op.get, ("relax.builtin.alloc_tensor", "relax.memory.alloc_storage",
                 "relax.memory.alloc_tensor", "relax.vm.alloc_storage", "relax.vm.alloc_tensor"))
)  # fmt: skip


class _Eliminator(Renamer):
    def __init__(self, func: Function, call_only: bool) -> None:
        super().__init__()
        self._written = overwritten_vars(func)
        self._kinds = (Call,) if call_only else (Call, Tuple, TupleGetItem, ShapeExpr)
        self._known: dict[Hashable, Var] = {}

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        new = super().visit_block(block)
        # Variables that are visible only in this dataflow block are not valid after it.
        hidden = [key for key, var in self._known.items() if isinstance(var, DataflowVar)]
        for key in hidden:
            del self._known[key]
        return new

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        known = dict(self._known)
        new = super().visit_seq(seq)
        self._known = known
        return new

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        new = super().visit_binding(binding)
        if not isinstance(new, VarBinding) or KINDS[type(new.value)] not in self._kinds:
            return new
        if binding.var in self._written or not _is_shareable(new.value):
            return new
        key = expr_key(new.value)
        earlier = self._known.get(key)
        if earlier is None or not is_base_of(binding.var.ty, earlier.ty):
            self._known.setdefault(key, new.var)
            return new
        if isinstance(binding.var, DataflowVar) or not isinstance(earlier, DataflowVar):
            self.rename(binding.var, earlier)
            self.rename(new.var, earlier)
            return []
        return VarBinding(new.var, earlier, new.span)


def _is_shareable(value: Expr) -> bool:
    """Whether a value may be shared: it is not memory, and computing it has no side effects."""
    if not isinstance(value, Call):
        return True
    return value.op not in _ALLOCATIONS and not contains_impure_call(value)


def eliminate_common_subexpr(func: Function, call_only: bool = False) -> Function:
    """See `EliminateCommonSubexpr`."""
    new = _Eliminator(func, call_only).visit(func)
    assert isinstance(new, Function)
    return new


def EliminateCommonSubexpr(call_only: bool = False) -> Pass:
    """Replace a pure call, tuple, tuple element or shape by the variable that an equal one was
    bound to before.  Values computed in a branch are not reused after it.  Allocations, and values
    that are written in place, are not shared.

    Args:
        call_only: only calls, not tuples, their elements and shapes.
    """

    @function_pass(name="EliminateCommonSubexpr", opt_level=1)
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return eliminate_common_subexpr(func, call_only)

    return run
