"""compile: programs of any kind become executables, which are kept on disk for later processes.

An entry is found by what it was made of: the content and the name of the program's file, the
options of the compilation, this copy of relaxvm, and the processor's set of instructions.  So
nothing goes out of date, and a program that is in the cache runs without the compiler, which is not
even imported.  The cache is bounded: what was not used for the longest time goes first.

Entries are files of executables with aligned tensors, which are mapped into memory, and they are
verified like any other.  `relaxvm.disk_cache` keeps them safe from other users and from processes
that are killed.  Where a cache cannot be used, programs are compiled, with a warning.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ..collecting import collection_paused
from ..disk_cache import (
    cache_folder,
    check_private,
    is_own,
    is_sound,
    publish,
    remove,
    sound_content,
    sweep,
)
from ..errors import CompilerError, RelaxVMError, RelaxVMWarning
from ..executable import VMExecutable
from ..executable.file_kinds import HEAD_BYTES, KINDS, FileKind, kind_of
from ..hooks import hook
from ..limits import Limits
from ..logs import INFO, log
from ..messages import warn
from . import cache_index

if TYPE_CHECKING:
    from pathlib import Path

# hashlib, json and pathlib are imported where they are needed: a file that the index knows needs
# none of them, and starts faster.

__all__ = [
    "Entry",
    "cache_limit",
    "clear_cache",
    "compile",
    "compile_file",
    "entries",
    "is_enabled",
    "programs_path",
    "size_of",
]

_LAYOUT: Final = "2"
"""The version of the entries, their keys, and the index."""
_PROGRAM: Final = "program.rvm"
_FILES: Final = "files.json"
"""In the entry of a model whose tensors are in other files: the names of these."""
_CACHED: Final = ("onnx", "pt2", "json", "relay")
"""The kinds of files that are kept.  A script may do anything when it runs, so it runs."""
_SIZE: Final = 2 << 30
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_OFF: Final = frozenset({"0", "off", "false", "no"})
_LOCK_SECONDS: Final = 120.0
"""The most time to wait for another process that compiles the same program."""
_POLL_SECONDS: Final = 0.02


# ---- settings ------------------------------------------------------------------------------


def is_enabled() -> bool:
    """Whether programs are kept: not with ``RELAXVM_CACHE=off``."""
    return os.environ.get("RELAXVM_CACHE", "").strip().lower() not in _OFF


def programs_path() -> Path:
    """The directory of the entries."""
    from pathlib import Path

    return Path(_folder())


def _folder() -> str:
    return os.path.join(cache_folder(), "programs")


def cache_limit() -> int:
    """The most bytes of all entries: ``$RELAXVM_CACHE_SIZE``, such as ``500M``, or 2 GiB.

    Raises:
        ValueError: the variable is no size.
    """
    text = os.environ.get("RELAXVM_CACHE_SIZE", "").strip().upper()
    if not text:
        return _SIZE
    size = size_of(text)
    if size is None:
        raise ValueError(
            f"RELAXVM_CACHE_SIZE: expected a number of bytes, or one with K, M, G or T, "
            f"got {os.environ['RELAXVM_CACHE_SIZE']!r}"
        )
    return size


def size_of(text: str) -> int | None:
    """The bytes that a text such as ``500M`` or ``2GiB`` says; None if it is no size."""
    number, unit = text.strip().upper().removesuffix("B").removesuffix("I"), ""
    if number and number[-1] in _UNITS:
        number, unit = number[:-1], number[-1]
    if not (number.isascii() and number.isdigit() and len(number) < 16):
        return None
    return int(number) * _UNITS[unit]


# ---- compiling -----------------------------------------------------------------------------


def compile(  # noqa: A001  (TVM's name)
    program: Any,
    target: Any = None,
    params: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    relax_pipeline: Any = "default",
    exec_mode: str = "bytecode",
    *,
    limits: Limits | None = None,
    entry: str | None = None,
    cache: bool = True,
    precise: bool = False,
    memory: str = "default",
    precision: str = "default",
    reassociate: bool = False,
    **options: Any,
) -> VMExecutable:
    """Compile a program of any kind: all that `build` takes, and files of other frontends.

    Executables of files, of bytes and of an ``onnx.ModelProto`` are kept on disk, and the next
    compilation of the same program with the same options reads them; see ``docs/cache.md``.

    Args:
        program: an IRModule or a function; the path of an ONNX model, of a program of torch.export
            (.pt2), of a Python script, which is run, of a module in JSON, or of a Relay text; the
            bytes of one, but of no script; an ``onnx.ModelProto``; or a
            ``torch.export.ExportedProgram``.
        target, params, relax_pipeline, exec_mode, limits, precise, memory, precision,
            reassociate: as in `build`.
        entry: of a script, the name of the IRModule; None for ``Module``, or the only one.
        cache: whether the executable is looked for on disk, and kept there.
        options: for an ONNX model, arguments of `relaxvm.frontend.onnx.from_onnx`, such as
            ``shape_dict``, ``opset`` and ``operators``; for a program of torch.export those of
            `relaxvm.frontend.torch.from_exported_program`.

    Raises:
        OSError: a file cannot be read.
        FormatError: a file is malformed, or running a script raised an exception.
        RelaxVMError: a model has operators that are not supported; the message lists all of them.
        IllFormedError, TypeError, ValueError, OverflowError, NestingError, LimitError: as in
            `build`.
    """
    arguments = _Arguments(
        target, params, relax_pipeline, exec_mode, entry, options, precise, memory, precision,
        reassociate,
    )  # fmt: skip

    def make() -> VMExecutable:
        made: VMExecutable = hook("compile")(
            program, target, params, relax_pipeline, exec_mode, limits=limits, entry=entry,
            precise=precise, memory=memory, precision=precision, reassociate=reassociate,
            **options,
        )  # fmt: skip
        return made

    return _cached(program, arguments, limits, make) if cache else make()


def compile_file(
    path: str | os.PathLike[str], limits: Limits | None = None, relax_pipeline: str = "default"
) -> VMExecutable:
    """Compile the program of a file, other than a Python script, which would run; or find its
    executable on disk.

    Raises:
        ValueError: it is a script, or no program; otherwise as `compile`.
    """

    def make() -> VMExecutable:
        made: VMExecutable = hook("compile_file")(path, limits, relax_pipeline)
        return made

    return _cached(path, _Arguments(relax_pipeline=relax_pipeline), limits, make)


class _Arguments(NamedTuple):
    """The arguments of a compilation that decide what comes out."""

    target: Any = None
    params: Any = None
    relax_pipeline: Any = "default"
    exec_mode: str = "bytecode"
    entry: str | None = None
    options: Mapping[str, Any] = {}
    precise: bool = False
    memory: str = "default"
    precision: str = "default"
    reassociate: bool = False


class _Source(NamedTuple):
    """What is compiled: the name of its file, the digest of its content, and the state of the file
    when it was read."""

    name: str
    digest: str
    path: str | None
    state: tuple[int, ...]

    def is_unchanged(self) -> bool:
        """Whether the file is the one whose content has the digest."""
        if self.path is None:
            return True
        try:
            return cache_index.state_of(os.stat(self.path)) == self.state
        except OSError:
            return False


class _NotCached(Exception):
    """A program that is not kept: the key cannot say what comes out."""


def _cached(program: Any, arguments: _Arguments, limits: Limits | None, make: Any) -> VMExecutable:
    """Return the executable of an entry, or make one and keep it."""
    if not is_enabled():
        return make()  # type: ignore[no-any-return]
    folder = _folder()
    try:
        context = _context(arguments)
        _check(folder)
        question = _question(program, arguments, context)
        if question is not None:
            content = cache_index.find(folder, question, _PROGRAM)
            known = None if content is None else _loaded(content, limits, passed=limits is None)
            if known is not None:
                log("cache", INFO, "%s: found, compiled before", program)
                return known
        source = _source_of(program, limits)
        key = _digest([*context, source.name, source.digest])
        found = _find(folder, key, source, limits, question)
    except _NotCached:
        return make()  # type: ignore[no-any-return]
    if found is not None:
        log("cache", INFO, "%s: found, compiled before", source.path or "bytes")
        return found
    with _locked(folder, key):
        # Another process may have made it meanwhile.
        found = _find(folder, key, source, limits, question)
        if found is not None:
            return found
        begun, started = time.perf_counter(), time.time()
        made: VMExecutable = make()
        log("cache", INFO, "%s: compiled in %.2f s", source.path or "bytes",
            time.perf_counter() - begun)  # fmt: skip
        _keep(folder, key, source, made, started)
    return made


def _check(folder: str) -> None:
    """Check the directory of the entries, which is made if necessary.

    Raises:
        _NotCached: it cannot be made, or others can write to it; there is a warning.
    """
    try:
        if not os.path.exists(folder):
            parent = os.path.dirname(folder)
            os.makedirs(os.path.dirname(parent), exist_ok=True)
            for path in (parent, folder):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(path, 0o700)
        if not is_own(folder, stat.S_ISDIR):
            raise CompilerError(f"cache directory {folder}: expected a directory that belongs to "
                                "this user alone")  # fmt: skip
        check_private(folder)
    except (OSError, CompilerError) as error:
        warn(f"compiled programs are not kept: {error}", RelaxVMWarning)
        raise _NotCached from None


# ---- keys ----------------------------------------------------------------------------------


def _source_of(program: Any, limits: Limits | None) -> _Source:
    """What is compiled.

    Raises:
        _NotCached: it is no file and no bytes, or of a kind that is not kept, or cannot be read;
            then compiling it says so.
    """
    import hashlib
    import mmap

    if isinstance(program, (str, os.PathLike)):
        path = os.fspath(program)
        try:
            with open(path, "rb") as file:
                state = cache_index.state_of(os.fstat(file.fileno()))
                _refuse_kind(kind_of(file.read(HEAD_BYTES), path))
                if not os.fstat(file.fileno()).st_size:
                    raise _NotCached
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError, TypeError):
            raise _NotCached from None
        digest = hashlib.sha256(mapped).hexdigest()
        mapped.close()
        return _Source(os.path.basename(path), digest, path, state)
    kind: FileKind | None
    if hasattr(program, "SerializeToString"):
        data, kind = program.SerializeToString(), KINDS["onnx"]
    elif isinstance(program, (bytes, bytearray, memoryview)):
        data = memoryview(program)
        if not data.contiguous:
            raise _NotCached
        kind = kind_of(bytes(data.cast("B")[:HEAD_BYTES]))
    else:
        raise _NotCached
    _refuse_kind(kind)
    if limits is not None and limits.file_bytes is not None and len(data) > limits.file_bytes:
        raise _NotCached
    return _Source("", hashlib.sha256(data).hexdigest(), None, ())


def _refuse_kind(kind: FileKind | None) -> None:
    if kind is None or kind.name not in _CACHED:
        raise _NotCached


def _question(program: Any, arguments: _Arguments, context: list[str]) -> str | None:
    """What the index is asked: None if the program is no file, or there are parameters in a file.

    Raises:
        _NotCached: the file cannot be read; then compiling it says so.
    """
    if not isinstance(program, (str, os.PathLike)):
        return None
    if isinstance(arguments.params, (str, os.PathLike)):
        return None
    path = os.fspath(program)
    try:
        with open(path, "rb") as file:
            state = cache_index.state_of(os.fstat(file.fileno()))
    except (OSError, ValueError, TypeError):
        raise _NotCached from None
    return repr([os.path.abspath(path), state, *context]) if isinstance(path, str) else None


def _context(arguments: _Arguments) -> list[str]:
    """What decides what comes out, apart from the program.

    Raises:
        _NotCached: there is an argument that has no content to compare, such as a function; or
            passes or operators of the user take part.
    """
    if "relaxvm.transform" in sys.modules and not hook("compiles_as_shipped")():
        raise _NotCached
    if not isinstance(arguments.relax_pipeline, (str, type(None))):
        raise _NotCached
    from ..kernels.cpu import CPU, SETS, has_amx

    params = arguments.params
    if isinstance(params, (str, os.PathLike)):
        params = [os.fspath(params), _digest_of_file(params)]
    rest = arguments._replace(params=params)
    return [
        _LAYOUT, *_this_package(), sys.platform, os.uname().machine if os.name == "posix" else "",
        CPU, ",".join(SETS), os.environ.get("CC", ""), os.environ.get("RELAXVM_CFLAGS", ""),
        "amx" if arguments.precision == "bfloat16" and has_amx() else "",
        _canonical(list(rest)),
    ]  # fmt: skip


def _digest(parts: list[str]) -> str:
    import hashlib
    import json

    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


def _digest_of_file(path: str | os.PathLike[str]) -> str:
    import hashlib

    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        raise _NotCached from None


def _canonical(value: Any) -> str:
    """A text that is equal for equal arguments of a compilation, and only for these."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_canonical, value))}]"
    if isinstance(value, (set, frozenset)):
        return f"{{{','.join(sorted(map(_canonical, value)))}}}"
    if isinstance(value, Mapping):
        items = [f"{_canonical(k)}={_canonical(v)}" for k, v in value.items()]
        return f"<{','.join(items)}>"
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        import hashlib

        data = np.ascontiguousarray(value)
        digest = hashlib.sha256(data.reshape(-1).view(np.uint8).data).hexdigest()
        return f"array:{data.dtype.str}{data.dtype.name}{data.shape}{digest}"
    raise _NotCached


