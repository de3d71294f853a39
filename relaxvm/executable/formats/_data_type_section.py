"""The section of data types: their definitions, and the types of the functions that use them.

Types are in the form of `relaxvm.field_types`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import FormatError
from ...messages import readable
from ._fields import U64, Reader, Writer

if TYPE_CHECKING:
    from ...adt import DataTypes
    from ...field_types import FieldType

__all__ = ["load", "save"]


def save(to: Writer, data_types: DataTypes) -> None:
    to.put(U64.pack(len(data_types.types)))
    for data in data_types.types.values():
        to.name(data.name, "name of a data type")
        to.put(U64.pack(len(data.params)))
        for param in data.params:
            to.name(param, "name of a type parameter")
        to.put(U64.pack(len(data.constructors)))
        for name, constructor in data.constructors.items():
            to.name(name, "name of a constructor")
            to.put(U64.pack(len(constructor.fields)))
            for ty in constructor.fields:
                _save_type(to, ty)
    to.put(U64.pack(len(data_types.signatures)))
    for name, signature in data_types.signatures.items():
        to.name(name, "name of a function")
        _save_type(to, signature)


def load(read: Reader) -> DataTypes:
    from ...adt import DataType, DataTypes  # here, since most programs have no data types

    parts = _Parts(read)
    types = []
    for _ in read.entries("section of data types, type", parts.count(3, "types")):
        name = _name(read)
        params = [_name(read) for _ in range(parts.count(1, "type parameters"))]
        constructors: dict[str, list[FieldType]] = {}
        for _ in range(parts.count(2, "constructors")):
            key = _name(read)
            if key in constructors:
                raise FormatError(f"there are two constructors {readable(key)!r}")
            constructors[key] = [parts.type() for _ in range(parts.count(1, "fields"))]
        types.append(DataType(name, params, constructors))
    signatures = {}
    count = parts.count(2, "signatures")
    for _ in read.entries("section of data types, signature", count):
        name = _name(read)
        if name in signatures:
            raise FormatError(f"there are two signatures of {readable(name)!r}")
        signatures[name] = parts.type()
    found = DataTypes(types, signatures)  # type: ignore[arg-type]  # refuses other types
    if not found:
        raise FormatError("expected at least one data type")
    return found


def _save_type(to: Writer, ty: FieldType) -> None:
    to.string(str(ty), "type")


def _name(read: Reader) -> str:
    return read.name_of(read.count(1))


class _Parts:
    """Reads counts and types, and counts the parts of definitions against `Limits`."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._found = 0
        self._known: dict[str, FieldType] = {}

    def _add(self, count: int) -> None:
        self._found += count
        self._read.within("data_parts", self._found, "parts of data types")

    def count(self, least: int, what: str) -> int:
        """Read a number of entries that have at least `least` strings or counts each."""
        count = self._read.count(least * U64.size)
        self._add(count)
        return count

    def type(self) -> FieldType:
        """Read a type; equal ones are one object."""
        from ...field_types import parse

        text = self._read.string(self._read.count(1))
        found = self._known.get(text)
        if found is None:
            # A bound of the parts, so that the type is small before it is made.
            self._add(text.count(",") + text.count("(") + text.count("["))
            found = self._known[text] = parse(text)
        return found
