"""How long loops run: where generated C has to look for Ctrl-C.

A loop may be left alone if it is over soon by itself: if its turns are few, or if each of them, and
each turn of the loops within, is at an element of its own of a buffer, so that they are no more
than there are elements in memory.  The loops that kernels spend their time in are of that kind.
The others count turns, and look when they are many.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..ir.arith import free_vars
from ..ir.expr import Call, Expr, IntImm, Var
from ..ir.prim import Add, And, Cast, Let, Max, Min, Mul, Or, Select, Sub
from .buffer import BufferLoad
from .intrinsics import IF_THEN_ELSE
from .normalize import is_affine_step
from .stmt import Bind, BufferStore, For, IfThenElse, SeqStmt, Stmt, While

__all__ = ["FEW", "Product", "has_loops", "is_known", "is_soon_over", "turns_of", "when_it_turns"]

FEW = 2**20
"""So many turns are over soon, whatever is in them."""

Product = tuple[Expr, ...]
"""Extents of loops within each other."""


def is_soon_over(loop: For) -> bool:
    """Whether a loop, with the loops within, needs no look for Ctrl-C."""
    turns = turns_of(loop)
    if turns is not None:
        sizes = [[e.value if type(e) is IntImm else math.inf for e in product] for product in turns]
        if sum(math.prod(max(n, 0) for n in size) for size in sizes) <= FEW:
            return True
    if not has_loops(loop.body):
        return _goes_through_memory(loop, ())
    return turns is not None and _goes_through_memory(loop, ())


def when_it_turns(loop: For) -> list[Expr]:
    """Numbers that are all greater than 0 where a loop that is soon over has anything to do.

    Where one is not, the turns of the loop would be at no elements.
    """
    found = []
    while (inner := _only_loop(loop)) is not None:
        if not _own_accesses(loop):
            found.append(inner.extent)
        loop = inner
    return [extent for extent in found if type(extent) is not IntImm or extent.value <= 0]


def turns_of(stmt: Stmt) -> list[Product] | None:
    """How many turns the loops of a statement take at most, as a sum of products; None if that
    cannot be told before it runs."""
    if isinstance(stmt, For):
        inner = turns_of(stmt.body)
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
        turns = turns_of(part)
        if turns is None:
            return None
        total += turns
    return total


def is_known(extent: Expr) -> bool:
    """Whether an extent is made of variables and numbers alone, and can be computed anywhere."""
    if isinstance(extent, (Add, Sub, Mul, Min, Max)):
        return is_known(extent.a) and is_known(extent.b)
    if isinstance(extent, Cast):
        return is_known(extent.value)
    return type(extent) is IntImm or isinstance(extent, Var)


def has_loops(stmt: Stmt) -> bool:
    """Whether a statement is or has a loop."""
    return isinstance(stmt, (For, While)) or any(map(has_loops, _parts(stmt)))


def _parts(stmt: Stmt) -> Sequence[Stmt]:
    """The statements that a statement is directly made of; of a condition both sides."""
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


# Turns that are at elements of their own


def _goes_through_memory(loop: For, outer: tuple[Var, ...]) -> bool:
    """Whether turns of a loop, of those around it and of those within are at elements of their own.

    For a loop that has nothing but another loop in it, this holds where the other one has turns.
    """
    variables = (*outer, loop.loop_var)
    if not any(_are_own(indices, variables) for indices in _own_accesses(loop)):
        inner = _only_loop(loop)
        if inner is None or not is_known(inner.min):
            return False
    return all(
        isinstance(part, For)
        and (part.step is None or not has_loops(part.body))
        and _goes_through_memory(part, variables)
        for part in _sequence(loop.body)
        if has_loops(part)
    )


def _sequence(stmt: Stmt) -> Sequence[Stmt]:
    return stmt.seq if isinstance(stmt, SeqStmt) else (stmt,)


def _only_loop(loop: For) -> For | None:
    return loop.body if isinstance(loop.body, For) else None


def _own_accesses(loop: For) -> list[Sequence[Expr]]:
    """Indices of what every turn of a loop accesses, outside of the loops within."""
    found: list[Sequence[Expr]] = []
    for stmt in _sequence(loop.body):
        if isinstance(stmt, BufferStore):
            found.append(stmt.indices)
            for e in (stmt.value, *stmt.indices):
                _collect(e, found)
    return found


def _collect(e: Expr, found: list[Sequence[Expr]]) -> None:
    """Add the indices of what an expression loads in any case."""
    if isinstance(e, (Var, Select, And, Or, Let)) or (isinstance(e, Call) and e.op is IF_THEN_ELSE):
        return
    if isinstance(e, BufferLoad):
        found.append(e.indices)
    for field in e.FIELDS:
        value = getattr(e, field)
        for part in value if type(value) is tuple else (value,):
            if isinstance(part, Expr):
                _collect(part, found)


def _are_own(indices: Sequence[Expr], variables: Sequence[Var]) -> bool:
    """Whether other values of the variables are other indices: each steps through a dimension."""
    free = dict(enumerate(indices))
    for var in variables:
        dimension = next((d for d, index in free.items() if is_affine_step(index, var)), None)
        if dimension is None:
            return False
        del free[dimension]
    return True
