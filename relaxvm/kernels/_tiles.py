"""Chains of elementwise kernels as programs for the C kernel that runs them tile by tile.

`c/sets/chain.c` is the interpreter, and says what a program means.  Chains of float32 have one,
with choices and conditions, if their steps are in its table and their results between steps fit in
its registers; all other chains run as `relaxvm.kernels.fused` describes.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from . import _table
from ._chains import form_of, inner_chain, parse
from ._homes import STEPS as FORMS
from .checks import as_operand
from .cpu import CPU, SETS

if TYPE_CHECKING:
    from ._chains import Fused, Operand

__all__ = ["STEPS", "least_of", "offer", "program_of"]

STEPS: Final = (
    "add", "subtract", "multiply", "divide", "maximum", "minimum",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "logical_and", "logical_or", "logical_not", "where",
    "negative", "abs", "sqrt", "square", "reciprocal", "copy",
    "exp", "log", "expm1", "log1p", "floor", "ceil", "round", "trunc",
)  # fmt: skip
"""In the order of the enumeration in `c/sets/chain.c`; `FUNCTIONS` follow."""

FUNCTIONS: Final = FORMS["nn.apply"][2]
"""Those of ``nn.apply``, as `relaxvm.kernels._functions` has them."""

_CODES: Final = {name: code for code, name in enumerate(STEPS)}
_COMPARISONS: Final = frozenset(STEPS[6:12])
_OF_BOOLS: Final = frozenset(STEPS[12:15])

_MOST_INPUTS: Final = 30
_MOST_STEPS: Final = 64
_MOST_NUMBERS: Final = 24
_MOST_REGISTERS: Final = 8
_FIRST_NUMBER: Final = 32
_FIRST_REGISTER: Final = 64
_RESULT: Final = 255

LEAST: Final = 1024
LEAST_OF_FEW: Final = 4096
"""Elements of the shortest results that the interpreter takes, where numpy's loops have a plan:
of chains of four steps or more, and of shorter ones."""

_HEAD: Final = struct.Struct(f"=4B3I{_MOST_NUMBERS}f")
"""Numbers of inputs, steps, numbers and registers, least elements, which inputs are bools, which of
these may be bytes; the numbers.  The steps follow."""

_FLOAT, _BOOL, _BYTE = "float", "bool", "byte"


class _NoProgram(Exception):
    """The interpreter cannot run a chain."""


class _Place:
    """What a step reads: an input, a number, or the result of a step.

    Attributes:
        kind: ``"$"``, ``"#"`` or ``"%"``.
        number: among those of its kind.
        holds: `_FLOAT` or `_BOOL`; for an input `_BYTE` if it is only converted to floats so far,
            and None if no step has used it yet.
    """

    def __init__(self, kind: str, number: int, holds: str | None) -> None:
        self.kind = kind
        self.number = number
        self.holds = holds

    def as_(self, wanted: str) -> _Place:
        """Use the value as one of floats or of bools."""
        if self.holds is None or (self.holds == _BYTE and wanted == _BOOL):
            self.holds = wanted
        if self.holds != wanted:
            raise _NoProgram
        return self


class _Compiler:
    """Collects the steps of a program."""

    def __init__(self, inputs: int) -> None:
        self.inputs = [_Place("$", i, None) for i in range(inputs)]
        self.numbers: list[np.float32] = []
        self.steps: list[tuple[int, list[_Place]]] = []
        self.has_plan = True

    def add_chain(self, chain: Fused, inputs: list[_Place]) -> _Place:
        """Add the steps of a chain of these inputs; return its result."""
        made: list[_Place] = []
        for step in chain.steps:
            made.append(self._add(step.name, list(step.operands), inputs, made))
        return made[chain.results[0]]

    def _add(
        self, name: str, operands: list[Operand], inputs: list[_Place], made: list[_Place]
    ) -> _Place:
        def place(operand: Operand) -> _Place:
            if isinstance(operand, (bool, int, float)):
                return self._number(operand)
            assert not isinstance(operand, str)
            return (inputs if operand.kind == "$" else made)[operand.number]

        if name == "nn.apply":
            self.has_plan = False
            code = len(STEPS) + FUNCTIONS.index(str(operands[1]))
            return self._step(code, [place(operands[0]).as_(_FLOAT)], _FLOAT)
        if name == "cast":
            return self._cast(place(operands[0]), str(operands[1]))
        places = [place(operand) for operand in operands]
        name = name.removeprefix("numpy.")
        code = _CODES.get(name, -1)  # "exp!", whose overflow is not reported, has none
        if code >= 0:
            return self._plain(name, code, places)
        form = form_of(name)
        if form is None or form.chain is None:
            raise _NoProgram
        return self.add_chain(inner_chain(form.chain), places)

    def _plain(self, name: str, code: int, places: list[_Place]) -> _Place:
        if name == "where":
            holds = places[1].holds or places[2].holds or _FLOAT
            holds = _BOOL if holds == _BYTE else holds
            cond, *values = places
            return self._step(code, [cond.as_(_BOOL), *[v.as_(holds) for v in values]], holds)
        takes = _BOOL if name in _OF_BOOLS else _FLOAT
        gives = _BOOL if name in _OF_BOOLS | _COMPARISONS else _FLOAT
        return self._step(code, [place.as_(takes) for place in places], gives)

    def _cast(self, x: _Place, dtype: str) -> _Place:
        if x.holds is None:
            x.holds = _BYTE if dtype == "float32" else _BOOL  # no float would be converted
        if dtype == "float32":
            return self._step(_CODES["copy"], [x], _FLOAT)
        if dtype == "bool" and x.holds == _FLOAT:
            return self._step(_CODES["not_equal"], [x, self._number(0)], _BOOL)
        raise _NoProgram

    def _number(self, value: float) -> _Place:
        self.numbers.append(np.float32(as_operand("number", value, np.dtype(np.float32))))
        if len(self.numbers) > _MOST_NUMBERS:
            raise _NoProgram
        holds = _BOOL if isinstance(value, bool) else _FLOAT
        return _Place("#", len(self.numbers) - 1, holds)

    def _step(self, code: int, places: list[_Place], holds: str) -> _Place:
        self.steps.append((code, places))
        if len(self.steps) > _MOST_STEPS:
            raise _NoProgram
        return _Place("%", len(self.steps) - 1, holds)

    def packed(self) -> bytes:
        """The program as C reads it; the last step computes the result."""
        last_use: dict[int, int] = {}
        for i, (_, places) in enumerate(self.steps):
            last_use.update((place.number, i) for place in places if place.kind == "%")
        free = list(range(_MOST_REGISTERS))[::-1]
        homes: dict[int, int] = {}
        steps = bytearray()
        for i, (code, places) in enumerate(self.steps):
            read = [self._code(place, homes) for place in places]
            for number in {p.number for p in places if p.kind == "%" and last_use[p.number] == i}:
                free.append(homes.pop(number))
            to = _RESULT
            if i < len(self.steps) - 1:
                if not free:
                    raise _NoProgram
                to = homes[i] = free.pop()
            steps += bytes([code, to, *read, *[0] * (3 - len(read))])
        bools, numbers_too = (
            sum(1 << i for i, place in enumerate(self.inputs) if place.holds in kinds)
            for kinds in ((_BOOL, _BYTE), (_BYTE,))
        )
        numbers = [*map(float, self.numbers), *[0.0] * (_MOST_NUMBERS - len(self.numbers))]
        head = len(self.inputs), len(self.steps), len(self.numbers), _MOST_REGISTERS
        least = 0 if not self.has_plan else LEAST if len(self.steps) >= 4 else LEAST_OF_FEW
        return _HEAD.pack(*head, least, bools, numbers_too, *numbers) + steps

    def _code(self, place: _Place, homes: dict[int, int]) -> int:
        if place.kind == "$":
            return place.number
        return _FIRST_NUMBER + place.number if place.kind == "#" else (
            _FIRST_REGISTER + homes[place.number])  # fmt: skip


@lru_cache(maxsize=1024)
def program_of(chain: Fused) -> bytes | None:
    """The program of a chain, None if there is none."""
    if len(chain.results) > 1 or chain.num_inputs > _MOST_INPUTS:
        return None
    compiler = _Compiler(chain.num_inputs)
    try:
        result = compiler.add_chain(chain, compiler.inputs)
        if result.number != len(compiler.steps) - 1 or result.holds != _FLOAT:
            return None
        return compiler.packed()
    except (_NoProgram, TypeError, ValueError):
        return None


def least_of(chain: Fused, dtypes: tuple[np.dtype[Any], ...]) -> int:
    """Elements of the shortest results that the C kernel takes of a chain of such inputs; 0 if it
    takes none."""
    program = program_of(chain) if CPU in SETS else None
    if program is None:
        return 0
    *_, least, _, bytes_too = _HEAD.unpack_from(program)[:7]
    is_own = all(
        dtype in (np.float32, np.bool_) or (dtype in (np.int8, np.uint8) and bytes_too >> i & 1)
        for i, dtype in enumerate(dtypes)
    )
    return int(least) if is_own else 0


_table.offer_steps((*STEPS, *FUNCTIONS))


def offer(text: str) -> bool:
    """Make the C kernel run a chain from now on, if it can; return whether that is new."""
    if CPU not in SETS:
        return False
    try:
        chain = parse(text)
    except ValueError:
        return False  # the kernel says what is wrong
    program = program_of(chain)
    return _table.offer_program(text, program) and program is not None
