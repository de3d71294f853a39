# cython: auto_pickle=False
"""Functions of this package whose module is imported when they are first called.

A program that is read from a file links dozens of functions, of which the core itself computes most;
their modules would take most of the time until its first result.
"""

cimport cython
from cpython.object cimport PyObject

from ._vectorcall cimport use_vectorcall

cdef extern from "Python.h":
    PyObject* PyObject_Vectorcall(PyObject*, PyObject* const*, size_t, PyObject*) except NULL


@cython.final
cdef class Deferred:
    """A function that is looked for when it is first called.

    Attributes that the function has, such as its name, are found on it, which looks for it too.

    Args:
        find: returns the function.
    """

    cdef void* _vectorcall
    cdef object _find, _function

    def __cinit__(self, find):
        self._find = find
        self._vectorcall = <void*>_call

    @property
    def function(self):
        """The function."""
        if self._function is None:
            self._function = self._find()
        return self._function

    @property
    def is_found(self):
        """Whether the function has been looked for."""
        return self._function is not None

    def __getattr__(self, name):
        return getattr(self.function, name)

    def __repr__(self):
        return repr(self.function)

    def __reduce__(self):
        raise TypeError("cannot pickle a function of a program; programs refer to them by name")


cdef PyObject* _call(PyObject* self, PyObject* const* args, size_t nargsf,
                     PyObject* kwnames) except NULL:
    cdef Deferred deferred = <Deferred>self
    if deferred._function is None:
        deferred._function = deferred._find()
    return PyObject_Vectorcall(<PyObject*>deferred._function, args, nargsf, kwnames)


cdef Deferred _some = Deferred(int)
use_vectorcall(Deferred, <char*>&_some._vectorcall - <char*><PyObject*>_some)
_some = None
