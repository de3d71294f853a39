"""Positions of elements that tensors of indices name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..pieces.cut import PIECE, apply, check_time, copy_pieces, pieces
from ..pieces.reduce import reduced
from .checks import Dims

__all__ = ["at_coordinates", "at_elements", "from_front", "take_pieces"]


def from_front(subject: str, indices: NDArray[Any], length: int) -> NDArray[np.int64]:
    """A copy of indices into an axis, counted from the front: what is checked is what is used,
    whatever another thread writes meanwhile.

    Args:
        subject: begins the message of an error.
        indices: integers; negative ones count from the end.
        length: of the axis.

    Raises:
        IndexError: an index is out of range.
    """
    dtype = np.uint64 if indices.dtype == np.uint64 else np.int64
    found: NDArray[Any] = np.empty(indices.shape, dtype)
    copy_pieces(found, indices)
    if not found.size:
        return found.view(np.int64)
    every = tuple(range(-found.ndim, 0))
    least, greatest = (reduced(f, found, every).item() for f in (np.minimum, np.maximum))
    if least < -length or greatest >= length:
        wrong = least if least < -length else greatest
        raise IndexError(f"{subject}: expected {-length} <= index < {length}, got {wrong}")
    found = found.view(np.int64)
    if least < 0:
        for (part,) in pieces(found):
            np.add(part, length, out=part, where=part < 0)
    return found


def at_elements(
    subject: str, shape: Dims, indices: NDArray[Any], axis: int
) -> NDArray[np.int64]:
    """The positions, in row-major order, of the elements of a tensor that have the index of
    `indices` along an axis, and along the other axes the same place as in `indices`.

    Args:
        subject: begins the message of an error.
        shape: of the tensor; but for the axis, `indices` is not longer.
        indices: integers.
        axis: of the tensor.

    Raises:
        IndexError: an index is out of range.
    """
    found = from_front(subject, indices, shape[axis])
    apply(np.multiply, found, found, math.prod(shape[axis + 1 :]))
    for i, length in enumerate(indices.shape):
        if i != axis and length > 1:
            step = math.prod(shape[i + 1 :])
            offsets = (np.arange(length) * step).reshape(-1, *(1,) * (indices.ndim - 1 - i))
            apply(np.add, found, found, offsets)
    return found


def at_coordinates(
    subject: str, shape: Dims, coordinates: list[NDArray[Any]]
) -> NDArray[np.int64]:
    """The positions, in row-major order, of coordinates in the first axes of a tensor.

    Args:
        subject: begins the message of an error.
        shape: the lengths of these axes.
        coordinates: for each axis indices, all of one shape; at least one.

    Raises:
        IndexError: an index is out of range.
    """
    found: Any = None
    for indices, length in zip(coordinates, shape, strict=True):
        along = from_front(subject, indices, length)
        if found is None:
            found = along
        else:
            apply(np.multiply, found, found, length)
            apply(np.add, found, found, along)
    assert found is not None
    return found  # type: ignore[no-any-return]


def take_pieces(x: NDArray[Any], indices: NDArray[Any], axis: int, out: NDArray[Any]) -> None:
    """out = the slices of x at indices, which are valid, along an axis, in pieces."""
    if out.size <= PIECE or (axis == 0 and indices.size == 1):
        np.take(x, indices, axis, out, mode="clip")
        return
    if axis:  # first along the axes in front: numpy copies parts of `out` that are not contiguous
        inner = out.size // len(out)
        step = max(1, PIECE // inner)
        for start in range(0, len(out), step):
            if start:
                check_time()
            if step == 1:
                take_pieces(x[start], indices, axis - 1, out[start, ...])
            else:
                part = slice(start, start + step)
                np.take(x[part], indices, axis, out[part], mode="clip")
        return
    along = next(i for i, dim in enumerate(indices.shape) if dim > 1)
    dim = indices.shape[along]
    step = max(1, dim // -(-out.size // PIECE))
    for start in range(0, dim, step):
        if start:
            check_time()
        part = slice(start, start + step)
        take_pieces(
            x,
            indices[(slice(None),) * along + (part,)],
            axis,
            out[(slice(None),) * (axis + along) + (part,)],
        )
