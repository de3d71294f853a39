# cython: auto_pickle=False
"""Places in frames for the registers of the source.

Code generation gives each value a register of its own, so few registers of a large function hold
values that are still needed.  Registers whose values are never needed at the same time get the same
place in the frame, and a frame is as large as what is alive at once.

A register is *live* at an instruction if its value may be read there or later, before it is written
again.  Its *range* goes from the first to the last pc that reads or writes it or at which it is
live.  Registers whose ranges have no pc in common may share a place.  Some consequences:

* A register has one place in all of the function.  So code that enters the function at any pc finds
  the values that are live there, and a value is released where its register is written again, as
  without sharing, or earlier, where another register of the same place is written.
* No argument of a call has the place of its result.  So an error after the call can still be
  described with the arguments.
* A register that may be read before it is written is live from the beginning on.  Its place holds
  NULL, which reads as None.

The register of the shape heap counts as live until the function ends: the notes on errors say what
the dimensions were.

All of this takes time linear in the code.
"""

cimport cython
from cpython.mem cimport PyMem_RawFree
from libc.stdint cimport int64_t
from libc.string cimport memset

from ._code cimport rvm_place
from ._isa cimport (
    ARG_KIND,
    ARG_REGISTER,
    ARG_VALUE,
    CALL_ARGS,
    CALL_ARGS_COUNT,
    CALL_DST,
    GOTO_PC_OFFSET,
    IF_COND,
    IF_FALSE_OFFSET,
    OP_CALL,
    OP_GOTO,
    OP_IF,
    OP_RET,
    RET_RESULT,
    VM_REGISTER,
    VOID_REGISTER,
)
from ._words cimport Words, append, extend

__all__ = ["Places"]


ctypedef struct Reference:
    # Where an instruction reads or writes a register.
    int64_t register
    int64_t at              # twice the pc from the start of the function on; for a write, plus one


cdef enum:
    REFERENCE_WORDS = 2
    PLACE_WORDS = sizeof(rvm_place) // sizeof(int64_t)
    FOLLOWED_BLOCKS = 32    # that the search for live registers looks at, per reference and block
    RADIX_BITS = 8


