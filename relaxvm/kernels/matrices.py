"""Functions of square matrices."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import check_time
from ._arrays import copy_if_overlapping
from ._blocks import row_blocks
from ._kernel import kernel
from .checks import WrongValue, check_out, native, working_dtype
from .kinds import Floats, Out

__all__: list[str] = []

_AT_ONCE: Final = 512
"""Rows of a matrix that LAPACK may take in one call, which nothing interrupts."""
_PANEL: Final = 64
"""Columns that are eliminated together."""
_PRODUCTS: Final = 1 << 26
"""Multiplications between two looks at the time."""


@kernel("det")
def det(x: Floats, out: Out) -> None:
    """out = the determinants of matrices x[..., n, n]; 1 for n = 0.  16-bit floats are computed in
    float32.  A copy of each matrix with more than 512 rows is made."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise WrongValue(f"x: expected square matrices [..., n, n], got {describe(x)}")
    check_out(out, native(x.dtype), x.shape[:-2])
    working = working_dtype(native(x.dtype))
    x = copy_if_overlapping(x, out)
    if x.shape[-1] > _AT_ONCE:
        for index in np.ndindex(out.shape):
            out[index] = _determinant(x[index].astype(working))
        return
    written = out[..., np.newaxis, np.newaxis]
    for matrices, results in row_blocks(x, written, row=2):
        found = np.linalg.det(matrices.astype(working, copy=False))
        results[..., 0, 0] = found


def _determinant(rows: NDArray[Any]) -> Any:
    """The determinant of a large matrix, which is written: Gaussian elimination with pivots, panel
    by panel, with a look at the time in between."""
    count = len(rows)
    sign, logarithm = 1.0, 0.0
    for start in range(0, count, _PANEL):
        end = min(start + _PANEL, count)
        for j in range(start, end):
            check_time()
            pivot = j + int(np.argmax(np.abs(rows[j:, j])))
            if pivot != j:
                rows[[j, pivot]] = rows[[pivot, j]]
                sign = -sign
            found = float(rows[j, j])
            if found == 0:
                return 0.0
            sign, logarithm = math.copysign(sign, sign * found), logarithm + math.log(abs(found))
            rows[j + 1 :, j] /= rows[j, j]
            rows[j + 1 :, j + 1 : end] -= np.outer(rows[j + 1 :, j], rows[j, j + 1 : end])
        for j in range(start + 1, end):
            rows[j, end:] -= rows[j, start:j] @ rows[start:j, end:]
        step = max(1, _PRODUCTS // (_PANEL * count))
        for row in range(end, count, step):
            check_time()
            below = rows[row : row + step]
            below[:, end:] -= below[:, start:end] @ rows[start:end, end:]
    with np.errstate(over="ignore"):
        return sign * np.exp(logarithm)
