"""Trip counts of loops: which loops in generated C have to check for Ctrl-C.

A *short* loop needs no check: either it has few iterations in total, or each iteration, including
those of inner loops, accesses another element of a buffer, so that there are no more iterations
than elements in memory, and takes few operations.  The hot loops of kernels are short in this
sense.  Other loops count their iterations and check from time to time; an iteration of many
operations counts as several (`weight`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from ..ir.arith import free_vars
from ..ir.expr import Call, Expr, IntImm, Var
from ..ir.node import Node
from ..ir.prim import (
    Add,
    And,
    BinaryOpExpr,
    BitwiseNot,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Select,
    Sub,
)
from ..native.c_support import FEW_ITERATIONS
from .buffer import Buffer, BufferLoad
from .intrinsics import IF_THEN_ELSE
from .normalize import is_affine_step
from .stmt import Bind, BufferStore, For, IfThenElse, SeqStmt, Stmt, While
from .visitor import Visitor

__all__ = ["Product", "has_loops", "is_known", "is_short", "trip_count_guards", "trip_counts",
           "weight"]  # fmt: skip

MOST_WORK: Final = 64
"""The most work of an iteration of a short loop with as many iterations as there are elements."""
WORK_PER_ITERATION: Final = 32
"""The work of an iteration that counts as one."""
_DIVISION: Final = 8
_CALL: Final = 16

Product = tuple[Expr, ...]
"""The extents of nested loops; the trip count is their product."""


def is_short(loop: For) -> bool:
    """Check whether a loop, including the loops inside it, needs no check for Ctrl-C."""
    counts = trip_counts(loop)
    work = work_of(loop.body)
    if counts is not None:
        sizes = [[e.value if type(e) is IntImm else math.inf for e in nest] for nest in counts]
        total = sum(math.prod(max(n, 0) for n in size) for size in sizes)
        if total * _weight(work) <= FEW_ITERATIONS:
            return True
    if work > MOST_WORK:
        return False
    if not has_loops(loop.body):
        return _visits_distinct_elements(loop, ())
    return counts is not None and _visits_distinct_elements(loop, ())


def weight(body: Stmt) -> int:
    """Return the number of iterations that one iteration of a loop with a body counts as."""
    return _weight(work_of(body))


def _weight(work: int) -> int:
    return -(-work // WORK_PER_ITERATION) or 1


class _Work(Visitor):
    """Adds up operations, each as often as generated code has it."""

    def __init__(self) -> None:
        self.total = 0

    def visit(self, node: Node) -> None:
        if isinstance(node, Call):
            self.total += _CALL
        elif isinstance(node, (Div, Mod, FloorDiv, FloorMod)):
            self.total += _DIVISION
        elif isinstance(node, (BinaryOpExpr, BitwiseNot, Not, Cast, Select, BufferLoad, Stmt)):
            self.total += 1
        super().visit(node)

    def visit_Buffer(self, buffer: Buffer) -> None:
        """Its shape takes no time."""


def work_of(body: Stmt) -> int:
    """Return about how much work a statement is, in operations as simple as an addition.  Loops
    inside it count as one iteration."""
    found = _Work()
    found.visit(body)
    return found.total


def trip_count_guards(loop: For) -> list[Expr]:
    """Return the extents that must be positive for a short loop to run at all.

    If an inner loop has no iterations, those of the outer loop access no elements, and their number
    is not bounded by the size of memory.
    """
    found = []
    while (inner := _only_loop(loop)) is not None:
        if not _direct_accesses(loop):
            found.append(inner.extent)
        loop = inner
    return [extent for extent in found if type(extent) is not IntImm or extent.value <= 0]


def trip_counts(stmt: Stmt) -> list[Product] | None:
    """Return an upper bound of the iterations of all loops in a statement, as a sum of products.
    None if there is no bound that can be computed before the statement runs."""
    if isinstance(stmt, For):
        inner = trip_counts(stmt.body)
        if inner is None or not is_known(stmt.extent) or stmt.step is not None:
            return None
        bound = {stmt.loop_var, *_bound_in(stmt.body)}
        if not bound.isdisjoint(var for product in inner for e in product for var in free_vars(e)):
            return None
        return [(stmt.extent,), *((stmt.extent, *product) for product in inner)]
    if isinstance(stmt, While):
        return None
    total: list[Product] = []
    for part in _parts(stmt):
        counts = trip_counts(part)
        if counts is None:
            return None
        total += counts
    return total


def is_known(extent: Expr) -> bool:
    """Check whether an extent is arithmetic of variables and numbers, which can be computed
    anywhere."""
    if isinstance(extent, (Add, Sub, Mul, Min, Max)):
        return is_known(extent.a) and is_known(extent.b)
    if isinstance(extent, Cast):
        return is_known(extent.value)
    if isinstance(extent, (FloorDiv, FloorMod)):
        return is_known(extent.a) and type(extent.b) is IntImm and extent.b.value > 0
    return type(extent) is IntImm or isinstance(extent, Var)


def has_loops(stmt: Stmt) -> bool:
    """Check whether a statement is or contains a loop."""
    return isinstance(stmt, (For, While)) or any(map(has_loops, _parts(stmt)))


def _parts(stmt: Stmt) -> Sequence[Stmt]:
    """The direct substatements of a statement; of a condition both branches."""
    if isinstance(stmt, SeqStmt):
        return stmt.seq
    if isinstance(stmt, IfThenElse):
        both = (stmt.then_case, stmt.else_case)
        return [part for part in both if part is not None]
    return [stmt.body] if isinstance(stmt, (For, While)) else []


def _bound_in(stmt: Stmt) -> Iterator[Var]:
    if isinstance(stmt, Bind):
        yield stmt.var
    if isinstance(stmt, For):
        yield stmt.loop_var
    for part in _parts(stmt):
        yield from _bound_in(part)


# Loops whose iterations access distinct elements


def _visits_distinct_elements(loop: For, outer: tuple[For, ...]) -> bool:
    """Whether each iteration of a loop nest accesses another element: of the loop, the loops around
    it and those inside it.

    For a loop whose body is just another loop, this holds only if that has iterations.
    """
    nest = (*outer, loop)
    if not any(_are_distinct(indices, nest) for indices in _direct_accesses(loop)):
        inner = _only_loop(loop)
        if inner is None or not is_known(inner.min):
            return False
    return all(
        isinstance(part, For)
        and (part.step is None or not has_loops(part.body))
        and _visits_distinct_elements(part, nest)
        for part in _sequence(loop.body)
        if has_loops(part)
    )


def _sequence(stmt: Stmt) -> Sequence[Stmt]:
    return stmt.seq if isinstance(stmt, SeqStmt) else (stmt,)


def _only_loop(loop: For) -> For | None:
    return loop.body if isinstance(loop.body, For) else None


def _direct_accesses(loop: For) -> list[Sequence[Expr]]:
    """The indices of all accesses in every iteration of a loop, outside of inner loops."""
    found: list[Sequence[Expr]] = []
    for stmt in _sequence(loop.body):
        if isinstance(stmt, BufferStore):
            found.append(stmt.indices)
            for e in (stmt.value, *stmt.indices):
                _collect(e, found)
    return found


def _collect(e: Expr, found: list[Sequence[Expr]]) -> None:
    """Add the indices of the unconditional loads in an expression."""
    if isinstance(e, (Var, Select, And, Or, Let)) or (isinstance(e, Call) and e.op is IF_THEN_ELSE):
        return
    if isinstance(e, BufferLoad):
        found.append(e.indices)
    for field in e.FIELDS:
        value = getattr(e, field)
        for part in value if type(value) is tuple else (value,):
            if isinstance(part, Expr):
                _collect(part, found)


def _are_distinct(indices: Sequence[Expr], nest: Sequence[For]) -> bool:
    """Whether different values of the variables of a nest are different indices: each variable
    steps through another dimension, or two do through one, as ``i * 16 + j`` for ``j`` below 16."""
    free = dict(enumerate(indices))
    loops = list(nest)
    while loops:
        loop = loops.pop(0)
        dimension = next((d for d, i in free.items() if is_affine_step(i, loop.loop_var)), None)
        if dimension is None:
            pair = next(((d, inner) for d, i in free.items() for inner in loops
                         if _is_pair(i, loop, inner)), None)  # fmt: skip
            if pair is None:
                return False
            dimension, inner = pair
            loops.remove(inner)
        del free[dimension]
    return True


def _is_pair(index: Expr, outer: For, inner: For) -> bool:
    """Whether an index is ``outer * n + inner`` plus what depends on neither, and `inner` has at
    most n iterations."""
    if type(inner.extent) is not IntImm:
        return False
    rest = []
    steps = 0
    for term in _terms(index):
        if isinstance(term, Mul) and term.a is outer.loop_var and type(term.b) is IntImm:
            steps += term.b.value >= inner.extent.value
        elif term is not inner.loop_var:
            rest.append(term)
    both = (outer.loop_var, inner.loop_var)
    found = len(_terms(index)) - len(rest)
    return steps == 1 and found == 2 and not any(v in both for e in rest for v in free_vars(e))


def _terms(e: Expr) -> list[Expr]:
    return [*_terms(e.a), *_terms(e.b)] if isinstance(e, Add) else [e]
