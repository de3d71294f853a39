"""The layout of instructions in a listing: one table for printing and parsing.

It is TVM's layout, quirks included: the capital I of ``If``, a callee padded to 16 and arguments to
12 *bytes* of UTF-8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ... import isa

__all__ = ["LAYOUTS", "MNEMONICS", "MNEMONIC_WIDTH", "SPECIALS", "FieldLook", "padded"]


@dataclass(frozen=True, slots=True)
class FieldLook:
    """A field (or tail) of the instruction table, padded on the right to `width` bytes."""

    name: str
    width: int = 0


MNEMONIC_WIDTH: Final = 6

MNEMONICS: Final = {op.name: "If" if op.name == "if" else op.name for op in isa.OPS}

LAYOUTS: Final[dict[str, tuple[str | FieldLook, ...]]] = {
    "call": (FieldLook("func_idx", 16), " in: ", FieldLook("args", 12), " dst: ", FieldLook("dst")),
    "ret": (FieldLook("result"),),
    "goto": (FieldLook("pc_offset"),),
    "if": (FieldLook("cond"), ", ", FieldLook("false_offset")),
}

SPECIALS: Final = {isa.VOID_REGISTER: "void", isa.VM_REGISTER: "vm"}


def padded(text: str, width: int) -> str:
    """Return `text` padded with blanks to `width` bytes of UTF-8."""
    size = len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
    return text + " " * (width - size)
