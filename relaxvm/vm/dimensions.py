"""What sets the slots of a shape heap, for messages.

A slot is a symbolic dimension.  ``vm.builtin.match_shape`` and ``vm.builtin.match_prim_value`` set
it from an argument or another value, or compare it; ``relaxvm.builtin.compute_shape`` computes it
from others.  Its name is in the error text of a match where the compiler wrote one.

`origins` tells of the slots that a match compares or a computation reads, `dimensions` of those
that were known where another instruction failed.  Both only read: nothing is run, and malformed
code just ends the search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ..executable import FunctionInfo, VMExecutable, shape_program
from ..executable.shape_codes import ANNOTATED_DIMS, MatchShapeCode
from ..isa import ArgKind, Opcode, decode_arg
from ..messages import readable
from ..values import Shape

__all__ = ["checked_slots", "dimensions", "is_computation", "is_heap", "origins"]

_MATCH_SHAPE: Final = "vm.builtin.match_shape"
_MATCH_SCALAR: Final = "vm.builtin.match_prim_value"
_COMPUTE: Final = "relaxvm.builtin.compute_shape"
_OF_THE_HEAP: Final = (_MATCH_SHAPE, _MATCH_SCALAR, _COMPUTE)
_SLOT: Final = re.compile(r"h\[(\d+)\]")

# Bounds of what is read from a file that may be malformed, and of a message.
_MAX_INSTRUCTIONS: Final = 10_000
_MAX_ORIGINS: Final = 8


def is_heap(value: Any) -> bool:
    """Whether a value may be a shape heap."""
    return type(value) is np.ndarray and value.dtype == np.int64 and value.ndim == 1


def checked_slots(executable: VMExecutable, pc: int) -> tuple[int, ...]:
    """The slots that a match instruction compares with, or that a computation reads."""
    call = _call(executable, pc)
    if call is None:
        return ()
    if call[0] == _COMPUTE:
        formulas = dict(_formulas(executable, call[1]))
        used = (int(slot) for formula in formulas.values() for slot in _SLOT.findall(formula))
        return tuple(dict.fromkeys(slot for slot in used if slot not in formulas))
    pairs = _pairs(*call)
    return tuple([s for _, code, s in pairs if code == MatchShapeCode.ASSERT_EQUAL_TO_LOAD])


def is_computation(executable: VMExecutable, pc: int) -> bool:
    """Whether an instruction computes dimensions, whose errors have the numbers of slots."""
    call = _call(executable, pc)
    return call is not None and call[0] == _COMPUTE


def origins(
    executable: VMExecutable,
    function: FunctionInfo,
    slots: Sequence[int],
    heap: Any = None,
    with_slots: bool = False,
) -> list[str]:
    """What sets heap slots of a function, a line per slot: ``n = 3, set by argument x axis 1 (pc
    3)``; for a computed slot its formula, followed by the slots in it.  A slot whose dimension has
    no name is ``h[1]``.

    Args:
        executable, function: the program.
        slots: whose origins are asked for.
        heap: the values; None leaves them out.
        with_slots: whether the number of a slot follows its name.
    """
    known = _Slots(executable, function)
    lines: list[str] = []
    pending, seen = list(slots), set(slots)
    while pending and len(lines) < _MAX_ORIGINS:
        slot = pending.pop(0)
        formula = known.formulas.get(slot, "")
        if not formula and slot not in known.setters:
            continue
        line = known.names.get(slot, f"h[{slot}]")
        text = known.named(formula)
        source = f", computed as {text}" if text != line else ""
        if slot in known.setters:
            pc, axis, register = known.setters[slot]
            kind = "argument " if known.is_argument(register) else ""
            at = "" if axis is None else f" axis {axis}"
            source = f", set by {kind}{known.name_of(register)}{at} (pc {pc})"
        if with_slots and slot in known.names:
            line += f" (h[{slot}])"
        number = f" = {heap[slot]}" if _has(heap, slot) else ""
        lines.append(f"{line}{number}{source}")
        inner = [int(found) for found in _SLOT.findall(formula)]
        pending += [s for s in inner if s not in seen]
        seen.update(inner)
    return lines


def dimensions(
    executable: VMExecutable, function: FunctionInfo, pc: int, heap: Any, sizes: Sequence[int]
) -> list[str]:
    """The symbolic dimensions that were known before an instruction of a function ran, each as
    ``n = 3 (axis 1 of x)``; of many, those that are among `sizes`.

    Args:
        executable, function, pc: the program and the instruction.
        heap: the function's shape heap, or what may be it.
        sizes: the dimensions of the instruction's arguments.
    """
    if not is_heap(heap):
        return []
    known = _Slots(executable, function, pc)
    texts: list[str] = []
    related: list[bool] = []
    for slot, name in known.names.items():
        source = known.source(slot)
        if source and _has(heap, slot):
            texts.append(f"{name} = {heap[slot]} ({source})")
            related.append(int(heap[slot]) in sizes)
    if len(texts) <= _MAX_ORIGINS:
        return texts
    chosen = [text for text, is_related in zip(texts, related, strict=True) if is_related]
    chosen = (chosen or texts)[:_MAX_ORIGINS]
    return [*chosen, f"... {len(texts) - len(chosen):,} more"]


@dataclass(slots=True)
class _Slots:
    """What is known of the slots of a function's heap.

    Attributes:
        executable, function: the program.
        before: the instruction before which they are set; None for any.
        names: of the dimensions that have one.
        setters: the pc, the axis and the word of the value that sets a slot; a scalar has no axis.
        formulas: of the slots that are computed.
    """

    executable: VMExecutable
    function: FunctionInfo
    before: int | None = None
    names: dict[int, str] = field(default_factory=dict)
    setters: dict[int, tuple[int, int | None, int]] = field(default_factory=dict)
    formulas: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first = self.function.start_instr
        last = min(self.function.end_instr, first + _MAX_INSTRUCTIONS)
        if self.before is not None:
            last = min(last, self.before)
        for pc in _calls_of_the_heap(self.executable, first, last, self.before is not None):
            call = _call(self.executable, pc)
            if call is not None:
                self._learn(pc, *call)

    def _learn(self, pc: int, name: str, args: Sequence[int]) -> None:
        if name == _COMPUTE:
            for slot, formula in _formulas(self.executable, args):
                self.formulas.setdefault(slot, formula)
            return
        pairs = list(_pairs(name, args))
        texts = _annotated(self.executable, args[-1], len(pairs))
        for (axis, code, slot), dim in zip(pairs, texts, strict=True):
            if code == MatchShapeCode.NO_OP:
                continue
            if dim is not None and code != MatchShapeCode.ASSERT_EQUAL_TO_IMM:
                self.names.setdefault(slot, dim)
            if code == MatchShapeCode.STORE_TO_HEAP:
                self.setters.setdefault(slot, (pc, axis, args[0]))

    def source(self, slot: int) -> str:
        """Where the value of a slot is from: ``axis 1 of x``, a formula; empty if nobody knows."""
        if slot in self.setters:
            _, axis, register = self.setters[slot]
            return ("" if axis is None else f"axis {axis} of ") + self.name_of(register)
        return self.named(self.formulas.get(slot, ""))

    def named(self, formula: str) -> str:
        """A formula with the names of the slots in it."""
        return _SLOT.sub(lambda found: self.names.get(int(found[1]), found[0]), formula)

    def is_argument(self, word: int) -> bool:
        """Whether an argument word is a parameter that has a name."""
        kind, register = decode_arg(word)
        return kind == ArgKind.REGISTER and register < len(self.function.param_names)

    def name_of(self, word: int) -> str:
        """The name of the parameter or variable that an argument word stands for, else ``%3``."""
        kind, register = decode_arg(word)
        executable, function = self.executable, self.function
        if self.is_argument(word):
            return readable(function.param_names[register])
        if kind == ArgKind.REGISTER and executable.debug is not None:
            last = min(function.end_instr, function.start_instr + _MAX_INSTRUCTIONS)
            starts = executable.instr_offset[function.start_instr : last]
            data = executable.instr_data
            written = (data[starts] == Opcode.CALL) & (data[starts + 1] == register)
            for pc in function.start_instr + np.flatnonzero(written):
                variable = executable.debug.location(int(pc)).variable
                if variable:
                    return readable(variable)
        return f"%{register}" if kind == ArgKind.REGISTER else f"c[{register}]"


def _calls_of_the_heap(
    executable: VMExecutable, first: int, last: int, passed: bool
) -> Iterator[int]:
    """The pcs from `first` to before `last` of calls that set, compare or compute slots; with
    `passed` only those that have run when `last` is reached."""
    data = executable.instr_data
    starts = executable.instr_offset[first:last]
    if not len(starts):
        return
    wanted = [i for i, info in enumerate(executable.functions) if info.name in _OF_THE_HEAP]
    is_call = data[starts] == Opcode.CALL
    found = is_call & np.isin(data[np.where(is_call, starts + 2, 0)], wanted)
    if passed:
        # A forward jump to `last` or before it may have left out what is between.
        for at in np.flatnonzero(~is_call).tolist():
            op = int(data[starts[at]])
            if op not in (Opcode.GOTO, Opcode.IF):
                continue
            target = at + int(data[starts[at] + (1 if op == Opcode.GOTO else 2)])
            if at < target <= len(starts):
                found[at:target] = False
    yield from (first + np.flatnonzero(found)).tolist()


def _has(heap: Any, slot: int) -> bool:
    return is_heap(heap) and slot < len(heap)


def _annotated(executable: VMExecutable, word: int, count: int) -> list[str | None]:
    """The dimensions in the error context of a match instruction, None where it does not say."""
    kind, index = decode_arg(word)
    context = executable.constants[index] if kind == ArgKind.CONSTANT else None
    found = re.search(ANNOTATED_DIMS, context) if isinstance(context, str) else None
    texts = [] if found is None else [text.strip() for text in found[1].split(",") if text.strip()]
    if len(texts) != count:
        return [None] * count
    return [readable(text) for text in texts]


def _call(executable: VMExecutable, pc: int) -> tuple[str, list[int]] | None:
    start = int(executable.instr_offset[pc])
    data = executable.instr_data
    if data[start] != Opcode.CALL:
        return None
    name = executable.functions[int(data[start + 2])].name
    if name not in _OF_THE_HEAP:
        return None
    count = int(data[start + 3])
    return name, data[start + 4 : start + 4 + count].tolist()


def _pairs(name: str, args: Sequence[int]) -> Iterator[tuple[int | None, int, int]]:
    """(dimension, code, slot) of each comparison of a match instruction; a scalar has no
    dimension."""
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
