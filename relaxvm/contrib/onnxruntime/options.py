"""Options of sessions and runs.

Source: ``SessionOptions`` and ``RunOptions`` of onnxruntime 1.32.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from .choices import Choice
from .errors import NotImplemented as NotSupported
from .errors import status
from .values import OrtValue

if TYPE_CHECKING:
    from .adapters import LoraAdapter

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "RunOptions",
    "SessionOptions",
]

_HOME: Final = "onnxruntime.capi.onnxruntime_pybind11_state"
_LONGEST_KEY: Final = 1024


class GraphOptimizationLevel(Choice):
    """How much a model is optimized.  It is accepted, and has no effect: relaxvm optimizes."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(Choice):
    """Whether operators run side by side.  It is accepted, and has no effect."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(Choice):
    """In what order operators run.  It is accepted, and has no effect."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Options:
    """Attributes with types and defaults, and entries of text."""

    _FIELDS: ClassVar[Mapping[str, Any]] = {}
    _entries: dict[str, str]

    def __init_subclass__(cls) -> None:
        cls.__module__ = _HOME

    def __init__(self) -> None:
        vars(self).update(self._FIELDS, _entries={})

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._FIELDS:
            kind = type(self)
            raise AttributeError(
                f"{f'{kind.__module__}.{kind.__name__}'!r} object has no attribute {name!r}",
                name=name, obj=self,
            )  # fmt: skip
        vars(self)[name] = self._checked(name, value)

    def _checked(self, name: str, value: Any) -> Any:
        """Return a value of the type of the attribute."""
        kind = type(self._FIELDS[name])
        if kind is int and hasattr(value, "__index__"):
            return int(value)
        if kind is bool and (value is None or (isinstance(value, int) and value in (0, 1))):
            return bool(value)
        if not isinstance(value, kind):
            raise TypeError(
                f"{type(self).__name__}.{name}: incompatible function arguments: expected "
                f"{kind.__name__}, got {value!r}"
            )
        return value

    def _add(self, key: str, value: str) -> None:
        for text in (key, value):
            if not isinstance(text, str):
                raise TypeError(f"incompatible function arguments: expected str, got {text!r}")
        if not 0 < len(key) <= _LONGEST_KEY:
            raise RuntimeError(
                f"Config key is empty or longer than maximum length {_LONGEST_KEY}"
            )
        self._entries[key] = value

    def _get(self, key: str) -> str:
        if key not in self._entries:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}")
        return self._entries[key]


