"""FoldConstant: evaluate expressions of constants at compile time."""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from typing import Any, Final

import numpy as np

from ..analysis import overwritten_vars
from ..dtypes import as_dtype
from ..errors import InternalError
from ..ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataTypeImm,
    Expr,
    ExternFunc,
    FloatImm,
    Function,
    GlobalVar,
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
from ..tir import PrimFunc
from ..tir.at_compile_time import runner
from ..values import Shape
from ._renaming import Renamer
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["FoldConstant"]

_MAX_BYTES: Final = 1 << 26
_GROWTH: Final = 16
"""The greatest ratio of the sizes of a result and of its constants, unless the result is small."""
_SMALL: Final = 1 << 16
_MOST_CREATED: Final = 1024
"""The most elements of a constant that is computed from none, such as ``R.zeros((4, 4))``."""


_RESHAPES: Final = frozenset(
    {"relax.expand_dims", "relax.flatten", "relax.reshape", "relax.squeeze"}
)
"""Operators that only change the shape."""


_CALL_TIR: Final = Op.get("relax.call_tir")


class _Unknown(Exception):
    """An argument is not known at compile time."""


class _Folder(Renamer):
    def __init__(self, overwritten: Set[Var], mod: IRModule, only_dataflow: bool) -> None:
        super().__init__()
        self._folds_operators = not only_dataflow
        self._only_dataflow = only_dataflow
        self._overwritten = overwritten
        self._mod = mod
        self._constants: dict[Any, Constant] = {}
        self._tuples: dict[Any, Tuple] = {}

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        before = self._folds_operators
        self._folds_operators = isinstance(block, DataflowBlock) or not self._only_dataflow
        new = super().visit_block(block)
        self._folds_operators = before
        return new

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        new = super().visit_binding(binding)
        if not isinstance(new, VarBinding) or binding.var in self._overwritten:
            return new
        value = new.value
        if isinstance(value, Call):
            may_fold = self._folds_operators or value.op is _CALL_TIR
            folded = _fold(value, self._mod) if may_fold else None
        elif isinstance(value, TupleGetItem) and value.tuple_value in self._tuples:
            folded = self._tuples[value.tuple_value].fields[value.index]
        else:
            folded = value if isinstance(value, Constant) else None
        if folded is None:
            return new
        if isinstance(folded, (Constant, ShapeExpr)) and folded is not value:
            self.rename(binding.var, folded)
            if isinstance(folded, Constant):
                self._constants[binding.var] = folded
            return []
        new = self.rebind(new, folded)
        for var in (binding.var, new.var):
            if isinstance(folded, Constant):
                self._constants[var] = folded
            elif isinstance(folded, Tuple):
                self._tuples[var] = folded
        return new

    def visit_call(self, call: Call) -> Expr:
        if not self._constants or not isinstance(call.op, Op):
            return super().visit_call(call)
        args = tuple([self._with_constants(arg) for arg in call.args])
        if any(a is not b for a, b in zip(args, call.args, strict=True)):
            call = Call(call.op, args, call.attrs, call.ty_args, call.ty, call.span)
        return super().visit_call(call)

    def _with_constants(self, arg: Expr) -> Expr:
        if isinstance(arg, Tuple):
            fields = [self._with_constants(field) for field in arg.fields]
            same = all(a is b for a, b in zip(fields, arg.fields, strict=True))
            return arg if same else Tuple(fields, arg.span)
        return self._constants.get(arg, arg)


