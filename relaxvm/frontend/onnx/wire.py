"""A reader of the protocol buffer wire format, for messages that are declared as classes.

A message is a class whose attributes are made by `one` and `many`, which give the number and the
type of a field::

    class Dimension(Message):
        value: int | None = one(1, INT)
        name: str = one(2, TEXT)

The classes are the only table: `read` decodes from them, an attribute that a message does not have
is its default, and fields that the classes do not have are skipped.  Bytes and numbers are views of
the file where its layout allows that.

Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ...core import checkpoints
from ...errors import FormatError, LimitError

__all__ = [
    "BYTES",
    "DOUBLES",
    "FLOAT",
    "FLOATS",
    "INT",
    "INTS",
    "TEXT",
    "UINTS",
    "Message",
    "Reader",
    "many",
    "one",
    "read",
]

M = TypeVar("M", bound="Message")

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MOST_DEPTH: Final = 100
"""Messages within messages; protobuf's own readers have this limit, too."""
_MOST_MESSAGES: Final = 1 << 24
"""Messages, strings and other objects of one file."""


class _Type(NamedTuple):
    """A type of field: its wire type, the decoder of a value, its default, and the data type of an
    array of values of variable size."""

    wire: int
    decode: Callable[[Reader, int, int, str], Any] | None
    default: Any
    dtype: str = ""


_FEW: Final = 16
"""Numbers of variable size that are faster decoded one by one."""
_SMALLEST_PART: Final = 256
_LARGEST_PART: Final = 1 << 20
"""Bytes in which numbers that are not packed are looked for at once."""
_FIXED_BYTES: Final = {_FIXED32: 4, _FIXED64: 8}


class Field(NamedTuple):
    """A field of a message."""

    name: str
    type: Any
    is_repeated: bool


class _Declared(NamedTuple):
    number: int
    type: Any
    is_repeated: bool


def one(number: int, kind: Any) -> Any:
    """Declare a field with one value.  `kind` is a type of this module or a class of messages, as a
    function without arguments if it is defined later; such a field is None if it is missing."""
    return _Declared(number, kind, False)


def many(number: int, kind: Any) -> Any:
    """Declare a field with any number of values: a list, or an array of numbers."""
    return _Declared(number, kind, True)


class Message:
    """Base class of messages."""

    FIELDS: ClassVar[dict[int, Field]] = {}

    def __init_subclass__(cls) -> None:
        cls.FIELDS = {}
        for name, declared in list(vars(cls).items()):
            if type(declared) is not _Declared:
                continue
            number, kind, is_repeated = declared
            cls.FIELDS[number] = Field(name, kind, is_repeated)
            default = kind.default if type(kind) is _Type else None
            setattr(cls, name, () if is_repeated and default is not _NO_NUMBERS else default)

    def has(self, name: str) -> bool:
        """Whether the message has a field of this name."""
        return name in self.__dict__

    def __repr__(self) -> str:
        fields = ", ".join(f"{k}={v!r:.60}" for k, v in self.__dict__.items())
        return f"{type(self).__name__}({fields})"


