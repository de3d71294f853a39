# cython: auto_pickle=False
"""The runs in progress: until when they may run, whether they were cancelled, and what their kernels
warn of.

Kernels work in pieces and call `check_time` between them, so that a limit, a cancellation or a signal
ends a kernel that takes long.  Outside of a run there is no deadline, and `check_time` handles signals
only.
"""

from libc.stdint cimport INT64_MAX, int64_t

from ..errors import CancelledError, LimitError

cdef extern from "_clock.h":
    int64_t rvm_clock_ns() noexcept

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1

cdef extern from *:
    """
    static rvm_active_run rvm_all_runs = {&rvm_all_runs, &rvm_all_runs};
    """
    Run rvm_all_runs


cdef Run* all_runs() noexcept:
    """The head of the list of all runs in progress, see ``_runs.h``."""
    return &rvm_all_runs


cdef int look() except -1:
    """Handle signals, and raise if a run that this code is part of is to end."""
    cdef Run* run
    cdef int64_t now = 0
    PyErr_CheckSignals()
    run = rvm_caller(&rvm_all_runs, &rvm_all_runs)
    while run is not NULL:
        if run.asked & RVM_CANCELLED:
            raise CancelledError("the run was cancelled")
        if run.deadline != INT64_MAX:
            if now == 0:
                now = rvm_clock_ns()
            if run.deadline < now:
                raise LimitError(
                    f"the run took longer than {run.wall_ns / 1e9:g} s (limit wall_time)", "wall_time")
        run = rvm_caller(&rvm_all_runs, run)
    return 0


def check_time():
    """Handle signals, and end the run that calls it if that was cancelled or its time is over.

    Kernels call it between pieces of their work, which take less than 50 ms.

    Raises:
        LimitError: the time of ``Limits.wall_time`` is over.
        CancelledError: the run was cancelled.
        BaseException: what a handler of a signal raises.
    """
    look()


# What the kernels of runs have warned of: the address of the run, the id of the thread, and the message.
cdef list _warnings = []


def warn_later(str message):
    """Let the run that calls this code give a warning, with its position, once the call has ended.

    Returns:
        Whether there is such a run.
    """
    cdef Run* run = rvm_caller(&rvm_all_runs, &rvm_all_runs)
    if run is NULL:
        return False
    if not run.asked & RVM_WARNED:
        take_warnings(run)  # of an earlier run at the same address that has ended with an exception
        run.asked |= RVM_WARNED
    entry = (<size_t>run, rvm_thread_state().id, message)
    if entry not in _warnings:  # a kernel that works in pieces says the same of each
        _warnings.append(entry)
    return True


cdef list take_warnings(Run* run):
    """Remove and return the messages of a run that come from this thread."""
    global _warnings
    cdef tuple source = (<size_t>run, rvm_thread_state().id)
    cdef list taken = []
    cdef list rest = []
    for entry in _warnings:
        if entry[:2] == source:
            taken.append(entry[2])
        else:
            rest.append(entry)
    if taken:
        _warnings = rest
    if run.batch is NULL:  # else other threads may have warned, too
        run.asked &= ~RVM_WARNED
    return taken
