# cython: auto_pickle=False
"""Fused elementwise kernels: chains of inner loops, run block by block.

A block is small enough for what the loops pass on to stay in the first-level cache.  What a chain is,
and what it means, is said in `relaxvm.kernels.fused`; a `FusedPlan` is one for given data types.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy, memset

from functools import update_wrapper

from .floating import report_status

cimport numpy as cnp

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
    MAX_ARGS = 64           # inputs, and outputs
    MAX_STEPS = 512
    MAX_PLACES = 1024
    MAX_INPUTS = 4          # of a loop
    BLOCK_BYTES = 8192      # of the widest operand of a block
    SMALL_BYTES = 20480     # of the widest operand where all is one block
    SCRATCH_BYTES = 1 << 17
    LATEST = 64             # chains whose plan is found without a look into the dictionary

# Memory for the blocks of calls that keep the interpreter lock: it stays in the cache between calls.
cdef char[SCRATCH_BYTES + 64] _scratch

# How an input goes with the result: as long as it; one element for all; or elements that repeat.
cdef enum Mode:
    FULL
    ONE
    SPREAD

ctypedef struct Place:
    # Where operands come from: inputs, then numbers, then the results of the steps.
    cnp.npy_intp size       # bytes of an item
    PyObject* descr         # data type, but for a number; borrowed from `_owned`
    Mode mode
    int slot                # of a spread input or a step: where its blocks are; else -1
    int out                 # of a step: the result that it is, else -1
    int home                # of a step: the output where its blocks are unless it is an input; else -1
    char* number

ctypedef struct Step:
    loop_func loop
    void* data
    int nin, nargs
    int args[MAX_INPUTS + 1]                # places, that of its own result last
    cnp.npy_intp steps[MAX_INPUTS + 1]      # bytes from one element to the next of these
    int ignored             # bits of the status that are not reported


def find_loop(ufunc, dtypes):
    """Place in numpy's table of the loop for these data types, the result's last; -1 for none."""
    cdef int types[8]
    cdef int i
    for i in range(len(dtypes)):
        types[i] = dtypes[i].num
    return rvm_find_loop(<ufunc_object*><PyObject*>ufunc, types)


def has_cast(from_dtype, to_dtype):
    """Whether there is a loop that converts."""
    return rvm_find_cast(from_dtype.num, to_dtype.num) is not NULL


def mode_of(cnp.ndarray x, cnp.ndarray out):
    """How an input goes with a result: 0 as long as it, 1 one element for all, 2 elements that
    repeat; None for any other way."""
    cdef cnp.npy_intp size, repeat
    cdef int mode = _mode(<cnp.PyArrayObject*>x, <cnp.PyArrayObject*>out, &size, &repeat)
    return None if mode < 0 else mode


cdef int _mode(cnp.PyArrayObject* x, cnp.PyArrayObject* out, cnp.npy_intp* size,
               cnp.npy_intp* repeat) noexcept:
    """A `Mode`, or -1.  Of elements that repeat, `size` gets how many there are, and `repeat` how
    often each stands in a row."""
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
        steps: (loop, places, dtype, ignored status, name, in place) each; `loop` is a ufunc and a
            place in its table, or None to choose or convert; places count inputs, then numbers, then
            steps; `in place`: whether the result may be where an operand is.
        results: the steps whose results are asked for.
    """

    cdef Place* _places
    cdef Step* _steps
    cdef int _num_inputs, _num_places, _num_steps, _num_outs, _num_slots
    cdef bint _has_spread           # whether inputs repeat, ...
    cdef bint _has_twins            # ... and whether a step is more than one of the results
    cdef cnp.npy_intp _widest
    cdef int* _results              # places of what is asked for
    cdef tuple _owned, _names

    def __cinit__(self, list inputs, list numbers, list steps, list results):
        cdef int i, k, first
        cdef Place* place
        cdef Place* operand
        cdef Step* step
        first = len(inputs) + len(numbers)
        if max(len(inputs), len(results)) > MAX_ARGS or len(steps) > MAX_STEPS or (
                first + len(steps) > MAX_PLACES):
            raise ValueError("FusedPlan: too long")
        self._num_inputs = len(inputs)
        self._num_steps = len(steps)
        self._num_outs = len(results)
        self._num_places = first + len(steps)
        self._owned = (inputs, numbers, steps)
        self._names = tuple([row[4] for row in steps])
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
            for k in range(step.nargs):
                operand = &self._places[step.args[k]]
                step.steps[k] = 0 if operand.mode == ONE else operand.size
            self._find(step, loop, dtype, steps, inputs)
        for i, k in enumerate(results):
            self._results[i] = first + k
            place = &self._places[first + k]
            if place.out < 0:
                place.out = place.home = i
            else:
                self._has_twins = True
        last_use = self._assign_slots(first)
        self._assign_homes(first, last_use, [row[5] for row in steps])

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
        """Give each result a place in memory until its last use.  Results that are asked for keep
        theirs to the end of the block.  Answers the steps of the last uses."""
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
        """Let results in between be in the memory of an output until its own step comes."""
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

    cdef int run(self, PyObject* const* operands, Py_ssize_t given) except -1:
        """Compute the results if the operands are what the plan is for; answers whether they are.

        Args:
            operands: the inputs, what stands for the chain, the outputs.
        """
        cdef cnp.PyArrayObject* out
        cdef cnp.PyArrayObject* x
        cdef PyObject* const* outputs = operands + self._num_inputs + 1
        cdef Place* place
        cdef int i, k, status
        cdef int statuses[MAX_STEPS]
        cdef cnp.npy_intp elements, nbytes
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
            status = self._blocks(elements, data, sizes, repeats, outs, aliased, statuses, False)
        else:
            with nogil:
                status = self._blocks(elements, data, sizes, repeats, outs, aliased, statuses, True)
        if status < 0:
            raise MemoryError("fused: no memory for the blocks")
        if status:
            for i in range(self._num_steps):
                if statuses[i]:
                    report_status(statuses[i], self._names[i])
        return True

    cdef int _blocks(self, cnp.npy_intp elements, char** data, const cnp.npy_intp* sizes,
                     const cnp.npy_intp* repeats, char** outs, bint aliased, int* statuses,
                     bint shared) noexcept nogil:
        """Run the chain over all blocks: 0, 1 if a status is to be reported, -1 without memory.
        `shared`: whether others may do so at the same time."""
        cdef cnp.npy_intp block, room, count, start = 0
        cdef char* bases[MAX_PLACES]            # where the elements of a block are
        cdef char* args[MAX_INPUTS + 1]
        cdef int i, k, status, any_status = 0
        cdef Place* place
        cdef Step* step
        cdef char* memory = NULL
        cdef char* slots = _scratch
        # Small results are computed again in the rare case that there is a status, which may be older.
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
            bases[i] = data[i]
        for i in range(self._num_inputs, self._num_places):
            place = &self._places[i]
            if place.number is not NULL:
                bases[i] = place.number
            elif place.home >= 0 and not aliased:
                bases[i] = outs[place.home]
            else:
                bases[i] = slots + place.slot * room
        if is_clean:
            rvm_clear_float_status()
        while True:
            count = min(block, elements - start)
            if self._has_spread:
                for i in range(self._num_inputs):
                    place = &self._places[i]
                    if place.mode == SPREAD:
                        bases[i] = slots + place.slot * room
                        rvm_spread(bases[i], data[i], place.size, start, count, sizes[i],
                                   repeats[i])
            i = 0
            while i < self._num_steps:
                step = &self._steps[i]
                for k in range(step.nargs):
                    args[k] = bases[step.args[k]]
                step.loop(args, &count, step.steps, step.data)
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
            if start == elements:
                break
            for i in range(self._num_places):
                place = &self._places[i]
                if place.slot < 0 and place.mode == FULL or place.home >= 0 and not aliased:
                    bases[i] += count * place.size
        PyMem_RawFree(memory)
        return any_status


