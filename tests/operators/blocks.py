"""Cases of kernels for images in blocks of channels, which passes call for a model's operators.

Operands are small integers, so that sums are exact in any order and all implementations agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxvm.kernels.blocks import BLOCK, pack_winograd

from .table import kernel

Draw = Any


def integers(draw: Draw, *shape: int, below: int = 3) -> np.ndarray:
    """Random integers between -below and below, as float32, without -0."""
    return np.fmod(np.rint(draw(*shape)), below).astype(np.float32) + np.float32(0)


def in_blocks(x: Any) -> Any:
    """x[batch, channels, height, width] as [batch, blocks, height, width, 16], filled with 0."""
    batch, channels, height, width = x.shape
    out = np.zeros((batch, -(-channels // BLOCK), height, width, BLOCK), x.dtype)
    for channel in range(channels):
        out[:, channel // BLOCK, :, :, channel % BLOCK] = x[:, channel]
    return out


def in_planes(x: Any) -> Any:
    """x[batch, blocks, height, width, 16] as [batch, channels, height, width]."""
    return np.stack([x[:, i // BLOCK, :, :, i % BLOCK] for i in range(x.shape[1] * BLOCK)], 1)


def padded(x: Any, padding: tuple[int, ...], value: float = 0) -> Any:
    top, left, bottom, right = padding
    widths = [(0, 0), (0, 0), (top, bottom), (left, right)]
    return np.pad(x, widths, constant_values=value)


def windows(x: Any, size: tuple[int, ...], strides: Any, dilation: Any) -> Any:
    """Yield each place of a window, and what is there: row, column, x[batch, channels, size]."""
    reach = [step * (length - 1) + 1 for length, step in zip(size, dilation, strict=True)]
    for row in range((x.shape[2] - reach[0]) // strides[0] + 1):
        for column in range((x.shape[3] - reach[1]) // strides[1] + 1):
            top, left = row * strides[0], column * strides[1]
            part = x[:, :, top : top + reach[0] : dilation[0], left : left + reach[1] : dilation[1]]
            yield row, column, part


def pooled(x: Any, size: Any, strides: Any, dilation: Any, combine: Any) -> Any:
    found = {(r, c): combine(part) for r, c, part in windows(x, size, strides, dilation)}
    rows, columns = max(found)
    return in_blocks(
        np.stack([np.stack([found[r, c] for c in range(columns + 1)], -1)
                  for r in range(rows + 1)], 2)
    )  # fmt: skip


def max_pooled(x: Any, size: Any, strides: Any, padding: Any, dilation: Any, _ceil: Any) -> Any:
    planes = padded(in_planes(x), padding, -np.inf)
    return pooled(planes, size, strides, dilation, lambda part: part.max((2, 3)))


def averaged(x: Any, size: Any, strides: Any, padding: Any, dilation: Any, _ceil: Any,
             _counts: Any) -> Any:  # fmt: skip
    planes = padded(in_planes(x), padding)
    return pooled(planes, size, strides, dilation, lambda part: part.mean((2, 3)))


def convolved(x: Any, w: Any, bias: Any, residual: Any, settings: Any, rest: Any) -> Any:
    """The definition, of x[batch, channels, ...] and w[outputs, channels of a group, ...]."""
    strides, padding, dilation, groups = settings
    outputs, inputs = w.shape[:2]
    found = {}
    for row, column, part in windows(padded(x, padding), w.shape[2:], strides, dilation):
        firsts = [o // (outputs // groups) * inputs for o in range(outputs)]
        sums = [(part[:, f : f + inputs] * w[o]).sum((1, 2, 3)) for o, f in enumerate(firsts)]
        found[row, column] = np.stack(sums, 1)
    rows, columns = max(found)
    out = np.stack([np.stack([found[r, c] for c in range(columns + 1)], -1)
                    for r in range(rows + 1)], 2)  # fmt: skip
    out = in_blocks(out + bias[:, None, None]) + residual
    low, high, slope, function, scale, shift = rest
    out = np.clip(out, low, high)
    if slope is not None:
        out = np.where(out < 0, out * slope.reshape(1, -1, 1, 1, BLOCK), out)
    if function is not None:
        assert function == "relu"
        out = np.maximum(out, 0)
    return out * (1 if scale is None else scale) + (0 if shift is None else shift)


def direct(x: Any, w: Any, bias: Any, residual: Any, strides: Any, padding: Any, dilation: Any,
           groups: int, *rest: Any) -> Any:  # fmt: skip
    plain = w.transpose(0, 5, 1, 4, 2, 3).reshape(
        w.shape[0] * BLOCK, w.shape[1] * BLOCK, *w.shape[2:4]
    )
    settings = (strides, padding, dilation, groups)
    return convolved(in_planes(x), plain, bias, residual, settings, rest)


def gathered(x: Any, w: Any, bias: Any, residual: Any, channels: Any, strides: Any, padding: Any,
             dilation: Any, groups: int, *rest: Any) -> Any:  # fmt: skip
    dense = np.zeros((len(w) * BLOCK, x.shape[1] * BLOCK, *w.shape[2:4]), w.dtype)
    for block, places in enumerate(channels):
        for place, channel in enumerate(places):
            if channel < 0:
                break
            taps = w[block, place].transpose(2, 0, 1)
            dense[block * BLOCK : (block + 1) * BLOCK, channel] += taps
    settings = (strides, padding, dilation, groups)
    return convolved(in_planes(x), dense, bias, residual, settings, rest)


def depthwise(x: Any, w: Any, bias: Any, residual: Any, strides: Any, padding: Any, dilation: Any,
              groups: int, *rest: Any) -> Any:  # fmt: skip
    plain = w.transpose(0, 3, 1, 2).reshape(-1, 1, *w.shape[1:3])
    settings = (strides, padding, dilation, groups * len(plain))
    return convolved(in_planes(x), plain, bias, residual, settings, rest)


def winograd(x: Any, u: Any, bias: Any, residual: Any, strides: Any, padding: Any, dilation: Any,
             groups: int, *rest: Any) -> Any:  # fmt: skip
    """Of the windows that the transformed weights were made of."""
    back = np.array([[1, 0, 0, 0, 0, 0], [0, 1.5, 1.5, 0, 0, 0], [0, 0, 0, 0, 0, 1]])
    points = u.transpose(1, 4, 2, 3, 0).reshape(u.shape[1] * BLOCK, u.shape[2] * BLOCK, 6, 6)
    plain = np.rint((back @ points @ back.T).astype(np.float64)).astype(u.dtype)
    settings = (strides, padding, dilation, groups)
    return convolved(in_planes(x), plain, bias, residual, settings, rest)


kernel("nn.to_blocks", lambda draw: (integers(draw, 2, 19, 3, 2),), in_blocks, dtype="float32")
kernel(
    "nn.from_blocks",
    lambda draw: (integers(draw, 2, 2, 3, 2, 16),),
    in_planes,
    dtype="float32",
)
kernel(
    "nn.max_pool2d_blocks",
    lambda draw: (integers(draw, 1, 2, 6, 5, 16), (3, 2), (2, 1), (1, 0, 1, 1), (1, 1), 0),
    max_pooled,
    dtype="float32",
)
kernel(
    "nn.avg_pool2d_blocks",
    lambda draw: (integers(draw, 1, 2, 6, 5, 16), (2, 2), (2, 1), (1, 0, 1, 1), (1, 1), 0, 1),
    averaged,
    dtype="float32",
)
kernel(
    "nn.conv2d_blocks",
    lambda draw: (
        integers(draw, 2, 2, 5, 6, 16), integers(draw, 2, 1, 3, 2, 16, 16), integers(draw, 32),
        integers(draw, 2, 2, 3, 6, 16), (2, 1), (1, 1, 1, 0), (1, 1), 2, -20.0, 30.0,
        integers(draw, 32), None, 2.0, -3.0,
    ),
    direct,
    dtype="float32",
)  # fmt: skip
kernel(
    "nn.conv2d_depthwise_blocks",
    lambda draw: (
        integers(draw, 2, 2, 5, 6, 16), integers(draw, 2, 3, 3, 16), integers(draw, 32),
        integers(draw, 2, 2, 5, 6, 16), (1, 1), (1, 1, 1, 1), (1, 1), 1, -5.0, 6.0,
        None, "relu", None, 1.0,
    ),
    depthwise,
    dtype="float32",
)  # fmt: skip
kernel(
    "nn.conv2d_gathered_blocks",
    lambda draw: (
        integers(draw, 2, 2, 5, 6, 16), integers(draw, 3, 4, 3, 2, 16), integers(draw, 48),
        integers(draw, 2, 3, 3, 6, 16), np.array([[3, 31, 3, 0], [17, -1, 99, 2], [-1] * 4]),
        (2, 1), (1, 1, 1, 0), (1, 1), 1, -20.0, 30.0, integers(draw, 48), "relu", 0.5, None,
    ),
    gathered,
    dtype="float32",
)  # fmt: skip
kernel(
    "nn.conv2d_winograd_blocks",
    lambda draw: (
        integers(draw, 1, 1, 7, 9, 16, below=2),
        pack_winograd(225 * integers(draw, 32, 16, 3, 3, below=2)),
        integers(draw, 32), integers(draw, 1, 2, 7, 9, 16), (1, 1), (1, 1, 1, 1), (1, 1), 1,
        -1000.0, 2000.0, integers(draw, 32), None, None, 2.0,
    ),
    winograd,
    dtype="float32",
)  # fmt: skip
kernel(
    "nn.mean_blocks",
    lambda draw: (4 * integers(draw, 2, 3, 2, 2, 16),),
    lambda x: x.sum((2, 3), keepdims=True) / 4,
    dtype="float32",
)
kernel(
    "nn.gate_blocks",
    lambda draw: (
        integers(draw, 2, 2, 3, 5, 16), integers(draw, 2, 2, 1, 1, 16),
        integers(draw, 2, 2, 3, 5, 16),
    ),
    lambda x, gate, residual: x * gate + residual,
    dtype="float32",
)  # fmt: skip
