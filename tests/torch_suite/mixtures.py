"""Modules that are drawn from a seed: elementwise functions, shapes, in-place operators, layers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Mixture"]

ELEMENTWISE: Final[tuple[Callable[[Tensor], Tensor], ...]] = (
    torch.sin, torch.exp, torch.tanh, torch.sigmoid, torch.abs, F.gelu, F.silu, torch.floor,
    lambda x: x.clamp(-1, 1), lambda x: x**2, F.softplus, F.elu, torch.erf,
    lambda x: torch.log1p(x.abs()), lambda x: x.sign(), torch.round,
    lambda x: x.rsqrt().nan_to_num(0, 1, -1), F.hardswish, lambda x: x.frac(),
    lambda x: torch.where(x > 0, x, -x * 0.5), lambda x: x.long().float(),
    lambda x: x.to(torch.float64).cos().float(),
)  # fmt: skip

MOVING: Final[tuple[Callable[[Tensor, int], Tensor], ...]] = (
    lambda x, axis: x.transpose(axis, -1),
    lambda x, axis: x.flip(axis),
    lambda x, axis: x.roll(1, axis),
    lambda x, axis: x.cumsum(axis),
    lambda x, axis: x.softmax(axis),
    lambda x, axis: x - x.mean(axis, keepdim=True),
    lambda x, axis: x.unsqueeze(axis).expand(*x.shape[:axis], 2, *x.shape[axis:]).amax(axis),
    lambda x, axis: torch.cat([x, x * 2], axis).narrow(axis, 1, x.shape[axis]),
    lambda x, axis: x.reshape(-1).view(x.shape),
    lambda x, axis: torch.stack([x, x + 1], axis).sum(axis),
    lambda x, axis: x / (x.norm(dim=axis, keepdim=True) + 1),
    lambda x, axis: x.sort(axis)[0],
    lambda x, axis: x.index_select(axis, torch.arange(x.shape[axis] - 1, -1, -1)),
    lambda x, axis: torch.einsum("...->...", x) * x.std(),
    lambda x, axis: x.tril() if x.dim() == 2 else x.movedim(0, -1),
    lambda x, axis: x.gather(axis, x.argsort(axis)),
)


def _first_row(x: Tensor) -> None:
    x[0] = 1


def _every_other(x: Tensor) -> None:
    x[..., ::2].zero_()


def _through_a_view(x: Tensor) -> None:
    x.view(-1)[1:3] += 5


def _below_zero(x: Tensor) -> None:
    x[x < 0] = 0.25


WRITING: Final[tuple[Callable[[Tensor], Any], ...]] = (
    _first_row, lambda x: x.mul_(2).add_(1), _every_other, _through_a_view,
    lambda x: x.transpose(0, -1)[0].neg_(), lambda x: x.masked_fill_(x > 0.5, -1),
    lambda x: x.index_add_(0, torch.tensor([0]), x[:1] * 3), _below_zero,
)  # fmt: skip


class Mixture(nn.Module):
    """A chain of 6 to 13 operations, each on one of the last four values; it takes two tensors
    ``[n, 4, 6]``."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.linear, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)
        self.conv = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x: Tensor, y: Tensor) -> Any:
        rng = random.Random(self.seed)
        values = [x, y]
        for _ in range(rng.randrange(6, 14)):
            values.append(self._next(rng, rng.choice(values[-4:]), values))
        return values[-1], values[-2].sum(), values[-3] > 0

    def _next(self, rng: random.Random, x: Tensor, values: list[Tensor]) -> Tensor:
        kind = rng.randrange(10)
        if kind < 4:
            return rng.choice(ELEMENTWISE)(x)
        if kind < 6:
            return rng.choice(MOVING)(x, rng.randrange(x.dim()))
        if kind == 6:
            x = x.clone()
            rng.choice(WRITING)(x)
            return x
        if kind == 7:
            other = rng.choice(values)
            return x + other if x.shape == other.shape else x * other.mean()
        if kind == 8 and x.shape[-1] == 6:
            return self.norm(self.linear(x))
        if kind == 9 and x.dim() == 3 and x.shape[1] == 4:
            return self.conv(x)
        return torch.minimum(x, torch.tensor(0.7))
