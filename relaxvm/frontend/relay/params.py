"""TVM's files of parameters (``.params``).

A file is: its magic number and a reserved word (u64 each), the names (u64 count; each a u64 length
and UTF-8), and the tensors (u64 count).  All little endian.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...executable.formats._files import read_all
from ...executable.formats.stored_tensors import read_tensor, take, tensor_bytes
from ...limits import Limits

__all__ = ["PARAMS_MAGIC", "read_params", "save_params"]

PARAMS_MAGIC: Final = 0xF7E58D4F05049CB7
_WORD: Final = struct.Struct("<Q")


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
            data = memoryview(read_all(file, name, limits))
    else:
        name, data = "<params>", memoryview(source).cast("B")
    limits.check("file_bytes", len(data), name)

    def word(at: int, what: str) -> int:
        number: int = _WORD.unpack(take(data, at, 8, f"{name}: {what}"))[0]
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
        piece = take(data, at + 8, length, f"{name}: name {i}")
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
