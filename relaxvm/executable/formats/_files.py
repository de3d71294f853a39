"""Files: their names and sizes, reading within limits, and replacing them atomically."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Iterable, Iterator
from typing import IO, Any

from ...limits import Limits

__all__ = ["name_of", "read_all", "replacing", "size_on_disk", "write_all"]


def name_of(file: Any) -> str:
    """Return the name of an open file for messages."""
    name = getattr(file, "name", f"<{type(file).__name__}>")
    return os.fsdecode(name) if isinstance(name, bytes) else str(name)


def size_on_disk(file: Any) -> int | None:
    """Return the bytes of an open regular file; None for anything else that can be read (pipes,
    members of archives, objects in memory)."""
    if isinstance(file, io.BufferedReader) and isinstance(file.raw, io.FileIO):
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode):
            return status.st_size
    return None


def read_all(file: Any, name: str, limits: Limits) -> bytes:
    """Read the rest of a file of unknown size, in chunks, checking the limit after each.

    Raises:
        LimitError: the file is longer than ``limits.file_bytes``.
        TypeError: the file returns something other than bytes.
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
    """Write all bytes to a binary file, whose ``write`` may accept only some of them at a time.

    Raises:
        OSError: the file accepts no bytes.
    """
    for view in buffers:
        while view.nbytes:
            written = file.write(view)
            if not written or not 0 < written <= view.nbytes:
                raise OSError(f"{file!r}: wrote {written} of {view.nbytes} bytes")
            view = view[written:]


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file to write that replaces `path` when the block ends without an exception.

    It is created in the same folder, flushed to the disk, and gets the permissions of the old file;
    a symbolic link is followed.  After an exception the old file is unchanged.  If `path` is a pipe
    or a device, the bytes are written directly to it.

    Raises:
        OSError: the file cannot be written.
    """
    target = os.path.realpath(path)
    mode = _mode_of(target)
    if mode is not None and not stat.S_ISREG(mode):
        with open(target, "wb") as device:
            yield device
        return
    # Not derived from the target's name, which may already have the maximum length.
    fresh = os.path.join(os.path.dirname(target), f".relaxvm-{os.urandom(8).hex()}.tmp")
    try:
        # A new file gets the permissions of the umask, like any file that open() creates.
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
    """Create a file; an error names `target`, the path that the caller passed."""
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
    """Flush a directory's entries, on systems that support it."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
