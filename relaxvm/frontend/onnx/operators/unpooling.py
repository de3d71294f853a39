"""Images out of windows: elements at places of pools, sums of windows, and windows whose elements
are moved."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....ir import Expr, IntImm, TensorType
from ...common.values import Value, as_expr
from ..graph import Graph, Problem
from ..registry import onnx
from .attention import as_number
from .ranks import length_of_vector
from .windows import spatial_axes

__all__: list[str] = []


@onnx("MaxUnpool", since=9)
def max_unpool(
    g: Graph,
    x: Value,
    indices: Value,
    output_shape: Value | None = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    """Zeros, with the elements of x at the places that MaxPool found.

    The places are those of a tensor whose lengths follow from the windows; then zeros behind it, or
    fewer elements, make its lengths those of `output_shape`.
    """
    count = spatial_axes(x, "x", kernel_shape)
    steps = [1] * count if strides is None else strides
    padding = [0] * (2 * count) if pads is None else pads
    if (len(kernel_shape), len(steps), len(padding)) != (count, count, 2 * count):
        raise Problem(f"expected windows of {count} axes, got {kernel_shape}, {steps}, {padding}")
    dims = g.named_dims(x, count + 2)
    assert dims is not None
    lengths: list[Any] = list(dims[:2])
    for i, dim in enumerate(dims[2:]):
        length = (dim - 1) * steps[i] + (kernel_shape[i] - padding[i] - padding[count + i])
        lengths.append(length)
    total = math.prod(lengths[1:], start=lengths[0])
    zeros = g.op("zeros", [total], x.dtype)
    flat, places = (g.op("reshape", each, [-1]) for each in (x, indices))
    found = g.op("scatter_elements", zeros, places, flat, 0)
    found = g.op("reshape", found, lengths)
    if output_shape is None:
        return found
    wanted = g.elements(output_shape, count + 2, "output_shape")
    ends = [want - have for want, have in zip(wanted[2:], lengths[2:], strict=True)]
    pairs = [0] * 4 + [n for end in ends for n in (0, end)]
    ty = TensorType([*lengths[:2], *wanted[2:]], x.dtype)
    return g.run("nn.pad", [found, pairs, "constant", 0], ty, x.dtype or "?")


@onnx("Col2Im", since=18)
def col2im(
    g: Graph,
    x: Value,
    image_shape: Value,
    block_shape: Value,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    """The kernel ``nn.fold``: the sums of windows, each at its place."""
    size, block = g.shape_in(image_shape), g.shape_in(block_shape)
    settings = [strides or [], dilations or [], (pads or [])[::2]]
    count = max(map(len, settings)) or block_shape.length
    if not count:
        count = length_of_vector(image_shape, "image_shape", range(1, 5))
    dims: list[Any] | None = None
    if isinstance(size, list) and isinstance(block, list) and x.dims is not None and (
        isinstance(x.dims[1], IntImm) and all(isinstance(n, int) and n > 0 for n in block)
    ):
        dims = [x.dims[0], x.dims[1].value // math.prod(block), *size]
    ty = TensorType.of(dims, x.dtype, ndim=count + 2)
    ones = [1] * count
    inputs = [x, size, block, strides or ones, pads or [0] * (2 * count), dilations or ones]
    return g.run("nn.fold", inputs, ty, x.dtype or "?")


def _places_of_taps(g: Graph, size: list[Any], axis: int, apart: int, padding: int) -> Any:
    """Where the elements of a window are along an axis, before the padding is counted."""
    if all(isinstance(length, int) for length in size):
        found = np.indices(size)[axis].reshape(-1, 1, 1) * apart - padding
        return found.astype(np.float64)
    taps, last = g.op("arange", 0, math.prod(size), 1, "int64"), as_number(g, as_expr(size[1]))
    index = g.op("floor_mod" if axis else "floor_divide", taps, last)
    found = g.op("subtract", g.op("multiply", index, np.array(apart)), np.array(padding))
    return g.op("astype", g.op("reshape", found, [-1, 1, 1]), "float64")


@onnx("DeformConv", since=19)
def deform_conv(
    g: Graph,
    x: Value,
    w: Value,
    offset: Value,
    b: Value | None = None,
    mask: Value | None = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    """R.nn.conv2d of what the kernel of R.image.grid_sample takes at the moved places."""
    dims, weights, offsets = (g.named_dims(each, 4) for each in (x, w, offset))
    if dims is None or weights is None or offsets is None:
        raise Problem(f"expected images of two axes, got {x.type}, {w.type} and {offset.type}")
    size: list[Any] = [dim.value if isinstance(dim, IntImm) else dim for dim in weights[2:]]
    channels: Any = dims[1].value if isinstance(dims[1], IntImm) else dims[1]
    if isinstance(channels, int) and channels % offset_group:
        raise Problem(f"expected a multiple of {offset_group} channels, got {x.type}")
    if kernel_shape is not None and w.lengths(2) is None:
        g.state_dims(w, [None, None, *kernel_shape])
        size = list(kernel_shape)
    if kernel_shape not in (None, size):
        raise Problem(f"kernel_shape: expected {size}, as the weights have it, got {kernel_shape}")
    steps, apart, padding = strides or [1, 1], dilations or [1, 1], pads or [0] * 4
    taps = math.prod(size)
    batch, rows, columns = dims[0], offsets[2], offsets[3]
    # offsets[batch, group, tap, y or x, row, column]
    moves = g.op("reshape", offset, [batch, offset_group, taps, 2, rows, columns])
    moves = g.op("astype", moves, "float64")  # or places between elements would be rounded
    grid = []
    for axis, count in enumerate((rows, columns)):
        of_tap = _places_of_taps(g, size, axis, apart[axis], padding[axis])
        starts = g.op("multiply", g.op("arange", 0, count, 1, "float64"), np.float64(steps[axis]))
        starts = g.op("reshape", starts, [1, -1, 1] if axis == 0 else [1, 1, -1])
        places = g.op("add", starts, of_tap)
        move = g.op("squeeze", g.op("strided_slice", moves, [3], [axis], [axis + 1]), [3])
        places = g.op("add", move, places)
        # Of n elements, i is at (2 * i + 1) / n - 1.
        length = np.empty((), object)
        dim = dims[2 + axis]
        length[()] = dim.value if isinstance(dim, IntImm) else dim
        whole = g.op("astype", Value(known=length, dtype="int64"), "float64")
        double = g.op("add", g.op("multiply", places, np.float64(2)), np.float64(1))
        grid.append(g.op("subtract", g.op("divide", double, whole), np.float64(1)))
    pairs = g.op("stack", [Value(each) for each in reversed(grid)], -1)
    pairs = g.op("reshape", pairs, [batch * offset_group, taps * rows, columns, 2])
    per_group = channels // offset_group
    images = g.op("reshape", x, [batch * offset_group, per_group, dims[2], dims[3]])
    ty = TensorType([batch * offset_group, per_group, taps * rows, columns], x.dtype)
    inputs = [images, pairs, "bilinear", "zeros", 0, 0, 0]
    taken: Expr = g.run("image.grid_sample", inputs, ty, x.dtype or "?")
    if mask is not None:
        taken = g.op("reshape", taken, [batch, offset_group, per_group, taps, rows, columns])
        factors = g.op("reshape", mask, [batch, offset_group, 1, taps, rows, columns])
        taken = g.op("multiply", taken, factors)
    taken = g.op("reshape", taken, [batch, channels * taps, rows, columns])
    flat = g.op("reshape", w, [weights[0], -1, 1, 1])
    found = g.op("nn.conv2d", taken, flat, groups=group)
    return found if b is None else g.op("add", found, g.op("reshape", b, [1, -1, 1, 1]))
