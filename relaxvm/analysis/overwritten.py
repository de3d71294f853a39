"""Variables whose tensors are written in place."""

from __future__ import annotations

from typing import Final

from ..ir import Binding, Call, Expr, ExprVisitor, Op, SeqExpr, Tuple, Var
from ..op import base  # noqa: F401  (registers the operators named here)
from ..op.registry import Operator
from .variables import used_vars

__all__ = ["overwritten_vars"]

_CALL_DPS: Final = Op.get("relax.call_dps_packed")
_CALL_TIR: Final = Op.get("relax.call_tir")
_CALL_TIR_INPLACE: Final = Op.get("relax.call_tir_inplace")


class _Overwritten(ExprVisitor):
    """Visits bindings backwards, so that uses of a variable come before its definition."""

    def __init__(self) -> None:
        self.found: set[Var] = set()

    def visit_seq(self, seq: SeqExpr) -> None:
        self.visit(seq.body)
        for block in reversed(seq.blocks):
            for binding in reversed(block.bindings):
                self.visit_binding(binding)

    def visit_binding(self, binding: Binding) -> None:
        value = binding.value
        if binding.var in self.found and not _is_new(value):
            self.found.update(used_vars(value))
        super().visit_binding(binding)

    def visit_call(self, call: Call) -> None:
        indices = call.attrs.get("inplace_indices")
        if not indices:
            return
        args = call.args[1:]
        if call.op is _CALL_TIR_INPLACE:
            packed = args[0]
            args = packed.fields if isinstance(packed, Tuple) else (packed,) * len(packed.ty.fields)
        overwritten = [args[int(i)] for i in indices if int(i) >= 0]
        self.found.update(arg for arg in overwritten if isinstance(arg, Var))


def _is_new(value: Expr) -> bool:
    """Whether the value of an expression is a newly allocated tensor."""
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return False
    record = value.op.record
    return value.op in (_CALL_DPS, _CALL_TIR) or (
        type(record) is Operator and record.kernel is not None
    )


def overwritten_vars(expr: Expr) -> set[Var]:
    """Return the variables whose tensors may be written by in-place calls, including those from
    which a written variable was derived, since they may share its memory."""
    visitor = _Overwritten()
    visitor.visit(expr)
    return visitor.found