@cython.final
cdef class FusedKernel:
    """The kernel of chains: runs the plan that there is for a call, else asks Python.

    Args:
        general: the kernel in Python.
        plans: the plans of chains, by their text.
    """

    cdef void* _vectorcall
    cdef object _general
    cdef dict _plans
    cdef list _texts, _latest   # chains, and their plans that ran last, by where the texts are
    cdef dict __dict__          # the name, documentation and module of the function in Python

    def __cinit__(self, general, dict plans):
        self._general = general
        self._plans = plans
        self._texts = [None] * LATEST
        self._latest = [None] * LATEST
        update_wrapper(self, general)
        self._vectorcall = <void*>_vectorcall

    def __reduce__(self):
        raise TypeError("cannot pickle a kernel; programs refer to kernels by name")

    cdef int _run(self, PyObject* const* args, Py_ssize_t count) except -1:
        """Whether a plan did it."""
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
            if plan.run(args, count):
                return True
        found = PyDict_GetItemWithError(<PyObject*>self._plans, args[i])
        if found is NULL:
            return False
        for plan in <tuple><object>found:
            if plan.run(args, count):
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
        general: the kernel in Python, for whatever no plan is for.
        make_plans: gives the plans, of an input that is as long as the result; called once.
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
        """Whether a plan did it."""
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
    """Compute the results if the operands (inputs, what stands for the chain, outputs) are what a plan
    is for; answers whether they are."""
    cdef PyObject* const* items = (<PyTupleObject*><PyObject*>operands).ob_item
    return bool(plan.run(items, len(operands)))
