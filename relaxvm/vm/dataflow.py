"""The dataflow executor: which calls of a program are independent of each other.

A function's instructions between two jumps are straight-line code.  In it, calls of kernels that
write to their last arguments only, to tensors that the function has allocated itself, can be put
off: what they depend on is the memory they read and write.  `find_batches` finds, for each stretch
of such code without anything that looks at the contents of tensors, the calls that depend on each
other, from registers, storages and offsets.  Where all later calls depend on all earlier ones, the
stretch is cut; between two cuts there is a *batch* of calls of which some are independent, or a
single call.

The core adds the calls of a batch to a list, and runs them at its end, several at once where that
is worth while.  It compares the addresses that calls read and write, so what is found here decides
only what may run side by side, not whether results are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ..core._native import NativeFunction
from ..dependences import all_before, between_cuts
from ..executable import FunctionInfo, VMExecutable
from ..isa import VM_REGISTER, VOID_REGISTER, Arg, ArgKind, FuncKind, Instruction
from ..registry import KERNEL_PREFIX, Registry
from ..values import Shape
from .linking import is_own_kernel

__all__ = ["Batches", "find_batches"]

_ALLOC_STORAGE: Final = "vm.builtin.alloc_storage"
_ALLOC_TENSOR: Final = "vm.builtin.alloc_tensor"
_ALLOC_HEAP: Final = "vm.builtin.alloc_shape_heap"
_NULL: Final = "vm.builtin.null_value"
_COPY: Final = "vm.builtin.copy"
_RESHAPE: Final = "vm.builtin.reshape"

_SMALL: Final = 1 << 14
"""Calls that work on fewer bytes together are not put off."""

_HEAP_ARGUMENT: Final = {
    "vm.builtin.match_shape": 1,
    "vm.builtin.match_prim_value": 1,
    "vm.builtin.make_shape": 0,
    "vm.builtin.make_prim_value": 0,
    "relaxvm.builtin.compute_shape": 0,
}
"""Builtins that compute with a shape heap, and which argument that is."""

_LOOKS_AT_NO_ELEMENTS: Final = frozenset(
    f"vm.builtin.{name}" for name in (
        "alloc_shape_heap", "alloc_storage", "alloc_tensor", "check_func_info",
        "check_prim_value_info", "check_shape_info", "check_tensor_info", "check_tuple_info",
        "copy", "make_closure", "make_tuple", "null_value", "shape_of", "tuple_getitem",
    )
)  # fmt: skip
"""Builtins that neither read nor write elements of tensors."""


class Batches(NamedTuple):
    """The calls of an executable that are put off.

    Attributes:
        calls: pc -> the number of the batch, and how many of the last arguments the call writes.
        joins: the pcs before which the batch that is there runs.
    """

    calls: dict[int, tuple[int, int]]
    joins: frozenset[int]


class _Place(NamedTuple):
    """Bytes of a storage.

    Attributes:
        storage: the pc of the instruction that allocates it.
        first, end: in bytes; `end` is None where the size is not constant.
    """

    storage: int
    first: int
    end: int | None

    def meets(self, other: _Place) -> bool:
        if self.storage != other.storage:
            return False
        return (self.end is None or other.first < self.end) and (
            other.end is None or self.first < other.end
        )


class _Task(NamedTuple):
    """A call that can be put off.

    Attributes:
        pc: of the call.
        outs: how many of the last arguments it writes.
        read, written: the places of memory, as far as the function has allocated it.
    """

    pc: int
    outs: int
    read: tuple[_Place, ...]
    written: tuple[_Place, ...]

    def storages(self) -> set[int]:
        return {place.storage for place in (*self.read, *self.written)}

    def depends_on(self, earlier: _Task) -> bool:
        return _meet(self.written, (*earlier.read, *earlier.written)) or (
            _meet(self.read, earlier.written)
        )


def _meet(some: Iterable[_Place], others: Sequence[_Place]) -> bool:
    return any(a.meets(b) for a in some for b in others)


def find_batches(
    executable: VMExecutable,
    callables: Sequence[Callable[..., Any] | None],
    quick: Sequence[Any],
    scope: Registry,
) -> Batches:
    """Find the calls that may run side by side with others.

    Args:
        executable: a verified executable.
        callables: per function-table entry what is called, None for bytecode functions.
        quick: as `relaxvm.vm.linking.Linked` has it.
        scope: of the packed functions.
    """
    finder = _Finder(executable, callables, quick, scope)
    for info in executable.functions:
        if info.kind == FuncKind.BYTECODE:
            finder.search(info)
    return Batches(finder.calls, frozenset(finder.joins))


class _Finder:
    def __init__(
        self,
        executable: VMExecutable,
        callables: Sequence[Callable[..., Any] | None],
        quick: Sequence[Any],
        scope: Registry,
    ) -> None:
        self.calls: dict[int, tuple[int, int]] = {}
        self.joins: set[int] = set()
        self._executable = executable
        self._callables = callables
        self._scope = scope
        self._builtins = [name if isinstance(name, str) else "" for name in quick]
        self._outs: dict[tuple[int, int], int] = {}
        self._batches = 0

    def search(self, info: FunctionInfo) -> None:
        code = [self._executable.instruction(pc) for pc in range(info.start_instr, info.end_instr)]
        if sum(self._is_kernel_call(each) for each in code) < 2:
            return
        heaps = self._heaps(info, code)
        targets = set(_targets(info.start_instr, code))
        places: dict[int, _Place] = {}
        tasks: list[_Task] = []
        for pc, instruction in enumerate(code, info.start_instr):
            if pc in targets:
                self._add(tasks)
                tasks, places = [], {}
            task = self._task(pc, instruction, places)
            if task is not None:
                tasks.append(task)
            elif not self._follow(pc, instruction, places, heaps):
                self._add(tasks)
                tasks = []
                if instruction.op.name != "call":
                    places = {}

    def _is_kernel_call(self, instruction: Instruction) -> bool:
        if instruction.op.name != "call":
            return False
        index = instruction["func_idx"]
        return self._outs_of(index, len(instruction.args)) > 0

    def _outs_of(self, index: int, count: int) -> int:
        """How many of the last of `count` arguments a function writes, if it does nothing else; 0
        if that is not known."""
        found = self._outs.get((index, count))
        if found is None:
            found = self._outs[index, count] = self._find_outs(index, count)
        return found

    def _find_outs(self, index: int, count: int) -> int:
        function = self._callables[index]
        if type(function) is NativeFunction:
            if not function.writes:
                return 0
            written = {i if i >= 0 else count + i for i in function.writes}
            return len(written) if written == set(range(count - len(written), count)) else 0
        name = self._executable.functions[index].name
        if not name.startswith(KERNEL_PREFIX):
            return 0
        record = self._scope.lookup(name)
        if record is None or record.signature is None or not is_own_kernel(record):
            return 0
        params, variadic, last, *_ = record.signature
        if variadic is not None and not last:
            return count - len(params) if variadic.name == "outs" else 0
        names = [param.name for param in last or params]
        return len(names) - names.index("out") if "out" in names else 0

    def _heaps(self, info: FunctionInfo, code: Sequence[Instruction]) -> frozenset[int]:
        """The registers that hold nothing but shape heaps."""
        written: dict[int, set[str]] = {
            register: {"parameter"} for register in range(info.num_args)
        }
        for instruction in code:
            if instruction.op.name == "call" and instruction["dst"] != VOID_REGISTER:
                name = self._builtins[instruction["func_idx"]]
                written.setdefault(instruction["dst"], set()).add(name)
        return frozenset(
            register for register, names in written.items()
            if _ALLOC_HEAP in names and names <= {_ALLOC_HEAP, _NULL}
        )  # fmt: skip

    def _task(self, pc: int, instruction: Instruction, places: dict[int, _Place]) -> _Task | None:
        """The call at `pc`, if it can be put off."""
        if instruction.op.name != "call" or instruction["dst"] != VOID_REGISTER:
            return None
        args = instruction.args
        outs = self._outs_of(instruction["func_idx"], len(args))
        if not outs or not all(map(_is_plain, args)):
            return None
        written = [arg.value for arg in args[-outs:] if arg.kind == ArgKind.REGISTER]
        if len(written) < outs or not all(register in places for register in written):
            return None
        read = [
            arg.value
            for arg in args[:-outs]
            if arg.kind == ArgKind.REGISTER and arg.value in places
        ]
        return _Task(
            pc, outs, tuple(places[r] for r in read), tuple(places[r] for r in written)
        )

    def _follow(
        self, pc: int, instruction: Instruction, places: dict[int, _Place], heaps: frozenset[int]
    ) -> bool:
        """Follow an instruction; returns whether calls before it may still be put off."""
        if instruction.op.name != "call":
            return False
        name = self._builtins[instruction["func_idx"]]
        dst, args = instruction["dst"], instruction.args
        place = self._result(name, pc, args, places)
        passes = name in _LOOKS_AT_NO_ELEMENTS
        if name == _RESHAPE:
            passes = place is not None  # of contiguous memory, so that it copies nothing
        heap = _HEAP_ARGUMENT.get(name)
        if heap is not None and len(args) > heap:
            arg = args[heap]
            passes = arg.kind == ArgKind.CONSTANT or (
                arg.kind == ArgKind.REGISTER and arg.value in heaps
            )
        if dst != VOID_REGISTER:
            places.pop(dst, None)
            if place is not None:
                places[dst] = place
        return passes

    def _result(
        self, name: str, pc: int, args: Sequence[Arg], places: dict[int, _Place]
    ) -> _Place | None:
        """Where the result of a builtin is, if it is memory of the function."""
        if name == _ALLOC_STORAGE:
            return _Place(pc, 0, None)
        if name in (_COPY, _RESHAPE, _ALLOC_TENSOR) and args and args[0].kind == ArgKind.REGISTER:
            place = places.get(args[0].value)
            if place is None or name != _ALLOC_TENSOR or len(args) < 4:
                return place
            offset, nbytes = args[1], self._bytes_of(args[2], args[3])
            if offset.kind != ArgKind.IMMEDIATE:
                return place
            first = place.first + offset.value
            return _Place(place.storage, first, None if nbytes is None else first + nbytes)
        return None

    def _bytes_of(self, shape: Arg, dtype: Arg) -> int | None:
        if shape.kind != ArgKind.CONSTANT or dtype.kind != ArgKind.CONSTANT:
            return None
        constants = self._executable.constants
        dims, kind = constants[shape.value], constants[dtype.value]
        if not isinstance(dims, Shape) or not isinstance(kind, np.dtype):
            return None
        nbytes = int(kind.itemsize)
        for dim in dims:
            nbytes *= dim
        return nbytes

    def _add(self, tasks: Sequence[_Task]) -> None:
        """Make batches of the calls between cuts."""
        before = all_before(tasks, _Task.storages, _Task.depends_on)
        for first, stop in between_cuts(before):
            if _is_small(tasks[first:stop]):
                continue
            for task in tasks[first:stop]:
                self.calls[task.pc] = self._batches, task.outs
            self.joins.add(tasks[stop - 1].pc + 1)
            self._batches += 1


def _is_small(tasks: Sequence[_Task]) -> bool:
    """Whether tasks are known to work on so little memory that waking a thread takes longer."""
    total = 0
    for task in tasks:
        for place in (*task.read, *task.written):
            if place.end is None:
                return False
            total += place.end - place.first
    return total < _SMALL


def _is_plain(arg: Arg) -> bool:
    """Whether an argument is no function and not the virtual machine."""
    return arg.kind != ArgKind.FUNCTION and not (
        arg.kind == ArgKind.REGISTER and arg.value == VM_REGISTER
    )


def _targets(start: int, code: Sequence[Instruction]) -> Iterator[int]:
    """The pcs that jumps lead to."""
    for pc, instruction in enumerate(code, start):
        if instruction.op.name == "goto":
            yield pc + instruction["pc_offset"]
        elif instruction.op.name == "if":
            yield pc + instruction["false_offset"]
