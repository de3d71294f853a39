"""The case of ensembles of trees; the reference follows one row and one tree at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import kernel


def ensemble(
    x: Any, thresholds: Any, features: Any, modes: Any, branches: Any, roots: Any, starts: Any,
    targets: Any, weights: Any, aggregate: str, count: int,
) -> Any:  # fmt: skip
    """Row by row."""
    out = np.zeros((len(x), count), x.dtype)
    for row, given in enumerate(x):
        for root in roots.tolist():
            at = root
            while modes[at]:
                value, bound = given[features[at]], thresholds[at]
                passes = {1: value <= bound, 2: value < bound, 3: value == bound}[modes[at] % 4]
                passes = passes or (modes[at] >= 4 and np.isnan(value))
                at = int(branches[at, 0 if passes else 1])
            for i in range(starts[at], starts[at + 1]):
                out[row, targets[i]] += weights[i]
    return out


def _arguments(draw: Any) -> tuple[Any, ...]:
    """Two trees of two comparisons, which share their leaves."""
    branches = np.array([[1, 2], [3, 4], [2, 2], [3, 3], [4, 4], [6, 3], [2, 4]])
    return (
        draw(5, 3), draw(7), np.array([0, 2, 0, 0, 0, 1, 0]), np.array([1, 6, 0, 0, 0, 3, 2]),
        branches, np.array([0, 5]), np.array([0, 0, 0, 1, 3, 4, 4, 4]), np.array([0, 1, 0, 1]),
        draw(4), "SUM", 2,
    )  # fmt: skip


kernel("tree_ensemble", _arguments, ensemble, ulps=4, of_largest=True)
