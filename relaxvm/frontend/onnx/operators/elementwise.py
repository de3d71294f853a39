"""Arithmetic, comparisons, logic, activations and conversions, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....dtypes import as_dtype
from ....ir import Constant, Expr, prim
from ....ir.arith import prove_equal
from ...common.values import Value, elements_of, is_never_negative
from ..graph import Graph, Problem
from ..registry import onnx
from .ranks import rank_of
from .text import strings_equal

__all__: list[str] = []


def scalar(graph: Graph, number: float, like: Value | Expr) -> Expr:
    """A number as a constant of the data type of another value."""
    dtype = like.dtype if isinstance(like, Value) else like.ty.dtype
    if dtype is None:
        raise Problem("the data type of the operand is not known")
    return Constant(np.asarray(number, as_dtype(dtype)))


def _is_float(value: Value) -> bool:
    return value.dtype is not None and "float" in value.dtype


# Arithmetic


def _truncated(a: Any, b: Any) -> Any:
    """Division as ONNX has it: integers are rounded towards zero."""
    if a.dtype == object or b.dtype == object:
        # Expressions have floor division alone, which is the same if no operand is negative.
        if not all(is_never_negative(each) for array in (a, b) for each in elements_of(array)):
            return None
        if 0 in [each for each in elements_of(b) if isinstance(each, int)]:
            return None  # the program raises the error
        return np.floor_divide(a, b)
    if a.dtype.kind not in "iu":
        with np.errstate(all="ignore"):
            return np.divide(a, b)
    if not np.all(b):
        return None  # the program raises the error
    with np.errstate(over="ignore"):  # the least integer divided by -1
        found = np.floor_divide(a, b)
        rest = a - found * b
    return (found + ((rest != 0) & ((rest < 0) != (a < 0)))).astype(a.dtype)


def _quietly(function: Callable[..., Any]) -> Callable[..., Any]:
    def fold(*arrays: Any) -> Any:
        if any(array.dtype.kind == "f" for array in arrays):
            with np.errstate(all="ignore"):
                return function(*arrays)
        return function(*arrays)

    return fold


def _numbers_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """A fold for elements that are numbers, not expressions."""

    def fold(*arrays: Any) -> Any:
        if any(array.dtype == object for array in arrays):
            return None
        with np.errstate(all="ignore"):
            return function(*arrays)

    return fold


def _chosen(ufunc: Any, extreme: Callable[[Any, Any], Expr]) -> Callable[..., Any]:
    def fold(*arrays: Any) -> Any:
        found = arrays[0]
        for other in arrays[1:]:
            if found.dtype != object and other.dtype != object:
                found = ufunc(found, other)
            else:
                found = np.frompyfunc(lambda a, b: extreme(prim.as_scalar(a), prim.as_scalar(b)),
                                      2, 1)(found, other)  # fmt: skip
                found = np.asarray(found, object)
        return found

    return fold


_BINARY: Final[dict[str, tuple[str, Callable[..., Any] | None]]] = {
    "Add": ("add", _quietly(np.add)),
    "Sub": ("subtract", _quietly(np.subtract)),
    "Mul": ("multiply", _quietly(np.multiply)),
    "Div": ("divide", _truncated),
    "And": ("logical_and", _numbers_alone(np.logical_and)),
    "Or": ("logical_or", _numbers_alone(np.logical_or)),
    "Xor": ("logical_xor", _numbers_alone(np.logical_xor)),
    "Less": ("less", _numbers_alone(np.less)),
    "LessOrEqual": ("less_equal", _numbers_alone(np.less_equal)),
    "Greater": ("greater", _numbers_alone(np.greater)),
    "GreaterOrEqual": ("greater_equal", _numbers_alone(np.greater_equal)),
    "BitwiseAnd": ("bitwise_and", _numbers_alone(np.bitwise_and)),
    "BitwiseOr": ("bitwise_or", _numbers_alone(np.bitwise_or)),
    "BitwiseXor": ("bitwise_xor", _numbers_alone(np.bitwise_xor)),
}


def _binary(name: str, target: str, fold: Callable[..., Any] | None) -> None:
    def convert(g: Graph, a: Value, b: Value) -> Expr:
        return g.with_known_dims(g.op(target, a, b), a, b)

    def old(g: Graph, a: Value, b: Value, *, axis: int = -1, broadcast: int = 0) -> Expr:
        return g.op(target, a, _aligned(g, a, b, axis) if broadcast else b)

    convert.__doc__ = old.__doc__ = f"R.{target}."
    onnx(name, since=7, fold=fold)(convert)
    if name in ("Add", "Sub", "Mul", "Div", "And", "Or", "Xor", "Less", "Greater", "Equal"):
        onnx(name, since=1)(old)


def _aligned(g: Graph, a: Value, b: Value, axis: int) -> Value:
    """The second operand with axes of length 1 behind it, where the first versions say so."""
    if axis == -1 or b.ndim == 0:
        return b
    rank = a.ndim if a.ndim >= 0 else rank_of(a, "A", axis + 1)
    after = rank - axis - rank_of(b, "B", 0, max(0, rank - axis))
    return Value(g.op("expand_dims", b, tuple(range(b.ndim, b.ndim + after))) if after > 0
                 else g.expr(b))  # fmt: skip


def _same(a: NDArray[Any], b: NDArray[Any]) -> Any:
    if a.dtype != object and b.dtype != object:
        return np.equal(a, b)
    left, right = np.broadcast_arrays(a, b)
    found = []
    for x, y in zip(elements_of(left), elements_of(right), strict=True):
        if isinstance(x, int) and isinstance(y, int):
            found.append(x == y)
        elif isinstance(x, int) or isinstance(y, int):
            number, other = (x, y) if isinstance(x, int) else (y, x)
            if number >= 0 or not is_never_negative(other):
                return None  # known only when the model runs
            found.append(False)
        elif prove_equal(x, y):
            found.append(True)
        else:
            return None
    return np.array(found, bool).reshape(left.shape)


for _name, (_target, _fold) in _BINARY.items():
    _binary(_name, _target, _fold)
_binary("Equal", "equal", _same)


@onnx("Equal", since=19, fold=_same)
def equal(g: Graph, a: Value, b: Value) -> Expr | Value:
    """R.equal; strings are compared, too."""
    if "str" in (a.dtype, b.dtype):
        return strings_equal(g, a, b)
    return g.op("equal", a, b)


@onnx("Pow", since=1)
def pow_since_1(g: Graph, a: Value, b: Value, *, axis: int = -1, broadcast: int = 0) -> Expr:
    """R.power, of the data type of the base."""
    return pow_(g, a, _aligned(g, a, b, axis) if broadcast else b)


@onnx("Pow", since=7)
def pow_(g: Graph, a: Value, b: Value) -> Expr:
    """R.power, of the data type of the base."""
    exponent = b.constant()
    if exponent is not None and exponent.size == 1 and exponent.ndim <= a.ndim and _is_float(a):
        number = exponent.item()
        if number == 2:
            return g.op("multiply", a, a)
        if number == 0.5:
            return g.op("sqrt", a)
    if a.dtype == b.dtype:
        return g.op("power", a, b)
    wide = "float64" if not _is_float(a) else a.dtype
    x = a if a.dtype == wide else Value(g.op("astype", a, wide))
    y = b if b.dtype == wide else Value(g.op("astype", b, wide))
    result = g.op("power", x, y)
    return result if a.dtype == wide else g.op("astype", result, a.dtype)


@onnx("Mod", since=10)
def mod(g: Graph, a: Value, b: Value, *, fmod: int = 0) -> Expr:
    """R.floor_mod, or R.mod with fmod."""
    return g.op("mod" if fmod else "floor_mod", a, b)


@onnx("BitShift", since=11)
def bit_shift(g: Graph, a: Value, b: Value, *, direction: str) -> Expr:
    """R.left_shift or R.right_shift."""
    if direction not in ("LEFT", "RIGHT"):
        raise Problem(f"direction: expected LEFT or RIGHT, got {direction!r}")
    return g.op("left_shift" if direction == "LEFT" else "right_shift", a, b)


def _variadic(name: str, target: str, fold: Callable[..., Any] | None) -> None:
    def convert(g: Graph, *xs: Value) -> Any:
        if not xs:
            raise Problem("expected one or more inputs, got none")
        found: Value = xs[0]
        for other in xs[1:]:
            found = Value(g.op(target, found, other))
        if name == "Mean":
            return g.op("divide", found, scalar(g, len(xs), found))
        return found

    convert.__doc__ = f"R.{target} of all inputs."
    onnx(name, since=1, fold=fold)(convert)


_variadic("Max", "maximum", _chosen(np.maximum, prim.maximum))
_variadic("Min", "minimum", _chosen(np.minimum, prim.minimum))
_variadic("Sum", "add", None)
_variadic("Mean", "add", None)


# Functions of one operand

_UNARY: Final = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh",
    "Atan": "atan", "Atanh": "atanh", "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos",
    "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "IsNaN": "isnan", "Log": "log",
    "Neg": "negative", "Not": "logical_not", "Relu": "nn.relu", "Round": "round",
    "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt",
    "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip


def _negative(x: NDArray[Any]) -> Any:
    """-x, of lengths of axes, too."""
    return np.subtract(0, x) if x.dtype == object else np.negative(x)


_FOLDED: Final[dict[str, Callable[..., Any]]] = {
    "Abs": np.abs, "Ceil": np.ceil, "Floor": np.floor, "Neg": _negative, "Not": np.logical_not,
    "Sqrt": np.sqrt, "Round": np.rint,
}  # fmt: skip


_SINCE_THE_FIRST: Final = frozenset({"Not"})


def _unary(name: str, target: str) -> None:
    def convert(g: Graph, x: Value) -> Expr:
        return g.op(target, x)

    convert.__doc__ = f"R.{target}."
    fold = _FOLDED.get(name)
    since = 1 if name in _SINCE_THE_FIRST else 6  # before version 6 others had `consumed_inputs`
    if fold is not None and name != "Neg":
        fold = _numbers_alone(fold)
    onnx(name, since=since, fold=fold)(convert)


for _name, _target in _UNARY.items():
    _unary(_name, _target)


@onnx("Identity", since=1)
def identity(g: Graph, x: Value) -> Value:
    """The value itself."""
    return x


@onnx("Reciprocal", since=6)
def reciprocal(g: Graph, x: Value) -> Expr:
    """R.divide of 1."""
    return g.op("divide", scalar(g, 1, x), x)


@onnx("IsInf", since=10)
def is_inf(
    g: Graph, x: Value, *, detect_negative: int = 1, detect_positive: int = 1
) -> Expr:
    """R.isinf, of one or both signs."""
    if detect_negative and detect_positive:
        return g.op("isinf", x)
    if not detect_negative and not detect_positive:
        return g.op("zeros_like", x, "bool")
    bound = math.inf if detect_positive else -math.inf
    return g.op("equal", x, scalar(g, bound, x))


@onnx("Elu", since=6)
def elu(g: Graph, x: Value, *, alpha: float = 1.0) -> Expr:
    """x where it is positive, else alpha * (exp(x) - 1)."""
    zero = scalar(g, 0, x)
    negative = g.op("minimum", x, zero)  # exp of large numbers, which is not used, overflows
    below = g.op("multiply", g.op("expm1", negative), scalar(g, alpha, x))
    return g.op("where", g.op("less", x, zero), below, x)


@onnx("Selu", since=6)
def selu(
    g: Graph, x: Value, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805
) -> Expr:
    """gamma times elu."""
    return g.op("multiply", elu(g, x, alpha=alpha), scalar(g, gamma, x))


@onnx("Celu", since=12)
def celu(g: Graph, x: Value, *, alpha: float = 1.0) -> Expr:
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)."""
    zero = scalar(g, 0, x)
    ratio = g.op("divide", x, scalar(g, alpha, x))
    if alpha > 0:  # exp of large numbers, which is not used, overflows
        ratio = g.op("minimum", ratio, zero)
    below = g.op("minimum", g.op("multiply", g.op("expm1", ratio), scalar(g, alpha, x)), zero)
    return g.op("add", g.op("maximum", x, zero), below)


