"""Translated code: what the translator writes and the loop runs."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

cimport numpy as cnp

cdef extern from "_code.h" nogil:
    ctypedef struct rvm_site:
        PyObject* object
        const void* data
        int64_t count
        cnp.npy_intp* dims

    ctypedef struct rvm_func:
        int64_t* code
        int64_t num_params
        int64_t num_registers
        int64_t frame_words
        PyObject* name

    enum:
        RVM_MAX_DIMS
        RVM_MATCH_IMM
        RVM_MATCH_ANY
        RVM_MATCH_SLOT
        RVM_MAKE_IMM
        RVM_MAKE_SLOT
        RVM_SHAPE_END
        RVM_MAX_STACK
        RVM_MAX_STORES

# Operations of the loop, with the operands that follow the opcode.  `slow` is the distance to the
# cold part; values and `args` are operand words: a register number, or, if negative, a position
# before the end of the pool.
cdef enum:
    OP_RET = 1          # value
    OP_GOTO             # distance
    OP_GOTO_BACK        # distance; polls for signals
    OP_IF               # cond, distance if false
    OP_CALL             # dst, callee, count, args area, args...
    OP_CALL_VOID        # -, callee, count, args area, args...
    OP_CALL_NATIVE      # dst, NativeFunction, count, args...
    OP_CALL_VM          # dst, rvm_func*, count, frame offset, args...
    OP_COPY             # dst, value
    OP_NULL             # dst
    OP_MAKE_TUPLE       # dst, count, args...
    OP_TUPLE_GETITEM    # dst, slow, tuple, index
    OP_SHAPE_OF         # dst, slow, tensor, site
    OP_MAKE_SHAPE       # dst, slow, heap, last slot, site, count, pairs...
    OP_MATCH_SHAPE      # -, slow, x, heap, last slot, count, pairs...
    OP_CHECK_TENSOR     # -, slow, x, ndim, descr
    OP_CHECK_MATCH      # -, slow, x, ndim, descr, heap, last slot, count, pairs...
    OP_CHECK_SHAPE      # -, slow, x, ndim
    OP_CHECK_TUPLE      # -, slow, x, size
    OP_CHECK_FUNC       # -, slow, x
    OP_CHECK_PRIM       # -, slow, x, whether a float does
    OP_MATCH_PRIM       # -, slow, x, heap, code, value
    OP_MAKE_PRIM        # dst, slow, heap, code, value
    OP_READ_COND        # dst, slow, x
    OP_READ_IF          # dst, slow, x, distance if false
    OP_COMPUTE_SHAPE    # -, slow, heap, last slot, count, words...
    OP_ALLOC_HEAP       # dst, slow, slots, site
    OP_ALLOC_STORAGE    # dst, slow, Allocator, bytes
    OP_ALLOC_STORAGE_DYN  # dst, slow, Allocator, shape, item size
    OP_ALLOC_TENSOR     # dst, slow, storage, offset, shape, descr
    OP_ALLOC_TENSOR_OF  # dst, slow, storage, offset, end, descr, rank, dims...
    OP_ALLOC_STATIC     # dst, slow, storage register, Allocator, bytes, offset, descr, site, rank,
                        # dims...
    OP_RESHAPE          # dst, slow, tensor, shape
    OP_MAKE_CLOSURE     # dst, slow, function, count, args...
    OP_INVOKE_CLOSURE   # dst, slow, closure, count, frame offset, args...
    OP_UFUNC_1          # -, slow, ufunc and its loop (see _ufunc_impl.h), x, out
    OP_UFUNC_2          # -, slow, ufunc and its loop, a, b, out
    OP_FUEL             # instructions of the block
    OP_DEADLINE         # -
    OP_HOOK_BEFORE      # dst, skip distance, callee, pc, count, args...
    OP_HOOK_AFTER       # dst, scratch, callee, pc, count, args...


cdef class Image:
    cdef int64_t serial         # no two images have the same; 0 is none's
    cdef int64_t* code
    cdef rvm_func* funcs
    cdef PyObject** pool        # begins with NULL
    cdef PyObject** pool_end
    cdef int64_t* mark_words    # code word at which an operation starts, ascending ...
    cdef int64_t* mark_pcs      # ... and the source pc that it comes from
    cdef int64_t num_marks
    cdef rvm_site** sites
    cdef int64_t num_sites
    cdef tuple owned            # what code and pool refer to, but for the machine
    cdef object executable
    cdef const int64_t[::1] instr_data
    cdef const int64_t[::1] instr_offset

    cdef int64_t source_pc(self, const int64_t* ip) noexcept
    cdef tuple argument_values(self, int64_t pc, PyObject** fp)
    cdef void drop_idle(self) noexcept
