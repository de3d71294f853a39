"""The instructions of the two documents about Relay's register machine, "Register VM Design" and
"Putting the VM in TVM", as they are written there: each is an instruction of `relaxvm.relay_isa`.

The documents show no programs.  Each has one here that uses all of its instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.errors import MatchError
from relaxvm.relay_isa import INSTRUCTIONS, Program, assemble, translate, verify
from relaxvm.relay_isa.table import InstructionSpec, Kind, Operand

REGISTER = {Kind.WRITTEN, Kind.READ, Kind.EITHER}
LIST = {Kind.READS, Kind.NUMBERS}

PROPOSAL = """
AllocTensor $1, ndim, *shape, dtype              ; AllocTenosr in the document
AllocDatatype $1, tag, num_fields, *regs
AllocClosure $1, func_index, num_freevars, *regs
LoadConst $1, const_index
Mov $2, $1
Phi $3, $1, $2
Ret $1
GetField $2, $1, field_index
If $1, true_offset, false_offset
Goto pc_offset
InvokePacked packed_index, arity, output_size, *regs
Invoke $1, func_index, arity, *regs
InvokeClosure $2, $1, arity, *regs
"""


def specs(dialect: str) -> dict[str, InstructionSpec]:
    return {spec.name_in(dialect): spec for spec in INSTRUCTIONS if dialect in spec.operands}


def shown(operand: Operand, written: str) -> str:
    """An operand as the proposal writes it."""
    if operand.kind in REGISTER:
        return written if written.startswith("$") else "a register"
    if operand.kind is Kind.READS:
        return "*regs"
    return f"*{operand.name}" if operand.kind in LIST else operand.name


def test_the_instructions_of_the_proposal() -> None:
    known = specs("proposal")
    found = {}
    for line in PROPOSAL.strip().splitlines():
        name, _, rest = line.partition(";")[0].strip().partition(" ")
        operands = rest.split(", ")
        spec = known[name].operands["proposal"]
        assert len(spec) == len(operands), name
        assert [shown(*pair) for pair in zip(spec, operands, strict=True)] == operands
        found[name] = spec
    assert found.keys() == known.keys()


ALL_OF_THE_PROPOSAL = """.dialect proposal
.packed add
.constant float32 (2) 1.0 2.5
.function main(x, flag)
  LoadConst $2, 0                        ; %2 = LoadConst(0)
  AllocTensor $3, 1, 2, float32          ; %3 = AllocTensor(1, 2, float32)
  InvokePacked 0, 2, 1, $0, $2, $3
  If $1, 1, 3
  Mov $4, $3                             ; %4 = Mov(%3)
  Goto 2
  Mov $5, $0
  Phi $6, $4, $5                         ; %6 = Phi(%4, %5)
  AllocDatatype $7, 1, 2, $6, $2
  GetField $8, $7, 0
  AllocClosure $9, 1, 1, $8
  InvokeClosure $10, $9, 1, $2
  Invoke $11, 1, 2, $10, $2
  Ret $11
.function both(a, b)
  AllocTensor $2, 1, 2, float32
  InvokePacked 0, 2, 1, $0, $1, $2
  Ret $2
"""


def add(x: Any, y: Any, out: Any) -> None:
    np.add(x, y, out)


def names(program: Program, dialect: str) -> set[str]:
    return {
        instruction.spec.name_in(dialect)
        for function in program.functions
        for instruction in function.code
    }


def test_a_program_of_all_instructions_of_the_proposal() -> None:
    program = assemble(ALL_OF_THE_PROPOSAL)
    assert verify(program) == []
    assert names(program, "proposal") == specs("proposal").keys()
    vm = relaxvm.VirtualMachine(translate(program), functions={"add": add})
    x, c = np.array([3.0, 4.0], np.float32), np.array([1.0, 2.5], np.float32)
    np.testing.assert_array_equal(vm["main"](x, np.array(True)), x + 3 * c)
    np.testing.assert_array_equal(vm["main"](x, np.array(False)), x + 2 * c)


DOCUMENTED = {
    # The document has `dst` as well, the register of the caller; here `Invoke` has it.
    "Ret": "RegName result",
    "InvokePacked": "size_t packed_index, size_t arity, size_t output_size, RegName* packed_args",
    "AllocTensor": "RegName dst, RegName shape_register, size_t ndim, DLDataType dtype",
    # datatype_fields in the document
    "AllocDatatype": "RegName dst, size_t tag, size_t num_fields, RegName* fields",
    # clo_index and num_freevar in the document
    "AllocClosure": "RegName dst, size_t func_index, size_t num_freevars, RegName* free_vars",
    "GetField": "RegName dst, RegName object, size_t field_index",
    "If": "RegName test, RegName target, size_t true_offset, size_t false_offset",
    # object, dst in the document
    "GetTagi": "RegName dst, RegName object",
    "Fatal": "",
    "Goto": "size_t pc_offset",
    # The document has func_index alone.
    "Invoke": "RegName dst, size_t func_index, size_t arity, RegName* args",
    # closure_args_num and closure_args in the document, and no dst
    "InvokeClosure": "RegName dst, RegName closure, size_t arity, RegName* args",
    "LoadConst": "RegName dst, size_t const_index",
    # val, dst in the document
    "LoadConsti": "RegName dst, size_t val",
    # Not in the document; its successor has it.
    "Move": "RegName dst, RegName src",
}


def test_the_instructions_of_the_documentation() -> None:
    known = specs("documented")
    assert DOCUMENTED.keys() == known.keys()
    for name, written in DOCUMENTED.items():
        operands = []
        for operand in known[name].operands["documented"]:
            ctype = "RegName" if operand.kind in REGISTER else "size_t"
            ctype = "DLDataType" if operand.kind is Kind.DTYPE else ctype
            ctype = "RegName*" if operand.kind is Kind.READS else ctype
            operands.append(f"{ctype} {operand.name}")
        assert ", ".join(operands) == written, name


ALL_OF_THE_DOCUMENTATION = """.dialect documented
.packed add
.constant int64 (1) 2
.function main(x, y)
  AllocDatatype $2, 1, 1, $0
  Invoke $3, 1, 2, $2, $1
  AllocClosure $4, 1, 1, $2
  InvokeClosure $5, $4, 1, $3
  Move $6, $5
  Ret $6
.function tagged(value, other)
  GetTagi $2, $0
  LoadConsti $3, 1
  If $2, $3, 1, 6
  GetField $4, $0, 0
  LoadConst $5, 0
  AllocTensor $6, $5, 1, float32
  InvokePacked 0, 3, 1, $4, $1, $6
  Goto 2
  Fatal
  Ret $6
"""


def test_a_program_of_all_instructions_of_the_documentation() -> None:
    program = assemble(ALL_OF_THE_DOCUMENTATION)
    assert verify(program) == []
    assert names(program, "documented") == specs("documented").keys()
    vm = relaxvm.VirtualMachine(translate(program), functions={"add": add})
    x, y = np.array([1.0, 2.0], np.float32), np.array([10.0, 20.0], np.float32)
    np.testing.assert_array_equal(vm["main"](x, y), x + (x + y))
    failing = assemble(ALL_OF_THE_DOCUMENTATION.replace("LoadConsti $3, 1", "LoadConsti $3, 2"))
    vm = relaxvm.VirtualMachine(translate(failing), functions={"add": add})
    with pytest.raises(MatchError):
        vm["main"](x, y)
