"""Operators that refuse some of the elements of their operands."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import Case, case


class Indices(nn.Module):
    """Indices of which none may be negative, and those that may count from the end."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(3, 4))

    def forward(
        self, x: Tensor, of_gather: Tensor, of_scatter: Tensor, of_scatter_add: Tensor,
        of_scatter_reduce: Tensor, of_index_add: Tensor, of_index_copy: Tensor,
        of_index_reduce: Tensor, of_index_select: Tensor, of_kept: Tensor, of_take: Tensor,
        from_end: Tensor, places: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        row = x[:1] * 2
        self.kept.index_copy_(0, of_kept, row)
        return (
            x.gather(1, of_gather), x.scatter(1, of_scatter, 2.0),
            x.scatter_add(1, of_scatter_add, x), x.scatter_reduce(1, of_scatter_reduce, x, "amax"),
            x.index_add(0, of_index_add, row), x.index_copy(0, of_index_copy, row),
            x.index_reduce(0, of_index_reduce, row, "amin"), x.index_select(0, of_index_select),
            torch.take_along_dim(x, of_take), torch.take_along_dim(x, places, 1),
            x.index_fill(0, from_end, 2.0), x.take(from_end), x[from_end],
            x.index_put((from_end,), row), x.put(from_end, row[0, :1]), self.kept.clone(),
        )  # fmt: skip


@case
def refused_indices() -> Case:
    def call(row: int, end: int) -> tuple[Tensor, ...]:
        pairs = [torch.tensor([[0, 3], [1, 2], [3, 1]]) for _ in range(4)]
        rows = [torch.tensor([row]) for _ in range(5)]
        return (torch.randn(3, 4), *pairs, *rows, torch.tensor([3, 0]), torch.tensor([end]),
                torch.tensor([[-1, 2]]))  # fmt: skip

    return Case(Indices(), [call(2, -1), call(0, -3)])


class Classes(nn.Module):
    """Classes, counts, repeats and places."""

    def forward(
        self, x: Tensor, of_nll_loss: Tensor, of_cross_entropy: Tensor, of_margin: Tensor,
        of_one_hot: Tensor, of_bincount: Tensor, of_repeats: Tensor, of_places: Tensor,
        mask: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        return (
            functional.nll_loss(x, of_nll_loss, reduction="none"),
            functional.cross_entropy(x, of_cross_entropy, ignore_index=-1),
            functional.multi_margin_loss(x, of_margin), functional.one_hot(of_one_hot, 4),
            torch.bincount(of_bincount, minlength=5), torch.repeat_interleave(x, of_repeats, 0),
            functional.max_unpool1d(x[None], of_places, 2), x.masked_scatter(mask, x[0, :2]),
        )  # fmt: skip


@case
def refused_classes() -> Case:
    def call() -> tuple[Tensor, ...]:
        mask = torch.zeros(3, 4, dtype=torch.bool)
        mask[1, 2] = mask[2, 0] = True
        classes = torch.tensor([3, -100, 0])
        return (torch.randn(3, 4), classes, torch.tensor([-1, 2, 0]), torch.tensor([0, 3, 1]),
                torch.tensor([3, 0]), torch.tensor([1, 0, 1]), torch.tensor([0, 2, 1]),
                torch.arange(4).repeat(1, 3, 1) * 2, mask)  # fmt: skip

    return Case(Classes(), [call(), call()])


class Divisors(nn.Module):
    """Integers and floats, divided and rounded."""

    def forward(
        self, i: Tensor, x: Tensor, of_floor_divide: Tensor, of_div: Tensor, of_trunc: Tensor,
        of_remainder: Tensor, of_fmod: Tensor, of_number: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        return (
            i // of_floor_divide, torch.div(i, of_div, rounding_mode="floor"),
            torch.div(i, of_trunc, rounding_mode="trunc"), i % of_remainder,
            torch.fmod(i, of_fmod), 7 // of_number, x // i, x % i, i / i, i % 3,
        )  # fmt: skip


@case
def refused_divisors() -> Case:
    def call() -> tuple[Tensor, ...]:
        i = torch.arange(6) - 2
        by = [torch.tensor([3, -2, 1, 2, -1, 4]) for _ in range(5)]
        return i, torch.randn(6), *by, torch.tensor([2, -3])

    return Case(Divisors(), [call(), call()])
