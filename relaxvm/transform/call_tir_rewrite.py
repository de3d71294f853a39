"""CallTIRRewrite: allocate the outputs of calls in destination-passing style."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ..ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    ExprMutator,
    Function,
    IRModule,
    Op,
    StringImm,
    TensorType,
    Tuple,
    TupleType,
    Type,
    Var,
    VarBinding,
    infer_type,
    int_imm,
)
from ..ir.names import nothing_named
from ..op import vm
from ._memory_calls import new_tensor
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["CallTIRRewrite"]

_CALL_TIR: Final = Op.get("relax.call_tir")
_CALL_TIR_INPLACE: Final = Op.get("relax.call_tir_inplace")
_CALL_DPS: Final = Op.get("relax.call_dps_packed")
_GLOBAL: Final = StringImm("global")


class _Rewriter(ExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self._devices = mod.global_infos.get("vdevice", [])

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        if isinstance(block, DataflowBlock):
            raise TypeError(
                "CallTIRRewrite: there is a dataflow block; run ToNonDataflow first, since this "
                "pass adds calls with side effects"
            )
        return super().visit_block(block)

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        value = binding.value
        if not isinstance(value, Call):
            return super().visit_binding(binding)
        if value.op is _CALL_TIR or value.op is _CALL_DPS:
            return list(self._rewrite(binding, value, None))
        if value.op is _CALL_TIR_INPLACE:
            return list(self._rewrite(binding, value, value.attrs["inplace_indices"]))
        return super().visit_binding(binding)

    def _rewrite(self, binding: Binding, call: Call, inplace: Any) -> Iterator[Binding]:
        callee, packed, *extents = call.args
        inputs = list(self.visit_all(_fields(packed)))
        out_ty = call.ty_args[0] if len(call.ty_args) == 1 else TupleType(call.ty_args)
        types = list(_flatten(out_ty))
        indices = [-1] * len(types) if inplace is None else [int(i) for i in inplace]
        outputs: list[Expr] = []
        fresh: list[Expr] = []
        for ty, index in zip(types, indices, strict=True):
            if index >= 0:
                outputs.append(inputs[index])
                continue
            alloc = self._alloc(ty, binding, _name_of_output(binding.var, len(outputs), len(types)))
            yield alloc
            outputs.append(alloc.var)
            fresh.append(alloc.var)
        if extents:
            void: Call = vm.call_tir_dyn(callee, Tuple([*inputs, *fresh, *extents]))
        else:
            void = infer_type(Call(callee, [*inputs, *fresh]))
        void.span = call.span
        # Other passes may write the output into an input, and so drop the variable.
        yield VarBinding(Var(nothing_named(binding.var.name), void.ty), void, binding.span)
        yield self.rebind(binding, _rebuild(out_ty, iter(outputs)))

    def _alloc(self, ty: Any, binding: Binding, name: str) -> VarBinding:
        if type(ty) is not TensorType or ty.shape is None or ty.dtype is None:
            raise TypeError(
                f"{binding.var}: the output is of type {ty}; expected a tensor type with a shape "
                "and a data type, so that it can be allocated"
            )
        device, scope = int_imm(0), _GLOBAL
        if ty.vdevice is not None:
            index = next(
                (i for i, d in enumerate(self._devices) if d is ty.vdevice), ty.vdevice.vdevice_id
            )
            device, scope = int_imm(index), StringImm(ty.vdevice.memory_scope)
        return VarBinding(Var(name, ty), new_tensor(ty, device, scope), binding.span)


def _name_of_output(var: Var, index: int, count: int) -> str:
    """The name of an output of a call: that of the variable of the result, or of an item of it."""
    name = "alloc" if var.name.startswith("_") else var.name
    return name if count == 1 else f"{name}_{index}"


def _fields(packed: Expr) -> tuple[Expr, ...]:
    if isinstance(packed, Tuple):
        return packed.fields
    if type(packed.ty) is TupleType:
        return tuple(packed[i] for i in range(len(packed.ty.fields)))
    return (packed,)


def _flatten(ty: Type) -> Iterator[Type]:
    if type(ty) is TupleType:
        for field in ty.fields:
            yield from _flatten(field)
    else:
        yield ty


def _rebuild(ty: Any, outputs: Iterator[Expr]) -> Expr:
    if type(ty) is TupleType:
        return Tuple([_rebuild(field, outputs) for field in ty.fields])
    return next(outputs)


def CallTIRRewrite() -> Pass:
    """Replace call_tir, call_tir_inplace and call_dps_packed by plain calls that write outputs: one
    builtin.alloc_tensor per output (an argument for in-place indices), a call of the callee with
    inputs and outputs and no result, then the output or a tuple of outputs as the value.

    Requires: no dataflow blocks.  Why: the VM does not allocate outputs for its callees.
    """

    @function_pass(name="CallTIRRewrite")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return _Rewriter(mod).visit(func)

    return run
