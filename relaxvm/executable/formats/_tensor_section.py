"""The section of tensors: constants at multiples of 64 bytes, for files that are memory-mapped.

In TVM's stream nothing is aligned.  A tensor of this section has an empty string in its place in
the stream; so TVM cannot run the program.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from numpy.typing import NDArray

from ...errors import FormatError
from ._constants import check_bool
from ._fields import I64, U64, Reader, Writer
from ._tensors import dtype_from_stream, dtype_to_stream, on_disk, tensor_nbytes

__all__ = ["ALIGNMENT", "PLACEHOLDER", "load", "save"]

ALIGNMENT: Final = 64
PLACEHOLDER: Final = ""
"""The constant in the stream."""

_HEAD: Final = struct.Struct("<qiBBH")


def save(to: Writer, tensors: Mapping[int, NDArray[Any]]) -> None:
    to.put(U64.pack(len(tensors)))
    for index, array in sorted(tensors.items()):
        check_bool(array)
        to.put(_HEAD.pack(index, array.ndim, *dtype_to_stream(array.dtype)))
        to.put(struct.pack(f"<{array.ndim}q", *array.shape))
    start = to.position + U64.size
    first = -start % ALIGNMENT
    to.put(U64.pack(first) + bytes(first))
    for _, array in sorted(tensors.items()):
        to.put(bytes(-to.position % ALIGNMENT))
        to.array(array)


def load(read: Reader) -> dict[int, NDArray[Any]]:
    heads = []
    last = -1
    for _ in read.entries("section of tensors, tensor", read.count(_HEAD.size)):
        index, rank, code, bits, lanes = read.unpack(_HEAD)
        if index <= last:
            raise FormatError(f"constant {index}: expected it before constant {last}")
        if rank < 0:
            raise FormatError(f"expected a rank >= 0, got {rank}")
        read.within("rank", rank, "rank of a tensor")
        read.fits(rank, I64.size)
        shape = read.integers(rank)
        dtype = dtype_from_stream(code, bits, lanes)
        heads.append((index, dtype, shape, tensor_nbytes(dtype, shape)))
        last = index
    read.section = "section of tensors"
    if not heads:
        raise FormatError("expected at least one tensor")
    (first,) = read.unpack(U64)
    if first >= ALIGNMENT:
        raise FormatError(f"expected fewer than {ALIGNMENT} bytes of padding, got {first}")
    _skip_padding(read, first)
    start = read.stream.position
    found: dict[int, NDArray[Any]] = {}
    for index, dtype, shape, nbytes in heads:
        _skip_padding(read, (start - read.stream.position) % ALIGNMENT)
        found[index] = read.stream.tensor(on_disk(dtype), shape, nbytes)
        check_bool(found[index])
    return found


def _skip_padding(read: Reader, size: int) -> None:
    if any(read.stream.take(size)):
        raise FormatError("expected zeros between tensors")
