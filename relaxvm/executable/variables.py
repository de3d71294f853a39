"""Which registers hold the variables of the source, at every instruction of a function.

The debug information of an executable names, for a range of instructions, the variable that they
compute.  The register that holds it is the last one that they write: a call that returns a result
writes its destination, and one that does not, but is a call of a kernel, writes its last argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ..isa import VM_REGISTER, VOID_REGISTER, ArgKind, Instruction
from .executable import FunctionInfo, VMExecutable

__all__ = ["Variables", "written_register"]

_OWN: Final = ("vm.builtin.", "relaxvm.builtin.")
"""What the names of builtins begin with: they return results, and change no argument."""
_NULL: Final = "vm.builtin.null_value"
_ALLOC: Final = "vm.builtin.alloc_tensor"

_State = Mapping[int, str]
"""Register -> the variable in it."""


class _Write(NamedTuple):
    """What an instruction does to the registers: one that it writes, and the variable that is in it
    then; None if it holds none."""

    register: int
    variable: str | None


def written_register(executable: VMExecutable, instruction: Instruction) -> int | None:
    """The register that holds the result of an instruction; None if it has none."""
    if instruction.op.name != "call":
        return None
    dst = instruction["dst"]
    if dst != VOID_REGISTER:
        return dst
    if executable.functions[instruction["func_idx"]].name.startswith(_OWN):
        return None
    if not instruction.args or instruction.args[-1].kind != ArgKind.REGISTER:
        return None
    last = instruction.args[-1].value
    return None if last in (VOID_REGISTER, VM_REGISTER) else last


class Variables:
    """The variables of a function of an executable by register, for every pc.

    Where two ways lead to an instruction, a register has the variable that it has on both.
    """

    def __init__(self, executable: VMExecutable, info: FunctionInfo) -> None:
        self._start = info.start_instr
        self._writes: list[_Write | None] = []
        self._jumps: list[tuple[int, ...]] = []
        debug = executable.debug
        allocated: dict[tuple[int, str | None], int] = {}
        for pc in range(info.start_instr, info.end_instr):
            instruction = executable.instruction(pc)
            self._jumps.append(tuple(_successors(pc, instruction)))
            register = written_register(executable, instruction)
            if register is None:
                self._writes.append(None)
                continue
            callee = executable.functions[instruction["func_idx"]].name
            variable = None if callee == _NULL or debug is None else debug.variable(pc)
            if callee == _ALLOC and variable is not None:
                allocated[register, variable] = pc
            elif (register, variable) in allocated:
                # It has its value here, not where its memory was allocated.
                at = allocated.pop((register, variable)) - self._start
                self._writes[at] = _Write(register, None)
            if variable is None and instruction["dst"] == VOID_REGISTER:
                self._writes.append(None)  # in place: it keeps its name
                continue
            self._writes.append(_Write(register, variable))
        params = info.param_names if len(info.param_names) == info.num_args else ()
        self._states = self._solve(dict(enumerate(params)))

    def _solve(self, params: _State) -> dict[int, _State]:
        """The state at the start of every block of instructions that is reached."""
        heads = {self._start}
        for pc, successors in enumerate(self._jumps, self._start):
            if successors != (pc + 1,):
                heads.update(successors)
        states: dict[int, _State] = {self._start: params}
        waiting = [self._start]
        while waiting:
            pc = waiting.pop()
            state = dict(states[pc])
            while True:
                self._apply(pc, state)
                successors = self._jumps[pc - self._start]
                if len(successors) != 1 or successors[0] in heads:
                    break
                pc = successors[0]
            for successor in successors:
                known = states.get(successor)
                merged = state if known is None else _common(known, state)
                if known is None or len(merged) < len(known):
                    states[successor] = dict(merged)
                    waiting.append(successor)
        return states

    def _apply(self, pc: int, state: dict[int, str]) -> None:
        write = self._writes[pc - self._start]
        if write is None:
            return
        state.pop(write.register, None)
        if write.variable is not None:
            for register in [r for r, name in state.items() if name == write.variable]:
                del state[register]
            state[write.register] = write.variable

    def definitions(self) -> Iterator[tuple[int, str]]:
        """The instructions that compute a variable, and its name."""
        for pc, write in enumerate(self._writes, self._start):
            if write is not None and write.variable is not None:
                yield pc, write.variable

    def at(self, pc: int) -> dict[str, int]:
        """The variables that have been computed before the instruction at `pc`, and the registers
        that hold them; empty where nothing is known of the instruction."""
        head = max((head for head in self._states if head <= pc), default=None)
        if head is None or pc - self._start >= len(self._writes):
            return {}
        state = dict(self._states[head])
        for before in range(head, pc):
            if len(self._jumps[before - self._start]) == 0:
                return {}
            self._apply(before, state)
        return {name: register for register, name in state.items()}


def _successors(pc: int, instruction: Instruction) -> Iterator[int]:
    match instruction.op.name:
        case "goto":
            yield pc + instruction["pc_offset"]
        case "if":
            yield pc + 1
            yield pc + instruction["false_offset"]
        case "call":
            yield pc + 1


def _common(a: _State, b: _State) -> dict[int, str]:
    return {register: name for register, name in a.items() if b.get(register) == name}
