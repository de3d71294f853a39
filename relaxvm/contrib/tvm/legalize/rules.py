"""The table of rules, and what turns an entry into a rule of `relaxvm.transform.LegalizeOps`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ....ir import (
    BlockBuilder,
    Call,
    Constant,
    Expr,
    FloatImm,
    IntImm,
    PrimType,
    ShapeExpr,
    TensorType,
    Tuple,
    TupleType,
)
from ....op.lowering import is_allocatable, lower_call

__all__ = ["LOOPS", "Entry", "Formula", "loops", "rules_of_table", "shape_of"]

Formula = Callable[..., Any]


class Entry(NamedTuple):
    """How TVM computes an operator.

    Attributes:
        hint: the name of the PrimFunc, or what gives it for a call.
        formula: takes te tensors for the operands, and the attributes by name; None for the formula
            of the operator's own record.
        operands: gives the operands of a call, where they are not its arguments.
        numbers: whether constants that are a single number become part of the loops.
    """

    hint: str | Callable[[Call], str]
    formula: Formula | None
    operands: Callable[[Call], Sequence[Any]] | None = None
    numbers: bool = True


LOOPS: Final[dict[str, Entry]] = {}
"""Name of an operator, without "relax." -> how TVM computes it."""


def loops(
    *names: str,
    hint: str | Callable[[Call], str] | None = None,
    operands: Callable[[Call], Sequence[Any]] | None = None,
    numbers: bool = True,
) -> Callable[[Formula], Formula]:
    """Decorator: add a formula to the table for operators."""

    def add(formula: Formula) -> Formula:
        for name in names:
            LOOPS[name] = Entry(hint or name.rpartition(".")[2], formula, operands, numbers)
        return formula

    return add


def shape_of(arg: Expr) -> Any:
    """The shape of a tensor as an operand, instead of the tensor."""
    dims = arg.ty.dims
    return arg if dims is None else ShapeExpr(dims)


def rules_of_table() -> Mapping[str, Callable[[BlockBuilder, Call], Expr]]:
    """The rules, by the full names of operators."""
    return {f"relax.{name}": _rule for name in LOOPS}


def _rule(builder: BlockBuilder, call: Call) -> Expr:
    op: Any = call.op
    record = op.record
    entry = LOOPS[record.name]
    if not is_allocatable(call.ty) or not all(map(_is_known, call.args)):
        return _default(builder, call)
    operands = call.args if entry.operands is None else entry.operands(call)
    formula = record.loops.formula if entry.formula is None else entry.formula
    if entry.numbers:
        operands = list(map(_number, operands))
    hint = entry.hint if isinstance(entry.hint, str) else entry.hint(call)
    out_ty: Any = list(call.ty.fields) if type(call.ty) is TupleType else call.ty
    try:
        return builder.call_te(
            formula, *operands, **record.attributes(call), primfunc_name_hint=hint,
            ty_args=out_ty,
        )  # fmt: skip
    except NotImplementedError:  # the formula is not for such attributes
        return _default(builder, call)


def _default(builder: BlockBuilder, call: Call) -> Expr:
    """What `relaxvm.transform.LegalizeOps` makes of a call."""
    op: Any = call.op
    if op.record.lower is not None:
        lowered: Expr = op.record.lower(builder, call)
        return lowered
    return lower_call(op.record, call)


def _number(arg: Any) -> Any:
    """A constant that is a single number as a scalar, anything else as it is."""
    if isinstance(arg, Constant) and arg.data.ndim == 0 and type(arg.ty) is TensorType:
        dtype = arg.ty.dtype
        assert dtype is not None
        number = arg.data.item()
        is_float = arg.data.dtype.kind == "f"
        return FloatImm(dtype, number) if is_float else IntImm(dtype, int(number))
    return arg


def _is_known(arg: Expr) -> bool:
    ty = arg.ty
    if type(ty) is TensorType:
        return ty.dims is not None and ty.dtype is not None
    if isinstance(arg, Tuple):
        return all(map(_is_known, arg.fields))
    if type(ty) is TupleType:
        return all(
            type(f) is TensorType and f.dims is not None and f.dtype is not None for f in ty.fields
        )
    return type(ty) is PrimType or isinstance(arg, ShapeExpr)
