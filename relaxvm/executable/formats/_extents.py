"""Ranges of bytes in memory or in a file, which are read on demand."""

from __future__ import annotations

import io

from ...errors import FormatError
from ._streams import BufferStream, FileStream

__all__ = ["Extent", "FileExtent", "MemoryExtent"]


class MemoryExtent:
    """Bytes in memory, which must not change while this object exists."""

    __slots__ = ("_data", "nbytes")

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data).cast("B")
        self.nbytes = self._data.nbytes

    def part(self, start: int, size: int) -> MemoryExtent:
        """Return the range of `size` bytes from `start`."""
        return MemoryExtent(self._data[start : start + size])

    def read(self) -> memoryview:
        """Return all of the bytes."""
        return self._data

    def stream(self, share: bool) -> BufferStream:
        """Return a stream that reads them in order; `share` as for `BufferStream`."""
        return BufferStream(self._data, share)


class FileExtent:
    """Bytes of a seekable file, whose position changes.  The methods are those of `MemoryExtent`.

    The file is not mapped: if another process truncates a mapped file, reading it kills this one.
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
