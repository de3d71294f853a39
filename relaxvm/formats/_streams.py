"""Streams that executables are read from: memory, and files on disk.

Both know how many bytes are left, compare that with what is asked for before they make room for it,
and give tensors in one step from where the bytes are to where they stay.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError
from ._tensors import Arena, flat_bytes, native, sealed

__all__ = ["BufferStream", "FileStream", "truncated"]


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
        self.arena = Arena()
        self.position = 0
        self.end = data.nbytes

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

    def tensor(self, dtype: np.dtype[Any], shape: Sequence[int], nbytes: int) -> NDArray[Any]:
        """A read-only array of elements of the little-endian `dtype`."""
        start = self.skip(nbytes)
        view: NDArray[Any] = np.ndarray(tuple(shape), dtype, self.data, start)
        if self.share:
            return view
        array = self.arena.empty(native(dtype), shape, nbytes)
        array[...] = view
        return sealed(array)

    def words(self, count: int) -> NDArray[np.int64]:
        """int64[count].  Always over bytes of its own: what the verifier saw is what runs, whoever
        writes to the memory meanwhile."""
        return np.frombuffer(bytes(self.take(8 * count)), "<i8").astype(np.int64, copy=False)


class FileStream:
    """Reads an open file from its position to its end, tensors straight into their memory.  The
    methods are those of `BufferStream`."""

    def __init__(self, file: io.BufferedReader, size: int) -> None:
        self.file = file
        self.arena = Arena()
        self.position = file.tell()
        self.end = max(self.position, size)

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size))

    def take(self, size: int) -> bytes | memoryview:
        self._need(size)
        data = self.file.read(size)
        if len(data) != size:
            raise truncated(self.position, size, len(data))
        self.position += size
        return data

    def tensor(self, dtype: np.dtype[Any], shape: Sequence[int], nbytes: int) -> NDArray[Any]:
        self._need(nbytes)
        array = self.arena.empty(dtype, shape, nbytes)
        self._fill(array, nbytes)
        return sealed(array.astype(native(dtype), copy=False))

    def words(self, count: int) -> NDArray[np.int64]:
        return np.frombuffer(self.take(8 * count), "<i8").astype(np.int64, copy=False)

    def _need(self, size: int) -> None:
        if size > self.end - self.position:
            raise truncated(self.position, size, self.end - self.position)

    def _fill(self, array: NDArray[Any], size: int) -> None:
        into = flat_bytes(array).data
        got = 0
        while got < size:
            more = self.file.readinto(into[got:])
            if not more:  # the file became shorter since it was opened
                raise truncated(self.position, size, got)
            got += more
        self.position += size


def truncated(position: int, size: int, left: int) -> FormatError:
    return FormatError(f"truncated at byte {position}: {size} bytes needed, {left} left")
