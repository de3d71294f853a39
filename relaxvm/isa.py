"""The instruction set: one table from which all code and documentation about opcodes is derived.

An instruction is a sequence of signed 64-bit words.  The first word is the opcode, followed by the
fixed fields of the table in order; a variadic tail is stored as a count word followed by that many
argument words::

    call   [ 1 | dst | func_idx | count | arg 0 | ... | arg count-1 ]
    ret    [ 2 | result ]
    goto   [ 3 | pc_offset ]
    if     [ 4 | cond | false_offset ]

An *argument word* has its kind in the upper 8 bits and a sign-extended value in the lower 56::

     63      56 55                                                    0
    +----------+-------------------------------------------------------+
    |   kind   |                        value                          |
    +----------+-------------------------------------------------------+

The fields ``dst``, ``result`` and ``cond`` are plain register numbers.  The argument word of a
register is the same number, since the kind is 0.  Two register numbers are special: `VOID_REGISTER`
("no value"; as a destination, "discard") and `VM_REGISTER` (the virtual machine itself).

The C header, the Cython declarations and the reference page are generated from this module by
``scripts/gen_isa.py``.  Source: the Relax VM design and TVM's ``bytecode.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple, Protocol

from .aliases import attribute

__all__ = [
    "OPS",
    "Arg",
    "ArgKind",
    "Field",
    "FieldKind",
    "FuncKind",
    "Instruction",
    "InstructionSpec",
    "Opcode",
    "decode",
    "decode_arg",
    "encode",
    "encode_arg",
]


class FieldKind(Enum):
    """The kind of a word of an instruction after the opcode."""

    DST = "register written, or the void register"
    REG = "register read"
    FUNC = "index into the function table"
    PC = "distance in instructions, relative to this one"
    ARG = "argument word: kind and value"


class Field(NamedTuple):
    """A named word of an instruction."""

    name: str
    kind: FieldKind


class InstructionSpec(NamedTuple):
    """A row of the instruction table.

    Attributes:
        code: value of the opcode word.
        name: mnemonic, as the text form prints it (before TVM's capital I of ``If``).
        fields: the fixed words after the opcode, in order.
        tail: the repeated word after a count word, or None.
        meaning: one line of pseudo-code; ``R`` is the register file and ``F`` the function table.
        falls_through: whether control may continue with the next instruction.
    """

    code: int
    name: str
    fields: tuple[Field, ...]
    tail: Field | None
    meaning: str
    falls_through: bool

    def __repr__(self) -> str:
        return f"<Op {self.name}>"

    @property
    def fixed_words(self) -> int:
        """Number of words without the items of the tail, but with its count word."""
        return 1 + len(self.fields) + (self.tail is not None)

    def word_of(self, name: str) -> int:
        """Return the position of a field, in words from the start of the instruction."""
        for i, field in enumerate(self.fields):
            if field.name == name:
                return 1 + i
        raise KeyError(f"instruction {self.name!r} has no field {name!r}")


OPS: Final = (
    InstructionSpec(
        1,
        "call",
        (Field("dst", FieldKind.DST), Field("func_idx", FieldKind.FUNC)),
        Field("args", FieldKind.ARG),
        "R[dst] = F[func_idx](*args); pc += 1",
        True,
    ),
    InstructionSpec(2, "ret", (Field("result", FieldKind.REG),), None, "return R[result]", False),
    InstructionSpec(3, "goto", (Field("pc_offset", FieldKind.PC),), None, "pc += pc_offset", False),
    InstructionSpec(
        4,
        "if",
        (Field("cond", FieldKind.REG), Field("false_offset", FieldKind.PC)),
        None,
        "pc += 1 if R[cond] != 0 else false_offset",
        True,
    ),
)

OP_BY_CODE: Final = {op.code: op for op in OPS}
OP_BY_NAME: Final = {op.name: op for op in OPS}


class Opcode(IntEnum):
    """Opcode words.  A test checks that they are equal to `OPS`."""

    CALL = 1
    RET = 2
    GOTO = 3
    IF = 4


class ArgKind(IntEnum):
    """Upper 8 bits of an argument word."""

    REGISTER = 0
    IMMEDIATE = 1
    CONSTANT = 2
    FUNCTION = 3


class FuncKind(IntEnum):
    """Kind of an entry of the function table.

    ``PACKED`` is resolved by name when a VM is created, ``BYTECODE`` has instructions in this
    executable, ``COMPILED`` is a function whose code is in an imported module.
    """

    PACKED = 0
    BYTECODE = 1
    COMPILED = 2


KIND_SHIFT: Final = 56
VALUE_MASK: Final = (1 << KIND_SHIFT) - 1
VALUE_MAX: Final = (1 << (KIND_SHIFT - 1)) - 1
VALUE_MIN: Final = -VALUE_MAX
"""The smallest immediate: TVM's range is symmetric, although 56 bits could hold one more value."""

VOID_REGISTER: Final = 1 << 54
VM_REGISTER: Final = (1 << 54) + 1
NO_ARITY: Final = -2
"""``num_args`` of a function-table entry whose arity is unknown (packed functions)."""

WORD_MIN: Final = -(1 << 63)
WORD_MAX: Final = (1 << 63) - 1


def encode_arg(kind: int, value: int) -> int:
    """Pack an argument word.

    Raises:
        ValueError: `kind` does not fit 8 bits or `value` does not fit 56 bits.
    """
    if not 0 <= kind < 128:
        raise ValueError(f"argument kind: expected 0..127, got {kind}")
    if not -VALUE_MAX - 1 <= value <= VALUE_MAX:
        raise ValueError(f"argument value: expected a signed 56-bit integer, got {value}")
    return (kind << KIND_SHIFT) | (value & VALUE_MASK)


def decode_arg(word: int) -> tuple[int, int]:
    """Split an argument word into (kind, value); the kind is not checked."""
    value = word & VALUE_MASK
    if value > VALUE_MAX:
        value -= 1 << KIND_SHIFT
    return (word >> KIND_SHIFT) & 0xFF, value


@dataclass(frozen=True, slots=True)
class Arg:
    """A decoded argument word."""

    kind: ArgKind
    value: int

    @property
    def word(self) -> int:
        return encode_arg(self.kind, self.value)

    def is_register(self) -> bool:
        """Whether this is an ordinary register of the frame (not void, not the VM)."""
        return self.kind == ArgKind.REGISTER and self.value not in (VOID_REGISTER, VM_REGISTER)

    @classmethod
    def from_word(cls, word: int) -> Arg:
        """Decode a word.

        Raises:
            ValueError: the kind is not one of `ArgKind`.
        """
        kind, value = decode_arg(word)
        return cls(ArgKind(kind), value)


@dataclass(frozen=True, slots=True)
class Instruction:
    """A decoded instruction: its row of the table, its field words and its argument words."""

    op: InstructionSpec
    fields: tuple[int, ...]
    args: tuple[Arg, ...] = ()

    def __getitem__(self, name: str) -> int:
        """Return the value of a fixed field by name, for example ``instr["dst"]``."""
        return self.fields[self.op.word_of(name) - 1]

    @property
    def num_words(self) -> int:
        return self.op.fixed_words + len(self.args)


def encode(instr: Instruction) -> list[int]:
    """Return the words of an instruction; the inverse of `decode`."""
    words = [instr.op.code, *instr.fields]
    if instr.op.tail is not None:
        words.append(len(instr.args))
        words.extend(arg.word for arg in instr.args)
    return words


class Words(Protocol):
    """A sequence of integers: a list, or an array of int64."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def decode(words: Words, offset: int = 0) -> Instruction:
    """Decode the instruction that starts at word `offset`.

    Raises:
        ValueError: the opcode or the kind of an argument is unknown, or `words` is too short.
    """
    left = len(words) - offset
    if offset < 0 or left < 1:
        raise ValueError(f"word {offset}: expected an instruction, got the end of the code")
    op = OP_BY_CODE.get(int(words[offset]))
    if op is None:
        raise ValueError(f"word {offset}: unknown opcode {int(words[offset])}")
    if op.fixed_words > left:
        raise ValueError(f"word {offset}: {op.name} needs {op.fixed_words} words, {left} are left")
    fields = tuple(int(words[offset + 1 + i]) for i in range(len(op.fields)))
    if op.tail is None:
        return Instruction(op, fields)
    first = offset + op.fixed_words
    count = int(words[first - 1])
    if not 0 <= count <= left - op.fixed_words:
        raise ValueError(f"word {offset}: {op.name} has an argument count of {count}, "
                         f"{left - op.fixed_words} words are left")
    args = tuple(Arg.from_word(int(words[first + i])) for i in range(count))
    return Instruction(op, fields, args)


def __getattr__(name: str) -> Any:
    return attribute(__name__, name)
