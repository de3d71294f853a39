# cython: auto_pickle=False
"""Predecoding: from the words of an executable to the code that the loop runs.

Operands become register numbers or pool positions, callees become pointers, and calls of known
builtins become operations of their own ("quickening"), some of them several at once ("fusion").
Jumps to jumps are threaded.  What the words hold has been verified; nothing is checked here.
"""

cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawRealloc
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX, int64_t

import numpy as np

from . import isa, shape_program
from ._memory import NaiveAllocator, PooledAllocator
from .values import Shape

from ._code cimport *
from ._isa cimport (
    ARG_CONSTANT,
    ARG_FUNCTION,
    ARG_IMMEDIATE,
    ARG_KIND,
    ARG_REGISTER,
    ARG_VALUE,
    OP_CALL as SRC_CALL,
    OP_GOTO as SRC_GOTO,
    OP_IF as SRC_IF,
    OP_RET as SRC_RET,
    VM_REGISTER,
    VOID_REGISTER,
)
from ._memory cimport Allocator
from ._native cimport NativeFunction


def translate(machine, executable, list callables, list quick, tuple allocators, **options):
    """The `Image` of a verified executable.

    Args:
        machine: stands for the VM register; needs ``_function(index)``.  It must outlive the image.
        executable: what to translate.
        callables: per function-table entry the resolved callable, None for bytecode functions.
        quick: per entry the builtin's name if the callable is its reference, the ufunc if it is a
            kernel that computes just that, else None.
        allocators: one per device, the host's last.
        options: ``optimize`` (quicken, fuse and thread), ``hooked`` (surround calls with the hook),
            ``fueled`` (count instructions and look at the clock), ``keep_arrays`` (sites of static
            allocations keep their array for the next time).
    """
    return Translator(machine, executable, callables, allocators, **options).translate(quick)


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
    AS_CHECK_PRIM
    AS_MATCH_PRIM
    AS_MAKE_PRIM
    AS_COMPUTE_SHAPE
    AS_READ_COND
    AS_ALLOC_HEAP
    AS_ALLOC_STORAGE
    AS_ALLOC_TENSOR
    AS_MAKE_CLOSURE
    AS_INVOKE_CLOSURE
    AS_RESHAPE
    AS_UFUNC
    AS_NATIVE

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
    "vm.builtin.check_prim_value_info": AS_CHECK_PRIM,
    "vm.builtin.match_prim_value": AS_MATCH_PRIM,
    "vm.builtin.make_prim_value": AS_MAKE_PRIM,
    "relaxvm.builtin.compute_shape": AS_COMPUTE_SHAPE,
    "vm.builtin.read_if_cond": AS_READ_COND,
    "vm.builtin.alloc_shape_heap": AS_ALLOC_HEAP,
    "vm.builtin.alloc_storage": AS_ALLOC_STORAGE,
    "vm.builtin.alloc_tensor": AS_ALLOC_TENSOR,
    "vm.builtin.reshape": AS_RESHAPE,
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

    cdef object machine         # only to be passed on
    cdef Image image
    cdef Words code, mark_words, mark_pcs, sites
    cdef Words fixups           # triples: operand position, operation start, target pc
    cdef Words cold             # quintuples: operation start, pc, end pc, resume position, level
    cdef int64_t* position      # code position per pc of the function
    cdef char* callee_kinds     # AS_* per function-table entry
    cdef int64_t* callee_words  # pool word per function-table entry, 0 where none yet
    cdef int64_t* const_words   # and per constant
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
    cdef bint keep_arrays       # whether sites may keep static arrays
    cdef object constants, functions
    cdef list callables, quick
    cdef tuple allocators

    def __cinit__(self, machine, executable, list callables, tuple allocators, *, optimize, hooked,
                  fueled, keep_arrays):
        cdef Image image = Image.__new__(Image)
        image.executable = executable
        image.instr_data = executable.instr_data
        image.instr_offset = executable.instr_offset
        self.machine = machine
        self.image = image
        self.hooked = hooked
        self.fueled = fueled
        self.keep_arrays = keep_arrays
        self.level = QUICK if hooked else FUSE if optimize else PLAIN
        self.functions = executable.functions
        self.constants = executable.constants
        self.callables = callables
        self.allocators = allocators
        self.pool = [None]      # position 0 stands for the machine and is not owned
        self.immediates = {}
        self.data = &image.instr_data[0] if image.instr_data.shape[0] else NULL
        self.offsets = &image.instr_offset[0] if image.instr_offset.shape[0] else NULL

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
        PyMem_RawFree(self.const_words)

    cdef Image translate(self, list quick):
        cdef int64_t index, count = len(self.functions)
        if not count == len(quick) == len(self.callables):
            raise ValueError(f"translate: expected {count} callables and names, "
                             f"got {len(self.callables)} and {len(quick)}")
        if not self.allocators:
            raise ValueError("translate: expected an allocator per device, got none")
        self.quick = quick
        self.image.funcs = <rvm_func*>_zeroed(count * sizeof(rvm_func))
        self.callee_kinds = <char*>_zeroed(count)
        self.callee_words = <int64_t*>_zeroed(count * sizeof(int64_t))
        self.const_words = <int64_t*>_zeroed(len(self.constants) * sizeof(int64_t))
        for index in range(count):
            self.callee_kinds[index] = self._callee_kind(index, quick[index])
        for index in range(count):
            if self.callee_kinds[index] == AS_VM:
                self._translate_function(index)
        self._finish()
        return self.image

    cdef int _callee_kind(self, int64_t index, object quick) except -1:
        if self.functions[index].kind == isa.FuncKind.BYTECODE:
            return AS_VM
        if type(self.callables[index]) is NativeFunction:
            return AS_NATIVE
        # A hook sees every call; only closures are still entered by the loop, so as not to recurse.
        if self.hooked and quick != "vm.builtin.invoke_closure":
            return AS_CALL
        if isinstance(quick, np.ufunc):
            return AS_UFUNC if quick.nin <= 2 and quick.nout == 1 and not quick.signature else AS_CALL
        return _QUICK.get(quick, AS_CALL)

    cdef int _finish(self) except -1:
        cdef Image image = self.image
        cdef int64_t i, count = len(self.pool)
        cdef rvm_func* func
        image.pool = <PyObject**>_zeroed((1 + count) * sizeof(PyObject*))
        image.pool_end = image.pool + 1 + count
        for i in range(count):
            value = self.pool[i]
            (image.pool_end - 1 - i)[0] = <PyObject*>value
        (image.pool_end - 1)[0] = <PyObject*>self.machine
        image.owned = (*self.pool, self.allocators, self.quick)
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
        self._mark(max(self.start, self.end - 1))
        self._append(0)  # no operation: nothing runs on into the cold part
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
        elif kind == AS_NATIVE:
            self._append(OP_CALL_NATIVE)
            self._append(dst if dst != VOID_REGISTER else self.scratch)
            self._append(self._function_operand(callee))
            self._append(count)
            self._operands(args, count)
        elif kind == AS_CALL or level < QUICK or not self._quick(pc, kind, dst, count, args):
            self._plain_call(OP_CALL if dst != VOID_REGISTER else OP_CALL_VOID, dst, callee, count,
                             args)
        if hook:
            self._mark(pc)
            self._hook_operation(OP_HOOK_AFTER, register, self.scratch, pc, callee, count, args)
            self.code.data[before + 2] = self.code.count - before
        if self.fueled and kind in (AS_CALL, AS_UFUNC, AS_NATIVE):
            self._append(OP_DEADLINE)
        return 0

    cdef int _plain_call(self, int64_t op, int64_t dst, int64_t callee, int64_t count,
                         const int64_t* args) except -1:
        self._append(op)
        self._append(dst)
        self._append(self._function_operand(callee))
        self._append(count)
        self._append(self.args_area)
        self._operands(args, count)
        self.widest = max(self.widest, count)
        return 0

    cdef int _hook_operation(self, int64_t op, int64_t dst, int64_t second, int64_t pc,
                             int64_t callee, int64_t count, const int64_t* args) except -1:
        cdef int64_t place = self._hook_place(pc, callee)
        cdef int64_t function = self._function_operand(callee)
        self._append(op)
        self._append(dst)
        self._append(second)
        self._append(function)
        self._append(place)
        self._append(count)
        self._operands(args, count)
        return 0

    cdef int64_t _hook_place(self, int64_t pc, int64_t callee) except? -1:
        """Pool word of a pc; the callee's name stands in the word before it."""
        found = self.immediates.get(("hook", pc))
        if found is None:
            found = self.immediates["hook", pc] = self._pool_object(pc)
            self._pool_object(self.functions[callee].name)
        return found

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
        if kind == AS_UFUNC:
            if not self._quick_ufunc(self.quick[self._word(pc, 2)], count, args):
                return False
            self._may_give_up(start, pc, pc + 1, PLAIN)
            if not discard:
                self._emit2(OP_NULL, dst)
            return True
        if kind in (AS_MATCH_SHAPE, AS_CHECK_TENSOR, AS_CHECK_SHAPE, AS_CHECK_TUPLE, AS_CHECK_FUNC,
                    AS_CHECK_PRIM, AS_MATCH_PRIM, AS_COMPUTE_SHAPE):
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
        if kind == AS_COMPUTE_SHAPE:
            return count == 2 and self._quick_compute(args)
        if not self._has_context(count, args):
            return False
        if kind == AS_CHECK_FUNC and count == 2:
            self._emit_slow(OP_CHECK_FUNC, 0)
            self._operands(args, 1)
            return True
        if kind == AS_CHECK_PRIM:
            dtype = self._constant(args[1]) if count == 3 else None
            if not isinstance(dtype, np.dtype) or dtype.kind not in "biuf":
                return False
            self._emit_slow(OP_CHECK_PRIM, 0)
            self._operands(args, 1)
            self._append(dtype.kind == "f")
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

    cdef bint _quick_compute(self, const int64_t* args) except -1:
        """compute_shape: heap, program.  Its words are those of the constant, ended by a word more."""
        cdef int64_t last = -1, depth = 0, stores = 0
        program = self._constant(args[1])
        if not isinstance(program, Shape) or shape_program.problem(program) is not None:
            return False
        for step in shape_program.decode(program):
            op = shape_program.BY_NAME[step if isinstance(step, str) else step[0]]
            if op.operand == "slot":
                last = max(last, step[1])
            stores += op.name == "store"
            depth += (op.name != "store") - <int64_t>op.pops
            if depth > RVM_MAX_STACK or stores > RVM_MAX_STORES:
                return False
        self._emit_slow(OP_COMPUTE_SHAPE, 0)
        self._operands(args, 1)
        self._append(last)
        self._append(len(program) + 1)
        for word in program:
            self._append(word)
        self._append(RVM_SHAPE_END)
        return True

    cdef bint _quick_ufunc(self, object ufunc, int64_t count, const int64_t* args) except -1:
        """A kernel that is a ufunc: its inputs, out."""
        if count != ufunc.nin + 1:
            return False
        self._emit_slow(OP_UFUNC_1 if count == 2 else OP_UFUNC_2, 0)
        self._append(<int64_t><PyObject*>ufunc)
        for _ in range(7):  # RVM_UFUNC_WORDS less one: the loop, when the data types are known
            self._append(0)
        self._operands(args, count)
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
        elif kind == AS_RESHAPE and count == 2:
            self._emit_slow(OP_RESHAPE, dst)
            self._operands(args, 2)
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
        dtype = self._constant(args[3])
        if ARG_KIND(args[2]) == ARG_CONSTANT:
            return self._quick_tensor_of(dst, args, self._constant(args[2]), dtype)
        self._emit_slow(OP_ALLOC_TENSOR, dst)
        self._operands(args, 1)
        self._append(ARG_VALUE(args[1]))
        self._operands(args + 2, 1)
        self._append(<int64_t><PyObject*>dtype)
        return True

    cdef bint _quick_tensor_of(self, int64_t dst, const int64_t* args, object shape,
                               object dtype) except -1:
        """The same for a constant shape."""
        cdef int64_t nbytes = self._static_bytes(args[2], dtype.itemsize)
        cdef int64_t offset = ARG_VALUE(args[1])
        if nbytes < 0 or nbytes > INT64_MAX - offset or len(shape) > RVM_MAX_DIMS:
            return False
        self._emit_slow(OP_ALLOC_TENSOR_OF, dst)
        self._operands(args, 1)
        self._append(offset)
        self._append(offset + nbytes)
        self._append(<int64_t><PyObject*>dtype)
        self._append(len(shape))
        for dim in shape:
            self._append(dim)
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
        if not self._has_context(check[3], check + 4) or not self._has_context(match[3], match + 4):
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
        cdef int64_t nbytes, offset, needed
        if not self.keep_arrays:
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
        offset = ARG_VALUE(tensor[5])
        dtype = self._constant(tensor[7])
        needed = self._static_bytes(tensor[6], dtype.itemsize)
        if not 0 <= nbytes <= MAX_STATIC_BYTES or needed < 0:
            return 0
        shape = self._constant(tensor[6])
        if len(shape) > RVM_MAX_DIMS or offset > nbytes or needed > nbytes - offset:
            return 0
        self._emit_slow(OP_ALLOC_STATIC, tensor[1])
        self._append(storage[1])
        self._append(<int64_t><PyObject*>allocator)
        self._append(nbytes)
        self._append(offset)
        self._append(<int64_t><PyObject*>dtype)
        self._append(<int64_t>self._site())
        self._append(len(shape))
        for dim in shape:
            self._append(dim)
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

    cdef bint _has_context(self, int64_t count, const int64_t* args) except -1:
        """Whether the last argument, the context of an error message, is a string for sure."""
        return count > 0 and type(self._constant(args[count - 1])) is str

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
        device = ARG_VALUE(args[2])  # -1 is the host; negative indices do not wrap in this module
        allocator = self.allocators[device if device >= 0 else len(self.allocators) - 1]
        # Another class may have ideas of its own about alloc().
        return allocator if type(allocator) in (NaiveAllocator, PooledAllocator) else None

    cdef int64_t _static_bytes(self, int64_t word, int64_t itemsize) except -2:
        """Bytes of a constant Shape of items; -1 if it is none, or if strides of such an array, for
        which dimensions of 0 count as 1, do not fit."""
        cdef object total = itemsize
        shape = self._constant(word)
        if not isinstance(shape, Shape):
            return -1
        for dim in shape:
            if dim < 0:
                return -1
            total *= dim or 1
        if total > INT64_MAX:
            return -1
        return 0 if 0 in shape else total

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
        if self.const_words[value] == 0:
            self.const_words[value] = self._pool_object(self.constants[value])
        return self.const_words[value]

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
