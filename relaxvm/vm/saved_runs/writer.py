"""From a paused run to the bytes of a file."""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._core import Storage, VMFunction
from ...errors import UnsavableError
from ...executable.formats._fields import I64, U64, Writer
from ...messages import describe, readable
from .kinds import ObjectMemory, ValueKind, kind_of_value, owner_of
from .layout import ALIGNMENT, HEAD, MAGIC, NONE, RUN, VERSION, FrameRecord, RunRecord, padding
from .memory import Block, Blocks, write_block
from .programs import Program

if TYPE_CHECKING:
    from ..machine import VirtualMachine

__all__ = ["encode"]

_SCALARS: Final = (bool, int, str, bytes)
_DEEPEST_PATH: Final = 4
"""Levels of a value that a message names."""


class _Root(NamedTuple):
    """A place from which values are found: a register of a frame, or an entry of the state."""

    value: Any
    text: str
    function: str | None = None
    pc: int | None = None
    register: int | None = None


class Values:
    """The values of a run, each once, with the numbers that they have in the file.

    Attributes:
        to: what the kinds write to.
    """

    def __init__(self, vm: VirtualMachine, program: Program) -> None:
        self.to = Writer()
        self._vm = vm
        self._program = program
        self._functions = {
            id(function): number
            for number, info in enumerate(vm.executable.functions)
            if (function := vm._packed.get(info.name)) is not None
        }
        self._numbers: dict[Any, int] = {}
        self._found: list[tuple[Any, ValueKind]] = []  # keeps the values alive, too
        self._parts: dict[int, list[Any]] = {}  # by id; of the values with parts
        self._memories: dict[int, ObjectMemory] = {}
        self._blocks = Blocks()
        self.blocks: list[Block] = []

    # What the kinds ask for

    def ref(self, value: Any) -> int:
        return NONE if value is None else self._numbers[_key(value)]

    def parts_of(self, value: Any) -> Iterable[Any]:
        return self._parts[id(value)]

    def place_of(self, array: NDArray[Any]) -> tuple[int, int]:
        return self._blocks.of_array(array)

    def block_of(self, storage: Storage) -> int:
        return self._blocks.of_storage(storage)

    def memory_of(self, array: NDArray[Any]) -> ObjectMemory:
        owner = owner_of(array)
        return self._memories.setdefault(id(owner), ObjectMemory(owner))

    def function_number(self, function: Any) -> int | None:
        if type(function) is VMFunction:
            return function.index if function.machine is self._vm else None
        return self._functions.get(id(function))

    def constant_number(self, value: Any) -> int | None:
        return self._program.number_of.get(id(value))

    # Finding

    def add(self, root: _Root) -> None:
        """Find a value, and all that it is made of.

        Raises:
            UnsavableError: files have no such value.
        """
        if root.value is None or _key(root.value) in self._numbers:
            return
        waiting: deque[tuple[Any, str]] = deque([(root.value, "")])
        while waiting:  # parts of values that are filled, which may be part of themselves
            value, inside = waiting.popleft()
            self._add_one(value, inside, root, waiting)

    def _add_one(
        self, value: Any, inside: str, root: _Root, waiting: deque[tuple[Any, str]]
    ) -> None:
        opened: list[tuple[Any, ValueKind, Iterator[tuple[int, Any]], int]] = []

        def path() -> str:
            steps = [
                f"{'part' if position else 'the first part'} {position or ''}".rstrip()
                + f" of {kind.name}"
                for _, kind, _, position in opened[-_DEEPEST_PATH:]
            ]
            return ", ".join([*reversed(steps), *filter(None, [inside])])

        current = value
        while True:
            key = None if current is None else _key(current)
            if key is not None and key not in self._numbers:
                kind, parts = self._kind_and_parts(current, root, path)
                if kind.fill is not None or not parts:
                    self._number(key, current, kind)
                    here = f"{kind.name} {path()}".rstrip()
                    waiting.extend((part, f"inside of {here}") for part in parts)
                else:
                    opened.append((current, kind, enumerate(parts), -1))
            while opened:
                outer, kind, rest, _ = opened[-1]
                following = next(rest, None)
                if following is not None:
                    position, current = following
                    opened[-1] = outer, kind, rest, position
                    break
                opened.pop()
                self._number(_key(outer), outer, kind)
            else:
                return

    def _kind_and_parts(
        self, value: Any, root: _Root, path: Any
    ) -> tuple[ValueKind, list[Any]]:
        kind = kind_of_value(value, self)
        what = ""
        parts: list[Any] = []
        if kind is None:
            what = f"{_article(value)}{describe(value)}"
        else:
            try:
                parts = list(kind.parts(self, value))
            except TypeError as error:
                what = str(error)
        if what:
            place = ": ".join(filter(None, [root.text, path()]))
            raise UnsavableError(
                f"{place}: {what} cannot be saved{_hint(value)}",
                root.function, root.pc, root.register,
            )  # fmt: skip
        assert kind is not None
        if type(value) is np.ndarray and kind.name == "tensor":
            self._blocks.add_array(value)
        elif type(value) is Storage:
            self._blocks.add_storage(value)
        if type(value) not in _SCALARS:
            self._parts[id(value)] = parts
        return kind, parts

    def _number(self, key: Any, value: Any, kind: ValueKind) -> None:
        if key not in self._numbers:
            self._numbers[key] = len(self._found)
            self._found.append((value, kind))

    # Writing

    def find_blocks(self) -> None:
        """Find the memory of all arrays, once all values are added."""
        self.blocks = self._blocks.find(self._program.constant_at)

    def write(self, to: Writer) -> None:
        self.to = to
        to.put(U64.pack(len(self._found)))
        for value, kind in self._found:
            to.put(bytes([kind.code]))
            kind.write(self, value)


