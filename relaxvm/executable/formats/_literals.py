"""Literals of the complete text form: names, strings, data types, constants.

Each literal is read back to the same bits.  The printer and the reader of a literal are next to
each other.  The `read_...` functions take the text of one token and raise ValueError, to which the
parser adds the position.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...dtypes import as_dtype
from ...errors import FormatError
from ...values import Shape
from ._tensors import flat_bytes, little_endian, on_disk, sealed, tensor_nbytes

__all__ = [
    "BARE",
    "ELEMENT",
    "INLINE",
    "INT",
    "NUMERIC_DTYPES",
    "STRING",
    "ElementError",
    "constant_lines",
    "dtype_text",
    "name_text",
    "quote",
    "read_base64",
    "read_dtype",
    "read_elements",
    "read_float",
    "read_int",
    "read_string",
    "tensor_from",
]

BARE: Final = re.compile(r'[^\s"\\\[\],;#][^\s"\\\[\],;]*')
"""A name that needs no quotes."""
# Possessive (*+), or each repetition of the group would keep memory for a way back.
STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*+"')
INT: Final = re.compile(r"[+-]?(?:0x[0-9a-fA-F]+|[0-9]{1,20})(?![0-9a-zA-Z_.])")
ELEMENT: Final = re.compile(r"[0-9a-zA-Z.+-]{1,400}")
"""A number or truth value inside the braces of a tensor; `read_elements` checks it."""

NUMERIC_DTYPES: Final = frozenset((
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128", "bfloat16",
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "int2", "int4", "uint1", "uint2", "uint4", "float4_e2m1fn",
))  # fmt: skip
_OTHER_DTYPE: Final = re.compile(r"[<>|=][a-zA-Z][0-9]{0,9}(?:\[[0-9]{0,9}[a-zA-Z]{1,2}\])?")
INLINE: Final = 64
"""The most elements of a tensor that is written as numbers; larger ones are base64."""
_LINE_BYTES: Final = 72
"""Bytes per line of base64; they take 96 characters."""


# Names and strings

_ESCAPE: Final = re.compile(r'\\(?:([\\"nrt])|x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.?))')
_NAMED: Final = {"\\": "\\", '"': '"', "n": "\n", "r": "\r", "t": "\t"}
_NAMED_BACK: Final = {char: name for name, char in _NAMED.items()}


def quote(text: str) -> str:
    """Return a string literal.  Printable characters are kept, others become one escape each."""
    return '"' + "".join(map(_quoted_char, text)) + '"'


def _quoted_char(char: str) -> str:
    if char in _NAMED_BACK:
        return "\\" + _NAMED_BACK[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def read_string(token: str) -> str:
    """Return the string of a literal that matches `STRING`."""
    return _ESCAPE.sub(_unescaped, token[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    named, *codes, bad = match.groups()
    if named:
        return _NAMED[named]
    digits = next(filter(None, codes), None)
    if digits is None:
        raise ValueError(f"unknown escape \\{bad} in a string")
    if int(digits, 16) > 0x10FFFF:
        raise ValueError(f"escape {match.group()} is beyond U+10FFFF")
    return chr(int(digits, 16))


def name_text(name: str) -> str:
    """Return a name, in quotes where the listing would be ambiguous without them."""
    bare = BARE.fullmatch(name) and name.isprintable() and not name.endswith(":")
    return name if bare else quote(name)


# Numbers


def read_int(token: str) -> int:
    """Return the integer of a literal that matches `INT`."""
    return int(token, 16 if "x" in token else 10)


def _int_text(value: int) -> str:
    # Hexadecimal beyond 64 bits, since Python refuses to parse long decimal numbers.
    return str(value) if value.bit_length() <= 64 else hex(value)


def read_float(token: str) -> float:
    """Return the float64 of a number or of its bits."""
    return float(read_elements([token], np.dtype(np.float64))[0])


# Data types


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return the name of a numeric dtype in this machine's byte order, else numpy's code in
    quotes."""
    if dtype.name in NUMERIC_DTYPES and dtype == as_dtype(dtype.name):
        return dtype.name
    plain = _OTHER_DTYPE.fullmatch(dtype.str) and dtype.itemsize and not dtype.hasobject
    if plain and np.dtype(dtype.str) == dtype:
        return f'"{dtype.str}"'
    raise FormatError(f"dtype {dtype} has no text form")


