"""Buffers that a model writes to in part: caches, and what reads them before and after."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Case, case


class Kept(nn.Module):
    """A buffer of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(2, 6, 3))
        self.register_buffer("sums", torch.zeros(6))


class Attending(Kept):
    """Writes rows at positions, and attends to all rows so far."""

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        self.rows[:, positions] = x
        mask = torch.arange(6) <= positions[:, None]
        return F.scaled_dot_product_attention(x, self.rows, self.rows, mask)


@case
def attending() -> Case:
    rows = torch.export.Dim("n", min=1, max=6)
    calls = [(torch.randn(2, n, 3), torch.arange(at, at + n)) for at, n in ((0, 3), (3, 1), (4, 2))]
    return Case(Attending(), calls, dynamic_shapes={"x": {1: rows}, "positions": {0: rows}})


class Copying(Kept):
    """index_copy_, then a result that is the buffer, and one that was made before."""

    def forward(self, x: Tensor, positions: Tensor) -> Any:
        before = self.sums.clone()
        self.rows.index_copy_(1, positions, x)
        self.sums[2:4] = x[0, 0, :2]
        return before, self.rows, self.rows[:, 0], self.sums * 2


@case
def copying() -> Case:
    calls = [(torch.randn(2, 2, 3), torch.tensor(each)) for each in ([0, 1], [5, 0], [2, 3])]
    return Case(Copying(), calls)


class Slices(Kept):
    """Writes through views of views, twice to the same rows."""

    def forward(self, x: Tensor, at: int) -> Any:
        self.rows[1, at : at + 2].copy_(x)
        half = self.rows[:, :, 1]
        half[0] += 1
        self.sums.narrow(0, 1, 2).copy_(x[0, :2])
        return self.rows.sum(), half, self.sums


@case
def slices() -> Case:
    return Case(Slices(), [(torch.randn(2, 3), 1)] * 3)


class Rolling(Kept):
    """A window that rolls, and running sums."""

    def forward(self, x: Tensor) -> Any:
        view = self.rows.view(2, 18)
        self.rows.copy_(self.rows.roll(-1, 1))
        self.rows[:, -1] = x
        self.sums.add_(x.sum())
        return view.mean(1), self.sums.clone()


@case
def rolling() -> Case:
    return Case(Rolling(), [(torch.randn(2, 3),) for _ in range(3)])


class SharedHeads(nn.Module):
    """Heads of queries share those of keys and values, which are caches."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 2, 96, 8))
        self.register_buffer("values", torch.zeros(1, 2, 96, 8))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, heads: Tensor) -> Any:
        self.keys[:, :, positions] = k
        self.values[:, :, positions] = v
        mask = torch.arange(96) <= positions[:, None]
        found = F.scaled_dot_product_attention(q, self.keys, self.values, mask, enable_gqa=True)
        by_head = F.scaled_dot_product_attention(
            q, self.keys, self.values, heads[:, None, None] * mask.float(), enable_gqa=True
        )
        causal = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        alike = F.scaled_dot_product_attention(q, k, v, mask[None, None, :, :1], enable_gqa=True)
        return found, by_head, causal, alike


@case
def shared_heads() -> Case:
    def call(at: int, n: int) -> tuple[Tensor, ...]:
        k, v = torch.randn(2, 1, 2, n, 8)
        return torch.randn(1, 6, n, 8), k, v, torch.arange(at, at + n), torch.randn(6)

    calls = [call(at, n) for at, n in ((0, 3), (3, 2), (5, 90))]
    n = torch.export.Dim("n", min=2, max=96)
    shapes = {
        "q": {2: n}, "k": {2: n}, "v": {2: n}, "positions": {0: n}, "heads": None,
    }  # fmt: skip
    return Case(SharedHeads(), calls, dynamic_shapes=shapes)
