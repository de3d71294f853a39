# cython: auto_pickle=False
"""The core: register files, frames and the dispatch loop.

An executable's words are translated once, when a `Machine` is set up, into flat int64 code
(`_translate.pyx`, `_code.pxd`).  Nothing is checked while that runs that `relaxvm.verify` checked
before.

Three rules keep this small:

* A register that holds NULL reads as None.  Frames start as NULL, and killing a register is storing
  NULL, so no analysis has to prove that a register was written.
* A quickened operation never raises.  What its guard does not cover it leaves to the plain call of the
  builtin's Python reference, which stands in the *cold* part of the function's code; `slow` operands
  are the distance to it.
* VM functions and closures that call each other do not recurse in C: frames are data in chunks that
  the loop pushes and pops.
"""

cimport cython
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport INT64_MAX, int64_t, uint64_t

import numpy as np

from ._memory import NaiveAllocator, PooledAllocator
from ._translate import QUICKENED, translate
from .errors import BugError, CancelledError, InternalError, LimitError
from .floating import report_status
from .values import Shape, readable, to_own_value, to_value

cimport numpy as cnp

from ._code cimport *
from ._memory cimport Storage, newfunc, set_new, take_storage
from ._native cimport call_native
from ._vectorcall cimport use_vectorcall

cnp.import_array()

__all__ = ["Closure", "Machine", "NaiveAllocator", "PooledAllocator", "Storage", "VMFunction"]

cdef extern from "_core_impl.h" nogil:
    ctypedef struct rvm_chunk:
        rvm_chunk* previous
        PyObject** end
        int64_t words
        PyObject** memory

    enum:
        RVM_RETURN_IP
        RVM_CALLER
        RVM_FUNC
        RVM_RETURN_DST
        RVM_HEADER

    PyTypeObject* rvm_shape_type
    cnp.PyArray_Descr* rvm_int64
    cnp.PyArray_Descr* rvm_bool

    void rvm_incref(PyObject*) noexcept
    int64_t rvm_clock_ns() noexcept
    bint rvm_unlikely(bint) noexcept
    PyObject* rvm_load(PyObject**, PyObject**, int64_t) noexcept
    void rvm_store(PyObject**, PyObject*) noexcept
    void rvm_replace(PyObject**, PyObject*) noexcept
    void rvm_gather(PyObject**, PyObject**, PyObject**, const int64_t*, int64_t) noexcept
    PyObject* rvm_gather_tuple(PyObject**, PyObject**, const int64_t*, int64_t) noexcept
    void rvm_push_args(PyObject**, PyObject**, PyObject**, const int64_t*, int64_t) noexcept
    void rvm_clear_registers(PyObject**, int64_t) noexcept
    int rvm_truth(PyObject*) noexcept
    int rvm_read_cond(PyObject*) noexcept
    bint rvm_shape_dims(PyObject*, int64_t, cnp.npy_intp*, int64_t*) noexcept
    bint rvm_match_shape(PyObject*, PyObject*, int64_t, int64_t, const int64_t*) noexcept
    PyObject* rvm_make_shape(rvm_site*, PyObject*, int64_t, int64_t, const int64_t*) noexcept
    PyObject* rvm_shape_of(rvm_site*, PyObject*) noexcept
    bint rvm_check_tensor(PyObject*, int64_t, cnp.PyArray_Descr*) noexcept
    bint rvm_check_shape(PyObject*, int64_t) noexcept
    bint rvm_check_prim(PyObject*, int64_t) noexcept
    bint rvm_check_tuple(PyObject*, int64_t) noexcept
    bint rvm_match_prim(PyObject*, PyObject*, int64_t, int64_t) noexcept
    bint rvm_compute_shape(PyObject*, int64_t, const int64_t*) noexcept
    PyObject* rvm_make_prim(PyObject*, int64_t, int64_t) noexcept
    bint rvm_is_idle(PyObject*, int, const cnp.npy_intp*, cnp.PyArray_Descr*, const void*) noexcept
    void* rvm_array_data(PyObject*) noexcept
    bint rvm_bytes(int64_t, int64_t, const cnp.npy_intp*, int64_t*) noexcept
    PyObject* rvm_reshape(PyObject*, PyObject*) noexcept
    PyObject* rvm_vectorcall(PyObject*, PyObject**, int64_t) noexcept
    PyObject* rvm_site_heap(rvm_site*, cnp.npy_intp) noexcept
    rvm_chunk* rvm_new_chunk(rvm_chunk*, int64_t) noexcept
    rvm_chunk* rvm_drop_chunk(rvm_chunk*) noexcept
    PyObject** rvm_push_frame(PyObject**, const rvm_func*, PyObject**, const int64_t*,
                              int64_t) noexcept
    void rvm_reset_tuple_item(PyObject*, Py_ssize_t) noexcept
    void rvm_null_registers(PyObject**, int64_t, int64_t) noexcept

cdef extern from "_header_impl.h" nogil:
    PyTypeObject* rvm_storage_type

    PyObject* rvm_new_array(PyObject*, char*, int, const cnp.npy_intp*, cnp.PyArray_Descr*,
                            bint) noexcept

cdef extern from "_ufunc_impl.h" nogil:
    enum:
        RVM_ASK_KERNEL
        RVM_RAISED

    int rvm_ufunc_1(int64_t*, PyObject*, PyObject*) noexcept
    int rvm_ufunc_2(int64_t*, PyObject*, PyObject*, PyObject*) noexcept

cdef extern from "Python.h":
    ctypedef PyObject* (*vectorcallfunc)(PyObject*, PyObject* const*, size_t, PyObject*) noexcept
    Py_ssize_t PyVectorcall_NARGS(size_t) noexcept
    PyObject* PyObject_Vectorcall(PyObject*, PyObject* const*, size_t, PyObject*) noexcept
    PyObject* PyObject_CallOneArg(PyObject*, PyObject*) noexcept
    PyObject* PyTuple_GET_ITEM(PyObject*, Py_ssize_t) noexcept
    Py_ssize_t PyTuple_GET_SIZE(PyObject*) noexcept
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
    ctypedef struct _typeobject "PyTypeObject":
        destructor tp_dealloc

cdef extern from "numpy/arrayobject.h":
    cnp.npy_intp PyDataType_ELSIZE(const cnp.PyArray_Descr*) noexcept
    bint PyArray_Check(PyObject*) noexcept
    bint PyArray_CheckExact(PyObject*) noexcept

rvm_shape_type = <PyTypeObject*>Shape
rvm_storage_type = <PyTypeObject*>Storage
cdef object _int64_dtype = np.dtype(np.int64)
cdef object _bool_dtype = np.dtype(np.bool_)
rvm_int64 = <cnp.PyArray_Descr*><PyObject*>_int64_dtype
rvm_bool = <cnp.PyArray_Descr*><PyObject*>_bool_dtype