def read_dtype(token: str) -> np.dtype[Any]:
    """Return the data type of a name or a string literal."""
    if token in NUMERIC_DTYPES:
        return as_dtype(token)
    code = token[1:-1]
    if token.startswith('"') and _OTHER_DTYPE.fullmatch(code):
        try:
            dtype = np.dtype(code)
        except TypeError:
            dtype = np.dtype(np.object_)
        if dtype.itemsize and not dtype.hasobject:
            return dtype
    raise ValueError(f"expected a data type, got {token}")


# Constants


def constant_lines(value: Any) -> Iterator[str]:
    """Yield the lines of a constant, the first without ``c[i] =``.

    Raises:
        FormatError: the value has no text form.
    """
    if isinstance(value, np.ndarray):
        yield from _tensor_lines(value)
    elif isinstance(value, Shape):
        yield f"shape [{', '.join(map(str, value))}]"
    elif isinstance(value, str):
        yield f"string {quote(value)}"
    elif isinstance(value, np.dtype):
        yield f"dtype {dtype_text(value)}"
    elif value is None:
        yield "none"
    elif type(value) is bool:
        yield f"bool {str(value).lower()}"
    elif type(value) is int:
        yield f"int {_int_text(value)}"
    elif type(value) is float:
        yield f"float {_element_texts(np.array([value]))[0]}"
    else:
        raise FormatError(f"a {type(value).__name__} has no text form")


def _tensor_lines(array: NDArray[Any]) -> Iterator[str]:
    text = dtype_text(array.dtype)
    head = f"tensor {text}[{', '.join(map(str, array.shape))}]"
    if array.size <= INLINE and text in NUMERIC_DTYPES:
        yield f"{head} {{{', '.join(_element_texts(array))}}}"
        return
    yield f"{head} base64"
    data = array.astype(_payload_dtype(text, array.dtype), copy=False).tobytes()
    for start in range(0, len(data), _LINE_BYTES):
        line = binascii.b2a_base64(data[start : start + _LINE_BYTES], newline=False)
        yield f"  | {line.decode()}"


