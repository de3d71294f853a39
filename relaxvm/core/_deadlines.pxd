from libc.stdint cimport int64_t


cdef extern from "_clock.h":
    ctypedef struct Watch "rvm_watch":
        int64_t deadline
        int64_t wall_ns
        const int64_t* cancellations
        int64_t seen
        Watch* outer
        Watch* inner


ctypedef Watch* (*watch_getter)() noexcept

cdef void set_watch_getter(watch_getter getter) noexcept
cdef int look() except -1
