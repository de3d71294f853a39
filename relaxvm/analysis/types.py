"""Analyses of types: subtypes, erasure, expressions that cannot be negative."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.block_builder import BlockBuilder
from ..ir.expr import Call, Expr, FuncType, IntImm, ShapeType, TensorType, TupleType, Type, Var
from ..ir.infer import (
    BaseCheckResult,
    base_check,
    erase_type,
    substitute_type,
    type_lca,
    type_of_call,
)
from ..ir.keys import expr_key

__all__ = [
    "BaseCheckResult",
    "TypeBaseCheckResult",
    "collect_non_negative_expressions",
    "derive_call_ret_type",
    "erase_to_well_defined",
    "get_static_type",
    "type_base_check",
    "type_lca",
]

TypeBaseCheckResult = BaseCheckResult
"""Another name of `BaseCheckResult`."""

type_base_check = base_check


def derive_call_ret_type(func_ty: Type, call: Call, ctx: BlockBuilder | None = None) -> Type:
    """Return the type of a call of a function that has the given type.

    Args:
        ctx: the builder of the program, without effect: a `FuncType.derive_func` gets the one that
            builds the function at hand.

    Raises:
        TypeError: the arguments do not match the parameters.
    """
    return type_of_call(Call(Var("callee", func_ty), call.args, call.attrs, call.ty_args))


def get_static_type(ty: Type) -> Type:
    """Return a type without dimensions and device; rank and data type remain."""
    if type(ty) is TensorType:
        return TensorType(None, ty.dtype, None, ty.ndim)
    if type(ty) is ShapeType:
        return ShapeType(ndim=ty.ndim)
    if type(ty) is TupleType:
        return TupleType([get_static_type(field) for field in ty.fields])
    if type(ty) is FuncType:
        params = None if ty.params is None else [get_static_type(param) for param in ty.params]
        return FuncType(params, get_static_type(ty.ret), ty.purity, type_params=ty.type_params)
    return ty


def erase_to_well_defined(
    ty: Type,
    shape_var_map: Mapping[Var, Expr] | None = None,
    var_map: Mapping[Var, Expr] | None = None,
) -> Type:
    """Return a type with variables replaced according to the mappings.  A shape that mentions any
    other variable is reduced to its rank."""
    variables = {**(shape_var_map or {}), **(var_map or {})}
    erased: Type = substitute_type(erase_type(ty, variables.__contains__), variables)
    return erased


def collect_non_negative_expressions(ty: Type) -> list[Expr]:
    """Return the dimensions in a type, which are sizes and so not negative: non-constant scalars,
    without duplicates, in order of first appearance."""
    found: dict[Any, Expr] = {}
    work: list[Any] = [ty]
    while work:
        t = work.pop()
        if isinstance(t, TupleType):
            work += reversed(t.fields)
            continue
        dims = t.dims if isinstance(t, TensorType) else t.values if isinstance(t, ShapeType) else ()
        for dim in dims or ():
            if type(dim) is not IntImm:
                found.setdefault(expr_key(dim), dim)
    return list(found.values())
