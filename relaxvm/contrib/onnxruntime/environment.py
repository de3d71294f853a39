"""What onnxruntime says of itself, and settings of the process."""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "CPU",
    "VERSION",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "print_debug_info",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
]

VERSION: Final = "1.32.0"
"""The version of onnxruntime whose interface this is."""
CPU: Final = "CPUExecutionProvider"


def get_available_providers() -> list[str]:
    """The providers that sessions can have: that of the CPU."""
    return [CPU]


def get_all_providers() -> list[str]:
    """The same as `get_available_providers`."""
    return [CPU]


def get_device() -> str:
    """The kind of device."""
    return "CPU"


def get_version_string() -> str:
    """The version of onnxruntime whose interface this is."""
    return VERSION


def get_build_info() -> str:
    """What stands behind the names."""
    from ... import __version__

    return f"relaxvm {__version__}, with the interface of onnxruntime {VERSION}"


def has_collective_ops() -> bool:
    """Whether there are operators that several processes run together: no."""
    return False


def set_default_logger_severity(severity: int) -> None:
    """Accepted: nothing is logged."""
    if severity not in range(5):
        raise RuntimeError(f"Invalid logging severity. {severity}")


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted: nothing is logged."""


def set_default_logger_callback(callback: Any) -> None:
    """Accepted: nothing is logged."""


def set_global_thread_pool_sizes(intra_op: int, inter_op: int) -> None:
    """Set on how many threads loops of kernels run, in sessions without a number of their own."""
    from ... import set_num_threads

    if intra_op > 0:
        set_num_threads(min(intra_op, 256))


def set_seed(seed: int) -> None:
    """Accepted: random operators without a seed of their own draw other numbers in each run."""


def enable_telemetry_events() -> None:
    """Accepted: there is no telemetry."""


def disable_telemetry_events() -> None:
    """Accepted: there is no telemetry."""


def preload_dlls(
    cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: Any = None
) -> None:
    """Accepted: there is nothing to load."""


def print_debug_info() -> None:
    """Print what stands behind the names."""
    from ... import show_versions

    print(get_build_info())
    show_versions()
