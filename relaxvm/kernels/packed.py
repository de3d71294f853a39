"""Products with matrices whose elements have a few bits."""

from __future__ import annotations

from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import check_time
from ._arrays import copy_if_overlapping
from ._kernel import kernel
from .checks import WrongValue, check_out, native, working_dtype
from .kinds import Floats, Integers, Out, Tensor, an_int

__all__: list[str] = []

_BLOCK: Final = 1 << 20
"""Elements of the matrix that are unpacked at once."""


@kernel("matmul_packed")
def matmul_packed(
    x: Floats,
    packed: Integers,
    scales: Floats,
    zeros: Tensor | None,
    bits: Annotated[int, an_int(least=2)],
    block: Annotated[int, an_int(least=1)],
    out: Out,
) -> None:
    """out[..., n] = the product of x[..., k] and the transposed matrix [n, k] that packed[n,
    blocks, bytes] has: unsigned numbers of 2, 4 or 8 bits, the first in the lowest bits, `block` of
    them in a block, minus the zero point of the block, times its number in scales[n * blocks].
    zeros: None for 2 ** (bits - 1); packed in uint8, each row apart; or of the data type of scales.
    Uses memory for x and for blocks of rows."""
    if bits not in (2, 4, 8):
        raise WrongValue(f"bits: expected 2, 4 or 8, got {bits}")
    if x.ndim < 1 or packed.ndim != 3 or packed.dtype != np.uint8:
        raise WrongValue(
            f"expected x with axes, and packed of uint8 with 3 axes, got {describe(x)} and "
            f"{describe(packed)}"
        )
    rows, blocks, width = packed.shape
    length = x.shape[-1]
    per_byte = 8 // bits
    if width * per_byte != block or blocks != -(-length // block):
        raise WrongValue(
            f"packed: expected blocks of {block} for {length} columns, got {describe(packed)}"
        )
    if scales.size != rows * blocks:
        raise WrongValue(f"scales: expected {rows * blocks} numbers, got {describe(scales)}")
    bytes_per_row = -(-blocks // per_byte)
    points: NDArray[Any] | None = None
    if zeros is not None:
        is_packed = zeros.dtype == np.uint8
        wanted = rows * (bytes_per_row if is_packed else blocks)
        if zeros.size != wanted or not (is_packed or zeros.dtype == scales.dtype):
            raise WrongValue(f"zeros: expected {wanted} numbers, got {describe(zeros)}")
        points = zeros.reshape(rows, -1)
    dtype = native(x.dtype)
    check_out(out, dtype, (*x.shape[:-1], rows))
    working = working_dtype(dtype)
    left = x.astype(working).reshape(-1, length)
    packed, scales = (copy_if_overlapping(each, out) for each in (packed, scales))
    points = None if points is None else copy_if_overlapping(points, out)
    factors = scales.reshape(rows, blocks)
    result = out.reshape(-1, rows) if out.flags.c_contiguous else np.empty((len(left), rows), dtype)
    step = max(1, _BLOCK // max(1, blocks * block))
    for first in range(0, rows, step):
        check_time()
        part = slice(first, min(rows, first + step))
        numbers = _unpacked(packed[part], bits).astype(working)
        if points is None:
            numbers -= 1 << (bits - 1)
        elif points.dtype == np.uint8:
            numbers -= _unpacked(points[part], bits)[:, :blocks, None]
        else:
            numbers -= points[part, :, None].astype(working)
        numbers *= factors[part, :, None].astype(working)
        matrix = numbers.reshape(part.stop - first, -1)[:, :length]
        result[:, part] = left @ matrix.T
    if not out.flags.c_contiguous:
        np.copyto(out, result.reshape(out.shape))


def _unpacked(packed: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """The numbers along the last axis, of which several share a byte."""
    if bits == 8:
        return packed
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], -1)
