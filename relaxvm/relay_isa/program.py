"""Programs in the register instruction set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from .table import INSTRUCTIONS, InstructionSpec, Kind, Operand

__all__ = ["Function", "Instruction", "Program", "find_spec"]


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction.

    Attributes:
        spec: which one.
        values: its operands in order: registers and numbers as ints, lists as tuples, data types
            as names.
        line: of the listing, 0 if there is none.
    """

    spec: InstructionSpec
    values: tuple[Any, ...]
    line: int = 0

    def operands(self, dialect: str) -> Iterator[tuple[Operand, Any]]:
        """Yield the operands with their values."""
        return zip(self.spec.operands[dialect], self.values, strict=True)

    def value(self, dialect: str, name: str) -> Any:
        """Return the value of an operand."""
        for operand, value in self.operands(dialect):
            if operand.name == name:
                return value
        raise KeyError(name)

    def registers(self, dialect: str, *kinds: Kind) -> list[int]:
        """Return the registers among its operands of some kinds."""
        found: list[int] = []
        for operand, value in self.operands(dialect):
            if operand.kind in kinds:
                found += value if isinstance(value, tuple) else [value]
        return found


@dataclass(frozen=True, slots=True)
class Function:
    """A function; its parameters are its first registers.

    Attributes:
        registers: the size of its register file.
    """

    name: str
    params: tuple[str, ...]
    registers: int
    code: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A program.

    Attributes:
        dialect: one of `DIALECTS`.
        constants: the constant pool.
        packed: the names of the packed functions, by index.
    """

    dialect: str
    functions: Sequence[Function]
    constants: Sequence[NDArray[Any]] = ()
    packed: Sequence[str] = ()


def find_spec(name: str, dialect: str) -> InstructionSpec | None:
    """Return the instruction of a name in a dialect, or None."""
    for spec in INSTRUCTIONS:
        if dialect in spec.operands and spec.name_in(dialect) == name:
            return spec
    return None
