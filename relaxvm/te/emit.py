"""`BlockBuilder.call_te`: from Relax tensors to a call of a new PrimFunc."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

from ..ir.arith import free_vars, substitute
from ..ir.equality import structural_equal
from ..ir.expr import (
    Call,
    Expr,
    GlobalVar,
    IntImm,
    PrimType,
    ShapeExpr,
    TensorType,
    TupleType,
    Type,
    Var,
)
from ..ir.index_map import IndexMap
from ..op.base import call_tir
from ..tir.function import PrimFunc
from .create import create_prim_func, unbound_vars
from .tensor import INDEX_DTYPE, Tensor

__all__ = ["call_of_te"]


def call_of_te(builder: Any, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Call:
    """Call `func` with te tensors for the arguments, make a PrimFunc that computes its result, add
    it to the builder's module, and return a call of it.

    Args:
        builder: the `BlockBuilder`.
        func: takes te tensors for expressions of tensors (also in lists, tuples and dicts), lists
            of scalars for shapes, and everything else as it is; returns a te tensor or several.
        args, kwargs: its arguments; in addition `primfunc_name_hint`, `primfunc_attrs` and
            `ty_args` (the type of the result) are for this function.

    Raises:
        TypeError: an argument of another kind, a tensor without known dimensions, or a result that
            is not a tensor.
    """
    name = kwargs.pop("primfunc_name_hint", None)
    attrs = kwargs.pop("primfunc_attrs", None)
    ty_args = kwargs.pop("ty_args", None)
    token = INDEX_DTYPE.set("int64")
    try:
        arguments = _Arguments()
        te_args = [arguments.convert(arg) for arg in args]
        te_kwargs = {key: arguments.convert(value) for key, value in kwargs.items()}
        result = func(*te_args, **te_kwargs)
        outputs = [result] if isinstance(result, Tensor) else list(result)
        for output in outputs:
            if not isinstance(output, Tensor):
                raise TypeError(
                    f"emit_te: expected a te tensor or several as the result, got "
                    f"{type(output).__name__}"
                )
        params: list[Any] = [*arguments.params, *outputs]
        unbound = unbound_vars(params, arguments.extra)
        prim_func = create_prim_func([*arguments.params, *unbound, *outputs])
    finally:
        INDEX_DTYPE.reset(token)
    prim_func = prim_func.without_attr("global_symbol")
    if attrs:
        prim_func = prim_func.with_attr(attrs)
    if name is None:
        name = getattr(func, "__name__", "")
        name = name if name.isidentifier() else outputs[0].name
    gvar = _function(builder, prim_func, name)
    back = {new: old for old, new in arguments.variables.items()}
    call_args = [*arguments.args, *[back.get(var, var) for var in unbound]]
    if ty_args is None:
        types: list[Type] = [_type_of(out, back, arguments.vdevice) for out in outputs]
        out_ty: Any = types[0] if isinstance(result, Tensor) else types
    else:
        out_ty = ty_args
    call: Call = call_tir(gvar, call_args, out_ty)
    return call


def _function(builder: Any, func: PrimFunc, name: str) -> GlobalVar:
    """Add the function under a name, or find an equal one of that name."""
    for gvar, other in builder.get().items():
        if gvar.name_hint.startswith(name) and structural_equal(func, other):
            found: GlobalVar = gvar
            return found
    new: GlobalVar = builder.add_func(func, name)
    return new


def _type_of(out: Tensor, back: dict[Var, Var], vdevice: Any) -> TensorType:
    dims = []
    for dim in out.shape:
        value = substitute(dim, back)
        dims.append(IntImm("int64", value.value) if type(value) is IntImm else value)
    return TensorType(dims, out.dtype, vdevice)


class _Arguments:
    """Converts arguments.  Variables of their types are replaced: the function has its own."""

    def __init__(self) -> None:
        self.args: list[Expr] = []
        self.params: list[Any] = []
        self.extra: list[Expr] = []
        self.variables: dict[Var, Var] = {}
        self.vdevice: Any = None

    def convert(self, arg: Any) -> Any:
        """The argument for the function of tensor expressions."""
        if isinstance(arg, Expr):
            return self._expr(arg)
        if isinstance(arg, (list, tuple)):
            return type(arg)([self.convert(item) for item in arg])
        if isinstance(arg, dict):
            return {key: self.convert(value) for key, value in arg.items()}
        if arg is None or isinstance(arg, (bool, int, float, str, Type, IndexMap)):
            return arg
        raise TypeError(
            "emit_te: expected tensors, shapes, scalars, strings, types, or lists, tuples and "
            f"dicts of these, got {type(arg).__name__}"
        )

    def _expr(self, arg: Expr) -> Any:
        ty = arg.ty
        if isinstance(ty, TensorType):
            return self._tensor(arg, ty)
        if isinstance(ty, TupleType):
            return [self.convert(arg[i]) for i in range(len(ty.fields))]
        if isinstance(arg, ShapeExpr):
            return [self.convert(value) for value in arg.values]
        if type(ty) is PrimType:
            if isinstance(arg, Var) and ty.dtype != "int64":
                param = Var(arg.name or f"scalar_input_{len(self.params)}", ty)
                self.args.append(arg)
                self.params.append(param)
                return param
            value = self._own(arg)
            self.extra.append(value)
            return value
        raise TypeError(f"emit_te: expected a tensor, a shape or a scalar, got {arg} of type {ty}")

    def _tensor(self, arg: Expr, ty: TensorType) -> Tensor:
        dims = ty.dims
        if dims is None or ty.dtype is None:
            raise TypeError(
                f"emit_te: the dimensions and data type of {arg} have to be known, its type is {ty}"
            )
        if self.vdevice is None:
            self.vdevice = ty.vdevice
        count = len(self.params)
        if isinstance(arg, Var):
            name = arg.name
        else:
            letters = string.ascii_uppercase
            name = letters[count] if count < len(letters) else f"tensor_input_{count}"
        tensor = Tensor([self._own(dim) for dim in dims], ty.dtype, name)
        self.args.append(arg)
        self.params.append(tensor)
        return tensor

    def _own(self, e: Expr) -> Expr:
        for var in free_vars(e):
            if var not in self.variables:
                self.variables[var] = Var(var.name, var.ty)
        return substitute(e, self.variables)