# Without an exception for Cython to look after: the loop breaks off where it gets NULL.
ctypedef PyObject* (*native_call)(PyObject*, PyObject* const*, PyObject* const*, const int64_t*,
                                  Py_ssize_t, uint64_t*) noexcept
cdef native_call _call_native = <native_call>call_native

cdef enum:
    POLL_TICKS = 256    # signals and cancellation are looked at after as many back edges
    CALL_TICKS = 64     # what a call of C code counts for
    NATIVE_TICKS = 4    # one of a native function, and one more for each KiB of its tensors
    PYTHON_TICKS = 8    # and one of a Python function, which looks at signals itself
    YIELD_POLLS = 16    # polls between chances for other threads
    DEADLINE_BLOCKS = 64
    ALIGNMENT = 64      # of storages, in bytes
    MAX_FRAME_WORDS = 1 << 26  # frames alive at once: 512 MiB

cdef enum:
    RUN = -1            # pc that a hook gets when a run begins and ends
    RUN_FAILED = -2     # the same when it ends with an exception

cdef enum:
    NOTE_FRAMES = 8     # frames described at either end of a long stack


ctypedef struct Run:
    # One invocation from Python.
    rvm_chunk* chunk
    int64_t words           # of all chunks
    int64_t depth
    int64_t cancel_count
    int64_t polls
    int64_t fuel
    int64_t start_fuel
    int64_t deadline
    int64_t blocks
    Run* outer              # the limited run of this thread that called us, if any

cdef extern from *:
    """
    static RVM_THREAD_LOCAL void *rvm_limited_run;
    """
    void* rvm_limited_run


# ---- functions and closures ------------------------------------------------------------------


@cython.final
@cython.no_gc_clear  # every cycle leads through the machine, which lets go
cdef class VMFunction:
    """A bytecode function of a virtual machine; calling it runs it.

    Attributes:
        name: its name in the function table.
        num_args: number of parameters.
        param_names: their names, in order.
        machine: the virtual machine.
    """

    cdef vectorcallfunc _vectorcall
    cdef readonly Machine machine
    cdef readonly int64_t index
    cdef readonly str name
    cdef readonly int64_t num_args
    cdef readonly tuple param_names
    cdef object __weakref__

    @property
    def __name__(self):
        return self.name

    @property
    def __signature__(self):
        return self.machine._signature_of(self)

    @property
    def signature(self):
        """An `inspect.Signature` of the parameters."""
        return self.machine._signature_of(self)

    def bind(self, *args, **kwargs):
        """A partial: the function with some arguments given."""
        return self.machine._bind(self, args, kwargs)

    def __eq__(self, other):
        if not isinstance(other, VMFunction):
            return NotImplemented
        cdef VMFunction function = other
        return self.machine is function.machine and self.index == function.index

    def __hash__(self):
        return hash((id(self.machine), self.index))

    def __repr__(self):
        params = self.param_names or [f"arg{i}" for i in range(self.num_args)]
        return f"<VMFunction {readable(self.name)}({', '.join(map(readable, params))})>"


@cython.final
@cython.freelist(64)
cdef class Closure:
    """A function with captured values, which it gets after the arguments of the call.

    Args:
        func: a VM function, another closure or any callable.
        captured: the captured values.
    """

    cdef vectorcallfunc _vectorcall
    cdef object _func
    cdef object _first      # of one captured value, else None
    cdef tuple _captured    # all of them, or None where _first stands for it
    cdef Py_ssize_t _count
    cdef rvm_func* _code    # of the function, in the image of this serial number
    cdef int64_t _serial

    def __init__(self, func, captured=()):
        if not callable(func):
            raise TypeError(f"Closure: expected a function, got {type(func).__name__}")
        values = to_own_value(tuple(captured))
        if self._vectorcall is not NULL:
            raise TypeError("Closure: it has been made, and does not change")
        self._vectorcall = <vectorcallfunc>_closure_vectorcall
        self._func = func
        self._captured = values
        self._count = len(values)

    @property
    def func(self):
        """The function that is called."""
        return self._func

    @property
    def captured(self):
        """The captured values."""
        if self._captured is None:
            return (self._first,) if self._count else ()
        return self._captured

    def __repr__(self):
        name = getattr(self._func, "__name__", type(self._func).__name__)
        return f"<Closure of {name} over {self._count} captured values>"


cdef destructor _closure_dealloc_fields

cdef void _closure_dealloc(PyObject* self) noexcept:
    # Closures may be nested as deep as a program likes: they must not go one inside another.
    cdef PyObject* kind
    cdef PyObject* value
    cdef PyObject* traceback
    if (Py_TYPE(<PyObject*>(<Closure>self)._func) is <PyTypeObject*>Closure
            or Py_TYPE(<PyObject*>(<Closure>self)._first) is <PyTypeObject*>Closure):
        PyObject_GC_UnTrack(self)
        PyErr_Fetch(&kind, &value, &traceback)  # one may be on its way
        _drop_nested(self)
        PyErr_Restore(kind, value, traceback)
    _closure_dealloc_fields(self)


cdef void _drop_nested(PyObject* outermost) noexcept:
    """Take apart the closures that nobody but `outermost` holds, one after the other."""
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
    if type((<Closure>closure)._first) is Closure:
        to.append((<Closure>closure)._first)
        (<Closure>closure)._first = None
    return 0


cdef inline PyObject* _captured_at(PyObject* closure, Py_ssize_t i) noexcept:
    if (<Closure>closure)._captured is None:
        return <PyObject*>(<Closure>closure)._first
    return PyTuple_GET_ITEM(<PyObject*>(<Closure>closure)._captured, i)


cdef PyObject* _new_closure(Image image, PyObject* func, PyObject** fp, const int64_t* words,
                            int64_t count) noexcept:
    """A closure of a VM function over operands."""
    cdef PyObject** pool_end = image.pool_end
    cdef Closure closure = Closure.__new__(Closure)
    cdef PyObject* captured
    closure._vectorcall = <vectorcallfunc>_closure_vectorcall
    closure._func = <object>func
    closure._count = count
    if <PyObject*>(<VMFunction>func).machine is (pool_end - 1)[0]:
        closure._code = image.funcs + (<VMFunction>func).index
        closure._serial = image.serial
    if count == 1:
        closure._first = <object>rvm_load(fp, pool_end, words[0])
    else:
        captured = rvm_gather_tuple(fp, pool_end, words, count)
        if captured is NULL:
            return NULL
        closure._captured = <tuple><object>captured
        Py_DECREF(<object>captured)
    Py_INCREF(closure)
    return <PyObject*>closure


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
    """Whether a value from outside can go into a register as it is, without a closer look."""
    return PyArray_CheckExact(value) or value is Py_None or _is_plain_scalar(value) or (
        _is_plain_object(machine, value))


