"""Tensors as TVM stores them, and its files of parameters (``.params``).

A tensor is: the magic number and a reserved word (u64 each), the device (two i32), the rank (i32),
the data type (u8 code, u8 bits, u16 lanes), the dimensions (i64), the number of bytes (i64), the
elements.  A file of parameters is: its magic number and a reserved word, the names (u64 count; each
a u64 length and UTF-8), and the tensors (u64 count).  All little endian.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...executable.formats._tensors import (
    MAX_RANK,
    dtype_from_stream,
    dtype_to_stream,
    flat_bytes,
    little_endian,
    on_disk,
    tensor_nbytes,
)
from ...executable.formats.binary import TENSOR_MAGIC
from ...limits import Limits

__all__ = ["PARAMS_MAGIC", "read_params", "read_tensor", "save_params", "tensor_bytes"]

PARAMS_MAGIC: Final = 0xF7E58D4F05049CB7
_HEAD: Final = struct.Struct("<QQiiiBBH")
_WORD: Final = struct.Struct("<Q")
_SIZE: Final = struct.Struct("<q")


def _take(data: memoryview, at: int, size: int, what: str) -> memoryview:
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
    head = _HEAD.unpack(_take(data, at, _HEAD.size, what))
    magic, _, _, _, rank, code, bits, lanes = head
    if magic != TENSOR_MAGIC:
        raise FormatError(f"{what}: expected the magic {TENSOR_MAGIC:#x} of a tensor, "
                          f"got {magic:#x}")  # fmt: skip
    if not 0 <= rank <= MAX_RANK:
        raise FormatError(f"{what}: expected at most {MAX_RANK} dimensions, got {rank}")
    at += _HEAD.size
    shape = struct.unpack(f"<{rank}q", _take(data, at, 8 * rank, what))
    at += 8 * rank
    try:
        dtype = dtype_from_stream(code, bits, lanes)
        nbytes = tensor_nbytes(dtype, shape)
    except FormatError as error:
        raise FormatError(f"{what}: {error}") from None
    (stored,) = _SIZE.unpack(_take(data, at, 8, what))
    if stored != nbytes:
        raise FormatError(f"{what}: expected {nbytes} bytes for {dtype}{list(shape)}, got {stored}")
    at += 8
    piece = _take(data, at, nbytes, what)
    disk = on_disk(dtype)
    array = np.ndarray(shape, disk, piece).astype(disk.newbyteorder("="))
    if dtype.kind == "b" and flat_bytes(array).max(initial=0) > 1:
        raise FormatError(f"{what}: expected bytes 0 and 1 in a tensor of bools")
    array.flags.writeable = False
    return array, at + nbytes


def read_params(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
    *,
    limits: Limits | None = None,
) -> dict[str, NDArray[Any]]:
    """Read a file of parameters, ``.params``, as ``tvm.runtime.save_param_dict`` writes it.

    Args:
        source: a path, or the bytes.
        limits: bounds of the file; None: those of ``Limits()``.

    Raises:
        OSError: the file cannot be read.
        FormatError: it is malformed, truncated, or has bytes after its end.
        LimitError: it is larger than ``limits.file_bytes``, or has more than ``limits.constants``.
        MissingExtraError: a tensor has a data type of ml_dtypes, and that is not installed.
    """
    limits = limits or Limits()
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        with open(source, "rb") as file:
            limits.check("file_bytes", os.fstat(file.fileno()).st_size, name)
            data = memoryview(file.read())
    else:
        name, data = "<params>", memoryview(source).cast("B")
    limits.check("file_bytes", len(data), name)

    def word(at: int, what: str) -> int:
        number: int = _WORD.unpack(_take(data, at, 8, f"{name}: {what}"))[0]
        return number

    magic = word(0, "the magic number")
    if magic != PARAMS_MAGIC:
        raise FormatError(f"{name}: expected the magic {PARAMS_MAGIC:#x} of a file of parameters, "
                          f"got {magic:#x}")  # fmt: skip
    count, at = word(16, "the number of names"), 24
    limits.check("constants", count, f"{name}: parameters")
    names: list[str] = []
    for i in range(count):
        length = word(at, f"name {i}")
        piece = _take(data, at + 8, length, f"{name}: name {i}")
        try:
            names.append(bytes(piece).decode())
        except UnicodeDecodeError:
            raise FormatError(f"{name}: name {i} is not UTF-8") from None
        at += 8 + length
    tensors = word(at, "the number of tensors")
    at += 8
    if tensors != count:
        raise FormatError(f"{name}: expected {count} tensors, one for each name, got {tensors}")
    params: dict[str, NDArray[Any]] = {}
    for i, key in enumerate(names):
        if key in params:
            raise FormatError(f"{name}: parameter {key!r} occurs twice")
        params[key], at = read_tensor(data, at, f"{name}: tensor {i} ({key})")
    if at != len(data):
        raise FormatError(f"{name}: {len(data) - at} bytes after the end")
    return params


def save_params(params: Mapping[str, Any]) -> bytes:
    """Return a file of parameters as bytes; the inverse of `read_params`.

    Raises:
        FormatError: the format has no such data type.
    """
    parts = [_WORD.pack(PARAMS_MAGIC), bytes(8), _WORD.pack(len(params))]
    for name in params:
        text = name.encode()
        parts += [_WORD.pack(len(text)), text]
    parts.append(_WORD.pack(len(params)))
    for value in params.values():
        array = np.asarray(value)
        parts += [tensor_bytes(array)]
    return b"".join(parts)


def tensor_bytes(array: NDArray[Any]) -> bytes:
    """Return a tensor as TVM stores it."""
    array = little_endian(array)
    head = _HEAD.pack(TENSOR_MAGIC, 0, 1, 0, array.ndim, *dtype_to_stream(array.dtype))
    shape = struct.pack(f"<{array.ndim}q", *array.shape)
    return b"".join([head, shape, _SIZE.pack(array.nbytes), flat_bytes(array).tobytes()])


