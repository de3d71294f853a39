"""Scalar expressions as text, with the fewest parentheses.

When the text is parsed, Python's operators fold constants and drop neutral elements.  A node that
they would not create, such as ``n * 1``, is written with the name of its class: ``T.Mul(n, 1)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from ..ir import prim
from ..ir.expr import Expr, FloatImm, IntImm, Var

__all__ = ["ScalarText", "float_text"]

_ATOM: Final = 13
_UNARY: Final = 11
_NOT: Final = 3

_INFIX: Final[dict[type, tuple[str, int, bool]]] = {
    prim.Or: ("or", 1, True),
    prim.And: ("and", 2, True),
    **{cls: (cls.SYMBOL, 4, False)
       for cls in (prim.EQ, prim.NE, prim.LT, prim.LE, prim.GT, prim.GE)},
    prim.BitwiseOr: ("|", 5, True),
    prim.BitwiseXor: ("^", 6, True),
    prim.BitwiseAnd: ("&", 7, True),
    prim.LShift: ("<<", 8, True),
    prim.RShift: (">>", 8, True),
    prim.Add: ("+", 9, True),
    prim.Sub: ("-", 9, True),
    prim.Mul: ("*", 10, True),
    prim.Div: ("/", 10, True),
    prim.FloorDiv: ("//", 10, True),
    prim.FloorMod: ("%", 10, True),
}  # fmt: skip
"""Class -> (operator, precedence, whether a chain groups to the left without parentheses)."""

_BY_NAME: Final[dict[type, str]] = {prim.Min: "min", prim.Max: "max", prim.Mod: "truncmod"}

_MAKE: Final[dict[type, Callable[[Any, Any], Expr]]] = {
    prim.Or: prim.logical_or,
    prim.And: prim.logical_and,
    prim.EQ: prim.equal,
    prim.NE: prim.not_equal,
    prim.LT: lambda a, b: a < b,
    prim.LE: lambda a, b: a <= b,
    prim.GT: lambda a, b: a > b,
    prim.GE: lambda a, b: a >= b,
    prim.BitwiseOr: lambda a, b: a | b,
    prim.BitwiseXor: lambda a, b: a ^ b,
    prim.BitwiseAnd: lambda a, b: a & b,
    prim.LShift: lambda a, b: a << b,
    prim.RShift: lambda a, b: a >> b,
    prim.Add: prim.add,
    prim.Sub: prim.subtract,
    prim.Mul: prim.multiply,
    prim.Div: prim.divide,
    prim.FloorDiv: prim.floordiv,
    prim.FloorMod: prim.floormod,
    prim.Min: prim.minimum,
    prim.Max: prim.maximum,
    prim.Mod: prim.truncmod,
}
"""Class -> the function that evaluates the operator when the text is parsed."""


def float_text(value: float) -> str:
    """Return a float as text: digits, or "nan", "inf" or "-inf" in quotes."""
    return repr(value) if math.isfinite(value) else f'"{value}"'


class ScalarText:
    """Prints scalars: ``text(expr)``.

    Args:
        var: returns the name of a variable.
        other: returns the text of other expressions (calls, loads); it needs no parentheses.
        plain_int: the data type whose constants are written as plain numbers.
        dtype: returns the text of a data type as a callee, such as ``T.int32``.
    """

    __slots__ = ("_dtype", "_other", "_plain_int", "_var")

    def __init__(
        self,
        var: Callable[[Var], str],
        other: Callable[[Expr], str],
        plain_int: str = "int64",
        dtype: Callable[[str], str] = "T.{}".format,
    ) -> None:
        self._var = var
        self._other = other
        self._plain_int = plain_int
        self._dtype = dtype

    def __call__(self, expr: Expr) -> str:
        return self._text(expr)[0]

    def _text(self, expr: Any) -> tuple[str, int]:
        """The text and its precedence."""
        cls = type(expr)
        if cls is IntImm:
            return self._int(expr)
        if isinstance(expr, Var):
            return self._var(expr), _ATOM
        if cls in _INFIX:
            return self._infix(expr, cls)
        if cls in _BY_NAME:
            if _round_trips(expr, cls):
                return f"T.{_BY_NAME[cls]}({self(expr.a)}, {self(expr.b)})", _ATOM
            return self._raw(cls.__name__, expr.a, expr.b)
        if cls is FloatImm:
            return f"{self._dtype(expr.ty.dtype)}({float_text(expr.value)})", _ATOM
        if cls is prim.Not:
            return self._unary(expr, "not ", _NOT, plain=type(expr.a) is not IntImm)
        if cls is prim.BitwiseNot:
            plain = type(expr.a) is not IntImm and expr.ty.dtype != "bool"
            return self._unary(expr, "~", _UNARY, plain)
        if cls is prim.Cast:
            return f'T.Cast("{expr.ty.dtype}", {self._typed(expr.value)})', _ATOM
        if cls is prim.Select:
            return self._raw("Select", expr.condition, expr.true_value, expr.false_value)
        return self._other(expr), _ATOM

    def _raw(self, name: str, *operands: Expr) -> tuple[str, int]:
        """A node by the name of its class, for which the operator would create another node."""
        return f"T.{name}({', '.join(map(self._typed, operands))})", _ATOM

    def _typed(self, expr: Any) -> str:
        """The text in a context that does not determine the data type of a plain number."""
        if type(expr) is IntImm and expr.ty.dtype != "bool":
            return f"{self._dtype(expr.ty.dtype)}({expr.value})"
        return self(expr)

    def _int(self, expr: IntImm) -> tuple[str, int]:
        dtype, value = expr.ty.dtype, expr.value
        if dtype == "bool":
            return ("True" if value else "False"), _ATOM
        if dtype == self._plain_int:
            return str(value), (_ATOM if value >= 0 else _UNARY)
        return f"{self._dtype(dtype)}({value})", _ATOM

    def _infix(self, expr: Any, cls: type) -> tuple[str, int]:
        a, left = self._text(expr.a)
        b, right = self._text(expr.b)
        symbol, precedence, chains = _INFIX[cls]
        if (symbol == "/" and not prim.is_float(expr.ty.dtype)) or not _round_trips(expr, cls):
            if _is_truncdiv(expr, cls):
                return f"T.truncdiv({a}, {b})", _ATOM
            return self._raw(cls.__name__, expr.a, expr.b)
        if left < precedence or (left == precedence and not chains):
            a = f"({a})"
        if right <= precedence:
            b = f"({b})"
        return f"{a} {symbol} {b}", precedence

    def _unary(self, expr: Any, symbol: str, precedence: int, plain: bool) -> tuple[str, int]:
        if not plain:
            return self._raw(type(expr).__name__, expr.a)
        text, inner = self._text(expr.a)
        return f"{symbol}{text if inner >= precedence else f'({text})'}", precedence


def _is_truncdiv(expr: Any, cls: type) -> bool:
    return cls is prim.Div and not _constants(expr)


def _constants(expr: Any) -> bool:
    return type(expr.a) in (IntImm, FloatImm) and type(expr.b) in (IntImm, FloatImm)


def _round_trips(expr: Any, cls: type) -> bool:
    """Whether the operator applied to the operands creates an equal node."""
    a: Any = expr.a
    b: Any = expr.b
    x, y = type(a), type(b)
    if x is not IntImm and x is not FloatImm and y is not IntImm and y is not FloatImm:
        if cls is prim.Min or cls is prim.Max:
            return a is not b and a.ty.dtype == b.ty.dtype
        if a.ty.dtype != b.ty.dtype:
            return False
        logic = cls is prim.BitwiseAnd or cls is prim.BitwiseOr
        return not (logic and a.ty.dtype == "bool")
    if _constants(expr) or a.ty.dtype != b.ty.dtype:
        return False
    if x is IntImm and (cls is prim.LShift or cls is prim.RShift):
        return False  # a plain Python number cannot be shifted by an expression
    if cls is prim.Div and not prim.is_float(a.ty.dtype):
        return True
    made: Any = _MAKE[cls](a, b)
    same_class = made.__class__ is cls
    return bool(same_class and made.a is a and made.b is b)
