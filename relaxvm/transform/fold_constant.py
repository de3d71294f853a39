"""FoldConstant: evaluate expressions of constants at compile time."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Final

import numpy as np

from ..analysis import overwritten_vars
from ..ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    Expr,
    Function,
    GlobalVar,
    IntImm,
    IRModule,
    Op,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..op.evaluate import Unknown, evaluated, outputs_of, results_of, value_of
from ..op.lowering import is_allocatable
from ..tir import PrimFunc
from ..tir.at_compile_time import runner
from ._renaming import Renamer
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["FoldConstant"]

_CALL_TIR: Final = Op.get("relax.call_tir")


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
            call = Call(call.op, args, call.attrs, call.ty_args, ret_ty=call.ty, span=call.span)
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
        return Constant(np.array(value_of(known), np.int64)) if is_known else None  # type: ignore[arg-type]
    if call.op is _CALL_TIR:
        return _fold_call_tir(call, mod)
    return evaluated(call)


def _fold_call_tir(call: Call, mod: IRModule) -> Expr | None:
    if not is_allocatable(call.ty):
        return None
    callee, packed, *symbols = call.args
    func = mod.functions.get(callee) if isinstance(callee, GlobalVar) else None
    if symbols or not isinstance(func, PrimFunc) or not isinstance(packed, Tuple):
        return None
    try:
        operands = [value_of(arg) for arg in packed.fields]
        if not all(isinstance(operand, np.ndarray) for operand in operands):
            return None
        outputs = outputs_of(call.ty, sum(operand.nbytes for operand in operands))
    except Unknown:
        return None
    flat = outputs if isinstance(outputs, list) else [outputs]
    kernel = runner(func, sum(array.size for array in (*operands, *flat)))
    return None if kernel is None else results_of(kernel, operands, outputs)


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
