"""Calls, tuples, branches and functions that are shared.

``y = R.add(y, y)``, repeated, is fine for `BlockBuilder`, which binds each call to a variable,
once.  Other walks visit a shared node once per use.  `check_sharing` refuses what they would not
finish, in time that is linear in the number of nodes.
"""

from __future__ import annotations

from typing import Any, Final

from ..errors import ExprSizeError
from .adt import Clause, Match
from .expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    VarBinding,
)
from .module import IRModule
from .node import KINDS

__all__ = ["LEAST_WALK", "MOST_SHARING", "check_sharing", "visits_of"]

LEAST_WALK: Final = 1 << 19
"""A walk over a program may visit this many nodes, however few the program has."""

MOST_SHARING: Final = 256
"""Beyond `LEAST_WALK`, a walk may visit this many nodes for each node of the program."""

_COUNTLESS: Final = 1 << 62
_COMPOUND: Final = frozenset(
    {Call, Tuple, TupleGetItem, If, Match, Clause, SeqExpr, Function, IRModule,
     BindingBlock, DataflowBlock, VarBinding, MatchCast}
)  # fmt: skip


def _parts(node: Any) -> list[Any]:
    kind = KINDS[type(node)]
    if kind is Call:
        return [node.op, *node.args]
    if kind is SeqExpr:
        return [*[b.value for block in node.blocks for b in block.bindings], node.body]
    if kind is Tuple:
        return list(node.fields)
    if kind is TupleGetItem:
        return [node.tuple_value]
    if kind is If:
        return [node.cond, node.true_branch, node.false_branch]
    if kind is Function:
        return [node.body]
    if kind is Match:
        return [node.data, *node.clauses]
    if kind is Clause:
        return [node.rhs] if node.guard is None else [node.guard, node.rhs]
    if issubclass(kind, BindingBlock):
        return [b.value for b in node.bindings]
    return [node.value] if issubclass(kind, Binding) else list(node.functions.values())


def visits_of(root: Any) -> tuple[int, int]:
    """Return how many nodes a walk visits, and how many nodes there are that contain others."""
    if KINDS[type(root)] not in _COMPOUND:
        return 1, 1
    visits: dict[int, int] = {}
    work: list[tuple[Any, list[Any] | None]] = [(root, None)]
    while work:
        node, parts = work.pop()
        if id(node) in visits:
            continue
        if parts is None:
            parts = _parts(node)
            inner = []
            for x in parts:
                kind = KINDS[type(x)]
                if kind in _COMPOUND and id(x) not in visits:
                    if kind is Call and not any(KINDS[type(arg)] in _COMPOUND for arg in x.args):
                        visits[id(x)] = 2 + len(x.args)  # as in all programs in normal form
                    else:
                        inner.append(x)
            if inner:
                work.append((node, parts))
                work += [(x, None) for x in inner]
                continue
        total = 1
        for part in parts:
            total += visits.get(id(part), 1)
        visits[id(node)] = min(total, _COUNTLESS)
    return visits[id(root)], len(visits)


def check_sharing(program: Any, doing: str) -> None:
    """Check that a walk over an expression, a function or a module ends.

    Raises:
        ExprSizeError: its nodes are shared too often; the message begins with `doing`.
    """
    visits, nodes = visits_of(program)
    if visits > LEAST_WALK + MOST_SHARING * nodes:
        shown = visits if visits < _COUNTLESS else f"at least {_COUNTLESS}"
        raise ExprSizeError(
            f"{doing}: the program has so much sharing that a walk visits {shown} nodes, but only "
            f"{nodes} of them are different; bind values that are used more than once to variables"
        )
