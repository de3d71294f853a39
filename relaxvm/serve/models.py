"""The models of a server: found in folders, loaded when they are needed, unloaded when memory is.

A folder has a file per model, ``NAME.onnx``, or a folder per model with a folder per version, as
Triton's do: ``NAME/1/model.onnx``.  Files are those that `relaxvm.VirtualMachine` takes, except
Python scripts.  ``NAME.toml``, or ``NAME/relaxvm.toml``, has options: the fields of `ModelOptions`.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from ..errors import RelaxVMError, did_you_mean
from ..executable import VMExecutable
from ..executable.file_kinds import HEAD_BYTES, kind_of
from ..executable.loading import load
from ..limits import Limits
from ..logs import INFO, log
from ..messages import readable
from ..vm.machine import VirtualMachine
from ..vm.program_cache import compile_file
from .interface import Interface
from .scheduling import Scheduler, Share
from .weights import SharedWeights, nbytes_of

__all__ = [
    "Model",
    "ModelError",
    "ModelOptions",
    "Repository",
    "UnknownModelError",
    "served_limits",
]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_VERSION: Final = re.compile(r"[1-9][0-9]{0,8}|0")
_SUFFIXES: Final = (".vmexec", ".onnx", ".pt2", ".json", ".relay", ".txt")
_OPTIONS: Final = "relaxvm.toml"
_UPLOADED: Final = ".uploaded"
"""A file in the folders of models that clients have sent."""
_MACHINE_BYTES: Final = 64 << 10
"""What a loaded model takes beside its weights, about."""


class ModelError(RelaxVMError):
    """A model cannot be loaded, or is not loaded."""


class UnknownModelError(ModelError):
    """There is no model, or no version of it, of a name."""


def served_limits() -> Limits:
    """The limits of models that say nothing of them: those of files of unknown origin, with room
    for large models, and a minute for a call."""
    return Limits.untrusted().but(
        file_bytes=4 << 30, functions=100_000, instructions=50_000_000, constants=1_000_000,
        fuel=None, wall_time=60.0, live_bytes=4 << 30, alloc_bytes=1 << 30,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How a model is served.

    Attributes:
        function: the function that requests call.
        trusted: whether it may call all functions that are registered, and has no limits unless
            `limits` has some.  Without it, there are only the builtins without effects.
        weight: of its turns against those of other models.
        priority: of requests that do not say one; greater ones go first.
        slots: the most requests that run at a time.
        queue: the most that wait; further ones are refused.
        timeout: seconds for a request, from its arrival; None for those of the server.
        batch: the most rows that are computed at once; 1 to compute each request by itself.
        batch_delay: seconds that a request waits for others to join it.
        sessions: the most sessions at a time; 0 for none.
        limits: of its runs: fields of `relaxvm.Limits`.
    """

    function: str = "main"
    trusted: bool = False
    weight: float = 1.0
    priority: int = 0
    slots: int = 64
    queue: int = 1_000
    timeout: float | None = None
    batch: int = 1
    batch_delay: float = 0.002
    sessions: int = 64
    limits: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_table(cls, table: Mapping[str, Any], source: str, base: ModelOptions) -> ModelOptions:
        """Options of a TOML file, over others.

        Raises:
            ModelError: an option is unknown, or of the wrong type.
        """
        known = {each.name: getattr(base, each.name) for each in fields(cls)}
        for name, value in table.items():
            if name not in known:
                raise ModelError(f"{source}: unknown option {readable(name)}"
                                 f"{did_you_mean(name, list(known))}")  # fmt: skip
            kinds = _OPTION_TYPES[name]
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                names = " or ".join(kind.__name__ for kind in kinds)
                raise ModelError(f"{source}: {name}: expected {names}, got {value!r}")
        options = replace(base, **table)
        for name, least in _LEAST.items():
            value = getattr(options, name)
            if value is not None and not (least <= value < math.inf):
                raise ModelError(f"{source}: {name}: expected at least {least}, got {value}")
        if not -_MOST_PRIORITY <= options.priority <= _MOST_PRIORITY:
            raise ModelError(f"{source}: priority: expected a number from -{_MOST_PRIORITY} to "
                             f"{_MOST_PRIORITY}, got {options.priority}")  # fmt: skip
        try:
            options.run_limits()
        except (TypeError, ValueError) as error:
            raise ModelError(f"{source}: limits: {error}") from None
        return options

    def run_limits(self) -> Limits:
        """The limits of its runs."""
        base = Limits() if self.trusted else served_limits()
        return base.but(**self.limits)


