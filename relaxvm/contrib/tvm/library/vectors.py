"""The alignment of tensors that machine code requires, derived from its instructions.

TVM's compiler assumes that tensors are aligned to 64 bytes, so its code for x86-64 loads vectors
with instructions that fault if the address is not a multiple of the vector's size.  A library does
not say for which vectors it was compiled, but such instructions are rare enough to search for their
bytes anywhere in the code.  All of them are found; other bytes that look like one only cause
unnecessary copies.

Source: Intel's Software Developer's Manual, volume 2: the VEX and EVEX prefixes (2.3, 2.7), and
MOVAPS, MOVAPD, MOVDQA, MOVNTPS, MOVNTDQ and MOVNTDQA.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["WIDEST", "alignment_of"]

WIDEST: Final = 64
"""An alignment that suffices for any code."""


def _one_of(*values: int) -> bytes:
    return b"[" + b"".join(rb"\x%02x" % value for value in values) + b"]"


# Bytes of an instruction.  A prefix has the opcode table (1 or 2, with bits that extend register
# numbers), then the second source (all ones: none), the operand size and the column of the table,
# and for EVEX the length of the vector.
_VEX_TABLE: Final = _one_of(*[bits << 5 | table for bits in range(8) for table in (1, 2)])
_EVEX_TABLE: Final = _one_of(*[bits << 4 | table for bits in range(16) for table in (1, 2)])
_NO_SOURCE: Final = _one_of(0x7C, 0x7D, 0xFC, 0xFD)
_OF_256_BITS: Final = _one_of(*range(0x28, 0x30), *range(0xA8, 0xB0))
_OF_512_BITS: Final = _one_of(*range(0x48, 0x50), *range(0xC8, 0xD0))
_MOVE: Final = _one_of(0x28, 0x29, 0x2A, 0x2B, 0x6F, 0x7F, 0xE7)
_MEMORY: Final = b"[^\xc0-\xff]"

_VEX: Final = b"(?:\xc5|\xc4" + _VEX_TABLE + b")" + _NO_SOURCE
_EVEX: Final = b"\x62" + _EVEX_TABLE + _NO_SOURCE
_BY_32: Final = re.compile(b"(?:" + _VEX + b"|" + _EVEX + _OF_256_BITS + b")" + _MOVE + _MEMORY)
_BY_64: Final = re.compile(_EVEX + _OF_512_BITS + _MOVE + _MEMORY)


def alignment_of(machine: str, code: list[memoryview]) -> int:
    """Return the alignment in bytes that code requires of its tensors.

    Args:
        machine: as named by `platform.machine`.
        code: all instructions.
    """
    if machine != "x86_64":
        return WIDEST
    if any(_BY_64.search(run) for run in code):
        return 64
    return 32 if any(_BY_32.search(run) for run in code) else 16
