"""Tensors in requests and responses of the Open Inference Protocol, version 2.

A request is JSON, in which a tensor has its elements as numbers or strings, in row-major order.
With the binary extension the elements of some tensors follow the JSON as bytes, in the same order,
and a header says how long the JSON is.

Source: the Open Inference Protocol's specification of KServe, "Predict Protocol - Version 2", and
Triton's extensions "binary tensor data" and "classification".
"""

from __future__ import annotations

import functools
import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dtypes import as_dtype
from ..messages import readable

__all__ = [
    "HEADER_LENGTH",
    "Request",
    "RequestError",
    "Wanted",
    "datatype_of",
    "dtype_of",
    "encode",
    "parse",
    "parse_response",
]

HEADER_LENGTH: Final = "inference-header-content-length"
"""The HTTP header with the bytes of the JSON in front of binary tensors."""
_MAX_RANK: Final = 64
_MAX_ELEMENTS: Final = 1 << 59

_DTYPES: Final = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16",
    "FP32": "float32", "FP64": "float64", "BF16": "bfloat16", "BYTES": "object",
}  # fmt: skip
_DATATYPES: Final = {name: datatype for datatype, name in _DTYPES.items()}


class RequestError(ValueError):
    """A request is wrong: what is wrong, for the client."""


class Wanted(NamedTuple):
    """An output that a request asks for.

    Attributes:
        name: its name.
        binary: whether its elements come as bytes.
        classes: how many of the largest elements are wanted, with their indices, instead of all;
            0 for all.
    """

    name: str
    binary: bool
    classes: int = 0


class Request(NamedTuple):
    """What a request asks for.

    Attributes:
        id: the client's name for it, or None.
        inputs: the tensors by name.
        outputs: those that are wanted; None for all.
        binary: whether outputs that say nothing of it come as bytes.
        parameters: of the request.
    """

    id: str | None
    inputs: dict[str, NDArray[Any]]
    outputs: tuple[Wanted, ...] | None
    binary: bool
    parameters: dict[str, Any]


@functools.cache
def dtype_of(datatype: str) -> np.dtype[Any]:
    """The data type of a name of the protocol.

    Raises:
        RequestError: there is none.
        MissingExtraError: BF16 without ml_dtypes.
    """
    name = _DTYPES.get(datatype)
    if name is None:
        raise RequestError(f"unknown datatype {readable(datatype)}; expected one of "
                           f"{', '.join(_DTYPES)}")  # fmt: skip
    return np.dtype(object) if name == "object" else as_dtype(name)


def datatype_of(dtype: np.dtype[Any]) -> str | None:
    """The protocol's name of a data type; None if it has none."""
    return "BYTES" if dtype.kind in "OUST" else _DATATYPES.get(dtype.name)


# Requests


def parse(body: bytes | memoryview, header_length: int | None = None) -> Request:
    """Read a request.

    Args:
        body: the request's body.
        header_length: the bytes of the JSON; None for all.

    Raises:
        RequestError: it is malformed; the message says where.
    """
    view = memoryview(body)
    if header_length is None:
        header_length = len(view)
    if not 0 <= header_length <= len(view):
        raise RequestError(f"{HEADER_LENGTH}: expected at most the {len(view)} bytes of the body, "
                           f"got {header_length}")  # fmt: skip
    try:
        data = json.loads(bytes(view[:header_length]))
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the request is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise RequestError("the request: expected a JSON object")
    rest = view[header_length:]
    inputs: dict[str, NDArray[Any]] = {}
    for number, item in enumerate(_list(data, "inputs", "the request")):
        name = _name(item, f"inputs[{number}]")
        if name in inputs:
            raise RequestError(f"input {readable(name)} is there twice")
        inputs[name], rest = _tensor(item, f"input {readable(name)}", rest)
    if len(rest):
        raise RequestError(f"{len(rest)} bytes follow the binary data of the inputs")
    parameters = _parameters(data, "the request")
    binary = _flag(parameters, "binary_data_output", "the request")
    outputs = None
    if data.get("outputs") is not None:
        outputs = tuple([
            _wanted(item, f"outputs[{number}]", binary)
            for number, item in enumerate(_list(data, "outputs", "the request"))
        ])  # fmt: skip
    number_or_text = data.get("id")
    if number_or_text is not None and not isinstance(number_or_text, str):
        raise RequestError("id: expected a string")
    return Request(number_or_text, inputs, outputs, binary, parameters)


