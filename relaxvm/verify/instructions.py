"""Rules on single instructions: their offset, opcode, fields and arguments."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .. import isa
from ..isa import ArgKind, FieldKind
from .code import Chunk, is_special
from .parts import Parts, Words
from .rule import Finding, Hits, code_rule, marked, table_rule

__all__: list[str] = []

# As plain ints: comparing an array with a member of an enum costs a look-up each time.
_REGISTER, _IMMEDIATE, _CONSTANT, _FUNCTION = map(int, ArgKind)

_OPCODES = ", ".join(f"{op.code} ({op.name})" for op in isa.OPS)


# The sequence of words


@code_rule("code")
def instruction_offset(chunk: Chunk) -> Iterator[Hits]:
    """Instructions start at word 0, in ascending order, within the words."""
    bad = ~chunk.placed
    bad[0] |= chunk.pc[0] == 0 and chunk.offset[0] != 0
    yield from marked(
        chunk.pc,
        bad,
        f"expected instructions from word 0 to {len(chunk.parts.words)} in order, "
        "got one from {} to {}",
        chunk.offset,
        chunk.next_offset,
    )


@table_rule("code")
def words_owned(parts: Parts) -> Iterator[Finding]:
    """If there are no instructions, there are no words."""
    if len(parts.words) and not len(parts.offsets):
        yield Finding(f"expected no words where there are no instructions, got {len(parts.words)}")


@code_rule("code")
def opcode(chunk: Chunk) -> Iterator[Hits]:
    """The first word of an instruction is a known opcode."""
    bad = chunk.placed & ~chunk.known
    yield from marked(chunk.pc, bad, f"expected an opcode of {_OPCODES}, got {{}}", chunk.opcode)


@code_rule("code")
def instruction_length(chunk: Chunk) -> Iterator[Hits]:
    """An instruction has exactly the words that its opcode and its argument count need."""
    bad = chunk.known & ~chunk.filled
    if not bad.any():
        return
    length = chunk.next_offset - chunk.offset
    for op in isa.OPS:
        own = bad & (chunk.opcode == op.code)
        short = own if op.tail is None else own & (length < op.fixed_words)
        yield from marked(
            chunk.pc, short, f"expected {op.fixed_words} words for {op.name}, got {{}}", length
        )
        at = np.flatnonzero(own & ~short)
        count = chunk.parts.words[chunk.offset[at] + op.fixed_words - 1]
        text = "expected an argument count of {}, the number of words that are left, got {}"
        every = np.ones(len(at), np.bool_)
        yield from marked(chunk.pc[at], every, text, length[at] - op.fixed_words, count)


# Fields


def _outside(values: Words, bound: Words) -> NDArray[np.bool_]:
    outside: NDArray[np.bool_] = values < 0
    outside |= values >= bound
    return outside


@code_rule("code")
def destination(chunk: Chunk) -> Iterator[Hits]:
    """A destination is a register of the function or the void register."""
    for rows in chunk.rows:
        for register in rows.column(FieldKind.DST):
            size = rows.registers
            bad = _outside(register, size) & ~is_special(register)
            text = "expected a destination below %{}, or void, got %{}"
            yield from marked(rows.pc, bad, text, size, register)


@code_rule("code")
def register_read(chunk: Chunk) -> Iterator[Hits]:
    """`ret` and `if` read a register of the function; `ret` may read void."""
    for rows in chunk.rows:
        for register in rows.column(FieldKind.REG):
            size = rows.registers
            bad = _outside(register, size) & ~is_special(register)
            yield from marked(
                rows.pc, bad, "expected a register below %{}, got %{}", size, register
            )


@code_rule("code")
def vm_register(chunk: Chunk) -> Iterator[Hits]:
    """The VM register is only an argument of calls: it is not written, returned or tested."""
    for rows in chunk.rows:
        for kind in (FieldKind.DST, FieldKind.REG):
            for register in rows.column(kind):
                bad = register == isa.VM_REGISTER
                yield from marked(rows.pc, bad, "the VM can only be passed as an argument")


@code_rule("code")
def void_condition(chunk: Chunk) -> Iterator[Hits]:
    """The condition of `if` is not void."""
    for rows in chunk.rows:
        if rows.op.name == "if":
            bad = rows.field("cond") == isa.VOID_REGISTER
            yield from marked(rows.pc, bad, "expected a register as the condition, got void")


@code_rule("code")
def callee(chunk: Chunk) -> Iterator[Hits]:
    """The callee of a call is an entry of the function table."""
    total = len(chunk.parts.functions)
    for rows in chunk.rows:
        for index in rows.column(FieldKind.FUNC):
            bad = (index < 0) | (index >= total)
            text = f"expected the index of one of {total} functions, got {{}}"
            yield from marked(rows.pc, bad, text, index)


# Arguments


@code_rule("code")
def argument_kind(chunk: Chunk) -> Iterator[Hits]:
    """An argument is a register, an immediate, a constant or a function."""
    for rows in chunk.calls:
        args = rows.odd_args
        text = f"argument {{}}: expected a kind of 0 to {len(ArgKind) - 1}, got {{}}"
        bad = args.kind >= len(ArgKind)
        yield from marked(rows.pc[args.row], bad, text, args.position, args.kind)


@code_rule("code")
def argument_register(chunk: Chunk) -> Iterator[Hits]:
    """A register argument is one of the function, void, or the VM."""
    for rows in chunk.calls:
        args = rows.odd_args
        size = rows.registers[args.row]
        bad = (args.kind == _REGISTER) & _outside(args.value, size) & ~is_special(args.value)
        text = "argument {}: expected a register below %{}, void or vm, got %{}"
        yield from marked(rows.pc[args.row], bad, text, args.position, size, args.value)


@code_rule("code")
def argument_immediate(chunk: Chunk) -> Iterator[Hits]:
    """An immediate is from -(2^55 - 1) to 2^55 - 1, as in TVM."""
    for rows in chunk.calls:
        args = rows.odd_args
        bad = (args.kind == _IMMEDIATE) & (args.value < isa.VALUE_MIN)
        text = f"argument {{}}: expected an immediate of at least {isa.VALUE_MIN}, got {{}}"
        yield from marked(rows.pc[args.row], bad, text, args.position, args.value)


@code_rule("code")
def argument_constant(chunk: Chunk) -> Iterator[Hits]:
    """A constant argument is an index into the pool."""
    yield from _index_hits(chunk, _CONSTANT, len(chunk.parts.constants), "constants")


@code_rule("code")
def argument_function(chunk: Chunk) -> Iterator[Hits]:
    """A function argument is an index into the function table."""
    yield from _index_hits(chunk, _FUNCTION, len(chunk.parts.functions), "functions")


def _index_hits(chunk: Chunk, kind: int, total: int, what: str) -> Iterator[Hits]:
    """Yield the arguments of a kind whose index is not below `total`."""
    for rows in chunk.calls:
        args = rows.odd_args
        bad = (args.kind == kind) & ((args.value < 0) | (args.value >= total))
        text = f"argument {{}}: expected the index of one of {total} {what}, got {{}}"
        yield from marked(rows.pc[args.row], bad, text, args.position, args.value)
