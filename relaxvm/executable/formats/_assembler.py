"""The assembler: text to executable.

Reads the complete form of `relaxvm.executable.formats.text.as_text` and TVM's plain listing as far
as it has the necessary information.  A line holds one statement; the grammar is in
``docs/format.md``.  The result is not verified; see `relaxvm.verify`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from ... import isa
from ...errors import FormatError, ParseError, did_you_mean
from ...isa import Arg, ArgKind, FieldKind, FuncKind, Instruction
from ...messages import describe
from ...values import Shape, adt_type, is_adt
from ..debug_info import MAX_NUMBER, DebugInfo, Location, Part, Span
from ..executable import FunctionInfo, VMExecutable
from ._layout import LAYOUTS, MNEMONICS, SPECIALS, FieldLook
from ._literals import (
    BARE,
    ELEMENT,
    INT,
    STRING,
    ElementError,
    read_base64,
    read_dtype,
    read_elements,
    read_float,
    read_int,
    read_string,
    tensor_from,
)
from ._tensors import sealed, tensor_nbytes

if TYPE_CHECKING:
    from ...field_types import TypeReader

__all__ = ["parse_text"]

_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_BLANK: Final = re.compile(r"\s*")
_COMMENT: Final = re.compile(r"\s*(?:#.*)?$")
_REGISTER: Final = re.compile(rf"%(?:({INT.pattern})|(void|vm)\b)")
_NAME: Final = re.compile(f"{STRING.pattern}|{BARE.pattern}")
_TUPLE: Final = re.compile(r"tuple\b")
_DATA: Final = re.compile(r"data\b")
_VAR: Final = re.compile(r"var\b")
_OF: Final = re.compile(r"of\b")
_DTYPE: Final = re.compile(rf"{STRING.pattern}|{_WORD.pattern}")
_BASE64_LINE: Final = re.compile(r"\s*\|\s*(\S*)\s*$")
_REGISTERS_BY_NAME: Final = {name: register for register, name in SPECIALS.items()}
_OPS_BY_MNEMONIC: Final = {
    spelling: isa.OP_BY_NAME[name]
    for name, mnemonic in MNEMONICS.items()
    for spelling in (mnemonic, mnemonic.lower())
}
_SHOWN: Final = 100
"""Characters of a source line that an error shows."""


def parse_text(text: str, *, filename: str = "<text>") -> VMExecutable:
    """Assemble a listing.

    Accepts the complete form, and plain listings without constants.  What a plain header leaves
    out is derived from the code: ``registers`` is the smallest possible number; ``num_inputs``
    counts the registers that are read before they are written, and unused ones where the numbers
    of the written registers imply them; parameters have no names.

    Args:
        text: the listing.
        filename: the subject of error messages.

    Raises:
        ParseError: the text is wrong; the message has file, line, column and the line.
        MissingExtraError: the text names a data type of ml_dtypes, and that is not installed.
    """
    return _Assembler(text, filename).assemble()


class _Line:
    """A line of text and a position in it."""

    __slots__ = ("filename", "number", "pos", "text")

    def __init__(self, text: str, number: int, filename: str) -> None:
        self.text = text
        self.number = number
        self.filename = filename
        self.pos = 0

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        """Raise a ParseError that points to column `at` (default: the next token)."""
        if at is None:
            at = self.skip()
        left = max(0, at - _SHOWN // 2)
        shown = self.text[left : left + _SHOWN]
        # Keep tabs, so that the caret is under its character.
        indent = "".join([c if c == "\t" else " " for c in self.text[left:at]])
        place = f"{self.filename}:{self.number}:{at + 1}"
        raise ParseError(
            f"{place}: {message}\n  {shown}\n  {indent}^", line=self.number, column=at + 1
        )

    def fail_expected(self, what: str) -> NoReturn:
        rest = self.text[self.skip() :]
        token = re.match(r"\S{1,40}", rest)
        self.fail(f"expected {what}, got {repr(token[0]) if token else 'the end of the line'}")

    def skip(self) -> int:
        """Skip blanks; return the position after them."""
        blank = _BLANK.match(self.text, self.pos)
        assert blank is not None
        self.pos = blank.end()
        return self.pos

    def accept(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read a token if it comes next."""
        match = pattern.match(self.text, self.skip())
        if match:
            self.pos = match.end()
        return match

    def expect(self, pattern: re.Pattern[str], what: str) -> str:
        """Read a token."""
        match = self.accept(pattern)
        if match is None:
            self.fail_expected(what)
        return match[0]

    def has(self, literal: str) -> bool:
        """Read a literal if it comes next."""
        found = self.text.startswith(literal, self.skip())
        if found:
            self.pos += len(literal)
        return found

    def need(self, literal: str) -> None:
        """Read a literal."""
        if not self.has(literal):
            self.fail_expected(repr(literal))

    def is_over(self) -> bool:
        return _COMMENT.match(self.text, self.pos) is not None

    def end(self) -> None:
        """Check that nothing but a comment follows."""
        if not self.is_over():
            self.fail_expected("the end of the line")

    def integer(self, what: str = "an integer") -> int:
        """Read a signed integer of 64 bits."""
        at = self.skip()
        return self.word(self.expect(INT, what), at)

    def word(self, token: str, at: int) -> int:
        """Return the value of a token that matches `INT`; it must fit 64 bits."""
        value = read_int(token)
        if not isa.WORD_MIN <= value <= isa.WORD_MAX:
            self.fail(f"expected a signed integer of 64 bits, got {_short(token)}", at)
        return value

    def string(self) -> str:
        """Read a string in quotes."""
        at = self.skip()
        token = self.expect(STRING, "a string in double quotes")
        try:
            return read_string(token)
        except ValueError as error:
            self.fail(str(error), at)

    def name(self, what: str) -> str:
        """Read a name, bare or in quotes."""
        if self.text.startswith('"', self.skip()):
            return self.string()
        return self.expect(BARE, what)

    def integers(self, close: str = "]") -> list[int]:
        """Read integers separated by commas, and the closing bracket; the opening one has been
        read."""
        values: list[int] = []
        while not self.has(close):
            if values:
                self.need(",")
            values.append(self.integer())
        return values