class Reader:
    """Decodes messages from one piece of memory.

    Attributes:
        data: the bytes.
        name: of the file, with which messages of errors begin.
    """

    def __init__(self, data: memoryview, name: str) -> None:
        self.data = data.cast("B")
        self.name = name
        self.left = _MOST_MESSAGES

    def fail(self, place: str, problem: str) -> FormatError:
        """The error for something that is wrong at a place."""
        return FormatError(f"{self.name}: {place}: {problem}")

    def message(self, into: Message, at: int, end: int, place: str, depth: int = 0) -> None:
        """Decode the fields of a message from `at` to `end`."""
        if depth > _MOST_DEPTH:
            raise self.fail(place, f"messages are nested deeper than {_MOST_DEPTH}")
        data, fields, values = self.data, type(into).FIELDS, into.__dict__
        limited = checkpoints.running
        in_pieces = False
        while at < end:
            key = data[at]
            at += 1
            if key >= 0x80:
                key, at = self.varint(at - 1, end, place)
            wire, number = key & 7, key >> 3
            # Most numbers have one byte: they are read here.
            if wire == _LENGTH:
                if at < end and data[at] < 0x80:
                    start = at + 1
                    at = start + data[at]
                else:
                    size, start = self.varint(at, end, place)
                    at = start + size
                if at > end:
                    raise self.fail(
                        place, f"field {number} has {at - start} bytes, but {end - start} are left"
                    )
            elif wire == _VARINT:
                start = at
                if at < end and data[at] < 0x80:
                    value = data[at]
                    at += 1
                else:
                    value, at = self.varint(at, end, place)
            elif wire in (_FIXED32, _FIXED64):
                start, at = at, at + (4 if wire == _FIXED32 else 8)
                if at > end:
                    raise self.fail(place, f"field {number} is truncated")
            else:
                raise self.fail(place, f"field {number} has the unknown wire type {wire}")
            if number == 0:
                raise self.fail(place, "there is a field with number 0")
            field = fields.get(number)
            if field is None:
                continue
            self.left -= 1
            if limited:
                checkpoints.checkpoint()
            if self.left < 0:
                raise LimitError(
                    f"{self.name}: the file has more than {_MOST_MESSAGES} fields", "file_bytes"
                )
            name, kind, is_repeated = field
            if type(kind) is not _Type:
                if wire != _LENGTH:
                    raise self._wrong_wire(place, field, wire)
                self._nested(into, field, start, at, place, depth)
            elif kind.wire == _VARINT and wire == _VARINT and not is_repeated:
                values[name] = value - (1 << 64) if value >> 63 else value
            elif not is_repeated:
                if wire != kind.wire:
                    raise self._wrong_wire(place, field, wire)
                assert kind.decode is not None
                values[name] = kind.decode(self, start, at, f"{place}: {name}")
            elif kind.default is _NO_NUMBERS:
                if wire not in (_LENGTH, kind.wire):
                    raise self._wrong_wire(place, field, wire)
                assert kind.decode is not None
                if wire != _LENGTH and key < 0x80 and at < end and data[at] == key:
                    new, at = self._series(key, start - 1, end, kind, f"{place}: {name}")
                else:
                    new = kind.decode(self, start, at, f"{place}: {name}")
                old = values.get(name)
                if old is None:
                    values[name] = new
                else:
                    values[name] = _Pieces.joined(old, new)
                    in_pieces = True
            else:
                if wire != kind.wire:
                    raise self._wrong_wire(place, field, wire)
                assert kind.decode is not None
                found = values.setdefault(name, [])
                found.append(kind.decode(self, start, at, f"{place}: {name}"))
                if kind is BYTES and key < 0x80:
                    # Short ones that follow, such as the modes of the nodes of trees.
                    while at + 1 < end and data[at] == key and data[at + 1] < 0x80:
                        start = at + 2
                        if start + data[at + 1] > end or not self.left:
                            break
                        at = start + data[at + 1]
                        self.left -= 1
                        found.append(data[start:at])
        if in_pieces:
            for name, value in values.items():
                if type(value) is _Pieces:
                    values[name] = value.whole()

    def _series(
        self, key: int, at: int, end: int, kind: _Type, place: str
    ) -> tuple[NDArray[Any], int]:
        """Numbers of a field that stand one after another, each behind its own key of one byte, as
        files have them that do not pack numbers; and the place after the last.

        Args:
            key: the byte.
            at: the place of the first key.
            end: of the message.
            kind: of the field.
            place: for messages of errors.
        """
        assert kind.decode is not None
        data = self.data
        pieces: list[NDArray[Any]] = []
        if kind.wire == _VARINT:
            few: list[int] = []
            while at + 1 < end and data[at] == key and len(few) < _FEW:
                number = data[at + 1]
                at += 2
                if number >= 0x80:
                    number, at = self.varint(at - 1, end, place)
                few.append(number)
            pieces.append(np.array(few, np.uint64).view(kind.dtype))
            if len(few) < _FEW:
                return pieces[0], at
        size = _SMALLEST_PART
        while at < end:
            checkpoints.checkpoint()
            part = np.frombuffer(self.data[at : min(end, at + size)], np.uint8)
            if kind.wire == _VARINT:
                last = np.flatnonzero(part < 0x80)  # of a key, of a number, of a key, and so on
                ends = last[1::2] + 1
                keys = last[: 2 * len(ends) : 2]
            else:
                ends = np.arange(_FIXED_BYTES[kind.wire] + 1, len(part) + 1,
                                 _FIXED_BYTES[kind.wire] + 1)  # fmt: skip
                keys = ends - (_FIXED_BYTES[kind.wire] + 1)
            begins = np.concatenate([ends[:0], [0], ends[:-1]])[: len(ends)]
            others = np.flatnonzero((keys != begins) | (part[begins] != key))
            count = int(others[0]) if others.size else len(ends)
            if count:
                length = int(ends[count - 1])
                inside = np.ones(length, np.bool_)
                inside[begins[:count]] = False
                numbers = part[:length][inside].data
                pieces.append(kind.decode(Reader(numbers, self.name), 0, len(numbers), place))
                at += length
            if others.size or not len(ends):
                break
            size = min(4 * size, _LARGEST_PART)
        return np.concatenate(pieces), at

    def _nested(
        self, into: Message, field: Field, start: int, end: int, place: str, depth: int
    ) -> None:
        kind = field.type if isinstance(field.type, type) else field.type()
        values = into.__dict__
        if field.is_repeated:
            found = values.setdefault(field.name, [])
            inner = f"{place}: {field.name}[{len(found)}]"
            found.append(new := kind())
        else:
            inner = f"{place}: {field.name}"
            new = values.get(field.name) or kind()  # a second occurrence is merged into the first
            values[field.name] = new
        self.message(new, start, end, inner, depth + 1)

    def _wrong_wire(self, place: str, field: Field, wire: int) -> FormatError:
        return self.fail(place, f"field {field.name} has the wrong wire type {wire}")

    def varint(self, at: int, end: int, place: str) -> tuple[int, int]:
        """A number of up to 64 bits, and the place after it."""
        data = self.data
        value = shift = 0
        while at < end and shift < 70:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
            shift += 7
        raise self.fail(place, "a number is truncated" if shift < 70 else "a number is too long")

    def text(self, start: int, end: int, place: str) -> str:
        """UTF-8 text."""
        try:
            return str(self.data[start:end], "utf-8")
        except UnicodeDecodeError:
            raise self.fail(place, "the text is not UTF-8") from None

    def bytes(self, start: int, end: int, place: str) -> memoryview:
        """A view of bytes."""
        return self.data[start:end]

    def numbers(self, start: int, end: int, place: str, dtype: str) -> NDArray[Any]:
        """Numbers of fixed size."""
        size = np.dtype(dtype).itemsize
        if (end - start) % size:
            raise self.fail(place, f"{end - start} bytes are not a multiple of {size}")
        return np.frombuffer(self.data[start:end], dtype)

    def varints(self, start: int, end: int, place: str) -> NDArray[np.uint64]:
        """Numbers of variable size."""
        if end - start <= _FEW:
            few: list[int] = []
            while start < end:
                number, start = self.varint(start, end, place)
                few.append(number)
            return np.array(few, np.uint64)
        data = np.frombuffer(self.data[start:end], np.uint8)
        last = np.flatnonzero(data < 0x80)
        if not last.size or last[-1] != data.size - 1:
            raise self.fail(place, "a number is truncated")
        first = np.concatenate([[0], last[:-1] + 1])
        length = last - first + 1
        longest = int(length.max())
        if longest > 10:
            raise self.fail(place, "a number is too long")
        found = np.zeros(last.size, np.uint64)
        for i in range(longest):
            has = length > i
            bits = (data[first[has] + i] & 0x7F).astype(np.uint64)
            found[has] |= bits << np.uint64(7 * i)
        return found


