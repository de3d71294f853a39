"""What must hold before a program is translated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .problem import Problem
from .program import Function, Instruction, Program
from .table import Kind
from .types import type_problems

__all__ = ["verify"]

_READ: Final = (Kind.READ, Kind.READS)
_MOST_STEPS: Final = 50_000_000


def verify(program: Program) -> list[Problem]:
    """Return all problems of a program; none if it can be translated.

    Registers, functions, packed functions and constants exist; numbers of arguments fit; jumps
    stay in the function, and no path leaves it; a register is valid wherever it is read, and has
    an object of a type that the instruction takes.  In the proposal each register is written once,
    and of the two registers of a Phi, which have the same type, exactly one is valid on every path.
    """
    problems: list[Problem] = []
    for func in program.functions:
        found = list(_of_function(program, func))
        problems += found
        if not found:
            problems += _flow(program, func)
            problems += type_problems(program, func)
    return problems


def _of_function(program: Program, func: Function) -> Iterator[Problem]:
    dialect = program.dialect
    if not func.code:
        yield Problem(func.name, 0, "expected at least one instruction")
    if func.registers < len(func.params):
        yield Problem(func.name, 0, f"{func.registers} registers, {len(func.params)} parameters")
    written = set(range(len(func.params)))
    for pc, instruction in enumerate(func.code):
        for message in _of_operands(program, func, pc, instruction):
            yield Problem(func.name, pc, message)
        if dialect == "proposal":
            for register in instruction.registers(dialect, Kind.WRITTEN):
                if register in written:
                    yield Problem(func.name, pc, f"${register} is written twice")
                written.add(register)


def _of_operands(
    program: Program, func: Function, pc: int, instruction: Instruction
) -> Iterator[str]:
    dialect = program.dialect
    registers = instruction.registers(dialect, *_READ, Kind.WRITTEN, Kind.EITHER, Kind.KILLED)
    for register in registers:
        if not 0 <= register < func.registers:
            yield f"${register}: the function has {func.registers} registers"
    counted = {o.name: v for o, v in instruction.operands(dialect) if o.kind is Kind.COUNT}
    for operand, value in instruction.operands(dialect):
        if operand.kind is Kind.OFFSET:
            if not 0 <= pc + value < len(func.code):
                yield f"{operand.name}: {value} leads out of the function"
            elif not value and instruction.spec.name == "Goto":
                yield "Goto: expected an offset other than 0, which would jump to itself forever"
        elif operand.kind is Kind.CONSTANT:
            if not 0 <= value < len(program.constants):
                yield f"constant {value}: there are {len(program.constants)}"
        elif operand.kind is Kind.PACKED:
            if not 0 <= value < len(program.packed):
                yield f"packed function {value}: there are {len(program.packed)}"
        elif operand.kind is Kind.FUNCTION:
            if not 0 <= value < len(program.functions):
                yield f"function {value}: there are {len(program.functions)}"
                continue
            callee = program.functions[value]
            given = next(iter(counted.values()))
            if instruction.spec.name == "Invoke" and given != len(callee.params):
                yield f"function {callee.name!r} has {len(callee.params)} parameters, got {given}"
            if instruction.spec.name == "AllocClosure" and given > len(callee.params):
                yield (f"function {callee.name!r} has {len(callee.params)} parameters, got {given} "
                       "free variables")
        elif operand.kind is Kind.NUMBERS and any(not 0 <= d < 2**63 for d in value):
            yield f"{operand.name}: expected dimensions >= 0"
        elif operand.name in ("field_index", "tag") and not 0 <= value < 2**31:
            yield f"{operand.name}: expected 0 to {2**31 - 1}, got {value}"
        elif operand.name == "val" and not -(2**63) <= value < 2**63:
            yield f"{operand.name}: {value} does not fit int64"
        elif operand.name == "ndim" and operand.kind is Kind.NUMBER and not 0 <= value <= 64:
            yield f"{operand.name}: expected 0 to 64, got {value}"
        elif (
            operand.name == "output_size"
            and operand.kind is Kind.NUMBER
            and not 0 <= value <= counted["arity"]
        ):
            yield f"output_size: expected 0 to {counted['arity']}, got {value}"
    if instruction.spec.name == "DeviceCopy" and any(instruction.values[2:]):
        yield "device index: expected 0, the CPU"


def successors(dialect: str, func: Function, pc: int) -> list[int]:
    """Return the pcs that can follow an instruction."""
    instruction = func.code[pc]
    name = instruction.spec.name
    if name in ("Ret", "Fatal"):
        return []
    jumps = [pc + v for o, v in instruction.operands(dialect) if o.kind is Kind.OFFSET]
    return jumps or [pc + 1]


def _flow(program: Program, func: Function) -> Iterator[Problem]:
    """Problems of registers on paths.  The state at an instruction is two sets of registers, as
    bits: those that are valid on every path, and those that are valid on some."""
    dialect, code = program.dialect, func.code
    start = (1 << len(func.params)) - 1
    pairs = [
        (pc, *i.registers(dialect, Kind.EITHER)) for pc, i in enumerate(code)
        if i.spec.name == "Phi"
    ]  # fmt: skip
    states: dict[int, tuple[int, int, frozenset[tuple[int, bool, bool]]]] = {
        0: (start, start, frozenset((i, bool(start >> a & 1), bool(start >> b & 1))
                                    for i, (_, a, b) in enumerate(pairs)))
    }  # fmt: skip
    work = [0]
    steps = 0
    while work:
        pc = work.pop()
        steps += 1 + len(pairs)
        if steps > _MOST_STEPS:
            yield Problem(func.name, pc, "the paths of the function are too many to be checked")
            return
        always, sometimes, phis = states[pc]
        for register in code[pc].registers(dialect, Kind.WRITTEN):
            always, sometimes = always | 1 << register, sometimes | 1 << register
            phis = _marked(phis, pairs, register, True)
        for register in code[pc].registers(dialect, Kind.KILLED):
            always, sometimes = always & ~(1 << register), sometimes & ~(1 << register)
        for target in successors(dialect, func, pc):
            if target >= len(code):
                yield Problem(func.name, pc, "the function ends without Ret")
                return
            old = states.get(target)
            new = (always, sometimes, phis) if old is None else (
                old[0] & always, old[1] | sometimes, old[2] | phis)  # fmt: skip
            if new != old:
                states[target] = new
                work.append(target)
    for pc, (always, _, phis) in sorted(states.items()):
        for register in code[pc].registers(dialect, *_READ):
            if not always >> register & 1:
                yield Problem(func.name, pc, f"${register} may be read before it is written")
        for i, (at, left, right) in enumerate(pairs):
            if at == pc:
                cases = {(a, b) for j, a, b in phis if j == i}
                if not cases <= {(True, False), (False, True)}:
                    yield Problem(func.name, pc, f"Phi: expected exactly one of ${left} and "
                                  f"${right} to be valid on every path")  # fmt: skip


def _marked(
    phis: frozenset[tuple[int, bool, bool]],
    pairs: list[tuple[int, ...]],
    register: int,
    valid: bool,
) -> frozenset[tuple[int, bool, bool]]:
    touched = [i for i, (_, a, b) in enumerate(pairs) if register in (a, b)]
    if not touched:
        return phis
    found = set()
    for i, a, b in phis:
        if i in touched:
            a = valid if pairs[i][1] == register else a
            b = valid if pairs[i][2] == register else b
        found.add((i, a, b))
    return frozenset(found)
