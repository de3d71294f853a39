"""Operators at the ends of what they take: numbers first, lengths as factors, bits of elements."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import Case, case

ROWS = torch.export.Dim.AUTO


class NumbersFirst(nn.Module):
    """Numbers divided by tensors, windows, and the neighbours of bfloat16."""

    def forward(self, x: Tensor, i: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return (
            7 // i, 2.5 // x, -7 // i, 7 // x, torch.kaiser_window(5), torch.nextafter(a, b),
            torch.kaiser_window(6, periodic=False, beta=8.0),
        )  # fmt: skip


@case
def numbers_first() -> Case:
    nan, inf = float("nan"), float("inf")
    a = torch.tensor([0, -0.0, 1, -1, 2, 1, nan, 1, -inf, inf, 0], dtype=torch.bfloat16)
    b = torch.tensor([1, -1, 2, -2, 1, 1, 1, nan, 0, 0, 0], dtype=torch.bfloat16)
    i = torch.tensor([1, 2, -3, 4, -5])
    return Case(NumbersFirst(), [(torch.randn(5), i, a, b)])


class Defaults(nn.Module):
    """Operators that differ from others by what they do without an argument."""

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return torch.linalg.cross(x, y), torch.cross(x, y), *(
            each.abs() for each in torch.ops.aten._linalg_svd(z)
        )  # fmt: skip


@case
def defaults_of_operators() -> Case:
    return Case(Defaults(), [(torch.randn(3, 3), torch.randn(3, 3), torch.randn(4, 6))])


class Bits(nn.Module):
    """The bytes of elements as elements of other data types, written to, too."""

    def forward(self, x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
        y = x.clone()
        y.view(torch.int32).bitwise_and_(0x7FFFFFFF)
        return (
            x.view(torch.int32), x.view(torch.int16), x.view(torch.uint8).view(torch.float64),
            x.to(torch.bfloat16).view(torch.int16), i.view(torch.bool), y,
        )  # fmt: skip


@case
def bits_of_elements() -> Case:
    calls = [(torch.randn(n, 4), torch.tensor([0, 1, 2], dtype=torch.uint8)) for n in (3, 5)]
    return Case(Bits(), calls, ({0: ROWS}, None))


class Factors(nn.Module):
    """Lengths times a factor that is no fraction, and diagonals, of lengths that only the run
    knows."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = y.clone()
        z.diagonal().fill_(3)
        z.diagonal(-1).neg_()
        return (
            functional.interpolate(x, scale_factor=1.7, mode="bilinear"),
            functional.interpolate(x, scale_factor=(0.29, 1.1), mode="nearest"),
            z, y.diagonal(1),
        )  # fmt: skip


@case
def factors_of_lengths() -> Case:
    calls = [(torch.randn(1, 2, 9, 7), torch.randn(5, 6)),
             (torch.randn(1, 2, 100, 10), torch.randn(7, 3)),
             (torch.randn(1, 2, 40, 20), torch.randn(4, 4))]  # fmt: skip
    free = {0: ROWS, 1: ROWS}
    return Case(Factors(), calls, ({2: ROWS, 3: ROWS}, free))


class Instances(nn.Module):
    """Instance normalization that keeps running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.InstanceNorm1d(3, track_running_stats=True)
        self.images = nn.InstanceNorm2d(3, track_running_stats=True, affine=True, momentum=0.3)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (
            self.rows(x), self.images(y), self.rows.running_mean.clone(),
            self.rows.running_var.clone(), self.images.running_mean.clone(),
            self.images.running_var.clone(),
        )  # fmt: skip


@case
def instance_statistics() -> Case:
    calls = [(torch.randn(4, 3, 5) + 1, torch.randn(2, 3, 4, 5)) for _ in range(3)]
    return Case(Instances(), calls, training=True)


class Nearest(nn.Module):
    """Images of a fixed size in others, by the nearest element."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        resize = functional.interpolate
        return (resize(x, size=(7, 9)), resize(x, scale_factor=1.7), resize(x, size=(2, 3)),
                resize(x, size=(7, 3), mode="nearest-exact"),
                resize(x, scale_factor=0.6, mode="nearest-exact"))  # fmt: skip


@case
def nearest() -> Case:
    calls = [(torch.arange(n * 30.0).reshape(n, 1, 5, 6),) for n in (2, 3)]
    return Case(Nearest(), calls, dynamic_shapes=({0: torch.export.Dim.AUTO},))


class Types(nn.Module):
    """Data types that a program asks for, which are numbers in its graph."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        wide = torch.promote_types(x.dtype, torch.int64)
        return (torch.zeros(3, dtype=torch.result_type(x, y)) + x, x.to(wide) * 2,
                torch.ones(2, dtype=torch.result_type(x, 2.5)))  # fmt: skip


@case
def types() -> Case:
    return Case(Types(), [(torch.arange(3, dtype=torch.int8), torch.ones(3, dtype=torch.float16))])
