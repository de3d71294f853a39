"""Reductions in another order: sums, products and extremes of floats in lanes.

A loop ``for k: acc = acc + f(k)`` takes as long as its additions take one after the other, since
each needs the one before.  In lanes it becomes ``LANES`` sums that do not depend on each other, one
operation of a vector unit.  The order is a function of the number of iterations alone, not of the
machine, the compiler or its vector units:

- Iteration i, from 0, is added to lane i % `LANES`, in the order of i.  Lanes begin with the
  identity, which changes nothing.
- Lane i and lane i + `LANES` / 2 are added, of these sums the first half and the second half, and
  so on to one, which is added to what ``acc`` was before the loop.
- Loops of fewer than `LEAST` iterations keep their order.

An error bound is that of any order: (n - 1) u times the sum of the absolute values, u = 2 ** -24
for float32 (N. J. Higham, The accuracy of floating point summation, SIAM J. Sci. Comput. 14, 1993,
783-799); in lanes n is n / `LANES` + log2(`LANES`) + 2, so that the bound is about a 16th of that
of the loop as it is.  A maximum and a minimum are the same as in order, other than with NaN, where
both depend on the order.

This changes results, so it is done on request: for functions with the attribute `ATTRIBUTE`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from ..ir.expr import Expr, FloatImm, IntImm, Var
from ..ir.node import Node
from ..ir.prim import GE, Add, FloorDiv, FloorMod, Max, Min, Mul, Sub
from .buffer import Buffer, BufferLoad, decl_buffer
from .function import PrimFunc
from .normalize import (
    Kernel,
    has_let,
    interchange,
    loads_of,
    normalize,
    same_indices,
    uses,
    with_body,
)
from .products import TILES, is_product
from .stmt import (
    Bind,
    BufferStore,
    For,
    ForKind,
    IfThenElse,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from .visitor import Substitution

__all__ = ["ATTRIBUTE", "LANES", "LEAST", "asking", "check_reassociate", "kernel_of",
           "reassociated"]  # fmt: skip

ATTRIBUTE: Final = "relaxvm.reassociate"
"""The attribute of functions whose reductions may be in another order."""

LANES: Final = 16
"""A power of 2; 16 of float32 are the widest vector of x86.  More are not faster: the sums of
16 are 20 elements per nanosecond on an Intel Xeon of 2.1 GHz, with SSE2, AVX2 and AVX-512."""

LEAST: Final = 64
"""The fewest iterations that are done in lanes: adding up the lanes takes as long as 20."""

_FLOATS: Final = ("float32", "float64")
"""Integers need no lanes: sums that wrap are the same in every order, which compilers use."""


def check_reassociate(value: Any) -> bool:
    """Return a setting.

    Raises:
        TypeError: it is no bool.
    """
    if not isinstance(value, bool):
        raise TypeError(f"reassociate: expected a bool, got {type(value).__name__}")
    return value


def asking(func: PrimFunc) -> PrimFunc:
    """Return a function that asks for its reductions in another order, unless it says whether it
    does."""
    return func if ATTRIBUTE in func.attrs else func.with_attr(ATTRIBUTE, True)


def kernel_of(func: PrimFunc, name: str) -> Kernel:
    """Return the normal form of a function, with its reductions in lanes if it asks for that.

    Raises:
        ValueError, NotImplementedError: as `normalize`, or an attribute is neither true nor false.
    """
    kernel = replace(normalize(func, name), tiles=_flag(func, name, TILES, True))
    return reassociated(kernel) if _flag(func, name, ATTRIBUTE, False) else kernel


def _flag(func: PrimFunc, name: str, attribute: str, default: bool) -> bool:
    """The value of an attribute that is true or false."""
    value = func.attrs.get(attribute, default)
    value = value.value if isinstance(value, IntImm) else value
    if not isinstance(value, int) or value not in (0, 1):
        raise ValueError(f"{name}: attribute {attribute}: expected True or False, got {value!r}")
    return bool(value)


def reassociated(kernel: Kernel) -> Kernel:
    """Return a kernel with its reductions in lanes.  Reductions that run along the memory of their
    result are interchanged instead, as the lowering to C does, and keep their order.  So do
    products, which need no other order to be fast."""

    def is_left(loop: For) -> bool:
        return kernel.tiles and is_product(loop)

    lanes = _Lanes(is_left)
    body = lanes.visit(interchange(kernel.body, always=False, leave=is_left))
    return replace(kernel, body=body, allocs=(*kernel.allocs, *lanes.buffers))


class _Update(NamedTuple):
    """``buffer[indices] = buffer[indices] op term``; `swapped` if the term comes first."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    op: type
    term: Expr
    swapped: bool

    def of(self, acc: Expr, term: Expr) -> Expr:
        made: Expr = self.op(term, acc) if self.swapped else self.op(acc, term)
        return made


