"""Recursion between functions, and unused bindings."""

from __future__ import annotations

from ..ir.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    GlobalVar,
    Var,
    VarBinding,
)
from ..ir.module import IRModule
from ..ir.visitor import ExprMutator
from .variables import all_global_vars, uses_of_binding

__all__ = ["detect_recursion", "remove_all_unused"]


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
    """Return the function without unused bindings of a `DataflowVar`, without bindings that were
    used only by those, and without blocks that become empty.  Bindings of match_cast are kept,
    since they check a value."""
    removed: Function = _RemoveUnused().visit(func)
    return removed


class _RemoveUnused(ExprMutator):
    def visit_block(self, block: BindingBlock) -> BindingBlock:
        block = super().visit_block(block)
        if not isinstance(block, DataflowBlock):
            return block
        kept: list[Binding] = []
        used: set[Var] = set()
        for binding in reversed(block.bindings):
            var = binding.var
            if isinstance(binding, VarBinding) and isinstance(var, DataflowVar) and var not in used:
                continue
            kept.append(binding)
            used.update(uses_of_binding(binding))
        if len(kept) == len(block.bindings):
            return block
        return DataflowBlock(reversed(kept), block.span)