def _tensor(
    item: Mapping[str, Any], subject: str, rest: memoryview
) -> tuple[NDArray[Any], memoryview]:
    """A tensor, and the bytes after its own."""
    shape = item.get("shape")
    if (
        not isinstance(shape, list) or len(shape) > _MAX_RANK
        or not all(type(dim) is int and 0 <= dim < 1 << 62 for dim in shape)
    ):  # fmt: skip
        raise RequestError(f"{subject}: shape: expected a list of numbers >= 0")
    if 0 in shape and math.prod(dim or 1 for dim in shape) >= _MAX_ELEMENTS:  # numpy refuses it
        raise RequestError(f"{subject}: shape: {shape} is too large")
    datatype = item.get("datatype")
    if not isinstance(datatype, str):
        raise RequestError(f"{subject}: datatype: expected a string")
    dtype = dtype_of(datatype)
    parameters = _parameters(item, subject)
    if "shared_memory_region" in parameters:
        raise RequestError(f"{subject}: shared memory is not supported")
    size = parameters.get("binary_data_size")
    if size is None:
        return _from_json(item.get("data"), shape, dtype, subject), rest
    if type(size) is not int or size < 0:
        raise RequestError(f"{subject}: binary_data_size: expected a number >= 0")
    if "data" in item:
        raise RequestError(f"{subject}: expected data or binary_data_size, got both")
    if size > len(rest):
        raise RequestError(f"{subject}: binary_data_size is {size}, and {len(rest)} bytes are left")
    return _from_bytes(rest[:size], shape, dtype, subject), rest[size:]


