"""Proven facts about the integers of a function during lowering: that an index is in bounds, that a
result fits its data type.

Proofs use integers of unlimited width (`relaxvm.ir.arith`), so they hold only for expressions in
which nothing overflows; see `Facts.fits`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ..ir.arith import Analyzer, free_vars, substitute
from ..ir.expr import Call, Expr, IntImm, Var
from ..ir.prim import (
    GE,
    GT,
    LE,
    LT,
    Add,
    And,
    BinaryOpExpr,
    BitwiseNot,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    Let,
    LShift,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    RShift,
    Select,
    Sub,
    _range,
    is_float,
)
from .buffer import BufferLoad
from .intrinsics import IF_THEN_ELSE, LIKELY
from .normalize import loads_of

__all__ = ["MAX_DIM", "Facts"]

MAX_DIM: Final = 2**47
"""The greatest length of a dimension, so small that sums of indices provably do not overflow."""

Interval = tuple[float, float]
"""The least and the greatest value, each an int or infinite."""


class Facts:
    """Bounds of the variables in scope, and proofs from them."""

    def __init__(self) -> None:
        self._analyzer = Analyzer()
        self._bounds: dict[Var, tuple[Expr | None, Expr | None]] = {}
        self._intervals: dict[Var, Interval] = {}
        self._loops: list[Var] = []

    def bind_dim(self, var: Var) -> None:
        """Record that `var` is the length of a dimension."""
        high = min(MAX_DIM, int(_range(var.ty.dtype)[1]))
        self._set(var, IntImm("int64", 0), IntImm("int64", high), (0, high))

    def copy(self, var: Var, other: Var) -> None:
        """Record that the value of `var` is one that `other` may have."""
        self._intervals[var] = self._intervals[other]

    def forget(self, var: Var) -> None:
        """Drop all facts about `var`: from here on it has an unknown value."""
        self._bounds.pop(var, None)
        self._intervals.pop(var, None)
        self._analyzer.bind(var)

    @contextmanager
    def loop(self, var: Var, least: Expr, extent: Expr) -> Iterator[None]:
        """Context manager: `var` is a loop variable from `least` to below `least` + `extent`."""
        low, high = self.interval(least), self.interval(extent)
        interval = (low[0], low[1] + high[1] - 1)
        if not self.fits(least) or not self.fits(extent):
            upper = None
        else:
            upper = least + extent - 1 if not _is_zero(least) else extent - 1
        self._loops.append(var)
        try:
            self._set(var, least if upper is not None else None, upper, interval)
            yield
        finally:
            self._loops.pop()

    @contextmanager
    def given(self, condition: Expr, holds: bool) -> Iterator[None]:
        """Context manager: a condition is true, or false.  Only comparisons of variables are used.
        """
        saved: list[tuple[Var, tuple[Expr | None, Expr | None], Interval]] = []
        for var, lower, upper in _consequences(condition, holds):
            bound = lower if upper is None else upper
            if var not in self._bounds or bound is None or not self.fits(bound):
                continue
            saved.append((var, self._bounds[var], self._intervals[var]))
            old_lower, old_upper = self._bounds[var]
            low, high = self._intervals[var]
            if lower is not None:
                low = max(low, self.interval(lower)[0])
            if upper is not None:
                high = min(high, self.interval(upper)[1])
            self._set(var, old_lower if lower is None else lower,
                      old_upper if upper is None else upper, (low, high))  # fmt: skip
        try:
            yield
        finally:
            for var, bounds, interval in reversed(saved):
                self._set(var, *bounds, interval)

    def _set(self, var: Var, lower: Expr | None, upper: Expr | None, interval: Interval) -> None:
        # Drop bounds that mention the variable itself, and elements of buffers, which may change.
        lower, upper = (
            None if x is None or any(v is var for v in free_vars(x)) or loads_of(x) else x
            for x in (lower, upper)
        )
        self._bounds[var] = lower, upper
        self._intervals[var] = interval
        self._analyzer.bind(var, lower, upper)

    # Proofs

    def in_bounds(self, index: Expr, dim: Expr) -> bool:
        """Check whether 0 <= index < dim is provable."""
        if type(index) is IntImm and type(dim) is IntImm:
            return 0 <= index.value < dim.value
        if not self.fits(index) or not self.fits(dim):
            return False
        if type(dim) is IntImm:
            low, high = self.interval(index)
            if low >= 0 and high < dim.value:
                return True
        return self._at_least(index, 0, lower=True) and self._at_least(
            dim - 1 - index, 0, lower=True)  # fmt: skip

    def _at_least(self, e: Expr, bound: int, *, lower: bool) -> bool:
        """Whether e >= bound is provable, possibly by replacing loop variables by their bounds."""
        if self._analyzer.prove(e >= bound):
            return True
        for var in reversed(self._loops):
            ends = self._bounds[var]
            if not any(v is var for v in free_vars(e)) or None in ends:
                continue
            step = substitute(e, {var: var + 1}) - e
            if self._analyzer.prove(step >= 0):
                e = substitute(e, {var: ends[0]})
            elif self._analyzer.prove(step <= 0):
                e = substitute(e, {var: ends[1]})
            else:
                continue
            if self._analyzer.prove(e >= bound):
                return True
        return False

    def fits(self, e: Expr) -> bool:
        """Check that no integer in an expression overflows its data type, and no divisor is 0."""
        low, high = self._interval(e)
        return low <= high

    def interval(self, e: Expr) -> Interval:
        """Return the interval of an integer expression as it is computed, with overflow."""
        low, high = self._interval(e)
        return (low, high) if low <= high else _whole(e)

    def is_nonzero(self, e: Expr) -> bool:
        """Check whether an integer is provably not 0."""
        low, high = self.interval(e)
        return low > 0 or high < 0

    def _interval(self, e: Expr) -> Interval:
        """The interval of an expression; an empty one if something in it may overflow."""
        kind = type(e)
        if kind is IntImm:
            return e.value, e.value  # type: ignore[attr-defined]
        if isinstance(e, Var):
            return self._intervals.get(e) or _whole(e)
        if isinstance(e, Let):
            return _EMPTY
        # An overflow anywhere inside, even in a condition or an index, invalidates the proof.
        parts = [self._interval(part) for part in _parts(e)]
        if any(low > high for low, high in parts):
            return _EMPTY
        if not _is_integer(e):
            return _whole(e)
        if isinstance(e, Cast):
            return _within(parts[0], e) if _is_integer(e.value) else _whole(e)
        if isinstance(e, Select) or (isinstance(e, Call) and e.op is IF_THEN_ELSE):
            return _hull(parts[1], parts[2])
        if isinstance(e, Call) and e.op is LIKELY:
            return parts[0]
        combine = _COMBINE.get(kind)
        return _whole(e) if combine is None else _within(combine(parts[0], parts[1]), e)


_EMPTY: Final = (1, 0)


def _parts(e: Expr) -> Sequence[Expr]:
    """The direct operands of a scalar, in order."""
    if isinstance(e, BinaryOpExpr):
        return e.a, e.b
    if isinstance(e, (Cast, Not, BitwiseNot)):
        return (getattr(e, e.FIELDS[0]),)
    if isinstance(e, Select):
        return e.condition, e.true_value, e.false_value
    if isinstance(e, BufferLoad):
        return e.indices
    return e.args if isinstance(e, Call) else ()


def _is_zero(e: Expr) -> bool:
    return type(e) is IntImm and e.value == 0


def _is_integer(e: Expr) -> bool:
    return e.dtype.startswith(("int", "uint", "bool"))


def _whole(e: Expr) -> Interval:
    if not _is_integer(e):
        return -math.inf, math.inf
    low, high = _range(e.dtype)
    return low, high


def _within(interval: Interval, e: Expr) -> Interval:
    low, high = _range(e.dtype)
    return interval if low <= interval[0] and interval[1] <= high else _EMPTY


def _hull(a: Interval, b: Interval) -> Interval:
    if a[0] > a[1] or b[0] > b[1]:
        return _EMPTY
    return min(a[0], b[0]), max(a[1], b[1])


def _product(a: Interval, b: Interval) -> Interval:
    products = [0 if 0 in (x, y) else x * y for x in a for y in b]
    return min(products), max(products)


def _quotient(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0:
        return -math.inf, math.inf
    ends = [x // y for x in a for y in b]
    return min(ends), max(ends)


def _remainder(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0:
        return -math.inf, math.inf
    return a if 0 <= a[0] and a[1] < b[0] else (0, b[1] - 1)


def _truncated_quotient(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0:
        return -math.inf, math.inf
    return min(a[0], 0), max(a[1], 0)


def _truncated_remainder(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0:
        return -math.inf, math.inf
    return max(min(a[0], 0), 1 - b[1]), min(max(a[1], 0), b[1] - 1)


def _shifted_left(a: Interval, b: Interval) -> Interval:
    if not 0 <= b[0] == b[1] < 64:
        return -math.inf, math.inf
    return _product(a, (2 ** int(b[0]),) * 2)


def _shifted_right(a: Interval, b: Interval) -> Interval:
    if b[0] < 0:  # shifted by any amount, at most down to 0 or -1
        return min(a[0], -1), max(a[1], 0)
    return min(a[0], 0), max(a[1], 0)


_COMBINE: Final[dict[type, Callable[[Interval, Interval], Interval]]] = {
    Add: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    Sub: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    Mul: _product,
    FloorDiv: _quotient,
    FloorMod: _remainder,
    Div: _truncated_quotient,
    Mod: _truncated_remainder,
    LShift: _shifted_left,
    RShift: _shifted_right,
    Min: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    Max: lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}


def _consequences(condition: Expr, holds: bool) -> Iterator[tuple[Var, Expr | None, Expr | None]]:
    """Bounds (variable, lower, upper) that follow from a condition."""
    if isinstance(condition, Call) and condition.op is LIKELY:
        condition = condition.args[0]
    if isinstance(condition, And) and holds:
        yield from _consequences(condition.a, True)
        yield from _consequences(condition.b, True)
        return
    kind = type(condition)
    if kind not in (LT, LE, GT, GE) or is_float(condition.a.dtype):  # type: ignore[attr-defined]
        return
    a, b = condition.a, condition.b  # type: ignore[attr-defined]
    if kind in (GT, GE):  # a > b is b < a
        a, b, kind = b, a, LT if kind is GT else LE
    if not holds:  # not a < b is b <= a
        a, b, kind = b, a, LE if kind is LT else LT
    # Now a < b or a <= b.
    gap = 1 if kind is LT else 0
    if isinstance(a, Var):
        yield a, None, b - gap if gap else b
    if isinstance(b, Var):
        yield b, a + gap if gap else a, None
