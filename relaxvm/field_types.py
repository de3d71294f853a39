"""Types in the definitions of data types, without the compiler: what files and executables keep.

A type is immutable, compares and hashes by content, and prints itself as the script does:
``R.Tensor((3,), dtype="float32")``, ``R.Tuple(A, List[A])``.  `parse` reads the printed form, and
no other, so equal types have equal texts.  ``docs/format.md`` has the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from .errors import FormatError

__all__ = [
    "ANY", "MOST_DEPTH", "NEVER", "AnyField", "DataField", "FieldType", "FunctionField",
    "NeverField", "PrimField", "RefField", "ShapeField", "TensorField", "TupleField", "TypeReader",
    "parse", "parts_of", "quoted_name", "script_text",
]  # fmt: skip

MOST_DEPTH: Final = 64
"""The most types inside of each other."""


class FieldType:
    """A type; see the module."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AnyField(FieldType):
    """Any value."""

    def __str__(self) -> str:
        return "R.Any"


@dataclass(frozen=True, slots=True)
class NeverField(FieldType):
    """No value."""

    def __str__(self) -> str:
        return "R.Never"


ANY: Final = AnyField()
NEVER: Final = NeverField()


def _set_rank(ty: TensorField | ShapeField) -> None:
    """Set the number of dimensions where the dimensions are known.

    Raises:
        FormatError: a number is negative.
    """
    if ty.dims is not None:
        object.__setattr__(ty, "ndim", len(ty.dims))
    if ty.ndim < -1 or any(dim < 0 for dim in ty.dims or ()):
        raise FormatError(f"type {ty}: expected dimensions of at least 0")


@dataclass(frozen=True, slots=True)
class TensorField(FieldType):
    """A tensor.

    Attributes:
        dims: its dimensions; None if one of them is not a number.
        dtype: its data type, None if it may be any.
        ndim: the number of dimensions, -1 if unknown.
    """

    dims: tuple[int, ...] | None = None
    dtype: str | None = None
    ndim: int = -1

    def __post_init__(self) -> None:
        _set_rank(self)

    def __str__(self) -> str:
        parts = []
        if self.dims is not None:
            parts.append(f"({_listed(self.dims)})")
        if self.dtype is not None:
            parts.append(f'dtype="{self.dtype}"')
        if self.dims is None and self.ndim != -1:
            parts.append(f"ndim={self.ndim}")
        return f"R.Tensor({', '.join(parts)})" if parts else "R.Tensor"


@dataclass(frozen=True, slots=True)
class ShapeField(FieldType):
    """A shape.

    Attributes:
        dims: its dimensions; None if one of them is not known.
        ndim: the number of dimensions, -1 if unknown.
    """

    dims: tuple[int, ...] | None = None
    ndim: int = -1

    def __post_init__(self) -> None:
        _set_rank(self)

    def __str__(self) -> str:
        if self.dims is not None:
            return f"R.Shape([{', '.join(map(str, self.dims))}])"
        return "R.Shape" if self.ndim == -1 else f"R.Shape(ndim={self.ndim})"


@dataclass(frozen=True, slots=True)
class PrimField(FieldType):
    """A scalar of a data type."""

    dtype: str

    def __str__(self) -> str:
        return f'R.Prim("{self.dtype}")'


@dataclass(frozen=True, slots=True)
class TupleField(FieldType):
    """A tuple of values of types."""

    fields: tuple[FieldType, ...] = ()

    def __str__(self) -> str:
        return f"R.Tuple({', '.join(map(str, self.fields))})" if self.fields else "R.Tuple"


@dataclass(frozen=True, slots=True)
class FunctionField(FieldType):
    """A function.

    Attributes:
        params: the types of its parameters, None if they are not known.
        result: the type of its result.
        is_pure: whether it has no side effects.
        type_params: the names of its own type parameters.
    """

    params: tuple[FieldType, ...] | None = None
    result: FieldType = ANY
    is_pure: bool = False
    type_params: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.params is None:
            if self.result == ANY and not self.is_pure:
                return "R.Callable"
            return f"R.Callable(ret={self.result}, purity={self.is_pure})"
        own = ""
        if self.type_params:
            own = f", type_params=({_listed(map(_quoted, self.type_params))})"
        return f"R.Callable(({_listed(self.params)}), {self.result}, {self.is_pure}{own})"


