"""A growing array of 64-bit words."""

from cpython.mem cimport PyMem_RawRealloc
from libc.stdint cimport int64_t


cdef struct Words:
    int64_t* data
    int64_t count
    int64_t room


cdef inline int64_t* extend(Words* words, int64_t count) except NULL:
    """Add `count` words; returns the address of the first, valid until the next call."""
    cdef int64_t room
    cdef int64_t* data
    if words.room - words.count < count:
        room = max(64, 2 * words.room, words.count + count)
        data = <int64_t*>PyMem_RawRealloc(words.data, <size_t>room * sizeof(int64_t))
        if data is NULL:
            raise MemoryError
        words.data = data
        words.room = room
    words.count += count
    return words.data + words.count - count


cdef inline int append(Words* words, int64_t value) except -1:
    extend(words, 1)[0] = value
    return 0