_OPTION_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "function": (str,), "trusted": (bool,), "weight": (int, float), "priority": (int,),
    "slots": (int,), "queue": (int,), "timeout": (int, float), "batch": (int,),
    "batch_delay": (int, float), "sessions": (int,), "limits": (dict,),
}  # fmt: skip
_MOST_PRIORITY: Final = 1_000
_LEAST: Final = {
    "weight": 1e-3, "slots": 1, "queue": 0, "timeout": 0.001, "batch": 1, "batch_delay": 0,
    "sessions": 0,
}  # fmt: skip


class Model:
    """A version of a model.

    Attributes:
        name, version: which it is.
        path: of its file.
        options: how it is served.
        share: of the scheduler.
        reason: why it is not loaded, or empty.
    """

    def __init__(
        self, name: str, version: str, path: Path, options: ModelOptions, share: Share
    ) -> None:
        self.name = name
        self.version = version
        self.path = path
        self.options = options
        self.share = share
        self.reason = ""
        self.is_wanted = True  # False once somebody has unloaded it by name
        self._stamp = _stamp(path)
        self._lock = threading.Lock()  # of loading
        self._users = 0
        self._last_use = 0.0
        self._vm: VirtualMachine | None = None
        self._interface: Interface | None = None
        self._bytes = 0

    @property
    def is_loaded(self) -> bool:
        """Whether it is in memory."""
        return self._vm is not None

    @property
    def nbytes(self) -> int:
        """The bytes of its weights, those that are mapped from its file included; 0 unless it is
        loaded."""
        return self._bytes

    @property
    def vm(self) -> VirtualMachine:
        """Its machine; only while it is in use."""
        assert self._vm is not None
        return self._vm

    @property
    def interface(self) -> Interface:
        """What its function takes and returns; only while it is in use."""
        assert self._interface is not None
        return self._interface

    @property
    def kind(self) -> str:
        """The kind of its file."""
        return self.path.suffix.removeprefix(".") or "executable"

    def new_machine(self) -> VirtualMachine:
        """Another machine, with a state of its own and the same weights."""
        return _machine(self.vm.executable, self.options)

    def __repr__(self) -> str:
        state = "loaded" if self.is_loaded else self.reason or "not loaded"
        return f"<Model {readable(self.name)} {self.version}: {state}>"


