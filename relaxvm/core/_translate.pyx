# cython: auto_pickle=False
"""Translation: from the words of an executable to the code that the loop runs.

Operands become register numbers or pool positions, callees become pointers, and the rewritings of
`relaxvm.core.operations` turn calls of known builtins into operations of their own, some of them
several calls at once.  The verifier has checked the words; nothing is checked here.
"""

cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t

from sys import intern

import numpy as np

cimport numpy as cnp

from .. import isa
from ..executable import shape_program
from ._storage import NaiveAllocator, PooledAllocator
from ._quickened import BUILTINS
from .rewritings import REWRITINGS
from ..values import Shape

from ._code cimport *
from ._isa cimport (
    ARG_CONSTANT,
    ARG_FUNCTION,
    ARG_IMMEDIATE,
    ARG_KIND,
    ARG_REGISTER,
    ARG_VALUE,
    CALL_ARGS as SRC_ARGS,
    CALL_ARGS_COUNT as SRC_COUNT,
    CALL_DST as SRC_DST,
    CALL_FUNC_IDX as SRC_CALLEE,
    GOTO_PC_OFFSET as SRC_PC_OFFSET,
    IF_COND as SRC_COND,
    IF_FALSE_OFFSET as SRC_FALSE_OFFSET,
    OP_CALL as SRC_CALL,
    OP_GOTO as SRC_GOTO,
    OP_IF as SRC_IF,
    OP_RET as SRC_RET,
    RET_RESULT as SRC_RESULT,
    VM_REGISTER,
    VOID_REGISTER,
)
from ._storage cimport Allocator
from ._native cimport NativeFunction
from ._emit cimport *
from ._registers cimport Places
from ._operations cimport *
from ._words cimport Words, append, extend


def translate(machine, executable, list callables, list quick, tuple allocators, **options):
    """The `Image` of a verified executable.

    Args:
        machine: the value of the VM register.  It must outlive the image.
        executable: what to translate.
        callables: per function-table entry the resolved callable, None for bytecode functions.
        quick: per entry the builtin's name if the callable is its reference, the ufunc if it is a
            kernel that computes just that, the kernel if it has implementations in C, else None.
        allocators: one per device, the host's last.
        options: ``rewritings`` (names of those that are on), ``hooked`` (surround calls with the
            hook), ``fueled`` (count instructions and look at the clock), ``keep_arrays`` (sites of
            static allocations keep their array for the next run), ``enters`` (emit an `enter` where
            a function and where a loop begins), ``stepped`` (emit a `step` before every instruction:
            none is fused with others but a tail call, and registers are those of the source),
            ``batches`` (`relaxvm.vm.dataflow.Batches`: which calls are deferred, and where they run).
    """
    return Translator(machine, executable, callables, allocators, **options).translate(quick)


cdef dict _BUILTIN_KINDS = {BUILTINS[i]: AS_FIRST_BUILTIN + i for i in range(len(BUILTINS))}
cdef dict _REWRITING_BITS = {REWRITINGS[i].name: 1 << i for i in range(len(REWRITINGS))}

QUICKENED = frozenset(BUILTINS)
"""Names of the builtins that the loop may run by itself."""

cdef enum:
    RESULT_BYTES = 2816     # of a Shape of 64 dimensions, or an array
    SMALL_BYTES = 128       # of a tuple, closure or Shape, and as many for each argument:
    ARGUMENT_BYTES = 24
    MAX_HEAP_SLOTS = 4096   # larger shape heaps are made by the reference
    MAX_STATIC_BYTES = 1 << 26  # larger static arrays are not kept at their site
    GOTO_HOPS = 64          # gotos followed when threading a jump
    MAX_CALLS_BACK = 64     # between the allocation of a result and the call that computes it

cdef enum:
    # What leaves every instruction its own operation.  Tail calls stay: a program may need them to run in
    # constant space.
    STEPPED_REWRITINGS = (
        REWRITE_QUICKEN | REWRITE_UFUNCS | REWRITE_KERNELS | REWRITE_TAIL_CALLS)


cdef inline bint _is_register(int64_t register) noexcept:
    """Whether it is one of the frame."""
    return register != VM_REGISTER and register != VOID_REGISTER


cdef inline int64_t _bytes_of_call(int kind, int64_t num_args) noexcept:
    if kind in (AS_MAKE_TUPLE, AS_MAKE_ADT, AS_MAKE_CLOSURE, AS_MAKE_SHAPE, AS_ADT_TAG):
        return SMALL_BYTES + ARGUMENT_BYTES * num_args
    if kind == AS_MATCH_TAG:
        return SMALL_BYTES
    return 0 if kind == AS_VM or kind == AS_NULL_VALUE else RESULT_BYTES


cdef inline int64_t _heap_argument(int kind) noexcept:
    """Which argument of a builtin that only computes with a shape heap is that, -1 for others."""
    if kind in (AS_MATCH_SHAPE, AS_MATCH_PRIM_VALUE):
        return SRC_MATCH_SHAPE_HEAP
    return 0 if kind in (AS_MAKE_SHAPE, AS_MAKE_PRIM_VALUE, AS_COMPUTE_SHAPE) else -1


# Positions of arguments in calls of the builtins.
cdef enum:
    SRC_MATCH_SHAPE_HEAP = 1
    SRC_MATCH_SHAPE_DIMS = 2        # n, then n pairs
    SRC_MAKE_SHAPE_DIMS = 1
    SRC_CHECK_NDIM = 1              # and the size of a tuple
    SRC_CHECK_DTYPE = 2
    SRC_CHECK_PRIM_DTYPE = 1
    SRC_MATCH_PRIM_HEAP = 1
    SRC_MATCH_PRIM_CODE = 2
    SRC_MATCH_PRIM_VALUE = 3
    SRC_MAKE_PRIM_CODE = 1
    SRC_MAKE_PRIM_VALUE = 2
    SRC_COMPUTE_PROGRAM = 1
    SRC_GETITEM_INDEX = 1           # and of a field, and the number of tag_is
    SRC_ADT_CONSTRUCTOR = 0
    SRC_ADT_TAG = 1
    SRC_ADT_FIELDS = 2
    SRC_HEAP_SLOTS = 1
    SRC_STORAGE_SHAPE = 1
    SRC_STORAGE_DEVICE = 2
    SRC_STORAGE_DTYPE = 3
    SRC_STORAGE_SCOPE = 4
    SRC_TENSOR_OFFSET = 1
    SRC_TENSOR_SHAPE = 2
    SRC_TENSOR_DTYPE = 3
    SRC_TENSOR_SCOPE = 4
    SRC_RESHAPE_SHAPE = 1
    SRC_MAKE_CLOSURE_CAPTURED = 1
    SRC_INVOKE_CLOSURE_CLOSURE = 1
    SRC_INVOKE_CLOSURE_ARGS = 2


ctypedef struct Fixup:
    # A distance that is not known yet.
    int64_t word            # position of the operand
    int64_t start           # of the operation
    int64_t target          # source pc


ctypedef struct Fallback:
    # A fallback that is to be emitted.
    int64_t start           # position of the operation that takes it
    int64_t pc, end         # the instructions that it stands for
    int64_t resume          # position after the operation
    int64_t rewritings      # of its instructions


cdef enum:
    FIXUP_WORDS = 3
    FALLBACK_WORDS = 5
    PLACE_WORDS = sizeof(rvm_place) // sizeof(int64_t)


