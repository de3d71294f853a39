"""Which entry of the cache belongs to a file that has not changed, so that its content need not be
read to find out.

A record is found by a *question*: the path of the program's file, the state of that file, and what
else decides what comes out.  It has the name of the entry, and the states of the entry's file and
of all files of the program.  The state of a file is its size, its inode, and the times of its
last changes, to the nanosecond: the change time too, which a program cannot set.  If a state is not
the recorded one, there is no answer, and the entry is found by content.  Git's index and make work
in this way.

A file that was changed just now has no record: a change within the same tick of the clock could not
be seen.  Nor is there one on Windows, which has no change time.

Records are only as good as the entries, in directories of the same protection.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
import zlib
from collections.abc import Sequence
from typing import Final

from ..disk_cache import is_own, mapped

__all__ = ["find", "keep", "state_of"]

_FOLDER: Final = ".index"
_PLACES: Final = 4096
"""The most records.  One replaces another that has the same place."""
_SETTLED: Final = 2.0
"""After how many seconds a file counts as not being changed just now.  FAT has times of 2 s."""

State = tuple[int, ...]


def state_of(status: os.stat_result) -> State:
    """The state of a file."""
    return (
        status.st_ino, status.st_dev, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )  # fmt: skip


def find(folder: str, question: str, name: str) -> memoryview | None:
    """The mapped file of an entry; None if it is not known, or something has changed.

    Args:
        folder: the directory of the entries.
        question: what the entry is for.
        name: the file of an entry.
    """
    place = _place(folder, question)
    try:
        if not is_own(place):
            return None
        with open(place, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().split("\n")
        if len(lines) < 3 or lines[0] != question or not re.fullmatch("[0-9a-f]{40}", lines[1]):
            return None
        for line in lines[3:]:
            state, _, path = line.partition(" ")
            if state != _text(state_of(os.stat(path))):
                return None
    except (OSError, ValueError):
        return None
    entry = os.path.join(folder, lines[1])
    content = mapped(
        os.path.join(entry, name), lambda status: _text(state_of(status)) == lines[2]
    )
    if content is not None:
        with contextlib.suppress(OSError):
            os.utime(entry)  # the order in which entries go
    return content


def keep(folder: str, question: str, key: str, name: str, others: Sequence[str]) -> None:
    """Record that the entry `key` is the answer, unless a file was changed just now.

    Args:
        folder, question, name: as for `find`.
        key: the name of the entry.
        others: paths of the files of the program.
    """
    if sys.platform == "win32" or "\n" in question or any("\n" in path for path in others):
        return
    latest = (time.time() - _SETTLED) * 1e9
    place = _place(folder, question)
    new = f"{place}-{os.urandom(8).hex()}"
    with contextlib.suppress(OSError):
        lines = [question, key]
        for path in (os.path.join(folder, key, name), *others):
            status = os.stat(path)
            if max(status.st_mtime_ns, status.st_ctime_ns) > latest:
                return
            state = _text(state_of(status))
            lines.append(f"{state} {path}" if len(lines) > 2 else state)
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(file, "w", encoding="utf-8", errors="surrogateescape") as opened:
                opened.write("\n".join(lines))
            os.replace(new, place)
        except OSError:
            os.unlink(new)


def _place(folder: str, question: str) -> str:
    number = zlib.crc32(question.encode("utf-8", "surrogateescape")) % _PLACES
    return os.path.join(folder, _FOLDER, f"{number:03x}")


def _text(state: State) -> str:
    return ",".join(map(str, state))
