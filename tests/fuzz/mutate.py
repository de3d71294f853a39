"""Mutants of the executables of the corpus, in the binary form."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np

from relaxvm import isa
from relaxvm.errors import FormatError
from relaxvm.executable import FunctionInfo, VMExecutable
from relaxvm.executable.debug_info import DebugInfo, Span
from relaxvm.executable.formats import binary
from relaxvm.executable.formats.sections import SECTIONS
from relaxvm.isa import VM_REGISTER, VOID_REGISTER, ArgKind, FuncKind
from relaxvm.values import Shape

from ..corpus import CORPUS
from ..kernels import KERNELS
from .changes import (
    SMALL,
    Mutant,
    delete,
    flip_bit,
    insert,
    number,
    repeat,
    set_byte,
    set_small_word,
    set_word,
    truncate,
)

__all__ = ["bases", "case_of", "mutant", "older_form"]

_WORD: Final = (1 << 64) - 1


@cache
def bases() -> dict[str, bytes]:
    """Return the streams to mutate: all cases that a stream can hold, some in the older format,
    some with debug information."""
    found = {}
    for name, case in CORPUS.items():
        if case.savable:
            found[name] = binary.dumps(case.executable)
            if not case.executable.memory_scopes and len(found) % 4 == 0:
                found[name + " (older)"] = older_form(case.executable)
            if len(found) % 4 == 1:
                found[name + " (debug)"] = binary.dumps(_with_debug(name))
    return found


def case_of(base: str) -> str:
    """Return the case of the corpus that a base comes from."""
    return base.partition(" (")[0]


@cache
def _with_debug(case: str) -> VMExecutable:
    executable = CORPUS[case].executable
    return executable.with_debug(_debug_info(random.Random(case), len(executable)))


def _debug_info(rng: random.Random, num_instrs: int) -> DebugInfo:
    """Locations of instructions, most of which exist."""
    pcs = sorted({rng.randrange(num_instrs + 2) for _ in range(rng.randrange(1, 8))})
    spans = [
        Span(rng.choice(("model.py", "é")), line, rng.randrange(1, 40), line + rng.randrange(3), 40)
        for line in (rng.choice((1, 2, 3, (1 << 31) - 3)) for _ in range(4))
    ]
    places = [(pc, rng.choice((None, *spans)), rng.choice((None, "x", "y z"))) for pc in pcs]
    return DebugInfo.of(places, {"model.py": "def f(x):\n\ty = x\n    return y"})


def older_form(executable: VMExecutable) -> bytes:
    """Convert a stream to the older magic number, which has no section of memory scopes."""
    data = binary.dumps(executable)
    at = 8 + 8 + 4 + 8
    for f in executable.functions:
        at += 4 + 8 + len(f.name.encode()) + 4 * 8 + 8
        at += sum(8 + len(name.encode()) for name in f.param_names)
    (magic,) = struct.unpack_from("<Q", data)
    assert struct.unpack_from("<Q", data, at) == (0,), "there are memory scopes"
    return struct.pack("<Q", magic - 1) + data[8:at] + data[at + 8 :]


def mutant(index: int, seed: int = 0) -> Mutant:
    """Return the mutant with an index.  A mutant depends only on the seed and on its index."""
    rng = random.Random(f"{seed}:{index}")
    base = rng.choice(sorted(bases()))
    data = bases()[base]
    steps: list[str] = []
    if rng.random() < 0.75:
        data, steps = _restructured(base, rng)
    if not steps or rng.random() < 0.1:
        for _ in range(rng.choice((1, 1, 2, 3))):
            change = rng.choice(_BYTES)
            data = change(data, rng)
            steps.append(change.__name__)
    return Mutant(base, tuple(steps), data)


# Mutations of bytes


def splice(data: bytes, rng: random.Random) -> bytes:
    other = bases()[rng.choice(sorted(bases()))]
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def in_debug_section(data: bytes, rng: random.Random) -> bytes:
    """Change a byte or a word of the debug section, if there is one."""
    at = max(data.find(SECTIONS["debug"].magic), 0)
    change = rng.choice((flip_bit, set_byte, set_word, set_small_word, truncate, insert, delete))
    return data[:at] + change(data[at:], rng)


_BYTES: Final = (flip_bit, set_byte, set_word, set_word, truncate, insert, delete, repeat, splice,
                 in_debug_section)  # fmt: skip

# Mutations of structure


@dataclass
class Draft:
    """An executable under mutation: instructions as lists of words."""

    functions: list[FunctionInfo]
    constants: list[Any]
    code: list[list[int]]
    scopes: dict[int, str]
    debug: DebugInfo | None = None
    offset_shift: tuple[int, int] | None = None

    def calls(self) -> list[list[int]]:
        """The instructions that are encoded as calls."""
        return [words for words in self.code if words[0] == 1 and len(words) >= 4]

    def finish(self) -> VMExecutable:
        offsets = np.cumsum([0, *map(len, self.code)])[:-1]
        if self.offset_shift is not None and len(offsets):
            at, shift = self.offset_shift
            offsets[at % len(offsets)] += shift
        words = np.array([w & _WORD for words in self.code for w in words], np.uint64)
        return VMExecutable(
            self.functions, self.constants, offsets, words.view(np.int64), self.scopes, self.debug
        )


@cache
def _instructions(case: str) -> tuple[tuple[int, ...], ...]:
    """Return the words of each instruction of a case."""
    located = CORPUS[case].executable.instructions()
    return tuple(tuple(isa.encode(instruction)) for _, instruction in located)


def _restructured(base: str, rng: random.Random) -> tuple[bytes, list[str]]:
    """Return the stream of a mutated executable; no steps if a stream cannot hold the mutation."""
    case = case_of(base)
    executable = CORPUS[case].executable
    draft = Draft(
        list(executable.functions),
        list(executable.constants),
        list(map(list, _instructions(case))),
        dict(executable.memory_scopes),
        _with_debug(case).debug if base.endswith(" (debug)") else None,
    )
    steps = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice(STRUCTURE)
        change(draft, rng)
        steps.append(change.__name__)
    try:
        return binary.dumps(draft.finish()), steps
    except (FormatError, UnicodeEncodeError):
        return bases()[rng.choice(sorted(bases()))], []


def _arg_word(draft: Draft, rng: random.Random) -> int:
    """Return an argument word, which mostly names something that exists."""
    kind = rng.choice(list(ArgKind))
    value = rng.choice(SMALL)
    if rng.random() < 0.7:
        if kind == ArgKind.REGISTER:
            value = rng.choice((0, 1, 2, 3, VOID_REGISTER, VM_REGISTER))
        elif kind == ArgKind.CONSTANT:
            value = rng.randrange(max(1, len(draft.constants)))
        elif kind == ArgKind.FUNCTION:
            value = rng.randrange(max(1, len(draft.functions)))
    elif rng.random() < 0.3:
        value = number(rng)
    return (int(kind) << isa.KIND_SHIFT) | (value & isa.VALUE_MASK)


def change_word(draft: Draft, rng: random.Random) -> None:
    if draft.code:
        words = rng.choice(draft.code)
        words[rng.randrange(len(words))] = number(rng)


def change_field(draft: Draft, rng: random.Random) -> None:
    """Write a small number into a fixed field."""
    if draft.code:
        words = rng.choice(draft.code)
        words[rng.randrange(1, min(len(words), 3))] = rng.choice((*range(-4, 12), VOID_REGISTER))


def change_opcode(draft: Draft, rng: random.Random) -> None:
    if draft.code:
        rng.choice(draft.code)[0] = rng.randrange(6)


def change_argument(draft: Draft, rng: random.Random) -> None:
    calls = [words for words in draft.calls() if len(words) > 4]
    if calls:
        words = rng.choice(calls)
        words[rng.randrange(4, len(words))] = _arg_word(draft, rng)


def change_immediate(draft: Draft, rng: random.Random) -> None:
    """Change an immediate: a code, slot, size, index or offset."""
    places = [
        (words, i)
        for words in draft.calls()
        for i in range(4, len(words))
        if words[i] >> isa.KIND_SHIFT == ArgKind.IMMEDIATE
    ]
    if places:
        words, i = rng.choice(places)
        words[i] = (1 << isa.KIND_SHIFT) | (number(rng) & isa.VALUE_MASK)


def change_kind(draft: Draft, rng: random.Random) -> None:
    """Change the kind of an argument and keep its value."""
    calls = [words for words in draft.calls() if len(words) > 4]
    if calls:
        words = rng.choice(calls)
        i = rng.randrange(4, len(words))
        kind = rng.choice((0, 1, 2, 3, 3, 4, 255))
        words[i] = (kind << isa.KIND_SHIFT) | (words[i] & isa.VALUE_MASK)


def change_callee(draft: Draft, rng: random.Random) -> None:
    if draft.calls():
        rng.choice(draft.calls())[2] = rng.randrange(-1, len(draft.functions) + 1)


def resize_call(draft: Draft, rng: random.Random) -> None:
    """Add or remove arguments, with or without a correct count."""
    if not draft.calls():
        return
    words = rng.choice(draft.calls())
    if rng.random() < 0.5 and len(words) > 4:
        del words[rng.randrange(4, len(words))]
    else:
        words.insert(rng.randrange(4, len(words) + 1), _arg_word(draft, rng))
    if rng.random() < 0.9:
        words[3] = len(words) - 4


def swap_instructions(draft: Draft, rng: random.Random) -> None:
    if len(draft.code) > 1:
        i, k = rng.sample(range(len(draft.code)), 2)
        draft.code[i], draft.code[k] = draft.code[k], draft.code[i]


def drop_instruction(draft: Draft, rng: random.Random) -> None:
    if draft.code:
        at = rng.randrange(len(draft.code))
        del draft.code[at]
        _move_ranges(draft, at, -1)


def copy_instruction(draft: Draft, rng: random.Random) -> None:
    if draft.code:
        at = rng.randrange(len(draft.code) + 1)
        draft.code.insert(at, list(rng.choice(draft.code)))
        _move_ranges(draft, at, 1)


def add_instruction(draft: Draft, rng: random.Random) -> None:
    at = rng.randrange(len(draft.code) + 1)
    args = [_arg_word(draft, rng) for _ in range(rng.randrange(4))]
    callee = rng.randrange(max(1, len(draft.functions)))
    words = rng.choice(
        (
            [1, rng.choice((0, 1, 2, VOID_REGISTER)), callee, len(args), *args],
            [2, rng.choice((0, 1, 2, VOID_REGISTER))],
            [3, rng.choice((-2, -1, 1, 2))],
            [4, rng.randrange(3), rng.choice((2, 3))],
        )
    )
    draft.code.insert(at, words)
    _move_ranges(draft, at, 1)


def add_jump(draft: Draft, rng: random.Random) -> None:
    """Add a jump to any instruction of the same function, even into a fused group."""
    bodies = [f for f in draft.functions if f.kind == FuncKind.BYTECODE]
    if not bodies or not draft.code:
        return
    at = rng.randrange(len(draft.code))
    body = next((f for f in bodies if f.start_instr <= at < f.end_instr), bodies[0])
    distance = rng.randrange(body.start_instr, max(body.end_instr, body.start_instr) + 1) - at
    words = [3, distance] if rng.random() < 0.4 else [4, rng.randrange(4), max(2, distance)]
    draft.code.insert(at, words)
    _move_ranges(draft, at, 1)


def change_jump(draft: Draft, rng: random.Random) -> None:
    jumps = [(pc, words) for pc, words in enumerate(draft.code) if words[0] in (3, 4)]
    if jumps:
        pc, words = rng.choice(jumps)
        words[-1] = rng.randrange(len(draft.code)) - pc


def _move_ranges(draft: Draft, at: int, by: int) -> None:
    """Move the ranges of functions so that they contain the same instructions."""
    for i, f in enumerate(draft.functions):
        if f.kind == FuncKind.BYTECODE:
            start = f.start_instr + (by if f.start_instr > at else 0)
            end = f.end_instr + (by if f.end_instr > at else 0)
            draft.functions[i] = replace(f, start_instr=start, end_instr=end)


def change_entry(draft: Draft, rng: random.Random) -> None:
    if not draft.functions:
        return
    i = rng.randrange(len(draft.functions))
    field = rng.choice(("start_instr", "end_instr", "num_args", "register_file_size"))
    old = getattr(draft.functions[i], field)
    value = old + rng.choice((-2, -1, 1, 2)) if rng.random() < 0.6 else number(rng)
    draft.functions[i] = replace(draft.functions[i], **{field: value})


def change_entry_kind(draft: Draft, rng: random.Random) -> None:
    if draft.functions:
        i = rng.randrange(len(draft.functions))
        draft.functions[i] = replace(draft.functions[i], kind=rng.choice(list(FuncKind)))


def change_name(draft: Draft, rng: random.Random) -> None:
    """Change the name of a called function: to a kernel, a builtin, or nonsense."""
    packed = [i for i, f in enumerate(draft.functions) if f.kind == FuncKind.PACKED]
    if packed:
        i = rng.choice(packed)
        other = rng.choice(draft.functions).name
        name = rng.choice((*_callable_names(), *_callable_names(), other, "", "a\0b", "nothing"))
        draft.functions[i] = replace(draft.functions[i], name=name)


@cache
def _callable_names() -> tuple[str, ...]:
    """Names that the corpus calls, its kernels, and names that an untrusted file must not reach."""
    packed = {
        f.name for case in CORPUS.values() for f in case.executable.functions
        if f.kind == FuncKind.PACKED
    }  # fmt: skip
    effects = {"invoke_debug_func", "debug_print", "tensor_cache.load", "memory_manager.clear"}
    return tuple(
        sorted({*packed, *KERNELS, *(f"vm.builtin.{e}" for e in effects), "ffi.ModuleLoadFromFile"})
    )


def change_parameters(draft: Draft, rng: random.Random) -> None:
    if draft.functions:
        i = rng.randrange(len(draft.functions))
        names = tuple(rng.choice(("x", "y", "", "\0", "é")) for _ in range(rng.randrange(4)))
        draft.functions[i] = replace(draft.functions[i], param_names=names)


def change_constant(draft: Draft, rng: random.Random) -> None:
    """Replace a constant."""
    if draft.constants:
        draft.constants[rng.randrange(len(draft.constants))] = _constant(rng)


def _constant(rng: random.Random) -> Any:
    dims = [rng.choice((0, 1, 2, 3, 4, 5, 8, 64)) for _ in range(rng.randrange(4))]
    names = ("float32", "float64", "int8", "int64", "uint8", "bool", "float16")
    dtype = np.dtype(rng.choice(names))
    return rng.choice(
        (
            number(rng),
            rng.choice((0.0, -1.5, float("nan"), float("inf"), 1e300)),
            rng.choice(("", "text", "global", "\x00", "main", "vm.builtin.copy")),
            Shape(dims),
            Shape([number(rng) for _ in range(rng.randrange(4))]),
            dtype,
            np.zeros(dims, dtype),
            (np.arange(np.prod(dims, dtype=int)).reshape(dims) % 7).astype(dtype),
        )
    )


def swap_constants(draft: Draft, rng: random.Random) -> None:
    rng.shuffle(draft.constants)


def change_scope(draft: Draft, rng: random.Random) -> None:
    draft.scopes[rng.randrange(-1, len(draft.constants) + 1)] = rng.choice(("global", "", "x"))


def shift_offset(draft: Draft, rng: random.Random) -> None:
    shift = rng.choice((-4, -1, 1, 2, 4, 1 << 40, -(1 << 62)))
    draft.offset_shift = rng.randrange(1 << 16), shift


def change_debug(draft: Draft, rng: random.Random) -> None:
    draft.debug = _debug_info(rng, len(draft.code))


STRUCTURE: Final[tuple[Callable[[Draft, random.Random], None], ...]] = (
    change_word, change_field, change_opcode, change_argument, change_argument, change_argument,
    change_immediate, change_immediate, change_immediate, change_kind, change_callee,
    change_callee, resize_call, swap_instructions, drop_instruction, copy_instruction,
    add_instruction, add_instruction, add_jump, add_jump, change_jump, change_entry,
    change_entry_kind, change_name, change_name, change_parameters, change_constant,
    change_constant, swap_constants, change_scope, shift_offset, change_debug,
)  # fmt: skip
