"""The register instruction set of Relay's virtual machine: programs in it, as listings and as
executables of relaxvm.

`INSTRUCTIONS` is the table of the instructions in three dialects: the proposal of a register
machine, the machine as it was documented, and its final version.  `assemble` reads a listing,
`as_listing` prints one, `verify` checks a program, and `translate` makes an executable of it.
docs/relay-isa.md describes all of it.
"""

from __future__ import annotations

from .check import verify
from .problem import Problem
from .program import Function, Instruction, Program
from .table import DIALECTS, INSTRUCTIONS, InstructionSpec, Kind, Operand
from .text import as_listing, assemble
from .translate import translate

__all__ = [
    "DIALECTS",
    "INSTRUCTIONS",
    "Function",
    "Instruction",
    "InstructionSpec",
    "Kind",
    "Operand",
    "Problem",
    "Program",
    "as_listing",
    "assemble",
    "translate",
    "verify",
]