class _Pieces:
    """Numbers of a field that occurs several times, to be joined when the message ends."""

    def __init__(self) -> None:
        self.pieces: list[NDArray[Any]] = []

    @classmethod
    def joined(cls, old: Any, new: NDArray[Any]) -> _Pieces:
        if type(old) is not cls:
            first, old = old, cls()
            old.pieces.append(first)
        old.pieces.append(new)
        return cast("_Pieces", old)

    def whole(self) -> NDArray[Any]:
        return np.concatenate(self.pieces)


_NO_NUMBERS: Final = np.empty(0, np.int64)
_NO_NUMBERS.flags.writeable = False


def _float(reader: Reader, start: int, end: int, place: str) -> float:
    return float(reader.numbers(start, end, place, "<f4")[0])


INT: Final = _Type(_VARINT, None, 0)
"""An integer of 64 bits with sign; smaller ones and enumerations are encoded alike."""
FLOAT: Final = _Type(_FIXED32, _float, 0.0)
"""A float of 32 bits."""
TEXT: Final = _Type(_LENGTH, Reader.text, "")
"""UTF-8 text."""
BYTES: Final = _Type(_LENGTH, Reader.bytes, b"")
"""Bytes, as a memoryview."""
INTS: Final = _Type(
    _VARINT, lambda r, a, b, p: r.varints(a, b, p).view(np.int64), _NO_NUMBERS, "int64"
)
"""Many integers, as an int64 array."""
UINTS: Final = _Type(_VARINT, Reader.varints, _NO_NUMBERS, "uint64")
"""Many integers without sign, as a uint64 array."""
FLOATS: Final = _Type(
    _FIXED32, lambda r, a, b, p: r.numbers(a, b, p, "<f4"), _NO_NUMBERS
)
"""Many floats, as a float32 array."""
DOUBLES: Final = _Type(
    _FIXED64, lambda r, a, b, p: r.numbers(a, b, p, "<f8"), _NO_NUMBERS
)
"""Many floats, as a float64 array."""


def read(kind: type[M], data: bytes | bytearray | memoryview, name: str) -> M:
    """Decode a message.

    Args:
        kind: its class.
        data: the bytes; the message has views of them.
        name: of the file, with which messages of errors begin.

    Raises:
        FormatError: the bytes are not such a message.
        LimitError: there are too many fields.
    """
    reader = Reader(memoryview(data), name)
    message = kind()
    reader.message(message, 0, len(reader.data), kind.__name__)
    return message
