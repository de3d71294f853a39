# cython: auto_pickle=False
"""The runs of each thread: until when they may run, and whether they were cancelled.

A run enters its watch when it begins.  Kernels work in pieces and call `check_time` between them, so
that a limit, a cancellation or a signal ends a kernel that takes long.  Outside of a run there is no
deadline, and `check_time` handles signals only.
"""

from libc.stdint cimport INT64_MAX, int64_t

from ..errors import CancelledError, LimitError

cdef extern from "_clock.h":
    int64_t rvm_clock_ns() noexcept

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1


# The core keeps the innermost watch of each thread, where a run begins and ends without a call.
cdef watch_getter _innermost_watch = NULL


cdef void set_watch_getter(watch_getter getter) noexcept:
    """Tell how to get the watch of the innermost run of this thread, NULL if there is none."""
    global _innermost_watch
    _innermost_watch = getter


cdef int look() except -1:
    """Handle signals, and raise if a run of this thread is to end."""
    cdef Watch* watch
    cdef int64_t now = 0
    PyErr_CheckSignals()
    watch = NULL if _innermost_watch is NULL else _innermost_watch()
    while watch is not NULL:
        if watch.cancellations is not NULL and watch.cancellations[0] != watch.seen:
            raise CancelledError("the run was cancelled")
        if watch.deadline != INT64_MAX:
            if now == 0:
                now = rvm_clock_ns()
            if watch.deadline < now:
                raise LimitError(
                    f"the run took longer than {watch.wall_ns / 1e9:g} s (limit wall_time)",
                    "wall_time")
        watch = watch.outer
    return 0


def check_time():
    """Handle signals, and end the run of this thread if it was cancelled or its time is over.

    Kernels call it between pieces of their work, which take less than 50 ms.

    Raises:
        LimitError: the time of ``Limits.wall_time`` is over.
        CancelledError: the run was cancelled.
        BaseException: what a handler of a signal raises.
    """
    look()
