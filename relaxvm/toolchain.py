"""The system's C compiler: C text to a shared library, once.

Libraries are kept in a cache, under a hash of everything that they are made from: the compiler and
its version, its options, the header, the text.  A cache entry is a directory::

    <cache>/<hash>/<name>.so    the library, or <name>.o, an object
                   <name>.c     the text it was compiled from, for debuggers and people
                   sha256       of the library; where it does not match, the entry is made again

``<cache>/pieces/<hash>`` is for a piece of text that was compiled with others (`compile_pieces`):
it names the library.

An entry is made in a directory of its own and renamed when it is complete, so that any number of
processes may share a cache.  Only the user may be able to write to it, because what lies in it is
loaded and run.

The options keep arithmetic exact: results are those of IEEE operations in the order of the text, as
Python and numpy give them, so there is no ``-ffast-math``, and products and sums are not fused.
Signed integers wrap.  Code is for any machine of the platform, so that a library may be taken to
another one; a function marked ``RVM_CLONES`` (see ``relaxvm/kernel.h``) uses the vector units that
the machine has.  `for_this_machine` are options for the vector units of this machine alone, which
takes less time to compile; ``RELAXVM_CFLAGS="-march=native"`` asks for all that it has.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import re
import secrets
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from .errors import CompilerError, NoCompilerError, RelaxVMWarning
from .native import NativeFunction, load_function
from .versions import get_include

__all__ = [
    "NativeFunction",
    "cache_dir",
    "compile_c",
    "compile_object",
    "compile_pieces",
    "compiler",
    "for_this_machine",
    "link_objects",
    "load_function",
    "side_by_side",
    "why_no_compiler",
]

T = TypeVar("T")
R = TypeVar("R")

FLAGS: Final = (
    "-std=c11",
    "-O3",
    "-fPIC",
    "-fno-math-errno",  # sqrt is an instruction
    "-fno-trapping-math",  # nobody reads the exception flags; lets loops with conditions vectorize
    "-ffp-contract=off",  # a * b + c rounds twice
    "-fwrapv",  # integers wrap, as numpy's do
    "-g0",
)
"""Options of every compilation."""

_SHARED: Final = "-shared"
_OBJECT: Final = "-c"

TIMEOUT: Final = 300.0
"""Seconds that a compilation may take."""

_MAX_LINES: Final = 20
"""Lines of the compiler's output in a message; the error's `output` has all of them."""
_FEW: Final = 2
_MANY: Final = 32
"""At least and at most so many pieces are compiled together, where there are as many."""
_STALE: Final = 24 * 3600.0
"""Age in seconds of directories that killed processes left behind."""


def compiler() -> str | None:
    """The C compiler's command: ``$CC``, else ``cc`` from the path; None if there is none."""
    command = _command()
    return None if command is None else shlex.join(command)


def compile_c(
    source: str,
    *,
    name: str,
    flags: Sequence[str] = (),
    objects: Sequence[Path] = (),
    timeout: float = TIMEOUT,
) -> Path:
    """Compile C text to a shared library.

    The text may ``#include <relaxvm/kernel.h>``.

    Args:
        source: the text; the cache does not see what else it includes.
        name: of the library's file: letters, digits, ``_``, ``-`` and ``.``.
        flags: options beside `FLAGS` and ``$RELAXVM_CFLAGS``.
        objects: what `compile_object` has made, to be a part of the library.
        timeout: seconds for the compiler to run.

    Returns:
        Path of the library.  It stays where it is, for later processes as well.

    Raises:
        NoCompilerError: there is no C compiler.
        CompilerError: the compiler refuses the text, crashes or takes too long; `output` is what it
            wrote.  Or the cache directory is not safe, or cannot be written to.
    """
    options = [*FLAGS, _SHARED, *_own_flags(), *flags]
    return _compiled(source, name, ".so", options, objects, timeout)


def compile_object(
    source: str, *, name: str, flags: Sequence[str] = (), timeout: float = TIMEOUT
) -> Path:
    """Compile C text to an object, for a library that goes to other machines: as `compile_c`, but
    an option of ``$RELAXVM_CFLAGS`` for this machine alone is left out."""
    options = [*FLAGS, _OBJECT, *(f for f in _own_flags() if "native" not in f), *flags]
    return _compiled(source, name, ".o", options, (), timeout)