cdef inline bint _is_plain_scalar(PyObject* value) noexcept:
    return (PyLong_CheckExact(value) or PyFloat_CheckExact(value) or value is Py_True
            or value is Py_False or PyUnicode_CheckExact(value))


cdef bint _is_plain_object(Machine machine, PyObject* value) noexcept:
    cdef PyTypeObject* cls = Py_TYPE(value)
    if (cls is rvm_shape_type or cls is <PyTypeObject*>Closure or cls is <PyTypeObject*>VMFunction
            or cls is <PyTypeObject*>Storage):
        return True
    return not machine._owns_tuples and PyTuple_CheckExact(value) and _is_plain_tuple(value, 16)


cdef bint _is_plain_tuple(PyObject* value, int levels) noexcept:
    """Whether a tuple holds what is plain, at so many levels at most."""
    cdef PyObject* item
    cdef Py_ssize_t i
    for i in range(PyTuple_GET_SIZE(value)):
        item = PyTuple_GET_ITEM(value, i)
        if not (PyArray_CheckExact(item) or item is Py_None or _is_plain_scalar(item)
                or Py_TYPE(item) is rvm_shape_type
                or (levels > 1 and PyTuple_CheckExact(item) and _is_plain_tuple(item, levels - 1))):
            return False
    return True


cdef PyObject* _as_value(Machine machine, PyObject* callee, PyObject* value) noexcept:
    """What a packed function returned, as a run-time value.  Takes the reference and gives one, or
    NULL with an exception."""
    cdef PyObject* converted
    if <size_t>callee in machine._builtins:
        return value  # they know what a value is
    converted = PyObject_CallOneArg(<PyObject*>machine._to_value, value)
    Py_DECREF(<object>value)
    return converted


cdef PyObject* _function_vectorcall(PyObject* self, PyObject* const* args, size_t nargsf,
                                    PyObject* kwnames) except NULL:
    cdef VMFunction function = <VMFunction>self
    cdef Py_ssize_t count = PyVectorcall_NARGS(nargsf)
    if kwnames is NULL or PyTuple_GET_SIZE(kwnames) == 0:
        return _enter(function.machine, function.index, args, count, NULL)
    positional = tuple([<object>args[i] for i in range(count)])
    names = <tuple><object>kwnames
    keywords = {name: <object>args[count + i] for i, name in enumerate(names)}
    result = function.machine._call_with_keywords(function, positional, keywords)
    Py_INCREF(result)
    return <PyObject*>result


cdef PyObject* _closure_vectorcall(PyObject* self, PyObject* const* args, size_t nargsf,
                                   PyObject* kwnames) except NULL:
    cdef Closure closure = <Closure>self
    cdef Py_ssize_t count = PyVectorcall_NARGS(nargsf)
    cdef VMFunction function
    if kwnames is not NULL and PyTuple_GET_SIZE(kwnames):
        raise TypeError("a closure takes no keyword arguments")
    if Py_TYPE(<PyObject*>closure._func) is <PyTypeObject*>VMFunction:
        function = <VMFunction>closure._func
        return _enter(function.machine, function.index, args, count, self)
    items = [<object>args[i] for i in range(count)]
    items.extend(closure.captured)
    if Py_EnterRecursiveCall(b" in a relaxvm closure"):
        return NULL
    try:
        result = closure._func(*items)
    finally:
        Py_LeaveRecursiveCall()
    Py_INCREF(result)
    return <PyObject*>result


cdef object _argument(Machine machine, int64_t index, Py_ssize_t position, object value):
    """An argument that is not plain, as a value."""
    if isinstance(value, (np.generic, tuple, list)):
        value = machine._with_tensors(index, position, value)
    return machine._to_value(value)


cdef PyObject* _enter(Machine machine, int64_t index, PyObject* const* args, Py_ssize_t count,
                      PyObject* closure) except NULL:
    """Run a function on arguments from Python, and the captured values of a closure if given."""
    cdef Image image = machine._image
    cdef rvm_func* func
    cdef PyObject** fp
    cdef PyObject* value
    cdef Py_ssize_t i, captured = 0
    cdef bint hooked = False
    cdef Run run
    if closure is not NULL:
        captured = (<Closure>closure)._count
    if image is None:
        raise InternalError("the virtual machine is closed")
    func = &image.funcs[index]
    if count + captured != func.num_params:
        machine._raise_arity(index, count, captured)
        raise BugError("an arity error was expected")
    if Py_EnterRecursiveCall(b" in a relaxvm virtual machine"):
        return NULL
    run.chunk = NULL
    if func.frame_words <= MAX_FRAME_WORDS:
        run.chunk = rvm_new_chunk(NULL, func.frame_words + RVM_HEADER)
    if run.chunk is NULL:
        _fail_frames(func, func.frame_words)
        Py_LeaveRecursiveCall()
        return NULL
    run.words = run.chunk.words
    run.depth = 1
    run.cancel_count = machine._cancel_count
    run.polls = 0
    fp = rvm_push_frame(run.chunk.memory, func, NULL, NULL, 0)
    for i in range(count):
        value = args[i]
        if _is_plain(machine, value):
            rvm_incref(value)
        else:
            try:
                converted = _argument(machine, index, i, <object>value)
            except:  # noqa: E722
                rvm_clear_registers(fp, i)
                _leave(&run)
                raise
            value = <PyObject*>converted
            rvm_incref(value)
        fp[i] = value
    for i in range(captured):
        value = _captured_at(closure, i)
        rvm_incref(value)
        fp[count + i] = value
    rvm_null_registers(fp, count + captured, func.num_registers)
    if image is not machine._plain_image and machine._hook is not None:
        if not _hook_run_begin(machine, index, fp, func.num_params):
            rvm_clear_registers(fp, func.num_registers)
            _leave(&run)
            return NULL
        hooked = True
    if machine._limited:
        _start_limits(machine, &run)
        if run.depth > machine._max_depth:
            _fail_depth(func, machine._max_depth)
            rvm_clear_registers(fp, func.num_registers)
            value = NULL
        else:
            value = _run(machine, image, &run, fp)
        _stop_limits(&run)
    else:
        value = _run(machine, image, &run, fp)
    _leave(&run)
    if hooked:
        value = _hook_run_end(machine, index, value)
    return value


cdef inline void _leave(Run* run) noexcept:
    while run.chunk is not NULL:
        run.chunk = rvm_drop_chunk(run.chunk)
    Py_LeaveRecursiveCall()


