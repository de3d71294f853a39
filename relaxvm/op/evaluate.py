"""Values of calls whose arguments are known: what an operator's kernel computes of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..dtypes import as_dtype
from ..errors import InternalError
from ..ir import (
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExternFunc,
    FloatImm,
    IntImm,
    Op,
    ShapeExpr,
    StringImm,
    TensorType,
    Tuple,
    TupleType,
)
from ..registry import get_func
from ..values import Shape, given_up
from .lowering import KERNEL_PREFIX, is_allocatable, lower_call
from .registry import Operator

__all__ = ["Unknown", "evaluated", "outputs_of", "results_of", "value_of"]

_MAX_BYTES: Final = 1 << 26
_GROWTH: Final = 16
"""The greatest ratio of the sizes of a result and of its constants, unless the result is small."""
_SMALL: Final = 1 << 16
_MOST_CREATED: Final = 1024
"""The most elements of a constant that is computed from none, such as ``R.zeros((4, 4))``."""


_RESHAPES: Final = frozenset(
    {"relax.expand_dims", "relax.flatten", "relax.reshape", "relax.squeeze"}
)
"""Operators that only change the shape."""


class Unknown(Exception):
    """An argument, or the shape of a result, is not known at compile time."""


def evaluated(call: Call) -> Expr | None:
    """The value of a call of a pure operator, or in destination-passing style, whose kernel is one
    of relaxvm's and whose arguments are constants: a constant, or a tuple of them.  None if it is
    not known, if it is much larger than the arguments, or if the kernel raises an error, which the
    program is to raise when it runs."""
    if not isinstance(call.op, Op) or not is_allocatable(call.ty):
        return None
    record = call.op.record
    try:
        args = [value_of(arg) for arg in call.args]
        if call.op.name in _RESHAPES:
            return Constant(args[0].reshape(outputs_of(call.ty, args[0].nbytes).shape))
        if type(record) is Operator and record.kernel is not None and call.op.is_pure:
            lowered: Any = lower_call(record, call)
        elif call.op.name == "relax.call_dps_packed":
            lowered = call
        else:
            return None
        callee, packed = lowered.args
        if not isinstance(callee, ExternFunc) or not callee.global_symbol.startswith(KERNEL_PREFIX):
            return None
        operands = [value_of(arg) for arg in packed.fields]
        outputs = outputs_of(call.ty, _num_bytes([*args, *operands]))
    except Unknown:
        return None
    return results_of(get_func(callee.global_symbol), operands, outputs)


def results_of(kernel: Callable[..., Any], operands: list[Any], outputs: Any) -> Expr | None:
    """What a kernel writes into new tensors, as constants; None if it raises an error."""
    flat = outputs if isinstance(outputs, list) else [outputs]
    try:
        with np.errstate(all="ignore"):
            kernel(*operands, *flat)
    except (TypeError, ValueError, IndexError, ArithmeticError, InternalError):
        return None  # to be raised at run time
    if isinstance(outputs, list):
        return Tuple([Constant(given_up(array)) for array in outputs])
    return Constant(given_up(outputs))


def value_of(expr: Expr) -> Any:
    """An expression without variables as a kernel takes it.

    Raises:
        Unknown: it has some.
    """
    if isinstance(expr, Constant):
        return expr.data
    if type(expr) in (IntImm, FloatImm, StringImm):
        value = expr.value  # type: ignore[attr-defined]
        return (
            bool(value)
            if expr.ty is not None and getattr(expr.ty, "dtype", "") == "bool"
            else value
        )
    if isinstance(expr, DataTypeImm):
        return as_dtype(expr.value)
    if isinstance(expr, ShapeExpr):
        return Shape([_int(value) for value in expr.values])
    if isinstance(expr, Tuple):
        return tuple([value_of(field) for field in expr.fields])
    if isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == "relax.null_value":
        return None
    raise Unknown


def _int(expr: Expr) -> int:
    if type(expr) is not IntImm:
        raise Unknown
    return expr.value


def _num_bytes(values: list[Any]) -> int:
    return sum(
        _num_bytes(list(v)) if isinstance(v, tuple) and not isinstance(v, Shape)
        else getattr(v, "nbytes", 0)
        for v in values
    )  # fmt: skip


def outputs_of(ty: Any, known: int) -> Any:
    """New tensors for results of a type.

    Args:
        ty: of the results.
        known: the number of bytes of the arguments.

    Raises:
        Unknown: a dimension is not known, or the results are much larger than the arguments.
    """
    if type(ty) is TupleType:
        return [outputs_of(field, known) for field in ty.fields]
    if type(ty) is not TensorType or ty.dims is None or ty.dtype is None:
        raise Unknown
    shape = [_int(dim) for dim in ty.dims]
    nbytes = math.prod(shape) * as_dtype(ty.dtype).itemsize
    if nbytes > _MAX_BYTES or nbytes > max(_SMALL, _GROWTH * known):
        raise Unknown
    if known == 0 and math.prod(shape) > _MOST_CREATED:
        raise Unknown
    return np.empty(shape, as_dtype(ty.dtype))
