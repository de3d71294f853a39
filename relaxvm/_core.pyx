# cython: auto_pickle=False
"""The core: register files, frames and the dispatch loop.

When a `Machine` is set up, the words of its executable are translated into flat int64 code
(`core/_translate.pyx`); the operations of that code are in ``core/operations.py``.  The loop checks
nothing that `relaxvm.verify` has checked.

Three rules keep it small:

* A register that holds NULL reads as None.  Frames start as NULL, and killing a register is storing
  NULL, so no analysis has to prove that a register was written.
* An operation with a fallback never raises.  Where its guard fails, the loop continues in the
  fallback: the call of the builtin's Python reference, which gives the result or raises the error.
* VM functions and closures that call each other do not recurse in C: frames are data in chunks that
  the loop pushes and pops.
"""

cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.string cimport memset

from sys import intern

import numpy as np

from .core._storage import NaiveAllocator, PooledAllocator
from .core._translate import QUICKENED, translate
from .core.conversion import Converter
from .core.operations import enabled_rewritings
from .errors import BugError, CancelledError, InternalError, LimitError, RelaxVMError
from .core.floating import report_status
from .deep import reduce, set_types, show
from .messages import readable, warn
from .values import Shape, add_kind, to_own_value, to_value

cimport numpy as cnp

from .core._code cimport *
from .core._deadlines cimport *
from .core._threads cimport run_section, rvm_section, take_pool
from .core._storage cimport (
    Allocator, Storage, newfunc, renew_storage, rvm_account, set_new, take_storage)
from .core._native cimport RvmAny, RvmTensor, call_locals, call_native, call_scalars
from .core._operations cimport *
from .core._vectorcall cimport use_vectorcall

cnp.import_array()

__all__ = [
    "Adt", "Closure", "Machine", "NaiveAllocator", "PooledAllocator", "Ref", "Stepper", "Storage",
    "VMFunction",
]

cdef extern from "_core_impl.h" nogil:
    enum:
        RVM_RETURN_IP
        RVM_CALLER
        RVM_FUNC
        RVM_RETURN_DST
        RVM_HEADER
        RVM_FIRST_CHUNK

    PyTypeObject* rvm_shape_type
    cnp.PyArray_Descr* rvm_int64
    cnp.PyArray_Descr* rvm_bool

    void rvm_incref(PyObject*) noexcept
    int64_t rvm_clock_ns() noexcept
    bint rvm_likely(bint) noexcept
    bint rvm_unlikely(bint) noexcept
    PyObject* rvm_load(PyObject**, PyObject**, int64_t) noexcept
    PyObject* rvm_read(PyObject**, int64_t) noexcept
    void rvm_store(PyObject**, PyObject*) noexcept
    void rvm_gather(PyObject**, PyObject**, PyObject**, const int64_t*, int64_t) noexcept
    PyObject* rvm_gather_tuple(PyObject**, PyObject**, const int64_t*, int64_t) noexcept
    bint rvm_is_among(PyObject*, PyObject**, PyObject**, const int64_t*, int64_t) noexcept
    bint rvm_renew_tuple(PyObject*, PyObject**, PyObject**, const int64_t*, int64_t) noexcept
    void rvm_push_args(PyObject**, PyObject**, PyObject**, const int64_t*, int64_t) noexcept
    void rvm_clear_registers(PyObject**, int64_t) noexcept
    int rvm_truth(PyObject*) noexcept
    int rvm_store_cond(PyObject**, PyObject*) noexcept
    bint rvm_shape_dims(PyObject*, int64_t, cnp.npy_intp*, int64_t*) noexcept
    bint rvm_load_slots(PyObject**, PyObject**, int64_t, int64_t, int64_t**) noexcept
    const int64_t* rvm_match_shape(PyObject*, int64_t*, int64_t, const int64_t*) noexcept
    bint rvm_store_made_shape(PyObject**, rvm_site*, const int64_t*, int64_t,
                              const int64_t*) noexcept
    bint rvm_store_shape_of(PyObject**, rvm_site*, PyObject*) noexcept
    bint rvm_check_tensor(PyObject*, int64_t, cnp.PyArray_Descr*) noexcept
    bint rvm_check_shape(PyObject*, int64_t) noexcept
    bint rvm_check_prim(PyObject*, int64_t) noexcept
    bint rvm_check_tuple(PyObject*, int64_t) noexcept
    bint rvm_match_prim(PyObject*, PyObject*, int64_t, int64_t) noexcept
    bint rvm_compute_shape(int64_t*, const int64_t*) noexcept
    PyObject* rvm_make_prim(PyObject*, int64_t, int64_t) noexcept
    bint rvm_is_idle(PyObject*, int, const cnp.npy_intp*, cnp.PyArray_Descr*, const void*) noexcept
    void* rvm_array_data(PyObject*) noexcept
    bint rvm_bytes(int64_t, int64_t, const cnp.npy_intp*, int64_t*) noexcept
    PyObject* rvm_reshape(PyObject*, PyObject*) noexcept
    PyObject* rvm_call_packed(PyObject*, PyObject**, int64_t, int64_t*, int64_t,
                              int64_t) noexcept
    PyObject* rvm_site_heap(rvm_site*, cnp.npy_intp) noexcept
    rvm_chunk* rvm_new_chunk(rvm_chunk*, int64_t) noexcept
    rvm_chunk* rvm_drop_chunk(rvm_chunk*) noexcept
    void rvm_push_frame(PyObject**, const rvm_func*, PyObject**, const int64_t*,
                        int64_t) noexcept
    PyObject** rvm_in_new_chunk(PyObject**) noexcept
    bint rvm_is_in_new_chunk(PyObject**) noexcept
    bint rvm_has_room(Run*, PyObject**, const rvm_func*) noexcept
    PyObject** rvm_calling_frame(PyObject**) noexcept
    void rvm_no_operation() noexcept
    void rvm_reset_tuple_item(PyObject*, Py_ssize_t) noexcept
    void rvm_reuse_frame(PyObject**, const rvm_func*, PyObject**, int64_t) noexcept
    void rvm_null_registers(PyObject**, int64_t, int64_t) noexcept

cdef extern from "_batch_impl.h":
    ctypedef struct rvm_task:
        const int64_t* ip
        PyObject** args
        int count
        PyObject* kind
        PyObject* error
        PyObject* traceback
        PyObject* warnings
        int64_t begin
        int64_t end
        int thread
    ctypedef struct rvm_calls:
        int count
        PyObject* kind
        PyObject* error
        PyObject* traceback
        rvm_task* tasks
    PyObject* (*rvm_batch_warnings)(Run*) noexcept
    int (*rvm_batch_look)() except -1
    int (*rvm_batch_take_pool)(int, int) noexcept nogil
    int (*rvm_batch_run_section)(rvm_section*, int) noexcept nogil
    int rvm_batch_always
    bint rvm_defers(const rvm_site*) noexcept
    bint rvm_defer(Run*, const int64_t*, rvm_site*, PyObject*, PyObject**, PyObject**, const int64_t*,
                   int64_t, int64_t) noexcept
    bint rvm_is_interrupt(PyObject*) noexcept
    void rvm_run_batch(rvm_calls*, int) noexcept
    void rvm_drop_calls(rvm_calls*) noexcept

cdef extern from "_adt_impl.h":
    PyObject* rvm_ready_adt() except NULL
    PyObject* rvm_new_adt(PyObject*, int64_t, PyObject**, PyObject**, const int64_t*,
                          int64_t) noexcept
    bint rvm_renew_adt(PyObject*, PyObject*, int64_t, PyObject**, PyObject**, const int64_t*,
                       int64_t) noexcept
    PyObject* rvm_adt_from_fields(PyObject*, int64_t, PyObject*) noexcept
    PyObject* rvm_match_tag(PyObject*, PyObject**, const int64_t*, int64_t) noexcept
    PyObject* rvm_adt_field(PyObject*, int64_t) noexcept
    PyObject* rvm_adt_tag(PyObject*) noexcept
    int rvm_tag_is(PyObject*, int64_t) noexcept

cdef extern from "_census_impl.h":
    ctypedef struct rvm_census:
        PyTypeObject* closure
        PyTypeObject* adt
        PyTypeObject* ref
        int (*pause)(void*) noexcept
        void* context
        int64_t bytes

    int rvm_census_registers(rvm_census*, PyObject**, int64_t) noexcept
    int rvm_census_finish(rvm_census*) noexcept
    void rvm_census_free(rvm_census*) noexcept

cdef extern from "_header_impl.h" nogil:
    PyTypeObject* rvm_array_type
    void rvm_set_header_types(PyTypeObject* array, PyTypeObject* storage) noexcept

    PyObject* rvm_new_array(PyObject*, char*, int, const cnp.npy_intp*, cnp.PyArray_Descr*,
                            bint) noexcept
    bint rvm_renew_array(PyObject*, PyObject*, char*, int, const cnp.npy_intp*,
                         cnp.PyArray_Descr*, bint) noexcept

cdef extern from "_ufunc_impl.h" nogil:
    enum:
        RVM_FALLBACK
        RVM_RAISED
        RVM_UFUNC_WORDS

    int rvm_ufunc_1(int64_t*, PyObject*, PyObject*) noexcept
    int rvm_ufunc_2(int64_t*, PyObject*, PyObject*, PyObject*) noexcept

cdef extern from "Python.h":
    ctypedef PyObject* (*vectorcallfunc)(PyObject*, PyObject* const*, size_t, PyObject*) noexcept
    Py_ssize_t PyVectorcall_NARGS(size_t) noexcept
    PyObject* PyObject_Vectorcall(PyObject*, PyObject* const*, size_t, PyObject*) noexcept
    PyObject* PyObject_CallOneArg(PyObject*, PyObject*) noexcept
    PyObject* PyTuple_GET_ITEM(PyObject*, Py_ssize_t) noexcept
    Py_ssize_t PyTuple_GET_SIZE(PyObject*) noexcept
    Py_ssize_t PyDict_GET_SIZE(PyObject*) noexcept
    void PyDict_Clear(PyObject*) noexcept
    bint PyTuple_CheckExact(PyObject*) noexcept
    bint PyUnicode_CheckExact(PyObject*) noexcept
    bint PyFunction_Check(PyObject*) noexcept
    bint PyLong_CheckExact(PyObject*) noexcept
    bint PyFloat_CheckExact(PyObject*) noexcept
    PyTypeObject* Py_TYPE(PyObject*) noexcept
    Py_ssize_t Py_REFCNT(PyObject*) noexcept
    PyObject* PyTuple_New(Py_ssize_t) noexcept
    void PyTuple_SET_ITEM(PyObject*, Py_ssize_t, PyObject*) noexcept
    PyObject* Py_None
    PyObject* Py_True
    PyObject* Py_False
    int PyErr_CheckSignals() noexcept
    void PyErr_SetInterrupt() noexcept
    PyObject* PyErr_NoMemory() noexcept
    PyObject* PyErr_Occurred() noexcept
    void PyErr_Clear() noexcept
    void PyErr_SetObject(PyObject*, PyObject*) noexcept
    PyObject* PyExc_SystemError
    int Py_EnterRecursiveCall(const char*) noexcept
    void Py_LeaveRecursiveCall() noexcept
    int PyObject_IsTrue(PyObject*) noexcept
    void PyErr_Fetch(PyObject**, PyObject**, PyObject**) noexcept
    void PyErr_NormalizeException(PyObject**, PyObject**, PyObject**) noexcept
    void PyErr_Restore(PyObject*, PyObject*, PyObject*) noexcept
    void PyErr_WriteUnraisable(PyObject*) noexcept
    int PyException_SetTraceback(PyObject*, PyObject*) noexcept
    void PyObject_GC_UnTrack(PyObject*) noexcept
    ctypedef void (*destructor)(PyObject*) noexcept
    ctypedef int (*visitproc)(PyObject*, void*) noexcept
    ctypedef int (*traverseproc)(PyObject*, visitproc, void*) noexcept
    ctypedef int (*inquiry)(PyObject*) noexcept
    ctypedef struct _typeobject "PyTypeObject":
        destructor tp_dealloc
        traverseproc tp_traverse
        inquiry tp_clear

cdef extern from "numpy/arrayobject.h":
    PyObject* PyDataMem_GetHandler() noexcept
    PyObject* PyDataMem_SetHandler(PyObject*) noexcept
    cnp.npy_intp PyDataType_ELSIZE(const cnp.PyArray_Descr*) noexcept
    bint PyArray_Check(PyObject*) noexcept
    bint PyArray_CheckExact(PyObject*) noexcept

cdef extern from "_compiled_impl.h" nogil:
    ctypedef struct RvmScalar:
        int type
    ctypedef struct RvmLocalTensor:
        pass
    ctypedef struct RvmActivation:
        PyObject** fp
        const int64_t* ip
        PyObject* value
        int64_t ticks
        void* run
        void* machine
        void* image
        PyObject** pool_end
    ctypedef int (*RvmCompiled)(RvmActivation*, PyObject**, int64_t) noexcept
    ctypedef struct RvmServices:
        PyObject* none
        PyObject* true_
        PyObject* false_
        int (*poll)(RvmActivation*) noexcept
        int (*check_deadline)(RvmActivation*) noexcept
        PyObject* (*closure_of)(RvmActivation*, int64_t, PyObject**, int64_t) noexcept
        int (*check_func)(PyObject*) noexcept
        PyObject* (*alloc_storage)(int64_t, int64_t) noexcept
        PyObject* (*alloc_storage_dyn)(int64_t, PyObject*, int64_t) noexcept
        PyObject* (*alloc_tensor)(PyObject*, int64_t, PyObject*, int64_t) noexcept
        PyObject* (*alloc_tensor_of)(PyObject*, int64_t, int64_t, int64_t, int64_t,
                                     const int64_t*) noexcept
        PyObject* (*alloc_static)(const int64_t*) noexcept
        PyObject* (*load_function)(RvmActivation*, int64_t) noexcept
        PyObject* (*call)(RvmActivation*, PyObject*, PyObject**, int64_t) noexcept
        int (*call_void)(RvmActivation*, PyObject*, PyObject**, int64_t) noexcept
        int (*call_native)(RvmActivation*, PyObject**, const int64_t*) noexcept
        int (*call_local)(RvmActivation*, PyObject**, const int64_t*, RvmLocalTensor* const*,
                          int64_t) noexcept
        int (*call_scalars)(RvmActivation*, PyObject*, const RvmScalar*, int64_t,
                            RvmScalar*) noexcept
        int (*ufunc_1)(RvmActivation*, const int64_t*, PyObject*, PyObject*) noexcept
        int (*ufunc_2)(RvmActivation*, const int64_t*, PyObject*, PyObject*, PyObject*) noexcept
        RvmCompiled (*target)(RvmActivation*, PyObject*, int64_t, int64_t*, int64_t*,
                              int64_t*) noexcept
        PyObject* (*captured)(PyObject*, int64_t) noexcept
        int64_t (*func_address)(RvmActivation*, int64_t) noexcept

    RvmServices rvm_services
    const int64_t* rvm_item_words
    int rvm_run_compiled(RvmActivation*, const rvm_site*, Run*, PyObject*, PyObject*,
                         PyObject**) noexcept

Adt = <object>rvm_ready_adt()
add_kind(Adt, "adt")
cdef PyTypeObject* _adt_type = <PyTypeObject*>Adt
cdef Run* _runs = all_runs()
rvm_shape_type = <PyTypeObject*>Shape
rvm_set_header_types(<PyTypeObject*>np.ndarray, <PyTypeObject*>Storage)
cdef object _int64_dtype = np.dtype(np.int64)
cdef object _bool_dtype = np.dtype(np.bool_)
rvm_int64 = <cnp.PyArray_Descr*><PyObject*>_int64_dtype
rvm_bool = <cnp.PyArray_Descr*><PyObject*>_bool_dtype

# Declared noexcept: the loop tests for NULL itself.
ctypedef PyObject* (*native_call)(PyObject*, PyObject* const*, PyObject* const*, const int64_t*,
                                  Py_ssize_t, uint64_t*) noexcept
cdef native_call _call_native = <native_call>call_native

cdef enum:
    POLL_TICKS = 256    # ticks between polls; a jump back and a call of a VM function take one,
    CALL_TICKS = 64     # a call of C code this many,
    NATIVE_TICKS = 4    # a call of a native function this, and one per KiB of its tensors,
    PYTHON_TICKS = 8    # a call of a Python function, which handles signals itself, this
    YIELD_POLLS = 16    # polls between chances for other threads to run
    ALIGNMENT = 64      # of storages, in bytes
    OBJECT_SLACK = 1 << 20  # bytes of objects that do not count
    WORD_BYTES = 8      # of a register, and whatever else is in a frame
    MAX_FRAME_WORDS = 1 << 26  # frames alive at once: 512 MiB
    MAX_PLAIN_ITEMS = 1 << 16  # items of a tuple that are looked at without remembering them

cdef enum:
    RUN = -1            # pc that a hook gets when a run begins and ends
    RUN_FAILED = -2     # the same when it ends with an exception

cdef enum:
    NOTE_FRAMES = 8     # frames described at either end of a long stack


# ---- functions and closures ------------------------------------------------------------------