def _this_package() -> list[str]:
    """What tells this copy of relaxvm from others: its version and the state of its files.  An
    installation writes all of them; in a checkout, any of them may change."""
    from .. import __file__ as initial
    from .. import __version__

    home = os.path.dirname(initial)
    files = [initial]
    if os.path.exists(os.path.join(os.path.dirname(home), "pyproject.toml")):
        files = [os.path.join(folder, name) for folder, _, names in os.walk(home) for name in names
                 if name.endswith((".py", ".so", ".pyd"))]  # fmt: skip
    states = [
        (name, status.st_size, status.st_mtime_ns)
        for name, status in [(name, os.stat(name)) for name in sorted(files)]
    ]
    return [__version__, np.__version__, repr(states)]


# ---- entries -------------------------------------------------------------------------------


def _find(
    folder: str, key: str, source: _Source, limits: Limits | None, question: str | None
) -> VMExecutable | None:
    """Read the executable of an entry; None if there is none, or it is broken."""
    files = _other_files(folder, key)
    if files is not None:
        full = _full_key(key, source, files)
        if full is None:
            return None
        key = full
    place = os.path.join(folder, key)
    content = sound_content(os.path.join(place, _PROGRAM))
    if content is None:
        return None
    found = _loaded(content, limits)
    if found is None:
        if limits is None:
            from pathlib import Path

            remove(Path(place))
        return None
    with contextlib.suppress(OSError):
        os.utime(place)  # the order in which entries go
    if question is not None and source.path is not None and limits is None:
        home = os.path.dirname(os.path.realpath(source.path))
        files = [source.path, *[os.path.join(home, name) for name in files or ()]]
        if source.is_unchanged():
            cache_index.keep(folder, question, key, _PROGRAM, [*map(os.path.abspath, files)])
    return found


