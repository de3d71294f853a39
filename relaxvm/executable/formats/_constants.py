"""Constants in the binary form: their types, and the fields of each."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...isa import WORD_MAX, WORD_MIN
from ...values import Shape
from ._fields import I64, Reader, Writer
from ._tensors import dtype_from_stream, dtype_to_stream, on_disk, tensor_nbytes

__all__ = ["LEAST", "PREFIX", "STRING", "TENSOR_MAGIC", "check_bool", "load_constant",
           "load_tensor", "save_constant", "save_tensor"]  # fmt: skip

TENSOR_MAGIC: Final = 0xDD5E40F096B4A13F
CPU: Final = (1, 0)
"""Device type and index of stored tensors."""

UNKNOWN_DTYPE: Final = (3, 0, 0)
"""Code, bits and lanes that apache-tvm 0.25 writes for a data type that may be any.  It is read as
None, which later versions pass."""

# Constant types: the type indices of TVM's FFI.
INT: Final = 1
FLOAT: Final = 3
DTYPE: Final = 5
STRING: Final = 65
SHAPE: Final = 69
TENSOR: Final = 70

_F64: Final = struct.Struct("<d")
_I32: Final = struct.Struct("<i")
_I32_U64: Final = struct.Struct("<iQ")
_I32_I64: Final = struct.Struct("<iq")
_I32_F64: Final = struct.Struct("<id")
_DTYPE: Final = struct.Struct("<BBH")
_TENSOR: Final = struct.Struct("<QQiiiBBH")

LEAST: Final = _I32.size + _DTYPE.size
"""The fewest bytes of a constant."""
PREFIX: Final = struct.pack("<iQQii", TENSOR, TENSOR_MAGIC, 0, *CPU)
"""A tensor constant up to its rank."""


def save_constant(to: Writer, value: Any) -> None:
    if isinstance(value, np.ndarray):
        save_tensor(to, value, _I32.pack(TENSOR))
    elif isinstance(value, Shape):
        to.put(_I32_U64.pack(SHAPE, len(value)) + struct.pack(f"<{len(value)}q", *value))
    elif isinstance(value, str):
        to.put(_I32.pack(STRING))
        to.string(value, "string")
    elif isinstance(value, np.dtype):
        to.put(_I32.pack(DTYPE) + _DTYPE.pack(*dtype_to_stream(value)))
    elif type(value) is int:
        if not WORD_MIN <= value <= WORD_MAX:
            raise FormatError("expected an int of 64 bits, got a larger one")
        to.put(_I32_I64.pack(INT, value))
    elif type(value) is float:
        to.put(_I32_F64.pack(FLOAT, value))
    else:
        kind = "None" if value is None else f"a {type(value).__name__}"
        raise FormatError(
            f"{kind} cannot be stored in TVM's stream, which has tensors, shapes, strings, ints, "
            f"floats and dtypes; the complete text form also has None and bool"
        )


def load_constant(read: Reader) -> Any:
    (kind,) = read.unpack(_I32)
    if kind == TENSOR:
        return load_tensor(read)
    if kind == SHAPE:
        dims = read.count(I64.size)
        read.within("shape_dims", dims, "dimensions of a shape")
        return Shape(read.integers(dims))
    if kind == STRING:
        return read.string(read.count(1))
    if kind == DTYPE:
        dtype = read.unpack(_DTYPE)
        return None if dtype == UNKNOWN_DTYPE else dtype_from_stream(*dtype)
    if kind == INT:
        return read.unpack(I64)[0]
    if kind == FLOAT:
        return read.unpack(_F64)[0]
    raise FormatError(
        f"unknown type {kind}, expected {TENSOR} (tensor), {SHAPE} (shape), {STRING} (string), "
        f"{DTYPE} (dtype), {INT} (int) or {FLOAT} (float)"
    )


def save_tensor(to: Writer, array: NDArray[Any], before: bytes = b"") -> None:
    check_bool(array)
    to.array(array, before + _tensor_head(array.dtype, array.shape, array.nbytes))


@lru_cache(maxsize=1024)
def _tensor_head(dtype: np.dtype[Any], shape: tuple[int, ...], nbytes: int) -> bytes:
    """What comes before the elements of a tensor; many tensors of a program are alike."""
    head = _TENSOR.pack(TENSOR_MAGIC, 0, *CPU, len(shape), *dtype_to_stream(dtype))
    return head + struct.pack(f"<{len(shape) + 1}q", *shape, nbytes)


def load_tensor(read: Reader) -> NDArray[Any]:
    magic, reserved, *device, rank, code, bits, lanes = read.unpack(_TENSOR)
    if magic != TENSOR_MAGIC:
        raise FormatError(f"expected the magic {TENSOR_MAGIC:#x} of a tensor, got {magic:#x}")
    if reserved:
        raise FormatError(f"expected 0 in the reserved field, got {reserved}")
    if tuple(device) != CPU:
        raise FormatError(f"expected a tensor on device {CPU}, got {tuple(device)}")
    if rank < 0:
        raise FormatError(f"expected a rank >= 0, got {rank}")
    *shape, stored = read.integers(rank + 1)
    read.within("rank", rank, "rank of a tensor")
    dtype = dtype_from_stream(code, bits, lanes)
    nbytes = tensor_nbytes(dtype, shape)
    if stored != nbytes:
        raise FormatError(f"{dtype.name}{shape} takes {nbytes} bytes, the file says {stored}")
    array = read.stream.tensor(on_disk(dtype), shape, nbytes)
    check_bool(array)
    return array


def check_bool(array: NDArray[Any]) -> None:
    """Check that all bytes are 0 or 1: anything else is undefined behaviour in numpy's C code."""
    if array.dtype.kind == "b" and array.size and int(array.view(np.uint8).max()) > 1:
        raise FormatError("bool tensor: expected bytes 0 and 1, got a larger one")
