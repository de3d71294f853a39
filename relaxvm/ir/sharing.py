"""Calls, tuples, branches and functions that are shared.

``y = R.add(y, y)``, repeated, is fine for `BlockBuilder`, which binds each call to a variable,
once.  Other walks visit a shared node once per use.  `check_sharing` refuses what they would not
finish, in time that is linear in the number of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from ..errors import ExprSizeError
from .adt import Clause, Match
from .expr import (
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
from .node import class_table

__all__ = ["LEAST_WALK", "MOST_SHARING", "check_sharing", "visits_of"]

LEAST_WALK: Final = 1 << 19
"""A walk over a program may visit this many nodes, however few the program has."""

MOST_SHARING: Final = 256
"""Beyond `LEAST_WALK`, a walk may visit this many nodes for each node of the program."""

_COUNTLESS: Final = 1 << 62
_PARTS: Final[dict[type, Callable[[Any], Collection[Any]]]] = class_table({
    Call: lambda node: (node.op, *node.args),
    Tuple: lambda node: node.fields,
    TupleGetItem: lambda node: (node.tuple_value,),
    If: lambda node: (node.cond, node.true_branch, node.false_branch),
    Match: lambda node: (node.data, *node.clauses),
    Clause: lambda node: (node.rhs,) if node.guard is None else (node.guard, node.rhs),
    SeqExpr: lambda node: [*[b.value for block in node.blocks for b in block.bindings], node.body],
    Function: lambda node: (node.body,),
    IRModule: lambda node: node.functions.values(),
    BindingBlock: lambda node: [b.value for b in node.bindings],
    DataflowBlock: lambda node: [b.value for b in node.bindings],
    VarBinding: lambda node: (node.value,),
    MatchCast: lambda node: (node.value,),
})  # fmt: skip
"""The parts of a node, for those that have any."""


def _count_call(call: Call, visits: dict[int, int]) -> bool:
    """Count a call whose arguments are leaves, tuples of leaves, or counted already, as all are in
    normal form; returns False for another call."""
    total = 2
    for arg in call.args:
        if type(arg) not in _PARTS:
            total += 1
            continue
        known = visits.get(id(arg))
        if known is None:
            if not isinstance(arg, Tuple):
                return False
            for field in arg.fields:
                if type(field) in _PARTS:
                    return False
            known = visits[id(arg)] = 1 + len(arg.fields)
        total += known
    visits[id(call)] = min(total, _COUNTLESS)
    return True


def visits_of(root: Any) -> tuple[int, int]:
    """Return how many nodes a walk visits, and how many nodes there are that contain others."""
    if type(root) not in _PARTS:
        return 1, 1
    visits: dict[int, int] = {}
    work: list[tuple[Any, Collection[Any] | None]] = [(root, None)]
    while work:
        node, parts = work.pop()
        if id(node) in visits:
            continue
        if parts is None:
            parts = _PARTS[type(node)](node)
            inner = []
            for x in parts:
                if type(x) not in _PARTS or id(x) in visits:
                    continue
                if not (isinstance(x, Call) and _count_call(x, visits)):
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