class Repository:
    """Models by name and version.

    Args:
        folders: where models are; or files of models.
        scheduler: makes their shares.
        memory: the bytes of weights above which models that were not used for the longest time are
            unloaded; None for no bound.  Models in use stay.
        options: of models without a file of options, and of options that such a file does not have.
        on_change: is called after a model was loaded or unloaded.

    Raises:
        OSError: a folder cannot be read.
        ModelError: two models have one name, or options are wrong.
    """

    def __init__(
        self,
        folders: Iterable[str | os.PathLike[str]],
        scheduler: Scheduler,
        *,
        memory: int | None = None,
        options: ModelOptions | None = None,
        on_change: Callable[[], object] = lambda: None,
    ) -> None:
        self._folders = [Path(folder) for folder in folders]
        self._scheduler = scheduler
        self._memory = memory
        self._options = ModelOptions() if options is None else options
        self._on_change = on_change
        self._lock = threading.Lock()
        self._files_lock = threading.Lock()  # of looking for files, and replacing them
        self._models: dict[str, dict[str, Model]] = {}
        self._wrong: dict[str, ModelError] = {}
        self._executables: dict[tuple[Any, ...], VMExecutable] = {}
        self._weights = SharedWeights()
        self._scan()
        for error in self._wrong.values():
            raise error

    # Finding

    def scan(self) -> None:
        """Look for new files, and for those that have gone.

        A model whose options are wrong now, or whose name another one has, stays as it was; `load`
        says what is wrong.

        Raises:
            ModelError: a folder cannot be read; all models stay as they were.
        """
        try:
            self._scan()
        except OSError as error:
            raise ModelError(f"models cannot be looked for: {error}") from error

    def _scan(self) -> None:
        with self._files_lock:
            wrong: dict[str, ModelError] = {}
            found: dict[str, dict[str, tuple[Path, Path]]] = {}
            for folder in self._folders:
                for name, version, path, options in _files(folder):
                    versions = found.setdefault(name, {})
                    first, _ = versions.setdefault(version, (path, options))
                    if first != path:
                        wrong[name] = ModelError(f"two models have the name {readable(name)}: "
                                                 f"{first} and {path}")  # fmt: skip
            made: dict[str, dict[str, Model]] = {}
            for name, versions in found.items():
                old = self._models.get(name, {})
                try:
                    made[name] = {
                        version: self._model(old.get(version), name, version, path, options)
                        for version, (path, options) in sorted(versions.items(), key=_by_version)
                    }
                except FileNotFoundError:
                    continue  # it has gone meanwhile
                except ModelError as error:
                    wrong[name] = error
                    if old:
                        made[name] = old
            with self._lock:
                self._models = made
                self._wrong = wrong
                self._forget_executables()
        for each in wrong.values():
            log("serve", INFO, "wrong model: %s", each)

    def _model(
        self, old: Model | None, name: str, version: str, path: Path, options_path: Path
    ) -> Model:
        options = _read_options(options_path, self._options)
        this = path, options, _stamp(path)
        if old is not None and (old.path, old.options, old._stamp) == this:
            return old
        share = self._scheduler.share(
            name, weight=options.weight, slots=options.slots, queue=options.queue
        )
        model = Model(name, version, path, options, share)
        if old is not None and not old.is_wanted:
            model.is_wanted, model.reason = False, old.reason
        return model

    def __iter__(self) -> Iterator[Model]:
        for versions in list(self._models.values()):
            yield from versions.values()

    def versions(self, name: str) -> list[Model]:
        """The versions of a model, the oldest first.

        Raises:
            UnknownModelError: there is no such model.
        """
        versions = self._models.get(name)
        if not versions:
            raise UnknownModelError(f"unknown model {readable(name)}"
                                    f"{did_you_mean(name, list(self._models))}")  # fmt: skip
        return list(versions.values())

    def find(self, name: str, version: str | None = None) -> Model:
        """A version of a model; the newest one if it is not said which.

        Raises:
            UnknownModelError: there is none.
        """
        versions = self.versions(name)
        if version is None:
            return versions[-1]
        for model in versions:
            if model.version == version:
                return model
        known = ", ".join(model.version for model in versions)
        raise UnknownModelError(f"model {readable(name)} has no version {readable(version)}, it "
                                f"has {known}")  # fmt: skip

    # Loading

    @contextmanager
    def use(self, name: str, version: str | None = None) -> Iterator[Model]:
        """A loaded model, which stays loaded meanwhile.

        Raises:
            UnknownModelError: there is no such model.
            ModelError: it was unloaded by name, or cannot be loaded.
        """
        model = self.acquire(name, version)
        try:
            yield model
        finally:
            self.release(model)

    def acquire(self, name: str, version: str | None = None) -> Model:
        """As `use`; `release` has to be called afterwards."""
        model = self.find(name, version)
        self.acquire_model(model)
        return model

    def acquire_model(self, model: Model) -> None:
        """As `acquire`, of a version that was found."""
        if not self.try_acquire(model):
            if not model.is_wanted:
                raise ModelError(f"model {readable(model.name)} was unloaded")
            self._load(model)

    def try_acquire(self, model: Model) -> bool:
        """Use a model if it is loaded, and nobody has unloaded it by name; return whether so."""
        return model.is_wanted and self.acquire_again(model)

    def acquire_again(self, model: Model) -> bool:
        """Use a model if it is in memory, also one that others end to use; return whether so."""
        with self._lock:
            if model._vm is None:
                return False
            model._users += 1
            model._last_use = time.monotonic()
            return True

    def release(self, model: Model) -> None:
        """End the use of a model."""
        with self._lock:
            model._users -= 1
            model._last_use = time.monotonic()
            if model._users == 0 and not model.is_wanted:
                self._unload(model)
        self._make_room()

    def load(self, name: str) -> None:
        """Load the newest version of a model, and look at its file and its options again.

        Raises:
            UnknownModelError: there is no such model.
            ModelError: it cannot be loaded.
        """
        self.scan()
        if name in self._wrong:
            raise self._wrong[name]
        model = self.find(name)
        for each in self.versions(name):
            each.is_wanted = True
            each.reason = ""
        self._load(model)
        self.release(model)

    def unload(self, name: str) -> None:
        """Unload all versions of a model; requests that run end first.

        Raises:
            UnknownModelError: there is no such model.
        """
        with self._lock:
            for model in self.versions(name):
                model.is_wanted = False
                model.reason = "unloaded"
                if not model._users:
                    self._unload(model)
        self._on_change()

    @property
    def nbytes(self) -> int:
        """The bytes of the weights of all loaded models; weights that they share count once."""
        loaded = {id(m.vm.executable): m.vm.executable for m in self if m.is_loaded}
        return len(loaded) * _MACHINE_BYTES + nbytes_of(loaded.values())

    def _load(self, model: Model) -> None:
        with model._lock:  # others wait for the one that loads it
            if self.acquire_again(model):
                return
            begun = time.perf_counter()
            try:
                key, executable = self._executable(model)
                executable = self._weights.of(executable)
                vm = _machine(executable, model.options)
                interface = Interface.of(executable, model.options.function)
                if model.options.batch > 1:
                    interface.check_joinable()
            except Exception as error:  # whatever is wrong with one model, others go on
                model.reason = f"{type(error).__name__}: {error}"
                log("serve", INFO, "cannot load %s: %s", model.name, model.reason)
                raise ModelError(
                    f"model {readable(model.name)} cannot be loaded: {model.reason}"
                ) from error
            with self._lock:
                self._executables[key] = executable
                model._vm, model._interface = vm, interface
                model._bytes = _MACHINE_BYTES + nbytes_of([executable])
                model._users += 1
                model._last_use = time.monotonic()
                model.reason = ""
        log("serve", INFO, "loaded %s version %s in %.3f s", model.name, model.version,
            time.perf_counter() - begun)  # fmt: skip
        self._make_room()
        self._on_change()

    def _executable(self, model: Model) -> tuple[tuple[Any, ...], VMExecutable]:
        """The executable of a file; models whose files are one file share it."""
        limits = model.options.run_limits()
        key = (*_stamp(model.path), limits)
        with self._lock:
            known = self._executables.get(key)
        if known is not None:
            return key, known
        compiling = limits.but(wall_time=None if limits.wall_time is None else 600.0)
        with open(model.path, "rb") as file:
            kind = kind_of(file.read(HEAD_BYTES), os.fspath(model.path))
        if kind is not None and kind.name == "library" and not model.options.trusted:
            raise ModelError(f"{model.path} is a shared library, whose code runs when it is "
                             f"loaded; it needs the option trusted")  # fmt: skip
        if kind is not None and kind.is_program:
            return key, compile_file(model.path, compiling)
        return key, load(model.path, limits=limits)

    def _unload(self, model: Model) -> None:
        """With the lock."""
        model._vm = model._interface = None
        model._bytes = 0
        self._forget_executables()

    def _forget_executables(self) -> None:
        """Forget those that no model has; with the lock."""
        in_use = {id(each.vm.executable) for each in self if each.is_loaded}
        for key, executable in list(self._executables.items()):
            if id(executable) not in in_use:
                del self._executables[key]
        self._weights.forget()

    def _make_room(self) -> None:
        """Unload what was not used for the longest time, if there is too much."""
        if self._memory is None:
            return
        gone = []
        with self._lock:
            total = self.nbytes
            idle = sorted(
                (m for m in self if m.is_loaded and not m._users), key=lambda m: m._last_use
            )
            for model in idle:
                if total <= self._memory:
                    break
                self._unload(model)
                gone.append(model)
                total = self.nbytes
        for model in gone:
            log("serve", INFO, "unloaded %s version %s: memory", model.name, model.version)
        if gone:
            self._on_change()

    # Uploads

    def upload(
        self, name: str, files: Mapping[str, bytes], batch: int = 1, batch_delay: float = 0.002
    ) -> None:
        """Write the files of a model to the first folder, in place of those that were sent before.

        Args:
            name: of the model.
            files: by their names, such as ``1/model.onnx``.
            batch, batch_delay: see `ModelOptions`, of which it gets no others.

        Raises:
            ModelError: a name is not allowed, or there is a model or a file of that name, which was
                not sent.
            OSError: they cannot be written.
        """
        if not _NAME.fullmatch(name) or Path(name).suffix in (".toml", *_SUFFIXES):
            raise ModelError(f"upload: {readable(name)} is no name for a model: expected letters, "
                             f"digits, '.', '_' and '-', and no suffix of a file")  # fmt: skip
        for path in files:
            version, _, rest = path.partition("/")
            is_allowed = _VERSION.fullmatch(version) and _NAME.fullmatch(rest)
            if not is_allowed or Path(rest).suffix not in _SUFFIXES:
                raise ModelError(f"upload: {readable(path)}: expected VERSION/NAME with a suffix "
                                 f"of {', '.join(_SUFFIXES)}")  # fmt: skip
        if not files:
            raise ModelError("upload: expected files")
        for model in self._models.get(name, {}).values():
            if model.path.parent.parent != self._folders[0] / name:
                raise ModelError(f"upload: {readable(name)} is {model.path} already, which is not "
                                 f"replaced")  # fmt: skip
        folder = self._folders[0]
        place = folder / name
        work = Path(tempfile.mkdtemp(prefix=".upload-", dir=folder))
        try:
            for path, content in files.items():
                file = work / "new" / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            text = f"trusted = false\nbatch = {batch}\nbatch_delay = {batch_delay}\n"
            (work / "new" / _OPTIONS).write_text(text, encoding="utf-8")
            (work / "new" / _UPLOADED).touch()
            with self._files_lock:
                is_there = os.path.lexists(place)
                if is_there:
                    if not (place / _UPLOADED).is_file():
                        raise ModelError(f"upload: {place} is there already, and was not sent by a "
                                         f"client; it is not replaced")  # fmt: skip
                    os.rename(place, work / "old")
                try:
                    os.rename(work / "new", place)
                except OSError:
                    if is_there:
                        os.rename(work / "old", place)
                    raise
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _machine(executable: VMExecutable, options: ModelOptions) -> VirtualMachine:
    functions: Any = None if options.trusted else {}
    return VirtualMachine(executable, limits=options.run_limits(), functions=functions)


