"""Scalar expressions: arithmetic, comparison and logic of symbolic integers, floats and bools.

The functions (and Python's operators, which call them) fold constants and drop neutral elements;
the classes only build a node.  `//` and `%` round towards minus infinity.

Source: PrimExpr of apache-tvm 0.27 (``tvm.tirx``).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, ClassVar, Final

from .expr import (
    SCALAR_OPERATORS,
    Expr,
    FloatImm,
    IntImm,
    Operators,
    PrimType,
    prim_type,
)
from .parts import MOST_EXPR_PARTS, check_parts

__all__ = [
    "EQ",
    "GE",
    "GT",
    "LE",
    "LT",
    "NE",
    "Add",
    "And",
    "BinaryOpExpr",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Cast",
    "CmpExpr",
    "Div",
    "FloorDiv",
    "FloorMod",
    "LShift",
    "Let",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Not",
    "Or",
    "RShift",
    "Select",
    "Sub",
    "as_scalar",
    "cast",
    "floordiv",
    "floormod",
    "logical_and",
    "logical_not",
    "logical_or",
    "maximum",
    "minimum",
    "select",
    "truncdiv",
    "truncmod",
]


class BinaryOpExpr(Expr):
    """A scalar operation of two operands; they and the result have the same data type."""

    __slots__ = ("_parts", "a", "b")
    FIELDS = ("a", "b")

    SYMBOL: ClassVar[str] = ""
    """The operator as printed between its operands, or the name of a function."""
    EVALUATE: ClassVar[Any]
    """The operation on Python numbers, whose integers have unlimited width."""

    a: Expr
    b: Expr

    def __init__(self, a: Expr, b: Expr, span: Any = None) -> None:
        self.a = a
        self.b = b
        self._parts = parts = 1 + a._parts + b._parts
        if parts > MOST_EXPR_PARTS:
            check_parts(parts)
        self.ty = a.ty
        self.span = span


class CmpExpr(BinaryOpExpr):
    """A comparison; the result is bool."""

    __slots__ = ()

    def __init__(self, a: Expr, b: Expr, span: Any = None) -> None:
        super().__init__(a, b, span)
        self.ty = _BOOL


_BOOL: Final = prim_type("bool")


def truncated_division(a: int, b: int) -> int:
    """a / b, rounded towards zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def truncated_remainder(a: int, b: int) -> int:
    """The remainder of `truncated_division`; it has the sign of a."""
    return a - b * truncated_division(a, b)


def _divide(a: Any, b: Any) -> Any:
    return a / b if isinstance(a, float) else truncated_division(a, b)


def _remainder(a: Any, b: Any) -> Any:
    return math.fmod(a, b) if isinstance(a, float) else truncated_remainder(a, b)


def _and(a: Any, b: Any) -> Any:
    return a and b


def _or(a: Any, b: Any) -> Any:
    return a or b


class Add(BinaryOpExpr):
    """a + b"""

    __slots__ = ()
    SYMBOL = "+"
    EVALUATE = staticmethod(operator.add)


class Sub(BinaryOpExpr):
    """a - b"""

    __slots__ = ()
    SYMBOL = "-"
    EVALUATE = staticmethod(operator.sub)


class Mul(BinaryOpExpr):
    """a * b"""

    __slots__ = ()
    SYMBOL = "*"
    EVALUATE = staticmethod(operator.mul)


class Div(BinaryOpExpr):
    """a / b; for integers rounded towards zero"""

    __slots__ = ()
    SYMBOL = "/"
    EVALUATE = staticmethod(_divide)


class Mod(BinaryOpExpr):
    """the remainder of `Div`, with the sign of a"""

    __slots__ = ()
    SYMBOL = "truncmod"
    EVALUATE = staticmethod(_remainder)


class FloorDiv(BinaryOpExpr):
    """a // b, towards minus infinity"""

    __slots__ = ()
    SYMBOL = "//"
    EVALUATE = staticmethod(operator.floordiv)


class FloorMod(BinaryOpExpr):
    """a % b, with the sign of b"""

    __slots__ = ()
    SYMBOL = "%"
    EVALUATE = staticmethod(operator.mod)


class Min(BinaryOpExpr):
    """the lesser of a and b"""

    __slots__ = ()
    SYMBOL = "min"
    EVALUATE = staticmethod(min)


class Max(BinaryOpExpr):
    """the greater of a and b"""

    __slots__ = ()
    SYMBOL = "max"
    EVALUATE = staticmethod(max)


