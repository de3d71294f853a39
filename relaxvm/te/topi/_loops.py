"""Short forms of statements, for operators that have no formula for each element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.expr import Expr, Var
from ...ir.prim import cast
from ...messages import describe
from ...tir.buffer import Buffer, BufferType, as_index
from ...tir.stmt import (
    AllocBuffer,
    BufferStore,
    For,
    ForKind,
    IfThenElse,
    Stmt,
    While,
    seq,
)
from ..tensor import INDEX_DTYPE

__all__ = ["Cell", "array", "axis_of", "index", "loop", "nest", "run", "store", "when", "whilst"]


def index(value: Any) -> Expr:
    """A number as an index."""
    return as_index(value, INDEX_DTYPE.get())


def axis_of(axis: Any, rank: int, what: str) -> int:
    """An axis counted from the front.

    Raises:
        TypeError: this is no integer.
        ValueError: there is no such axis.
    """
    axis = getattr(axis, "value", axis)
    if not hasattr(axis, "__index__"):
        raise TypeError(f"{what}: axis: expected an integer, got {describe(axis)}")
    if not -rank <= axis < rank:
        raise ValueError(f"{what}: axis {axis} of a tensor of {rank} dimensions")
    return int(axis) % rank


def run(*statements: Stmt | Sequence[Stmt]) -> Stmt:
    """Statements, one after the other."""
    flat: list[Stmt] = []
    for stmt in statements:
        flat += [stmt] if isinstance(stmt, Stmt) else stmt
    return seq(flat)


def loop(
    extent: Any, body: Callable[[Var], Stmt], name: str = "i", *, parallel: bool = False
) -> For:
    """``for name in range(extent)``"""
    count = index(extent)
    var = Var(name, count.ty)
    kind = ForKind.PARALLEL if parallel else ForKind.SERIAL
    return For(var, 0, count, kind, body(var))


def nest(extents: Sequence[Any], body: Callable[[tuple[Var, ...]], Stmt], name: str = "ax") -> Stmt:
    """Loops over all indices of a shape."""
    counts = [index(extent) for extent in extents]
    variables = tuple([Var(f"{name}{k}", count.ty) for k, count in enumerate(counts)])
    stmt = body(variables)
    for var, count in reversed(list(zip(variables, counts, strict=True))):
        stmt = For(var, 0, count, ForKind.SERIAL, stmt)
    return stmt


def store(buffer: Buffer, indices: Sequence[Any], value: Any) -> Stmt:
    """``buffer[indices] = value``, converted to the buffer's data type."""
    return BufferStore(
        buffer, cast(value, buffer.dtype) if isinstance(value, Expr) else value, indices
    )


def when(condition: Any, then: Stmt, otherwise: Stmt | None = None) -> Stmt:
    """``if condition: then``"""
    return IfThenElse(condition, then, otherwise)


def whilst(condition: Any, *body: Stmt) -> Stmt:
    """``while condition: body``"""
    return While(condition, run(*body))


def array(shape: Sequence[Any], dtype: str, name: str = "temp") -> Buffer:
    """An array of the statements that follow its `AllocBuffer`."""
    return Buffer(name, BufferType(tuple([index(dim) for dim in shape]), dtype))


class Cell:
    """A scalar that statements change; `declared` goes before them."""

    def __init__(self, name: str, dtype: str | None = None) -> None:
        ty = BufferType((index(1),), dtype or INDEX_DTYPE.get(), (), None, "local")
        self._buffer = Buffer(name, ty)
        self.declared = AllocBuffer(self._buffer)

    @property
    def value(self) -> Any:
        """The value at this point."""
        return self._buffer[0]

    def set(self, value: Any) -> Stmt:
        """``cell = value``"""
        return store(self._buffer, [0], value)
