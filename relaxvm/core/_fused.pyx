# cython: auto_pickle=False
"""Fused elementwise kernels: chains of inner loops, run block by block.

A block is small enough for intermediate results to stay in the first-level cache.  The text form of
chains and its meaning are described in `relaxvm.kernels.fused`; a `FusedPlan` is a chain compiled for
given data types.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy, memset

from functools import update_wrapper

from .floating import report_status

cimport numpy as cnp

from ._deadlines cimport look
from ._vectorcall cimport use_vectorcall

cnp.import_array()

cdef extern from "_fused_impl.h" nogil:
    ctypedef void (*loop_func "PyUFuncGenericFunction")(
        char**, const cnp.npy_intp*, const cnp.npy_intp*, void*) noexcept
    ctypedef struct ufunc_object "PyUFuncObject":
        int nargs
        loop_func* functions
        void** data

    enum:
        RVM_ONCE_BYTES
        RVM_RELEASE_BYTES
        RVM_INPUT_FLAGS

    int rvm_float_status() noexcept
    void rvm_clear_float_status() noexcept
    int rvm_find_loop(ufunc_object*, const int*) noexcept
    loop_func rvm_find_cast(int, int) noexcept
    loop_func rvm_find_where(cnp.npy_intp) noexcept
    bint rvm_are_apart(const char*, cnp.npy_intp, const char*, cnp.npy_intp) noexcept
    bint rvm_same_shape(cnp.PyArrayObject*, cnp.PyArrayObject*) noexcept
    cnp.npy_intp rvm_size(cnp.PyArrayObject*) noexcept
    bint rvm_is_plain(PyObject*, int) noexcept
    void rvm_spread(char*, const char*, cnp.npy_intp, cnp.npy_intp, cnp.npy_intp, cnp.npy_intp,
                    cnp.npy_intp) noexcept

cdef extern from "numpy/arrayobject.h" nogil:
    enum:
        NPY_ARRAY_CARRAY
    int PyArray_NDIM(cnp.PyArrayObject*) noexcept
    cnp.npy_intp PyArray_DIM(cnp.PyArrayObject*, int) noexcept
    void* PyArray_DATA(cnp.PyArrayObject*) noexcept
    PyObject* PyArray_DESCR(cnp.PyArrayObject*) noexcept
    bint PyArray_CheckExact(PyObject*) noexcept

cdef extern from "Python.h":
    Py_ssize_t PyVectorcall_NARGS(size_t) noexcept
    PyObject* PyObject_Vectorcall(PyObject*, PyObject* const*, size_t, PyObject*) noexcept
    PyObject* PyDict_GetItemWithError(PyObject*, PyObject*) except? NULL
    bint PyUnicode_CheckExact(PyObject*) noexcept
    PyObject* PyList_GET_ITEM(list, Py_ssize_t) noexcept
    PyObject* Py_None
    void Py_INCREF(PyObject*) noexcept
    ctypedef struct PyTupleObject:
        PyObject* ob_item[1]

cdef enum:
    MAX_ARGS = 64           # inputs; also outputs
    MAX_STEPS = 512
    MAX_PLACES = 1024
    MAX_INPUTS = 4          # of a loop
    BLOCK_BYTES = 8192      # of the widest operand in a block
    SMALL_BYTES = 20480     # up to so many bytes of the widest operand everything is one block
    LONG_REPEAT = 512       # an element that repeats so often is not copied: a block ends where it does
    SCRATCH_BYTES = 1 << 17
    PIECE_STEPS = 1 << 21   # elements of all steps between looks at the clock
    LATEST = 64             # chains whose plan is found without a dictionary lookup

# Memory for blocks, used by calls that hold the interpreter lock.  It stays in the cache between calls.
cdef char[SCRATCH_BYTES + 64] _scratch

# How an input is laid over the result: same shape; one element for all; or elements that repeat.
cdef enum Mode:
    FULL
    ONE
    SPREAD

ctypedef struct Place:
    # An operand.  Places are numbered: inputs, then numbers, then the results of the steps.
    cnp.npy_intp size       # bytes of an element
    PyObject* descr         # data type, borrowed from `_owned`; NULL for a number
    Mode mode
    int slot                # spread input or step: index of its block in the scratch memory; else -1
    int out                 # step: index of the output that it computes; else -1
    int home                # step: index of the output whose memory holds its block, except when that
                            # output is also an input; else -1
    char* number            # bytes of a number; else NULL

ctypedef struct Step:
    loop_func loop
    void* data
    int nin, nargs
    int args[MAX_INPUTS + 1]                # places of the inputs, then of the result
    int ignored             # bits of the floating-point status that are not reported


def find_loop(ufunc, dtypes):
    """Index in the ufunc's table of the loop for these data types (the result's is last); -1 if there
    is none."""
    cdef int types[8]
    cdef int i
    for i in range(len(dtypes)):
        types[i] = dtypes[i].num
    return rvm_find_loop(<ufunc_object*><PyObject*>ufunc, types)


def has_cast(from_dtype, to_dtype):
    """Whether there is a loop for this conversion."""
    return rvm_find_cast(from_dtype.num, to_dtype.num) is not NULL


def mode_of(cnp.ndarray x, cnp.ndarray out):
    """How an input is laid over a result: 0 same shape, 1 one element for all, 2 elements that
    repeat; None for anything else."""
    cdef cnp.npy_intp size, repeat
    cdef int mode = _mode(<cnp.PyArrayObject*>x, <cnp.PyArrayObject*>out, &size, &repeat)
    return None if mode < 0 else mode


cdef int _mode(cnp.PyArrayObject* x, cnp.PyArrayObject* out, cnp.npy_intp* size,
               cnp.npy_intp* repeat) noexcept:
    """A `Mode`, or -1.  For SPREAD, sets `size` to the number of elements and `repeat` to the number
    of times that each is repeated in a row."""
    cdef int lead = PyArray_NDIM(out) - PyArray_NDIM(x)
    cdef int i, first = -1, last = -1
    if rvm_same_shape(x, out):
        return FULL
    if lead < 0:
        return -1
    size[0] = rvm_size(x)
    if size[0] == 1:
        return ONE
    for i in range(PyArray_NDIM(x)):
        if PyArray_DIM(x, i) != 1:
            first = i if first < 0 else first
            last = i
    for i in range(first, last + 1):
        if PyArray_DIM(x, i) != PyArray_DIM(out, lead + i):
            return -1
    repeat[0] = 1
    for i in range(lead + last + 1, PyArray_NDIM(out)):
        repeat[0] *= PyArray_DIM(out, i)
    return SPREAD


@cython.final
cdef class FusedPlan:
    """A chain of loops for inputs of given data types and modes.

    Args:
        inputs: (dtype, mode) per input.
        numbers: bytes of the numbers in the chain.
        steps: (loop, places, dtype, ignored status, name, in place) each; `loop` is a ufunc and an
            index in its table, or None for a choice or a conversion; places count inputs, then
            numbers, then steps; `in place`: whether the result may be in the memory of an operand.
        results: the steps that compute the outputs.
        below: the kernel of chains leaves results of as many elements or more to its implementations
            in C, which are faster there; 0 if there are none.
    """

    cdef Place* _places
    cdef Step* _steps
    cdef int _num_inputs, _num_places, _num_steps, _num_outs, _num_slots
    cdef bint _has_spread           # whether there are inputs that repeat
    cdef bint _has_twins            # whether a step computes more than one output
    cdef cnp.npy_intp _widest       # bytes of the widest element
    cdef int* _results              # places of the outputs
    cdef cnp.npy_intp _below
    cdef tuple _owned, _names

    def __cinit__(self, list inputs, list numbers, list steps, list results,
                  cnp.npy_intp below=0):
        cdef int i, k, first
        cdef Place* place
        cdef Step* step
        first = len(inputs) + len(numbers)
        if max(len(inputs), len(results)) > MAX_ARGS or len(steps) > MAX_STEPS or (
                first + len(steps) > MAX_PLACES):
            raise ValueError("FusedPlan: too long")
        self._num_inputs = len(inputs)
        self._num_steps = len(steps)
        self._num_outs = len(results)
        self._below = below
        self._num_places = first + len(steps)
        self._owned = (inputs, numbers, steps)
        self._names = tuple([steps[i][4] for i in range(len(steps))])
        self._places = <Place*>PyMem_Calloc(self._num_places + 1, sizeof(Place))
        self._steps = <Step*>PyMem_Calloc(self._num_steps + 1, sizeof(Step))
        self._results = <int*>PyMem_Calloc(self._num_outs + 1, sizeof(int))
        if self._places is NULL or self._steps is NULL or self._results is NULL:
            raise MemoryError
        for i in range(self._num_places):
            self._places[i].slot = self._places[i].out = self._places[i].home = -1
        for i, (dtype, mode) in enumerate(inputs):
            place = &self._places[i]
            place.size = dtype.itemsize
            place.descr = <PyObject*>dtype
            place.mode = mode
            self._widest = max(self._widest, place.size)
        for i, number in enumerate(numbers):
            place = &self._places[len(inputs) + i]
            place.mode = ONE
            place.number = <char*><bytes>number
            place.size = len(number)
        for i, (loop, args, dtype, ignored, _, _) in enumerate(steps):
            step = &self._steps[i]
            place = &self._places[first + i]
            place.size = dtype.itemsize
            place.descr = <PyObject*>dtype
            self._widest = max(self._widest, place.size)
            step.nin = len(args)
            step.nargs = step.nin + 1
            step.ignored = ignored
            for k in range(step.nin):
                step.args[k] = args[k]
            step.args[step.nin] = first + i
            self._find(step, loop, dtype, steps, inputs)
        for i, k in enumerate(results):
            self._results[i] = first + k
            place = &self._places[first + k]
            if place.out < 0:
                place.out = place.home = i
            else:
                self._has_twins = True
        last_use = self._assign_slots(first)
        self._assign_homes(first, last_use, [steps[i][5] for i in range(len(steps))])

    cdef int _find(self, Step* step, object loop, object dtype, list steps, list inputs) except -1:
        cdef ufunc_object* ufunc
        if loop is not None:
            ufunc = <ufunc_object*><PyObject*>(loop[0])
            step.loop = ufunc.functions[<int>loop[1]]
            step.data = ufunc.data[<int>loop[1]]
        elif step.nin == 3:
            step.loop = rvm_find_where(dtype.itemsize)
        else:
            source = step.args[0]
            first = self._num_places - self._num_steps
            source = inputs[source][0] if source < self._num_inputs else steps[source - first][2]
            step.loop = rvm_find_cast(source.num, dtype.num)
        if step.loop is NULL:
            raise ValueError("FusedPlan: no such loop")
        return 0

    cdef list _assign_slots(self, int first):
        """Give each step a slot of the scratch memory until its last use.  Steps that compute outputs
        keep theirs to the end of the block.  Returns the last use of each place, as a step."""
        cdef list last_use = [i - first for i in range(self._num_places)]
        cdef list free = []
        cdef int i, k, place
        for i in range(self._num_steps):
            for k in range(self._steps[i].nin):
                last_use[self._steps[i].args[k]] = i
        for i in range(self._num_inputs):
            if self._places[i].mode == SPREAD:
                self._has_spread = True
                self._places[i].slot = self._num_slots
                self._num_slots += 1
        for i in range(self._num_steps):
            if not free:
                free.append(self._num_slots)
                self._num_slots += 1
            self._places[first + i].slot = free.pop()
            for place in {self._steps[i].args[k] for k in range(self._steps[i].nin)}:
                if place >= first and last_use[place] == i and self._places[place].out < 0:
                    free.append(self._places[place].slot)
        return last_use

    cdef int _assign_homes(self, int first, list last_use, list in_place) except -1:
        """Let intermediate results use the memory of an output that is computed later."""
        cdef list busy = [-1] * self._num_outs
        cdef int i, k, end, last
        for i in range(self._num_steps):
            for k in range(self._num_outs):
                end = self._results[k] - first
                last = last_use[first + i]
                if (self._places[first + i].home < 0 and self._places[first + end].out == k
                        and self._places[first + i].size == self._places[first + end].size
                        and i < end and (last < end or last == end and in_place[end])
                        and (busy[k] < i or busy[k] == i and in_place[i])):
                    self._places[first + i].home = k
                    busy[k] = last
        return 0

    def __dealloc__(self):
        PyMem_Free(self._places)
        PyMem_Free(self._steps)
        PyMem_Free(self._results)

    cdef bint leaves(self, PyObject* out) noexcept:
        """Whether the kernel of chains leaves a result like this one to its implementations in C."""
        return self._below and PyArray_CheckExact(out) and (
            rvm_size(<cnp.PyArrayObject*>out) >= self._below)

    cdef int run(self, PyObject* const* operands, Py_ssize_t given) except -1:
        """Compute the outputs, if the operands are of the data types and modes of the plan; returns
        whether they are.

        Args:
            operands: the inputs, the text of the chain (ignored), the outputs.
        """
        cdef cnp.PyArrayObject* out
        cdef cnp.PyArrayObject* x
        cdef PyObject* const* outputs = operands + self._num_inputs + 1
        cdef Place* place
        cdef int i, k, status
        cdef int statuses[MAX_STEPS]
        cdef cnp.npy_intp elements, nbytes, piece, start, end
        cdef bint aliased = False
        cdef char* data[MAX_ARGS]
        cdef char* outs[MAX_ARGS]
        cdef char* ends[MAX_ARGS]               # of the outputs
        cdef cnp.npy_intp sizes[MAX_ARGS]
        cdef cnp.npy_intp repeats[MAX_ARGS]
        if given != self._num_inputs + 1 + self._num_outs:
            return False
        out = <cnp.PyArrayObject*>outputs[0]
        for k in range(self._num_outs):
            if not rvm_is_plain(outputs[k], NPY_ARRAY_CARRAY):
                return False
            x = <cnp.PyArrayObject*>outputs[k]
            if PyArray_DESCR(x) is not self._places[self._results[k]].descr:
                return False
            if k and not rvm_same_shape(x, out):
                return False
            outs[k] = <char*>PyArray_DATA(x)
        elements = rvm_size(out)
        for k in range(self._num_outs):
            ends[k] = outs[k] + elements * self._places[self._results[k]].size
        for i in range(self._num_inputs):
            place = &self._places[i]
            if not rvm_is_plain(operands[i], RVM_INPUT_FLAGS):
                return False
            x = <cnp.PyArrayObject*>operands[i]
            if PyArray_DESCR(x) is not place.descr:
                return False
            data[i] = <char*>PyArray_DATA(x)
            nbytes = place.size * elements
            if place.mode == FULL:
                if not rvm_same_shape(x, out):
                    return False
            elif _mode(x, out, &sizes[i], &repeats[i]) == <int>place.mode:
                nbytes = place.size * rvm_size(x)
            else:
                return False
            for k in range(self._num_outs):
                if data[i] + nbytes <= outs[k] or ends[k] <= data[i]:
                    continue
                if data[i] != outs[k] or data[i] + nbytes != ends[k] or place.mode != FULL:
                    return False
                aliased = True
        for i in range(1, self._num_outs):
            for k in range(i):
                if not (ends[i] <= outs[k] or ends[k] <= outs[i]):
                    return False
        if elements == 0:
            return True
        if elements * self._widest < RVM_RELEASE_BYTES:
            status = self._blocks(0, elements, elements, data, sizes, repeats, outs, aliased,
                                  statuses, False)
            self._report(status, statuses)
            return True
        piece = max(PIECE_STEPS // max(1, self._num_steps) // BLOCK_BYTES, 1) * BLOCK_BYTES
        start = 0
        while True:
            end = min(start + piece, elements)
            with nogil:
                status = self._blocks(start, end, elements, data, sizes, repeats, outs, aliased,
                                      statuses, True)
            self._report(status, statuses)
            start = end
            if start == elements:
                return True
            look()

    cdef int _report(self, int status, const int* statuses) except -1:
        """Report what `_blocks` returned."""
        cdef int i
        if status < 0:
            raise MemoryError("fused: no memory for the blocks")
        if status:
            for i in range(self._num_steps):
                if statuses[i]:
                    report_status(statuses[i], self._names[i])
        return 0

    cdef int _blocks(self, cnp.npy_intp start, cnp.npy_intp end, cnp.npy_intp elements, char** data,
                     const cnp.npy_intp* sizes, const cnp.npy_intp* repeats, char** outs,
                     bint aliased, int* statuses, bint shared) noexcept nogil:
        """Run the chain over the blocks from one element to another; returns 1 if a floating-point
        status is to be reported, -1 if there is no memory, else 0.  `start` is a multiple of the block.
        `shared`: whether other threads may run chains at the same time."""
        cdef cnp.npy_intp block, room, count
        cdef char* bases[MAX_PLACES]            # where the elements of a block are
        cdef cnp.npy_intp strides[MAX_PLACES]   # bytes from one of them to the next
        cdef char* args[MAX_INPUTS + 1]
        cdef cnp.npy_intp arg_strides[MAX_INPUTS + 1]
        cdef int i, k, status, any_status = 0
        cdef Place* place
        cdef Step* step
        cdef char* memory = NULL
        cdef char* slots = _scratch
        # The status is not cleared for small results: in the rare case that it is set, which may be from
        # before, they are computed again.
        cdef bint is_clean = aliased or elements * self._widest > RVM_ONCE_BYTES
        block = elements
        if elements * self._widest > SMALL_BYTES:
            block = min(elements, <cnp.npy_intp>BLOCK_BYTES // self._widest)
        room = (block * self._widest + 127) & ~<cnp.npy_intp>63
        if shared or self._num_slots * room > SCRATCH_BYTES:
            slots = memory = <char*>PyMem_RawMalloc(self._num_slots * room + 64)
            if memory is NULL:
                return -1
        slots = <char*>((<uintptr_t>slots + 63) & ~<uintptr_t>63)
        for i in range(self._num_inputs):
            place = &self._places[i]
            bases[i] = data[i]
            strides[i] = place.size
            if place.mode == FULL:
                bases[i] += start * place.size
            elif place.mode == ONE or repeats[i] >= LONG_REPEAT:
                strides[i] = 0
        for i in range(self._num_inputs, self._num_places):
            place = &self._places[i]
            strides[i] = 0 if place.number is not NULL else place.size
            if place.number is not NULL:
                bases[i] = place.number
            elif place.home >= 0 and not aliased:
                bases[i] = outs[place.home] + start * place.size
            else:
                bases[i] = slots + place.slot * room
        if is_clean:
            rvm_clear_float_status()
        while True:
            count = min(block, end - start)
            if self._has_spread:
                for i in range(self._num_inputs):
                    place = &self._places[i]
                    if place.mode == SPREAD and strides[i] == 0:
                        bases[i] = data[i] + start // repeats[i] % sizes[i] * place.size
                        count = min(count, repeats[i] - start % repeats[i])
                for i in range(self._num_inputs):
                    place = &self._places[i]
                    if place.mode == SPREAD and strides[i] != 0:
                        bases[i] = slots + place.slot * room
                        rvm_spread(bases[i], data[i], place.size, start, count, sizes[i],
                                   repeats[i])
            i = 0
            while i < self._num_steps:
                step = &self._steps[i]
                for k in range(step.nargs):
                    args[k] = bases[step.args[k]]
                    arg_strides[k] = strides[step.args[k]]
                step.loop(args, &count, arg_strides, step.data)
                status = rvm_float_status()
                if status:
                    rvm_clear_float_status()
                    if not is_clean:
                        is_clean = True
                        i = 0
                        continue
                    status &= ~step.ignored
                    if status and not any_status:
                        memset(statuses, 0, self._num_steps * sizeof(int))
                        any_status = 1
                    if status:
                        statuses[i] |= status
                i += 1
            if aliased or self._has_twins:
                for k in range(self._num_outs):
                    place = &self._places[self._results[k]]
                    if place.out == k and not aliased:
                        continue
                    memcpy(outs[k] + start * place.size, bases[self._results[k]],
                           <size_t>(count * place.size))
            start += count
            if start == end:
                break
            for i in range(self._num_places):
                place = &self._places[i]
                if place.slot < 0 and place.mode == FULL or place.home >= 0 and not aliased:
                    bases[i] += count * place.size
        PyMem_RawFree(memory)
        return any_status


@cython.final
cdef class FusedKernel:
    """The kernel of chains: runs the plan for the operands of a call if there is one that takes
    results of this size.

    Args:
        general: called else: implementations in C, if there are any, and the kernel in Python, which
            may add plans.
        plans: the plans of each chain, by its text.
    """

    cdef void* _vectorcall
    cdef object _general
    cdef dict _plans
    cdef list _texts, _latest   # chains, and the plan that ran last of each, by address of the text
    cdef dict __dict__          # the name, documentation and module of the function in Python

    def __cinit__(self, general, dict plans):
        self._general = general
        self._plans = plans
        self._texts = [None] * LATEST
        self._latest = [None] * LATEST
        update_wrapper(self, general)
        self._vectorcall = <void*>_vectorcall

    @property
    def reference(self):
        """The kernel in Python."""
        return getattr(self._general, "reference", self._general)

    @property
    def implementations(self):
        """Names of the implementations in C."""
        return getattr(self._general, "implementations", ())

    def may_write(self, dtype, nbytes):
        """Whether this is to be called for a result of such a data type and size, not the reference."""
        return True

    def __reduce__(self):
        raise TypeError("cannot pickle a kernel; programs refer to kernels by name")

    cdef int _run(self, PyObject* const* args, Py_ssize_t count) except -1:
        """Whether a plan computed the outputs."""
        cdef Py_ssize_t place, i = 0
        cdef PyObject* found
        cdef FusedPlan plan
        while i < count and not PyUnicode_CheckExact(args[i]):
            i += 1
        if i == count:
            return False
        place = <Py_ssize_t>((<uintptr_t>args[i] >> 4) % LATEST)
        if PyList_GET_ITEM(self._texts, place) is args[i]:
            plan = <FusedPlan>PyList_GET_ITEM(self._latest, place)
            if not plan.leaves(args[count - 1]) and plan.run(args, count):
                return True
        found = PyDict_GetItemWithError(<PyObject*>self._plans, args[i])
        if found is NULL:
            return False
        for plan in <tuple><object>found:
            if not plan.leaves(args[count - 1]) and plan.run(args, count):
                self._texts[place] = <object>args[i]
                self._latest[place] = plan
                return True
        return False


cdef PyObject* _vectorcall(PyObject* self, PyObject* const* args, size_t nargsf,
                           PyObject* kwnames) except NULL:
    if kwnames is NULL and (<FusedKernel>self)._run(args, PyVectorcall_NARGS(nargsf)):
        Py_INCREF(Py_None)
        return Py_None
    return PyObject_Vectorcall(<PyObject*>(<FusedKernel>self)._general, args, nargsf, kwnames)


cdef FusedKernel _some = FusedKernel(report_status, {})
use_vectorcall(FusedKernel, <char*>&_some._vectorcall - <char*><PyObject*>_some)
_some = None


@cython.final
cdef class ChainKernel:
    """A kernel of one input that is a chain for some data types.

    Args:
        general: the kernel in Python, called when no plan fits.
        make_plans: returns the plans, for an input of the shape of the result; called once.
    """

    cdef void* _vectorcall
    cdef object _general, _make_plans
    cdef tuple _plans
    cdef dict __dict__          # the name, documentation and module of the function in Python

    def __cinit__(self, general, make_plans):
        self._general = general
        self._make_plans = make_plans
        update_wrapper(self, general)
        self._vectorcall = <void*>_vectorcall_chain

    def __reduce__(self):
        raise TypeError("cannot pickle a kernel; programs refer to kernels by name")

    cdef int _run(self, PyObject* const* args, Py_ssize_t count) except -1:
        """Whether a plan computed the outputs."""
        cdef PyObject* operands[3]
        cdef FusedPlan plan
        if count != 2:
            return False
        if self._plans is None:
            self._plans = tuple(self._make_plans())
        operands[0], operands[1], operands[2] = args[0], Py_None, args[1]
        for plan in self._plans:
            if plan.run(operands, 3):
                return True
        return False


cdef PyObject* _vectorcall_chain(PyObject* self, PyObject* const* args, size_t nargsf,
                                 PyObject* kwnames) except NULL:
    if kwnames is NULL and (<ChainKernel>self)._run(args, PyVectorcall_NARGS(nargsf)):
        Py_INCREF(Py_None)
        return Py_None
    return PyObject_Vectorcall(<PyObject*>(<ChainKernel>self)._general, args, nargsf, kwnames)


cdef ChainKernel _other = ChainKernel(report_status, tuple)
use_vectorcall(ChainKernel, <char*>&_other._vectorcall - <char*><PyObject*>_other)
_other = None


def run_plan(FusedPlan plan, tuple operands):
    """Compute the outputs, if the operands (inputs, text of the chain, outputs) are of the data types
    and modes of a plan; returns whether they are."""
    cdef PyObject* const* items = (<PyTupleObject*><PyObject*>operands).ob_item
    return bool(plan.run(items, len(operands)))