@dataclass(frozen=True, slots=True)
class RefField(FieldType):
    """A mutable cell that holds a value of a type."""

    value: FieldType

    def __str__(self) -> str:
        return f"R.Ref({self.value})"


@dataclass(frozen=True, slots=True)
class DataField(FieldType):
    """A data type applied to types, or a type parameter, which has no arguments.

    Attributes:
        name: of the data type or the type parameter.
        args: the type arguments.
    """

    name: str
    args: tuple[FieldType, ...] = ()

    def __str__(self) -> str:
        name = quoted_name(self.name)
        return f"{name}[{', '.join(map(str, self.args))}]" if self.args else name


def parts_of(ty: FieldType) -> Iterator[FieldType]:
    """Yield a type and all types in it."""
    work = [ty]
    while work:
        found = work.pop()
        yield found
        if isinstance(found, TupleField):
            work += reversed(found.fields)
        elif isinstance(found, DataField):
            work += reversed(found.args)
        elif isinstance(found, RefField):
            work.append(found.value)
        elif isinstance(found, FunctionField):
            work += (found.result, *reversed(found.params or ()))


# Text


def _listed(items: Iterable[Any]) -> str:
    """Items as in a tuple of Python: a single one is followed by a comma."""
    texts = [*map(str, items)]
    return f"{texts[0]}," if len(texts) == 1 else ", ".join(texts)


def quoted_name(name: str) -> str:
    """Return a name as in the text of a type: in quotes unless it is a plain identifier."""
    return name if _IDENTIFIER.fullmatch(name) else _quoted(name)


def script_text(ty: FieldType) -> str:
    """Return a type as an annotation in script: in quotes if it mentions data types."""
    text = str(ty)
    if not any(isinstance(part, DataField) for part in parts_of(ty)):
        return text
    return repr(text) if '"' in text else f'"{text}"'


def _quoted(name: str) -> str:
    return '"' + "".join(map(_escaped, name)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else f"\\U{ord(char):08x}"


_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_STRING: Final = re.compile(r'"(?:[^"\\]|\\["\\]|\\U[0-9a-f]{8})*"')
_ESCAPE: Final = re.compile(r'\\(?:(["\\])|U([0-9a-f]{8}))')
_INT: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})(?![0-9])")
_DTYPE: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")


