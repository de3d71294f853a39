"""EliminateCommonSubexpr: what was computed already is not computed again."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ..ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowVar,
    Expr,
    ExprMutator,
    ExprVisitor,
    Function,
    IRModule,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    expr_key,
    is_base_of,
)
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["EliminateCommonSubexpr"]


class _Written(ExprVisitor):
    """Variables that a call may write into: their values must not be shared."""

    def __init__(self) -> None:
        self.found: set[Expr] = set()

    def visit_call(self, call: Call) -> None:
        super().visit_call(call)
        if "inplace_indices" in call.attrs:
            for arg in call.args:
                self.found.update(arg.fields if type(arg) is Tuple else (arg,))


class _Eliminator(ExprMutator):
    def __init__(self, func: Function, call_only: bool) -> None:
        super().__init__()
        written = _Written()
        written.visit(func)
        self._written = written.found
        self._kinds = (Call,) if call_only else (Call, Tuple, TupleGetItem)
        self._known: dict[Hashable, Var] = {}

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        new = super().visit_block(block)
        # What is seen in this dataflow block only ends with it.
        hidden = [key for key, var in self._known.items() if type(var) is DataflowVar]
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
        if not isinstance(new, VarBinding) or type(new.value) not in self._kinds:
            return new
        if binding.var in self._written or not self._is_pure(new.value):
            return new
        key = expr_key(new.value)
        earlier = self._known.get(key)
        if earlier is None or not is_base_of(binding.var.ty, earlier.ty):
            self._known.setdefault(key, new.var)
            return new
        if type(binding.var) is DataflowVar or type(earlier) is not DataflowVar:
            self.var_map[binding.var] = earlier
            self.var_map[new.var] = earlier
            return []
        return VarBinding(new.var, earlier, new.span)

    def _is_pure(self, value: Expr) -> bool:
        from ..analysis import contains_impure_call

        return type(value) is not Call or not contains_impure_call(value)


def EliminateCommonSubexpr(call_only: bool = False) -> Pass:
    """A pure call, tuple or tuple element that was bound before, with the same arguments, becomes
    that variable.  What a branch computes is not known after it; what is written in place is not
    shared.

    Args:
        call_only: leave tuples and their elements alone.
    """

    @function_pass(name="EliminateCommonSubexpr", opt_level=1)
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return _Eliminator(func, call_only).visit(func)

    return run
