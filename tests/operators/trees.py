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


def forest(
    rng: np.random.Generator, trees: int, depth: int, columns: int, count: int,
    dtype: Any = np.float32,
) -> list[Any]:  # fmt: skip
    """The tables of full trees of all comparisons, whose leaves have a weight for each target, with
    the data types that the kernel in C takes."""
    inner, size = 2**depth - 1, 2 ** (depth + 1) - 1
    modes = rng.choice([1, 1, 1, 2, 3, 5, 6], (trees, size)).astype(np.int8)
    modes[:, inner:] = 0
    nodes = np.arange(size)
    own = [np.where(nodes < inner, 2 * nodes + side, nodes) for side in (1, 2)]
    roots = np.arange(trees) * size
    starts = np.concatenate([[0], np.cumsum(count * (modes.reshape(-1) == 0))])
    tables = [
        rng.integers(0, columns, trees * size), modes.reshape(-1),
        (np.stack(own, 1) + roots[:, None, None]).reshape(-1, 2), roots, starts,
        np.tile(np.arange(count), trees * (inner + 1)),
    ]  # fmt: skip
    features, _, *others = [table.astype(np.int32) for table in tables]
    thresholds = rng.standard_normal(trees * size).round(1).astype(dtype)
    weights = rng.standard_normal(len(tables[-1])).astype(dtype)
    return [thresholds, features, tables[1], *others, weights]


def _arguments(draw: Any) -> tuple[Any, ...]:
    """Two trees of two comparisons, which share their leaves."""
    branches = np.array([[1, 2], [3, 4], [2, 2], [3, 3], [4, 4], [6, 3], [2, 4]])
    return (
        draw(5, 3), draw(7), np.array([0, 2, 0, 0, 0, 1, 0]), np.array([1, 6, 0, 0, 0, 3, 2]),
        branches, np.array([0, 5]), np.array([0, 0, 0, 1, 3, 4, 4, 4]), np.array([0, 1, 0, 1]),
        draw(4), "SUM", 2,
    )  # fmt: skip


kernel("tree_ensemble", _arguments, ensemble, ulps=4, of_largest=True)