@onnx("LeakyRelu", since=6)
def leaky_relu(g: Graph, x: Value, *, alpha: float = 0.01) -> Expr:
    """x where it is not negative, else alpha * x."""
    below = g.op("multiply", x, scalar(g, alpha, x))
    return g.op("where", g.op("less", x, scalar(g, 0, x)), below, x)


@onnx("PRelu", since=1)
def prelu_since_1(g: Graph, x: Value, slope: Value, *, consumed_inputs: Any = None) -> Expr:
    """x where it is not negative, else slope * x, with a slope for each channel."""
    is_vector = rank_of(slope, "slope", 0, 2) == 1 and slope.length != 1
    return prelu(g, x, _aligned(g, x, slope, 1) if is_vector else slope)


@onnx("PRelu", since=7)
def prelu(g: Graph, x: Value, slope: Value) -> Expr:
    """x where it is not negative, else slope * x."""
    below = g.op("multiply", x, slope)
    return g.op("where", g.op("less", x, scalar(g, 0, x)), below, x)


@onnx("ThresholdedRelu", since=10)
def thresholded_relu(g: Graph, x: Value, *, alpha: float = 1.0) -> Expr:
    """x where it is above alpha, else 0."""
    return g.op("where", g.op("greater", x, scalar(g, alpha, x)), x, scalar(g, 0, x))