class BitwiseAnd(BinaryOpExpr):
    """a & b"""

    __slots__ = ()
    SYMBOL = "&"
    EVALUATE = staticmethod(operator.and_)


class BitwiseOr(BinaryOpExpr):
    """a | b"""

    __slots__ = ()
    SYMBOL = "|"
    EVALUATE = staticmethod(operator.or_)


class BitwiseXor(BinaryOpExpr):
    """a ^ b"""

    __slots__ = ()
    SYMBOL = "^"
    EVALUATE = staticmethod(operator.xor)


class LShift(BinaryOpExpr):
    """a << b"""

    __slots__ = ()
    SYMBOL = "<<"
    EVALUATE = staticmethod(operator.lshift)


class RShift(BinaryOpExpr):
    """a >> b; an arithmetic shift for signed integers"""

    __slots__ = ()
    SYMBOL = ">>"
    EVALUATE = staticmethod(operator.rshift)


class LT(CmpExpr):
    """a < b"""

    __slots__ = ()
    SYMBOL = "<"
    EVALUATE = staticmethod(operator.lt)


class LE(CmpExpr):
    """a <= b"""

    __slots__ = ()
    SYMBOL = "<="
    EVALUATE = staticmethod(operator.le)


class GT(CmpExpr):
    """a > b"""

    __slots__ = ()
    SYMBOL = ">"
    EVALUATE = staticmethod(operator.gt)


class GE(CmpExpr):
    """a >= b"""

    __slots__ = ()
    SYMBOL = ">="
    EVALUATE = staticmethod(operator.ge)


class And(CmpExpr):
    """a and b"""

    __slots__ = ()
    SYMBOL = "and"
    EVALUATE = staticmethod(_and)


class Or(CmpExpr):
    """a or b"""

    __slots__ = ()
    SYMBOL = "or"
    EVALUATE = staticmethod(_or)


class _Equality(CmpExpr):
    """An equality or inequality; its truth value in Python is that of structural equality."""

    __slots__ = ()
    EQUAL: ClassVar[bool]

    def __bool__(self) -> bool:
        return same(self.a, self.b) == self.EQUAL


class EQ(_Equality):
    """a == b"""

    __slots__ = ()
    SYMBOL = "=="
    EVALUATE = staticmethod(operator.eq)
    EQUAL = True


class NE(_Equality):
    """a != b"""

    __slots__ = ()
    SYMBOL = "!="
    EVALUATE = staticmethod(operator.ne)
    EQUAL = False


def same(a: Expr, b: Expr) -> bool:
    """Check whether two scalars are structurally equal; a variable is equal only to itself."""
    if a is b:
        return True
    if type(a) is not type(b) or not a.FIELDS:
        return False
    for field in a.FIELDS:
        x, y = getattr(a, field), getattr(b, field)
        if isinstance(x, Expr):
            if not (isinstance(y, Expr) and same(x, y)):
                return False
        elif type(x) is PrimType:
            if type(y) is not PrimType or x.dtype != y.dtype:
                return False
        elif isinstance(x, tuple):
            if len(x) != len(y) or not all(
                same(i, j) if isinstance(i, Expr) else i is j for i, j in zip(x, y, strict=True)
            ):
                return False
        elif type(x) is not type(y) or (x != y and not (x != x and y != y)):
            return False
    return True


class Not(Expr):
    """not a"""

    __slots__ = ("_parts", "a")
    FIELDS = ("a",)
    a: Expr

    def __init__(self, a: Expr, span: Any = None) -> None:
        self.a = a
        self._parts = check_parts(1 + a._parts)
        self.ty = _BOOL
        self.span = span


class BitwiseNot(Expr):
    """~a"""

    __slots__ = ("_parts", "a")
    FIELDS = ("a",)
    a: Expr

    def __init__(self, a: Expr, span: Any = None) -> None:
        self.a = a
        self._parts = check_parts(1 + a._parts)
        self.ty = a.ty
        self.span = span


class Cast(Expr):
    """`value` converted to another data type."""

    __slots__ = ("_parts", "value")
    FIELDS = ("value", "ty")
    value: Expr

    def __init__(self, dtype: str, value: Expr, span: Any = None) -> None:
        self.value = value
        self._parts = check_parts(1 + value._parts)
        self.ty = prim_type(dtype)
        self.span = span


