"""Conditionals and loops."""

from __future__ import annotations

from typing import Any

from ....ir import Expr, If, TupleGetItem, TupleType
from .. import messages
from ..graph import Graph, Problem
from ..registry import onnx
from ..values import Value

__all__: list[str] = []


@onnx("If", since=1)
def if_(
    g: Graph, cond: Value, *, then_branch: messages.Graph, else_branch: messages.Graph
) -> Any:
    """A branch of the program; a condition that is known chooses a graph when the model is
    imported."""
    known = cond.constant()
    if known is not None and known.size == 1:
        return tuple(g.subgraph(then_branch if known.reshape(-1)[0] else else_branch))
    hint = g.hint
    test = g.expr(cond)
    if cond.ndim != 0:
        test = g.op("reshape", test, ())
    choice = If(test, g.branch(then_branch), g.branch(else_branch))
    g.hint = hint
    result = g.emit(choice)
    ty = result.ty
    if type(ty) is not TupleType:
        raise Problem("the branches have different numbers of results")
    fields: list[Expr] = [TupleGetItem(result, i) for i in range(len(ty.fields))]
    return tuple([Value(g.emit(field)) for field in fields])
