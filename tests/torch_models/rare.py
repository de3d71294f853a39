"""Operators that few models have."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import Case, case

ROWS = torch.export.Dim.AUTO


class Functions(nn.Module):
    """Functions that a kernel computes: at poles and ends, too."""

    def forward(self, x: Tensor, a: Tensor, n: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, ...]:
        of = torch.special
        return (
            torch.gcd(i, j), torch.lcm(i, j), torch.gcd(i.to(torch.uint8), j.to(torch.uint8)),
            torch.nextafter(x, a), *torch.frexp(x), of.gammainc(a, x.abs()),
            of.gammaincc(a, x.abs()), torch.igamma(a, x.abs() * 8),
            of.airy_ai(x * 3), of.airy_ai(i), of.hermite_polynomial_h(x, n),
            of.hermite_polynomial_he(x, n), of.laguerre_polynomial_l(x, n),
            of.legendre_polynomial_p(x / 8, n), of.hermite_polynomial_h(x, 3),
            of.legendre_polynomial_p(0.25, n),
        )  # fmt: skip


@case
def rare_functions() -> Case:
    def call(size: int) -> tuple[Tensor, ...]:
        x = torch.linspace(-8, 8, size * 6).reshape(size, 6)
        x[0, 0], x[0, 1], x[0, 2] = math.inf, 0, math.nan
        a = torch.linspace(0, 40, size * 6).reshape(size, 6)
        a[0, 4], a[0, 5] = -1, math.inf
        n = torch.arange(6.0) - 1
        i = torch.arange(size * 6).reshape(size, 6) * 6 - 12
        return x, a, n, i, torch.tensor([4, 9, 0, 12, -5, 7])

    rows = {0: ROWS}
    return Case(Functions(), [call(3), call(7)], (rows, rows, None, rows, None))


class Segments(nn.Module):
    """Segments of equal and of different lengths; the bits of elements; boxes of points."""

    def forward(
        self, x: Tensor, lengths: Tensor, offsets: Tensor, of_rows: Tensor, weight: Tensor
    ) -> tuple[Tensor, ...]:
        reduced = [
            torch.segment_reduce(x, how, lengths=lengths) for how in ("sum", "mean", "max", "min")
        ]
        hist, edges = torch.histogramdd(x[:, :2], [3, 4], range=[-1.0, 1.0, -2.0, 2.0],
                                        weight=weight, density=True)  # fmt: skip
        counts, _ = torch.histogramdd(x, [2, 2, 3])
        return (
            *reduced, torch.segment_reduce(x, "prod", offsets=offsets, initial=2),
            torch.segment_reduce(x, "mean", lengths=of_rows, axis=1, initial=1.0),
            torch.hash_tensor(x), torch.hash_tensor(x, [1], keepdim=True),
            torch.hash_tensor(lengths), hist, *edges, counts,
        )  # fmt: skip


@case
def segments() -> Case:
    def call() -> tuple[Tensor, ...]:
        return (torch.randn(8, 3), torch.tensor([3, 0, 1, 4]), torch.tensor([0, 2, 2, 8]),
                torch.tensor([[2, 1], [0, 3], *[[1, 2]] * 6]), torch.rand(8))  # fmt: skip

    return Case(Segments(), [call(), call()])


class DrawnPools(nn.Module):
    """Pools whose windows are where samples say, antialiased images with aligned corners."""

    def forward(self, x: Tensor, volume: Tensor, two: Tensor, three: Tensor) -> tuple[Tensor, ...]:
        aten = torch.ops.aten
        pooled = functional.fractional_max_pool2d(
            x, (3, 2), (3, 4), return_indices=True, _random_samples=two
        )
        in_3d = functional.fractional_max_pool3d(
            volume, 2, (3, 2, 2), return_indices=True, _random_samples=three
        )
        resized = [
            aten._upsample_bilinear2d_aa(x, [4, 5], True),
            aten._upsample_bilinear2d_aa(x, [4, 5], False),
            aten._upsample_bicubic2d_aa(x, [5, 2], True),
            aten._upsample_bicubic2d_aa(x, [12, 14], True),
        ]
        return (*pooled, *in_3d, *resized)


@case
def drawn_pools() -> Case:
    def call() -> tuple[Tensor, ...]:
        return (torch.randn(2, 3, 9, 8), torch.randn(1, 2, 6, 5, 4), torch.rand(2, 3, 2),
                torch.rand(1, 2, 3))  # fmt: skip

    return Case(DrawnPools(), [call(), call()])


class Sums(nn.Module):
    """Attention with the sums and the weights that it computes."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        aten = torch.ops.aten
        first, sums = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)
        second, masked = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=mask)
        third, weights = aten._scaled_dot_product_attention_math(q, k, v, mask)
        return first, sums, second, masked, third, weights


@case
def sums_of_attention() -> Case:
    def call() -> tuple[Tensor, ...]:
        return (torch.randn(2, 4, 3, 8), torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 8),
                torch.randn(3, 5))  # fmt: skip

    return Case(Sums(), [call(), call()])


class Bounds(nn.Module):
    """Ranges of integers with bounds that are not, sums that nothing is summed in, losses."""

    def forward(self, x: Tensor, labels: Tensor, flags: Tensor) -> tuple[Tensor, ...]:
        symmetric = x @ x.mT
        loss = functional.multilabel_margin_loss
        return (
            torch.scalar_tensor(4), torch.scalar_tensor(True), torch.tensor(4) * x,
            torch.arange(0, 0.5, dtype=torch.int64), torch.arange(1.5, 4.2, dtype=torch.int64),
            torch.logspace(0, 2, 4, dtype=torch.int64), torch.logspace(0.5, 2.5, 3),
            flags.sum_to_size(3, 4), flags.sum_to_size(1, 4), torch.ops.aten.linalg_matrix_sqrth(
                symmetric + torch.eye(3)),
            loss(x, labels), loss(x, labels, reduction="none"), loss(x[0], labels[0]),
        )  # fmt: skip


@case
def bounds() -> Case:
    def call() -> tuple[Tensor, ...]:
        labels = torch.tensor([[0, 3, -1, 2], [1, -1, 0, 0], [2, 1, 0, 3]])
        return torch.randn(3, 4), labels, torch.rand(3, 4) > 0.5

    return Case(Bounds(), [call(), call()])
