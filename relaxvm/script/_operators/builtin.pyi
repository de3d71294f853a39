# Generated from relaxvm/op by scripts/gen_stubs.py - do not edit.
from typing import Any

__all__ = [
    "alloc_tensor",
    "stop_lift_params",
]

def alloc_tensor(shape: Any, dtype: Any, runtime_device_index: Any = ..., storage_scope: Any = ..., *, ty_args: Any = ...) -> Any: ...
def stop_lift_params(x: Any) -> Any: ...
