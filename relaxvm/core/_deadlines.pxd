from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t


cdef extern from "_runs.h":
    enum:
        RVM_CANCELLED
        RVM_WARNED

    ctypedef struct PyThreadState:
        uint64_t id

    ctypedef struct rvm_chunk

    ctypedef struct rvm_batch:
        pass

    ctypedef struct rvm_pause:
        int64_t steps
        const char* stops
        int64_t calls_left
        int64_t begun
        PyObject** fp
        const int64_t* ip
        bint paused

    ctypedef struct Run "rvm_active_run":
        Run* older
        PyObject* machine
        rvm_chunk* chunk
        PyObject** end
        int64_t words
        int64_t calls_left
        int64_t polls
        int asked
        rvm_pause* pause
        rvm_batch* batch
        int64_t deadline
        PyObject* host
        Run* outer
        int64_t wall_ns
        int64_t fuel
        int64_t start_fuel
        int64_t outer_objects
        int64_t objects
        int64_t census_at
        PyObject* array_handler

    ctypedef struct rvm_chunk:
        rvm_chunk* previous
        Run run
        PyObject** end
        int64_t words
        PyObject** memory

    PyThreadState* rvm_thread_state() noexcept
    void rvm_begin_run(Run*, Run*, PyThreadState*, PyObject*) noexcept
    void rvm_end_run(Run*) noexcept
    bint rvm_has_frames(PyThreadState*) noexcept
    Run* rvm_caller(Run*, Run*) noexcept
    bint rvm_pauses(Run*, int64_t) noexcept
    int rvm_enter_recursion(PyThreadState*) noexcept
    void rvm_leave_recursion(PyThreadState*) noexcept


cdef Run* all_runs() noexcept
cdef int look() except -1
cdef list take_warnings(Run* run)