class Select(Expr):
    """`true_value` if `condition` else `false_value`; both may be evaluated."""

    __slots__ = ("_parts", "condition", "false_value", "true_value")
    FIELDS = ("condition", "true_value", "false_value")
    condition: Expr
    true_value: Expr
    false_value: Expr

    def __init__(
        self, condition: Expr, true_value: Expr, false_value: Expr, span: Any = None
    ) -> None:
        self.condition = condition
        self.true_value = true_value
        self.false_value = false_value
        self._parts = check_parts(1 + condition._parts + true_value._parts + false_value._parts)
        self.ty = true_value.ty
        self.span = span


class Let(Expr):
    """`body`, in which `var` is bound to `value`."""

    __slots__ = ("_parts", "body", "value", "var")
    FIELDS = ("value", "var", "body")
    DEFS = frozenset({"var"})
    var: Any
    value: Expr
    body: Expr

    def __init__(self, var: Any, value: Expr, body: Expr, span: Any = None) -> None:
        self.var = var
        self.value = value
        self.body = body
        self._parts = check_parts(1 + value._parts + body._parts)
        self.ty = body.ty
        self.span = span


# Construction with folding


def as_scalar(value: Any, dtype: str | None = None) -> Expr:
    """Return a number or scalar expression as a scalar.  A number gets the data type `dtype`, or
    else int64, float32 or bool.

    Raises:
        TypeError: not a scalar.
        OverflowError: the number does not fit the data type.
    """
    if isinstance(value, Operators):
        expr: Expr = value.as_expr()
        if type(expr.ty) is not PrimType:
            raise TypeError(f"expected a scalar, got {expr} of type {expr.ty}")
        return expr
    if hasattr(value, "item") and getattr(value, "shape", ()) == ():
        value = value.item()
    if isinstance(value, bool):
        return immediate(dtype or "bool", value)
    if isinstance(value, int):
        return immediate(dtype or "int64", value)
    if isinstance(value, float):
        return immediate(dtype or "float32", value)
    raise TypeError(f"expected a scalar, got {type(value).__name__}")


def is_float(dtype: str) -> bool:
    """Check whether a data type is a floating-point type."""
    return dtype.startswith(("float", "bfloat"))


def immediate(dtype: str, value: Any) -> IntImm | FloatImm:
    """Return a constant of a data type.

    Raises:
        TypeError: the value is a float and the data type is not.
        OverflowError: the value is out of range.
    """
    if is_float(dtype):
        return FloatImm(dtype, value)
    if isinstance(value, float):
        raise TypeError(f"{value} is not a value of {dtype}")
    low, high = _range(dtype)
    if not low <= value <= high:
        raise OverflowError(f"{value} does not fit {dtype}")
    return IntImm(dtype, int(value))


def _range(dtype: str) -> tuple[int, int]:
    if dtype == "bool":
        return 0, 1
    if dtype.startswith("uint"):
        return 0, 2 ** int(dtype[4:]) - 1
    if dtype.startswith("int"):
        bits = int(dtype[3:])
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    raise TypeError(f"{dtype} is not an integer data type")


def _pair(a: Any, b: Any) -> tuple[Expr, Expr]:
    """Convert two operands to a common data type: a number gets that of the other operand; of two
    scalars the narrower is cast to the wider, and integers to floats."""
    if not isinstance(a, Expr):
        b = as_scalar(b)
        return _number(a, b), b
    if not isinstance(b, Expr):
        a = as_scalar(a)
        return a, _number(b, a)
    ta, tb = a.dtype, b.dtype
    if ta == tb:
        return a, b
    wider = _wider(ta, tb)
    return cast(a, wider), cast(b, wider)


def _number(value: Any, other: Expr) -> Expr:
    dtype = other.dtype
    if dtype == "bool" and not isinstance(value, bool):
        return as_scalar(value)
    if isinstance(value, float) and not is_float(dtype):
        return as_scalar(value)
    return as_scalar(value, dtype)


def _wider(a: str, b: str) -> str:
    def rank(dtype: str) -> tuple[int, int, int]:
        if dtype == "bool":
            return 0, 1, 0
        digits = int("".join(c for c in dtype if c.isdigit()) or "64")
        return int(is_float(dtype)), digits, int(dtype.startswith("uint"))

    return max(a, b, key=rank)


def _fold(cls: Any, a: Any, b: Any) -> Expr:
    """Return the node, or a constant if both operands are constants."""
    a, b = _pair(a, b)
    kind = type(a)
    if kind is type(b) and (kind is IntImm or kind is FloatImm):
        folded = fold_constants(cls, a, b)
        if folded is not None:
            return folded
    node: Expr = cls(a, b)
    return node


