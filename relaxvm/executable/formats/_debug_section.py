"""The debug section: source locations of the instructions, see `DebugInfo`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ..debug_info import DebugInfo
from ._fields import U64, Reader, Writer, utf8

__all__ = ["load", "save"]


def save(to: Writer, debug: DebugInfo) -> None:
    for table in (debug.runs, debug.spans, debug.line_numbers):
        to.put(_table(table))
    for what, strings in (
        ("source file", debug.files),
        ("variable", debug.variables),
        ("line of source", debug.line_texts),
    ):
        _save_strings(to, strings, what)
    if len(debug.parts):
        to.put(_table(debug.parts))


def load(read: Reader) -> DebugInfo:
    runs = _load_table(read, 3, "instructions")
    spans = _load_table(read, 5)
    line_numbers = _load_table(read, 2)
    if not len(runs):
        raise FormatError("expected at least one location")
    files = _load_strings(read, int(spans[:, 0].max(initial=-1)) + 1, "name_bytes")
    variables = _load_strings(read, None, "name_bytes")
    texts = _load_strings(read, len(line_numbers))
    parts = np.empty((0, 3), np.int32)
    if read.left:
        parts = _load_table(read, 3, "instructions")
        if not len(parts):
            raise FormatError("expected at least one part of an operation")
    try:
        return DebugInfo(runs, spans, files, variables, line_numbers, texts, parts)
    except ValueError as error:
        raise FormatError(str(error)) from None


def _load_table(read: Reader, width: int, limit: str | None = None) -> NDArray[np.int32]:
    """Read rows of `width` i32."""
    size = 4 * width
    rows = bytes(read.stream.take(size * read.count(size, limit)))
    return np.frombuffer(rows, "<i4").reshape(-1, width)


def _table(rows: NDArray[np.int32]) -> bytes:
    return U64.pack(len(rows)) + rows.astype("<i4", copy=False).tobytes()


def _save_strings(to: Writer, strings: Sequence[str], what: str) -> None:
    """Write strings one after the other, each terminated by a NUL character."""
    for text in strings:
        if "\0" in text:
            raise FormatError(f"{what} {text!r}: contains a NUL character")
    data = b"".join([utf8(text, what) + b"\0" for text in strings])
    to.put(U64.pack(len(data)) + data)


def _load_strings(read: Reader, count: int | None, limit: str | None = None) -> list[str]:
    """Read `count` strings, or as many as there are."""
    at = read.stream.position
    text = read.string(read.count(1))
    if count is None:
        count = text.count("\0")
    if text.count("\0") != count or text[-1:] not in ("", "\0"):
        raise FormatError(f"strings at byte {at}: expected {count}, each ended by a NUL character")
    strings = text.split("\0")[:-1]
    if limit is not None:
        longest = max(map(len, map(str.encode, strings)), default=0)
        read.within(limit, longest, "bytes of a name")
    return strings
