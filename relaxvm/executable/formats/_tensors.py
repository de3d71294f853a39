"""Bytes of tensors: functions shared by the file formats.

On disk the elements of a tensor are little endian, in row-major order.  In memory a tensor that was
read starts at a multiple of 64 bytes, for the benefit of vector instructions.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...dtypes import NARROW, as_dtype, dtype_from_dl, dtype_to_dl
from ...errors import FormatError, MissingExtraError

__all__ = [
    "MAX_RANK",
    "Arena",
    "dtype_from_stream",
    "dtype_to_stream",
    "flat_bytes",
    "little_endian",
    "on_disk",
    "ordinary_dtype",
    "sealed",
    "tensor_nbytes",
    "tensor_over",
]

MAX_RANK: Final = 64 if int(np.__version__.split(".")[0]) >= 2 else 32
"""The most dimensions that a numpy array can have."""

_MAX_NBYTES: Final = (1 << 63) - 1
_NARROW_BY_CODE: Final = {code: name for name, code in NARROW.items()}
_LITTLE_HOST: Final = sys.byteorder == "little"


def tensor_nbytes(dtype: np.dtype[Any], shape: Sequence[int]) -> int:
    """Return the size of a tensor in bytes, computed without wrapping.

    Raises:
        FormatError: a dimension is negative, or numpy has no such arrays: there are too many
            dimensions, or the nonzero dimensions multiply to more than 2**63 - 1 bytes.
    """
    if len(shape) > MAX_RANK:
        raise FormatError(f"expected at most {MAX_RANK} dimensions, got {len(shape)}")
    nbytes = greatest = math.prod(shape) * dtype.itemsize
    least = min(shape, default=1)
    if least < 0:
        raise FormatError(f"expected dimensions >= 0, got {least}")
    if nbytes == 0:
        greatest = math.prod(filter(None, shape)) * max(dtype.itemsize, 1)
    if greatest > _MAX_NBYTES:
        raise FormatError("the dimensions multiply to more than 2**63 - 1 bytes")
    return nbytes


class Arena:
    """Allocates memory for tensors, each at a multiple of 64 bytes.  Small ones share slabs, since
    getting the address of a numpy array takes longer than reading a small tensor.

    Args:
        expected: an upper bound of the bytes that will be allocated.
    """

    ALIGNMENT: Final = 64
    SMALL: Final = 1 << 14
    SLAB: Final = 1 << 22  # numpy asks the system for huge pages from here on

    def __init__(self, expected: int) -> None:
        self._slab = memoryview(bytearray())
        self._slab_size = min(max(expected, self.SMALL), self.SLAB)
        self._next = 0

    def allocate(self, nbytes: int) -> memoryview:
        """Return writable memory with undefined contents."""
        if nbytes > self.SMALL:
            return self._block(nbytes)
        start = self._next
        if start + nbytes > self._slab.nbytes:
            self._slab = self._block(self._slab_size)
            start = 0
        self._next = start + nbytes + -nbytes % self.ALIGNMENT
        return self._slab[start : start + nbytes]

    def rest(self) -> memoryview:
        """Return what is left of the slab, writable memory with undefined contents; see `take`."""
        return self._slab[self._next :]

    def take(self, nbytes: int) -> None:
        """Allocate the first `nbytes`, a multiple of `ALIGNMENT`, of what is left of the slab."""
        self._next += nbytes

    def _block(self, nbytes: int) -> memoryview:
        memory = np.empty(nbytes + self.ALIGNMENT - 1, np.uint8)
        start = -memory.ctypes.data % self.ALIGNMENT
        return memory.data[start : start + nbytes]


def tensor_over(memory: memoryview, dtype: np.dtype[Any], shape: Sequence[int]) -> NDArray[Any]:
    """Return a read-only tensor over `memory`, which holds elements of the little-endian `dtype`;
    they are converted to the byte order of this machine."""
    if dtype.isnative:
        return np.ndarray(shape, dtype, memory.toreadonly())
    swapped = np.ndarray(shape, dtype, memory).astype(dtype.newbyteorder("="))
    return tensor_over(flat_bytes(swapped).data, swapped.dtype, shape)


def on_disk(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the little-endian form of a dtype."""
    return dtype if dtype.isnative and _LITTLE_HOST else dtype.newbyteorder("<")


def little_endian(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array in row-major order with little-endian elements; itself if it already is."""
    array = array.astype(on_disk(array.dtype), copy=False)
    return array if array.flags.c_contiguous else array.copy(order="C")


def flat_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the memory of a row-major array as uint8[nbytes], without a copy.  Also works for the
    types of ml_dtypes, which do not support the buffer protocol."""
    if array.size == 0:
        return np.empty(0, np.uint8)
    return array.reshape(-1).view(np.uint8)


def sealed(array: NDArray[Any]) -> NDArray[Any]:
    """Make the array read-only and return it."""
    array.flags.writeable = False
    return array


@functools.lru_cache(maxsize=256)
def dtype_to_stream(dtype: np.dtype[Any]) -> tuple[int, int, int]:
    """Return (code, bits, lanes) of a dtype in the binary stream; its byte order does not matter.

    Raises:
        FormatError: the stream has no such type: strings, objects, dates, records, and the long
            double, whose layout differs between machines.
    """
    if issubclass(dtype.type, (np.longdouble, np.clongdouble)):
        raise FormatError(f"dtype {dtype}: its layout differs from machine to machine")
    narrow = NARROW.get(dtype.name)
    return dtype_to_dl(dtype) if narrow is None else (*narrow, 1)


@functools.lru_cache(maxsize=256)
def dtype_from_stream(code: int, bits: int, lanes: int) -> np.dtype[Any]:
    """Return the dtype of a type in the binary stream; the inverse of `dtype_to_stream`.

    Raises:
        FormatError: no numpy dtype corresponds to it.
        MissingExtraError: it is a type of ml_dtypes, and that is not installed.
    """
    name = _NARROW_BY_CODE.get((code, bits)) if lanes == 1 else None
    if name is not None:
        return as_dtype(name)
    dtype = dtype_from_dl(code, bits, lanes)
    dtype_to_stream(dtype)
    return dtype


def ordinary_dtype(code: int, bits: int, lanes: int) -> np.dtype[Any] | None:
    """Return the dtype of a type in the binary stream if the bytes of its elements can be used as
    they are: None if they have to be swapped or checked, or if there is no such dtype."""
    try:
        dtype = dtype_from_stream(code, bits, lanes)
    except (FormatError, MissingExtraError):
        return None
    return dtype if dtype.kind != "b" and on_disk(dtype).isnative else None
