"""Listings of translated code: the operations that the dispatch loop runs for a function."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ..dtypes import dtype_name
from ..executable import shape_program
from ..executable.shape_codes import MakeShapeCode, MatchShapeCode
from ..isa import Opcode
from ..messages import describe, readable
from ..values import Shape
from .operations import BY_CODE, Operand, OperandKind, Operation

if TYPE_CHECKING:
    from ._code import Image

__all__ = ["FunctionName", "Place", "Register", "Row", "TranslatedFunction"]


class Register(int):
    """An operand that is a register of the source."""

    def __repr__(self) -> str:
        return f"%{int(self)}"


class FunctionName(str):
    """An operand that is a function, by its name in the function table.

    Attributes:
        implementations: of a kernel, the names of those in C, in the order in which a call tries
            them; what none of them takes is left to the kernel's reference in Python.
    """

    implementations: tuple[str, ...] = ()

    def __repr__(self) -> str:
        tried = f": {', '.join(self.implementations)}" if self.implementations else ""
        return f"f[{readable(str(self))}{tried}]"


class _Special:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


MACHINE: Final = _Special("%vm")
SCRATCH: Final = _Special("%scratch")
"""The last register of the frame: results that are discarded go there."""


class _Loaded(int):
    """A register after those of the source: a function that an operation takes as a value."""

    def __repr__(self) -> str:
        return f"%function.{int(self)}"


class Place(NamedTuple):
    """Where a frame has a register of the source.

    Attributes:
        frame: the register of the frame, which others may share.
        first: the first pc at which its value may be needed, or is written.
        last: the last one.
    """

    frame: int
    first: int
    last: int


class Row(NamedTuple):
    """An operation of a function's code.

    Attributes:
        position: of its first word, from the start of the function's code.
        pc: of the instruction that it comes from; of a fused run, of the first.
        is_fallback: whether it stands in a fallback, not in the main part.
        operation: its row of the table.
        values: its operands by name.  Registers are `Register`, functions `FunctionName`, constants
            the values themselves, distances and fallbacks the position that they lead to, the tail
            a tuple.
    """

    position: int
    pc: int
    is_fallback: bool
    operation: Operation
    values: Mapping[str, Any]

    def operands(self) -> dict[str, str]:
        """The operands as text, without counts."""
        kinds = {operand.name: operand.kind for operand in self.operation.operands}
        tail = self.operation.tail
        found = {name: _text(kind, self.values[name]) for name, kind in kinds.items()}
        if tail is not None:
            items = ", ".join(_text(tail.kind, item) for item in self.values[tail.name])
            found[tail.name] = f"({items})"
        return found

    def __str__(self) -> str:
        texts = self.operands()
        fallback = texts.pop("fallback", "")
        line = f"{self.operation.name:<17} {' '.join(f'{k}={v}' for k, v in texts.items())}"
        return f"{line.rstrip()}  fallback {fallback}" if fallback else line.rstrip()


class TranslatedFunction(Sequence[Row]):
    """The operations that run for a function, in the order of its code: ``vm["main"].translated``.

    The main part comes first, in the order of the source, then the fallbacks of its operations.
    ``str()`` gives a listing.

    Attributes:
        name: of the function.
        rows: the operations.
        entries: per pc of the function the position at which that instruction can be entered, with
            registers as they are before it.  Where the instruction is inside of a fused run, the
            position is in the run's fallback.
        places: where the frame has the registers of the source that its instructions name.  A
            register has one place in all of the function.  Before its first pc and after its last
            one, and between them where its value is not needed, the place may hold the value of
            another register.
        frame_size: how many registers the frame has for them.
    """

    def __init__(
        self,
        image: Image,
        index: int,
        callables: Sequence[Callable[..., Any] | None],
        objects: Iterable[Any],
    ) -> None:
        """Read the code of a function.

        Args:
            image: the translated executable.
            index: of the function in the function table.
            callables: per entry of the function table what a packed function calls.
            objects: what else the code may point to: allocators and ufuncs.
        """
        info = image.executable.functions[index]
        self.name = info.name
        self.entries = {
            pc: image.entry_of(index, pc) for pc in range(info.start_instr, info.end_instr)
        }
        reader = _Reader(image, index, callables, objects)
        self.rows = tuple(reader.rows())
        self.frame_size = reader.frame_size
        if reader.places is not None:
            self.places = reader.places
        else:
            every = range(info.register_file_size)
            self.places = {r: Place(r, info.start_instr, info.end_instr - 1) for r in every}
        self._header = (f"{_count(info.num_args, 'parameter')}, "
                        f"{_count(info.register_file_size, 'register')}")
        if self.frame_size < info.register_file_size:
            self._header += f" at {_count(self.frame_size, 'place')}"

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        lines = [f"@{readable(self.name)}: {self._header}"]
        width = len(str(self.rows[-1].position))
        pc_width = len(str(max(self.entries)))
        in_fallback = False
        for row in self.rows:
            if row.is_fallback and not in_fallback:
                lines.append("fallbacks:")
                in_fallback = True
            lines.append(f"{row.position:>{width + 2}}  pc {row.pc:<{pc_width}}  {row}")
        return "\n".join([*lines, ""])

    __repr__ = __str__


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


class _Reader:
    """Reads the words of a function's code."""

    def __init__(
        self,
        image: Image,
        index: int,
        callables: Sequence[Callable[..., Any] | None],
        objects: Iterable[Any],
    ) -> None:
        executable = image.executable
        self.image = image
        self.executable = executable
        places, self.frame_size, self.scratch = image.places_of(index)
        self.places = None
        if places is not None:
            self.places = {register: Place(*place) for register, place in places.items()}
        self.by_place: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for register, place in sorted((self.places or {}).items(), key=lambda item: item[1].last):
            self.by_place[place.frame].append((place.last, register))
        self.words, self.num_main, self.marks = image.function(index)
        self.objects = {id(value): value for value in (*executable.constants, *objects)}
        self.names: dict[int, FunctionName] = {}
        for info, function in zip(executable.functions, callables, strict=True):
            if function is not None:
                self.names.setdefault(id(function), FunctionName(info.name))

    def rows(self) -> Iterator[Row]:
        at = 0
        while at < len(self.words):
            if at == self.num_main - 1:
                at += 1  # the word that ends the main part
                continue
            operation = BY_CODE[self.words[at]]
            pc = self.marks[bisect_right(self.marks, at, key=lambda mark: mark[0]) - 1][1]
            values, length = self._values(operation, at, pc)
            yield Row(at, pc, at >= self.num_main, operation, values)
            at += length

    def _values(self, operation: Operation, start: int, pc: int) -> tuple[dict[str, Any], int]:
        positions = operation.positions()
        values = {
            operand.name: self._value(operand, start, start + positions[operand.name], pc)
            for operand in operation.operands
        }
        length = operation.fixed_words
        if operation.tail is not None:
            size = operation.tail.words
            count = self.words[start + positions["count"]]
            first = start + length
            if operation.tail.kind is OperandKind.STEP:
                program = self.words[first : first + count - 1]  # without the word that ends it
                items: tuple[Any, ...] = (shape_program.text(program),)
            else:
                items = tuple(
                    self._value(operation.tail, start, first + i * size, pc) for i in range(count)
                )
            values[operation.tail.name] = items
            length += count * size
        return values, length

    def _value(self, operand: Operand, start: int, at: int, pc: int) -> Any:
        word = self.words[at]
        match operand.kind:
            case OperandKind.DST | OperandKind.REGISTER | OperandKind.SOURCE:
                return self._register(word, pc)
            case OperandKind.VALUE if word >= 0 and operand.name != "callee":
                return self._register(word, pc)
            case OperandKind.VALUE | OperandKind.CONSTANT:
                return self._callee(word, pc) if operand.name == "callee" else self._constant(word)
            case OperandKind.DISTANCE | OperandKind.FALLBACK:
                return start + word
            case OperandKind.FUNCTION:
                index = self.image.function_at(word)
                assert index is not None
                return FunctionName(self.executable.functions[index].name)
            case OperandKind.OBJECT | OperandKind.UFUNC:
                return self.objects[word] if word else None
            case OperandKind.SITE:
                return self.image.site_at(word)
            case OperandKind.MATCH:
                return MatchShapeCode(word), self.words[at + 1]
            case OperandKind.CONSTRUCTOR:
                return self._constant(word), self.words[at + 1]
            case OperandKind.MAKE:
                return MakeShapeCode(word), self.words[at + 1]
            case _:
                return word

    def _register(self, word: int, pc: int) -> Any:
        if word == self.scratch:
            return SCRATCH
        if word >= self.frame_size:
            return _Loaded(word - self.frame_size)
        if self.places is None:
            return Register(word)
        # Ranges at one place have no pc in common.  That of a register which a fused run writes
        # may begin after the pc of the run; no other register has its place in the run.
        ranges = self.by_place[word]
        return Register(ranges[bisect_left(ranges, (pc, 0))][1])

    def _callee(self, word: int, pc: int) -> FunctionName:
        """What the call at a pc calls: two functions of the table may be one callable."""
        instruction = self.executable.instruction(pc)
        assert instruction.op.code == Opcode.CALL
        name = FunctionName(self.executable.functions[instruction["func_idx"]].name)
        function = self.image.constants[-word - 1] if word < 0 else None
        name.implementations = getattr(function, "implementations", ())
        return name

    def _constant(self, word: int) -> Any:
        if word == -1:
            return MACHINE
        value = self.image.constants[-word - 1]
        return self.names.get(id(value), value)


