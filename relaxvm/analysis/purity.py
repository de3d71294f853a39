"""Side effects of calls."""

from __future__ import annotations

from typing import Final

from ..ir.expr import (
    BaseFunc,
    Call,
    Constant,
    DataflowVar,
    Expr,
    Function,
    FuncType,
    GlobalVar,
    ShapeExpr,
    Var,
)
from ..ir.op import Op
from ..ir.visitor import ExprVisitor

__all__ = ["contains_impure_call", "is_impure_call"]


def is_impure_call(call: Call) -> bool:
    """Check whether a call may have side effects: a call of an impure operator, of a packed
    function, or of a function that is not known to be pure."""
    op = call.op
    if isinstance(op, Op):
        return not op.is_pure
    ty = op.ty
    return type(ty) is not FuncType or not ty.purity


_LEAVES: Final = frozenset({Var, DataflowVar, Constant, ShapeExpr})
"""Classes of operands without calls in them."""


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
        """Not visited: the definition of a function has no side effects."""

    def visit_other_function(self, func: BaseFunc) -> None:
        """Not visited, as in `visit_function`."""


def contains_impure_call(expr: Expr, own_name: Var | GlobalVar | None = None) -> bool:
    """Check whether an expression, or the body of a function, contains an impure call.  The bodies
    of local functions do not count.

    Args:
        own_name: the variable of the function itself.  Calls of it do not count, since whether it
            is pure is the question.
    """
    if isinstance(expr, Call) and _LEAVES.issuperset(map(type, expr.args)):
        return is_impure_call(expr) and expr.op is not own_name  # as most are, without a visitor
    visitor = _ImpureCalls(own_name)
    visitor.visit(expr.body if isinstance(expr, Function) else expr)
    return visitor.found
