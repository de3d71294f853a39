"""Replacement of functions of a module; their types may change."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir import (
    BaseFunc,
    Expr,
    ExprMutator,
    Function,
    GlobalVar,
    IRModule,
    structural_equal,
)

__all__ = ["replace_functions"]


class _Renamer(ExprMutator):
    """Replaces GlobalVars; the types of calls are inferred again."""

    def __init__(self, replaced: Mapping[GlobalVar, GlobalVar]) -> None:
        super().__init__()
        self._replaced = replaced

    def visit_global_var(self, var: GlobalVar) -> Expr:
        return self._replaced.get(var, var)


def replace_functions(mod: IRModule, functions: Mapping[GlobalVar, BaseFunc]) -> IRModule:
    """Return the module with some functions replaced, under the same names.

    A function whose type changes gets a new `GlobalVar`, in all functions that mention it, since
    the one of `mod` must keep its type.

    Raises:
        TypeError: a call is ill-typed after the replacement.
    """
    replaced = {
        var: GlobalVar(var.name_hint, func.ty, var.span)
        for var, func in functions.items()
        if not structural_equal(func.ty, mod.functions[var].ty)
    }
    result = IRModule(None, mod.attrs, mod.global_infos, mod.type_definitions)
    result.sources = mod.sources
    result.span = mod.span
    for var, old in mod.functions.items():
        func = functions.get(var, old)
        if replaced and isinstance(func, Function):
            func = _Renamer(replaced).visit(func)
        result[replaced.get(var, var)] = func
    return result
