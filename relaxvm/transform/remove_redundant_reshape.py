"""RemoveRedundantReshape: one reshape instead of two, and none to the shape that is there."""

from __future__ import annotations

from typing import Any

from .. import dpl, op
from ..dpl.pattern import DFPattern, is_op, wildcard
from ..ir import Expr, Function, IRModule, structural_equal
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["RemoveRedundantReshape"]


def RemoveRedundantReshape() -> Pass:
    """Replace a reshape of a reshape by one, and a reshape to the shape of its operand by the
    operand."""
    data = wildcard()
    single = is_op("relax.reshape")(data, wildcard())
    double = is_op("relax.reshape")(single, wildcard())

    def shorten(expr: Expr, matches: dict[DFPattern, Expr]) -> Any:
        operand: Any = matches[data]
        outer: Any = matches[double] if double in matches else matches[single]
        shape = outer.args[1]
        if double in matches:
            try:
                new = op.reshape(operand, shape)
            except (TypeError, ValueError):
                return expr  # a 0 or -1 in the shape is about the operand that it has
            return new if structural_equal(new.args[1], shape) else expr
        known = operand.ty.shape
        return operand if known is not None and structural_equal(known, shape) else expr

    @function_pass(name="RemoveRedundantReshape")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        if func.attrs.get("Primitive"):
            return func
        return dpl.rewrite_call(double | single, shorten, func)

    return run
