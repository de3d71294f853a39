"""Translated code: what the translator writes and the loop runs.

Its operations are in ``core/operations.py``.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

cimport numpy as cnp

cdef extern from "_code.h" nogil:
    ctypedef struct rvm_site:
        PyObject* object
        const void* data
        int64_t count
        cnp.npy_intp* dims

    ctypedef struct rvm_place:
        int64_t source
        int64_t frame
        int64_t first
        int64_t last

    const rvm_place* rvm_find_place(const rvm_place*, int64_t, int64_t) noexcept

    ctypedef struct rvm_func:
        int64_t* code
        int64_t num_params
        int64_t num_registers
        int64_t frame_words
        PyObject* name
        rvm_place* places
        int64_t num_places
        int64_t num_shared

    ctypedef struct rvm_extent:
        int64_t* fallbacks
        int64_t* end
        int64_t scratch
        int64_t heap
        const void* compiled

    enum:
        RVM_MAX_DIMS
        RVM_MATCH_IMM
        RVM_MATCH_ANY
        RVM_MATCH_SLOT
        RVM_MAKE_IMM
        RVM_MAKE_SLOT
        RVM_NO_SLOT
        RVM_OWN_HEAP
        RVM_SHAPE_END
        RVM_MAX_STACK
        RVM_MAX_STORES

cdef enum:
    NO_ENTRY = -1
    NO_REGISTER = -1
    ENTERS = -2     # count of the site of an `enter`; data: the native code; its dims: the index of
                    # the function, and how many more times it runs before the machine is told


cdef class Image:
    cdef int64_t* code
    cdef rvm_func* funcs
    cdef rvm_extent* extents    # of the functions
    cdef PyObject** pool        # begins with NULL
    cdef PyObject** pool_end
    cdef int64_t* mark_words    # code word at which an operation starts, ascending ...
    cdef int64_t* mark_pcs      # ... and the source pc that it comes from
    cdef int64_t num_marks
    cdef int64_t* entries       # per source pc the code word to enter it at, or NO_ENTRY
    cdef dict returns           # of stepped code: per pc of a call that may push a frame, the code word
                                # to return to and the register that receives the result
    cdef rvm_place* places      # of registers, of all functions
    cdef rvm_site** sites
    cdef int64_t num_sites
    cdef readonly tuple constants   # of the pool, backwards from its end; None for the machine
    cdef tuple owned            # what else the code refers to
    cdef readonly object executable
    cdef const int64_t[::1] instr_data
    cdef const int64_t[::1] instr_offset

    cdef rvm_func* _func(self, int64_t index) except NULL
    cdef int64_t* _end(self, const rvm_func* func) noexcept
    cdef const int64_t* entry(self, int64_t pc) noexcept
    cdef int64_t source_pc(self, const int64_t* ip) noexcept
    cdef const int64_t* _resume_at(self, int64_t index, int64_t pc) except? NULL
    cdef tuple argument_values(self, int64_t pc, PyObject** fp, const rvm_func* func)
    cdef object heap_of(self, PyObject** fp, const rvm_func* func)
    cdef void drop_idle(self) noexcept
