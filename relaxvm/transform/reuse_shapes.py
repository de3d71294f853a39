"""ReuseShapes: create each shape only once, however often it is used."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from ..analysis.allocations import all_bindings
from ..ir import (
    Binding,
    Call,
    Expr,
    ExprMutator,
    ExternFunc,
    Function,
    IRModule,
    SeqExpr,
    Var,
    expr_key,
    substitute_type,
)
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["ReuseShapes"]

_MAKERS: Final = ("vm.builtin.make_shape", "vm.builtin.make_prim_value")


def _makes(value: Expr) -> bool:
    op = value.op if isinstance(value, Call) else None
    return isinstance(op, ExternFunc) and op.global_symbol in _MAKERS


class _Reuser(ExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self._known: dict[Hashable, Var] = {}

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        known = dict(self._known)
        new = super().visit_seq(seq)
        self._known = known
        return new

    def visit_call(self, call: Call) -> Call:
        args = self.visit_all(call.args)
        ty_args = self.visit_types(call.ty_args)
        if args is call.args and ty_args is call.ty_args:
            return call
        # A shape is replaced by one of the same type, so the type of the call does not change.
        ty = self.visit_type(call.ty)
        return Call(call.op, args, call.attrs, ty_args, ret_ty=ty, span=call.span)

    def visit_type(self, ty: Any) -> Any:
        return substitute_type(ty, self.var_map)  # a variable may be the shape of a type

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        value = binding.value
        if not _makes(value):
            return super().visit_binding(binding)
        key = expr_key(value)
        earlier = self._known.setdefault(key, binding.var)
        if earlier is binding.var:
            return binding
        self.var_map[binding.var] = earlier
        return []


def ReuseShapes() -> Pass:
    """Create shapes and scalars that are read from the same slots of the shape heap only once per
    function, or per branch that needs them.

    Requires: VMShapeLower, which writes each slot once.  Why: equal shapes occur in many places,
    and each one would be created separately.
    """

    @function_pass(name="ReuseShapes")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        if sum(_makes(binding.value) for binding in all_bindings(func.body)) < 2:
            return func
        return _Reuser().visit(func)

    return run
