"""Nests of loops over all elements of contiguous buffers, which are one loop in C.

``for i: for j: y[i, j] = f(x[i, j])`` visits elements in the order of memory, so it is a loop over
``i * m + j``.  Loops over few elements, which would not fill vectors, become long.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.arith import free_vars
from ..ir.expr import Expr, IntImm, Var
from .buffer import Buffer, BufferLoad
from .normalize import has_let, same_value
from .stmt import BufferStore, For, SeqStmt, Stmt
from .trip_counts import is_known
from .visitor import Visitor

__all__ = ["is_flat"]


def is_flat(nest: Sequence[For], body: Stmt) -> bool:
    """Check whether the next iteration of a nest is the next element of all buffers that vary.

    The body may use the variables of the nest only as the last indices of buffers, all of them in
    order.  The dimensions of the buffers are then the numbers of iterations of the loops, other
    than the first, whose index must be proved to be in bounds.
    """
    stores = body.seq if isinstance(body, SeqStmt) else (body,)
    if len(nest) < 2 or has_let(body) or not all(isinstance(each, BufferStore) for each in stores):
        return False
    variables = {loop.loop_var for loop in nest}
    for loop in nest:
        if loop.step is not None or type(loop.min) is not IntImm or loop.min.value != 0:
            return False
        if not is_known(loop.extent) or not variables.isdisjoint(free_vars(loop.extent)):
            return False
    uses = _Uses(nest)
    uses.visit(body)
    return uses.are_flat


class _Uses(Visitor):
    """Whether the variables of a nest are used only as indices of contiguous accesses."""

    def __init__(self, nest: Sequence[For]) -> None:
        self._nest = nest
        self._variables = {loop.loop_var for loop in nest}
        self.are_flat = True

    def visit_Var(self, var: Var) -> None:
        if var in self._variables:
            self.are_flat = False

    def visit_Buffer(self, buffer: Buffer) -> None:
        """Its shape has no variables of loops."""

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self._access(load.buffer, load.indices)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.visit(store.value)
        self._access(store.buffer, store.indices)

    def _access(self, buffer: Buffer, indices: Sequence[Expr]) -> None:
        count = len(self._nest)
        others = indices
        if len(indices) >= count and self._is_next(buffer, indices[-count:]):
            others = indices[:-count]
        for index in others:
            self.visit(index)

    def _is_next(self, buffer: Buffer, indices: Sequence[Expr]) -> bool:
        """Whether the last indices of an access are the variables of the nest."""
        lengths = buffer.ty.shape[-len(indices) :]
        return all(
            index is loop.loop_var or (_is(loop.extent, 1) and _is(index, 0))
            for index, loop in zip(indices, self._nest, strict=True)
        ) and all(
            same_value(length, loop.extent)
            for length, loop in zip(lengths[1:], self._nest[1:], strict=True)
        )


def _is(e: Expr, value: int) -> bool:
    return type(e) is IntImm and e.value == value
