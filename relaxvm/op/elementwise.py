"""Element by element: the operators of one row each in `relaxvm.elementwise`, and some more.

Operands broadcast as in numpy and have one data type; nothing is converted, except where numbers of
two data types are compared.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ..dtypes import NARROW, as_dtype, dtype_name
from ..elementwise import FUNCTIONS
from ..ir.expr import TENSOR_OPERATORS, Call, Expr, PrimType, TensorType, Type
from .kinds import DType, Operand, Scalar
from .registry import (
    CONSTRUCTORS,
    NO_LOOPS,
    Constructor,
    Loops,
    Takes,
    Unsupported,
    operator,
)
from .rules import (
    DTYPE_CHECKS,
    DtypeCheck,
    broadcast,
    common_dtype,
    like,
    need_bools,
    need_numbers,
    without_shape_var,
)

__all__ = ["astype", "binary", "clip", "unary", "where", "wrap_param"]


def unary(
    name: str,
    check: DtypeCheck,
    doc: str,
    *,
    result: str = "",
    operand: str = "x",
    loops: str | Loops | Unsupported = NO_LOOPS,
) -> Constructor:
    """Register an elementwise operator of one tensor.

    Args:
        name: name of the operator.
        check: checks the data type of the operand.
        doc: the documentation.
        result: data type of the result, if it is not the operand's.
        operand: name of the operand.
        loops: the formula, as for `operator`.
    """

    def rule(x: TensorType) -> Type:
        check(**{operand: x})
        return like(x, dtype=result) if result else x

    return _register(name, rule, doc, loops, operand)


def binary(
    name: str,
    check: DtypeCheck,
    doc: str,
    *,
    result: str = "",
    loops: str | Loops | Unsupported = NO_LOOPS,
) -> Constructor:
    """Register an elementwise operator of two tensors, a tensor and a scalar, or two scalars, of
    which the result is a scalar.

    The parameters are those of `unary`.
    """

    compares = name in _COMPARISONS

    def rule(x1: Operand, x2: Operand) -> Type:
        check(x1=x1, x2=x2)
        are_tensors = type(x1) is type(x2) is TensorType
        dtype = None if compares and are_tensors else common_dtype(x1=x1, x2=x2)
        if type(x1) is PrimType and type(x2) is PrimType:
            return PrimType(result or x1.dtype)
        return broadcast(result or dtype, x1=x1, x2=x2)

    return _register(name, rule, doc, loops, takes=_of_one_dtype if compares else None)


_COMPARISONS: Final = frozenset(
    {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}
)
"""Operators whose operands may have two data types; they are compared in one that has both."""


def _of_one_dtype(call: Call) -> Sequence[Expr]:
    """The operands of a comparison, converted to one data type: integers beside floats to that of
    the floats, as in TVM, others to the least one that has the numbers of both."""
    types = [arg.ty.dtype for arg in call.args]
    if None in types or (types[0] == types[1] and types[0] not in NARROW):
        return call.args
    floats = [name for name in types if "float" in name]
    wide = floats[0] if len(floats) == 1 else _least_common(types)
    return [
        arg if name == wide else astype(arg, wide)
        for arg, name in zip(call.args, types, strict=True)
    ]


def _least_common(types: Sequence[str]) -> str:
    """The least data type that numpy compares and that has the numbers of two others, both
    of floats or neither."""
    dtypes = [np.dtype(name.rstrip("124") + "8") if name in NARROW and "int" in name
              else as_dtype(name) for name in types]  # fmt: skip
    try:
        return dtype_name(np.promote_types(*dtypes))
    except TypeError:  # ml_dtypes does not say what has the numbers of both: float32 always does
        return "float32"


def _register(
    name: str,
    rule: Callable[..., Type],
    doc: str,
    loops: str | Loops | Unsupported,
    operand: str | None = None,
    takes: Takes | None = None,
) -> Constructor:
    rule.__doc__ = doc
    if operand is not None:
        named: Any = rule
        parameter = inspect.Parameter(
            operand, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="TensorType"
        )
        named.__signature__ = inspect.Signature([parameter])
    return operator(name, elementwise=True, loops=loops, takes=takes)(rule)


def _register_function(name: str) -> None:
    function = FUNCTIONS[name]
    check, result = DTYPE_CHECKS[function.accepts], function.result
    loops = Unsupported(function.no_loops) if function.no_loops else name
    if function.arity == 2:
        doc = function.doc_for("x1", "x2")
        binary(name, check, doc, result=result, loops=loops)
    else:
        operand = "data" if name.startswith("nn.") else "x"
        doc = function.doc_for(operand)
        unary(name, check, doc, result=result, operand=operand, loops=loops)


for _name in FUNCTIONS:
    _register_function(_name)

unary("nn.relu", need_numbers, "The greater of data and 0; NaN for NaN.", operand="data",
      loops="nn.relu")  # fmt: skip


@operator("where", elementwise=True, loops="where")
def where(condition: TensorType, x1: Operand, x2: Operand) -> Type:
    """x1 where the condition, a tensor of bools, is true, else x2."""
    need_bools(condition=condition)
    dtype = common_dtype(x1=x1, x2=x2)
    result = broadcast(dtype, condition=condition, x1=x1, x2=x2)
    tensors = [ty for ty in (condition, x1, x2) if isinstance(ty, TensorType)]
    if all(ty.shape is result.shape for ty in tensors):
        return result
    if all(ty is without_shape_var(ty) for ty in tensors):
        return result
    return like(result, None, ndim=result.ndim)


@operator("clip", elementwise=True, loops="clip")
def clip(x: TensorType, min: Scalar, max: Scalar) -> Type:  # noqa: A002
    """x limited to the range from min to max: the greater of min and the lesser of x and max."""
    need_numbers(x=x)
    return x


def _operand(call: Any) -> list[Expr]:
    return [call.args[0]]


@operator("astype", takes=_operand, elementwise=True, loops="astype")
def astype(x: TensorType, dtype: DType) -> Type:
    """x converted to another data type."""
    return like(x, dtype=dtype)


@operator("wrap_param", kernel="astype", takes=_operand, elementwise=True, loops="astype")
def wrap_param(data: TensorType, dtype: DType = "float32") -> Type:
    """A parameter of the model, converted to another data type."""
    return like(data, dtype=dtype)


for _name in (
    "add", "subtract", "multiply", "divide", "floor_divide", "mod", "power", "negative",
    "less", "less_equal", "greater", "greater_equal",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift",
    "astype",
):  # fmt: skip
    TENSOR_OPERATORS[_name] = CONSTRUCTORS[_name]
