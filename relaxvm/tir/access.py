"""The regions that a block reads and writes: for each buffer, one that contains all accesses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..ir.arith import prove, prove_equal, simplify, substitute
from ..ir.expr import Expr, IntImm, Var
from ..ir.prim import Add, BinaryOpExpr, Cast, FloorDiv, Mul, Sub, is_float
from .buffer import Buffer, BufferLoad, BufferRegion, Range
from .stmt import AllocBuffer, BufferStore, For, MatchBufferRegion, SBlockRealize, Stmt
from .visitor import Visitor

__all__ = ["access_regions", "merged_regions"]

Bounds = tuple[Expr, Expr]
"""The least and the greatest index."""


def access_regions(
    body: Stmt,
    init: Stmt | None = None,
    alloc_buffers: Iterable[Buffer] = (),
    match_buffers: Iterable[MatchBufferRegion] = (),
) -> tuple[list[BufferRegion], list[BufferRegion]]:
    """Return the regions that a block reads and those that it writes, in order of first access.

    Indices that vary with loops inside the block span a range, or the whole dimension if the range
    cannot be determined.  A buffer that a reduction initializes does not count as read.
    """
    detector = _Detector(set(alloc_buffers), {m.buffer: m.source for m in match_buffers})
    detector.visit(body)
    reads, writes = dict(detector.reads), detector.writes
    if init is not None:
        detector.visit(init)
        for buffer in writes:
            reads.pop(buffer, None)
    return _regions(reads), _regions(detector.writes)


def _regions(found: dict[Buffer, list[Bounds]]) -> list[BufferRegion]:
    regions = []
    for buffer, bounds in found.items():
        ranges = []
        for low, high in bounds:
            extent = simplify(high - low + 1)
            ranges.append(Range.point(low) if low is high else Range(low, extent))
        regions.append(BufferRegion(buffer, ranges))
    return regions


def merged_regions(regions: Sequence[BufferRegion]) -> list[BufferRegion]:
    """Return one region for each buffer, in order of appearance, that contains all of its own."""
    found: dict[Buffer, list[BufferRegion]] = {}
    for region in regions:
        found.setdefault(region.buffer, []).append(region)
    return [_merged(own) for own in found.values()]


def _merged(regions: Sequence[BufferRegion]) -> BufferRegion:
    first = regions[0]
    if len(regions) == 1:
        return first
    bounds = _bounds(first)
    for other in regions[1:]:
        bounds = _union(bounds, _bounds(other), first.buffer.ty.shape)
    return _regions({first.buffer: bounds})[0]


def _bounds(region: BufferRegion) -> list[Bounds]:
    return [
        (r.min, r.min if r.is_point else simplify(r.min + r.extent - 1)) for r in region.region
    ]


class _Detector(Visitor):
    def __init__(self, local: set[Buffer], matched: dict[Buffer, BufferRegion]) -> None:
        self.reads: dict[Buffer, list[Bounds]] = {}
        self.writes: dict[Buffer, list[Bounds]] = {}
        self._local = local
        self._matched = matched
        self._loops: dict[Var, Bounds] = {}

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        self._loops[loop.loop_var] = loop.min, simplify(loop.min + loop.extent - 1)
        self.visit(loop.body)
        del self._loops[loop.loop_var]

    def visit_AllocBuffer(self, stmt: AllocBuffer) -> None:
        self._local.add(stmt.buffer)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self._add(self.reads, load.buffer, [(i, i) for i in load.indices])
        self.visit_parts(load)

    def visit_Buffer(self, buffer: Buffer) -> None:
        pass

    def visit_BufferStore(self, stmt: BufferStore) -> None:
        self.visit(stmt.value)
        for index in stmt.indices:
            self.visit(index)
        self._add(self.writes, stmt.buffer, [(i, i) for i in stmt.indices])

    def visit_SBlockRealize(self, stmt: SBlockRealize) -> None:
        for value in (*stmt.iter_values, stmt.predicate):
            self.visit(value)
        block = stmt.block
        values: dict[Var, Any] = {
            iv.var: value for iv, value in zip(block.iter_vars, stmt.iter_values, strict=True)
        }
        for regions, into in ((block.reads, self.reads), (block.writes, self.writes)):
            for region in regions:
                bounds = []
                for r in region.region:
                    low = substitute(r.min, values)
                    high = low if r.is_point else simplify(
                        low + substitute(r.extent, values) - 1)  # fmt: skip
                    bounds.append((low, high))
                self._add(into, region.buffer, bounds)

    def _add(self, into: dict[Buffer, list[Bounds]], buffer: Buffer, bounds: list[Bounds]) -> None:
        source = self._matched.get(buffer)
        if source is not None:
            self._add(into, source.buffer, _bounds(source))
            return
        if buffer in self._local:
            return
        wide = [
            self._relaxed(low, high, dim)
            for (low, high), dim in zip(bounds, buffer.ty.shape, strict=True)
        ]
        before = into.get(buffer)
        into[buffer] = wide if before is None else _union(before, wide, buffer.ty.shape)

    def _relaxed(self, low: Expr, high: Expr, dim: Expr) -> Bounds:
        """Bounds over all iterations of the enclosing loops inside the block; all places for an
        index that is made of floats, as in TVM."""
        if low is high and _is_of_floats(low):
            return IntImm(dim.dtype, 0), simplify(dim - 1)
        for var in reversed(list(self._loops)):
            is_point = low is high
            low_end, high_end = self._ends(low, var), self._ends(high, var)
            if low_end is None or high_end is None:
                zero = IntImm(dim.dtype, 0)
                return zero, simplify(dim - 1)
            low = low_end[0]
            high = low if is_point and low_end[0] is low_end[1] else high_end[1]
        return low, high

    def _ends(self, e: Expr, var: Var) -> Bounds | None:
        """The least and the greatest value over a loop, or None if not known."""
        direction = _direction(e, var)
        if direction is None:
            return None
        if direction == 0:
            return e, e
        least, greatest = self._loops[var]
        ends = (simplify(substitute(e, {var: least})), simplify(substitute(e, {var: greatest})))
        return ends if direction > 0 else ends[::-1]


def _is_of_floats(index: Expr) -> bool:
    if isinstance(index, Cast):
        return is_float(index.value.dtype) or _is_of_floats(index.value)
    return isinstance(index, BinaryOpExpr) and (_is_of_floats(index.a) or _is_of_floats(index.b))


def _direction(e: Expr, var: Var) -> int | None:
    """1 if an index increases with a variable, -1 if it decreases, 0 if it does not depend on it,
    None if not known."""
    if e is var:
        return 1
    if isinstance(e, (Var, IntImm)):
        return 0
    if isinstance(e, (Add, Sub)):
        a, b = _direction(e.a, var), _direction(e.b, var)
        if a is None or b is None:
            return None
        if isinstance(e, Sub):
            b = -b
        return a + b if a * b == 0 else (a if a == b else None)
    if isinstance(e, (Mul, FloorDiv)):
        a, b = _direction(e.a, var), _direction(e.b, var)
        if a == 0 and b == 0:
            return 0
        if b == 0 and a is not None and prove(e.b >= 0):
            return a
        if a == 0 and b is not None and isinstance(e, Mul) and prove(e.a >= 0):
            return b
        return None
    used = False

    class Uses(Visitor):
        def visit_Var(self, other: Var) -> None:
            nonlocal used
            used = used or other is var

    Uses().visit(e)
    return None if used else 0


def _union(a: Sequence[Bounds], b: Sequence[Bounds], shape: Sequence[Expr]) -> list[Bounds]:
    result = []
    for (low, high), (low2, high2), dim in zip(a, b, shape, strict=True):
        if prove_equal(low, low2) and prove_equal(high, high2):
            result.append((low, high))
            continue
        least = low if prove(low <= low2) else low2 if prove(low2 <= low) else None
        greatest = high if prove(high2 <= high) else high2 if prove(high <= high2) else None
        if least is None or greatest is None:
            least, greatest = IntImm(dim.dtype, 0), simplify(dim - 1)
        result.append((least, greatest))
    return result
