# Generated from relaxvm/op by scripts/gen_stubs.py - do not edit.
from typing import Any

__all__ = [
    "alloc_storage",
    "alloc_tensor",
    "call_tir_dyn",
    "kill_object",
]

def alloc_storage(shape: Any, runtime_device_index: Any, dtype: Any, storage_scope: Any = ...) -> Any: ...
def alloc_tensor(storage: Any, offset: Any, shape: Any, dtype: Any, runtime_device_ind: Any = ...) -> Any: ...
def call_tir_dyn(func: Any, args: Any) -> Any: ...
def kill_object(obj: Any) -> Any: ...
