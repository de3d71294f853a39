"""Files: what they hold, and writing them whole or not at all."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Iterable, Iterator
from typing import IO, Any

from ..limits import Limits

__all__ = ["name_of", "read_all", "replacing", "size_on_disk", "write_all"]


def name_of(file: Any) -> str:
    """What an open file is called in messages."""
    name = getattr(file, "name", f"<{type(file).__name__}>")
    return os.fsdecode(name) if isinstance(name, bytes) else str(name)


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
    # Not from the name of the target, which may be as long as names can be.
    fresh = os.path.join(os.path.dirname(target), f".relaxvm-{os.urandom(8).hex()}.tmp")
    try:
        # A new file gets what the umask says, as any file that open() makes.
        with _created(fresh, target) as file:
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


def _created(fresh: str, target: str) -> IO[bytes]:
    """A new file; an error names `target`, which is what the caller knows."""
    try:
        return open(fresh, "xb")
    except OSError as error:
        error.filename = target
        raise


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
