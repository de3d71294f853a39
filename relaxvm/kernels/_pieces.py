"""Work in pieces, so that a limit, a cancellation or Ctrl-C ends a kernel that takes long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..core._deadlines import check_time

__all__ = ["PIECE", "check_time", "copy_pieces", "pieces"]

PIECE: Final = 1 << 20
"""Elements of a piece: a function that takes 20 ns for each looks at the clock every 20 ms."""


def pieces(
    *tensors: NDArray[Any], row: int = 0, most: int = PIECE
) -> Iterator[tuple[NDArray[Any], ...]]:
    """Parts of tensors, of about `most` elements, with a look at the clock between them.

    Args:
        tensors: their shapes are equal but for the last axes.  The first has the parts' size.
        row: the number of last axes that are never split.
        most: the number of elements, unless a row has more.
    """
    if len(tensors[0].shape) <= row or tensors[0].size <= most:
        yield tensors
        return
    is_first = True
    for parts in _split(tensors, row, most):
        if not is_first:
            check_time()
        is_first = False
        yield parts


def _split(
    tensors: tuple[NDArray[Any], ...], row: int, most: int
) -> Iterator[tuple[NDArray[Any], ...]]:
    shape = tensors[0].shape
    if len(shape) <= row or tensors[0].size <= most:
        yield tensors
        return
    inner = tensors[0].size // shape[0]
    if inner > most:
        for i in range(shape[0]):
            yield from _split(tuple([tensor[i, ...] for tensor in tensors]), row, most)
        return
    step = most // inner
    for start in range(0, shape[0], step):
        yield tuple([tensor[start : start + step] for tensor in tensors])


def copy_pieces(out: NDArray[Any], x: Any) -> None:
    """out = x, a number or a tensor that broadcasts to out's shape and does not overlap with it."""
    if out.size <= PIECE:
        np.copyto(out, x, casting="unsafe")
        return
    for written, read in pieces(out, np.broadcast_to(x, out.shape)):
        np.copyto(written, read, casting="unsafe")
