"""Operators ``relax.memory.*``: planned memory, and views of tensors."""

from __future__ import annotations

from typing import Any

from ..dtypes import as_dtype
from ..ir.arith import Analyzer, free_vars, simplify
from ..ir.block_builder import BlockBuilder
from ..ir.expr import (
    ANY,
    Call,
    DataTypeImm,
    Expr,
    IntImm,
    PrimType,
    ShapeExpr,
    ShapeType,
    TensorType,
    Tuple,
    TupleType,
    Type,
    Var,
)
from .base import null_value
from .kinds import (
    DTypeValue,
    IllTyped,
    IllValued,
    Scalar,
    ShapeLike,
    StrValue,
    Value,
)
from .registry import operator
from .rules import VOID, product

__all__ = [
    "alloc_storage",
    "alloc_tensor",
    "ensure_zero_offset",
    "kill_storage",
    "kill_tensor",
    "view",
]


@operator("memory.alloc_storage", kernel=False)
def alloc_storage(
    size: ShapeLike,
    virtual_device_index: Scalar,
    storage_scope: StrValue,
    dtype: DTypeValue,
) -> Type:
    """Memory of a size in bytes, a shape of one dimension, that tensors are placed in."""
    return ANY


@operator("memory.alloc_tensor", kernel=False)
def alloc_tensor(
    storage: Value,
    offset: Scalar,
    shape: ShapeLike,
    dtype: DTypeValue,
    runtime_device_ind: Scalar = 0,
) -> Type:
    """A tensor in planned memory, at an offset in bytes."""
    return TensorType(shape, dtype)


@operator("memory.kill_storage", kernel=False, pure=False)
def kill_storage(storage: Value) -> Type:
    """End of the use of planned memory."""
    return VOID


@operator("memory.kill_tensor", kernel=False, pure=False)
def kill_tensor(tensor: TensorType) -> Type:
    """End of the use of a tensor in planned memory."""
    return VOID


@operator("memory.ensure_zero_offset", kernel=False)
def ensure_zero_offset(data: TensorType) -> Type:
    """A tensor at the start of its memory: the tensor itself if it is there already."""
    return data


def _view_arguments(
    data: Any, shape: Any = None, dtype: Any = None, relative_byte_offset: Any = None
) -> tuple[Any, ...]:
    if shape is None:
        shape = Tuple(())
    elif not isinstance(shape, Expr):
        shape = ShapeExpr(shape)
    if dtype is None:
        dtype = null_value()
    elif not isinstance(dtype, Expr):
        dtype = DataTypeImm(dtype)
    return data, shape, dtype, Tuple(()) if relative_byte_offset is None else relative_byte_offset


def _with_found_dtype(builder: BlockBuilder, call: Call) -> Expr:
    """The normal form of views: a data type that is bound to a variable counts in their type."""
    data, shape, dtype, offset = call.args
    found: Expr | None = dtype
    while isinstance(found, Var):
        found = builder.lookup_binding(found)
    if found is None or found is dtype:
        return call
    op: Any = call.op
    ty = op.infer(Call(op, [data, shape, found, offset]))
    if call.ty.dtype == ty.dtype:
        return call
    return Call(call.op, call.args, call.attrs, call.ty_args, ret_ty=ty, span=call.span)


@operator(
    "memory.view", kernel=False, arguments=_view_arguments, normalizer=_with_found_dtype
)
def view(data: TensorType, shape: Value, dtype: Value, relative_byte_offset: Value) -> Type:
    """A view of the memory of a tensor: with another shape, another data type, or an offset in
    bytes.

    An empty tuple or a null value leaves shape, data type or offset unchanged.  The data type may
    be in a variable; it is known before the program runs if the variable's value is.  ValueError if
    the view is known to reach beyond the tensor.
    """
    is_kept = type(shape.ty) is TupleType
    if not is_kept and type(shape.ty) is not ShapeType:
        raise IllTyped(f"shape: expected a shape, got {shape} of type {shape.ty}")
    if type(relative_byte_offset.ty) not in (PrimType, TupleType):
        raise IllTyped(f"relative_byte_offset: expected an integer, got {relative_byte_offset}")
    ndim = data.ndim if is_kept else shape.ty.ndim
    new_dtype = dtype.value if isinstance(dtype, DataTypeImm) else None
    if _is_nothing(dtype):
        new_dtype = data.dtype
    result = TensorType.of(data.shape if is_kept else shape, new_dtype, data.vdevice, ndim)
    _check_within(data, result, relative_byte_offset)
    return result


def _is_nothing(value: Expr) -> bool:
    """Whether an argument is an empty tuple or a null value."""
    if isinstance(value, Call):
        return getattr(value.op, "name", None) == "relax.null_value"
    return isinstance(value, Tuple) and not value.fields


def _check_within(data: TensorType, result: TensorType, offset: Expr) -> None:
    start = offset.value if type(offset) is IntImm else 0
    if start and result.dtype == data.dtype and result.shape is data.shape:
        raise IllValued(f"a view of the whole tensor from byte {start} on reaches beyond it")
    if result.dtype is None or data.dtype is None:
        # Elements of one size, as far as is known.
        sizes, unit = (1, 1), "elements"
        if start or result.dtype != data.dtype:
            return
    else:
        sizes, unit = (as_dtype(data.dtype).itemsize, as_dtype(result.dtype).itemsize), "bytes"
    if data.dims is None or result.dims is None:
        return
    has = simplify(product(data.dims) * sizes[0])
    needs = simplify(product(result.dims) * sizes[1])
    analyzer = Analyzer()
    for var in free_vars(has):
        analyzer.bind(var, 0)
    if analyzer.prove(needs + start > has):
        raise IllValued(
            f"a view of {needs} {unit} from byte {start} on reaches beyond {has} {unit}"
        )
