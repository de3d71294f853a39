"""Base class of passes that replace variables by others."""

from __future__ import annotations

from typing import Any

from ..ir import Binding, Expr, ExprMutator, PrimType, ShapeType, Var, substitute, substitute_type
from ..ir.node import KINDS

__all__ = ["Renamer"]


class Renamer(ExprMutator):
    """Replaces variables in all uses, also in types, which mention scalars and whole shapes."""

    _NUMBERS_STAY = True

    def __init__(self) -> None:
        super().__init__()
        self._in_types: dict[Var, Expr] = {}
        if type(self).visit_type is Renamer.visit_type:
            self._has_types = False  # as long as nothing in types is renamed

    def rename(self, var: Var, value: Expr) -> None:
        """Replace a variable by a value from here on."""
        self.var_map[var] = value
        if type(var.ty) is PrimType or type(var.ty) is ShapeType:
            self._in_types[var] = value
            self._has_types = True

    def visit_type(self, ty: Any) -> Any:
        return substitute_type(ty, self._in_types) if self._in_types else ty

    def visit_scalar(self, scalar: Expr) -> Expr:
        return substitute(scalar, self._in_types) if self._in_types else scalar

    def visit_var_def(self, var: Var) -> Var:
        ty = self.visit_type(var.ty)
        return var if ty is var.ty else KINDS[type(var)](var.name, ty, var.span)

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        new = super().visit_binding(binding)
        if isinstance(new, Binding) and new.var is not binding.var:
            self.rename(binding.var, new.var)
        return new
