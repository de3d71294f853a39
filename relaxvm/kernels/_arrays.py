"""Views, copies and overlaps of arrays."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..pieces.cut import copied, copy_pieces
from .checks import FLOAT32, FLOAT64, Dims

__all__ = [
    "LINE",
    "aligned_copy",
    "aligned_zeros",
    "assign",
    "at_end",
    "copy_if_overlapping",
    "copy_if_overlapping_differently",
    "share_float_type",
]

LINE: Final = 64
"""Bytes of a line of the cache."""


def aligned_zeros(shape: Dims, dtype: Any) -> NDArray[Any]:
    """A contiguous array of zeros that begins at a line of the cache: a vector of 64 bytes that is
    part of two lines takes two loads."""
    dtype = np.dtype(dtype)
    memory = np.zeros(math.prod(shape) * dtype.itemsize + LINE, np.uint8)
    return np.ndarray(shape, dtype, memory, -memory.ctypes.data % LINE)


def aligned_copy(array: NDArray[Any]) -> NDArray[Any]:
    """A contiguous copy that begins at a line of the cache."""
    copy = aligned_zeros(array.shape, array.dtype)
    copy[...] = array
    return copy


def share_float_type(out: Any, *tensors: Any) -> bool:
    """Whether all are plain arrays of float32, or all of float64, in the byte order of the machine.

    Then numpy's own checks are those of a kernel that is one ufunc, as far as shapes are concerned,
    and the kernel can call it at once; if numpy refuses, the full
    checks follow, for their message.
    """
    if type(out) is not np.ndarray:
        return False
    dtype = out.dtype
    if dtype is not FLOAT32 and dtype is not FLOAT64:
        return False
    for tensor in tensors:  # all() of a generator takes three times as long
        if type(tensor) is not np.ndarray or tensor.dtype is not dtype:
            return False
    return True


def at_end(x: NDArray[Any], axes: Dims) -> NDArray[Any]:
    """A view of `x` with these axes last, in this order; `x` itself if they are last already,
    which `np.moveaxis` takes microseconds to find out."""
    rest = x.ndim - len(axes)
    if axes == tuple(range(rest, x.ndim)):
        return x
    return x.transpose(*[axis for axis in range(x.ndim) if axis not in axes], *axes)


def copy_if_overlapping(operand: Any, out: NDArray[Any]) -> Any:
    """An operand that writing to `out` does not change: itself, or a copy where the two may
    overlap.  For numpy functions that do not take care of this themselves."""
    return copied(operand) if np.may_share_memory(operand, out) else operand


def copy_if_overlapping_differently(x: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
    """An input that is read while `out` is written, element by element: itself, unless the two
    overlap without being the same elements in the same order; then a copy."""
    if x is out or not np.may_share_memory(x, out):
        return x
    if x.shape == out.shape and x.strides == out.strides and x.dtype == out.dtype:
        start, begin = (each.__array_interface__["data"][0] for each in (x, out))
        if start == begin:
            return x
    return copied(x)


def assign(out: NDArray[Any], x: NDArray[Any]) -> None:
    """out = x, converted to `out`'s data type, where the two may overlap."""
    # numpy does not take care of an overlap of vectors with different strides.
    copy_pieces(out, copy_if_overlapping_differently(x, out))
