"""LowerAllocTensor: give every tensor that was not planned its own storage."""

from __future__ import annotations

from typing import Any, Final

from ..dtypes import as_dtype
from ..ir import (
    ANY,
    Binding,
    Call,
    DataTypeImm,
    Expr,
    ExprMutator,
    Function,
    IntImm,
    IRModule,
    MatchCast,
    Op,
    ShapeExpr,
    ShapeType,
    Var,
    VarBinding,
    int_imm,
)
from ._memory_calls import alloc_storage, alloc_tensor, constant_bytes
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["LowerAllocTensor"]

_ALLOC: Final = Op.get("relax.builtin.alloc_tensor")


def num_bytes(shape: ShapeExpr, dtype: str) -> Expr:
    """Return the size of a tensor in bytes: itemsize times the product of the dimensions.

    Raises:
        OverflowError: the constants among them exceed 64 bits.
    """
    constant = constant_bytes(shape.values, dtype)
    if all(type(dim) is IntImm for dim in shape.values):
        return int_imm(constant)
    size: Expr = int_imm(as_dtype(dtype).itemsize)
    for dim in shape.values:
        size = size * dim
    return size


class _Lowerer(ExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self._sizes: dict[tuple[object, ...], ShapeExpr] = {}

    def _size(self, shape: ShapeExpr, dtype: str) -> ShapeExpr:
        """The size in bytes as a shape, the same object for all tensors of the same dimensions."""
        key = (dtype, *[dim.value if type(dim) is IntImm else dim for dim in shape.values])
        found = self._sizes.get(key)
        if found is None:
            found = self._sizes[key] = ShapeExpr([num_bytes(shape, dtype)])
        return found

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        value = binding.value
        if not isinstance(value, Call) or value.op is not _ALLOC:
            return super().visit_binding(binding)
        shape, dtype, device, scope = self.visit_all(value.args)
        first: list[Binding] = []
        if not isinstance(shape, ShapeExpr):
            cast = _with_dims(shape, binding)
            first.append(cast)
            assert type(cast.ty) is ShapeType
            assert cast.ty.values is not None
            shape = ShapeExpr(cast.ty.values)
        assert isinstance(dtype, DataTypeImm)
        storage = Var("storage", ANY)
        alloc = alloc_storage(self._size(shape, dtype.value), device, scope)
        tensor = alloc_tensor(storage, 0, shape, dtype, device, binding.var.ty)
        return [
            *first,
            VarBinding(storage, alloc, binding.span),
            self.rebind(binding, tensor),
        ]


def _with_dims(shape: Expr, binding: Binding) -> MatchCast:
    """A match_cast that names the dimensions of a shape value."""
    ty = shape.ty
    if type(ty) is not ShapeType or ty.ndim < 0:
        raise TypeError(
            f"{binding.var}: the shape {shape} is of type {ty}; its rank must be known to allocate "
            "the tensor; use R.match_cast"
        )
    dims = ty.values or [Var(f"{binding.var.name}_dim{i}", "int64") for i in range(ty.ndim)]
    known = ShapeType(dims)
    return MatchCast(Var("shape", known), shape, known, binding.span)


def LowerAllocTensor() -> Pass:
    """Replace each remaining builtin.alloc_tensor by memory.alloc_storage of its size in bytes and
    memory.alloc_tensor at offset 0.

    Why: the VM allocates storages; tensors are views of them.
    """

    @function_pass(name="LowerAllocTensor")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return _Lowerer().visit(func)

    return run
