"""Parts of axes whose lengths only the run knows: splits, writes to them, resizing, pools."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import Case, case

ROWS = torch.export.Dim.AUTO


class Parts(nn.Module):
    """Splits of one dynamic axis, and writes to the parts."""

    def forward(self, x: Tensor, places: Tensor) -> tuple[Tensor, ...]:
        y, z = x.clone(), x.clone()
        _, second = torch.split(y, y.shape[0] // 2)
        second.mul_(3)
        _, right = torch.hsplit(z, 2)
        right.sub_(1)
        _, inner, _ = torch.hsplit(z, (1, -1))
        inner[0].neg_()
        torch.atleast_3d(z)[1].add_(5)
        return (
            y, z, *torch.tensor_split(x, 3), *torch.split_copy(x, x.shape[0] // 2),
            *torch.tensor_split(x, places),
        )  # fmt: skip


@case
def parts_of_axes() -> Case:
    def call(size: int) -> tuple[Tensor, ...]:
        return torch.randn(size, 4), torch.tensor([2, size - 1])

    rows = {0: ROWS}
    return Case(Parts(), [call(8), call(14)], (rows, None))


class Sizes(nn.Module):
    """Other sizes by fractions of sizes that vary, the nearest elements by PyTorch's rounding."""

    def forward(self, x: Tensor, other: Tensor, volume: Tensor) -> tuple[Tensor, ...]:
        of = functional.interpolate
        size = other.shape[2:]
        return (
            of(x, scale_factor=1.7, mode="area"), of(x, scale_factor=(0.6, 1.5), mode="area"),
            of(x, size, mode="area"), of(x, size, mode="nearest"),
            of(x, size, mode="nearest-exact"),
            of(x, scale_factor=2.0, mode="nearest-exact"), of(x, scale_factor=1.7, mode="nearest"),
            of(x, scale_factor=1.7, mode="nearest-exact", recompute_scale_factor=True),
            of(x[0], size[0], mode="nearest"), of(volume, scale_factor=0.7, mode="nearest"),
            *functional.adaptive_max_pool2d(x, (4, 3), return_indices=True),
        )  # fmt: skip


@case
def sizes_of_images() -> Case:
    def call(*sizes: int) -> tuple[Tensor, ...]:
        a, b, c, d = sizes
        return torch.randn(1, 2, a, b), torch.randn(1, 1, c, d), torch.randn(1, 1, a, b, 2)

    last = {2: ROWS, 3: ROWS}
    return Case(Sizes(), [call(7, 9, 12, 5), call(12, 5, 14, 11), call(5, 49, 245, 7)], (last,) * 3)


class Chebyshev(nn.Module):
    """Chebyshev's polynomials, of which one operand is a number."""

    def forward(self, x: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        of = torch.special
        functions = [
            of.chebyshev_polynomial_t, of.chebyshev_polynomial_u, of.chebyshev_polynomial_v,
            of.chebyshev_polynomial_w, of.shifted_chebyshev_polynomial_t,
            of.shifted_chebyshev_polynomial_u, of.shifted_chebyshev_polynomial_v,
            of.shifted_chebyshev_polynomial_w,
        ]  # fmt: skip
        return (*[each(x, 3) for each in functions], *[each(0.25, n) for each in functions],
                *[each(x, -1) for each in functions[:2]])  # fmt: skip


@case
def chebyshev_of_numbers() -> Case:
    return Case(Chebyshev(), [(torch.linspace(-0.9, 0.9, k).reshape(2, -1), torch.arange(5.0))
                              for k in (6, 10)], ({1: ROWS}, None))  # fmt: skip
