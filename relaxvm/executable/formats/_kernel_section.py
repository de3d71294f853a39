"""The kernel section: compiled code by name, see `relaxvm.native.export`.  None of it is run here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...errors import FormatError
from ..executable import StoredKernels
from ._fields import U64, Reader, Writer

__all__ = ["load", "save"]

_LEAST_PART: Final = 2 * U64.size


def save(to: Writer, parts: Mapping[str, bytes]) -> None:
    to.put(U64.pack(len(parts)))
    for name, data in parts.items():
        to.name(name, "part")
        to.put(U64.pack(len(data)) + data)


def load(read: Reader) -> StoredKernels:
    parts: dict[str, bytes] = {}
    for _ in read.entries("kernel section, part", read.count(_LEAST_PART)):
        name = read.name_of(read.count(1))
        if name in parts:
            raise FormatError(f"two parts are called {name!r}")
        parts[name] = bytes(read.stream.take(read.count(1)))
    return StoredKernels(parts, read.name)
