# cython: auto_pickle=False
"""The package's C kernels: what there is, and their calls from Python.

The kernels are in the folder `c`; `kernel_call.h` there says what an implementation is.
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from functools import update_wrapper

import numpy as np

from ..core._deferred import Deferred
from ..core.floating import is_ignored, report_status

cimport numpy as cnp

from ..core._deadlines cimport look
from ..core._threads cimport rvm_section, run_section, take_pool, threads

from ..core._vectorcall cimport use_vectorcall

cnp.import_array()
cnp.import_ufunc()

_NUMPY_BUFFER = 8192
"""Elements of numpy's buffers."""

_MOST_PROGRAMS = 4096

cdef extern from "kernels/_table_impl.h":
    enum:
        RVM_OK, RVM_ASK_REFERENCE
        RVM_NUM_DTYPES, RVM_DTYPE_OTHER, RVM_PARAMS_BYTES
        RVM_ADD, RVM_SUBTRACT, RVM_MULTIPLY, RVM_DIVIDE, RVM_MAXIMUM, RVM_MINIMUM
        RVM_EXP, RVM_LOG, RVM_SQUARE, RVM_MATMUL
        RVM_EXPM1, RVM_LOG1P, RVM_FLOOR, RVM_CEIL, RVM_RINT, RVM_TRUNC
    const unsigned char* rvm_numpy_types
    ctypedef struct ufunc_object "PyUFuncObject":
        pass
    ctypedef struct RvmImplementation:
        const char* name
        const char* kernel
        void* workspace
        int uses_ufunc
        unsigned dtypes
        long long most_bytes
        double ulp
    ctypedef struct rvm_way:
        const RvmImplementation* how
    ctypedef struct rvm_ways:
        int num_ways
        int takes_program
        rvm_way* ways
        ufunc_object* ufunc

    enum:
        RVM_MAX_WAYS

    ctypedef struct RvmReports:
        int count
        unsigned char* names
        unsigned char* statuses

    ctypedef struct RvmSet:
        const char* name
        int lanes
    const RvmSet* rvm_sets
    PyObject* rvm_programs
    int (*rvm_look)() except -1
    int (*rvm_pool_threads)() noexcept nogil
    int (*rvm_pool_take)(int, int) noexcept nogil
    int (*rvm_pool_run)(rvm_section*, int) noexcept nogil

    bint rvm_is_in(unsigned, int) noexcept
    bint rvm_has_set(const RvmSet*) noexcept
    int rvm_dtype_of(const cnp.PyArray_Descr*) noexcept
    void rvm_offer_loops(int, ufunc_object*) noexcept
    void rvm_offer_finders() noexcept
    void rvm_offer_reductions(int64_t) noexcept
    const RvmImplementation* rvm_implementation_at(const RvmSet*, int) noexcept
    void rvm_add_way(rvm_ways*, const RvmImplementation*) noexcept
    int rvm_dispatch(rvm_ways*, PyObject* const*, Py_ssize_t, int*, RvmReports*) noexcept
    int64_t rvm_release_workspace() noexcept
    enum:
        RVM_MOST_COPIED
    bint rvm_copy_apart(const rvm_ways*, PyObject* const*, Py_ssize_t, PyObject**) noexcept

cdef extern from "Python.h":
    Py_ssize_t PyVectorcall_NARGS(size_t) noexcept
    PyObject* PyObject_Vectorcall(PyObject*, PyObject* const*, size_t, PyObject*) noexcept
    PyObject* Py_None
    void Py_INCREF(PyObject*) noexcept
    void Py_DECREF(PyObject*) noexcept

cdef const RvmSet* _set_of(str name) except? NULL:
    """The set of a name; NULL for None."""
    cdef const RvmSet* at = rvm_sets
    if name is None:
        return NULL
    while at.name is not NULL:
        if at.name == name.encode():
            return at
        at += 1
    raise KeyError(name)


def sets():
    """The sets of instructions that there are kernels for, the best one first: the name, how many
    floats a vector has, and whether this processor has the set."""
    cdef const RvmSet* at = rvm_sets
    found = []
    while at.name is not NULL:
        found.append((at.name.decode(), at.lanes, rvm_has_set(at)))
        at += 1
    return found


def rows(str of_set=None):
    """What the C table says of each implementation of a set, or of those that need none: its name,
    that of the kernel, the data types of results (numpy's, and None for those of other packages),
    the bytes that a result stays below, whether it needs a workspace, and its greatest distance
    from the reference in ulp."""
    cdef const RvmImplementation* how
    cdef const RvmSet* of = _set_of(of_set)
    cdef int place = 0, dtype
    found = []
    while True:
        how = rvm_implementation_at(of, place)
        if how is NULL:
            return found
        dtypes = [
            cnp.PyArray_DescrFromType(rvm_numpy_types[dtype])
            for dtype in range(1, RVM_NUM_DTYPES) if rvm_is_in(how.dtypes, dtype)
        ]
        if rvm_is_in(how.dtypes, RVM_DTYPE_OTHER):
            dtypes.append(None)
        found.append((how.name.decode(), how.kernel.decode(), tuple(dtypes), how.most_bytes,
                      how.workspace is not NULL, how.ulp))
        place += 1


