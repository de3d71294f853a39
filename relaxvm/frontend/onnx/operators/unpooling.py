"""Images out of windows: elements at places of pools, sums of windows, and windows whose elements
are moved."""

from __future__ import annotations

import math
from typing import Any

from ....ir import Expr, IntImm, TensorType
from ...common.deformed import deformed_conv
from ...common.values import Value
from ..graph import Graph, Problem
from ..registry import onnx
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
    found: Expr = deformed_conv(
        g, x, w, offset, b, mask, (dims[0], channels, *dims[2:]), (weights[0], *size), offsets[2:],
        strides or [1, 1], dilations or [1, 1], (pads or [0, 0])[:2], group, offset_group,
    )  # fmt: skip
    return found
