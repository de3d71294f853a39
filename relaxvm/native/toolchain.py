"""The system's C compiler: compile C source to a shared library, once.

Libraries are kept in a cache, under a hash of all inputs: the compiler and its version, its
options, the header, the source.  A cache entry is a directory::

    <cache>/<hash>/<name>.so    the library, or <name>.o, an object file
                   <name>.c     its source, for debuggers and people
                   sha256       of the library; if it does not match, the entry is made again

``<cache>/pieces/<hash>`` is for a piece of source that was compiled with others
(`compile_pieces`): it names the library.

An entry is created in a temporary directory and renamed when it is complete, so that any number of
processes can share a cache.  Only the user may have write access to it, because the libraries in it
are loaded and run.  An entry that is a link, or belongs to somebody else, is not used but replaced.

The options preserve exact arithmetic: results are those of IEEE operations in the order of the
source, as in Python and numpy.  So there is no ``-ffast-math``, and multiplications and additions
are not fused.  Signed integers wrap.  Code runs on any machine of the platform, so that a library
can be moved to another one; a function marked ``RVM_CLONES`` (see ``relaxvm/kernel.h``) uses the
vector units of the machine it runs on.  `for_this_machine` returns options for the vector units of
only this machine, which compiles faster; ``RELAXVM_CFLAGS="-march=native"`` enables all its
features.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import os
import platform
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Final, TypeVar

from ..core.checkpoints import memory_left, time_left
from ..disk_cache import cache_path, check_private, is_own, is_sound, publish, remove, sweep
from ..errors import CompilerError, LimitError, NoCompilerError, RelaxVMWarning
from ..logs import INFO, log
from ..messages import warn
from ..versions import get_include
from .functions import NativeFunction, load_function

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
    "-fno-math-errno",  # so that sqrt is one instruction
    "-fno-trapping-math",  # exception flags are not used; loops with conditions vectorize
    "-ffp-contract=off",  # a * b + c rounds twice
    "-fopenmp-simd",  # loops that are marked run in vectors, without OpenMP's library
    "-fwrapv",  # integers wrap, as numpy's do
    "-g0",
)
"""Options of every compilation."""

_SHARED: Final = "-shared"
_OBJECT: Final = "-c"

TIMEOUT: Final = 300.0
"""The maximal seconds of a compilation."""

_MOST_OUTPUT: Final = 1 << 20
_CHUNK: Final = 1 << 16
_AFTER_EXIT: Final = 5.0
"""Seconds in which processes that the compiler has started may go on to write."""
_LEAST_MEMORY: Final = 512 << 20
"""The least bytes of address space that a compiler gets; an empty file takes a fifth of it."""

_NO_MEMORY: Final = re.compile(r"out of memory|virtual memory exhausted|Cannot allocate memory")

_MAX_LINES: Final = 20
"""The most lines of the compiler's output in a message; `output` of the error has all."""
_FEW: Final = 2
_MANY: Final = 32
"""The minimal and maximal number of pieces that are compiled together."""



def compiler() -> str | None:
    """Return the command of the C compiler: ``$CC``, else ``cc`` on the path; None if there is
    none, or if the program does not even tell its version."""
    try:
        return shlex.join(_command())
    except NoCompilerError:
        return None


def compile_c(
    source: str,
    *,
    name: str,
    flags: Sequence[str] = (),
    objects: Sequence[Path] = (),
    timeout: float = TIMEOUT,
) -> Path:
    """Compile C source to a shared library.

    The source may ``#include <relaxvm/kernel.h>``.

    Args:
        source: the C source.  Changes of other files that it includes do not invalidate the cache.
        name: file name of the library: letters, digits, ``_``, ``-`` and ``.``.
        flags: options in addition to `FLAGS` and ``$RELAXVM_CFLAGS``.
        objects: results of `compile_object` to link into the library.
        timeout: seconds for the compiler to run.

    Returns:
        Path of the library.  It stays in the cache for later processes.

    Raises:
        NoCompilerError: there is no C compiler.
        CompilerError: the compiler reports errors, crashes or takes too long; `output` has its
            output.  Or the cache directory is not safe, or cannot be written to.
    """
    options = [*FLAGS, _SHARED, *flags, *_own_flags()]
    return _compiled(source, name, ".so", options, objects, timeout)


