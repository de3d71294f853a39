"""Fields of the binary form: how numbers, strings and arrays are written and read.

Everything is little endian, without padding; a string is a u64 count of bytes and that many bytes
of UTF-8.  `Reader` compares every length with the bytes that are left before memory is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...limits import Limits
from ._streams import BufferStream, FileStream, truncated
from ._tensors import flat_bytes, little_endian, on_disk

__all__ = ["I64", "U64", "Reader", "Writer", "utf8"]

U64: Final = struct.Struct("<Q")
I64: Final = struct.Struct("<q")

TINY: Final = 1 << 10
"""Arrays up to this many bytes are copied into the stream at once."""


class Writer:
    """Collects the stream as pieces: bytes, and arrays that are not copied.

    Args:
        base: the position in the file of what comes first.
    """

    def __init__(self, base: int = 0) -> None:
        self.pieces: list[bytes | NDArray[Any]] = []
        self.put = self.pieces.append
        self.place = ""
        self._base = base
        self._counted = 0

    @property
    def position(self) -> int:
        """The position in the file of what comes next."""
        for piece in self.pieces[self._counted :]:
            self._base += len(piece) if isinstance(piece, bytes) else piece.nbytes
        self._counted = len(self.pieces)
        return self._base

    def put_all(self, other: Writer) -> None:
        """Append what another one has collected."""
        self.pieces += other.pieces

    def string(self, text: str, what: str) -> None:
        data = utf8(text, what)
        self.put(U64.pack(len(data)) + data)

    def name(self, text: str, what: str) -> None:
        if "\0" in text:
            raise FormatError(f"{what} {text!r}: contains a NUL character")
        self.string(text, what)

    def array(self, array: NDArray[Any], before: bytes = b"") -> None:
        """Put the elements of an array after some bytes."""
        if array.nbytes < TINY:
            self.put(before + array.astype(on_disk(array.dtype), copy=False).tobytes())
        else:
            if before:
                self.put(before)
            self.put(array)

    def views(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the pieces."""
        for piece in self.pieces:
            yield flat_bytes(little_endian(piece)).data if isinstance(piece, np.ndarray) else piece


def utf8(text: str, what: str) -> bytes:
    """Return a text, named `what` in messages, as UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise FormatError(f"{what} {text!r}: has no UTF-8 form") from None


class Reader:
    """Reads the fields of sections from a stream, and tracks the position for error messages.

    Attributes:
        checks_content: whether the checksums of sections are checked.
    """

    def __init__(
        self,
        stream: BufferStream | FileStream,
        name: str,
        limits: Limits,
        section: str = "header",
        checks_content: bool = True,
    ) -> None:
        self.stream = stream
        self.checks_content = checks_content
        self.unpack = stream.unpack
        self.name = name
        self.limits = limits
        self.section = section
        self.index = -1

    @property
    def place(self) -> str:
        return self.section if self.index < 0 else f"{self.section} {self.index}"

    @property
    def left(self) -> int:
        """The number of bytes that have not been read."""
        return self.stream.end - self.stream.position

    def entries(self, section: str, count: int) -> Iterator[int]:
        """Yield the indices of a section's entries, and set each as the position for messages."""
        self.section = section
        for self.index in range(count):
            yield self.index
        self.index = -1

    def within(self, limit: str, value: int, what: str) -> None:
        """Check a limit, at little cost if it is not exceeded."""
        bound = getattr(self.limits, limit)
        if bound is not None and value > bound:
            self.limits.check(limit, value, f"{self.name}: {self.place}: {what}")

    def count(self, least: int, limit: str | None = None) -> int:
        """Read a u64 count of entries that take at least `least` bytes each."""
        (count,) = self.unpack(U64)
        self.fits(count, least)
        if limit is not None:
            self.within(limit, count, "count")
        return int(count)

    def fits(self, count: int, least: int) -> None:
        """Check that the rest of the stream can hold `count` entries."""
        if count * least > self.left:
            raise truncated(self.stream.position, count * least, self.left)

    def string(self, size: int) -> str:
        """Read `size` bytes of UTF-8."""
        at = self.stream.position
        try:
            return str(self.stream.take(size), "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"string at byte {at}: not UTF-8 ({error.reason})") from None

    def name_of(self, size: int) -> str:
        """Read a name of `size` bytes."""
        at = self.stream.position
        self.fits(size, 1)
        self.within("name_bytes", size, "bytes of a name")
        text = self.string(size)
        if "\0" in text:
            raise FormatError(f"name at byte {at}: contains a NUL character")
        return text

    def integers(self, count: int) -> tuple[int, ...]:
        """Read `count` i64."""
        return struct.unpack(f"<{count}q", self.stream.take(count * I64.size))