@contextmanager
def _types_of(line: _Line) -> Iterator[TypeReader]:
    """Context manager: reads names and types from a line."""
    from ...field_types import TypeReader  # here, since most programs have no data types

    reader = TypeReader(line.text, line.skip())
    try:
        yield reader
    except FormatError as error:
        line.fail(str(error), reader.at)
    line.pos = reader.at


@dataclass(slots=True)
class _Function:
    """A function whose body is being read."""

    line: _Line
    kind: FuncKind
    name: str
    attributes: dict[str, int]
    params: tuple[str, ...]
    instructions: list[Instruction] = field(default_factory=list)
    locations: list[Location] = field(default_factory=list)


class _Assembler:
    def __init__(self, text: str, filename: str) -> None:
        self.filename = filename
        self.lines = [
            _Line(line.removesuffix("\r"), i, filename)
            for i, line in enumerate(text.split("\n"), start=1)
        ]
        self.functions: list[_Function] = []
        self.index_of: dict[str, int] = {}
        self.constants: list[Any] = []
        self.scopes: dict[int, str] = {}
        self.sources: dict[str, dict[int, str]] = {}
        self.values: list[Any] = []
        """Parts of constants of data types."""
        self.types: dict[str, tuple[list[str], dict[str, list[Any]]]] = {}
        """Name of a data type -> its parameters, and name of a constructor -> types of fields."""
        self.signatures: dict[str, Any] = {}
        self.next_line = 0

    def assemble(self) -> VMExecutable:
        # All headers first: a body may name functions that come later.
        for line in self.lines:
            if line.has("@"):
                self._read_header(line)
            line.pos = 0
        current = iter(self.functions)
        function: _Function | None = None
        first = True
        while self.next_line < len(self.lines):
            line = self.lines[self.next_line]
            self.next_line += 1
            if line.is_over():
                continue
            if line.has("@"):
                function = next(current)
            elif function is None:
                self._read_preamble(line, first)
            else:
                self._read_instruction(line, function)
            first = False
        return self._link()

    # Headers

    def _read_header(self, line: _Line) -> None:
        at = line.skip()
        name = line.name("a function name")
        kind = None
        attributes: dict[str, int] = {}
        params: tuple[str, ...] | None = None
        if name.endswith(":") and line.text[line.pos - 1] == ":" and line.is_over():
            name, kind = name[:-1], FuncKind.BYTECODE  # TVM's header: the name and a colon
        while kind is None:
            at_word = line.skip()
            if line.has(":"):
                kind = FuncKind.BYTECODE
                break
            word = line.expect(_WORD, "an attribute, 'packed_func;', 'vm_tir_func;' or ':'")
            if word in _KIND_WORDS:
                line.need(";")
                kind = _KIND_WORDS[word]
            elif word == "params" and params is None:
                params = self._read_params(line)
            elif word in _ATTRIBUTES and word not in attributes:
                line.need("=")
                attributes[word] = line.integer()
            else:
                self._fail_attribute(line, word, at_word)
        line.end()
        if kind == FuncKind.BYTECODE and "end" in attributes:
            line.fail(f"{name}: the end of a body follows from its instructions", at)
        if name in self.index_of:
            line.fail(f"function {_short(name)} is defined twice", at)
        self.index_of[name] = len(self.functions)
        self.functions.append(_Function(line, kind, name, attributes, params or ()))

    def _fail_attribute(self, line: _Line, word: str, at: int) -> NoReturn:
        known = (*_ATTRIBUTES, "params")
        if word in known:
            line.fail(f"attribute {word!r} is given twice", at)
        line.fail(f"unknown attribute {_short(word)}{_hint(word, known)}", at)

    def _read_params(self, line: _Line) -> tuple[str, ...]:
        line.need("=")
        line.need("[")
        names: list[str] = []
        while not line.has("]"):
            if names:
                line.need(",")
            names.append(line.name("a parameter name"))
        return tuple(names)

    # Constants

    def _read_preamble(self, line: _Line, first: bool) -> None:
        at = line.skip()
        word = line.expect(_WORD, "a constant or a function")
        if word == "relaxvm":
            self._read_version(line, at, first)
        elif word == "scope":
            self._read_scope(line)
        elif word == "source":
            self._read_source(line)
        elif word == "type":
            self._read_type(line)
        elif word == "constructor":
            self._read_constructor(line)
        elif word == "signature":
            self._read_signature(line)
        elif word == "c" and line.has("["):
            index = line.integer()
            line.need("]")
            if index != len(self.constants):
                line.fail(f"expected c[{len(self.constants)}], got c[{index}]", at)
            line.need("=")
            self.constants.append(self._read_constant(line))
        elif word == "v" and line.has("["):
            index = line.integer()
            line.need("]")
            if index != len(self.values):
                line.fail(f"expected v[{len(self.values)}], got v[{index}]", at)
            line.need("=")
            self.values.append(self._read_value(line))
        else:
            line.fail("an instruction outside of a function" if word in _OPS_BY_MNEMONIC
                      else f"expected a constant or a function, got {_short(word)}", at)
        line.end()

    def _read_version(self, line: _Line, at: int, first: bool) -> None:
        if not first:
            line.fail("the version must come first", at)
        line.need("text")
        at = line.skip()
        version = line.integer("a version number")
        if version != 1:
            line.fail(f"expected version 1 of the text form, got {version}", at)

    def _read_scope(self, line: _Line) -> None:
        at = line.skip()
        line.need("c[")
        index = line.integer()
        line.need("]")
        line.need("=")
        if not 0 <= index < len(self.constants):
            line.fail(f"constant c[{index}] is not defined before this line", at)
        if index in self.scopes:
            line.fail(f"the memory scope of c[{index}] is given twice", at)
        self.scopes[index] = line.string()

    def _read_source(self, line: _Line) -> None:
        file = self._read_file(line)
        at = line.skip()
        number = self._read_count(line, "a line number")
        line.need("=")
        lines = self.sources.setdefault(file, {})
        if number in lines:
            line.fail(f"line {number} of {_short(file)} is given twice", at)
        lines[number] = line.string()

    # Data types

    def _read_type(self, line: _Line) -> None:
        at = line.skip()
        with _types_of(line) as reader:
            name = reader.name()
            params = reader.items(reader.name, "]") if reader.has("[") else []
        if name in self.types:
            line.fail(f"data type {_short(name)} is defined twice", at)
        self.types[name] = params, {}

    def _read_constructor(self, line: _Line) -> None:
        at = line.skip()
        if not self.types:
            line.fail("a constructor before the first data type", at)
        with _types_of(line) as reader:
            name = reader.name()
            reader.need("(")
            fields = reader.types(")")
        constructors = [*self.types.values()][-1][1]
        if name in constructors:
            line.fail(f"constructor {_short(name)} is defined twice", at)
        constructors[name] = fields

    def _read_signature(self, line: _Line) -> None:
        at = line.skip()
        name = line.name("a function name")
        line.need("=")
        with _types_of(line) as reader:
            ty = reader.type()
        if name in self.signatures:
            line.fail(f"the signature of {_short(name)} is given twice", at)
        self.signatures[name] = ty

    def _data_types(self) -> dict[str, Any]:
        """The sections of the executable."""
        if not self.types and not self.signatures:
            return {}
        from ...adt import DataType, DataTypes  # here, since most programs have no data types

        try:
            types = [DataType(name, *rest) for name, rest in self.types.items()]
            return {"data_types": DataTypes(types, self.signatures)}
        except FormatError as error:
            raise ParseError(f"{self.filename}: {error}", line=1, column=1) from None

    def _read_file(self, line: _Line) -> str:
        at = line.skip()
        return line.string() or line.fail("expected the name of a file, got an empty string", at)

    def _read_count(self, line: _Line, what: str) -> int:
        """Read a number that counts from 1."""
        at = line.skip()
        number = line.integer(what)
        if not 1 <= number <= MAX_NUMBER:
            line.fail(f"expected {what} from 1 to {MAX_NUMBER}, got {number}", at)
        return number

    def _read_constant(self, line: _Line) -> Any:
        at = line.skip()
        kind = line.expect(_WORD, "the kind of a constant")
        if kind == "v":
            line.pos = at
            value = self._value_at(line)
            if not is_adt(value):
                line.fail(f"expected a value of a data type, got {describe(value)}", at)
            return value
        if kind == "tensor":
            return self._read_tensor(line)
        if kind == "shape":
            line.need("[")
            return Shape(line.integers())
        if kind == "string":
            return line.string()
        if kind == "dtype":
            return self._read_dtype(line)[0]
        if kind == "int":
            return read_int(line.expect(INT, "an integer"))
        if kind == "float":
            at = line.skip()
            token = line.expect(ELEMENT, "a number")
            try:
                return read_float(token)
            except ValueError as error:
                line.fail(str(error), at)
        if kind == "bool":
            return line.expect(_BOOL, "true or false") == "true"
        if kind == "none":
            return None
        line.fail(f"unknown kind of constant {_short(kind)}{_hint(kind, _CONSTANT_KINDS)}", at)

    def _read_value(self, line: _Line) -> Any:
        """Read a part of constants of data types: a constant, a tuple or a value of a data type."""
        at = line.skip()
        if line.accept(_TUPLE):
            return self._value_list(line)
        if not line.accept(_DATA):
            return self._read_constant(line)
        name = line.string()
        tag = line.integer("a tag")
        try:
            return adt_type()(name, tag, self._value_list(line))
        except (TypeError, ValueError, OverflowError) as error:
            line.fail(str(error), at)

    def _value_list(self, line: _Line) -> tuple[Any, ...]:
        line.need("[")
        parts: list[Any] = []
        while not line.has("]"):
            if parts:
                line.need(",")
            parts.append(self._value_at(line))
        return tuple(parts)

    def _value_at(self, line: _Line) -> Any:
        at = line.skip()
        line.need("v[")
        index = line.integer()
        line.need("]")
        if not 0 <= index < len(self.values):
            line.fail(f"v[{index}] is not defined before this line", at)
        return self.values[index]

    def _read_dtype(self, line: _Line) -> tuple[np.dtype[Any], str]:
        at = line.skip()
        token = line.expect(_DTYPE, "a data type")
        try:
            return read_dtype(token), token
        except ValueError as error:
            line.fail(str(error), at)

    def _read_tensor(self, line: _Line) -> Any:
        at = line.skip()
        dtype, token = self._read_dtype(line)
        line.need("[")
        shape = line.integers()
        try:
            tensor_nbytes(dtype, shape)
        except FormatError as error:
            line.fail(str(error), at)
        if not line.has("{"):
            line.need("base64")
            line.end()
            return self._read_payload(line, at, token, shape)
        if token.startswith('"'):
            line.fail(f"elements of {token} are written in base64")
        return self._read_elements(line, dtype, shape)

    def _read_elements(self, line: _Line, dtype: np.dtype[Any], shape: Sequence[int]) -> Any:
        open_at = line.pos - 1
        tokens: list[str] = []
        places: list[int] = []
        while not line.has("}"):
            if tokens:
                line.need(",")
            places.append(line.skip())
            tokens.append(line.expect(ELEMENT, "an element or '}'"))
        count = int(np.prod(shape, dtype=object))
        if len(tokens) != count:
            line.fail(f"expected {count} elements, got {len(tokens)}", open_at)
        try:
            elements = read_elements(tokens, dtype)
        except ElementError as error:
            line.fail(str(error), places[error.index])
        return sealed(elements.reshape(shape))

    def _read_payload(self, head: _Line, at: int, token: str, shape: Sequence[int]) -> Any:
        data = bytearray()
        while self.next_line < len(self.lines):
            line = self.lines[self.next_line]
            match = _BASE64_LINE.match(line.text)
            if match is None:
                break
            self.next_line += 1
            try:
                data += read_base64(match[1])
            except ValueError as error:
                line.fail(str(error), match.start(1))
        try:
            return tensor_from(bytes(data), token, shape)
        except ValueError as error:
            head.fail(str(error), at)

    # Instructions

    def _read_instruction(self, line: _Line, function: _Function) -> None:
        at = line.skip()
        word = line.expect(_WORD, "an instruction or a function")
        if word == "at":
            self._read_place(line, function)
            return
        op = _OPS_BY_MNEMONIC.get(word)
        if op is None:
            if line.text[at:].startswith(("c[", "scope ")):
                line.fail("constants and memory scopes must come before the first function", at)
            if word == "source":
                line.fail("lines of source must come before the first function", at)
            line.fail(f"unknown instruction {_short(word)}{_hint(word, MNEMONICS.values())}", at)
        if function.kind != FuncKind.BYTECODE:
            line.fail(f"an instruction after {_short(function.name)}, which has no body", at)
        kinds = {item.name: item.kind for item in op.fields}
        values: dict[str, int] = {}
        args: tuple[Arg, ...] = ()
        for part in LAYOUTS[op.name]:
            if not isinstance(part, FieldLook):
                line.need(part.strip())
            elif part.name in kinds:
                values[part.name] = self._read_field(line, kinds[part.name])
            else:
                args = self._read_args(line)
        line.end()
        fields = tuple([values[item.name] for item in op.fields])
        function.instructions.append(Instruction(op, fields, args))

    def _read_place(self, line: _Line, function: _Function) -> None:
        """Read the source location of the instructions that follow in this function."""
        span, variable = self._read_binding(line)
        parts = []
        while line.accept(_OF):
            at = line.skip()
            parts.append(self._read_binding(line))
            if parts[-1] == (None, None):
                line.fail("expected the place or the variable of a part", at)
        line.end()
        location = Location(len(function.instructions), span, variable, tuple(parts))
        function.locations.append(location)

    def _read_binding(self, line: _Line) -> Part:
        span = self._read_span(line) if line.text.startswith('"', line.skip()) else None
        at = line.skip()
        variable = line.name("the name of a variable") if line.accept(_VAR) else None
        if variable == "":
            line.fail("expected the name of a variable, got an empty string", at)
        return span, variable

    def _read_span(self, line: _Line) -> Span:
        file = self._read_file(line)
        at = line.skip()
        numbers = []
        for what, separator in (("line", ":"), ("column", "-"), ("line", ":"), ("column", "")):
            numbers.append(self._read_count(line, f"a {what}"))
            line.need(separator)
        if tuple(numbers[2:]) < tuple(numbers[:2]):
            line.fail("the span ends before it begins", at)
        return Span(file, *numbers)

    def _read_field(self, line: _Line, kind: FieldKind) -> int:
        if kind is FieldKind.FUNC:
            return self._read_function(line)
        if kind is FieldKind.PC:
            return line.integer("a distance in instructions")
        return self._read_register(line)

    def _read_register(self, line: _Line) -> int:
        at = line.skip()
        match = line.accept(_REGISTER)
        if match is None:
            line.fail_expected("a register")
        if match[2]:
            return _REGISTERS_BY_NAME[match[2]]
        return line.word(match[1], at)

    def _read_function(self, line: _Line) -> int:
        at = line.skip()
        name = line.name("a function name")
        index = self.index_of.get(name)
        if index is None:
            line.fail(f"unknown function {_short(name)}: expected a line '@NAME packed_func;' for "
                      f"it{_hint(name, self.index_of)}", at)
        return index

    def _read_args(self, line: _Line) -> tuple[Arg, ...]:
        args: list[Arg] = []
        while args or not line.text.startswith("dst:", line.skip()):
            args.append(self._read_arg(line))
            if not line.has(","):
                break
        return tuple(args)

    def _read_arg(self, line: _Line) -> Arg:
        at = line.skip()
        if line.text.startswith("%", at):
            arg = Arg(ArgKind.REGISTER, self._read_register(line))
        elif line.has("c["):
            arg = Arg(ArgKind.CONSTANT, line.integer())
            line.need("]")
            self._check_constant(line, arg.value, at)
        elif line.has("f["):
            arg = Arg(ArgKind.FUNCTION, self._read_function(line))
            line.need("]")
        elif line.has("i"):
            arg = Arg(ArgKind.IMMEDIATE, line.integer("an argument"))
        else:
            line.fail_expected("an argument (%register, i-immediate, c[constant] or f[function])")
        try:
            isa.encode_arg(arg.kind, arg.value)
        except ValueError as error:
            line.fail(str(error), at)
        return arg

    def _check_constant(self, line: _Line, index: int, at: int) -> None:
        if 0 <= index < len(self.constants):
            return
        hint = "" if self.constants else (
            "; a plain listing leaves the constants out: print with as_text(complete=True)"
        )
        line.fail(f"constant c[{index}] is not defined{hint}", at)

    # The whole

    def _link(self) -> VMExecutable:
        position = 0
        infos: list[FunctionInfo] = []
        bodies: list[tuple[FunctionInfo, _Function]] = []
        for function in self.functions:
            info = _info(function, position)
            infos.append(info)
            if function.kind == FuncKind.BYTECODE:
                bodies.append((info, function))
                position = info.end_instr
        bodies.sort(key=lambda body: (body[0].start_instr, body[0].end_instr))
        offsets: list[int] = []
        words: list[int] = []
        for info, function in bodies:
            if info.start_instr != len(offsets):
                function.line.fail(f"{_short(info.name)} starts at instruction {info.start_instr}, "
                                   f"the function before it ends at {len(offsets)}", 0)
            for instr in function.instructions:
                offsets.append(len(words))
                words += isa.encode(instr)
        debug = DebugInfo.of_bodies(
            ((info.start_instr, info.end_instr, function.locations) for info, function in bodies),
            self.sources,
        )
        return VMExecutable(
            infos, self.constants, offsets, words, self.scopes, debug, sections=self._data_types()
        )


