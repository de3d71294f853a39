"""Element by element: numpy's ufuncs, and choices."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..values import describe
from ._blocks import blockwise
from ._kernel import (
    alike,
    as_operand,
    assign,
    broadcast,
    check_out,
    check_tensors,
    kernel,
    native,
    private,
    result_dtype,
)
from .fused import run_chain

__all__: list[str] = []

_UNARY: Final[dict[str, tuple[np.ufunc, str]]] = {
    "abs": (np.absolute, "|x|"),
    "acos": (np.arccos, "the angle whose cosine is x"),
    "acosh": (np.arccosh, "the inverse hyperbolic cosine of x"),
    "asin": (np.arcsin, "the angle whose sine is x"),
    "asinh": (np.arcsinh, "the inverse hyperbolic sine of x"),
    "atan": (np.arctan, "the angle whose tangent is x"),
    "atanh": (np.arctanh, "the inverse hyperbolic tangent of x"),
    "bitwise_not": (np.invert, "the bits of x inverted; of a bool, whether it is false"),
    "cos": (np.cos, "the cosine of x"),
    "cosh": (np.cosh, "the hyperbolic cosine of x"),
    "exp": (np.exp, "e to the power of x"),
    "isfinite": (np.isfinite, "whether x is neither NaN nor infinite, a bool tensor"),
    "isinf": (np.isinf, "whether x is infinite, a bool tensor"),
    "isnan": (np.isnan, "whether x is NaN, a bool tensor"),
    "log": (np.log, "the natural logarithm of x"),
    "logical_not": (np.logical_not, "whether x is false, a bool tensor"),
    "negative": (np.negative, "-x"),
    "sign": (np.sign, "-1, 0 or 1 as x is negative, 0 or positive, NaN if x is"),
    "sin": (np.sin, "the sine of x"),
    "sinh": (np.sinh, "the hyperbolic sine of x"),
    "sqrt": (np.sqrt, "the square root of x"),
    "square": (np.square, "x * x"),
    "tan": (np.tan, "the tangent of x"),
    "tanh": (np.tanh, "the hyperbolic tangent of x"),
}

_ROUNDING: Final[dict[str, tuple[np.ufunc, str]]] = {
    "ceil": (np.ceil, "the least integer that is not below x"),
    "floor": (np.floor, "the greatest integer that is not above x"),
    "round": (np.rint, "the integer nearest to x, the even one of two"),
    "trunc": (np.trunc, "x without its fraction"),
}

_BINARY: Final[dict[str, tuple[np.ufunc, str]]] = {
    "add": (np.add, "a + b"),
    "atan2": (np.arctan2, "the angle of the point (b, a)"),
    "bitwise_and": (np.bitwise_and, "the bits that a and b have"),
    "bitwise_or": (np.bitwise_or, "the bits that a or b has"),
    "bitwise_xor": (np.bitwise_xor, "the bits that one of a and b has"),
    "divide": (np.true_divide, "a / b; of integers, the quotient without its fraction"),
    "equal": (np.equal, "whether a == b, a bool tensor"),
    "floor_divide": (np.floor_divide, "a // b, rounded down"),
    "floor_mod": (np.remainder, "a - b * (a // b), with the sign of b"),
    "greater": (np.greater, "whether a > b, a bool tensor"),
    "greater_equal": (np.greater_equal, "whether a >= b, a bool tensor"),
    "left_shift": (np.left_shift, "the bits of a moved b places up"),
    "less": (np.less, "whether a < b, a bool tensor"),
    "less_equal": (np.less_equal, "whether a <= b, a bool tensor"),
    "log_add_exp": (np.logaddexp, "log(exp(a) + exp(b))"),
    "logical_and": (np.logical_and, "whether a and b are true, a bool tensor"),
    "logical_or": (np.logical_or, "whether a or b is true, a bool tensor"),
    "logical_xor": (np.logical_xor, "whether one of a and b is true, a bool tensor"),
    "maximum": (np.maximum, "the greater of a and b, NaN if one is"),
    "minimum": (np.minimum, "the lesser of a and b, NaN if one is"),
    "mod": (np.fmod, "the remainder of a / b without its fraction, with the sign of a"),
    "multiply": (np.multiply, "a * b"),
    "not_equal": (np.not_equal, "whether a != b, a bool tensor"),
    "power": (np.power, "a ** b"),
    "right_shift": (np.right_shift, "the bits of a moved b places down"),
    "subtract": (np.subtract, "a - b"),
}

_BY_LAYOUT: Final = frozenset({"atan2", "log_add_exp", "power"})
"""Functions whose results depend in their last bits on how the elements lie, and which loop numpy
takes for that; `power` of integers raises, too."""

_ALIASES: Final[dict[str, str]] = {"floor_mod": "remainder"}


def _register_unary(name: str, ufunc: Any, meaning: str) -> None:
    keeps_dtype = _keeps_dtype(ufunc)

    def run(x: NDArray[Any], out: NDArray[Any]) -> None:
        if keeps_dtype and alike(out, x) and out.shape == x.shape:
            try:
                ufunc(x, out=out)
                return
            except ValueError:
                pass  # said better below
        check_tensors(name, x=x)
        check_out(name, out, result_dtype(name, ufunc, x=x), x.shape)
        ufunc(x, out=out)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"out = {meaning}, element by element."
    kernel(name, "x: tensor, out: tensor", ufunc=ufunc)(run)


def _register_rounding(name: str, ufunc: Any, meaning: str) -> None:
    def run(x: NDArray[Any], out: NDArray[Any]) -> None:
        if alike(out, x) and out.shape == x.shape:
            try:
                ufunc(x, out=out)
                return
            except ValueError:
                pass  # said better below
        check_tensors(name, x=x)
        is_integer = x.dtype.kind in "iub"  # older numpy rounds these to floats
        check_out(name, out, x.dtype if is_integer else result_dtype(name, ufunc, x=x), x.shape)
        if is_integer:
            assign(out, x)
        else:
            ufunc(x, out=out)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"out = {meaning}, element by element.  Integers and bools stay as they are."
    kernel(name, "x: tensor, out: tensor", ufunc=ufunc)(run)


def _register_binary(name: str, ufunc: Any, meaning: str) -> None:
    keeps_dtype = _keeps_dtype(ufunc)

    def run(a: Any, b: Any, out: NDArray[Any]) -> None:
        if keeps_dtype and alike(out, a, b) and out.shape == a.shape:
            try:
                ufunc(a, b, out=out)
                return
            except ValueError:
                pass  # said better below
        dtype = _shared_dtype(name, a=a, b=b)
        a, b = as_operand(name, "a", a, dtype), as_operand(name, "b", b, dtype)
        truncates = ufunc is np.true_divide and a.dtype.kind in "iu" and a.dtype == b.dtype
        result = native(dtype) if truncates else result_dtype(name, ufunc, a=a, b=b)
        check_out(name, out, result, broadcast(name, a=a, b=b))
        if truncates:
            blockwise(_truncating_divide, out, a, b)
        else:
            ufunc(a, b, out=out)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"out = {meaning}, element by element.  One of a and b may be a number."
    aliases = (_ALIASES[name],) if name in _ALIASES else ()
    signature = "a: tensor|int|float, b: tensor|int|float, out: tensor"
    kernel(name, signature, *aliases, ufunc=ufunc, direct=name not in _BY_LAYOUT)(run)


def _truncating_divide(out: NDArray[Any], a: NDArray[Any], b: NDArray[Any]) -> None:
    multiple = np.fmod(a, b)
    np.subtract(a, multiple, out=multiple)
    np.floor_divide(multiple, b, out=out)


def _keeps_dtype(ufunc: Any) -> bool:
    """Whether floats give floats of the same type."""
    return "f" * ufunc.nin + "->f" in ufunc.types


def _shared_dtype(name: str, **operands: Any) -> np.dtype[Any]:
    """The data type that a number among the operands takes: that of the first tensor.

    Raises:
        TypeError: there is no tensor.
    """
    tensors = [operand for operand in operands.values() if isinstance(operand, np.ndarray)]
    if tensors:
        return np.dtype(tensors[0].dtype)
    got = ", ".join(f"{name} {describe(operand)}" for name, operand in operands.items())
    raise TypeError(f"{name}: expected at least one tensor, got {got}")


for _name, (_ufunc, _meaning) in _UNARY.items():
    _register_unary(_name, _ufunc, _meaning)
for _name, (_ufunc, _meaning) in _ROUNDING.items():
    _register_rounding(_name, _ufunc, _meaning)
for _name, (_ufunc, _meaning) in _BINARY.items():
    _register_binary(_name, _ufunc, _meaning)


@kernel("relu", "x: tensor, out: tensor", "nn.relu", direct=True)
def relu(x: NDArray[Any], out: NDArray[Any]) -> None:
    """out = the greater of x and 0, element by element; NaN stays NaN."""
    if alike(out, x) and out.shape == x.shape:
        try:
            np.maximum(x, 0.0, out=out)
            return
        except ValueError:
            pass  # said better below
    check_tensors("relu", x=x)
    check_out("relu", out, result_dtype("relu", np.maximum, x=x, zero=x), x.shape)
    np.maximum(x, x.dtype.type(0), out=out)


@kernel("where", "cond: tensor, a: tensor|int|float, b: tensor|int|float, out: tensor", direct=True)
def where(cond: NDArray[Any], a: Any, b: Any, out: NDArray[Any]) -> None:
    """out = a where cond is true, else b, element by element.  cond: bool tensor; a and b, of which
    one or both may be numbers, have the data type of out."""
    check_tensors("where", cond=cond, out=out)
    if cond.dtype != np.bool_:
        raise ValueError(f"where: cond: expected a bool tensor, got {describe(cond)}")
    a, b = as_operand("where", "a", a, out.dtype), as_operand("where", "b", b, out.dtype)
    for operand in (a, b):
        check_out("where", out, operand.dtype, broadcast("where", cond=cond, a=a, b=b))
    # Block by block, where a condition that nobody can foresee costs no more than any other.
    if run_chain("where($0, $1, $2) -> %0", [cond, np.asarray(a), np.asarray(b)], out):
        return
    a, cond = private(a, out), private(cond, out)
    assign(out, b)
    np.copyto(out, a, where=cond)


@kernel("clip", "x: tensor, min: int|float, max: int|float, out: tensor", direct=True)
def clip(x: NDArray[Any], low: Any, high: Any, out: NDArray[Any]) -> None:
    """out = the greater of min and the lesser of x and max, element by element; NaN stays NaN.
    Bounds outside x's data type are those of the type; of integers they lose their fraction."""
    check_tensors("clip", x=x)
    result_dtype("clip", np.minimum, x=x, bound=x)
    low, high = _bound("min", low, x.dtype), _bound("max", high, x.dtype)
    check_out("clip", out, x.dtype, x.shape)

    def step(out: NDArray[Any], x: NDArray[Any]) -> None:
        np.minimum(x, high, out=out)
        np.maximum(out, low, out=out)

    blockwise(step, out, x)


def _bound(parameter: str, value: Any, dtype: np.dtype[Any]) -> Any:
    if not isinstance(value, (int, float)) or dtype.kind not in "iufV":
        raise TypeError(
            f"clip: {parameter}: expected a number that goes with {dtype}, got {describe(value)}"
        )
    if dtype.kind in "iu":
        if value != value:
            raise ValueError(f"clip: {parameter}: expected a number within {dtype}, got nan")
        limits = np.iinfo(dtype)
        return dtype.type(int(max(limits.min, min(limits.max, value))))
    try:
        with np.errstate(over="ignore"):  # to infinity
            return dtype.type(value)
    except OverflowError:  # an int beyond float64
        return dtype.type(math.inf if value > 0 else -math.inf)
