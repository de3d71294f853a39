"""Streams that executables are read from: memory, and files on disk.

Both know how many bytes are left, compare that with what is asked for before they make room for it,
and bring tensors in one step from where the bytes are to where they stay.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError
from ._tensors import Arena, tensor_over

__all__ = ["BufferStream", "FileStream", "truncated"]

_WINDOW: Final = 1 << 18


class BufferStream:
    """Reads memory from start to end.

    Args:
        data: the bytes.
        share: whether tensors are read-only views of `data`, at whatever alignment they have there,
            instead of aligned copies.
    """

    def __init__(self, data: memoryview, share: bool) -> None:
        self.data = data
        self.share = share
        self.position = 0
        self.end = data.nbytes
        self.arena = Arena(self.end)

    def skip(self, size: int) -> int:
        """Move on by `size` bytes; the position where they start.

        Raises:
            FormatError: fewer are left.  So do all the methods that read.
        """
        start = self.position
        if size > self.end - start:
            raise truncated(start, size, self.end - start)
        self.position = start + size
        return start

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The fields of `layout`."""
        return layout.unpack_from(self.data, self.skip(layout.size))

    def take(self, size: int) -> bytes | memoryview:
        """The next bytes."""
        start = self.skip(size)
        return self.data[start : start + size]

    def peek(self, size: int) -> bytes:
        """The next bytes, fewer where the stream ends, without moving on."""
        return bytes(self.data[self.position : self.position + size])

    def tensor(self, dtype: np.dtype[Any], shape: Sequence[int], nbytes: int) -> NDArray[Any]:
        """A read-only array of elements of the little-endian `dtype`."""
        start = self.skip(nbytes)
        if self.share:
            return np.ndarray(shape, dtype, self.data, start)
        room = self.arena.room(nbytes)
        room[:] = self.data[start : start + nbytes]
        return tensor_over(room, dtype, shape)

    def words(self, count: int) -> NDArray[np.int64]:
        """int64[count].  Always over bytes of its own: what the verifier saw is what runs, whoever
        writes to the memory meanwhile."""
        return np.frombuffer(bytes(self.take(8 * count)), "<i8").astype(np.int64, copy=False)


class FileStream:
    """Reads an open file from its position to its end.  The methods are those of `BufferStream`.

    Small parts come out of a window of the file, large ones straight from behind it.
    """

    def __init__(self, file: io.BufferedReader, size: int) -> None:
        self.file = file
        self.window = memoryview(b"")
        self.at = 0
        """Where the position is in the window."""
        self.window_end = file.tell()
        """Where the window ends in the file; the file is read from here."""
        self.end = max(self.window_end, size)
        self.arena = Arena(self.end - self.window_end)

    @property
    def position(self) -> int:
        return self.window_end - self.window.nbytes + self.at

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        at = self.at
        if at + layout.size > self.window.nbytes:
            return layout.unpack(self.take(layout.size))
        self.at = at + layout.size
        return layout.unpack_from(self.window, at)

    def take(self, size: int) -> bytes | memoryview:
        rest = self.window[self.at :]
        if size > rest.nbytes:
            left = self._need(size)
            more = self.file.read(min(max(size, _WINDOW), left) - rest.nbytes)
            rest = self.window = memoryview(bytes(rest) + more)
            self.window_end += len(more)
            self.at = 0
            if size > rest.nbytes:  # the file became shorter since it was opened
                raise truncated(self.position, size, rest.nbytes)
        self.at += size
        return rest[:size]

    def peek(self, size: int) -> bytes:
        found = bytes(self.take(min(size, self.end - self.position)))
        self.at -= len(found)
        return found

    def tensor(self, dtype: np.dtype[Any], shape: Sequence[int], nbytes: int) -> NDArray[Any]:
        rest = self.window[self.at : self.at + nbytes]
        if nbytes > rest.nbytes:
            self._need(nbytes)
        room = self.arena.room(nbytes)
        room[: rest.nbytes] = rest
        self.at += rest.nbytes
        got = rest.nbytes
        while got < nbytes:
            more = self.file.readinto(room[got:])
            if not more:
                raise truncated(self.position - rest.nbytes, nbytes, got)
            got += more
        self.window_end += nbytes - rest.nbytes
        return tensor_over(room, dtype, shape)

    def words(self, count: int) -> NDArray[np.int64]:
        size = 8 * count
        self._need(size)
        rest = bytes(self.window[self.at : self.at + size])
        self.at += len(rest)
        data = rest + self.file.read(size - len(rest))
        if len(data) < size:
            raise truncated(self.position - len(rest), size, len(data))
        self.window_end += size - len(rest)
        return np.frombuffer(data, "<i8").astype(np.int64, copy=False)

    def _need(self, size: int) -> int:
        """The bytes that are left, which must be `size` at least."""
        left = self.end - self.position
        if size > left:
            raise truncated(self.position, size, left)
        return left


def truncated(position: int, size: int, left: int) -> FormatError:
    return FormatError(f"truncated at byte {position}: {size} bytes needed, {left} left")
