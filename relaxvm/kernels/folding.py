"""Images out of their windows: the inverse of taking windows apart."""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Any, TypeAlias

import numpy as np

from ..messages import describe
from ..pieces.cut import check_time, copy_pieces, pieces
from ._arrays import copy_if_overlapping
from ._kernel import kernel
from ._windows import Windows
from .checks import Dims, WrongValue, check_out, native, working_dtype
from .kinds import Floats, Out, ints

__all__: list[str] = []

Sizes: TypeAlias = Annotated[Dims, ints(least=1)]
Padding: TypeAlias = Annotated[Dims, ints(least=0)]


@kernel("nn.fold")
def fold(
    x: Floats,
    output_size: Sizes,
    size: Sizes,
    strides: Sizes,
    padding: Padding,
    dilation: Sizes,
    out: Out,
) -> None:
    """out = images that are the sums of their windows, each at its place.  x[batch, channels * taps
    of a window, windows]; out[batch, channels, ...] with the lengths output_size.  size, strides
    and dilation of the windows: a number for each axis; padding: before each axis, then after each,
    which out does not have.  16-bit floats are summed in float32; uses memory for the sums then."""
    axes = len(output_size)
    if not axes or {len(size), len(strides), len(dilation)} != {axes} or len(padding) != 2 * axes:
        raise WrongValue(
            f"expected as many lengths for output_size, size, strides and dilation, and twice as "
            f"many for padding, got {axes}, {len(size)}, {len(strides)}, {len(dilation)} and "
            f"{len(padding)}"
        )
    windows = Windows(output_size, size, strides, padding, dilation)
    of_window, count = math.prod(size), math.prod(windows.count)
    if x.ndim != 3 or x.shape[1] % of_window or x.shape[2] != count:
        raise WrongValue(
            f"x: expected a tensor [batch, a multiple of {of_window}, {count}], got {describe(x)}"
        )
    batch, channels = x.shape[0], x.shape[1] // of_window
    check_out(out, native(x.dtype), (batch, channels, *output_size))
    parts = copy_if_overlapping(x, out).reshape(batch, channels, *size, *windows.count)
    working = working_dtype(native(x.dtype))
    total = out if native(out.dtype) == working else np.empty(out.shape, working)
    copy_pieces(total, 0)
    for tap in itertools.product(*map(range, size)):
        inside = [windows.inside(axis, i, output_size[axis]) for axis, i in enumerate(tap)]
        written: Any = (..., *[elements for _, elements in inside])
        read: Any = (slice(None), slice(None), *tap, *[which for which, _ in inside])
        for sums, terms in pieces(total[written], parts[read]):
            np.add(sums, terms, out=sums)
        check_time()
    if total is not out:
        copy_pieces(out, total)
