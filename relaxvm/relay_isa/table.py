"""The instructions: names, operands in each dialect, meaning."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

__all__ = ["DIALECTS", "INSTRUCTIONS", "TYPES", "InstructionSpec", "Kind", "Operand"]

DIALECTS: Final = ("proposal", "documented", "final")
"""The register machine as proposed, as documented, and its last version."""

TYPES: Final = ("tensor", "data type", "closure", "storage")
"""Of objects in registers."""


class Kind(Enum):
    """What an operand is.

    The value of a list is a tuple; the number of its items is the operand that it names.
    """

    WRITTEN = "register that is written"
    READ = "register that is read"
    EITHER = "register that may be invalid"
    KILLED = "register that is made invalid"
    READS = "registers that are read"
    NUMBER = "number"
    NUMBERS = "numbers"
    COUNT = "number of items"
    DTYPE = "data type"
    FUNCTION = "function of the program"
    PACKED = "packed function"
    CONSTANT = "constant"
    OFFSET = "jump, relative to this instruction"


class Operand(NamedTuple):
    """An operand.

    Attributes:
        name: its name in the documents.
        kind: what it is.
        counts: of a list, the operands whose sum is its length.
        wants: of a register, the type of object that must be in it: one of `TYPES`, or "" for any.
    """

    name: str
    kind: Kind
    counts: tuple[str, ...] = ()
    wants: str = ""


class InstructionSpec(NamedTuple):
    """An instruction.

    Attributes:
        name: its name; `names` has others in some dialects.
        operands: dialect -> operands in order, for the dialects that have it.
        doc: what it does.
        names: dialect -> name.
        makes: the type of object that it writes: one of `TYPES`, or "" if it can be any.
    """

    name: str
    operands: Mapping[str, tuple[Operand, ...]]
    doc: str
    names: Mapping[str, str] = {}
    makes: str = ""

    def name_in(self, dialect: str) -> str:
        """Its name in a dialect."""
        return self.names.get(dialect, self.name)


_DST: Final = Operand("dst", Kind.WRITTEN)


def _read(name: str, wants: str = "") -> Operand:
    return Operand(name, Kind.READ, wants=wants)


def _tensor(name: str) -> Operand:
    return _read(name, "tensor")


def _number(name: str) -> Operand:
    return Operand(name, Kind.NUMBER)


def _count(name: str) -> Operand:
    return Operand(name, Kind.COUNT)


def _reads(name: str, *counts: str) -> Operand:
    return Operand(name, Kind.READS, counts)


def _offset(name: str) -> Operand:
    return Operand(name, Kind.OFFSET)


_DTYPE: Final = Operand("dtype", Kind.DTYPE)
_SHAPE: Final = Operand("shape", Kind.NUMBERS, ("ndim",))


def _everywhere(*operands: Operand) -> Mapping[str, tuple[Operand, ...]]:
    return dict.fromkeys(DIALECTS, operands)


def _later(*operands: Operand) -> Mapping[str, tuple[Operand, ...]]:
    return dict.fromkeys(DIALECTS[1:], operands)


def _final(*operands: Operand) -> Mapping[str, tuple[Operand, ...]]:
    return {"final": operands}


_TESTED: Final = (
    _tensor("test"),
    _tensor("target"),
    _offset("true_offset"),
    _offset("false_offset"),
)

INSTRUCTIONS: Final[tuple[InstructionSpec, ...]] = (
    InstructionSpec(
        "Move",
        _everywhere(_DST, _read("src")),
        "dst is another reference to the object in src.",
        {"proposal": "Mov"},
    ),
    InstructionSpec("Ret", _everywhere(_read("result")), "Return the object in result."),
    InstructionSpec("Fatal", _later(), "End the run with an error."),
    InstructionSpec(
        "InvokePacked",
        {
            "proposal": (
                Operand("packed_index", Kind.PACKED),
                _count("arity"),
                _count("output_size"),
                _reads("regs", "arity", "output_size"),
            ),
            **_later(
                Operand("packed_index", Kind.PACKED),
                _count("arity"),
                _number("output_size"),
                _reads("packed_args", "arity"),
            ),
        },
        "Call a packed function with arguments and, last, the tensors that it writes.  In the "
        "proposal, arity does not count these; later it does.",
    ),
    InstructionSpec(
        "AllocTensor",
        {
            "proposal": (_DST, _count("ndim"), _SHAPE, _DTYPE),
            "documented": (_DST, _tensor("shape_register"), _number("ndim"), _DTYPE),
            "final": (
                _DST,
                _read("storage", "storage"),
                _tensor("offset"),
                _DTYPE,
                _count("ndim"),
                _SHAPE,
            ),
        },
        "dst is a new tensor; its elements are undefined.",
        makes="tensor",
    ),
    InstructionSpec(
        "AllocTensorReg",
        _final(
            _DST, _read("storage", "storage"), _tensor("offset"), _tensor("shape_register"), _DTYPE
        ),
        "dst is a new tensor whose shape is in a register.",
        makes="tensor",
    ),
    InstructionSpec(
        "AllocDatatype",
        _everywhere(_DST, _number("tag"), _count("num_fields"), _reads("fields", "num_fields")),
        "dst is a value of a data type: a tag and fields.",
        {"final": "AllocADT"},
        makes="data type",
    ),
    InstructionSpec(
        "AllocClosure",
        _everywhere(
            _DST,
            Operand("func_index", Kind.FUNCTION),
            _count("num_freevars"),
            _reads("free_vars", "num_freevars"),
        ),
        "dst is a closure: a function whose first parameters are the free variables.",
        makes="closure",
    ),
    InstructionSpec(
        "GetField",
        _everywhere(_DST, _read("object", "data type"), _number("field_index")),
        "dst is a field of a value of a data type.",
    ),
    InstructionSpec(
        "GetTag",
        _later(_DST, _read("object", "data type")),
        "dst is the tag of a value of a data type.",
        {"documented": "GetTagi"},
    ),
    InstructionSpec(
        "If",
        {
            "proposal": (_tensor("test"), _offset("true_offset"), _offset("false_offset")),
            **_later(*_TESTED),
        },
        "Jump by true_offset if test is true (in the proposal) or equal to target (later), else by "
        "false_offset.",
    ),
    InstructionSpec(
        "Phi",
        {
            "proposal": (_DST, Operand("left", Kind.EITHER), Operand("right", Kind.EITHER)),
        },
        "dst is the object in the one of two registers that is valid.",
    ),
    InstructionSpec("Goto", _everywhere(_offset("pc_offset")), "Jump."),
    InstructionSpec(
        "Invoke",
        _everywhere(
            _DST, Operand("func_index", Kind.FUNCTION), _count("arity"), _reads("args", "arity")
        ),
        "dst is the result of a function of the program.",
    ),
    InstructionSpec(
        "InvokeClosure",
        _everywhere(_DST, _read("closure", "closure"), _count("arity"), _reads("args", "arity")),
        "dst is the result of a closure.",
    ),
    InstructionSpec(
        "LoadConst",
        _everywhere(_DST, Operand("const_index", Kind.CONSTANT)),
        "dst is a constant.",
        makes="tensor",
    ),
    InstructionSpec(
        "LoadConsti",
        _later(_DST, _number("val")),
        "dst is an int64 tensor of rank 0.",
        makes="tensor",
    ),
    InstructionSpec(
        "AllocStorage",
        _final(
            _DST, _tensor("allocation_size"), _number("alignment"), _DTYPE, _number("device_index")
        ),
        "dst is memory of a size in bytes.",
        makes="storage",
    ),
    InstructionSpec(
        "ShapeOf",
        _final(_DST, _tensor("tensor")),
        "dst is the shape of a tensor, as int64 tensor.",
        makes="tensor",
    ),
    InstructionSpec(
        "ReshapeTensor",
        _final(_DST, _tensor("tensor"), _tensor("newshape")),
        "dst is a view of a tensor with another shape.",
        makes="tensor",
    ),
    InstructionSpec(
        "DeviceCopy",
        _final(_DST, _read("src"), _number("src_device_index"), _number("dst_device_index")),
        "dst is a copy of a tensor on a device.",
    ),
    InstructionSpec(
        "KillRegister", _final(Operand("dst", Kind.KILLED)), "End of the use of a register."
    ),
)
"""All instructions, in the order of the documents."""
