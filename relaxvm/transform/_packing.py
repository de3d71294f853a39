"""Packing: assigns offsets in one piece of memory to blocks that are live for a range of time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf
from typing import Final, NamedTuple

__all__ = ["Block", "Layout", "greatest_live", "pack"]

_MOST_BY_SIZE: Final = 400
"""The quadratic algorithm is tried for at most this many blocks."""


_FOREVER: Final = inf


class Block(NamedTuple):
    """`nbytes` bytes that are live from point `start` to point `end`, inclusive."""

    start: int
    end: int
    nbytes: int


class Layout(NamedTuple):
    """The offsets of blocks, and the total size of the memory."""

    offsets: list[int]
    nbytes: int


def greatest_live(blocks: Sequence[Block]) -> int:
    """Return the greatest number of bytes that are live at one point, a lower bound of all layouts.
    `blocks` are ordered by start."""
    ends: list[tuple[int, int]] = []
    live = most = 0
    for block in blocks:
        while ends and ends[0][0] < block.start:
            live -= heappop(ends)[1]
        heappush(ends, (block.end, block.nbytes))
        live += block.nbytes
        most = max(most, live)
    return most


def pack(blocks: Sequence[Block], alignment: int) -> Layout:
    """Return a layout in which blocks that are live at the same point do not overlap.

    Args:
        blocks: ordered by start.
        alignment: offsets are multiples of it.

    The size is `greatest_live` in most cases, but not always: finding the best layout is NP-hard.
    """
    rounded = [Block(b.start, b.end, -(-b.nbytes // alignment) * alignment) for b in blocks]
    least = greatest_live(rounded)
    found = _ByStart(rounded, least).layout
    if found.nbytes > least and len(blocks) <= _MOST_BY_SIZE:
        found = min(found, _by_size(rounded), key=lambda layout: layout.nbytes)
    # The last block needs no padding after it.
    used = max((at + b.nbytes for at, b in zip(found.offsets, blocks, strict=True)), default=0)
    return Layout(found.offsets, used)


class _ByStart:
    """In order of start, each block goes into the smallest gap that is large enough: to the end of
    the gap whose neighbour is live longer, so that the rest of the gap is merged with the memory
    that the other neighbour frees."""

    def __init__(self, blocks: Sequence[Block], limit: int) -> None:
        self._gaps: list[tuple[int, int]] = [(0, limit)] if limit else []  # [from, to), sorted
        self._limit = limit
        self._below: dict[int, float] = {
            0: _FOREVER
        }  # offset -> end of the block right below it
        self._above: dict[int, float] = {limit: _FOREVER}
        ends: list[tuple[int, int, int]] = []  # live blocks: last point, from, to
        offsets: list[int] = []
        for block in blocks:
            while ends and ends[0][0] < block.start:
                _, first, last = heappop(ends)
                self._free(first, last)
            offset = self._place(block) if block.nbytes else 0
            offsets.append(offset)
            if block.nbytes:
                heappush(ends, (block.end, offset, offset + block.nbytes))
        self.layout = Layout(offsets, self._limit)

    def _place(self, block: Block) -> int:
        sizes = [(last - first, i) for i, (first, last) in enumerate(self._gaps)]
        fitting = [entry for entry in sizes if entry[0] >= block.nbytes]
        if not fitting:
            self._grow(block.nbytes)
            fitting = [(0, len(self._gaps) - 1)]
        index = min(fitting)[1]
        first, last = self._gaps[index]
        is_low = self._below[first] >= self._above[last]
        offset = first if is_low else last - block.nbytes
        rest = (first + block.nbytes, last) if is_low else (first, offset)
        self._gaps[index : index + 1] = [rest] if rest[0] < rest[1] else []
        self._below[offset + block.nbytes] = self._above[offset] = block.end
        return offset

    def _grow(self, nbytes: int) -> None:
        """Grow the memory so that the last gap, at its end, has `nbytes` bytes."""
        is_free = bool(self._gaps) and self._gaps[-1][1] == self._limit
        first = self._gaps.pop()[0] if is_free else self._limit
        self._limit = first + nbytes
        self._above[self._limit] = _FOREVER
        self._gaps.append((first, self._limit))

    def _free(self, first: int, last: int) -> None:
        """Add [first, last) to the gaps and merge it with adjacent ones."""
        gaps = self._gaps
        at = bisect_left(gaps, (first, last))
        stop = at
        if at < len(gaps) and gaps[at][0] == last:
            last = gaps[at][1]
            stop += 1
        if at and gaps[at - 1][1] == first:
            at -= 1
            first = gaps[at][0]
        gaps[at:stop] = [(first, last)]


def _by_size(blocks: Sequence[Block]) -> Layout:
    """Place the largest blocks first, each at the lowest offset that is free while it is live."""
    offsets = [0] * len(blocks)
    placed: list[tuple[int, int, Block]] = []  # from, to, block; sorted
    order = sorted(range(len(blocks)), key=lambda i: (-blocks[i].nbytes, blocks[i].start))
    top = 0
    for index in order:
        block = blocks[index]
        offset = 0
        for first, last, other in placed:
            if other.start > block.end or other.end < block.start:
                continue
            if first - offset >= block.nbytes:
                break
            offset = max(offset, last)
        offsets[index] = offset
        top = max(top, offset + block.nbytes)
        placed.append((offset, offset + block.nbytes, block))
        placed.sort(key=lambda entry: entry[0])
    return Layout(offsets, top)
