"""Constant tensors of ONNX files as arrays.

Elements that a file has in its raw form, or another file has (external data), become views without
a copy.  A file with external data is read only if it is in the folder of the model, and is no link.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...dtypes import as_dtype
from ...errors import FormatError
from ...limits import Limits
from ...messages import readable
from ..common.files import file_content
from .messages import DataType, SparseTensor, Tensor

__all__ = ["ExternalData", "dtype_of", "to_array", "to_dense"]

_NAMES: Final = {
    DataType.FLOAT: "float32",
    DataType.UINT8: "uint8",
    DataType.INT8: "int8",
    DataType.UINT16: "uint16",
    DataType.INT16: "int16",
    DataType.INT32: "int32",
    DataType.INT64: "int64",
    DataType.STRING: "str",
    DataType.BOOL: "bool",
    DataType.FLOAT16: "float16",
    DataType.DOUBLE: "float64",
    DataType.UINT32: "uint32",
    DataType.UINT64: "uint64",
    DataType.COMPLEX64: "complex64",
    DataType.COMPLEX128: "complex128",
    DataType.BFLOAT16: "bfloat16",
    DataType.FLOAT8E4M3FN: "float8_e4m3fn",
    DataType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    DataType.FLOAT8E5M2: "float8_e5m2",
    DataType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    DataType.UINT4: "uint4",
    DataType.INT4: "int4",
    DataType.FLOAT4E2M1: "float4_e2m1fn",
    DataType.FLOAT8E8M0: "float8_e8m0fnu",
    DataType.UINT2: "uint2",
    DataType.INT2: "int2",
}
_PACKED: Final = {"uint4": 2, "int4": 2, "float4_e2m1fn": 2, "uint2": 4, "int2": 4}
"""Data types of which several elements share a byte, the first in the lowest bits."""
_FIELDS: Final = {
    "float32": "float_data",
    "complex64": "float_data",
    "float64": "double_data",
    "complex128": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
}
"""The field with the elements, if it is not int32_data."""
_MOST_RANK: Final = 64


def dtype_of(code: int, subject: str) -> str:
    """The name of a data type by its number in a file.

    Raises:
        FormatError: there is no such data type.
    """
    try:
        return _NAMES[DataType(code)]
    except (KeyError, ValueError):
        raise FormatError(f"{subject}: there is no data type {code}") from None


class ExternalData:
    """The files beside a model that have elements of its tensors.

    Args:
        folder: of the model; None if it has none, because it was given as bytes.
        limits: bounds of the bytes of a file.
        given: name of a file -> its bytes, in place of one in the folder.
    """

    def __init__(
        self,
        folder: Path | None,
        limits: Limits | None = None,
        given: Mapping[str, bytes] | None = None,
    ) -> None:
        self.folder = folder
        self._limits = limits or Limits()
        self._given = {name: memoryview(data).cast("B") for name, data in (given or {}).items()}
        self._open: dict[str, memoryview] = dict(self._given)
        self._bytes = 0  # of the files that are read, and not mapped

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that were read."""
        return tuple([name for name in self._open if name not in self._given])

    def read(self, tensor: Tensor, subject: str) -> memoryview:
        """The bytes of a tensor.

        Raises:
            FormatError: the place is not in the folder, or not in the file.
            OSError: the file cannot be read.
        """
        entries = {pair.key: pair.value for pair in tensor.external_data}
        location = entries.get("location", "")
        data = self._file(location, subject)
        offset = _number(entries.get("offset", "0"), "offset", subject)
        length = _number(entries.get("length", str(max(0, len(data) - offset))), "length", subject)
        if offset > len(data) or length > len(data) - offset:
            raise FormatError(
                f"{subject}: expected {length} bytes from {offset} on, but {readable(location)!r} "
                f"has {len(data)}"
            )
        return data[offset : offset + length]

    def _file(self, location: str, subject: str) -> memoryview:
        found = self._open.get(location)
        if found is not None:
            return found
        if self.folder is None:
            raise FormatError(
                f"{subject}: the elements are in {readable(location)!r}, but the model was given "
                f"as bytes; give its path"
            )
        parts = location.split("/")
        is_odd = any(each in location for each in "\\:\0")
        if not location or is_odd or {"", ".", ".."} & set(parts):
            raise FormatError(
                f"{subject}: expected a file in the folder of the model, got {readable(location)!r}"
            )
        path = self.folder
        for part in parts:
            path = path / part
            if path.is_symlink():
                raise FormatError(f"{subject}: {readable(location)!r} is a symbolic link")
        try:
            found = self._open[location] = file_content(path, self._limits, links=False)
        except OSError as error:
            error.add_note(f"{subject}: its elements are in that file, beside the model")
            raise
        if isinstance(found.obj, bytes):
            self._bytes += len(found)
            self._limits.check("file_bytes", self._bytes, f"{self.folder}: all external data")
        return found


