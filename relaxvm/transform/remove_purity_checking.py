"""RemovePurityChecking: from here on functions may have effects inside."""

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
        if type(new) is not Call:
            return new
        if new.op is _PURE_PACKED or new.op is _INPLACE_PACKED:
            return Call(new.args[0], new.args[1:], None, new.ty_args, new.ty, new.span)
        if new.op is _PURE_CLOSURE:
            return Call(_CLOSURE, new.args, new.attrs, new.ty_args, new.ty, new.span)
        return new

    def visit_function(self, func: Function) -> Expr:
        new = super().visit_function(func)
        assert type(new) is Function
        if new.is_pure and not new.attrs.get("relax.force_pure"):
            new = new.with_attr("relax.force_pure", True)
        return new


def RemovePurityChecking() -> Pass:
    """Pure functions, local ones too, get the attribute "relax.force_pure"; calls that claim to be
    pure become plain: call_pure_packed -> call_packed, invoke_pure_closure -> invoke_closure.

    Why: lowering brings allocation, kills and calls that write their arguments.
    """

    @function_pass(name="RemovePurityChecking")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return _Remover().visit(func)

    return run
