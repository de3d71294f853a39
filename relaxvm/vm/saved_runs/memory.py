"""The memory of the arrays in a saved run, and which arrays share it.

Arrays that share memory are views of one *block*: a range of addresses in which no two parts can be
written apart.  A block is a storage, where the run holds that itself; a constant of the executable;
or else the bytes from the first to the last element of arrays that overlap.
"""

from __future__ import annotations

import ctypes
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._core import Storage
from ...errors import FormatError
from ...executable.formats._fields import Reader, Writer
from ..allocators import Allocator

__all__ = ["Block", "BlockKind", "Blocks", "extent_of", "read_block", "write_block"]


class BlockKind:
    """What a block is, as it stands in a file."""

    BYTES: Final = 0
    """u64 bytes, u8 their first address modulo 16."""
    CONSTANT: Final = 1
    """i64 number of the constant."""
    STORAGE: Final = 2
    """u64 bytes, i64 number of the allocator, string memory scope."""


class Block(NamedTuple):
    """A block.

    Attributes:
        kind: one of `BlockKind`.
        start, end: addresses of the memory.
        constant: the number of the constant.
        storage: the storage.
    """

    kind: int
    start: int
    end: int
    constant: int = -1
    storage: Storage | None = None

    @property
    def nbytes(self) -> int:
        return self.end - self.start

    def view(self) -> memoryview:
        """Its bytes; valid as long as the arrays that it was found by."""
        if self.start == self.end:
            return memoryview(b"")
        return memoryview((ctypes.c_ubyte * self.nbytes).from_address(self.start)).cast("B")


_PHASES: Final = 16
"""Arrays keep their alignment up to this many bytes: what the system's allocators ensure."""
_BYTES: Final = struct.Struct("<QB")
_CONSTANT: Final = struct.Struct("<q")
_STORAGE: Final = struct.Struct("<Qq")


def extent_of(array: NDArray[Any]) -> tuple[int, int]:
    """The address of the first byte of an array that is not empty, and that after the last."""
    address: int = array.__array_interface__["data"][0]
    start = end = address
    for size, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            start += (size - 1) * stride
        else:
            end += (size - 1) * stride
    return start, end + array.itemsize


class Blocks:
    """The blocks of arrays and storages, in the order in which these were added first."""

    def __init__(self) -> None:
        self._extents: list[tuple[int, int, int]] = []  # start, end, order
        self._storages: dict[int, Storage] = {}  # by order
        self._found: list[Block] = []
        self._starts: list[int] = []
        self._numbers: list[int] = []

    def add_array(self, array: NDArray[Any]) -> None:
        """Add an array without Python objects in it."""
        if array.size and array.itemsize:
            self._extents.append((*extent_of(array), len(self._extents)))

    def add_storage(self, storage: Storage) -> None:
        start = _address_of(storage)
        self._storages[len(self._extents)] = storage
        self._extents.append((start, start + storage.nbytes, len(self._extents)))

    def find(self, constant_at: Callable[[int, int], tuple[int, int] | None]) -> list[Block]:
        """Find the blocks, once everything is added; `constant_at` as of a `Program`."""
        merged: list[tuple[int, int, int, Storage | None]] = []  # first order, start, end, storage
        for start, end, order in sorted(self._extents):
            storage = self._storages.get(order)
            if merged and start < merged[-1][2]:
                first, begin, last, other = merged[-1]
                merged[-1] = min(first, order), begin, max(last, end), other or storage
            else:
                merged.append((order, start, end, storage))
        placed = []
        for number, (_, start, end, storage) in enumerate(sorted(merged, key=lambda m: m[0])):
            constant = None if storage is not None else constant_at(start, end)
            if storage is not None:
                block = Block(BlockKind.STORAGE, start, end, storage=storage)
            elif constant is not None:
                block = Block(BlockKind.CONSTANT, constant[1], end, constant[0])
            else:
                block = Block(BlockKind.BYTES, start, end)
            self._found.append(block)
            placed.append((start, number))
        placed.sort()
        self._starts = [start for start, _ in placed]
        self._numbers = [number for _, number in placed]
        return self._found

    def of_array(self, array: NDArray[Any]) -> tuple[int, int]:
        """The number of the block of an array, and where in it the first element is; (-1, 0) of an
        empty array."""
        if not array.size or not array.itemsize:
            return -1, 0
        number = self._at(extent_of(array)[0])
        return number, array.__array_interface__["data"][0] - self._found[number].start

    def of_storage(self, storage: Storage) -> int:
        """The number of the block of a storage."""
        if not storage.nbytes:  # it has no address of its own
            return next(i for i, b in enumerate(self._found) if b.storage is storage)
        return self._at(_address_of(storage))

    def _at(self, address: int) -> int:
        return self._numbers[bisect_right(self._starts, address) - 1]


