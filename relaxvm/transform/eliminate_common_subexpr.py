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
    MatchCast,
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
        self._call_only = call_only
        self._kinds = (Call,) if call_only else (Call, Tuple, TupleGetItem, ShapeExpr)
        self._known: dict[Hashable, Var] = {}
        self._outputs: list[tuple[Hashable, Var]] = []
        """Outputs of the dataflow block that a variable of the block replaces, inside of it."""

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        outer, self._outputs = self._outputs, []
        new = super().visit_block(block)
        # Variables that are visible only in this dataflow block are not valid after it.
        hidden = [key for key, var in self._known.items() if isinstance(var, DataflowVar)]
        for key in hidden:
            del self._known[key]
        for key, var in self._outputs:
            self.rename(var, var)
            self._known.setdefault(key, var)
        self._outputs = outer
        return new

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        known = dict(self._known)
        new = super().visit_seq(seq)
        self._known = known
        return new

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        new = super().visit_binding(binding)
        assert isinstance(new, Binding)
        if binding.var in self._written:
            return new
        key = self._key(new)
        if key is None:
            return new
        earlier = self._known.get(key)
        if earlier is None or not is_base_of(binding.var.ty, earlier.ty):
            self._known.setdefault(key, new.var)
            return new
        if isinstance(earlier, DataflowVar) and not isinstance(new.var, DataflowVar):
            self._outputs.append((key, new.var))
        self.rename(binding.var, earlier)
        self.rename(new.var, earlier)
        return VarBinding(new.var, earlier, new.span)

    def _key(self, binding: Binding) -> Hashable | None:
        """What is equal for bindings of equal values; None if the value is not shared."""
        value = binding.value
        if isinstance(binding, MatchCast):
            key = MatchCast, expr_key(value), expr_key(binding.ty)
            return None if self._call_only else key
        if KINDS[type(value)] not in self._kinds or not _is_shareable(value):
            return None
        return expr_key(value)


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
    """Replace a pure call, tuple, tuple element, shape or cast by the variable that an equal one
    was bound to before.  Values computed in a branch are not reused after it.  Allocations, and
    values that are written in place, are not shared.

    The variable that was bound to the second value is kept as another name of the first, which
    nothing uses, unless it is the output of a dataflow block: CanonicalizeBindings and
    DeadCodeElimination remove it.

    Args:
        call_only: only calls, not tuples, their elements, shapes and casts.
    """

    @function_pass(name="EliminateCommonSubexpr", opt_level=1)
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return eliminate_common_subexpr(func, call_only)

    return run