@cython.final
@cython.freelist(64)
@cython.no_gc_clear  # the machine breaks every cycle
cdef class VMFunction:
    """A bytecode function of a virtual machine; calling it runs it.

    Attributes:
        name: its name in the function table.
        num_args: number of parameters.
        param_names: their names, in order.
        input_names: their names in the model that the program was made of, in order; empty where
            nothing else is known.
        output_names: the names of the results in that model, in order: of the items of the tuple if
            there are several.
        machine: the virtual machine.
    """

    cdef vectorcallfunc _vectorcall
    cdef readonly Machine machine
    cdef readonly int64_t index
    cdef object __weakref__

    @property
    def name(self):
        return self.machine._executable.functions[self.index].name

    @property
    def num_args(self):
        return self.machine._executable.functions[self.index].num_args

    @property
    def param_names(self):
        return self.machine._executable.functions[self.index].param_names

    @property
    def input_names(self):
        return self.machine._executable.names_of(self.name).inputs

    @property
    def output_names(self):
        return self.machine._executable.names_of(self.name).outputs

    @property
    def __name__(self):
        return self.name

    @property
    def __doc__(self):
        return self.machine._doc_of(self)

    @property
    def __signature__(self):
        return self.machine._signature_of(self)

    @property
    def signature(self):
        """An `inspect.Signature` of the parameters."""
        return self.machine._signature_of(self)

    @property
    def translated(self):
        """The operations that run, as a `relaxvm.core.translated.TranslatedFunction`.

        While an instrument or a profiler is set, these are the operations of runs that it sees.

        Raises:
            InternalError: the virtual machine is closed.
        """
        return self.machine._translated_function(self.index)

    def bind(self, *args, **kwargs):
        """A partial: the function with some arguments given."""
        return self.machine._bind(self, args, kwargs)

    def start(self, *args, **kwargs):
        """A run of the function on arguments, as a `relaxvm.vm.Run`, which has not begun.

        Raises:
            ArityError, TypeError: the arguments do not fit, as for a call.
        """
        return self.machine._start(self, args, kwargs)

    def async_call(self, *args, **kwargs):
        """A coroutine that calls the function in a thread: ``await vm["main"].async_call(x)``.

        The event loop goes on meanwhile; where the task is cancelled, the run is.

        Raises:
            ArityError, TypeError: the arguments do not fit, as for a call.
        """
        return self.machine._async_call(self, args, kwargs)

    def __eq__(self, other):
        if not isinstance(other, VMFunction):
            return NotImplemented
        cdef VMFunction function = other
        return self.machine is function.machine and self.index == function.index

    def __hash__(self):
        return hash((id(self.machine), self.index))

    def __reduce__(self):
        return function_of, (self.machine, self.index)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __repr__(self):
        params = self.param_names or [f"arg{i}" for i in range(self.num_args)]
        return f"<VMFunction {readable(self.name)}({', '.join(map(readable, params))})>"


def function_of(Machine machine not None, int64_t index):
    """The function of a virtual machine at an index of its function table; for unpickling.

    Raises:
        IndexError: there is none.
    """
    return machine._function(index)


@cython.final
@cython.freelist(64)
@cython.no_gc_clear  # it does not change, so something else in a cycle breaks it
cdef class Closure:
    """A function with captured values, which it gets after the arguments of the call.

    Args:
        func: a VM function, another closure or any callable.
        captured: the captured values.
    """

    cdef vectorcallfunc _vectorcall
    cdef Machine _machine   # of a VM function, else None
    cdef int64_t _index     # of a VM function
    # _renew_closure knows the order of these three.
    cdef object _func       # None if it is a VM function that nobody has asked for
    cdef object _captured   # the captured value if there is one, else a tuple of them
    cdef Py_ssize_t _count

    def __init__(self, func, captured=()):
        if not callable(func):
            raise TypeError(f"Closure: expected a function, got {type(func).__name__}")
        values = to_own_value(tuple(captured))
        if self._vectorcall is not NULL:
            raise TypeError("Closure: it has been made, and does not change")
        self._vectorcall = <vectorcallfunc>_closure_vectorcall
        self._func = func
        if isinstance(func, VMFunction):
            self._machine = (<VMFunction>func).machine
            self._index = (<VMFunction>func).index
        self._captured = values[0] if len(values) == 1 else values
        self._count = len(values)

    @property
    def func(self):
        """The function that is called."""
        if self._func is None and self._machine is not None:
            self._func = self._machine._function(self._index)
        return self._func

    @property
    def captured(self):
        """The captured values."""
        return (self._captured,) if self._count == 1 else self._captured or ()

    def __reduce__(self):
        return reduce(self)

    def __copy__(self):
        return self

    def __repr__(self):
        name = getattr(self.func, "__name__", type(self.func).__name__)
        return f"<Closure of {name} over {self._count} captured values>"


cdef destructor _closure_dealloc_fields

cdef void _closure_dealloc(PyObject* self) noexcept:
    # A program may nest closures to any depth: their deallocation must not recurse.
    cdef PyObject* kind
    cdef PyObject* value
    cdef PyObject* traceback
    if (Py_TYPE(<PyObject*>(<Closure>self)._func) is <PyTypeObject*>Closure
            or Py_TYPE(<PyObject*>(<Closure>self)._captured) is <PyTypeObject*>Closure):
        PyObject_GC_UnTrack(self)
        PyErr_Fetch(&kind, &value, &traceback)  # an exception may be set
        _drop_nested(self)
        PyErr_Restore(kind, value, traceback)
    _closure_dealloc_fields(self)


cdef void _drop_nested(PyObject* outermost) noexcept:
    """Deallocate the closures that only `outermost` holds, one after the other."""
    cdef list waiting = []
    cdef Closure closure
    _move_closures(outermost, waiting)
    while waiting:
        closure = waiting.pop()
        if Py_REFCNT(<PyObject*>closure) == 1:
            _move_closures(<PyObject*>closure, waiting)
        closure = None


cdef int _move_closures(PyObject* closure, list to) except -1:
    if type((<Closure>closure)._func) is Closure:
        to.append((<Closure>closure)._func)
        (<Closure>closure)._func = None
    if type((<Closure>closure)._captured) is Closure:
        to.append((<Closure>closure)._captured)
        (<Closure>closure)._captured = None
    return 0


cdef inline PyObject* _captured_at(PyObject* closure, Py_ssize_t i) noexcept:
    if (<Closure>closure)._count == 1:
        return <PyObject*>(<Closure>closure)._captured
    return PyTuple_GET_ITEM(<PyObject*>(<Closure>closure)._captured, i)


cdef PyObject* _new_function(PyObject* machine, int64_t index) except NULL:
    cdef VMFunction function = VMFunction.__new__(VMFunction)
    function._vectorcall = <vectorcallfunc>_function_vectorcall
    function.machine = <Machine>machine
    function.index = index
    Py_INCREF(function)
    return <PyObject*>function


cdef PyObject* _new_closure(PyObject* machine, int64_t index, PyObject** fp, PyObject** pool_end,
                            const int64_t* words, int64_t count) noexcept:
    """A closure of a VM function over operands."""
    cdef Closure closure = Closure.__new__(Closure)
    cdef PyObject* captured
    closure._vectorcall = <vectorcallfunc>_closure_vectorcall
    closure._machine = <Machine>machine
    closure._index = index
    closure._count = count
    if count == 1:
        closure._captured = <object>rvm_load(fp, pool_end, words[0])
    else:
        captured = rvm_gather_tuple(fp, pool_end, words, count)
        if captured is NULL:
            return NULL
        closure._captured = <object>captured
        Py_DECREF(<object>captured)
    Py_INCREF(closure)
    return <PyObject*>closure


cdef inline bint _renew_closure(PyObject* old, PyObject* machine, int64_t index, PyObject** fp,
                                PyObject** pool_end, const int64_t* words, int64_t count) noexcept:
    """Make a closure that is about to be released one of a VM function over operands, so that no new one
    need be made: True if `old` is a closure of this machine over as many values, to which there is no
    other reference, and that is none of the operands.  (Closures have no weak references.)"""
    if (old is NULL or Py_TYPE(old) is not <PyTypeObject*>Closure or Py_REFCNT(old) != 1
            or (<Closure>old)._count != count
            or <PyObject*>(<Closure>old)._machine is not machine
            or rvm_is_among(old, fp, pool_end, words, count)):
        return False
    # The two fields before the count.  Cython would release what is there before it stores the new.
    cdef PyObject** captured = <PyObject**>&(<Closure>old)._count - 1
    cdef PyObject** function = captured - 1
    cdef PyObject* value = NULL
    if count > 1:
        value = rvm_gather_tuple(fp, pool_end, words, count)
        if value is NULL:
            PyErr_Clear()
            return False
    (<Closure>old)._index = index
    if function[0] is not Py_None:
        rvm_incref(Py_None)
        rvm_store(function, Py_None)
    if count == 1:
        value = rvm_load(fp, pool_end, words[0])
        if value is captured[0]:
            return True
        rvm_incref(value)
    if count >= 1:
        rvm_store(captured, value)
    return True


@cython.final
@cython.freelist(64)
@cython.trashcan(True)
cdef class Ref:
    """A mutable cell that holds a value.

    Args:
        value: the value at first.
    """

    cdef object _value

    def __init__(self, value=None):
        self._value = to_value(value)

    @property
    def value(self):
        """The value that it holds now."""
        return self._value

    @value.setter
    def value(self, value):
        self._value = to_value(value)

    def __reduce__(self):
        raise TypeError("a Ref is a place in this process: it cannot be pickled or copied")

    def __repr__(self):
        return show(self)


set_types(Adt, Ref, Closure, VMFunction)


def adt_of(str constructor not None, int64_t tag, tuple fields not None):
    """A value of a data type with fields as they are: tuples stay the same objects."""
    constructor = intern(constructor)
    cdef PyObject* made = rvm_adt_from_fields(<PyObject*>constructor, tag, <PyObject*>fields)
    if made is NULL:
        raise MemoryError
    value = <object>made
    Py_DECREF(value)
    return value


def closure_of(func not None, tuple captured not None):
    """A closure over values of a program as they are: tuples stay the same objects."""
    cdef Closure closure = Closure(func)
    closure._captured = captured[0] if len(captured) == 1 else captured
    closure._count = len(captured)
    return closure


def reset_tuple_item(tuple items not None, Py_ssize_t index):
    """Put None in the place of an element.  For tuples that belong to a program, see `Machine`.

    Raises:
        IndexError: no such element.
    """
    if not 0 <= index < len(items):
        raise IndexError(f"tuple of {len(items)}: no element {index}")
    rvm_reset_tuple_item(<PyObject*>items, index)


# ---- entry -----------------------------------------------------------------------------------


cdef inline bint _is_plain(Machine machine, PyObject* value) noexcept:
    """Whether a value from outside can go into a register as it is, without conversion."""
    return Py_TYPE(value) is rvm_array_type or value is Py_None or _is_plain_scalar(value) or (
        _is_plain_object(machine, value))


cdef inline bint _is_plain_scalar(PyObject* value) noexcept:
    return (PyLong_CheckExact(value) or PyFloat_CheckExact(value) or value is Py_True
            or value is Py_False or PyUnicode_CheckExact(value))


cdef bint _is_plain_object(Machine machine, PyObject* value) noexcept:
    cdef PyTypeObject* cls = Py_TYPE(value)
    if (cls is rvm_shape_type or cls is <PyTypeObject*>Closure or cls is <PyTypeObject*>VMFunction
            or cls is <PyTypeObject*>Storage or cls is _adt_type or cls is <PyTypeObject*>Ref):
        return True
    if machine._owns_tuples or not PyTuple_CheckExact(value):
        return False
    cdef Py_ssize_t items_left = MAX_PLAIN_ITEMS
    return _is_plain_tuple(value, 16, &items_left)


cdef bint _is_plain_tuple(PyObject* value, int levels, Py_ssize_t* items_left) noexcept:
    """Whether a tuple of at most `levels` levels holds only values that need no conversion.

    Tuples that share elements may hold width ** levels of them, so the walk gives up after a number
    of items.  The conversion, which remembers what it has seen, then decides.
    """
    cdef PyObject* item
    cdef Py_ssize_t i, size = PyTuple_GET_SIZE(value)
    items_left[0] -= size
    if items_left[0] < 0:
        return False
    for i in range(size):
        item = PyTuple_GET_ITEM(value, i)
        if not (PyArray_CheckExact(item) or item is Py_None or _is_plain_scalar(item)
                or Py_TYPE(item) is rvm_shape_type
                or (levels > 1 and PyTuple_CheckExact(item)
                    and _is_plain_tuple(item, levels - 1, items_left))):
            return False
    return True


cdef PyObject* _as_value(Machine machine, PyObject* callee, PyObject* value) noexcept:
    """The result of a packed function as a run-time value.  Steals the reference; returns a new
    one, or NULL with an exception."""
    cdef PyObject* converted
    cdef Py_ssize_t i
    for i in range(machine._num_builtins):
        if machine._builtins[i] is callee:
            return value  # builtins return run-time values
    converted = PyObject_CallOneArg(<PyObject*>machine._to_value, value)
    Py_DECREF(<object>value)
    return converted


# The callers of these two hold `self`, and that holds its machine, so no more references are counted.
# They call what raises through pointers that know no exceptions of Cython's, so there is nothing to do
# after a call.
ctypedef PyObject* (*enterer)(Machine, int64_t, PyObject* const*, Py_ssize_t, PyObject*) noexcept
ctypedef PyObject* (*keyword_call)(PyObject*, PyObject* const*, size_t, PyObject*) noexcept
ctypedef PyObject* (*nested_call)(PyObject*, PyObject* const*, size_t) noexcept
cdef enterer _enter_run = <enterer>_enter
cdef keyword_call _with_keywords = <keyword_call>_call_with_keywords
cdef nested_call _nested = <nested_call>_call_nested


cdef PyObject* _function_vectorcall(PyObject* self, PyObject* const* args, size_t nargsf,
                                    PyObject* kwnames) noexcept:
    cdef PyObject* machine = <PyObject*>(<VMFunction>self).machine
    if rvm_unlikely(kwnames is not NULL):
        return _with_keywords(self, args, nargsf, kwnames)
    return _enter_run(<Machine>machine, (<VMFunction>self).index, args, PyVectorcall_NARGS(nargsf),
                      NULL)


cdef PyObject* _call_with_keywords(PyObject* self, PyObject* const* args, size_t nargsf,
                                   PyObject* kwnames) except NULL:
    cdef Py_ssize_t count = PyVectorcall_NARGS(nargsf)
    cdef VMFunction function = <VMFunction>self
    if PyTuple_GET_SIZE(kwnames) == 0:
        return _enter(function.machine, function.index, args, count, NULL)
    positional = tuple([<object>args[i] for i in range(count)])
    keywords = {}
    for i in range(PyTuple_GET_SIZE(kwnames)):
        keywords[(<tuple><object>kwnames)[i]] = <object>args[count + i]
    result = function.machine._call_with_keywords(function, positional, keywords)
    Py_INCREF(result)
    return <PyObject*>result


cdef PyObject* _closure_vectorcall(PyObject* self, PyObject* const* args, size_t nargsf,
                                   PyObject* kwnames) noexcept:
    cdef PyObject* machine = <PyObject*>(<Closure>self)._machine
    if rvm_unlikely(kwnames is not NULL) and PyTuple_GET_SIZE(kwnames) > 0:
        _fail(TypeError, "a closure takes no keyword arguments")
        _ensure_raised()
        return NULL
    if rvm_likely(machine is not Py_None):
        return _enter_run(<Machine>machine, (<Closure>self)._index, args,
                          PyVectorcall_NARGS(nargsf), self)
    return _nested(self, args, nargsf)


cdef PyObject* _call_nested(PyObject* self, PyObject* const* args, size_t nargsf) except NULL:
    """Call a closure of another callable than a VM function."""
    cdef Closure closure = <Closure>self
    items = [<object>args[i] for i in range(PyVectorcall_NARGS(nargsf))]
    items.extend(closure.captured)
    if Py_EnterRecursiveCall(b" in a relaxvm closure"):
        return NULL
    try:
        result = closure._func(*items)
    finally:
        Py_LeaveRecursiveCall()
    Py_INCREF(result)
    return <PyObject*>result


cdef PyObject* _argument(PyObject* self, int64_t index, Py_ssize_t position,
                         PyObject* given) except NULL:
    """An argument that needs conversion, as a value; a new reference."""
    cdef Machine machine = <Machine>self
    value = <object>given
    if isinstance(value, (np.generic, tuple, list)):
        value = machine._with_tensors(index, position, value)
    value = machine._to_value(value)
    Py_INCREF(value)
    return <PyObject*>value


