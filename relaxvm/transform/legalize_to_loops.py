"""LegalizeToLoops: replace operators that have a formula by PrimFuncs."""

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
from ..ir.arith import simplify
from ..ir.block_builder import BlockBuilder
from ..ir.expr import int_imm
from ..op import base  # noqa: F401  (registers the operators named here)
from ..op.lowering import is_allocatable, lower_call
from ..op.registry import OPERATORS
from ..te import topi
from .legalize_ops import LegalizeOps
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["LegalizeToLoops", "ReshapeInLoops"]

_RESHAPE: Final = "relaxvm.kernel.reshape"
_CALL_DPS: Final = Op.get("relax.call_dps_packed")


def _legalize(builder: BlockBuilder, call: Call) -> Expr:
    """The rule for operators with a formula: loops, or else the operator's own legalization."""
    op: Any = call.op
    record = op.record
    formula, dtypes = record.loops
    if _has_formula(call, dtypes):
        args, attrs = call.args, dict(record.attributes(call))
        if record.name == "split":
            if type(call.ty) is not TupleType:
                return call.args[0]  # one part is the whole
            args = (*args, *_parts(call, attrs["axis"], attrs.pop("indices_or_sections")))
        out_ty: Any = list(call.ty.fields) if type(call.ty) is TupleType else call.ty
        hint = record.name.rpartition(".")[2]
        return builder.call_te(formula, *args, **attrs, primfunc_name_hint=hint, ty_args=out_ty)
    if record.lower is not None:
        lowered: Expr = record.lower(builder, call)
        return lowered
    return lower_call(record, call)


def _parts(call: Call, axis: int, where: Any) -> tuple[ShapeExpr, ShapeExpr]:
    """The places where the parts of a tensor that is split begin, and their lengths."""
    lengths = [part.dims[axis] for part in call.ty.fields]
    if isinstance(where, int):
        starts = [simplify(lengths[0] * i) for i in range(where)]
    else:
        starts = [int_imm(0), *[int_imm(max(place, 0)) for place in where]]
    return ShapeExpr(starts), ShapeExpr(lengths)


def _has_formula(call: Call, dtypes: frozenset[str] | None) -> bool:
    """Whether the formula is for operands like these, and their types are known."""
    if not is_allocatable(call.ty) or not all(map(_is_known, call.args)):
        return False
    if call.attrs.get("mode", "fast") != "fast":
        return False
    scalars = [arg.ty for arg in _tensors(call) if isinstance(arg.ty, (TensorType, PrimType))]
    return dtypes is None or not scalars or scalars[0].dtype in dtypes


def _tensors(call: Call) -> tuple[Expr, ...]:
    first = call.args[0]
    return first.fields if isinstance(first, Tuple) else call.args


def _is_known(arg: Expr) -> bool:
    ty = arg.ty
    if type(ty) is TensorType:
        return ty.dims is not None and ty.dtype is not None
    if type(ty) is TupleType:
        return all(type(f) is PrimType or (type(f) is TensorType and f.dims is not None
                                           and f.dtype is not None) for f in ty.fields)  # fmt: skip
    return type(ty) is PrimType or isinstance(arg, ShapeExpr)


def LegalizeToLoops() -> Pass:
    """Replace calls of operators whose record has a formula (`relaxvm.op.Operator.loops`) by
    ``R.call_tir`` of PrimFuncs; other calls are handled as by `LegalizeOps`.

    Why: a PrimFunc is compiled to machine code, which runs without relaxvm.  A reshape stays the
    call of a kernel, which RewriteDataflowReshape looks for; `ReshapeInLoops` runs after that.
    """
    records = [record for name, record in OPERATORS.items() if name != "reshape" and record.loops]
    legalize = LegalizeOps({record.op.name: _legalize for record in records})
    legalize.name = "LegalizeToLoops"
    return legalize


class _Reshaper(ExprMutator):
    def __init__(self, builder: BlockBuilder) -> None:
        super().__init__()
        self._builder = builder

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        value = binding.value
        if (
            isinstance(binding, VarBinding)
            and isinstance(value, Call)
            and value.op is _CALL_DPS
            and isinstance(value.args[0], ExternFunc)
            and value.args[0].global_symbol == _RESHAPE
        ):
            packed: Any = value.args[1]
            (x,), out = packed.fields, value.ty_args[0]
            if _is_known(x) and type(out) is TensorType and isinstance(out.shape, ShapeExpr):
                call = self._builder.call_te(topi.reshape, x, out.shape, ty_args=out)
                return VarBinding(binding.var, call, binding.span)
        return super().visit_binding(binding)


def ReshapeInLoops() -> Pass:
    """Replace calls of the reshape kernel by ``R.call_tir`` of PrimFuncs that copy the elements.

    Requires: LegalizeToLoops, and RewriteDataflowReshape, which handles those that need no copy.
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
