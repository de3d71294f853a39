"""Cases of kernels with weights in bfloat16, which passes call for a model's operators.

Operands are small integers, which bfloat16 has, so that sums are exact in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxvm.kernels.bfloat16 import pack_convolution, pack_halves, pack_matrix

from .blocks import convolved, in_planes, integers
from .linear import layer
from .table import kernel


def plain(weight: Any, outputs: int, inputs: int) -> Any:
    """[blocks, lines, height, width, 16 pairs, 16, 2] as [outputs, inputs, height, width], element
    by element."""
    blocks, lines, tall, wide = weight.shape[:4]
    found = np.zeros((blocks * 16, lines * 32, tall, wide), np.float32)
    for pair in range(16):
        for second in range(2):
            for o in range(16):
                bits = weight[:, :, :, :, pair, o, second].astype(np.uint32) << 16
                found[o::16, 2 * pair + second :: 32] = bits.view(np.float32)
    return found[:outputs, :inputs]


def linear(x: Any, weight: Any, bias: Any, residual: Any, function: Any, _rounds: Any) -> Any:
    matrix = plain(weight[:, :, None, None], 32, x.shape[-1])[:, :, 0, 0]
    return layer(x, matrix.reshape(2, 16, -1).transpose(0, 2, 1), bias, residual, function)


def convolution(x: Any, w: Any, bias: Any, residual: Any, strides: Any, padding: Any,
                dilation: Any, groups: int, *rest: Any) -> Any:  # fmt: skip
    weight = plain(w, len(w) * 16, x.shape[1] // groups * 16)
    settings = (strides, padding, dilation, groups)
    return convolved(in_planes(x), weight, bias, residual, settings, rest)


kernel(
    "nn.linear_bfloat16",
    lambda draw: (
        integers(draw, 2, 3, 39), pack_matrix(integers(draw, 39, 30)), integers(draw, 32),
        integers(draw, 2, 3, 30), "relu", 1,
    ),
    linear,
    dtype="float32",
)  # fmt: skip
kernel(
    "nn.linear_float16",
    lambda draw: (
        integers(draw, 2, 3, 39), pack_halves(integers(draw, 39, 30)), integers(draw, 32),
        integers(draw, 2, 3, 30), "relu",
    ),
    lambda x, weight, *rest: layer(x, weight.reshape(2, 64, 16)[:, :39].astype(x.dtype), *rest),
    dtype="float32",
)  # fmt: skip
kernel(
    "nn.conv2d_bfloat16",
    lambda draw: (
        integers(draw, 2, 6, 5, 6, 16), pack_convolution(integers(draw, 32, 48, 3, 2)),
        integers(draw, 32), integers(draw, 2, 2, 3, 6, 16), (2, 1), (1, 1, 1, 0), (1, 1), 2,
        -20.0, 30.0, integers(draw, 32), None, 2.0, -3.0,
    ),
    convolution,
    dtype="float32",
)  # fmt: skip