cdef void _start_limits(Machine machine, Run* run) noexcept:
    """Set fuel and deadline; a run inside another one of this thread shares what is left there."""
    global rvm_limited_run
    cdef int64_t now
    run.outer = <Run*>rvm_limited_run
    run.fuel = machine._fuel
    run.deadline = INT64_MAX
    run.blocks = 0
    if machine._wall_ns != INT64_MAX:
        now = rvm_clock_ns()
        run.deadline = now + machine._wall_ns if machine._wall_ns < INT64_MAX - now else INT64_MAX
    if run.outer is not NULL:
        run.fuel = min(run.fuel, run.outer.fuel)
        run.deadline = min(run.deadline, run.outer.deadline)
        run.depth = run.outer.depth + 1
    run.start_fuel = run.fuel
    rvm_limited_run = run


cdef void _stop_limits(Run* run) noexcept:
    global rvm_limited_run
    if run.outer is not NULL:
        run.outer.fuel -= run.start_fuel - run.fuel
    rvm_limited_run = run.outer


# ---- the loop --------------------------------------------------------------------------------


cdef PyObject* _run(Machine machine, Image image, Run* run, PyObject** fp) noexcept:
    """Run the frame at `fp` to its return; a new reference, or NULL with an exception."""
    cdef PyObject** pool_end = image.pool_end
    cdef const int64_t* ip = (<rvm_func*>fp[RVM_FUNC]).code
    cdef int64_t op, i, count, word
    cdef uint64_t nbytes
    cdef int truth
    cdef int64_t ticks = POLL_TICKS
    cdef int64_t max_depth = machine._max_depth
    cdef PyObject* value
    cdef PyObject* other
    cdef PyObject** cell
    cdef PyObject** callee_fp
    cdef rvm_func* func

    while True:
        op = ip[0]

        if op == OP_CALL:
            cell = fp + ip[4]
            count = ip[3]
            rvm_gather(cell, fp, pool_end, ip + 5, count)
            other = pool_end[ip[2]]
            value = rvm_vectorcall(other, cell, count)
            if rvm_unlikely(value is NULL):
                break
            if rvm_unlikely(not _is_plain(machine, value)):
                value = _as_value(machine, other, value)
                if value is NULL:
                    break
            ticks -= PYTHON_TICKS if PyFunction_Check(other) else CALL_TICKS
            rvm_store(fp + ip[1], value)
            if rvm_unlikely(ticks < 0):
                ticks = POLL_TICKS
                if _poll(machine, run) < 0:
                    break
            ip += 5 + count

        elif op == OP_CALL_VOID:
            cell = fp + ip[4]
            count = ip[3]
            rvm_gather(cell, fp, pool_end, ip + 5, count)
            other = pool_end[ip[2]]
            value = rvm_vectorcall(other, cell, count)
            if rvm_unlikely(value is NULL):
                break
            ticks -= PYTHON_TICKS if PyFunction_Check(other) else CALL_TICKS
            Py_DECREF(<object>value)
            if rvm_unlikely(ticks < 0):
                ticks = POLL_TICKS
                if _poll(machine, run) < 0:
                    break
            ip += 5 + count

        elif op == OP_CALL_NATIVE:
            count = ip[3]
            other = pool_end[ip[2]]
            value = _call_native(other, fp, pool_end, ip + 4, count, &nbytes)
            if rvm_unlikely(value is NULL):
                break
            if value is Py_None:
                value = NULL
            elif not _is_plain(machine, value):
                value = _as_value(machine, other, value)
                if value is NULL:
                    break
            rvm_store(fp + ip[1], value)
            ticks -= NATIVE_TICKS + <int64_t>(nbytes >> 10)
            if rvm_unlikely(ticks < 0):
                ticks = POLL_TICKS
                if _poll(machine, run) < 0:
                    break
            ip += 4 + count

        elif op == OP_CALL_VM:
            func = <rvm_func*>ip[2]
            count = ip[3]
            callee_fp = _push(run, fp, ip[4], func, max_depth)
            if rvm_unlikely(callee_fp is NULL):
                break
            rvm_push_frame(callee_fp - RVM_HEADER, func, fp, ip + 5 + count, ip[1])
            rvm_push_args(callee_fp, fp, pool_end, ip + 5, count)
            rvm_null_registers(callee_fp, count, func.num_registers)
            fp = callee_fp
            ip = func.code
            ticks -= 1
            if rvm_unlikely(ticks < 0):
                ticks = POLL_TICKS
                if _poll(machine, run) < 0:
                    break

        elif op == OP_RET:
            word = ip[1]
            if word >= 0:
                value = fp[word]
                fp[word] = NULL
                if value is NULL:
                    value = Py_None
                    rvm_incref(value)
            else:
                value = pool_end[word]
                rvm_incref(value)
            rvm_clear_registers(fp, (<rvm_func*>fp[RVM_FUNC]).num_registers)
            callee_fp = fp
            fp = <PyObject**>callee_fp[RVM_CALLER]
            if fp is NULL:
                return value
            run.depth -= 1
            ip = <const int64_t*>callee_fp[RVM_RETURN_IP]
            word = <int64_t>callee_fp[RVM_RETURN_DST]
            if rvm_unlikely(callee_fp - RVM_HEADER == run.chunk.memory):
                run.words -= run.chunk.words
                run.chunk = rvm_drop_chunk(run.chunk)
            rvm_store(fp + word, value)

        elif op == OP_GOTO:
            ip += ip[1]

        elif op == OP_GOTO_BACK:
            ticks -= 1
            if rvm_unlikely(ticks < 0):
                ticks = POLL_TICKS
                if _poll(machine, run) < 0:
                    break
            ip += ip[1]

        elif op == OP_IF:
            value = rvm_load(fp, pool_end, ip[1])
            truth = rvm_truth(value)
            if rvm_unlikely(truth < 0):
                _fail_condition(value)
                break
            ip += 3 if truth else ip[2]

        elif op == OP_COPY:
            value = rvm_load(fp, pool_end, ip[2])
            rvm_incref(value)
            rvm_replace(fp + ip[1], value)
            ip += 3

        elif op == OP_NULL:
            rvm_replace(fp + ip[1], NULL)
            ip += 2

        elif op == OP_MAKE_TUPLE:
            count = ip[2]
            value = rvm_gather_tuple(fp, pool_end, ip + 3, count)
            if rvm_unlikely(value is NULL):
                break
            rvm_store(fp + ip[1], value)
            ip += 3 + count

        elif op == OP_TUPLE_GETITEM:
            other = rvm_load(fp, pool_end, ip[3])
            if rvm_unlikely(not PyTuple_CheckExact(other) or ip[4] >= PyTuple_GET_SIZE(other)):
                ip += ip[2]
                continue
            value = PyTuple_GET_ITEM(other, ip[4])
            rvm_incref(value)
            rvm_store(fp + ip[1], value)
            ip += 5

        elif op == OP_SHAPE_OF:
            value = rvm_shape_of(<rvm_site*>ip[4], rvm_load(fp, pool_end, ip[3]))
            if rvm_unlikely(value is NULL):
                PyErr_Clear()
                ip += ip[2]
                continue
            rvm_store(fp + ip[1], value)
            ip += 5

        elif op == OP_MAKE_SHAPE:
            count = ip[6]
            value = rvm_make_shape(<rvm_site*>ip[5], rvm_load(fp, pool_end, ip[3]), ip[4], count,
                                   ip + 7)
            if rvm_unlikely(value is NULL):
                PyErr_Clear()
                ip += ip[2]
                continue
            rvm_store(fp + ip[1], value)
            ip += 7 + 2 * count

        elif op == OP_MATCH_SHAPE:
            count = ip[6]
            if rvm_unlikely(not rvm_match_shape(
                    rvm_load(fp, pool_end, ip[3]), rvm_load(fp, pool_end, ip[4]), ip[5], count,
                    ip + 7)):
                ip += ip[2]
                continue
            ip += 7 + 2 * count

        elif op == OP_CHECK_TENSOR:
            if rvm_unlikely(not rvm_check_tensor(
                    rvm_load(fp, pool_end, ip[3]), ip[4], <cnp.PyArray_Descr*>ip[5])):
                ip += ip[2]
                continue
            ip += 6

        elif op == OP_CHECK_MATCH:
            count = ip[8]
            value = rvm_load(fp, pool_end, ip[3])
            if rvm_unlikely(
                    not rvm_check_tensor(value, ip[4], <cnp.PyArray_Descr*>ip[5])
                    or not rvm_match_shape(value, rvm_load(fp, pool_end, ip[6]), ip[7], count,
                                           ip + 9)):
                ip += ip[2]
                continue
            ip += 9 + 2 * count

        elif op == OP_CHECK_SHAPE:
            if rvm_unlikely(not rvm_check_shape(rvm_load(fp, pool_end, ip[3]), ip[4])):
                ip += ip[2]
                continue
            ip += 5

        elif op == OP_CHECK_TUPLE:
            if rvm_unlikely(not rvm_check_tuple(rvm_load(fp, pool_end, ip[3]), ip[4])):
                ip += ip[2]
                continue
            ip += 5

        elif op == OP_CHECK_FUNC:
            if rvm_unlikely(not _is_vm_callable(rvm_load(fp, pool_end, ip[3]))):
                ip += ip[2]
                continue
            ip += 4

        elif op == OP_CHECK_PRIM:
            if rvm_unlikely(not rvm_check_prim(rvm_load(fp, pool_end, ip[3]), ip[4])):
                ip += ip[2]
                continue
            ip += 5

        elif op == OP_MATCH_PRIM:
            if rvm_unlikely(not rvm_match_prim(
                    rvm_load(fp, pool_end, ip[3]), rvm_load(fp, pool_end, ip[4]), ip[5], ip[6])):
                ip += ip[2]
                continue
            ip += 7

        elif op == OP_MAKE_PRIM:
            value = rvm_make_prim(rvm_load(fp, pool_end, ip[3]), ip[4], ip[5])
            if rvm_unlikely(value is NULL):
                PyErr_Clear()
                ip += ip[2]
                continue
            rvm_store(fp + ip[1], value)
            ip += 6

        elif op == OP_COMPUTE_SHAPE:
            if rvm_unlikely(not rvm_compute_shape(rvm_load(fp, pool_end, ip[3]), ip[4], ip + 6)):
                ip += ip[2]
                continue
            ip += 6 + ip[5]

        elif op == OP_READ_COND:
            truth = rvm_read_cond(rvm_load(fp, pool_end, ip[3]))
            if rvm_unlikely(truth < 0):
                ip += ip[2]
                continue
            value = Py_True if truth else Py_False
            rvm_incref(value)
            rvm_store(fp + ip[1], value)
            ip += 4

        elif op == OP_READ_IF:
            truth = rvm_read_cond(rvm_load(fp, pool_end, ip[3]))
            if rvm_unlikely(truth < 0):
                ip += ip[2]
                continue
            value = Py_True if truth else Py_False
            rvm_incref(value)
            rvm_store(fp + ip[1], value)
            ip += 5 if truth else ip[4]

        elif op == OP_ALLOC_HEAP:
            value = rvm_site_heap(<rvm_site*>ip[4], ip[3])
            if rvm_unlikely(value is NULL):
                break
            rvm_store(fp + ip[1], value)
            ip += 5

        elif op == OP_ALLOC_STORAGE:
            value = take_storage(<PyObject*>ip[3], ip[4])
            if rvm_unlikely(value is NULL):
                PyErr_Clear()
                ip += ip[2]
                continue
            rvm_store(fp + ip[1], value)
            ip += 5

        elif op == OP_ALLOC_STORAGE_DYN:
            value = _take_shape(<PyObject*>ip[3], rvm_load(fp, pool_end, ip[4]), ip[5])
            if rvm_unlikely(value is NULL):
                PyErr_Clear()
                ip += ip[2]
                continue
            rvm_store(fp + ip[1], value)
            ip += 6

        elif op == OP_ALLOC_TENSOR:
            value = _view(rvm_load(fp, pool_end, ip[3]), ip[4], rvm_load(fp, pool_end, ip[5]),
                          <cnp.PyArray_Descr*>ip[6])
            if rvm_unlikely(value is NULL):
                PyErr_Clear()
                ip += ip[2]
                continue
            rvm_replace(fp + ip[1], value)
            ip += 7

        elif op == OP_ALLOC_TENSOR_OF:
            count = ip[7]
            value = _view_of(rvm_load(fp, pool_end, ip[3]), ip[4], ip[5],
                             <cnp.PyArray_Descr*>ip[6], count, <const cnp.npy_intp*>ip + 8)
            if rvm_unlikely(value is NULL):
                PyErr_Clear()
                ip += ip[2]
                continue
            rvm_replace(fp + ip[1], value)
            ip += 8 + count

        elif op == OP_ALLOC_STATIC:
            rvm_store(fp + ip[3], NULL)
            value = _static_array(ip)
            if rvm_unlikely(value is NULL):
                PyErr_Clear()
                ip += ip[2]
                continue
            rvm_replace(fp + ip[1], value)
            ip += 10 + ip[9]

        elif op == OP_RESHAPE:
            value = rvm_reshape(rvm_load(fp, pool_end, ip[3]), rvm_load(fp, pool_end, ip[4]))
            if rvm_unlikely(value is NULL):
                PyErr_Clear()
                ip += ip[2]
                continue
            rvm_replace(fp + ip[1], value)
            ip += 5

        elif op == OP_MAKE_CLOSURE:
            count = ip[4]
            other = rvm_load(fp, pool_end, ip[3])
            if rvm_unlikely(Py_TYPE(other) is not <PyTypeObject*>VMFunction):
                ip += ip[2]
                continue
            value = _new_closure(image, other, fp, ip + 5, count)
            if rvm_unlikely(value is NULL):
                break
            rvm_store(fp + ip[1], value)
            ip += 5 + count

        elif op == OP_INVOKE_CLOSURE:
            count = ip[4]
            other = rvm_load(fp, pool_end, ip[3])
            func = _own_function(image, other, count)
            if rvm_unlikely(func is NULL):
                ip += ip[2]
                continue
            callee_fp = _push(run, fp, ip[5], func, max_depth)
            if rvm_unlikely(callee_fp is NULL):
                break
            rvm_push_frame(callee_fp - RVM_HEADER, func, fp, ip + 6 + count, ip[1])
            rvm_push_args(callee_fp, fp, pool_end, ip + 6, count)
            i = count
            while i < func.num_params:
                value = _captured_at(other, i - count)
                rvm_incref(value)
                callee_fp[i] = value
                i += 1
            rvm_null_registers(callee_fp, i, func.num_registers)
            fp = callee_fp
            ip = func.code
            ticks -= 1
            if rvm_unlikely(ticks < 0):
                ticks = POLL_TICKS
                if _poll(machine, run) < 0:
                    break

        elif op == OP_UFUNC_1:
            truth = rvm_ufunc_1(<int64_t*>ip + 3, rvm_load(fp, pool_end, ip[11]),
                                rvm_load(fp, pool_end, ip[12]))
            if rvm_unlikely(truth <= 0):
                if truth == RVM_ASK_KERNEL:
                    ip += ip[2]
                    continue
                truth = _after_loop(ip[3], truth)
                if truth < 0:
                    break
            ticks -= truth
            if rvm_unlikely(ticks < 0):
                ticks = POLL_TICKS
                if _poll(machine, run) < 0:
                    break
            ip += 13

        elif op == OP_UFUNC_2:
            truth = rvm_ufunc_2(<int64_t*>ip + 3, rvm_load(fp, pool_end, ip[11]),
                                rvm_load(fp, pool_end, ip[12]), rvm_load(fp, pool_end, ip[13]))
            if rvm_unlikely(truth <= 0):
                if truth == RVM_ASK_KERNEL:
                    ip += ip[2]
                    continue
                truth = _after_loop(ip[3], truth)
                if truth < 0:
                    break
            ticks -= truth
            if rvm_unlikely(ticks < 0):
                ticks = POLL_TICKS
                if _poll(machine, run) < 0:
                    break
            ip += 14

        elif op == OP_FUEL:
            run.fuel -= ip[1]
            if rvm_unlikely(run.fuel < 0):
                run.fuel = 0
                _fail_fuel(machine)
                break
            run.blocks += 1
            if rvm_unlikely(run.blocks >= DEADLINE_BLOCKS):
                run.blocks = 0
                if _check_deadline(machine, run) < 0:
                    break
            ip += 2

        elif op == OP_DEADLINE:
            if _check_deadline(machine, run) < 0:
                break
            ip += 1

        elif op == OP_HOOK_BEFORE:
            truth = _hook(machine, fp, pool_end, ip, NULL)
            if rvm_unlikely(truth < 0):
                break
            if truth:
                rvm_store(fp + ip[1], NULL)
                ip += ip[2]
            else:
                ip += 6 + ip[5]

        elif op == OP_HOOK_AFTER:
            value = rvm_load(fp, pool_end, ip[2])
            if _hook(machine, fp, pool_end, ip, value) < 0:
                break
            value = fp[ip[2]]
            fp[ip[2]] = NULL
            if ip[1] != ip[2]:
                rvm_store(fp + ip[1], value)
            else:
                Py_XDECREF(value)
            ip += 6 + ip[5]

        else:
            _fail_bug(op)
            break

    _unwind(machine, image, run, fp, ip)
    return NULL


