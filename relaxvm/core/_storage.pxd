from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int64_t

cimport numpy as cnp


cdef extern from "_account.h":
    ctypedef struct rvm_account:
        int64_t max_live
        int64_t max_alloc
        int64_t live
        int64_t arrays
        int64_t peak
        int64_t refused
        int64_t refused_live


cdef extern from "Python.h":
    PyTypeObject* Py_TYPE(PyObject*) noexcept
    Py_ssize_t Py_REFCNT(PyObject*) noexcept


ctypedef PyObject* (*newfunc)(PyTypeObject*, PyObject*, PyObject*) noexcept


cdef class Allocator:
    cdef readonly object device
    cdef rvm_account _account
    cdef int64_t _cached
    cdef int64_t _num_live
    cdef int64_t _num_allocs
    cdef int64_t _max_cached
    cdef char** _idle           # heads of the free lists by size class; NULL if nothing is kept

    cdef int64_t _live_bytes(self) noexcept
    cdef object _excess(self, nbytes, int64_t live)
    cdef object _refusal(self)
    cdef object array_handler(self)
    cdef void name_the_limit(self) noexcept
    cdef char* _acquire(self, int64_t nbytes, int64_t* capacity) noexcept
    cdef void _drop_idle(self) noexcept


cdef class Storage:
    cdef char* data
    cdef int64_t capacity
    cdef readonly int64_t nbytes
    cdef PyObject* allocator    # owned by all of its storages together
    cdef PyObject* _scope       # owned; NULL is "global"


cdef PyObject* take_storage(PyObject* allocator, int64_t nbytes) noexcept


cdef inline bint renew_storage(PyObject* old, PyObject* allocator, int64_t nbytes) noexcept:
    """Let a storage that is about to be released be the next one of a pooled allocator: True if it is one
    of the allocator, with as many bytes, to which there is no other reference."""
    if (old is NULL or Py_TYPE(old) is not <PyTypeObject*>Storage or Py_REFCNT(old) != 1
            or (<Storage>old).allocator is not allocator or (<Storage>old).nbytes != nbytes
            or (<Storage>old)._scope is not NULL or (<Allocator>allocator)._idle is NULL):
        return False
    (<Allocator>allocator)._num_allocs += 1
    return True


cdef PyObject* storage_array(PyObject* storage, int64_t offset, int nd, const cnp.npy_intp* dims,
                             cnp.PyArray_Descr* descr) noexcept

cdef newfunc set_new(type cls, newfunc new) noexcept
