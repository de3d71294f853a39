"""AdapterFormat and LoraAdapter: values for inputs of a model, in a file.

A model with adapters declares their matrices as inputs with defaults; a run whose options have an
adapter takes those of its file instead.

The file is a FlatBuffer: offsets to tables, whose fields are found by a table of their places.

Source: ``AdapterFormat`` and ``LoraAdapter`` of onnxruntime 1.32, and its ``adapter_schema.fbs``.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .element_types import dtype_of_code, element_of, element_type, type_of_dtype
from .values import OrtValue

__all__ = ["AdapterFormat", "LoraAdapter", "parameters_of"]

_IDENTIFIER: Final = b"TORT"
_FORMAT: Final = 1
_ALIGNMENT: Final = 8
_VERSIONS: Final = ("format_version", "adapter_version", "model_version")
_PARAMETERS: Final = 3
"""The field of the table of an adapter that follows its versions."""
_NAME, _DIMS, _TYPE, _DATA = range(4)
"""The fields of the table of a parameter."""
_NOT_VALID: Final = "The buffer does not appear to be a valid lora parameter format"


class AdapterFormat:
    """An adapter as a program writes and reads it.

    Args:
        adapter: another one, whose versions and parameters it takes.
    """

    def __init__(self, adapter: Any = None) -> None:
        self._versions = dict.fromkeys(_VERSIONS, 0)
        self._parameters: dict[str, OrtValue] = {}
        if adapter is not None:
            self._versions.update(adapter._versions)
            self._parameters.update(adapter._parameters)

    @staticmethod
    def read_adapter(file_path: str | os.PathLike[str]) -> AdapterFormat:
        """Read a file.

        Raises:
            RuntimeError: it cannot be read, or is none of an adapter.
        """
        data = _content(file_path)
        try:
            versions, arrays = _read(data)
        except (struct.error, IndexError, ValueError, OverflowError) as error:
            raise RuntimeError(f"{os.fspath(file_path)}: {_NOT_VALID}: {error}") from None
        found = AdapterFormat()
        found._versions.update(versions)
        found._parameters = {name: OrtValue(array) for name, array in arrays.items()}
        return found

    def export_adapter(self, file_path: str | os.PathLike[str]) -> None:
        """Write a file.

        Raises:
            OSError: it cannot be written.
            RuntimeError: a parameter is no tensor of numbers.
        """
        data = _written(self._versions, self._parameters)
        with open(file_path, "wb") as file:
            file.write(data)

    def get_format_version(self) -> int:
        """The version of the format that the file had; 0 for none."""
        return self._versions["format_version"]

    def set_adapter_version(self, adapter_version: int) -> None:
        """Set the version of the adapter."""
        self._versions["adapter_version"] = _int32(adapter_version)

    def get_adapter_version(self) -> int:
        """The version of the adapter."""
        return self._versions["adapter_version"]

    def set_model_version(self, model_version: int) -> None:
        """Set the version of the model that the adapter is for."""
        self._versions["model_version"] = _int32(model_version)

    def get_model_version(self) -> int:
        """The version of the model that the adapter is for."""
        return self._versions["model_version"]

    def set_parameters(self, params: Mapping[str, OrtValue]) -> None:
        """Set the values, by the names of the model's inputs.

        Raises:
            TypeError: one is no `OrtValue`.
        """
        for name, value in params.items():
            if not isinstance(value, OrtValue):
                raise TypeError(f"set_parameters: {name}: expected an OrtValue, got {value!r}")
        self._parameters = dict(params)

    def get_parameters(self) -> dict[str, OrtValue]:
        """The values by name."""
        return dict(self._parameters)


class LoraAdapter:
    """An adapter for runs: ``adapter.Load(path)``, then ``run_options.add_active_adapter``."""

    def __init__(self) -> None:
        self._parameters: dict[str, OrtValue] = {}

    def Load(self, file_path: str) -> None:
        """Read a file.

        Raises:
            TypeError: the path is no text.
            RuntimeError: the file cannot be read, or is none of an adapter.
        """
        if not isinstance(file_path, str):
            raise TypeError(
                f"Load(): incompatible function arguments: expected a path, got {file_path!r}"
            )
        self._parameters = AdapterFormat.read_adapter(file_path)._parameters


def parameters_of(adapters: list[LoraAdapter]) -> dict[str, OrtValue]:
    """The values of adapters by name; those of the first one that has a name."""
    found: dict[str, OrtValue] = {}
    for adapter in adapters:
        for name, value in adapter._parameters.items():
            found.setdefault(name, value)
    return found


def _int32(number: Any) -> int:
    if not isinstance(number, int) or not -(1 << 31) <= number < 1 << 31:
        raise TypeError(f"incompatible function arguments: expected an int32, got {number!r}")
    return number


def _content(path: str | os.PathLike[str]) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise RuntimeError(f"{os.fspath(path)}: {error.strerror or error}") from None


# Reading


class _Table:
    """A table at a place of a FlatBuffer.  Whatever is outside of the data is an error."""

    def __init__(self, data: bytes, place: int) -> None:
        self.data = data
        self.place = place
        self._fields = place - _number(data, "<i", place)
        self._size = _number(data, "<H", self._fields)

    def _at(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return None
        offset = _number(self.data, "<H", self._fields + entry)
        return self.place + offset if offset else None

    def int32(self, field: int) -> int:
        place = self._at(field)
        return 0 if place is None else _number(self.data, "<i", place)

    def vector(self, field: int, item: int) -> tuple[int, int] | None:
        """The place and the length of a vector of items of some bytes."""
        place = self._at(field)
        if place is None:
            return None
        start = place + _number(self.data, "<I", place)
        length = _number(self.data, "<I", start)
        if length * item > len(self.data) - start - 4:
            raise ValueError(f"expected {length} elements, the file ends before")
        return start + 4, length

    def array(self, field: int, dtype: str) -> NDArray[Any]:
        found = self.vector(field, np.dtype(dtype).itemsize)
        start, length = found or (0, 0)
        return np.frombuffer(self.data, dtype, length, start) if length else np.empty(0, dtype)


def _number(data: bytes, form: str, place: int) -> int:
    if place < 0:
        raise ValueError(f"expected a place in the file, got {place}")
    found: int = struct.unpack_from(form, data, place)[0]
    return found


def _read(data: bytes) -> tuple[dict[str, int], dict[str, NDArray[Any]]]:
    """The versions and the parameters of an adapter.

    Raises:
        ValueError, IndexError, OverflowError, struct.error: the data are not valid.
    """
    if data[4:8] != _IDENTIFIER:
        raise ValueError("it does not have the mark of an adapter")
    top = _Table(data, _number(data, "<I", 0))
    versions = {name: top.int32(i) for i, name in enumerate(_VERSIONS)}
    if versions["format_version"] != _FORMAT:
        raise ValueError(f"expected version {_FORMAT}, got {versions['format_version']}")
    arrays = {}
    start, count = top.vector(_PARAMETERS, 4) or (0, 0)
    for place in range(start, start + 4 * count, 4):
        entry = _Table(data, place + _number(data, "<I", place))
        name = str(entry.array(_NAME, "u1").tobytes(), "utf-8")
        dims = entry.array(_DIMS, "<i8").tolist()
        dtype = dtype_of_code(entry.int32(_TYPE))
        elements = entry.array(_DATA, "u1")
        if dtype.hasobject or any(dim < 0 for dim in dims):
            raise ValueError(f"{name}: expected a tensor of numbers")
        array = elements.view(dtype).reshape(dims)
        if array.nbytes != len(elements):
            raise ValueError(f"{name}: expected {array.nbytes} bytes, got {len(elements)}")
        arrays[name] = array
    return versions, arrays


# Writing


class _Writer:
    """A FlatBuffer that is written from its start: what a table points to comes after it."""

    def __init__(self) -> None:
        self.data = bytearray()

    def align(self, to: int, behind: int = 0) -> None:
        """Fill up, so that the place after some more bytes is a multiple of a number."""
        self.data += bytes(-(len(self.data) + behind) % to)

    def table(self, fields: int) -> int:
        """Write a table whose fields have four bytes each; return the place of the first one."""
        size = 4 + 2 * fields
        self.align(4, size)
        self.data += struct.pack("<HH", size, 4 + 4 * fields)
        self.data += struct.pack(f"<{fields}H", *(4 + 4 * i for i in range(fields)))
        self.data += struct.pack("<i", size)
        self.data += bytes(4 * fields)
        return len(self.data) - 4 * fields

    def put(self, place: int, number: int) -> None:
        struct.pack_into("<i", self.data, place, number)

    def point(self, place: int, to: int | None = None) -> None:
        """Let an offset lead to a place; by default to what is written next."""
        target = len(self.data) if to is None else to
        struct.pack_into("<I", self.data, place, target - place)

    def vector(self, place: int, length: int, content: bytes, alignment: int) -> None:
        self.align(max(4, alignment), 4)
        self.point(place)
        self.data += struct.pack("<I", length) + content


def _written(versions: Mapping[str, int], parameters: Mapping[str, OrtValue]) -> bytes:
    out = _Writer()
    out.data += bytes(4) + _IDENTIFIER
    top = out.table(_PARAMETERS + 1)
    out.point(0, top - 4)
    for i, name in enumerate(_VERSIONS):
        out.put(top + 4 * i, versions[name])
    out.put(top, _FORMAT)
    out.vector(top + 4 * _PARAMETERS, len(parameters), bytes(4 * len(parameters)), 4)
    entry = len(out.data) - 4 * len(parameters)
    for name in sorted(parameters):
        array = parameters[name]._ort_payload
        if not isinstance(array, np.ndarray) or element_of(array.dtype) in (None, "string"):
            raise RuntimeError(f"{name}: expected a tensor of numbers")
        fields = out.table(_DATA + 1)
        out.point(entry, fields - 4)
        entry += 4
        out.put(fields + 4 * _TYPE, element_type(type_of_dtype(array.dtype) or ""))
        text = name.encode()
        out.vector(fields + 4 * _NAME, len(text), text + b"\0", 1)
        dims = struct.pack(f"<{array.ndim}q", *array.shape)
        out.vector(fields + 4 * _DIMS, array.ndim, dims, _ALIGNMENT)
        content = np.ascontiguousarray(array).tobytes()
        out.vector(fields + 4 * _DATA, len(content), content, _ALIGNMENT)
    out.align(_ALIGNMENT)
    return bytes(out.data)