class _Lanes:
    """Rewrites statements, other than the loops `is_left`, and keeps the buffers of lanes."""

    def __init__(self, is_left: Callable[[For], bool]) -> None:
        self._is_left = is_left
        self._pool: dict[tuple[str, int], Buffer] = {}

    @property
    def buffers(self) -> Sequence[Buffer]:
        return tuple(self._pool.values())

    def visit(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, For):
            if self._is_left(stmt):
                return stmt
            updates, binds = _updates(stmt)
            if updates:
                return self._rewritten(stmt, updates, binds)
            body = self.visit(stmt.body)
            return stmt if body is stmt.body else with_body(stmt, body)
        if isinstance(stmt, SeqStmt):
            return SeqStmt([self.visit(part) for part in stmt.seq], stmt.span)
        if isinstance(stmt, IfThenElse):
            orelse = None if stmt.else_case is None else self.visit(stmt.else_case)
            return IfThenElse(stmt.condition, self.visit(stmt.then_case), orelse, stmt.span)
        if isinstance(stmt, While):
            return While(stmt.condition, self.visit(stmt.body), stmt.span)
        return stmt

    def _rewritten(self, loop: For, updates: Sequence[_Update], binds: Sequence[Bind]) -> Stmt:
        extent, before = loop.extent, []
        if type(extent) is IntImm:
            if extent.value < LEAST:
                return loop
            return self._in_lanes(loop, extent, updates, binds)
        if loads_of(extent):  # elements may change, so they are read once
            bound = Var("extent", loop.loop_var.ty)
            before.append(Bind(bound, extent))
            extent = bound
        short = For(loop.loop_var, loop.min, extent, loop.kind, loop.body, span=loop.span)
        other = Var(loop.loop_var.name, loop.loop_var.ty)
        renamed = Substitution({loop.loop_var: other}).visit(short)
        many = self._in_lanes(loop, extent, updates, binds)
        return seq([*before, IfThenElse(GE(extent, IntImm(extent.dtype, LEAST)), many, renamed)])

    def _in_lanes(
        self, loop: For, extent: Expr, updates: Sequence[_Update], binds: Sequence[Bind]
    ) -> Stmt:
        var = loop.loop_var
        lanes = [self._buffer(update, i) for i, update in enumerate(updates)]

        def number(value: int) -> IntImm:
            return IntImm(var.ty.dtype, value)

        def each_lane(count: Any, at: Expr, lane: Var) -> Stmt:
            """The updates of the lanes with iteration `at`, which is of `lane`."""
            place = Substitution({var: at, **{b.var: Var(b.var.name, b.var.ty) for b in binds}})
            parts: list[Stmt] = [place.visit(bind) for bind in binds]
            for update, buffer in zip(updates, lanes, strict=True):
                value = update.of(BufferLoad(buffer, [lane]), place.visit(update.term))
                parts.append(BufferStore(buffer, value, [lane]))
            return For(lane, number(0), count, ForKind.VECTORIZED, seq(parts))

        first, lane, turn = (Var(name, var.ty) for name in ("lane", "lane", "turn"))
        begin = [
            BufferStore(buffer, _identity(update, buffer.ty.dtype), [first])
            for update, buffer in zip(updates, lanes, strict=True)
        ]
        whole = FloorDiv(extent, number(LANES)) if type(extent) is not IntImm else number(
            extent.value // LANES)  # fmt: skip
        rest = FloorMod(extent, number(LANES)) if type(extent) is not IntImm else number(
            extent.value % LANES)  # fmt: skip
        at = loop.min + turn * number(LANES) + lane
        parts: list[Stmt] = [
            For(first, number(0), number(LANES), ForKind.SERIAL, seq(begin)),
            For(turn, number(0), whole, ForKind.SERIAL, each_lane(number(LANES), at, lane)),
        ]
        if type(rest) is not IntImm or rest.value:
            last = Var("lane", var.ty)
            parts.append(each_lane(rest, loop.min + whole * number(LANES) + last, last))
        for update, buffer in zip(updates, lanes, strict=True):
            total = _sum_of([BufferLoad(buffer, [number(i)]) for i in range(LANES)], update)
            acc = BufferLoad(update.buffer, update.indices)
            value = _combined(update, acc, total)
            parts.append(BufferStore(update.buffer, value, update.indices))
        return SeqStmt(parts, loop.span)

    def _buffer(self, update: _Update, slot: int) -> Buffer:
        """The lanes of an update.  Loops that are not inside each other share them."""
        dtype = update.buffer.ty.dtype
        return self._pool.setdefault(
            (dtype, slot), decl_buffer([LANES], dtype, f"lanes{slot or ''}")
        )


def _sum_of(parts: list[Expr], update: _Update) -> Expr:
    """Halves added to halves."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [_combined(update, a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]


def _combined(update: _Update, a: Expr, b: Expr) -> Expr:
    """Two partial results as one.  Those of a loop that subtracts are sums of negative numbers."""
    made: Expr = (Add if update.op is Sub else update.op)(*((b, a) if update.swapped else (a, b)))
    return made


def _identity(update: _Update, dtype: str) -> FloatImm:
    return FloatImm(dtype, _IDENTITY[update.op])


_IDENTITY: Final[dict[type, float]] = {
    Add: -0.0, Sub: -0.0, Mul: 1.0, Max: -math.inf, Min: math.inf
}  # fmt: skip


# What is a reduction


def _updates(loop: For) -> tuple[list[_Update], list[Bind]]:
    """The updates of accumulators that are the body of a loop, and values bound before them; empty
    if there is anything else in it."""
    nothing: tuple[list[_Update], list[Bind]] = [], []
    parts = loop.body.seq if isinstance(loop.body, SeqStmt) else (loop.body,)
    binds: list[Bind] = []
    stores: list[BufferStore] = []
    for part in parts:
        if isinstance(part, Bind) and not stores:
            binds.append(part)
        elif isinstance(part, BufferStore):
            stores.append(part)
        else:
            return nothing
    if loop.step is not None or not stores:
        return nothing
    # ``v = acc + x`` and ``acc = v`` are what reductions of several results are written as.
    stored = {store.value for store in stores if isinstance(store.value, Var)}
    kept = [bind for bind in binds if bind.var not in stored]
    values: dict[Expr, Expr] = {bind.var: bind.value for bind in binds if bind.var in stored}
    found: list[_Update] = []
    for store in stores:
        update = _update(store, values.get(store.value, store.value))
        if update is None:
            return nothing
        found.append(update)
    inside = {loop.loop_var, *(bind.var for bind in binds)}
    written = [update.buffer for update in found]
    if len(set(written)) < len(written):
        return nothing
    reads: list[Node] = [*(u.term for u in found), *(b.value for b in kept)]
    for update in found:
        if any(uses(index, var) for index in update.indices for var in inside):
            return nothing
        reads += update.indices
    if any(load.buffer in written for node in reads for load in loads_of(node)):
        return nothing
    taken = [bind.var for bind in binds if bind.var in stored]
    if any(uses(node, var) for node in reads for var in taken) or any(map(has_let, reads)):
        return nothing
    return found, kept


def _update(store: BufferStore, value: Expr) -> _Update | None:
    """A store as an update of its element, or None."""
    if store.buffer.ty.dtype not in _FLOATS or not isinstance(value, (Add, Sub, Mul, Max, Min)):
        return None
    for acc, term, swapped in ((value.a, value.b, False), (value.b, value.a, True)):
        if (
            isinstance(acc, BufferLoad)
            and acc.buffer is store.buffer
            and same_indices(acc.indices, store.indices)
            and not (swapped and type(value) is Sub)
        ):
            return _Update(store.buffer, tuple(store.indices), type(value), term, swapped)
    return None

