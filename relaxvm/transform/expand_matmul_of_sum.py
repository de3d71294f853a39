"""ExpandMatmulOfSum: distribute a product of matrices over a sum."""

from __future__ import annotations

from typing import Any

from .. import dpl, op
from ..analysis import computable_at_compile_time
from ..dpl.pattern import DFPattern, is_op, wildcard
from ..ir import Expr, Function, IRModule
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["ExpandMatmulOfSum"]


def ExpandMatmulOfSum() -> Pass:
    """Replace ``matmul(x, a + b)`` by ``matmul(x, a) + matmul(x, b)``, also where the sum is
    transposed, unless both summands are weights, whose sum is computed once.

    Why: in ``matmul(x, weight + matmul(p, q))`` with small p and q, the products may then be
    computed in a better order, see `AdjustMatmulOrder`.  The sum is rounded differently.
    """

    @function_pass(name="ExpandMatmulOfSum", opt_level=1)
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        known = set(computable_at_compile_time(func))
        lhs, a, b = wildcard(), wildcard(), wildcard()
        total = is_op("relax.add")(a, b)
        transposed = is_op("relax.permute_dims")(total)
        pattern = is_op("relax.matmul")(lhs, total | transposed)

        def expand(expr: Expr, matches: dict[DFPattern, Expr]) -> Any:
            summands: list[Any] = [matches[a], matches[b]]
            if known.issuperset(summands):
                return expr
            shapes = [getattr(summand.ty, "ndim", -1) for summand in summands]
            if transposed in matches:
                outer: Any = matches[transposed]
                if shapes[0] != shapes[1]:
                    return expr  # the axes are those of the sum
                summands = [op.permute_dims(s, outer.attrs["axes"]) for s in summands]
            elif min(shapes) < 2:
                return expr  # a vector or a scalar that is broadcast is no operand of the product
            return op.add(*[op.matmul(matches[lhs], summand) for summand in summands])

        return dpl.rewrite_call(pattern, expand, func)

    return run
