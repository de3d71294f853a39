"""Arithmetic and comparison of amounts of memory that depend on symbolic dimensions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ir.arith import Analyzer, Polynomial

__all__ = ["Amounts", "plus"]

_MOST_PEAKS = 8
"""How many candidates for the greatest amount are kept if it is not known which one is greatest."""

_MOST_COMPARED = 32
"""How many are compared with each other to find these."""

_MOST_ASKED = 5_000
"""How many polynomials the comparisons of one program may search bounds for, some seconds: of a
program with hundreds of lengths that only the run knows the rest is compared by the bounds of these
alone, which proves less."""

_CONSTANT = {()}


def plus(p: Polynomial, q: Polynomial, scale: int = 1) -> Polynomial:
    """p + scale * q"""
    if not q:
        return p
    total = dict(p)
    for monomial, coefficient in q.items():
        value = total.get(monomial, 0) + scale * coefficient
        if value:
            total[monomial] = value
        else:
            total.pop(monomial, None)
    return total


class Amounts:
    """Compares amounts, given in the normal form of an analyzer that has bounds of variables."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self._known: dict[Any, bool] = {}
        self._asked_before = analyzer.asked

    def at_most(self, p: Polynomial, q: Polynomial) -> bool:
        """Check whether p <= q is provable."""
        if p == q:
            return True
        difference = plus(q, p, -1)
        if difference.keys() <= _CONSTANT:
            return difference.get((), 0) >= 0
        key = tuple(sorted(difference.items()))
        known = self._known.get(key)
        if known is None:
            is_quick = self.analyzer.asked - self._asked_before >= _MOST_ASKED
            known = self._known[key] = (
                self.analyzer.quick_bounds_of(difference)[0] >= 0
                if is_quick
                else self.analyzer.is_at_most(p, q)
            )
        return known

    def greatest(self, amounts: Iterable[Polynomial]) -> list[Polynomial]:
        """Return the amounts without those that are provably at most another one.  Their maximum is
        that of all amounts, unless more than `_MOST_PEAKS` remain: then some of them are left out,
        and of those beyond `_MOST_COMPARED` the ones that come last, so that the time stays linear
        in the number of amounts."""
        kept: list[Polynomial] = []
        for p in amounts:
            if not any(self.at_most(p, q) for q in kept):
                kept = [q for q in kept if not self.at_most(q, p)]
                if len(kept) < _MOST_COMPARED:
                    kept.append(p)
        return kept[:_MOST_PEAKS]
