"""Numbers that are operands of nodes."""

from __future__ import annotations

from typing import Any

from ....ir import ShapeType, Var
from ..graph import Graph, Problem, identifier
from ..values import Value

__all__ = ["integer"]


def integer(g: Graph, value: Value, what: str) -> Any:
    """The element of an integer tensor: a number, or an expression of symbolic dimensions; a
    symbolic variable that is bound when the model runs, if only the run knows it.

    Raises:
        Problem: the tensor is known to have several elements.
    """
    ints = value.ints()
    if ints is None:
        found = Var(f"{identifier(g.hint)}_{what}", "int64")
        g.context.builder.match_cast(g.shape_in(value), ShapeType([found]))
        return found
    if len(ints) != 1:
        raise Problem(f"{what}: expected one number, got {len(ints)}")
    return ints[0]
