"""Tensors made from numbers: diagonals and windows."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np

from ..messages import describe
from ..pieces.cut import check_time, copy_pieces
from ._blocks import BLOCK
from ._kernel import kernel
from .checks import WrongValue, as_operand, check_out
from .kinds import Flag, Float, Floats, Int, OutAny, an_int

__all__: list[str] = []


@kernel("eye")
def eye(k: Int, out: OutAny) -> None:
    """out, a matrix = 1 on diagonal k, 0 elsewhere.  Diagonal 0 is the main one, k > 0 is above
    it."""
    if out.ndim != 2:
        raise WrongValue(f"out: expected a matrix, got {describe(out)}")
    copy_pieces(out, as_operand("value", False, out.dtype))
    rows, columns = out.shape
    first = max(0, -k)
    last = min(rows, columns - k)
    one = np.ones((), out.dtype)
    for start in range(first, last, BLOCK):
        if start > first:
            check_time()
        places = np.arange(start, min(start + BLOCK, last))
        out[places, places + k] = one


@kernel("hamming_window")
def hamming_window(
    window_size: Annotated[int, an_int(least=1)],
    periodic: Flag,
    alpha: Float,
    beta: Float,
    out: Floats,
) -> None:
    """out, a vector of window_size floats = alpha - beta * cos(2 * pi * i / n) for its indices i; n
    is window_size if periodic, else one less.  A window of one element is 1.  Computed in
    float64."""
    check_out(out, out.dtype, (window_size,))
    if window_size == 1:
        copy_pieces(out, 1)
        return
    step = 2 * math.pi / (window_size if periodic else window_size - 1)
    for start in range(0, window_size, BLOCK):
        if start:
            check_time()
        angles = np.arange(start, min(start + BLOCK, window_size)) * step
        np.copyto(out[start : start + BLOCK], alpha - beta * np.cos(angles), casting="unsafe")
