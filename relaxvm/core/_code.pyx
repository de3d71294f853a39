# cython: auto_pickle=False
"""Translated code: operations, functions, the pool of constants, and the way back to the source."""

cimport cython
from cpython.mem cimport PyMem_RawFree
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int64_t

from ._operations cimport OP_STEP, STEP_WORDS
from ._isa cimport (
    ARG_CONSTANT,
    ARG_IMMEDIATE,
    ARG_KIND,
    ARG_REGISTER,
    ARG_VALUE,
    CALL_ARGS,
    CALL_ARGS_COUNT,
    IF_COND,
    OP_CALL,
    OP_IF,
    VM_REGISTER,
    VOID_REGISTER,
)


@cython.final
@cython.no_gc_clear  # the pool stays valid; the machine breaks every cycle
cdef class Image:
    """An executable as the loop runs it: code, functions, pool and sites.  Belongs to one machine."""

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.num_sites):
            Py_XDECREF(self.sites[i].object)
            PyMem_RawFree(self.sites[i])
        PyMem_RawFree(self.sites)
        PyMem_RawFree(self.code)
        PyMem_RawFree(self.funcs)
        PyMem_RawFree(self.extents)
        PyMem_RawFree(self.pool)
        PyMem_RawFree(self.mark_words)
        PyMem_RawFree(self.mark_pcs)
        PyMem_RawFree(self.entries)
        PyMem_RawFree(self.places)

    def function(self, int64_t index):
        """The code of a function, for listings.

        Returns:
            ``(words, fallbacks, marks)``: its words; how many of them are the main part; and, in
            order, the position of each operation that begins the code of an instruction, with its pc.

        Raises:
            IndexError: there is no such function, or it is not a bytecode function.
        """
        cdef rvm_func* func = self._func(index)
        cdef int64_t start = func.code - self.code, end = self._end(func) - self.code, i
        marks = [(self.mark_words[i] - start, self.mark_pcs[i]) for i in range(self.num_marks)
                 if start <= self.mark_words[i] < end]
        words = [func.code[i] for i in range(end - start)]
        return words, self.extents[index].fallbacks - func.code, marks

    def entry_of(self, int64_t index, int64_t pc):
        """The position, from the start of a function's code, at which the instruction at `pc` can be
        entered.

        The registers of the frame must be as they are before that instruction.  Where the
        instruction is inside of a fused run, the position is in the run's fallback.

        Raises:
            IndexError: there is no such bytecode function, or it has no such pc.
        """
        cdef rvm_func* func = self._func(index)
        info = self.executable.functions[index]
        if not info.start_instr <= pc < info.end_instr:
            raise IndexError(f"{info.name}: expected a pc from {info.start_instr} to "
                             f"{info.end_instr - 1}, got {pc}")
        return self.entry(pc) - func.code

    def source_of(self, int64_t index, int64_t position):
        """The source pc of the operation that a position in a function's code belongs to.

        Raises:
            IndexError: there is no such bytecode function, or its code has no such position.
        """
        cdef rvm_func* func = self._func(index)
        cdef int64_t size = self._end(func) - func.code
        if not 0 <= position < size:
            raise IndexError(f"position: expected less than {size}, got {position}")
        return self.source_pc(func.code + position)

    def places_of(self, int64_t index):
        """Where the registers of a function's source are in its frame.

        Returns:
            ``(places, count, scratch)``: per register that its instructions name, in order, the
            register of the frame and the first and last pc between which its value may be needed,
            or None if all have their own numbers; how many registers of the frame there are for
            them; and the one for results that are discarded.  Between the last two are those for
            functions as values.

        Raises:
            IndexError: there is no such bytecode function.
        """
        cdef rvm_func* func = self._func(index)
        cdef int64_t i
        if func.places is NULL:
            return None, func.num_shared, self.extents[index].scratch
        places = {func.places[i].source:
                  (func.places[i].frame, func.places[i].first, func.places[i].last)
                  for i in range(func.num_places)}
        return places, func.num_shared, self.extents[index].scratch

    def frame_of(self, int64_t index):
        """(parameters, registers, words of a frame without its header) of a function.

        Raises:
            IndexError: there is no such bytecode function.
        """
        cdef rvm_func* func = self._func(index)
        return func.num_params, func.num_registers, func.frame_words

    def attach(self, int64_t index, int64_t entry, int64_t callee):
        """Let a function run native code, from its `enter` operations on and where a closure of it is
        called.  The code must have been made from this image, or from one that is translated alike.

        Args:
            index: of the function.
            entry: address of the ``RvmCompiled`` that the loop calls, which stays loaded; 0 for none.
            callee: address of the one that calls of closures call.

        Raises:
            IndexError: there is no such bytecode function.
        """
        cdef rvm_func* func = self._func(index)
        cdef int64_t i
        for i in range(self.num_sites):
            if self.sites[i].count == ENTERS and self.sites[i].dims[0] == index:
                self.sites[i].data = <const void*>entry
        self.extents[func - self.funcs].compiled = <const void*>callee

    def count_entries(self, int64_t number):
        """Ask the machine for native code of a function when its `enter` operations have run so many
        times."""
        cdef int64_t i
        for i in range(self.num_sites):
            if self.sites[i].count == ENTERS:
                self.sites[i].dims[1] = number

    def function_at(self, int64_t address):
        """The index of the function that a word of code points to; None if it points to none."""
        cdef int64_t index = (address - <int64_t>self.funcs) // <int64_t>sizeof(rvm_func)
        if 0 <= index < len(self.executable.functions) and <int64_t>(self.funcs + index) == address:
            return index
        return None

    def site_at(self, int64_t address):
        """The number of the site that a word of code points to; None if it points to none."""
        cdef int64_t i
        for i in range(self.num_sites):
            if <int64_t>self.sites[i] == address:
                return i
        return None

    cdef rvm_func* _func(self, int64_t index) except NULL:
        cdef rvm_func* func
        if 0 <= index < len(self.executable.functions):
            func = self.funcs + index
            if self._end(func) > func.code:
                return func
        raise IndexError(f"there is no bytecode function {index}")

    cdef int64_t* _end(self, const rvm_func* func) noexcept:
        """Where the code of a function ends."""
        return self.extents[func - self.funcs].end

    cdef const int64_t* entry(self, int64_t pc) noexcept:
        """Where the instruction at `pc` can be entered, see `entry_of`; NULL if it has no code."""
        cdef int64_t word = self.entries[pc]
        return self.code + word if word != NO_ENTRY else NULL

    cdef const int64_t* _resume_at(self, int64_t index, int64_t pc) except? NULL:
        """Of stepped code, where a run that has paused before the instruction at `pc` goes on; NULL if
        it cannot pause there."""
        cdef const int64_t* ip
        info = self.executable.functions[index]
        if not info.start_instr <= pc < info.end_instr:
            return NULL
        ip = self.entry(pc)
        # The second instruction of a tail call has no step of its own.
        return ip + STEP_WORDS if ip is not NULL and ip[0] == OP_STEP else ip

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

    cdef tuple argument_values(self, int64_t pc, PyObject** fp, const rvm_func* func):
        """Values of the arguments of the call at `pc` in the frame at `fp` of a function; empty for
        other instructions but `if`, which has its condition."""
        cdef const int64_t* words = &self.instr_data[self.instr_offset[pc]]
        cdef int64_t i, value, kind
        cdef list values = []
        if words[0] == OP_IF:
            return (_register(fp, func, words[IF_COND]),)
        if words[0] != OP_CALL:
            return ()
        for i in range(min(words[CALL_ARGS_COUNT], 32)):
            value = ARG_VALUE(words[CALL_ARGS + i])
            kind = ARG_KIND(words[CALL_ARGS + i])
            if kind == ARG_REGISTER:
                if value == VOID_REGISTER or value == VM_REGISTER:
                    values.append(None)
                else:
                    values.append(_register(fp, func, value))
            elif kind == ARG_IMMEDIATE:
                values.append(value)
            elif kind == ARG_CONSTANT:
                values.append(self.executable.constants[value])
            else:
                values.append(self.executable.functions[value])
        return tuple(values)

    cdef object heap_of(self, PyObject** fp, const rvm_func* func):
        """The shape heap of the frame at `fp` of a function; None if it has none, or not yet."""
        cdef int64_t register = self.extents[func - self.funcs].heap
        return None if register == NO_REGISTER else _register(fp, func, register)

    cdef void drop_idle(self) noexcept:
        """Release the objects that sites keep for their next run."""
        cdef int64_t i
        cdef PyObject* object
        for i in range(self.num_sites):
            object = self.sites[i].object
            self.sites[i].object = NULL
            Py_XDECREF(object)


cdef object _register(PyObject** fp, const rvm_func* func, int64_t index):
    """The value of a register of the source, at an instruction that reads it."""
    cdef const rvm_place* place
    if func.places is not NULL:
        place = rvm_find_place(func.places, func.num_places, index)
        if place is NULL:
            return None
        index = place.frame
    return None if fp[index] is NULL else <object>fp[index]
