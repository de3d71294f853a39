"""Options of sessions and runs.

Source: ``SessionOptions`` and ``RunOptions`` of onnxruntime 1.32.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, ClassVar, Final, NoReturn

from .errors import NotImplemented as NotSupported
from .errors import status

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "RunOptions",
    "SessionOptions",
]

_HOME: Final = "onnxruntime.capi.onnxruntime_pybind11_state"


class GraphOptimizationLevel(IntEnum):
    """How much a model is optimized.  It is accepted, and has no effect: relaxvm optimizes."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Whether operators run side by side.  It is accepted, and has no effect."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
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
        if kind is int and not isinstance(value, bool) and hasattr(value, "__index__"):
            return int(value)
        if kind is bool and isinstance(value, int) and value in (0, 1):
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
        self._entries[key] = value

    def _get(self, key: str) -> str:
        if key not in self._entries:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}")
        return self._entries[key]


class SessionOptions(_Options):
    """Options of a session.

    `intra_op_num_threads`, `enable_profiling`, `profile_file_prefix` and overrides of free
    dimensions have an effect.  A path in `optimized_model_filepath`, initializers and libraries of
    custom operators are refused; the rest is accepted, since it does not change results.
    """

    enable_profiling: bool
    intra_op_num_threads: int
    optimized_model_filepath: str
    profile_file_prefix: str
    _dimensions: dict[str, int]

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
        vars(self)["_dimensions"] = {}

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

    def add_initializer(self, name: str, value: Any) -> NoReturn:
        """Refused."""
        raise _refused("SessionOptions.add_initializer")

    def add_external_initializers(self, names: Any, values: Any) -> NoReturn:
        """Refused."""
        raise _refused("SessionOptions.add_external_initializers")

    def add_external_initializers_from_files_in_memory(
        self, names: Any, buffers: Any, lengths: Any
    ) -> NoReturn:
        """Refused."""
        raise _refused("SessionOptions.add_external_initializers_from_files_in_memory")

    def add_provider(self, name: str, options: Any = None) -> None:
        """Ask for a provider; only ``CPUExecutionProvider`` is there."""
        if name != "CPUExecutionProvider":
            raise _refused(f"SessionOptions.add_provider: {name}")

    def add_provider_for_devices(self, devices: Any, options: Any = None) -> NoReturn:
        """Refused."""
        raise _refused("SessionOptions.add_provider_for_devices")

    def has_providers(self) -> bool:
        """Whether providers were added."""
        return False


class RunOptions(_Options):
    """Options of a run.  `terminate` ends the runs that have them, from any thread; the rest is
    accepted, and has no effect."""

    _FIELDS: ClassVar[Mapping[str, Any]] = {
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "only_execute_path_to_fetches": False,
        "terminate": False,
    }
    terminate: bool
    _running: list[Callable[[], None]]
    _lock: threading.Lock

    def __init__(self) -> None:
        super().__init__()
        vars(self)["_running"] = []
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

    def add_active_adapter(self, adapter: Any) -> NoReturn:
        """Refused: adapters are not supported."""
        raise _refused("RunOptions.add_active_adapter")


def _refused(what: str, hint: str = "") -> Exception:
    text = f"{what} is not supported by relaxvm"
    return status(NotSupported, f"{text}: {hint}" if hint else text)
