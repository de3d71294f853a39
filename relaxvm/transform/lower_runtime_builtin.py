"""LowerRuntimeBuiltin: replace operators by calls of builtins of the VM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..ir import (
    Call,
    DataTypeImm,
    Expr,
    ExprMutator,
    ExternFunc,
    Function,
    FuncType,
    IRModule,
    Op,
    StringImm,
    Tuple,
    int_imm,
)
from ..op import base
from ._memory_calls import kill_object, vm_alloc_storage, vm_alloc_tensor
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["LowerRuntimeBuiltin", "VMBuiltinLower"]


def _packed(name: str) -> Callable[[Call], Expr]:
    callee = ExternFunc(f"vm.builtin.{name}")

    def lower(call: Call) -> Expr:
        ty = call.ty_args or ([call.ty] if call.ty is not None else [])
        return Call(callee, call.args, None, ty, ret_ty=call.ty, span=call.span)

    return lower


def _kill(call: Call) -> Expr:
    return kill_object(call.args[0])


def _invoke_closure(call: Call) -> Expr:
    func, args = call.args
    fields = args.fields if isinstance(args, Tuple) else tuple(args)
    ty = call.ty_args or [call.ty]
    new: Call = base.call_builtin_with_ctx(
        "vm.builtin.invoke_closure", Tuple([func, *fields]), ty_args=ty
    )
    return new


def _make_closure(call: Call) -> Expr:
    func, args = call.args
    fields = args.fields if isinstance(args, Tuple) else tuple(args)
    ty = call.ty_args or [call.ty]
    return Call(ExternFunc("vm.builtin.make_closure"), [func, *fields], None, ty, ret_ty=call.ty)


def _call_tir_dyn(call: Call) -> Expr:
    func, args = call.args
    fields = args.fields if isinstance(args, Tuple) else tuple(args)
    callee = ExternFunc("vm.builtin.call_tir_dyn")
    return Call(callee, [func, *fields], None, [call.ty], ret_ty=call.ty, span=call.span)


def _to_vdevice(devices: list[Any]) -> Callable[[Call], Expr]:
    def lower(call: Call) -> Expr:
        device = call.attrs["dst_vdevice"]
        index = next((i for i, d in enumerate(devices) if d is device), device.vdevice_id)
        return Call(
            ExternFunc("vm.builtin.to_device"),
            [call.args[0], int_imm(1), int_imm(index), StringImm(device.memory_scope)],
            None,
            [call.ty],
            ret_ty=call.ty,
            span=call.span,
        )

    return lower


_CREATE_VIEW: Final = ExternFunc(
    "runtime.TVMTensorCreateView",
    FuncType.opaque_func(derive_func="tvm.relax.type.infer_view_ty", purity=True),
)


def _view(call: Call) -> Expr:
    data, shape, dtype, offset = call.args
    if call.ty.shape is not None:
        shape = call.ty.shape
    if call.ty.dtype is not None:
        dtype = DataTypeImm(call.ty.dtype)
    elif isinstance(dtype, Tuple):
        dtype = base.null_value()
    if isinstance(offset, Tuple):
        offset = int_imm(0)
    args = [data, shape, dtype, offset]
    return Call(_CREATE_VIEW, args, None, (), ret_ty=call.ty, span=call.span)


def _refuse_alloc(call: Call) -> Expr:
    raise RuntimeError(
        f"LowerRuntimeBuiltin: {call} is left; run LowerAllocTensor before this pass"
    )


_RULES: Final[dict[str, Callable[[Call], Expr]]] = {
    "relax.memory.alloc_storage": vm_alloc_storage,
    "relax.memory.alloc_tensor": vm_alloc_tensor,
    "relax.memory.kill_storage": _kill,
    "relax.memory.kill_tensor": _kill,
    "relax.builtin.alloc_tensor": _refuse_alloc,
    "relax.memory.view": _view,
    "relax.memory.ensure_zero_offset": _packed("ensure_zero_offset"),
    "relax.call_py_func": _packed("call_py_func"),
    "relax.reshape": _packed("reshape"),
    "relax.shape_of": _packed("shape_of"),
    "relax.tensor_to_shape": _packed("tensor_to_shape"),
    "relax.vm.call_tir_dyn": _call_tir_dyn,
    "relax.make_closure": _make_closure,
    "relax.invoke_closure": _invoke_closure,
}


class _Lowerer(ExprMutator):
    def __init__(self, rules: dict[str, Callable[[Call], Expr]]) -> None:
        super().__init__()
        self._rules = rules

    def visit_call(self, call: Call) -> Expr:
        new = super().visit_call(call)
        if not isinstance(new, Call) or not isinstance(new.op, Op):
            return new
        rule = self._rules.get(new.op.name)
        if rule is None:
            return new
        lowered = rule(new)
        lowered.span = new.span
        return lowered


def LowerRuntimeBuiltin() -> Pass:
    """Replace memory.* by vm.* (storages of uint8, kills of objects), and reshape, views, shape_of,
    tensor_to_shape, to_vdevice, call_py_func, call_tir_dyn, make_closure and invoke_closure by
    calls of packed functions of the VM.

    Raises:
        RuntimeError: a builtin.alloc_tensor is left.
    """

    @function_pass(name="LowerRuntimeBuiltin")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        rules = dict(_RULES)
        rules["relax.to_vdevice"] = _to_vdevice(mod.global_infos.get("vdevice", []))
        return _Lowerer(rules).visit(func)

    return run


def VMBuiltinLower() -> Pass:
    """TVM's older name of `LowerRuntimeBuiltin`; warns."""
    import warnings

    warnings.warn("VMBuiltinLower is now LowerRuntimeBuiltin", DeprecationWarning, stacklevel=2)
    return LowerRuntimeBuiltin()
