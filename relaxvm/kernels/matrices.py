"""Functions of square matrices."""

from __future__ import annotations

import numpy as np

from ..messages import describe
from ._arrays import copy_if_overlapping
from ._blocks import row_blocks
from ._kernel import kernel
from .checks import WrongValue, check_out, native, working_dtype
from .kinds import Floats, Out

__all__: list[str] = []


@kernel("det")
def det(x: Floats, out: Out) -> None:
    """out = the determinants of matrices x[..., n, n]; 1 for n = 0.  16-bit floats are computed in
    float32.  A matrix is never split: the time limit is checked between matrices."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise WrongValue(f"x: expected square matrices [..., n, n], got {describe(x)}")
    check_out(out, native(x.dtype), x.shape[:-2])
    working = working_dtype(native(x.dtype))
    written = out[..., np.newaxis, np.newaxis]
    for matrices, results in row_blocks(copy_if_overlapping(x, out), written, row=2):
        found = np.linalg.det(matrices.astype(working, copy=False))
        results[..., 0, 0] = found
