"""RemoveUnusedParameters: private functions take only what they use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..analysis import definable_tir_vars_in_type, free_symbolic_vars, free_vars, remove_all_unused
from ..dpl.replacing import bindings_for
from ..ir import (
    Binding,
    Call,
    Expr,
    ExprMutator,
    ExprVisitor,
    Function,
    GlobalVar,
    IRModule,
    PrimType,
    ShapeExpr,
    ShapeType,
    Var,
    bind_type,
)
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["RemoveUnusedParameters"]

Adapt = Callable[[Sequence[Expr]], list[Expr]]
"""The arguments of a call -> those of the call of the function with other parameters."""


class _NotCalled(ExprVisitor):
    """Finds functions that are used as values, whose parameters have to stay."""

    def __init__(self) -> None:
        self.found: set[GlobalVar] = set()

    def visit_call(self, call: Call) -> None:
        for arg in call.args:
            self.visit(arg)
        if not isinstance(call.op, GlobalVar):
            self.visit(call.op)

    def visit_global_var(self, var: GlobalVar) -> None:
        self.found.add(var)


def only_called(mod: IRModule) -> dict[GlobalVar, Function]:
    """Return the private Relax functions of which every use is a call."""
    others = _NotCalled()
    for func in mod.functions.values():
        if isinstance(func, Function):
            others.visit(func)
    return {
        var: func
        for var, func in mod.functions.items()
        if isinstance(func, Function)
        and "global_symbol" not in func.attrs
        and var not in others.found
    }


class _Callers(ExprMutator):
    def __init__(self, changed: dict[GlobalVar, tuple[GlobalVar, Adapt]]) -> None:
        super().__init__()
        self._changed = changed

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        new = super().visit_binding(binding)
        assert isinstance(new, Binding)
        call = new.value
        if not isinstance(call, Call) or call.op not in self._changed:
            return new
        assert isinstance(call.op, GlobalVar)
        var, adapt = self._changed[call.op]
        value = Call(var, adapt(call.args), call.attrs, call.ty_args, span=call.span)
        made = bindings_for(value, new, self.in_dataflow)
        if made[-1].var is not binding.var:
            self.var_map[binding.var] = made[-1].var
        return made


def with_new_parameters(
    mod: IRModule, changed: dict[GlobalVar, tuple[Function, Adapt]]
) -> IRModule:
    """Return the module with functions that have other parameters, and their calls adapted."""
    adapted = {
        var: (GlobalVar(var.name_hint, func.ty, var.span), adapt)
        for var, (func, adapt) in changed.items()
    }
    result = IRModule(None, mod.attrs, mod.global_infos, mod.type_definitions)
    result.sources = mod.sources
    result.span = mod.span
    for var, func in mod.functions.items():
        if var in changed:
            func = changed[var][0]
        if isinstance(func, Function):
            new = _Callers(adapted).visit(func)
            func = func if new is func else remove_all_unused(new)
        result[adapted[var][0] if var in adapted else var] = func
    return result


def _without_unused(func: Function) -> tuple[Function, Adapt] | None:
    used = set(free_vars(func.body))
    kept = [index for index, param in enumerate(func.params) if param in used]
    if len(kept) == len(func.params):
        return None
    params = [func.params[index] for index in kept]
    defined = {v for param in params for v in definable_tir_vars_in_type(param.ty)}
    missing = [v for v in free_symbolic_vars(func.body) if v not in defined]
    # A shape defines a symbolic variable as the parameter did.
    given = [Var(f"param_{symbol.name}", ShapeType([symbol])) for symbol in missing]
    new = func.replace(params=[*params, *given])

    def adapt(args: Sequence[Expr]) -> list[Expr]:
        values: dict[Var, Expr] = {}
        for param, arg in zip(func.params, args, strict=True):
            bind_type(param.ty, arg.ty, values)
            if type(param.ty) is PrimType:
                values[param] = arg
        shapes = [ShapeExpr([values[symbol]]) for symbol in missing]
        return [*[args[index] for index in kept], *shapes]

    return new, adapt


def RemoveUnusedParameters() -> Pass:
    """Remove parameters of private functions that they do not use, and what callers computed for
    them.  A symbolic variable that only such a parameter defined is passed as a shape.

    A function that is used as a value keeps its parameters.
    """

    @module_pass(name="RemoveUnusedParameters")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        changed = {}
        for var, func in only_called(mod).items():
            new = _without_unused(func)
            if new is not None:
                changed[var] = new
        return with_new_parameters(mod, changed) if changed else mod

    return run
