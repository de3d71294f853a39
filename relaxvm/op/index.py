"""Parts of tensors, by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from ..ir import prim
from ..ir.arith import Analyzer
from ..ir.expr import (
    Call,
    Expr,
    IntImm,
    PrimType,
    ShapeExpr,
    TensorType,
    Type,
    Var,
    const,
    int_imm,
)
from .base import null_value
from .create import full
from .kinds import Axis, IllTyped, IllValued, Integers, Operand, axes_of
from .lowering import results_text
from .registry import Unsupported, attributes_of, operator
from .rules import analyzer_of, common_vdevice, differ, like, need_integers, without_shape_var

__all__ = ["dynamic_strided_slice", "strided_slice", "take"]

_BEYOND: Final = 1 << 48
"""No dimension is this long: bounds from here on, like the greatest int64, stand for its end."""


_NOT_KNOWN: Final = Unsupported("The shape of its result is known only after its operands are.")


def _take_inputs(call: Call) -> list[Any]:
    x, indices = call.args
    attrs = attributes_of(call)
    return [x, _as_tensor(indices), attrs["axis"] or 0, attrs["mode"]]


def _as_tensor(index: Expr) -> Expr:
    """An index, a tensor or a scalar, as a tensor."""
    if type(index.ty) is TensorType:
        return index
    if isinstance(index, IntImm):
        return const(index.value, index.dtype)
    filled: Expr = full((), index, index.dtype)
    return filled


@operator("take", loops="take", takes=_take_inputs)
def take(
    x: TensorType,
    indices: Operand,
    axis: Axis | None = None,
    mode: Literal["fast", "wrap", "clip", "nan", "python"] = "fast",
) -> Type:
    """The slices of x at indices along an axis, which may be left out if x is a vector.

    The dimensions of the result are those of x, with the axis replaced by those of indices.  For an
    index out of range, `mode` selects an error ("fast"), the index modulo the length ("wrap"), the
    nearest index ("clip"), or NaN as the element ("nan").  With "python", negative indices count
    from the end, as Python's do, and those beyond either end are an error.
    """
    need_integers(indices=indices)
    if axis is None and x.ndim not in (-1, 1):
        raise IllValued(f"axis: it may be left out for tensors of rank 1 only, got {x}")
    place = axis or 0
    vdevice = common_vdevice(x=x, indices=indices)
    new, count = ((), 0) if isinstance(indices, PrimType) else (indices.dims, indices.ndim)
    x = without_shape_var(x)
    if new is not None and type(indices) is TensorType:
        new = without_shape_var(indices).dims
    if x.dims is None or new is None:
        ndim = -1 if -1 in (x.ndim, count) else x.ndim - 1 + count
        return like(x, None, ndim=ndim, vdevice=vdevice)
    return like(x, [*x.dims[:place], *new, *x.dims[place + 1 :]], vdevice=vdevice)


def _slice_inputs(call: Call) -> list[Any]:
    x, axes, *bounds = call.args
    places = axes_of("axes", [int(axis) for axis in axes.fields], x.ty.ndim)  # type: ignore[attr-defined]
    begin, end, *strides = [ShapeExpr(bound.fields) for bound in bounds]  # type: ignore[attr-defined]
    return [x, places, begin, end, strides[0] if strides else (1,) * len(places)]


@operator(
    "strided_slice",
    takes=_slice_inputs,
    loops="strided_slice",
)
def strided_slice(
    x: TensorType,
    axes: Integers,
    begin: Integers,
    end: Integers,
    strides: Integers | None = None,
    assume_inbound: bool = False,
) -> Type:
    """The slice ``x[begin:end:strides]`` along each of the axes, with Python's rules.

    Negative numbers count from the end, and numbers beyond an end stand for that end, unless
    `assume_inbound` states that there are none.  The axes are known numbers.  With a stride that
    only the run knows, so is the length, unless `assume_inbound` states that the stride is
    positive, too.
    """
    count = len(axes)
    for name, values in (("begin", begin), ("end", end), ("strides", strides)):
        if values is not None and len(values) != count:
            raise IllValued(f"{name}: expected {count}, one for each of axes, got {len(values)}")
    places = axes_of("axes", _known("axes", axes), x.ndim)
    steps = [_number(step) for step in strides or [int_imm(1)] * count]
    if 0 in steps:
        got = ", ".join(map(str, steps))
        raise IllValued(f"strides: expected numbers other than 0, got [{got}]")
    if x.dims is None:
        return like(x, None, ndim=x.ndim) if places else x
    if not assume_inbound and not all(isinstance(step, int) for step in steps):
        return like(x, None, ndim=x.ndim)
    dims = list(x.dims)
    for place, low, high, step in zip(places, begin, end, steps, strict=True):
        _, dims[place] = slice_of(dims[place], low, high, step, assume_inbound)
    return like(x, dims)


def _known(name: str, values: Sequence[Expr]) -> list[int]:
    for value in values:
        if not isinstance(value, IntImm):
            raise IllTyped(f"{name}: expected known integers, got {value}")
    return [int(value) for value in values]  # type: ignore[call-overload]


def _number(value: Expr) -> Any:
    """The value of a number that is known, else the expression."""
    return value.value if isinstance(value, IntImm) else value


def slice_of(
    length: Any, begin: Any, end: Any, step: Any, assume_inbound: bool
) -> tuple[Expr, Expr]:
    """The first index of a slice of an axis, and the number of its elements.  A step that is an
    expression is taken to be positive, and the bounds to be within the axis."""
    if isinstance(step, Expr):
        return begin, analyzer_of(length).simplify(end - begin + (step - 1)) // step
    if all(isinstance(each, IntImm) for each in (length, begin, end)):
        part = range(*slice(begin.value, end.value, step).indices(length.value))
        return int_imm(part.start), int_imm(len(part))
    analyzer = analyzer_of(length)
    # A length that is a variable is cut as TVM writes it, so that TVM's texts are read.
    are_known = isinstance(begin, IntImm) and isinstance(end, IntImm)
    if step > 0 and not assume_inbound and are_known and not isinstance(length, Var):
        found = _count_between(length, begin.value, end.value)
        if found is not None:
            first = prim.minimum(prim.maximum(_from_front(begin, length, analyzer), 0), length)
            count = (found + (step - 1)) // step
            return analyzer.simplify(first), analyzer.simplify(count)
    is_certain = assume_inbound or _is_ordered(begin, end, step)
    if not assume_inbound:
        least, most = (0, length) if step > 0 else (-1, length - 1)
        begin, end = [
            prim.minimum(prim.maximum(_from_front(bound, length, analyzer), least), most)
            for bound in (begin, end)
        ]
    distance = end - begin if step > 0 else begin - end
    count = (distance + (abs(step) - 1)) // abs(step)
    count = analyzer.simplify(count if is_certain else prim.maximum(count, 0))
    return analyzer.simplify(begin), count


def _count_between(length: Expr, begin: int, end: int) -> Expr | None:
    """How many indices of an axis ``range(length)[begin:end]`` has, in an expression with the
    length once, so that slices of slices of slices stay short; None if there is none."""
    if (begin < 0) == (end < 0) and end <= begin:
        return int_imm(0)
    if begin >= 0:
        if end >= _BEYOND:
            return prim.maximum(length - begin, 0)
        if end >= 0:
            return prim.maximum(prim.minimum(length, end) - begin, 0)
        return int_imm(0) if end <= -_BEYOND else prim.maximum(length + (end - begin), 0)
    if end >= _BEYOND:
        return length if begin <= -_BEYOND else prim.minimum(length, -begin)
    if end >= 0:
        return prim.minimum(length, end) if begin <= -_BEYOND else None
    if begin <= -_BEYOND:
        return prim.maximum(length + end, 0)
    return prim.maximum(prim.minimum(length + end, end - begin), 0)


def _is_ordered(begin: Any, end: Any, step: int) -> bool:
    """Whether begin comes no later than end in steps of this sign, for any length."""
    if not isinstance(begin, IntImm) or not isinstance(end, IntImm):
        return False
    if (begin.value < 0) != (end.value < 0):
        return False
    return begin.value <= end.value if step > 0 else begin.value >= end.value


def _from_front(bound: Any, length: Any, analyzer: Analyzer) -> Any:
    if isinstance(bound, IntImm):
        if abs(bound.value) >= _BEYOND:
            return length if bound.value > 0 else int_imm(-1)
        return bound if bound.value >= 0 else length + bound
    if analyzer.prove(bound >= 0):
        return bound
    return prim.select(bound < 0, bound + length, bound)


def _sliced_at_run_time(call: Call) -> tuple[str, list[Any]]:
    return "dynamic_strided_slice", [*call.args, null_value(), results_text(call)]


@operator("dynamic_strided_slice", loops=_NOT_KNOWN, returns=_sliced_at_run_time)
def dynamic_strided_slice(
    x: TensorType, begin: TensorType, end: TensorType, strides: TensorType
) -> Type:
    """The slice ``x[begin:end:strides]`` along all axes, as of `strided_slice`, with bounds that
    are known only when the program runs: vectors of int64 with an element for each axis."""
    for name, ty in (("begin", begin), ("end", end), ("strides", strides)):
        if ty.dtype not in (None, "int64"):
            raise IllTyped(f"{name}: expected int64, got {ty}")
        if ty.ndim not in (-1, 1):
            raise IllValued(f"{name}: expected a vector, got {ty}")
        if x.ndim != -1 and ty.dims is not None and differ(ty.dims[0], int_imm(x.ndim)):
            raise IllValued(f"{name}: expected an element for each of {x.ndim} axes, got {ty}")
    return like(x, None, ndim=x.ndim)