@onnx("HardSigmoid", since=6)
def hard_sigmoid(g: Graph, x: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Expr:
    """alpha * x + beta, within 0 and 1."""
    line = g.op("add", g.op("multiply", x, scalar(g, alpha, x)), scalar(g, beta, x))
    return g.op("clip", line, 0, 1)


@onnx("HardSwish", since=14)
def hard_swish(g: Graph, x: Value) -> Expr:
    """x * hard_sigmoid(x), with alpha 1/6."""
    return g.op("multiply", x, hard_sigmoid(g, x, alpha=1 / 6))


@onnx("Softplus", since=1)
def softplus(g: Graph, x: Value) -> Expr:
    """log(exp(x) + 1)."""
    return g.op("log_add_exp", x, scalar(g, 0, x))


@onnx("Softsign", since=1)
def softsign(g: Graph, x: Value) -> Expr:
    """x / (1 + abs(x))."""
    return g.op("divide", x, g.op("add", g.op("abs", x), scalar(g, 1, x)))


@onnx("Mish", since=18)
def mish(g: Graph, x: Value) -> Expr:
    """x * tanh(softplus(x))."""
    return g.op("multiply", x, g.op("tanh", softplus(g, x)))


@onnx("Swish", since=24)
def swish(g: Graph, x: Value, *, alpha: float = 1.0) -> Expr:
    """x * sigmoid(alpha * x)."""
    if alpha == 1:
        return g.op("nn.silu", x)
    return g.op("multiply", x, g.op("sigmoid", g.op("multiply", x, scalar(g, alpha, x))))


@onnx("Gelu", since=20)
def gelu(g: Graph, x: Value, *, approximate: str = "none") -> Expr:
    """R.nn.gelu, or R.nn.gelu_tanh."""
    if approximate not in ("none", "tanh"):
        raise Problem(f"approximate: expected none or tanh, got {approximate!r}")
    return g.op("nn.gelu_tanh" if approximate == "tanh" else "nn.gelu", x)


@onnx("Clip", since=6)
def clip_by_attributes(
    g: Graph, x: Value, *, min: float = -math.inf, max: float = math.inf  # noqa: A002
) -> Expr:
    """Bounds as attributes."""
    found: Any = x
    if max < 3.4028234e38:
        found = g.op("minimum", found, scalar(g, max, x))
    if min > -3.4028234e38:
        found = g.op("maximum", found, scalar(g, min, x))
    return g.expr(found)


@onnx("Clip", since=11)
def clip(g: Graph, x: Value, low: Value | None = None, high: Value | None = None) -> Expr:
    """The lesser of max and the greater of min and x."""
    found: Any = x
    if low is not None:
        found = g.op("maximum", found, low)
    if high is not None:
        found = g.op("minimum", found, high)
    return g.expr(found)


# Selection


def _fold_where(cond: NDArray[Any], a: NDArray[Any], b: NDArray[Any]) -> Any:
    return None if cond.dtype == object else np.where(cond, a, b)


@onnx("Where", since=9, fold=_fold_where)
def where(g: Graph, condition: Value, x: Value, y: Value) -> Expr:
    """R.where."""
    return g.op("where", condition, x, y)