cdef PyObject* _enter(Machine machine, int64_t index, PyObject* const* args, Py_ssize_t count,
                      PyObject* closure) except NULL:
    """Run a function on arguments from Python, and the captured values of a closure if given."""
    cdef Image image = machine._image
    cdef PyThreadState* state = rvm_thread_state()
    cdef rvm_func* func
    cdef rvm_chunk* chunk
    cdef Run* run
    cdef PyObject** fp
    cdef PyObject* value
    cdef Py_ssize_t i, captured = 0
    cdef bint hooked = False
    if closure is not NULL:
        captured = (<Closure>closure)._count
    if image is None:
        raise InternalError("the virtual machine is closed")
    func = &image.funcs[index]
    if count + captured != func.num_params:
        machine._raise_arity(index, count, captured)
        raise BugError("an arity error was expected")
    if rvm_unlikely(not rvm_has_frames(state)):
        _yield_gil()  # a Python function: from now on there is where one has been
    if rvm_enter_recursion(state) < 0:
        return NULL
    chunk = _first_chunk(machine, func)
    if chunk is NULL:
        _ensure_raised()
        rvm_leave_recursion(state)
        return NULL
    run = &chunk.run
    run.chunk = chunk
    run.end = chunk.end
    run.words = chunk.words
    run.calls_left = machine._max_depth - 1
    rvm_begin_run(_runs, run, state, <PyObject*>machine)
    if rvm_unlikely(run.older is not _runs or run.calls_left < 0) and not _nest(machine, run, func):
        _leave(run, state)
        return NULL
    fp = chunk.memory + RVM_HEADER
    rvm_push_frame(fp, func, rvm_in_new_chunk(NULL), NULL, 0)
    for i in range(count):
        value = args[i]
        if _is_plain(machine, value):
            rvm_incref(value)
        else:
            value = _convert_argument(<PyObject*>machine, index, i, value)
            if value is NULL:
                rvm_clear_registers(fp, i)
                _leave(run, state)
                return NULL
        fp[i] = value
    for i in range(captured):
        value = _captured_at(closure, i)
        rvm_incref(value)
        fp[count + i] = value
    rvm_null_registers(fp, count + captured, func.num_registers)
    if rvm_unlikely(image is not machine._unhooked_image) and machine._hook is not None:
        if not _hook_run_begin(machine, index, fp, func.num_params):
            rvm_clear_registers(fp, func.num_registers)
            _leave(run, state)
            return NULL
        hooked = True
    if machine._limited:
        value = _run_limited(machine, image, run, fp)
    else:
        value = _run(machine, image, run, fp, func.code)
    _leave(run, state)
    if hooked:
        value = _hook_run_end(machine, index, value)
    return value


cdef bint _nest(Machine machine, Run* run, const rvm_func* func) noexcept:
    """Count the frames of the runs around a new one, if there are any; False with an exception if it
    is too deep."""
    cdef Run* outer = rvm_caller(_runs, run)
    if outer is not NULL:
        run.calls_left = machine._max_depth - _depth(outer) - 1
    if run.calls_left >= 0:
        return True
    _fail_depth(func, machine._max_depth)
    _ensure_raised()
    return False


cdef inline rvm_chunk* _first_chunk(Machine machine, const rvm_func* func) noexcept:
    """A chunk for a run that begins with a function; NULL with an exception."""
    if rvm_unlikely(func.frame_words > RVM_FIRST_CHUNK - RVM_HEADER):
        return _wide_chunk(machine, func)
    cdef rvm_chunk* chunk = rvm_new_chunk(NULL, RVM_FIRST_CHUNK)
    if rvm_unlikely(chunk is NULL):
        _fail_frames(func, func.frame_words)
    return chunk


cdef rvm_chunk* _paused_chunk(Machine machine, const rvm_func* func) except NULL:
    """A chunk for a run that does not go on yet."""
    cdef rvm_chunk* chunk = _first_chunk(machine, func)
    if chunk is NULL:
        _ensure_raised()
        _propagate(-1)
    chunk.run.chunk = chunk
    chunk.run.end = chunk.end
    chunk.run.words = chunk.words
    chunk.run.host = NULL
    return chunk


cdef rvm_chunk* _wide_chunk(Machine machine, const rvm_func* func) noexcept:
    cdef rvm_account* account = &machine._host._account
    cdef int64_t words = func.frame_words + RVM_HEADER
    cdef rvm_chunk* chunk = NULL
    if account.max_live - account.live - account.arrays < WORD_BYTES * words - OBJECT_SLACK:
        _fail_limit("live_bytes", f"{<str>func.name}: a frame of {WORD_BYTES * words} bytes, "
                    f"{machine._host._live_bytes()} are live, the limit is {account.max_live}")
        return NULL
    if words <= MAX_FRAME_WORDS:
        chunk = rvm_new_chunk(NULL, words)
    if chunk is NULL:
        _fail_frames(func, words)
    return chunk


cdef inline void _leave(Run* run, PyThreadState* state) noexcept:
    cdef rvm_chunk* chunk = run.chunk
    rvm_end_run(run)
    rvm_leave_recursion(state)
    if rvm_unlikely(PyDict_GET_SIZE((<PyObject*>(<Machine>run.machine)._known_tuples)) > 0):
        _forget_tuples(<Machine>run.machine)
    while chunk is not NULL:  # the last one holds the run
        chunk = rvm_drop_chunk(chunk)


cdef void _forget_tuples(Machine machine) noexcept:
    """Let converted tuples go, after the last run of a machine."""
    cdef Run* run = _runs.older
    while run is not _runs:
        if run.machine is <PyObject*>machine:
            return
        run = run.older
    PyDict_Clear(<PyObject*>machine._known_tuples)


cdef PyObject* _run_limited(Machine machine, Image image, Run* run, PyObject** fp) noexcept:
    cdef PyObject* value = NULL
    if not _start_limits(machine, run, fp, machine._fuel, machine._wall_ns, 0, INT64_MAX):
        _ensure_raised()
        rvm_clear_registers(fp, (<rvm_func*>fp[RVM_FUNC]).num_registers)
    else:
        value = _run(machine, image, run, fp, (<rvm_func*>fp[RVM_FUNC]).code)
    _stop_limits(run)
    return value


cdef bint _start_limits(Machine machine, Run* run, PyObject** fp, int64_t fuel, int64_t wall_ns,
                        int64_t objects, int64_t until_census) noexcept:
    """Set fuel, deadline and who counts the memory of arrays.  A run inside of another one with limits
    shares what is left there of fuel and time.  False with an exception if the run cannot begin.

    `fuel` and `wall_ns` are what is left of them, `objects` the bytes of objects that it has made since
    the last census and that this has found, and `until_census` the bytes to the next one."""
    cdef Run* outer = _limited_run()
    cdef int64_t now
    run.host = <PyObject*>machine._host
    run.outer = outer
    run.fuel = fuel
    run.wall_ns = machine._wall_ns
    run.array_handler = NULL
    run.outer_objects = 0
    if machine._wall_ns != INT64_MAX:
        now = rvm_clock_ns()
        run.deadline = now + wall_ns if wall_ns < INT64_MAX - now else INT64_MAX
    if outer is not NULL:
        run.fuel = min(run.fuel, outer.fuel)
        if outer.deadline < run.deadline:
            run.deadline = outer.deadline
            run.wall_ns = outer.wall_ns
        if outer.host is run.host:
            run.outer_objects = outer.objects
    run.start_fuel = run.fuel
    run.objects = run.outer_objects + objects + WORD_BYTES * run.words
    _plan_census(run)
    if until_census < run.census_at - run.objects:
        run.census_at = run.objects + until_census
    if _object_excess(run, run.objects) > 0 and _count_objects(run, fp, 0) < 0:
        return False
    if machine._array_handler is not None:
        run.array_handler = PyDataMem_GetHandler()
        if run.array_handler is NULL:
            return False
        if rvm_unlikely(not _set_handler(<PyObject*>machine._array_handler)):
            Py_DECREF(<object>run.array_handler)
            run.array_handler = NULL
            return False
        if rvm_unlikely(_left_handler is not None and outer is NULL) and \
                run.array_handler == <PyObject*>_left_handler:
            Py_INCREF(_real_handler)
            Py_DECREF(<object>run.array_handler)
            run.array_handler = <PyObject*>_real_handler
        machine._host._account.refused = -1
    return True


cdef int64_t _depth(const Run* run) noexcept:
    """The number of frames of a run, with those of the runs around it."""
    return (<Machine>run.machine)._max_depth - run.calls_left


cdef void _stop_limits(Run* run) noexcept:
    _stop_counting(run)
    if run.outer is not NULL:
        run.outer.fuel -= run.start_fuel - run.fuel
        if run.outer.host is run.host:
            run.outer.objects = run.objects - WORD_BYTES * run.words


cdef Run* _limited_run() noexcept:
    """The innermost run with limits that has called the code that runs now; NULL if there is none."""
    cdef Run* run = rvm_caller(_runs, _runs)
    while run is not NULL and run.host is NULL:
        run = rvm_caller(_runs, run)
    return run


# Objects, such as tuples, closures, shapes and the headers of arrays, count as well.  Nothing tells when
# a tuple is gone.  So each block of instructions adds the most that it can make, and when that is a
# quarter of the limit, a census finds out what is there: its time is linear in the objects that live.

