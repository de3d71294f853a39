"""The Python interface of onnxruntime on relaxvm: programs that use it change one line.

::

    import relaxvm.contrib.onnxruntime as onnxruntime

    session = onnxruntime.InferenceSession("model.onnx")
    session.run(None, {"x": x})

For packages that import onnxruntime themselves, `install` has ``import onnxruntime`` find relaxvm,
and so does, for a whole program::

    python -m relaxvm.contrib.onnxruntime program.py        # or -m module, or -c "..."

The names are those that inference uses.  Others raise an AttributeError or a ModuleNotFoundError
that names them.  Errors are onnxruntime's, with its classes and messages.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from ...collecting import collection_paused

with collection_paused():
    from .described import ModelMetadata, NodeArg
    from .environment import (
        VERSION,
        disable_telemetry_events,
        enable_telemetry_events,
        get_all_providers,
        get_available_providers,
        get_build_info,
        get_device,
        get_version_string,
        has_collective_ops,
        preload_dlls,
        print_debug_info,
        set_default_logger_callback,
        set_default_logger_severity,
        set_default_logger_verbosity,
        set_global_thread_pool_sizes,
    )
    from .options import (
        ExecutionMode,
        ExecutionOrder,
        GraphOptimizationLevel,
        RunOptions,
        SessionOptions,
    )
    from .session import InferenceSession, IOBinding
    from .values import OrtDevice, OrtValue, SparseTensor

if TYPE_CHECKING:
    from .finder import install
    from .memory import OrtAllocatorType, OrtMemType, OrtSparseFormat

__version__ = VERSION

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtDevice",
    "OrtMemType",
    "OrtSparseFormat",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "SparseTensor",
    "__version__",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "install",
    "preload_dlls",
    "print_debug_info",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
]


_LATER: Final = {
    "OrtAllocatorType": "memory",
    "OrtMemType": "memory",
    "OrtSparseFormat": "memory",
    "install": "finder",
}
"""Names of which programs use few -> the module that has them."""


def __getattr__(name: str) -> Any:
    if name == "capi":
        return importlib.import_module(f"{__name__}.capi")
    if name in _LATER:
        value = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
        globals()[name] = value
        return value
    hint = "" if name.startswith("_") else (
        ": relaxvm has the names of onnxruntime that inference uses; training, quantization, other "
        "devices and sparse tensors are not supported"
    )  # fmt: skip
    raise AttributeError(f"module 'onnxruntime' has no attribute {name!r}{hint}", name=name)


def __dir__() -> list[str]:
    return [*__all__, "capi"]