@cython.final
cdef class Translator:
    """Turns the words of a verified executable into an `Image`.

    A function's code is its main part, the operations in source order, and then the fallbacks of
    its operations: the same instructions with fewer rewritings, and a jump back to the end of the operation.
    """

    cdef object machine         # only to be passed on
    cdef Image image
    cdef Words code, mark_words, mark_pcs, sites
    cdef Words fixups           # of `Fixup`
    cdef Words fallbacks        # of `Fallback`
    cdef char* callee_kinds     # AS_* per function-table entry
    cdef int64_t* callee_words  # pool word per function-table entry, 0 where none yet
    cdef int64_t* const_words   # and per constant
    cdef list pool
    cdef dict immediates
    cdef const int64_t* data
    cdef const int64_t* offsets
    cdef int64_t* block_lengths # per pc of the function, with fuel: see _measure_blocks
    cdef int64_t index          # of the function
    cdef int64_t start, end     # pcs of the function
    cdef set targets            # of its jumps; None until they are asked for
    cdef Places places          # of the registers of the source in frames, of all functions
    cdef rvm_place* own_places  # of the function; NULL if registers do not share places
    cdef int64_t num_places
    cdef int64_t loaded_area    # first register for functions that are values
    cdef int64_t scratch        # register for discarded results
    cdef int64_t frame          # offset of the frame of a callee, after the registers
    cdef dict loaded            # register per function that the instruction has as a value
    cdef int64_t args_area      # where argument lists of Python calls are laid out
    cdef int64_t widest         # most arguments of a call of the function
    cdef int64_t own_heap       # register of the function's own shape heap, NO_REGISTER if it has none
    cdef int64_t heap_slots     # of that heap
    cdef int64_t heap_maker     # the index of vm.builtin.alloc_shape_heap, -1 if there is none
    cdef bint hooked, fueled, enters, stepped
    cdef set heads              # pcs of the function that jumps lead back to, with `enters`
    cdef object batches         # of calls that are deferred, or None
    cdef dict batch_sites       # per batch, the address of the site that its calls share
    cdef bint in_fallback
    cdef int64_t rewritings     # of the main part
    cdef bint keep_arrays       # whether sites may keep static arrays
    cdef object constants, functions
    cdef list callables, quick
    cdef tuple allocators

    def __cinit__(self, machine, executable, list callables, tuple allocators, *, rewritings,
                  hooked, fueled, keep_arrays, enters=False, stepped=False, batches=None):
        cdef Image image = Image.__new__(Image)
        image.executable = executable
        image.instr_data = executable.instr_data
        image.instr_offset = executable.instr_offset
        self.machine = machine
        self.image = image
        self.hooked = hooked
        self.fueled = fueled
        self.keep_arrays = keep_arrays
        self.enters = enters
        self.stepped = stepped
        self.batches = batches
        self.batch_sites = {}
        image.returns = {}
        for name in rewritings:
            self.rewritings |= _REWRITING_BITS[name]
        if hooked:
            self.rewritings = REWRITE_QUICKEN  # of invoke_closure, see _callee_kind
        elif fueled:
            self.rewritings &= ~REWRITE_THREAD_JUMPS  # every goto counts
        if not keep_arrays:
            self.rewritings &= ~REWRITE_ALLOC_STATIC
        if stepped:
            self.rewritings &= STEPPED_REWRITINGS
        self.functions = executable.functions
        self.constants = executable.constants
        self.callables = callables
        self.allocators = allocators
        self.pool = [None]      # position 0 stands for the machine and is not owned
        self.immediates = {}
        self.loaded = {}
        self.places = Places.__new__(Places)
        self.data = &image.instr_data[0] if image.instr_data.shape[0] else NULL
        self.offsets = &image.instr_offset[0] if image.instr_offset.shape[0] else NULL

    def __dealloc__(self):
        PyMem_RawFree(self.code.data)
        PyMem_RawFree(self.mark_words.data)
        PyMem_RawFree(self.mark_pcs.data)
        PyMem_RawFree(self.sites.data)
        PyMem_RawFree(self.fixups.data)
        PyMem_RawFree(self.fallbacks.data)
        PyMem_RawFree(self.block_lengths)
        PyMem_RawFree(self.callee_kinds)
        PyMem_RawFree(self.callee_words)
        PyMem_RawFree(self.const_words)

    cdef Image translate(self, list quick):
        cdef int64_t index, count = len(self.functions)
        cdef int64_t num_instructions = self.image.instr_offset.shape[0]
        if not count == len(quick) == len(self.callables):
            raise ValueError(f"translate: expected {count} callables and names, "
                             f"got {len(self.callables)} and {len(quick)}")
        if not self.allocators:
            raise ValueError("translate: expected an allocator per device, got none")
        self.quick = quick
        self.image.funcs = <rvm_func*>_zeroed(count * sizeof(rvm_func))
        self.image.extents = <rvm_extent*>_zeroed(count * sizeof(rvm_extent))
        self.image.entries = <int64_t*>_zeroed(num_instructions * sizeof(int64_t))
        for index in range(num_instructions):
            self.image.entries[index] = NO_ENTRY
        self.callee_kinds = <char*>_zeroed(count)
        self.callee_words = <int64_t*>_zeroed(count * sizeof(int64_t))
        self.const_words = <int64_t*>_zeroed(len(self.constants) * sizeof(int64_t))
        self.heap_maker = -1
        for index in range(count):
            self.callee_kinds[index] = self._callee_kind(index, quick[index])
            if quick[index] == "vm.builtin.alloc_shape_heap":
                self.heap_maker = index
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
        return _BUILTIN_KINDS.get(quick, AS_CALL)

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
        image.constants = tuple(self.pool)
        image.owned = (self.allocators, self.quick)
        image.code = self.code.data
        image.mark_words = self.mark_words.data
        image.mark_pcs = self.mark_pcs.data
        image.num_marks = self.mark_words.count
        image.sites = <rvm_site**>self.sites.data
        image.num_sites = self.sites.count
        image.places = <rvm_place*>self.places.places.data
        self.code.data = self.mark_words.data = self.mark_pcs.data = self.sites.data = NULL
        self.places.places.data = NULL
        for i in range(len(self.functions)):  # offsets until the code stopped moving
            func = &image.funcs[i]
            func.code = image.code + <int64_t>func.code
            image.extents[i].fallbacks = image.code + <int64_t>image.extents[i].fallbacks
            image.extents[i].end = image.code + <int64_t>image.extents[i].end
            if func.num_places:
                func.places = image.places + <int64_t>func.places
        return 0

    # -- a function

    cdef int _translate_function(self, int64_t index) except -1:
        cdef object info = self.functions[index]
        cdef rvm_func* func = &self.image.funcs[index]
        cdef Fixup* fixup
        cdef int64_t pc, i, registers
        self.index = index
        self.start, self.end = info.start_instr, info.end_instr
        self.targets = None
        func.num_params = info.num_args
        self.image.extents[index].heap = self._heap_register()
        self.loaded_area = func.num_shared = self._place_registers(
            func, info.register_file_size, self.image.extents[index].heap)
        self.scratch = self.image.extents[index].scratch = self.loaded_area + self._most_values()
        registers = self.scratch + self._discards_results()
        self._find_own_heap()
        self.frame = registers
        self.args_area = registers + 1
        self.widest = 0
        self.fixups.count = 0
        self.fallbacks.count = 0
        func.code = <int64_t*>self.code.count
        name = info.name
        func.name = <PyObject*>name
        func.num_registers = registers
        if self.fueled:
            self._measure_blocks()
        if self.enters:
            self._find_heads()
        pc = self.start
        while pc < self.end:
            self.image.entries[pc] = self.code.count
            if self.stepped:
                self._mark(pc)
                emit_step(&self.code, pc)
            if self.enters and (pc == self.start or pc in self.heads):
                self._emit_enter(pc)
            if self.batches is not None and pc in self.batches.joins:
                self._mark(pc)
                emit_join(&self.code)
            if self._starts_block(pc):
                self._mark(pc)
                emit_fuel(&self.code, self.block_lengths[pc - self.start],
                          self._object_bytes(pc, self.block_lengths[pc - self.start]))
            pc += self._translate_at(pc, self.rewritings)
        self._mark(max(self.start, self.end - 1))
        append(&self.code, 0)  # no operation: nothing runs on into the fallbacks
        self.image.extents[index].fallbacks = <int64_t*>self.code.count
        self.in_fallback = True
        i = 0
        while i < self.fallbacks.count:  # grows meanwhile: what falls back may fall back again
            self._translate_fallback((<Fallback*>(self.fallbacks.data + i))[0])
            i += FALLBACK_WORDS
        self.in_fallback = False
        self.image.extents[index].end = <int64_t*>self.code.count
        i = 0
        while i < self.fixups.count:
            fixup = <Fixup*>(self.fixups.data + i)
            self.code.data[fixup.word] = self.image.entries[fixup.target] - fixup.start
            i += FIXUP_WORDS
        func.frame_words = self.args_area + self.widest
        return 0

    cdef int64_t _heap_register(self) noexcept:
        """The register in which the function puts the shape heap that it makes in its first instructions,
        NO_REGISTER if it makes none."""
        cdef int64_t pc = self.start, register = VOID_REGISTER
        while self.heap_maker >= 0 and self._op(pc) == SRC_CALL:
            if self._word(pc, SRC_CALLEE) == self.heap_maker:
                register = self._word(pc, SRC_DST)
                break
            pc += 1
        return NO_REGISTER if register == VOID_REGISTER or register == VM_REGISTER else register

    cdef int64_t _place_registers(self, rvm_func* func, int64_t registers, int64_t kept) except -1:
        """Give the registers of the source places in the frame, one of which keeps its value until the
        function ends (NO_REGISTER: none does); returns how many there are."""
        cdef int64_t first = self.places.places.count // PLACE_WORDS
        self.own_places = NULL
        self.num_places = 0
        if not self.rewritings & REWRITE_REGISTERS:
            return registers
        registers = self.places.assign(
            self.data, self.offsets, self.start, self.end, func.num_params, kept)
        func.places = <rvm_place*>first
        self.own_places = <rvm_place*>self.places.places.data + first
        self.num_places = self.places.places.count // PLACE_WORDS - first
        func.num_places = self.num_places
        return registers

    cdef void _find_own_heap(self) noexcept:
        """Find the shape heap that the function makes in its first instructions, if operations on shapes
        are all that reads its register, after that, and nothing else writes it: then nobody but the
        function has the array."""
        cdef int64_t pc, made, target, register, count, i
        cdef const int64_t* args
        self.own_heap = NO_REGISTER
        if not self.rewritings & REWRITE_OWN_HEAPS or not self.rewritings & REWRITE_QUICKEN:
            return
        made = self.start
        while self._op(made) == SRC_CALL and (
                self.callee_kinds[self._word(made, SRC_CALLEE)] != AS_ALLOC_SHAPE_HEAP):
            made += 1
        if self._op(made) != SRC_CALL or self._word(made, SRC_DST) == VOID_REGISTER:
            return
        if not self._is_heap_alloc(self._word(made, SRC_COUNT), self._args(made)):
            return
        register = self._word(made, SRC_DST)
        for pc in range(self.start, self.end):
            target = self.start
            if self._op(pc) == SRC_CALL:
                count = self._word(pc, SRC_COUNT)
                args = self._args(pc)
                for i in range(count):
                    if ARG_KIND(args[i]) == ARG_REGISTER and ARG_VALUE(args[i]) == register:
                        if pc <= made or i != _heap_argument(
                                self.callee_kinds[self._word(pc, SRC_CALLEE)]):
                            return
                if pc != made and self._word(pc, SRC_DST) == register:
                    return
            elif self._op(pc) == SRC_GOTO:
                target = pc + self._word(pc, SRC_PC_OFFSET)
            elif self._op(pc) == SRC_RET:
                if self._word(pc, SRC_RESULT) == register:
                    return
            elif self._word(pc, SRC_COND) == register:
                return
            else:
                target = pc + self._word(pc, SRC_FALSE_OFFSET)
            if self.start < target <= made:
                return  # a path to what reads it that does not make it
        self.own_heap = register
        self.heap_slots = ARG_VALUE(self._args(made)[SRC_HEAP_SLOTS])

    cdef bint _is_heap_alloc(self, int64_t count, const int64_t* args) noexcept:
        """alloc_shape_heap: ctx, slots."""
        return count == 2 and self._is_machine(args[0]) and (
            self._is_immediate(args[SRC_HEAP_SLOTS], 0, MAX_HEAP_SLOTS))

    cdef bint _discards_results(self) noexcept:
        """Whether an operation of the function may have a result that nobody wants, or one that is to be
        returned is in no register."""
        cdef int64_t pc
        cdef int kind
        if self.hooked:
            return True  # it sees results before they are stored
        for pc in range(self.start, self.end):
            if self._op(pc) == SRC_CALL and self._word(pc, SRC_DST) == VOID_REGISTER:
                kind = self.callee_kinds[self._word(pc, SRC_CALLEE)]
                if kind != AS_CALL and kind != AS_UFUNC and not is_check(kind):
                    return True
            elif self._op(pc) == SRC_RET and not _is_register(self._word(pc, SRC_RESULT)):
                return True
        return False

    cdef int _find_heads(self) except -1:
        cdef int64_t pc, target
        self.heads = set()
        for pc in range(self.start, self.end):
            target = pc
            if self._op(pc) == SRC_GOTO:
                target += self._word(pc, SRC_PC_OFFSET)
            elif self._op(pc) == SRC_IF:
                target += self._word(pc, SRC_FALSE_OFFSET)
            else:
                continue
            if target <= pc:
                self.heads.add(target)
        return 0

    cdef int _emit_enter(self, int64_t pc) except -1:
        cdef rvm_site* site = self._site()
        site.count = ENTERS
        site.dims[0] = self.index
        self._mark(pc)
        return emit_enter(&self.code, site)

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
                lengths[pc + self._word(pc, SRC_PC_OFFSET) - self.start] = 1
            elif op == SRC_IF:
                lengths[pc + self._word(pc, SRC_FALSE_OFFSET) - self.start] = 1
            # The `ret` after a tail call belongs to its block: they are one operation.
            if op != SRC_CALL or (self._pushes_frame(pc) and not (
                    self.rewritings & REWRITE_TAIL_CALLS and self._is_tail_call(pc))):
                lengths[pc + 1 - self.start] = 1
        for pc in range(size):
            if lengths[pc]:
                block = pc
                lengths[pc] = 0
            lengths[block] += 1
        return 0

    cdef bint _pushes_frame(self, int64_t pc) noexcept:
        """Whether a call may run blocks of other functions: a census there forgets what this one
        charged for the instructions after the call."""
        return self.callee_kinds[self._word(pc, SRC_CALLEE)] in (AS_VM, AS_INVOKE_CLOSURE)

    cdef int64_t _object_bytes(self, int64_t pc, int64_t count) noexcept:
        """About the most bytes of the objects that instructions make, without the data of arrays and
        what builtins count themselves."""
        cdef int64_t total = 0
        cdef int kind
        for pc in range(pc, pc + count):
            total += SMALL_BYTES * self._function_values(pc)
            if self._op(pc) != SRC_CALL or self._word(pc, SRC_DST) == VOID_REGISTER:
                continue
            kind = self.callee_kinds[self._word(pc, SRC_CALLEE)]
            total += _bytes_of_call(kind, self._word(pc, SRC_COUNT))
        return total

    cdef int _translate_fallback(self, Fallback fallback) except -1:
        cdef int64_t pc
        self.code.data[fallback.start + FALLBACK] = self.code.count - fallback.start
        for pc in range(fallback.pc, fallback.end):
            if pc > fallback.pc:  # jumps into the middle of a fused run lead here
                self.image.entries[pc] = self.code.count
            self._translate_at(pc, fallback.rewritings)
        self._mark(fallback.end - 1)
        emit_goto(&self.code, fallback.resume - self.code.count)
        return 0

    cdef int _add_fallback(self, int64_t start, int64_t pc, int64_t end,
                           int64_t rewritings) except -1:
        """Ask for a fallback of the operation that was emitted at `start` and ends here: the
        instructions from `pc` up to `end`."""
        (<Fallback*>extend(&self.fallbacks, FALLBACK_WORDS))[0] = Fallback(
            start, pc, end, self.code.count, rewritings)
        return 0

    # -- an instruction

    cdef inline int64_t _word(self, int64_t pc, int64_t i) noexcept:
        return self.data[self.offsets[pc] + i]

    cdef inline int64_t _op(self, int64_t pc) noexcept:
        return self.data[self.offsets[pc]]

    cdef int64_t _translate_at(self, int64_t pc, int64_t rewritings) except -1:
        """Emit the operation for the instruction at `pc`; returns how many instructions it covers."""
        cdef int64_t op = self._op(pc)
        cdef int64_t start, target, covered
        self._mark(pc)
        if op == SRC_CALL:
            self._load_functions(pc, rewritings)
        start = self.code.count
        if op == SRC_CALL:
            covered = self._fused(pc, rewritings)
            if covered:
                return covered
            self._call(pc, rewritings)
        elif op == SRC_RET:
            self._ret(self._word(pc, SRC_RESULT))
        elif op == SRC_GOTO:
            target = self._thread(pc + self._word(pc, SRC_PC_OFFSET), rewritings)
            if target > pc + 1 or (target == pc + 1 and not rewritings & REWRITE_THREAD_JUMPS):
                emit_goto(&self.code, 0)
                self._fixup(start + GOTO_DISTANCE, start, target)
            elif target <= pc:
                self._jump_back(target)
        else:
            target = self._thread(pc + self._word(pc, SRC_FALSE_OFFSET), rewritings)
            emit_if(&self.code, self._register_operand(self._word(pc, SRC_COND)),
                    IF_WORDS + GOTO_WORDS)
            if target > pc:
                self._fixup(start + IF_OTHERWISE, start, target)
            else:  # to a jump back, which polls
                emit_goto(&self.code, GOTO_WORDS + GOTO_BACK_WORDS)
                self._jump_back(target)
        return 1

    cdef int _ret(self, int64_t result) except -1:
        """The result leaves its register.  So the last one holds nothing if that is it."""
        cdef int64_t registers = self.image.funcs[self.index].num_registers
        cdef int64_t register = self.scratch
        if _is_register(result):
            register = self._place(result)
        else:
            emit_copy(&self.code, register, self._register_operand(result))
        return emit_ret(&self.code, register, registers - (register == registers - 1))

    cdef int _jump_back(self, int64_t target) except -1:
        cdef int64_t start = self.code.count
        emit_goto_back(&self.code, 0)
        return self._fixup(start + GOTO_BACK_DISTANCE, start, target)

    cdef int64_t _thread(self, int64_t target, int64_t rewritings) noexcept:
        """Where a jump to `target` ends up when the gotos that stand there are followed."""
        cdef int hops
        if not rewritings & REWRITE_THREAD_JUMPS:
            return target
        for hops in range(GOTO_HOPS):
            if self._op(target) != SRC_GOTO:
                break
            target += self._word(target, SRC_PC_OFFSET)
        return target

    # Functions of the program that are values.  One in the pool would refer to the machine, which
    # owns the pool, so the code makes them where it needs them.

    cdef inline bint _is_own_function(self, int64_t word) noexcept:
        return ARG_KIND(word) == ARG_FUNCTION and self.callee_kinds[ARG_VALUE(word)] == AS_VM

    cdef int64_t _function_values(self, int64_t pc) noexcept:
        """How many values of the instruction at `pc` are functions of the program; with a hook, the
        callee may be one."""
        cdef const int64_t* args
        cdef int64_t i, total = 0
        if self._op(pc) != SRC_CALL:
            return 0
        if self.hooked and self.callee_kinds[self._word(pc, SRC_CALLEE)] == AS_VM:
            total += 1
        args = self._args(pc)
        for i in range(self._word(pc, SRC_COUNT)):
            total += self._is_own_function(args[i])
        return total

    cdef int64_t _most_values(self) noexcept:
        """The most such values of an instruction of the function."""
        cdef int64_t pc, most = 0
        for pc in range(self.start, self.end):
            most = max(most, self._function_values(pc))
        return most

    cdef int _load_functions(self, int64_t pc, int64_t rewritings) except -1:
        """Emit what loads the functions that are values in the call at `pc`.

        Of the calls that become one operation, only the first may have some.
        """
        cdef int64_t callee = self._word(pc, SRC_CALLEE)
        cdef const int64_t* args = self._args(pc)
        cdef int64_t i, direct
        self.loaded.clear()
        if self._function_values(pc) == 0:
            return 0
        if self.hooked and not self.in_fallback and self.callee_kinds[callee] == AS_VM:
            self._load_function(callee)
        direct = self._direct_operand(pc, rewritings)
        for i in range(self._word(pc, SRC_COUNT)):
            if i != direct and self._is_own_function(args[i]):
                self._load_function(ARG_VALUE(args[i]))
        return 0

    cdef int _load_function(self, int64_t index) except -1:
        cdef int64_t register
        if index not in self.loaded:
            register = self.loaded_area + len(self.loaded)
            self.loaded[index] = register
            emit_load_function(&self.code, register, &self.image.funcs[index])
        return 0

    cdef int64_t _direct_operand(self, int64_t pc, int64_t rewritings) noexcept:
        """The argument that the operation for a call takes as a function of the code, so that no
        value is made of it; -1 if there is none."""
        cdef int kind = self.callee_kinds[self._word(pc, SRC_CALLEE)]
        cdef int64_t count = self._word(pc, SRC_COUNT)
        cdef const int64_t* args = self._args(pc)
        if kind == AS_MAKE_CLOSURE and count >= 1 and rewritings & REWRITE_QUICKEN:
            return 0 if self._is_own_function(args[0]) else -1
        return -1

    cdef int _call(self, int64_t pc, int64_t rewritings) except -1:
        cdef int64_t dst = self._word(pc, SRC_DST)
        cdef int64_t callee = self._word(pc, SRC_CALLEE)
        cdef int64_t count = self._word(pc, SRC_COUNT)
        cdef const int64_t* args = self._args(pc)
        cdef int kind = self.callee_kinds[callee]
        cdef int64_t register = self.scratch
        cdef int64_t before = self.code.count
        cdef bint hook = self.hooked and not self.in_fallback
        cdef bint deferred = False
        if dst != VOID_REGISTER:
            dst = register = self._place(dst)
        if self.hooked:
            dst = self.scratch  # the hook sees the arguments once more before dst is written
        if hook:
            emit_hook_before(&self.code, register, 0, self._function_operand(callee),
                             self._hook_place(pc, callee), count)
            self._operands(args, count)
            self._mark(pc)
        if self.batches is not None and not self.in_fallback and pc in self.batches.calls:
            self._defer(pc, count, args, rewritings)
            deferred = True
        if kind == AS_VM:
            emit_call_vm(&self.code, dst if dst != VOID_REGISTER else self.scratch,
                         &self.image.funcs[callee], self.frame, count)
            self._operands(args, count)
            self._note_return(pc, dst if dst != VOID_REGISTER else self.scratch)
            if dst == VOID_REGISTER:
                emit_null(&self.code, self.scratch)
        elif kind == AS_NATIVE:
            emit_call_native(&self.code, dst if dst != VOID_REGISTER else self.scratch,
                             self._function_operand(callee), count)
            self._operands(args, count)
        elif kind == AS_CALL or not self._quicken(pc, kind, dst, count, args, rewritings):
            if dst == VOID_REGISTER:
                emit_call_void(&self.code, self._callee_operand(pc, rewritings), self.args_area,
                               count)
            else:
                emit_call(&self.code, dst, self._callee_operand(pc, rewritings), self.args_area,
                          count)
            self._operands(args, count)
            self.widest = max(self.widest, count)
        if hook:
            self._mark(pc)
            emit_hook_after(&self.code, register, self.scratch, self._function_operand(callee),
                            self._hook_place(pc, callee), count)
            self._operands(args, count)
            self.code.data[before + HOOK_BEFORE_AFTER] = self.code.count - before
        if deferred:
            self.code.data[before + DEFER_AFTER] = self.code.count - before
        if self.fueled and kind in (AS_CALL, AS_UFUNC, AS_NATIVE):
            emit_deadline(&self.code)
        return 0

    cdef int _defer(self, int64_t pc, int64_t count, const int64_t* args, int64_t rewritings) except -1:
        cdef rvm_site* site = self._site()
        cdef int64_t batch, outs
        batch, outs = self.batches.calls[pc]
        if batch not in self.batch_sites:
            self.batch_sites[batch] = <size_t>self._site()
        site.data = <const void*><size_t>self.batch_sites[batch]
        emit_defer(&self.code, 0, self._callee_operand(pc, rewritings), outs, site, count)
        self._operands(args, count)
        return 0

    cdef int _note_return(self, int64_t pc, int64_t dst) except -1:
        """Remember where a frame that the call at `pc` pushes returns to: the code that was emitted
        last.  (Where a tail call is one operation, only its fallback pushes one, and comes later.)"""
        if self.stepped:
            self.image.returns[pc] = self.code.count, dst
        return 0

    cdef int64_t _callee_operand(self, int64_t pc, int64_t rewritings) except? -1:
        """The callee of a call: of a kernel whose implementations in C all refuse a result of this
        data type and size, its reference."""
        cdef int64_t index = self._word(pc, SRC_CALLEE)
        cdef int64_t count = self._word(pc, SRC_COUNT)
        if not rewritings & REWRITE_KERNELS or not count or self.in_fallback:
            return self._function_operand(index)
        kernel = self.quick[index]
        if kernel is None or kernel is not self.callables[index]:
            return self._function_operand(index)
        result = self._static_result(pc, self._args(pc)[count - 1])
        if result is None or kernel.may_write(*result):
            return self._function_operand(index)
        found = self.immediates.get(("reference", index))
        if found is None:
            found = self.immediates["reference", index] = self._pool_object(kernel.reference)
        return found

    cdef object _static_result(self, int64_t pc, int64_t word):
        """Data type and bytes of the tensor that is in a register at `pc`, if an `alloc_tensor` of
        constant shape has put it there on every path, shortly before."""
        cdef const int64_t* args
        cdef int64_t nbytes, start = max(self.start, pc - MAX_CALLS_BACK)
        if ARG_KIND(word) != ARG_REGISTER:
            return None
        while pc > start and pc not in self._jump_targets():
            pc -= 1
            if self._op(pc) != SRC_CALL:
                return None
            if self._word(pc, SRC_DST) != ARG_VALUE(word):
                continue
            args = self._args(pc)
            if self.callee_kinds[self._word(pc, SRC_CALLEE)] != AS_ALLOC_TENSOR:
                return None
            if not self._is_tensor_alloc(self._word(pc, SRC_COUNT), args):
                return None
            if ARG_KIND(args[SRC_TENSOR_SHAPE]) != ARG_CONSTANT:
                return None
            dtype = self._constant(args[SRC_TENSOR_DTYPE])
            nbytes = self._static_bytes(args[SRC_TENSOR_SHAPE], dtype.itemsize)
            return None if nbytes < 0 else (dtype, nbytes)
        return None

    cdef set _jump_targets(self):
        """The pcs of the function that a jump leads to."""
        cdef int64_t pc
        if self.targets is None:
            self.targets = set()
            for pc in range(self.start, self.end):
                if self._op(pc) == SRC_GOTO:
                    self.targets.add(pc + self._word(pc, SRC_PC_OFFSET))
                elif self._op(pc) == SRC_IF:
                    self.targets.add(pc + self._word(pc, SRC_FALSE_OFFSET))
        return self.targets

    cdef int64_t _hook_place(self, int64_t pc, int64_t callee) except? -1:
        """Pool word of a pc; the callee's name stands in the word before it."""
        found = self.immediates.get(("hook", pc))
        if found is None:
            found = self.immediates["hook", pc] = self._pool_object(pc)
            self._pool_object(self.functions[callee].name)
        return found

    # -- quickening

    cdef bint _quicken(self, int64_t pc, int kind, int64_t dst, int64_t count, const int64_t* args,
                       int64_t rewritings) except -1:
        """Emit the operation for a call of a builtin or ufunc; returns whether there is one."""
        cdef int64_t start = self.code.count
        cdef bint discard = dst == VOID_REGISTER
        cdef bint done = False
        if kind == AS_UFUNC:
            if rewritings & REWRITE_UFUNCS:
                done = self._ufunc(self.quick[self._word(pc, SRC_CALLEE)], count, args)
        elif rewritings & REWRITE_QUICKEN or (kind == AS_INVOKE_CLOSURE and not self.in_fallback):
            # The loop always enters closures itself: recursion through them is not one of C.
            done = self._builtin(kind, self.scratch if discard else dst, count, args)
        if not done:
            return False
        if kind == AS_INVOKE_CLOSURE:
            self._note_return(pc, self.scratch if discard else dst)
        if has_fallback(self.code.data[start]):
            self._add_fallback(start, pc, pc + 1, 0)
        if has_dst(self.code.data[start]):
            if discard:
                emit_null(&self.code, self.scratch)
        elif not discard:
            emit_null(&self.code, dst)
        return True

    # The methods below emit one operation and return True, or False if the arguments do not fit.

    cdef bint _ufunc(self, object ufunc, int64_t count, const int64_t* args) except -1:
        """A kernel that is a ufunc: its inputs, out."""
        if count != ufunc.nin + 1:
            return False
        if count == 2:
            emit_ufunc_1(&self.code, <PyObject*>ufunc, self._operand(args[0]),
                         self._operand(args[1]))
        else:
            emit_ufunc_2(&self.code, <PyObject*>ufunc, self._operand(args[0]),
                         self._operand(args[1]), self._operand(args[2]))
        return True

    cdef bint _builtin(self, int kind, int64_t dst, int64_t count, const int64_t* args) except -1:
        if not self._has_source(kind, count, args):
            return False
        if kind == AS_COPY and count == 1:
            emit_copy(&self.code, dst, self._operand(args[0]))
        elif kind == AS_NULL_VALUE and count == 0:
            emit_null(&self.code, dst)
        elif kind == AS_MAKE_TUPLE:
            emit_make_tuple(&self.code, dst, count)
            self._operands(args, count)
        elif kind == AS_TUPLE_GETITEM and count == 2 and (
                self._is_immediate(args[SRC_GETITEM_INDEX], 0, INT64_MAX)):
            emit_tuple_getitem(&self.code, dst, self._operand(args[0]),
                               ARG_VALUE(args[SRC_GETITEM_INDEX]))
        elif kind == AS_MAKE_ADT and count >= 2 and (
                type(self._constant(args[SRC_ADT_CONSTRUCTOR])) is str
                and self._is_immediate(args[SRC_ADT_TAG], 0, INT32_MAX)):
            emit_make_adt(&self.code, dst, self._name_operand(args[SRC_ADT_CONSTRUCTOR]),
                          ARG_VALUE(args[SRC_ADT_TAG]), count - SRC_ADT_FIELDS)
            self._operands(args + SRC_ADT_FIELDS, count - SRC_ADT_FIELDS)
        elif kind == AS_ADT_TAG and count == 1:
            emit_adt_tag(&self.code, dst, self._operand(args[0]))
        elif kind == AS_MATCH_TAG:
            return self._match_tag(dst, count, args)
        elif kind == AS_ADT_FIELD and count == 2 and (
                self._is_immediate(args[SRC_GETITEM_INDEX], 0, INT64_MAX)):
            emit_adt_field(&self.code, dst, self._operand(args[0]),
                           ARG_VALUE(args[SRC_GETITEM_INDEX]))
        elif kind == AS_TAG_IS and count == 2 and (
                self._is_immediate(args[SRC_GETITEM_INDEX], 0, INT64_MAX)):
            emit_tag_is(&self.code, dst, self._operand(args[0]),
                        ARG_VALUE(args[SRC_GETITEM_INDEX]))
        elif kind == AS_READ_IF_COND and count == 1:
            emit_read_cond(&self.code, dst, self._operand(args[0]))
        elif kind == AS_RESHAPE and count == 2:
            emit_reshape(&self.code, dst, self._operand(args[0]),
                         self._operand(args[SRC_RESHAPE_SHAPE]))
        elif kind == AS_SHAPE_OF and count == 1:
            emit_shape_of(&self.code, dst, self._operand(args[0]), self._site())
        elif kind == AS_MAKE_SHAPE and self._shape_recipe(count, args):
            emit_make_shape(
                &self.code, dst, self._operand(args[0]), self._slots_of(
                    args[0], self._last_slot(args + SRC_MAKE_SHAPE_DIMS, RVM_MAKE_IMM,
                                             RVM_MAKE_IMM)),
                self._site(), ARG_VALUE(args[SRC_MAKE_SHAPE_DIMS]))
            self._pairs(args + SRC_MAKE_SHAPE_DIMS)
        elif kind == AS_MAKE_PRIM_VALUE and count == 3 and (
                self._is_immediate(args[SRC_MAKE_PRIM_CODE], RVM_MAKE_IMM, RVM_MAKE_SLOT)
                and self._is_slot_pair(args + SRC_MAKE_PRIM_CODE, RVM_MAKE_IMM, RVM_MAKE_IMM)):
            emit_make_prim(&self.code, dst, self._operand(args[0]),
                           ARG_VALUE(args[SRC_MAKE_PRIM_CODE]),
                           ARG_VALUE(args[SRC_MAKE_PRIM_VALUE]))
        elif kind == AS_ALLOC_SHAPE_HEAP and self._is_heap_alloc(count, args):
            emit_alloc_heap(&self.code, dst, ARG_VALUE(args[SRC_HEAP_SLOTS]), self._site())
        elif kind == AS_ALLOC_STORAGE:
            return self._storage(dst, count, args)
        elif kind == AS_ALLOC_TENSOR:
            return self._tensor(dst, count, args)
        elif kind == AS_MAKE_CLOSURE and count >= 1 and self._is_own_function(args[0]):
            emit_make_closure_of(&self.code, dst, &self.image.funcs[ARG_VALUE(args[0])], count - 1)
            self._operands(args + SRC_MAKE_CLOSURE_CAPTURED, count - 1)
        elif kind == AS_MAKE_CLOSURE and count >= 1:
            emit_make_closure(&self.code, dst, self._operand(args[0]), count - 1)
            self._operands(args + SRC_MAKE_CLOSURE_CAPTURED, count - 1)
        elif kind == AS_INVOKE_CLOSURE and count >= 2 and self._is_machine(args[0]):
            emit_invoke_closure(&self.code, dst, self._operand(args[SRC_INVOKE_CLOSURE_CLOSURE]),
                                self.frame, count - SRC_INVOKE_CLOSURE_ARGS)
            self._operands(args + SRC_INVOKE_CLOSURE_ARGS, count - SRC_INVOKE_CLOSURE_ARGS)
        elif kind == AS_COMPUTE_SHAPE and count == 2:
            return self._shape_program(args)
        elif self._has_context(count, args):
            return self._check(kind, count, args)
        else:
            return False
        return True

    cdef bint _has_source(self, int kind, int64_t count, const int64_t* args) except -1:
        """Whether the argument that the operation for a call of a builtin reads from a register, if there
        is one, is in a register.  A constant may stand there, but hardly ever does."""
        cdef int64_t i = SRC_INVOKE_CLOSURE_CLOSURE if kind == AS_INVOKE_CLOSURE else 0
        return not reads_register(kind) or (count > i and self._operand(args[i]) >= 0)

    cdef bint _match_tag(self, int64_t dst, int64_t count, const int64_t* args) except -1:
        """A value, then per constructor its name and its number of fields."""
        cdef int64_t i
        if count % 2 == 0:
            return False
        for i in range(1, count, 2):
            if type(self._constant(args[i])) is not str or not (
                    self._is_immediate(args[i + 1], 0, INT32_MAX)):
                return False
        emit_match_tag(&self.code, dst, self._operand(args[0]), (count - 1) // 2)
        for i in range(1, count, 2):
            append(&self.code, self._name_operand(args[i]))
            append(&self.code, ARG_VALUE(args[i + 1]))
        return True

    cdef bint _check(self, int kind, int64_t count, const int64_t* args) except -1:
        """Builtins whose last argument is the context of an error message."""
        cdef cnp.PyArray_Descr* descr = NULL
        cdef int64_t x = self._operand(args[0])
        if kind == AS_CHECK_TENSOR_INFO and self._tensor_check(count, args, &descr):
            emit_check_tensor(&self.code, x, ARG_VALUE(args[SRC_CHECK_NDIM]), <PyObject*>descr)
        elif kind == AS_MATCH_SHAPE and self._shape_match(count, args):
            emit_match_shape(
                &self.code, x, self._operand(args[SRC_MATCH_SHAPE_HEAP]), self._slots_of(
                    args[SRC_MATCH_SHAPE_HEAP], self._last_slot(
                        args + SRC_MATCH_SHAPE_DIMS, RVM_MATCH_IMM, RVM_MATCH_ANY)),
                ARG_VALUE(args[SRC_MATCH_SHAPE_DIMS]))
            self._pairs(args + SRC_MATCH_SHAPE_DIMS)
        elif kind == AS_CHECK_FUNC_INFO and count == 2:
            emit_check_func(&self.code, x)
        elif kind == AS_CHECK_SHAPE_INFO and count == 3 and (
                self._is_immediate(args[SRC_CHECK_NDIM], -1, INT64_MAX)):
            emit_check_shape(&self.code, x, ARG_VALUE(args[SRC_CHECK_NDIM]))
        elif kind == AS_CHECK_TUPLE_INFO and count == 3 and (
                self._is_immediate(args[SRC_CHECK_NDIM], -1, INT64_MAX)):
            emit_check_tuple(&self.code, x, ARG_VALUE(args[SRC_CHECK_NDIM]))
        elif kind == AS_CHECK_PRIM_VALUE_INFO and count == 3:
            dtype = self._constant(args[SRC_CHECK_PRIM_DTYPE])
            if not isinstance(dtype, np.dtype) or dtype.kind not in "biuf":
                return False
            emit_check_prim(&self.code, x, dtype.kind == "f")
        elif kind == AS_MATCH_PRIM_VALUE and count == 5 and (
                self._is_immediate(args[SRC_MATCH_PRIM_CODE], RVM_MATCH_IMM, RVM_MATCH_SLOT)
                and self._is_slot_pair(args + SRC_MATCH_PRIM_CODE, RVM_MATCH_IMM, RVM_MATCH_ANY)):
            emit_match_prim(&self.code, x, self._operand(args[SRC_MATCH_PRIM_HEAP]),
                            ARG_VALUE(args[SRC_MATCH_PRIM_CODE]),
                            ARG_VALUE(args[SRC_MATCH_PRIM_VALUE]))
        else:
            return False
        return True

    cdef bint _shape_program(self, const int64_t* args) except -1:
        """compute_shape: heap, program.  Its words are those of the constant, ended by a word more."""
        cdef int64_t last = RVM_NO_SLOT, depth = 0, stores = 0
        program = self._constant(args[SRC_COMPUTE_PROGRAM])
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
        emit_compute_shape(&self.code, self._operand(args[0]), self._slots_of(args[0], last),
                           len(program) + 1)
        for word in program:
            append(&self.code, word)
        append(&self.code, RVM_SHAPE_END)
        return True

    cdef bint _storage(self, int64_t dst, int64_t count, const int64_t* args) except -1:
        cdef Allocator allocator = self._allocator(count, args)
        cdef int64_t nbytes
        if allocator is None:
            return False
        itemsize = self._constant(args[SRC_STORAGE_DTYPE]).itemsize
        if ARG_KIND(args[SRC_STORAGE_SHAPE]) == ARG_CONSTANT:
            nbytes = self._static_bytes(args[SRC_STORAGE_SHAPE], itemsize)
            if nbytes < 0:
                return False
            emit_alloc_storage(&self.code, dst, <PyObject*>allocator, nbytes)
        else:
            emit_alloc_storage_dyn(&self.code, dst, <PyObject*>allocator,
                                   self._operand(args[SRC_STORAGE_SHAPE]), itemsize)
        return True

    cdef bint _tensor(self, int64_t dst, int64_t count, const int64_t* args) except -1:
        cdef int64_t offset, nbytes
        if not self._is_tensor_alloc(count, args):
            return False
        offset = ARG_VALUE(args[SRC_TENSOR_OFFSET])
        dtype = self._constant(args[SRC_TENSOR_DTYPE])
        if ARG_KIND(args[SRC_TENSOR_SHAPE]) == ARG_CONSTANT:
            nbytes = self._static_bytes(args[SRC_TENSOR_SHAPE], dtype.itemsize)
            shape = self._constant(args[SRC_TENSOR_SHAPE])
            if nbytes < 0 or nbytes > INT64_MAX - offset or len(shape) > RVM_MAX_DIMS:
                return False
            emit_alloc_tensor_of(&self.code, dst, self._operand(args[0]), offset, offset + nbytes,
                                 <PyObject*>dtype, len(shape))
            self._numbers(shape)
        else:
            emit_alloc_tensor(&self.code, dst, self._operand(args[0]), offset,
                              self._operand(args[SRC_TENSOR_SHAPE]), <PyObject*>dtype)
        return True

    # -- fusion: these return how many instructions became one operation, 0 for none

    cdef int64_t _fused(self, int64_t pc, int64_t rewritings) except -1:
        cdef int kind = self.callee_kinds[self._word(pc, SRC_CALLEE)]
        cdef int64_t start = self.code.count
        cdef int64_t covered = 0
        if kind == AS_READ_IF_COND and rewritings & REWRITE_READ_IF:
            covered = self._fused_read_if(pc, rewritings)
        elif kind == AS_TAG_IS and rewritings & REWRITE_IF_TAG:
            covered = self._fused_if_tag(pc, rewritings)
        elif kind in (AS_VM, AS_INVOKE_CLOSURE) and rewritings & REWRITE_TAIL_CALLS:
            covered = self._fused_tail_call(pc, kind)
        elif kind == AS_CHECK_TENSOR_INFO and rewritings & REWRITE_CHECK_MATCH:
            covered = self._fused_check_match(pc)
        elif kind == AS_ALLOC_STORAGE and rewritings & REWRITE_ALLOC_STATIC:
            covered = self._fused_alloc(pc, rewritings)
        if covered:
            self._add_fallback(start, pc, pc + covered, rewritings & REWRITE_QUICKEN)
        return covered

    cdef int64_t _fused_read_if(self, int64_t pc, int64_t rewritings) except -1:
        cdef int64_t start = self.code.count
        cdef int64_t target = self._target_of_test(pc, rewritings)
        if target < 0 or self._word(pc, SRC_COUNT) != 1:
            return 0
        if not self._has_source(AS_READ_IF_COND, 1, self._args(pc)):
            return 0
        emit_read_if(&self.code, self._place(self._word(pc, SRC_DST)),
                     self._operand(self._args(pc)[0]), 0)
        self._fixup(start + READ_IF_OTHERWISE, start, target)
        return 2

    cdef int64_t _fused_if_tag(self, int64_t pc, int64_t rewritings) except -1:
        cdef int64_t start = self.code.count
        cdef const int64_t* args = self._args(pc)
        cdef int64_t target = self._target_of_test(pc, rewritings)
        if target < 0 or self._word(pc, SRC_COUNT) != 2:
            return 0
        if not self._is_immediate(args[SRC_GETITEM_INDEX], 0, INT64_MAX):
            return 0
        if not self._has_source(AS_TAG_IS, 2, args):
            return 0
        emit_if_tag(&self.code, self._place(self._word(pc, SRC_DST)), self._operand(args[0]),
                    ARG_VALUE(args[SRC_GETITEM_INDEX]), 0)
        self._fixup(start + IF_TAG_OTHERWISE, start, target)
        return 2

    cdef int64_t _target_of_test(self, int64_t pc, int64_t rewritings) noexcept:
        """Where an `if` on the result of the call at `pc` jumps to, -1 if they cannot be fused."""
        cdef int64_t target
        if self._word(pc, SRC_DST) == VOID_REGISTER or pc + 1 >= self.end:
            return -1
        if self._op(pc + 1) != SRC_IF or self._word(pc + 1, SRC_COND) != self._word(pc, SRC_DST):
            return -1
        if self._starts_block(pc + 1):
            return -1
        target = self._thread(pc + 1 + self._word(pc + 1, SRC_FALSE_OFFSET), rewritings)
        return target if target > pc + 1 else -1

    cdef bint _is_tail_call(self, int64_t pc) noexcept:
        """Whether a call of another function or a closure stands before a `ret` of its result.

        Code generation makes loops of functions that call themselves last; code that does not is
        meant to nest, up to the limit."""
        cdef int64_t dst = self._word(pc, SRC_DST)
        return (self._word(pc, SRC_CALLEE) != self.index and dst != VOID_REGISTER and pc + 1 < self.end and self._op(pc + 1) == SRC_RET
                and self._word(pc + 1, SRC_RESULT) == dst)

    cdef int64_t _fused_tail_call(self, int64_t pc, int kind) except -1:
        cdef const int64_t* args = self._args(pc)
        cdef int64_t count = self._word(pc, SRC_COUNT)
        if self.hooked or not self._is_tail_call(pc) or self._starts_block(pc + 1):
            return 0
        if kind == AS_VM:
            emit_tail_call_vm(&self.code, &self.image.funcs[self._word(pc, SRC_CALLEE)],
                              self.args_area, count)
        elif count < SRC_INVOKE_CLOSURE_ARGS or not self._is_machine(args[0]):
            return 0
        elif not self._has_source(AS_INVOKE_CLOSURE, count, args):
            return 0
        else:
            args += SRC_INVOKE_CLOSURE_ARGS
            count -= SRC_INVOKE_CLOSURE_ARGS
            emit_tail_invoke_closure(
                &self.code, self._operand(self._args(pc)[SRC_INVOKE_CLOSURE_CLOSURE]),
                self.args_area, count)
        self._operands(args, count)
        self.widest = max(self.widest, count)
        return 2

    cdef int64_t _fused_check_match(self, int64_t pc) except -1:
        cdef const int64_t* check = self._args(pc)
        cdef const int64_t* match
        cdef int64_t check_count = self._word(pc, SRC_COUNT), match_count
        cdef cnp.PyArray_Descr* descr = NULL
        if self._word(pc, SRC_DST) != VOID_REGISTER or not self._next_call_is(pc, AS_MATCH_SHAPE):
            return 0
        match = self._args(pc + 1)
        match_count = self._word(pc + 1, SRC_COUNT)
        if not self._has_context(check_count, check) or not self._has_context(match_count, match):
            return 0
        if self._word(pc + 1, SRC_DST) != VOID_REGISTER or match[0] != check[0]:
            return 0
        if not self._has_source(AS_CHECK_TENSOR_INFO, check_count, check):
            return 0
        if not self._tensor_check(check_count, check, &descr):
            return 0
        if not self._shape_match(match_count, match):
            return 0
        emit_check_match(
            &self.code, self._operand(check[0]), ARG_VALUE(check[SRC_CHECK_NDIM]),
            <PyObject*>descr, self._operand(match[SRC_MATCH_SHAPE_HEAP]), self._slots_of(
                match[SRC_MATCH_SHAPE_HEAP], self._last_slot(
                    match + SRC_MATCH_SHAPE_DIMS, RVM_MATCH_IMM, RVM_MATCH_ANY)),
            ARG_VALUE(match[SRC_MATCH_SHAPE_DIMS]))
        self._pairs(match + SRC_MATCH_SHAPE_DIMS)
        return 2

    cdef int64_t _fused_alloc(self, int64_t pc, int64_t rewritings) except -1:
        """A storage of constant size and one tensor on it, if the storage's kill follows.  The
        operation clears the storage's register, so the kill need not run."""
        cdef const int64_t* storage = self._args(pc)
        cdef const int64_t* tensor
        cdef int64_t storage_dst = self._word(pc, SRC_DST), tensor_dst
        cdef Allocator allocator
        cdef int64_t nbytes, offset, needed
        if not self._next_call_is(pc, AS_ALLOC_TENSOR):
            return 0
        if not self._next_call_is(pc + 1, AS_NULL_VALUE):
            return 0
        tensor = self._args(pc + 1)
        tensor_dst = self._word(pc + 1, SRC_DST)
        if storage_dst == VOID_REGISTER or tensor_dst == VOID_REGISTER or tensor_dst == storage_dst:
            return 0
        if self._word(pc + 2, SRC_DST) != storage_dst or self._word(pc + 2, SRC_COUNT) != 0:
            return 0
        if not self._is_tensor_alloc(self._word(pc + 1, SRC_COUNT), tensor):
            return 0
        if tensor[0] != storage_dst or ARG_KIND(tensor[SRC_TENSOR_SHAPE]) != ARG_CONSTANT:
            return 0
        allocator = self._allocator(self._word(pc, SRC_COUNT), storage)
        if allocator is None or ARG_KIND(storage[SRC_STORAGE_SHAPE]) != ARG_CONSTANT:
            return 0
        nbytes = self._static_bytes(storage[SRC_STORAGE_SHAPE],
                                    self._constant(storage[SRC_STORAGE_DTYPE]).itemsize)
        offset = ARG_VALUE(tensor[SRC_TENSOR_OFFSET])
        dtype = self._constant(tensor[SRC_TENSOR_DTYPE])
        needed = self._static_bytes(tensor[SRC_TENSOR_SHAPE], dtype.itemsize)
        if not 0 <= nbytes <= MAX_STATIC_BYTES or needed < 0:
            return 0
        shape = self._constant(tensor[SRC_TENSOR_SHAPE])
        if len(shape) > RVM_MAX_DIMS or offset > nbytes or needed > nbytes - offset:
            return 0
        emit_alloc_static(&self.code, self._place(tensor_dst), self._place(storage_dst),
                          <PyObject*>allocator, nbytes, offset, <PyObject*>dtype, self._site(),
                          len(shape))
        self._numbers(shape)
        return 3 if rewritings & REWRITE_KILLS else 2

    cdef bint _next_call_is(self, int64_t pc, int kind) noexcept:
        return (pc + 1 < self.end and self._op(pc + 1) == SRC_CALL
                and self.callee_kinds[self._word(pc + 1, SRC_CALLEE)] == kind
                and not self._starts_block(pc + 1))

    cdef bint _starts_block(self, int64_t pc) noexcept:
        # With fuel, the charge for a block stands before its first operation.
        return self.fueled and self.block_lengths[pc - self.start] != 0

    # -- what arguments are, as far as the code shows it

    cdef inline const int64_t* _args(self, int64_t pc) noexcept:
        """The argument words of the call at `pc`."""
        return self.data + self.offsets[pc] + SRC_ARGS

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

    cdef bint _is_slot_pair(self, const int64_t* pair, int64_t code, int64_t other) noexcept:
        """Whether a code and its number are immediates, and the number a heap slot unless the code is
        one of the two given, which use none."""
        if ARG_KIND(pair[0]) != ARG_IMMEDIATE or ARG_KIND(pair[1]) != ARG_IMMEDIATE:
            return False
        return ARG_VALUE(pair[0]) in (code, other) or ARG_VALUE(pair[1]) >= 0

    cdef bint _is_pattern(self, int64_t count, const int64_t* args, int64_t last_code,
                          int64_t other) noexcept:
        """Whether n and its (code, number) pairs at `args` are immediates; `count` words are there."""
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
        return count >= 4 and self._is_pattern(
            count - SRC_MATCH_SHAPE_DIMS - 1, args + SRC_MATCH_SHAPE_DIMS, RVM_MATCH_SLOT,
            RVM_MATCH_ANY)

    cdef bint _shape_recipe(self, int64_t count, const int64_t* args) noexcept:
        """make_shape: heap, n, pairs."""
        return count >= 2 and self._is_pattern(
            count - SRC_MAKE_SHAPE_DIMS, args + SRC_MAKE_SHAPE_DIMS, RVM_MAKE_SLOT, RVM_MAKE_IMM)

    cdef bint _tensor_check(self, int64_t count, const int64_t* args,
                            cnp.PyArray_Descr** descr) except -1:
        """check_tensor_info: x, ndim, [dtype], error context."""
        if count not in (3, 4) or not self._is_immediate(args[SRC_CHECK_NDIM], -1, INT64_MAX):
            return False
        descr[0] = NULL
        if count == 4:
            if ARG_KIND(args[SRC_CHECK_DTYPE]) == ARG_CONSTANT:
                dtype = self._constant(args[SRC_CHECK_DTYPE])
                if isinstance(dtype, np.dtype):
                    descr[0] = <cnp.PyArray_Descr*><PyObject*>dtype
                elif dtype is not None:
                    return False
            elif args[SRC_CHECK_DTYPE] != VOID_REGISTER:
                return False
        return True

    cdef bint _is_tensor_alloc(self, int64_t count, const int64_t* args) except -1:
        """alloc_tensor: storage, offset, shape, dtype, [scope]."""
        if count not in (4, 5) or not self._is_immediate(args[SRC_TENSOR_OFFSET], 0, INT64_MAX):
            return False
        dtype = self._constant(args[SRC_TENSOR_DTYPE])
        if not isinstance(dtype, np.dtype) or dtype.hasobject or dtype.subdtype is not None:
            return False
        return count == 4 or self._is_global(args[SRC_TENSOR_SCOPE])

    cdef bint _is_global(self, int64_t word):
        """Whether a word is the constant "global": a file may have any other there."""
        scope = self._constant(word)
        return type(scope) is str and scope == "global"

    cdef Allocator _allocator(self, int64_t count, const int64_t* args):
        """The allocator of alloc_storage: ctx, shape, device index, dtype, scope; or None."""
        if count != 5 or not self._is_machine(args[0]):
            return None
        if not self._is_immediate(args[SRC_STORAGE_DEVICE], -1, len(self.allocators) - 1):
            return None
        if not isinstance(self._constant(args[SRC_STORAGE_DTYPE]), np.dtype):
            return None
        if not self._is_global(args[SRC_STORAGE_SCOPE]):
            return None
        # -1 is the host; negative indices do not wrap in this module
        device = ARG_VALUE(args[SRC_STORAGE_DEVICE])
        allocator = self.allocators[device if device >= 0 else len(self.allocators) - 1]
        # A subclass may override alloc().
        return allocator if type(allocator) in (NaiveAllocator, PooledAllocator) else None

    cdef int64_t _static_bytes(self, int64_t word, int64_t itemsize) except -2:
        """Bytes of a constant Shape of items; -1 if it is not one, or if strides of such an array, for
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

    # -- words

    cdef int _fixup(self, int64_t word, int64_t start, int64_t target) except -1:
        """Have the word at a position hold the distance from `start` to the source pc `target`."""
        (<Fixup*>extend(&self.fixups, FIXUP_WORDS))[0] = Fixup(word, start, target)
        return 0

    cdef int _mark(self, int64_t pc) except -1:
        append(&self.mark_words, self.code.count)
        return append(&self.mark_pcs, pc)

    cdef int _numbers(self, object numbers) except -1:
        for number in numbers:
            append(&self.code, number)
        return 0

    cdef int _pairs(self, const int64_t* words) except -1:
        """The (code, number) pairs after their count."""
        cdef int64_t i
        for i in range(2 * ARG_VALUE(words[0])):
            append(&self.code, ARG_VALUE(words[1 + i]))
        return 0

    cdef int64_t _last_slot(self, const int64_t* words, int64_t code, int64_t other) noexcept:
        """The greatest heap slot in n pairs, -1 for none; the two codes use none."""
        cdef int64_t i, last = RVM_NO_SLOT
        for i in range(ARG_VALUE(words[0])):
            if ARG_VALUE(words[1 + 2 * i]) not in (code, other):
                last = max(last, ARG_VALUE(words[2 + 2 * i]))
        return last

    cdef int64_t _slots_of(self, int64_t heap, int64_t last) noexcept:
        """The operand for slots up to `last` of the heap that an argument word stands for."""
        if (ARG_KIND(heap) == ARG_REGISTER and ARG_VALUE(heap) == self.own_heap
                and 0 <= last < self.heap_slots):
            return RVM_OWN_HEAP
        return last

    cdef int _operands(self, const int64_t* words, int64_t count) except -1:
        cdef int64_t i
        for i in range(count):
            append(&self.code, self._operand(words[i]))
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

    cdef int64_t _name_operand(self, int64_t word) except? -1:
        """Pool word of a constant string, which is interned: values have their names so."""
        name = intern(self._constant(word))
        found = self.immediates.get(name)
        if found is None:
            found = self.immediates[name] = self._pool_object(name)
        return found

    cdef int64_t _register_operand(self, int64_t register) except? -1:
        if register == VM_REGISTER:
            return -1  # position 0 of the pool
        if register == VOID_REGISTER:
            return self._constant_object(None)
        return self._place(register)

    cdef inline int64_t _place(self, int64_t register) noexcept:
        """The register of the frame that a register of the source stands for."""
        if self.own_places is NULL:
            return register
        return rvm_find_place(self.own_places, self.num_places, register).frame

    cdef int64_t _function_operand(self, int64_t index) except? -1:
        if self.callee_kinds[index] == AS_VM:
            return self.loaded[index]
        if self.callee_words[index] == 0:
            self.callee_words[index] = self._pool_object(self.callables[index])
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
            append(&self.sites, <int64_t>site)
        except MemoryError:
            PyMem_RawFree(site)
            raise
        return site


cdef void* _zeroed(size_t nbytes) except NULL:
    cdef void* memory = PyMem_RawCalloc(1, max(nbytes, 1))
    if memory is NULL:
        raise MemoryError(f"no memory for {nbytes} bytes of translated code")
    return memory
