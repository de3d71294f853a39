"""The pages that sequences of tokens occupy in a paged cache.

A cache has pages of some tokens each.  A sequence is a chain of blocks; a block has pages of its
own, and sequences that were forked have their first blocks in common.  Nothing here knows what is
in
the pages: a *slot* is ``page * page_size + place in the page``.

Source: ``src/runtime/vm/paged_kv_cache.cc`` and ``attn_utils.h`` of apache-tvm, whose numbers of
free
pages these are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._core import charge_objects
from ..errors import InternalError
from .saved_fields import as_count, as_counts, as_fields, as_rows

__all__ = ["Block", "PageTable", "Slots", "TokenSequence", "runs_of"]

Slots = NDArray[np.int64]

_NO_PAGE: Final = -1
"""Stands for a page of a window that is full, until the pages that slide out of it are free."""
_BYTES_PER_SEQUENCE: Final = 1000
_MOST_NUMBER: Final = 1 << 62
_MOST_TREE: Final = 256
"""Nodes of a tree of tokens."""


class Block:
    """Tokens in consecutive places of a sequence.

    Attributes:
        parent: the block before it; None for the first one.
        pages: page numbers; all but the last are full.
        length: the number of tokens.
        start: the place of the first token in the sequence.
        sinks: the number of first tokens that a sliding window keeps.
        offset: where the window begins, counted in slots of the block.
        references: the number of sequences and blocks that continue it.
    """

    __slots__ = ("length", "offset", "pages", "parent", "references", "sinks", "start")

    def __init__(self, parent: Block | None = None, start: int = 0) -> None:
        self.parent = parent
        self.start = start
        self.pages: list[int] = []
        self.length = self.sinks = self.offset = self.references = 0


class TokenSequence:
    """A sequence of a page table.

    Attributes:
        last: its last block.
        length: the number of tokens that are kept.
        window: the most tokens that are kept; None without a sliding window.
        sinks: how many of the first tokens of the last block a window keeps.
        tree: for tokens that are not accepted yet: the node before each of them, -1 for a root.
        depths: the depth of each of these nodes.
    """

    __slots__ = ("depths", "last", "length", "sinks", "tree", "window")

    def __init__(self, last: Block, length: int = 0) -> None:
        self.last = last
        self.length = length
        self.window: int | None = None
        self.sinks = 0
        self.tree: list[int] = []
        self.depths: list[int] = []

    def blocks(self) -> list[Block]:
        """The blocks from the first one on."""
        found = []
        block: Block | None = self.last
        while block is not None:
            found.append(block)
            block = block.parent
        return found[::-1]


class PageTable:
    """Which pages are free, and which each sequence has.

    Attributes:
        page_size: tokens of a page.
        pages: the number of pages.
        sequences: number -> sequence.
    """

    def __init__(
        self, pages: int, page_size: int, slides: bool, copy: Callable[[int, int, int], None]
    ) -> None:
        """
        Args:
            slides: whether sequences may have sliding windows.
            copy: copies the first tokens of a page to another one: ``copy(page, other, tokens)``.
        """
        self.page_size = page_size
        self.pages = pages
        self.slides = slides
        self.sequences: dict[int, TokenSequence] = {}
        self._released: list[int] = []
        self._untouched = 0  # pages from here on were never used
        self._copy = copy

    def saved_fields(self) -> tuple[Any, ...]:
        """See `relaxvm.vm.saved_runs.states`: blocks have the numbers of those before them."""
        numbers: dict[int, int] = {}
        blocks: list[tuple[Any, ...]] = []
        sequences = []
        for number, each in self.sequences.items():
            for block in each.blocks():
                if id(block) not in numbers:
                    parent = -1 if block.parent is None else numbers[id(block.parent)]
                    numbers[id(block)] = len(blocks)
                    blocks.append((parent, tuple(block.pages), block.length, block.start,
                                   block.sinks, block.offset, block.references))  # fmt: skip
            sequences.append((number, numbers[id(each.last)], each.length, each.window,
                              each.sinks, tuple(each.tree), tuple(each.depths)))  # fmt: skip
        return tuple(self._released), self._untouched, tuple(blocks), tuple(sequences)

    def restore_fields(self, fields: tuple[Any, ...]) -> None:
        """See `relaxvm.vm.saved_runs.states`; of a table without sequences."""
        subject = "pages"
        released, untouched, blocks, sequences = as_fields(fields, 4, subject)
        self._untouched = as_count(untouched, subject, self.pages)
        self._released = list(as_counts(released, subject, self._untouched - 1))
        found: list[Block] = []
        taken = list(self._released)
        slots = self.pages * self.page_size
        for row in as_rows(blocks, subject):
            parent, pages, length, start, sinks, offset, references = as_fields(row, 7, subject)
            before = as_count(parent, subject, len(found) - 1, least=-1)
            block = Block(None if before < 0 else found[before], as_count(start, subject))
            block.pages = list(as_counts(pages, subject, self._untouched - 1))
            block.length = as_count(length, subject, slots)
            block.sinks = as_count(sinks, subject, slots)
            block.offset = as_count(offset, subject, slots)
            block.references = as_count(references, subject)
            if block.length - block.sinks + block.offset > len(block.pages) * self.page_size:
                raise ValueError(f"{subject}: a block has more tokens than its pages")
            taken += block.pages
            found.append(block)
        if len(set(taken)) != len(taken):
            raise ValueError(f"{subject}: a page is in two places")
        for row in as_rows(sequences, subject):
            number, last, length, window, sinks, tree, depths = as_fields(row, 7, subject)
            block = found[as_count(last, subject, len(found) - 1)]
            sequence = TokenSequence(block, as_count(length, subject, slots))
            if window is not None:
                sequence.window = as_count(window, subject, least=1)
            sequence.sinks = as_count(sinks, subject)
            sequence.tree = list(as_counts(tree, subject, least=-1))
            sequence.depths = list(as_counts(depths, subject))
            if len(sequence.tree) != len(sequence.depths) or len(sequence.tree) > _MOST_TREE:
                raise ValueError(f"{subject}: expected a depth for each node of a tree")
            if any(node >= i for i, node in enumerate(sequence.tree)):
                raise ValueError(f"{subject}: expected a node before each node of a tree")
            if sequence.length != sum(each.length for each in sequence.blocks()):
                raise ValueError(f"{subject}: a sequence is not as long as its blocks")
            self.sequences[as_count(number, subject, least=-slots - _MOST_NUMBER)] = sequence
        self._check_references(found)

    def _check_references(self, blocks: Sequence[Block]) -> None:
        counts = {id(block): 0 for block in blocks}
        for block in blocks:
            if block.parent is not None:
                counts[id(block.parent)] += 1
        for sequence in self.sequences.values():
            counts[id(sequence.last)] += 1
        if any(counts[id(block)] != block.references for block in blocks):
            raise ValueError("pages: a block has another number of references")

    def clear(self) -> None:
        """Remove all sequences."""
        self.sequences.clear()
        self._released = []
        self._untouched = 0

    @property
    def free(self) -> int:
        """The number of free pages."""
        return len(self._released) + self.pages - self._untouched

    def _take(self) -> int:
        """A free page."""
        if self._released:
            return self._released.pop()
        charge_objects(36)
        self._untouched += 1
        return self._untouched - 1

    @property
    def is_empty(self) -> bool:
        return not self.sequences and self.free == self.pages

    def __getitem__(self, number: int) -> TokenSequence:
        """The sequence of a number.

        Raises:
            InternalError: there is none.
        """
        found = self.sequences.get(number)
        if found is None:
            raise InternalError(f"the cache has no sequence {number}")
        return found

    def check_new(self, number: int) -> None:
        """Check that a number is free for a sequence."""
        if number in self.sequences:
            raise InternalError(f"the cache has a sequence {number} already")

    def add(self, number: int) -> TokenSequence:
        """Begin a sequence without tokens."""
        self.check_new(number)
        charge_objects(_BYTES_PER_SEQUENCE)
        block = Block()
        block.references = 1
        found = self.sequences[number] = TokenSequence(block)
        return found

    def remove(self, number: int) -> None:
        """End a sequence; pages that no other sequence has are free then."""
        block: Block | None = self[number].last
        while block is not None and block.references == 1:
            self._released += block.pages
            block = block.parent
        if block is not None:
            block.references -= 1
        del self.sequences[number]

    def fork(self, number: int, child: int, at: int) -> None:
        """Begin a sequence with the first tokens of another one.

        Args:
            at: how many tokens; -1 for all.

        Raises:
            InternalError: there is no such sequence, or no such place in it; its window slides; or
                no page is free.
        """
        parent = self[number]
        self.check_new(child)
        if not -1 <= at <= parent.length:
            raise InternalError(
                f"fork: expected a place of -1 to {parent.length}, the length of the sequence "
                f"{number}, got {at}"
            )
        self.check_accepted(number)
        if at == -1:
            at = parent.length
        if parent.window is not None:
            kept = parent.length - parent.last.length + parent.sinks
            if at > kept:
                raise InternalError(
                    f"fork: the sequence {number} has a sliding window and can be forked within "
                    f"its first {kept} tokens, got {at}"
                )
        charge_objects(_BYTES_PER_SEQUENCE)
        if at == parent.length and at % self.page_size == 0 and parent.last.length > 0:
            # The parent goes on in a block of its own.
            after = Block(parent.last, parent.length)
            after.references = 1
            parent.last = after
        self._fork_block(parent, child, at)

    def _fork_block(self, parent: TokenSequence, child: int, at: int) -> None:
        left = at
        for block in parent.blocks():
            if block is not parent.last and block.length <= left:
                left -= block.length
                continue
            break
        partial = left % self.page_size
        if partial and not self.free:
            raise InternalError("the cache is full: no page is free")
        moved = left - partial
        new = Block(block.parent, at - partial)
        if moved:
            shared = Block(block.parent, block.start)
            shared.references = 2
            count = moved // self.page_size
            shared.pages, block.pages = block.pages[:count], block.pages[count:]
            shared.length = moved
            block.start += moved
            block.length -= moved
            block.parent = new.parent = shared
            if parent.window is not None and block is parent.last:
                parent.sinks -= moved
        elif block.parent is not None:
            block.parent.references += 1
        new.length = partial
        if partial:
            new.pages.append(self._take())
            self._copy(block.pages[0], new.pages[0], partial)
        new.references = 1
        self.sequences[child] = TokenSequence(new, at)

    def pop(self, number: int, count: int) -> None:
        """Remove the last tokens of a sequence.

        Raises:
            InternalError: it has fewer tokens, or no page is free for one that it shares.
        """
        sequence = self[number]
        if not 0 <= count <= sequence.length:
            raise InternalError(
                f"popn: expected 0 to {sequence.length} tokens of the sequence {number}, got "
                f"{count}"
            )
        block = sequence.last
        while block.references == 1 and count > block.length and block.parent is not None:
            count -= block.length
            sequence.length -= block.length
            self._released += block.pages
            block = sequence.last = block.parent
        if block.references == 1 and count <= block.length:
            kept = -(-(block.length - block.sinks + block.offset - count) // self.page_size)
            self._released += reversed(block.pages[kept:])
            del block.pages[kept:]
            block.length -= count
            sequence.length -= count
        elif count:
            self._pop_shared(number, count)

    def _pop_shared(self, number: int, count: int) -> None:
        """Remove tokens that other sequences keep: the sequence becomes a fork of itself."""
        temporary = -1 - number
        while temporary in self.sequences:
            temporary -= 1
        sequence = self[number]
        kept = sequence.length - sequence.last.length + sequence.sinks
        tree, depths, sequence.tree, sequence.depths = sequence.tree, sequence.depths, [], []
        self.fork(number, temporary, sequence.length - count)
        self.remove(number)
        found = self.sequences[number] = self.sequences.pop(temporary)
        found.tree, found.depths, found.window = tree, depths, sequence.window
        if sequence.window is not None:
            found.sinks = max(kept - (found.length - found.last.length), 0)

    def check_accepted(self, number: int) -> None:
        """Check that no tokens of a sequence wait for being accepted."""
        if self[number].tree:
            raise InternalError(
                f"the sequence {number} has a tree of tokens: commit the accepted ones first, by "
                "attention_kv_cache_commit_accepted_token_tree_nodes"
            )

    def slide(self, number: int, window: int, sinks: int) -> None:
        """Keep the first `sinks` tokens of a sequence and the last ones, `window` in all."""
        sequence = self[number]
        if sequence.window is not None:
            raise InternalError(f"the sequence {number} has a sliding window already")
        if window <= 0 or not 0 <= sinks < window:
            raise InternalError(
                f"expected a window of at least 1 token and from 0 to {window - 1} sinks, got "
                f"{window} and {sinks}"
            )
        before = sequence.length - sequence.last.length
        sequence.sinks = max(sinks - before, 0)
        sequence.window = window

    def check_room(self, numbers: Sequence[int], counts: Sequence[int]) -> None:
        """Check that sequences can be longer by some tokens, before any of them is.

        Raises:
            InternalError: there is no such sequence, a count is not positive, other sequences share
                the last block, or there are not enough free pages.
        """
        if len(set(numbers)) < len(numbers):
            raise InternalError("expected each sequence once")
        needed = 0
        for number, count in zip(numbers, counts, strict=True):
            sequence = self[number]
            if count <= 0:
                raise InternalError(f"expected at least 1 token to append, got {count}")
            if count > self.pages * self.page_size:
                raise InternalError(
                    f"expected at most {self.pages * self.page_size} tokens to append, the tokens "
                    f"of all pages, got {count}"
                )
            if sequence.last.references != 1:
                raise InternalError(
                    f"the last block of the sequence {number} is shared by "
                    f"{sequence.last.references - 1} others, and cannot be extended"
                )
            needed += self._pages_after(sequence, count) - len(sequence.last.pages)
        if needed > self.free:
            raise InternalError(
                f"the cache is full: {needed} more pages are needed, {self.free} are free"
            )

    def _pages_after(self, sequence: TokenSequence, count: int) -> int:
        block = sequence.last
        offset, length = block.offset, block.length + count
        sinks = block.sinks
        total = sequence.length + count
        if self.slides and sequence.window is not None and total > sequence.window:
            slid = total - sequence.window
            if sequence.sinks and not sinks:
                sinks = offset = sequence.sinks
            first = -(-sinks // self.page_size)
            gone = max((offset + slid) // self.page_size - first, 0)
            return -(-(offset + length - sinks) // self.page_size) - gone
        return -(-(offset + length - sinks) // self.page_size)

    def append(self, number: int, count: int) -> Slots:
        """Make a sequence longer; the slots of the new tokens, -1 where a window drops a token.

        The call follows `check_room`.
        """
        sequence = self[number]
        block = sequence.last
        before = block.length
        target = -(-(before - block.sinks + block.offset + count) // self.page_size)
        for _ in range(target - len(block.pages)):
            block.pages.append(self._take() if self.free else _NO_PAGE)
        block.length += count
        sequence.length += count
        self._slide(sequence)
        for i, page in enumerate(block.pages):
            if page == _NO_PAGE:
                block.pages[i] = self._take()
        places = np.arange(block.length - count, block.length)
        is_sink = np.arange(before, before + count) < block.sinks
        places = np.where(is_sink, np.arange(before, before + count), places)
        found = np.full(count, -1, np.int64)
        kept = is_sink | (places >= block.sinks)
        found[kept] = self._slots_of(block, places[kept])
        return found

    def _slide(self, sequence: TokenSequence) -> None:
        window = sequence.window
        if window is None or not self.slides or sequence.length <= window:
            return
        slid = sequence.length - window
        block = sequence.last
        if sequence.sinks and not block.sinks:
            block.sinks = block.offset = sequence.sinks
        first = -(-block.sinks // self.page_size)
        page, place = divmod(block.offset + slid, self.page_size)
        while page > first:
            gone = block.pages.pop(first)
            if gone != _NO_PAGE:
                self._released.append(gone)
            page -= 1
        sequence.length = window
        block.length -= slid
        block.offset = page * self.page_size + place

    def _slots_of(self, block: Block, places: NDArray[Any]) -> Slots:
        places = np.where(places < block.sinks, places, places - block.sinks + block.offset)
        pages = np.array(block.pages, np.int64)
        found: Slots = pages[places // self.page_size] * self.page_size + places % self.page_size
        return found

    def slots(self, number: int) -> Slots:
        """The slots of all tokens of a sequence, in order."""
        parts = [
            self._slots_of(block, np.arange(block.length)) for block in self[number].blocks()
        ]
        return np.concatenate(parts)


def runs_of(slots: Slots) -> list[int]:
    """Slots as ``[n, first, count, first, count, ...]``: n runs of consecutive ones."""
    if not len(slots):
        return [0]
    ends = np.flatnonzero(np.diff(slots) != 1) + 1
    runs = np.split(slots, ends)
    found = [len(runs)]
    for run in runs:
        found += [int(run[0]), len(run)]
    return found
