"""The bytes of the files of a model."""

from __future__ import annotations

import mmap
import os
import stat
from typing import Any

from ...errors import FormatError
from ...limits import Limits
from ...messages import readable

__all__ = ["file_content"]


def file_content(
    path: str | os.PathLike[str], limits: Limits, *, links: bool = True
) -> memoryview:
    """The bytes of a file: mapped into memory, or, where `limits` lower ``file_bytes``, read.

    A process that reads a mapped file which has become shorter meanwhile ends with a signal, so
    files of unknown origin are not mapped.

    Args:
        path: of a regular file.
        limits: bounds of the bytes of a file that is read.
        links: whether the file may be a symbolic link, or have several hard links.

    Raises:
        OSError: the file cannot be read.
        FormatError: it is no regular file, is a link, or has become shorter meanwhile.
        LimitError: it is larger than `limits` allow.
    """
    name = readable(os.fspath(path))
    more = getattr(os, "O_NONBLOCK", 0)  # a pipe without a writer would not be opened
    if not links:
        more |= getattr(os, "O_NOFOLLOW", 0)
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | more)) as file:
        status = os.fstat(file.fileno())
        size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{name}: expected a regular file")
        if not links and status.st_nlink > 1:
            raise FormatError(f"{name}: expected a file that is no link, it has several hard links")
        found: Any = b""
        if limits.file_bytes != Limits().file_bytes:
            limits.check("file_bytes", size, name)
            found = file.read(size)
            if len(found) != size:
                raise FormatError(f"{name}: it became shorter while it was read")
        elif size:
            found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return memoryview(found)
