"""The body of a PrimFunc in another one: with other buffers, and variables of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..ir.expr import Expr, IntImm, Var
from ..ir.prim import Let, cast
from .access import merged_regions
from .buffer import Buffer, IterVar
from .function import PrimFunc
from .stmt import (
    AllocBuffer,
    Bind,
    For,
    MatchBufferRegion,
    SBlock,
    SBlockRealize,
    Stmt,
)
from .visitor import Substitution, Visitor

__all__ = ["bind_shape", "defined_in", "inlined_body", "with_root", "without_root"]


def bind_shape(buffer: Buffer, shape: Iterable[Expr], values: dict[Var, Any]) -> None:
    """Add the values that the dimensions of a parameter get from the shape of its argument."""
    for dim, value in zip(buffer.ty.shape, shape, strict=True):
        if isinstance(dim, Var):
            values.setdefault(dim, cast(value, dim.ty.dtype))


def inlined_body(func: PrimFunc, values: Mapping[Var, Any]) -> tuple[Stmt, list[Buffer]]:
    """Return the body of a function with values for its parameters, and the buffers of its root
    block, which the caller allocates.  All variables that the body defines are new.

    Args:
        func: the function.
        values: a buffer for each parameter that is one, a scalar for each other variable.
    """
    body, allocs = without_root(func.body)
    definitions = _Definitions()
    for buffer in allocs:
        definitions.add(buffer)
    definitions.visit(body)
    change = _Inlining(values, definitions.found)
    new: Stmt = change.visit(body)
    return new, [change.visit(buffer) for buffer in allocs]


class _Inlining(Substitution):
    """Replaces variables, with new ones for those that are defined within."""

    def __init__(self, values: Mapping[Var, Any], defined: Iterable[Var]) -> None:
        super().__init__(values)
        buffers = []
        for var in defined:
            if isinstance(var, Buffer):
                buffers.append(var)
            else:
                self._values[var] = Var(var.name, var.ty, var.span)
        for buffer in buffers:  # their types may mention the others
            ty = self._buffer_type(buffer.ty)
            self._values[buffer] = Buffer(buffer.name, ty, buffer.span)

    def visit_SBlock(self, block: SBlock) -> SBlock:
        """Merge the regions of parameters that got the same buffer."""
        new: SBlock = self.change_parts(block)
        reads, writes = merged_regions(new.reads), merged_regions(new.writes)
        if len(reads) == len(new.reads) and len(writes) == len(new.writes):
            return new
        return SBlock(new.iter_vars, reads, writes, new.name_hint, new.body, new.init,
                      new.alloc_buffers, new.match_buffers, new.annotations, new.span)  # fmt: skip


class _Definitions(Visitor):
    """The variables that statements define."""

    def __init__(self) -> None:
        self.found: dict[Var, None] = {}

    def add(self, var: Var) -> None:
        self.found[var] = None

    def visit_For(self, loop: For) -> None:
        self.add(loop.loop_var)
        self.visit_parts(loop)

    def visit_IterVar(self, iv: IterVar) -> None:
        self.add(iv.var)

    def visit_SBlock(self, block: SBlock) -> None:
        for buffer in block.alloc_buffers:
            self.add(buffer)
        self.visit_parts(block)

    def visit_MatchBufferRegion(self, match: MatchBufferRegion) -> None:
        self.add(match.buffer)

    def visit_Bind(self, stmt: Bind) -> None:
        self.add(stmt.var)
        self.visit_parts(stmt)

    def visit_AllocBuffer(self, stmt: AllocBuffer) -> None:
        self.add(stmt.buffer)

    def visit_Let(self, let: Let) -> None:
        self.add(let.var)
        self.visit_parts(let)

    def visit_Buffer(self, buffer: Buffer) -> None:
        pass


def defined_in(stmt: Stmt) -> set[Var]:
    """The variables that a statement defines."""
    definitions = _Definitions()
    definitions.visit(stmt)
    return set(definitions.found)


def without_root(body: Stmt) -> tuple[Stmt, list[Buffer]]:
    """Return the statements of a root block and its buffers; the body itself if it has none."""
    if not isinstance(body, SBlockRealize):
        return body, []
    block = body.block
    is_plain = block.name_hint == "root" and not (
        block.iter_vars
        or block.reads
        or block.writes
        or block.match_buffers
        or block.annotations
        or block.init is not None
        or not (type(body.predicate) is IntImm and body.predicate.value)
    )
    return (block.body, list(block.alloc_buffers)) if is_plain else (body, [])


def with_root(body: Stmt, allocs: Iterable[Buffer]) -> Stmt:
    """Return statements in a root block that allocates buffers, if there are any."""
    buffers = tuple(allocs)
    if not buffers:
        return body
    return SBlockRealize((), True, SBlock((), (), (), "root", body, None, buffers))
