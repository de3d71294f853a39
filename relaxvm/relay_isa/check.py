"""What must hold before a program is translated."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

from ..core.checkpoints import check_objects, checkpoint
from .problem import Problem
from .program import Function, Instruction, Program
from .table import Kind
from .types import type_problems

__all__ = ["verify"]

_READ: Final = (Kind.READ, Kind.READS)
_MOST_STEPS: Final = 50_000_000
_BITS_PER_STEP: Final = 4096
"""Of a state: the bits that a step of the search for invalid registers can take in its time."""
_MOST_BYTES: Final = 512 << 20
"""Of the states of a function."""
_LARGE: Final = 1 << 20
"""Bytes from which the limits of memory are asked for beforehand, which takes time."""


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
            problems += _Flow(program, func).problems()
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


class _State(NamedTuple):
    """What holds on all paths to an instruction; sets are the bits of an int.

    Attributes:
        valid: the registers that are valid on every path.
        cases: for each of the four cases of the two registers of a Phi (none is valid, the left
            one, the right one, both), the Phis of which it is so on some path.
    """

    valid: int
    cases: tuple[int, int, int, int]

    def joined(self, other: _State) -> _State:
        """What holds where two paths meet."""
        a, b = self.cases, other.cases
        cases = a[0] | b[0], a[1] | b[1], a[2] | b[2], a[3] | b[3]
        return _State(self.valid & other.valid, cases)


class _Flow:
    """The registers of a function on its paths.

    A state is kept for each instruction that a jump leads to.  It has a bit for each register and
    four for each Phi, so that time and memory are bounded by the number of these, too.
    """

    def __init__(self, program: Program, func: Function) -> None:
        self._dialect = program.dialect
        self._func = func
        self._phis = [
            (pc, *i.registers(self._dialect, Kind.EITHER)) for pc, i in enumerate(func.code)
            if i.spec.name == "Phi"
        ]  # fmt: skip
        self._numbers = {pc: number for number, (pc, _, _) in enumerate(self._phis)}
        self._sides: dict[int, tuple[list[int], list[int]]] = {}
        """Register -> the Phis of which it is the left one, and the right one."""
        for number, (_, left, right) in enumerate(self._phis):
            self._sides.setdefault(left, ([], []))[0].append(number)
            self._sides.setdefault(right, ([], []))[1].append(number)
        self._heads = {0}
        for pc in range(len(func.code)):
            after = successors(self._dialect, func, pc)
            if after != [pc + 1]:
                self._heads.update(after)
        self._bits = func.registers + 4 * len(self._phis)
        self._states: dict[int, _State] = {}
        self._work = [0]
        self._waiting = {0}
        self._steps = 0

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong: code that is not reached has no problems."""
        name = self._func.name
        nbytes = len(self._heads) * (self._bits // 8 + 400)
        if nbytes > _MOST_BYTES:
            yield Problem(name, 0, f"the paths of the function are too many to be checked: "
                          f"{len(self._heads)} targets of jumps, {self._func.registers} registers, "
                          f"{len(self._phis)} Phis")  # fmt: skip
            return
        if nbytes > _LARGE:
            check_objects(nbytes, f"function {name!r}: its paths")
        self._states[0] = self._at_start()
        while self._work:
            pc = heappop(self._work)
            self._waiting.discard(pc)
            for at, after in self._along(pc):
                if not self._step(at):
                    yield Problem(name, at, "the paths of the function are too many to be checked")
                    return
                for target in successors(self._dialect, self._func, at):
                    if target >= len(self._func.code):
                        yield Problem(name, at, "the function ends without Ret")
                        return
                    if target in self._heads:
                        self._reach(target, after)
        for pc in sorted(self._states):
            yield from self._wrong(pc)

    def _step(self, pc: int) -> bool:
        """Count a visit of an instruction; return whether there may be more."""
        checkpoint()
        touched = self._func.code[pc].registers(self._dialect, *_READ, Kind.WRITTEN)
        self._steps += 1 + len(touched) * (1 + self._bits // _BITS_PER_STEP)
        return self._steps <= _MOST_STEPS

    def _at_start(self) -> _State:
        params = len(self._func.params)
        cases = [0, 0, 0, 0]
        for number, (_, left, right) in enumerate(self._phis):
            cases[(left < params) | (right < params) << 1] |= 1 << number
        return _State((1 << params) - 1, (cases[0], cases[1], cases[2], cases[3]))

    def _reach(self, pc: int, state: _State) -> None:
        old = self._states.get(pc)
        new = state if old is None else old.joined(state)
        if new != old:
            self._states[pc] = new
            if pc not in self._waiting:
                self._waiting.add(pc)
                heappush(self._work, pc)

    def _along(self, pc: int) -> Iterator[tuple[int, _State]]:
        """Yield the instructions from a target of a jump to the next one or a jump, each with the
        state after it."""
        state = self._states[pc]
        while True:
            state = self._after(pc, state)
            yield pc, state
            if successors(self._dialect, self._func, pc) != [pc + 1] or pc + 1 in self._heads:
                return
            pc += 1
            if pc >= len(self._func.code):
                return

    def _after(self, pc: int, state: _State) -> _State:
        valid, cases = state
        instruction = self._func.code[pc]
        for register in instruction.registers(self._dialect, Kind.WRITTEN):
            valid |= 1 << register
            sides = self._sides.get(register)
            if sides is not None:
                none, left, right, both = cases
                moved = sum(1 << number for number in sides[0])  # their left register is valid now
                left, both = left | none & moved, both | right & moved
                none, right = none & ~moved, right & ~moved
                moved = sum(1 << number for number in sides[1])
                right, both = right | none & moved, both | left & moved
                none, left = none & ~moved, left & ~moved
                cases = none, left, right, both
        for register in instruction.registers(self._dialect, Kind.KILLED):
            valid &= ~(1 << register)
        return _State(valid, cases)

    def _wrong(self, head: int) -> Iterator[Problem]:
        """Yield the problems from a target of a jump to the next one."""
        before = self._states[head]
        for pc, after in self._along(head):
            if not self._step(pc):
                yield Problem(self._func.name, pc, "the paths of the function are too many to be "
                              "checked")  # fmt: skip
                return
            for register in self._func.code[pc].registers(self._dialect, *_READ):
                if not before.valid >> register & 1:
                    yield Problem(self._func.name, pc,
                                  f"${register} may be read before it is written")  # fmt: skip
            number = self._numbers.get(pc)
            if number is not None and (before.cases[0] | before.cases[3]) >> number & 1:
                _, left, right = self._phis[number]
                yield Problem(self._func.name, pc, f"Phi: expected exactly one of ${left} and "
                              f"${right} to be valid on every path")  # fmt: skip
            before = after
