"""Listings: text form of programs.

A line is an instruction as the documents write it, a directive, or empty; a semicolon begins a
comment::

    .dialect proposal
    .packed add
    .constant int32 () 1
    .function main(x) registers=3
      LoadConst $1, 0              ; %1 = LoadConst(0)
      AllocTensor $2, 0, int32
      InvokePacked 0, 2, 1, $0, $1, $2
      Ret $2
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..core.checkpoints import checkpoint
from ..dtypes import as_dtype, dtype_name, element_dtype
from ..errors import ParseError, did_you_mean
from ..executable.underline import underlined
from ..limits import Limits
from ..vm.limited import run_limited
from .program import Function, Instruction, Program, find_spec
from .table import DIALECTS, INSTRUCTIONS, Kind, Operand

__all__ = ["as_listing", "assemble"]

_NAME: Final = r'(?:[\w.$/:-]+|"(?:[^"\\]|\\.)*")'
"""A name; one with other characters is a string of JSON."""
_BARE: Final = re.compile(r"[\w.$/:-]+")
_FUNCTION: Final = re.compile(
    rf"({_NAME})\s*\(\s*((?:{_NAME}\s*(?:,\s*|(?=\))))*)\)(?:\s+registers\s*=\s*(\d+))?"
)
_NAMES: Final = re.compile(_NAME)
_COMMENT: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(;)')
_CONSTANT: Final = re.compile(r"(\w+)\s*\(([\d,\s]*)\)\s*(.*)")
_WORD: Final = re.compile(r"[^\s,]+")
_NUMBER: Final = re.compile(r"-?\d{1,19}")
_ELEMENT: Final = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_DIMENSION: Final = re.compile(r"\d{1,18}", re.ASCII)
_REGISTERS: Final = frozenset({Kind.WRITTEN, Kind.READ, Kind.EITHER, Kind.KILLED, Kind.READS})
_LISTS: Final = frozenset({Kind.READS, Kind.NUMBERS})


def assemble(text: str, *, file: str = "<listing>", limits: Limits | None = None) -> Program:
    """Return the program of a listing.

    Args:
        file: its name in messages.
        limits: bounds on its content, and of the time and memory that reading it takes
            (`wall_time`, `live_bytes`, `alloc_bytes`); None: those of ``Limits()``.

    Raises:
        ParseError: the listing is wrong; the message has file, line, column and the line.
        LimitError: it is above a limit.
    """
    return run_limited(lambda: _Assembler(text, file, limits or Limits()).program(), limits, file)


class _Assembler:
    def __init__(self, text: str, file: str, limits: Limits) -> None:
        limits.check("file_bytes", len(text), file)
        self._lines = text.splitlines()
        self._file = file
        self._limits = limits
        self._number = 0
        self._dialect = DIALECTS[0]
        self._packed: list[str] = []
        self._packed_numbers: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        """Of the functions, by name."""
        self._constants: list[NDArray[Any]] = []
        self._functions: list[Function] = []
        self._open: tuple[str, tuple[str, ...], int | None] | None = None
        self._code: list[Instruction] = []
        self._calls: list[tuple[int, int, str]] = []
        self._count = 0

    def _fail(self, message: str, column: int = 1, end: int | None = None) -> NoReturn:
        line = self._lines[self._number - 1] if self._number else ""
        shown, carets = underlined(line, column, len(line) + 1 if end is None else end)
        margin = f"{self._number:5} | "
        raise ParseError(
            f"{self._file}:{self._number}:{column}: {message}\n{margin}{shown}\n"
            f"{' ' * (len(margin) - 2)}| {carets}", line=self._number, column=column,
        )  # fmt: skip

    def program(self) -> Program:
        """The program."""
        for number, line in enumerate(self._lines, 1):
            checkpoint()
            self._number = number
            code = _without_comment(line)
            content = code.strip()
            if content.startswith("."):
                word, _, rest = content.partition(" ")
                self._directive(word, rest.strip())
            elif content:
                self._instruction(code)
        self._close()
        if not self._functions:
            self._fail("expected at least one function")
        self._resolve()
        return Program(self._dialect, tuple(self._functions), tuple(self._constants),
                       tuple(self._packed))  # fmt: skip

    def _name(self, word: str) -> str:
        """The name that a word, or a string of JSON, is."""
        name: str = word
        if word.startswith('"'):
            try:
                name = json.loads(word)
            except ValueError as error:
                self._fail(f"expected a name: {error}")
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            self._fail("expected a name that is valid Unicode")
        self._limits.check("name_bytes", size, f"{self._file}:{self._number}: a name")
        return name

    def _directive(self, word: str, rest: str) -> None:
        if word == ".dialect":
            if rest not in DIALECTS:
                self._fail(f"expected a dialect: {', '.join(DIALECTS)}, got {rest!r}")
            if self._open or self._functions:
                self._fail("the dialect stands before the functions")
            self._dialect = rest
        elif word == ".packed":
            if not _NAMES.fullmatch(rest):
                self._fail("expected the name of a packed function")
            name = self._name(rest)
            self._packed_numbers.setdefault(name, len(self._packed))
            self._packed.append(name)
            self._limits.check("functions", len(self._packed), self._file)
        elif word == ".constant":
            self._constants.append(self._constant(rest))
            self._limits.check("constants", len(self._constants), self._file)
        elif word == ".function":
            self._close()
            found = _FUNCTION.fullmatch(rest)
            if found is None:
                self._fail("expected .function name(parameters) registers=number")
            name = self._name(found[1])
            params = tuple(self._name(each) for each in _NAMES.findall(found[2]))
            if len(set(params)) != len(params):
                self._fail("two parameters have the same name")
            if name in self._numbers:
                self._fail(f"function {name} is defined twice")
            self._numbers[name] = len(self._functions)
            size = None if found[3] is None else int(found[3][:10])
            if size is not None:
                self._limits.check("registers", size, f"function {name}: registers")
                if size < len(params):
                    self._fail(f"expected at least {len(params)} registers, one for each parameter")
            self._open = name, params, size
            self._limits.check("functions", len(self._functions) + 1, self._file)
        else:
            known = (".dialect", ".packed", ".constant", ".function")
            self._fail(f"unknown directive {word}{did_you_mean(word, known)}")

    def _constant(self, rest: str) -> NDArray[Any]:
        found = _CONSTANT.fullmatch(rest)
        if found is None:
            self._fail("expected .constant dtype (shape) elements")
        try:
            dtype = as_dtype(element_dtype(found[1]))
        except (TypeError, ValueError) as error:
            self._fail(str(error))
        shape = self._shape(found[2])
        words = found[3].split()
        if math.prod(shape) != len(words):
            self._fail(f"expected {math.prod(shape)} elements for the shape {shape}, "
                       f"got {len(words)}")  # fmt: skip
        try:
            array = _array(words, dtype).reshape(shape)
        except (ValueError, OverflowError) as error:
            self._fail(f"expected elements of {dtype}: {error}")
        array.flags.writeable = False
        return array

    def _shape(self, text: str) -> list[int]:
        words = [word.strip() for word in text.split(",")]
        if not words[-1]:  # a comma at the end, or no dimensions
            words.pop()
        for word in words:
            if not _DIMENSION.fullmatch(word):
                self._fail(f"expected dimensions below 10^18 with commas between them, "
                           f"got {word[:40]!r}")  # fmt: skip
        self._limits.check("rank", len(words), f"{self._file}:{self._number}: dimensions")
        return list(map(int, words))

    def _close(self) -> None:
        if self._open is None:
            return
        name, params, size = self._open
        used = [r for i in self._code for r in i.registers(self._dialect, *_REGISTERS)]
        most = max([len(params), *[r + 1 for r in used]])
        self._functions.append(
            Function(name, params, most if size is None else size, tuple(self._code))
        )
        self._open, self._code = None, []

    def _instruction(self, line: str) -> None:
        words = [(m[0], m.start() + 1) for m in _WORD.finditer(line)]
        if not words:
            self._fail("expected an instruction")
        name, column = words[0]
        if self._open is None:
            self._fail("an instruction outside of a function", column)
        self._count += 1
        self._limits.check("instructions", self._count, self._file)
        spec = find_spec(name, self._dialect)
        if spec is None:
            known = [s.name_in(self._dialect) for s in INSTRUCTIONS if self._dialect in s.operands]
            self._fail(f"unknown instruction {name!r} in the dialect {self._dialect!r}"
                       f"{did_you_mean(name, known)}", column, column + len(name))  # fmt: skip
        rest = words[1:]
        self._limits.check("call_args", len(rest), f"{self._file}:{self._number}: operands")
        values: list[Any] = []
        counts: dict[str, int] = {}
        for operand in spec.operands[self._dialect]:
            if operand.kind in _LISTS:
                count = sum(counts[each] for each in operand.counts)
                values.append(tuple(self._operand(operand, rest) for _ in range(count)))
                continue
            value = self._operand(operand, rest)
            if operand.kind is Kind.COUNT:
                if not 0 <= value <= len(rest):
                    self._fail(f"{operand.name}: there are {len(rest)} operands after it, "
                               f"got {value}")  # fmt: skip
                counts[operand.name] = value
            values.append(value)
        if rest:
            wanted, got = len(words) - 1 - len(rest), len(words) - 1
            self._fail(f"expected {wanted} operands, got {got}", rest[0][1])
        self._code.append(Instruction(spec, tuple(values), self._number))

    def _operand(self, operand: Operand, rest: list[tuple[str, int]]) -> Any:
        wanted = f"{operand.name}, a {operand.kind.value}"
        if not rest:
            self._fail(f"expected {wanted}, got the end of the line")
        word, column = rest.pop(0)
        end = column + len(word)
        if operand.kind in _REGISTERS:
            if not re.fullmatch(r"\$\d{1,9}", word):
                self._fail(f"expected {wanted}, such as $1, got {word!r}", column, end)
            register = int(word[1:])
            self._limits.check("registers", register + 1, f"{self._file}:{self._number}: {word}")
            return register
        if operand.kind is Kind.DTYPE:
            try:
                return element_dtype(word)
            except (TypeError, ValueError):
                self._fail(f"expected {wanted}, such as float32, got {word!r}", column, end)
        if operand.kind is Kind.FUNCTION and word.startswith("@"):
            self._calls.append((len(self._functions), len(self._code), word[1:]))
            return word[1:]
        if operand.kind is Kind.PACKED and word in self._packed_numbers:
            return self._packed_numbers[word]
        if not _NUMBER.fullmatch(word):
            self._fail(f"expected {wanted}, got {word!r}", column, end)
        return int(word)

    def _resolve(self) -> None:
        """Replace names of functions by their numbers."""
        changed: dict[int, list[Instruction]] = {}
        for owner, at, name in self._calls:
            checkpoint()
            if owner not in changed:
                changed[owner] = list(self._functions[owner].code)
            code = changed[owner]
            instruction = code[at]
            self._number = instruction.line
            number = self._numbers.get(name)
            if number is None:
                self._fail(f"unknown function @{name}{did_you_mean(name, self._numbers)}")
            values = tuple(number if v == name else v for v in instruction.values)
            code[at] = Instruction(instruction.spec, values, instruction.line)
        for owner, code in changed.items():
            func = self._functions[owner]
            self._functions[owner] = Function(func.name, func.params, func.registers, tuple(code))


def _array(words: list[str], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Elements as an array.

    Raises:
        ValueError, OverflowError: a word is not an element of the data type.
    """
    if dtype.kind in "iub":
        # numpy before 2.0 wraps integers that do not fit.
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        for word in words:
            if not _ELEMENT.fullmatch(word) or not low <= int(word) <= high:
                raise ValueError(f"got {word[:40]!r}")
        return np.array([int(word) for word in words], dtype)
    values = np.array([float(word) for word in words], np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        array = values.astype(dtype)
        fits = np.isfinite(array.astype(np.float64)) == np.isfinite(values)
    if "_" in "".join(words) or not fits.all():
        at = next(i for i, word in enumerate(words) if "_" in word or not fits[i])
        raise ValueError(f"got {words[at][:40]!r}")
    return array


def as_listing(program: Program) -> str:
    """Return a program as a listing, which `assemble` reads back."""
    lines = [f".dialect {program.dialect}"]
    lines += [f".packed {_shown(name)}" for name in program.packed]
    for array in program.constants:
        elements = " ".join(_element(value) for value in array.reshape(-1))
        shape = ", ".join(map(str, array.shape))
        lines.append(f".constant {dtype_name(array.dtype)} ({shape}) {elements}".rstrip())
    for func in program.functions:
        params = ", ".join(map(_shown, func.params))
        lines.append(f".function {_shown(func.name)}({params}) registers={func.registers}")
        for instruction in func.code:
            words = []
            for operand, value in instruction.operands(program.dialect):
                sign = "$" if operand.kind in _REGISTERS else ""
                words += [f"{sign}{v}" for v in (value if isinstance(value, tuple) else (value,))]
            name = instruction.spec.name_in(program.dialect)
            lines.append(f"  {name} {', '.join(words)}".rstrip())
    return "\n".join(lines) + "\n"


def _without_comment(line: str) -> str:
    for found in _COMMENT.finditer(line):
        if found[1]:
            return line[: found.start()]
    return line


def _shown(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _element(value: Any) -> str:
    return str(int(value)) if value.dtype.kind in "iub" else repr(float(value))
