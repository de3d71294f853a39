"""Functions of a module exchanged for others, whose types may be others as well."""

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

__all__ = ["exchange_functions"]


class _Renamer(ExprMutator):
    """Puts variables of functions in place of others; types of calls are inferred again."""

    def __init__(self, renewed: Mapping[GlobalVar, GlobalVar]) -> None:
        super().__init__()
        self._renewed = renewed

    def visit_global_var(self, var: GlobalVar) -> Expr:
        return self._renewed.get(var, var)


def exchange_functions(mod: IRModule, functions: Mapping[GlobalVar, BaseFunc]) -> IRModule:
    """The module with other functions under the same names.  One whose type is another gets a new
    `GlobalVar`, in all functions that mention it: that of `mod` keeps its type.

    Raises:
        TypeError: a call does not fit any more.
    """
    renewed = {
        var: GlobalVar(var.name_hint, func.ty, var.span)
        for var, func in functions.items()
        if not structural_equal(func.ty, mod.functions[var].ty)
    }
    result = IRModule(attrs=mod.attrs, global_infos=mod.global_infos)
    result.sources = mod.sources
    result.span = mod.span
    for var, old in mod.functions.items():
        func = functions.get(var, old)
        if renewed and type(func) is Function:
            func = _Renamer(renewed).visit(func)
        result[renewed.get(var, var)] = func
    return result
