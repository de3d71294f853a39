"""FoldConstant: what depends on constants alone is computed when the program is compiled."""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Any, Final

import numpy as np

from ..analysis import overwritten_vars
from ..ir import (
    Binding,
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExprMutator,
    ExternFunc,
    FloatImm,
    Function,
    IntImm,
    IRModule,
    Op,
    ShapeExpr,
    StringImm,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    VarBinding,
)
from ..op.lowering import KERNEL_PREFIX, is_allocatable, lower_call
from ..op.registry import Operator
from ..registry import get_func
from ..values import Shape, as_dtype
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["FoldConstant"]

_MAX_BYTES: Final = 1 << 26
_GROWTH: Final = 16
"""A result may be larger than the constants that it comes of by this factor, or be small."""
_SMALL: Final = 1 << 16


class _Unknown(Exception):
    """An argument is not known yet."""


class _Folder(ExprMutator):
    def __init__(self, overwritten: Set[Var]) -> None:
        super().__init__()
        self._overwritten = overwritten
        self._constants: dict[Any, Constant] = {}
        self._tuples: dict[Any, Tuple] = {}

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        new = super().visit_binding(binding)
        if not isinstance(new, VarBinding) or binding.var in self._overwritten:
            return new
        value = new.value
        if type(value) is Call:
            folded = _fold(value)
        elif type(value) is TupleGetItem and value.tuple_value in self._tuples:
            folded = self._tuples[value.tuple_value].fields[value.index]
        else:
            folded = value if type(value) is Constant else None
        if folded is None:
            return new
        new = self.rebind(new, folded)
        for var in (binding.var, new.var):
            if type(folded) is Constant:
                self._constants[var] = folded
            elif type(folded) is Tuple:
                self._tuples[var] = folded
        return new

    def visit_call(self, call: Call) -> Expr:
        if not self._constants or type(call.op) is not Op:
            return super().visit_call(call)
        args = tuple([self._with_constants(arg) for arg in call.args])
        if any(a is not b for a, b in zip(args, call.args, strict=True)):
            call = Call(call.op, args, call.attrs, call.ty_args, call.ty, call.span)
        return super().visit_call(call)

    def _with_constants(self, arg: Expr) -> Expr:
        if type(arg) is Tuple:
            fields = [self._with_constants(field) for field in arg.fields]
            same = all(a is b for a, b in zip(fields, arg.fields, strict=True))
            return arg if same else Tuple(fields, arg.span)
        return self._constants.get(arg, arg)


def _fold(call: Call) -> Expr | None:
    """The value of a call of a kernel, or of an operator that has one, if it can be known."""
    if type(call.op) is not Op or not is_allocatable(call.ty):
        return None
    record = call.op.record
    try:
        args = [_value(arg) for arg in call.args]
        if call.op.name == "relax.reshape":
            return Constant(args[0].reshape(_outputs(call.ty, args[0].nbytes).shape))
        if type(record) is Operator and record.kernel is not None and call.op.is_pure:
            lowered: Any = lower_call(record, call)
        elif call.op.name == "relax.call_dps_packed":
            lowered = call
        else:
            return None
        callee, packed = lowered.args
        if type(callee) is not ExternFunc or not callee.global_symbol.startswith(KERNEL_PREFIX):
            return None
        operands = [_value(arg) for arg in packed.fields]
        outputs = _outputs(call.ty, _num_bytes([*args, *operands]))
    except _Unknown:
        return None
    kernel = get_func(callee.global_symbol)
    flat = outputs if isinstance(outputs, list) else [outputs]
    try:
        with np.errstate(all="ignore"):
            kernel(*operands, *flat)
    except (TypeError, ValueError, IndexError, ArithmeticError):
        return None  # for the running program to report
    if isinstance(outputs, list):
        return Tuple([Constant(array) for array in outputs])
    return Constant(outputs)


def _value(expr: Expr) -> Any:
    if type(expr) is Constant:
        return expr.data
    if type(expr) in (IntImm, FloatImm, StringImm):
        value = expr.value  # type: ignore[attr-defined]
        return (
            bool(value)
            if expr.ty is not None and getattr(expr.ty, "dtype", "") == "bool"
            else value
        )
    if type(expr) is DataTypeImm:
        return as_dtype(expr.value)
    if type(expr) is ShapeExpr:
        return Shape([_int(value) for value in expr.values])
    if type(expr) is Tuple:
        return tuple([_value(field) for field in expr.fields])
    if type(expr) is Call and type(expr.op) is Op and expr.op.name == "relax.null_value":
        return None
    raise _Unknown


def _int(expr: Expr) -> int:
    if type(expr) is not IntImm:
        raise _Unknown
    return expr.value


def _num_bytes(values: list[Any]) -> int:
    return sum(
        _num_bytes(list(v)) if isinstance(v, tuple) and not isinstance(v, Shape)
        else getattr(v, "nbytes", 0)
        for v in values
    )  # fmt: skip


def _outputs(ty: Any, known: int) -> Any:
    if type(ty) is TupleType:
        return [_outputs(field, known) for field in ty.fields]
    if type(ty) is not TensorType or ty.dims is None or ty.dtype is None:
        raise _Unknown
    shape = [_int(dim) for dim in ty.dims]
    nbytes = math.prod(shape) * as_dtype(ty.dtype).itemsize
    if nbytes > _MAX_BYTES or nbytes > max(_SMALL, _GROWTH * known):
        raise _Unknown
    return np.empty(shape, as_dtype(ty.dtype))


def FoldConstant() -> Pass:
    """Calls of operators and of kernels whose arguments are constants become constants.

    Results that are much larger than what they come of (`R.zeros` of a big shape) are left, so that
    the executable stays small; so is what raises an error, which is the running program's.
    """

    @function_pass(name="FoldConstant", opt_level=1)
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return _Folder(overwritten_vars(func)).visit(func)

    return run
