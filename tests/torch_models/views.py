"""What is written through views is seen by all that share the memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from . import Case, case


class Views(nn.Module):
    def forward(self, x: Tensor) -> Any:
        x = x.clone()
        flat = x.view(-1)
        column = x[:, 1]
        x.t()[0].mul_(10)
        flat[5] = 7
        column.add_(flat[:3])
        part = x.narrow(1, 2, 2).unsqueeze(0)
        part.copy_(torch.zeros(2))
        first, second = x.chunk(2, dim=1)
        first.sub_(second)
        x[x > 50] = -1.0
        return x, flat, column, part, first


@case
def views() -> Case:
    return Case(Views(), [(torch.arange(12.0).reshape(3, 4),)])


@case
def views_decomposed() -> Case:
    return Case(Views(), [(torch.arange(12.0).reshape(3, 4),)], decompositions=True)


class Writes(nn.Module):
    """In-place operators with other data types, broadcasts and `out`."""

    def forward(self, x: Tensor, y: Tensor) -> Any:
        a = x.clone()
        a.add_(y)
        b = torch.empty_like(x)
        torch.mul(x, 3, out=b)
        c = x.clone()
        c.index_put_((torch.tensor([0, 2]),), torch.tensor(5.0))
        c.clamp_(min=1).fill_diagonal_(9)
        d = a.detach()
        d.zero_()
        return a, b, c, d


@case
def writes() -> Case:
    y = torch.arange(3, dtype=torch.float64)
    return Case(Writes(), [(torch.ones(3, 3), y)])


class Alias(nn.Module):
    """A result of reshaping that is a copy, and one that is not."""

    def forward(self, x: Tensor) -> Any:
        x = x.clone()
        copy = x.t().reshape(-1)
        same = x.reshape(-1)
        own = x.contiguous()
        x.add_(1)
        other = x.to(torch.float32)
        other.mul_(2)
        return x, copy, same, own


@case
def alias() -> Case:
    return Case(Alias(), [(torch.arange(6.0).reshape(2, 3),)])