def _string_of(text: str) -> str:
    """Return the string of a literal that matches `_STRING`."""
    return _ESCAPE.sub(_unescaped, text[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    if match[1]:
        return match[1]
    code = int(match[2], 16)
    if code > 0x10FFFF:
        raise FormatError(f"escape {match[0]} is beyond U+10FFFF")
    return chr(code)


def parse(text: str) -> FieldType:
    """Return the type of a text.

    Raises:
        FormatError: the text is not the printed form of a type, or nested more than `MOST_DEPTH`
            deep.
    """
    parser = TypeReader(text)
    ty = parser.type()
    if parser.at != len(text):
        parser.fail("the end")
    if str(ty) != text:
        raise FormatError(f"type {_shown(text)}: expected its printed form {_shown(str(ty))}")
    return ty


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}...")


class TypeReader:
    """Reads types and names from a text, from left to right.  All methods raise `FormatError` if
    the text has something else.

    Attributes:
        text: the text.
        at: the position of the next character.
    """

    def __init__(self, text: str, at: int = 0) -> None:
        self.text = text
        self.at = self._start = at
        self._depth = 0

    def fail(self, expected: str) -> NoReturn:
        rest = self.text[self.at : self.at + 20]
        raise FormatError(
            f"type {_shown(self.text[self._start :])}: expected {expected} at character "
            f"{self.at - self._start}, got {repr(rest) if rest else 'the end'}"
        )

    def has(self, literal: str) -> bool:
        found = self.text.startswith(literal, self.at)
        if found:
            self.at += len(literal)
        return found

    def need(self, literal: str) -> None:
        if not self.has(literal):
            self.fail(repr(literal))

    def token(self, pattern: re.Pattern[str], what: str) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            self.fail(what)
        self.at = match.end()
        return match[0]

    # Types

    def type(self) -> FieldType:
        """A type."""
        if self._depth == MOST_DEPTH:
            raise FormatError(f"a type is nested more than {MOST_DEPTH} deep")
        self._depth += 1
        found = self._type()
        self._depth -= 1
        return found

    def _type(self) -> FieldType:
        if not self.has("R."):
            return self._data()
        kind = self.token(_IDENTIFIER, "a kind of type")
        read = _KINDS.get(kind)
        if read is None:
            self.at -= len(kind)
            self.fail(f"one of {', '.join(_KINDS)}")
        return read(self)

    def name(self) -> str:
        """A name: an identifier, or a string in quotes."""
        if self.text.startswith('"', self.at):
            return self.string()
        return self.token(_IDENTIFIER, "a name")

    def string(self) -> str:
        return _string_of(self.token(_STRING, "a string in quotes"))

    def _data(self) -> FieldType:
        name = self.name()
        return DataField(name, tuple(self.types("]")) if self.has("[") else ())

    def types(self, close: str) -> list[FieldType]:
        """Types up to a closing bracket, which ends the list."""
        return self.items(self.type, close)

    def items(self, read: Callable[[], Any], close: str) -> list[Any]:
        """Items, separated by commas, up to a closing bracket; a single item of a tuple is followed
        by a comma."""
        found: list[Any] = []
        while not self.has(close):
            if found:
                self.need(",")
                if self.has(close):
                    break
                self.need(" ")
            found.append(read())
        return found

    def integer(self) -> int:
        value = int(self.token(_INT, "an integer"))
        if not -(2**63) <= value < 2**63:
            self.fail("an integer of 64 bits before it")
        return value

    def dtype(self) -> str:
        self.need('"')
        found = self.token(_DTYPE, "a data type")
        self.need('"')
        return found

    def bool(self) -> bool:
        if self.has("True"):
            return True
        self.need("False")
        return False

    def _tensor(self) -> FieldType:
        dims, dtype, ndim = None, None, -1
        if not self.has("("):
            return TensorField()
        if self.has("("):
            dims = tuple(self.items(self.integer, ")"))
            ndim = len(dims)
        if dims is None or self.has(", "):
            if self.has("dtype="):
                dtype = self.dtype()
                if dims is None and self.has(", "):
                    self.need("ndim=")
                    ndim = self.integer()
            else:
                self.need("ndim=")
                ndim = self.integer()
        self.need(")")
        return TensorField(dims, dtype, ndim)

    def _shape(self) -> FieldType:
        if self.has("(ndim="):
            ndim = self.integer()
            self.need(")")
            return ShapeField(None, ndim)
        if not self.has("(["):
            return ShapeField()
        dims = tuple(self.items(self.integer, "]"))
        self.need(")")
        return ShapeField(dims, len(dims))

    def _prim(self) -> FieldType:
        self.need("(")
        found = PrimField(self.dtype())
        self.need(")")
        return found

    def _tuple(self) -> FieldType:
        return TupleField(tuple(self.types(")")) if self.has("(") else ())

    def _ref(self) -> FieldType:
        self.need("(")
        found = RefField(self.type())
        self.need(")")
        return found

    def _function(self) -> FieldType:
        if not self.has("("):
            return FunctionField()
        if self.has("ret="):
            result = self.type()
            self.need(", purity=")
            found = FunctionField(None, result, self.bool())
            self.need(")")
            return found
        self.need("(")
        params = tuple(self.types(")"))
        self.need(", ")
        result = self.type()
        self.need(", ")
        is_pure = self.bool()
        own: tuple[str, ...] = ()
        if self.has(", type_params=("):
            own = tuple(self.items(self.string, ")"))
        self.need(")")
        return FunctionField(params, result, is_pure, own)


_KINDS: Final[dict[str, Callable[[TypeReader], FieldType]]] = {
    "Any": lambda parser: ANY,
    "Never": lambda parser: NEVER,
    "Tensor": TypeReader._tensor,
    "Shape": TypeReader._shape,
    "Prim": TypeReader._prim,
    "Tuple": TypeReader._tuple,
    "Callable": TypeReader._function,
    "Ref": TypeReader._ref,
}
