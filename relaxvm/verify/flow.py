"""Rules on the control flow within each function."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np

from ..isa import FieldKind
from .code import Chunk, Flow
from .parts import Words
from .rule import Hits, code_rule, flow_rule, marked

__all__: list[str] = []


@code_rule("control flow")
def jump_target(chunk: Chunk) -> Iterator[Hits]:
    """The target of a jump is an instruction of the same function."""
    bodies = chunk.parts.bodies
    for rows in chunk.rows:
        for distance in rows.column(FieldKind.PC):
            low = bodies.start[rows.body] - rows.pc
            high = bodies.end[rows.body] - rows.pc
            bad = (distance < low) | (distance >= high)
            text = "expected a distance of {} to {}, inside the function, got {}"
            yield from marked(rows.pc, bad, text, low, high - 1, distance)


@code_rule("control flow")
def goto_distance(chunk: Chunk) -> Iterator[Hits]:
    """`goto` does not jump to itself."""
    for rows in chunk.rows:
        if rows.op.name == "goto":
            bad = rows.field("pc_offset") == 0
            yield from marked(rows.pc, bad, "expected a distance other than 0")


@code_rule("control flow")
def if_distance(chunk: Chunk) -> Iterator[Hits]:
    """The false branch of `if` comes after the true branch, which is the next instruction."""
    for rows in chunk.rows:
        if rows.op.name == "if":
            distance = rows.field("false_offset")
            text = "false branch: expected a distance of at least 2, got {}"
            yield from marked(rows.pc, distance < 2, text, distance)


@code_rule("control flow")
def fall_through(chunk: Chunk) -> Iterator[Hits]:
    """Control does not leave a function at its end: its last instruction is `ret` or `goto`."""
    ends = chunk.parts.bodies.end
    for rows in chunk.rows:
        if rows.op.falls_through:
            bad = ends[rows.body] == rows.pc + 1
            yield from marked(
                rows.pc, bad, f"expected ret or goto at the end of the code, got {rows.op.name}"
            )


@flow_rule("control flow", "warning")
def unreachable(flow: Flow) -> Iterator[Hits]:
    """Every instruction can be reached from the start of its function."""
    start, end = _unreached(flow)
    every = np.ones(len(start), np.bool_)
    yield from marked(start, every, "no path leads to the instructions from here to pc {}", end - 1)


def _unreached(flow: Flow) -> tuple[Words, Words]:
    """Return the ranges of instructions that cannot be reached from the start of their function.

    An instruction can only be unreachable if it or one before it follows a stop.  If every
    instruction after a stop is the target of a jump from an earlier one, all code is reachable, by
    induction along the code.  Only functions where that fails (a loop entered at its end, dead
    code) are searched.
    """
    bodies, stops, jump_from, jump_to = flow.parts.bodies, flow.stops, flow.jump_from, flow.jump_to
    entered = np.zeros(len(flow.parts.offsets) + 1, np.bool_)
    entered[bodies.start[:-1]] = True
    entered[jump_to[jump_to > jump_from]] = True
    entered[-1] = True
    doubtful = stops[~entered[stops + 1]]
    suspects = np.zeros(len(bodies) + 1, np.bool_)
    suspects[np.searchsorted(bodies.start[:-1], doubtful, "right") - 1] = True
    suspects[-1] = False
    if not suspects.any():
        return doubtful[:0], doubtful[:0]
    return _search(flow, bodies.start[suspects], bodies.end[suspects])


def _search(flow: Flow, starts: Words, ends: Words) -> tuple[Words, Words]:
    """Do `_unreached` for the functions with these ranges: a depth-first search of basic blocks."""
    total = len(flow.parts.offsets)
    change = np.zeros(total + 1, np.int64)
    np.add.at(change, starts, 1)
    np.add.at(change, ends, -1)
    inside = np.cumsum(change) > 0
    stops = flow.stops
    stops = stops[inside[stops]]
    jumps = inside[flow.jump_from] & inside[flow.jump_to]
    jump_from, jump_to = flow.jump_from[jumps], flow.jump_to[jumps]

    # Block b is the instructions [leader[b], leader[b + 1]).  Its successors are the next block,
    # unless it ends in a stop, and the target of the jump that it may end in, else `nowhere`.
    leads = np.zeros(total + 1, np.bool_)
    for pcs in (starts, ends, stops + 1, jump_from + 1, jump_to):
        leads[pcs] = True
    leader, block_of = np.flatnonzero(leads), np.cumsum(leads) - 1
    nowhere = len(leader)
    after = np.arange(1, nowhere + 1)
    after[block_of[stops]] = nowhere
    target = np.full(nowhere, nowhere)
    target[block_of[jump_from]] = block_of[jump_to]

    seen = bytearray(nowhere + 1)
    seen[nowhere] = True
    afters, targets = array("q", after.tobytes()), array("q", target.tobytes())
    work = block_of[starts].tolist()
    while work:
        block = work.pop()
        while not seen[block]:
            seen[block] = True
            if not seen[targets[block]]:
                work.append(targets[block])
            block = afters[block]

    missed = (np.frombuffer(seen, np.uint8)[:nowhere] == 0) & inside[leader]
    start, end = leader[missed], np.append(leader[1:], total)[missed]
    new = np.ones(len(start) + 1, np.bool_)
    new[1:-1] = start[1:] != end[:-1]
    return start[new[:-1]], end[new[1:]]
