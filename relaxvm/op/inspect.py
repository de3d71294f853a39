"""Operators ``relax.inspect.*``: what a tensor is, as numbers.

What the type of the tensor says is a constant of the program; the rest is found when it runs.
"""

from __future__ import annotations

from typing import Any, Final

from ..dtypes import as_dtype, dtype_to_dl
from ..ir.expr import Call, Expr, ExternFunc, IntImm, PrimType, StringImm, TensorType, Type
from ..ir.op import Op
from .kinds import IllTyped, IllValued, Scalar, is_dim
from .registry import PREFIX, operator

__all__ = [
    "tensor_byte_offset",
    "tensor_dtype_bits",
    "tensor_dtype_code",
    "tensor_dtype_lanes",
    "tensor_elem_offset",
    "tensor_ndim",
    "tensor_shape_i",
    "tensor_stride_i",
]

_PROPERTY: Final = ExternFunc("relaxvm.builtin.tensor_property")


def _known(name: str, tensor: TensorType, axis: Expr | None) -> Expr | int | None:
    """The number, if the type says it."""
    if name == "ndim":
        return None if tensor.ndim < 0 else tensor.ndim
    if name == "shape_i" and tensor.dims is not None and isinstance(axis, IntImm):
        return tensor.dims[axis.value]
    if name.startswith("dtype_") and tensor.dtype is not None:
        code, bits, lanes = dtype_to_dl(as_dtype(tensor.dtype))
        return {"dtype_code": code, "dtype_bits": bits, "dtype_lanes": lanes}[name]
    return None


def _as_number(builder: Any, call: Call) -> Expr:
    assert isinstance(call.op, Op)
    name = call.op.name.removeprefix(f"{PREFIX}inspect.tensor_")
    tensor, axis = call.args[0], call.args[1] if len(call.args) > 1 else None
    found = _known(name, tensor.ty, axis)
    if isinstance(found, int):
        return IntImm(call.ty.dtype, found)
    if found is not None:
        return found
    args = [tensor, StringImm(name), IntImm("int64", 0) if axis is None else axis]
    return Call(_PROPERTY, args, None, [call.ty], ret_ty=call.ty, span=call.span)


def _check_axis(tensor: TensorType, axis: Expr) -> None:
    if not is_dim(axis):
        raise IllTyped(f"axis: expected an integer, got {axis} of type {axis.ty}")
    if isinstance(axis, IntImm) and (
        axis.value < 0 or (tensor.ndim >= 0 and axis.value >= tensor.ndim)
    ):
        raise IllValued(f"axis: expected one of the axes of {tensor}, from 0 on, got {axis.value}")


@operator("inspect.tensor_ndim", kernel=False, lower=_as_number)
def tensor_ndim(tensor: TensorType) -> Type:
    """The number of axes: an int32."""
    return PrimType("int32")


@operator("inspect.tensor_shape_i", kernel=False, lower=_as_number)
def tensor_shape_i(tensor: TensorType, axis: Scalar) -> Type:
    """The length of an axis, which is counted from the first: an int64."""
    _check_axis(tensor, axis)
    return PrimType("int64")


@operator("inspect.tensor_stride_i", kernel=False, lower=_as_number)
def tensor_stride_i(tensor: TensorType, axis: Scalar) -> Type:
    """How many elements lie between an element and the next one along an axis: an int64."""
    _check_axis(tensor, axis)
    return PrimType("int64")


@operator("inspect.tensor_dtype_code", kernel=False, lower=_as_number)
def tensor_dtype_code(tensor: TensorType) -> Type:
    """DLPack's code of the kind of data type, 0 for signed integers, 1 for unsigned ones, 2 for
    floats, 4 for bfloat16, 6 for bools: a uint8."""
    return PrimType("uint8")


@operator("inspect.tensor_dtype_bits", kernel=False, lower=_as_number)
def tensor_dtype_bits(tensor: TensorType) -> Type:
    """How many bits an element has: a uint8."""
    return PrimType("uint8")


@operator("inspect.tensor_dtype_lanes", kernel=False, lower=_as_number)
def tensor_dtype_lanes(tensor: TensorType) -> Type:
    """How many numbers an element has: a uint16, which is 1."""
    return PrimType("uint16")


@operator("inspect.tensor_byte_offset", kernel=False, lower=_as_number)
def tensor_byte_offset(tensor: TensorType) -> Type:
    """How many bytes into its memory a tensor begins: a uint64, which is 0, since an array's
    pointer is that of its first element."""
    return PrimType("uint64")


@operator("inspect.tensor_elem_offset", kernel=False, lower=_as_number)
def tensor_elem_offset(tensor: TensorType) -> Type:
    """How many elements into its memory a tensor begins: a uint64, which is 0; see
    `tensor_byte_offset`."""
    return PrimType("uint64")
