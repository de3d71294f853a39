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


class Repeated(nn.Module):
    """Writes through views that have an element in several places, and through parts of complex
    numbers."""

    def forward(self, x: Tensor) -> Any:
        x = x.clone()
        columns = x[:, 0].unsqueeze(1).expand(3, 5)
        columns[:, 3].mul_(2)
        rows, others = torch.meshgrid(x[:, 1], x[0], indexing="xy")
        rows[1].add_(100)
        others[:, 2].fill_(-1)
        z = torch.view_as_complex(x.view(3, 2, 2))
        z.real[0].add_(0.5)
        z.conj().imag[1].fill_(8)
        torch.view_as_real(z.t())[1, 2].neg_()
        return x, columns, rows, others, z.abs()


@case
def repeated() -> Case:
    return Case(Repeated(), [(torch.arange(12.0).reshape(3, 4),)])


class Parts(nn.Module):
    """Writes to one part of an axis after the other, where the run knows the length and bounds."""

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        x = x.clone()
        n = x.shape[1]
        for i, part in enumerate((*x.tensor_split(5, 1), *x.chunk(3, 1), *x.split(n // 2, 1)[:2])):
            part.mul_(i + 2)
        for i in range(4):
            x[:, i : n - i].add_(i)
            x[:, i + 1 : n + 3].sub_(x[:, -1:])
            x[:, i::3].add_(1)
        for i in range(3):
            x[:, places[i].item() : places[i + 1].item()].mul_(-1)
        return x


@case
def parts() -> Case:
    bounds = {24: (2, 9, 12, 30), 54: (0, -3, 11, 4), 84: (5, 5, -1, 8)}
    calls = [(torch.arange(2.0 * n).reshape(2, n), torch.tensor(p)) for n, p in bounds.items()]
    return Case(Parts(), calls, dynamic_shapes=({1: torch.export.Dim.AUTO}, None))
