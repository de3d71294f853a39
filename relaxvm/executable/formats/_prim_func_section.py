"""The PrimFunc section: the IR of the program's kernels, as JSON of `relaxvm.ir.save_json`.

Here it is only text; `SavedPrimFuncs` makes kernels of it when they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...errors import FormatError
from ..prim_funcs import SavedPrimFuncs
from ._fields import U64, Reader, Writer

__all__ = ["load", "save"]

_LEAST: Final = 2 * U64.size


def save(to: Writer, texts: Mapping[str, str]) -> None:
    to.put(U64.pack(len(texts)))
    for name, text in texts.items():
        to.name(name, "name of a PrimFunc")
        to.string(text, f"IR of PrimFunc {name!r}")


def load(read: Reader) -> SavedPrimFuncs:
    texts: dict[str, str] = {}
    offsets: dict[str, int] = {}
    for _ in read.entries("PrimFunc section, function", read.count(_LEAST, "functions")):
        name = read.name_of(read.count(1))
        if name in texts:
            raise FormatError(f"there are two PrimFuncs {name!r}")
        size = read.count(1)
        offsets[name] = read.stream.position
        texts[name] = read.string(size)
    if not texts:
        raise FormatError("expected at least one PrimFunc")
    return SavedPrimFuncs(texts, read.name, offsets, read.limits)
