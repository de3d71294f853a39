"""LowerAllocTensor: every tensor that was not planned gets a storage of its own."""

from __future__ import annotations

from typing import Any, Final

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
from ..values import as_dtype
from ._memory_calls import alloc_storage, alloc_tensor
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["LowerAllocTensor"]

_ALLOC: Final = Op.get("relax.builtin.alloc_tensor")


def num_bytes(shape: ShapeExpr, dtype: str) -> Expr:
    """Bytes of a tensor: itemsize times the product of the dimensions, from the left."""
    size: Expr = int_imm(as_dtype(dtype).itemsize)
    for dim in shape.values:
        size = size * dim
    return size


class _Lowerer(ExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self._sizes: dict[tuple[object, ...], ShapeExpr] = {}

    def _size(self, shape: ShapeExpr, dtype: str) -> ShapeExpr:
        """The size in bytes as a shape: one for all tensors of the same dimensions."""
        key = (dtype, *[dim.value if type(dim) is IntImm else dim for dim in shape.values])
        found = self._sizes.get(key)
        if found is None:
            found = self._sizes[key] = ShapeExpr([num_bytes(shape, dtype)])
        return found

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        value = binding.value
        if type(value) is not Call or value.op is not _ALLOC:
            return super().visit_binding(binding)
        shape, dtype, device, scope = self.visit_all(value.args)
        first: list[Binding] = []
        if type(shape) is not ShapeExpr:
            cast = _with_dims(shape, binding)
            first.append(cast)
            assert type(cast.ty) is ShapeType
            assert cast.ty.values is not None
            shape = ShapeExpr(cast.ty.values)
        assert type(dtype) is DataTypeImm
        storage = Var("storage", ANY)
        alloc = alloc_storage(self._size(shape, dtype.value), device, scope)
        tensor = alloc_tensor(storage, 0, shape, dtype, device, binding.var.ty)
        return [
            *first,
            VarBinding(storage, alloc, binding.span),
            self.rebind(binding, tensor),
        ]


def _with_dims(shape: Expr, binding: Binding) -> MatchCast:
    """A match_cast that gives names to the dimensions of a shape that is a value."""
    ty = shape.ty
    if type(ty) is not ShapeType or ty.ndim < 0:
        raise TypeError(
            f"{binding.var}: the shape {shape} is of type {ty}; its rank has to be known to "
            "allocate; R.match_cast tells it"
        )
    dims = ty.values or [Var(f"{binding.var.name}_dim{i}", "int64") for i in range(ty.ndim)]
    known = ShapeType(dims)
    return MatchCast(Var("shape", known), shape, known, binding.span)


def LowerAllocTensor() -> Pass:
    """Each remaining builtin.alloc_tensor becomes memory.alloc_storage of so many bytes (uint8) and
    memory.alloc_tensor at its start.

    Why: the VM allocates storages, tensors are views of them.
    """

    @function_pass(name="LowerAllocTensor")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return _Lowerer().visit(func)

    return run