def compile_object(
    source: str, *, name: str, flags: Sequence[str] = (), timeout: float = TIMEOUT
) -> Path:
    """Compile C source to an object file, for a library that runs on other machines: like
    `compile_c`, but without options of ``$RELAXVM_CFLAGS`` that are only for this machine."""
    options = [*FLAGS, _OBJECT, *flags, *(f for f in _own_flags() if "native" not in f)]
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
    """Compile pieces of C source to shared libraries, each piece once.

    Pieces that are not in the cache are compiled in parallel, several in one source, because
    starting a compiler takes as long as compiling two or three small functions.

    Args:
        head: the beginning of every source; each piece can be compiled after it, alone or together
            with any others.
        pieces: the pieces, all different.
        name, flags, objects, timeout: as for `compile_c`.

    Returns:
        For each piece the path of the library that contains it.

    Raises:
        as `compile_c`.
    """
    command = _command()
    options = [*FLAGS, _SHARED, *flags, *_own_flags()]
    cache = cache_dir()
    with _working_in(cache, name):
        key = _key(command, options, objects, head, name)
    notes = {piece: cache / _PIECES / _digest([key, piece]) for piece in pieces}
    known = _recorded_libraries(notes)
    missing = sorted((p for p in notes if p not in known), key=len, reverse=True)
    count = max(min(_cores(), len(missing) // _FEW), -(-len(missing) // _MANY))
    groups = [missing[i::count] for i in range(count)]  # distributes large ones

    def compiled(group: list[str]) -> Path:
        text = "".join([head, *group])
        library = compile_c(text, name=name, flags=flags, objects=objects, timeout=timeout)
        with _working_in(cache, name):
            for piece in group:
                _record_library(notes[piece], library)
        return library

    for group, library in zip(groups, side_by_side(compiled, groups), strict=True):
        known.update(dict.fromkeys(group, library))
    return [known[piece] for piece in pieces]


def side_by_side(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Run compilers in parallel on all cores; return the results in order.  If one fails, or the
    caller is interrupted, the others are stopped."""
    if len(items) < 2:
        return [work(item) for item in items]
    running: set[subprocess.Popen[bytes]] = set()
    token = _running.set(running)
    try:
        with ThreadPoolExecutor(_cores()) as pool:
            # Each in a context of its own, where the limits of this compilation hold.
            futures = [pool.submit(contextvars.copy_context().run, work, x) for x in items]
            try:
                return [future.result() for future in futures]
            except BaseException:
                for future in futures:
                    future.cancel()
                for process in tuple(running):
                    _kill_group(process)
                raise
    finally:
        _running.reset(token)


_running: Final[ContextVar[set[subprocess.Popen[bytes]] | None]] = ContextVar(
    "relaxvm_compilers", default=None
)
"""The compilers that run side by side."""


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def link_objects(objects: Sequence[Path], target: Path, *, timeout: float = TIMEOUT) -> None:
    """Link object files to a shared library.

    Args:
        objects: results of `compile_object`, and C sources, which are compiled now; files that
            these include are searched in the folder of `target`.
        target: the library's path.
        timeout: seconds for the compiler to run.

    Raises:
        NoCompilerError: there is no C compiler.
        CompilerError: the linker fails; `output` has its output.
    """
    command = _command()
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
    """Return options for a library that is only loaded here: it is compiled for the vector units of
    this machine instead of several (``RVM_CLONES``), with bit-identical results.  It is not linked
    with the C library, which would take most of the linker's time; Python has it loaded anyway."""
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
    """Return the words of an environment variable, split as by a shell."""
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
    """Return the file that a source is compiled to, from the cache if possible."""
    if not name or name[0] in ".-" or not all(c.isalnum() or c in "_-." for c in name):
        raise ValueError(f"compile_c: expected a plain file name, got {name!r}")
    command = _command()
    cache = cache_dir()
    with _working_in(cache, name):
        entry = cache / _key(command, options, objects, source, name)
        made = entry / f"{name}{suffix}"
        if not is_sound(made):
            _make_entry(entry, made, [*command, *options], objects, source, timeout)
    return made


# ---- the compiler --------------------------------------------------------------------------


def _command() -> list[str]:
    """Return the words of the compiler's command.

    Raises:
        NoCompilerError: there is no such program, or it does not tell its version.
    """
    words = _words("CC") or ["cc"]
    found = shutil.which(words[0])
    if found is None:
        named = os.environ.get("CC")
        raise NoCompilerError(
            f"no C compiler: CC is {named!r}, and there is no such program" if named else
            "no C compiler: expected cc on the path; install one, or name it by CC"
        )  # fmt: skip
    command = [found, *words[1:]]
    _version(command)
    return command


def why_no_compiler() -> str:
    """Return why `compiler` is None and what to do, in one line."""
    try:
        return f"the C compiler is {shlex.join(_command())}"
    except NoCompilerError as error:
        return str(error).partition("\n")[0]


def _version(command: Sequence[str]) -> str:
    """Return the compiler's version and file.

    Raises:
        NoCompilerError: it does not tell it.
    """
    try:
        return _asked_version(tuple(command), os.stat(command[0]).st_mtime_ns)
    except (CompilerError, OSError) as error:
        output = error.output if isinstance(error, CompilerError) else ""
        raise NoCompilerError(f"no C compiler: {error}", output) from error


@functools.lru_cache(maxsize=16)
def _asked_version(command: tuple[str, ...], _mtime: int) -> str:
    """Ask the compiler for its version.  The argument `_mtime` invalidates the cache when the
    compiler is replaced."""
    done, output = _run([*command, "--version"], 60.0)
    if done != 0:
        raise CompilerError(_failure(f"{shlex.join(command)} --version", done, output), output)
    return f"{os.path.realpath(command[0])}\n{output}"


def _run(command: Sequence[str], timeout: float, cwd: Path | None = None) -> tuple[int, str]:
    """Run the compiler; return exit status and the first `_MOST_OUTPUT` bytes of its output.  A
    time-out or Ctrl-C also ends the compiler and the processes that it has started.

    Raises:
        CompilerError: it cannot be run, or takes longer than `timeout`.
        LimitError: it takes longer than the time that is left to this compilation, or more memory.
    """
    environment = {**os.environ, "LC_ALL": "C"}
    left, memory = time_left(), memory_left()
    name, called, begun = command[0], command, time.perf_counter()
    if memory is not None and sys.platform != "win32":
        kib = max(memory, _LEAST_MEMORY) >> 10
        command = ["/bin/sh", "-c", f'ulimit -v {kib} && exec "$0" "$@"', *command]
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
        raise CompilerError(f"cannot run {name}: {error.strerror}") from error
    others = _running.get()
    if others is not None:
        others.add(process)
    reader = _Reader(process)
    try:
        reader.start()
        status = process.wait(timeout if left is None else min(timeout, left))
        reader.join(_AFTER_EXIT)
        if reader.is_alive():  # a process that it has started goes on
            _kill_group(process)
    except subprocess.TimeoutExpired:
        _kill_group(process)
        if left is not None and left < timeout:
            raise LimitError(
                f"{name}: stopped, since the time of this compilation is over (limit wall_time)",
                "wall_time",
            ) from None
        raise CompilerError(f"{name} took more than {timeout:g} seconds and was stopped") from None
    except BaseException:
        _kill_group(process)
        raise
    finally:
        process.wait()
        with contextlib.suppress(RuntimeError):  # Ctrl-C came before the thread had started
            reader.join()
        if others is not None:
            others.discard(process)
    output = reader.output.decode("utf-8", "replace")
    log("compiler", INFO, "%s: %s after %.2f s", shlex.join(called), f"status {status}" if status
        else "done", time.perf_counter() - begun)  # fmt: skip
    if status != 0 and memory is not None and _NO_MEMORY.search(output):
        raise LimitError(
            f"{name}: there is not enough memory under the limit live_bytes\n{output}", "live_bytes"
        )
    return status, output


class _Reader(threading.Thread):
    """Reads what a process writes to the end, and keeps the beginning."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(name="relaxvm-compiler-output", daemon=True)
        self._process = process
        self.output = b""

    def run(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        with stream:
            while chunk := stream.read(_CHUNK):
                self.output += chunk[: _MOST_OUTPUT - len(self.output)]


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has already ended
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
    """Return the directory of compiled libraries; it is created if necessary, with access only for
    the user.

    It is ``$RELAXVM_CACHE_DIR``, else ``relaxvm`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.  If it
    cannot be created (a read-only home), it is a temporary directory of this process, with a
    warning.

    Raises:
        CompilerError: others can write to the directory, or replace it.
    """
    path = cache_path()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "not writable")
    except OSError as error:
        return _private_dir(f"cannot use the cache directory {path}: {error.strerror}")
    check_private(path)
    return path


@contextlib.contextmanager
def _working_in(cache: Path, name: str) -> Iterator[None]:
    """Convert an OSError, such as of a full disk or a removed directory, to a CompilerError."""
    try:
        yield
    except OSError as error:
        file = "" if error.filename is None else f": {os.fsdecode(error.filename)}"
        raise CompilerError(
            f"cannot compile {name} in the cache directory {cache}: {error.strerror}{file}; fix "
            f"this, or set RELAXVM_CACHE_DIR to another directory"
        ) from error


@functools.cache
def _private_dir(reason: str) -> Path:
    directory = tempfile.TemporaryDirectory(prefix="relaxvm-", ignore_cleanup_errors=True)
    _private_dirs.append(directory)
    warn(f"{reason}; compiled kernels are kept for this process only", RelaxVMWarning)
    return Path(directory.name)


_private_dirs: Final[list[tempfile.TemporaryDirectory[str]]] = []
"""They are removed when the process ends."""


def _key(
    command: list[str], options: list[str], objects: Sequence[Path], source: str, name: str
) -> str:
    parts = [
        "1",  # version of the cache's layout
        _version(command),
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
    """Return the CPU that ``-march=native`` depends on, since machines may share a cache."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.node()
    kinds = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in text.splitlines() if line.startswith(kinds)}))


def _recorded_libraries(notes: Mapping[str, Path]) -> dict[str, Path]:
    """Return the libraries of the pieces that are in sound libraries."""
    found: dict[str, Path] = {}
    sound: dict[str, Path | None] = {}
    for piece, note in notes.items():
        try:
            if not is_own(note):
                continue
            text = note.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            continue
        if text not in sound:
            library = note.parents[1].joinpath(*text.split("/"))
            sound[text] = library if _NOTE.fullmatch(text) and is_sound(library) else None
        known = sound[text]
        if known is not None:
            found[piece] = known
    return found


_PIECES: Final = "pieces"
_NOTE: Final = re.compile(r"[0-9a-f]+/[\w-][\w.-]*")
"""Entry and file."""


def _record_library(note: Path, library: Path) -> None:
    """Record atomically which library contains a piece."""
    new = library.parents[1] / f".new-{secrets.token_hex(8)}"
    note.parent.mkdir(exist_ok=True)
    try:
        new.write_text(f"{library.parent.name}/{library.name}", encoding="ascii")
        new.replace(note)
    except IsADirectoryError:
        remove(note)  # the piece will be compiled again
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
    """Compile into a temporary directory, and rename it to the entry."""
    work = Path(tempfile.mkdtemp(prefix=".new-", dir=entry.parent))
    try:
        sweep(entry.parent, work)
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
        publish(work, library)
    finally:
        remove(work)