@cython.final
cdef class Places:
    """Gives the registers of functions places."""

    def __dealloc__(self):
        PyMem_RawFree(self.blocks.data)
        PyMem_RawFree(self.ends.data)
        PyMem_RawFree(self.first_edges.data)
        PyMem_RawFree(self.edges.data)
        PyMem_RawFree(self.references.data)
        PyMem_RawFree(self.sorted.data)
        PyMem_RawFree(self.live.data)
        PyMem_RawFree(self.written.data)
        PyMem_RawFree(self.waiting.data)
        PyMem_RawFree(self.opened.data)
        PyMem_RawFree(self.closed.data)
        PyMem_RawFree(self.links.data)
        PyMem_RawFree(self.free.data)
        PyMem_RawFree(self.places.data)

    cdef int64_t assign(self, const int64_t* data, const int64_t* offsets, int64_t start,
                        int64_t end, int64_t num_params, int64_t kept) except -1:
        """Add the places of a function's registers to `places`, in the order of the registers.

        Parameters get the first places, in their order.  Registers that no instruction names get
        none.

        Args:
            kept: a register whose value is needed until the function ends, for messages of errors;
                -1 for none.

        Returns:
            How many places there are.
        """
        cdef int64_t first_place = self.places.count
        self.data = data
        self.offsets = offsets
        self.start = start
        self.size = end - start
        self._find_blocks()
        self._find_references()
        self._sort_references()
        self._find_ranges(num_params, kept)
        return self._share(first_place, num_params)

    # -- the code

    cdef int _find_blocks(self) except -1:
        cdef int64_t* blocks = _zeros(&self.blocks, self.size + 1)
        cdef int64_t* first_edges
        cdef int64_t* edges
        cdef int64_t following[2]
        cdef int64_t pc, op, block, i, total
        blocks[0] = 1
        for pc in range(self.size):  # 1 where a block begins
            op = self.data[self.offsets[self.start + pc]]
            if op == OP_CALL:
                continue
            blocks[pc + 1] = 1
            if op == OP_GOTO:
                blocks[pc + self.data[self.offsets[self.start + pc] + GOTO_PC_OFFSET]] = 1
            elif op == OP_IF:
                blocks[pc + self.data[self.offsets[self.start + pc] + IF_FALSE_OFFSET]] = 1
        self.ends.count = 0
        block = -1
        for pc in range(self.size):
            if blocks[pc]:
                block += 1
                append(&self.ends, pc)
                append(&self.ends, pc)
            self.ends.data[2 * block + 1] = pc
            blocks[pc] = block
        self.num_blocks = block + 1

        first_edges = _zeros(&self.first_edges, self.num_blocks + 2)
        total = 0
        for block in range(self.num_blocks):
            for i in range(self._successors(block, following)):
                first_edges[following[i] + 2] += 1
                total += 1
        for block in range(self.num_blocks):
            first_edges[block + 2] += first_edges[block + 1]
        edges = _zeros(&self.edges, total)
        for block in range(self.num_blocks):
            for i in range(self._successors(block, following)):
                edges[first_edges[following[i] + 1]] = block
                first_edges[following[i] + 1] += 1
        return 0

    cdef int64_t _successors(self, int64_t block, int64_t* found) noexcept:
        """The blocks that may run after a block; returns how many."""
        cdef int64_t last = self.ends.data[2 * block + 1]
        cdef const int64_t* words = self.data + self.offsets[self.start + last]
        if words[0] == OP_RET:
            return 0
        if words[0] == OP_GOTO:
            found[0] = self.blocks.data[last + words[GOTO_PC_OFFSET]]
            return 1
        found[0] = block + 1
        if words[0] != OP_IF:
            return 1
        found[1] = self.blocks.data[last + words[IF_FALSE_OFFSET]]
        return 2

    cdef int _find_references(self) except -1:
        cdef const int64_t* words
        cdef int64_t pc, i
        self.references.count = 0
        for pc in range(self.size):
            words = self.data + self.offsets[self.start + pc]
            if words[0] == OP_CALL:
                for i in range(words[CALL_ARGS_COUNT]):
                    if ARG_KIND(words[CALL_ARGS + i]) == ARG_REGISTER:
                        self._refer(ARG_VALUE(words[CALL_ARGS + i]), 2 * pc)
                self._refer(words[CALL_DST], 2 * pc + 1)
            elif words[0] == OP_RET:
                self._refer(words[RET_RESULT], 2 * pc)
            elif words[0] == OP_IF:
                self._refer(words[IF_COND], 2 * pc)
        return 0

    cdef int _refer(self, int64_t register, int64_t at) except -1:
        if register != VOID_REGISTER and register != VM_REGISTER:
            (<Reference*>extend(&self.references, REFERENCE_WORDS))[0] = Reference(register, at)
        return 0

    cdef int _sort_references(self) except -1:
        """Sort the references by register, and those of each register by where they are."""
        cdef int64_t count = self.references.count // REFERENCE_WORDS
        cdef int64_t starts[1 << RADIX_BITS]
        cdef int64_t i, greatest = 0, total, digit, number
        cdef int shift = 0
        cdef Reference* found
        cdef Reference* to
        cdef Words swapped
        for i in range(count):
            greatest = max(greatest, (<Reference*>self.references.data)[i].register)
        _zeros(&self.sorted, self.references.count)
        while greatest >> shift:
            found = <Reference*>self.references.data
            to = <Reference*>self.sorted.data
            memset(starts, 0, sizeof(starts))
            for i in range(count):
                starts[(found[i].register >> shift) & ((1 << RADIX_BITS) - 1)] += 1
            total = 0
            for digit in range(1 << RADIX_BITS):
                number = starts[digit]
                starts[digit] = total
                total += number
            for i in range(count):
                digit = (found[i].register >> shift) & ((1 << RADIX_BITS) - 1)
                to[starts[digit]] = found[i]
                starts[digit] += 1
            swapped = self.references
            self.references = self.sorted
            self.sorted = swapped
            shift += RADIX_BITS
        return 0

    # -- ranges

    cdef int _find_ranges(self, int64_t num_params, int64_t kept) except -1:
        cdef Reference* found = <Reference*>self.references.data
        cdef int64_t count = self.references.count // REFERENCE_WORDS
        cdef int64_t budget = FOLLOWED_BLOCKS * (count + self.num_blocks)
        cdef int64_t i = 0, at, register, block, written, stamp
        cdef rvm_place* place
        _zeros(&self.live, self.num_blocks)
        _zeros(&self.written, self.num_blocks)
        while i < count:
            register = found[i].register
            place = <rvm_place*>extend(&self.places, PLACE_WORDS)
            place[0] = rvm_place(register, -1, found[i].at >> 1, 0)
            if register < num_params:
                place.first = 0
            stamp = i + 1  # marks blocks, so that none need be cleared for the next register
            self.waiting.count = 0
            written = -1
            while i < count and found[i].register == register:
                at = found[i].at
                block = self.blocks.data[at >> 1]
                if at & 1:
                    written = block
                    self.written.data[block] = stamp
                elif written != block:  # read before it is written in this block
                    append(&self.waiting, block)
                i += 1
            place.last = at >> 1
            budget = self._follow(place, stamp, budget)
            if register == kept:
                place.last = self.size - 1
        return 0

    cdef int64_t _follow(self, rvm_place* place, int64_t stamp, int64_t budget) except? -1:
        """Extend a range by the blocks at whose beginning the register is live: those that wait, and
        those before them, back to where it is written.  What that costs is taken from the budget,
        and when it is used up, the range is all of the function."""
        cdef int64_t block, before, i
        while self.waiting.count:
            self.waiting.count -= 1
            block = self.waiting.data[self.waiting.count]
            if self.live.data[block] == stamp:
                continue
            self.live.data[block] = stamp
            budget -= 1 + self.first_edges.data[block + 1] - self.first_edges.data[block]
            if budget < 0:
                place.first = 0
                place.last = self.size - 1
                return -2
            place.first = min(place.first, self.ends.data[2 * block])
            for i in range(self.first_edges.data[block], self.first_edges.data[block + 1]):
                before = self.edges.data[i]
                place.last = max(place.last, self.ends.data[2 * before + 1])
                if self.written.data[before] != stamp:
                    append(&self.waiting, before)
        return budget

    # -- places

    cdef int64_t _share(self, int64_t first_place, int64_t num_params) except -1:
        cdef rvm_place* places = <rvm_place*>(self.places.data + first_place)
        cdef int64_t count = (self.places.count - first_place) // PLACE_WORDS
        cdef int64_t* opened = _zeros(&self.opened, self.size)  # per pc 1 + a range, or 0 ...
        cdef int64_t* closed = _zeros(&self.closed, self.size)
        cdef int64_t* links = _zeros(&self.links, 2 * count)    # ... and per range the next such
        cdef int64_t i, pc, total = num_params
        for i in range(count - 1, -1, -1):
            links[2 * i] = opened[places[i].first]
            opened[places[i].first] = i + 1
            links[2 * i + 1] = closed[places[i].last]
            closed[places[i].last] = i + 1
        self.free.count = 0
        for pc in range(self.size):
            i = opened[pc] - 1
            while i >= 0:
                if places[i].source < num_params:
                    places[i].frame = places[i].source
                elif self.free.count:
                    self.free.count -= 1
                    places[i].frame = self.free.data[self.free.count]
                else:
                    places[i].frame = total
                    total += 1
                i = links[2 * i] - 1
            i = closed[pc] - 1
            while i >= 0:
                append(&self.free, places[i].frame)
                i = links[2 * i + 1] - 1
        for i in range(count):
            places[i].first += self.start
            places[i].last += self.start
        return total


cdef int64_t* _zeros(Words* words, int64_t count) except NULL:
    """Make an array of `count` zeros of words."""
    words.count = 0
    extend(words, count + 1)  # one more, so that there is an address
    words.count = count
    memset(words.data, 0, <size_t>count * sizeof(int64_t))
    return words.data
