"""Amounts of memory that depend on symbolic dimensions: sums of them, and which one is greater."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ir.arith import Analyzer, Polynomial

__all__ = ["Amounts", "plus"]

_MOST_PEAKS = 8
"""Amounts that are kept as the greatest, of which none is known to be it."""


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
    """Compares amounts, in the normal form of an analyzer that knows bounds of their variables."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self._known: dict[Any, bool] = {}

    def at_most(self, p: Polynomial, q: Polynomial) -> bool:
        """Whether p <= q for sure."""
        if p == q:
            return True
        difference = plus(q, p, -1)
        if difference.keys() <= _CONSTANT:
            return difference.get((), 0) >= 0
        key = tuple(sorted(difference.items()))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self.analyzer.bounds_of(difference)[0] >= 0
        return known

    def greatest(self, amounts: Iterable[Polynomial]) -> list[Polynomial]:
        """The amounts without those that are known not to be above another one: their maximum is
        that of all, unless there are very many."""
        kept: list[Polynomial] = []
        for p in amounts:
            if not any(self.at_most(p, q) for q in kept):
                kept = [q for q in kept if not self.at_most(q, p)]
                kept.append(p)
        return kept[:_MOST_PEAKS]
