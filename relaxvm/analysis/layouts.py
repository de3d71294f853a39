"""What other layouts of the results of a PrimFunc ask of its blocks and operands.

Source: ``tvm.relax.analysis.suggest_layout_transforms`` of apache-tvm 0.27.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import InternalError
from ..ir import Expr, Var, int_imm
from ..ir.arith import free_vars
from ..ir.index_map import IndexMap, is_affine
from ..tir import Buffer, BufferLoad, BufferStore, IterVar, PrimFunc, SBlock, Visitor
from ..tir.stmt import SBlockRealize

__all__ = ["suggest_layout_transforms"]

Suggestions = dict[SBlock, dict[Any, IndexMap]]


def suggest_layout_transforms(
    func: PrimFunc, write_buffer_transforms: Sequence[IndexMap | Callable[..., Any]]
) -> Suggestions:
    """Find layouts of blocks and operands of a PrimFunc that go with other layouts of its results.

    A block takes part if it is a leaf and writes one buffer, each index is one of the block's
    variables, and the map of the buffer is a bijection.  A buffer that it reads gets a map if each
    index has one of these variables, in the order that they have in the result.

    Args:
        func: the function.
        write_buffer_transforms: a map for each of its last parameters, the results.

    Returns:
        For each such block: the maps of the block itself, of the buffer that it writes and of those
        that it reads, unless an earlier block has them.

    Raises:
        InternalError: there are more maps than parameters, or one has another number of indices
            than its buffer.
        AssertionError: a map is neither an `IndexMap` nor a function.
    """
    dtype = _index_dtype(func)
    maps: list[IndexMap] = []
    for given in write_buffer_transforms:
        made = IndexMap.from_func(given, index_dtype=dtype) if callable(given) else given
        assert isinstance(made, IndexMap), "expected an IndexMap or a function"
        maps.append(made)
    if len(maps) > len(func.params):
        raise InternalError(
            f"Incompatible PrimFunc and write_transformations: {len(func.params)} parameters, "
            f"{len(maps)} maps"
        )
    known: dict[Any, IndexMap] = {}
    for buffer, made in zip(func.params[len(func.params) - len(maps) :], maps, strict=True):
        if not isinstance(buffer, Buffer) or len(buffer.shape) != len(made.initial_indices):
            raise InternalError(
                f"Mismatch between output buffer shape and index map: {buffer.name} of "
                f"{len(getattr(buffer, 'shape', ()))} dimensions, {made}"
            )
        known[buffer] = made
    leaves = _Leaves()
    leaves.visit(func.body)
    found: Suggestions = {}
    for block in leaves.found:
        suggested = _of_block(block, known)
        if suggested:
            found[block] = suggested
    return found


def _index_dtype(func: PrimFunc) -> str:
    """The data type of the indices of a function: that of its first dimension."""
    dims = (dim for param in func.params if isinstance(param, Buffer) for dim in param.shape)
    return next((dim.dtype for dim in dims), "int64")


class _Leaves(Visitor):
    """Blocks with no block in them, nor around them except the root, in order."""

    def __init__(self) -> None:
        self.found: list[SBlock] = []
        self._has_inner = False

    def visit_SBlockRealize(self, realize: SBlockRealize) -> None:
        block = realize.block
        inner = _Leaves()
        inner.visit(block.body)
        if block.iter_vars:
            if not inner.found and not inner._has_inner:
                self.found.append(block)
        else:
            self.found += inner.found
        self._has_inner = True


class _Accesses(Visitor):
    def __init__(self) -> None:
        self.stores: list[BufferStore] = []
        self.loads: dict[Buffer, list[BufferLoad]] = {}

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.stores.append(store)
        self.visit_parts(store)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self.loads.setdefault(load.buffer, []).append(load)
        self.visit_parts(load)


def _of_block(block: SBlock, known: dict[Any, IndexMap]) -> dict[Any, IndexMap]:
    """The maps of a block; `known` gets those of its operands."""
    accesses = _Accesses()
    accesses.visit(block.body)
    targets = {store.buffer for store in accesses.stores}
    if len(targets) != 1:
        return {}
    (target,) = targets
    change = known.get(target)
    spatial = {iv.var for iv in block.iter_vars if iv.iter_type == IterVar.DATA_PAR}
    order = [iv.var for iv in block.iter_vars]
    written = _layout([store.indices for store in accesses.stores], spatial, set(order))
    if change is None or written is None or not spatial.issuperset(written):
        return {}
    if not all(isinstance(i, Var) for store in accesses.stores for i in store.indices):
        return {}
    of_block = _inferred(written, change, order)
    if of_block is None or not change.is_bijective(target.shape):
        return {}
    found: dict[Any, IndexMap] = {block: of_block, target: change}
    for buffer, loads in accesses.loads.items():
        if buffer is target or buffer in known:
            continue
        layout = _layout([load.indices for load in loads], spatial, set(order))
        inferred = None if layout is None else _inferred(written, change, layout)
        if inferred is not None and inferred.is_bijective(buffer.shape):
            found[buffer] = known[buffer] = inferred
    return found


def _layout(
    accesses: Sequence[Sequence[Expr]], spatial: set[Var], variables: set[Var]
) -> list[Var] | None:
    """The variable of each dimension, the same one in all accesses: the spatial one if there are
    others; None if there is no such variable, or one for two dimensions."""
    result: list[Var] | None = None
    for indices in accesses:
        layout: list[Var] = []
        for index in indices:
            used = [var for var in free_vars(index) if var in variables]
            chosen = [var for var in used if var in spatial] or used
            if len(chosen) != 1 or not is_affine(index):
                return None
            layout.append(chosen[0])
        if len(set(layout)) < len(layout) or (result is not None and layout != result):
            return None
        result = layout
    return result


def _inferred(written: list[Var], change: IndexMap, layout: list[Var]) -> IndexMap | None:
    """The map for dimensions of some variables, given that for those of the result; None if their
    order differs, or an index of the result is made of variables that are there and others that are
    not."""
    shared = [var for var in layout if var in written]
    if not shared or shared != [var for var in written if var in shared]:
        return None
    source = dict(zip(change.initial_indices, written, strict=True))
    kept: list[Expr] = []
    for index in change.final_indices:
        used = [source[var] in shared for var in free_vars(index)]
        if any(used) and not all(used):
            return None
        if any(used) or not used:
            kept.append(index)
    own = {var: name for name, var in source.items()}
    ty = change.initial_indices[0].ty
    initial = [own[var] if var in own else Var("d", ty) for var in layout]
    final: list[Expr] = []
    for var, name in zip(layout, initial, strict=True):
        if var not in own:
            final.append(name)
        elif kept:
            final.append(kept.pop(0))
    return IndexMap(initial, [*final, *kept] or [int_imm(0)])
