"""LowerAllocTensor: every tensor that was not planned gets a storage of its own."""

from __future__ import annotations

from typing import Any, Final

from ..ir import (
    ANY,
    Binding,
    Call,
    Expr,
    ExprMutator,
    Function,
    IRModule,
    MatchCast,
    Op,
    ShapeExpr,
    ShapeType,
    Var,
    VarBinding,
    int_imm,
)
from ..op import memory
from ..values import as_dtype
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["LowerAllocTensor", "num_bytes"]

_ALLOC: Final = Op.get("relax.builtin.alloc_tensor")


def num_bytes(shape: ShapeExpr, dtype: str) -> Expr:
    """Bytes of a tensor: itemsize times the product of the dimensions, from the left."""
    size: Expr = int_imm(as_dtype(dtype).itemsize)
    for dim in shape.values:
        size = size * dim
    return size


class _Lowerer(ExprMutator):
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
        dtype_name: str = dtype.value  # type: ignore[attr-defined]
        size = ShapeExpr([num_bytes(shape, dtype_name)])
        storage = Var("storage", ANY)
        alloc = memory.alloc_storage(size, device, scope, "uint8")
        tensor = memory.alloc_tensor(storage, 0, shape, dtype_name, device)
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
