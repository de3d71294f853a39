"""Cases of kernels of matrices: results of LAPACK in float64, and elimination in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import kernel


def double(x: Any) -> Any:
    return np.asarray(x, np.float64)


def of_lapack(function: Any, *args: Any) -> Any:
    return tuple(map(np.asarray, function(*map(double, args))))


def spd(draw: Any, *batch: int) -> Any:
    """Positive definite matrices."""
    x = draw(*batch, 4, 4)
    return x @ np.swapaxes(x, -1, -2) + 9 * np.eye(4)


def eliminated(x: Any) -> Any:
    """Elimination, row by row."""
    x = np.array(x)
    pivots = np.zeros((*x.shape[:-2], min(x.shape[-2:])), np.int64)
    for at in np.ndindex(*x.shape[:-2]):
        rows = x[at]
        for j in range(min(rows.shape)):
            pivot = max(range(j, len(rows)), key=lambda i: abs(rows[i, j]))
            pivots[(*at, j)] = pivot + 1
            rows[[j, pivot]] = rows[[pivot, j]]
            for i in range(j + 1, len(rows)):
                rows[i, j] /= rows[j, j]
                rows[i, j + 1 :] -= rows[i, j] * rows[j, j + 1 :]
    return x, pivots


def substituted(a: Any, b: Any, upper: int, unit: int) -> Any:
    triangle = double(np.triu(a) if upper else np.tril(a))
    if unit:
        triangle[..., range(a.shape[-1]), range(a.shape[-1])] = 1
    return np.linalg.solve(triangle, double(b))


def both_parts(found: Any) -> Any:
    return tuple(np.stack([each.real, each.imag], -1) for each in found)


WITHIN: dict[str, Any] = {"ulps": 512, "of_largest": True}

kernel("linalg.lu", lambda draw: (draw(2, 5, 4),), eliminated, dtype="float64,int32", **WITHIN)
kernel(
    "linalg.solve",
    lambda draw: (draw(3, 4, 4) + 9 * np.eye(4), draw(3, 4, 2)),
    lambda a, b: np.linalg.solve(double(a), double(b)),
    **WITHIN,
)
kernel(
    "linalg.solve_triangular",
    lambda draw: (draw(3, 4, 4) + 9 * np.eye(4), draw(3, 4, 2), 1, 0),
    substituted,
    **WITHIN,
)
kernel("linalg.cholesky", lambda draw: (spd(draw, 3),),
       lambda x: np.linalg.cholesky(double(x)), **WITHIN)  # fmt: skip
kernel("linalg.qr", lambda draw: (draw(2, 5, 3), 0),
       lambda x, complete: of_lapack(np.linalg.qr, x), **WITHIN)  # fmt: skip
kernel("linalg.svd", lambda draw: (draw(2, 5, 3), 1),
       lambda x, full: of_lapack(np.linalg.svd, x), **WITHIN)  # fmt: skip
kernel("linalg.eigh", lambda draw: (spd(draw, 3),),
       lambda x: of_lapack(np.linalg.eigh, x), **WITHIN)  # fmt: skip
kernel("linalg.eig", lambda draw: (draw(2, 4, 4),),
       lambda x: both_parts(np.linalg.eig(double(x))), **WITHIN)  # fmt: skip