def compile_pieces(
    head: str,
    pieces: Sequence[str],
    *,
    name: str,
    flags: Sequence[str] = (),
    objects: Sequence[Path] = (),
    timeout: float = TIMEOUT,
) -> list[Path]:
    """Compile pieces of C to shared libraries, each piece once.

    Those that are not in the cache are compiled side by side, several to a text, because a compiler
    takes as long to start and end as for two or three small functions.

    Args:
        head: what every text begins with; each piece can be compiled after it, alone or in any
            company.
        pieces: of the text, all different.
        name, flags, objects, timeout: as of `compile_c`.

    Returns:
        For each piece the path of the library that it is in.

    Raises:
        as `compile_c`.
    """
    command = _command()
    if command is None:
        raise NoCompilerError(why_no_compiler())
    options = [*FLAGS, _SHARED, *_own_flags(), *flags]
    cache = cache_dir()
    with _working_in(cache, name):
        key = _key(command, options, objects, head, name)
    notes = {piece: cache / _PIECES / _digest([key, piece]) for piece in pieces}
    known = _noted(notes)
    missing = sorted((p for p in notes if p not in known), key=len, reverse=True)
    count = max(min(_cores(), len(missing) // _FEW), -(-len(missing) // _MANY))
    groups = [missing[i::count] for i in range(count)]  # large ones apart

    def compiled(group: list[str]) -> Path:
        text = "".join([head, *group])
        library = compile_c(text, name=name, flags=flags, objects=objects, timeout=timeout)
        with _working_in(cache, name):
            for piece in group:
                _note(notes[piece], library)
        return library

    for group, library in zip(groups, side_by_side(compiled, groups), strict=True):
        known.update(dict.fromkeys(group, library))
    return [known[piece] for piece in pieces]


def side_by_side(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Results of work that compilers do, on all cores."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(_cores()) as pool:
        return list(pool.map(work, items))


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def link_objects(objects: Sequence[Path], target: Path, *, timeout: float = TIMEOUT) -> None:
    """Make a shared library of objects.

    Args:
        objects: what `compile_object` has made, and texts of C, which are compiled now; files that
            these name are looked for in `target`'s folder.
        target: the library's path.
        timeout: seconds for the compiler to run.

    Raises:
        NoCompilerError: there is no C compiler.
        CompilerError: the linker fails; `output` is what it wrote.
    """
    command = _command()
    if command is None:
        raise NoCompilerError(why_no_compiler())
    done, output = _run(
        [*command, *FLAGS, _SHARED, *_own_flags(), f"-I{get_include()}", *map(str, objects),
         "-o", target.name, "-lm"],
        timeout,
        target.parent,
    )  # fmt: skip
    if done != 0:
        raise CompilerError(_failure(f"cannot link {target.name}", done, output), output)


@functools.cache
def for_this_machine() -> tuple[str, ...]:
    """Options for what is loaded here alone: for the vector units of this machine, once, in place
    of ``RVM_CLONES``.  Results are the same bit for bit.  The linker is not given the C library,
    which takes it longer to read than all else; Python has it, so it is there when the library is
    loaded."""
    if sys.platform != "linux":
        return ()
    if platform.machine() != "x86_64":
        return ("-nostdlib",)
    known = re.search(r"^flags\s*:(.*)$", _this_cpu(), re.MULTILINE)
    units = known[1].split() if known else []
    best = next((unit for unit in ("avx512f", "avx2") if unit in units), None)
    return ("-nostdlib", "-DRVM_CLONES=", *(() if best is None else (f"-m{best}",)))


def _own_flags() -> list[str]:
    return _words("RELAXVM_CFLAGS")


def _words(variable: str) -> list[str]:
    """An environment variable, taken apart as a shell does."""
    try:
        return shlex.split(os.environ.get(variable, ""))
    except ValueError as error:
        raise CompilerError(
            f"{variable}: expected words as for a shell, got {os.environ[variable]!r}: {error}"
        ) from None


def _compiled(
    source: str,
    name: str,
    suffix: str,
    options: list[str],
    objects: Sequence[Path],
    timeout: float,
) -> Path:
    """The file that text is compiled to, from the cache if it is there."""
    if not name or name[0] in ".-" or not all(c.isalnum() or c in "_-." for c in name):
        raise ValueError(f"compile_c: expected a plain file name, got {name!r}")
    command = _command()
    if command is None:
        raise NoCompilerError(why_no_compiler())
    cache = cache_dir()
    with _working_in(cache, name):
        entry = cache / _key(command, options, objects, source, name)
        made = entry / f"{name}{suffix}"
        if not _is_sound(made):
            _make_entry(entry, made, [*command, *options], objects, source, timeout)
    return made


# ---- the compiler --------------------------------------------------------------------------


def _command() -> list[str] | None:
    words = _words("CC") or ["cc"]
    found = shutil.which(words[0])
    return None if found is None else [found, *words[1:]]


def why_no_compiler() -> str:
    """What to do where `compiler` is None."""
    named = os.environ.get("CC")
    if named:
        return f"no C compiler: CC is {named!r}, and there is no such program"
    return "no C compiler: expected cc on the path; install one, or name it by CC"


@functools.lru_cache(maxsize=16)
def _version(command: tuple[str, ...], _mtime: int) -> str:
    """What the compiler says it is, and which file it is.  `_mtime` makes a new compiler known."""
    done, output = _run([*command, "--version"], 60.0)
    if done != 0:
        raise CompilerError(_failure(f"{shlex.join(command)} --version", done, output), output)
    return f"{os.path.realpath(command[0])}\n{output}"


def _run(command: Sequence[str], timeout: float, cwd: Path | None = None) -> tuple[int, str]:
    """Exit status and output.  Whatever ends the wait (a time-out, Ctrl-C) ends the compiler and
    the processes that it has started."""
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise CompilerError(f"cannot run {command[0]}: {error.strerror}") from error
    with process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill_group(process)
            raise CompilerError(
                f"{command[0]} took more than {timeout:g} seconds and was stopped"
            ) from None
        except BaseException:
            _kill_group(process)
            raise
    return process.returncode, output.decode("utf-8", "replace")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended in the meantime
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


def _failure(subject: str, status: int, output: str) -> str:
    lines = output.strip().splitlines()
    if len(lines) > _MAX_LINES:
        lines[_MAX_LINES:] = [f"... {len(lines) - _MAX_LINES} more lines"]
    how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
    return "\n".join([f"{subject}: {how}", *lines])


# ---- the cache -----------------------------------------------------------------------------


def cache_dir() -> Path:
    """Where compiled libraries are kept; made if need be, for the user alone.

    ``$RELAXVM_CACHE_DIR``, else ``relaxvm`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.  Where that
    cannot be made (a read-only home), a directory for this process, with a warning.

    Raises:
        CompilerError: others can write to the directory, or put another one in its place.
    """
    path = _cache_path()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "not writable")
    except OSError as error:
        return _private_dir(f"cannot use the cache directory {path}: {error.strerror}")
    _check_private(path)
    return path


@contextlib.contextmanager
def _working_in(cache: Path, name: str) -> Iterator[None]:
    """Where the disk is full, say, or somebody removes the directory."""
    try:
        yield
    except OSError as error:
        file = "" if error.filename is None else f": {os.fsdecode(error.filename)}"
        raise CompilerError(
            f"cannot compile {name} in the cache directory {cache}: {error.strerror}{file}; see to "
            f"it, or set RELAXVM_CACHE_DIR to another directory"
        ) from error


def _cache_path() -> Path:
    chosen = os.environ.get("RELAXVM_CACHE_DIR")
    if chosen:
        return Path(chosen).absolute()
    # XDG: a relative path is to be ignored.
    base = Path(os.environ.get("XDG_CACHE_HOME") or "")
    try:
        return (base if base.is_absolute() else Path.home() / ".cache") / "relaxvm"
    except RuntimeError:  # nobody's home
        return Path(os.devnull) / "relaxvm"


def _check_private(path: Path) -> None:
    """Refuse a directory to which others could write a library for us to run."""
    if sys.platform == "win32":
        return  # permissions are inherited from the user's profile
    status = path.stat()
    if status.st_uid != os.geteuid():
        raise CompilerError(f"cache directory {path}: belongs to user {status.st_uid}, not to "
                            f"{os.geteuid()}; set RELAXVM_CACHE_DIR to a directory of your own")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CompilerError(f"cache directory {path}: others can write to it "
                            f"(mode {stat.S_IMODE(status.st_mode):04o}); chmod 700 it")
    for parent in (*path.parents, *path.resolve().parents):  # links, and where they lead to
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise CompilerError(f"cache directory {path}: others can put another one in its place, "
                                f"because they can write to {parent} (mode "
                                f"{stat.S_IMODE(mode):04o}); set RELAXVM_CACHE_DIR to a directory "
                                "elsewhere")  # fmt: skip


@functools.cache
def _private_dir(reason: str) -> Path:
    directory = tempfile.TemporaryDirectory(prefix="relaxvm-", ignore_cleanup_errors=True)
    _private_dirs.append(directory)
    warnings.warn(f"{reason}; compiled kernels are kept for this process only", RelaxVMWarning,
                  stacklevel=4)  # fmt: skip
    return Path(directory.name)


_private_dirs: Final[list[tempfile.TemporaryDirectory[str]]] = []
"""They are removed when the process ends."""


def _key(
    command: list[str], options: list[str], objects: Sequence[Path], source: str, name: str
) -> str:
    mtime = os.stat(command[0]).st_mtime_ns
    parts = [
        "1",  # of this scheme
        _version(tuple(command), mtime),
        sys.platform,
        platform.machine(),
        *command,
        *options,
        *(hashlib.sha256(path.read_bytes()).hexdigest() for path in objects),
        _header(),
        name,
        source,
    ]
    if any("native" in option for option in options):
        parts.append(_this_cpu())
    return _digest(parts)


def _digest(parts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()[:40]


@functools.cache
def _header() -> str:
    return (Path(get_include()) / "relaxvm" / "kernel.h").read_text(encoding="utf-8")


@functools.cache
def _this_cpu() -> str:
    """What ``-march=native`` depends on: a cache may be shared by machines."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.node()
    kinds = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in text.splitlines() if line.startswith(kinds)}))


def _is_sound(library: Path) -> bool:
    """Whether an entry is there and complete: a library with a piece missing can crash the process
    that loads it."""
    try:
        expected = (library.parent / "sha256").read_text(encoding="ascii")
        return hashlib.sha256(library.read_bytes()).hexdigest() == expected
    except (OSError, UnicodeDecodeError):
        return False


def _noted(notes: Mapping[str, Path]) -> dict[str, Path]:
    """Of pieces that are in sound libraries, the libraries."""
    found: dict[str, Path] = {}
    sound: dict[str, Path | None] = {}
    for piece, note in notes.items():
        try:
            text = note.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            continue
        if text not in sound:
            library = note.parents[1].joinpath(*text.split("/"))
            sound[text] = library if _NOTE.fullmatch(text) and _is_sound(library) else None
        known = sound[text]
        if known is not None:
            found[piece] = known
    return found


_PIECES: Final = "pieces"
_NOTE: Final = re.compile(r"[0-9a-f]+/[\w-][\w.-]*")
"""Entry and file."""


def _note(note: Path, library: Path) -> None:
    """Write down, at once, which library a piece is in."""
    new = library.parents[1] / f".new-{secrets.token_hex(8)}"
    note.parent.mkdir(exist_ok=True)
    try:
        new.write_text(f"{library.parent.name}/{library.name}", encoding="ascii")
        new.replace(note)
    except IsADirectoryError:
        _remove(note)  # the piece is compiled again another time
    finally:
        new.unlink(missing_ok=True)


def _make_entry(
    entry: Path,
    library: Path,
    command: list[str],
    objects: Sequence[Path],
    source: str,
    timeout: float,
) -> None:
    """Compile into a directory, and give it the entry's name."""
    _sweep(entry.parent)
    work = Path(tempfile.mkdtemp(prefix=".new-", dir=entry.parent))
    try:
        text = work / f"{library.stem}.c"
        text.write_text(source, encoding="utf-8", errors="surrogatepass")
        done, output = _run(
            [*command, f"-I{get_include()}", text.name, *map(str, objects), "-o", library.name,
             "-lm"],
            timeout,
            work,
        )  # fmt: skip
        if done != 0:
            raise CompilerError(_failure(f"cannot compile {text.name}", done, output), output)
        digest = hashlib.sha256((work / library.name).read_bytes()).hexdigest()
        (work / "sha256").write_text(digest, encoding="ascii")
        _publish(work, entry, library)
    finally:
        _remove(work)


def _publish(work: Path, entry: Path, library: Path) -> None:
    """Rename a complete directory.  Where another process was first, its entry stays."""
    for _ in range(10):
        try:
            work.rename(entry)
            return
        except OSError:
            if _is_sound(library):
                return
        # In the way is an entry that is not sound.  Somebody else may be moving it away as well.
        aside = entry.with_name(f".old-{secrets.token_hex(8)}")
        with contextlib.suppress(FileNotFoundError):
            entry.rename(aside)
            _remove(aside)
    raise CompilerError(f"cannot write the cache entry {entry}")


def _remove(path: Path) -> None:
    """Remove a directory, or a file that is where a directory should be.  What cannot be removed
    now is left to a later sweep."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@functools.cache
def _sweep(cache: Path) -> None:
    """Remove what processes that were killed have left, once."""
    oldest = time.time() - _STALE
    for path in cache.glob(".[no][el][wd]-*"):
        with contextlib.suppress(FileNotFoundError):  # another process sweeps, too
            if path.stat().st_mtime < oldest:
                _remove(path)
