"""Names of ``tvm.ir`` and ``tvm.tirx`` that relaxvm spells in another way."""

from __future__ import annotations

from typing import Any

from ...ir import Constant, Expr, is_scalar, prim
from ...ir import Var as _Var
from ...ir.node import Attrs
from ...tir import Range as _Range
from ...tir import SeqStmt, Stmt, call_extern, exp, log

__all__ = [
    "DictAttrs",
    "GenericConst",
    "Range",
    "call_pure_extern",
    "is_prim_expr",
    "is_prim_var",
    "ldexp",
    "logaddexp",
    "stmt_list",
    "stmt_seq",
]

DictAttrs = Attrs
GenericConst = Constant


def is_prim_expr(value: Any) -> bool:
    """Whether it is a scalar."""
    return isinstance(value, Expr) and is_scalar(value)


def is_prim_var(value: Any) -> bool:
    """Whether it is a variable for a scalar."""
    return isinstance(value, _Var) and is_scalar(value)


class _RangeType(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Range)


class Range(metaclass=_RangeType):
    """The integers from `begin` to before `end`, or from 0 to before one number."""

    def __new__(cls, begin: Any, end: Any = None, span: Any = None) -> Any:
        """Make the `relaxvm.tir.Range`."""
        if end is None:
            begin, end = 0, begin
        low, high = (
            prim.as_scalar(each, "int32" if isinstance(each, int) else None)
            for each in (begin, end)
        )
        return _Range(low, prim.subtract(high, low), span)

    @staticmethod
    def from_min_extent(min_value: Any, extent: Any, span: Any = None) -> _Range:
        """Return the `extent` integers from `min_value` on."""
        return _Range(min_value, extent, span)


def logaddexp(a: Any, b: Any, span: Any = None) -> Any:
    """Return ``log(exp(a) + exp(b))``."""
    return log(exp(a) + exp(b))


def ldexp(x1: Any, x2: Any, span: Any = None) -> Any:
    """Return ``x1 * 2**x2``, exact where the result is a float of this data type."""
    from ...tir import exp2

    value = prim.as_scalar(x1)
    return value * exp2(prim.cast(prim.as_scalar(x2), value.ty.dtype))


def call_pure_extern(dtype: str, func_name: str, *args: Any, span: Any = None) -> Expr:
    """Return a call of a C function by name.  It can be printed and stored, but not lowered."""
    return call_extern(dtype, func_name, *args, span=span)


def stmt_seq(*args: Any) -> Stmt:
    """Return statements as one, of those and of expressions to evaluate."""
    from ...tir import Evaluate

    found = [each if isinstance(each, Stmt) else Evaluate(each) for each in args]
    return found[0] if len(found) == 1 else SeqStmt(found)


def stmt_list(stmt: Stmt) -> list[Stmt]:
    """Return the statements of a sequence, or a statement alone."""
    if isinstance(stmt, SeqStmt):
        return [part for each in stmt.seq for part in stmt_list(each)]
    return [stmt]