def _from_bytes(
    data: memoryview, shape: Sequence[int], dtype: np.dtype[Any], subject: str
) -> NDArray[Any]:
    count = math.prod(shape)
    if dtype.kind == "O":
        return _strings(_split(data, count, subject), shape)
    if len(data) != count * dtype.itemsize:
        raise RequestError(f"{subject}: expected {count * dtype.itemsize} bytes for the shape "
                           f"{list(shape)}, got {len(data)}")  # fmt: skip
    array = np.frombuffer(data, np.uint8)
    if array.ctypes.data % dtype.alignment:
        array = array.copy()
    if dtype.kind == "b" and array.size and array.max() > 1:
        raise RequestError(f"{subject}: a BOOL is neither 0 nor 1")
    return array.view(dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(shape)


def _split(data: memoryview, count: int, subject: str) -> list[str]:
    """The strings of a binary tensor, each with its length in front."""
    found: list[str] = []
    place = 0
    while place < len(data) and len(found) < count:
        if place + 4 > len(data):
            break
        (size,) = struct.unpack_from("<I", data, place)
        place += 4
        if size > len(data) - place:
            break
        found.append(_text(bytes(data[place : place + size]), subject))
        place += size
    if len(found) != count or place != len(data):
        raise RequestError(f"{subject}: the bytes are not {count} strings with their lengths")
    return found


def _text(data: bytes, subject: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RequestError(f"{subject}: a string is not UTF-8: {error}") from None


def _strings(values: Sequence[str], shape: Sequence[int]) -> NDArray[Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


def _from_json(
    data: Any, shape: Sequence[int], dtype: np.dtype[Any], subject: str
) -> NDArray[Any]:
    if not isinstance(data, list):
        raise RequestError(f"{subject}: data: expected a list of its elements")
    count = math.prod(shape)
    values = _flat(data, shape, subject)
    if len(values) != count:
        raise RequestError(f"{subject}: expected {count} elements for the shape {list(shape)}, "
                           f"got {len(values)}")  # fmt: skip
    kind = "float" if dtype.kind not in "Oiub" else dtype.kind
    allowed = _JSON_TYPES[kind]
    for value in values:
        if type(value) not in allowed:
            shown = readable(repr(value))
            raise RequestError(f"{subject}: expected {_JSON_NAMES[kind]}, got {shown}")
    if kind == "O":
        return _strings(values, shape)
    if kind in "iu" and values:
        limits = np.iinfo(dtype)
        if min(values) < limits.min or max(values) > limits.max:
            raise RequestError(f"{subject}: an element does not fit {dtype.name}")
    try:
        # Over float64, so that numbers out of range become infinite, without a warning.
        with np.errstate(over="ignore"):
            wide = np.array(values, dtype if kind != "float" else np.float64)
            return wide.astype(dtype).reshape(shape)
    except OverflowError:
        raise RequestError(f"{subject}: an element is too large") from None


_JSON_TYPES: Final[Mapping[str, set[type]]] = {
    "O": {str}, "b": {bool}, "i": {int}, "u": {int}, "float": {int, float},
}  # fmt: skip
_JSON_NAMES: Final = {
    "O": "strings", "b": "true and false", "i": "integers", "u": "integers", "float": "numbers",
}  # fmt: skip


def _flat(data: list[Any], shape: Sequence[int], subject: str) -> list[Any]:
    """The elements of nested lists, which may also be flat; of each depth alike."""
    depth = 0
    while data and isinstance(data[0], list) and depth < max(len(shape) - 1, 0):
        if not all(isinstance(each, list) and len(each) == len(data[0]) for each in data):
            raise RequestError(f"{subject}: data: the nested lists have different lengths")
        data = [item for each in data for item in each]
        depth += 1
    return data


def parse_response(body: bytes, header_length: int | None = None) -> dict[str, NDArray[Any]]:
    """The outputs of a response by name.

    Raises:
        RequestError: it is malformed.
    """
    view = memoryview(body)
    count = len(view) if header_length is None else header_length
    data = json.loads(bytes(view[:count]))
    rest = view[count:]
    found = {}
    for number, item in enumerate(_list(data, "outputs", "the response")):
        name = _name(item, f"outputs[{number}]")
        found[name], rest = _tensor(item, f"output {readable(name)}", rest)
    return found


# Parts of JSON


def _list(data: Mapping[str, Any], key: str, subject: str) -> list[Mapping[str, Any]]:
    value = data.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise RequestError(f"{subject}: {key}: expected a list of objects")
    return value


def _name(item: Mapping[str, Any], subject: str) -> str:
    name = item.get("name")
    if not isinstance(name, str):
        raise RequestError(f"{subject}: name: expected a string")
    return name


def _parameters(item: Mapping[str, Any], subject: str) -> dict[str, Any]:
    parameters = item.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise RequestError(f"{subject}: parameters: expected an object")
    return parameters


def _flag(parameters: Mapping[str, Any], key: str, subject: str, default: bool = False) -> bool:
    value = parameters.get(key, default)
    if not isinstance(value, bool):
        raise RequestError(f"{subject}: {key}: expected true or false")
    return value


def _wanted(item: Mapping[str, Any], subject: str, binary: bool) -> Wanted:
    name = _name(item, subject)
    parameters = _parameters(item, subject)
    if "shared_memory_region" in parameters:
        raise RequestError(f"output {readable(name)}: shared memory is not supported")
    classes = parameters.get("classification", 0)
    if type(classes) is not int or classes < 0:
        raise RequestError(f"output {readable(name)}: classification: expected a number >= 0")
    return Wanted(name, _flag(parameters, "binary_data", subject, binary), classes)


# Responses


def encode(
    head: Mapping[str, Any], tensors: Iterable[tuple[Wanted, NDArray[Any]]], key: str = "outputs"
) -> tuple[list[bytes | memoryview], int | None]:
    """A response; or a request, whose key is ``inputs``.

    Args:
        head: what it says beside its tensors.
        tensors: in their order.
        key: of the tensors.

    Returns:
        The parts of the body, and the bytes of the JSON if binary data follows, else None.

    Raises:
        RequestError: an output has no type of the protocol.
    """
    described = []
    binary: list[bytes | memoryview] = []
    for wanted, array in tensors:
        if wanted.classes:
            array = _classes(array, wanted.classes)
        datatype = datatype_of(array.dtype)
        if datatype is None:
            raise RequestError(f"output {readable(wanted.name)}: {array.dtype} has no datatype in "
                               f"the protocol")  # fmt: skip
        item: dict[str, Any] = {
            "name": wanted.name, "datatype": datatype, "shape": list(array.shape),
        }  # fmt: skip
        if wanted.binary:
            data = _to_bytes(array, datatype)
            item["parameters"] = {"binary_data_size": len(data)}
            binary.append(data)
        else:
            item["data"] = _to_json(array, datatype, wanted.name)
        described.append(item)
    text = json.dumps({**head, key: described}, separators=(",", ":")).encode()
    return [text, *binary], len(text) if binary else None


def _to_bytes(array: NDArray[Any], datatype: str) -> bytes | memoryview:
    if datatype == "BYTES":
        texts = [str(value).encode() for value in array.reshape(-1)]
        return b"".join([struct.pack("<I", len(text)) + text for text in texts])
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return array.reshape(-1).view(np.uint8).data


def _to_json(array: NDArray[Any], datatype: str, name: str) -> list[Any]:
    flat = array.reshape(-1)
    if datatype == "BYTES":
        return [str(value) for value in flat]
    if datatype in ("FP16", "BF16", "FP32", "FP64") and not np.isfinite(flat).all():
        raise RequestError(f"output {readable(name)} has infinite values or NaN, which JSON cannot "
                           f"express; ask for binary data")  # fmt: skip
    if datatype == "BF16":
        flat = flat.astype(np.float32)
    values: list[Any] = flat.tolist()
    return values


def _classes(array: NDArray[Any], count: int) -> NDArray[Any]:
    """The largest elements along the last axis, as strings ``value:index``."""
    if array.ndim == 0:
        array = array.reshape(1)
    count = min(count, array.shape[-1])
    order = np.argsort(-array.astype(np.float64), axis=-1, kind="stable")[..., :count]
    values = np.take_along_axis(array, order, axis=-1)
    texts = [f"{float(v):f}:{i}" for v, i in zip(values.flat, order.flat, strict=True)]
    return _strings(texts, order.shape)
