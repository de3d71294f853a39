"""ReturnResults: call the result forms of kernels where a result cannot be planned."""

from __future__ import annotations

from typing import Any

from ..ir import (
    Binding,
    Call,
    DataflowVar,
    Expr,
    ExprMutator,
    Function,
    IRModule,
    MatchCast,
    Op,
    Var,
    VarBinding,
)
from ..ir.block_builder import is_leaf
from ..ir.infer import infer_type
from ..op.lowering import has_result_form, is_allocatable, result_call
from ..op.registry import Operator
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["ReturnResults"]

class _Rewriter(ExprMutator):
    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        value = binding.value
        op = value.op if isinstance(value, Call) else None
        record: Any = op.record if isinstance(op, Op) else None
        if type(record) is not Operator or not has_result_form(record):
            return super().visit_binding(binding)
        call: Any = self.visit(value)
        if is_allocatable(call.ty):
            return super().visit_binding(binding)
        lowered = result_call(record, call)
        before: list[Binding] = []
        if not all(map(is_leaf, lowered.args)):
            lowered = self._flattened(lowered, isinstance(binding.var, DataflowVar), before)
        if isinstance(binding, MatchCast):
            last: Binding = MatchCast(self.visit_var_def(binding.var), lowered, binding.ty,
                                      binding.span)  # fmt: skip
        else:
            last = VarBinding(self.visit_var_def(binding.var), lowered, binding.span)
        return [*before, last]

    def _flattened(self, call: Call, in_dataflow: bool, before: list[Binding]) -> Call:
        """The call with its arguments bound to variables."""
        args: list[Expr] = []
        for arg in call.args:
            if not is_leaf(arg):
                kind = DataflowVar if in_dataflow else Var
                var = kind("item", infer_type(arg).ty)
                new = self.visit_binding(VarBinding(var, arg, call.span))
                before.extend(new if isinstance(new, list) else [new])
                arg = var
            args.append(arg)
        return Call(call.op, args, call.attrs, call.ty_args, ret_ty=call.ty, span=call.span)


def ReturnResults() -> Pass:
    """Replace each call of an operator whose result has a shape that is only known at run time by
    ``R.call_pure_packed("relaxvm.result.NAME", ...)``: the kernel finds the shape, allocates the
    result and returns it.

    Why: memory can be planned only for results of known shape; the others need a kernel that
    allocates.
    """

    @function_pass(name="ReturnResults")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return _Rewriter().visit(func)

    return run
