"""Matrix products in pieces of bounded work."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..pieces.cut import check_time, converted, copied

__all__ = ["multiply", "products_at_once"]

_BLAS: Final = 1 << 29
"""Most multiplications of one call of BLAS: some 50 ms on one core."""
_LOOP: Final = 1 << 22
"""Most multiplications of one call of numpy's own loops, which take up to 10 ns for each."""

_COSTS: Final = {
    np.dtype(np.float32): 1,
    np.dtype(np.float64): 2,
    np.dtype(np.complex64): 4,
    np.dtype(np.complex128): 8,
}
"""The data types of BLAS, and the time of a multiplication."""


def multiply(
    left: NDArray[Any], right: NDArray[Any], out: NDArray[Any], dtype: np.dtype[Any] | None = None
) -> None:
    """out = left @ right, as by `numpy.matmul`.

    A product that takes more than some 50 ms is cut along rows and columns of the result, and the
    time limit is checked between the parts.  The last bits of floats may depend on where it is cut.

    Args:
        left, right: tensors of one data type, or of types that `dtype` holds.
        out: where the result is written; `numpy.matmul` takes care of overlaps.
        dtype: the data type to compute in, if another one than that of `out` may be chosen.
    """
    length = left.shape[-1]
    if out.size * length <= _LOOP:
        np.matmul(left, right, out=out, dtype=dtype)
        return
    most = products_at_once(out.dtype, left, right)
    if out.size * length <= most:
        np.matmul(left, right, out=out, dtype=dtype)
        return
    # numpy would convert and copy the operands of each part.
    left, right = (_apart(x, out, dtype or out.dtype) for x in (left, right))
    if right.ndim == 1:
        right, out = right[:, None], out[..., None]
    if left.ndim == 1:
        left, out = left[None], out[..., None, :]
    batch = out.shape[:-2]
    _cut(
        np.broadcast_to(left, (*batch, *left.shape[-2:])),
        np.broadcast_to(right, (*batch, *right.shape[-2:])),
        out,
        most,
    )


def products_at_once(dtype: np.dtype[Any], *operands: NDArray[Any]) -> int:
    """How many multiplications of this data type one call may do."""
    cost = _COSTS.get(dtype)
    if cost is None or not all(map(_is_matrix_of_blas, operands)):
        return _LOOP
    return _BLAS // cost


def _is_matrix_of_blas(x: NDArray[Any]) -> bool:
    return x.ndim < 2 or x.itemsize in x.strides[-2:] or 1 in x.shape[-2:]


def _apart(x: NDArray[Any], out: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    wide = converted(x, dtype)
    return copied(x) if wide is x and np.may_share_memory(x, out) else wide


def _cut(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any], most: int) -> None:
    work = out.size * left.shape[-1]
    if work <= most:
        np.matmul(left, right, out=out)
        return
    if out.size == 1:
        _cut_sum(left, right, out, most)
        return
    axis = 0
    if out.ndim == 2 or out.shape[0] == 1:
        axis = max(range(out.ndim), key=out.shape.__getitem__)
    # Rows and columns are halved, for parts that are about square.
    parts = -(-work // most) if axis < out.ndim - 2 else 2
    step = -(-out.shape[axis] // min(parts, out.shape[axis]))
    for start in range(0, out.shape[axis], step):
        if start:
            check_time()
        at = (slice(None),) * axis + (slice(start, start + step),)
        _cut(
            left if axis == out.ndim - 1 else left[at],
            right if axis == out.ndim - 2 else right[at],
            out[at],
            most,
        )


def _cut_sum(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any], most: int) -> None:
    """A single element: the sum of the products of parts."""
    part = np.empty_like(out)
    for start in range(0, left.shape[-1], most):
        columns = slice(start, start + most)
        if start:
            check_time()
        np.matmul(left[..., columns], right[..., columns, :], out=part if start else out)
        if start:
            np.add(out, part, out=out)
