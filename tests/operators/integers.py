"""Cases of kernels for products of bytes and quantization, which passes call for a model's
operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxvm.kernels.integers import pack_integer_gates, pack_integer_windows, pack_integers

from .blocks import in_blocks, in_planes, padded, windows
from .table import kernel

Draw = Any


def whole(draw: Draw, low: int, high: int, *shape: int) -> np.ndarray:
    """Random integers from low to high."""
    return np.clip(np.rint(draw(*shape) * (high - low) / 3), low, high).astype(np.int64)


def quantized(x: Any, scale: Any, zero: Any, bounds: Any) -> Any:
    single = (np.float32(x) / np.float32(scale)).astype(np.float32)
    return np.clip(np.rint(single) + float(zero), *bounds)


def unpacked(weight: Any, shift: int) -> Any:
    """[blocks, lines, height, width, 4, 16, 4] as [outputs, inputs, height, width], element by
    element."""
    blocks, lines, tall, wide = weight.shape[:4]
    plain = np.zeros((blocks * 16, lines * 16, tall, wide))
    for i in range(4):
        for j in range(4):
            for o in range(16):
                plain[o::16, 4 * i + j :: 16] = weight[:, :, :, :, i, o, j] + shift
    return plain


def linear(x: Any, x_zero: Any, weight: Any, sums: Any, shift: int, *rest: Any) -> Any:
    bias, factor, more, function, scale, zero = rest
    assert function == "relu"
    plain = unpacked(weight[:, :, None, None], shift)[:20, : x.shape[-1], 0, 0]
    assert np.array_equal(sums[:20], plain.sum(1))
    real = np.float32((x - float(x_zero)) @ plain.T + bias) * np.float32(factor)
    return quantized(np.maximum(real + np.float32(more), 0), scale, zero, (-128, 127))


def linear_args(draw: Draw) -> tuple[Any, ...]:
    packed = pack_integers(whole(draw, -9, 246, 37, 20))
    assert packed is not None
    bias, factor = whole(draw, -900, 900, 20), np.abs(draw(20)) / 999
    return (
        whole(draw, 0, 255, 2, 3, 37).astype("u1"), np.array(7, "u1"), packed.weight, packed.sums,
        packed.shift, bias.astype("i4"), factor.astype("f4"), draw(20).astype("f4"), "relu",
        np.array(0.25, "f4"), np.array(-3, "i1"),
    )  # fmt: skip


kernel("nn.integer_linear_blocks", linear_args, linear, dtype="int8")


def convolution(x: Any, x_zero: Any, weight: Any, sums: Any, shift: int, *rest: Any) -> Any:
    strides, padding, dilation, bias = rest[:4]
    assert not any(each is not None for each in rest[4:])
    plain = unpacked(weight, shift)
    planes = padded(in_planes(x).astype("f8") - float(x_zero), padding)
    found = {
        (row, column): np.einsum("bchw,ochw->bo", part, plain) + bias
        for row, column, part in windows(planes, plain.shape[2:], strides, dilation)
    }
    rows, columns = max(found)
    return in_blocks(
        np.stack([np.stack([found[r, c] for c in range(columns + 1)], -1)
                  for r in range(rows + 1)], 2)
    )  # fmt: skip


def conv_args(draw: Draw) -> tuple[Any, ...]:
    packed = pack_integer_windows(whole(draw, -128, 127, 18, 21, 3, 2))
    assert packed is not None
    return (
        whole(draw, -128, 127, 2, 2, 6, 5, 16).astype("i1"), np.array(-20, "i1"), packed.weight,
        packed.sums, packed.shift, (2, 1), (1, 0, 2, 1), (1, 2),
        whole(draw, -900, 900, 32).astype("i4"), *[None] * 5,
    )  # fmt: skip


kernel("nn.integer_conv2d_blocks", conv_args, convolution, dtype="int32")


def memory(given: Any, recurrence: Any, *rest: Any) -> Any:
    """With gates that are 1, and cells whose hyperbolic tangent is 1: each step adds 1."""
    _, _, _, h, c, direction = rest
    assert not recurrence.any()
    assert (given > 99).all()
    assert direction == "forward"
    return np.ones((len(given), *h.shape)), np.ones(h.shape), c + len(given)


def lstm_args(draw: Draw) -> tuple[Any, ...]:
    packed = pack_integer_gates(np.zeros((1, 80, 20), np.int64))
    assert packed is not None
    return (
        np.full((3, 2, 128), 100, "f4"), packed.weight, packed.sums, packed.shift,
        np.ones(128, "f4"), draw(1, 2, 20).astype("f4"),
        np.rint(30 + draw(1, 2, 20)).astype("f4"), "forward",
    )  # fmt: skip


kernel("nn.integer_lstm_blocks", lstm_args, memory, dtype="float32")
kernel(
    "quantize_bytes",
    lambda draw: (draw(3, 50).astype("f4"), np.array(0.03, "f4"), np.array(100, "u1")),
    lambda x, scale, zero: quantized(x, scale, zero, (0, 255)),
    dtype="uint8",
)


def range_of(x: Any, channels: int) -> Any:
    planes = np.float32(in_planes(x))[:, :channels]
    low, high = min(planes.min(), 0), max(planes.max(), 0)
    scale = (np.float32(high) - np.float32(low)) / np.float32(255)
    return np.array(scale), np.rint(-np.float32(low) / scale)


kernel(
    "quantization_range",
    lambda draw: (draw(2, 2, 3, 5, 16).astype("f4"), 21),
    range_of,
    dtype="float32,uint8",
)
