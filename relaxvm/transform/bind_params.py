"""BindParams and BindSymbolicVars: bind parameters and dimensions known at compile time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..analysis import free_symbolic_vars
from ..dtypes import as_dtype
from ..errors import BindError, did_you_mean
from ..ir import (
    BaseCheckResult,
    Constant,
    Expr,
    Function,
    IRModule,
    PrimType,
    TensorType,
    Var,
    bind_type,
    bind_vars,
    constant_of,
    prim_value,
    type_free_vars,
)
from ..ir.node import MOST_ELEMENTS, check_nested
from ..values import is_adt
from ._replacing import replace_functions
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["BindParams", "BindSymbolicVars", "bind_params", "bind_symbolic_vars"]


def _function(mod: IRModule, name: str) -> Function:
    func = mod[name]
    if not isinstance(func, Function):
        raise ValueError(f"function {name!r} is not a Relax function, it has no parameters to bind")
    return func


def _param(func: Function, name: str, key: Any) -> Var:
    if isinstance(key, Var):
        if key in func.params:
            return key
        raise BindError(f"{key} is not a parameter of function {name!r}")
    found = [param for param in func.params if param.name == key]
    if len(found) != 1:
        names = [param.name for param in func.params]
        if found:
            raise BindError(f"function {name!r} has {len(found)} parameters named {key!r}")
        raise BindError(
            f"function {name!r} has no parameter {key!r}{did_you_mean(str(key), names)}"
        )
    return found[0]


def _as_expr(value: Any, param: Var) -> Expr:
    if isinstance(value, Expr):
        return value
    if type(param.ty) is PrimType:
        return prim_value(value)
    if isinstance(value, (tuple, list)):
        check_nested(value, MOST_ELEMENTS, f"BindParams: parameter {param.name!r}")
    if type(param.ty) is TensorType and param.ty.dtype is not None and not hasattr(value, "dtype"):
        try:
            return Constant(np.array(value, as_dtype(param.ty.dtype)))
        except (TypeError, ValueError) as error:
            raise type(error)(f"BindParams: parameter {param.name!r}: {error}") from None
    if is_adt(value):
        raise TypeError(
            f"BindParams: parameter {param.name!r}: a value of a data type cannot be bound; "
            "write it in the program as calls of constructors"
        )
    return constant_of(np.asarray(value))


def BindParams(func_name: str, params: Mapping[Any, Any]) -> Pass:
    """Replace parameters of a function by constants.  Symbolic dimensions that follow from their
    shapes are bound too.

    Args:
        params: parameter, or its name -> array, expression, or Python numbers and lists, which are
            converted to the parameter's data type.

    Raises:
        ValueError: there is no such function.
        BindError: there is no such parameter.
        TypeError: a value does not have the type of the parameter.
        ExprSizeError: nested lists have more than 2^24 elements.
    """

    @module_pass(name="BindParams")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        new = bind_params(_function(mod, func_name), params, func_name)
        return replace_functions(mod, {mod.get_global_var(func_name): new})

    return run


def bind_params(func: Function, params: Mapping[Any, Any], name: str | None = None) -> Function:
    """See `BindParams`."""
    name = _name_of(func) if name is None else name
    values: dict[Var, Expr] = {}
    symbolic: dict[Var, Expr] = {}
    for key, value in params.items():
        param = _param(func, name, key)
        expr = _as_expr(value, param)
        if bind_type(param.ty, expr.ty, symbolic) is not BaseCheckResult.PASS:
            raise TypeError(
                f"BindParams: parameter {param.name!r} of function {name!r} is of type "
                f"{param.ty}, the value of type {expr.ty}"
            )
        values[param] = expr
    if values:
        func = func.replace(params=[param for param in func.params if param not in values])
    new: Function = bind_vars(func, {**values, **symbolic})
    return new


def _name_of(func: Function) -> str:
    return str(func.attrs.get("global_symbol", "main"))


def BindSymbolicVars(binding_map: Mapping[Any, Any], func_name: str | None = None) -> Pass:
    """Replace symbolic variables of functions by values.

    Args:
        binding_map: variable, or its name -> int or scalar expression.
        func_name: the function; None for all functions that mention one of the variables.

    Raises:
        BindError: the parameters of the function mention no such variable, or several.
    """

    @module_pass(name="BindSymbolicVars")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        names = [func_name] if func_name is not None else [
            var.name_hint for var, func in mod.functions.items() if isinstance(func, Function)
        ]  # fmt: skip
        for name in names:
            func = _function(mod, name)
            new = _with_symbolic_vars(func, binding_map, name, all_keys=func_name is not None)
            if new is not func:
                mod = replace_functions(mod, {mod.get_global_var(name): new})
        return mod

    return run


def bind_symbolic_vars(func: Function, binding_map: Mapping[Any, Any]) -> Function:
    """See `BindSymbolicVars`; every key has to be a variable of the function."""
    new = _with_symbolic_vars(func, binding_map, _name_of(func), all_keys=True)
    undefined = [v for v in free_symbolic_vars(new) if v not in free_symbolic_vars(func)]
    if undefined:
        raise BindError(
            f"BindSymbolicVars: function {_name_of(func)!r}: {undefined[0].name!r} is not defined "
            "by the type of a parameter after the replacement"
        )
    return new


def _with_symbolic_vars(
    func: Function, binding_map: Mapping[Any, Any], name: str, all_keys: bool
) -> Function:
    known: dict[Var, None] = {}
    for param in func.params:
        known.update(dict.fromkeys(type_free_vars(param.ty)))
    bound: dict[Var, Expr] = {}
    for key, value in binding_map.items():
        found = [v for v in known if v is key or v.name == key]
        if len(found) > 1 or (not found and all_keys):
            raise BindError(
                f"BindSymbolicVars: function {name!r} has {len(found) or 'no'} symbolic "
                f"variable{'s' * (len(found) > 1)} {key!s}"
            )
        for var in found:
            if var in bound:
                raise BindError(
                    f"BindSymbolicVars: function {name!r}: variable {var.name!r} is bound twice"
                )
            bound[var] = prim_value(value)
    if not bound:
        return func
    new: Function = bind_vars(func, bound)
    return new
