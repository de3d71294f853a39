"""UpdateVDevice: replace a device of the module by another."""

from __future__ import annotations

from typing import Any

from ..ir import (
    Attrs,
    Call,
    Expr,
    ExprMutator,
    Function,
    FuncType,
    IRModule,
    TensorType,
    TupleType,
    VDevice,
)
from ._replacing import replace_functions
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["UpdateVDevice"]


class _Updater(ExprMutator):
    def __init__(self, old: VDevice, new: VDevice) -> None:
        super().__init__()
        self._old, self._new = old, new

    def visit_type(self, ty: Any) -> Any:
        kind = type(ty)
        if kind is TensorType:
            if ty.vdevice is not self._old:
                return ty
            return TensorType.of(ty.shape, ty.dtype, self._new, ty.ndim)
        if kind is TupleType:
            fields = self.visit_types(ty.fields)
            return ty if fields is ty.fields else TupleType(fields, ty.span)
        if kind is FuncType:
            params = ty.params and self.visit_types(ty.params)
            ret = self.visit_type(ty.ret)
            if params is ty.params and ret is ty.ret:
                return ty
            return FuncType(params, ret, ty.purity, ty.span, derive_func=ty.derive_func)
        return ty

    def visit_call(self, call: Call) -> Expr:
        if call.attrs.get("dst_vdevice") is self._old:
            attrs = Attrs({**call.attrs, "dst_vdevice": self._new})
            call = Call(call.op, call.args, attrs, call.ty_args, span=call.span)
            args = self.visit_all(call.args)
            return self.infer(Call(call.op, args, attrs, call.ty_args, span=call.span))
        return super().visit_call(call)


def UpdateVDevice(new_vdevice: VDevice, index: int) -> Pass:
    """Replace the device with a given index: in the module's list of devices, in types, and in
    copies of tensors to it.

    Raises:
        IndexError: the module has no such device.
    """

    @module_pass(name="UpdateVDevice")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        devices: list[Any] = list(mod.global_infos.get("vdevice", ()))
        if not 0 <= index < len(devices):
            raise IndexError(f"the module has {len(devices)} devices, none of index {index}")
        updater = _Updater(devices[index], new_vdevice)
        changed = {
            var: updater.visit(func)
            for var, func in mod.functions.items()
            if isinstance(func, Function)
        }
        new = replace_functions(mod, changed)
        devices[index] = new_vdevice
        new.update_global_info("vdevice", devices)
        return new

    return run
