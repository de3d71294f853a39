"""Expressions of symbolic dimensions as an archive has them: constructors or formulas of SymPy."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from ...ir import Expr, FloatImm, IntImm, prim
from ...ir.arith import simplify
from ...messages import readable
from ..common.emitter import Problem

__all__ = ["number", "parsed"]

_LONGEST: Final = 10_000
_MOST_NESTED: Final = 64
_MOST_BITS: Final = 128
"""Of an integer.  Powers of powers would have any number of digits."""


def parsed(
    text: str, symbol: Callable[[str], Any], place: Callable[[str], Any] | None = None
) -> Any:
    """The int, float, bool or expression that a text means.

    Args:
        text: such as ``Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(1))`` or
            ``2*s0 + 1``.
        symbol: returns the expression of a name.
        place: returns that of a place of the inputs, such as ``L['x'].size()[0]``; without it there
            are none.

    Raises:
        Problem: it is malformed, or has a function that is not supported.
    """
    if len(text) > _LONGEST:
        raise Problem(f"an expression of dimensions has {len(text)} characters")
    depth = most = 0
    for char in text:
        depth += (char in "([") - (char in ")]")
        most = max(most, depth)
    if most > _MOST_NESTED:
        raise Problem(f"an expression of dimensions is nested deeper than {_MOST_NESTED}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise Problem(f"expected an expression of dimensions, got {readable(text)!r}") from None
    try:
        return number(_Reader(symbol, place).value(tree))
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise Problem(f"the expression of dimensions {readable(text)!r}: {error}") from None


def number(value: Any) -> Any:
    """An expression that is a number as that number."""
    if isinstance(value, Expr):
        value = simplify(value)
        if isinstance(value, IntImm):
            return bool(value.value) if value.dtype == "bool" else value.value
        return value.value if isinstance(value, FloatImm) else value
    return value


class _Reader:
    """Reads the tree of an expression.

    Args:
        symbol, place: as of `parsed`.
    """

    def __init__(
        self, symbol: Callable[[str], Any], place: Callable[[str], Any] | None
    ) -> None:
        self._symbol = symbol
        self._place = place

    def value(self, tree: ast.expr) -> Any:
        """The value of a tree."""
        found = self._value(tree)
        if type(found) is int and found.bit_length() > _MOST_BITS:
            raise ValueError(f"expected integers of at most {_MOST_BITS} bits, got a larger one")
        return found

    def _value(self, tree: ast.expr) -> Any:
        if isinstance(tree, ast.Constant) and type(tree.value) in (int, float, bool):
            return tree.value
        if isinstance(tree, ast.Name):
            known = {"true": True, "false": False}
            return known[tree.id] if tree.id in known else self._symbol(tree.id)
        if isinstance(tree, ast.Subscript) and self._place is not None:
            return self._place(ast.unparse(tree))
        if isinstance(tree, ast.UnaryOp) and type(tree.op) in _UNARY:
            return _UNARY[type(tree.op)](self.value(tree.operand))
        if isinstance(tree, ast.BinOp) and type(tree.op) in _BINARY:
            return _BINARY[type(tree.op)](self.value(tree.left), self.value(tree.right))
        if isinstance(tree, ast.BoolOp):
            found = [self.value(each) for each in tree.values]
            return _all(*found) if isinstance(tree.op, ast.And) else _any(*found)
        if isinstance(tree, ast.Compare) and all(type(op) in _COMPARED for op in tree.ops):
            terms = [self.value(each) for each in (tree.left, *tree.comparators)]
            return _all(*[
                _COMPARED[type(op)](a, b)
                for op, a, b in zip(tree.ops, terms, terms[1:], strict=False)
            ])  # fmt: skip
        if isinstance(tree, ast.Call):
            return self._call(tree)
        raise ValueError("it is malformed")

    def _call(self, tree: ast.Call) -> Any:
        name = tree.func.attr if isinstance(tree.func, ast.Attribute) else getattr(
            tree.func, "id", "")  # fmt: skip
        first = tree.args[0] if tree.args else None
        if name == "Symbol" and isinstance(first, ast.Constant):
            return self._symbol(str(first.value))
        if name == "Float" and isinstance(first, ast.Constant):
            return float(first.value)  # type: ignore[arg-type]
        function = _FUNCTIONS.get(name)
        if function is None:
            raise ValueError(f"the function {readable(name)} is not supported")
        return function(*[self.value(each) for each in tree.args])


def _total(*terms: Any) -> Any:
    found: Any = 0
    for each in terms:
        found = each + found if isinstance(each, Expr) else found + each
    return found


def _product(*factors: Any) -> Any:
    """The product, of which fractions are the divisor: ``Mul(Rational(1, 2), x)`` is x // 2."""
    found: Any = 1
    divisor = 1
    for each in factors:
        if isinstance(each, _Fraction):
            divisor *= each.divisor
            each = each.value
        found = each * found if isinstance(each, Expr) else found * each
    return found if divisor == 1 else _floor_divided(found, divisor)


