"""Names and instructions of an untrusted executable as printable text for messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from .. import isa
from ..messages import readable

if TYPE_CHECKING:
    from .parts import Parts

__all__ = ["instruction_text", "quoted"]


def quoted(text: str) -> str:
    """Return `readable` text in quotes."""
    return f"'{readable(text)}'"


_ARG_TEXT: Final[dict[int, Callable[[int], str]]] = {
    isa.ArgKind.IMMEDIATE: lambda v: f"i{v}",
    isa.ArgKind.CONSTANT: lambda v: f"c[{v}]",
}
_MAX_ARGS_SHOWN: Final = 8


def instruction_text(parts: Parts, pc: int) -> str:
    """Return the instruction as in the listing; for a malformed one, its first words."""
    words, offset = parts.words, int(parts.offsets[pc])
    end = int(parts.offsets[pc + 1]) if pc + 1 < len(parts.offsets) else len(words)
    if not 0 <= offset < end <= len(words):
        return f"at word {offset}"
    op = isa.OP_BY_CODE.get(int(words[offset]))
    if op is None or end - offset < op.fixed_words:
        shown = ", ".join(str(w) for w in words[offset : min(end, offset + _MAX_ARGS_SHOWN)])
        return f"words {shown}"
    fields = []
    for i, field in enumerate(op.fields):
        value = int(words[offset + 1 + i])
        if field.kind is isa.FieldKind.FUNC:
            fields.append(_function_text(parts, value))
        elif field.kind is isa.FieldKind.PC:
            fields.append(str(value))
        else:
            fields.append(_register_text(value))
    if op.tail is None:
        return f"{op.name} {', '.join(fields)}"
    first = offset + op.fixed_words
    args = [_arg_text(parts, int(w)) for w in words[first : min(end, first + _MAX_ARGS_SHOWN)]]
    if end > first + _MAX_ARGS_SHOWN:
        args.append("...")
    return f"{op.name} {fields[1]} in: {', '.join(args)} dst: {fields[0]}"


def _register_text(value: int) -> str:
    if value == isa.VOID_REGISTER:
        return "%void"
    return "%vm" if value == isa.VM_REGISTER else f"%{value}"


def _function_text(parts: Parts, index: int) -> str:
    name = parts.function_name(index)
    return f"function {index}" if name is None else name


def _arg_text(parts: Parts, word: int) -> str:
    kind, value = isa.decode_arg(word)
    if kind == isa.ArgKind.REGISTER:
        return _register_text(value)
    if kind == isa.ArgKind.FUNCTION:
        return f"f[{_function_text(parts, value)}]"
    show = _ARG_TEXT.get(kind)
    return f"kind {kind} value {value}" if show is None else show(value)
