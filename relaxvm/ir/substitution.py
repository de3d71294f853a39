"""Substitution in Relax expressions: of variables, also symbolic ones in shapes and types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .arith import substitute
from .expr import Call, Expr, ShapeExpr, Var
from .infer import substitute_type
from .visitor import ExprMutator

__all__ = ["bind", "substitute_vars"]


class _Substituter(ExprMutator):
    """Exchanges variables.  A variable that is defined within becomes a new one where its type
    changes, and types that name it as a whole shape follow."""

    def __init__(self, variables: Mapping[Var, Any]) -> None:
        super().__init__()
        self.var_map.update(variables)

    def visit_type(self, ty: Any) -> Any:
        return substitute_type(ty, self.var_map)

    def visit_var_def(self, var: Var) -> Var:
        ty = self.visit_type(var.ty)
        return var if ty is var.ty else type(var)(var.name, ty, var.span)

    def visit_call(self, call: Call) -> Expr:
        new = super().visit_call(call)
        ty = self.visit_type(call.ty)
        if new is not call or ty is call.ty:
            return new
        return Call(call.op, call.args, call.attrs, call.ty_args, ty, call.span)

    def visit_scalar(self, scalar: Expr) -> Expr:
        return substitute(scalar, self.var_map)

    def visit_shape(self, expr: ShapeExpr) -> Expr:
        values = [substitute(value, self.var_map) for value in expr.values]
        if all(a is b for a, b in zip(values, expr.values, strict=True)):
            return expr
        return ShapeExpr(values, expr.span)


def substitute_vars(expr: Any, variables: Mapping[Var, Any]) -> Any:
    """The expression with variables exchanged wherever they are used, shapes and types included;
    types are inferred again.  Variables that it binds must not be among them."""
    return _Substituter(variables).visit(expr) if variables else expr


bind = substitute_vars
"""TVM's name of `substitute_vars` for functions."""
