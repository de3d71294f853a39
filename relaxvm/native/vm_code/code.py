"""The operations of a translated function, as the generator of native code reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ...core._code import Image
from ...core.operations import BY_CODE, OperandKind, Operation

__all__ = [
    "ENDING", "FunctionCode", "Op", "block_starts", "live_registers", "read_registers",
    "written_registers",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Op:
    """An operation in the main part of a function's code.

    Attributes:
        position: of its first word, from the start of the function's code.
        operation: its row of the table.
        words: its operands by name, as they stand in the code.
        items: the words of the tail.
        tail: the position of the first of them.
        end: the position after it.
    """

    position: int
    operation: Operation
    words: dict[str, int]
    items: tuple[int, ...]
    tail: int
    end: int

    @property
    def name(self) -> str:
        """Its mnemonic."""
        return self.operation.name

    def __getitem__(self, name: str) -> int:
        return self.words[name]

    def at(self, name: str) -> int:
        """The position of an operand."""
        return self.position + self.operation.positions()[name]

    def target(self, name: str) -> int:
        """The position that a distance leads to."""
        return self.position + self.words[name]


class FunctionCode:
    """The main part of the code of a function.

    Attributes:
        index: of the function in the function table.
        name: its name.
        ops: the operations, in order.
        num_params, num_registers: those of its frame.
        frame_words: the words of its frame without the header.
    """

    def __init__(self, image: Image, index: int) -> None:
        words, num_main, _ = image.function(index)
        self.index = index
        self.name = image.executable.functions[index].name
        self.ops = tuple(_ops(words, num_main - 1))
        self.num_params, self.num_registers, self.frame_words = image.frame_of(index)
        self._constants = image.constants

    def constant(self, word: int) -> object:
        """The constant that a negative word stands for; None for the machine."""
        return None if word == -1 else self._constants[-word - 1]

    @property
    def gain(self) -> int:
        """An estimate of the nanoseconds that native code saves in a call, without chains of
        kernels and what it takes to enter it."""
        return sum(_GAINS.get(op.name, 0) for op in self.ops)

    @property
    def num_ufuncs(self) -> int:
        """How many of its operations are ufuncs."""
        return sum(op.name in ("ufunc_1", "ufunc_2") for op in self.ops)

    def callees(self, image: Image) -> list[int]:
        """The indices of the functions that it calls, and of those of which it makes closures."""
        names = {"call_vm": "callee", "tail_call_vm": "callee", "make_closure_of": "function"}
        found = [image.function_at(op[names[op.name]]) for op in self.ops if op.name in names]
        return [index for index in found if index is not None]


def _ops(words: Sequence[int], end: int) -> Iterator[Op]:
    at = 0
    while at < end:
        operation = BY_CODE[words[at]]
        positions = operation.positions()
        found = {o.name: words[at + positions[o.name]] for o in operation.operands}
        first = after = at + operation.fixed_words
        if operation.tail is not None:
            after += words[at + positions["count"]] * operation.tail.words
        yield Op(at, operation, found, tuple(words[first:after]), first, after)
        at = after


def block_starts(code: FunctionCode) -> dict[int, int]:
    """Position at which a block starts -> the number of paths that lead there."""
    found = {op.position for op in code.ops}
    starts = {0: 1}
    for op in code.ops:
        for name in ("distance", "otherwise"):
            if name in op.words and op.target(name) in found:
                target = op.target(name)
                starts[target] = starts.get(target, 0) + 1
        if op.name in BRANCHING:
            starts[op.end] = starts.get(op.end, 0) + 1
    for op in code.ops:
        if op.end in starts and op.name not in ENDING | BRANCHING:
            starts[op.end] += 1
        if op.name == "enter":  # the loop may enter here
            starts[op.position] = starts.get(op.position, 0) + 2
    return starts


def live_registers(code: FunctionCode) -> dict[int, int]:
    """The registers that may be read before they are written, as bits, from each operation on.  A
    jump into a fallback may lead to anything."""
    everything = (1 << code.num_registers) - 1
    at = [op.position for op in code.ops]
    live = dict.fromkeys(at, 0)
    changed = True
    while changed:
        changed = False
        after = 0
        for op in reversed(code.ops):
            before = 0 if op.name in ENDING else after
            for name in ("distance", "otherwise"):
                if name in op.words:
                    target = op.target(name)
                    before |= live.get(target, everything)
            before &= ~written_registers(op)
            before |= read_registers(op)
            if live[op.position] != before:
                live[op.position] = before
                changed = True
            after = before
    return live


_GAINS: Final = {
    "goto_back": 1000,
    "invoke_closure": 12, "tail_invoke_closure": 12, "make_closure_of": 8,
    "call_vm": 1, "tail_call_vm": 8,
    "if": 6, "read_if": 5, "if_tag": 6, "match_prim": 5, "make_prim": 5, "compute_shape": 5,
    "tuple_getitem": 4, "adt_tag": 3, "match_tag": 3, "make_adt": 2, "tag_is": 2, "adt_field": 1,
}  # fmt: skip
"""Nanoseconds that an operation gains, from rows of ``bench/compare_exec_modes.py``.  Others,
such as calls of kernels and the memory for their results, gain nothing."""

ENDING: Final = frozenset({"ret", "goto", "goto_back", "tail_call_vm", "tail_invoke_closure"})
"""Operations that never continue after them."""
BRANCHING: Final = frozenset({"if", "if_tag", "read_if"})
"""Operations that continue after them, or elsewhere."""


def written_registers(op: Op) -> int:
    """The registers that an operation writes, as bits."""
    kinds = (OperandKind.DST, OperandKind.REGISTER)  # `alloc_static` clears a register
    return _bits(op.words[o.name] for o in op.operation.operands if o.kind in kinds)


def read_registers(op: Op) -> int:
    """The registers that are operands of an operation, as bits."""
    kinds = (OperandKind.SOURCE, OperandKind.VALUE)
    values = [op.words[o.name] for o in op.operation.operands if o.kind in kinds]
    tail = op.operation.tail
    if tail is not None and tail.kind is OperandKind.VALUE:
        values += op.items
    return _bits(values)


def _bits(words: Iterable[int]) -> int:
    bits = 0
    for word in words:
        if word >= 0:
            bits |= 1 << word
    return bits
