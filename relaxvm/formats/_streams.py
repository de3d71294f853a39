"""Where bytes come from and go to: streams to read, and files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError
from ..limits import Limits
from ._tensors import Arena, flat_bytes, native, sealed

__all__ = ["BufferStream", "FileStream", "read_all", "replacing", "size_on_disk", "write_all"]


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
        """int64[count].  Always a copy: what the verifier saw is what runs, whoever writes to the
        memory meanwhile."""
        view = np.frombuffer(self.take(8 * count), "<i8")
        return sealed(view.astype(np.int64))


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
        self._need(8 * count)
        words = np.empty(count, "<i8")
        self._fill(words, 8 * count)
        return sealed(words.astype(np.int64, copy=False))

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


def size_on_disk(file: Any) -> int | None:
    """Bytes of an open regular file; None for anything else that can be read (pipes, members of
    archives, objects in memory)."""
    if isinstance(file, io.BufferedReader) and isinstance(file.raw, io.FileIO):
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode):
            return status.st_size
    return None


def read_all(file: Any, name: str, limits: Limits) -> bytes:
    """The rest of a file of unknown size, in chunks, so that the limit is checked on the way.

    Raises:
        LimitError: longer than ``limits.file_bytes``.
        TypeError: the file gives something else than bytes.
    """
    chunks: list[bytes] = []
    total = 0
    while chunk := file.read(1 << 20):
        if not isinstance(chunk, bytes):
            raise TypeError(f"{name}: expected a file of bytes, got {type(chunk).__name__} from it")
        total += len(chunk)
        limits.check("file_bytes", total, name)
        chunks.append(chunk)
    return b"".join(chunks)


def write_all(file: Any, buffers: Iterable[memoryview]) -> None:
    """Write all bytes to a binary file, which may take fewer at a time than it is given.

    Raises:
        OSError: the file takes none.
    """
    for view in buffers:
        while view.nbytes:
            written = file.write(view)
            if not written or not 0 < written <= view.nbytes:
                raise OSError(f"{file!r}: wrote {written} of {view.nbytes} bytes")
            view = view[written:]


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write that becomes `path` when the block ends without an exception.

    It stands beside `path`, is flushed to the disk and takes over the permissions of the old file;
    a symbolic link is followed.  After an exception the old file is as it was.  Where `path` names
    a pipe or a device, the bytes go straight to it.

    Raises:
        OSError: the file cannot be written.
    """
    target = os.path.realpath(path)
    mode = _mode_of(target)
    if mode is not None and not stat.S_ISREG(mode):
        with open(target, "wb") as device:
            yield device
        return
    fresh = f"{target}.{secrets.token_hex(6)}.tmp"
    try:
        # A new file gets what the umask says, as any file that open() makes.
        with open(fresh, "xb") as file:
            if mode is not None:
                os.chmod(fresh, stat.S_IMODE(mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, target)
    except BaseException:
        if os.path.exists(fresh):
            os.unlink(fresh)
        raise
    _sync_directory(os.path.dirname(target))


def _mode_of(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _sync_directory(path: str) -> None:
    """Flush a directory's entries, where the system has that notion."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