cdef inline PyObject** _push(Run* run, PyObject** fp, int64_t offset, const rvm_func* func,
                             int64_t max_depth) noexcept:
    """Room for a callee's frame after the caller's registers; the depth is counted."""
    cdef PyObject** callee_fp = fp + offset + RVM_HEADER
    if rvm_unlikely(run.depth >= max_depth):
        _fail_depth(func, max_depth)
        return NULL
    if rvm_unlikely(func.frame_words > run.chunk.end - callee_fp):
        callee_fp = _push_chunk(run, func)
        if callee_fp is NULL:
            return NULL
    run.depth += 1
    return callee_fp


cdef PyObject** _push_chunk(Run* run, const rvm_func* func) noexcept:
    cdef int64_t words = max(func.frame_words + RVM_HEADER, min(run.words, 1 << 16))
    cdef rvm_chunk* chunk = NULL
    if run.words + words <= MAX_FRAME_WORDS:
        chunk = rvm_new_chunk(run.chunk, words)
    if chunk is NULL:
        _fail_frames(func, run.words + words)
        return NULL
    run.words += chunk.words
    run.chunk = chunk
    return chunk.memory + RVM_HEADER


cdef inline bint _is_vm_callable(PyObject* value) noexcept:
    cdef PyTypeObject* cls = Py_TYPE(value)
    return cls is <PyTypeObject*>Closure or cls is <PyTypeObject*>VMFunction


