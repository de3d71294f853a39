"""Structured control flow from bytecode: `if`, `while True`, and jumps for the rest.

A range of code becomes the body of a statement only if no jump from outside leads into its middle,
so the statements are equivalent to the code for any control flow.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ..executable import FunctionInfo, VMExecutable
from ..isa import Opcode

__all__ = ["Branch", "Jump", "Line", "Loop", "Node", "labels_of", "structure_of"]

MAX_DEPTH: Final = 20
"""The greatest nesting depth of statements."""


@dataclass(slots=True)
class Line:
    """A call or a return."""

    pc: int


@dataclass(slots=True)
class Jump:
    """A jump: "break" or "continue" of the innermost loop, or "goto" to a target."""

    pc: int
    kind: str
    target: int


@dataclass(slots=True)
class Branch:
    """The `if` at a pc.  If `negated`, `then` is executed if the condition is false."""

    pc: int
    negated: bool
    then: list[Node]
    orelse: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Loop:
    """An endless loop; `pc` is that of its first instruction."""

    pc: int
    body: list[Node]


Node = Line | Jump | Branch | Loop


def structure_of(executable: VMExecutable, info: FunctionInfo) -> list[Node]:
    """Return the statements of a bytecode function, which must be verified."""
    code = _Code(executable, info)
    nodes = _Structurer(code).block(code.start, code.end, frozenset(), None, 0)
    if labels_of(nodes) <= {node.pc for node in _walk(nodes)}:
        return nodes
    return _flat(code)


def labels_of(nodes: Sequence[Node]) -> set[int]:
    """Return the targets of "goto"."""
    return {node.target for node in _walk(nodes) if type(node) is Jump and node.kind == "goto"}


def _walk(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        if type(node) is Branch:
            yield from _walk(node.then)
            yield from _walk(node.orelse)
        elif type(node) is Loop:
            yield from _walk(node.body)


def _flat(code: _Code) -> list[Node]:
    """Every instruction as a statement of its own, without nesting."""
    nodes: list[Node] = []
    for pc in range(code.start, code.end):
        if code.ops[pc] == Opcode.IF:
            nodes.append(Branch(pc, True, [Jump(pc, "goto", code.targets[pc])]))
        elif code.ops[pc] == Opcode.GOTO:
            nodes.append(Jump(pc, "goto", code.targets[pc]))
        else:
            nodes.append(Line(pc))
    return nodes


class _Code:
    """The jumps of a function.

    Attributes:
        start, end: the range of its pcs.
        ops: pc -> opcode.
        targets: pc of an `if` or a `goto` -> its target.
        last_back: pc -> the pc of the last backward jump to it.
    """

    def __init__(self, executable: VMExecutable, info: FunctionInfo) -> None:
        self.start, self.end = info.start_instr, info.end_instr
        self.ops: Mapping[int, int]
        data = executable.instr_data
        words = executable.instr_offset[self.start : self.end]
        pcs = range(self.start, self.end)
        self.ops = dict(zip(pcs, data[words].tolist(), strict=True))
        self.targets: dict[int, int] = {}
        for pc, word in zip(pcs, words.tolist(), strict=True):
            op = self.ops[pc]
            if op == Opcode.GOTO:
                self.targets[pc] = pc + int(data[word + 1])
            elif op == Opcode.IF:
                self.targets[pc] = pc + int(data[word + 2])
        self.last_back: dict[int, int] = {}
        for pc, target in self.targets.items():
            if target <= pc:
                self.last_back[target] = pc
        self._jumps = sorted((target, pc) for pc, target in self.targets.items())
        self._sources = _Extremes([pc for _, pc in self._jumps])

    def is_closed(self, start: int, end: int, first: int | None = None, also: int = -1) -> bool:
        """Whether all jumps into the range from `start` to before `end` come from the range itself,
        from pcs at or after `first`, or from the pc `also`."""
        first = start if first is None else first
        at = (start, also)
        low, high = bisect_left(self._jumps, (start, -1)), bisect_left(self._jumps, (end, -1))
        middle = bisect_left(self._jumps, at, low, high)
        if middle < high and self._jumps[middle] == at:
            pieces = ((low, middle), (middle + 1, high))
        else:
            pieces = ((low, high), (high, high))
        return all(self._sources.are_within(*piece, first, end) for piece in pieces)

    def final(self, pc: int) -> int:
        """The final target of a jump to a pc, following chains of `goto`."""
        seen = set()
        while self.ops[pc] == Opcode.GOTO and pc not in seen:
            seen.add(pc)
            pc = self.targets[pc]
        return pc


class _Extremes:
    """A sparse table for the least and greatest value of any range of a list in constant time; it
    stores those of all ranges whose length is a power of two."""

    def __init__(self, values: list[int]) -> None:
        level = np.array(values, np.int64)
        self._least, self._greatest = [level], [level]
        half = 1
        while 2 * half <= len(values):
            for levels, of_two in ((self._least, np.minimum), (self._greatest, np.maximum)):
                levels.append(of_two(levels[-1][:-half], levels[-1][half:]))
            half *= 2

    def are_within(self, low: int, high: int, least: int, end: int) -> bool:
        """Whether all values at indices `low` to `high` are at least `least` and below `end`."""
        if low >= high:
            return True
        level = (high - low).bit_length() - 1
        places = [low, high - (1 << level)]
        return bool(
            self._least[level][places].min() >= least and self._greatest[level][places].max() < end
        )


@dataclass(slots=True)
class _LoopScope:
    head: int
    exits: frozenset[int]


class _Structurer:
    """Converts ranges of instructions to statements."""

    def __init__(self, code: _Code) -> None:
        self._code = code

    def block(
        self,
        start: int,
        end: int,
        follow: frozenset[int],
        loop: _LoopScope | None,
        depth: int,
    ) -> list[Node]:
        """Return the statements for the pcs from `start` to before `end`.

        Args:
            follow: equivalent pcs at which control continues after the statements.
            loop: the innermost enclosing loop.
            depth: number of enclosing statements.
        """
        code = self._code
        nodes: list[Node] = []
        pc = start
        while pc < end:
            op = code.ops[pc]
            back = code.last_back.get(pc, -1)
            if (
                pc <= back < end
                and depth < MAX_DEPTH
                and (loop is None or loop.head != pc or pc != start)
                and code.is_closed(pc + 1, back + 1, pc)
            ):
                after = back + 1
                exits = follow if after == end else frozenset({after})
                scope = _LoopScope(pc, exits)
                nodes.append(Loop(pc, self.block(pc, after, frozenset({pc}), scope, depth + 1)))
                pc = after
            elif op == Opcode.IF:
                pc = self._branch(nodes, pc, end, follow, loop, depth)
            elif op == Opcode.GOTO:
                nodes += self._jump(pc, code.targets[pc], end, follow, loop)
                pc += 1
            else:
                nodes.append(Line(pc))
                pc += 1
        return nodes

    def _branch(
        self,
        nodes: list[Node],
        pc: int,
        end: int,
        follow: frozenset[int],
        loop: _LoopScope | None,
        depth: int,
    ) -> int:
        """Add the statement for the `if` at `pc`; returns the pc after it."""
        code = self._code
        orelse = code.targets[pc]
        is_last = orelse in follow
        then_end = end if is_last else orelse
        is_within = is_last or orelse < end
        if depth >= MAX_DEPTH or not is_within or not code.is_closed(pc + 1, then_end):
            nodes.append(Branch(pc, True, self._leave(pc, orelse, loop)))
            return pc + 1
        last = then_end - 1
        if not is_last and last > pc and code.ops[last] == Opcode.GOTO:
            # Perhaps it skips the other branch.
            done = code.targets[last]
            other_end = end if done in follow else done
            is_within = orelse < other_end and (done in follow or done < end)
            if is_within and code.is_closed(orelse, other_end, also=pc):
                after = follow if done in follow else frozenset({done})
                then = self.block(pc + 1, last, after | {last}, loop, depth + 1)
                other = self.block(orelse, other_end, after, loop, depth + 1)
                nodes.append(Branch(pc, False, then, other))
                return other_end
        after = follow if is_last else frozenset({orelse})
        then = self.block(pc + 1, then_end, after, loop, depth + 1)
        nodes.append(Branch(pc, False, then))
        return then_end

    def _jump(
        self, pc: int, target: int, end: int, follow: frozenset[int], loop: _LoopScope | None
    ) -> list[Node]:
        goes_on = target in follow if pc + 1 == end else target == pc + 1
        return [] if goes_on else self._leave(pc, target, loop)

    def _leave(self, pc: int, target: int, loop: _LoopScope | None) -> list[Node]:
        if loop is not None and target == loop.head:
            return [Jump(pc, "continue", target)]
        if loop is not None and target in loop.exits:
            return [Jump(pc, "break", target)]
        return [Jump(pc, "goto", self._code.final(target))]
