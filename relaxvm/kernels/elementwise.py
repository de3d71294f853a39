"""Element by element: numpy's ufuncs, `relu` and `where`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..values import describe
from ._kernel import (
    FLOAT32,
    alike,
    as_operand,
    broadcast,
    check_out,
    check_tensors,
    kernel,
    private,
    result_dtype,
)

__all__: list[str] = []

_UNARY: Final[dict[str, tuple[np.ufunc, str]]] = {
    "abs": (np.absolute, "|x|"),
    "negative": (np.negative, "-x"),
    "exp": (np.exp, "e to the power of x"),
    "log": (np.log, "the natural logarithm of x"),
    "sqrt": (np.sqrt, "the square root of x"),
    "tanh": (np.tanh, "the hyperbolic tangent of x"),
    "logical_not": (np.logical_not, "whether x is false, a bool tensor"),
}

_BINARY: Final[dict[str, tuple[np.ufunc, str]]] = {
    "add": (np.add, "a + b"),
    "subtract": (np.subtract, "a - b"),
    "multiply": (np.multiply, "a * b"),
    "divide": (np.true_divide, "a / b, of floats"),
    "floor_divide": (np.floor_divide, "a // b"),
    "remainder": (np.remainder, "a % b, with the sign of b"),
    "power": (np.power, "a ** b"),
    "maximum": (np.maximum, "the greater of a and b, NaN if one is"),
    "minimum": (np.minimum, "the lesser of a and b, NaN if one is"),
    "equal": (np.equal, "whether a == b, a bool tensor"),
    "not_equal": (np.not_equal, "whether a != b, a bool tensor"),
    "less": (np.less, "whether a < b, a bool tensor"),
    "less_equal": (np.less_equal, "whether a <= b, a bool tensor"),
    "greater": (np.greater, "whether a > b, a bool tensor"),
    "greater_equal": (np.greater_equal, "whether a >= b, a bool tensor"),
    "logical_and": (np.logical_and, "whether a and b are true, a bool tensor"),
    "logical_or": (np.logical_or, "whether a or b is true, a bool tensor"),
}


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
    kernel(name, "x: tensor, out: tensor")(run)


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
        result = result_dtype(name, ufunc, a=a, b=b)
        check_out(name, out, result, broadcast(name, a=a, b=b))
        ufunc(a, b, out=out)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"out = {meaning}, element by element.  One of a and b may be a number."
    kernel(name, "a: tensor|int|float, b: tensor|int|float, out: tensor")(run)


def _keeps_dtype(ufunc: Any) -> bool:
    """Whether floats give floats of the same type."""
    return bool(ufunc.resolve_dtypes((*[FLOAT32] * ufunc.nin, None))[-1] == FLOAT32)


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
for _name, (_ufunc, _meaning) in _BINARY.items():
    _register_binary(_name, _ufunc, _meaning)


@kernel("relu", "x: tensor, out: tensor")
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


@kernel("where", "cond: tensor, a: tensor|int|float, b: tensor|int|float, out: tensor")
def where(cond: NDArray[Any], a: Any, b: Any, out: NDArray[Any]) -> None:
    """out = a where cond is true, else b, element by element.  cond: bool tensor; a and b, of which
    one or both may be numbers, have the data type of out."""
    check_tensors("where", cond=cond, out=out)
    if cond.dtype != np.bool_:
        raise ValueError(f"where: cond: expected a bool tensor, got {describe(cond)}")
    a, b = as_operand("where", "a", a, out.dtype), as_operand("where", "b", b, out.dtype)
    for operand in (a, b):
        check_out("where", out, operand.dtype, broadcast("where", cond=cond, a=a, b=b))
    a, cond = private(a, out), private(cond, out)
    np.copyto(out, b)
    np.copyto(out, a, where=cond)