def _fold(call: Call, mod: IRModule) -> Expr | None:
    """The value of a call of a kernel, of a PrimFunc, or of an operator that has a kernel; None if
    not known, as where a rule of `register_legalize` says what the operator computes."""
    if not isinstance(call.op, Op) or call.op.has_attr("FLegalize"):
        return None
    known = call.args[0] if call.args else None
    if call.op.name == "relax.tensor_to_shape":
        return ShapeExpr(known.data.tolist()) if isinstance(known, Constant) else None
    if call.op.name == "relax.shape_to_tensor":
        is_known = isinstance(known, ShapeExpr) and all(type(dim) is IntImm for dim in known)
        return Constant(np.array(_value(known), np.int64)) if is_known else None  # type: ignore[arg-type]
    if not is_allocatable(call.ty):
        return None
    record = call.op.record
    try:
        if call.op.name == "relax.call_tir":
            return _fold_call_tir(call, mod)
        args = [_value(arg) for arg in call.args]
        if call.op.name in _RESHAPES:
            return Constant(args[0].reshape(_outputs(call.ty, args[0].nbytes).shape))
        if type(record) is Operator and record.kernel is not None and call.op.is_pure:
            lowered: Any = lower_call(record, call)
        elif call.op.name == "relax.call_dps_packed":
            lowered = call
        else:
            return None
        callee, packed = lowered.args
        if not isinstance(callee, ExternFunc) or not callee.global_symbol.startswith(KERNEL_PREFIX):
            return None
        operands = [_value(arg) for arg in packed.fields]
        outputs = _outputs(call.ty, _num_bytes([*args, *operands]))
    except _Unknown:
        return None
    return _results(get_func(callee.global_symbol), operands, outputs)


def _fold_call_tir(call: Call, mod: IRModule) -> Expr | None:
    callee, packed, *symbols = call.args
    func = mod.functions.get(callee) if isinstance(callee, GlobalVar) else None
    if symbols or not isinstance(func, PrimFunc) or not isinstance(packed, Tuple):
        return None
    operands = [_value(arg) for arg in packed.fields]
    if not all(isinstance(operand, np.ndarray) for operand in operands):
        return None
    outputs = _outputs(call.ty, _num_bytes(operands))
    flat = outputs if isinstance(outputs, list) else [outputs]
    kernel = runner(func, sum(array.size for array in (*operands, *flat)))
    return None if kernel is None else _results(kernel, operands, outputs)


def _results(kernel: Callable[..., Any], operands: list[Any], outputs: Any) -> Expr | None:
    flat = outputs if isinstance(outputs, list) else [outputs]
    try:
        with np.errstate(all="ignore"):
            kernel(*operands, *flat)
    except (TypeError, ValueError, IndexError, ArithmeticError, InternalError):
        return None  # to be raised at run time
    if isinstance(outputs, list):
        return Tuple([Constant(array) for array in outputs])
    return Constant(outputs)


def _value(expr: Expr) -> Any:
    if isinstance(expr, Constant):
        return expr.data
    if type(expr) in (IntImm, FloatImm, StringImm):
        value = expr.value  # type: ignore[attr-defined]
        return (
            bool(value)
            if expr.ty is not None and getattr(expr.ty, "dtype", "") == "bool"
            else value
        )
    if isinstance(expr, DataTypeImm):
        return as_dtype(expr.value)
    if isinstance(expr, ShapeExpr):
        return Shape([_int(value) for value in expr.values])
    if isinstance(expr, Tuple):
        return tuple([_value(field) for field in expr.fields])
    if isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == "relax.null_value":
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
    if known == 0 and math.prod(shape) > _MOST_CREATED:
        raise _Unknown
    return np.empty(shape, as_dtype(ty.dtype))


def FoldConstant(*, only_dataflow: bool = False) -> Pass:
    """Replace calls of operators, kernels and PrimFuncs whose arguments are constants by their
    results.  A PrimFunc is compiled and run, if it has no effects but on its results, and its loops
    have few iterations.

    Calls with results much larger than their arguments (`R.zeros` of a large shape) are kept, so
    that the executable stays small.  Calls that raise an error are kept too, to raise it at run
    time.

    Args:
        only_dataflow: whether calls of operators outside of dataflow blocks are kept, as in TVM.
    """

    @function_pass(name="FoldConstant", opt_level=1)
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return _Folder(overwritten_vars(func), mod, only_dataflow).visit(func)

    return run
