"""Elementwise functions, copies and selections in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..core._deadlines import check_time

__all__ = [
    "PIECE",
    "apply",
    "check_time",
    "converted",
    "copied",
    "copy_pieces",
    "flat",
    "pieces",
    "positions",
    "taken",
]

PIECE: Final = 1 << 20
"""Elements of a piece: a function that takes 20 ns for each checks the time limit every 20 ms."""


def pieces(
    *tensors: NDArray[Any], row: int = 0, most: int = PIECE
) -> Iterator[tuple[NDArray[Any], ...]]:
    """Parts of tensors, of about `most` elements, with a check of the time limit between them.

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


def apply(function: Callable[..., Any], out: NDArray[Any], *inputs: Any) -> None:
    """``function(*inputs, out=out)``, an elementwise function of numpy.

    Args:
        function: takes the inputs, and the output by name.
        out: where the result is written.
        inputs: tensors and numpy scalars that broadcast to out's shape.  Those that overlap with
            `out` are the same elements in the same order.
    """
    if out.size <= PIECE:
        function(*inputs, out=out)
        return
    for written, *read in pieces(out, *[np.broadcast_to(x, out.shape) for x in inputs]):
        function(*read, out=written)


def copy_pieces(out: NDArray[Any], x: Any) -> None:
    """out = x, a number or a tensor that broadcasts to out's shape and does not overlap with it."""
    if out.size <= PIECE:
        np.copyto(out, x, casting="unsafe")
        return
    for written, read in pieces(out, np.broadcast_to(x, out.shape)):
        np.copyto(written, read, casting="unsafe")


def copied(x: NDArray[Any]) -> NDArray[Any]:
    """A contiguous copy."""
    if x.size <= PIECE:
        return x.copy()
    out = np.empty(x.shape, x.dtype)
    copy_pieces(out, x)
    return out


def converted(x: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """A tensor in another data type; itself if it has that data type."""
    if x.size <= PIECE or x.dtype == dtype:
        return x.astype(dtype, copy=False)
    out = np.empty(x.shape, dtype)
    copy_pieces(out, x)
    return out


def flat(x: NDArray[Any]) -> NDArray[Any]:
    """The elements in row-major order, as a contiguous vector: a view if x is contiguous."""
    return (x if x.flags.c_contiguous else copied(x)).reshape(-1)


def taken(x: NDArray[Any], indices: NDArray[np.intp]) -> NDArray[Any]:
    """The elements of a vector at indices, which are valid."""
    if indices.size <= PIECE:
        found: NDArray[Any] = x[indices]
        return found
    out = np.empty(indices.shape, x.dtype)
    for at, written in pieces(indices, out):
        written[...] = x[at]  # numpy.take would copy an x that is not contiguous
    return out


def positions(x: NDArray[Any]) -> NDArray[np.intp]:
    """The indices of the nonzero elements of a vector that no other thread writes."""
    if x.size <= PIECE:
        return np.flatnonzero(x)
    count = sum(int(np.count_nonzero(part)) for (part,) in pieces(x))
    out = np.empty(count, np.intp)
    start = end = 0
    for (part,) in pieces(x):
        found = np.flatnonzero(part)
        np.add(found, start, out=out[end : end + len(found)])
        start, end = start + len(part), end + len(found)
    return out