def fold_constants(cls: Any, a: Any, b: Any) -> IntImm | FloatImm | None:
    """Return `cls(a, b)` of two constants as a constant; None if it fails at run time (division by
    zero, overflow)."""
    if b.value == 0 and cls in (Div, Mod, FloorDiv, FloorMod):
        return None
    if cls in (LShift, RShift) and not 0 <= b.value < 64:
        return None
    value = cls.EVALUATE(a.value, b.value)
    dtype = "bool" if issubclass(cls, CmpExpr) else a.ty.dtype
    if is_float(dtype):
        if dtype == "float64":
            return FloatImm(dtype, value)
        if dtype == "float32":
            return FloatImm(dtype, float(_float32(value)))
        return None
    low, high = _range(dtype)
    return IntImm(dtype, int(value)) if low <= value <= high else None


def _float32(value: float) -> Any:
    import numpy as np

    with np.errstate(all="ignore"):
        return np.float32(value)


def _is(x: Expr, value: int) -> bool:
    return (type(x) is IntImm or type(x) is FloatImm) and x.value == value


def add(a: Any, b: Any) -> Expr:
    """a + b"""
    x, y = _pair(a, b)
    if type(x.ty) is PrimType and not is_float(x.ty.dtype):
        if _is(x, 0):
            return y
        if _is(y, 0):
            return x
    return _fold(Add, x, y)


def subtract(a: Any, b: Any) -> Expr:
    """a - b"""
    x, y = _pair(a, b)
    if _is(y, 0):
        return x
    return _fold(Sub, x, y)


def multiply(a: Any, b: Any) -> Expr:
    """a * b"""
    x, y = _pair(a, b)
    if _is(x, 1):
        return y
    if _is(y, 1):
        return x
    if not is_float(x.dtype):
        if _is(x, 0):
            return x
        if _is(y, 0):
            return y
    return _fold(Mul, x, y)


def divide(a: Any, b: Any) -> Expr:
    """a / b of floats.

    Raises:
        TypeError: the operands are integers; use `//` or `truncdiv` to say how to round.
    """
    x, y = _pair(a, b)
    if not is_float(x.dtype):
        raise TypeError(
            f"{x} / {y}: division of integers; write // (rounds towards minus infinity) or "
            "truncdiv (towards zero)"
        )
    return _fold(Div, x, y)


def floordiv(a: Any, b: Any) -> Expr:
    """a // b, rounded towards minus infinity."""
    x, y = _pair(a, b)
    if _is(y, 1) and not is_float(x.dtype):
        return x
    return _fold(FloorDiv, x, y)


def floormod(a: Any, b: Any) -> Expr:
    """a % b, with the sign of b."""
    x, y = _pair(a, b)
    if _is(y, 1) and not is_float(x.dtype):
        return immediate(x.dtype, 0)
    return _fold(FloorMod, x, y)


def truncdiv(a: Any, b: Any) -> Expr:
    """a / b of integers, rounded towards zero."""
    return _fold(Div, a, b)


def truncmod(a: Any, b: Any) -> Expr:
    """The remainder of `truncdiv`."""
    return _fold(Mod, a, b)


def _extreme(cls: Any) -> Callable[[Any, Any], Expr]:
    def make(a: Any, b: Any) -> Expr:
        x, y = _pair(a, b)
        return x if x is y else _fold(cls, x, y)

    return make


minimum = _extreme(Min)
maximum = _extreme(Max)


def negative(a: Expr) -> Expr:
    """-a"""
    if isinstance(a, (IntImm, FloatImm)):
        return immediate(a.dtype, -a.value)
    return subtract(-0.0 if is_float(a.dtype) else 0, a)


def equal(a: Any, b: Any) -> Expr:
    """a == b; always a node, never folded, since Python may take its truth value."""
    return EQ(*_pair(a, b))


def not_equal(a: Any, b: Any) -> Expr:
    """a != b; always a node, never folded."""
    return NE(*_pair(a, b))


def _bool(a: Any) -> Expr:
    scalar = as_scalar(a, "bool" if isinstance(a, bool) else None)
    if scalar.dtype != "bool":
        raise TypeError(f"expected a bool scalar, got {scalar} of type {scalar.ty}")
    return scalar


def logical_and(a: Any, b: Any) -> Expr:
    """a and b, of bools."""
    x, y = _bool(a), _bool(b)
    if type(x) is IntImm:
        return y if x.value else x
    if type(y) is IntImm:
        return x if y.value else y
    return And(x, y)


