"""The layout of the file of a saved run.

Little endian; a ``string`` is a u64 count of bytes and that many bytes of UTF-8, a ``ref`` the i64
number of a value, -1 for none::

    head        8 bytes magic, u32 version, u32 CRC-32 of the parts, u64 bytes of the parts,
                u64 bytes of the memory, u32 CRC-32 of the memory, u32 zero
    parts       32 bytes digest of the executable
                i64 function that was started, i64 whether it has begun, i64 instructions run,
                i64 fuel used, i64 nanoseconds used
                u64 count of frames, the outermost first, each:
                    i64 function, i64 pc, u64 count of registers, ref each
                u64 count of entries of the state, each: string name, ref
                u64 count of rooms, each: string name, ref, i64 used
                u64 count of blocks of memory, each: u8 kind, fields
                u64 count of values, each: u8 kind, fields
    padding     zeros up to a multiple of 64
    memory      the blocks with bytes, each padded with zeros to a multiple of 64

The kinds of blocks are in `relaxvm.vm.saved_runs.memory`, those of values in
`relaxvm.vm.saved_runs.kinds`.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

__all__ = [
    "ALIGNMENT",
    "HEAD",
    "MAGIC",
    "NONE",
    "RUN",
    "VERSION",
    "FrameRecord",
    "Head",
    "RoomRecord",
    "RunRecord",
    "padding",
]

MAGIC: Final = b"\x89RVMRUN\n"
"""Not the beginning of any text, and changed where line ends are converted."""
VERSION: Final = 1
HEAD: Final = struct.Struct("<8sIIQQII")
RUN: Final = struct.Struct("<32s5q")
ALIGNMENT: Final = 64
NONE: Final = -1
"""The reference to no value: a register that was never written, or holds None."""


class Head(NamedTuple):
    """The first bytes of a file."""

    magic: bytes
    version: int
    parts_crc: int
    parts_bytes: int
    memory_bytes: int
    memory_crc: int
    zero: int


class RunRecord(NamedTuple):
    """What is known of a run as a whole.

    Attributes:
        digest: of the executable, see `relaxvm.vm.saved_runs.programs`.
        function: index of the function that was started.
        begun: 1 if an instruction has run, else 0.
        position: how many have.
        fuel_used: what it has used of `Limits.fuel`, 0 if that was not limited.
        wall_used_ns: the same of `Limits.wall_time`, in nanoseconds.
    """

    digest: bytes
    function: int
    begun: int
    position: int
    fuel_used: int
    wall_used_ns: int


class FrameRecord(NamedTuple):
    """A frame.

    Attributes:
        function: index of its function.
        pc: of the instruction that it is at; of a call that has not returned, except in the
            innermost frame.
        registers: their values; in a file, their references.
    """

    function: int
    pc: int
    registers: tuple[Any, ...]


class RoomRecord(NamedTuple):
    """Memory that the machine keeps for a cache that grows, see
    `relaxvm.builtins.state.cache_extend`.

    Attributes:
        name: of the cache.
        buffer: the array; in a file, its reference.
        used: how much of it was ever used.
    """

    name: str
    buffer: Any
    used: int


def padding(position: int) -> int:
    """Zeros that follow what ends at a position."""
    return -position % ALIGNMENT
