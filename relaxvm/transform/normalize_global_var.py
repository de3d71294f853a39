"""NormalizeGlobalVar: functions have the names that they export."""

from __future__ import annotations

from typing import Any

from ..ir import Expr, ExprMutator, Function, GlobalVar, IRModule
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["NormalizeGlobalVar"]


class _Renamer(ExprMutator):
    def __init__(self, names: dict[GlobalVar, GlobalVar]) -> None:
        super().__init__()
        self._names = names

    def visit_global_var(self, var: GlobalVar) -> Expr:
        return self._names.get(var, var)


def NormalizeGlobalVar() -> Pass:
    """Rename functions, so that each public one has the name of its attribute "global_symbol" and
    all names are different.  A private function that is in the way gets a number.

    Raises:
        ValueError: two functions have the same "global_symbol".
    """

    @module_pass(name="NormalizeGlobalVar")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        taken: dict[str, GlobalVar] = {}
        for var, func in mod.functions.items():
            symbol = func.attrs.get("global_symbol")
            if symbol is None:
                continue
            if symbol in taken:
                raise ValueError(
                    f"NormalizeGlobalVar: functions {taken[symbol].name_hint!r} and "
                    f"{var.name_hint!r} have the same global_symbol, {symbol!r}"
                )
            taken[symbol] = var
        names = {var: symbol for symbol, var in taken.items()}
        for var in mod.functions:
            if var in names:
                continue
            name, number = var.name_hint, 1
            while name in taken:
                name, number = f"{var.name_hint}{number}", number + 1
            taken[name] = var
            names[var] = name
        renamed = {
            var: GlobalVar(name, mod.functions[var].ty, var.span)
            for var, name in names.items()
            if name != var.name_hint
        }
        if not renamed:
            return mod
        result = IRModule(None, mod.attrs, mod.global_infos, mod.type_definitions)
        result.sources = mod.sources
        result.span = mod.span
        for var, func in mod.functions.items():
            if isinstance(func, Function):
                func = _Renamer(renamed).visit(func)
            result[renamed.get(var, var)] = func
        return result

    return run