def _key(value: Any) -> Any:
    """What two values have in common that are one in the file: numbers and text are by their
    content, others if they are one object."""
    kind = type(value)
    if kind in _SCALARS:
        return kind, value
    if kind is float:
        return kind, struct.pack("<d", value)
    return id(value)


def _article(value: Any) -> str:
    return "" if callable(value) else "an object that only this process has: "


def _hint(value: Any) -> str:
    if callable(value):
        return ("; pass it to the virtual machine, as functions={name: function}, and let the "
                "program name it, or pause the run where it is not needed")
    return "; pause the run where it is not needed"


def encode(
    vm: VirtualMachine,
    program: Program,
    run: RunRecord,
    frames: Sequence[FrameRecord],
    names: Sequence[Mapping[int, str]],
    state: Mapping[str, Any],
    rooms: Mapping[str, Any],
) -> Iterator[memoryview]:
    """Yield the bytes of a file; the first time after all values have been found.

    Args:
        vm: the machine that runs it.
        program: what is known of its executable.
        run: the run as a whole.
        frames: the frames with the values of the registers, the outermost first.
        names: per frame the variables that registers hold, for messages.
        state: what the machine keeps from one call to the next.
        rooms: the memory that it keeps for caches that grow.

    Raises:
        UnsavableError: a value cannot be saved.
        FormatError: a name has no UTF-8 form.
    """
    values = Values(vm, program)
    for frame, known in zip(frames, names, strict=True):
        function = vm.executable.functions[frame.function].name
        for number, value in enumerate(frame.registers):
            if value is not None:
                variable = f" (variable {readable(known[number])})" if number in known else ""
                place = f"{readable(function)}, pc {frame.pc}, register %{number}{variable}"
                values.add(_Root(value, place, function, frame.pc, number))
    for name, value in state.items():
        values.add(_Root(value, f"vm.state[{readable(name)!r}]"))
    for name, room in rooms.items():
        values.add(_Root(room.buffer, f"the memory of vm.state[{readable(name)!r}]"))
    values.find_blocks()

    to = Writer()
    to.put(RUN.pack(*run))
    to.put(U64.pack(len(frames)))
    for frame in frames:
        refs = [values.ref(value) for value in frame.registers]
        to.put(struct.pack(f"<qqQ{len(refs)}q", frame.function, frame.pc, len(refs), *refs))
    to.put(U64.pack(len(state)))
    for name, value in state.items():
        to.string(name, "name of an entry of the state")
        to.put(I64.pack(values.ref(value)))
    to.put(U64.pack(len(rooms)))
    for name, room in rooms.items():
        to.string(name, "name of an entry of the state")
        to.put(I64.pack(values.ref(room.buffer)) + I64.pack(room.used))
    to.put(U64.pack(len(values.blocks)))
    memory = [
        view for block in values.blocks
        if (view := write_block(to, block, vm.devices)) is not None
    ]  # fmt: skip
    values.write(to)
    parts = b"".join(to.views())
    return _with_head(parts, memory, values)


def _with_head(
    parts: bytes, memory: Sequence[memoryview], alive: Values
) -> Iterator[memoryview]:
    """Yield head, parts and memory; `alive` keeps the memory."""
    zeros = bytes(ALIGNMENT)
    crc = total = 0
    for view in memory:
        gap = padding(view.nbytes)
        crc = zlib.crc32(zeros[:gap], zlib.crc32(view, crc))
        total += view.nbytes + gap
    head = HEAD.pack(MAGIC, VERSION, zlib.crc32(parts), len(parts), total, crc, 0)
    gap = padding(len(head) + len(parts))
    yield memoryview(head + parts + zeros[:gap])
    for view in memory:
        yield view
        if gap := padding(view.nbytes):
            yield memoryview(zeros[:gap])
    del alive