def _address_of(storage: Storage) -> int:
    whole = storage.view(0, (storage.nbytes,), np.dtype(np.uint8))
    address: int = whole.__array_interface__["data"][0]
    return address


def write_block(to: Writer, block: Block, devices: Sequence[Any]) -> memoryview | None:
    """Write the record of a block; return its bytes if they follow."""
    to.put(bytes([block.kind]))
    if block.kind == BlockKind.CONSTANT:
        to.put(_CONSTANT.pack(block.constant))
        return None
    if block.kind == BlockKind.BYTES:
        to.put(_BYTES.pack(block.nbytes, block.start % _PHASES))
    else:
        assert block.storage is not None
        to.put(_STORAGE.pack(block.nbytes, devices.index(block.storage.device)))
        to.string(block.storage.scope, "memory scope")
    return block.view()


class LoadedBlock(NamedTuple):
    """A block that was read.

    Attributes:
        memory: uint8[n]; read-only for a constant.
        storage: the storage, if the block is one.
        has_bytes: whether its bytes are in the file.
    """

    memory: NDArray[np.uint8]
    storage: Storage | None
    has_bytes: bool


def read_block(
    read: Reader, constants: Sequence[Any], allocators: Sequence[Allocator], left: int
) -> LoadedBlock:
    """Read the record of a block, and make its memory.

    Args:
        left: how many bytes of memory the file has that are not taken.

    Raises:
        FormatError: the record is wrong.
        LimitError: the allocator's limits do not allow it.
    """
    kind = read.stream.take(1)[0]
    if kind == BlockKind.CONSTANT:
        (number,) = read.unpack(_CONSTANT)
        if not 0 <= number < len(constants) or not _has_memory(constants[number]):
            raise FormatError(f"there is no tensor among the constants with the number {number}")
        return LoadedBlock(_bytes_of(constants[number]), None, False)
    if kind == BlockKind.BYTES:
        nbytes, phase = read.unpack(_BYTES)
        if phase >= _PHASES:
            raise FormatError(f"expected an address modulo {_PHASES}, got {phase}")
        _check_size(nbytes, left)
        storage = allocators[-1].alloc(nbytes + phase)
        whole = storage.view(phase, (nbytes,), np.dtype(np.uint8))
        return LoadedBlock(whole, None, True)
    if kind == BlockKind.STORAGE:
        nbytes, number = read.unpack(_STORAGE)
        _check_size(nbytes, left)
        if not 0 <= number < len(allocators):
            raise FormatError(f"expected an allocator below {len(allocators)}, got {number}")
        scope = read.name_of(read.count(1))
        storage = allocators[number].alloc(nbytes, scope)
        return LoadedBlock(storage.view(0, (nbytes,), np.dtype(np.uint8)), storage, True)
    raise FormatError(f"unknown kind of memory {kind}")


def _check_size(nbytes: int, left: int) -> None:
    if nbytes > left:
        raise FormatError(f"{nbytes} bytes needed, {left} left in the file")


def _has_memory(value: Any) -> bool:
    return isinstance(value, np.ndarray) and bool(value.nbytes) and not value.dtype.hasobject


def _bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The memory of a constant, read-only."""
    start, end = extent_of(array)
    lowest = array[tuple(slice(-1, None) if s < 0 else slice(1) for s in array.strides)]
    found = np.lib.stride_tricks.as_strided(
        lowest.reshape(1).view(np.uint8), (end - start,), (1,), writeable=False
    )
    return found
