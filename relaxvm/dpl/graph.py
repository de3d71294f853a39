"""Matching a graph of patterns with a dataflow block.

The nodes of the block's graph are its variables, those that it uses from outside, and the
constants that are operands.  A match gives every pattern a node of its own, such that every edge
between patterns is an edge of the block.

The search assigns one pattern after the other, beginning with a pattern that nothing else uses, so
that the operands of a call follow at once from the positions in it.  It goes back where that fails.
For patterns that are trees, of edges with positions, there is nothing to choose after the first
pattern, and the time is linear in the block.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

from ..core.checkpoints import checkpoint
from ..ir import (
    Binding,
    Call,
    Constant,
    DataflowBlock,
    Expr,
    ExprVisitor,
    ExternFunc,
    GlobalVar,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    prove_equal,
)
from .matcher import Matcher
from .pattern import ANY_INDEX, DFPattern, Edge, SameShapeConstraint

__all__ = ["BlockGraph", "matches_in"]


class BlockGraph:
    """Which nodes of a dataflow block use which.

    Attributes:
        values: bound variable -> its value.
        nodes: all variables in order of appearance.
        operands: bound variable -> the operands of its value, by position.  The arguments of a
            function that ``call_tir`` or ``call_dps_packed`` calls count as operands.
        uses: node -> the variables whose values use it, in order.
    """

    def __init__(self, block: DataflowBlock) -> None:
        self.values: dict[Var, Expr] = {}
        self.nodes: dict[Expr, None] = {}
        self.operands: dict[Expr, list[Expr]] = {}
        self.uses: dict[Expr, dict[Var, None]] = {}
        for binding in block.bindings:
            self._add(binding)

    def _add(self, binding: Binding) -> None:
        operands = _operands(binding.value)
        mentioned = _Mentioned()
        mentioned.visit(binding.value)
        for node in (*operands, *mentioned.variables):
            if isinstance(node, Var):
                self.nodes.setdefault(node)
            self.uses.setdefault(node, {})[binding.var] = None
        self.operands[binding.var] = operands
        self.nodes.setdefault(binding.var)
        self.values[binding.var] = binding.value


class _Mentioned(ExprVisitor):
    def __init__(self) -> None:
        self.variables: dict[Var, None] = {}

    def visit_var(self, var: Var) -> None:
        self.variables[var] = None


def _operands(value: Expr) -> list[Expr]:
    found: list[Expr] = []
    work: list[Expr] = [value]
    if isinstance(value, Call):
        work = list(reversed(value.args))
    elif isinstance(value, Tuple):
        work = list(reversed(value.fields))
    elif isinstance(value, TupleGetItem):
        work = [value.tuple_value]
    while work:
        expr = work.pop()
        if isinstance(expr, Tuple):
            work += reversed(expr.fields)
        elif not isinstance(expr, (GlobalVar, ExternFunc)):
            found.append(expr)
    return found


class _Search:
    def __init__(
        self,
        edges: Sequence[Edge],
        constraints: Iterable[SameShapeConstraint],
        block: DataflowBlock,
    ) -> None:
        self.graph = BlockGraph(block)
        self.matcher = Matcher(self.graph.values)
        self.matches: dict[tuple[DFPattern, int], bool] = {}
        self.constraints = list(constraints)
        self.order, self.checks = _plan(edges)
        self.assigned: dict[DFPattern, Expr] = {}
        self.taken: set[Expr] = set()

    def run(self) -> Iterator[dict[DFPattern, Var]]:
        if not self.order:
            return
        # A stack of generators instead of recursion: each yields after assigning its pattern.
        work = [self._assign(0)]
        while work:
            checkpoint()
            if next(work[-1], None) is None:
                work.pop()
            elif len(work) < len(self.order):
                work.append(self._assign(len(work)))
            elif self._is_valid():
                yield {p: e for p, e in self.assigned.items() if isinstance(e, Var)}
                while len(work) > 1:  # go on with another node for the first pattern
                    work.pop().close()

    def _assign(self, position: int) -> Generator[bool]:
        pattern = self.order[position]
        checks = self.checks[position]
        for node in list(self._candidates(pattern, checks)):
            if node in self.taken or not self._matches(pattern, node):
                continue
            self.assigned[pattern] = node
            try:
                if all(self._holds(edge) for edge in checks):
                    self.taken.add(node)
                    yield True
            finally:
                self.taken.discard(node)
                del self.assigned[pattern]

    def _candidates(self, pattern: DFPattern, checks: Sequence[Edge]) -> Iterable[Expr]:
        """The nodes that the edges to the patterns assigned so far leave for a pattern."""
        for edge in checks:
            if edge.producer is pattern:
                operands = self.graph.operands.get(self.assigned[edge.consumer], [])
                if edge.index == ANY_INDEX:
                    return dict.fromkeys(operands)
                return operands[edge.index : edge.index + 1]
        for edge in checks:
            return self.graph.uses.get(self.assigned[edge.producer], {})
        return self.graph.nodes

    def _matches(self, pattern: DFPattern, node: Expr) -> bool:
        if not isinstance(node, (Var, Constant)):
            return False
        key = (pattern, id(node))
        found = self.matches.get(key)
        if found is None:
            found = self.matches[key] = self.matcher.extract(pattern, node) is not None
        return found

    def _holds(self, edge: Edge) -> bool:
        producer, consumer = self.assigned[edge.producer], self.assigned[edge.consumer]
        operands = self.graph.operands.get(consumer, [])
        uses = self.graph.uses.get(producer, {})
        if consumer not in uses:
            return False
        if edge.index != ANY_INDEX and operands[edge.index : edge.index + 1] != [producer]:
            return False
        return not edge.only_use or len(uses) == 1

    def _is_valid(self) -> bool:
        for constraint in self.constraints:
            types = [
                self.assigned[pattern].ty for pattern in constraint.args if pattern in self.assigned
            ]
            if not all(_same_shape(types[0], ty) for ty in types[1:]):
                return False
        return True


def _same_shape(a: Any, b: Any) -> bool:
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return False
    if a.dims is None or b.dims is None or len(a.dims) != len(b.dims):
        return False
    return all(prove_equal(x, y) for x, y in zip(a.dims, b.dims, strict=True))


def _plan(edges: Sequence[Edge]) -> tuple[list[DFPattern], list[list[Edge]]]:
    """Return the patterns in the order of the search, and for each the edges to those before it."""
    near: dict[DFPattern, list[Edge]] = {}
    used: set[DFPattern] = set()
    for edge in edges:
        near.setdefault(edge.producer, []).append(edge)
        near.setdefault(edge.consumer, []).append(edge)
        used.add(edge.producer)
    order: list[DFPattern] = []
    checks: list[list[Edge]] = []
    done: set[DFPattern] = set()
    # A cycle has no last pattern; then any begins.
    for start in [*(p for p in near if p not in used), *near]:
        if start in done:
            continue
        work = [start]
        while work:
            pattern = work.pop()
            if pattern in done:
                continue
            done.add(pattern)
            order.append(pattern)
            edges_back = [e for e in near[pattern] if e.producer in done and e.consumer in done]
            checks.append(edges_back)
            # Operands first, and those of a position before those of any.
            users = [e.consumer for e in near[pattern] if e.producer is pattern]
            operands = sorted(
                (e for e in near[pattern] if e.consumer is pattern),
                key=lambda e: (e.index == ANY_INDEX, e.index),
            )
            following = [*(e.producer for e in operands), *users]
            work += [p for p in reversed(following) if p not in done]
    return order, checks


def matches_in(
    edges: Sequence[Edge], constraints: Iterable[SameShapeConstraint], block: DataflowBlock
) -> Iterator[dict[DFPattern, Var]]:
    """The matches of patterns in a block, in order of the program: at most one for each node that
    the first pattern of the search can be."""
    return _Search(edges, constraints, block).run()