def _number(text: str, what: str, subject: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise FormatError(f"{subject}: {what}: expected a number, got {readable(text)!r}")
    return int(text)


def to_array(tensor: Tensor, external: ExternalData, subject: str) -> NDArray[Any]:
    """The elements of a tensor; strings as an array of objects.

    Raises:
        FormatError: they do not have the size that the shape says, or are not there.
        MissingExtraError: the data type is one of ml_dtypes, which is not installed.
    """
    name = dtype_of(tensor.data_type, subject)
    dims = [int(dim) for dim in tensor.dims]
    if min(dims, default=0) < 0 or len(dims) > _MOST_RANK:
        raise FormatError(f"{subject}: expected a shape, got {dims}")
    count = math.prod(dims)
    if name == "str":
        if len(tensor.string_data) != count:
            raise _wrong_count(subject, count, len(tensor.string_data))
        try:
            texts = [str(text, "utf-8") for text in tensor.string_data]
        except UnicodeDecodeError:
            raise FormatError(f"{subject}: a string is not UTF-8") from None
        found = np.empty(count, object)
        found[:] = texts
        return found.reshape(dims)
    dtype = as_dtype(name)
    if tensor.data_location == 1:
        data = external.read(tensor, subject)
        return _from_bytes(data, name, dtype, count, subject).reshape(dims)
    if tensor.has("raw_data"):
        return _from_bytes(tensor.raw_data, name, dtype, count, subject).reshape(dims)
    values: NDArray[Any] = getattr(tensor, _FIELDS.get(name, "int32_data"))
    if name in _PACKED:
        return _from_bytes(
            values.astype(np.uint8).data, name, dtype, count, subject
        ).reshape(dims)
    if name.startswith("complex"):
        values = np.ascontiguousarray(values).view(dtype)
    elif dtype.itemsize < 4 and dtype.kind not in "biu":
        values = values.astype(f"u{dtype.itemsize}").view(dtype)  # the bits of the floats
    else:
        values = values.astype(dtype, copy=False)
    if values.size != count:
        raise _wrong_count(subject, count, values.size)
    return values.reshape(dims)


def _from_bytes(
    data: memoryview, name: str, dtype: np.dtype[Any], count: int, subject: str
) -> NDArray[Any]:
    per_byte = _PACKED.get(name)
    size = -(-count // per_byte) if per_byte else count * dtype.itemsize
    if len(data) != size:
        raise FormatError(f"{subject}: expected {size} bytes for {count} {name}, got {len(data)}")
    if per_byte is None:
        if name == "bool":
            return np.frombuffer(data, np.uint8).astype(np.bool_)
        little = dtype.newbyteorder("<") if dtype.isbuiltin == 1 else dtype
        return np.asarray(np.frombuffer(data, little), dtype)
    bits = 8 // per_byte
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (np.frombuffer(data, np.uint8)[:, None] >> shifts) & np.uint8((1 << bits) - 1)
    parts = parts.reshape(-1)[:count]
    if name.startswith("float4"):
        return parts.view(dtype)
    if name.startswith("int"):
        sign = np.int8(1 << (bits - 1))
        return ((parts.astype(np.int8) ^ sign) - sign).astype(dtype)
    return parts.astype(dtype)


def _wrong_count(subject: str, expected: int, got: int) -> FormatError:
    return FormatError(f"{subject}: expected {expected} elements, got {got}")


_MOST_DENSE: Final = 1 << 28
"""The most elements of a sparse tensor that is made dense."""


def to_dense(sparse: SparseTensor, external: ExternalData, subject: str) -> NDArray[Any]:
    """All elements of a sparse tensor.

    Raises:
        FormatError: values or indices are missing, or an index is out of range.
    """
    if sparse.values is None or sparse.indices is None:
        raise FormatError(f"{subject}: expected values and indices")
    values = to_array(sparse.values, external, f"{subject}: values")
    indices = to_array(sparse.indices, external, f"{subject}: indices")
    dims = [int(dim) for dim in sparse.dims]
    count = math.prod(dims)
    if min(dims, default=0) < 0 or count > _MOST_DENSE or indices.dtype != np.int64:
        raise FormatError(f"{subject}: expected a shape and int64 indices, got {dims}")
    if indices.ndim == 2:
        if indices.shape[1] != len(dims) or ((indices < 0) | (indices >= dims)).any():
            raise FormatError(f"{subject}: indices are out of range")
        indices = np.ravel_multi_index(tuple(indices.T), tuple(dims))
    if indices.shape != values.shape or ((indices < 0) | (indices >= count)).any():
        raise FormatError(f"{subject}: indices do not fit")
    dense = np.zeros(count, values.dtype)
    dense[indices] = values
    return dense.reshape(dims)
