"""A directory of files that the processes of a user share: kernels and compiled programs.

An entry is a directory with a file and its checksum.  It is created under another name and renamed
when it is complete, so that any number of processes can share a cache.  Only the user may have
write access to it, because what is in it is loaded and run.  An entry that is a link, or belongs to
somebody else, or does not match its checksum, is not used but replaced.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from .errors import CompilerError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "cache_folder", "cache_path", "check_private", "is_own", "is_sound", "mapped", "publish",
    "remove", "sound_content", "sweep",
]  # fmt: skip

# Whatever finds an entry works on text, and imports neither pathlib nor hashlib: a process that
# runs a program from the cache starts faster.
Name = str | os.PathLike[str]

_NOTE: Final = "sha256"
"""The name of the file with the checksum."""
_STALE: Final = 24 * 3600.0
"""The age in seconds from which the temporary directories of killed processes are removed."""


def cache_path() -> Path:
    """The directory: ``$RELAXVM_CACHE_DIR``, else ``relaxvm`` in ``$XDG_CACHE_HOME`` or
    ``~/.cache``."""
    from pathlib import Path

    return Path(cache_folder())


def cache_folder() -> str:
    """The same as text."""
    chosen = os.environ.get("RELAXVM_CACHE_DIR")
    if chosen:
        return os.path.join(os.getcwd(), chosen)
    # XDG: relative paths are ignored.
    base = os.environ.get("XDG_CACHE_HOME") or ""
    if not os.path.isabs(base):
        home = os.path.expanduser("~")
        base = os.devnull if home == "~" else os.path.join(home, ".cache")
    return os.path.join(base, "relaxvm")


def check_private(path: Name) -> None:
    """Check that others cannot write files for us to run to the directory.

    Raises:
        CompilerError: they can.
        OSError: it, or a directory that it is in, cannot be looked at.
    """
    if sys.platform == "win32":
        return  # permissions are inherited from the user's profile
    status = os.stat(path)
    if status.st_uid != os.geteuid():
        raise CompilerError(f"cache directory {path}: belongs to user {status.st_uid}, not to "
                            f"{os.geteuid()}; set RELAXVM_CACHE_DIR to a directory of your own")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CompilerError(f"cache directory {path}: others can write to it "
                            f"(mode {stat.S_IMODE(status.st_mode):04o}); chmod 700 it")
    for parent in (*_parents(path), *_parents(os.path.realpath(path))):  # links and their targets
        status = os.stat(parent)
        if status.st_uid not in (0, _UNMAPPED, os.geteuid()):
            raise CompilerError(f"cache directory {path}: user {status.st_uid} can put another one "
                                f"in its place, because {parent} belongs to that user; set "
                                "RELAXVM_CACHE_DIR to a directory elsewhere")  # fmt: skip
        mode = status.st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise CompilerError(f"cache directory {path}: others can put another one in its place, "
                                f"because they can write to {parent} (mode "
                                f"{stat.S_IMODE(mode):04o}); set RELAXVM_CACHE_DIR to a directory "
                                "elsewhere")  # fmt: skip


def _parents(path: Name) -> Iterator[str]:
    """The directories that a directory is in."""
    path = os.fspath(path)
    while (parent := os.path.dirname(path)) != path:
        yield parent or os.curdir
        path = parent


_UNMAPPED: Final = 65534
"""In a container, the owner of directories that belong to users outside, such as root."""


def is_sound(file: Name) -> bool:
    """Return whether the file of an entry exists, is our own and complete: loading a truncated
    library can crash the process."""
    return sound_content(file) is not None


def sound_content(file: Name) -> memoryview | None:
    """Map the file of an entry into memory; None unless it is our own and complete."""
    import hashlib

    note = os.path.join(os.path.dirname(file), _NOTE)
    try:
        if not is_own(note):
            return None
        with open(note, encoding="ascii") as opened:
            expected = opened.read()
    except (OSError, ValueError):  # a UnicodeDecodeError is a ValueError
        return None
    content = mapped(file)
    if content is None or hashlib.sha256(content).hexdigest() != expected:
        return None
    return content


def mapped(file: Name, state: Callable[[os.stat_result], bool] | None = None) -> memoryview | None:
    """Map the file of an entry into memory; None unless it is our own.

    Args:
        file: its path.
        state: whether the file that was opened is the one that is meant.
    """
    try:
        if not (is_own(os.path.dirname(file), stat.S_ISDIR) and is_own(file)):
            return None
        with open(file, "rb") as opened:
            if state is not None and not state(os.fstat(opened.fileno())):
                return None
            return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):  # an empty file is a ValueError
        return None


def is_own(path: Name, is_kind: Callable[[int], bool] = stat.S_ISREG) -> bool:
    """Return whether a file or directory is what we have written: not a link, a pipe or somebody
    else's.  Other users cannot write to the directory of an entry."""
    status = os.lstat(path)
    if not is_kind(status.st_mode):
        return False
    if sys.platform == "win32":
        return True  # see check_private
    shared = stat.S_IWGRP | stat.S_IWOTH if is_kind is stat.S_ISDIR else 0
    return status.st_uid == os.geteuid() and not status.st_mode & shared


def publish(work: Path, file: Path) -> None:
    """Rename a complete directory to an entry.  If another process was first, its entry stays.

    Args:
        work: the directory.
        file: the path that its file gets.

    Raises:
        CompilerError: the entry cannot be written.
        OSError: the checksum cannot be written.
    """
    import hashlib

    entry = file.parent
    with open(work / file.name, "rb") as made:
        digest = hashlib.file_digest(made, "sha256").hexdigest()
    (work / _NOTE).write_text(digest, encoding="ascii")
    for _ in range(10):
        try:
            work.rename(entry)
            return
        except OSError:
            if is_sound(file):
                return
        # An unsound entry has this name.  Another process may be removing it too.
        aside = entry.with_name(f".old-{os.urandom(8).hex()}")
        with contextlib.suppress(FileNotFoundError):
            entry.rename(aside)
            remove(aside)
    raise CompilerError(f"cannot write the cache entry {entry}")


def remove(path: Path) -> None:
    """Remove a directory, or a file in its place.  If it cannot be removed now, it is left to a
    later sweep."""
    if path.is_dir() and not path.is_symlink():
        import shutil  # here, since it is slow to import and running a program does not need it

        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sweep(cache: Path, new: Path) -> None:
    """Remove the temporary directories of killed processes, once.

    Their age is measured by the file system's clock, which may be another machine's: `new` is a
    directory that was just made.
    """
    if cache in _swept:
        return
    _swept.add(cache)
    oldest = new.lstat().st_mtime - _STALE
    for path in cache.glob(".[no][el][wd]-*"):
        with contextlib.suppress(FileNotFoundError):  # another process sweeps too
            if path.lstat().st_mtime < oldest:
                remove(path)


_swept: Final[set[Path]] = set()
