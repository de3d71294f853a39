"""Cases of kernels for linear layers, which passes call for a model's operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from .blocks import integers
from .table import kernel


def layer(x: Any, weight: Any, bias: Any, residual: Any, function: Any) -> Any:
    assert function == "relu"
    columns = weight.transpose(1, 0, 2).reshape(weight.shape[1], -1)[:, : residual.shape[-1]]
    sums = x @ columns + bias[: residual.shape[-1]] + residual
    return np.maximum(sums, 0).astype(x.dtype)


kernel(
    "nn.linear_blocks",
    lambda draw: (
        integers(draw, 2, 3, 20), integers(draw, 2, 20, 16), integers(draw, 32),
        integers(draw, 2, 3, 30), "relu",
    ),
    layer,
    dtype="float32",
)  # fmt: skip
kernel(
    "nn.apply",
    lambda draw: (integers(draw, 3, 5), "relu"),
    lambda x, _: np.maximum(x, 0),
    dtype="float32",
)


def memory(
    x: Any, weight: Any, recurrence: Any, bias: Any, h: Any, c: Any, lengths: Any, direction: Any
) -> Any:
    """With gates that are 1, and cells whose hyperbolic tangent is 1: each step adds 1."""
    assert not weight.any()
    assert not recurrence.any()
    assert (bias > 99).all()
    assert direction == "forward"
    runs = (np.arange(len(x))[:, None] < lengths)[:, None, :, None]
    last = np.where(lengths[:, None] > 0, 1, h)
    return runs * np.ones((len(x), *h.shape)), last, c + lengths[:, None]


kernel(
    "nn.lstm_blocks",
    lambda draw: (
        integers(draw, 3, 2, 5), np.zeros((1, 8, 5, 16), "f4"), np.zeros((1, 8, 20, 16), "f4"),
        np.full((1, 128), 100, "f4"), integers(draw, 1, 2, 20), 30 + integers(draw, 1, 2, 20),
        np.array([2, 0]), "forward",
    ),
    memory,
    dtype="float32",
)  # fmt: skip


def gated(x: Any, *rest: Any) -> Any:
    """With update gates that are 0, reset gates that are 1, and hidden ones whose hyperbolic
    tangent is 1."""
    weight, recurrence, bias, hidden_bias, h, lengths, direction, _ = rest
    assert not any(each.any() for each in (weight, recurrence, hidden_bias))
    assert (bias.reshape(1, 2, 3, 16)[:, :, 0] < -99).all()
    assert (bias.reshape(1, 2, 3, 16)[:, :, 1:] > 99).all()
    assert lengths is None
    assert direction == "forward"
    return np.ones((len(x), *h.shape)), np.ones(h.shape)


GATES = np.repeat(np.tile(np.array([-100, 100, 100], "f4"), 2), 16)[None]

kernel(
    "nn.gru_blocks",
    lambda draw: (
        integers(draw, 3, 2, 5), np.zeros((1, 6, 5, 16), "f4"), np.zeros((1, 6, 20, 16), "f4"),
        GATES.copy(), np.zeros((1, 32), "f4"), integers(draw, 1, 2, 20), None,
        "forward", False,
    ),
    gated,
    dtype="float32",
)  # fmt: skip


def softmax(x: Any, scale: Any) -> Any:
    assert scale == 0
    return np.full(x.shape, 1 / x.shape[-1])


def layer_norm(x: Any, gamma: Any, beta: Any, epsilon: Any) -> Any:
    """Rows of two values at the same distance from their mean."""
    return np.sign(x - x.mean(-1, keepdims=True)) * gamma + beta


def mean_of_values(
    query: Any, key: Any, value: Any, bias: Any, scale: Any, mask: Any, by_head: Any
) -> Any:
    """Scores that are all 0: each query takes as much of every value."""
    assert (scale, mask, by_head) == (0, None, 1)
    return np.broadcast_to(value.mean(2)[:, None], (2, query.shape[2], 3, value.shape[3]))


kernel(
    "nn.attention_tiles",
    lambda draw: (integers(draw, 2, 3, 5, 4), integers(draw, 2, 3, 8, 4),
                  8 * integers(draw, 2, 3, 8, 2), None, 0.0, None, 1),
    mean_of_values,
    dtype="float32",
)  # fmt: skip

kernel("nn.softmax_rows", lambda draw: (integers(draw, 3, 8), 0.0), softmax, dtype="float32")
kernel(
    "nn.layer_norm_rows",
    lambda draw: (
        np.tile(np.array([1, -1, -1, 1], "f4"), (3, 2)) + 4 * integers(draw, 3, 1),
        integers(draw, 8), integers(draw, 8), 0.0,
    ),
    layer_norm,
    dtype="float32",
)  # fmt: skip
