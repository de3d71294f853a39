# cython: auto_pickle=False
"""Translated code: operations, functions, the pool of constants, and the way back to the source."""

cimport cython
from cpython.mem cimport PyMem_RawFree
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int64_t

from ._isa cimport (
    ARG_CONSTANT,
    ARG_IMMEDIATE,
    ARG_KIND,
    ARG_REGISTER,
    ARG_VALUE,
    OP_CALL as SRC_CALL,
    OP_IF as SRC_IF,
    VM_REGISTER,
    VOID_REGISTER,
)

cdef int64_t _num_images = 0


@cython.final
@cython.no_gc_clear  # the pool stays valid; every cycle leads through the machine, which lets go
cdef class Image:
    """An executable as the loop runs it: code, functions, pool and sites.  Belongs to one machine."""

    def __cinit__(self):
        global _num_images
        _num_images += 1
        self.serial = _num_images

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.num_sites):
            Py_XDECREF(self.sites[i].object)
            PyMem_RawFree(self.sites[i])
        PyMem_RawFree(self.sites)
        PyMem_RawFree(self.code)
        PyMem_RawFree(self.funcs)
        PyMem_RawFree(self.pool)
        PyMem_RawFree(self.mark_words)
        PyMem_RawFree(self.mark_pcs)

    cdef int64_t source_pc(self, const int64_t* ip) noexcept:
        """The source pc of the operation that the word at `ip` belongs to."""
        cdef int64_t word = ip - self.code
        cdef int64_t low = 0, high = self.num_marks, middle
        while low < high:
            middle = (low + high) >> 1
            if self.mark_words[middle] <= word:
                low = middle + 1
            else:
                high = middle
        return self.mark_pcs[low - 1] if low else 0

    cdef tuple argument_values(self, int64_t pc, PyObject** fp):
        """What the arguments of the call at `pc` hold in the frame at `fp`; empty if it is no call."""
        cdef const int64_t* words = &self.instr_data[self.instr_offset[pc]]
        cdef int64_t i, value, kind
        cdef list values = []
        if words[0] == SRC_IF:
            return (_register(fp, words[1]),)
        if words[0] != SRC_CALL:
            return ()
        for i in range(min(words[3], 32)):
            value = ARG_VALUE(words[4 + i])
            kind = ARG_KIND(words[4 + i])
            if kind == ARG_REGISTER:
                if value == VOID_REGISTER or value == VM_REGISTER:
                    values.append(None)
                else:
                    values.append(_register(fp, value))
            elif kind == ARG_IMMEDIATE:
                values.append(value)
            elif kind == ARG_CONSTANT:
                values.append(self.executable.constants[value])
            else:
                values.append(self.executable.functions[value])
        return tuple(values)

    cdef void drop_idle(self) noexcept:
        """Forget the arrays that sites keep for their next use."""
        cdef int64_t i
        cdef PyObject* object
        for i in range(self.num_sites):
            object = self.sites[i].object
            self.sites[i].object = NULL
            Py_XDECREF(object)


cdef object _register(PyObject** fp, int64_t index):
    return None if fp[index] is NULL else <object>fp[index]
