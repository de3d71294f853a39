"""Recursion between functions, and unused bindings."""

from __future__ import annotations

from ..ir.adt import Match
from ..ir.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    Expr,
    Function,
    GlobalVar,
    If,
    MatchCast,
    SeqExpr,
    Var,
    VarBinding,
    joined_blocks,
)
from ..ir.infer import type_free_vars
from ..ir.module import IRModule
from ..ir.node import KINDS
from ..ir.visitor import ExprMutator, ExprVisitor
from .purity import contains_impure_call
from .variables import all_global_vars, free_vars, uses_of_binding

__all__ = ["detect_recursion", "remove_all_unused", "without_unused"]


def detect_recursion(mod: IRModule) -> list[list[GlobalVar]]:
    """Return the groups of mutually recursive functions, in the order of the module.  A function
    that refers to itself is a group too."""
    graph = {
        var: [mod.get_global_var(v.name_hint) for v in all_global_vars(func) if v in mod]
        for var, func in mod.items()
    }
    order = {var: index for index, var in enumerate(graph)}
    groups = [
        sorted(group, key=order.__getitem__)
        for group in _strongly_connected(graph)
        if len(group) > 1 or group[0] in graph[group[0]]
    ]
    return sorted(groups, key=lambda group: order[group[0]])


def _strongly_connected(graph: dict[GlobalVar, list[GlobalVar]]) -> list[list[GlobalVar]]:
    """Tarjan's algorithm, with an explicit stack since chains of calls may be long."""
    index: dict[GlobalVar, int] = {}
    low: dict[GlobalVar, int] = {}
    path: list[GlobalVar] = []
    on_path: set[GlobalVar] = set()
    groups: list[list[GlobalVar]] = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        path.append(root)
        on_path.add(root)
        while work:
            var, callees = work[-1]
            for callee in callees:
                if callee not in index:
                    index[callee] = low[callee] = len(index)
                    path.append(callee)
                    on_path.add(callee)
                    work.append((callee, iter(graph[callee])))
                    break
                if callee in on_path:
                    low[var] = min(low[var], index[callee])
            else:
                work.pop()
                if work:
                    caller = work[-1][0]
                    low[caller] = min(low[caller], low[var])
                if low[var] == index[var]:
                    start = path.index(var)
                    groups.append(path[start:])
                    on_path.difference_update(path[start:])
                    del path[start:]
    return groups


def remove_all_unused(func: Function) -> Function:
    """Return a function, or a sequence of blocks, without bindings whose value is unused and has no
    side effects, without bindings that were used only by those, and without blocks that become
    empty.  Bindings of match_cast are kept, since they check a value."""
    removed: Function = _RemoveUnused().visit(func)
    return removed


class _RemoveUnused(ExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self._in_results: tuple[Var, ...] = ()
        """Symbolic variables in the type of the result of the function."""

    def visit_function(self, func: Function) -> Expr:
        outer = self._in_results
        self._in_results = (*outer, *type_free_vars(func.ret_ty))
        new: Expr = super().visit_function(func)
        self._in_results = outer
        return new

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        seq = super().visit_seq(seq)
        used = {*free_vars(seq.body), *self._in_results}
        if seq.ty is not None:
            used.update(type_free_vars(seq.ty))
        blocks = [without_unused(block, used) for block in reversed(seq.blocks)][::-1]
        if all(a is b for a, b in zip(blocks, seq.blocks, strict=True)):
            return seq
        return SeqExpr(joined_blocks(blocks), seq.body, span=seq.span)


def without_unused(block: BindingBlock, used: set[Var]) -> BindingBlock:
    """Return a block without bindings of variables that nothing uses, the block itself if there are
    none.  `used` has the variables that are used after the block; those that it uses are added."""
    kept: list[Binding] = []
    for binding in reversed(block.bindings):
        unused = isinstance(binding, VarBinding) and binding.var not in used
        if unused and (isinstance(block, DataflowBlock) or not _has_effect(binding.value)):
            continue
        kept.append(binding)
        used.update(uses_of_binding(binding))
    if len(kept) == len(block.bindings):
        return block
    new: BindingBlock = KINDS[type(block)](kept[::-1], block.span)
    return new


class _Checks(ExprVisitor):
    """Whether an expression has casts or matches, which may fail."""

    found = False

    def visit_binding(self, binding: Binding) -> None:
        self.found = self.found or isinstance(binding, MatchCast)
        super().visit_binding(binding)

    def visit_match(self, expr: Match) -> None:
        self.found = True


def _has_effect(value: Expr) -> bool:
    if isinstance(value, Function):
        return False
    if isinstance(value, (If, Match)):
        checks = _Checks()
        checks.visit(value)
        if checks.found:
            return True
    return contains_impure_call(value)
