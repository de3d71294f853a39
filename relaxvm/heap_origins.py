"""Where the values on a shape heap come from, read off the code of a function.

For messages: an error of ``vm.builtin.match_shape`` says which slot a dimension differs from, and
whoever reads it wants to know which argument set that slot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from . import shape_program
from .executable import FunctionInfo, VMExecutable
from .isa import ArgKind, Opcode, decode_arg
from .shape_codes import MatchShapeCode
from .values import Shape, readable

__all__ = ["checked_slots", "origins"]

_MATCH_SHAPE: Final = "vm.builtin.match_shape"
_MATCH_SCALAR: Final = "vm.builtin.match_prim_value"
_COMPUTE: Final = "relaxvm.builtin.compute_shape"
_SLOT: Final = re.compile(r"h\[(\d+)\]")
MAX_INSTRUCTIONS: Final = 10_000
"""Instructions of a function that are read."""
MAX_ORIGINS: Final = 8


def checked_slots(executable: VMExecutable, pc: int) -> tuple[int, ...]:
    """The slots that a match instruction compares with, or a computation takes values from."""
    call = _call(executable, pc)
    if call is None:
        return ()
    if call[0] == _COMPUTE:
        formulas = dict(_formulas(executable, call[1]))
        used = (int(slot) for formula in formulas.values() for slot in _SLOT.findall(formula))
        return tuple(dict.fromkeys(slot for slot in used if slot not in formulas))
    pairs = _pairs(*call)
    return tuple([s for _, code, s in pairs if code == MatchShapeCode.ASSERT_EQUAL_TO_LOAD])


def origins(executable: VMExecutable, function: FunctionInfo, slots: Sequence[int]) -> list[str]:
    """What sets heap slots in a function, a line per slot: ``h[1]: dimension 1 of x (pc 3)``; for a
    computed slot its formula, and the slots in it."""
    found: dict[int, str] = {}
    last = min(function.end_instr, function.start_instr + MAX_INSTRUCTIONS)
    for pc in range(function.start_instr, last):
        call = _call(executable, pc)
        if call is None:
            continue
        name, args = call
        if name == _COMPUTE:
            for slot, formula in _formulas(executable, args):
                found.setdefault(slot, formula)
            continue
        for index, code, slot in _pairs(name, args):
            if code == MatchShapeCode.STORE_TO_HEAP:
                value = _register_name(executable, function, args[0])
                what = value if index is None else f"dimension {index} of {value}"
                found.setdefault(slot, f"{what} (pc {pc})")
    lines: list[str] = []
    pending, seen = list(slots), set(slots)
    while pending and len(lines) < MAX_ORIGINS:
        slot = pending.pop(0)
        if slot not in found:
            continue
        lines.append(f"h[{slot}]: {found[slot]}")
        inner = [int(s) for s in _SLOT.findall(found[slot])]
        pending += [s for s in inner if s not in seen]
        seen.update(inner)
    return lines


def _call(executable: VMExecutable, pc: int) -> tuple[str, list[int]] | None:
    start = int(executable.instr_offset[pc])
    data = executable.instr_data
    if data[start] != Opcode.CALL:
        return None
    name = executable.functions[int(data[start + 2])].name
    if name not in (_MATCH_SHAPE, _MATCH_SCALAR, _COMPUTE):
        return None
    count = int(data[start + 3])
    return name, data[start + 4 : start + 4 + count].tolist()


def _pairs(name: str, args: Sequence[int]) -> Iterator[tuple[int | None, int, int]]:
    """(dimension, code, slot) of what a match instruction does; a scalar has no dimension."""
    first = {_MATCH_SHAPE: 3, _MATCH_SCALAR: 2}.get(name)
    if first is None:
        return
    values = [decode_arg(word) for word in args[first:-1]]
    if not all(kind == ArgKind.IMMEDIATE for kind, _ in values):
        return
    for index in range(len(values) // 2):
        code, slot = values[2 * index][1], values[2 * index + 1][1]
        yield (index if name == _MATCH_SHAPE else None), code, slot


def _formulas(executable: VMExecutable, args: Sequence[int]) -> Iterator[tuple[int, str]]:
    kind, index = decode_arg(args[1]) if len(args) > 1 else (ArgKind.REGISTER, 0)
    program = executable.constants[index] if kind == ArgKind.CONSTANT else None
    if not isinstance(program, Shape) or shape_program.problem(program) is not None:
        return
    for assignment in shape_program.text(program).split("; "):
        target, _, formula = assignment.partition(" = ")
        match = _SLOT.fullmatch(target)
        if match is not None:
            yield int(match[1]), formula


def _register_name(executable: VMExecutable, function: FunctionInfo, word: int) -> str:
    kind, register = decode_arg(word)
    if kind == ArgKind.REGISTER and register < len(function.param_names):
        return readable(function.param_names[register])
    if kind == ArgKind.REGISTER and executable.debug is not None:
        for pc in range(function.start_instr, min(function.end_instr, function.start_instr + 200)):
            start = int(executable.instr_offset[pc])
            data = executable.instr_data
            if data[start] == Opcode.CALL and data[start + 1] == register:
                variable = executable.debug.location(pc).variable
                if variable:
                    return readable(variable)
    return f"%{register}" if kind == ArgKind.REGISTER else f"c[{register}]"
