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
