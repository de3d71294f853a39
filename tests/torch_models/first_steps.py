"""Small models: layers, buffers and views."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from . import Case, case


class Writing(nn.Module):
    """Writes into views of what it computed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.constant = torch.arange(3.0)

    def forward(self, x: Tensor) -> Any:
        y = self.layer(x).relu_()
        x = x.clone()
        x[:, 0].add_(1)
        y[:, 1] = x[:, 0]
        return y + self.constant, x


@case
def writing() -> Case:
    rows = torch.export.Dim("rows", min=2, max=64)
    calls = [(torch.randn(5, 4),), (torch.randn(3, 4),)]
    return Case(Writing(), calls, dynamic_shapes={"x": {0: rows}})
