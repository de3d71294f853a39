"""UpdateParamType: other types of parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir import ExprMutator, Function, IRModule, Type, Var
from ..ir.infer import function_ret_type
from ..ir.node import KINDS
from ._replacing import replace_functions
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["UpdateParamType"]


class _Updater(ExprMutator):
    def __init__(self, params: dict[Var, Var]) -> None:
        super().__init__()
        self._params = params

    def visit_var_def(self, var: Var) -> Var:
        return self._params.get(var, var)


def UpdateParamType(ty_func: Callable[[Var], Type | None]) -> Pass:
    """Give parameters of functions other types; those of bindings and results are inferred again.

    Args:
        ty_func: called with each parameter; returns its type, or None to keep the one it has.

    Raises:
        TypeError, ValueError: the function is ill-typed with the new types.
    """

    @module_pass(name="UpdateParamType")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        functions = {}
        for var, func in mod.functions.items():
            if not isinstance(func, Function):
                continue
            params = {}
            for param in func.params:
                ty = ty_func(param)
                if ty is not None:
                    params[param] = KINDS[type(param)](param.name, ty, param.span)
            if params:
                new = _Updater(params).visit(func)
                functions[var] = new.replace(ret_ty=function_ret_type(new.params, new.body))
        return replace_functions(mod, functions) if functions else mod

    return run
