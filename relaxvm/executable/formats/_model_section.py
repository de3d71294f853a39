"""The section of the model: what it says of itself, see `relaxvm.executable.model_info`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...errors import FormatError
from ..model_info import ModelInfo, ValueInfo
from ._fields import I64, U64, Reader, Writer

__all__ = ["load", "save"]

_UNKNOWN: Final = -1
"""The number of dimensions that is not known, and a dimension that has a name or is not known."""
_NO_VERSION: Final = -(1 << 63)
_LEAST_VALUE: Final = 2 * U64.size + I64.size
_LEAST_PAIR: Final = 2 * U64.size


def save(to: Writer, model: ModelInfo) -> None:
    for name, text in model.texts:
        to.string(text, name)
    to.put(I64.pack(_NO_VERSION if model.version is None else model.version))
    to.put(U64.pack(len(model.metadata)))
    for key, value in model.metadata:
        to.string(key, "key of metadata")
        to.string(value, "metadata")
    to.put(U64.pack(len(model.files)))
    for file in model.files:
        to.string(file, "name of a file")
    for values in (model.inputs, model.outputs, model.constants):
        to.put(U64.pack(len(values)))
        for each in values:
            _save_value(to, each)


def load(read: Reader) -> ModelInfo:
    texts = {name: _text(read) for name, _ in ModelInfo().texts}
    (number,) = read.unpack(I64)
    version = None if number == _NO_VERSION else int(number)
    count = read.count(_LEAST_PAIR, "data_parts")
    metadata = tuple([(_text(read), _text(read)) for _ in range(count)])
    files = tuple([_text(read) for _ in range(read.count(U64.size, "data_parts"))])
    inputs, outputs, constants = [tuple(_values(read, what)) for what in _KINDS]
    return ModelInfo(
        **texts, version=version, metadata=metadata, inputs=inputs, outputs=outputs,
        constants=constants, files=files,
    )  # fmt: skip


_KINDS: Final = ("input", "output", "constant")


def _save_value(to: Writer, value: ValueInfo) -> None:
    to.name(value.name, "name of an input or output")
    to.name(value.type, "type of an input or output")
    to.put(I64.pack(_UNKNOWN if value.dims is None else len(value.dims)))
    for dim in value.dims or ():
        if isinstance(dim, int):
            if dim < 0:
                raise FormatError(f"{value.name}: expected dimensions of at least 0, got {dim}")
            to.put(I64.pack(dim))
        else:
            to.put(I64.pack(_UNKNOWN))
            to.name(dim or "", "name of a dimension")


def _values(read: Reader, what: str) -> Iterable[ValueInfo]:
    count = read.count(_LEAST_VALUE, "data_parts")
    for _ in read.entries(f"section of the model, {what}", count):
        name, kind = read.name_of(read.count(1)), read.name_of(read.count(1))
        (rank,) = read.unpack(I64)
        if rank < _UNKNOWN:
            raise FormatError(f"expected a number of dimensions, got {rank}")
        read.fits(max(rank, 0), I64.size)
        read.within("shape_dims", rank, "dimensions")
        yield ValueInfo(name, kind, None if rank < 0 else tuple([_dim(read) for _ in range(rank)]))


def _dim(read: Reader) -> int | str | None:
    (dim,) = read.unpack(I64)
    if dim < _UNKNOWN:
        raise FormatError(f"expected a dimension, got {dim}")
    return read.name_of(read.count(1)) or None if dim == _UNKNOWN else int(dim)


def _text(read: Reader) -> str:
    return read.string(read.count(1))
