"""The core: predecoding, register files, frames and the dispatch loop.

An executable's words are translated once, when a `Machine` is set up, into flat int64 code that the
loop runs: operands become register numbers or pool positions, callees become pointers, and calls of
known builtins become operations of their own ("quickening"), some of them fused.  Nothing in here is
checked while it runs that `relaxvm.verify` checked before.

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
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.string cimport memcpy, memset

import numpy as np

from . import isa
from ._memory import NaiveAllocator, PooledAllocator
from .errors import BugError, CancelledError, LimitError
from .values import Shape, to_value

cimport numpy as cnp

from ._isa cimport (
    ARG_CONSTANT,
    ARG_FUNCTION,
    ARG_IMMEDIATE,
    ARG_KIND,
    ARG_REGISTER,
    ARG_VALUE,
    VM_REGISTER,
    VOID_REGISTER,
)
from ._isa cimport (
    OP_CALL as SRC_CALL,
    OP_GOTO as SRC_GOTO,
    OP_IF as SRC_IF,
    OP_RET as SRC_RET,
)
from ._memory cimport Allocator, Storage, storage_array

cnp.import_array()

__all__ = ["Closure", "Machine", "NaiveAllocator", "PooledAllocator", "Storage", "VMFunction"]

cdef extern from "_core_impl.h" nogil:
    ctypedef struct rvm_site:
        PyObject* object
        const void* data
        int64_t count
        cnp.npy_intp* dims

    ctypedef struct rvm_func:
        int64_t* code
        int64_t num_params
        int64_t num_registers
        int64_t frame_words
        PyObject* name

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
        RVM_MAX_DIMS
        RVM_MATCH_IMM
        RVM_MATCH_ANY
        RVM_MATCH_SLOT
        RVM_MAKE_IMM
        RVM_MAKE_SLOT

    PyTypeObject* rvm_shape_type
    cnp.PyArray_Descr* rvm_int64

    int64_t rvm_clock_ns() noexcept
    bint rvm_unlikely(bint) noexcept
    PyObject* rvm_load(PyObject**, PyObject**, int64_t) noexcept
    void rvm_store(PyObject**, PyObject*) noexcept
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
    bint rvm_check_tuple(PyObject*, int64_t) noexcept
    bint rvm_match_prim(PyObject*, PyObject*, int64_t, int64_t) noexcept
    PyObject* rvm_make_prim(PyObject*, int64_t, int64_t) noexcept
    bint rvm_is_idle(PyObject*, int, const cnp.npy_intp*, cnp.PyArray_Descr*, const void*) noexcept
    void* rvm_array_data(PyObject*) noexcept
    PyObject* rvm_vectorcall(PyObject*, PyObject**, int64_t) noexcept
    PyObject* rvm_site_heap(rvm_site*, cnp.npy_intp) noexcept
    rvm_chunk* rvm_new_chunk(rvm_chunk*, int64_t) noexcept
    rvm_chunk* rvm_drop_chunk(rvm_chunk*) noexcept
    PyObject** rvm_push_frame(PyObject**, const rvm_func*, PyObject**, const int64_t*,
                              int64_t) noexcept
    void rvm_null_registers(PyObject**, int64_t, int64_t) noexcept

cdef extern from "Python.h":
    ctypedef PyObject* (*vectorcallfunc)(PyObject*, PyObject* const*, size_t, PyObject*) noexcept
    Py_ssize_t PyVectorcall_NARGS(size_t) noexcept
    PyObject* PyVectorcall_Call(PyObject*, PyObject*, PyObject*) noexcept
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
    PyObject* PyTuple_New(Py_ssize_t) noexcept
    void PyTuple_SET_ITEM(PyObject*, Py_ssize_t, PyObject*) noexcept
    PyObject* Py_None
    PyObject* Py_True
    PyObject* Py_False
    int PyErr_CheckSignals() noexcept
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
    unsigned long Py_TPFLAGS_HAVE_VECTORCALL
    ctypedef struct _typeobject "PyTypeObject":
        Py_ssize_t tp_vectorcall_offset
        unsigned long tp_flags
        PyObject* (*tp_call)(PyObject*, PyObject*, PyObject*) noexcept
    void PyType_Modified(PyTypeObject*) noexcept

cdef extern from "numpy/arrayobject.h":
    cnp.npy_intp PyDataType_ELSIZE(const cnp.PyArray_Descr*) noexcept
    bint PyArray_Check(PyObject*) noexcept
    bint PyArray_CheckExact(PyObject*) noexcept

rvm_shape_type = <PyTypeObject*>Shape
cdef object _int64_dtype = np.dtype(np.int64)
rvm_int64 = <cnp.PyArray_Descr*><PyObject*>_int64_dtype
cdef object _to_value = to_value

# Operations of the loop.  Operands after the opcode; `args` are operand words (register or pool).
cdef enum:
    OP_RET = 1          # value
    OP_GOTO             # distance
    OP_GOTO_BACK        # distance; polls for signals
    OP_IF               # cond, distance if false
    OP_CALL             # dst, callee, count, args area, args...
    OP_CALL_VOID        # -, callee, count, args area, args...
    OP_CALL_VM          # dst, rvm_func*, count, frame offset, args...
    OP_COPY             # dst, value
    OP_NULL             # dst
    OP_MAKE_TUPLE       # dst, count, args...
    OP_TUPLE_GETITEM    # dst, slow, tuple, index
    OP_SHAPE_OF         # dst, slow, tensor, site
    OP_MAKE_SHAPE       # dst, slow, heap, last slot, site, count, pairs...
    OP_MATCH_SHAPE      # -, slow, x, heap, last slot, count, pairs...
    OP_CHECK_TENSOR     # -, slow, x, ndim, descr
    OP_CHECK_MATCH      # -, slow, x, ndim, descr, heap, last slot, count, pairs...
    OP_CHECK_SHAPE      # -, slow, x, ndim
    OP_CHECK_TUPLE      # -, slow, x, size
    OP_CHECK_FUNC       # -, slow, x
    OP_MATCH_PRIM       # -, slow, x, heap, code, value
    OP_MAKE_PRIM        # dst, slow, heap, code, value
    OP_READ_COND        # dst, slow, x
    OP_READ_IF          # dst, slow, x, distance if false
    OP_ALLOC_HEAP       # dst, slow, slots, site
    OP_ALLOC_STORAGE    # dst, slow, Allocator, bytes
    OP_ALLOC_STORAGE_DYN  # dst, slow, Allocator, shape, item size
    OP_ALLOC_TENSOR     # dst, slow, storage, offset, shape, descr
    OP_ALLOC_STATIC     # dst, slow, storage register, Allocator, bytes, offset, shape, descr, site
    OP_MAKE_CLOSURE     # dst, slow, function, count, args...
    OP_INVOKE_CLOSURE   # dst, slow, closure, count, frame offset, args...
    OP_FUEL             # instructions of the block
    OP_DEADLINE         # -
    OP_HOOK_BEFORE      # dst, skip distance, callee, pc, count, args...
    OP_HOOK_AFTER       # dst, scratch, callee, pc, count, args...

cdef enum:
    POLL_TICKS = 256    # signals and cancellation are looked at after as many back edges
    CALL_TICKS = 64     # what a call of C code counts for
    PYTHON_TICKS = 8    # and one of a Python function, which looks at signals itself
    YIELD_POLLS = 16    # polls between looks at the clock
    YIELD_NS = 2000000  # time after which another thread may have the GIL
    DEADLINE_BLOCKS = 64
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
    int64_t last_yield
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

    def __init__(self):
        raise TypeError("VMFunction: taken from a virtual machine, as vm['name']")

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
        return f"<VMFunction {self.name}({', '.join(self.param_names)})>"


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
        self._vectorcall = <vectorcallfunc>_closure_vectorcall
        self._func = func
        self._captured = tuple(captured)
        self._count = len(self._captured)

    @property
    def func(self):
        """The function that is called."""
        return self._func

    @property
    def captured(self):
        """The captured values."""
        return (self._first,) if self._captured is None else self._captured

    def __repr__(self):
        name = getattr(self._func, "__name__", type(self._func).__name__)
        return f"<Closure of {name} over {self._count} captured values>"


cdef inline PyObject* _captured_at(PyObject* closure, Py_ssize_t i) noexcept:
    if (<Closure>closure)._captured is None:
        return <PyObject*>(<Closure>closure)._first
    return PyTuple_GET_ITEM(<PyObject*>(<Closure>closure)._captured, i)


cdef PyObject* _new_closure(Image image, PyObject* func, PyObject** fp, const int64_t* words,
                            int64_t count) except NULL:
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


# ---- entry -----------------------------------------------------------------------------------


cdef inline bint _is_plain(PyObject* value) noexcept:
    """Whether a value can be put into a register as it is, without looking further."""
    cdef PyTypeObject* cls = Py_TYPE(value)
    return (PyArray_CheckExact(value) or PyLong_CheckExact(value) or PyFloat_CheckExact(value)
            or value is Py_None or value is Py_True or value is Py_False
            or PyUnicode_CheckExact(value) or cls is rvm_shape_type
            or cls is <PyTypeObject*>Closure or cls is <PyTypeObject*>VMFunction)


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
        raise RuntimeError("the virtual machine is closed")
    func = &image.funcs[index]
    if count + captured != func.num_params:
        machine._raise_arity(index, count, captured)
        raise BugError("an arity error was expected")
    if Py_EnterRecursiveCall(b" in a relaxvm virtual machine"):
        return NULL
    run.chunk = rvm_new_chunk(NULL, func.frame_words + RVM_HEADER)
    if run.chunk is NULL:
        Py_LeaveRecursiveCall()
        raise MemoryError(f"no memory for a frame of {func.num_registers} registers")
    run.words = run.chunk.words
    run.depth = 1
    run.cancel_count = machine._cancel_count
    run.polls = 0
    run.last_yield = 0
    fp = rvm_push_frame(run.chunk.memory, func, NULL, NULL, 0)
    for i in range(count):
        value = args[i]
        if _is_plain(value):
            Py_INCREF(<object>value)
        else:
            value = PyObject_CallOneArg(<PyObject*>_to_value, value)
            if value is NULL:
                rvm_clear_registers(fp, i)
                _leave(&run)
                return NULL
        fp[i] = value
    for i in range(captured):
        value = _captured_at(closure, i)
        Py_INCREF(<object>value)
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
                    Py_INCREF(<object>value)
            else:
                value = pool_end[word]
                Py_INCREF(<object>value)
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
            Py_INCREF(<object>value)
            rvm_store(fp + ip[1], value)
            ip += 3

        elif op == OP_NULL:
            rvm_store(fp + ip[1], NULL)
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
            Py_INCREF(<object>value)
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

        elif op == OP_READ_COND:
            truth = rvm_read_cond(rvm_load(fp, pool_end, ip[3]))
            if rvm_unlikely(truth < 0):
                ip += ip[2]
                continue
            value = Py_True if truth else Py_False
            Py_INCREF(<object>value)
            rvm_store(fp + ip[1], value)
            ip += 4

        elif op == OP_READ_IF:
            truth = rvm_read_cond(rvm_load(fp, pool_end, ip[3]))
            if rvm_unlikely(truth < 0):
                ip += ip[2]
                continue
            value = Py_True if truth else Py_False
            Py_INCREF(<object>value)
            rvm_store(fp + ip[1], value)
            ip += 5 if truth else ip[4]

        elif op == OP_ALLOC_HEAP:
            value = rvm_site_heap(<rvm_site*>ip[4], ip[3])
            if rvm_unlikely(value is NULL):
                break
            rvm_store(fp + ip[1], value)
            ip += 5

        elif op == OP_ALLOC_STORAGE:
            value = (<Allocator>(<PyObject*>ip[3])).take(ip[4])
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
            rvm_store(fp + ip[1], value)
            ip += 7

        elif op == OP_ALLOC_STATIC:
            rvm_store(fp + ip[3], NULL)
            value = _static_array(<rvm_site*>ip[9], <PyObject*>ip[4], ip[5], ip[6],
                                  pool_end[ip[7]], <cnp.PyArray_Descr*>ip[8])
            if rvm_unlikely(value is NULL):
                PyErr_Clear()
                ip += ip[2]
                continue
            rvm_store(fp + ip[1], value)
            ip += 10

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
                Py_INCREF(<object>value)
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
    if rvm_unlikely(callee_fp + func.frame_words > run.chunk.end):
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
    cdef int64_t rank, i, nbytes = itemsize
    if not rvm_shape_dims(shape, -1, dims, &rank):
        return NULL
    for i in range(rank):
        if dims[i] < 0 or (dims[i] and nbytes > INT64_MAX // dims[i]):
            return NULL
        nbytes *= dims[i]
    return (<Allocator>allocator).take(nbytes)


cdef bint _fits(int64_t nbytes, int64_t offset, int64_t rank, const cnp.npy_intp* dims,
                int64_t itemsize) noexcept:
    """Whether an array of items lies within `nbytes` bytes."""
    cdef int64_t i, total = itemsize
    if offset < 0 or offset > nbytes:
        return False
    for i in range(rank):
        if dims[i] < 0:
            return False
        if dims[i] and total > nbytes // dims[i]:
            return False
        total *= dims[i]
    return total <= nbytes - offset


cdef PyObject* _view(PyObject* storage, int64_t offset, PyObject* shape,
                     cnp.PyArray_Descr* descr) noexcept:
    """An array over a storage."""
    cdef cnp.npy_intp dims[RVM_MAX_DIMS]
    cdef int64_t rank
    if Py_TYPE(storage) is not <PyTypeObject*>Storage:
        return NULL
    if not rvm_shape_dims(shape, -1, dims, &rank):
        return NULL
    if not _fits((<Storage>storage).nbytes, offset, rank, dims, PyDataType_ELSIZE(descr)):
        return NULL
    return storage_array(storage, offset, <int>rank, dims, descr)


cdef PyObject* _static_array(rvm_site* site, PyObject* allocator, int64_t nbytes, int64_t offset,
                             PyObject* shape, cnp.PyArray_Descr* descr) noexcept:
    """The array of alloc_storage + alloc_tensor, handed out again once nobody else has it."""
    cdef PyObject* storage
    cdef PyObject* array = site.object
    if array is not NULL and rvm_is_idle(array, <int>site.count, site.dims, descr, site.data):
        Py_INCREF(<object>array)
        return array
    storage = (<Allocator>allocator).take(nbytes)
    if storage is NULL:
        return NULL
    array = _view(storage, offset, shape, descr)
    Py_DECREF(<object>storage)
    if array is not NULL:
        rvm_shape_dims(shape, -1, site.dims, &site.count)
        site.data = rvm_array_data(array)
        Py_INCREF(<object>array)
        rvm_store(&site.object, array)
    return array


cdef int _poll(Machine machine, Run* run) noexcept:
    """Look at signals and cancellation, and now and then let another thread run."""
    cdef int64_t now
    if PyErr_CheckSignals() < 0:
        return -1
    if machine._cancel_count != run.cancel_count:
        _fail_cancelled()
        return -1
    run.polls += 1
    if run.polls >= YIELD_POLLS:
        run.polls = 0
        now = rvm_clock_ns()
        if now - run.last_yield > YIELD_NS:
            if run.last_yield:
                with nogil:
                    pass
                now = rvm_clock_ns()
            run.last_yield = now
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


cdef void _fail_limit(str name, str message) noexcept:
    _set_exception(LimitError(f"{message} (limit {name})", name))


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
        _set_exception(MemoryError(f"{<str>func.name}: no memory for {words * 8} bytes of frames"))


cdef void _fail_cancelled() noexcept:
    _set_exception(CancelledError("the run was cancelled"))


cdef void _fail_bug(int64_t op) noexcept:
    _set_exception(BugError(f"operation {op} in the translated code"))


cdef void _fail_condition(PyObject* value) noexcept:
    _set_exception(TypeError(
        f"if: expected an int or bool condition, got {type(<object>value).__name__}; "
        "turn a tensor into a condition with vm.builtin.read_if_cond"
    ))


cdef void _unwind(Machine machine, Image image, Run* run, PyObject** fp,
                  const int64_t* ip) noexcept:
    """Clear all frames and tell the machine where the exception came from."""
    cdef PyObject* kind
    cdef PyObject* exception
    cdef PyObject* traceback
    cdef PyObject** frame = fp
    cdef int64_t total = 0, i
    if PyErr_Occurred() is NULL:
        _set_exception(BugError("a run failed without an exception"))
    PyErr_Fetch(&kind, &exception, &traceback)
    PyErr_NormalizeException(&kind, &exception, &traceback)
    if traceback is not NULL:
        PyException_SetTraceback(exception, traceback)
    while frame is not NULL:
        total += 1
        frame = <PyObject**>frame[RVM_CALLER]
    frames = []
    for i in range(total):
        if i < NOTE_FRAMES or i >= total - NOTE_FRAMES:
            _describe_frame(image, fp, ip, frames)
        elif i == NOTE_FRAMES:
            frames.append(None)
        ip = <const int64_t*>fp[RVM_RETURN_IP] - 1
        frame = <PyObject**>fp[RVM_CALLER]
        rvm_clear_registers(fp, (<rvm_func*>fp[RVM_FUNC]).num_registers)
        if fp - RVM_HEADER == run.chunk.memory and run.chunk.previous is not NULL:
            run.chunk = rvm_drop_chunk(run.chunk)
        fp = frame
    try:
        machine._on_error(<object>exception, frames, total)
    finally:
        frames = None
        PyErr_Restore(kind, exception, traceback)


cdef void _describe_frame(Image image, PyObject** fp, const int64_t* ip, list frames) noexcept:
    cdef int64_t pc = image.source_pc(ip)
    frames.append((pc, image.argument_values(pc, fp)))


# ---- translated code -------------------------------------------------------------------------

cdef int64_t _num_images = 0


cdef class Image:
    """An executable as the loop runs it: code, functions, pool and sites.  Belongs to one machine."""

    cdef int64_t serial         # no two images have the same; 0 is none's
    cdef int64_t* code
    cdef rvm_func* funcs
    cdef PyObject** pool
    cdef PyObject** pool_end
    cdef int64_t* mark_words    # code word at which an operation starts, ascending ...
    cdef int64_t* mark_pcs      # ... and the source pc that it comes from
    cdef int64_t num_marks
    cdef rvm_site** sites
    cdef int64_t num_sites
    cdef list owned             # what the pool refers to, but for the machine
    cdef object executable
    cdef const int64_t[::1] instr_data
    cdef const int64_t[::1] instr_offset
    cdef int64_t* const_words   # pool word per constant, 0 where none

    def __cinit__(self):
        global _num_images
        _num_images += 1
        self.serial = _num_images

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.num_sites):
            Py_XDECREF(self.sites[i].object)
            PyMem_RawFree(self.sites[i])
        PyMem_RawFree(self.sites)
        PyMem_RawFree(self.code)
        PyMem_RawFree(self.funcs)
        PyMem_RawFree(self.pool)
        PyMem_RawFree(self.mark_words)
        PyMem_RawFree(self.mark_pcs)

    cdef int64_t source_pc(self, const int64_t* ip) noexcept:
        """The source pc of the operation that the word at `ip` belongs to."""
        cdef int64_t word = ip - self.code
        cdef int64_t low = 0, high = self.num_marks, middle
        while low < high:
            middle = (low + high) >> 1
            if self.mark_words[middle] <= word:
                low = middle + 1
            else:
                high = middle
        return self.mark_pcs[low - 1] if low else 0

    cdef tuple argument_values(self, int64_t pc, PyObject** fp):
        """What the arguments of the call at `pc` hold in the frame at `fp`; empty if it is no call."""
        cdef const int64_t* words = &self.instr_data[self.instr_offset[pc]]
        cdef int64_t i, value, kind
        cdef list values = []
        if words[0] == SRC_IF:
            return (<object>rvm_load(fp, self.pool_end, words[1]),)
        if words[0] != SRC_CALL:
            return ()
        for i in range(min(words[3], 32)):
            value = ARG_VALUE(words[4 + i])
            kind = ARG_KIND(words[4 + i])
            if kind == ARG_REGISTER:
                if value == VOID_REGISTER or value == VM_REGISTER:
                    values.append(None)
                else:
                    values.append(<object>rvm_load(fp, self.pool_end, value))
            elif kind == ARG_IMMEDIATE:
                values.append(value)
            elif kind == ARG_CONSTANT:
                values.append(self.executable.constants[value])
            else:
                values.append(self.executable.functions[value])
        return tuple(values)

    cdef int64_t drop_idle(self) noexcept:
        """Forget the arrays that sites keep and nobody uses."""
        cdef int64_t i, dropped = 0
        for i in range(self.num_sites):
            if self.sites[i].object is not NULL:
                dropped += 1
                rvm_store(&self.sites[i].object, NULL)
        return dropped


# How a callee is translated: not at all specially, as a VM function, or as one of these.
cdef enum:
    AS_CALL
    AS_VM
    AS_COPY
    AS_NULL
    AS_MAKE_TUPLE
    AS_TUPLE_GETITEM
    AS_SHAPE_OF
    AS_MAKE_SHAPE
    AS_MATCH_SHAPE
    AS_CHECK_TENSOR
    AS_CHECK_SHAPE
    AS_CHECK_TUPLE
    AS_CHECK_FUNC
    AS_MATCH_PRIM
    AS_MAKE_PRIM
    AS_READ_COND
    AS_ALLOC_HEAP
    AS_ALLOC_STORAGE
    AS_ALLOC_TENSOR
    AS_MAKE_CLOSURE
    AS_INVOKE_CLOSURE

cdef dict _QUICK = {
    "vm.builtin.copy": AS_COPY,
    "vm.builtin.null_value": AS_NULL,
    "vm.builtin.make_tuple": AS_MAKE_TUPLE,
    "vm.builtin.tuple_getitem": AS_TUPLE_GETITEM,
    "vm.builtin.shape_of": AS_SHAPE_OF,
    "vm.builtin.make_shape": AS_MAKE_SHAPE,
    "vm.builtin.match_shape": AS_MATCH_SHAPE,
    "vm.builtin.check_tensor_info": AS_CHECK_TENSOR,
    "vm.builtin.check_shape_info": AS_CHECK_SHAPE,
    "vm.builtin.check_tuple_info": AS_CHECK_TUPLE,
    "vm.builtin.check_func_info": AS_CHECK_FUNC,
    "vm.builtin.match_prim_value": AS_MATCH_PRIM,
    "vm.builtin.make_prim_value": AS_MAKE_PRIM,
    "vm.builtin.read_if_cond": AS_READ_COND,
    "vm.builtin.alloc_shape_heap": AS_ALLOC_HEAP,
    "vm.builtin.alloc_storage": AS_ALLOC_STORAGE,
    "vm.builtin.alloc_tensor": AS_ALLOC_TENSOR,
    "vm.builtin.make_closure": AS_MAKE_CLOSURE,
    "vm.builtin.invoke_closure": AS_INVOKE_CLOSURE,
}

QUICKENED = frozenset(_QUICK)
"""Names of the builtins that the loop may run by itself."""

# How far the translator may go with an instruction.
cdef enum:
    PLAIN       # calls stay calls
    QUICK       # known builtins become operations
    FUSE        # and runs of them become one

cdef enum:
    MAX_HEAP_SLOTS = 4096   # larger shape heaps are made by the reference
    MAX_STATIC_BYTES = 1 << 26  # larger static arrays are not kept at their site
    GOTO_HOPS = 64          # gotos followed when threading a jump


ctypedef struct Words:
    # A growing array of int64.
    int64_t* data
    int64_t count
    int64_t room


cdef int _append(Words* words, int64_t value) except -1:
    cdef int64_t room
    cdef int64_t* data
    if words.count == words.room:
        room = max(64, 2 * words.room)
        data = <int64_t*>PyMem_RawRealloc(words.data, <size_t>room * sizeof(int64_t))
        if data is NULL:
            raise MemoryError
        words.data = data
        words.room = room
    words.data[words.count] = value
    words.count += 1
    return 0


@cython.final
cdef class Translator:
    """Turns the words of a verified executable into an `Image`.

    A function's code is its operations in source order, then the *cold* part: for each operation
    that may give up, the same instructions one step plainer, and a jump back behind it.
    """

    cdef Machine machine
    cdef Image image
    cdef Words code, mark_words, mark_pcs, sites
    cdef Words fixups           # triples: operand position, operation start, target pc
    cdef Words cold             # quintuples: operation start, pc, end pc, resume position, level
    cdef int64_t* position      # code position per pc of the function
    cdef char* callee_kinds     # AS_* per function-table entry
    cdef int64_t* callee_words  # pool word per function-table entry, 0 where none yet
    cdef list pool
    cdef dict immediates
    cdef const int64_t* data
    cdef const int64_t* offsets
    cdef int64_t* block_lengths # per pc of the function, with fuel: see _measure_blocks
    cdef int64_t start, end     # pcs of the function
    cdef int64_t scratch        # register for discarded results
    cdef int64_t args_area      # where argument lists of Python calls are laid out
    cdef int64_t widest         # most arguments of a call of the function
    cdef bint hooked, fueled
    cdef bint in_cold
    cdef int level              # how far to go in the main part
    cdef object constants, functions, callables
    cdef tuple allocators
    cdef int64_t num_constants

    def __dealloc__(self):
        PyMem_RawFree(self.code.data)
        PyMem_RawFree(self.mark_words.data)
        PyMem_RawFree(self.mark_pcs.data)
        PyMem_RawFree(self.sites.data)
        PyMem_RawFree(self.fixups.data)
        PyMem_RawFree(self.cold.data)
        PyMem_RawFree(self.position)
        PyMem_RawFree(self.block_lengths)
        PyMem_RawFree(self.callee_kinds)
        PyMem_RawFree(self.callee_words)

    cdef Image translate(self, Machine machine, bint hooked):
        cdef Image image = Image.__new__(Image)
        cdef int64_t index, i, count
        executable = machine._executable
        self.machine = machine
        self.image = image
        self.hooked = hooked
        self.fueled = machine._limited
        self.level = QUICK if hooked else FUSE if machine._optimize else PLAIN
        self.functions = executable.functions
        self.constants = executable.constants
        self.callables = machine._callables
        self.allocators = machine._allocators
        self.pool = [None]      # position 0 stands for the machine and is not owned
        self.immediates = {}
        image.executable = executable
        image.instr_data = executable.instr_data
        image.instr_offset = executable.instr_offset
        self.data = &image.instr_data[0] if len(executable.instr_data) else NULL
        self.offsets = &image.instr_offset[0] if len(executable.instr_offset) else NULL
        count = len(self.functions)
        self.num_constants = len(self.constants)
        image.const_words = <int64_t*>_zeroed(self.num_constants * sizeof(int64_t))
        try:
            image.funcs = <rvm_func*>_zeroed(count * sizeof(rvm_func))
            self.callee_kinds = <char*>_zeroed(count)
            self.callee_words = <int64_t*>_zeroed(count * sizeof(int64_t))
            for index in range(count):
                self.callee_kinds[index] = self._callee_kind(index, machine._quick[index])
            for index in range(count):
                if self.callee_kinds[index] == AS_VM:
                    self._translate_function(index)
        finally:
            PyMem_RawFree(image.const_words)
            image.const_words = NULL
        self._finish()
        return image

    cdef int _callee_kind(self, int64_t index, object quick) except -1:
        if self.functions[index].kind == isa.FuncKind.BYTECODE:
            return AS_VM
        # A hook sees every call; only closures are still entered by the loop, so as not to recurse.
        if self.hooked and quick != "vm.builtin.invoke_closure":
            return AS_CALL
        return _QUICK.get(quick, AS_CALL)

    cdef int _finish(self) except -1:
        cdef Image image = self.image
        cdef int64_t i, count = len(self.pool)
        cdef rvm_func* func
        image.pool = <PyObject**>_zeroed(count * sizeof(PyObject*))
        image.pool_end = image.pool + count
        for i in range(count):
            value = self.pool[i]
            (image.pool_end - 1 - i)[0] = <PyObject*>value
        (image.pool_end - 1)[0] = <PyObject*>self.machine
        image.owned = self.pool
        image.code = self.code.data
        image.mark_words = self.mark_words.data
        image.mark_pcs = self.mark_pcs.data
        image.num_marks = self.mark_words.count
        image.sites = <rvm_site**>self.sites.data
        image.num_sites = self.sites.count
        self.code.data = self.mark_words.data = self.mark_pcs.data = self.sites.data = NULL
        for i in range(len(self.functions)):
            func = &image.funcs[i]
            func.code = image.code + <int64_t>func.code  # an offset until the code stopped moving
        return 0

    # -- a function

    cdef int _translate_function(self, int64_t index) except -1:
        cdef object info = self.functions[index]
        cdef rvm_func* func = &self.image.funcs[index]
        cdef int64_t pc, i, word, target
        cdef int64_t registers = info.register_file_size
        self.start, self.end = info.start_instr, info.end_instr
        self.scratch = registers
        self.args_area = registers + 2
        self.widest = 0
        self.fixups.count = 0
        self.cold.count = 0
        PyMem_RawFree(self.position)
        self.position = NULL
        self.position = <int64_t*>_zeroed((self.end - self.start + 1) * sizeof(int64_t))
        func.code = <int64_t*>self.code.count
        name = info.name
        func.name = <PyObject*>name
        func.num_params = info.num_args
        func.num_registers = registers + 1
        if self.fueled:
            self._measure_blocks()
        pc = self.start
        while pc < self.end:
            self.position[pc - self.start] = self.code.count
            if self._starts_block(pc):
                self._mark(pc)
                self._emit2(OP_FUEL, self.block_lengths[pc - self.start])
            pc += self._translate_at(pc, self.level)
        i = 0
        self.in_cold = True
        while i < self.cold.count:  # grows while we go: a cold fused run has cold parts of its own
            self._translate_cold(i)
            i += 5
        self.in_cold = False
        i = 0
        while i < self.fixups.count:
            target = self.position[self.fixups.data[i + 2] - self.start]
            word = self.fixups.data[i]
            self.code.data[word] = target - self.fixups.data[i + 1]
            i += 3
        func.frame_words = self.args_area + self.widest
        return 0

    cdef int _measure_blocks(self) except -1:
        """Per pc of the function: instructions of the block that starts there, else 0."""
        cdef int64_t pc, op, block = 0, size = self.end - self.start
        cdef int64_t* lengths
        PyMem_RawFree(self.block_lengths)
        self.block_lengths = NULL
        self.block_lengths = lengths = <int64_t*>_zeroed((size + 1) * sizeof(int64_t))
        lengths[0] = 1
        for pc in range(self.start, self.end):
            op = self._op(pc)
            if op == SRC_GOTO:
                lengths[pc + self._word(pc, 1) - self.start] = 1
            elif op == SRC_IF:
                lengths[pc + self._word(pc, 2) - self.start] = 1
            if op != SRC_CALL:
                lengths[pc + 1 - self.start] = 1
        for pc in range(size):
            if lengths[pc]:
                block = pc
                lengths[pc] = 0
            lengths[block] += 1
        return 0

    cdef int _translate_cold(self, int64_t entry) except -1:
        cdef int64_t start = self.cold.data[entry]
        cdef int64_t first = self.cold.data[entry + 1]
        cdef int64_t end = self.cold.data[entry + 2]
        cdef int64_t resume = self.cold.data[entry + 3]
        cdef int64_t level = self.cold.data[entry + 4]
        cdef int64_t pc
        self.code.data[start + 2] = self.code.count - start
        for pc in range(first, end):
            if pc > first:  # jumps into the middle of a fused run come here
                self.position[pc - self.start] = self.code.count
            self._translate_at(pc, <int>level)
        self._mark(end - 1)
        self._emit2(OP_GOTO, resume - self.code.count)
        return 0

    cdef int _may_give_up(self, int64_t start, int64_t pc, int64_t end, int level) except -1:
        """Ask for a cold copy of the instructions from `pc` up to `end`, for the operation that was
        emitted at `start` and ends here."""
        _append(&self.cold, start)
        _append(&self.cold, pc)
        _append(&self.cold, end)
        _append(&self.cold, self.code.count)
        _append(&self.cold, level)
        return 0

    # -- an instruction

    cdef inline int64_t _word(self, int64_t pc, int64_t i) noexcept:
        return self.data[self.offsets[pc] + i]

    cdef inline int64_t _op(self, int64_t pc) noexcept:
        return self.data[self.offsets[pc]]

    cdef int64_t _translate_at(self, int64_t pc, int level) except -1:
        """Emit the operation for the instruction at `pc`; answers how many instructions it covers."""
        cdef int64_t op = self._op(pc)
        cdef int64_t target, covered, back
        self._mark(pc)
        if op == SRC_CALL:
            covered = self._fused(pc) if level == FUSE else 0
            if covered:
                return covered
            self._call(pc, level)
            return 1
        if op == SRC_RET:
            self._emit2(OP_RET, self._register_operand(self._word(pc, 1)))
        elif op == SRC_GOTO:
            target = self._thread(pc + self._word(pc, 1), level)
            if target != pc + 1:
                self._jump(OP_GOTO if target > pc else OP_GOTO_BACK, target)
            elif level != FUSE:
                self._jump(OP_GOTO, target)  # in cold code the next instruction is elsewhere
        else:
            target = self._thread(pc + self._word(pc, 2), level)
            self._append(OP_IF)
            self._append(self._register_operand(self._word(pc, 1)))
            if target > pc:
                self._fixup(self.code.count - 2, target)
            else:  # over the next jump, which polls
                back = self.code.count
                self._append(5)
                self._emit2(OP_GOTO, 4)
                self._jump(OP_GOTO_BACK, target)
        return 1

    cdef int64_t _thread(self, int64_t target, int level) noexcept:
        """Where a jump to `target` ends up when the gotos that stand there are followed."""
        cdef int hops
        if level != FUSE or self.fueled:
            return target
        for hops in range(GOTO_HOPS):
            if self._op(target) != SRC_GOTO:
                break
            target += self._word(target, 1)
        return target

    cdef int _call(self, int64_t pc, int level) except -1:
        cdef int64_t dst = self._word(pc, 1)
        cdef int64_t callee = self._word(pc, 2)
        cdef int64_t count = self._word(pc, 3)
        cdef const int64_t* args = self.data + self.offsets[pc] + 4
        cdef int kind = self.callee_kinds[callee]
        cdef int64_t register = dst if dst != VOID_REGISTER else self.scratch
        cdef int64_t before = self.code.count
        cdef bint hook = self.hooked and not self.in_cold
        if self.hooked:
            dst = self.scratch  # the hook sees the arguments once more before dst is written
        if hook:
            self._hook_operation(OP_HOOK_BEFORE, register, 0, pc, callee, count, args)
            self._mark(pc)
        if kind == AS_VM:
            self._append(OP_CALL_VM)
            self._append(dst if dst != VOID_REGISTER else self.scratch)
            self._append(<int64_t>&self.image.funcs[callee])
            self._append(count)
            self._append(self.scratch + 1)
            self._operands(args, count)
            if dst == VOID_REGISTER:
                self._emit2(OP_NULL, self.scratch)
        elif kind == AS_CALL or level < QUICK or not self._quick(pc, kind, dst, count, args):
            self._plain_call(dst, callee, count, args)
        if hook:
            self._mark(pc)
            self._hook_operation(OP_HOOK_AFTER, register, self.scratch, pc, callee, count, args)
            self.code.data[before + 2] = self.code.count - before
        if self.fueled and kind == AS_CALL:
            self._append(OP_DEADLINE)
        return 0

    cdef int _plain_call(self, int64_t dst, int64_t callee, int64_t count,
                         const int64_t* args) except -1:
        self._append(OP_CALL if dst != VOID_REGISTER else OP_CALL_VOID)
        self._append(dst)
        self._append(self._function_operand(callee))
        self._append(count)
        self._append(self.args_area)
        self._operands(args, count)
        self.widest = max(self.widest, count)
        return 0

    cdef int _hook_operation(self, int64_t op, int64_t dst, int64_t second, int64_t pc,
                             int64_t callee, int64_t count, const int64_t* args) except -1:
        cdef int64_t place = self._constant_object(pc)
        self._constant_object(self.functions[callee].name)
        cdef int64_t function = self._function_operand(callee)
        self._append(op)
        self._append(dst)
        self._append(second)
        self._append(function)
        self._append(place)
        self._append(count)
        self._operands(args, count)
        return 0

    # -- quickening.  Each answers whether it emitted an operation.

    cdef bint _quick(self, int64_t pc, int kind, int64_t dst, int64_t count,
                     const int64_t* args) except -1:
        cdef int64_t start = self.code.count
        cdef bint discard = dst == VOID_REGISTER
        if kind == AS_COPY and count == 1 and not discard:
            self._append(OP_COPY)
            self._append(dst)
            self._operands(args, 1)
            return True
        if kind == AS_NULL and count == 0 and not discard:
            self._emit2(OP_NULL, dst)
            return True
        if kind == AS_MAKE_TUPLE and not discard:
            self._append(OP_MAKE_TUPLE)
            self._append(dst)
            self._append(count)
            self._operands(args, count)
            return True
        if kind == AS_INVOKE_CLOSURE:
            if not self._quick_invoke(dst, count, args):
                return False
            self._may_give_up(start, pc, pc + 1, PLAIN)
            if discard:
                self._emit2(OP_NULL, self.scratch)
            return True
        if kind in (AS_MATCH_SHAPE, AS_CHECK_TENSOR, AS_CHECK_SHAPE, AS_CHECK_TUPLE, AS_CHECK_FUNC,
                    AS_MATCH_PRIM):
            if not self._quick_check(kind, count, args):
                return False
            self._may_give_up(start, pc, pc + 1, PLAIN)
            if not discard:
                self._emit2(OP_NULL, dst)
            return True
        if discard or not self._quick_value(kind, dst, count, args):
            return False
        if kind != AS_ALLOC_HEAP:
            self._may_give_up(start, pc, pc + 1, PLAIN)
        return True

    cdef bint _quick_check(self, int kind, int64_t count, const int64_t* args) except -1:
        """Operations without a result."""
        cdef int64_t descr = 0
        if kind == AS_CHECK_FUNC and count == 2:
            self._emit_slow(OP_CHECK_FUNC, 0)
            self._operands(args, 1)
            return True
        if kind == AS_CHECK_TENSOR:
            if not self._tensor_check(count, args, &descr):
                return False
            self._emit_slow(OP_CHECK_TENSOR, 0)
            self._operands(args, 1)
            self._append(ARG_VALUE(args[1]))
            self._append(descr)
            return True
        if kind == AS_MATCH_SHAPE:
            if not self._shape_match(count, args):
                return False
            self._emit_slow(OP_MATCH_SHAPE, 0)
            self._operands(args, 2)
            self._pattern(args + 2)
            return True
        if kind == AS_MATCH_PRIM:
            if count != 5 or not self._is_immediate(args[2], RVM_MATCH_IMM, RVM_MATCH_SLOT):
                return False
            if not self._is_slot_pair(args + 2, RVM_MATCH_IMM, RVM_MATCH_ANY):
                return False
            self._emit_slow(OP_MATCH_PRIM, 0)
            self._operands(args, 2)
            self._append(ARG_VALUE(args[2]))
            self._append(ARG_VALUE(args[3]))
            return True
        if count != 3 or not self._is_immediate(args[1], -1, INT64_MAX):
            return False
        self._emit_slow(OP_CHECK_SHAPE if kind == AS_CHECK_SHAPE else OP_CHECK_TUPLE, 0)
        self._operands(args, 1)
        self._append(ARG_VALUE(args[1]))
        return True

    cdef bint _quick_value(self, int kind, int64_t dst, int64_t count,
                           const int64_t* args) except -1:
        """Operations with a result."""
        if kind == AS_TUPLE_GETITEM and count == 2 and self._is_immediate(args[1], 0, INT64_MAX):
            self._emit_slow(OP_TUPLE_GETITEM, dst)
            self._operands(args, 1)
            self._append(ARG_VALUE(args[1]))
        elif kind == AS_SHAPE_OF and count == 1:
            self._emit_slow(OP_SHAPE_OF, dst)
            self._operands(args, 1)
            self._append(<int64_t>self._site())
        elif kind == AS_MAKE_SHAPE and self._shape_recipe(count, args):
            self._emit_slow(OP_MAKE_SHAPE, dst)
            self._operands(args, 1)
            self._append(self._last_slot(args + 1, RVM_MAKE_IMM, RVM_MAKE_IMM))
            self._append(<int64_t>self._site())
            self._pairs(args + 1)
        elif kind == AS_MAKE_PRIM and count == 3 and (
                self._is_immediate(args[1], RVM_MAKE_IMM, RVM_MAKE_SLOT)
                and self._is_slot_pair(args + 1, RVM_MAKE_IMM, RVM_MAKE_IMM)):
            self._emit_slow(OP_MAKE_PRIM, dst)
            self._operands(args, 1)
            self._append(ARG_VALUE(args[1]))
            self._append(ARG_VALUE(args[2]))
        elif kind == AS_READ_COND and count == 1:
            self._emit_slow(OP_READ_COND, dst)
            self._operands(args, 1)
        elif kind == AS_ALLOC_HEAP and count == 2 and (
                self._is_immediate(args[1], 0, MAX_HEAP_SLOTS) and self._is_machine(args[0])):
            self._emit_slow(OP_ALLOC_HEAP, dst)
            self._append(ARG_VALUE(args[1]))
            self._append(<int64_t>self._site())
        elif kind == AS_ALLOC_STORAGE:
            return self._quick_storage(dst, count, args)
        elif kind == AS_ALLOC_TENSOR:
            return self._quick_tensor(dst, count, args)
        elif kind == AS_MAKE_CLOSURE and count >= 1:
            self._emit_slow(OP_MAKE_CLOSURE, dst)
            self._operands(args, 1)
            self._append(count - 1)
            self._operands(args + 1, count - 1)
        else:
            return False
        return True

    cdef bint _quick_invoke(self, int64_t dst, int64_t count, const int64_t* args) except -1:
        if count < 2 or not self._is_machine(args[0]):
            return False
        self._emit_slow(OP_INVOKE_CLOSURE, dst if dst != VOID_REGISTER else self.scratch)
        self._operands(args + 1, 1)
        self._append(count - 2)
        self._append(self.scratch + 1)
        self._operands(args + 2, count - 2)
        return True

    cdef bint _quick_storage(self, int64_t dst, int64_t count, const int64_t* args) except -1:
        cdef Allocator allocator = self._allocator(count, args)
        cdef int64_t nbytes
        if allocator is None:
            return False
        itemsize = self._constant(args[3]).itemsize
        if ARG_KIND(args[1]) == ARG_CONSTANT:
            nbytes = self._static_bytes(args[1], itemsize)
            if nbytes < 0:
                return False
            self._emit_slow(OP_ALLOC_STORAGE, dst)
            self._append(<int64_t><PyObject*>allocator)
            self._append(nbytes)
            return True
        self._emit_slow(OP_ALLOC_STORAGE_DYN, dst)
        self._append(<int64_t><PyObject*>allocator)
        self._operands(args + 1, 1)
        self._append(itemsize)
        return True

    cdef bint _quick_tensor(self, int64_t dst, int64_t count, const int64_t* args) except -1:
        if not self._is_tensor_alloc(count, args):
            return False
        self._emit_slow(OP_ALLOC_TENSOR, dst)
        self._operands(args, 1)
        self._append(ARG_VALUE(args[1]))
        self._operands(args + 2, 1)
        dtype = self._constant(args[3])
        self._append(<int64_t><PyObject*>dtype)
        return True

    # -- fusion: answers how many instructions became one operation, 0 for none

    cdef int64_t _fused(self, int64_t pc) except -1:
        cdef int kind = self.callee_kinds[self._word(pc, 2)]
        cdef int64_t start = self.code.count
        cdef int64_t covered = 0
        if kind == AS_READ_COND:
            covered = self._fused_read_if(pc)
        elif kind == AS_CHECK_TENSOR:
            covered = self._fused_check_match(pc)
        elif kind == AS_ALLOC_STORAGE:
            covered = self._fused_alloc(pc)
        if covered:
            self._may_give_up(start, pc, pc + covered, QUICK)
        return covered

    cdef int64_t _fused_read_if(self, int64_t pc) except -1:
        cdef int64_t dst = self._word(pc, 1)
        cdef int64_t target
        if dst == VOID_REGISTER or self._word(pc, 3) != 1 or pc + 1 >= self.end:
            return 0
        if self._op(pc + 1) != SRC_IF or self._word(pc + 1, 1) != dst or self._starts_block(pc + 1):
            return 0
        target = self._thread(pc + 1 + self._word(pc + 1, 2), FUSE)
        if target <= pc + 1:
            return 0
        self._emit_slow(OP_READ_IF, dst)
        self._operands(self.data + self.offsets[pc] + 4, 1)
        self._fixup(self.code.count - 4, target)
        return 2

    cdef int64_t _fused_check_match(self, int64_t pc) except -1:
        cdef const int64_t* check = self.data + self.offsets[pc]
        cdef const int64_t* match
        cdef int64_t descr = 0
        if check[1] != VOID_REGISTER or not self._next_call_is(pc, AS_MATCH_SHAPE):
            return 0
        match = self.data + self.offsets[pc + 1]
        if match[1] != VOID_REGISTER or match[4] != check[4]:
            return 0
        if not self._tensor_check(check[3], check + 4, &descr):
            return 0
        if not self._shape_match(match[3], match + 4):
            return 0
        self._emit_slow(OP_CHECK_MATCH, 0)
        self._operands(check + 4, 1)
        self._append(ARG_VALUE(check[5]))
        self._append(descr)
        self._operands(match + 5, 1)
        self._pattern(match + 6)
        return 2

    cdef int64_t _fused_alloc(self, int64_t pc) except -1:
        """A storage of constant size, one tensor on it, and the storage's kill."""
        cdef const int64_t* storage = self.data + self.offsets[pc]
        cdef const int64_t* tensor
        cdef const int64_t* kill
        cdef Allocator allocator
        cdef int64_t nbytes, offset, rank
        cdef cnp.npy_intp dims[RVM_MAX_DIMS]
        if self.machine._max_live != INT64_MAX or self.fueled:
            return 0
        if not self._next_call_is(pc, AS_ALLOC_TENSOR) or not self._next_call_is(pc + 1, AS_NULL):
            return 0
        tensor = self.data + self.offsets[pc + 1]
        kill = self.data + self.offsets[pc + 2]
        if storage[1] == VOID_REGISTER or tensor[1] == VOID_REGISTER or tensor[1] == storage[1]:
            return 0
        if kill[1] != storage[1] or kill[3] != 0 or tensor[4] != storage[1]:
            return 0
        if ARG_KIND(tensor[6]) != ARG_CONSTANT or not self._is_tensor_alloc(tensor[3], tensor + 4):
            return 0
        allocator = self._allocator(storage[3], storage + 4)
        if allocator is None or ARG_KIND(storage[5]) != ARG_CONSTANT:
            return 0
        nbytes = self._static_bytes(storage[5], self._constant(storage[7]).itemsize)
        shape = self._constant(tensor[6])
        offset = ARG_VALUE(tensor[5])
        dtype = self._constant(tensor[7])
        if not 0 <= nbytes <= MAX_STATIC_BYTES or not rvm_shape_dims(
                <PyObject*>shape, -1, dims, &rank):
            return 0
        if not _fits(nbytes, offset, rank, dims, dtype.itemsize):
            return 0
        self._emit_slow(OP_ALLOC_STATIC, tensor[1])
        self._append(storage[1])
        self._append(<int64_t><PyObject*>allocator)
        self._append(nbytes)
        self._append(offset)
        self._operands(tensor + 6, 1)
        self._append(<int64_t><PyObject*>dtype)
        self._append(<int64_t>self._site())
        return 3

    cdef bint _next_call_is(self, int64_t pc, int kind) noexcept:
        return (pc + 1 < self.end and self._op(pc + 1) == SRC_CALL
                and self.callee_kinds[self._word(pc + 1, 2)] == kind
                and not self._starts_block(pc + 1))

    cdef bint _starts_block(self, int64_t pc) noexcept:
        # With fuel, the charge for a block stands before its first operation.
        return self.fueled and self.block_lengths[pc - self.start] != 0

    # -- what arguments are, as far as the code shows it

    cdef object _constant(self, int64_t word):
        """The constant that an argument word names, or None."""
        return self.constants[ARG_VALUE(word)] if ARG_KIND(word) == ARG_CONSTANT else None

    cdef inline bint _is_immediate(self, int64_t word, int64_t low, int64_t high) noexcept:
        return ARG_KIND(word) == ARG_IMMEDIATE and low <= ARG_VALUE(word) <= high

    cdef inline bint _is_machine(self, int64_t word) noexcept:
        return word == VM_REGISTER

    cdef bint _is_slot_pair(self, const int64_t* pair, int64_t plain, int64_t other) noexcept:
        """Whether (code, value) are immediates, and the value a heap slot unless the code is `plain`
        or `other`."""
        if ARG_KIND(pair[0]) != ARG_IMMEDIATE or ARG_KIND(pair[1]) != ARG_IMMEDIATE:
            return False
        return ARG_VALUE(pair[0]) in (plain, other) or ARG_VALUE(pair[1]) >= 0

    cdef bint _is_pattern(self, int64_t count, const int64_t* args, int64_t last_code,
                          int64_t other) noexcept:
        """Whether n and its (code, value) pairs at `args` are immediates; `count` words are there."""
        cdef int64_t i, n
        if count < 1 or not self._is_immediate(args[0], 0, INT64_MAX):
            return False
        n = ARG_VALUE(args[0])
        if n > RVM_MAX_DIMS or count != 1 + 2 * n:
            return False
        for i in range(n):
            if not self._is_immediate(args[1 + 2 * i], 0, last_code):
                return False
            if not self._is_slot_pair(args + 1 + 2 * i, 0, other):
                return False
        return True

    cdef bint _shape_match(self, int64_t count, const int64_t* args) noexcept:
        """match_shape: x, heap, n, pairs, error context."""
        return count >= 4 and self._is_pattern(count - 3, args + 2, RVM_MATCH_SLOT, RVM_MATCH_ANY)

    cdef bint _shape_recipe(self, int64_t count, const int64_t* args) noexcept:
        """make_shape: heap, n, pairs."""
        return count >= 2 and self._is_pattern(count - 1, args + 1, RVM_MAKE_SLOT, RVM_MAKE_IMM)

    cdef bint _tensor_check(self, int64_t count, const int64_t* args, int64_t* descr) except -1:
        """check_tensor_info: x, ndim, [dtype], error context."""
        if count not in (3, 4) or not self._is_immediate(args[1], -1, INT64_MAX):
            return False
        descr[0] = 0
        if count == 4:
            if ARG_KIND(args[2]) == ARG_CONSTANT:
                dtype = self._constant(args[2])
                if isinstance(dtype, np.dtype):
                    descr[0] = <int64_t><PyObject*>dtype
                elif dtype is not None:
                    return False
            elif args[2] != VOID_REGISTER:
                return False
        return True

    cdef bint _is_tensor_alloc(self, int64_t count, const int64_t* args) except -1:
        """alloc_tensor: storage, offset, shape, dtype, [scope]."""
        if count not in (4, 5) or not self._is_immediate(args[1], 0, INT64_MAX):
            return False
        dtype = self._constant(args[3])
        if not isinstance(dtype, np.dtype) or dtype.hasobject or dtype.subdtype is not None:
            return False
        return count == 4 or self._constant(args[4]) == "global"

    cdef Allocator _allocator(self, int64_t count, const int64_t* args):
        """The allocator of alloc_storage: ctx, shape, device index, dtype, scope; or None."""
        if count != 5 or not self._is_machine(args[0]):
            return None
        if not self._is_immediate(args[2], -1, len(self.allocators) - 1):
            return None
        if not isinstance(self._constant(args[3]), np.dtype) or self._constant(args[4]) != "global":
            return None
        allocator = self.allocators[ARG_VALUE(args[2])]
        # Another class may have ideas of its own about alloc().
        return allocator if type(allocator) in (NaiveAllocator, PooledAllocator) else None

    cdef int64_t _static_bytes(self, int64_t word, int64_t itemsize) except -2:
        """Bytes of a constant Shape of items; -1 if it is none or does not fit."""
        cdef object total = itemsize
        shape = self._constant(word)
        if not isinstance(shape, Shape):
            return -1
        for dim in shape:
            if dim < 0:
                return -1
            total *= dim
        return total if total <= INT64_MAX else -1

    # -- emission

    cdef inline int _append(self, int64_t value) except -1:
        return _append(&self.code, value)

    cdef int _emit2(self, int64_t op, int64_t operand) except -1:
        self._append(op)
        return self._append(operand)

    cdef int _emit_slow(self, int64_t op, int64_t dst) except -1:
        """An operation's head: the distance to its cold part is filled in later."""
        self._append(op)
        self._append(dst)
        return self._append(0)

    cdef int _jump(self, int64_t op, int64_t target) except -1:
        self._append(op)
        return self._fixup(self.code.count - 1, target)

    cdef int _fixup(self, int64_t start, int64_t target) except -1:
        """Append the distance from the operation at `start` to the source pc `target`, once known."""
        _append(&self.fixups, self.code.count)
        _append(&self.fixups, start)
        _append(&self.fixups, target)
        return self._append(0)

    cdef int _mark(self, int64_t pc) except -1:
        _append(&self.mark_words, self.code.count)
        return _append(&self.mark_pcs, pc)

    cdef int _pairs(self, const int64_t* words) except -1:
        """n and its (code, value) pairs."""
        cdef int64_t i, n = ARG_VALUE(words[0])
        self._append(n)
        for i in range(2 * n):
            self._append(ARG_VALUE(words[1 + i]))
        return 0

    cdef int _pattern(self, const int64_t* words) except -1:
        """The greatest heap slot of a match pattern, then the pattern."""
        self._append(self._last_slot(words, RVM_MATCH_IMM, RVM_MATCH_ANY))
        return self._pairs(words)

    cdef int64_t _last_slot(self, const int64_t* words, int64_t plain, int64_t other) noexcept:
        cdef int64_t i, last = -1
        for i in range(ARG_VALUE(words[0])):
            if ARG_VALUE(words[1 + 2 * i]) not in (plain, other):
                last = max(last, ARG_VALUE(words[2 + 2 * i]))
        return last

    cdef int _operands(self, const int64_t* words, int64_t count) except -1:
        cdef int64_t i
        for i in range(count):
            self._append(self._operand(words[i]))
        return 0

    cdef int64_t _operand(self, int64_t word) except? -1:
        """Register number or pool word of an argument word."""
        cdef int64_t kind = ARG_KIND(word)
        cdef int64_t value = ARG_VALUE(word)
        if kind == ARG_REGISTER:
            return self._register_operand(value)
        if kind == ARG_IMMEDIATE:
            return self._constant_object(value)
        if kind == ARG_FUNCTION:
            return self._function_operand(value)
        if self.image.const_words[value] == 0:
            self.image.const_words[value] = self._pool_object(self.constants[value])
        return self.image.const_words[value]

    cdef int64_t _register_operand(self, int64_t register) except? -1:
        if register == VM_REGISTER:
            return -1  # position 0 of the pool
        if register == VOID_REGISTER:
            return self._constant_object(None)
        return register

    cdef int64_t _function_operand(self, int64_t index) except? -1:
        if self.callee_words[index] == 0:
            self.callee_words[index] = self._pool_object(
                self.machine._function(index) if self.callee_kinds[index] == AS_VM
                else self.callables[index])
        return self.callee_words[index]

    cdef int64_t _constant_object(self, object value) except? -1:
        """Pool word of an int or None that the translator makes up, shared."""
        found = self.immediates.get(value)
        if found is None:
            found = self.immediates[value] = self._pool_object(value)
        return found

    cdef int64_t _pool_object(self, object value) except? -1:
        self.pool.append(value)
        return -len(self.pool)

    cdef rvm_site* _site(self) except NULL:
        cdef rvm_site* site = <rvm_site*>_zeroed(sizeof(rvm_site))
        try:
            _append(&self.sites, <int64_t>site)
        except MemoryError:
            PyMem_RawFree(site)
            raise
        return site


