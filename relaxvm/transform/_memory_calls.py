"""Constructors of calls of memory operators, for lowering.

The calls are built without type inference and checks, since a program has several per binding: the
operands were checked when the type of the tensor was inferred, and the type of the call is known.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Final

from ..dtypes import as_dtype
from ..ir import (
    ANY,
    Call,
    DataTypeImm,
    Expr,
    IntImm,
    Op,
    ShapeExpr,
    TensorType,
    Type,
    int_imm,
)
from ..op import builtin, memory, vm  # noqa: F401  (registers the operators named here)
from ..op.rules import VOID

__all__ = [
    "ALLOC_STORAGE",
    "ALLOC_TENSOR",
    "VIEW",
    "alloc_storage",
    "alloc_tensor",
    "constant_bytes",
    "data_type",
    "kill_object",
    "kill_storage",
    "kill_tensor",
    "new_tensor",
    "view",
    "vm_alloc_storage",
    "vm_alloc_tensor",
]

_NEW_TENSOR: Final = Op.get("relax.builtin.alloc_tensor")
ALLOC_STORAGE: Final = Op.get("relax.memory.alloc_storage")
ALLOC_TENSOR: Final = Op.get("relax.memory.alloc_tensor")
VIEW: Final = Op.get("relax.memory.view")
_KILL_STORAGE: Final = Op.get("relax.memory.kill_storage")
_KILL_TENSOR: Final = Op.get("relax.memory.kill_tensor")
_VM_ALLOC_STORAGE: Final = Op.get("relax.vm.alloc_storage")
_VM_ALLOC_TENSOR: Final = Op.get("relax.vm.alloc_tensor")
_VM_KILL_OBJECT: Final = Op.get("relax.vm.kill_object")


@functools.cache
def data_type(name: str) -> DataTypeImm:
    """A data type as an argument; the same object every time."""
    return DataTypeImm(name)


_BYTES: Final = data_type("uint8")


def constant_bytes(dims: Sequence[Expr], dtype: str) -> int:
    """The size in bytes of an element, times the dimensions that are constants.

    Raises:
        OverflowError: it does not fit 64 bits.
    """
    constants = [dim.value for dim in dims if type(dim) is IntImm]
    size = math.prod(constants) * as_dtype(dtype).itemsize
    if size >= 2**63:
        raise OverflowError(
            f"expected tensors of less than 2**63 bytes, got {dtype} of shape {ShapeExpr(dims)}"
        )
    return size


def new_tensor(ty: TensorType, device: Expr, scope: Expr) -> Call:
    """builtin.alloc_tensor of a type of known shape and data type."""
    assert ty.shape is not None
    assert ty.dtype is not None
    return Call(_NEW_TENSOR, (ty.shape, data_type(ty.dtype), device, scope), None, (ty,), ret_ty=ty)


def alloc_storage(size: ShapeExpr, device: Expr, scope: Expr) -> Call:
    """memory.alloc_storage of `size` bytes."""
    return Call(ALLOC_STORAGE, (size, device, scope, _BYTES), None, (), ret_ty=ANY)


def alloc_tensor(
    storage: Expr, offset: int, shape: Expr, dtype: DataTypeImm, device: Expr, like: Type
) -> Call:
    """memory.alloc_tensor; its type is `like` if that has the same shape and data type."""
    ty = like
    if (
        type(ty) is not TensorType
        or ty.shape is not shape
        or ty.dtype != dtype.value
        or ty.vdevice is not None
    ):
        ty = TensorType(shape, dtype.value)
    return Call(ALLOC_TENSOR, (storage, int_imm(offset), shape, dtype, device), None, (), ret_ty=ty)


def view(tensor: Expr, ty: TensorType, offset: int) -> Call:
    """memory.view of a type of known shape and data type, some bytes from the beginning on."""
    assert ty.shape is not None
    assert ty.dtype is not None
    return Call(VIEW, (tensor, ty.shape, data_type(ty.dtype), int_imm(offset)), None, (), ret_ty=ty)


def kill_storage(storage: Expr) -> Call:
    """memory.kill_storage"""
    return Call(_KILL_STORAGE, (storage,), None, (), ret_ty=VOID)


def kill_tensor(tensor: Expr) -> Call:
    """memory.kill_tensor"""
    return Call(_KILL_TENSOR, (tensor,), None, (), ret_ty=VOID)


def kill_object(obj: Expr) -> Call:
    """vm.kill_object"""
    return Call(_VM_KILL_OBJECT, (obj,), None, (), ret_ty=VOID)


def vm_alloc_storage(call: Call) -> Call:
    """vm.alloc_storage for a memory.alloc_storage."""
    size, device, scope, _dtype = call.args
    return Call(_VM_ALLOC_STORAGE, (size, device, _BYTES, scope), None, (), ret_ty=ANY)


def vm_alloc_tensor(call: Call) -> Call:
    """vm.alloc_tensor for a memory.alloc_tensor."""
    args = call.args if len(call.args) == 5 else (*call.args, int_imm(0))
    return Call(_VM_ALLOC_TENSOR, args, None, (), ret_ty=call.ty)
