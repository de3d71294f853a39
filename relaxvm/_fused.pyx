# cython: auto_pickle=False
"""Fused elementwise kernels: chains of inner loops, run block by block.

A block is small enough for what the loops pass on to stay in the first-level cache.  What a chain is,
and what it means, is said in `relaxvm.kernels.fused`; a `FusedPlan` is one for given data types.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy

from .floating import report_status

cimport numpy as cnp

cnp.import_array()

cdef extern from "_fused_impl.h" nogil:
    ctypedef void (*loop_func "PyUFuncGenericFunction")(
        char**, const cnp.npy_intp*, const cnp.npy_intp*, void*) noexcept
    ctypedef struct ufunc_object "PyUFuncObject":
        int nargs
        loop_func* functions
        void** data

    enum:
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

cdef enum:
    MAX_STEPS = 256
    MAX_INPUTS = 4          # of a loop
    BLOCK_BYTES = 4096      # of the widest operand of a block

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
    char* number

ctypedef struct Step:
    loop_func loop
    void* data
    int nin
    int args[MAX_INPUTS]    # places
    int place               # of its own result
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
        steps: (loop, places, dtype, ignored status, name) each; `loop` is a ufunc and a place in its
            table, or None to choose or convert; places count inputs, then numbers, then steps.
        results: the steps whose results are asked for.
    """

    cdef Place* _places
    cdef Step* _steps
    cdef int _num_inputs, _num_places, _num_steps, _num_outs, _num_slots
    cdef cnp.npy_intp _widest
    cdef int* _results              # places of what is asked for
    cdef tuple _owned, _names

    def __cinit__(self, list inputs, list numbers, list steps, list results):
        cdef int i, k, first
        cdef Place* place
        cdef Step* step
        first = len(inputs) + len(numbers)
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
            self._places[i].slot = self._places[i].out = -1
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
        for i, (loop, args, dtype, ignored, _) in enumerate(steps):
            step = &self._steps[i]
            place = &self._places[first + i]
            place.size = dtype.itemsize
            place.descr = <PyObject*>dtype
            self._widest = max(self._widest, place.size)
            step.place = first + i
            step.nin = len(args)
            step.ignored = ignored
            for k in range(step.nin):
                step.args[k] = args[k]
            self._find(step, loop, dtype, steps, inputs)
        for i, k in enumerate(results):
            self._results[i] = first + k
            place = &self._places[first + k]
            if place.out < 0:
                place.out = i
        self._assign_slots(first)

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

    cdef int _assign_slots(self, int first) except -1:
        """Give each result a place in memory until its last use.  Results that are asked for keep
        theirs to the end of the block."""
        cdef list last_use = [i - first for i in range(self._num_places)]
        cdef list free = []
        cdef int i, k, place
        for i in range(self._num_steps):
            for k in range(self._steps[i].nin):
                last_use[self._steps[i].args[k]] = i
        for i in range(self._num_inputs):
            if self._places[i].mode == SPREAD:
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
        return 0

    def __dealloc__(self):
        PyMem_Free(self._places)
        PyMem_Free(self._steps)
        PyMem_Free(self._results)

    def run(self, tuple operands):
        """Compute the results if the operands are what the plan is for; answers whether they are.

        Args:
            operands: the inputs, a string, the outputs.
        """
        cdef Py_ssize_t count = len(operands)
        cdef cnp.PyArrayObject* out
        cdef cnp.PyArrayObject* x
        cdef int i, k, status
        cdef int statuses[MAX_STEPS]
        cdef cnp.npy_intp elements, nbytes
        cdef bint aliased = False
        cdef PyObject* item
        cdef char* data[64]
        cdef char* outs[16]
        cdef cnp.npy_intp sizes[64]
        cdef cnp.npy_intp repeats[64]
        if count != self._num_inputs + 1 + self._num_outs:
            return False
        if self._num_inputs > 64 or self._num_steps > MAX_STEPS or self._num_outs > 16:
            return False
        out = <cnp.PyArrayObject*><PyObject*>operands[self._num_inputs + 1]
        for k in range(self._num_outs):
            item = <PyObject*>operands[self._num_inputs + 1 + k]
            if not rvm_is_plain(item, NPY_ARRAY_CARRAY):
                return False
            if PyArray_DESCR(<cnp.PyArrayObject*>item) is not self._places[self._results[k]].descr:
                return False
            if not rvm_same_shape(<cnp.PyArrayObject*>item, out):
                return False
            outs[k] = <char*>PyArray_DATA(<cnp.PyArrayObject*>item)
        elements = rvm_size(out)
        if elements <= 1:
            return False
        for i in range(self._num_inputs):
            item = <PyObject*>operands[i]
            if not rvm_is_plain(item, RVM_INPUT_FLAGS):
                return False
            x = <cnp.PyArrayObject*>item
            if PyArray_DESCR(x) is not self._places[i].descr:
                return False
            if _mode(x, out, &sizes[i], &repeats[i]) != <int>self._places[i].mode:
                return False
            data[i] = <char*>PyArray_DATA(x)
            nbytes = self._places[i].size * rvm_size(x)
            for k in range(self._num_outs):
                if rvm_are_apart(data[i], nbytes, outs[k], elements * self._result_size(k)):
                    continue
                if data[i] != outs[k] or self._places[i].mode != FULL or (
                        self._places[i].size != self._result_size(k)):
                    return False
                aliased = True
        for i in range(1, self._num_outs):
            for k in range(i):
                if not rvm_are_apart(outs[i], elements * self._result_size(i), outs[k],
                                     elements * self._result_size(k)):
                    return False
        for i in range(self._num_steps):
            statuses[i] = 0
        if elements * self._widest < RVM_RELEASE_BYTES:
            status = self._blocks(elements, data, sizes, repeats, outs, aliased, statuses)
        else:
            with nogil:
                status = self._blocks(elements, data, sizes, repeats, outs, aliased, statuses)
        if status < 0:
            raise MemoryError("fused: no memory for the blocks")
        if status:
            for i in range(self._num_steps):
                if statuses[i]:
                    report_status(statuses[i], self._names[i])
        return True

    cdef inline cnp.npy_intp _result_size(self, int k) noexcept:
        return self._places[self._results[k]].size

    cdef int _blocks(self, cnp.npy_intp elements, char** data, const cnp.npy_intp* sizes,
                     const cnp.npy_intp* repeats, char** outs, bint aliased,
                     int* statuses) noexcept nogil:
        """Run the chain over all blocks: 0, 1 if a status is to be reported, -1 without memory."""
        cdef cnp.npy_intp block = BLOCK_BYTES // self._widest
        cdef cnp.npy_intp start = 0, count, room
        cdef char* args[MAX_INPUTS + 1]
        cdef cnp.npy_intp steps[MAX_INPUTS + 1]
        cdef int i, k, arg, status, any_status = 0
        cdef Place* place
        cdef Step* step
        cdef char* memory
        cdef char* slots
        if block > elements:
            block = elements
        room = (block * self._widest + 127) & ~<cnp.npy_intp>63
        memory = <char*>PyMem_RawMalloc(self._num_slots * room + 64)
        if memory is NULL:
            return -1
        slots = <char*>((<uintptr_t>memory + 63) & ~<uintptr_t>63)
        rvm_clear_float_status()
        while start < elements:
            count = min(block, elements - start)
            for i in range(self._num_inputs):
                place = &self._places[i]
                if place.mode == SPREAD:
                    rvm_spread(slots + place.slot * room, data[i], place.size, start, count, sizes[i],
                               repeats[i])
            for i in range(self._num_steps):
                step = &self._steps[i]
                for k in range(step.nin + 1):
                    arg = step.args[k] if k < step.nin else step.place
                    place = &self._places[arg]
                    steps[k] = 0 if place.mode == ONE else place.size
                    if place.number is not NULL:
                        args[k] = place.number
                    elif place.out >= 0 and not aliased:
                        args[k] = outs[place.out] + start * place.size
                    elif place.slot >= 0:
                        args[k] = slots + place.slot * room
                    else:
                        args[k] = data[arg] + start * steps[k]
                step.loop(args, &count, steps, step.data)
                status = rvm_float_status()
                if status:
                    rvm_clear_float_status()
                    status &= ~step.ignored
                    statuses[i] |= status
                    any_status |= status
            for k in range(self._num_outs):
                self._finish_block(k, start, count, outs, aliased, slots, room)
            start += count
        PyMem_RawFree(memory)
        return 1 if any_status else 0

    cdef void _finish_block(self, int k, cnp.npy_intp start, cnp.npy_intp count, char** outs,
                            bint aliased, char* slots, cnp.npy_intp room) noexcept nogil:
        """Copy a result to where it belongs, if it was not computed there."""
        cdef Place* place = &self._places[self._results[k]]
        cdef char* source
        if place.out == k and not aliased:
            return
        source = slots + place.slot * room if aliased else outs[place.out] + start * place.size
        memcpy(outs[k] + start * place.size, source, <size_t>(count * place.size))