cdef void* _zeroed(size_t nbytes) except NULL:
    cdef void* memory = PyMem_RawCalloc(1, max(nbytes, 1))
    if memory is NULL:
        raise MemoryError(f"no memory for {nbytes} bytes of translated code")
    return memory


# ---- the machine -----------------------------------------------------------------------------


cdef class Machine:
    """What runs an executable.  `relaxvm.VirtualMachine` puts the user's interface on top."""

    cdef object _executable
    cdef list _callables
    cdef list _quick
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
            quick: per entry the name of the builtin if the callable is its reference, else None.
            allocators: one per device, the last is the host's.
            limits: `relaxvm.Limits`.
            optimize: whether builtins are quickened and fused.
        """
        self._executable = executable
        self._callables = list(callables)
        self._quick = list(quick)
        self._allocators = tuple(allocators)
        self._optimize = optimize
        self._max_depth = limits.call_depth
        self._max_live = _bound(limits.live_bytes)
        self._fuel = _bound(limits.fuel)
        self._wall_ns = INT64_MAX if limits.wall_time is None else _bound(int(limits.wall_time * 1e9))
        self._limited = limits.fuel is not None or limits.wall_time is not None
        self._hook = None
        self._image = self._plain_image = Translator().translate(self, False)

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
        if self._plain_image is None:
            raise RuntimeError("the virtual machine is closed")
        if hook is None:
            self._hook = None
            self._image = self._plain_image
        else:
            if self._image is self._plain_image:
                self._image = Translator().translate(self, True)
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


cdef void _use_vectorcall(type cls, Py_ssize_t offset) noexcept:
    """Make calls of a class's instances go through the function pointer at `offset`."""
    cdef _typeobject* slots = <_typeobject*><PyObject*>cls
    slots.tp_vectorcall_offset = offset
    slots.tp_call = PyVectorcall_Call
    slots.tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL
    PyType_Modified(<PyTypeObject*>slots)


cdef VMFunction _some_function = VMFunction.__new__(VMFunction)
cdef Closure _some_closure = Closure.__new__(Closure)
_use_vectorcall(VMFunction, <char*>&_some_function._vectorcall - <char*><PyObject*>_some_function)
_use_vectorcall(Closure, <char*>&_some_closure._vectorcall - <char*><PyObject*>_some_closure)

globals()["Storage"] = Storage  # a name that is cimported is not in the module by itself