cdef inline rvm_func* _own_function(Image image, PyObject* callee, int64_t count) noexcept:
    """The code of a closure or function of this very machine that takes `count` arguments."""
    cdef rvm_func* func
    if Py_TYPE(callee) is <PyTypeObject*>Closure:
        count += (<Closure>callee)._count
        if (<Closure>callee)._serial == image.serial:
            func = (<Closure>callee)._code
            return func if func.num_params == count else NULL
        callee = <PyObject*>(<Closure>callee)._func
    if Py_TYPE(callee) is not <PyTypeObject*>VMFunction:
        return NULL
    if <PyObject*>(<VMFunction>callee).machine is not (image.pool_end - 1)[0]:
        return NULL
    func = image.funcs + (<VMFunction>callee).index
    return func if func.num_params == count else NULL


# ---- what the operations need ----------------------------------------------------------------


# Each answers NULL, perhaps with an exception set, where the builtin's reference has to look at it.


cdef PyObject* _take_shape(PyObject* allocator, PyObject* shape, int64_t itemsize) noexcept:
    """A storage for a Shape of items."""
    cdef cnp.npy_intp dims[RVM_MAX_DIMS]
    cdef int64_t rank, nbytes
    if not rvm_shape_dims(shape, -1, dims, &rank) or not rvm_bytes(itemsize, rank, dims, &nbytes):
        return NULL
    return take_storage(allocator, nbytes)


