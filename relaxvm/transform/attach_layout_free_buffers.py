"""AttachAttrLayoutFreeBuffers: which arguments of PrimFuncs are weights."""

from __future__ import annotations

from typing import Any, Final

from ..ir import (
    Binding,
    BlockBuilder,
    Call,
    Constant,
    ExprMutator,
    Function,
    GlobalVar,
    IRModule,
    Op,
    Tuple,
    Var,
    VarBinding,
)
from ..tir import PrimFunc
from .dead_code_elimination import without_uncalled
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["LAYOUT_FREE", "AttachAttrLayoutFreeBuffers"]

LAYOUT_FREE: Final = "layout_free_buffers"
"""The attribute of a PrimFunc: the numbers of the parameters whose layout may be chosen."""

_CALL_TIR: Final = Op.get("relax.call_tir")


class _Marker(ExprMutator):
    def __init__(
        self,
        builder: BlockBuilder,
        mod: IRModule,
        weights: frozenset[Var],
        made: dict[tuple[str, tuple[int, ...]], GlobalVar],
    ) -> None:
        super().__init__()
        self._builder, self._mod, self._weights, self._made = builder, mod, weights, made

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        new = super().visit_binding(binding)
        if not isinstance(new, VarBinding) or not isinstance(new.value, Call):
            return new
        call = new.value
        if call.op is not _CALL_TIR or not isinstance(call.args[1], Tuple):
            return new
        gvar: Any = call.args[0]
        func = self._mod.functions.get(gvar)
        free = tuple(
            [
                k
                for k, arg in enumerate(call.args[1].fields)
                if isinstance(arg, Constant) or arg in self._weights
            ]
        )
        if not isinstance(func, PrimFunc) or not free:
            return new
        key = gvar.name_hint, free
        if key not in self._made:
            marked = func.with_attr(LAYOUT_FREE, free)
            self._made[key] = self._builder.add_func(marked, gvar.name_hint)
        args = [self._made[key], *call.args[1:]]
        value = Call(call.op, args, call.attrs, call.ty_args, ret_ty=call.ty, span=call.span)
        return self.rebind(new, value)


def AttachAttrLayoutFreeBuffers() -> Pass:
    """Give PrimFuncs that are called with weights an attribute "layout_free_buffers", the numbers
    of these arguments.

    Weights are constants, and the parameters of a function after the first ``num_input``; functions
    without this attribute have none.  A PrimFunc that is called with several combinations of
    weights becomes several.

    Source: ``tvm.relax.transform.AttachAttrLayoutFreeBuffers`` of apache-tvm 0.27.
    """

    @module_pass(name="AttachAttrLayoutFreeBuffers")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        builder = BlockBuilder(mod.copy())
        made: dict[tuple[str, tuple[int, ...]], GlobalVar] = {}
        for var, func in mod.functions.items():
            if isinstance(func, Function) and "num_input" in func.attrs:
                weights = func.params[int(func.attrs["num_input"]) :]
                marker = _Marker(builder, mod, frozenset(weights), made)
                builder.update_func(var, marker.visit(func))
        old = [mod.get_global_var(name) for name, _ in made]
        return without_uncalled(builder.get(), old)

    return run
