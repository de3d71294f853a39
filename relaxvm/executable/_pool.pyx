"""Loops over constant pools, for programs with thousands of small tensors.

The functions here handle ordinary constants in one pass and leave all others to their callers, which have
the rules and the messages.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

cimport numpy as cnp

cnp.import_array()

cdef extern from *:
    """
    /* A new read-only, contiguous array over `data`, which `base` keeps alive. */
    static PyObject *rvm_pool_array(PyArray_Descr *descr, int nd, npy_intp *dims, void *data,
                                    PyObject *base) {
        Py_INCREF(descr); /* stolen */
        PyObject *made = PyArray_NewFromDescr(&PyArray_Type, descr, nd, dims, NULL, data,
                                              NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED, NULL);
        if (made == NULL) return NULL;
        Py_INCREF(base); /* stolen, also on failure */
        if (PyArray_SetBaseObject((PyArrayObject *)made, base) < 0) {
            Py_DECREF(made);
            return NULL;
        }
        return made;
    }
    """
    cnp.ndarray rvm_pool_array(cnp.dtype descr, int nd, cnp.npy_intp* dims, void* data, object base)

cdef extern from "numpy/arrayobject.h":
    void PyArray_UpdateFlags(cnp.ndarray array, int flags) noexcept

cdef enum:
    MOST_DIMS = 32
    MOST_BYTES = 1 << 14
    ALIGNMENT = 64


def read_tensors(data, Py_ssize_t position, Py_ssize_t count, bytes prefix, int most_rank,
                 dtype_of, memory):
    """Read consecutive tensor constants until there is one that is not ordinary: that has a field or
    a size that is not valid, no elements, or more than 16 KiB of them.

    Args:
        data: the stream, as a memoryview of bytes.
        position: where the first constant starts.
        count: the most tensors to read.
        prefix: the fields of a tensor constant before its rank.
        most_rank: the most dimensions of a tensor.
        dtype_of: returns the dtype for (code, bits, lanes), or None if it is not ordinary.
        memory: a writable memoryview of bytes to which the elements are copied, each tensor to a
            multiple of 64 bytes from its start; reading ends when it is full. If it is None, the
            arrays are views of `data`.

    Returns:
        The read-only arrays, the position after the last, and the bytes of `memory` that are used.
    """
    cdef Py_buffer stream, room
    cdef const char* start
    cdef const char* at
    cdef char* place
    cdef Py_ssize_t left, head = len(prefix) + 8, used = 0
    cdef int32_t rank, i
    cdef uint32_t word, known = 0
    cdef int64_t dim, nbytes, stored, itemsize = 0
    cdef cnp.npy_intp dims[MOST_DIMS]
    cdef bint copy = memory is not None, ordinary
    cdef cnp.dtype descr = None
    cdef cnp.ndarray array
    cdef list arrays = []
    base = memory.toreadonly() if copy else data
    memset(&room, 0, sizeof(room))
    PyObject_GetBuffer(data, &stream, PyBUF_SIMPLE)
    try:
        if copy:
            PyObject_GetBuffer(memory, &room, PyBUF_WRITABLE)
        start = <const char*>stream.buf
        while len(arrays) < count:
            # Every field is read once: another thread or process may write to `data` meanwhile.
            at = start + position
            left = stream.len - position
            if left < head or memcmp(at, <const char*>prefix, len(prefix)) != 0:
                break
            memcpy(&rank, at + head - 8, 4)
            memcpy(&word, at + head - 4, 4)
            at += head
            left -= head
            if not 0 <= rank <= min(most_rank, <int>MOST_DIMS) or left < 8 * (rank + 1):
                break
            if descr is None or word != known:
                descr = dtype_of(word & 0xFF, word >> 8 & 0xFF, word >> 16)
                if descr is None:
                    break
                known = word
                itemsize = cnp.PyDataType_ELSIZE(descr)
            nbytes = itemsize
            ordinary = True
            for i in range(rank):
                memcpy(&dim, at + 8 * i, 8)
                ordinary = 1 <= dim <= MOST_BYTES // nbytes
                if not ordinary:
                    break
                dims[i] = <cnp.npy_intp>dim
                nbytes *= dim
            memcpy(&stored, at + 8 * rank, 8)
            at += 8 * (rank + 1)
            left -= 8 * (rank + 1)
            if not ordinary or stored != nbytes or nbytes > left:
                break
            place = <char*>at
            if copy:
                if nbytes > room.len - used:
                    break
                place = <char*>room.buf + used
                memcpy(place, at, nbytes)
                used += (nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
            array = rvm_pool_array(descr, rank, dims, place, base)
            if not copy:
                PyArray_UpdateFlags(array, cnp.NPY_ARRAY_ALIGNED)
            arrays.append(array)
            position += head + 8 * (rank + 1) + nbytes
    finally:
        PyBuffer_Release(&stream)
        PyBuffer_Release(&room)  # nothing if it was not acquired
    return arrays, position, used


cdef inline bint _is_frozen_array(object value) noexcept:
    return type(value) is cnp.ndarray and not cnp.PyArray_ISWRITEABLE(<cnp.ndarray>value)


def frozen_pool(values, freeze):
    """Return ``tuple(map(freeze, values))`` for a function that returns read-only arrays as they
    are."""
    cdef list pool = list(values)
    cdef Py_ssize_t i
    for i in range(len(pool)):
        if not _is_frozen_array(pool[i]):
            pool[i] = freeze(pool[i])
    return tuple(pool)


def odd_constants(tuple constants):
    """Look for the constants that are not ordinary: all but read-only arrays of another dtype than
    bool.

    Returns:
        Their indices, and the largest rank of the ordinary ones, -1 if there are none.
    """
    cdef list odd = []
    cdef Py_ssize_t i
    cdef int rank = -1
    for i in range(len(constants)):
        value = constants[i]
        if _is_frozen_array(value) and cnp.PyArray_TYPE(<cnp.ndarray>value) != cnp.NPY_BOOL:
            rank = max(rank, cnp.PyArray_NDIM(<cnp.ndarray>value))
        else:
            odd.append(i)
    return odd, rank