_MATCHES: Final = {
    MatchShapeCode.ASSERT_EQUAL_TO_IMM: "= {}",
    MatchShapeCode.STORE_TO_HEAP: "store h[{}]",
    MatchShapeCode.NO_OP: "any",
    MatchShapeCode.ASSERT_EQUAL_TO_LOAD: "= h[{}]",
}
_MAKES: Final = {MakeShapeCode.USE_IMM: "{}", MakeShapeCode.LOAD_SHAPE: "h[{}]"}


def _text(kind: OperandKind, value: Any) -> str:
    if kind in (OperandKind.DISTANCE, OperandKind.FALLBACK):
        return f"@{value}"
    if kind is OperandKind.SITE:
        return f"#{value}"
    if kind is OperandKind.MATCH:
        return _MATCHES[value[0]].format(value[1])
    if kind is OperandKind.MAKE:
        return _MAKES[value[0]].format(value[1])
    if kind is OperandKind.CONSTRUCTOR:
        return readable(f"{value[0]}: {value[1]}")
    if kind is OperandKind.STEP:
        return str(value)
    if isinstance(value, (Register, _Loaded, FunctionName, _Special, bool)) or type(value) is int:
        return repr(value)
    if isinstance(value, np.dtype):
        return dtype_name(value)
    if isinstance(value, np.ufunc):
        return f"numpy.{value.__name__}"
    text = describe(value)
    return text if isinstance(value, Shape) else readable(text.removeprefix("str "))
