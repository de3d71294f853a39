"""Storages, tensors in them, copies between devices, and releasing values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core._storage import Storage
from ..core.live_machines import trim_all
from ..errors import InternalError, MissingExtraError
from ..messages import describe
from ..pieces.cut import copy_pieces
from ..registry import StaticArg
from ..values import Shape
from .arguments import (
    as_array,
    as_data_type,
    as_int,
    as_machine,
    as_shape,
    as_str,
    size_of,
    static_int,
)
from .registration import builtin

__all__ = [
    "alloc_storage",
    "alloc_tensor",
    "ensure_zero_offset",
    "free_storage",
    "free_tensor",
    "memory_manager_clear",
    "null_value",
    "to_device",
]

_SCOPES = ("", "global")
_CPU = 1
_LAST_DEVICE_TYPE = 36


def _check_scope(scope: Any, subject: str) -> None:
    if as_str(scope, f"{subject}: scope") not in _SCOPES:
        raise InternalError(f"{subject}: expected memory scope 'global', got {describe(scope)}: "
                            f"host memory has no other")


def _as_storage(value: Any, subject: str) -> Storage:
    if not isinstance(value, Storage):
        raise TypeError(f"{subject}: expected a storage, got {describe(value)}")
    storage: Storage = value
    return storage


def _nbytes(shape: Shape, dtype: np.dtype[Any], subject: str) -> int:
    if any(dim < 0 for dim in shape):
        raise InternalError(
            f"{subject}: expected dimensions >= 0, got {describe(shape)}; an input may be too "
            f"small, such as an image that is smaller than a window"
        )
    return size_of(shape, dtype.itemsize)


def _check_scope_argument(args: Sequence[StaticArg], index: int) -> Iterator[str]:
    """Check that some device has the memory scope: a file may have functions for several
    machines."""
    if len(args) > index and args[index][0] == "str":
        scope = args[index][1]
        if scope and not re.fullmatch(r"global(\.[\w-]+)?", scope):
            yield f"memory scope: expected 'global' or 'global.NAME', got {describe(scope)}"


def _check_type_argument(args: Sequence[StaticArg]) -> Iterator[str]:
    """Check argument 3, a data type or its name."""
    if len(args) > 3 and args[3][0] == "str":
        try:
            as_data_type(args[3][1], "dtype")
        except (TypeError, MissingExtraError) as exc:
            yield str(exc)


def _check_alloc_storage(args: Sequence[StaticArg]) -> Iterator[str]:
    yield from _check_type_argument(args)
    index = static_int(args, 2)
    if index is not None and index < -1:
        yield f"device index: expected -1 (the host) or more, got {index}"
    yield from _check_scope_argument(args, 4)
    if isinstance(args[1][1], Shape) and any(dim < 0 for dim in args[1][1]):
        yield f"size: expected dimensions >= 0, got {describe(args[1][1])}"


@builtin(
    "alloc_storage",
    "ctx: vm, size: shape|tuple, device_index: int, dtype: dtype|str, scope: str = ...",
    result="storage",
    check=_check_alloc_storage,
)
def alloc_storage(
    ctx: Any, size: Any, device_index: Any, dtype: Any, scope: Any = "global"
) -> Storage:
    """Allocate a storage for ``size: Shape`` elements of a data type, on a device of the VM.

    Device index -1 is the host, the last device.

    Raises:
        InternalError: there is no such device, the memory scope is not global, or a dimension is
            negative.
        LimitError: the VM's limits do not allow this size.
        MemoryError: the system does not have enough memory.
    """
    machine = as_machine(ctx, "alloc_storage: ctx")
    shape = as_shape(size, "alloc_storage: size")
    index = as_int(device_index, "alloc_storage: device index")
    nbytes = _nbytes(shape, as_data_type(dtype, "alloc_storage: dtype"), "alloc_storage")
    _check_scope(scope, "alloc_storage")
    if not -1 <= index < len(machine.devices):
        raise InternalError(f"alloc_storage: device index {index}: expected -1 (the host) to "
                            f"{len(machine.devices) - 1}")
    storage: Storage = machine.allocators[index].alloc(nbytes)
    return storage


def _check_alloc_tensor(args: Sequence[StaticArg]) -> Iterator[str]:
    yield from _check_type_argument(args)
    offset = static_int(args, 1)
    if offset is not None and offset < 0:
        yield f"byte offset: expected 0 or more, got {offset}"
    if isinstance(args[2][1], Shape) and any(dim < 0 for dim in args[2][1]):
        yield f"shape: expected dimensions >= 0, got {describe(args[2][1])}"


@builtin(
    "alloc_tensor",
    "storage: storage, offset: int, shape: shape|tuple, dtype: dtype|str, scope: str = ...",
    result="tensor",
    check=_check_alloc_tensor,
)
def alloc_tensor(
    storage: Any, offset: Any, shape: Any, dtype: Any, scope: Any = "global"
) -> NDArray[Any]:
    """Create a tensor over part of a storage, which it keeps alive.

    `offset` is in bytes.  The memory is not initialized, and tensors of the same storage may
    overlap.  The scope is that of the storage; the argument is ignored.

    Raises:
        TypeError: not a storage.
        InternalError: the tensor does not lie within the storage, or a dimension is negative.
    """
    memory = _as_storage(storage, "alloc_tensor")
    start = as_int(offset, "alloc_tensor: offset")
    dims = as_shape(shape, "alloc_tensor: shape")
    data_type = as_data_type(dtype, "alloc_tensor: dtype")
    as_str(scope, "alloc_tensor: scope")
    need = _nbytes(dims, data_type, "alloc_tensor")
    if start < 0 or start + need > memory.nbytes:
        raise InternalError(f"alloc_tensor: {data_type.name} {describe(dims)} at byte {start} "
                            f"needs {need} bytes, the storage has {memory.nbytes}")
    return memory.view(start, dims, data_type)


@builtin("free_storage", "storage: storage", result="none")
def free_storage(storage: Any) -> None:
    """Declare that a storage is no longer needed.

    Its memory is released when no register or tensor refers to it any more.

    Raises:
        TypeError: not a storage.
    """
    _as_storage(storage, "free_storage")


@builtin("free_tensor", "x: tensor", result="none")
def free_tensor(x: Any) -> None:
    """Declare that a tensor is no longer needed.

    Its memory is released when nothing refers to it any more.

    Raises:
        TypeError: not a tensor.
    """
    as_array(x, "free_tensor")


@builtin("null_value", result="none")
def null_value() -> None:
    """Return None; a program clears a register by writing this value to it."""


@builtin("memory_manager.clear", result="none")
def memory_manager_clear() -> None:
    """Return the cached memory of all VMs of this process to the system."""
    trim_all()


@builtin("ensure_zero_offset", "x: tensor", result="tensor")
def ensure_zero_offset(x: Any) -> NDArray[Any]:
    """Return the tensor itself: an array points to its first element and has no byte offset.

    Raises:
        TypeError: not a tensor.
    """
    return as_array(x, "ensure_zero_offset")


def _check_to_device(args: Sequence[StaticArg]) -> Iterator[str]:
    kind = static_int(args, 1)
    if kind is not None and not 1 <= kind <= _LAST_DEVICE_TYPE:
        yield (f"device type: expected 1 to {_LAST_DEVICE_TYPE}, the codes of DLPack and TVM, "
               f"got {kind}")
    yield from _check_scope_argument(args, 3)


@builtin(
    "to_device",
    "x: tensor, device_type: int, device_id: int, scope: str = ...",
    result="tensor",
    check=_check_to_device,
)
def to_device(x: Any, device_type: Any, device_id: Any, scope: Any = "global") -> NDArray[Any]:
    """Return a contiguous copy of a tensor in native byte order, even if it is on that device.

    Raises:
        TypeError: not a tensor.
        InternalError: the device type is not 1 (cpu), or the memory scope is not global.
    """
    tensor = as_array(x, "to_device")
    kind = as_int(device_type, "to_device: device type")
    as_int(device_id, "to_device: device id")
    _check_scope(scope, "to_device")
    if kind != _CPU:
        raise InternalError(f"to_device: device type {kind}: expected {_CPU} (cpu), tensors live "
                            f"in host memory")
    out = np.empty(tensor.shape, tensor.dtype.newbyteorder("="))
    copy_pieces(out, tensor)
    return out