cdef PyObject* _view(PyObject* storage, int64_t offset, PyObject* shape,
                     cnp.PyArray_Descr* descr) noexcept:
    """An array over a storage."""
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
    return _array_at(storage, offset, <int>rank, dims, descr)


cdef PyObject* _view_of(PyObject* storage, int64_t offset, int64_t end, cnp.PyArray_Descr* descr,
                        int64_t rank, const cnp.npy_intp* dims) noexcept:
    """An array of known dimensions over the bytes from `offset` to `end` of a storage."""
    if Py_TYPE(storage) is not <PyTypeObject*>Storage or (<Storage>storage).nbytes < end:
        return NULL
    return _array_at(storage, offset, <int>rank, dims, descr)


cdef inline PyObject* _array_at(PyObject* storage, int64_t offset, int rank,
                                const cnp.npy_intp* dims, cnp.PyArray_Descr* descr) noexcept:
    return rvm_new_array(storage, (<Storage>storage).data + offset, rank, dims, descr,
                         offset & (ALIGNMENT - 1) == 0)


cdef PyObject* _static_array(const int64_t* ip) noexcept:
    """The array of alloc_storage + alloc_tensor, handed out again once nobody else has it."""
    cdef rvm_site* site = <rvm_site*>ip[8]
    cdef cnp.PyArray_Descr* descr = <cnp.PyArray_Descr*>ip[7]
    cdef int rank = <int>ip[9]
    cdef const cnp.npy_intp* dims = <const cnp.npy_intp*>ip + 10
    cdef PyObject* storage
    cdef PyObject* array = site.object
    if array is not NULL and rvm_is_idle(array, rank, dims, descr, site.data):
        rvm_incref(array)
        return array
    storage = take_storage(<PyObject*>ip[4], ip[5])
    if storage is NULL:
        return NULL
    array = _array_at(storage, ip[6], rank, dims, descr)
    Py_DECREF(<object>storage)
    if array is not NULL:
        site.data = rvm_array_data(array)
        rvm_incref(array)
        rvm_store(&site.object, array)
    return array


cdef int _after_loop(int64_t ufunc, int answer) noexcept:
    """What is left to do where a ufunc's loop did not just end well: the ticks it takes, or -1 with an
    exception."""
    if answer == RVM_RAISED:
        return -1
    try:
        report_status(-1 - answer, (<object><PyObject*>ufunc).__name__)
    except BaseException as error:
        _set_exception(error)
        return -1
    return PYTHON_TICKS


# The interpreter lets another thread run, if one asked, where a Python function begins.  To release
# and take the GIL here would not do: who waits for it may never be fast enough to get it.
cdef object _breathe = eval("lambda: None")


cdef int _poll(Machine machine, Run* run) noexcept:
    """Look at signals and cancellation, and now and then let another thread run."""
    cdef PyObject* breath
    if PyErr_CheckSignals() < 0:
        return -1
    run.polls += 1
    if run.polls >= YIELD_POLLS:
        run.polls = 0
        breath = PyObject_Vectorcall(<PyObject*>_breathe, NULL, 0, NULL)
        if breath is NULL:
            return -1
        Py_DECREF(<object>breath)
    if machine._cancel_count != run.cancel_count:
        _fail_cancelled()
        return -1
    return 0


cdef int _check_deadline(Machine machine, Run* run) noexcept:
    if run.deadline != INT64_MAX and rvm_clock_ns() > run.deadline:
        _fail_deadline(machine)
        return -1
    return 0


cdef int _hook(Machine machine, PyObject** fp, PyObject** pool_end, const int64_t* ip,
               PyObject* result) noexcept:
    """Call the machine's hook: 1 to skip the call, 0 to go on, -1 with an exception."""
    cdef PyObject* args = rvm_gather_tuple(fp, pool_end, ip + 6, ip[5])
    cdef PyObject* answer
    cdef PyObject* operands[6]
    cdef bint before = result is NULL
    cdef int truth
    if args is NULL:
        return -1
    operands[0] = pool_end[ip[4]]       # the translator puts the name behind the pc
    operands[1] = Py_True if before else Py_False
    operands[2] = pool_end[ip[3]]
    operands[3] = pool_end[ip[4] - 1]
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
    """Tell the hook that a run begins, with pc -1 and the arguments of the function.

    Returns False with an exception if the hook raised.
    """
    try:
        function = machine._function(index)
        args = tuple([<object>fp[i] for i in range(count)])
        machine._hook(RUN, True, function, function.name, None, args)
    except BaseException as error:
        _set_exception(error)
        return False
    return True


cdef PyObject* _hook_run_end(Machine machine, int64_t index, PyObject* result) noexcept:
    """Tell the hook that a run has ended: with pc -1 and the result, or with pc -2 if it raised.

    Returns `result`, or NULL with an exception.  An exception of the run outlives one of the hook.
    """
    cdef PyObject* kind = NULL
    cdef PyObject* value = NULL
    cdef PyObject* traceback = NULL
    cdef bint failed = result is NULL
    if failed:
        PyErr_Fetch(&kind, &value, &traceback)
    try:
        hook = machine._hook
        if hook is not None:
            function = machine._function(index)
            hook(RUN_FAILED if failed else RUN, False, function, function.name,
                 None if failed else <object>result, ())
    except BaseException as error:
        if failed:
            _set_exception(error)
            PyErr_WriteUnraisable(<PyObject*>machine)
        else:
            Py_DECREF(<object>result)
            result = NULL
            _set_exception(error)
    if failed:
        PyErr_Restore(kind, value, traceback)
    return result


# ---- failure ---------------------------------------------------------------------------------
# These run inside the loop, which knows no exceptions of Cython's: they leave one set.


cdef void _set_exception(object exception) noexcept:
    cdef type kind = type(exception)
    PyErr_SetObject(<PyObject*>kind, <PyObject*>exception)


cdef void _fail(type kind, str message, str limit=None) noexcept:
    """Set an exception, or else the one that came up while it was made: an interrupt, no stack."""
    try:
        exception = kind(message) if limit is None else kind(message, limit)
    except BaseException as error:
        exception = error
    _set_exception(exception)


cdef void _fail_limit(str name, str message) noexcept:
    _fail(LimitError, f"{message} (limit {name})", name)


cdef void _fail_fuel(Machine machine) noexcept:
    _fail_limit("fuel", f"the run took more than {machine._fuel} instructions")


