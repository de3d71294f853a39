"""Places in a tensor for places in a reshaped one, as TVM's simplifier writes them.

The flat place is a sum of indices times strides.  A division by a length divides the terms that are
multiples of it and keeps the others together; a remainder drops them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....ir import prim
from ....ir.arith import simplify
from ....ir.expr import Expr, IntImm

__all__ = ["places_of"]


class _Term(NamedTuple):
    """``base // divisor * scale``."""

    base: Expr
    scale: int
    divisor: int = 1

    @property
    def value(self) -> Expr:
        whole: Expr = self.base if self.divisor == 1 else prim.floordiv(self.base, self.divisor)
        return whole


def places_of(index: Sequence[Expr], new: Sequence[Expr], old: Sequence[Expr]) -> list[Expr]:
    """The place in a tensor of shape `old` of the element at `index` in the shape `new`."""
    sizes = [dim.value for dim in (*new, *old) if isinstance(dim, IntImm)]
    if len(sizes) != len(new) + len(old):
        return _symbolic(index, new, old)
    terms: list[_Term] = []
    stride = 1
    for i, dim in zip(reversed(index), reversed(sizes[: len(new)]), strict=True):
        terms.insert(0, _Term(i, stride))
        stride *= dim
    places: list[Expr] = []
    for dim in reversed(sizes[len(new) :]):
        places.insert(0, _remainder(terms, dim))
        terms = _quotient(terms, dim)
    return places


def _symbolic(index: Sequence[Expr], new: Sequence[Expr], old: Sequence[Expr]) -> list[Expr]:
    flat: Expr = IntImm("int64", 0)
    for i, dim in zip(index, new, strict=True):
        flat = flat * dim + i
    flat = simplify(flat)
    places: list[Expr] = []
    for dim in reversed(old):
        places.insert(0, flat % dim)
        flat = flat // dim
    return places


def _sum(terms: Sequence[_Term]) -> Expr:
    """The sum: large multiples first, then quotients, then indices in order."""
    total: Expr | None = None
    for term in sorted(terms, key=lambda term: (-term.scale, -term.divisor)):
        value = term.value if term.scale == 1 else term.value * term.scale
        total = value if total is None else total + value
    return IntImm("int64", 0) if total is None else total


def _remainder(terms: Sequence[_Term], length: int) -> Expr:
    rest = [term for term in terms if term.scale % length]
    if not rest:
        return IntImm("int64", 0)
    if len(rest) == 1 and rest[0].scale == 1:
        base, _, divisor = rest[0]
        inner = prim.floormod(base, divisor * length)
        return inner if divisor == 1 else prim.floordiv(inner, divisor)
    return prim.floormod(_sum(rest), length)


def _quotient(terms: Sequence[_Term], length: int) -> list[_Term]:
    if length == 1:
        return list(terms)
    divided = [_Term(t.base, t.scale // length, t.divisor) for t in terms if not t.scale % length]
    rest = [term for term in terms if term.scale % length]
    if not rest:
        return divided
    if len(rest) == 1 and rest[0].scale == 1:
        return [*divided, _Term(rest[0].base, 1, rest[0].divisor * length)]
    return [*divided, _Term(_sum(rest), 1, length)]