class SessionOptions(_Options):
    """Options of a session.

    `intra_op_num_threads`, `enable_profiling`, `profile_file_prefix`, overrides of free dimensions
    by name, and initializers have an effect.  `optimized_model_filepath` is where the model is
    written, as it is.  Libraries of custom operators are refused; the rest is accepted, since it
    does not change results.
    """

    enable_profiling: bool
    intra_op_num_threads: int
    optimized_model_filepath: str
    profile_file_prefix: str
    _dimensions: dict[str, int]
    _constants: dict[str, OrtValue]
    _files: dict[str, bytes]

    _FIELDS: ClassVar[Mapping[str, Any]] = {
        "enable_cpu_mem_arena": True,
        "enable_mem_pattern": True,
        "enable_mem_reuse": True,
        "enable_profiling": False,
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "execution_order": ExecutionOrder.DEFAULT,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
        "inter_op_num_threads": 0,
        "intra_op_num_threads": 0,
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "optimized_model_filepath": "",
        "profile_file_prefix": "onnxruntime_profile_",
        "use_deterministic_compute": False,
        "use_per_session_threads": True,
    }

    def __init__(self) -> None:
        super().__init__()
        vars(self).update(_dimensions={}, _constants={}, _files={})

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set an entry; none has an effect."""
        self._add(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """Return an entry.

        Raises:
            RuntimeError: it was not set.
        """
        return self._get(key)

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Give a symbolic dimension of the model's inputs a number."""
        self._dimensions[name] = int(value)

    def add_free_dimension_override_by_denotation(self, denotation: str, value: int) -> NoReturn:
        """Refused: denotations of dimensions are not read."""
        raise _refused("SessionOptions.add_free_dimension_override_by_denotation")

    def register_custom_ops_library(self, path: str) -> NoReturn:
        """Refused: operators of onnxruntime's C++ interface cannot be run."""
        raise _refused(
            "SessionOptions.register_custom_ops_library",
            "relaxvm.compile(path, operators={(domain, name): function}) takes functions",
        )

    def add_initializer(self, name: str, value: Any) -> None:
        """Give a constant of the model another value, which a session copies when it is made.  A
        name that the model does not have is ignored.

        Raises:
            RuntimeError: the value is no `OrtValue`.
        """
        if not isinstance(value, OrtValue):
            raise RuntimeError(f"add_initializer: {name}: expected an OrtValue, got {value!r}")
        self._constants[name] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """The same for some constants whose elements are in other files.

        Raises:
            RuntimeError: there are more names than values, or fewer; or a value is none.
        """
        if len(names) != len(values):
            raise RuntimeError("Expecting names and initializers lists have equal length")
        for name, value in zip(names, values, strict=True):
            self.add_initializer(name, value)

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """Give the content of files that have elements of the model's constants.

        Raises:
            RuntimeError: there are more names than contents or lengths, or fewer; or a content is
                shorter than its length.
        """
        if not len(names) == len(buffers) == len(lengths):
            raise RuntimeError("Expecting names, buffers and lengths of equal length")
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            content = memoryview(buffer).cast("B")
            if not 0 <= length <= len(content):
                raise RuntimeError(f"{name}: expected {length} bytes, got {len(content)}")
            self._files[name] = bytes(content[:length])

    def add_provider(self, name: str, options: Any = None) -> None:
        """Ask for a provider; only ``CPUExecutionProvider`` is there."""
        if name != "CPUExecutionProvider":
            raise _refused(f"SessionOptions.add_provider: {name}")

    def add_provider_for_devices(self, devices: Sequence[Any], options: Any = None) -> None:
        """Ask for the providers of devices; only that of the CPU is there."""
        for device in devices:
            self.add_provider(device.ep_name, options)

    def set_provider_selection_policy(self, policy: Any) -> None:
        """Accepted: there is one provider."""

    def set_provider_selection_policy_delegate(self, delegate: Any) -> None:
        """Accepted: there is one provider."""

    def set_load_cancellation_flag(self, is_cancelled: bool) -> None:
        """End the making of a session, if it has not begun."""
        vars(self)["_is_cancelled"] = bool(is_cancelled)

    _is_cancelled: bool = False

    def has_providers(self) -> bool:
        """Whether providers were added."""
        return False


class RunOptions(_Options):
    """Options of a run.  `terminate` ends the runs that have them, from any thread; adapters give
    inputs values; the rest is accepted, and has no effect."""

    _FIELDS: ClassVar[Mapping[str, Any]] = {
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "only_execute_path_to_fetches": False,
        "terminate": False,
    }
    terminate: bool
    _running: list[Callable[[], None]]
    _adapters: list[LoraAdapter]
    _lock: threading.Lock

    def __init__(self) -> None:
        super().__init__()
        vars(self)["_running"] = []
        vars(self)["_adapters"] = []
        vars(self)["_lock"] = threading.Lock()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "terminate" and self.terminate:
            with self._lock:
                running = list(self._running)
            for cancel in running:
                cancel()

    def _begin(self, cancel: Callable[[], None]) -> None:
        with self._lock:
            self._running.append(cancel)

    def _end(self, cancel: Callable[[], None]) -> None:
        with self._lock:
            self._running.remove(cancel)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set an entry; none has an effect."""
        self._add(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """Return an entry.

        Raises:
            RuntimeError: it was not set.
        """
        return self._get(key)

    def add_active_adapter(self, adapter: LoraAdapter) -> None:
        """Have runs take the values of an adapter for inputs of their names.

        Raises:
            TypeError: it is no `LoraAdapter`.
        """
        from .adapters import LoraAdapter

        if not isinstance(adapter, LoraAdapter):
            raise TypeError(
                "add_active_adapter(): incompatible function arguments: expected a LoraAdapter, "
                f"got {adapter!r}"
            )
        self._adapters.append(adapter)


def _refused(what: str, hint: str = "") -> Exception:
    text = f"{what} is not supported by relaxvm"
    return status(NotSupported, f"{text}: {hint}" if hint else text)
