"""ExpandTupleArguments: private functions take the elements of tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..analysis import remove_all_unused
from ..ir import (
    BindingBlock,
    Expr,
    Function,
    IRModule,
    SeqExpr,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    VarBinding,
)
from .canonicalize_bindings import canonicalize_bindings
from .pass_infra import Pass, PassContext, module_pass
from .remove_unused_parameters import Adapt, only_called, with_new_parameters

__all__ = ["ExpandTupleArguments"]


def _expanded(func: Function) -> tuple[Function, Adapt] | None:
    if not any(isinstance(param.ty, TupleType) for param in func.params):
        return None
    params: list[Var] = []

    def elements(name: str, ty: Any) -> Expr:
        if isinstance(ty, TupleType):
            return Tuple([elements(f"{name}_{i}", field) for i, field in enumerate(ty.fields)])
        params.append(Var(name, ty))
        return params[-1]

    tuples: list[VarBinding] = []
    for param in func.params:
        if isinstance(param.ty, TupleType):
            tuples.append(VarBinding(param, elements(param.name, param.ty)))
        else:
            params.append(param)
    body = SeqExpr([BindingBlock(tuples), *func.body.blocks], func.body.body, span=func.body.span)
    new = canonicalize_bindings(func.replace(params=params, body=body))
    return remove_all_unused(new), _adapt


def _adapt(args: Sequence[Expr]) -> list[Expr]:
    found: list[Expr] = []
    for arg in args:
        ty = arg.ty
        if isinstance(arg, Tuple):
            found += _adapt(arg.fields)
        elif isinstance(ty, TupleType):
            found += _adapt([TupleGetItem(arg, index) for index in range(len(ty.fields))])
        else:
            found.append(arg)
    return found


def ExpandTupleArguments() -> Pass:
    """Give private functions the elements of a tuple as parameters of their own, instead of the
    tuple.  `RemoveUnusedParameters` then removes those that are not used.

    A function that is used as a value keeps its parameters.
    """

    @module_pass(name="ExpandTupleArguments")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        changed = {}
        for var, func in only_called(mod).items():
            new = _expanded(func)
            if new is not None:
                changed[var] = new
        return with_new_parameters(mod, changed) if changed else mod

    return run
