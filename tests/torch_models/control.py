"""Conditionals, loops, numbers that only the run knows, and assertions."""

from __future__ import annotations

from typing import Any

import torch
from functorch.experimental.control_flow import map as mapped
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from . import Case, case

ROWS = torch.export.Dim.DYNAMIC


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Any:
        def one(a: Tensor) -> Any:
            return a + self.weight, a * 2

        def other(a: Tensor) -> Any:
            return a - 1, a * 3

        first = torch.cond(x.sum() > 0, one, other, (x,))
        return first, torch.cond(x.shape[0] > 3, lambda a: a + 1, lambda a: a - 1, (x,))


@case
def branches() -> Case:
    calls = [(torch.ones(4, 3),), (-torch.ones(2, 3),)]
    return Case(Branches(), calls, dynamic_shapes={"x": {0: ROWS}})


class Loops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), 0.5))

    def forward(self, x: Tensor, n: Tensor) -> Any:
        start = torch.zeros((), dtype=torch.int64)
        _, z = while_loop(
            lambda i, z: i < n, lambda i, z: (i + 1, z * 2 + self.weight), (start, x)
        )
        rows = mapped(lambda a, b: a * b + 1, x, self.weight)
        total, sums = scan(lambda c, a: (c + a, c * a), torch.zeros(3), x, dim=0)
        return z, rows, total, sums


@case
def loops() -> Case:
    x = torch.arange(12.0).reshape(4, 3)
    return Case(Loops(), [(x, torch.tensor(3)), (x, torch.tensor(0))])


class Nested(nn.Module):
    """Conditionals in conditionals, loops, scans and maps, and a buffer that decides."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), 0.5))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: Tensor) -> Any:
        def one(a: Tensor) -> Any:
            return torch.cond(a.max() > 2, lambda a: a * self.weight, lambda a: a + 1, (a,))

        first = torch.cond(x.sum() > 0, one, lambda a: a - self.weight, (x,))
        second = torch.cond(self.seen.sum() > 2, lambda a: a - 1, lambda a: a + 1, (x,))
        self.seen.add_(x.mean(0).abs())

        def turn(i: Tensor, z: Tensor) -> Any:
            z = torch.cond(z.sum() > 10, lambda a: a - 3, lambda a: a * 1.5 + 1, (z,))
            return i + 1, z

        _, third = while_loop(
            lambda i, z: i < 4, turn, (torch.zeros((), dtype=torch.int64), first)
        )

        def sign(c: Tensor, a: Tensor) -> Any:
            c = torch.cond(a.sum() > 0, lambda c, a: c + a, lambda c, a: c - a, (c, a))
            return c.clone(), c * 2

        total, sums = scan(sign, torch.zeros(3), x, dim=0)
        rows = mapped(
            lambda a, b: torch.cond(a.sum() > 0, lambda a, b: a + b, lambda a, b: a - b, (a, b)),
            x, self.weight,
        )  # fmt: skip
        return second, third, total, sums, rows


@case
def nested() -> Case:
    x = torch.arange(12.0).reshape(4, 3) - 5
    return Case(Nested(), [(x,), (-x,), (x / 9,)])


class Unbacked(nn.Module):
    def forward(self, x: Tensor, flag: Tensor) -> Any:
        places = torch.nonzero(x)
        count = x.sum().to(torch.int64).item()
        torch._check(count >= 1)
        torch._check(count <= 100)
        return places, torch.zeros(count), places.shape[0] * 2, x.mean().item() * 2


@case
def unbacked() -> Case:
    calls = [(torch.tensor([1.0, 0.0, 2.0]), torch.tensor(True)),
             (torch.tensor([0.0, 0.0, 1.0]), torch.tensor(False))]  # fmt: skip
    return Case(Unbacked(), calls)


class Regions(nn.Module):
    """Regions without gradients and with autocast, the first of which writes to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 3))

    def forward(self, x: Tensor) -> Any:
        with torch.no_grad():
            self.total.add_(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = x @ x.T
        return z, self.total * 1


@case
def regions() -> Case:
    return Case(Regions(), [(torch.ones(2, 3),), (torch.full((2, 3), 2.0),)])


class Specialized(nn.Module):
    """Takes branches by lengths when it is exported."""

    def forward(self, x: Tensor, given: Any) -> Any:
        y = x.reshape(x.shape[0] // 2, 2, -1)
        if x.shape[1] > given["k"].shape[0]:
            y = y + 1
        return y


@case
def specialized() -> Case:
    calls = [(torch.ones(8, 5), {"k": torch.ones(3)}), (torch.ones(6, 4), {"k": torch.ones(3)})]
    shapes = {"x": {0: ROWS, 1: ROWS}, "given": {"k": {0: ROWS}}}
    return Case(Specialized(), [(call, {}) for call in calls], dynamic_shapes=shapes)