def _loaded(
    content: memoryview, limits: Limits | None, *, passed: bool = False
) -> VMExecutable | None:
    """Read an executable; None if it is broken, or larger than the limits allow: compiling the
    program says which."""
    from ..executable.loading import load_library

    try:
        with collection_paused():
            return load_library(content, limits=limits, mmap=True, passed=passed)
    except (RelaxVMError, ValueError):
        return None


def _other_files(folder: str, key: str) -> list[str] | None:
    place = os.path.join(folder, key, _FILES)
    content = sound_content(place) if os.path.exists(place) else None
    if content is None:
        return None
    import json

    try:
        names = json.loads(bytes(content))
    except ValueError:
        return None
    ok = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return names if ok else None


def _full_key(key: str, source: _Source, files: list[str]) -> str | None:
    """The key of a model with the content of other files; None if one of them is not there, so that
    compiling the model says what is wrong."""
    from pathlib import Path

    if source.path is None:
        return None
    parts = [key]
    home = Path(source.path).resolve().parent
    try:
        for name in files:
            path = home / name
            if path.is_symlink() or path.stat().st_nlink > 1:
                return None
            parts += [name, _digest_of_file(path)]
    except (OSError, _NotCached):
        return None
    return _digest(parts)


def _states_of(source: _Source, files: Sequence[str]) -> list[tuple[int, ...]]:
    """The states of the other files of a model; none if one of them is not there."""
    if source.path is None:
        return []
    home = os.path.dirname(os.path.realpath(source.path))
    try:
        return [cache_index.state_of(os.stat(os.path.join(home, name))) for name in files]
    except OSError:
        return []