cdef void _plan_census(Run* run) noexcept:
    cdef int64_t limit = (<Allocator>run.host)._account.max_live
    run.census_at = INT64_MAX
    if limit != INT64_MAX:
        run.census_at = run.objects + max(limit // 4, OBJECT_SLACK)


cdef int64_t _object_excess(Run* run, int64_t objects) noexcept:
    """Bytes by which so many bytes of objects exceed the limit, at most 0 if they do not."""
    cdef rvm_account* account = &(<Allocator>run.host)._account
    if account.max_live == INT64_MAX:
        return 0
    return objects - OBJECT_SLACK - (account.max_live - account.live - account.arrays)


cdef int _count_objects(Run* run, PyObject** fp, int64_t ahead) noexcept:
    """Find out what objects take, where a block will make at most `ahead` bytes more."""
    cdef rvm_census census
    cdef int done = 0
    memset(&census, 0, sizeof(rvm_census))
    census.closure = <PyTypeObject*>Closure
    census.adt = _adt_type
    census.ref = <PyTypeObject*>Ref
    census.pause = _pause_census
    census.context = run
    while fp is not NULL and done == 0:
        done = rvm_census_registers(&census, fp, (<rvm_func*>fp[RVM_FUNC]).num_registers)
        fp = rvm_calling_frame(fp)
    if done == 0:
        done = rvm_census_finish(&census)
    run.objects = run.outer_objects + WORD_BYTES * run.words + ahead + census.bytes
    rvm_census_free(&census)
    if done < 0:
        _ensure_raised()
        return -1
    if _object_excess(run, run.objects) > 0:
        _fail_objects(run)
        return -1
    _plan_census(run)
    return 0


cdef int _pause_census(void* run) noexcept:
    return _poll(<Run*>run)


cdef int _count_chunk(Run* run, PyObject** fp, int64_t words) noexcept:
    """Check that a chunk of frames is within the limit; -1 with an exception if it is not."""
    cdef int64_t nbytes = WORD_BYTES * words
    if run.objects + nbytes <= run.census_at:
        return 0
    if _count_objects(run, fp, nbytes) < 0:
        return -1
    run.objects -= nbytes
    return 0


cdef void _fail_objects(Run* run) noexcept:
    cdef Allocator host = <Allocator>run.host
    _fail_limit("live_bytes",
                f"frames, tuples, closures and other objects take about {run.objects} bytes and "
                f"arrays {host._live_bytes()}, the limit is {host._account.max_live}")


def charge_objects(object size):
    """Count what a builtin makes that is not an array, where its arguments do not bound it.

    Args:
        size: about the bytes of the objects that it is going to make, an int of any size.

    Raises:
        LimitError: they are above the limit of the run that calls the builtin.
    """
    cdef Run* run = _limited_run()
    cdef int64_t nbytes = size if size < INT64_MAX else INT64_MAX
    if run is NULL or nbytes <= 0:
        return
    run.objects = run.objects + nbytes if nbytes < INT64_MAX - run.objects else INT64_MAX
    if _object_excess(run, run.objects) > 0:
        raise LimitError(f"{nbytes} bytes of objects: {run.objects - nbytes} may be live and "
                         f"{(<Allocator>run.host)._live_bytes()} of arrays, the limit is "
                         f"live_bytes={(<Allocator>run.host)._account.max_live}", "live_bytes")


def pause_conversion(int64_t steps):
    """Handle signals and the limits of time and memory in the middle of the conversion of a result.

    Args:
        steps: what `convert_nested` has done since the last time.

    Raises:
        LimitError, CancelledError: the run that called the function is to end.
        BaseException: what a handler of a signal raises.
    """
    look()
    charge_objects(16 * steps)


cdef bint _set_handler(PyObject* handler) noexcept:
    """Let numpy take memory from there; False with an exception if that fails."""
    cdef PyObject* before = PyDataMem_SetHandler(handler)
    cdef PyObject* kind
    cdef PyObject* error
    cdef PyObject* traceback
    if rvm_likely(before is not NULL):
        Py_DECREF(<object>before)
        return True
    # CPython may have set the variable, and then had no memory for what it returns.
    PyErr_Fetch(&kind, &error, &traceback)
    before = PyDataMem_GetHandler()
    Py_XDECREF(before)
    if before == handler:
        Py_XDECREF(kind)
        Py_XDECREF(error)
        Py_XDECREF(traceback)
        return True
    PyErr_Clear()
    PyErr_Restore(kind, error, traceback)
    return False


# numpy's handler is a context variable, and to set one takes memory.  A run that ends because there is
# none may not be able to give back the handler that was there before it: the next one does.
cdef object _left_handler = None  # of a run that is over
cdef object _real_handler = None  # what it should have set


cdef void _stop_counting(Run* run) noexcept:
    """Let numpy take memory from where it did before the run, if it does not yet."""
    global _left_handler, _real_handler
    cdef PyObject* kind
    cdef PyObject* error
    cdef PyObject* traceback
    cdef bint is_set = False
    cdef int tries
    if run.array_handler is NULL:
        return
    PyErr_Fetch(&kind, &error, &traceback)
    for tries in range(3):
        is_set = _set_handler(run.array_handler)
        if rvm_likely(is_set):
            break
        PyErr_Clear()
    if not is_set:
        _left_handler = (<Machine>run.machine)._array_handler
        _real_handler = <object>run.array_handler
    elif rvm_unlikely(_left_handler is not None) and _left_handler is \
            (<Machine>run.machine)._array_handler:
        _left_handler = _real_handler = None
    Py_DECREF(<object>run.array_handler)
    run.array_handler = NULL
    PyErr_Restore(kind, error, traceback)


# ---- the loop --------------------------------------------------------------------------------


cdef PyObject* _run(Machine machine, Image image, Run* run, PyObject** fp,
                    const int64_t* ip) noexcept:
    """Run the frame at `fp`, from the operation at `ip` on, to the return of the outermost frame.

    Returns a new reference, or NULL: with an exception, or, in stepped code, where it has paused.
    The operations, their operands and what they do are in ``core/operations.py``.
    """
    cdef PyObject** pool_end = image.pool_end
    cdef const int64_t* next_ip = ip
    cdef const int64_t* end
    cdef int64_t op, i, count, word
    cdef uint64_t nbytes
    cdef int truth, answer
    cdef int64_t ticks = POLL_TICKS
    cdef PyObject* value
    cdef PyObject* other
    cdef PyObject** cell
    cdef PyObject** callee_fp
    cdef PyObject** caller
    cdef rvm_func* func
    cdef rvm_func* funcs = image.funcs
    cdef int64_t* slots
    cdef RvmActivation native

    # The inner loop runs operations.  It ends with an exception, or, with negative ticks, for a
    # poll before the operation at `next_ip`.
    while True:
        while True:
            op = ip[OPCODE]

            if op == OP_CALL:
                cell = fp + ip[CALL_AREA]
                count = ip[CALL_COUNT]
                rvm_gather(cell, fp, pool_end, ip + CALL_ARGS, count)
                other = pool_end[ip[CALL_CALLEE]]
                value = rvm_call_packed(other, cell, count, &ticks, PYTHON_TICKS,
                                        CALL_TICKS)
                if rvm_unlikely(value is NULL):
                    ticks = 0
                    break
                if rvm_unlikely(not _is_plain(machine, value)):
                    value = _as_value(machine, other, value)
                    if value is NULL:
                        ticks = 0
                        break
                rvm_store(fp + ip[CALL_DST], value)
                end = ip + CALL_ARGS + count
                if rvm_unlikely(ticks < 0) or rvm_unlikely(run.asked):
                    next_ip = end
                    ticks = -1
                    break
                ip = end

            elif op == OP_CALL_VOID:
                cell = fp + ip[CALL_VOID_AREA]
                count = ip[CALL_VOID_COUNT]
                rvm_gather(cell, fp, pool_end, ip + CALL_VOID_ARGS, count)
                other = pool_end[ip[CALL_VOID_CALLEE]]
                value = rvm_call_packed(other, cell, count, &ticks, PYTHON_TICKS,
                                        CALL_TICKS)
                if rvm_unlikely(value is NULL):
                    ticks = 0
                    break
                Py_DECREF(<object>value)
                end = ip + CALL_VOID_ARGS + count
                if rvm_unlikely(ticks < 0) or rvm_unlikely(run.asked):
                    next_ip = end
                    ticks = -1
                    break
                ip = end

            elif op == OP_CALL_NATIVE:
                count = ip[CALL_NATIVE_COUNT]
                other = pool_end[ip[CALL_NATIVE_CALLEE]]
                value = _call_native(other, fp, pool_end, ip + CALL_NATIVE_ARGS, count, &nbytes)
                if rvm_unlikely(value is NULL):
                    break
                if value is Py_None:
                    value = NULL
                elif not _is_plain(machine, value):
                    value = _as_value(machine, other, value)
                    if value is NULL:
                        break
                rvm_store(fp + ip[CALL_NATIVE_DST], value)
                ticks -= NATIVE_TICKS + <int64_t>(nbytes >> 10)
                end = ip + CALL_NATIVE_ARGS + count
                if rvm_unlikely(ticks < 0):
                    next_ip = end
                    break
                ip = end

            elif op == OP_CALL_VM:
                func = <rvm_func*>ip[CALL_VM_CALLEE]
                count = ip[CALL_VM_COUNT]
                caller = fp
                callee_fp = fp + ip[CALL_VM_FRAME] + RVM_HEADER
                if rvm_unlikely(not rvm_has_room(run, callee_fp, func)):
                    callee_fp = _new_frames(machine, run, fp, func)
                    if callee_fp is NULL:
                        break
                    caller = rvm_in_new_chunk(fp)
                rvm_push_frame(callee_fp, func, caller, ip + CALL_VM_ARGS + count,
                               ip[CALL_VM_DST])
                rvm_push_args(callee_fp, fp, pool_end, ip + CALL_VM_ARGS, count)
                rvm_null_registers(callee_fp, count, func.num_registers)
                fp = callee_fp
                ip = func.code
                ticks -= 1
                if rvm_unlikely(ticks < 0):
                    next_ip = ip
                    break

            elif op == OP_RET:
                cell = fp + ip[RET_RESULT]
                value = cell[0]
                cell[0] = NULL
                if rvm_unlikely(value is NULL):
                    value = Py_None
                    rvm_incref(value)
                rvm_clear_registers(fp, ip[RET_REGISTERS])
                callee_fp = fp
                fp = <PyObject**>callee_fp[RVM_CALLER]
                ip = <const int64_t*>callee_fp[RVM_RETURN_IP]
                word = <int64_t>callee_fp[RVM_RETURN_DST]
                if rvm_unlikely(rvm_is_in_new_chunk(fp)):
                    fp = rvm_calling_frame(callee_fp)
                    if fp is NULL:
                        return value
                    _pop_chunk(run)
                run.calls_left += 1
                rvm_store(fp + word, value)

            elif op == OP_GOTO:
                ip += ip[GOTO_DISTANCE]

            elif op == OP_GOTO_BACK:
                ticks -= 1
                end = ip + ip[GOTO_BACK_DISTANCE]
                if rvm_unlikely(ticks < 0):
                    next_ip = end
                    break
                ip = end

            elif op == OP_IF:
                value = rvm_load(fp, pool_end, ip[IF_COND])
                truth = rvm_truth(value)
                if rvm_unlikely(truth < 0):
                    _fail_condition(value)
                    break
                ip += IF_WORDS if truth else ip[IF_OTHERWISE]

            elif op == OP_TAIL_CALL_VM:
                func = <rvm_func*>ip[TAIL_CALL_VM_CALLEE]
                if rvm_unlikely(func.frame_words > run.end - fp):
                    ip += ip[FALLBACK]
                    continue
                count = ip[TAIL_CALL_VM_COUNT]
                cell = fp + ip[TAIL_CALL_VM_AREA]
                rvm_push_args(cell, fp, pool_end, ip + TAIL_CALL_VM_ARGS, count)
                rvm_reuse_frame(fp, func, cell, count)
                rvm_null_registers(fp, count, func.num_registers)
                ip = func.code
                ticks -= 1
                if rvm_unlikely(ticks < 0):
                    next_ip = ip
                    break

            elif op == OP_COPY:
                value = rvm_load(fp, pool_end, ip[COPY_VALUE])
                rvm_incref(value)
                rvm_store(fp + ip[COPY_DST], value)
                ip += COPY_WORDS

            elif op == OP_NULL:
                rvm_store(fp + ip[NULL_DST], NULL)
                ip += NULL_WORDS

            elif op == OP_MAKE_TUPLE:
                count = ip[MAKE_TUPLE_COUNT]
                if rvm_renew_tuple(fp[ip[MAKE_TUPLE_DST]], fp, pool_end, ip + MAKE_TUPLE_ITEMS,
                                   count):
                    ip += MAKE_TUPLE_ITEMS + count
                    continue
                value = rvm_gather_tuple(fp, pool_end, ip + MAKE_TUPLE_ITEMS, count)
                if rvm_unlikely(value is NULL):
                    break
                rvm_store(fp + ip[MAKE_TUPLE_DST], value)
                ip += MAKE_TUPLE_ITEMS + count

            elif op == OP_TUPLE_GETITEM:
                other = rvm_read(fp, ip[TUPLE_GETITEM_TUPLE])
                if rvm_unlikely(not PyTuple_CheckExact(other)
                                or ip[TUPLE_GETITEM_INDEX] >= PyTuple_GET_SIZE(other)):
                    ip += ip[FALLBACK]
                    continue
                value = PyTuple_GET_ITEM(other, ip[TUPLE_GETITEM_INDEX])
                rvm_incref(value)
                rvm_store(fp + ip[TUPLE_GETITEM_DST], value)
                ip += TUPLE_GETITEM_WORDS

            elif op == OP_MAKE_ADT:
                count = ip[MAKE_ADT_COUNT]
                if rvm_renew_adt(fp[ip[MAKE_ADT_DST]], pool_end[ip[MAKE_ADT_CONSTRUCTOR]],
                                 ip[MAKE_ADT_TAG], fp, pool_end, ip + MAKE_ADT_FIELDS, count):
                    ip += MAKE_ADT_FIELDS + count
                    continue
                value = rvm_new_adt(pool_end[ip[MAKE_ADT_CONSTRUCTOR]], ip[MAKE_ADT_TAG], fp, pool_end,
                                    ip + MAKE_ADT_FIELDS, count)
                if rvm_unlikely(value is NULL):
                    break
                rvm_store(fp + ip[MAKE_ADT_DST], value)
                ip += MAKE_ADT_FIELDS + count

            elif op == OP_ADT_TAG:
                value = rvm_adt_tag(rvm_read(fp, ip[ADT_TAG_X]))
                if rvm_unlikely(value is NULL):
                    PyErr_Clear()
                    ip += ip[FALLBACK]
                    continue
                rvm_store(fp + ip[ADT_TAG_DST], value)
                ip += ADT_TAG_WORDS

            elif op == OP_MATCH_TAG:
                count = ip[MATCH_TAG_COUNT]
                value = rvm_match_tag(rvm_read(fp, ip[MATCH_TAG_X]), pool_end,
                                      ip + MATCH_TAG_CONSTRUCTORS, count)
                if rvm_unlikely(value is NULL):
                    PyErr_Clear()
                    ip += ip[FALLBACK]
                    continue
                rvm_store(fp + ip[MATCH_TAG_DST], value)
                ip += MATCH_TAG_CONSTRUCTORS + 2 * count

            elif op == OP_ADT_FIELD:
                value = rvm_adt_field(rvm_read(fp, ip[ADT_FIELD_X]), ip[ADT_FIELD_INDEX])
                if rvm_unlikely(value is NULL):
                    ip += ip[FALLBACK]
                    continue
                rvm_incref(value)
                rvm_store(fp + ip[ADT_FIELD_DST], value)
                ip += ADT_FIELD_WORDS

            elif op == OP_TAG_IS:
                truth = rvm_tag_is(rvm_read(fp, ip[TAG_IS_TAG]), ip[TAG_IS_NUMBER])
                if rvm_unlikely(truth < 0):
                    ip += ip[FALLBACK]
                    continue
                value = Py_True if truth else Py_False
                rvm_incref(value)
                rvm_store(fp + ip[TAG_IS_DST], value)
                ip += TAG_IS_WORDS

            elif op == OP_IF_TAG:
                truth = rvm_tag_is(rvm_read(fp, ip[IF_TAG_TAG]), ip[IF_TAG_NUMBER])
                if rvm_unlikely(truth < 0):
                    ip += ip[FALLBACK]
                    continue
                value = Py_True if truth else Py_False
                rvm_incref(value)
                rvm_store(fp + ip[IF_TAG_DST], value)
                ip += IF_TAG_WORDS if truth else ip[IF_TAG_OTHERWISE]

            elif op == OP_SHAPE_OF:
                if rvm_unlikely(not rvm_store_shape_of(
                        fp + ip[SHAPE_OF_DST], <rvm_site*>ip[SHAPE_OF_SITE],
                        rvm_read(fp, ip[SHAPE_OF_TENSOR]))):
                    PyErr_Clear()
                    ip += ip[FALLBACK]
                    continue
                ip += SHAPE_OF_WORDS

            elif op == OP_MAKE_SHAPE:
                count = ip[MAKE_SHAPE_COUNT]
                if rvm_unlikely(
                        not rvm_load_slots(fp, pool_end, ip[MAKE_SHAPE_HEAP],
                                           ip[MAKE_SHAPE_LAST_SLOT], &slots)
                        or not rvm_store_made_shape(
                            fp + ip[MAKE_SHAPE_DST], <rvm_site*>ip[MAKE_SHAPE_SITE], slots, count,
                            ip + MAKE_SHAPE_DIMS)):
                    PyErr_Clear()
                    ip += ip[FALLBACK]
                    continue
                ip += MAKE_SHAPE_DIMS + 2 * count

            elif op == OP_MATCH_SHAPE:
                end = NULL
                if rvm_likely(rvm_load_slots(fp, pool_end, ip[MATCH_SHAPE_HEAP],
                                             ip[MATCH_SHAPE_LAST_SLOT], &slots)):
                    end = rvm_match_shape(rvm_read(fp, ip[MATCH_SHAPE_X]), slots,
                                          ip[MATCH_SHAPE_COUNT], ip + MATCH_SHAPE_DIMS)
                if rvm_unlikely(end is NULL):
                    ip += ip[FALLBACK]
                    continue
                ip = end

            elif op == OP_CHECK_TENSOR:
                if rvm_unlikely(not rvm_check_tensor(
                        rvm_read(fp, ip[CHECK_TENSOR_X]), ip[CHECK_TENSOR_NDIM],
                        <cnp.PyArray_Descr*>ip[CHECK_TENSOR_DTYPE])):
                    ip += ip[FALLBACK]
                    continue
                ip += CHECK_TENSOR_WORDS

            elif op == OP_CHECK_MATCH:
                value = rvm_read(fp, ip[CHECK_MATCH_X])
                end = NULL
                if rvm_likely(rvm_check_tensor(value, ip[CHECK_MATCH_NDIM],
                                               <cnp.PyArray_Descr*>ip[CHECK_MATCH_DTYPE])
                              and rvm_load_slots(fp, pool_end, ip[CHECK_MATCH_HEAP],
                                                 ip[CHECK_MATCH_LAST_SLOT], &slots)):
                    end = rvm_match_shape(value, slots, ip[CHECK_MATCH_COUNT],
                                          ip + CHECK_MATCH_DIMS)
                if rvm_unlikely(end is NULL):
                    ip += ip[FALLBACK]
                    continue
                ip = end

            elif op == OP_CHECK_SHAPE:
                if rvm_unlikely(not rvm_check_shape(
                        rvm_read(fp, ip[CHECK_SHAPE_X]), ip[CHECK_SHAPE_NDIM])):
                    ip += ip[FALLBACK]
                    continue
                ip += CHECK_SHAPE_WORDS

            elif op == OP_CHECK_TUPLE:
                if rvm_unlikely(not rvm_check_tuple(
                        rvm_read(fp, ip[CHECK_TUPLE_X]), ip[CHECK_TUPLE_SIZE])):
                    ip += ip[FALLBACK]
                    continue
                ip += CHECK_TUPLE_WORDS

            elif op == OP_CHECK_FUNC:
                if rvm_unlikely(not _is_vm_callable(rvm_read(fp, ip[CHECK_FUNC_X]))):
                    ip += ip[FALLBACK]
                    continue
                ip += CHECK_FUNC_WORDS

            elif op == OP_CHECK_PRIM:
                if rvm_unlikely(not rvm_check_prim(
                        rvm_read(fp, ip[CHECK_PRIM_X]), ip[CHECK_PRIM_FLOATS])):
                    ip += ip[FALLBACK]
                    continue
                ip += CHECK_PRIM_WORDS

            elif op == OP_MATCH_PRIM:
                if rvm_unlikely(not rvm_match_prim(
                        rvm_read(fp, ip[MATCH_PRIM_X]),
                        rvm_load(fp, pool_end, ip[MATCH_PRIM_HEAP]), ip[MATCH_PRIM_CODE],
                        ip[MATCH_PRIM_VALUE])):
                    ip += ip[FALLBACK]
                    continue
                ip += MATCH_PRIM_WORDS

            elif op == OP_MAKE_PRIM:
                value = rvm_make_prim(rvm_load(fp, pool_end, ip[MAKE_PRIM_HEAP]),
                                      ip[MAKE_PRIM_CODE], ip[MAKE_PRIM_VALUE])
                if rvm_unlikely(value is NULL):
                    PyErr_Clear()
                    ip += ip[FALLBACK]
                    continue
                rvm_store(fp + ip[MAKE_PRIM_DST], value)
                ip += MAKE_PRIM_WORDS

            elif op == OP_COMPUTE_SHAPE:
                if rvm_unlikely(
                        not rvm_load_slots(fp, pool_end, ip[COMPUTE_SHAPE_HEAP],
                                           ip[COMPUTE_SHAPE_LAST_SLOT], &slots)
                        or not rvm_compute_shape(slots, ip + COMPUTE_SHAPE_STEPS)):
                    ip += ip[FALLBACK]
                    continue
                ip += COMPUTE_SHAPE_STEPS + ip[COMPUTE_SHAPE_COUNT]

            elif op == OP_READ_COND:
                truth = rvm_store_cond(fp + ip[READ_COND_DST],
                                       rvm_read(fp, ip[READ_COND_X]))
                if rvm_unlikely(truth < 0):
                    ip += ip[FALLBACK]
                    continue
                ip += READ_COND_WORDS

            elif op == OP_READ_IF:
                truth = rvm_store_cond(fp + ip[READ_IF_DST],
                                       rvm_read(fp, ip[READ_IF_X]))
                if rvm_unlikely(truth < 0):
                    ip += ip[FALLBACK]
                    continue
                ip += READ_IF_WORDS if truth else ip[READ_IF_OTHERWISE]

            elif op == OP_ALLOC_HEAP:
                value = rvm_site_heap(<rvm_site*>ip[ALLOC_HEAP_SITE], ip[ALLOC_HEAP_SLOTS])
                if rvm_unlikely(value is NULL):
                    break
                rvm_store(fp + ip[ALLOC_HEAP_DST], value)
                ip += ALLOC_HEAP_WORDS

            elif op == OP_ALLOC_STORAGE:
                if renew_storage(fp[ip[ALLOC_STORAGE_DST]], <PyObject*>ip[ALLOC_STORAGE_ALLOCATOR],
                                 ip[ALLOC_STORAGE_NBYTES]):
                    ip += ALLOC_STORAGE_WORDS
                    continue
                value = take_storage(<PyObject*>ip[ALLOC_STORAGE_ALLOCATOR],
                                     ip[ALLOC_STORAGE_NBYTES])
                if rvm_unlikely(value is NULL):
                    PyErr_Clear()
                    ip += ip[FALLBACK]
                    continue
                rvm_store(fp + ip[ALLOC_STORAGE_DST], value)
                ip += ALLOC_STORAGE_WORDS

            elif op == OP_ALLOC_STORAGE_DYN:
                value = _take_shape(<PyObject*>ip[ALLOC_STORAGE_DYN_ALLOCATOR],
                                    rvm_load(fp, pool_end, ip[ALLOC_STORAGE_DYN_SHAPE]),
                                    ip[ALLOC_STORAGE_DYN_ITEMSIZE])
                if rvm_unlikely(value is NULL):
                    PyErr_Clear()
                    ip += ip[FALLBACK]
                    continue
                rvm_store(fp + ip[ALLOC_STORAGE_DYN_DST], value)
                ip += ALLOC_STORAGE_DYN_WORDS

            elif op == OP_ALLOC_TENSOR:
                cell = fp + ip[ALLOC_TENSOR_DST]
                value = _view(cell[0], rvm_load(fp, pool_end, ip[ALLOC_TENSOR_STORAGE]),
                              ip[ALLOC_TENSOR_OFFSET],
                              rvm_load(fp, pool_end, ip[ALLOC_TENSOR_SHAPE]),
                              <cnp.PyArray_Descr*>ip[ALLOC_TENSOR_DTYPE])
                if rvm_unlikely(value is NULL):
                    PyErr_Clear()
                    ip += ip[FALLBACK]
                    continue
                if value is not cell[0]:
                    rvm_store(cell, value)
                ip += ALLOC_TENSOR_WORDS

            elif op == OP_ALLOC_TENSOR_OF:
                count = ip[ALLOC_TENSOR_OF_COUNT]
                cell = fp + ip[ALLOC_TENSOR_OF_DST]
                value = _view_of(cell[0], rvm_load(fp, pool_end, ip[ALLOC_TENSOR_OF_STORAGE]),
                                 ip[ALLOC_TENSOR_OF_OFFSET], ip[ALLOC_TENSOR_OF_END],
                                 <cnp.PyArray_Descr*>ip[ALLOC_TENSOR_OF_DTYPE], count,
                                 <const cnp.npy_intp*>ip + ALLOC_TENSOR_OF_DIMS)
                if rvm_unlikely(value is NULL):
                    PyErr_Clear()
                    ip += ip[FALLBACK]
                    continue
                if value is not cell[0]:
                    rvm_store(cell, value)
                ip += ALLOC_TENSOR_OF_DIMS + count

            elif op == OP_ALLOC_STATIC:
                rvm_store(fp + ip[ALLOC_STATIC_STORAGE], NULL)
                value = _static_array(ip)
                if rvm_unlikely(value is NULL):
                    PyErr_Clear()
                    ip += ip[FALLBACK]
                    continue
                rvm_store(fp + ip[ALLOC_STATIC_DST], value)
                ip += ALLOC_STATIC_DIMS + ip[ALLOC_STATIC_COUNT]

            elif op == OP_RESHAPE:
                value = rvm_reshape(rvm_load(fp, pool_end, ip[RESHAPE_TENSOR]),
                                    rvm_load(fp, pool_end, ip[RESHAPE_SHAPE]))
                if rvm_unlikely(value is NULL):
                    PyErr_Clear()
                    ip += ip[FALLBACK]
                    continue
                rvm_store(fp + ip[RESHAPE_DST], value)
                ip += RESHAPE_WORDS

            elif op == OP_LOAD_FUNCTION:
                func = <rvm_func*>ip[LOAD_FUNCTION_FUNCTION]
                value = _load_function((pool_end - 1)[0], func - image.funcs)
                if rvm_unlikely(value is NULL):
                    break
                rvm_store(fp + ip[LOAD_FUNCTION_DST], value)
                ip += LOAD_FUNCTION_WORDS

            elif op == OP_MAKE_CLOSURE_OF:
                count = ip[MAKE_CLOSURE_OF_COUNT]
                func = <rvm_func*>ip[MAKE_CLOSURE_OF_FUNCTION]
                if _renew_closure(fp[ip[MAKE_CLOSURE_OF_DST]], (pool_end - 1)[0],
                                  func - image.funcs, fp, pool_end, ip + MAKE_CLOSURE_OF_CAPTURED,
                                  count):
                    ip += MAKE_CLOSURE_OF_CAPTURED + count
                    continue
                value = _new_closure((pool_end - 1)[0], func - image.funcs, fp, pool_end,
                                     ip + MAKE_CLOSURE_OF_CAPTURED, count)
                if rvm_unlikely(value is NULL):
                    break
                rvm_store(fp + ip[MAKE_CLOSURE_OF_DST], value)
                ip += MAKE_CLOSURE_OF_CAPTURED + count

            elif op == OP_MAKE_CLOSURE:
                count = ip[MAKE_CLOSURE_COUNT]
                other = rvm_load(fp, pool_end, ip[MAKE_CLOSURE_FUNCTION])
                if rvm_unlikely(Py_TYPE(other) is not <PyTypeObject*>VMFunction):
                    ip += ip[FALLBACK]
                    continue
                if _renew_closure(fp[ip[MAKE_CLOSURE_DST]],
                                  <PyObject*>(<VMFunction>other).machine,
                                  (<VMFunction>other).index, fp, pool_end,
                                  ip + MAKE_CLOSURE_CAPTURED, count):
                    ip += MAKE_CLOSURE_CAPTURED + count
                    continue
                value = _new_closure(<PyObject*>(<VMFunction>other).machine,
                                     (<VMFunction>other).index, fp, pool_end,
                                     ip + MAKE_CLOSURE_CAPTURED, count)
                if rvm_unlikely(value is NULL):
                    break
                rvm_store(fp + ip[MAKE_CLOSURE_DST], value)
                ip += MAKE_CLOSURE_CAPTURED + count

            elif op == OP_INVOKE_CLOSURE:
                count = ip[INVOKE_CLOSURE_COUNT]
                other = rvm_read(fp, ip[INVOKE_CLOSURE_CLOSURE])
                func = _own_function(<PyObject*>machine, funcs, other, count)
                if rvm_unlikely(func is NULL):
                    ip += ip[FALLBACK]
                    continue
                caller = fp
                callee_fp = fp + ip[INVOKE_CLOSURE_FRAME] + RVM_HEADER
                if rvm_unlikely(not rvm_has_room(run, callee_fp, func)):
                    callee_fp = _new_frames(machine, run, fp, func)
                    if callee_fp is NULL:
                        break
                    caller = rvm_in_new_chunk(fp)
                rvm_push_frame(callee_fp, func, caller, ip + INVOKE_CLOSURE_ARGS + count,
                               ip[INVOKE_CLOSURE_DST])
                rvm_push_args(callee_fp, fp, pool_end, ip + INVOKE_CLOSURE_ARGS, count)
                if count < func.num_registers:
                    for i in range(count, func.num_params):
                        value = _captured_at(other, i - count)
                        rvm_incref(value)
                        callee_fp[i] = value
                    rvm_null_registers(callee_fp, func.num_params, func.num_registers)
                fp = callee_fp
                ip = func.code
                ticks -= 1
                if rvm_unlikely(ticks < 0):
                    next_ip = ip
                    break

            elif op == OP_TAIL_INVOKE_CLOSURE:
                count = ip[TAIL_INVOKE_CLOSURE_COUNT]
                other = rvm_read(fp, ip[TAIL_INVOKE_CLOSURE_CLOSURE])
                func = _own_function(<PyObject*>machine, funcs, other, count)
                if rvm_unlikely(func is NULL or func.frame_words > run.end - fp):
                    ip += ip[FALLBACK]
                    continue
                cell = fp + ip[TAIL_INVOKE_CLOSURE_AREA]
                rvm_push_args(cell, fp, pool_end, ip + TAIL_INVOKE_CLOSURE_ARGS, count)
                rvm_incref(other)  # a register may hold the last reference
                rvm_reuse_frame(fp, func, cell, count)
                for i in range(count, func.num_params):
                    value = _captured_at(other, i - count)
                    rvm_incref(value)
                    fp[i] = value
                rvm_null_registers(fp, func.num_params, func.num_registers)
                Py_DECREF(<object>other)
                ip = func.code
                ticks -= 1
                if rvm_unlikely(ticks < 0):
                    next_ip = ip
                    break

            elif op == OP_UFUNC_1:
                answer = rvm_ufunc_1(<int64_t*>ip + UFUNC_1_UFUNC,
                                     rvm_load(fp, pool_end, ip[UFUNC_1_X]),
                                     rvm_load(fp, pool_end, ip[UFUNC_1_OUT]))
                if rvm_unlikely(answer <= 0):
                    if answer == RVM_FALLBACK:
                        ip += ip[FALLBACK]
                        continue
                    answer = _after_loop(ip[UFUNC_1_UFUNC], answer)
                    if answer < 0:
                        break
                ticks -= answer
                end = ip + UFUNC_1_WORDS
                if rvm_unlikely(ticks < 0):
                    next_ip = end
                    break
                ip = end

            elif op == OP_UFUNC_2:
                answer = rvm_ufunc_2(<int64_t*>ip + UFUNC_2_UFUNC,
                                     rvm_load(fp, pool_end, ip[UFUNC_2_A]),
                                     rvm_load(fp, pool_end, ip[UFUNC_2_B]),
                                     rvm_load(fp, pool_end, ip[UFUNC_2_OUT]))
                if rvm_unlikely(answer <= 0):
                    if answer == RVM_FALLBACK:
                        ip += ip[FALLBACK]
                        continue
                    answer = _after_loop(ip[UFUNC_2_UFUNC], answer)
                    if answer < 0:
                        break
                ticks -= answer
                end = ip + UFUNC_2_WORDS
                if rvm_unlikely(ticks < 0):
                    next_ip = end
                    break
                ip = end

            elif op == OP_FUEL:
                run.fuel -= ip[FUEL_INSTRUCTIONS]
                if rvm_unlikely(run.fuel < 0):
                    run.fuel = 0
                    _fail_fuel(machine)
                    break
                run.objects += ip[FUEL_BYTES]
                if rvm_unlikely(run.objects > run.census_at):
                    if _count_objects(run, fp, ip[FUEL_BYTES]) < 0:
                        break
                ip += FUEL_WORDS

            elif op == OP_DEADLINE:
                if _check_deadline(run) < 0:
                    break
                ip += DEADLINE_WORDS

            elif op == OP_ENTER:
                if (<rvm_site*>ip[ENTER_SITE]).data is NULL:
                    if _count_entry(machine, <rvm_site*>ip[ENTER_SITE]) < 0:
                        break
                    ip += ENTER_WORDS
                    continue
                native.fp = fp
                native.ip = ip
                native.ticks = ticks
                truth = rvm_run_compiled(&native, <rvm_site*>ip[ENTER_SITE], run, <PyObject*>machine,
                                         <PyObject*>image, pool_end)
                fp = native.fp
                ip = native.ip
                ticks = native.ticks
                if rvm_unlikely(truth < 0):
                    break

            elif op == OP_DEFER:
                count = ip[DEFER_COUNT]
                other = pool_end[ip[DEFER_CALLEE]]
                # Once a batch has begun, a call that may depend on it goes there: another thread, or a
                # handler of signals, may have found meanwhile that batches here gain nothing.
                if run.batch is not NULL or rvm_defers(<rvm_site*>ip[DEFER_SITE]):
                    if rvm_likely(rvm_defer(run, ip, <rvm_site*>ip[DEFER_SITE], other, fp, pool_end,
                                            ip + DEFER_ARGS, count, ip[DEFER_OUTS])):
                        ip += ip[DEFER_AFTER]
                        continue
                    if run.batch is not NULL:
                        end = _run_calls(machine, image, run, fp)
                        if rvm_unlikely(end is not NULL):
                            ip = end
                            break
                ip += DEFER_ARGS + count

            elif op == OP_JOIN:
                if run.batch is not NULL:
                    end = _run_calls(machine, image, run, fp)
                    if rvm_unlikely(end is not NULL):
                        ip = end
                        break
                ip += JOIN_WORDS
                ticks -= CALL_TICKS
                if rvm_unlikely(ticks < 0):
                    next_ip = ip
                    break

            elif op == OP_STEP:
                if rvm_pauses(run, ip[STEP_PC]):
                    run.pause.fp = fp
                    run.pause.ip = ip + STEP_WORDS
                    return NULL
                ip += STEP_WORDS

            elif op == OP_HOOK_BEFORE:
                truth = _hook(machine, fp, pool_end, ip, NULL)
                if rvm_unlikely(truth < 0):
                    break
                if truth:
                    rvm_store(fp + ip[HOOK_BEFORE_DST], NULL)
                    ip += ip[HOOK_BEFORE_AFTER]
                else:
                    ip += HOOK_BEFORE_ARGS + ip[HOOK_BEFORE_COUNT]

            elif op == OP_HOOK_AFTER:
                cell = fp + ip[HOOK_AFTER_RESULT]
                value = rvm_load(fp, pool_end, ip[HOOK_AFTER_RESULT])
                if _hook(machine, fp, pool_end, ip, value) < 0:
                    break
                value = cell[0]
                cell[0] = NULL
                if ip[HOOK_AFTER_DST] != ip[HOOK_AFTER_RESULT]:
                    rvm_store(fp + ip[HOOK_AFTER_DST], value)
                else:
                    Py_XDECREF(value)
                ip += HOOK_AFTER_ARGS + ip[HOOK_AFTER_COUNT]

            else:
                rvm_no_operation()
                _fail_bug(op)
                break

        if ticks >= 0:
            break
        ticks = POLL_TICKS
        if run.asked & RVM_WARNED and _give_warnings(machine, image, run, ip) < 0:
            break
        if _poll(run) < 0:
            break
        ip = next_ip

    _unwind(machine, image, run, fp, ip)
    return NULL


# ---- batches of calls --------------------------------------------------------------------------


cdef const int64_t* _join_batch(Machine machine, Image image, Run* run, PyObject** fp) noexcept:
    """Run the batch of the run, and give the warnings of its calls.

    Returns NULL, or the operation of the first call that failed, with its exception: its arguments are
    in the registers again, where the note on the exception looks for them."""
    cdef rvm_calls* calls = <rvm_calls*>run.batch
    cdef const int64_t* failed = NULL
    cdef rvm_task* task
    cdef PyObject* messages
    cdef int64_t word
    cdef int i, k
    # What other threads make does not count for a run with limits that this one is in.
    rvm_run_batch(calls, machine._threads if _limited_run() is NULL else 1)
    run.asked &= ~RVM_WARNED
    if machine._schedule is not None and _add_to_schedule(machine, image, calls) < 0:
        PyErr_Clear()  # no memory: the picture lacks calls, the run goes on
    for i in range(calls.count):
        task = &calls.tasks[i]
        if task.warnings is not NULL and PyErr_Occurred() is NULL:
            messages = task.warnings
            if _give_messages(machine, image, messages, task.ip) < 0:
                failed = task.ip
                break
        if calls.kind is not NULL and (task.begin == 0 or task.kind is not NULL or i == calls.count - 1):
            PyErr_Restore(calls.kind, calls.error, calls.traceback)
            calls.kind = calls.error = calls.traceback = NULL
            failed = task.ip
        elif task.kind is not NULL:
            PyErr_Restore(task.kind, task.error, task.traceback)
            task.kind = task.error = task.traceback = NULL
            failed = task.ip
        if failed is not NULL:
            for k in range(task.count):
                word = (task.ip + DEFER_ARGS)[k]
                if word >= 0:
                    rvm_incref(task.args[k])
                    rvm_store(fp + word, task.args[k])
            break
    rvm_drop_calls(calls)
    return failed


# Called through a pointer, so that no part of it becomes part of the loop.
ctypedef const int64_t* (*joiner)(Machine, Image, Run*, PyObject**) noexcept
cdef joiner _run_calls = _join_batch
ctypedef int (*noter)(Machine, Image, rvm_calls*) noexcept
cdef noter _add_to_schedule = <noter>_note_batch
ctypedef int (*messenger)(Machine, Image, PyObject*, const int64_t*) noexcept
cdef messenger _give_messages = <messenger>_warn_of


cdef int _warn_of(Machine machine, Image image, PyObject* messages, const int64_t* ip) except -1:
    cdef int64_t pc = image.source_pc(ip)
    for message in <list>messages:
        machine._on_warning(message, pc)
    return 0


cdef int _note_batch(Machine machine, Image image, rvm_calls* calls) except -1:
    cdef list noted = machine._schedule
    cdef rvm_task* task
    cdef int i
    if noted is None:
        return 0
    for i in range(calls.count):
        task = &calls.tasks[i]
        if task.begin != 0:
            noted.append((image.source_pc(task.ip), task.thread, task.begin, task.end))
    return 0


cdef PyObject* _warnings_of_helper(Run* run) except NULL:
    cdef list messages = take_warnings(run)
    Py_INCREF(messages)
    return <PyObject*>messages


rvm_batch_warnings = <PyObject* (*)(Run*) noexcept>_warnings_of_helper
rvm_batch_look = look
rvm_batch_take_pool = take_pool
rvm_batch_run_section = run_section


def always_beside(flag):
    """Whether independent calls run side by side also where that takes longer, for tests."""
    global rvm_batch_always
    rvm_batch_always = bool(flag)


# ---- native code of compiled functions ---------------------------------------------------------
# It runs on the loop's frames, and returns to the loop, with complete frames, at whatever operation it
# does not handle.  See ``docs/compiled-mode.md`` and ``relaxvm/compiled.h``.


cdef int _count_entry(Machine machine, rvm_site* site) noexcept:
    """Tell the machine of a function that has run often, once; -1 with an exception, such as one of a
    signal handler."""
    site.dims[1] -= 1
    if rvm_likely(site.dims[1] != 0):
        return 0
    return _call_on_hot(machine, site.dims[0])


cdef int _tell_hot(Machine machine, int64_t index) except -1:
    machine._on_hot(index)
    return 0


cdef int _compiled_poll(RvmActivation* a) noexcept:
    cdef Run* run = <Run*>a.run
    a.ticks = POLL_TICKS
    if run.asked & RVM_WARNED and _give_warnings(<Machine>a.machine, <Image>a.image, run, a.ip) < 0:
        return -1
    return _poll(run)


cdef int _compiled_deadline(RvmActivation* a) noexcept:
    return _check_deadline(<Run*>a.run)


cdef PyObject* _compiled_closure(RvmActivation* a, int64_t index, PyObject** items,
                                 int64_t count) noexcept:
    return _new_closure(<PyObject*>a.machine, index, items, NULL, rvm_item_words, count)


cdef int _compiled_check_func(PyObject* value) noexcept:
    return _is_vm_callable(value)


cdef PyObject* _compiled_storage(int64_t allocator, int64_t nbytes) noexcept:
    return take_storage(<PyObject*>allocator, nbytes)


cdef PyObject* _compiled_storage_dyn(int64_t allocator, PyObject* shape, int64_t itemsize) noexcept:
    return _take_shape(<PyObject*>allocator, shape, itemsize)


cdef PyObject* _compiled_tensor(PyObject* storage, int64_t offset, PyObject* shape,
                                int64_t dtype) noexcept:
    return _view(NULL, storage, offset, shape, <cnp.PyArray_Descr*>dtype)


cdef PyObject* _compiled_tensor_of(PyObject* storage, int64_t offset, int64_t end, int64_t dtype,
                                   int64_t count, const int64_t* dims) noexcept:
    return _view_of(NULL, storage, offset, end, <cnp.PyArray_Descr*>dtype, count,
                    <const cnp.npy_intp*>dims)


cdef PyObject* _compiled_function(RvmActivation* a, int64_t index) noexcept:
    return _load_function(<PyObject*>a.machine, index)


cdef PyObject* _compiled_call(RvmActivation* a, PyObject* callee, PyObject** args,
                              int64_t count) noexcept:
    """A call of a packed function, as `call` does it; a new reference to a value."""
    cdef Machine machine = <Machine>a.machine
    cdef PyObject* value = rvm_call_packed(callee, args, count, &a.ticks, PYTHON_TICKS, CALL_TICKS)
    if rvm_unlikely(value is NULL):
        return NULL
    if rvm_unlikely(not _is_plain(machine, value)):
        value = _as_value(machine, callee, value)
    if rvm_unlikely((<Run*>a.run).asked):
        a.ticks = -1
    return value


cdef int _compiled_call_void(RvmActivation* a, PyObject* callee, PyObject** args,
                             int64_t count) noexcept:
    cdef PyObject* value = rvm_call_packed(callee, args, count, &a.ticks, PYTHON_TICKS, CALL_TICKS)
    if rvm_unlikely(value is NULL):
        return -1
    if rvm_unlikely((<Run*>a.run).asked):
        a.ticks = -1
    Py_DECREF(<object>value)
    return 0


cdef inline int _store_of_native(RvmActivation* a, PyObject** fp, const int64_t* ip,
                                 PyObject* callee, PyObject* value, uint64_t nbytes) noexcept:
    """Store the result of a native function that took so many bytes: 0, or -1 with an exception."""
    cdef Machine machine = <Machine>a.machine
    if value is Py_None:
        value = NULL
    elif not _is_plain(machine, value):
        value = _as_value(machine, callee, value)
        if value is NULL:
            return -1
    rvm_store(fp + ip[CALL_NATIVE_DST], value)
    a.ticks -= NATIVE_TICKS + <int64_t>(nbytes >> 10)
    return 0


cdef int _compiled_call_native(RvmActivation* a, PyObject** fp, const int64_t* ip) noexcept:
    """The operation `call_native`."""
    cdef PyObject* callee = a.pool_end[ip[CALL_NATIVE_CALLEE]]
    cdef uint64_t nbytes
    cdef PyObject* value = _call_native(callee, fp, a.pool_end, ip + CALL_NATIVE_ARGS,
                                        ip[CALL_NATIVE_COUNT], &nbytes)
    if rvm_unlikely(value is NULL):
        return -1
    return _store_of_native(a, fp, ip, callee, value, nbytes)


cdef int _compiled_call_local(RvmActivation* a, PyObject** fp, const int64_t* ip,
                              RvmLocalTensor* const* locals_, int64_t nbytes) noexcept:
    """The operation `call_native` where some operands are tensors of which no array is made: 1 if the
    kernel does not take them so, -1 with an exception."""
    cdef PyObject* callee = a.pool_end[ip[CALL_NATIVE_CALLEE]]
    cdef uint64_t total = <uint64_t>nbytes
    cdef PyObject* value = NULL
    cdef int answer = _call_locals(callee, fp, a.pool_end, ip + CALL_NATIVE_ARGS,
                                   ip[CALL_NATIVE_COUNT], <RvmTensor* const*>locals_, &total, &value)
    if rvm_unlikely(answer <= 0):
        return 1 if answer == 0 else -1
    return _store_of_native(a, fp, ip, callee, value, total)


cdef int _compiled_call_scalars(RvmActivation* a, PyObject* callee, const RvmScalar* args,
                                int64_t count, RvmScalar* result) noexcept:
    """A call of a native function with scalars: 1 with a scalar, 0 with another result in
    ``a.value``, -1 with an exception."""
    cdef Machine machine = <Machine>a.machine
    cdef int answer = _call_scalars(callee, <const RvmAny*>args, count, <RvmAny*>result, &a.value)
    a.ticks -= NATIVE_TICKS
    if answer == 0 and not _is_plain(machine, a.value):
        a.value = _as_value(machine, callee, a.value)
        if a.value is NULL:
            return -1
    return answer


cdef int _compiled_ufunc_1(RvmActivation* a, const int64_t* words, PyObject* x,
                           PyObject* out) noexcept:
    """1, 0 for the fallback, -1 with an exception."""
    return _after_ufunc(a, words, rvm_ufunc_1(<int64_t*>words, x, out))


cdef int _compiled_ufunc_2(RvmActivation* a, const int64_t* words, PyObject* x, PyObject* y,
                           PyObject* out) noexcept:
    return _after_ufunc(a, words, rvm_ufunc_2(<int64_t*>words, x, y, out))


cdef int _after_ufunc(RvmActivation* a, const int64_t* words, int answer) noexcept:
    if rvm_unlikely(answer <= 0):
        if answer == RVM_FALLBACK:
            return 0
        answer = _after_loop(words[0], answer)
        if answer < 0:
            return -1
    a.ticks -= answer
    return 1


cdef RvmCompiled _compiled_target(RvmActivation* a, PyObject* callee, int64_t given, int64_t* index,
                                  int64_t* frame_words, int64_t* registers) noexcept:
    """The native code of a closure or function of this machine for so many arguments, or NULL."""
    cdef Image image = <Image>a.image
    cdef rvm_func* func = _own_function(<PyObject*>a.machine, image.funcs, callee, given)
    if func is NULL:
        return NULL
    index[0] = func - image.funcs
    frame_words[0] = func.frame_words
    registers[0] = func.num_registers
    return <RvmCompiled>image.extents[index[0]].compiled


cdef PyObject* _compiled_captured(PyObject* callee, int64_t i) noexcept:
    return _captured_at(callee, i)


cdef int64_t _compiled_func(RvmActivation* a, int64_t index) noexcept:
    return <int64_t>((<Image>a.image).funcs + index)


cdef PyObject** _push_chunk(Machine machine, Run* run, PyObject** fp,
                            const rvm_func* func) noexcept:
    """A chunk for the frame of a function that the frame at `fp` calls, and for others after it; NULL
    with an exception, also where the calls are nested too deep.

    The call has been taken from those that are left, and is given back where it fails."""
    cdef int64_t words = max(func.frame_words + RVM_HEADER, min(run.words, 1 << 16))
    cdef rvm_chunk* chunk = NULL
    if run.calls_left < 0:
        run.calls_left += 1
        _fail_depth(func, machine._max_depth)
        return NULL
    if run.words + words <= MAX_FRAME_WORDS:
        if run.host is not NULL and _count_chunk(run, fp, words) < 0:
            run.calls_left += 1
            return NULL
        chunk = rvm_new_chunk(run.chunk, words)
    if chunk is NULL:
        run.calls_left += 1
        _fail_frames(func, run.words + words)
        return NULL
    run.words += chunk.words
    if run.host is not NULL:
        run.objects += WORD_BYTES * chunk.words
    run.chunk = chunk
    run.end = chunk.end
    return chunk.memory + RVM_HEADER


cdef void _pop_chunk(Run* run) noexcept:
    run.words -= run.chunk.words
    if run.host is not NULL:
        run.objects -= WORD_BYTES * run.chunk.words
    run.chunk = rvm_drop_chunk(run.chunk)
    run.end = run.chunk.end


cdef inline bint _is_vm_callable(PyObject* value) noexcept:
    cdef PyTypeObject* cls = Py_TYPE(value)
    return cls is <PyTypeObject*>Closure or cls is <PyTypeObject*>VMFunction


cdef inline rvm_func* _own_function(PyObject* own_machine, rvm_func* funcs, PyObject* callee,
                                    int64_t count) noexcept:
    """The code of a closure or function of this very machine that takes `count` arguments."""
    cdef PyObject* machine
    cdef rvm_func* func
    if rvm_likely(Py_TYPE(callee) is <PyTypeObject*>Closure):
        count += (<Closure>callee)._count
        machine = <PyObject*>(<Closure>callee)._machine
        func = funcs + (<Closure>callee)._index
    elif Py_TYPE(callee) is <PyTypeObject*>VMFunction:
        machine = <PyObject*>(<VMFunction>callee).machine
        func = funcs + (<VMFunction>callee).index
    else:
        return NULL
    if rvm_unlikely(machine is not own_machine):
        return NULL
    if rvm_unlikely(func.num_params != count):
        return NULL
    return func


# ---- helpers of the operations ----------------------------------------------------------------


# Each answers NULL, perhaps with an exception set, where the operation takes its fallback.


cdef PyObject* _take_shape(PyObject* allocator, PyObject* shape, int64_t itemsize) noexcept:
    """A storage for a Shape of items."""
    cdef cnp.npy_intp dims[RVM_MAX_DIMS]
    cdef int64_t rank, nbytes
    if not rvm_shape_dims(shape, -1, dims, &rank) or not rvm_bytes(itemsize, rank, dims, &nbytes):
        return NULL
    return take_storage(allocator, nbytes)


cdef PyObject* _view(PyObject* old, PyObject* storage, int64_t offset, PyObject* shape,
                     cnp.PyArray_Descr* descr) noexcept:
    """An array over a storage: a new reference, or `old`, what the register of the result holds, if
    that could be made the array."""
    cdef cnp.npy_intp dims[RVM_MAX_DIMS]
    cdef int64_t rank, nbytes
    if Py_TYPE(storage) is not <PyTypeObject*>Storage:
        return NULL
    if not rvm_shape_dims(shape, -1, dims, &rank):
        return NULL
    if not rvm_bytes(PyDataType_ELSIZE(descr), rank, dims, &nbytes):
        return NULL
    if offset > (<Storage>storage).nbytes or nbytes > (<Storage>storage).nbytes - offset:
        return NULL
    return _renewed_at(old, storage, offset, <int>rank, dims, descr)


cdef PyObject* _view_of(PyObject* old, PyObject* storage, int64_t offset, int64_t end,
                        cnp.PyArray_Descr* descr, int64_t rank,
                        const cnp.npy_intp* dims) noexcept:
    """The same, of known dimensions over the bytes from `offset` to `end` of a storage."""
    if Py_TYPE(storage) is not <PyTypeObject*>Storage or (<Storage>storage).nbytes < end:
        return NULL
    return _renewed_at(old, storage, offset, <int>rank, dims, descr)


cdef inline PyObject* _renewed_at(PyObject* old, PyObject* storage, int64_t offset, int rank,
                                  const cnp.npy_intp* dims, cnp.PyArray_Descr* descr) noexcept:
    if rvm_renew_array(old, storage, (<Storage>storage).data + offset, rank, dims, descr,
                       offset & (ALIGNMENT - 1) == 0):
        return old
    return _array_at(storage, offset, rank, dims, descr)


cdef inline PyObject* _array_at(PyObject* storage, int64_t offset, int rank,
                                const cnp.npy_intp* dims, cnp.PyArray_Descr* descr) noexcept:
    return rvm_new_array(storage, (<Storage>storage).data + offset, rank, dims, descr,
                         offset & (ALIGNMENT - 1) == 0)


ctypedef PyObject* (*static_maker)(const int64_t*) noexcept
cdef static_maker _make_static = <static_maker>_new_static_array


cdef inline PyObject* _static_array(const int64_t* ip) noexcept:
    """The array of alloc_storage + alloc_tensor, handed out again once nobody else has it."""
    cdef rvm_site* site = <rvm_site*>ip[ALLOC_STATIC_SITE]
    if rvm_likely(site.object is not NULL and rvm_is_idle(
            site.object, <int>ip[ALLOC_STATIC_COUNT], <const cnp.npy_intp*>ip + ALLOC_STATIC_DIMS,
            <cnp.PyArray_Descr*>ip[ALLOC_STATIC_DTYPE], site.data)):
        rvm_incref(site.object)
        return site.object
    return _make_static(ip)


cdef PyObject* _new_static_array(const int64_t* ip) noexcept:
    """Make the array of a site.  Called by pointer, so that it does not become part of the loop."""
    cdef rvm_site* site = <rvm_site*>ip[ALLOC_STATIC_SITE]
    cdef cnp.PyArray_Descr* descr = <cnp.PyArray_Descr*>ip[ALLOC_STATIC_DTYPE]
    cdef int rank = <int>ip[ALLOC_STATIC_COUNT]
    cdef const cnp.npy_intp* dims = <const cnp.npy_intp*>ip + ALLOC_STATIC_DIMS
    cdef PyObject* storage
    cdef PyObject* array
    storage = take_storage(<PyObject*>ip[ALLOC_STATIC_ALLOCATOR], ip[ALLOC_STATIC_NBYTES])
    if storage is NULL:
        return NULL
    array = _array_at(storage, ip[ALLOC_STATIC_OFFSET], rank, dims, descr)
    Py_DECREF(<object>storage)
    if array is not NULL:
        site.data = rvm_array_data(array)
        rvm_incref(array)
        rvm_store(&site.object, array)
    return array


cdef int _after_loop(int64_t ufunc, int answer) noexcept:
    """Report the floating-point status after a ufunc's loop, if `answer` is one.

    Returns the ticks that this takes, so many that there is a poll if there is a warning to give, or
    -1 with an exception.
    """
    if answer == RVM_RAISED:
        return -1
    answer = _report(-1 - answer, <PyObject*>ufunc)
    if answer < 0:
        return -1
    return POLL_TICKS + 1 if answer else PYTHON_TICKS


# The loop and what it calls know no exceptions of Cython's: they return NULL or -1 with one set.  A
# function that raises is called through a pointer that says so.  (In an ``except`` clause, the code
# that Cython 3.3 generates releases NULL where the memory for the exception is missing.)
ctypedef int (*reporter)(int, PyObject*) noexcept
ctypedef int (*warner)(Machine, Image, Run*, const int64_t*) noexcept
ctypedef int (*run_hook)(Machine, int64_t, PyObject**, int64_t, PyObject*) noexcept
ctypedef PyObject* (*maker)(PyObject*, PyObject*, PyObject*) noexcept
ctypedef PyObject* (*loader)(PyObject*, int64_t) noexcept
ctypedef int (*scalar_call)(PyObject*, const RvmAny*, Py_ssize_t, RvmAny*, PyObject**) noexcept
cdef scalar_call _call_scalars = <scalar_call>call_scalars
ctypedef int (*local_call)(PyObject*, PyObject* const*, PyObject* const*, const int64_t*, Py_ssize_t,
                           RvmTensor* const*, uint64_t*, PyObject**) noexcept
cdef local_call _call_locals = <local_call>call_locals
ctypedef int (*hot_hook)(Machine, int64_t) noexcept
ctypedef PyObject* (*converter)(PyObject*, int64_t, Py_ssize_t, PyObject*) noexcept
cdef reporter _report = <reporter>_report_status
cdef warner _give_warnings = <warner>_warn_at
cdef run_hook _call_run_hook = <run_hook>_run_hook
cdef hot_hook _call_on_hot = <hot_hook>_tell_hot
cdef maker _new_exception = <maker>_make_exception
cdef converter _convert_argument = <converter>_argument
cdef loader _load_function = <loader>_new_function

# Called through a pointer, so that no part of it becomes part of the loop.
ctypedef PyObject** (*pusher)(Machine, Run*, PyObject**, const rvm_func*) noexcept
cdef pusher _new_frames = _push_chunk


cdef int _report_status(int status, PyObject* ufunc) except -1:
    """Returns 1 if the next poll is to give a warning."""
    return report_status(status, (<object>ufunc).__name__)


cdef int _warn_at(Machine machine, Image image, Run* run, const int64_t* ip) except -1:
    """Give the warnings of the call at `ip`."""
    cdef int64_t pc = image.source_pc(ip)
    for message in take_warnings(run):
        machine._on_warning(message, pc)
    return 0


# Where a Python function begins, the interpreter lets another thread run if one waits.  Releasing
# the GIL and taking it again is not enough: a waiting thread may never be fast enough to get it.
cdef object _yield_gil = eval("lambda: None")


cdef int _poll(Run* run) noexcept:
    """Handle signals, cancellation and the deadline, and now and then let another thread run.

    Returns -1 with an exception.
    """
    cdef PyObject* yielded
    if PyErr_CheckSignals() < 0:
        return -1
    run.polls += 1
    if run.polls >= YIELD_POLLS:
        run.polls = 0
        yielded = PyObject_Vectorcall(<PyObject*>_yield_gil, NULL, 0, NULL)
        if yielded is NULL:
            return -1
        Py_DECREF(<object>yielded)
    if run.asked & RVM_CANCELLED:
        _fail_cancelled()
        return -1
    return _check_deadline(run)


cdef inline int _check_deadline(Run* run) noexcept:
    if rvm_unlikely(run.deadline != INT64_MAX) and rvm_clock_ns() > run.deadline:
        _fail_deadline(run)
        return -1
    return 0


cdef int _hook(Machine machine, PyObject** fp, PyObject** pool_end, const int64_t* ip,
               PyObject* result) noexcept:
    """Call the machine's hook for hook_before, or for hook_after with a result; the operands used
    here stand at the same positions in both.

    Returns 1 to skip the call, 0 to go on, -1 with an exception.
    """
    cdef PyObject* args = rvm_gather_tuple(fp, pool_end, ip + HOOK_BEFORE_ARGS,
                                           ip[HOOK_BEFORE_COUNT])
    cdef PyObject* answer
    cdef PyObject* operands[6]
    cdef bint before = result is NULL
    cdef int truth
    if args is NULL:
        return -1
    operands[0] = pool_end[ip[HOOK_BEFORE_PC]]
    operands[1] = Py_True if before else Py_False
    operands[2] = rvm_load(fp, pool_end, ip[HOOK_BEFORE_CALLEE])
    operands[3] = pool_end[ip[HOOK_BEFORE_PC] - 1]  # the translator puts the name after the pc
    operands[4] = Py_None if before else result
    operands[5] = args
    hook = machine._hook
    if hook is None:
        Py_DECREF(<object>args)
        return 0
    answer = PyObject_Vectorcall(<PyObject*>hook, operands, 6, NULL)
    Py_DECREF(<object>args)
    if answer is NULL:
        return -1
    truth = PyObject_IsTrue(answer)
    Py_DECREF(<object>answer)
    return truth


cdef bint _hook_run_begin(Machine machine, int64_t index, PyObject** fp, int64_t count) noexcept:
    """Call the hook at the beginning of a run, with pc -1 and the arguments of the function.

    Returns False with an exception if the hook raised.
    """
    return _call_run_hook(machine, index, fp, count, NULL) == 0


cdef int _run_hook(Machine machine, int64_t index, PyObject** fp, int64_t count,
                   PyObject* result) except -1:
    """Call the hook at the beginning of a run, where there is a frame, or at its end."""
    cdef int64_t i
    cdef list args
    hook = machine._hook
    if hook is None:
        return 0
    function = machine._function(index)
    if fp is NULL:
        if result is NULL:
            hook(RUN_FAILED, False, function, function.name, None, ())
        else:
            hook(RUN, False, function, function.name, <object>result, ())
        return 0
    args = []
    for i in range(count):
        args.append(<object>fp[i])
    hook(RUN, True, function, function.name, None, tuple(args))
    return 0


cdef PyObject* _hook_run_end(Machine machine, int64_t index, PyObject* result) noexcept:
    """Call the hook at the end of a run, with pc -1 and the result, or with pc -2 if it raised.

    Returns `result`, or NULL with an exception.  An exception of the run takes precedence over one
    of the hook.
    """
    cdef PyObject* kind = NULL
    cdef PyObject* value = NULL
    cdef PyObject* traceback = NULL
    cdef bint failed = result is NULL
    if failed:
        PyErr_Fetch(&kind, &value, &traceback)
    if _call_run_hook(machine, index, NULL, 0, result) < 0:
        if failed:
            PyErr_WriteUnraisable(<PyObject*>machine)
        else:
            Py_DECREF(<object>result)
            result = NULL
    if failed:
        PyErr_Restore(kind, value, traceback)
    return result


# ---- failure ---------------------------------------------------------------------------------
# These are called in the loop, where Cython handles no exceptions.  They set one and return.  Without
# memory for the message none is set, so whoever ends a run calls `_ensure_raised`.


cdef void _ensure_raised() noexcept:
    """Set MemoryError after a failure that has set no exception: its message or the exception itself
    could not be made."""
    if PyErr_Occurred() is NULL:
        PyErr_NoMemory()


cdef void _fail(type kind, str message, str limit=None) noexcept:
    """Set an exception, or leave the one that was raised while making it, such as MemoryError."""
    cdef PyObject* exception = _new_exception(
        <PyObject*>kind, <PyObject*>message, <PyObject*>limit)
    if exception is not NULL:
        PyErr_SetObject(<PyObject*>kind, exception)
        Py_DECREF(<object>exception)


cdef PyObject* _make_exception(PyObject* kind, PyObject* message, PyObject* limit) except NULL:
    if limit is Py_None:
        exception = (<object>kind)(<object>message)
    else:
        exception = (<object>kind)(<object>message, <object>limit)
    Py_INCREF(exception)
    return <PyObject*>exception


cdef void _fail_limit(str name, str message) noexcept:
    _fail(LimitError, f"{message} (limit {name})", name)


cdef void _fail_fuel(Machine machine) noexcept:
    _fail_limit("fuel", f"the run took more than {machine._fuel} instructions")


cdef void _fail_deadline(const Run* run) noexcept:
    _fail_limit("wall_time", f"the run took longer than {run.wall_ns / 1e9:g} s")


cdef void _fail_depth(const rvm_func* func, int64_t max_depth) noexcept:
    _fail_limit("call_depth", f"{<str>func.name}: calls are nested deeper than {max_depth} frames")


cdef void _fail_frames(const rvm_func* func, int64_t words) noexcept:
    if words > MAX_FRAME_WORDS:
        _fail_limit("call_depth", f"{<str>func.name}: the frames alive at once need more than "
                                  f"{MAX_FRAME_WORDS * 8 >> 20} MiB")
    else:
        _fail(MemoryError, f"{<str>func.name}: no memory for {words * 8} bytes of frames")


cdef void _fail_cancelled() noexcept:
    _fail(CancelledError, "the run was cancelled")


cdef void _fail_bug(int64_t op) noexcept:
    _fail(BugError, f"operation {op} in the translated code")


cdef void _fail_condition(PyObject* value) noexcept:
    if PyErr_Occurred() is NULL:  # the value may have raised one itself
        _fail(TypeError,
              f"if: expected an int or bool condition, got {type(<object>value).__name__}; "
              "turn a tensor into a condition with vm.builtin.read_if_cond")


cdef void _unwind(Machine machine, Image image, Run* run, PyObject** fp,
                  const int64_t* ip) noexcept:
    """Clear all frames and tell the machine where the exception came from."""
    cdef PyObject* kind
    cdef PyObject* exception
    cdef PyObject* traceback
    cdef PyObject** frame = fp
    cdef const int64_t* failed
    cdef int64_t total = 0
    _ensure_raised()
    if run.batch is not NULL:  # of calls before the operation that failed: one of these may fail as well
        PyErr_Fetch(&kind, &exception, &traceback)
        failed = _run_calls(machine, image, run, fp)
        if failed is NULL or rvm_is_interrupt(kind):  # that is not lost, whatever the calls fail with
            PyErr_Restore(kind, exception, traceback)
        else:
            ip = failed
            Py_XDECREF(kind)
            Py_XDECREF(exception)
            Py_XDECREF(traceback)
    if run.host is not NULL:
        machine._host.name_the_limit()
        _stop_counting(run)  # what follows is for the message
    PyErr_Fetch(&kind, &exception, &traceback)
    PyErr_NormalizeException(&kind, &exception, &traceback)
    if traceback is not NULL:
        PyException_SetTraceback(exception, traceback)
    while frame is not NULL:
        total += 1
        frame = rvm_calling_frame(frame)
    try:
        frames = _describe_frames(image, fp, ip, total)
    except BaseException:
        frames = None  # no memory
    _clear_frames(run, fp)
    try:
        if run.asked & RVM_WARNED:
            _warn_at(machine, image, run, ip)
    except BaseException:
        pass  # a warning that is an error: report the exception of the run
    try:
        if frames is not None:
            machine._on_error(<object>exception, frames, total)
    except KeyboardInterrupt:
        # Raised again later: the exception of the run is the one to report.
        if not isinstance(<object>exception, KeyboardInterrupt):
            PyErr_SetInterrupt()
    except BaseException:
        pass  # such as RecursionError: report the exception of the run
    frames = None
    PyErr_Restore(kind, exception, traceback)


cdef void _clear_frames(Run* run, PyObject** fp) noexcept:
    """Clear the frame at `fp` and those around it; the first chunk stays."""
    cdef PyObject** caller
    while fp is not NULL:
        caller = rvm_calling_frame(fp)
        rvm_clear_registers(fp, (<rvm_func*>fp[RVM_FUNC]).num_registers)
        if fp - RVM_HEADER == run.chunk.memory and run.chunk.previous is not NULL:
            _pop_chunk(run)
        fp = caller


cdef list _describe_frames(Image image, PyObject** fp, const int64_t* ip, int64_t total):
    """(pc, arguments, shape heap) of each frame, innermost first; None in place of those in the
    middle."""
    cdef list frames = []
    cdef int64_t i, pc
    for i in range(total):
        if i < NOTE_FRAMES or i >= total - NOTE_FRAMES:
            pc = image.source_pc(ip)
            frames.append((pc, image.argument_values(pc, fp, <rvm_func*>fp[RVM_FUNC]),
                           image.heap_of(fp, <rvm_func*>fp[RVM_FUNC])))
        elif i == NOTE_FRAMES:
            frames.append(None)
        if i + 1 < total:
            ip = <const int64_t*>fp[RVM_RETURN_IP] - 1
            fp = rvm_calling_frame(fp)
    return frames


# ---- runs that are stepped -------------------------------------------------------------------


@cython.no_gc_clear  # see _stepper_clear
cdef class Stepper:
    """A run of stepped code: it goes on when it is asked to, and pauses before an instruction.

    Its frames are memory that it owns; nothing is kept on the C stack while it is paused.  The base of
    `relaxvm.vm.Run`.
    """

    cdef readonly Machine machine
    cdef readonly int64_t index     # of the function
    cdef Image image
    cdef rvm_chunk* chunk           # the first one; NULL before _open, and once it has ended
    cdef rvm_pause pause
    cdef bint running, begun, hooked
    cdef bint interrupted           # another thread has asked it to pause
    cdef bint cancelled             # it is to end where it goes on
    cdef int64_t steps_left         # that it could have gone on for then
    cdef int64_t depth              # number of frames
    cdef int64_t fuel, wall_ns, objects     # what is left of the limits, and bytes of objects
    cdef int64_t until_census       # bytes of objects that it may make until they are counted
    cdef dict tuples                # what the machine has converted for it
    cdef object __weakref__

    def _open(self, Machine machine not None, int64_t index, tuple args not None,
              bint stepped=True):
        """Make the frame of a function on arguments.

        Args:
            stepped: False for the code of calls: it is as fast as a call, and does not pause.

        Raises:
            InternalError: the machine is closed.
            ArityError: the number of arguments is wrong.
            TypeError: an argument cannot be converted.
        """
        cdef rvm_func* func
        cdef rvm_chunk* chunk
        cdef PyObject** fp
        cdef PyObject* value
        cdef Py_ssize_t i, count = len(args)
        if self.machine is not None:
            raise BugError("Stepper: it has been opened")
        if machine._image is None:
            raise InternalError("the virtual machine is closed")
        self.image = machine._stepped_image() if stepped else machine._image
        self.hooked = machine._hook is not None
        self.machine = machine
        self.index = index
        func = self.image._func(index)
        if count != func.num_params:
            machine._raise_arity(index, count, 0)
            raise BugError("an arity error was expected")
        chunk = _paused_chunk(machine, func)
        fp = chunk.memory + RVM_HEADER
        rvm_push_frame(fp, func, rvm_in_new_chunk(NULL), NULL, 0)
        rvm_null_registers(fp, 0, func.num_registers)
        self.pause.fp = fp
        self.pause.ip = func.code
        self.depth = 1
        self.fuel = machine._fuel
        self.wall_ns = machine._wall_ns
        self.until_census = INT64_MAX
        self.chunk = chunk  # from here on, deallocation clears the frame
        for i in range(count):
            value = <PyObject*>args[i]
            if _is_plain(machine, value):
                rvm_incref(value)
            else:
                value = _argument(<PyObject*>machine, index, i, value)
            fp[i] = value
        self._keep_tuples()

    def _restore(self, Machine machine not None, int64_t index, list frames not None, bint begun,
                 int64_t position, int64_t fuel_used, int64_t wall_used_ns, int64_t objects):
        """Make the frames of a run that was saved.

        Args:
            index: of the function that was started.
            frames: (index of the function, pc, registers of the source) of each, the outermost
                first.  A run can be resumed at each of these pcs: see `Machine._can_resume`.
            begun: whether an instruction has run.
            position: how many have.
            fuel_used, wall_used_ns: what it has used of these limits.
            objects: about the bytes of the objects that it holds.

        Raises:
            InternalError: the machine is closed.
            LimitError: the frames need too much memory.
            MemoryError: there is no memory for them.
        """
        cdef rvm_func* func
        cdef rvm_chunk* chunk = NULL
        cdef PyObject** fp = NULL
        cdef PyObject** caller
        cdef PyObject* value
        cdef const int64_t* ip = NULL
        cdef int64_t function, pc, i, return_dst = 0
        cdef const int64_t* return_ip = NULL
        cdef tuple registers
        if self.machine is not None:
            raise BugError("Stepper: it has been opened")
        self.image = machine._stepped_image()
        self.hooked = machine._hook is not None
        self.machine = machine
        self.index = index
        if not frames or len(frames) > machine._max_depth:
            raise BugError("Stepper: another number of frames")
        for at, (function, pc, registers) in enumerate(frames):
            func = self.image._func(function)
            ip = self.image._resume_at(function, pc)
            if ip is NULL or len(registers) != func.num_shared:
                raise BugError("Stepper: no frame can be like this")
            if fp is NULL:
                chunk = _paused_chunk(machine, func)
                chunk.run.calls_left = machine._max_depth
                caller = rvm_in_new_chunk(NULL)
                fp = chunk.memory + RVM_HEADER
            else:
                caller = fp
                fp += (<rvm_func*>fp[RVM_FUNC]).num_registers + RVM_HEADER
                if fp + func.frame_words > self.chunk.run.end:
                    fp = _push_chunk(machine, &self.chunk.run, caller, func)
                    if fp is NULL:
                        _ensure_raised()
                        _propagate(-1)
                    caller = rvm_in_new_chunk(caller)
            rvm_push_frame(fp, func, caller, return_ip, return_dst)
            rvm_null_registers(fp, 0, func.num_registers)
            self.pause.fp = fp
            self.pause.ip = ip
            self.depth += 1
            self.chunk = chunk  # from here on, deallocation clears the frames
            for i in range(func.num_shared):
                if registers[i] is not None:
                    value = PyTuple_GET_ITEM(<PyObject*>registers, i)
                    rvm_incref(value)
                    fp[i] = value
            if at + 1 < len(frames):
                i, return_dst = self.image.returns[pc]
                return_ip = self.image.code + i
        self.begun = begun
        if not begun:
            self.pause.ip = (<rvm_func*>fp[RVM_FUNC]).code
        self.pause.begun = position + 1 if begun else 0
        self.fuel = machine._fuel
        if machine._fuel != INT64_MAX:
            self.fuel = max(0, machine._fuel - fuel_used)
        self.wall_ns = machine._wall_ns
        if machine._wall_ns != INT64_MAX:
            self.wall_ns = max(0, machine._wall_ns - wall_used_ns)
        self.objects = objects
        self.until_census = INT64_MAX

    @property
    def _used(self):
        """What it has used of the limits of fuel and of time, in nanoseconds; 0 without a limit."""
        cdef int64_t fuel = 0, wall_ns = 0
        if self.fuel != INT64_MAX:
            fuel = self.machine._fuel - self.fuel
        if self.wall_ns != INT64_MAX:
            wall_ns = self.machine._wall_ns - self.wall_ns
        return fuel, wall_ns

    def _interrupt(self):
        """Let it pause before its next instruction, if it is in progress; returns whether it is."""
        if not self.running or self.pause.paused:
            return False
        if not self.interrupted:
            self.interrupted = True
            self.steps_left = self.pause.steps
        self.pause.steps = 0
        return True

    @property
    def _interrupted_steps(self):
        """How many more steps the `_advance` that was interrupted could have gone; None if the last one
        was not."""
        return self.steps_left if self.interrupted else None

    cdef int _keep_tuples(self) except -1:
        if self.machine._known_tuples:
            self.tuples = dict(self.machine._known_tuples)
            _forget_tuples(self.machine)
        return 0

    def __dealloc__(self):
        self._drop()

    cdef void _drop(self) noexcept:
        """Let go of the frames."""
        cdef rvm_chunk* chunk = self.chunk
        if chunk is NULL:
            return
        self.chunk = NULL
        _clear_frames(&chunk.run, self.pause.fp)
        chunk = chunk.run.chunk
        while chunk is not NULL:
            chunk = rvm_drop_chunk(chunk)

    cdef int _check_paused(self) except -1:
        if self.running:
            raise RelaxVMError("the run is in progress: only one that is paused can be used so")
        if self.chunk is NULL:
            raise RelaxVMError("the run has ended")
        return 0

    @property
    def _is_running(self):
        return self.running

    @property
    def _has_frames(self):
        """Whether it has not ended."""
        return self.chunk is not NULL

    @property
    def _has_begun(self):
        return self.begun

    def _translated(self, int64_t index):
        """The operations of a function in this run, as `VMFunction.translated`."""
        return self.machine._translated_function(index, self.image)

    @property
    def _depth(self):
        """The number of frames; 0 once it has ended."""
        return 0 if self.chunk is NULL else self.depth

    @property
    def _position(self):
        """How many instructions it has run; a call and the return of its result count as one where
        they are a tail call."""
        if self.chunk is not NULL and not self.running and self.begun:
            return self.pause.begun - 1
        return self.pause.begun

    @property
    def _fuel_left(self):
        """Instructions that it may still run, None without a limit."""
        return None if self.fuel == INT64_MAX else self.fuel

    def _advance(self, int64_t steps, const unsigned char[::1] stops, int64_t depth):
        """Go on.

        Args:
            steps: how many instructions it may run before it pauses.
            stops: a byte per pc of the executable: whether it pauses there; or None.
            depth: it pauses where there are at most so many frames; never if 0.

        Returns:
            Whether it has paused: (True, None), or (False, the result).
        """
        if stops is not None and stops.shape[0] < self.image.instr_offset.shape[0]:
            raise BugError("Stepper: expected a byte per pc")
        self._check_paused()
        if self.cancelled:
            self._drop()
            raise CancelledError("the run was cancelled")
        self.interrupted = False
        if not self.begun:
            self.begun = True
        elif steps < INT64_MAX:
            steps -= 1  # that of the instruction that it has paused at
        self.pause.steps = steps
        self.pause.stops = NULL
        if stops is not None:
            self.pause.stops = <const char*>&stops[0]
        return self._go(depth)

    cdef tuple _go(self, int64_t depth):
        cdef Machine machine = self.machine
        cdef PyThreadState* state = rvm_thread_state()
        cdef Run* run = &self.chunk.run
        cdef Run* outer
        cdef PyObject** fp = self.pause.fp
        cdef const int64_t* ip = self.pause.ip
        cdef PyObject* value = NULL
        cdef int64_t outer_depth, started = 0
        self.running = True
        if self.tuples is not None:
            machine._known_tuples.update(self.tuples)
            self.tuples = None
        if not rvm_has_frames(state):
            _yield_gil()
        if rvm_enter_recursion(state) < 0:
            self.running = False
            _propagate(-1)
        run.pause = &self.pause
        rvm_begin_run(_runs, run, state, <PyObject*>machine)
        if self.cancelled:  # while this thread waited for the lock of the interpreter
            run.asked |= RVM_CANCELLED
        outer = rvm_caller(_runs, run)
        outer_depth = 0 if outer is NULL else _depth(outer)
        run.calls_left = machine._max_depth - outer_depth - self.depth
        self.pause.calls_left = INT64_MAX
        if depth > 0:
            self.pause.calls_left = run.calls_left + self.depth - depth
        self.pause.paused = False
        if run.calls_left < 0:
            _fail_depth(<rvm_func*>fp[RVM_FUNC], machine._max_depth)
            _unwind(machine, self.image, run, fp, ip)
        elif (self.hooked and self.pause.begun == 0
                and not _hook_run_begin(machine, self.index, fp, machine_params(fp))):
            self.hooked = False
            _clear_frames(run, fp)
        elif not machine._limited:
            value = _run(machine, self.image, run, fp, ip)
        else:
            started = rvm_clock_ns()
            if (not _start_limits(machine, run, fp, self.fuel, self.wall_ns, self.objects,
                                  self.until_census)
                    or _check_deadline(run) < 0):
                _unwind(machine, self.image, run, fp, ip)
            else:
                value = _run(machine, self.image, run, fp, ip)
            self.fuel = max(0, self.fuel - (run.start_fuel - run.fuel))
            if self.wall_ns != INT64_MAX:
                self.wall_ns = max(0, self.wall_ns - (rvm_clock_ns() - started))
            self.objects = max(0, run.objects - run.outer_objects - WORD_BYTES * run.words)
            self.until_census = max(0, run.census_at - run.objects)
            _stop_limits(run)
        self.running = False
        if self.pause.paused:
            self.depth = machine._max_depth - outer_depth - run.calls_left
            rvm_end_run(run)
            rvm_leave_recursion(state)
            self._keep_tuples()
            return True, None
        self.chunk = NULL
        _leave(run, state)
        if self.hooked:
            value = _hook_run_end(machine, self.index, value)
        if value is NULL:
            _ensure_raised()
            _propagate(-1)
        result = <object>value
        Py_DECREF(result)
        return False, result

    def _frames(self, int64_t first, int64_t count):
        """Some of the frames, the innermost of all is number 0: (index of the function, pc of the
        instruction that it is at, registers of the source)."""
        cdef PyObject** fp
        cdef const int64_t* ip
        cdef rvm_func* func
        cdef int64_t i, at
        cdef list registers, found = []
        self._check_paused()
        fp, ip = self.pause.fp, self.pause.ip
        for at in range(min(self.depth, first + count)):
            func = <rvm_func*>fp[RVM_FUNC]
            if at >= first:
                registers = []
                for i in range(func.num_shared):
                    registers.append(None if fp[i] is NULL else <object>fp[i])
                found.append((func - self.image.funcs, self.image.source_pc(ip), tuple(registers)))
            if fp[RVM_RETURN_IP] is NULL:
                break  # the outermost frame
            ip = <const int64_t*>fp[RVM_RETURN_IP] - 1
            fp = rvm_calling_frame(fp)
        return found

    def _store(self, int64_t at, int64_t register, value):
        """Set a register of a frame, which is numbered as for `_frames`.

        Raises:
            IndexError: there is no such frame or register.
            TypeError: `value` is none of a program.
        """
        cdef PyObject** fp
        cdef int64_t i
        value = self.machine._to_value(value)
        self._check_paused()
        if not 0 <= at < self.depth:
            raise IndexError(f"there is no frame {at}: the run has {self.depth}")
        fp = self.pause.fp
        for i in range(at):
            fp = rvm_calling_frame(fp)
        if not 0 <= register < (<rvm_func*>fp[RVM_FUNC]).num_shared:
            raise IndexError(f"there is no register {register}: the frame has "
                             f"{(<rvm_func*>fp[RVM_FUNC]).num_shared}")
        Py_INCREF(value)
        rvm_store(fp + register, <PyObject*>value)

    def _cancel(self):
        """End it where it goes on: at the next poll if it is in progress, or when it is to go on."""
        self.cancelled = True
        if self.running:
            self.chunk.run.asked |= RVM_CANCELLED

    def _stop(self):
        """End it, if it is paused."""
        if not self.running:
            self._drop()


cdef inline int64_t machine_params(PyObject** fp) noexcept:
    return (<rvm_func*>fp[RVM_FUNC]).num_params


cdef int _propagate(int answer) except -1:
    """-1 raises the exception that is set."""
    return answer


# The collector sees what the frames of a paused run hold.

cdef traverseproc _traverse_fields


cdef int _stepper_traverse(PyObject* self, visitproc visit, void* context) noexcept:
    cdef PyObject** fp = NULL
    cdef int64_t i
    cdef int answer
    if (<Stepper>self).chunk is not NULL and not (<Stepper>self).running:
        fp = (<Stepper>self).pause.fp
    while fp is not NULL:
        for i in range((<rvm_func*>fp[RVM_FUNC]).num_registers):
            if fp[i] is not NULL:
                answer = visit(fp[i], context)
                if answer:
                    return answer
        fp = rvm_calling_frame(fp)
    return _traverse_fields(self, visit, context)


cdef int _stepper_clear(PyObject* self) noexcept:
    if not (<Stepper>self).running:
        (<Stepper>self)._drop()
    return 0


# ---- the machine -----------------------------------------------------------------------------


cdef class Machine:
    """Runs an executable.  `relaxvm.VirtualMachine` adds the user's interface."""

    cdef object _executable
    cdef list _callables
    cdef list _quick
    cdef PyObject** _builtins   # the references of builtins among the callables, not owned
    cdef Py_ssize_t _num_builtins
    cdef bint _owns_tuples      # the program changes tuples, so it gets copies of those from outside
    cdef object _to_value       # a Converter
    cdef dict _known_tuples     # what it has converted during the runs in progress
    cdef tuple _allocators
    cdef frozenset _rewritings  # names of those that are on
    cdef Allocator _host        # of host memory
    cdef object _array_handler  # makes numpy take the memory of arrays from there; None without limits
    cdef bint _limited
    cdef int64_t _max_depth
    cdef int64_t _fuel
    cdef int64_t _wall_ns
    cdef Image _image           # the code that new runs take
    cdef Image _unhooked_image     # the one without hook
    cdef Image _stepped, _stepped_hooked    # stepped code without and with hook, once it was needed
    cdef object _hook
    cdef object _batches        # calls that are deferred, a `relaxvm.vm.dataflow.Batches`, or None
    cdef int _threads           # of those
    cdef list _schedule         # where it is noted when they ran, or None
    cdef object __weakref__

    def _setup(self, executable, callables, quick, allocators, limits, optimize=True, batches=None,
               threads=1):
        """Translate an executable.  It must have been verified.

        Args:
            executable: a `VMExecutable`.
            callables: per function-table entry the resolved callable, None for bytecode functions.
            quick: per entry the name of the builtin if the callable is its reference, the ufunc if it
                is a kernel that computes just that, the kernel if it has implementations in C, else
                None.
            allocators: one per device, the last is the host's.
            limits: `relaxvm.Limits`.
            optimize: True or False for all rewritings or none, or the names of those that are on;
                see `relaxvm.core.operations.REWRITINGS`.
            batches: which calls are deferred, a `relaxvm.vm.dataflow.Batches`; None for none.  With
                limits, and while an instrument is set, calls run in order.
            threads: on how many threads they run, at most.

        Raises:
            TypeError, ValueError: `optimize` is none of these.
        """
        self._executable = executable
        self._batches = batches
        self._threads = threads
        self._callables = list(callables)
        self._quick = list(quick)
        self._find_builtins()
        self._owns_tuples = "vm.builtin.tuple_reset_item" in self._quick
        self._to_value = Converter(self._owns_tuples, pause_conversion)
        self._known_tuples = self._to_value.known
        self._allocators = tuple(allocators)
        self._rewritings = enabled_rewritings(optimize)
        self._max_depth = limits.call_depth
        self._fuel = _bound(limits.fuel)
        self._wall_ns = INT64_MAX if limits.wall_time is None else _bound(int(limits.wall_time * 1e9))
        self._limited = (limits.fuel is not None or limits.wall_time is not None
                         or limits.live_bytes is not None or limits.alloc_bytes is not None)
        self._hook = None
        self._image = self._unhooked_image = self._translated(False)
        self._host = self._allocators[len(self._allocators) - 1]
        self._array_handler = None
        if limits.live_bytes is not None or limits.alloc_bytes is not None:
            self._array_handler = self._host.array_handler()

    def __dealloc__(self):
        PyMem_RawFree(self._builtins)

    cdef int _find_builtins(self) except -1:
        cdef Py_ssize_t i, count = len(self._quick)
        PyMem_RawFree(self._builtins)
        self._num_builtins = 0
        self._builtins = <PyObject**>PyMem_RawCalloc(max(count, 1), sizeof(PyObject*))
        if self._builtins is NULL:
            raise MemoryError
        for i in range(count):
            if isinstance(self._quick[i], str):  # kernels return nothing
                function = self._callables[i]
                self._builtins[self._num_builtins] = <PyObject*>function
                self._num_builtins += 1
        return 0

    def _note_calls(self, calls):
        """Have calls that were put off added to a list, or None: (pc, number of the thread, begin and end
        in nanoseconds of `time.monotonic_ns`)."""
        self._schedule = calls

    cdef Image _translated(self, bint hooked, bint stepped=False):
        return translate(
            self, self._executable, self._callables, self._quick, self._allocators,
            rewritings=self._rewritings, hooked=hooked, fueled=self._limited,
            keep_arrays=not self._limited, stepped=stepped,
            batches=None if hooked or stepped or self._limited else self._batches)

    cdef Image _stepped_image(self):
        """The code of runs that are stepped and begin now."""
        if self._unhooked_image is None:
            raise InternalError("the virtual machine is closed")
        if self._hook is not None:
            if self._stepped_hooked is None:
                self._stepped_hooked = self._translated(True, True)
            return self._stepped_hooked
        if self._stepped is None:
            self._stepped = self._translated(False, True)
        return self._stepped

    def _translated_for_entries(self):
        """The code with `enter` operations, to which native code may be attached."""
        if self._unhooked_image is None:
            raise InternalError("the virtual machine is closed")
        return translate(
            self, self._executable, self._callables, self._quick, self._allocators,
            rewritings=self._rewritings, hooked=False, fueled=self._limited,
            keep_arrays=not self._limited, enters=True)

    def _use(self, Image image not None):
        """Let new runs take this code."""
        if self._unhooked_image is None:
            raise InternalError("the virtual machine is closed")
        if self._image is self._unhooked_image:
            self._image = image
        self._unhooked_image = image

    def _can_resume(self, int64_t index, int64_t pc, bint in_call):
        """Whether a frame of a function can be made that is at the instruction at `pc`: before it, or
        in the call that it is if `in_call`.  And how many registers it has, and its first pc.

        Raises:
            IndexError: there is no such bytecode function.
            InternalError: the machine is closed.
        """
        cdef Image image = self._stepped_image()
        cdef rvm_func* func = image._func(index)
        cdef bint can = image._resume_at(index, pc) is not NULL
        start = image.executable.functions[index].start_instr
        return can and (not in_call or pc in image.returns), func.num_shared, start

    def _close(self):
        """Release code, constants and functions.  Runs in progress finish."""
        self._num_builtins = 0
        self._image = self._unhooked_image = None
        self._stepped = self._stepped_hooked = None
        self._hook = None
        self._callables = []

    def _function(self, int64_t index):
        """The bytecode function at an index of the function table."""
        cdef PyObject* function
        if not 0 <= index < len(self._executable.functions):
            raise IndexError(f"there is no function {index}")
        function = _new_function(<PyObject*>self, index)
        try:
            return <object>function
        finally:
            Py_DECREF(<object>function)

    def _translated_function(self, int64_t index, Image image=None):
        from .core.translated import TranslatedFunction  # here, since runs do without

        if image is None:
            image = self._image
        if image is None:
            raise InternalError("the virtual machine is closed")
        return TranslatedFunction(image, index, self._callables, (*self._allocators, *self._quick))

    def _set_hook(self, hook):
        """Call ``hook(pc, before, func, name, ret, args)`` around every call instruction.

        Runs that are entered from now on see it; None takes it off.  A true answer before a call
        skips the call and the hook after it.

        It is also called at the beginning and the end of a run, with pc -1, the function and its
        name; `args` are the arguments of the run, and empty at the end.  At the end of a run that
        raises an exception the pc is -2.
        """
        if hook is None:  # no error on a closed machine: a profile may end after its machine
            self._hook = None
            self._image = self._unhooked_image
        elif self._unhooked_image is None:
            raise InternalError("the virtual machine is closed")
        else:
            if self._image is self._unhooked_image:
                self._image = self._translated(True)
            self._hook = hook

    def cancel(self):
        """Stop the runs in progress, in whatever thread: they raise `CancelledError`."""
        cdef Run* run = _runs.older
        while run is not _runs:
            if run.machine is <PyObject*>self:
                run.asked |= RVM_CANCELLED
            run = run.older

    def _limit_of(self, error):
        """The LimitError that an exception stands for: a MemoryError, if an array was refused in this
        run.  None for others."""
        return self._host._refusal() if isinstance(error, MemoryError) else None

    def _drop_idle_arrays(self):
        """Release the arrays that allocation sites keep for their next run."""
        if self._unhooked_image is not None:
            self._unhooked_image.drop_idle()
        if self._stepped is not None:
            self._stepped.drop_idle()

    def _on_hot(self, index):
        """Called when a function has run often, see `Image.count_entries`."""

    def _raise_arity(self, index, given, captured):
        raise BugError("Machine._raise_arity must be overridden")

    def _with_tensors(self, index, position, value):
        return value

    def _call_with_keywords(self, function, args, kwargs):
        raise TypeError(f"{function.name}: takes no keyword arguments")

    def _doc_of(self, function):
        return None

    def _signature_of(self, function):
        raise AttributeError("signature")

    def _bind(self, function, args, kwargs):
        raise AttributeError("bind")

    def _start(self, function, args, kwargs):
        raise AttributeError("start")

    def _async_call(self, function, args, kwargs):
        raise AttributeError("async_call")

    def _on_error(self, exception, frames, total):
        """Called with an exception that ends a run, before it reaches the caller."""

    def _on_warning(self, message, pc):
        """Called with what a kernel warns of, after the call at `pc`."""
        warn(message)


cdef int64_t _bound(object limit) except -1:
    return INT64_MAX if limit is None or limit > INT64_MAX else limit


cdef PyObject* _refuse_function(PyTypeObject* cls, PyObject* args, PyObject* kwargs) except NULL:
    raise TypeError("VMFunction: taken from a virtual machine, as vm['name']")


cdef VMFunction _some_function = VMFunction.__new__(VMFunction)
cdef Closure _some_closure = Closure.__new__(Closure)
use_vectorcall(VMFunction, <char*>&_some_function._vectorcall - <char*><PyObject*>_some_function)
use_vectorcall(Closure, <char*>&_some_closure._vectorcall - <char*><PyObject*>_some_closure)
set_new(VMFunction, <newfunc>_refuse_function)
_closure_dealloc_fields = (<_typeobject*><PyObject*>Closure).tp_dealloc
(<_typeobject*><PyObject*>Closure).tp_dealloc = _closure_dealloc
_traverse_fields = (<_typeobject*><PyObject*>Stepper).tp_traverse
(<_typeobject*><PyObject*>Stepper).tp_traverse = _stepper_traverse
(<_typeobject*><PyObject*>Stepper).tp_clear = _stepper_clear

globals()["Storage"] = Storage  # cimport does not put a name into the module

rvm_services.none = Py_None
rvm_services.true_ = Py_True
rvm_services.false_ = Py_False
rvm_services.poll = _compiled_poll
rvm_services.check_deadline = _compiled_deadline
rvm_services.closure_of = _compiled_closure
rvm_services.check_func = _compiled_check_func
rvm_services.alloc_storage = _compiled_storage
rvm_services.alloc_storage_dyn = _compiled_storage_dyn
rvm_services.alloc_tensor = _compiled_tensor
rvm_services.alloc_tensor_of = _compiled_tensor_of
rvm_services.alloc_static = _static_array
rvm_services.load_function = _compiled_function
rvm_services.call = _compiled_call
rvm_services.call_void = _compiled_call_void
rvm_services.call_native = _compiled_call_native
rvm_services.call_local = _compiled_call_local
rvm_services.call_scalars = _compiled_call_scalars
rvm_services.ufunc_1 = _compiled_ufunc_1
rvm_services.ufunc_2 = _compiled_ufunc_2
rvm_services.target = _compiled_target
rvm_services.captured = _compiled_captured
rvm_services.func_address = _compiled_func

if sizeof(RvmLocalTensor) != sizeof(RvmTensor):
    raise BugError("native code has another form of tensors")
if RVM_UFUNC_WORDS != UFUNC_1_X - UFUNC_1_UFUNC:
    raise BugError("the table of operations has another number of words for a ufunc")