def _stamp(path: Path) -> tuple[int, ...]:
    """Tells a file from others, and from what it was before."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _read_options(path: Path, base: ModelOptions) -> ModelOptions:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return base
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ModelError(f"{path}: {error}") from None
    return ModelOptions.of_table(table, str(path), base)


def _by_version(item: tuple[str, Any]) -> int:
    return int(item[0])


def _files(folder: Path) -> Iterator[tuple[str, str, Path, Path]]:
    """Name, version, file, and file of options of the models in a folder; or of one file."""
    for entry in [folder] if folder.is_file() else sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_file() and entry.suffix in _SUFFIXES:
            if _NAME.fullmatch(entry.stem):
                yield entry.stem, "1", entry, entry.with_suffix(".toml")
        elif entry.is_dir() and _NAME.fullmatch(entry.name):
            for version in _entries(entry):
                if version.is_dir() and _VERSION.fullmatch(version.name):
                    with suppress(StopIteration):
                        yield entry.name, version.name, next(_models(version)), entry / _OPTIONS


def _entries(folder: Path) -> list[Path]:
    """What is in a folder; nothing if it has gone, or cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        log("serve", INFO, "%s cannot be read: %s", folder, error)
        return []


def _models(folder: Path) -> Iterator[Path]:
    """Files of models in the folder of a version; the one called ``model`` first."""
    files = [f for f in _entries(folder) if f.is_file() and f.suffix in _SUFFIXES]
    yield from sorted(files, key=lambda file: file.stem != "model")
