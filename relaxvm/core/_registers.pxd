"""Places in frames for the registers of the source."""

from libc.stdint cimport int64_t

from ._code cimport rvm_place
from ._words cimport Words


cdef class Places:
    cdef const int64_t* data
    cdef const int64_t* offsets
    cdef int64_t start, size            # first pc of the function, and how many it has
    cdef int64_t num_blocks
    cdef Words blocks                   # per pc: its block
    cdef Words ends                     # per block: first and last pc; both from the start on
    cdef Words first_edges, edges       # per block: the blocks before it
    cdef Words references, sorted       # of `Reference`
    cdef Words live, written, waiting   # while looking for where a register is live
    cdef Words opened, closed, links    # ranges by their first and last pc
    cdef Words free
    cdef Words places                   # of `rvm_place`, of all functions

    cdef int64_t assign(self, const int64_t* data, const int64_t* offsets, int64_t start,
                        int64_t end, int64_t num_params, int64_t kept) except -1
    cdef int _find_blocks(self) except -1
    cdef int64_t _successors(self, int64_t block, int64_t* found) noexcept
    cdef int _find_references(self) except -1
    cdef int _refer(self, int64_t register, int64_t at) except -1
    cdef int _sort_references(self) except -1
    cdef int _find_ranges(self, int64_t num_params, int64_t kept) except -1
    cdef int64_t _follow(self, rvm_place* place, int64_t stamp, int64_t budget) except? -1
    cdef int64_t _share(self, int64_t first_place, int64_t num_params) except -1
