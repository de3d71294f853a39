"""Padding."""

from __future__ import annotations

from typing import Literal

from ...ir.arith import simplify
from ...ir.expr import TensorType, Type
from ..kinds import IllValued, Ints
from ..registry import operator
from ..rules import like

__all__ = ["pad"]


@operator(
    "nn.pad",
    loops="nn.pad",
)
def pad(
    data: TensorType,
    pad_width: Ints,
    pad_mode: Literal["constant", "reflect", "replicate", "circular"] = "constant",
    pad_value: float = 0.0,
) -> Type:
    """data with additional elements: ``pad_width[2 * i]`` before and ``pad_width[2 * i + 1]`` after
    those of axis i.

    They are `pad_value`, or elements of data: its mirror image ("reflect"), its outermost elements
    ("replicate"), or those of its other end ("circular").
    """
    if len(pad_width) % 2 or data.ndim not in (-1, len(pad_width) // 2):
        expected = "two for each axis" if data.ndim == -1 else 2 * data.ndim
        raise IllValued(f"pad_width: expected {expected} numbers, got {len(pad_width)}")
    if data.dims is None:
        return like(data, None, ndim=len(pad_width) // 2)
    widths = zip(pad_width[::2], pad_width[1::2], strict=True)
    return like(data, [simplify(d + (a + b)) for d, (a, b) in zip(data.dims, widths, strict=True)])
