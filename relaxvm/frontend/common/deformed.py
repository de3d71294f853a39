"""Convolutions whose windows are moved, as ONNX's DeformConv and torchvision's have them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir import IntImm, TensorType
from .emitter import Emitter
from .values import Value, as_expr

__all__ = ["deformed_conv"]


def deformed_conv(
    c: Emitter, x: Value, w: Value, offset: Value, b: Value | None, mask: Value | None,
    dims: Sequence[Any], kernel: Sequence[Any], size: Sequence[Any], strides: Sequence[int],
    dilations: Sequence[int], padding: Sequence[int], groups: int, offset_groups: int,
) -> Any:  # fmt: skip
    """R.nn.conv2d of what the kernel of R.image.grid_sample takes at the moved places.

    Args:
        x: images ``[batch, channels, height, width]``.
        w: weights ``[out_channels, channels / groups, *window]``.
        offset: by how much the elements of a window are moved,
            ``[batch, offset_groups * window * 2, rows, columns]``, of the pairs first y.
        b: bias ``[out_channels]``.
        mask: factors of the elements, ``[batch, offset_groups * window, rows, columns]``.
        dims: of the images.
        kernel: the number of channels of the result, and the lengths of a window.
        size: the rows and columns of the result.
        strides, dilations, padding: of both axes; elements of the padding are 0.
    """
    batch, channels, height, width = dims
    out_channels, *window = kernel
    rows, columns = size
    taps = math.prod(window)
    # moves[batch, group, tap, y or x, row, column]
    moves = c.op("reshape", offset, [batch, offset_groups, taps, 2, rows, columns])
    moves = c.op("astype", moves, "float64")  # or places between elements would be rounded
    grid = []
    for axis, (count, whole) in enumerate(((rows, height), (columns, width))):
        of_tap = _places_of_taps(c, window, axis, dilations[axis], padding[axis])
        starts = c.op("multiply", c.op("arange", 0, count, 1, "float64"),
                      np.float64(strides[axis]))  # fmt: skip
        starts = c.op("reshape", starts, [1, -1, 1] if axis == 0 else [1, 1, -1])
        places = c.op("add", starts, of_tap)
        move = c.op("squeeze", c.op("strided_slice", moves, [3], [axis], [axis + 1]), [3])
        places = c.op("add", move, places)
        # Of n elements, i is at (2 * i + 1) / n - 1.
        double = c.op("add", c.op("multiply", places, np.float64(2)), np.float64(1))
        length = c.op("astype", _as_number(whole), "float64")
        grid.append(c.op("subtract", c.op("divide", double, length), np.float64(1)))
    pairs = c.op("stack", [Value(each) for each in reversed(grid)], -1)
    pairs = c.op("reshape", pairs, [batch * offset_groups, taps * rows, columns, 2])
    per_group = channels // offset_groups
    images = c.op("reshape", x, [batch * offset_groups, per_group, height, width])
    ty = TensorType([batch * offset_groups, per_group, taps * rows, columns], x.dtype)
    inputs = [images, pairs, "bilinear", "zeros", 0, 0, 0]
    taken: Any = c.run("image.grid_sample", inputs, ty, x.dtype or "?")
    if mask is not None:
        taken = c.op("reshape", taken, [batch, offset_groups, per_group, taps, rows, columns])
        factors = c.op("reshape", mask, [batch, offset_groups, 1, taps, rows, columns])
        taken = c.op("multiply", taken, factors)
    taken = c.op("reshape", taken, [batch, channels * taps, rows, columns])
    flat = c.op("reshape", w, [out_channels, -1, 1, 1])
    found = c.op("nn.conv2d", taken, flat, groups=groups)
    return found if b is None else c.op("add", found, c.op("reshape", b, [1, -1, 1, 1]))


def _places_of_taps(
    c: Emitter, window: Sequence[Any], axis: int, apart: int, padding: int
) -> Any:
    """Where the elements of a window are along an axis, before the padding is counted."""
    if all(isinstance(length, int) for length in window):
        found = np.indices(window)[axis].reshape(-1, 1, 1) * apart - padding
        return found.astype(np.float64)
    taps = c.op("arange", 0, math.prod(window), 1, "int64")
    index = c.op("floor_mod" if axis else "floor_divide", taps, _as_number(as_expr(window[1])))
    places = c.op("subtract", c.op("multiply", index, np.array(apart)), np.array(padding))
    return c.op("astype", c.op("reshape", places, [-1, 1, 1]), "float64")


def _as_number(dim: Any) -> Value:
    """A dimension as an int64 tensor without axes."""
    number = dim.value if isinstance(dim, IntImm) else dim
    found = np.empty((), np.int64 if isinstance(number, int) else object)
    found[()] = number
    return Value(known=found, dtype="int64")
