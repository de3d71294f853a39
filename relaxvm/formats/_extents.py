"""Bytes in memory or in a file, of which parts are read when they are asked for."""

from __future__ import annotations

import io

from ..errors import FormatError
from ._streams import BufferStream, FileStream

__all__ = ["Extent", "FileExtent", "MemoryExtent"]


class MemoryExtent:
    """Bytes in memory, which must not change while this lives."""

    __slots__ = ("_data", "nbytes")

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data).cast("B")
        self.nbytes = self._data.nbytes

    def part(self, start: int, size: int) -> MemoryExtent:
        """Some of the bytes, from where they start."""
        return MemoryExtent(self._data[start : start + size])

    def read(self) -> memoryview:
        """All of the bytes."""
        return self._data

    def stream(self, share: bool) -> BufferStream:
        """What reads them in order; `share` as for `BufferStream`."""
        return BufferStream(self._data, share)


class FileExtent:
    """Bytes of a file that can be sought, which is moved.  The methods are those of `MemoryExtent`.

    The file is not mapped, as to read a mapped file ends the process when somebody else cuts it.
    """

    __slots__ = ("_file", "_name", "_start", "nbytes")

    def __init__(self, file: io.BufferedReader, name: str, start: int, nbytes: int) -> None:
        self._file = file
        self._name = name
        self._start = start
        self.nbytes = nbytes

    def part(self, start: int, size: int) -> FileExtent:
        size = max(0, min(size, self.nbytes - start))
        return FileExtent(self._file, self._name, self._start + start, size)

    def read(self) -> memoryview:
        self._file.seek(self._start)
        data = self._file.read(self.nbytes)
        if len(data) < self.nbytes:
            raise FormatError(f"{self._name}: the file became shorter while it was read")
        return memoryview(data)

    def stream(self, share: bool) -> FileStream:
        self._file.seek(self._start)
        return FileStream(self._file, self._start + self.nbytes)


Extent = MemoryExtent | FileExtent
