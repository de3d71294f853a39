"""Writes products (`relaxvm.tir.products`) in C: some rows by some columns of the result at a time.

The sums of a tile are in small arrays, which compilers keep in vector registers, and the values of
its columns are copied before, as the arithmetic needs them: adjacent, converted, filled up to whole
vectors.  This is the order of loops of K. Goto and R. A. van de Geijn, Anatomy of high-performance
matrix multiplication, ACM Trans. Math. Software 34, 2008, with one of the operands packed.

The sums of a block of terms begin with what the elements have.  So the terms of each element are
added in the order of the source.  The last tile of rows that is not full computes its last row
several times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from ..ir.expr import Expr, IntImm
from .c_prelude import STORED, bits_of
from .products import BLOCK, LEAST_COLUMNS, LEAST_TERMS, Product, extent_of
from .stmt import For

if TYPE_CHECKING:
    from .c_writer import Writer

__all__ = ["guards_of", "write_tiles"]

ROWS: Final = 4
"""The most rows of a tile."""

VECTOR_BYTES: Final = 128
"""The most bytes of a row of a tile: two of the widest vectors of x86.  Multiplications and
additions, of which processors start two in a cycle and which take four, need 8 sums that do not
depend on each other: 4 rows of 2 vectors.  With AVX2 these fill 16 registers."""


def guards_of(writer: Writer, product: Product) -> list[str]:
    """Return the C conditions for which tiles are right and faster than loops; empty if they are
    known to be."""
    first, *inner = product.reduced
    least = dict.fromkeys(product.loops, 1)
    least[product.rows] = product.least_rows
    least[product.columns] = LEAST_COLUMNS
    least[first] = 1 if inner else LEAST_TERMS
    unknown = [loop for loop in product.loops if type(loop.extent) is not IntImm]
    found = [f"{writer.expression(loop.extent)} >= {least[loop]}" for loop in unknown]
    lengths = [writer.expression(loop.extent) for loop in inner if loop in unknown]
    if lengths:  # each is bounded first, so that the product does not overflow
        found += [f"{text} <= {BLOCK}" for text in lengths]
        found.append(f"{_times(writer, inner)} <= {BLOCK}")
    return found


def _times(writer: Writer, loops: Sequence[For]) -> str:
    """The number of iterations of loops in each other."""
    return " * ".join(f"(int64_t){writer.expression(each.extent)}" for each in loops) or "1"


def write_tiles(writer: Writer, product: Product) -> bool:
    """Write the loops of a product, without those that initialize its elements, for sizes that meet
    `guards_of`.  Return whether the indices of the result are proved to be in bounds."""
    return _Tiles(writer, product).write()


class _Tiles:
    """Writes one product."""

    def __init__(self, writer: Writer, product: Product) -> None:
        self._writer = writer
        self._product = product
        dtype = product.update.buffer.ty.dtype
        self._type = STORED[dtype]
        self._rows = int(min(ROWS, extent_of(product.rows)))
        widest = min(VECTOR_BYTES * 8 // bits_of(dtype), VECTOR_BYTES // 4)
        columns = extent_of(product.columns)
        # Of few columns, the least power of two that has room for them, so that none is idle.
        self._width = widest
        while self._width // 2 >= max(columns, LEAST_COLUMNS):
            self._width //= 2
        self._has_edge = columns == math.inf or columns % self._width != 0

    # Lines

    def _open(self, text: str) -> None:
        self._writer.line(f"{text} {{" if text else "{")
        self._writer.indent(1)

    def _close(self, count: int = 1) -> None:
        for _ in range(count):
            self._writer.indent(-1)
            self._writer.line("}")

    def _lanes(self, statements: Sequence[str]) -> None:
        """A loop over all columns of a tile, for vector units."""
        self._writer.line("VECTORIZED")
        self._open(f"for (int64_t at = 0; at < {self._width}; at++)")
        for text in statements:
            self._writer.line(text)
        self._close()

    def _var(self, loop: For) -> str:
        return self._writer.names.of(loop.loop_var)

    # The loops around a tile

    def write(self) -> bool:
        writer, product = self._writer, self._product
        update = product.update
        writer.line(f"/* a product, in tiles of {self._rows} x {self._width} */")
        with ExitStack() as facts:
            for loop in product.loops:
                facts.enter_context(
                    writer.facts.loop(loop.loop_var, loop.min, loop.extent)
                )
            self._open("")
            for loop in product.loops:
                var, least = self._var(loop), writer.expression(loop.min)
                writer.line(f"const int64_t {var}from = {least}, {var}to = {var}from + "
                            f"{writer.expression(loop.extent)};")  # fmt: skip
            for loop in product.outer:
                self._whole(loop)
            self._blocks()
            self._close(len(product.outer) + 1)
            return all(
                writer.facts.in_bounds(index, length)
                for index, length in zip(update.indices, update.buffer.ty.shape, strict=True)
            )

    def _whole(self, loop: For) -> None:
        var = self._var(loop)
        self._open(f"for (int64_t {var} = {var}from; {var} < {var}to; {var}++)")

    def _blocks(self) -> None:
        """For some columns and some terms: copy the values of the columns, and add up all rows."""
        writer, product, width = self._writer, self._product, self._width
        columns, rows = self._var(product.columns), self._var(product.rows)
        first, *inner = product.reduced
        terms = self._var(first)
        self._open(f"for (int64_t left = {columns}from; left < {columns}to; left += {width})")
        writer.line(f"const int64_t width = {columns}to - left < {width} ? {columns}to - left : "
                    f"{width};")  # fmt: skip
        writer.line(f"const int64_t each = {_times(writer, inner)}, most = {BLOCK} / each;")
        self._open(f"for (int64_t begin = {terms}from, end; begin < {terms}to; begin = end)")
        writer.line(f"end = {terms}to - begin < most ? {terms}to : begin + most;")
        for number, (leaf, is_transposed) in enumerate(product.column_leaves):
            self._copy(number, leaf, is_transposed)
        self._open(f"for (int64_t top = {rows}from; top < {rows}to; top += {self._rows})")
        self._tile()
        writer.check_interrupt(f"(uint64_t)((end - begin) * each * {self._rows})")
        self._close(3)

    def _each_term(self, inside: Callable[[], None]) -> None:
        """The loops over the terms of a block."""
        first, *inner = self._product.reduced
        var = self._var(first)
        self._open(f"for (int64_t {var} = begin; {var} < end; {var}++)")
        for loop in inner:
            self._whole(loop)
        inside()
        self._close(len(self._product.reduced))

    def _copy(self, number: int, leaf: Expr, is_transposed: bool) -> None:
        """Copy the values of columns: `width` of them for each term, and zeros."""
        writer, width = self._writer, self._width
        column = self._var(self._product.columns)
        value = writer.expression(leaf)
        writer.line(f"{self._type} columns{number}[{BLOCK * width}] "
                    "__attribute__((aligned(64)));")  # fmt: skip
        if is_transposed:  # one column after the other, as they are in memory
            self._open(f"for (int64_t at = 0; at < {width}; at++)")
            writer.line(f"const int64_t {column} = left + (at < width ? at : width - 1);")
            writer.line(f"{self._type} *to = columns{number} + at;")
            self._each_term(lambda: writer.line(f"*to = {value}; to += {width};"))
            self._close()
            return
        self._open("")
        writer.line(f"{self._type} *to = columns{number};")

        def copies(count: object) -> None:
            self._open(f"for (int64_t at = 0; at < {count}; at++)")
            writer.line(f"const int64_t {column} = left + at;")
            writer.line(f"to[at] = {value};")
            self._close()

        def row() -> None:
            self._open(f"if (width == {width})")  # of a known length: no call of memcpy
            copies(width)
            self._close()
            if self._has_edge:
                self._open("else")
                copies("width")
                writer.line(f"for (int64_t at = width; at < {width}; at++) to[at] = 0;")
                self._close()
            writer.line(f"to += {width};")

        self._each_term(row)
        self._close()

    # A tile

    def _tile(self) -> None:
        writer, product, t, width = self._writer, self._product, self._type, self._width
        update, rows = product.update, range(self._rows)
        row, column = self._var(product.rows), self._var(product.columns)
        for r in rows:
            text = "top" if r == 0 else f"top + {r} < {row}to ? top + {r} : {row}to - 1"
            writer.line(f"const int64_t row{r} = {text};")
        element = writer.element(update.buffer, [writer.expression(i) for i in update.indices])
        for r in rows:
            writer.line(f"{t} *const out{r} = ({{ const int64_t {row} UNUSED = row{r}, "
                        f"{column} = left; &{element}; }});")  # fmt: skip
        # Elements beyond the last column are those of the next row: they are not touched.
        writer.line(f"{t} {', '.join(f'*to{r} = out{r}' for r in rows)};")
        if self._has_edge:
            writer.line(f"{t} edge[{self._rows * width}];")
            self._open(f"if (width < {width})")
            self._open(f"for (int64_t at = 0; at < {width}; at++)")
            for r in rows:
                writer.line(f"edge[{r * width} + at] = at < width ? out{r}[at] : 0;")
            self._close()
            writer.line(" ".join(f"to{r} = edge + {r * width};" for r in rows))
            self._close()
        writer.line(f"{t} {', '.join(f'sum{r}[{width}]' for r in rows)};")
        self._lanes([f"sum{r}[at] = to{r}[at];" for r in rows])
        for number in range(len(product.column_leaves)):
            writer.line(f"const {t} *from{number} = columns{number};")
        self._each_term(self._term)
        self._lanes([f"to{r}[at] = sum{r}[at];" for r in rows])
        if self._has_edge:
            self._open(f"if (width < {width}) for (int64_t at = 0; at < width; at++)")
            for r in rows:
                writer.line(f"out{r}[at] = to{r}[at];")
            self._close()

    def _term(self) -> None:
        """One term of all sums."""
        writer, product, t, rows = self._writer, self._product, self._type, range(self._rows)
        row = self._var(product.rows)
        writer.line("ONE_BY_ONE;")
        for number, leaf in enumerate(product.row_leaves):
            value = writer.expression(leaf)
            for r in rows:
                writer.line(f"const {t} x{number}at{r} = ({{ const int64_t {row} UNUSED = row{r}; "
                            f"{value}; }});")  # fmt: skip
        update: Any = product.update.value
        updates = []
        for r in rows:
            a, b = (
                self._operand(e, r) if e is product.term else f"sum{r}[at]"
                for e in (update.a, update.b)
            )
            updates.append(f"sum{r}[at] = {a} {update.SYMBOL} {b};")
        self._lanes(updates)
        for number in range(len(product.column_leaves)):
            writer.line(f"from{number} += {self._width};")

    def _operand(self, e: Any, row: int) -> str:
        """A term of a row, or a part of one, with values as they were copied."""
        for number, leaf in enumerate(self._product.row_leaves):
            if e is leaf:
                return f"x{number}at{row}"
        for number, (leaf, _) in enumerate(self._product.column_leaves):
            if e is leaf:
                return f"from{number}[at]"
        return f"({self._operand(e.a, row)} {e.SYMBOL} {self._operand(e.b, row)})"
