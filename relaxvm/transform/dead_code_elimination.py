"""DeadCodeElimination: remove unused bindings and functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    ExprVisitor,
    Function,
    GlobalVar,
    If,
    IRModule,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    Type,
    Var,
    VarBinding,
    free_vars,
    joined_blocks,
    type_free_vars,
)
from ..ir.node import KINDS
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["DeadCodeElimination", "without_uncalled"]


class _Mentions(ExprVisitor):
    """Collects the variables that an expression mentions, including symbolic ones."""

    def __init__(self, live: set[Var]) -> None:
        self._live = live

    def visit_var(self, var: Var) -> None:
        self._live.add(var)

    def visit_scalar(self, scalar: Expr) -> None:
        self._live.update(free_vars(scalar))

    def visit_shape(self, expr: ShapeExpr) -> None:
        for value in expr.values:
            self._live.update(free_vars(value))

    def visit_type(self, ty: Type) -> None:
        self._live.update(type_free_vars(ty))


def _has_check(value: Expr) -> bool:
    """Whether a branch of an If has a match_cast outside of dataflow blocks, which may fail."""
    if not isinstance(value, If):
        return False
    return any(
        isinstance(binding, MatchCast) or _has_check(binding.value)
        for branch in (value.true_branch, value.false_branch)
        for block in branch.blocks
        if not isinstance(block, DataflowBlock)
        for binding in block.bindings
    )


class _Eliminator:
    def __init__(self, has_effect: Any) -> None:
        self._has_effect = has_effect

    def function(self, func: Function) -> Function:
        live: set[Var] = set()
        live.update(type_free_vars(func.ret_ty))
        body = self._seq(func.body, live)
        return func if body is func.body else func.replace(body=body)

    def _seq(self, seq: SeqExpr, live: set[Var]) -> SeqExpr:
        mentions = _Mentions(live)
        mentions.visit(seq.body)
        blocks: list[BindingBlock] = []
        changed = False
        for block in reversed(seq.blocks):
            new = self._block(block, live, mentions)
            changed = changed or new is not block
            blocks.append(new)
        if not changed:
            return seq
        blocks.reverse()
        return SeqExpr(joined_blocks(blocks), seq.body, ty=seq.ty, span=seq.span)

    def _block(self, block: BindingBlock, live: set[Var], mentions: _Mentions) -> BindingBlock:
        kept: list[Binding] = []
        changed = False
        for binding in reversed(block.bindings):
            if not self._is_live(binding, live, isinstance(block, DataflowBlock)):
                changed = True
                continue
            new = self._inside(binding, live)
            changed = changed or new is not binding
            kept.append(new)
            if isinstance(new, MatchCast):
                live.update(type_free_vars(new.ty))
            mentions.visit(new.value)
        if not changed:
            return block
        kept.reverse()
        block_class: type[BindingBlock] = KINDS[type(block)]
        return block_class(kept, block.span)

    def _is_live(self, binding: Binding, live: set[Var], in_dataflow: bool) -> bool:
        if binding.var in live:
            return True
        if isinstance(binding, MatchCast):
            # Outside of dataflow blocks the check itself is a side effect.
            return not in_dataflow or any(v in live for v in type_free_vars(binding.ty))
        return bool(self._has_effect(binding.value)) or _has_check(binding.value)

    def _inside(self, binding: Binding, live: set[Var]) -> Binding:
        value: Expr = binding.value
        if isinstance(value, If):
            then, orelse = self._seq(value.true_branch, live), self._seq(value.false_branch, live)
            if then is value.true_branch and orelse is value.false_branch:
                return binding
            value = If(value.cond, then, orelse, ty=value.ty, span=value.span)
        elif isinstance(value, Function):
            value = self.function(value)
        if value is binding.value:
            return binding
        return VarBinding(binding.var, value, binding.span)


def _has_effect(value: Expr) -> bool:
    from ..analysis import contains_impure_call

    name = getattr(value.op, "name", "") if isinstance(value, Call) else ""
    return name == "relax.call_pure_packed" or bool(contains_impure_call(value))


def eliminate_dead_code(func: Function) -> Function:
    """Return a function without bindings whose value is unused and has no side effects."""
    return _Eliminator(_has_effect).function(func)


def without_uncalled(mod: IRModule, names: Iterable[GlobalVar]) -> IRModule:
    """The module without those of some functions that no function calls any more."""
    kept: set[GlobalVar] = set()
    for func in mod.functions.values():
        if isinstance(func, Function):
            kept |= _called(func)
    result = mod.copy()
    for name in names:
        if name not in kept and name in result.functions:
            del result[name]
    return result


def _called(func: Function) -> set[GlobalVar]:
    found: set[GlobalVar] = set()

    class Finder(ExprVisitor):
        def visit_global_var(self, var: GlobalVar) -> None:
            found.add(var)

    Finder().visit(func)
    return found


def _reachable(mod: IRModule, entries: Iterable[GlobalVar]) -> set[GlobalVar]:
    pending = list(entries)
    found = set(pending)
    while pending:
        func = mod.functions.get(pending.pop())
        if not isinstance(func, Function):
            continue
        for var in _called(func):
            if var not in found:
                found.add(var)
                pending.append(var)
    return found


def DeadCodeElimination(entry_functions: Iterable[str] | None = None) -> Pass:
    """Remove bindings whose value is unused and has no side effects, and functions that cannot be
    reached from the entry functions: those given, and all that have a "global_symbol", which can be
    called from outside.

    Calls of impure operators and functions, and of packed functions that are not declared pure, are
    side effects.  An unused R.call_pure_packed is kept too: users of TVM rely on such calls.
    """

    @module_pass(name="DeadCodeElimination", opt_level=1)
    def run(mod: IRModule, ctx: PassContext) -> Any:
        new = mod.copy()
        for var, func in mod.functions.items():
            if isinstance(func, Function):
                new[var] = eliminate_dead_code(func)
        entries = [v for v, f in new.functions.items() if "global_symbol" in f.attrs]
        entries += [new.get_global_var(name) for name in entry_functions or ()]
        if entries:
            alive = _reachable(new, entries)
            for var in list(new.functions):
                if var not in alive:
                    del new[var]
        return new

    return run
