# cython: auto_pickle=False
"""Kernels that are C functions for small tensors in the usual layout, and Python functions for all."""

cimport cython
from cpython.object cimport PyObject

from functools import update_wrapper

import numpy as np

from .floating import is_ignored, report_status

cimport numpy as cnp

from ._vectorcall cimport use_vectorcall

cnp.import_array()
cnp.import_ufunc()

cdef extern from "_direct_impl.h":
    enum:
        RVM_ASK_KERNEL, RVM_RAISED, RVM_DONE
        RVM_ADD, RVM_SUBTRACT, RVM_MULTIPLY, RVM_DIVIDE, RVM_MAXIMUM, RVM_MINIMUM
        RVM_EXP, RVM_LOG, RVM_SQUARE, RVM_MATMUL
    ctypedef struct ufunc_object "PyUFuncObject":
        pass
    ctypedef int (*rvm_direct)(void*, PyObject* const*, Py_ssize_t) noexcept

    rvm_direct rvm_find_direct(const char*) noexcept
    int rvm_binary_kernel(void*, PyObject* const*, Py_ssize_t) noexcept
    void rvm_learn_loops(int, ufunc_object*) noexcept

cdef extern from "Python.h":
    Py_ssize_t PyVectorcall_NARGS(size_t) noexcept
    PyObject* PyObject_Vectorcall(PyObject*, PyObject* const*, size_t, PyObject*) noexcept
    PyObject* Py_None
    void Py_INCREF(PyObject*) noexcept


@cython.final
cdef class DirectKernel:
    """A kernel in C where it takes the arguments, else the one in Python.

    Both compute the same, bit for bit, and report the same floating-point errors.

    Args:
        name: of the kernel, without its prefix; for messages of numpy's kind if there is a `ufunc`.
        general: the kernel in Python.
        ufunc: the ufunc that the kernel is, if it is just one.

    Raises:
        KeyError: there is no such kernel in C.
    """

    cdef void* _vectorcall
    cdef rvm_direct _direct
    cdef object _general
    cdef readonly object ufunc
    cdef dict __dict__          # the name, documentation and module of the function in Python

    def __cinit__(self, str name, general, ufunc=None):
        self._direct = rvm_find_direct(name.encode())
        if self._direct is NULL and ufunc is not None and ufunc.nin == 2:
            self._direct = rvm_binary_kernel
        if self._direct is NULL:
            raise KeyError(name)
        self._general = general
        update_wrapper(self, general)
        self.ufunc = ufunc
        self._vectorcall = <void*>_vectorcall

    def __repr__(self):
        return f"<DirectKernel {self.__name__}>"

    def __reduce__(self):
        raise TypeError("cannot pickle a kernel; programs refer to kernels by name")


cdef PyObject* _vectorcall(PyObject* self, PyObject* const* args, size_t nargsf,
                           PyObject* kwnames) except NULL:
    cdef int answer
    if kwnames is NULL:
        answer = (<DirectKernel>self)._direct(
            <void*>(<DirectKernel>self).ufunc, args, PyVectorcall_NARGS(nargsf))
        if answer == RVM_DONE:
            Py_INCREF(Py_None)
            return Py_None
        if answer == RVM_RAISED:
            return NULL
        if answer != RVM_ASK_KERNEL:
            return _report(self, -1 - answer, args, nargsf)
    return PyObject_Vectorcall(<PyObject*>(<DirectKernel>self)._general, args, nargsf, kwnames)


cdef PyObject* _report(PyObject* self, int status, PyObject* const* args, size_t nargsf) except NULL:
    """After a result with a floating-point status that numpy may have something to say about."""
    cdef DirectKernel kernel = <DirectKernel>self
    if kernel.ufunc is not None:
        report_status(status, kernel.ufunc.__name__)
    elif not is_ignored(status):
        # Once more, step by step: the inputs are apart from the results.
        return _call(<PyObject*>kernel._general, args, nargsf)
    Py_INCREF(Py_None)
    return Py_None


cdef PyObject* _call(PyObject* func, PyObject* const* args, size_t nargsf) except NULL:
    return PyObject_Vectorcall(func, args, nargsf, NULL)


cdef DirectKernel _some = DirectKernel("matmul", is_ignored)
use_vectorcall(DirectKernel, <char*>&_some._vectorcall - <char*><PyObject*>_some)
_some = None

for _which, _ufunc in (
    (RVM_ADD, np.add), (RVM_SUBTRACT, np.subtract), (RVM_MULTIPLY, np.multiply),
    (RVM_DIVIDE, np.true_divide), (RVM_MAXIMUM, np.maximum), (RVM_MINIMUM, np.minimum),
    (RVM_EXP, np.exp), (RVM_LOG, np.log), (RVM_SQUARE, np.square), (RVM_MATMUL, np.matmul),
):
    rvm_learn_loops(_which, <ufunc_object*><PyObject*>_ufunc)