def logical_or(a: Any, b: Any) -> Expr:
    """a or b, of bools."""
    x, y = _bool(a), _bool(b)
    if type(x) is IntImm:
        return x if x.value else y
    if type(y) is IntImm:
        return y if y.value else x
    return Or(x, y)


def logical_not(a: Any) -> Expr:
    """not a, of a bool."""
    x = _bool(a)
    return IntImm("bool", not x.value) if type(x) is IntImm else Not(x)


def cast(a: Any, dtype: str) -> Expr:
    """a converted to another data type; constants that fit it are folded."""
    x = as_scalar(a)
    if x.dtype == dtype:
        return x
    if type(x) is IntImm and dtype != "handle":
        if is_float(dtype):
            return FloatImm(dtype, x.value)
        low, high = _range(dtype)
        if dtype == "bool":
            return IntImm("bool", x.value != 0)
        if low <= x.value <= high:
            return IntImm(dtype, x.value)
    if type(x) is FloatImm and dtype == "float64" and x.dtype in ("float32", "float16"):
        return FloatImm(dtype, x.value)
    return Cast(dtype, x)


def select(condition: Any, true_value: Any, false_value: Any) -> Expr:
    """`true_value` if `condition` else `false_value`."""
    which = _bool(condition)
    x, y = _pair(true_value, false_value)
    if type(which) is IntImm:
        return x if which.value else y
    return Select(which, x, y)


def _logic(bits: Any, logical: Any) -> Callable[[Any, Any], Expr]:
    """`&` and `|`: the logical operation for bools, the bitwise one for integers."""

    def make(a: Any, b: Any) -> Expr:
        a, b = _pair(a, b)
        if a.dtype == "bool":
            node: Expr = logical(a, b)
            return node
        return _on_bits(bits)(a, b)

    return make


def bitwise_not(a: Any) -> Expr:
    """~a; for a bool its negation."""
    a = as_scalar(a)
    if a.dtype == "bool":
        return logical_not(a)
    problem = bits_problem(BitwiseNot, a)
    if problem is not None:
        raise TypeError(f"~{a}: {problem}")
    return immediate(a.dtype, ~a.value) if type(a) is IntImm else BitwiseNot(a)


def bits_problem(cls: type, *operands: Expr) -> str | None:
    """Say why an operation on bits does not take operands; None if it does, or is another one.

    ``&``, ``|``, ``^`` and ``~`` take integers and bools, shifts integers.
    """
    if cls not in _ON_BITS:
        return None
    kinds, expected = _ON_BITS[cls]
    for operand in operands:
        dtype = operand.dtype
        if "int" not in dtype and not (dtype == "bool" and kinds == "ib"):
            return f"expected {expected}, got {' and '.join(o.dtype for o in operands)}"
    return None


_ON_BITS: Final[dict[type, tuple[str, str]]] = {
    **dict.fromkeys((BitwiseAnd, BitwiseOr, BitwiseXor), ("ib", "integers or bools")),
    **dict.fromkeys((LShift, RShift), ("i", "integers")),
    BitwiseNot: ("ib", "an integer or a bool"),
}


def _on_bits(cls: Any) -> Callable[[Any, Any], Expr]:
    def make(a: Any, b: Any) -> Expr:
        a, b = _pair(a, b)
        problem = bits_problem(cls, a, b)
        if problem is not None:
            raise TypeError(f"{a} {cls.SYMBOL} {b}: {problem}")
        return _fold(cls, a, b)

    return make


def _folding(cls: Any) -> Callable[[Any, Any], Expr]:
    def make(a: Any, b: Any) -> Expr:
        return _fold(cls, a, b)

    return make


SCALAR_OPERATORS.update(
    {
        "add": add,
        "subtract": subtract,
        "multiply": multiply,
        "divide": divide,
        "floor_divide": floordiv,
        "mod": floormod,
        "negative": negative,
        "eq": equal,
        "ne": not_equal,
        "less": _folding(LT),
        "less_equal": _folding(LE),
        "greater": _folding(GT),
        "greater_equal": _folding(GE),
        "bitwise_and": _logic(BitwiseAnd, logical_and),
        "bitwise_or": _logic(BitwiseOr, logical_or),
        "bitwise_xor": _on_bits(BitwiseXor),
        "bitwise_not": bitwise_not,
        "left_shift": _on_bits(LShift),
        "right_shift": _on_bits(RShift),
        "astype": cast,
    }
)
