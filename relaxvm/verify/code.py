"""The code as columns: a decoder on numpy arrays, one chunk of instructions at a time.

The decoder accepts any two int64 arrays.  A malformed instruction appears in no row, so rules on
rows never index out of range; rules on the masks of a `Chunk` report the malformed ones.  Chunks
are small enough for the columns to stay in the processor's cache, and bound the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .. import isa
from ..isa import FieldKind, InstructionSpec
from .lazy import lazy
from .parts import Parts, Words
from .sites import CallSites

__all__ = ["Args", "Chunk", "Flow", "Rows", "chunks", "is_special"]

CHUNK: Final = 1 << 14
"""The most instructions in a chunk."""
CHUNK_WORDS: Final = 1 << 18
"""The most words in a chunk, unless one instruction has more."""

_REGISTER: Final = int(isa.ArgKind.REGISTER)
_KIND_BITS: Final = 64 - isa.KIND_SHIFT
_FIXED_WORDS: Final = np.zeros(max(isa.OP_BY_CODE) + 2, np.int64)
_HAS_TAIL: Final = np.zeros(len(_FIXED_WORDS), np.bool_)
for _op in isa.OPS:
    _FIXED_WORDS[_op.code] = _op.fixed_words
    _HAS_TAIL[_op.code] = _op.tail is not None


@dataclass(eq=False, slots=True)
class Args:
    """The argument words of some rows, one after the other.

    Attributes:
        row: int64[a], the row an argument belongs to.
        position: int64[a], its position in the argument list.
        kind, value: int64[a], the two parts of the word; the kind may be unknown.
    """

    row: Words
    position: Words
    kind: Words
    value: Words

    def __len__(self) -> int:
        return len(self.row)

    def at(self, where: Words) -> Args:
        """Return some of the arguments, by position in the arrays."""
        parts = self.row, self.position, self.kind, self.value
        return Args(*(part[where] for part in parts))


@dataclass(eq=False)
class Rows:
    """The well-formed instructions of one opcode in a chunk.

    Attributes:
        op: the opcode.
        pc: int64[m], ascending.
        body: int64[m], position in `Bodies`, -1 for an instruction outside of all functions.
        registers: int64[m], size of the register file there.
        fields: the fixed words, int64[m] each, in the order of the table.
        counts: int64[m], number of arguments.
    """

    op: InstructionSpec
    pc: Words
    body: Words
    registers: Words
    fields: tuple[Words, ...]
    counts: Words
    _first: Words
    _parts: Parts

    @lazy
    def args(self) -> Args:
        """The arguments of all rows."""
        if self.op.tail is None:
            return _NO_ARGS
        row, position, at = _runs(self._first, self.counts)
        word = self._parts.words[at]
        kind = (word >> isa.KIND_SHIFT) & 0xFF
        return Args(row, position, kind, (word << _KIND_BITS) >> _KIND_BITS)

    @lazy
    def odd_args(self) -> Args:
        """The arguments that need a closer look: all but registers of the function, immediates in
        range, and existing constants and functions.  There are few; rules look only at these."""
        args = self.args
        low, high = self._parts.arg_bounds
        least, bound = low[args.kind], high[args.kind]
        register = args.kind == _REGISTER
        bound[register] = self.registers[args.row[register]]
        return args.at(np.flatnonzero((args.value < least) | (args.value >= bound)))

    def run_of(self, rows: Words) -> Words:
        """Return the positions in `args` of the arguments of some rows, joined."""
        first = np.cumsum(self.counts) - self.counts
        return _runs(first[rows], self.counts[rows])[2]

    def field(self, name: str) -> Words:
        """Return the column of a fixed word by name."""
        return self.fields[self.op.word_of(name) - 1]

    def column(self, kind: FieldKind) -> Iterator[Words]:
        """Yield the columns of the fixed words of a kind."""
        for field, values in zip(self.op.fields, self.fields, strict=True):
            if field.kind is kind:
                yield values


class Chunk:
    """Instructions [low, high), decoded.

    Attributes:
        parts: the executable.
        pc: int64[n], low, low + 1, ...
        body: int64[n], position in `Bodies` or -1.
        offset, next_offset: int64[n], the range of words of an instruction.
        opcode: int64[n], 0 where the offset is bad.
        placed, known, filled: bool[n]: the words exist and belong to no earlier instruction;
            the opcode exists; the instruction has exactly the words it needs.  Each is False where
            the one before it is False.
        rows: the instructions for which all three are True, by opcode; opcodes that do not occur
            are left out.
        calls: the rows whose opcode has arguments.
    """

    def __init__(self, parts: Parts, low: int, high: int) -> None:
        words = parts.words
        self.parts = parts
        self.pc: Words = np.arange(low, high, dtype=np.int64)
        self.body = parts.bodies.owner(low, high)
        self.offset = offset = parts.offsets[low:high]
        following = np.append(parts.offsets[low + 1 : high + 1], len(words))
        self.next_offset = after = following[: high - low]
        self.placed = (offset >= 0) & (offset < after) & (after <= len(words))
        self.placed &= offset == parts.reached[low:high]
        safe = np.where(self.placed, offset, 0)
        length = np.where(self.placed, after, 0) - safe
        self.opcode = np.where(self.placed, _take(words, safe), 0)
        limit = len(_FIXED_WORDS) - 1
        index = np.where((self.opcode < 0) | (self.opcode > limit), limit, self.opcode)
        fixed = _FIXED_WORDS[index]
        self.known = fixed > 0
        tail = _HAS_TAIL[index] & (length >= fixed)
        count = _take(words, np.where(tail, safe + fixed - 1, 0))
        self.filled = self.known & (length - fixed == np.where(tail, count, 0))
        self.rows = tuple(self._rows())
        self.calls = tuple(rows for rows in self.rows if rows.op.tail is not None)

    @lazy
    def sites(self) -> tuple[CallSites, ...]:
        """The calls with the signatures of their callees."""
        table = self.parts.signatures
        if not len(table.arity):
            return ()
        return tuple(
            CallSites(rows, index, table)
            for rows in self.calls
            for index in rows.column(FieldKind.FUNC)
        )

    def _rows(self) -> Iterator[Rows]:
        for op in isa.OPS:
            at = np.flatnonzero(self.filled & (self.opcode == op.code))
            if len(at):
                yield self._rows_of(op, at)

    def _rows_of(self, op: InstructionSpec, at: Words) -> Rows:
        words = self.parts.words
        offset = self.offset[at]
        fields = tuple(words[offset + 1 + i] for i in range(len(op.fields)))
        first = offset + op.fixed_words
        counts = self.next_offset[at] - first
        body = self.body[at]
        registers = self.parts.bodies.registers[body]
        return Rows(op, self.pc[at], body, registers, fields, counts, first, self.parts)


_NO_ARGS: Final = Args(*np.zeros((4, 0), np.int64))


def is_special(registers: Words) -> NDArray[np.bool_]:
    """Return which register numbers are the void register or the VM register."""
    special: NDArray[np.bool_] = registers == isa.VOID_REGISTER
    special |= registers == isa.VM_REGISTER
    return special


def _take(words: Words, index: Words) -> Words:
    """Return ``words[index]``, where `words` may be empty if all indices are 0."""
    return words[index] if len(words) else np.zeros(len(index), np.int64)


def _runs(first: Words, counts: Words) -> tuple[Words, Words, Words]:
    """Join the ragged runs ``first[i], first[i] + 1, ...`` of `counts[i]` items; return for each
    item the run, its position in the run, and the item itself."""
    row = np.repeat(np.arange(len(counts)), counts)
    position = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    return row, position, first[row] + position


def chunks(parts: Parts) -> Iterator[Chunk]:
    """Yield the chunks of the whole code, in order."""
    low, total, reached = 0, len(parts.offsets), parts.reached
    while low < total:
        high = min(low + CHUNK, total)
        if reached[high] - reached[low] > CHUNK_WORDS:
            fitting = np.searchsorted(reached[low:high], reached[low] + CHUNK_WORDS, "right") - 1
            high = low + max(1, int(fitting))
        yield Chunk(parts, low, high)
        low = high


class Flow:
    """The jumps and stops of the whole code, for rules on reachability.  Filled by `add`.

    Attributes:
        parts: the executable.
        stops: pcs of instructions after which the next one is not executed.
        jump_from, jump_to: pcs of jumps and of their targets; targets outside of the code are left
            out.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._stops: list[Words] = []
        self._from: list[Words] = []
        self._to: list[Words] = []

    def add(self, chunk: Chunk) -> None:
        """Add the next chunk."""
        total = len(self.parts.offsets)
        for rows in chunk.rows:
            if not rows.op.falls_through:
                self._stops.append(rows.pc)
            for distance in rows.column(FieldKind.PC):
                inside = (distance >= -rows.pc) & (distance < total - rows.pc)
                self._from.append(rows.pc[inside])
                self._to.append(rows.pc[inside] + distance[inside])

    @lazy
    def stops(self) -> Words:
        return _joined(self._stops)

    @lazy
    def jump_from(self) -> Words:
        return _joined(self._from)

    @lazy
    def jump_to(self) -> Words:
        return _joined(self._to)


def _joined(parts: list[Words]) -> Words:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
