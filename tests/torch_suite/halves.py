"""Programs with numbers of 16 bits: chains, sums, norms, products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relaxvm.dtypes import as_dtype

__all__ = ["HALVES", "bits_of", "halved"]


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


Program = tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...]]


def _plain(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Program:
    return lambda: _Function(function), shapes


def _layer(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> Program:
    return make, (shape,)


WIDE: Final = (32, 3000)
IMAGE: Final = (2, 16, 9, 9)
HALVES: Final[dict[str, Program]] = {
    "chain": _plain(lambda x, y: torch.tanh(x * y + x) / 2, (64, 300), (64, 300)),
    "gelu": _plain(F.gelu, (64, 300)),
    "sum": _plain(lambda x: x.sum(1), WIDE),
    "mean": _plain(lambda x: x.mean(0), (3000, 32)),
    "var": _plain(lambda x: x.var(1), WIDE),
    "var of more than float16 counts": _plain(lambda x: x.var(0), (70000, 3)),
    "std": _plain(lambda x: x.std(1), WIDE),
    "norm": _plain(lambda x: x.norm(dim=1), WIDE),
    "cumsum": _plain(lambda x: x.cumsum(1), WIDE),
    "prod": _plain(lambda x: (1 + x / 8).prod(1), (32, 20)),
    "logsumexp": _plain(lambda x: x.logsumexp(1), (32, 300)),
    "softmax": _plain(lambda x: x.softmax(1), (32, 300)),
    "log_softmax": _plain(lambda x: x.log_softmax(1), (32, 300)),
    "layer_norm": _layer(lambda: nn.LayerNorm(300), (32, 300)),
    "rms_norm": _layer(lambda: nn.RMSNorm(300), (32, 300)),
    "group_norm": _layer(lambda: nn.GroupNorm(4, 16), IMAGE),
    "matmul": _plain(torch.matmul, (64, 512), (512, 48)),
    "linear": _layer(lambda: nn.Linear(512, 48), (64, 512)),
    "conv2d": _layer(lambda: nn.Conv2d(16, 16, 3), IMAGE),
    "depthwise": _layer(lambda: nn.Conv2d(16, 16, 3, groups=16), IMAGE),
    "attention": _plain(
        lambda x, y: F.scaled_dot_product_attention(x, y, y), (1, 4, 24, 32), (1, 4, 40, 32)
    ),
    "avg_pool2d": _plain(lambda x: F.avg_pool2d(x, 3), IMAGE),
    "interpolate": _plain(lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), IMAGE),
    "mse_loss": _plain(F.mse_loss, (64, 300), (64, 300)),
}
"""Name -> what makes the module, and the shapes of its inputs."""


def halved(name: str, dtype: torch.dtype) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A module and its inputs in a data type."""
    make, shapes = HALVES[name]
    module = make().to(dtype).eval()
    return module, tuple([torch.randn(shape).to(dtype) for shape in shapes])


def bits_of(x: Tensor) -> Any:
    """A tensor of 16 bits as an array."""
    return x.view(torch.int16).numpy().view(as_dtype(str(x.dtype).removeprefix("torch.")))
