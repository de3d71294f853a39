"""Calls of operators as calls of kernels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ir.expr import (
    Call,
    Expr,
    ExternFunc,
    PrimType,
    ShapeExpr,
    ShapeType,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    convert_to_expr,
)
from ..ir.infer import infer_type
from ..ir.op import Op
from ..registry import KERNEL_PREFIX, RESULT_PREFIX
from ..support import Unsupported
from .base import call_dps_packed, null_value
from .registry import PREFIX, Operator
from .rules import broadcast_dims, like

__all__ = ["KERNEL_PREFIX", "call_result_form", "has_result_form", "is_allocatable", "kernel_call",
           "lower_call", "result_call", "results_text", "returning_call"]  # fmt: skip


def is_allocatable(ty: Type) -> bool:
    """Whether a result of this type can be allocated before it is computed, because its shape and
    data type are known."""
    if type(ty) is TupleType:
        return all(map(is_allocatable, ty.fields))
    shape = getattr(ty, "shape", None)
    if shape is None or getattr(ty, "dtype", None) is None:
        return False
    return type(shape.ty) is ShapeType and shape.ty.ndim != -1


def kernel_call(name: str, inputs: Iterable[Any], out_ty: Type) -> Call:
    """A call of a kernel.

    Args:
        name: of the kernel, without its prefix.
        inputs: the arguments before the outputs: expressions, of which tuples are passed element by
            element, and values of attributes, of which several integers are passed as a shape, and
            None as no value.
        out_ty: type of the output; a tuple type for several outputs.
    """
    args: list[Expr] = []
    for value in inputs:
        if isinstance(value, Expr):
            args.extend(_elements(value))
        else:
            args.append(_attribute(value))
    return call_dps_packed(KERNEL_PREFIX + name, Tuple(args), out_ty)  # type: ignore[no-any-return]


def _elements(expr: Expr) -> Iterable[Expr]:
    ty = infer_type(expr).ty
    if isinstance(expr, Tuple):
        return expr.fields
    if type(ty) is TupleType:
        return [TupleGetItem(expr, i) for i in range(len(ty.fields))]
    return (expr,)


def _attribute(value: Any) -> Expr:
    if value is None:
        none: Expr = null_value()
        return none
    if isinstance(value, tuple):
        return ShapeExpr(value)
    if isinstance(value, bool):
        value = int(value)  # executables have no bools: kernels take 0 and 1
    return convert_to_expr(value)


def has_result_form(record: Operator) -> bool:
    """Whether calls of an operator can be replaced by a call that returns the result."""
    return record.returns is not None or (record.kernel is not None and record.lower is None)


def result_call(record: Operator, call: Call) -> Call:
    """The call of a result form (see `relaxvm.kernels.results`) that replaces a call of an operator
    whose result cannot be allocated before it is computed.

    Args:
        record: the operator, which has a result form.
        call: the call.
    """
    if record.returns is not None:
        name, inputs = record.returns(call)
    else:
        assert record.kernel is not None
        name = record.kernel
        inputs = _inputs(record, call) if record.takes is None else record.takes(call)
        shapes = [arg for arg in call.args if type(arg.ty) is ShapeType]
        inputs = [*inputs, shapes[0] if shapes else None, results_text(call)]
    return call_result_form(name, inputs, call.ty, call.span)


def returning_call(name: str, inputs: Iterable[Any], ty: Type) -> Call:
    """As `kernel_call`, of the result form of the kernel: for a type that cannot be allocated
    before the result is computed."""
    return call_result_form(name, [*inputs, None, _results_text(ty)], ty)


def call_result_form(name: str, inputs: Iterable[Any], ty: Type, span: Any = None) -> Call:
    """A call of the function "relaxvm.result.*" of a name."""
    args: list[Expr] = [ExternFunc(RESULT_PREFIX + name)]
    for value in inputs:
        args.extend(_elements(value) if isinstance(value, Expr) else [_attribute(value)])
    return Call(Op.get(f"{PREFIX}call_pure_packed"), args, None, [ty], ret_ty=ty, span=span)


def results_text(call: Call) -> str:
    """What a result form is told about the results of a call: data types, and whether axes are
    kept."""
    return _results_text(call.ty) + " keepdims" * bool(call.attrs.get("keepdims"))


def _results_text(ty: Type) -> str:
    fields = ty.fields if type(ty) is TupleType else [ty]
    return ",".join([getattr(field, "dtype", None) or "?" for field in fields])


def lower_call(record: Operator, call: Call) -> Expr:
    """The call of a kernel that replaces a call of an operator; an expression of scalars if the
    result is one; the call itself if the shape or data type of the result is not known.

    Args:
        record: the operator, which has a kernel.
        call: the call.
    """
    if type(call.ty) is PrimType and record.is_elementwise:
        loops = record.loops
        if isinstance(loops, Unsupported):
            return call
        scalar: Expr = loops.formula(*call.args)
        return scalar
    ty = _type_to_allocate(record, call)
    if not is_allocatable(ty):
        return call
    assert record.kernel is not None
    inputs = _inputs(record, call) if record.takes is None else record.takes(call)
    return kernel_call(record.kernel, inputs, ty)


def _type_to_allocate(record: Operator, call: Call) -> Any:
    """The type of the result.  For an elementwise operator all dimensions are known if those of the
    operands are: as expressions, where only the running program knows which operand broadcasts."""
    ty: Any = call.ty
    if not record.is_elementwise or type(ty) is not TensorType or ty.shape is not None:
        return ty
    operands = [arg.ty for arg in call.args if type(arg.ty) is TensorType]
    return like(ty, broadcast_dims(*operands), ndim=ty.ndim)


def _inputs(record: Operator, call: Call) -> list[Any]:
    operands = [arg for arg in call.args if type(arg.ty) is not ShapeType]
    return [*operands, *record.attributes(call).values()]
