"""From a file to the parts of a saved run, all of them checked."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from io import BufferedIOBase
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..._core import VMFunction
from ...errors import FormatError, LimitError, MissingExtraError
from ...executable.formats._fields import I64, Reader
from ...executable.formats._streams import BufferStream
from ...isa import FuncKind
from ...limits import Limits
from .kinds import BY_CODE
from .layout import (
    HEAD,
    MAGIC,
    NONE,
    RUN,
    VERSION,
    FrameRecord,
    Head,
    RoomRecord,
    RunRecord,
    padding,
)
from .memory import LoadedBlock, read_block

if TYPE_CHECKING:
    from ..machine import VirtualMachine

__all__ = ["SavedRun", "read"]

_LEAST_FRAME: Final = 3 * 8
_LEAST_ENTRY: Final = 2 * 8
_LEAST_ROOM: Final = 3 * 8
_LEAST_BLOCK: Final = 9
_LEAST_VALUE: Final = 2
_VALUE_BYTES: Final = 64
_PART_BYTES: Final = 8
"""About what the objects of values take."""
_MOST_OBJECT_BYTES: Final = 1 << 62


class SavedRun(NamedTuple):
    """What a file holds.

    Attributes:
        run: the run as a whole.
        frames: the frames with their values, the outermost first.
        state: what the machine keeps from one call to the next, by name.
        rooms: the memory for caches that grow.
        object_bytes: about what the objects take beside the memory of arrays.
    """

    run: RunRecord
    frames: list[FrameRecord]
    state: dict[str, Any]
    rooms: list[RoomRecord]
    object_bytes: int


class _Loading:
    """Reads values; see `relaxvm.vm.saved_runs.kinds.Loading`."""

    def __init__(self, read: Reader, vm: VirtualMachine, blocks: Sequence[LoadedBlock]) -> None:
        self.read = read
        self.blocks = blocks
        self.constants = vm.executable.constants
        self.values: list[Any] = []
        self.parts = 0
        self._vm = vm
        self._unfilled: list[tuple[int, Any, Any, tuple[int, ...]]] = []

    def read_all(self) -> None:
        """Read the values, of which some are empty until `fill`."""
        count = self.read.count(_LEAST_VALUE)
        self.read.within("data_parts", count, "values")
        for number in self.read.entries("value", count):
            kind = BY_CODE.get(self.read.stream.take(1)[0])
            if kind is None:
                raise FormatError("unknown kind of value")
            value = kind.read(self)
            if kind.fill is not None:
                value, refs = value
                self._unfilled.append((number, kind.fill, value, refs))
            self.values.append(value)

    def fill(self) -> None:
        """Give values that are filled their parts, once arrays have their elements."""
        self.read.section = "value"
        for number, fill, value, refs in self._unfilled:
            self.read.index = number
            fill(value, [self.at(ref) for ref in refs])
        self.read.index = -1

    def part(self) -> Any:
        (ref,) = self.read.unpack(I64)
        self.parts += 1
        if ref == NONE:
            return None
        if not 0 <= ref < len(self.values):
            raise FormatError(f"expected a part among the values before it, got value {ref}")
        return self.values[ref]

    def refs(self, count: int) -> tuple[int, ...]:
        self.parts += count
        return self.read.integers(count)

    def at(self, ref: int) -> Any:
        """The value of a reference, once all are read."""
        if ref == NONE:
            return None
        if not 0 <= ref < len(self.values):
            raise FormatError(f"there is no value {ref}")
        return self.values[ref]

    def function_at(self, number: int) -> VMFunction | Any | None:
        table = self._vm.executable.functions
        if not 0 <= number < len(table):
            return None
        if table[number].kind == FuncKind.PACKED:
            return self._vm._packed.get(table[number].name)
        return self._vm._function(number)


def read(
    file: BufferedIOBase, name: str, size: int, vm: VirtualMachine, digest: bytes, limits: Limits
) -> SavedRun:
    """Read a file from its position to its end.

    Args:
        name: for messages.
        size: the bytes from the position to the end.
        vm: the machine that is to run it.
        digest: that of its executable.
        limits: bounds on the content.

    Raises:
        FormatError: the file is malformed, of another version, or of another executable.
        LimitError: it exceeds `limits`.
        MissingExtraError: an array has a data type of ml_dtypes, and that is not installed.
        OSError: it cannot be read.
    """
    limits.check("file_bytes", size, name)
    try:
        head = _read_head(file, size)
        data = _exactly(file, head.parts_bytes)
        if zlib.crc32(data) != head.parts_crc:
            raise FormatError("the checksum of the parts is wrong: the file is damaged")
        if any(_exactly(file, padding(HEAD.size + head.parts_bytes))):
            raise FormatError("expected zeros before the memory")
    except FormatError as fault:
        raise FormatError(f"{name}: not a saved run: {fault}") from None
    reader = Reader(BufferStream(memoryview(data), False, HEAD.size), name, limits)
    try:
        return _read_parts(reader, file, head, vm, digest)
    except FormatError as fault:
        raise FormatError(f"{name}: not a saved run ({reader.place}: {fault})") from None
    except LimitError as fault:
        fault.add_note(f"while loading {name}")
        raise
    except MissingExtraError as fault:
        raise MissingExtraError(f"{name}: {fault}") from None


def _read_head(file: BufferedIOBase, size: int) -> Head:
    if size < HEAD.size:
        raise FormatError(f"expected at least {HEAD.size} bytes, got {size}")
    data = _exactly(file, HEAD.size)
    head = Head(*HEAD.unpack(data))
    if head.magic != MAGIC:
        raise FormatError(f"expected the magic {MAGIC!r}, got {head.magic!r}")
    if head.version != VERSION:
        newer = "; it is of a newer relaxvm" if head.version > VERSION else ""
        raise FormatError(f"expected version {VERSION}, got {head.version}{newer}")
    if head.zero:
        raise FormatError("expected a zero at the end of the head")
    rest = size - HEAD.size
    if head.parts_bytes > rest:
        raise FormatError(f"truncated: {head.parts_bytes} bytes of parts, {rest} are there")
    rest -= head.parts_bytes + padding(HEAD.size + head.parts_bytes)
    if head.memory_bytes != max(rest, 0) or rest < 0:
        what = "truncated" if head.memory_bytes > rest else "too long"
        raise FormatError(f"{what}: {head.memory_bytes} bytes of memory, {rest} are there")
    return head


def _exactly(file: BufferedIOBase, count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise FormatError(f"truncated: {count} bytes needed, {len(data)} are there")
    return data


def _read_parts(
    read: Reader, file: BufferedIOBase, head: Head, vm: VirtualMachine, digest: bytes
) -> SavedRun:
    run = RunRecord(*read.unpack(RUN))
    if run.digest != digest:
        raise FormatError(
            f"it is a run of another executable: expected {digest.hex()[:16]}..., got "
            f"{run.digest.hex()[:16]}...; load it with the executable that was running"
        )
    frames = [_read_frame(read) for _ in read.entries("frame", read.count(_LEAST_FRAME))]
    read.section = "state"
    state = [_read_entry(read) for _ in read.entries("state", read.count(_LEAST_ENTRY))]
    read.section = "room"
    rooms = [
        RoomRecord(*_read_entry(read), read.unpack(I64)[0])
        for _ in read.entries("room", read.count(_LEAST_ROOM))
    ]
    blocks = _read_blocks(read, vm, head.memory_bytes)
    values = _Loading(read, vm, blocks)
    values.read_all()
    read.section = "end"
    if read.left:
        raise FormatError(f"{read.left} bytes follow at byte {read.stream.position}")
    read.section = "memory"
    _fill_blocks(file, blocks, head)
    values.fill()
    for read.index, frame in enumerate(frames):
        read.section = "frame"
        registers = tuple([values.at(ref) for ref in frame.registers])
        frames[read.index] = frame._replace(registers=registers)
    read.section, read.index = "state", -1
    entries = {name: values.at(ref) for name, ref in state}
    if len(entries) != len(state):
        raise FormatError("an entry of the state is there twice")
    rooms = [room._replace(buffer=values.at(room.buffer)) for room in rooms]
    nbytes = _VALUE_BYTES * len(values.values) + _PART_BYTES * values.parts + head.parts_bytes
    return SavedRun(run, frames, entries, rooms, min(nbytes, _MOST_OBJECT_BYTES))


def _read_frame(read: Reader) -> FrameRecord:
    function, pc = read.integers(2)
    count = read.count(I64.size, "registers")
    return FrameRecord(function, pc, read.integers(count))


def _read_entry(read: Reader) -> tuple[str, int]:
    name = read.name_of(read.count(1))
    return name, read.unpack(I64)[0]


def _read_blocks(read: Reader, vm: VirtualMachine, left: int) -> list[LoadedBlock]:
    blocks = []
    read.section = "memory"
    for _ in read.entries("memory", read.count(_LEAST_BLOCK)):
        block = read_block(read, vm.executable.constants, vm.allocators, left)
        if block.has_bytes:
            left -= block.memory.nbytes + padding(block.memory.nbytes)
        blocks.append(block)
    read.section = "memory"
    if left:
        raise FormatError(f"the blocks leave {left} bytes of the memory in the file")
    return blocks


def _fill_blocks(file: BufferedIOBase, blocks: Sequence[LoadedBlock], head: Head) -> None:
    crc = 0
    for block in blocks:
        if not block.has_bytes:
            continue
        view = block.memory.data
        done = 0
        while done < view.nbytes:
            count = file.readinto(view[done:])
            if not count:
                raise FormatError("truncated: the file has become shorter")
            done += count
        gap = _exactly(file, padding(view.nbytes))
        if any(gap):
            raise FormatError("expected zeros after a block of memory")
        crc = zlib.crc32(gap, zlib.crc32(view, crc))
    if crc != head.memory_crc:
        raise FormatError("the checksum of the memory is wrong: the file is damaged")
    if file.read(1):
        raise FormatError("the file has become longer")


