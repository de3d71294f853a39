"""Whether calls have effects."""

from __future__ import annotations

from ..ir.expr import BaseFunc, Call, Expr, Function, FuncType, GlobalVar, Var
from ..ir.op import Op
from ..ir.visitor import ExprVisitor

__all__ = ["contains_impure_call", "is_impure_call"]


def is_impure_call(call: Call) -> bool:
    """Whether a call may have an effect but its result: of an impure operator, of a function that
    is not known to be pure, of a packed function."""
    op = call.op
    if type(op) is Op:
        return not op.is_pure
    ty = op.ty
    return type(ty) is not FuncType or not ty.purity


class _ImpureCalls(ExprVisitor):
    def __init__(self, own_name: Var | GlobalVar | None) -> None:
        self.own_name = own_name
        self.found = False

    def visit(self, expr: Expr) -> None:
        if not self.found:
            super().visit(expr)

    def visit_call(self, call: Call) -> None:
        if is_impure_call(call) and call.op is not self.own_name:
            self.found = True
            return
        super().visit_call(call)

    def visit_function(self, func: Function) -> None:
        """A function that is only defined has no effect."""

    def visit_other_function(self, func: BaseFunc) -> None:
        """As for `visit_function`."""


def contains_impure_call(expr: Expr, own_name: Var | GlobalVar | None = None) -> bool:
    """Whether there is an impure call in an expression, or in the body of a function.  Bodies of
    functions that are defined in it do not count.

    Args:
        own_name: calls of this variable do not count: that which the function is called by, as it
            is not known to be pure before it is.
    """
    visitor = _ImpureCalls(own_name)
    visitor.visit(expr.body if type(expr) is Function else expr)
    return visitor.found