def _keep(place: str, key: str, source: _Source, made: VMExecutable, started: float) -> None:
    """Write an entry, unless a file has changed since the compilation started: then the program may
    be made of what was there before.  What goes wrong is a warning: the program is there."""
    import json
    from pathlib import Path

    from ..executable.portability import functions_of_this_process

    folder = Path(place)
    if functions_of_this_process(made, made.prim_funcs):
        return
    try:
        limit = cache_limit()
        if sum(getattr(each, "nbytes", 0) for each in made.constants) > limit:
            return  # before gigabytes are read and written in vain, now and at each later start
        files = made.model.files if made.model is not None else ()
        if files:
            states = _states_of(source, files)
            full = _full_key(key, source, list(files))
            changed = max((state[-1] for state in states), default=None)
            if full is None or changed is None or changed > started * 1e9:
                return
            if _states_of(source, files) != states:
                return
            _write(folder / key / _FILES, json.dumps(files).encode(), limit)
            key = full
        if not source.is_unchanged():
            return
        if _write(folder / key / _PROGRAM, made, limit):
            _evict(folder, key, limit)
    except (OSError, CompilerError, RelaxVMError, TypeError, ValueError) as error:
        warn(f"the compiled program is not kept in {folder}: {error}", RelaxVMWarning)


