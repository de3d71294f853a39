"""RemovePurityChecking: allow side effects in pure functions, for later passes."""

from __future__ import annotations

from typing import Any, Final

from ..ir import Call, Expr, ExprMutator, Function, IRModule, Op
from ..op import base  # noqa: F401  (registers the operators named here)
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["RemovePurityChecking"]

_PURE_PACKED: Final = Op.get("relax.call_pure_packed")
_INPLACE_PACKED: Final = Op.get("relax.call_inplace_packed")
_PURE_CLOSURE: Final = Op.get("relax.invoke_pure_closure")
_CLOSURE: Final = Op.get("relax.invoke_closure")


class _Remover(ExprMutator):
    def visit_call(self, call: Call) -> Expr:
        new = super().visit_call(call)
        if not isinstance(new, Call):
            return new
        if new.op is _PURE_PACKED or new.op is _INPLACE_PACKED:
            return Call(new.args[0], new.args[1:], None, new.ty_args, ret_ty=new.ty, span=new.span)
        if new.op is _PURE_CLOSURE:
            return Call(_CLOSURE, new.args, new.attrs, new.ty_args, ret_ty=new.ty, span=new.span)
        return new

    def visit_function(self, func: Function) -> Expr:
        new = super().visit_function(func)
        assert isinstance(new, Function)
        if new.is_pure and not new.attrs.get("relax.force_pure"):
            new = new.with_attr("relax.force_pure", True)
        return new


def RemovePurityChecking() -> Pass:
    """Set the attribute "relax.force_pure" of pure functions, including local ones, and replace
    call_pure_packed by call_packed and invoke_pure_closure by invoke_closure.

    Why: lowering adds allocations, kills and calls that write to their arguments.
    """

    @function_pass(name="RemovePurityChecking")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return _Remover().visit(func)

    return run
