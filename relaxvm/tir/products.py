"""Loops that are products: sums of products over some of the axes, as those of matrices are.

A nest of loops around ``C[i, j] = C[i, j] + term`` is a product if its terms are made of values of
rows, which do not depend on ``j``, and values of columns, which do not depend on ``i``.  The loops
over elements of ``C`` may then be exchanged with all others and run in tiles, some rows by some
columns: each element still gets the same terms in the same order, so that the result is the same
bit for bit.  Batches, transposed operands, casts of operands, and convolutions, whose columns are
pixels and whose rows are channels, are of this form too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ..ir.arith import free_vars
from ..ir.expr import Expr, IntImm, Var
from ..ir.prim import EQ, Add, And, Mul, Sub
from .buffer import BufferLoad
from .c_prelude import HALVES
from .normalize import (
    has_let,
    is_affine_step,
    loads_of,
    nest_of,
    same_indices,
    same_value,
    uses,
    with_body,
)
from .stmt import BufferStore, For, IfThenElse, SeqStmt, Stmt
from .trip_counts import is_known
from .visitor import Substitution

__all__ = ["BLOCK", "LEAST_COLUMNS", "LEAST_TERMS", "TILES", "Product", "extent_of",
           "is_product", "product_of"]  # fmt: skip

TILES: Final = "relaxvm.tiles"
"""The attribute of functions of which products run in tiles, unless it is false."""

BLOCK: Final = 128
"""The most terms that are added while a tile is in registers.  The values of their columns, 16 KiB,
stay in the first-level cache."""

LEAST_ROWS: Final = 3
LEAST_COLUMNS: Final = 8
LEAST_TERMS: Final = 4
"""What pays for copying the columns, each measured with many of the others."""

_LEAST_KNOWN_TERMS: Final = 8
_LEAST_KNOWN_TERMS_OF_TRANSPOSED: Final = 17
"""Compilers unroll loops of few iterations, if they know the number, and then use vectors."""

_MOST_COLUMN_LEAVES: Final = 2
_MOST_ROW_LEAVES: Final = 4


@dataclass(frozen=True, slots=True)
class Product:
    """A nest of loops as a product.

    Attributes:
        init: loops that give elements their first values, to be run before; None if there are none.
        outer: loops around the tiles: batches, and reductions too long for a block.
        rows: the loop over rows of a tile.
        columns: the loop over columns, which are adjacent in memory.
        reduced: the loops of the sum, in their order.
        update: the store in them.
        term: what it adds to the element or subtracts from it.
        row_leaves: operands that are one number for all columns.
        column_leaves: operands that are the same for all rows, with whether their memory is along
            the reduction, as in ``a @ b.T``.
    """

    init: Stmt | None
    outer: tuple[For, ...]
    rows: For
    columns: For
    reduced: tuple[For, ...]
    update: BufferStore
    term: Expr
    row_leaves: tuple[Expr, ...]
    column_leaves: tuple[tuple[Expr, bool], ...]

    @property
    def loops(self) -> tuple[For, ...]:
        """All loops, those outside first."""
        return (*self.outer, self.rows, self.columns, *self.reduced)

    @property
    def is_transposed(self) -> bool:
        """Whether the memory of some columns is along the reduction."""
        return any(is_transposed for _, is_transposed in self.column_leaves)

    @property
    def least_rows(self) -> int:
        """The fewest rows for which tiles are faster than loops.  Without tiles, columns that are
        not adjacent are summed up one after the other."""
        return 1 if self.is_transposed else LEAST_ROWS


def is_product(loop: For) -> bool:
    """Check whether `product_of` finds a product."""
    return product_of(loop) is not None


def product_of(loop: For) -> Product | None:
    """Return a nest of loops as a product, None if it is none or tiles do not suit it."""
    found = _parted(loop)
    if found is None:
        return None
    loops, init, update = found
    variables = [each.loop_var for each in loops]
    if not all(_is_rectangular(each, variables) for each in loops):
        return None
    dtype = update.buffer.ty.dtype
    if dtype in HALVES or dtype == "bool":
        return None
    term = _term_of(update)
    if term is None or has_let(update):
        return None
    axes = _axes_of(update, loops)
    if axes is None or len(axes) < 2 or len(axes) == len(loops):
        return None
    columns = axes.get(_last_dimension(update))
    if columns is None:
        return None
    reduced = [each for each in loops if each not in axes.values()]
    rest = [axes[d] for d in sorted(axes, reverse=True) if axes[d] is not columns]
    for rows in sorted(rest, key=lambda each: -extent_of(each)):
        leaves = _leaves_of(term, rows.loop_var, columns.loop_var)
        if leaves is None:
            continue
        outer = [each for each in loops if each in rest and each is not rows]
        long = _beyond_a_block(reduced)
        product = Product(
            init, (*outer, *reduced[:long]), rows, columns, tuple(reduced[long:]), update,
            term, *leaves
        )
        return product if _is_worth_tiles(product) else None
    return None


def extent_of(loop: For) -> float:
    """Return the number of iterations of a loop, infinite if it is not known."""
    extent = loop.extent
    return extent.value if isinstance(extent, IntImm) else math.inf


def _is_worth_tiles(product: Product) -> bool:
    """Whether there are enough rows, columns and terms, as far as they are known."""
    terms = math.prod(map(extent_of, product.reduced))
    known = _LEAST_KNOWN_TERMS_OF_TRANSPOSED if product.is_transposed else _LEAST_KNOWN_TERMS
    return (
        all(extent_of(loop) >= 1 for loop in product.loops)
        and extent_of(product.rows) >= product.least_rows
        and extent_of(product.columns) >= LEAST_COLUMNS
        and terms >= known
    )


# The parts of a nest


def _parted(loop: For) -> tuple[list[For], Stmt | None, BufferStore] | None:
    """The loops of a nest with an update, and the loops that initialize its elements before."""
    loops, body = nest_of(loop)
    if isinstance(body, BufferStore):
        return loops, None, body
    if not isinstance(body, SeqStmt) or len(body.seq) != 2:
        return None
    first, second = body.seq
    if isinstance(first, IfThenElse):
        return _with_first_term(loops, first, second)
    around, init = nest_of(first)
    inner, update = nest_of(second)
    if not isinstance(init, BufferStore) or not isinstance(update, BufferStore) or not inner:
        return None
    if any(each.step is not None for each in around) or not _is_init(init, update):
        return None
    # Each element is initialized once, in the iteration of `loops` in which it is updated.
    if not all(_steps_through(update, each.loop_var) for each in loops):
        return None
    spatial = [each for each in inner if _steps_through(update, each.loop_var)]
    if len(spatial) != len(around):
        return None
    # Each loop of the initialization is the one of the update that steps through its dimension.
    pairs: dict[Var, Expr] = {}
    for own in around:
        other = next((each for each in spatial if _dimension(update, each.loop_var)
                      == _dimension(init, own.loop_var)), None)  # fmt: skip
        if other is None or not (
            same_value(own.min, other.min) and same_value(own.extent, other.extent)
        ):
            return None
        pairs[own.loop_var] = other.loop_var
    renamed = Substitution(pairs)
    if not same_indices([renamed.visit(i) for i in init.indices], update.indices):
        return None
    return [*loops, *inner], _fresh(loops, first), update


def _with_first_term(
    loops: list[For], first: IfThenElse, update: Stmt
) -> tuple[list[For], Stmt | None, BufferStore] | None:
    """The parts of loops around ``if the term is the first one: init``, and the update."""
    init = first.then_case
    if first.else_case is not None or not isinstance(init, BufferStore):
        return None
    if not isinstance(update, BufferStore) or not _is_init(init, update):
        return None
    if not same_indices(init.indices, update.indices):
        return None
    spatial = [each for each in loops if _steps_through(update, each.loop_var)]
    reduced = [each for each in loops if each not in spatial]
    if any(uses(init, each.loop_var) for each in reduced):
        return None
    starts: dict[Var, Expr] = {each.loop_var: each.min for each in reduced if extent_of(each) != 1}
    for test in _conjuncts(first.condition):
        if not isinstance(test, EQ):
            return None
        var, least = (test.a, test.b) if isinstance(test.a, Var) else (test.b, test.a)
        if not isinstance(var, Var) or var not in starts or not same_value(starts[var], least):
            return None
        del starts[var]
    return None if starts else (loops, _fresh(spatial, init), update)


def _conjuncts(e: Expr) -> Iterator[Expr]:
    if isinstance(e, And):
        yield from _conjuncts(e.a)
        yield from _conjuncts(e.b)
    else:
        yield e


def _is_init(init: BufferStore, update: BufferStore) -> bool:
    """Whether a store gives elements of the sum a value that does not depend on the sum."""
    target = update.buffer
    reads = [load.buffer for load in loads_of(init.value)]
    reads += [load.buffer for i in init.indices for load in loads_of(i)]
    return init.buffer is target and target not in reads and not has_let(init)


def _fresh(loops: Sequence[For], body: Stmt) -> Stmt:
    """Loops around a nest, all with variables of their own."""
    for each in reversed(loops):
        body = with_body(each, body)
    variables = [each.loop_var for each in nest_of(body)[0]]
    fresh: Stmt = Substitution({var: Var(var.name, var.ty) for var in variables}).visit(body)
    return fresh


def _is_rectangular(loop: For, variables: Sequence[Var]) -> bool:
    """Whether the bounds of a loop are known before the nest runs."""
    if loop.step is not None or not (is_known(loop.min) and is_known(loop.extent)):
        return False
    return not any(var in variables for e in (loop.min, loop.extent) for var in free_vars(e))


def _term_of(update: BufferStore) -> Expr | None:
    """What an update adds to its element or subtracts from it, None if it is another."""
    value = update.value
    if not isinstance(value, (Add, Sub)):
        return None
    term = value.b if _is_target(value.a, update) else value.a
    if not _is_target(value.a, update) and (
        isinstance(value, Sub) or not _is_target(value.b, update)
    ):
        return None
    reads = [load.buffer for e in (term, *update.indices) for load in loads_of(e)]
    return None if update.buffer in reads else term


def _is_target(e: Expr, update: BufferStore) -> bool:
    return (
        isinstance(e, BufferLoad)
        and e.buffer is update.buffer
        and same_indices(e.indices, update.indices)
    )


def _dimension(store: BufferStore, var: Var) -> int | None:
    """The dimension that a variable steps through, alone of all dimensions."""
    used = [d for d, index in enumerate(store.indices) if uses(index, var)]
    if len(used) == 1 and is_affine_step(store.indices[used[0]], var):
        return used[0]
    return None


def _steps_through(store: BufferStore, var: Var) -> bool:
    return _dimension(store, var) is not None


def _axes_of(update: BufferStore, loops: Sequence[For]) -> dict[int, For] | None:
    """The loops that step through dimensions of the result, by dimension; the others do not occur
    in its indices.  So different iterations of them are different elements.  None otherwise."""
    axes: dict[int, For] = {}
    for each in loops:
        if not any(uses(index, each.loop_var) for index in update.indices):
            continue
        dimension = _dimension(update, each.loop_var)
        if dimension is None or dimension in axes:
            return None
        axes[dimension] = each
    return axes


def _last_dimension(update: BufferStore) -> int:
    """The last dimension of a result, leaving out those of length 1."""
    shape = update.buffer.ty.shape
    last = len(shape) - 1
    while last > 0 and same_value(shape[last], IntImm(shape[last].dtype, 1)):
        last -= 1
    return last


def _leaves_of(
    term: Expr, row: Var, column: Var
) -> tuple[tuple[Expr, ...], tuple[tuple[Expr, bool], ...]] | None:
    """The operands of a term by rows and by columns, None if one depends on both."""
    depends: dict[Expr, tuple[bool, bool]] = {}

    def find(e: Expr) -> tuple[bool, bool]:
        """Whether an expression depends on rows and on columns; each part is visited once."""
        if e not in depends:
            if isinstance(e, (Add, Sub, Mul)):
                (a, b), (c, d) = find(e.a), find(e.b)
                depends[e] = a or c, b or d
            else:
                depends[e] = uses(e, row), uses(e, column)
        return depends[e]

    rows: list[Expr] = []
    columns: list[tuple[Expr, bool]] = []

    def part(e: Expr) -> bool:
        by_row, by_column = depends[e]
        if not by_column:
            rows.append(e)
        elif not by_row:
            columns.append((e, _is_transposed(e, column)))
        elif not (isinstance(e, (Add, Sub, Mul)) and part(e.a) and part(e.b)):
            return False
        return len(rows) <= _MOST_ROW_LEAVES and len(columns) <= _MOST_COLUMN_LEAVES

    if find(term) != (True, True) or not part(term) or not any(depends[e][0] for e in rows):
        return None
    return (tuple(rows), tuple(columns)) if columns else None


def _is_transposed(e: Expr, column: Var) -> bool:
    """Whether the next column is not near in memory."""
    return any(uses(index, column) for load in loads_of(e) for index in load.indices[:-1])


def _beyond_a_block(reduced: Sequence[For]) -> int:
    """The number of outer loops of a sum that run around the tiles, so that those inside the first
    one left have at most `BLOCK` iterations, as far as is known."""
    first = 0
    while math.prod(e for e in map(extent_of, reduced[first + 1 :]) if e < math.inf) > BLOCK:
        first += 1
    return first