class _Fraction:
    """A number whose product with another one is an integer."""

    def __init__(self, value: int, divisor: int) -> None:
        self.value = value
        self.divisor = divisor


def _power(base: Any, exponent: Any) -> Any:
    if type(exponent) is not int:
        raise ValueError("powers whose exponent is not known are not supported")
    if exponent == -1 and type(base) is int and base:
        return _Fraction(1, base)
    if not 0 <= exponent <= 16:
        raise ValueError(f"the power of {exponent} is not supported")
    return _product(*[base] * exponent)


def _floor_divided(a: Any, b: Any) -> Any:
    return a // b


def _ceil_divided(a: Any, b: Any) -> Any:
    return -((-a) // b)


def _extreme(expression: Callable[[Any, Any], Any], plain: Callable[..., Any]) -> Any:
    def chosen(*values: Any) -> Any:
        found = values[0]
        for each in values[1:]:
            is_plain = not isinstance(found, Expr) and not isinstance(each, Expr)
            found = plain(found, each) if is_plain else expression(found, each)
        return found

    return chosen


def _all(*values: Any) -> Any:
    found: Any = True
    for each in values:
        if each is False:
            return False
        if each is not True:
            found = each if found is True else prim.logical_and(found, each)
    return found


def _any(*values: Any) -> Any:
    found: Any = False
    for each in values:
        if each is True:
            return True
        if each is not False:
            found = each if found is False else prim.logical_or(found, each)
    return found


def _not(value: Any) -> Any:
    return prim.logical_not(value) if isinstance(value, Expr) else not value


def _equal(a: Any, b: Any) -> Any:
    return prim.equal(a, b) if isinstance(a, Expr) or isinstance(b, Expr) else a == b


def _unequal(a: Any, b: Any) -> Any:
    return prim.not_equal(a, b) if isinstance(a, Expr) or isinstance(b, Expr) else a != b


def _selected(condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, Expr):
        return prim.select(condition, a, b)
    return a if condition else b


def _modular(a: Any, divisor: Any, modulus: Any) -> Any:
    return (a // divisor) % modulus


def _quotient(a: int, b: int) -> Any:
    return _Fraction(a, b)


def _float_divided(a: Any, b: Any) -> Any:
    if isinstance(a, Expr) or isinstance(b, Expr):
        return prim.divide(prim.cast(prim.as_scalar(a), "float64"),
                           prim.cast(prim.as_scalar(b), "float64"))  # fmt: skip
    return a / b


def _to_float(a: Any) -> Any:
    return prim.cast(a, "float64") if isinstance(a, Expr) else float(a)


def _to_int(a: Any) -> Any:
    """A number without its fraction; a length times a factor stays an integer expression."""
    if not isinstance(a, Expr):
        return int(a)
    if isinstance(a, prim.Mul):
        for length, factor in ((a.a, a.b), (a.b, a.a)):
            if isinstance(length, prim.Cast) and isinstance(factor, FloatImm):
                exact = Fraction(factor.value)
                if exact > 0 and exact.denominator <= 1 << 16:
                    return length.value * exact.numerator // exact.denominator
    return prim.cast(a, "int64")


def _whole(value: Any) -> Any:
    """A float as the integer that it is; None if it is not known to be one."""
    if isinstance(value, prim.Cast) and not prim.is_float(value.value.dtype):
        return value.value
    if isinstance(value, FloatImm) and float(value.value).is_integer():
        return int(value.value)
    return None


def _to_floor(a: Any) -> Any:
    """The greatest integer below a float; of a quotient of integers without rounding."""
    if not isinstance(a, Expr):
        return math.floor(a)
    if isinstance(a, prim.Div):
        upper, lower = _whole(a.a), _whole(a.b)
        if upper is not None and lower is not None:
            return simplify(prim.as_scalar(upper) // lower)
    found = prim.cast(a, "int64")
    return found - prim.cast(prim.cast(found, "float64") > a, "int64")


def _to_ceiling(a: Any) -> Any:
    return -_to_floor(-a if not isinstance(a, prim.Div) else prim.divide(_negated(a.a), a.b))


def _ceiling(a: Any) -> Any:
    """As a formula has it: fractions of integers are divided already."""
    return _to_ceiling(a) if not isinstance(a, Expr) or _is_float(a) else a


def _floor(a: Any) -> Any:
    return _to_floor(a) if not isinstance(a, Expr) or _is_float(a) else a


def _is_float(a: Expr) -> bool:
    return prim.is_float(prim.as_scalar(a).dtype)


def _negated(a: Any) -> Any:
    whole = _whole(a)
    return -a if whole is None else prim.cast(prim.as_scalar(-whole), "float64")


def _to_nearest(a: Any) -> Any:
    """The nearest integer; of two the even one."""
    if not isinstance(a, Expr):
        return round(a)
    below = _to_floor(a)
    rest = a - prim.cast(below, "float64")
    up = prim.logical_or(rest > 0.5, prim.logical_and(prim.equal(rest, 0.5),
                                                      prim.equal(below % 2, 1)))  # fmt: skip
    return below + prim.cast(up, "int64")


def _float_power(a: Any, exponent: Any) -> Any:
    if not isinstance(a, Expr) and not isinstance(exponent, Expr):
        return float(a) ** exponent
    if isinstance(exponent, Expr) or float(exponent) not in range(17):
        raise ValueError("powers whose exponent is not known are not supported")
    return _product(*[_to_float(a)] * int(exponent)) if exponent else 1.0


def _absolute(a: Any) -> Any:
    return prim.maximum(a, -a) if isinstance(a, Expr) else abs(a)


def _same(a: Any) -> Any:
    return a


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "Abs": _absolute,
    "Add": _total,
    "And": _all,
    "CeilDiv": _ceil_divided,
    "CeilToInt": _to_ceiling,
    "CleanDiv": _floor_divided,
    "Eq": _equal,
    "Equality": _equal,
    "FloatPow": _float_power,
    "FloatTrueDiv": _float_divided,
    "FloorDiv": _floor_divided,
    "FloorToInt": _to_floor,
    "Ge": lambda a, b: a >= b,
    "GreaterThan": lambda a, b: a >= b,
    "Gt": lambda a, b: a > b,
    "Identity": _same,
    "IntTrueDiv": _float_divided,
    "Integer": _same,
    "LShift": lambda a, b: a * 2**b if type(b) is int and 0 <= b < 64 else a << b,
    "Le": lambda a, b: a <= b,
    "LessThan": lambda a, b: a <= b,
    "Lt": lambda a, b: a < b,
    "Max": _extreme(prim.maximum, max),
    "Min": _extreme(prim.minimum, min),
    "Mod": lambda a, b: a % b,
    "ModularIndexing": _modular,
    "Mul": _product,
    "Ne": _unequal,
    "Not": _not,
    "Or": _any,
    "Pow": _power,
    "PowByNatural": _power,
    "PythonMod": lambda a, b: a % b,
    "RShift": lambda a, b: a >> b,
    "Rational": _quotient,
    "RoundToInt": _to_nearest,
    "StrictGreaterThan": lambda a, b: a > b,
    "StrictLessThan": lambda a, b: a < b,
    "ToFloat": _to_float,
    "TruncToFloat": lambda a: _to_float(_to_int(a)),
    "TruncToInt": _to_int,
    "Unequality": _unequal,
    "Where": _selected,
    "ceil": _ceiling,
    "ceiling": _ceiling,
    "max": _extreme(prim.maximum, max),
    "min": _extreme(prim.minimum, min),
    "floor": _floor,
    "sym_max": _extreme(prim.maximum, max),
    "sym_min": _extreme(prim.minimum, min),
    "trunc": lambda a: _to_int(a) if not isinstance(a, Expr) or _is_float(a) else a,
    "sym_float": _to_float,
}
"""Functions of SymPy and of torch by name."""

_UNARY: Final[dict[type, Callable[[Any], Any]]] = {
    ast.USub: lambda a: -a,
    ast.UAdd: _same,
    ast.Not: _not,
    ast.Invert: _not,
}
_BINARY: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Add: _total,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: _product,
    ast.Div: lambda a, b: _product(a, _Fraction(1, b)) if type(b) is int and b else a / b,
    ast.FloorDiv: _floor_divided,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: _power,
    ast.BitAnd: _all,
    ast.BitOr: _any,
}
_COMPARED: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Eq: _equal,
    ast.NotEq: _unequal,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}
