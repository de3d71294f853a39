"""RewriteDataflowReshape: replace copying reshapes in dataflow blocks by views."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from ..analysis import has_reshape_pattern, overwritten_vars
from ..ir import (
    Binding,
    Call,
    DataflowVar,
    ExprMutator,
    ExternFunc,
    Function,
    GlobalVar,
    IRModule,
    Op,
    TensorType,
    Tuple,
    Var,
    VarBinding,
)
from ..op import base  # noqa: F401  (registers the operators named here)
from ..op.manipulate import has_as_many
from ..tir import PrimFunc
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["RewriteDataflowReshape"]

_CALL_TIR: Final = Op.get("relax.call_tir")
_CALL_DPS: Final = Op.get("relax.call_dps_packed")
_KERNEL: Final = "relaxvm.kernel.reshape"


class _Rewriter(ExprMutator):
    def __init__(self, func: Function, mod: IRModule) -> None:
        super().__init__()
        self._func = func
        self._functions = mod.functions
        self._reshapes: dict[GlobalVar, bool] = {}

    @cached_property
    def _overwritten(self) -> set[Var]:
        return overwritten_vars(self._func)

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        value = binding.value
        if (
            isinstance(binding, VarBinding)
            and isinstance(binding.var, DataflowVar)
            and isinstance(value, Call)
            and self._copies(value)
        ):
            view = _as_reshape(value)
            if view is not None and self._overwritten.isdisjoint((binding.var, view.args[0])):
                binding = VarBinding(binding.var, view, binding.span)
        return super().visit_binding(binding)

    def _copies(self, call: Call) -> bool:
        """Whether a call is of the reshape kernel, or of a PrimFunc that does the same."""
        if call.op is _CALL_DPS:
            callee = call.args[0]
            return isinstance(callee, ExternFunc) and callee.global_symbol == _KERNEL
        if call.op is not _CALL_TIR or len(call.args) != 2:
            return False
        callee = call.args[0]
        func = self._functions.get(callee) if isinstance(callee, GlobalVar) else None
        if not isinstance(callee, GlobalVar) or not isinstance(func, PrimFunc):
            return False
        if callee not in self._reshapes:
            self._reshapes[callee] = has_reshape_pattern(func)
        return self._reshapes[callee]


def _as_reshape(call: Call) -> Call | None:
    packed = call.args[1]
    out = call.ty_args[0]
    if not isinstance(packed, Tuple) or type(out) is not TensorType or out.shape is None:
        return None
    if not has_as_many(packed.fields[0], out):
        return None
    reshape: Any = Op.get("relax.reshape").make
    new = reshape(packed.fields[0], out.shape)
    return Call(new.op, new.args, new.attrs, new.ty_args, ret_ty=call.ty, span=call.span)


def RewriteDataflowReshape() -> Pass:
    """In dataflow blocks, replace calls of the reshape kernel, and of PrimFuncs that copy all
    elements in order (`relaxvm.analysis.has_reshape_pattern`), by R.reshape, which shares the
    memory of its argument.  Results that are outputs of the block, or written in place, are copied.

    Why: bindings in a dataflow block write only to tensors that they create, so a copy is not
    needed.
    """

    @function_pass(name="RewriteDataflowReshape")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return _Rewriter(func, mod).visit(func)

    return run