_KIND_WORDS: Final = {"packed_func": FuncKind.PACKED, "vm_tir_func": FuncKind.COMPILED}
_ATTRIBUTES: Final = ("num_inputs", "registers", "start", "end")
_CONSTANT_KINDS: Final = ("tensor", "shape", "string", "dtype", "int", "float", "bool", "none")
_BOOL: Final = re.compile(r"(?:true|false)\b")


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _hint(word: str, known: Iterable[str]) -> str:
    """Return `did_you_mean`, at a cost that does not grow with the text."""
    if len(word) > _SHOWN:
        return ""
    return did_you_mean(word, [name for name in islice(known, 1000) if len(name) <= _SHOWN])


def _info(function: _Function, position: int) -> FunctionInfo:
    """Return the table entry; `position` is where the previous body in the listing ended."""
    attributes = function.attributes
    if function.kind != FuncKind.BYTECODE:
        return FunctionInfo(
            function.kind,
            function.name,
            attributes.get("start", 0),
            attributes.get("end", 0),
            attributes.get("num_inputs", isa.NO_ARITY),
            attributes.get("registers", 0),
            function.params,
        )
    start = attributes.get("start", position)
    num_inputs = attributes.get("num_inputs")
    if num_inputs is None:
        num_inputs = _derived_inputs(function.instructions)
    registers = attributes.get("registers")
    if registers is None:
        used = (1 + r for instr in function.instructions for r, _ in _registers(instr))
        registers = max(used, default=0)
        registers = max(registers, num_inputs)
    end = start + len(function.instructions)
    return FunctionInfo(
        function.kind, function.name, start, end, num_inputs, registers, function.params
    )


def _registers(instr: Instruction) -> Iterable[tuple[int, bool]]:
    """Yield the ordinary registers of an instruction, reads first, each with whether it is
    written."""
    for arg in instr.args:
        if arg.is_register():
            yield arg.value, False
    for item, value in zip(instr.op.fields, instr.fields, strict=True):
        if item.kind is FieldKind.REG and value not in SPECIALS:
            yield value, False
    for item, value in zip(instr.op.fields, instr.fields, strict=True):
        if item.kind is FieldKind.DST and value not in SPECIALS:
            yield value, True


def _derived_inputs(instructions: Sequence[Instruction]) -> int:
    """Derive the number of inputs of a body without a header.

    Registers that are read before they are written are inputs.  Builders number the others in the
    order in which they are first written; where that holds, the first of them is the number of
    inputs, unused ones included.
    """
    written: dict[int, None] = {}
    needed = 0
    for instr in instructions:
        for register, is_write in _registers(instr):
            if is_write:
                written.setdefault(register)
            elif register not in written:
                needed = max(needed, register + 1)
    own = [register for register in written if register >= needed]
    if own and own == list(range(own[0], own[0] + len(own))):
        return own[0]
    return needed
