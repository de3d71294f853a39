"""Pools of images: max_pool2d, avg_pool2d."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import PIECE, apply, check_time, copy_pieces
from ._arrays import copy_if_overlapping
from ._blocks import row_blocks
from ._kernel import kernel
from ._windows import Windows, taps
from .checks import Dims, WrongValue, check_out, native, working_dtype
from .kinds import Flag, Floats, Out, ints, taken_by

__all__: list[str] = []

Ordered: TypeAlias = Annotated[NDArray[Any], taken_by(np.maximum)]
Size: TypeAlias = Annotated[Dims, ints(count=2, least=1)]
Padding: TypeAlias = Annotated[Dims, ints(count=4, least=0)]


@kernel("nn.max_pool2d")
def max_pool2d(
    x: Ordered,
    pool_size: Size,
    strides: Size,
    padding: Padding,
    dilation: Size,
    ceil_mode: Flag,
    out: Out,
) -> None:
    """out = the greatest element of each window, NaN if one is.  x[batch, channels, height, width];
    pool_size, strides and dilation: a number for height and one for width; padding: top, left,
    bottom, right; ceil_mode: whether a last window may extend beyond the padding, if it begins on
    the image or in the padding before it.  The result of a window without elements is the least
    number of the data type."""
    windows = _windows(x, pool_size, strides, padding, dilation, ceil_mode)
    check_out(out, x.dtype, (*x.shape[:2], *windows.count))
    for images, written in row_blocks(copy_if_overlapping(x, out), out, row=2):
        copy_pieces(written, _least(native(x.dtype)))
        for _, _, elements, results in taps(windows, images, written):
            np.maximum(results, elements, out=results)


@kernel("nn.avg_pool2d")
def avg_pool2d(
    x: Floats,
    pool_size: Size,
    strides: Size,
    padding: Padding,
    dilation: Size,
    ceil_mode: Flag,
    count_include_pad: Flag,
    out: Out,
) -> None:
    """out = the mean of each window, of floats; otherwise as `nn.max_pool2d`.  count_include_pad:
    whether the padding counts, as zeros.  The result of a window without elements is 0."""
    windows = _windows(x, pool_size, strides, padding, dilation, ceil_mode)
    check_out(out, x.dtype, (*x.shape[:2], *windows.count))
    working = working_dtype(native(x.dtype))
    height, width = (
        windows.taps_inside(axis, length, padded=bool(count_include_pad))
        for axis, length in enumerate(x.shape[2:])
    )

    def counts(rows: slice) -> NDArray[Any]:
        """How many elements each window of some rows has, at least 1."""
        return np.maximum(np.multiply.outer(height[rows], width), 1).astype(working)

    step = max(1, PIECE // max(1, len(width)))
    parts = [slice(start, start + step) for start in range(0, len(height), step)]
    whole = counts(parts[0]) if len(parts) == 1 else None
    for images, written in row_blocks(copy_if_overlapping(x, out), out, row=2):
        total = written if written.dtype == working else np.empty(written.shape, working)
        copy_pieces(total, 0)
        for _, _, elements, results in taps(windows, images, total):
            np.add(results, elements, out=results)
        for rows in parts:
            part = total[..., rows, :]
            apply(np.divide, part, part, counts(rows) if whole is None else whole)
            if whole is None:
                check_time()
        if total is not written:
            copy_pieces(written, total)


def _windows(
    x: NDArray[Any], size: Dims, strides: Dims, padding: Dims, dilation: Dims, ceil_mode: bool
) -> Windows:
    if x.ndim != 4:
        raise WrongValue(
            f"x: expected a tensor [batch, channels, height, width], got {describe(x)}"
        )
    return Windows(x.shape[2:], size, strides, padding, dilation, ceil_mode=ceil_mode)


def _least(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return False
    return np.iinfo(dtype).min if dtype.kind in "iu" else dtype.type(-np.inf)

