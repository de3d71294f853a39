"""How the result of a PrimFunc depends on its inputs, as far as fusion needs to know it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from ..ir.expr import Expr, IntImm, Var
from ..ir.node import Node
from ..ir.prim import Add, Cast, Mul
from .buffer import Buffer, BufferLoad, IterVar
from .function import PrimFunc
from .stmt import BufferStore, SBlock, Stmt
from .visitor import Visitor, post_order_visit

__all__ = ["OpPatternKind", "analyze_op_pattern_kind"]


class OpPatternKind(IntEnum):
    """The kinds of functions that fusion distinguishes; a greater one is harder to fuse.

    Attributes:
        kElemWise: an element of the result depends on the elements at its own place.
        kBroadcast: an input has fewer dimensions, in the order of the result's, or ones of 1.
        kInjective: the place of an element of an input depends on that of the result.
        kCommReduce: a reduction of elements, each of which is read once.
        kOutEWiseFusable: a function into whose loops elementwise functions of its result fit.
        kTuple: a tuple.
        kOpaque: none of these.

    Source: ``relax::OpPatternKind`` of apache-tvm 0.27.
    """

    kElemWise = 0
    kBroadcast = 1
    kInjective = 2
    kCommReduce = 3
    kOutEWiseFusable = 4
    kTuple = 7
    kOpaque = 8


def analyze_op_pattern_kind(func: PrimFunc) -> OpPatternKind:
    """Return the kind of a function, by the indices of its loads and stores in each block.

    Statements outside of blocks do not count.
    """
    analyzer = _Analyzer(func)
    analyzer.visit(func.body)
    return analyzer.kind


class _Analyzer(Visitor):
    """Walks the blocks, and joins their kinds.

    Attributes:
        kind: the kind of the blocks so far.
    """

    def __init__(self, func: PrimFunc) -> None:
        self.kind = OpPatternKind.kElemWise
        self._outputs = {param for param in func.params if isinstance(param, Buffer)}

    def visit_SBlock(self, block: SBlock) -> None:
        if block.name_hint == "root":
            self.visit(block.body)
            return
        accesses = _Accesses()
        accesses.visit(block.body)
        store = accesses.store
        if store is None or accesses.is_mixed:
            self.kind = OpPatternKind.kOpaque
            return
        of_indices = _kind_of_indices(store, accesses.loads)
        if of_indices is not None:
            self._add_map(block, of_indices)
            return
        reduced = {iv.var for iv in block.iter_vars if iv.iter_type == IterVar.COMM_REDUCE}
        self.kind = max(self.kind, _kind_of_reduction(block.body, accesses.loads, reduced))

    def _add_map(self, block: SBlock, kind: OpPatternKind) -> None:
        """Add a block without a reduction.  One that writes the result after a reduction, as in a
        softmax, makes the whole fusable."""
        is_output = any(region.buffer in self._outputs for region in block.writes)
        if is_output and self.kind is OpPatternKind.kCommReduce:
            self.kind = OpPatternKind.kOutEWiseFusable
        else:
            self.kind = max(self.kind, kind)


class _Accesses(Visitor):
    """The loads of a block, and its store.

    Attributes:
        is_mixed: whether there are stores with different indices.
    """

    def __init__(self) -> None:
        self.loads: list[BufferLoad] = []
        self.store: BufferStore | None = None
        self.is_mixed = False

    def visit_BufferStore(self, store: BufferStore) -> None:
        if self.store is not None and not _are_same(self.store.indices, store.indices):
            self.is_mixed = True
        self.store = store
        self.visit_parts(store)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self.loads.append(load)
        self.visit_parts(load)


def _are_same(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def _kind_of_indices(store: BufferStore, loads: Sequence[BufferLoad]) -> OpPatternKind | None:
    """The kind of a block without a reduction, None if its loads fit none."""
    kinds = set()
    for load in loads:
        if _are_same(store.indices, load.indices):
            kinds.add(OpPatternKind.kElemWise)
        elif _is_broadcast(store, load):
            kinds.add(OpPatternKind.kBroadcast)
        elif _is_injective(store, load):
            kinds.add(OpPatternKind.kInjective)
        else:
            return None
    if kinds == {OpPatternKind.kElemWise, OpPatternKind.kBroadcast}:
        return OpPatternKind.kElemWise  # a bias counts as elementwise
    return max(kinds, default=OpPatternKind.kElemWise)


def _is_broadcast(store: BufferStore, load: BufferLoad) -> bool:
    """Whether the load's indices are among the store's, in order; 0 in a dimension of 1 is free."""
    own = iter(store.indices)
    for index, dim in zip(load.indices, load.buffer.ty.shape, strict=True):
        if _is_number(dim, 1) and _is_number(index, 0):
            continue
        if not any(other is index for other in own):  # continues after the last one found
            return False
    return True


def _is_number(e: Expr, number: int) -> bool:
    return type(e) is IntImm and e.value == number


def _is_injective(store: BufferStore, load: BufferLoad) -> bool:
    """Whether the load's indices are computed of the variables that are the store's indices."""
    if not all(isinstance(index, Var) for index in store.indices):
        return False
    return all(_variables(index) <= set(store.indices) for index in load.indices)


def _variables(e: Node) -> set[Expr]:
    """The variables in an expression, buffers included."""
    found: set[Expr] = set()

    def add(node: Node) -> None:
        if isinstance(node, Var):
            found.add(node)

    post_order_visit(e, add)
    return found


def _kind_of_reduction(
    body: Stmt, loads: Sequence[BufferLoad], reduced: set[Var]
) -> OpPatternKind:
    if not reduced:
        return OpPatternKind.kOpaque
    if _is_multiply_add(body):
        return OpPatternKind.kOutEWiseFusable
    # In a pool, an index is computed of a variable of the reduction and another one.
    is_pure = all(
        index in reduced or not (_variables(index) & reduced)
        for load in loads
        for index in load.indices
    )
    return OpPatternKind.kCommReduce if is_pure else OpPatternKind.kOutEWiseFusable


def _is_multiply_add(body: Stmt) -> bool:
    """Whether a block adds products to its result, each factor of which is used several times: as
    in ``C[i, j] += A[i, k] * B[k, j]``."""
    if not isinstance(body, BufferStore) or not isinstance(body.value, Add):
        return False
    total, product = body.value.a, body.value.b
    if not isinstance(total, BufferLoad) or not isinstance(product, Mul):
        return False
    if total.buffer is not body.buffer or not _are_same(total.indices, body.indices):
        return False
    return all(_is_reused(body, factor) for factor in (product.a, product.b))


def _is_reused(store: BufferStore, factor: Expr) -> bool:
    """Whether a factor does not depend on all variables that are the store's indices."""
    while isinstance(factor, Cast):
        factor = factor.value
    if not isinstance(factor, BufferLoad):
        return False
    if not all(isinstance(index, Var) for index in store.indices):
        return False
    used = set().union(*map(_variables, factor.indices))
    return not set(store.indices) <= used
