"""The section of values: the constants of data types, see `relaxvm.executable.flat_values`.

In the stream, the pool has the name of the constructor in the place of each of them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ...errors import FormatError
from ...messages import readable
from ...values import is_adt
from ..flat_values import FlatValues, rebuilt
from ._constants import load_constant, save_constant
from ._fields import I64, U64, Reader, Writer

__all__ = ["load", "save"]

_I32: Final = struct.Struct("<i")
_I32_BOOL: Final = struct.Struct("<iB")
_NONE: Final = 0
_BOOL: Final = 2
"""Types of constants that only parts of values have: type indices of TVM's FFI."""
_LEAST_LEAF: Final = _I32.size
_MOST_TAG: Final = 2**31 - 1


def save(to: Writer, values: Mapping[int, Any]) -> None:
    flat = FlatValues()
    try:
        roots = {index: flat.add(value) for index, value in sorted(values.items())}
    except TypeError as error:
        raise FormatError(str(error)) from None
    to.put(U64.pack(len(flat.constructors)))
    for name, tag in flat.constructors:
        to.string(name, "name of a constructor")
        to.put(I64.pack(tag))
    to.put(U64.pack(len(flat.leaves)))
    for leaf in flat.leaves:
        _save_leaf(to, leaf)
    words = np.array(flat.words(), np.int64)
    to.put(U64.pack(len(words)))
    to.array(words)
    to.put(U64.pack(len(roots)))
    for index, row in roots.items():
        to.put(I64.pack(index) + I64.pack(row))


def load(read: Reader) -> dict[int, Any]:
    constructors = []
    count = read.count(2 * U64.size)
    read.within("data_parts", count, "constructors")
    for _ in read.entries("section of values, constructor", count):
        name = read.string(read.count(1))
        (tag,) = read.unpack(I64)
        if not 0 <= tag <= _MOST_TAG:
            raise FormatError(f"constructor {readable(name)}: expected a tag, got {tag}")
        constructors.append((name, tag))
    count = read.count(_LEAST_LEAF)
    read.within("data_parts", count, "parts of constants")
    leaves = [_load_leaf(read) for _ in read.entries("section of values, leaf", count)]
    read.section = "section of values"
    words = read.stream.words(read.count(I64.size)).tolist()
    rows = rebuilt(
        constructors, leaves, words, lambda n: read.within("data_parts", n, "parts of constants")
    )
    values: dict[int, Any] = {}
    flat = FlatValues()
    last = -1
    for _ in read.entries("section of values, constant", read.count(2 * I64.size)):
        index, row = read.integers(2)
        if index <= last:
            raise FormatError(f"constant {index}: expected it before constant {last}")
        if not 0 <= row < len(rows) or not is_adt(rows[row]):
            raise FormatError(f"constant {index}: row {row} is not a value of a data type")
        last = index
        values[index] = rows[row]
        if flat.add(rows[row]) != row:
            raise FormatError(f"constant {index}: its rows are not in their order")
    read.section = "section of values"
    if not values:
        raise FormatError("expected at least one constant")
    if [*flat.constructors] != constructors or flat.words().tolist() != words:
        raise FormatError("its rows are not in their order, or not all used, or two are equal")
    return values


def _save_leaf(to: Writer, leaf: Any) -> None:
    if leaf is None:
        to.put(_I32.pack(_NONE))
    elif type(leaf) is bool:
        to.put(_I32_BOOL.pack(_BOOL, leaf))
    else:
        save_constant(to, leaf)


def _load_leaf(read: Reader) -> Any:
    kind = _I32.unpack(read.stream.peek(_I32.size).ljust(_I32.size, b"\0"))[0]
    if kind == _NONE:
        read.unpack(_I32)
        return None
    if kind == _BOOL:
        _, value = read.unpack(_I32_BOOL)
        if value > 1:
            raise FormatError(f"expected a bool of 0 or 1, got {value}")
        return bool(value)
    leaf = load_constant(read)
    if leaf is None:
        raise FormatError("expected a dtype, got none")
    return leaf