cdef const RvmImplementation* _find(const RvmSet* of, str name) except NULL:
    """An implementation of a set, if there is one, or one that needs none."""
    cdef const RvmImplementation* how
    cdef int place = 0
    cdef bytes wanted = name.encode()
    while True:
        how = rvm_implementation_at(of, place)
        if how is NULL:
            if of is NULL:
                raise KeyError(name)
            return _find(NULL, name)
        if how.name == wanted:
            return how
        place += 1


@cython.final
cdef class DispatchedKernel:
    """A kernel: the first of its implementations in C that takes the arguments, else the reference.

    Args:
        reference: the kernel in Python, which takes everything; or a `Deferred` that finds it.
        implementations: names of rows of the table, in the order in which they are tried.
        ufunc: the ufunc that the kernel is, if it is just one; floating-point errors are reported in
            its name.
        of_set: the set of instructions whose implementations are meant, besides those that need
            none.

    Raises:
        KeyError: there is no such implementation.
        ValueError: one needs the ufunc and there is none; or there are more than 8.
    """

    cdef void* _vectorcall
    cdef rvm_ways _ways
    cdef object _reference
    cdef readonly object ufunc
    cdef readonly tuple implementations
    cdef dict __dict__          # the name, documentation and module of the function in Python

    def __cinit__(self, reference, tuple implementations, ufunc=None, str of_set=None):
        cdef const RvmImplementation* how
        cdef const RvmSet* of = _set_of(of_set)
        if len(implementations) > RVM_MAX_WAYS:
            raise ValueError(
                f"expected at most {RVM_MAX_WAYS} implementations, got {implementations}"
            )
        for name in implementations:
            how = _find(of, name)
            if how.uses_ufunc and (ufunc is None or ufunc.nin != 2):
                raise ValueError(f"{name}: expected a ufunc of two inputs, got {ufunc}")
            rvm_add_way(&self._ways, how)
        self._reference = reference
        self.implementations = implementations
        if type(reference) is not Deferred:
            update_wrapper(self, reference)
        self.ufunc = ufunc
        self._ways.ufunc = <ufunc_object*><PyObject*>ufunc
        self._vectorcall = <void*>_vectorcall

    @property
    def reference(self):
        """The kernel in Python."""
        if type(self._reference) is Deferred:
            self._reference = self._reference.function
            update_wrapper(self, self._reference)
        return self._reference

    def __getattr__(self, name):
        # The reference may not have been looked for yet, from which the attributes are.
        if type(self._reference) is Deferred:
            return getattr(self.reference, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def may_write(self, dtype, int64_t nbytes):
        """Whether an implementation may take a call with a result of this data type and size."""
        cdef const RvmImplementation* how
        cdef int i, number = rvm_dtype_of(<cnp.PyArray_Descr*>dtype)
        for i in range(self._ways.num_ways):
            how = self._ways.ways[i].how
            if nbytes < how.most_bytes and rvm_is_in(how.dtypes, number):
                return True
        return False

    def __repr__(self):
        return f"<DispatchedKernel {self.__name__}>"

    def __reduce__(self):
        raise TypeError("cannot pickle a kernel; programs refer to kernels by name")


cdef PyObject* _vectorcall(PyObject* self, PyObject* const* args, size_t nargsf,
                           PyObject* kwnames) except NULL:
    cdef int answer, status
    cdef RvmReports reports
    if kwnames is NULL:
        answer = rvm_dispatch(
            &(<DispatchedKernel>self)._ways, args, PyVectorcall_NARGS(nargsf), &status, &reports)
        if answer == RVM_OK:
            if status:
                return _report(self, status, &reports, args, nargsf)
            Py_INCREF(Py_None)
            return Py_None
        if answer != RVM_ASK_REFERENCE:
            return NULL
        if (<DispatchedKernel>self)._ways.takes_program and _compile(args, PyVectorcall_NARGS(nargsf)):
            return _vectorcall(self, args, nargsf, kwnames)
        if _with_copies(self, args, nargsf):
            Py_INCREF(Py_None)
            return Py_None
    return PyObject_Vectorcall(<PyObject*>(<DispatchedKernel>self)._reference, args, nargsf, kwnames)


cdef bint _with_copies(PyObject* self, PyObject* const* args, size_t nargsf) except -1:
    """Try the implementations with copies of tensors that are not contiguous; whether one has done it."""
    cdef PyObject* copied[RVM_MOST_COPIED]
    cdef Py_ssize_t i, count = PyVectorcall_NARGS(nargsf)
    cdef int answer, status
    cdef RvmReports reports
    if not rvm_copy_apart(&(<DispatchedKernel>self)._ways, args, count, copied):
        return False
    try:
        answer = rvm_dispatch(&(<DispatchedKernel>self)._ways, copied, count, &status, &reports)
        if answer == RVM_OK and status:
            Py_DECREF(_report(self, status, &reports, copied, nargsf))
    finally:
        for i in range(count):
            Py_DECREF(copied[i])
    if answer == RVM_OK or answer == RVM_ASK_REFERENCE:
        return answer == RVM_OK
    return -1  # with an exception


cdef int _compile(PyObject* const* args, Py_ssize_t count) except -1:
    """Compile the text among arguments; whether that was new and there is a program."""
    cdef Py_ssize_t i
    for i in range(count):
        if type(<object>args[i]) is str:
            if <object>args[i] in _programs:
                return False
            from ._tiles import offer  # here, since it is made of this module's table
            return offer(<object>args[i])
    return False


cdef PyObject* _report(PyObject* self, int status, const RvmReports* reports,
                       PyObject* const* args, size_t nargsf) except NULL:
    """After a result with a floating-point status that numpy may have something to say about."""
    cdef DispatchedKernel kernel = <DispatchedKernel>self
    cdef int i
    if reports.count:
        for i in range(reports.count):
            report_status(reports.statuses[i], _step_names[reports.names[i]])
    elif kernel.ufunc is not None:
        report_status(status, kernel.ufunc.__name__)
    elif not is_ignored(status):
        # Once more, step by step: the inputs are apart from the results.
        kernel._reference(*[<object>args[i] for i in range(PyVectorcall_NARGS(nargsf))])
    Py_INCREF(Py_None)
    return Py_None


cdef PyObject* _call(PyObject* func, PyObject* const* args, size_t nargsf) except NULL:
    return PyObject_Vectorcall(func, args, nargsf, NULL)


def _reduced_at_once():
    """How many elements of a row numpy adds up by one call of a loop, at most: before some version, as
    many as its buffers hold.  Sums of pairs round otherwise if they are cut."""
    row = np.zeros(_NUMPY_BUFFER + 1, np.float32)
    row[0] = 1 << 24  # one more is rounded off, two are not
    row[-2:] = 1
    return _NUMPY_BUFFER if np.add.reduce(row) == row[0] else np.iinfo(np.int64).max


cdef DispatchedKernel _some = DispatchedKernel(is_ignored, ())
use_vectorcall(DispatchedKernel, <char*>&_some._vectorcall - <char*><PyObject*>_some)
_some = None

for _which, _ufunc in (
    (RVM_ADD, np.add), (RVM_SUBTRACT, np.subtract), (RVM_MULTIPLY, np.multiply),
    (RVM_DIVIDE, np.true_divide), (RVM_MAXIMUM, np.maximum), (RVM_MINIMUM, np.minimum),
    (RVM_EXP, np.exp), (RVM_LOG, np.log), (RVM_SQUARE, np.square), (RVM_MATMUL, np.matmul),
    (RVM_EXPM1, np.expm1), (RVM_LOG1P, np.log1p), (RVM_FLOOR, np.floor), (RVM_CEIL, np.ceil),
    (RVM_RINT, np.rint), (RVM_TRUNC, np.trunc),
):
    rvm_offer_loops(_which, <ufunc_object*><PyObject*>_ufunc)
rvm_offer_finders()
rvm_offer_reductions(_reduced_at_once())
rvm_look = look
rvm_pool_threads = threads
rvm_pool_take = take_pool
rvm_pool_run = run_section

_programs = {}
rvm_programs = <PyObject*>_programs
cdef tuple _step_names = ()


def offer_steps(tuple names):
    """Give the names in which implementations of several steps report floating-point errors."""
    global _step_names
    _step_names = names


def release_workspace():
    """Give the workspace that is kept between calls of kernels, for the whole process, back to the
    system; return its bytes."""
    return rvm_release_workspace()


def offer_program(str text, bytes program):
    """Give what a text has been compiled to, which implementations get in place of it; None if they
    cannot run it.  Return whether that is new.  A number of texts is kept; beyond, all are forgotten."""
    if program is not None and len(program) > RVM_PARAMS_BYTES:
        raise ValueError(f"expected at most {RVM_PARAMS_BYTES} bytes, got {len(program)}")
    if text in _programs:
        return False
    if len(_programs) >= _MOST_PROGRAMS:
        _programs.clear()
    _programs[text] = program
    return True
