"""FuseTransposeMatmul: products with a transposed matrix as one PrimFunc."""

from __future__ import annotations

from typing import Any

from .. import dpl
from ..dpl.pattern import DFPattern, is_op, wildcard
from ..ir import BlockBuilder, Call, Expr, Function, IRModule, TensorType
from ..te import Tensor, topi
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["FuseTransposeMatmul"]

_NAME = "NT_matmul"


def _product(x: Tensor, w: Tensor) -> Any:
    found = topi.nn.matmul(x, w, transpose_b=True)
    found.name = _NAME
    return found


def FuseTransposeMatmul() -> Pass:
    """Replace ``matmul(x, permute_dims(w))`` by a PrimFunc "NT_matmul" that reads w as it is, where
    the last two axes of w are exchanged.

    For programs that schedule the loops of products; a build needs it not, since the kernel of
    `matmul` reads transposed operands as they are.

    Source: ``tvm.relax.transform.FuseTransposeMatmul`` of apache-tvm 0.27.
    """
    x, w = wildcard(), wildcard()
    turned = is_op("relax.permute_dims")(w)
    pattern = is_op("relax.matmul")(x, turned)

    @module_pass(name="FuseTransposeMatmul")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        builder = BlockBuilder(mod.copy())

        def fused(expr: Expr, matches: dict[DFPattern, Expr]) -> Expr:
            data, weight, transpose = matches[x], matches[w], matches[turned]
            if not isinstance(expr, Call) or not isinstance(transpose, Call):
                return expr
            types: list[Any] = [data.ty, weight.ty, expr.ty]
            if not all(type(ty) is TensorType and ty.dims and ty.dtype for ty in types):
                return expr
            rank = types[1].ndim
            axes = transpose.attrs["axes"]
            order = list(reversed(range(rank))) if axes is None else [a % rank for a in axes]
            swapped = [*range(rank - 2), rank - 1, rank - 2]
            if order != swapped or types[0].ndim < 2 or types[2].dtype != types[0].dtype:
                return expr
            return builder.call_te(
                _product, data, weight, primfunc_name_hint=_NAME, ty_args=types[2]
            )

        for var, func in mod.functions.items():
            if isinstance(func, Function):
                builder.update_func(var, dpl.rewrite_call(pattern, fused, func))
        return builder.get()

    return run
