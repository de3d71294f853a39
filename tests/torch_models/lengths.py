"""Lengths and places that are computed: rounded floats, offsets of slices, moved windows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from . import Case, case

ROWS = torch.export.Dim.AUTO


class RoundedLengths(nn.Module):
    """Ranges with float steps, whose lengths are rounded up, and lengths that are rounded down."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        n = x.shape[0]
        places = torch.arange(n, -n, -1.0), torch.arange(0, n, 2.5)
        lengths = (n // 3, n << 1)
        return (*places, *[torch.ones(length) * x.sum() for length in lengths])


@case
def rounded_lengths() -> Case:
    calls = [(torch.arange(n * 2.0).reshape(n, 2),) for n in (7, 10, 9, 12)]
    return Case(RoundedLengths(), calls, dynamic_shapes=({0: ROWS},))


class SliceOfData(nn.Module):
    """A slice whose bounds are data; torch asserts where it lies in memory."""

    def forward(self, x: Tensor, start: Tensor, end: Tensor) -> Tensor:
        return x[start.item() : end.item()] * 2


@case
def slice_of_data() -> Case:
    x = torch.arange(24.0).reshape(8, 3)
    calls = [(x, torch.tensor(a), torch.tensor(b)) for a, b in ((2, 6), (0, 8), (5, 7))]
    return Case(SliceOfData(), calls)


class ComplexLayer(nn.Module):
    """What layers of complex numbers have beside products."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4, dtype=torch.complex64))
        self.bias = nn.Parameter(torch.randn(4, dtype=torch.complex64))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        z = torch.complex(x, x.flip(-1))
        y = nn.functional.linear(z, self.weight, self.bias)
        both = torch.cat([y, x])  # the imaginary parts of x are 0
        outer = torch.einsum("bi,bj,b->bij", z, y.conj(), x[:, 0])
        chosen = torch.where(x > 0, z, 1.0)
        padded = nn.functional.pad(y, (1, 0), value=2.0)
        waves = (z.sin(), z.cos(), z.tanh(), z.sqrt(), z.log(), z.sgn())
        norms = (torch.linalg.norm(y, dim=-1), torch.linalg.vector_norm(z))
        return both, outer, chosen, padded, *waves, *norms, 1 - z, torch.exp(1j * x), z == z.conj()


@case
def complex_layer() -> Case:
    return Case(ComplexLayer(), [(torch.randn(n, 4),) for n in (3, 5)],
                dynamic_shapes=({0: ROWS},))  # fmt: skip
