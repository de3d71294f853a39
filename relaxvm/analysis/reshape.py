"""Detection of PrimFuncs that copy a tensor into one of another shape, in memory order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from ..ir import Analyzer, Expr, IntImm, Var, int_imm, substitute
from ..tir import Buffer, BufferLoad, BufferStore, For, IterVar, PrimFunc, SBlockRealize, SeqStmt

__all__ = ["has_reshape_pattern"]


def has_reshape_pattern(func: PrimFunc) -> bool:
    """Check whether a PrimFunc is a reshape: it takes two compact buffers of the same data type and
    copies each element of the first to the same position in memory of the second.

    The check is conservative.  Unlike in TVM's function of this name, it is not enough that the
    indices agree: the whole output must be written, and there must be no other effects.
    """
    if len(func.params) != 2 or func.ret_type is not None:
        return False
    source, target = func.params
    return (
        _is_compact(source)
        and _is_compact(target)
        and source.ty.dtype == target.ty.dtype
        and _Copy(func.body).is_in_order(source, target)
    )


def _is_compact(param: Var) -> TypeGuard[Buffer]:
    if not isinstance(param, Buffer) or param.strides:
        return False
    offset = param.elem_offset
    return offset is None or (type(offset) is IntImm and offset.value == 0)


class _Copy:
    """The loops around a store; block variables are replaced by the values bound to them."""

    def __init__(self, body: Any) -> None:
        self._analyzer = Analyzer()
        self._loops: list[For] = []
        self._values: dict[Var, Expr] = {}
        self._store = self._descend(body)

    def _descend(self, stmt: Any) -> BufferStore | None:
        """The store in a statement if that is its only effect, else None."""
        if type(stmt) is BufferStore:
            return stmt
        if type(stmt) is SeqStmt and len(stmt.seq) == 1:
            return self._descend(stmt.seq[0])
        if type(stmt) is For and stmt.step is None and _is_int(stmt.min, 0):
            self._analyzer.bind(stmt.loop_var, 0, stmt.extent - 1)
            self._loops.append(stmt)
            return self._descend(stmt.body)
        if type(stmt) is SBlockRealize and _is_int(stmt.predicate, 1):
            block = stmt.block
            if block.init is not None or block.alloc_buffers or block.match_buffers:
                return None
            if any(each.iter_type != IterVar.DATA_PAR for each in block.iter_vars):
                return None
            for each, value in zip(block.iter_vars, stmt.iter_values, strict=True):
                self._values[each.var] = substitute(value, self._values)
            return self._descend(block.body)
        return None

    def is_in_order(self, source: Buffer, target: Buffer) -> bool:
        """Whether the store copies one element per iteration, in memory order."""
        store = self._store
        if store is None or store.buffer is not target:
            return False
        load = store.value
        if type(load) is not BufferLoad or load.buffer is not source:
            return False
        extents = [loop.extent for loop in self._loops]
        step = _position([loop.loop_var for loop in self._loops], extents)
        count = _product(extents)
        return all(
            self._analyzer.prove_equal(_product(buffer.shape), count)
            and self._is_at(step, indices, buffer.shape)
            for buffer, indices in ((source, load.indices), (target, store.indices))
        )

    def _is_at(self, step: Expr, indices: tuple[Expr, ...], shape: tuple[Expr, ...]) -> bool:
        """Whether the indices are those of the element at position `step`.  If all indices but the
        first are within their dimensions, so is the first."""
        indices = tuple([substitute(index, self._values) for index in indices])
        prove = self._analyzer.prove
        return self._analyzer.prove_equal(_position(indices, shape), step) and all(
            prove(index >= 0) and prove(index < dim)
            for index, dim in zip(indices[1:], shape[1:], strict=True)
        )


def _is_int(expr: Expr, value: int) -> bool:
    return type(expr) is IntImm and expr.value == value


def _product(dims: Sequence[Expr]) -> Expr:
    product: Any = int_imm(1)
    for position, dim in enumerate(dims):
        product = product * dim if position else dim
    return product  # type: ignore[no-any-return]


def _position(indices: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The position of an element in memory."""
    position: Any = int_imm(0)
    for axis, (index, dim) in enumerate(zip(indices, shape, strict=True)):
        position = position * dim + index if axis else index
    return position  # type: ignore[no-any-return]
