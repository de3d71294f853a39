"""LegalizeToLoops: operators become PrimFuncs, where there are formulas for them."""

from __future__ import annotations

from typing import Any, Final

from ..ir import (
    Binding,
    Call,
    Expr,
    ExprMutator,
    ExternFunc,
    Function,
    IRModule,
    Op,
    PrimType,
    ShapeExpr,
    TensorType,
    Tuple,
    TupleType,
    VarBinding,
)
from ..ir.block_builder import BlockBuilder
from ..op import base  # noqa: F401  (registers the operators named here)
from ..op.lowering import is_allocatable, lower_call
from ..op.registry import OPERATORS
from ..te import topi
from ..te.operators import FORMULAS
from .legalize_ops import LegalizeOps
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["LegalizeToLoops", "ReshapeInLoops"]

_RESHAPE: Final = "relaxvm.kernel.reshape"
_CALL_DPS: Final = Op.get("relax.call_dps_packed")


def _legalize(builder: BlockBuilder, call: Call) -> Expr:
    """The rule of all operators: loops, or what is registered with the operator."""
    op: Any = call.op
    record = op.record
    dtypes, formula = FORMULAS[record.name]
    if _has_formula(call, dtypes):
        args, attrs = call.args, dict(call.attrs)
        out_ty: Any = call.ty
        if record.name == "split":
            if type(call.ty) is not TupleType:
                return call.args[0]  # one part is the whole
            args = (*args, _lengths(call, attrs["axis"]))
            del attrs["indices_or_sections"]
            out_ty = list(call.ty.fields)
        hint = record.name.rpartition(".")[2]
        return builder.call_te(formula, *args, **attrs, primfunc_name_hint=hint, ty_args=out_ty)
    if record.lower is not None:
        lowered: Expr = record.lower(builder, call)
        return lowered
    return lower_call(record, call)


def _lengths(call: Call, axis: int) -> ShapeExpr:
    """Of the parts of a tensor that is split."""
    return ShapeExpr([part.dims[axis] for part in call.ty.fields])


def _has_formula(call: Call, dtypes: frozenset[str]) -> bool:
    """Whether the formula is for operands like these, and they are known well enough."""
    if not is_allocatable(call.ty) or not all(map(_is_known, call.args)):
        return False
    if call.attrs.get("mode", "fast") != "fast":
        return False
    scalars = [arg.ty for arg in _tensors(call) if isinstance(arg.ty, (TensorType, PrimType))]
    return not scalars or scalars[0].dtype in dtypes


def _tensors(call: Call) -> tuple[Expr, ...]:
    first = call.args[0]
    return first.fields if type(first) is Tuple else call.args


def _is_known(arg: Expr) -> bool:
    ty = arg.ty
    if type(ty) is TensorType:
        return ty.dims is not None and ty.dtype is not None
    if type(ty) is TupleType:
        return all(type(f) is TensorType and f.dims is not None and f.dtype is not None
                   for f in ty.fields)  # fmt: skip
    return type(ty) is PrimType or type(arg) is ShapeExpr


def LegalizeToLoops() -> Pass:
    """Calls of operators that `relaxvm.te` has formulas for become ``R.call_tir`` of PrimFuncs, by
    tensor expressions; the others what `LegalizeOps` makes of them.

    Why: a PrimFunc becomes machine code, which needs nothing of relaxvm to run.  A reshape stays
    the call of a kernel that RewriteDataflowReshape looks for; `ReshapeInLoops` comes behind that.
    """
    names = [name for name in FORMULAS if name != "reshape"]
    legalize = LegalizeOps({OPERATORS[name].op.name: _legalize for name in names})
    legalize.name = "LegalizeToLoops"
    return legalize


class _Reshaper(ExprMutator):
    def __init__(self, builder: BlockBuilder) -> None:
        super().__init__()
        self._builder = builder

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        value = binding.value
        if (
            type(binding) is VarBinding
            and type(value) is Call
            and value.op is _CALL_DPS
            and type(value.args[0]) is ExternFunc
            and value.args[0].global_symbol == _RESHAPE
        ):
            packed: Any = value.args[1]
            (x,), out = packed.fields, value.ty_args[0]
            if _is_known(x) and type(out) is TensorType and type(out.shape) is ShapeExpr:
                call = self._builder.call_te(topi.reshape, x, out.shape, ty_args=out)
                return VarBinding(binding.var, call, binding.span)
        return super().visit_binding(binding)


def ReshapeInLoops() -> Pass:
    """Calls of the reshape kernel become ``R.call_tir`` of PrimFuncs that copy the elements.

    Requires: LegalizeToLoops, and RewriteDataflowReshape, which takes those that need no copy.
    """

    @module_pass(name="ReshapeInLoops")
    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        builder = BlockBuilder(mod)
        for var, func in mod.items():
            if isinstance(func, Function):
                new = _Reshaper(builder).visit(func)
                if new is not func:
                    builder.update_func(var, new)
        return builder.get()

    return run
