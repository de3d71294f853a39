"""Tensors as TVM stores them in its files of parameters and in programs of Relay.

A tensor is: the magic number and a reserved word (u64 each), the device (two i32), the rank (i32),
the data type (u8 code, u8 bits, u16 lanes), the dimensions (i64), the number of bytes (i64), the
elements.  All little endian.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ._constants import TENSOR_MAGIC
from ._tensors import (
    MAX_RANK,
    dtype_from_stream,
    dtype_to_stream,
    flat_bytes,
    little_endian,
    on_disk,
    tensor_nbytes,
)

__all__ = ["read_tensor", "take", "tensor_bytes"]

_HEAD: Final = struct.Struct("<QQiiiBBH")
_SIZE: Final = struct.Struct("<q")


def take(data: memoryview, at: int, size: int, what: str) -> memoryview:
    """Return `size` bytes at a position.

    Raises:
        FormatError: there are fewer.
    """
    if size > len(data) - at:
        raise FormatError(f"{what}: truncated at byte {at}: expected {size} more bytes, "
                          f"got {len(data) - at}")  # fmt: skip
    return data[at : at + size]


def read_tensor(data: memoryview, at: int, what: str) -> tuple[NDArray[Any], int]:
    """Read a tensor at a position; return it, and the position after it.

    Raises:
        FormatError: it is malformed or truncated.
        MissingExtraError: it has a data type of ml_dtypes, and that is not installed.
    """
    head = _HEAD.unpack(take(data, at, _HEAD.size, what))
    magic, _, _, _, rank, code, bits, lanes = head
    if magic != TENSOR_MAGIC:
        raise FormatError(f"{what}: expected the magic {TENSOR_MAGIC:#x} of a tensor, "
                          f"got {magic:#x}")  # fmt: skip
    if not 0 <= rank <= MAX_RANK:
        raise FormatError(f"{what}: expected at most {MAX_RANK} dimensions, got {rank}")
    at += _HEAD.size
    shape = struct.unpack(f"<{rank}q", take(data, at, 8 * rank, what))
    at += 8 * rank
    try:
        dtype = dtype_from_stream(code, bits, lanes)
        nbytes = tensor_nbytes(dtype, shape)
    except FormatError as error:
        raise FormatError(f"{what}: {error}") from None
    (stored,) = _SIZE.unpack(take(data, at, 8, what))
    if stored != nbytes:
        raise FormatError(f"{what}: expected {nbytes} bytes for {dtype}{list(shape)}, got {stored}")
    at += 8
    piece = take(data, at, nbytes, what)
    disk = on_disk(dtype)
    array = np.ndarray(shape, disk, piece).astype(disk.newbyteorder("="))
    if dtype.kind == "b" and flat_bytes(array).max(initial=0) > 1:
        raise FormatError(f"{what}: expected bytes 0 and 1 in a tensor of bools")
    array.flags.writeable = False
    return array, at + nbytes


def tensor_bytes(array: NDArray[Any]) -> bytes:
    """Return a tensor as TVM stores it."""
    array = little_endian(array)
    head = _HEAD.pack(TENSOR_MAGIC, 0, 1, 0, array.ndim, *dtype_to_stream(array.dtype))
    shape = struct.pack(f"<{array.ndim}q", *array.shape)
    return b"".join([head, shape, _SIZE.pack(array.nbytes), flat_bytes(array).tobytes()])
