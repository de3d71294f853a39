"""`PatternContext`: patterns and the edges between them, matched with a dataflow block as a graph.

Source: ``tvm.relax.dpl.PatternContext`` of apache-tvm 0.27.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from ..ir import DataflowBlock, Var
from .graph import matches_in
from .pattern import (
    CONTEXTS,
    DFConstraint,
    DFPattern,
    Edge,
    SameShapeConstraint,
    current_context,
)

__all__ = ["PatternContext"]


class PatternContext:
    """Collects the edges and constraints that are made while it is entered::

        with PatternContext() as context:
            matmul = is_op("relax.matmul")(wildcard(), wildcard())
            relu = is_op("relax.nn.relu")(matmul)
        matched = context.match_dfb(block)

    Args:
        incremental: whether to begin with the edges and constraints of the current context.
    """

    def __init__(self, incremental: bool = False) -> None:
        self.edges: list[Edge] = []
        self.constraints: list[SameShapeConstraint] = []
        outer = current_context() if incremental else None
        if outer is not None:
            self.edges += outer.edges
            self.constraints += outer.constraints

    def __enter__(self) -> PatternContext:
        CONTEXTS.set((*CONTEXTS.get(), self))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        entered = CONTEXTS.get()
        if not entered or entered[-1] is not self:
            raise RuntimeError("PatternContext: contexts are left in another order than entered")
        CONTEXTS.set(entered[:-1])

    @staticmethod
    def current() -> PatternContext | None:
        """Return the innermost context that is entered, or None."""
        return current_context()

    def add_edge(self, edge: Edge) -> None:
        """Add an edge between two patterns."""
        self.edges.append(edge)

    def add_constraint(self, constraint: DFConstraint) -> None:
        """Add a constraint on several patterns.

        Raises:
            TypeError: it is of an unknown kind.
        """
        if not isinstance(constraint, SameShapeConstraint):
            raise TypeError(f"expected a SameShapeConstraint, got {type(constraint).__name__}")
        self.constraints.append(constraint)

    def match_dfb(self, dfb: DataflowBlock) -> dict[DFPattern, Var] | None:
        """Match the patterns with variables of a dataflow block, each with another one.

        Returns:
            What each pattern that has an edge matched: a variable that is bound in the block or
            used there; None if there is no match.  The first match in order of the program is
            returned.
        """
        return next(self.matches_in(dfb), None)

    def matches_in(self, block: DataflowBlock) -> Iterator[dict[DFPattern, Var]]:
        """The matches in a block, in order of the program: at most one for each variable that a
        chosen pattern, which no other uses, can be."""
        return matches_in(self.edges, self.constraints, block)
