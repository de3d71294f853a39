"""Streams that executables are read from: memory, and files on disk.

Both know how many bytes are left, check every request against that before allocating memory, and
copy a tensor at most once, directly to its final place.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from .._pool import read_tensors
from ._tensors import Arena, ordinary_dtype, tensor_over

__all__ = ["BufferStream", "FileStream", "truncated"]

_WINDOW: Final = 1 << 18


class BufferStream:
    """Reads memory from start to end.

    Args:
        data: the bytes.
        share: whether tensors are read-only views of `data`, at whatever alignment they have there,
            instead of aligned copies.
        base: the position of the first byte, if `data` is a part of something.
        is_own: whether nobody else has `data`: tensors that are aligned there are views of it.
    """

    def __init__(
        self, data: memoryview, share: bool, base: int = 0, *, is_own: bool = False
    ) -> None:
        self.data = data
        self.share = share
        self.is_own = is_own
        self.base = base
        self.position = base
        self.end = base + data.nbytes
        self.arena = Arena(data.nbytes)

    def skip(self, size: int) -> int:
        """Move forward by `size` bytes; return where they start in `data`.

        Raises:
            FormatError: fewer bytes are left.  All methods that read raise this.
        """
        start = self.position
        if size > self.end - start:
            raise truncated(start, size, self.end - start)
        self.position = start + size
        return start - self.base

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read the fields of `layout`."""
        return layout.unpack_from(self.data, self.skip(layout.size))

    def take(self, size: int) -> bytes | memoryview:
        """Read the next `size` bytes."""
        start = self.skip(size)
        return self.data[start : start + size]

    def peek(self, size: int) -> bytes:
        """Return the next bytes without moving forward; fewer at the end of the stream."""
        start = self.position - self.base
        return bytes(self.data[start : start + size])

    def part(self, size: int) -> BufferStream:
        """Return a stream of the next `size` bytes, and move forward by them."""
        start = self.position
        return BufferStream(memoryview(self.take(size)), self.share, start)

    def tensor(self, dtype: np.dtype[Any], shape: Sequence[int], nbytes: int) -> NDArray[Any]:
        """Read a tensor of the little-endian `dtype`, as a read-only array."""
        start = self.skip(nbytes)
        if self.share or (self.is_own and dtype.isnative):
            found: NDArray[Any] = np.ndarray(shape, dtype, self.data, start)
            if self.share or found.ctypes.data % Arena.ALIGNMENT == 0:
                return found
        memory = self.arena.allocate(nbytes)
        memory[:] = self.data[start : start + nbytes]
        return tensor_over(memory, dtype, shape)

    def tensors(self, count: int, prefix: bytes, most_rank: int) -> list[NDArray[Any]]:
        """Read tensor constants as long as they are ordinary: the next ones, none or all.

        Args:
            count: the most to read.
            prefix: the fields of a tensor constant before its rank.
            most_rank: the most dimensions of a tensor.
        """
        memory = None if self.share else self.arena.rest()
        arrays, end, used = read_tensors(
            self.data, self.position - self.base, count, prefix, most_rank, ordinary_dtype, memory
        )
        self.position = self.base + end
        self.arena.take(used)
        return arrays

    def words(self, count: int) -> NDArray[np.int64]:
        """Read int64[count].  Always a copy: the code that was verified is the code that runs, even
        if the memory is changed meanwhile."""
        return np.frombuffer(bytes(self.take(8 * count)), "<i8").astype(np.int64, copy=False)


class FileStream:
    """Reads an open file from its position to its end.  The methods are those of `BufferStream`.

    Small items are read through a buffer (the window), large ones directly from the file.
    """

    def __init__(self, file: io.BufferedReader, size: int) -> None:
        self.file = file
        self.window = memoryview(b"")
        self.at = 0
        """The position within the window."""
        self.window_end = file.tell()
        """The end of the window in the file; the next read starts here."""
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

    def part(self, size: int) -> BufferStream:
        start = self.position
        if size <= _WINDOW:
            return BufferStream(memoryview(self.take(size)), False, start)
        self._need(size)
        # What is aligned in the file is aligned in memory.
        memory = self.arena.allocate(size + start % Arena.ALIGNMENT)[start % Arena.ALIGNMENT :]
        self._read_into(memory)
        return BufferStream(memory.toreadonly(), False, start, is_own=True)

    def tensor(self, dtype: np.dtype[Any], shape: Sequence[int], nbytes: int) -> NDArray[Any]:
        self._need(nbytes)
        memory = self.arena.allocate(nbytes)
        self._read_into(memory)
        return tensor_over(memory, dtype, shape)

    def _read_into(self, memory: memoryview) -> None:
        """Read the next bytes into memory."""
        nbytes = memory.nbytes
        rest = self.window[self.at : self.at + nbytes]
        memory[: rest.nbytes] = rest
        self.at += rest.nbytes
        got = rest.nbytes
        while got < nbytes:
            more = self.file.readinto(memory[got:])
            if not more:
                raise truncated(self.position - rest.nbytes, nbytes, got)
            got += more
        self.window_end += nbytes - rest.nbytes

    def tensors(self, count: int, prefix: bytes, most_rank: int) -> list[NDArray[Any]]:
        arrays, self.at, used = read_tensors(
            self.window, self.at, count, prefix, most_rank, ordinary_dtype, self.arena.rest()
        )
        self.arena.take(used)
        return arrays

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
        """Return the number of bytes left after checking that it is at least `size`."""
        left = self.end - self.position
        if size > left:
            raise truncated(self.position, size, left)
        return left


def truncated(position: int, size: int, left: int) -> FormatError:
    return FormatError(f"truncated at byte {position}: {size} bytes needed, {left} left")
