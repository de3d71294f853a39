"""Element by element: unary, binary and ternary operators, as one table each.

Operands broadcast as in numpy; all have one data type, which nothing converts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from ..ir.expr import TENSOR_OPERATORS, Expr, TensorType, Type
from .kinds import DType, Operand, Scalar
from .registry import CONSTRUCTORS, Constructor, operator
from .rules import (
    broadcast,
    common_dtype,
    like,
    need_bits,
    need_bools,
    need_floats,
    need_integers,
    need_numbers,
)

__all__ = ["astype", "binary", "clip", "unary", "where", "wrap_param"]

Demand = Callable[..., None]


def _anything(**operands: Any) -> None:
    """No demand."""


def unary(
    name: str, demand: Demand, doc: str, *, result: str | None = None, operand: str = "x"
) -> Constructor:
    """Register an operator of one tensor.

    Args:
        name: of the operator.
        demand: what the data type has to be.
        doc: what it gives, in terms of the operand.
        result: data type of the result, if it is not the operand's.
        operand: name of the operand.
    """

    def rule(x: TensorType) -> Type:
        demand(**{operand: x})
        return x if result is None else like(x, dtype=result)

    return _register(name, rule, doc, operand)


def binary(name: str, demand: Demand, doc: str, *, result: str | None = None) -> Constructor:
    """Register an operator of two tensors, or a tensor and a scalar; as `unary` else."""

    def rule(x1: Operand, x2: Operand) -> Type:
        demand(x1=x1, x2=x2)
        dtype = common_dtype(x1=x1, x2=x2)
        return broadcast(dtype if result is None else result, x1=x1, x2=x2)

    return _register(name, rule, doc)


def _register(
    name: str, rule: Callable[..., Type], doc: str, operand: str | None = None
) -> Constructor:
    rule.__doc__ = doc
    if operand is not None:
        named: Any = rule
        parameter = inspect.Parameter(
            operand, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="TensorType"
        )
        named.__signature__ = inspect.Signature([parameter])
    return operator(name, elementwise=True)(rule)


_UNARY: Final[dict[str, tuple[Demand, str]]] = {
    "abs": (_anything, "``|x|``"),
    "acos": (need_floats, "The angle whose cosine is x."),
    "acosh": (need_floats, "The inverse hyperbolic cosine of x."),
    "asin": (need_floats, "The angle whose sine is x."),
    "asinh": (need_floats, "The inverse hyperbolic sine of x."),
    "atan": (need_floats, "The angle whose tangent is x."),
    "atanh": (need_floats, "The inverse hyperbolic tangent of x."),
    "bitwise_not": (need_bits, "``~x``: the bits inverted; of a bool, whether it is false."),
    "ceil": (_anything, "The least integer that is not below x."),
    "cos": (need_floats, "The cosine of x."),
    "cosh": (need_floats, "The hyperbolic cosine of x."),
    "erf": (need_floats, "The error function of x."),
    "exp": (need_floats, "e to the power of x."),
    "floor": (_anything, "The greatest integer that is not above x."),
    "log": (need_floats, "The natural logarithm of x."),
    "negative": (need_numbers, "``-x``"),
    "round": (_anything, "The integer nearest to x, the even one of two."),
    "rsqrt": (need_floats, "1 / the square root of x."),
    "sigmoid": (need_floats, "``1 / (1 + exp(-x))``"),
    "sign": (need_numbers, "-1, 0 or 1, as x is negative, 0 or positive; NaN of NaN."),
    "sin": (need_floats, "The sine of x."),
    "sinh": (need_floats, "The hyperbolic sine of x."),
    "sqrt": (need_floats, "The square root of x."),
    "square": (need_numbers, "``x * x``"),
    "tan": (need_floats, "The tangent of x."),
    "tanh": (need_floats, "The hyperbolic tangent of x."),
    "trunc": (_anything, "x without its fraction."),
}

_TESTS: Final[dict[str, str]] = {
    "isfinite": "Whether x is neither infinite nor NaN.",
    "isinf": "Whether x is infinite.",
    "isnan": "Whether x is NaN.",
    "logical_not": "Whether x is false, or 0.",
}

_ARITHMETIC: Final[dict[str, tuple[Demand, str]]] = {
    "add": (_anything, "``x1 + x2``"),
    "atan2": (need_floats, "The angle of the point (x2, x1)."),
    "divide": (need_numbers, "``x1 / x2``; of integers rounded towards zero."),
    "floor_divide": (need_numbers, "``x1 // x2``, rounded down."),
    "floor_mod": (need_numbers, "What `floor_divide` leaves, with the sign of x2."),
    "log_add_exp": (need_floats, "``log(exp(x1) + exp(x2))``"),
    "maximum": (_anything, "The greater of x1 and x2, NaN if one is."),
    "minimum": (_anything, "The lesser of x1 and x2, NaN if one is."),
    "mod": (need_numbers, "What division rounded towards zero leaves, with the sign of x1."),
    "multiply": (_anything, "``x1 * x2``"),
    "power": (need_numbers, "``x1 ** x2``"),
    "subtract": (need_numbers, "``x1 - x2``"),
    "bitwise_and": (need_bits, "``x1 & x2``"),
    "bitwise_or": (need_bits, "``x1 | x2``"),
    "bitwise_xor": (need_bits, "``x1 ^ x2``"),
    "left_shift": (need_integers, "``x1 << x2``"),
    "right_shift": (need_integers, "``x1 >> x2``"),
}

_COMPARISONS: Final[dict[str, str]] = {
    "equal": "Whether ``x1 == x2``.",
    "greater": "Whether ``x1 > x2``.",
    "greater_equal": "Whether ``x1 >= x2``.",
    "less": "Whether ``x1 < x2``.",
    "less_equal": "Whether ``x1 <= x2``.",
    "not_equal": "Whether ``x1 != x2``.",
    "logical_and": "Whether both are true, or not 0.",
    "logical_or": "Whether one is true, or not 0.",
    "logical_xor": "Whether one is true, or not 0, and the other is not.",
}

for _name, (_demand, _doc) in _UNARY.items():
    unary(_name, _demand, _doc)
for _name, _doc in _TESTS.items():
    unary(_name, _anything, _doc, result="bool")
for _name, (_demand, _doc) in _ARITHMETIC.items():
    binary(_name, _demand, _doc)
for _name, _doc in _COMPARISONS.items():
    binary(_name, _anything, _doc, result="bool")


@operator("where", elementwise=True)
def where(condition: TensorType, x1: Operand, x2: Operand) -> Type:
    """x1 where a bool condition is true, else x2."""
    need_bools(condition=condition)
    return broadcast(common_dtype(x1=x1, x2=x2), condition=condition, x1=x1, x2=x2)


@operator("clip", elementwise=True)
def clip(x: TensorType, min: Scalar, max: Scalar) -> Type:  # noqa: A002
    """The greater of min and the lesser of x and max: x, kept within bounds."""
    need_numbers(x=x)
    return x


def _operand(call: Any) -> list[Expr]:
    return [call.args[0]]


@operator("astype", takes=_operand, elementwise=True)
def astype(x: TensorType, dtype: DType) -> Type:
    """x in another data type."""
    return like(x, dtype=dtype)


@operator("wrap_param", kernel="astype", takes=_operand, elementwise=True)
def wrap_param(data: TensorType, dtype: DType = "float32") -> Type:
    """A parameter of the model in another data type."""
    return like(data, dtype=dtype)


for _name in (
    "add", "subtract", "multiply", "divide", "floor_divide", "mod", "power", "negative",
    "less", "less_equal", "greater", "greater_equal",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift",
    "astype",
):  # fmt: skip
    TENSOR_OPERATORS[_name] = CONSTRUCTORS[_name]