cdef void _fail_deadline(Machine machine) noexcept:
    _fail_limit("wall_time", f"the run took longer than {machine._wall_ns / 1e9:g} s")


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
    cdef int64_t total = 0
    if PyErr_Occurred() is NULL:
        PyErr_NoMemory()  # not even enough for the exception
    PyErr_Fetch(&kind, &exception, &traceback)
    PyErr_NormalizeException(&kind, &exception, &traceback)
    if traceback is not NULL:
        PyException_SetTraceback(exception, traceback)
    while frame is not NULL:
        total += 1
        frame = <PyObject**>frame[RVM_CALLER]
    try:
        frames = _describe_frames(image, fp, ip, total)
    except BaseException:
        frames = None  # no memory
    while fp is not NULL:
        frame = <PyObject**>fp[RVM_CALLER]
        rvm_clear_registers(fp, (<rvm_func*>fp[RVM_FUNC]).num_registers)
        if fp - RVM_HEADER == run.chunk.memory and run.chunk.previous is not NULL:
            run.chunk = rvm_drop_chunk(run.chunk)
        fp = frame
    try:
        if frames is not None:
            machine._on_error(<object>exception, frames, total)
    except KeyboardInterrupt:
        # Not now: the exception that is on its way is the one to report.
        if not isinstance(<object>exception, KeyboardInterrupt):
            PyErr_SetInterrupt()
    except BaseException:
        pass  # out of stack, say
    frames = None
    PyErr_Restore(kind, exception, traceback)


cdef list _describe_frames(Image image, PyObject** fp, const int64_t* ip, int64_t total):
    """(pc, arguments) of each frame, innermost first; None in place of those in the middle."""
    cdef list frames = []
    cdef int64_t i, pc
    for i in range(total):
        if i < NOTE_FRAMES or i >= total - NOTE_FRAMES:
            pc = image.source_pc(ip)
            frames.append((pc, image.argument_values(pc, fp)))
        elif i == NOTE_FRAMES:
            frames.append(None)
        if i + 1 < total:
            ip = <const int64_t*>fp[RVM_RETURN_IP] - 1
            fp = <PyObject**>fp[RVM_CALLER]
    return frames


# ---- the machine -----------------------------------------------------------------------------


cdef class Machine:
    """What runs an executable.  `relaxvm.VirtualMachine` puts the user's interface on top."""

    cdef object _executable
    cdef list _callables
    cdef list _quick
    cdef frozenset _builtins    # addresses of the builtins' references
    cdef bint _owns_tuples      # the program changes tuples, so it gets copies of those from outside
    cdef object _to_value
    cdef tuple _allocators
    cdef bint _optimize
    cdef bint _limited
    cdef int64_t _max_depth
    cdef int64_t _max_live
    cdef int64_t _fuel
    cdef int64_t _wall_ns
    cdef Image _image           # the code that new runs take
    cdef Image _plain_image     # the one without hook
    cdef object _hook
    cdef int64_t _cancel_count
    cdef object __weakref__

    def _setup(self, executable, callables, quick, allocators, limits, optimize=True):
        """Translate an executable.  It must have been verified.

        Args:
            executable: a `VMExecutable`.
            callables: per function-table entry the resolved callable, None for bytecode functions.
            quick: per entry the name of the builtin if the callable is its reference, the ufunc if it
                is a kernel that computes just that, else None.
            allocators: one per device, the last is the host's.
            limits: `relaxvm.Limits`.
            optimize: whether builtins are quickened and fused.
        """
        self._executable = executable
        self._callables = list(callables)
        self._quick = list(quick)
        self._builtins = frozenset([
            id(function) for function, name in zip(callables, quick) if name is not None])
        self._owns_tuples = "vm.builtin.tuple_reset_item" in self._quick
        self._to_value = to_own_value if self._owns_tuples else to_value
        self._allocators = tuple(allocators)
        self._optimize = optimize
        self._max_depth = limits.call_depth
        self._max_live = _bound(limits.live_bytes)
        self._fuel = _bound(limits.fuel)
        self._wall_ns = INT64_MAX if limits.wall_time is None else _bound(int(limits.wall_time * 1e9))
        self._limited = limits.fuel is not None or limits.wall_time is not None
        self._hook = None
        self._image = self._plain_image = self._translated(False)

    cdef Image _translated(self, bint hooked):
        return translate(
            self, self._executable, self._callables, self._quick, self._allocators,
            optimize=self._optimize, hooked=hooked, fueled=self._limited,
            keep_arrays=self._max_live == INT64_MAX and not self._limited)

    def _close(self):
        """Let go of code, constants and functions.  Runs in progress finish."""
        self._image = self._plain_image = None
        self._hook = None
        self._callables = []

    def _function(self, int64_t index):
        """The bytecode function at an index of the function table."""
        info = self._executable.functions[index]
        cdef VMFunction function = VMFunction.__new__(VMFunction)
        function._vectorcall = <vectorcallfunc>_function_vectorcall
        function.machine = self
        function.index = index
        function.name = info.name
        function.num_args = info.num_args
        function.param_names = info.param_names
        return function

    def _set_hook(self, hook):
        """Call ``hook(pc, before, func, name, ret, args)`` around every call instruction.

        Runs that are entered from now on see it; None takes it off.  A true answer before a call
        skips the call and the hook after it.

        A run is told of too: it begins and ends with pc -1, the function and its name; `args` are
        its arguments, and empty at the end.  A run that ends with an exception ends with pc -2.
        """
        if hook is None:  # no error on a closed machine: a profile may end after its machine
            self._hook = None
            self._image = self._plain_image
        elif self._plain_image is None:
            raise InternalError("the virtual machine is closed")
        else:
            if self._image is self._plain_image:
                self._image = self._translated(True)
            self._hook = hook

    def cancel(self):
        """Stop the runs in progress, in whatever thread: they raise `CancelledError`."""
        self._cancel_count += 1

    def _drop_idle_arrays(self):
        """Forget what allocation sites keep for their next use."""
        if self._plain_image is not None:
            self._plain_image.drop_idle()

    def _raise_arity(self, index, given, captured):
        raise BugError("Machine._raise_arity must be overridden")

    def _with_tensors(self, index, position, value):
        return value

    def _call_with_keywords(self, function, args, kwargs):
        raise TypeError(f"{function.name}: takes no keyword arguments")

    def _signature_of(self, function):
        raise AttributeError("signature")

    def _bind(self, function, args, kwargs):
        raise AttributeError("bind")

    def _on_error(self, exception, frames, total):
        """Told of an exception that ends a run, before it reaches the caller."""


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

globals()["Storage"] = Storage  # a name that is cimported is not in the module by itself
