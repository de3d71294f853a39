"""Conversion of shape functions to shape programs, which compute on the shape heap, not in kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from ..executable.shape_program import Step, encode
from ..ir import prim
from ..ir.expr import Expr, IntImm, PrimType, Var
from ..values import Shape
from .buffer import Buffer, BufferLoad
from .function import PrimFunc
from .stmt import BufferStore, SeqStmt, Stmt

__all__ = ["is_shape_arithmetic", "shape_programs_of"]

_LONG: Final = 1024
"""The most words of one program: the limit in `Limits.untrusted`."""
_TOO_LONG: Final = 4096
"""An assignment of more words exceeds the limit in `Limits`."""

_BINARY: Final[dict[type, str]] = {
    prim.Add: "add",
    prim.Sub: "sub",
    prim.Mul: "mul",
    prim.FloorDiv: "floordiv",
    prim.FloorMod: "floormod",
    prim.Min: "min",
    prim.Max: "max",
    prim.EQ: "eq",
    prim.NE: "ne",
    prim.LT: "lt",
    prim.LE: "le",
    prim.GT: "gt",
    prim.GE: "ge",
    prim.And: "and",
    prim.Or: "or",
}


_DIVISIONS: Final = (prim.FloorDiv, prim.FloorMod)


def is_shape_arithmetic(expr: Expr) -> bool:
    """Check whether a shape program can compute a scalar of int64 variables unconditionally.
    Divisors must be nonzero constants, since a program computes all values, needed or not."""
    if type(expr.ty) is not PrimType or expr.ty.dtype not in ("int64", "bool"):
        return False
    if isinstance(expr, IntImm):
        return True
    if isinstance(expr, Var):
        return expr.ty.dtype == "int64"
    if isinstance(expr, _DIVISIONS):
        return isinstance(expr.b, IntImm) and expr.b.value != 0 and is_shape_arithmetic(expr.a)
    if isinstance(expr, prim.BinaryOpExpr):
        return type(expr) in _BINARY and is_shape_arithmetic(expr.a) and is_shape_arithmetic(expr.b)
    if isinstance(expr, prim.Not):
        return is_shape_arithmetic(expr.a)
    if isinstance(expr, prim.Select):
        parts = (expr.condition, expr.true_value, expr.false_value)
        return all(map(is_shape_arithmetic, parts))
    return (
        isinstance(expr, prim.Cast)
        and expr.value.ty.dtype == "bool"
        and is_shape_arithmetic(expr.value)
    )


class _NotShapeArithmetic(Exception):
    """The function does more than shape arithmetic."""


def shape_programs_of(func: PrimFunc) -> tuple[Shape, ...] | None:
    """Return programs for ``relaxvm.builtin.compute_shape`` that are equivalent to a function when
    run one after the other.  None if the function does anything but store int64 and bool arithmetic
    on slots into slots of its only buffer."""
    if len(func.params) != 1 or func.ret_type is not None:
        return None
    (heap,) = func.params
    if not isinstance(heap, Buffer) or heap.ty.dtype != "int64" or len(heap.ty.shape) != 1:
        return None
    try:
        return tuple(_encoded(_assignments(func.body, heap)))
    except _NotShapeArithmetic:
        return None


def _encoded(assignments: Iterable[list[Step]]) -> Iterator[Shape]:
    """Yield programs, each with as many assignments as fit."""
    steps: list[Step] = []
    words = 0
    for assignment in assignments:
        size = sum(1 if isinstance(step, str) else len(step) for step in assignment)
        if size > _TOO_LONG:
            raise _NotShapeArithmetic
        if steps and words + size > _LONG:
            yield encode(steps)
            steps, words = [], 0
        steps += assignment
        words += size
    yield encode(steps)


def _assignments(stmt: Stmt, heap: Buffer) -> Iterator[list[Step]]:
    if type(stmt) is SeqStmt:
        for each in stmt.seq:
            yield from _assignments(each, heap)
    elif type(stmt) is BufferStore and stmt.buffer is heap:
        yield [*_value(stmt.value, heap), ("store", _slot(stmt.indices, heap))]
    else:
        raise _NotShapeArithmetic


def _value(expr: Expr, heap: Buffer) -> Iterator[Step]:
    if type(expr.ty) is not PrimType or expr.ty.dtype not in ("int64", "bool"):
        raise _NotShapeArithmetic
    kind = type(expr)
    if isinstance(expr, IntImm):
        yield "const", expr.value
    elif isinstance(expr, BufferLoad) and expr.buffer is heap:
        yield "load", _slot(expr.indices, heap)
    elif isinstance(expr, prim.BinaryOpExpr) and kind in _BINARY:
        yield from _value(expr.a, heap)
        yield from _value(expr.b, heap)
        yield _BINARY[kind]
    elif isinstance(expr, prim.Not):
        yield from _value(expr.a, heap)
        yield "not"
    elif isinstance(expr, prim.Select):
        for part in (expr.condition, expr.true_value, expr.false_value):
            yield from _value(part, heap)
        yield "select"
    elif isinstance(expr, prim.Cast) and expr.value.dtype == "bool" and expr.dtype == "int64":
        yield from _value(expr.value, heap)
    else:
        raise _NotShapeArithmetic


def _slot(indices: Any, heap: Buffer) -> int:
    (index,) = indices
    size = heap.ty.shape[0]
    if not isinstance(index, IntImm) or not isinstance(size, IntImm):
        raise _NotShapeArithmetic
    if not 0 <= index.value < size.value:
        raise _NotShapeArithmetic
    return index.value
