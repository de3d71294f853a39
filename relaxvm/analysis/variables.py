"""The variables that an expression, a function or a type defines and uses.

Symbolic variables count like any others: they are defined where they first appear as a dimension in
the type of a parameter or match_cast, and used where a type or a shape mentions them.

Lists have no duplicates and are in order of first appearance.  Names and meaning are those of
``tvm.relax.analysis``.
"""

from __future__ import annotations

from typing import Any

from ..ir import arith
from ..ir.expr import (
    BaseFunc,
    Binding,
    DataflowBlock,
    Expr,
    Function,
    FuncType,
    GlobalVar,
    MatchCast,
    PrimType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
    Var,
    VarBinding,
)
from ..ir.infer import type_free_vars
from ..ir.visitor import ExprVisitor

__all__ = [
    "all_global_vars",
    "all_vars",
    "bound_vars",
    "called_global_vars",
    "definable_tir_vars_in_type",
    "defined_symbolic_vars",
    "free_symbolic_vars",
    "free_vars",
    "get_var2val",
    "name_to_binding",
    "tir_vars_in_type",
    "udchain",
    "used_vars",
    "uses_of_binding",
]


class _Variables(ExprVisitor):
    """Collects variables; dicts are used as ordered sets."""

    def __init__(self) -> None:
        self.bound: dict[Var, None] = {}
        self.used: dict[Var, None] = {}
        self.all: dict[Var, None] = {}
        self.functions: dict[GlobalVar, None] = {}

    def visit_var(self, var: Var) -> None:
        self.used[var] = self.all[var] = None

    def visit_var_def(self, var: Var) -> None:
        self.bound[var] = self.all[var] = None
        self.visit_type(var.ty)

    def visit_scalar(self, scalar: Expr) -> None:
        for var in arith.free_vars(scalar):
            self.visit_var(var)

    def visit_global_var(self, var: GlobalVar) -> None:
        self.functions[var] = None

    def visit_type(self, ty: Any) -> None:
        if ty is not None:
            for var in type_free_vars(ty):
                self.visit_var(var)

    def visit_binding(self, binding: Any) -> None:
        self.visit(binding.value)
        if isinstance(binding, MatchCast):
            self.define_dims(binding.ty)
        self.visit_var_def(binding.var)

    def visit_function(self, func: Function) -> None:
        for param in func.params:
            self.bound[param] = self.all[param] = None
            self.define_dims(param.ty)
        for param in func.params:
            self.visit_type(param.ty)
        self.visit(func.body)
        self.visit_type(func.ret_ty)

    def define_dims(self, ty: Type) -> None:
        """Record the symbolic variables that a type defines and that are not defined yet."""
        for var in definable_tir_vars_in_type(ty):
            self.bound[var] = self.all[var] = None


def _variables(expr: Expr) -> _Variables:
    found = _Variables()
    found.visit(expr)
    return found


def free_vars(expr: Expr) -> list[Var]:
    """Return the variables that an expression uses and does not define."""
    found = _variables(expr)
    return [var for var in found.used if var not in found.bound]


def bound_vars(expr: Expr) -> list[Var]:
    """Return the variables that an expression defines: parameters, bindings, dimensions."""
    return list(_variables(expr).bound)


def used_vars(expr: Expr) -> list[Var]:
    """Return the variables that an expression uses."""
    return list(_variables(expr).used)


def all_vars(expr: Expr) -> list[Var]:
    """Return the variables that an expression defines or uses."""
    return list(_variables(expr).all)


def all_global_vars(expr: Expr) -> list[GlobalVar]:
    """Return the functions of the module that an expression mentions."""
    return list(_variables(expr).functions)


class _Called(ExprVisitor):
    def __init__(self) -> None:
        self.functions: dict[GlobalVar, None] = {}

    def visit_call(self, call: Any) -> None:
        if isinstance(call.op, GlobalVar):
            self.functions[call.op] = None
        super().visit_call(call)


def called_global_vars(expr: Expr) -> list[GlobalVar]:
    """Return the functions of the module that an expression calls directly."""
    found = _Called()
    found.visit(expr)
    return list(found.functions)


# Symbolic variables


def free_symbolic_vars(func: Expr) -> list[Var]:
    """Return the scalar variables that an expression uses and does not define."""
    return [var for var in free_vars(func) if type(var.ty) is PrimType]


def defined_symbolic_vars(func: Expr) -> list[Var]:
    """Return the scalar variables that an expression defines."""
    return [var for var in bound_vars(func) if type(var.ty) is PrimType]


def tir_vars_in_type(ty: Type) -> list[Var]:
    """Return the symbolic variables that a type mentions; of the type of a function also those that
    its parameters define."""
    if type(ty) is not FuncType:
        return type_free_vars(ty)
    parts = [*(ty.params or ()), ty.ret]
    return list(dict.fromkeys(var for part in parts for var in tir_vars_in_type(part)))


def definable_tir_vars_in_type(ty: Type) -> list[Var]:
    """Return the symbolic variables that a type defines when a value is matched with it: the
    dimensions that are a single variable."""
    found: dict[Var, None] = {}
    _definable(ty, found)
    return list(found)


def _definable(ty: Any, found: dict[Var, None]) -> None:
    kind = type(ty)
    if kind is TensorType or kind is ShapeType:
        for dim in (ty.dims if kind is TensorType else ty.values) or ():
            if isinstance(dim, Var):
                found[dim] = None
    elif kind is TupleType:
        for field in ty.fields:
            _definable(field, found)


# Bindings


class _Bindings(ExprVisitor):
    def __init__(self) -> None:
        self.found: list[Any] = []

    def visit_binding(self, binding: Any) -> None:
        super().visit_binding(binding)
        self.found.append(binding)


def _bindings(func: BaseFunc) -> list[Any]:
    found = _Bindings()
    found.visit(func)
    return found.found


def name_to_binding(func: Function) -> dict[str, list[Any]]:
    """Return the bindings of a function by the name of their variable."""
    found: dict[str, list[Any]] = {}
    for binding in _bindings(func):
        found.setdefault(binding.var.name, []).append(binding)
    return found


def get_var2val(func: Function) -> dict[Var, Expr]:
    """Return the value of each variable that a function binds, except by match_cast."""
    return {b.var: b.value for b in _bindings(func) if isinstance(b, VarBinding)}


def uses_of_binding(binding: Binding) -> list[Var]:
    """Return the variables that a binding uses, in its value and in its types."""
    found = _Variables()
    found.visit_binding(binding)
    return list(found.used)


def udchain(dfb: DataflowBlock) -> dict[Var, list[Var]]:
    """Return the use-def chain: variable -> variables of the block whose value or type depends on
    it.  Variables that the block defines come first, and are included even if unused."""
    found: dict[Var, dict[Var, None]] = {binding.var: {} for binding in dfb.bindings}
    for binding in dfb.bindings:
        for var in uses_of_binding(binding):
            found.setdefault(var, {})[binding.var] = None
    return {var: list(users) for var, users in found.items()}
