"""ReorderTakeAfterMatmul: multiply by a whole table, then select."""

from __future__ import annotations

from typing import Any

from .. import dpl, op
from ..dpl.pattern import DFPattern, is_op, wildcard
from ..ir import Expr, Function, IRModule, TensorType
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["ReorderTakeAfterMatmul"]


def ReorderTakeAfterMatmul() -> Pass:
    """Replace ``matmul(x, take(table, indices))`` by ``take(matmul(x, table), indices)``: of
    columns of a matrix, or of one matrix per row of a batch, in which case the batch is computed
    for the whole table and each row selects its own.

    Why: the product has operands that are known earlier, and may be combined with others.  It
    computes more unless the table is small.
    """
    lhs, table, indices = wildcard(), wildcard(), wildcard()
    rhs = is_op("relax.take")(table, indices)
    pattern = is_op("relax.matmul")(lhs, rhs)

    def reorder(expr: Expr, matches: dict[DFPattern, Expr]) -> Any:
        x, w, i = matches[lhs], matches[table], matches[indices]
        take: Any = matches[rhs]
        types: list[Any] = [x.ty, w.ty, i.ty, expr.ty]
        if not all(isinstance(ty, TensorType) and ty.ndim >= 0 for ty in types):
            return expr
        axis = take.attrs["axis"]
        if axis is None or types[2].ndim != 1:
            return expr
        axis %= types[1].ndim
        if axis + 1 == types[1].ndim:
            if types[1].ndim == 2:
                return op.take(op.matmul(x, w), i, axis=types[3].ndim - 1)
            return expr
        x_dims, w_dims = types[0].dims, types[1].dims
        if axis == 0 and types[0].ndim == types[1].ndim == 3 and x_dims and w_dims:
            count, inputs, outputs = w_dims
            by_input = op.reshape(op.permute_dims(w, [1, 0, 2]), (inputs, count * outputs))
            of_all = op.reshape(op.matmul(x, by_input), (x_dims[0], x_dims[1], count, outputs))
            return op.einsum((op.take(of_all, i, axis=2),), "ijik->ijk")
        return expr

    @function_pass(name="ReorderTakeAfterMatmul", opt_level=1)
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return dpl.rewrite_call(pattern, reorder, func)

    return run
