"""Tensors that only kernels use: native code passes them without making arrays.

The result of a kernel that nothing but other kernels of the same block read is memory of the C
function: it has no object, and no storage.  Its data type and shape are those of its allocation, so
a call need not look them up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from .code import FunctionCode, Op, block_starts, live_registers, read_registers, written_registers

__all__ = ["LocalTensor", "find_local_tensors"]

MAX_BYTES: Final = 256
"""Of a tensor.  It is set to 0 first, as other memory is, so that no program reads what the process
left behind."""
MAX_ALL_BYTES: Final = 8192
"""Of all tensors of a function, on the C stack."""
HEADER_BYTES: Final = 64
"""What a tensor takes without its elements, at most."""
ALIGNMENT: Final = 64
MAX_DIMS: Final = 8

_CODES: Final = {"i": 0, "u": 1, "f": 2, "b": 6}
"""Kinds of data types of numpy, and their codes in DLPack."""
_DTYPES: Final = {
    id(np.dtype(name)): np.dtype(name)
    for name in ("bool", "float16", "float32", "float64",
                 *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
}  # fmt: skip
"""By the address that stands in code.  Numpy has one object for each, for ever."""


@dataclass(frozen=True, slots=True)
class LocalTensor:
    """A tensor of which no array is made.

    Attributes:
        allocation: the position of the operation that would make the array.
        code, bits: its data type, as DLPack has it.
        dims: its shape.
        nbytes: the bytes of its elements.
    """

    allocation: int
    code: int
    bits: int
    dims: tuple[int, ...]
    nbytes: int

    @property
    def name(self) -> str:
        """Of the local variable, an ``RvmLocalTensor``."""
        return f"t{self.allocation}"

    @property
    def declaration(self) -> str:
        """Of what it takes, in C."""
        at, dims = self.allocation, ", ".join(map(str, self.dims)) or "0"
        size = -(-self.nbytes // ALIGNMENT) * ALIGNMENT
        return (f"static const int64_t d{at}[] = {{{dims}}}; RvmLocalTensor {self.name}; "
                f"__attribute__((aligned(RVM_LOCAL_ALIGNMENT))) char m{at}[{size}];")

    @property
    def made(self) -> str:
        """What its allocation does."""
        at = self.allocation
        return (f"__builtin_memset(m{at}, 0, sizeof m{at}); {self.name} = (RvmLocalTensor){{"
                f"m{at}, 1, 0, {len(self.dims)}, {self.code}, {self.bits}, 1, d{at}, 0, 0}};")

    def stored(self, cell: str, bad: str) -> str:
        """C that makes the array after all; `bad` is what to do without memory."""
        at = self.allocation
        return (f"if (!({cell} = s->alloc_static(code + {at}))) {bad} else "
                f"__builtin_memcpy(s->data({cell}), m{at}, {self.nbytes});")


def find_local_tensors(code: FunctionCode) -> Mapping[int, LocalTensor]:
    """The tensors of a function that only kernels use, by the position of their allocation."""
    if not any(op.name == "alloc_static" for op in code.ops):
        return {}
    starts, live = block_starts(code), live_registers(code)
    found: dict[int, LocalTensor] = {}
    left = MAX_ALL_BYTES
    for number, op in enumerate(code.ops):
        tensor = _tensor(op)
        if tensor is None or not _only_kernels_use(code, number, starts, live):
            continue
        left -= HEADER_BYTES + tensor.nbytes + ALIGNMENT
        if left < 0:
            break
        found[op.position] = tensor
    return found


def _tensor(op: Op) -> LocalTensor | None:
    dtype = _DTYPES.get(op["dtype"]) if op.name == "alloc_static" else None
    if dtype is None or len(op.items) > MAX_DIMS:
        return None
    nbytes = math.prod(op.items) * dtype.itemsize
    if not 0 < nbytes <= MAX_BYTES:
        return None
    return LocalTensor(op.position, _CODES[dtype.kind], 8 * dtype.itemsize, op.items, nbytes)


def _only_kernels_use(
    code: FunctionCode, number: int, starts: Mapping[int, int], live: Mapping[int, int]
) -> bool:
    """Whether nothing but calls of kernels in its block read what an allocation makes."""
    register = code.ops[number]["dst"]
    bit = 1 << register
    used = False
    for op in code.ops[number + 1 :]:
        is_live = bool(live[op.position] & bit)
        if op.position in starts or not is_live:
            return used and not is_live
        if read_registers(op) & bit:
            if op.name != "call_native" or op["dst"] == register:
                return False
            used = True
        if written_registers(op) & bit:
            return used
    return False
