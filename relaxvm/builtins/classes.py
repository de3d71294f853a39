"""Probabilities of classes out of those of pairs of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import check_time
from .arguments import as_array
from .registration import OWN_PREFIX, builtin

__all__ = ["pairwise_probabilities"]

_ROWS = 256
"""Rows that are computed at once, between two looks at the clock."""
_MOST_CLASSES = 1 << 12


@builtin("pairwise_probabilities", "x: tensor", result="tensor", prefix=OWN_PREFIX)
def pairwise_probabilities(x: Any) -> NDArray[Any]:
    """Return the probability of each class: ``[rows, classes]``, a float tensor of x's data type.

    The second method of Wu, Lin and Weng, "Probability Estimates for Multi-class Classification by
    Pairwise Coupling" (2004), with the iteration of libsvm.

    Args:
        x: ``[rows, classes, classes]``, floats: for classes i and j the probability of i if the
            class is one of the two.

    Raises:
        TypeError: not a tensor of floats of this shape.
    """
    pairs = as_array(x, "pairwise_probabilities: x")
    if pairs.ndim != 3 or pairs.dtype.kind != "f" or not 0 < pairs.shape[1] <= _MOST_CLASSES \
            or pairs.shape[1] != pairs.shape[2]:  # fmt: skip
        raise TypeError(
            f"pairwise_probabilities: x: expected floats [rows, classes, classes] of at most "
            f"{_MOST_CLASSES} classes, got {describe(pairs)}"
        )
    found = np.empty(pairs.shape[:2], pairs.dtype)
    rows = max(1, _ROWS * 64 // pairs.shape[1] ** 2)
    for start in range(0, len(pairs), rows):
        check_time()
        found[start : start + rows] = _coupled(pairs[start : start + rows].astype(np.float64))
    return found


def _coupled(pairs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The minimum of sum((r[j, i] p[i] - r[i, j] p[j])**2) where the sum of p is 1, row by row."""
    rows, classes, _ = pairs.shape
    q = -pairs.transpose(0, 2, 1) * pairs
    at = np.arange(classes)
    squares = np.square(pairs)
    squares[:, at, at] = 0
    q[:, at, at] = squares.sum(1)
    p = np.full((rows, classes), 1 / classes)
    is_open = np.ones(rows, bool)
    for _ in range(max(100, classes)):
        check_time()
        qp = np.matmul(q, p[..., None])[..., 0]
        pqp = np.einsum("ni,ni->n", p, qp)
        is_open &= ~(np.abs(qp - pqp[:, None]).max(1) < 0.005 / classes)
        if not is_open.any():
            break
        for i in range(classes):
            own = q[:, i, i]
            with np.errstate(all="ignore"):
                step = np.where(is_open & (own != 0), (pqp - qp[:, i]) / own, 0)
            grown = 1 + step
            p[:, i] += step
            pqp = (pqp + step * (step * own + 2 * qp[:, i])) / grown / grown
            qp = (qp + step[:, None] * q[:, i]) / grown[:, None]
            p /= grown[:, None]
    return p
