"""Substitution of variables in Relax expressions, shapes and types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .arith import simplify, substitute
from .expr import Call, Expr, Function, ShapeExpr, ShapeType, TensorType, TupleType, Var
from .infer import substitute_type, type_free_vars
from .node import KINDS
from .visitor import ExprMutator

__all__ = ["bind", "bind_vars", "copy_with_new_vars", "redefine", "substitute_vars"]


class _Substituter(ExprMutator):
    """Replaces variables.  A variable that the expression defines is replaced by a new one if its
    type changes, also in types that use it as a whole shape."""

    def __init__(self, variables: Mapping[Var, Any]) -> None:
        super().__init__()
        self.var_map.update(variables)

    def visit_type(self, ty: Any) -> Any:
        return substitute_type(ty, self.var_map)

    def visit_var_def(self, var: Var) -> Var:
        ty = self.visit_type(var.ty)
        return var if ty is var.ty else KINDS[type(var)](var.name, ty, var.span)

    def visit_call(self, call: Call) -> Expr:
        new = super().visit_call(call)
        ty = self.visit_type(call.ty)
        if new is not call or ty is call.ty:
            return new
        return Call(call.op, call.args, call.attrs, call.ty_args, ret_ty=ty, span=call.span)

    def visit_scalar(self, scalar: Expr) -> Expr:
        return substitute(scalar, self.var_map)

    def visit_shape(self, expr: ShapeExpr) -> Expr:
        values = [substitute(value, self.var_map) for value in expr.values]
        if all(a is b for a, b in zip(values, expr.values, strict=True)):
            return expr
        return ShapeExpr(values, expr.span)


def substitute_vars(expr: Any, variables: Mapping[Var, Any]) -> Any:
    """Return the expression with all uses of variables replaced, shapes and types included; types
    are inferred again.  `variables` must not contain variables that the expression binds."""
    return _Substituter(variables).visit(expr) if variables else expr


bind = substitute_vars
"""TVM's name for `substitute_vars`."""


class _Binder(_Substituter):
    """Replaces variables, and simplifies the dimensions that they are in."""

    def visit_type(self, ty: Any) -> Any:
        new = super().visit_type(ty)
        return new if new is ty else _simplified(new)

    def visit_shape(self, expr: ShapeExpr) -> Expr:
        new = super().visit_shape(expr)
        assert isinstance(new, ShapeExpr)
        return new if new is expr else ShapeExpr([simplify(v) for v in new.values], new.span)


def _simplified(ty: Any) -> Any:
    kind = type(ty)
    if kind is TupleType:
        return TupleType([_simplified(field) for field in ty.fields], ty.span)
    if kind is ShapeType and ty.values is not None:
        return ShapeType([simplify(value) for value in ty.values], span=ty.span)
    if kind is TensorType and isinstance(ty.shape, ShapeExpr):
        dims = ShapeExpr([simplify(value) for value in ty.shape.values], ty.shape.span)
        return TensorType(dims, ty.dtype, ty.vdevice, span=ty.span)
    return ty


def bind_vars(expr: Any, variables: Mapping[Var, Any]) -> Any:
    """As `substitute_vars`, where variables get values: dimensions are simplified."""
    return _Binder(variables).visit(expr) if variables else expr


class _Redefiner(_Substituter):
    """Replaces variables also where they are defined."""

    def visit_var_def(self, var: Var) -> Var:
        known = self.var_map.get(var)
        return known if isinstance(known, Var) else super().visit_var_def(var)


def redefine(expr: Any, variables: Mapping[Var, Var]) -> Any:
    """Return the expression with variables replaced by others of the same types, also where the
    expression binds them."""
    return _Redefiner(variables).visit(expr) if variables else expr


class _Renewer(_Substituter):
    """Replaces every variable that is defined by a new one."""

    def __init__(self) -> None:
        super().__init__({})

    def visit_type(self, ty: Any) -> Any:
        for var in type_free_vars(ty):
            if var not in self.var_map:
                self.var_map[var] = Var(var.name, var.ty, var.span)
        return super().visit_type(ty)

    def visit_var_def(self, var: Var) -> Var:
        known = self.var_map.get(var)
        if known is None:
            ty = substitute_type(var.ty, self.var_map)
            known = self.var_map[var] = KINDS[type(var)](var.name, ty, var.span)
        assert isinstance(known, Var)
        return known


def copy_with_new_vars(func: Function) -> Function:
    """Return a copy of a function of a module with variables of its own: parameters, bindings and
    symbolic variables."""
    new: Function = _Renewer().visit(func)
    return new