def _payload_dtype(text: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of elements in base64: little endian unless `text` has a byte order."""
    return dtype if text.startswith('"') else on_disk(dtype)


def read_base64(line: str) -> bytes:
    """Return the bytes of one line of base64, without its bar."""
    try:
        return binascii.a2b_base64(line, strict_mode=True)
    except (binascii.Error, ValueError):
        raise ValueError("expected base64") from None


def tensor_from(data: bytes, token: str, shape: Sequence[int]) -> NDArray[Any]:
    """Return the tensor with the payload `data`; `token` is the spelling of its dtype."""
    dtype = read_dtype(token)
    nbytes = tensor_nbytes(dtype, shape)
    if len(data) != nbytes:
        raise ValueError(f"expected {nbytes} bytes of base64, got {len(data)}")
    if dtype.kind == "b" and data and max(data) > 1:
        raise ValueError("expected bytes 0 and 1 in a bool tensor")
    if not data:
        return sealed(np.empty(tuple(shape), dtype))
    payload = np.frombuffer(data, _payload_dtype(token, dtype)).reshape(shape)
    return payload.astype(dtype, copy=False)


# Elements of numeric tensors


class ElementError(ValueError):
    """A malformed element.

    Attributes:
        index: its position.
    """

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


def _element_texts(array: NDArray[Any]) -> list[str]:
    """Return the elements in row-major order: as short numbers where these read back to the same
    bits, else as the bits themselves (NaNs with a payload)."""
    flat = array.reshape(-1)
    texts = list(map(_number_text, flat))
    want, got = (_bits(elements) for elements in (flat, _converted(texts, flat.dtype)[1]))
    for i in np.flatnonzero((want != got).any(axis=1)):
        texts[i] = "0x" + want[i, ::-1].tobytes().hex()
    return texts


def _bits(elements: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes as uint8[n, itemsize], least significant byte first."""
    size = elements.dtype.itemsize
    return flat_bytes(little_endian(elements)).reshape(len(elements), size)


def _number_text(x: Any) -> str:
    if isinstance(x, np.bool_):
        return str(bool(x)).lower()
    if isinstance(x, np.complexfloating):
        imag = str(x.imag)
        return f"{x.real!s}{'' if imag.startswith('-') else '+'}{imag}j"
    return str(x)


_NUMBER: Final = r"(?:inf|nan|[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)"
_FLOAT: Final = re.compile(rf"[+-]?{_NUMBER}")
_COMPLEX: Final = re.compile(rf"([+-]?{_NUMBER})([+-]{_NUMBER})j")


def read_elements(tokens: Sequence[str], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the elements of a numeric dtype as a one-dimensional array.

    Raises:
        ElementError: an element is not a number of that kind, or does not fit it.
    """
    numbers, elements = _converted(tokens, dtype)
    if dtype.kind not in "biu":
        with np.errstate(all="ignore"):
            back = elements.astype(numbers.dtype)
        lost = (np.isfinite(numbers) & ~np.isfinite(back)) | (np.isnan(back) & ~np.isnan(numbers))
        if dtype.name.startswith(("int", "uint")):  # of ml_dtypes, which wraps
            lost |= back != numbers
        for i in np.flatnonzero(lost).tolist():
            if not tokens[i].startswith("0x"):
                raise ElementError(i, f"{tokens[i]} does not fit {dtype.name}")
    return elements


def _converted(
    tokens: Sequence[str], dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the numbers of the tokens in double precision, and rounded to `dtype`."""
    read = _READERS.get(dtype.kind, _read_float)
    wide = np.dtype(np.complex128 if dtype.kind == "c" else np.float64)
    numbers = np.zeros(len(tokens), dtype if dtype.kind in "biu" else wide)
    least, most = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else (0, 0)
    bits: dict[int, int] = {}
    for i, token in enumerate(tokens):
        try:
            if token.startswith("0x") and dtype.kind not in "biu":
                bits[i] = _fitting(int(token, 16), 0, (1 << 8 * dtype.itemsize) - 1)
            elif dtype.kind in "iu":
                numbers[i] = _fitting(read(token), least, most)
            else:
                numbers[i] = read(token)
        except OverflowError:
            raise ElementError(i, f"{token} does not fit {dtype.name}") from None
        except ValueError:
            wanted = _WANTED.get(dtype.kind, "a number")
            raise ElementError(i, f"expected {wanted}, got {token}") from None
    with np.errstate(all="ignore"):
        elements = numbers.astype(on_disk(dtype))
    by_byte = flat_bytes(elements).reshape(len(tokens), dtype.itemsize)
    for i, pattern in bits.items():
        by_byte[i] = np.frombuffer(pattern.to_bytes(dtype.itemsize, "little"), np.uint8)
    return numbers, elements.astype(dtype, copy=False)


def _fitting(value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise OverflowError
    return value


def _read_bool(token: str) -> bool:
    return ("false", "true").index(token) == 1


def _read_integer(token: str) -> int:
    if not INT.fullmatch(token):
        raise ValueError
    return read_int(token)


def _read_float(token: str) -> float:
    if not _FLOAT.fullmatch(token):
        raise ValueError
    number = float(token)
    if math.isinf(number) and "inf" not in token:
        raise OverflowError
    return number


def _read_complex(token: str) -> complex:
    match = _COMPLEX.fullmatch(token)
    if match is None:
        raise ValueError
    return complex(_read_float(match[1]), _read_float(match[2]))


_WANTED: Final = {
    "b": "true or false", "i": "an integer", "u": "an integer", "c": "a number like 1.0-2.0j",
}  # fmt: skip
_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "b": _read_bool, "i": _read_integer, "u": _read_integer, "c": _read_complex,
}  # fmt: skip
