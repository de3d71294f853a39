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
        set_seed,
    )
    from .options import (
        ExecutionMode,
        ExecutionOrder,
        GraphOptimizationLevel,
        RunOptions,
        SessionOptions,
    )
    from .session import InferenceSession, IOBinding
    from .values import OrtDevice, OrtValue

if TYPE_CHECKING:
    from .adapters import AdapterFormat, LoraAdapter
    from .devices import (
        OrtDeviceVendorId,
        OrtEpDevice,
        OrtExecutionProviderDevicePolicy,
        OrtHardwareDevice,
        OrtHardwareDeviceType,
        get_ep_devices,
    )
    from .finder import install
    from .memory import (
        OrtAllocatorType,
        OrtArenaCfg,
        OrtDeviceMemoryType,
        OrtMemoryInfo,
        OrtMemoryInfoDeviceType,
        OrtMemType,
        OrtSparseFormat,
        copy_tensors,
        create_and_register_allocator,
        create_and_register_allocator_v2,
    )
    from .sparse import SparseTensor

__version__ = version = VERSION
package_name = "onnxruntime"
cuda_version = ""
SessionIOBinding = IOBinding

__all__ = [
    "AdapterFormat",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "LoraAdapter",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "SparseTensor",
    "__version__",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "cuda_version",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "install",
    "package_name",
    "preload_dlls",
    "print_debug_info",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "version",
]


_LATER: Final = {
    "AdapterFormat": "adapters",
    "LoraAdapter": "adapters",
    "OrtAllocatorType": "memory",
    "OrtArenaCfg": "memory",
    "OrtDeviceMemoryType": "memory",
    "OrtDeviceVendorId": "devices",
    "OrtEpDevice": "devices",
    "OrtExecutionProviderDevicePolicy": "devices",
    "OrtHardwareDevice": "devices",
    "OrtHardwareDeviceType": "devices",
    "OrtMemType": "memory",
    "OrtMemoryInfo": "memory",
    "OrtMemoryInfoDeviceType": "memory",
    "OrtSparseFormat": "memory",
    "SparseTensor": "sparse",
    "copy_tensors": "memory",
    "create_and_register_allocator": "memory",
    "create_and_register_allocator_v2": "memory",
    "get_ep_devices": "devices",
    "install": "finder",
}
"""Names of which programs use few -> the module that has them."""


_PACKAGES: Final = "packages of models and executables of other providers are not read or written"
_REFUSED: Final = {
    "ModelCompiler": "relaxvm.compile(model).save(file) writes an executable",
    "OrtCompileApiFlags": "relaxvm.compile(model).save(file) writes an executable",
    **dict.fromkeys((
        "ModelPackage", "ModelPackageComponentContext", "ModelPackageContext",
        "ModelPackageOptions", "ModelPackageWriteMode", "OrtEpContextData",
        "OrtEpContextDataBuffer", "OrtExternalInitializerInfo",
    ), _PACKAGES),
    **dict.fromkeys((
        "register_execution_provider_library", "unregister_execution_provider_library",
    ), "providers in shared libraries cannot be loaded"),
    **dict.fromkeys((
        "OrtEpAssignedNode", "OrtEpAssignedSubgraph",
    ), "there is one provider, and no graph is cut"),
    "OrtSyncStream": "streams belong to other devices",
}  # fmt: skip
"""Names that are refused -> why."""


def __getattr__(name: str) -> Any:
    if name == "capi":
        return importlib.import_module(f"{__name__}.capi")
    if name in _LATER:
        value = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
        globals()[name] = value
        return value
    hint = "" if name.startswith("_") else (
        f": {_REFUSED.get(name, 'relaxvm has the names of onnxruntime that inference uses')}; "
        "training, quantization, tools for models and other devices are not supported"
    )  # fmt: skip
    raise AttributeError(f"module 'onnxruntime' has no attribute {name!r}{hint}", name=name)


def __dir__() -> list[str]:
    return [*__all__, "capi"]
