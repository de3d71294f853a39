"""Operators of torchvision."""

from __future__ import annotations

import torch
import torchvision
from torch import Tensor, nn

from . import Case, case

ROWS = torch.export.Dim.AUTO


class RegionsOfImages(nn.Module):
    """Regions of images, with and without the shift by half an element."""

    def forward(self, x: Tensor, boxes: Tensor, scores: Tensor) -> tuple[Tensor, ...]:
        ops = torchvision.ops
        return (
            ops.nms(boxes, scores, 0.5),
            ops.roi_align(x, [boxes], (2, 3), 0.25, 2, aligned=True),
            ops.roi_align(x, [boxes], (2, 3), 0.25, -1, aligned=False),
            ops.roi_pool(x, [boxes], (2, 3), 0.25),
            ops.ps_roi_align(x, [boxes], (2, 2), 0.25, 2),
            ops.ps_roi_pool(x, [boxes], (2, 2), 0.25),
        )


@case
def regions_of_images() -> Case:
    def call() -> tuple[Tensor, ...]:
        corner, size = torch.rand(6, 2) * 30, torch.rand(6, 2) * 30
        return torch.randn(1, 4, 12, 12), torch.cat([corner, corner + size], 1), torch.rand(6)

    return Case(RegionsOfImages(), [call(), call()])


class Deformed(nn.Module):
    """A convolution whose windows are moved, with factors and without."""

    def __init__(self) -> None:
        super().__init__()
        self.moves = nn.Conv2d(4, 36, 3, padding=1, stride=2)
        self.factors = nn.Conv2d(4, 18, 3, padding=1, stride=2)
        self.conv = torchvision.ops.DeformConv2d(4, 6, 3, padding=1, stride=2, groups=2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        moves = self.moves(x)
        return self.conv(x, moves), self.conv(x, moves, self.factors(x).sigmoid())


@case
def deformed() -> Case:
    return Case(Deformed(), [(torch.randn(n, 4, 7, 9),) for n in (2, 3)],
                dynamic_shapes=({0: ROWS},))  # fmt: skip
