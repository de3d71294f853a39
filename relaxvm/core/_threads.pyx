# cython: auto_pickle=False
"""The threads that kernels share: one pool for the process, see `_pool_impl.h`."""

import os

from ..messages import describe
from .processors import quota

cdef extern from "_pool_impl.h":
    enum:
        RVM_MAX_THREADS
    void rvm_prepare_forks() noexcept
    void rvm_stop_section() noexcept nogil
    int rvm_threads() noexcept nogil
    void rvm_set_threads(int) noexcept nogil
    void rvm_set_quota(int) noexcept nogil
    unsigned rvm_count_sections() noexcept nogil
    int rvm_take_pool(int, int) noexcept nogil
    int rvm_run_section(rvm_section*, int) noexcept nogil

THREADS_VARIABLE = "RELAXVM_NUM_THREADS"
"""Environment variable: on how many threads kernels run."""

MAX_THREADS = RVM_MAX_THREADS


cdef int threads() noexcept nogil:
    return rvm_threads()


cdef int take_pool(int count, int waits) noexcept nogil:
    return rvm_take_pool(count, waits)


cdef int run_section(rvm_section* section, int count) noexcept nogil:
    return rvm_run_section(section, count)


def get_num_threads():
    """On how many threads a kernel runs at most: what was set, else as many as there are processors
    that the process may use.

    These are the processors in the affinity of the calling thread when the number is first needed, and no
    more than the quota of the process's control group (cgroup), rounded up.
    """
    return rvm_threads()


def set_num_threads(count):
    """Set on how many threads a kernel runs at most, the calling one among them.

    It holds for the whole process, from the next kernel on. Results of kernels in C do not depend on
    it. numpy's BLAS, which computes other matrix products, gets the same number, where it has a
    function for it.

    Args:
        count: from 1 to 256; None for as many as there are processors that the process may use.

    Raises:
        ValueError: `count` is something else.
    """
    from .blas import set_blas_threads  # here, since most programs leave it as it is

    if count is not None and not (type(count) is int and 1 <= count <= MAX_THREADS):
        raise ValueError(
            f"set_num_threads: expected an int from 1 to {MAX_THREADS}, or None, got {describe(count)}")
    rvm_set_threads(count or 0)
    set_blas_threads(rvm_threads())


def count_sections():
    """How often work was divided among threads in this process, modulo 2**32."""
    return rvm_count_sections()


def _threads_wanted():
    text = os.environ.get(THREADS_VARIABLE, "")
    if text:
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_THREADS:
            raise ValueError(
                f"{THREADS_VARIABLE}: expected a number from 1 to {MAX_THREADS}, got {text!r}")
        set_num_threads(int(text))


def _stop_for_fork():
    """Before `os.fork`: wait until other threads have left the work of this one, of which they may need
    the interpreter lock for the rest."""
    with nogil:
        rvm_stop_section()


rvm_prepare_forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_stop_for_fork)
rvm_set_quota(quota() or 0)
_threads_wanted()
