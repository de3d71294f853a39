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
        record = _record_of(value)
        if record is None:
            return super().visit_binding(binding)
        call: Any = self.visit(value)
        if is_allocatable(call.ty):
            return super().visit_binding(binding)
        before: list[Binding] = []
        lowered = self._returned(record, call, isinstance(binding.var, DataflowVar), before)
        if isinstance(binding, MatchCast):
            last: Binding = MatchCast(self.visit_var_def(binding.var), lowered, binding.ty,
                                      binding.span)  # fmt: skip
        else:
            last = VarBinding(self.visit_var_def(binding.var), lowered, binding.span)
        return [*before, last]

    def _returned(
        self, record: Operator, call: Call, in_dataflow: bool, before: list[Binding]
    ) -> Call:
        """The call of the result form; operands that are calls, such as conversions of data types,
        are bound to variables in `before`, and call their result forms, whatever is known of them:
        nothing lowers them after this pass."""
        lowered = result_call(record, call)
        args: list[Expr] = []
        for arg in lowered.args:
            if not is_leaf(arg):
                var = (DataflowVar if in_dataflow else Var)("item", infer_type(arg).ty)
                operand: Any = arg
                inner = _record_of(operand)
                if inner is not None:
                    operand = self._returned(inner, operand, in_dataflow, before)
                before.append(VarBinding(var, operand, call.span))
                arg = var
            args.append(arg)
        return Call(
            lowered.op, args, lowered.attrs, lowered.ty_args, ret_ty=lowered.ty, span=lowered.span
        )


def _record_of(value: Expr) -> Operator | None:
    """The operator that an expression calls, if it has a result form."""
    op = value.op if isinstance(value, Call) else None
    record: Any = op.record if isinstance(op, Op) else None
    return record if type(record) is Operator and has_result_form(record) else None


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