def _write(file: Path, content: VMExecutable | bytes, limit: int) -> bool:
    """Write the file of an entry; return whether it is small enough to be kept."""
    if is_sound(file):
        return True
    import tempfile  # here, since a program that is in the cache does not need it
    from pathlib import Path

    work = Path(tempfile.mkdtemp(prefix=".new-", dir=file.parent.parent))
    try:
        sweep(file.parent.parent, work)
        if isinstance(content, bytes):
            (work / file.name).write_bytes(content)
        else:
            content.export_library(work / file.name, aligned=True)
        if (work / file.name).stat().st_size > limit:
            return False
        publish(work, file)
        return True
    finally:
        remove(work)


@contextlib.contextmanager
def _locked(folder: str, key: str) -> Iterator[None]:
    """Let one process compile a program while others that want it wait.  Where there are no locks,
    each compiles it."""
    try:
        import fcntl

        path = os.path.join(folder, f".lock-{key[:2]}")
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except (ImportError, OSError):
        yield
        return
    try:
        last = time.monotonic() + _LOCK_SECONDS
        while time.monotonic() < last:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_POLL_SECONDS)
            except OSError:  # the file system has no locks
                break
        yield
    finally:
        # Closing alone would not do it in a process whose children have the file, too.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


# ---- what is kept --------------------------------------------------------------------------


class Entry(NamedTuple):
    """An entry of the cache: its directory, bytes, and the time of its last use."""

    path: Path
    nbytes: int
    used: float


def entries() -> list[Entry]:
    """The entries, the one that was used last in front."""
    found = []
    with contextlib.suppress(OSError):
        for path in programs_path().iterdir():
            # Another process may remove it meanwhile.
            with contextlib.suppress(OSError):
                if not path.name.startswith(".") and is_own(path, stat.S_ISDIR):
                    size = sum(file.lstat().st_size for file in path.iterdir())
                    found.append(Entry(path, size, path.lstat().st_mtime))
    return sorted(found, key=lambda entry: (-entry.used, entry.path))


def clear_cache() -> int:
    """Remove all entries; return the number of bytes.  Processes that use them go on.

    Raises:
        OSError: one cannot be removed.
    """
    import shutil

    removed = 0
    for entry in entries():
        shutil.rmtree(entry.path)
        removed += entry.nbytes
    return removed


def _evict(folder: Path, newest: str, limit: int) -> None:
    """Remove entries until the rest fits the bound."""
    total = 0
    for entry in entries():
        total += entry.nbytes
        if total > limit and entry.path.name != newest:
            remove(entry.path)
