"""The binary form: TVM's stream, byte for byte.

Little endian, no padding; ``string`` is a u64 count of bytes and that many bytes of UTF-8::

    header          u64 magic, string version
    functions       u64 count, each: i32 kind, string name, i64 start_instr, i64 end_instr,
                    i64 num_args, i64 register_file_size, u64 count, string per parameter
    memory scopes   u64 count, each: i64 constant index, string scope      (not in the older magic)
    constants       u64 count, each: i32 type, payload
    offsets         u64 count, i64 each
    words           u64 count, i64 each
    debug section   optional; not part of TVM's stream, whose reader stops before it
    kernel section  optional; the same holds

``docs/format.md`` has the payloads and every rule.  This module checks that the container is
well-formed; `relaxvm.verify` checks the program in it (`relaxvm.load` does both).  Every length is
compared with the bytes that are left before memory is allocated, so a small file cannot make the
reader allocate much.

``_save_x`` and ``_load_x`` are next to each other, with the fields in the same order.
Source: TVM's ``VMExecutable::SaveToBytes`` and ``LoadFromBytes``.
"""

from __future__ import annotations

import mmap as _mmap
import os
import struct
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError, RelaxVMWarning
from ...isa import WORD_MAX, WORD_MIN, FuncKind
from ...limits import Limits
from ...values import Shape
from ..debug_info import DebugInfo
from ..executable import FunctionInfo, StoredKernels, VMExecutable
from ._files import name_of, read_all, replacing, size_on_disk, write_all
from ._streams import BufferStream, FileStream, truncated
from ._tensors import (
    MAX_RANK,
    dtype_from_stream,
    dtype_to_stream,
    flat_bytes,
    little_endian,
    on_disk,
    tensor_nbytes,
)

__all__ = ["Source", "dumps", "load", "loads", "save"]

Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Any"
"""The input of `load`: a path, a binary file, or anything with the buffer protocol."""

MAGIC: Final = 0xD225DE2F4214151E
MAGIC_WITHOUT_SCOPES: Final = 0xD225DE2F4214151D
VERSION: Final = b"0.14"
TENSOR_MAGIC: Final = 0xDD5E40F096B4A13F
DEBUG_MAGIC: Final = 0x6775_6265_646D_7672
"""``rvmdebug``: the magic of the debug section."""
DEBUG_VERSION: Final = 1
KERNELS_MAGIC: Final = 0x736C_6E72_6B6D_7672
"""``rvmkrnls``: the magic of the kernel section."""
KERNELS_VERSION: Final = 1
CPU: Final = (1, 0)
"""Device type and index of stored tensors."""

UNKNOWN_DTYPE: Final = (3, 0, 0)
"""Code, bits and lanes that apache-tvm 0.25 writes for a data type that may be any.  It is read as
None, which later versions pass."""

# Constant types: the type indices of TVM's FFI.
INT: Final = 1
FLOAT: Final = 3
DTYPE: Final = 5
STRING: Final = 65
SHAPE: Final = 69
TENSOR: Final = 70

_KINDS: Final = {int(kind): kind for kind in FuncKind}

_U64: Final = struct.Struct("<Q")
_I64: Final = struct.Struct("<q")
_F64: Final = struct.Struct("<d")
_I32: Final = struct.Struct("<i")
_I32_U64: Final = struct.Struct("<iQ")
_I32_I64: Final = struct.Struct("<iq")
_I32_F64: Final = struct.Struct("<id")
_I64_U64: Final = struct.Struct("<qQ")
_FUNCTION: Final = struct.Struct("<qqqqQ")
_DTYPE: Final = struct.Struct("<BBH")
_TENSOR: Final = struct.Struct("<QQiiiBBH")
_DEBUG: Final = struct.Struct("<QQQ")
_KERNELS: Final = struct.Struct("<QQQ32s")
_TENSOR_PREFIX: Final = struct.pack("<iQQii", TENSOR, TENSOR_MAGIC, 0, *CPU)
"""A tensor constant up to its rank."""
_LEAST_PART: Final = 2 * _U64.size

# The minimal size of an entry in each section, to refuse early a count that cannot fit.
_LEAST_FUNCTION: Final = _I32_U64.size + _FUNCTION.size
_LEAST_SCOPE: Final = _I64_U64.size
_LEAST_CONSTANT: Final = _I32.size + _DTYPE.size

_TINY: Final = 1 << 10
"""Arrays up to this many bytes are copied into the stream at once."""
_RUN: Final = 1 << 18
"""Small pieces are joined and written in runs of about this many bytes."""


class _Writer:
    """Collects the stream as pieces: bytes, and arrays that are not copied."""

    def __init__(self) -> None:
        self.pieces: list[bytes | NDArray[Any]] = []
        self.put = self.pieces.append
        self.place = ""

    def string(self, text: str, what: str) -> None:
        data = _utf8(text, what)
        self.put(_U64.pack(len(data)) + data)

    def name(self, text: str, what: str) -> None:
        if "\0" in text:
            raise FormatError(f"{what} {text!r}: contains a NUL character")
        self.string(text, what)

    def array(self, array: NDArray[Any]) -> None:
        if array.nbytes < _TINY:
            self.put(array.astype(on_disk(array.dtype), copy=False).tobytes())
        else:
            self.put(array)


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise FormatError(f"{what} {text!r}: has no UTF-8 form") from None


class _Reader:
    """Reads the fields of sections from a stream, and tracks the position for error messages."""

    def __init__(self, stream: BufferStream | FileStream, name: str, limits: Limits) -> None:
        self.stream = stream
        self.unpack = stream.unpack
        self.name = name
        self.limits = limits
        self.section = "header"
        self.index = -1

    @property
    def place(self) -> str:
        return self.section if self.index < 0 else f"{self.section} {self.index}"

    def entries(self, section: str, count: int) -> Iterator[int]:
        """Yield the indices of a section's entries, and set each as the position for messages."""
        self.section = section
        for self.index in range(count):
            yield self.index
        self.index = -1

    def within(self, limit: str, value: int, what: str) -> None:
        """Check a limit, at little cost if it is not exceeded."""
        bound = getattr(self.limits, limit)
        if bound is not None and value > bound:
            self.limits.check(limit, value, f"{self.name}: {self.place}: {what}")

    def count(self, least: int, limit: str | None = None) -> int:
        """Read a u64 count of entries that take at least `least` bytes each."""
        (count,) = self.unpack(_U64)
        self.fits(count, least)
        if limit is not None:
            self.within(limit, count, "count")
        return int(count)

    def fits(self, count: int, least: int) -> None:
        """Check that the rest of the stream can hold `count` entries."""
        left = self.stream.end - self.stream.position
        if count * least > left:
            raise truncated(self.stream.position, count * least, left)

    def string(self, size: int) -> str:
        """Read `size` bytes of UTF-8."""
        at = self.stream.position
        try:
            return str(self.stream.take(size), "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"string at byte {at}: not UTF-8 ({error.reason})") from None

    def name_of(self, size: int) -> str:
        """Read a name of `size` bytes."""
        at = self.stream.position
        self.fits(size, 1)
        self.within("name_bytes", size, "bytes of a name")
        text = self.string(size)
        if "\0" in text:
            raise FormatError(f"name at byte {at}: contains a NUL character")
        return text

    def integers(self, count: int) -> tuple[int, ...]:
        """Read `count` i64."""
        return struct.unpack(f"<{count}q", self.stream.take(count * _I64.size))


# Header


def _save_header(to: _Writer) -> None:
    to.put(_U64.pack(MAGIC) + _U64.pack(len(VERSION)) + VERSION)


def _load_header(read: _Reader) -> bool:
    """Read the header; return whether there is a section of memory scopes."""
    (magic,) = read.unpack(_U64)
    if magic not in (MAGIC, MAGIC_WITHOUT_SCOPES):
        raise FormatError(_unknown_magic(_U64.pack(magic)))
    version = bytes(read.stream.take(read.count(1)))
    if version != VERSION:
        raise FormatError(f"expected version {VERSION!r}, got {version[:32]!r}")
    return bool(magic == MAGIC)


_SHARED_LIBRARIES: Final = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_ARCHIVES: Final = (b"!<arch>\n", b"\x1f\x8b")
"""The first bytes of archives of object files, which TVM writes to ``.a`` and ``.tar``."""


def _unknown_magic(head: bytes) -> str:
    """Return the message about a file that does not start like an executable."""
    expected = f"expected the magic {MAGIC:#x} or {MAGIC_WITHOUT_SCOPES:#x}, got "
    if head.startswith(_SHARED_LIBRARIES):
        return (f"{expected}a shared library, which relaxvm.load reads from a path or memory if it "
                f"is one of Linux; or write the stream alone with TVM's "
                f"ex.mod.write_to_file(path, '')")
    if head.startswith(_ARCHIVES):
        return (f"{expected}an archive; TVM's ex.export_library writes object files to .a and "
                f".tar, and what can be loaded to .so")
    return f"{expected}{_U64.unpack(head)[0]:#x} ({head!r})"


# Functions


def _save_functions(to: _Writer, functions: Sequence[FunctionInfo]) -> None:
    to.put(_U64.pack(len(functions)))
    for i, info in enumerate(functions):
        to.place = f"function {i}"
        to.put(_I32.pack(info.kind))
        to.name(info.name, "name")
        numbers = (info.start_instr, info.end_instr, info.num_args, info.register_file_size)
        if not all(WORD_MIN <= number <= WORD_MAX for number in numbers):
            raise FormatError(f"{info.name}: expected numbers of 64 bits, got {numbers}")
        to.put(_FUNCTION.pack(*numbers, len(info.param_names)))
        for param in info.param_names:
            to.name(param, "parameter name")


def _load_functions(read: _Reader) -> list[FunctionInfo]:
    read.section = "function table"
    functions = []
    for _ in read.entries("function", read.count(_LEAST_FUNCTION, "functions")):
        kind, size = read.unpack(_I32_U64)
        if kind not in _KINDS:
            raise FormatError(f"unknown kind {kind}, expected 0, 1 or 2")
        name = read.name_of(size)
        start, end, num_args, registers, num_params = read.unpack(_FUNCTION)
        read.fits(num_params, _U64.size)
        params = tuple([read.name_of(read.count(1)) for _ in range(num_params)])
        functions.append(FunctionInfo(_KINDS[kind], name, start, end, num_args, registers, params))
    return functions


# Memory scopes


def _save_scopes(to: _Writer, scopes: Mapping[int, str], num_constants: int) -> None:
    to.put(_U64.pack(len(scopes)))
    for i, (index, scope) in enumerate(sorted(scopes.items())):
        to.place = f"memory scope {i}"
        _check_scope(index, num_constants)
        to.put(_I64.pack(index))
        to.name(scope, "scope")


def _load_scopes(read: _Reader) -> dict[int, str]:
    read.section = "memory scopes"
    scopes: dict[int, str] = {}
    for _ in read.entries("memory scope", read.count(_LEAST_SCOPE)):
        index, size = read.unpack(_I64_U64)
        if index in scopes:
            raise FormatError(f"constant {index} has two memory scopes")
        scopes[index] = read.name_of(size)
    return scopes


def _check_scope(index: int, num_constants: int) -> None:
    if not 0 <= index < num_constants:
        raise FormatError(f"memory scope of constant {index}: there are {num_constants} constants")


# Constants


def _save_constants(to: _Writer, constants: Sequence[Any]) -> None:
    to.put(_U64.pack(len(constants)))
    for i, value in enumerate(constants):
        to.place = f"constant {i}"
        _save_constant(to, value)


def _load_constants(read: _Reader, scopes: Mapping[int, str]) -> list[Any]:
    read.section = "constant pool"
    count = read.count(_LEAST_CONSTANT, "constants")
    for index in scopes:
        _check_scope(index, count)
    rank = MAX_RANK if read.limits.rank is None else min(read.limits.rank, MAX_RANK)
    read.section = "constant"
    constants: list[Any] = []
    while len(constants) < count:
        read.index = len(constants)
        constants += read.stream.tensors(count - len(constants), _TENSOR_PREFIX, rank)
        if len(constants) < count:  # not an ordinary tensor
            read.index = len(constants)
            constants.append(_load_constant(read))
    read.index = -1
    return constants


def _save_constant(to: _Writer, value: Any) -> None:
    if isinstance(value, np.ndarray):
        to.put(_I32.pack(TENSOR))
        _save_tensor(to, value)
    elif isinstance(value, Shape):
        to.put(_I32_U64.pack(SHAPE, len(value)) + struct.pack(f"<{len(value)}q", *value))
    elif isinstance(value, str):
        to.put(_I32.pack(STRING))
        to.string(value, "string")
    elif isinstance(value, np.dtype):
        to.put(_I32.pack(DTYPE) + _DTYPE.pack(*dtype_to_stream(value)))
    elif type(value) is int:
        if not WORD_MIN <= value <= WORD_MAX:
            raise FormatError("expected an int of 64 bits, got a larger one")
        to.put(_I32_I64.pack(INT, value))
    elif type(value) is float:
        to.put(_I32_F64.pack(FLOAT, value))
    else:
        kind = "None" if value is None else f"a {type(value).__name__}"
        raise FormatError(
            f"{kind} cannot be stored in TVM's stream, which has tensors, shapes, strings, ints, "
            f"floats and dtypes; the complete text form also has None and bool"
        )


def _load_constant(read: _Reader) -> Any:
    (kind,) = read.unpack(_I32)
    if kind == TENSOR:
        return _load_tensor(read)
    if kind == SHAPE:
        dims = read.count(_I64.size)
        read.within("shape_dims", dims, "dimensions of a shape")
        return Shape(read.integers(dims))
    if kind == STRING:
        return read.string(read.count(1))
    if kind == DTYPE:
        dtype = read.unpack(_DTYPE)
        return None if dtype == UNKNOWN_DTYPE else dtype_from_stream(*dtype)
    if kind == INT:
        return read.unpack(_I64)[0]
    if kind == FLOAT:
        return read.unpack(_F64)[0]
    raise FormatError(
        f"unknown type {kind}, expected {TENSOR} (tensor), {SHAPE} (shape), {STRING} (string), "
        f"{DTYPE} (dtype), {INT} (int) or {FLOAT} (float)"
    )


def _save_tensor(to: _Writer, array: NDArray[Any]) -> None:
    _check_bool(array)
    to.put(_TENSOR.pack(TENSOR_MAGIC, 0, *CPU, array.ndim, *dtype_to_stream(array.dtype)))
    to.put(struct.pack(f"<{array.ndim + 1}q", *array.shape, array.nbytes))
    to.array(array)


def _load_tensor(read: _Reader) -> NDArray[Any]:
    magic, reserved, *device, rank, code, bits, lanes = read.unpack(_TENSOR)
    if magic != TENSOR_MAGIC:
        raise FormatError(f"expected the magic {TENSOR_MAGIC:#x} of a tensor, got {magic:#x}")
    if reserved:
        raise FormatError(f"expected 0 in the reserved field, got {reserved}")
    if tuple(device) != CPU:
        raise FormatError(f"expected a tensor on device {CPU}, got {tuple(device)}")
    if rank < 0:
        raise FormatError(f"expected a rank >= 0, got {rank}")
    *shape, stored = read.integers(rank + 1)
    read.within("rank", rank, "rank of a tensor")
    dtype = dtype_from_stream(code, bits, lanes)
    nbytes = tensor_nbytes(dtype, shape)
    if stored != nbytes:
        raise FormatError(f"{dtype.name}{shape} takes {nbytes} bytes, the file says {stored}")
    array = read.stream.tensor(on_disk(dtype), shape, nbytes)
    _check_bool(array)
    return array


def _check_bool(array: NDArray[Any]) -> None:
    """Check that all bytes are 0 or 1: anything else is undefined behaviour in numpy's C code."""
    if array.dtype.kind == "b" and array.size and int(array.view(np.uint8).max()) > 1:
        raise FormatError("bool tensor: expected bytes 0 and 1, got a larger one")


# Code


def _save_words(to: _Writer, words: NDArray[np.int64]) -> None:
    to.put(_U64.pack(len(words)))
    to.array(words)


def _load_words(read: _Reader, section: str, limit: str | None = None) -> NDArray[np.int64]:
    read.section = section
    return read.stream.words(read.count(_I64.size, limit))


# Debug section


def _save_debug(to: _Writer, debug: DebugInfo) -> None:
    to.place = "debug section"
    content = _Writer()
    for table in (debug.runs, debug.spans, debug.line_numbers):
        content.put(_U64.pack(len(table)) + table.astype("<i4", copy=False).tobytes())
    for what, strings in (
        ("source file", debug.files),
        ("variable", debug.variables),
        ("line of source", debug.line_texts),
    ):
        _save_strings(content, strings, what)
    size = sum(map(len, content.pieces))
    to.put(_DEBUG.pack(DEBUG_MAGIC, DEBUG_VERSION, size))
    to.pieces += content.pieces


def _load_debug(read: _Reader, strict: bool) -> DebugInfo | None:
    """Read the debug section, if there is one."""
    read.section = "debug section"
    if read.stream.peek(_U64.size) != _U64.pack(DEBUG_MAGIC):
        return None
    _, version, size = read.unpack(_DEBUG)
    read.fits(size, 1)
    end = read.stream.position + size
    if version != DEBUG_VERSION:
        fault = f"expected version {DEBUG_VERSION}, got {version}"
        if strict:
            raise FormatError(fault)
        warnings.warn(f"{read.name}: debug section left out: {fault}", RelaxVMWarning, stacklevel=5)
        read.stream.take(size)
        return None
    runs = _load_table(read, 3, "instructions")
    spans = _load_table(read, 5)
    line_numbers = _load_table(read, 2)
    if not len(runs):
        raise FormatError("expected at least one location")
    files = _load_strings(read, int(spans[:, 0].max(initial=-1)) + 1, "name_bytes")
    variables = _load_strings(read, int(runs[:, 2].max()) + 1, "name_bytes")
    texts = _load_strings(read, len(line_numbers))
    if read.stream.position != end:
        raise FormatError(f"expected its end at byte {end}, got it at {read.stream.position}")
    try:
        return DebugInfo(runs, spans, files, variables, line_numbers, texts)
    except ValueError as error:
        raise FormatError(str(error)) from None


def _load_table(read: _Reader, width: int, limit: str | None = None) -> NDArray[np.int32]:
    """Read rows of `width` i32."""
    size = 4 * width
    rows = bytes(read.stream.take(size * read.count(size, limit)))
    return np.frombuffer(rows, "<i4").reshape(-1, width)


def _save_strings(to: _Writer, strings: Sequence[str], what: str) -> None:
    """Write strings one after the other, each terminated by a NUL character."""
    for text in strings:
        if "\0" in text:
            raise FormatError(f"{what} {text!r}: contains a NUL character")
    data = b"".join([_utf8(text, what) + b"\0" for text in strings])
    to.put(_U64.pack(len(data)) + data)


def _load_strings(read: _Reader, count: int, limit: str | None = None) -> list[str]:
    """Read `count` strings."""
    at = read.stream.position
    text = read.string(read.count(1))
    if text.count("\0") != count or text[-1:] not in ("", "\0"):
        raise FormatError(f"strings at byte {at}: expected {count}, each ended by a NUL character")
    strings = text.split("\0")[:-1]
    if limit is not None:
        longest = max(map(len, map(str.encode, strings)), default=0)
        read.within(limit, longest, "bytes of a name")
    return strings


# Kernel section


def _save_kernels(to: _Writer, parts: Mapping[str, bytes]) -> None:
    to.place = "kernel section"
    content = _Writer()
    content.put(_U64.pack(len(parts)))
    for name, data in parts.items():
        content.name(name, "part")
        content.put(_U64.pack(len(data)) + data)
    payload = b"".join(content.pieces)  # type: ignore[arg-type]  # no arrays
    to.put(_KERNELS.pack(KERNELS_MAGIC, KERNELS_VERSION, len(payload), _digest(payload)) + payload)


def _digest(payload: bytes) -> bytes:
    import hashlib  # here, since it is slow to import and most files have no kernels

    return hashlib.sha256(payload).digest()


def _load_kernels(read: _Reader) -> StoredKernels | None:
    """Read the kernel section, if there is one.  None of its code is run."""
    read.section = "kernel section"
    if read.stream.peek(_U64.size) != _U64.pack(KERNELS_MAGIC):
        return None
    _, version, size, digest = read.unpack(_KERNELS)
    if version != KERNELS_VERSION:
        raise FormatError(f"expected version {KERNELS_VERSION}, got {version}")
    read.fits(size, 1)
    payload = bytes(read.stream.take(size))
    if _digest(payload) != digest:
        raise FormatError("its content has changed: the checksum differs")
    inner = _Reader(BufferStream(memoryview(payload), False), read.name, read.limits)
    parts: dict[str, bytes] = {}
    for _ in inner.entries("part", inner.count(_LEAST_PART)):
        name = inner.name_of(inner.count(1))
        if name in parts:
            raise FormatError(f"two parts are called {name!r}")
        parts[name] = bytes(inner.stream.take(inner.count(1)))
    if inner.stream.position != size:
        raise FormatError(f"{size - inner.stream.position} bytes follow its last part")
    return StoredKernels(parts, read.name)


# The whole


def _encode(
    ex: VMExecutable, debug: bool, kernels: Mapping[str, bytes] | None = None
) -> list[bytes | NDArray[Any]]:
    """Return the stream in pieces.  All errors are raised here, before a byte is written."""
    to = _Writer()
    try:
        _save_header(to)
        _save_functions(to, ex.functions)
        _save_scopes(to, ex.memory_scopes, len(ex.constants))
        _save_constants(to, ex.constants)
        _save_words(to, ex.instr_offset)
        _save_words(to, ex.instr_data)
        if debug and ex.debug is not None:
            _save_debug(to, ex.debug)
        if kernels:
            _save_kernels(to, kernels)
    except FormatError as fault:
        raise FormatError(f"cannot save executable ({to.place}: {fault})") from None
    return to.pieces


def decode(
    stream: BufferStream | FileStream, name: str, limits: Limits, strict: bool
) -> VMExecutable:
    """Read an executable from a stream; arguments and errors as for `loads`."""
    read = _Reader(stream, name, limits)
    try:
        has_scopes = _load_header(read)
        functions = _load_functions(read)
        scopes = _load_scopes(read) if has_scopes else {}
        constants = _load_constants(read, scopes)
        offsets = _load_words(read, "instruction offsets", "instructions")
        words = _load_words(read, "instruction words")
        debug = _load_debug(read, strict)
        kernels = _load_kernels(read)
        _check_end(read, strict)
    except FormatError as fault:
        raise FormatError(f"{name}: bad executable ({read.place}: {fault})") from None
    return VMExecutable(functions, constants, offsets, words, scopes, debug, kernels)


def _check_end(read: _Reader, strict: bool) -> None:
    read.section = "end"
    left = read.stream.end - read.stream.position
    if left == 0:
        return
    fault = f"{left} bytes follow at byte {read.stream.position}"
    if strict:
        raise FormatError(fault)
    warnings.warn(f"{read.name}: {fault}", RelaxVMWarning, stacklevel=4)


# Loading


def loads(
    data: Any,
    *,
    limits: Limits | None = None,
    mmap: bool = False,
    strict: bool = True,
    name: str = "<bytes>",
) -> VMExecutable:
    """Read an executable from memory.

    Args:
        data: bytes, bytearray, memoryview, mmap or anything else with a contiguous buffer.
        limits: bounds on the content; None: those of ``Limits()``.
        mmap: whether tensors are views of `data` instead of copies; `data` must be read-only.  Such
            tensors may be unaligned, which numpy supports but handles more slowly.
        strict: whether bytes after the end are an error or a `RelaxVMWarning`.
        name: the subject of error messages.

    Raises:
        FormatError: the stream is not well-formed.
        LimitError: the content exceeds `limits`.
        MissingExtraError: a tensor has a data type of ml_dtypes, and that is not installed.
        TypeError: `data` has no contiguous buffer.
        ValueError: `mmap` with a writable buffer.
    """
    try:
        view = memoryview(data).cast("B")
    except TypeError:
        got = type(data).__name__
        hint = "; for a path there is load(path)" if isinstance(data, str) else ""
        raise TypeError(f"{name}: expected a contiguous buffer, got {got}{hint}") from None
    if mmap and not view.readonly:
        raise ValueError(f"{name}: mmap=True: expected a read-only buffer, got a writable one")
    if limits is None:
        limits = Limits()
    if not mmap:
        limits.check("file_bytes", view.nbytes, name)
    return decode(BufferStream(view, mmap), name, limits, strict)


def load(
    source: Source,
    *,
    limits: Limits | None = None,
    mmap: bool = False,
    strict: bool = True,
) -> VMExecutable:
    """Read an executable from a file or from memory.

    Args:
        source: path, file opened for reading bytes (read from its position to its end), or buffer.
        limits: bounds on the content; None: those of ``Limits()``.
        mmap: map the file instead of reading it: tensors are read-only views of the mapping, loaded
            page by page when they are used.  They may be unaligned, which numpy supports but
            handles more slowly.  While the executable exists, the file must not be changed in
            place; replacing it, as `save` does, is fine (except on Windows, which refuses).
        strict: whether bytes after the end are an error or a `RelaxVMWarning`.

    Raises:
        OSError: the file cannot be read.
        FormatError, LimitError, MissingExtraError, TypeError, ValueError: as `loads`.
    """
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            return _load_file(file, os.fsdecode(source), limits, mmap, strict)
    if hasattr(source, "read") and not isinstance(source, _mmap.mmap):
        return _load_file(source, name_of(source), limits, mmap, strict)
    try:
        memoryview(source)
    except TypeError:
        got = type(source).__name__
        raise TypeError(f"load: expected a path, a file or a buffer, got {got}") from None
    return loads(source, limits=limits, mmap=mmap, strict=strict)


def _load_file(
    file: Any, name: str, limits: Limits | None, mmap: bool, strict: bool
) -> VMExecutable:
    limits = Limits() if limits is None else limits
    size = size_on_disk(file)
    if size is None:
        if mmap:
            raise ValueError(f"{name}: mmap=True: expected a file on disk")
        return loads(read_all(file, name, limits), limits=limits, strict=strict, name=name)
    position = file.tell()
    if mmap:
        if position >= size:  # an empty file cannot be mapped
            return loads(b"", limits=limits, strict=strict, name=name)
        mapping = memoryview(_mmap.mmap(file.fileno(), 0, access=_mmap.ACCESS_READ))
        return loads(mapping[position:], limits=limits, mmap=True, strict=strict, name=name)
    limits.check("file_bytes", max(0, size - position), name)
    stream = FileStream(file, size)
    ex = decode(stream, name, limits, strict)
    file.seek(stream.position)  # undo the stream's reading ahead
    return ex


# Writing


def dumps(ex: VMExecutable, *, debug: bool = True) -> bytes:
    """Return the stream of an executable.  Equal executables with equal debug information give
    equal bytes; tensors in another byte order or layout are written little endian and row-major.

    Args:
        debug: whether debug information, if there is any, follows the stream.

    Raises:
        FormatError: something has no binary form; the message names it.
    """
    return b"".join(_views(_encode(ex, debug)))


def save(
    ex: VMExecutable,
    target: str | os.PathLike[str] | IO[bytes],
    *,
    debug: bool = True,
    kernels: Mapping[str, bytes] | None = None,
) -> None:
    """Write the stream of an executable.

    A file at a path is replaced atomically: the bytes are written to a new file in the same folder
    and flushed to the disk; then it takes the name and permissions of the old one.  A symbolic link
    is followed.

    Args:
        target: path, or file opened for writing bytes.
        debug: whether debug information, if there is any, follows the stream.
        kernels: the content of a kernel section, by name.

    Raises:
        FormatError: something has no binary form; nothing has been written.
        OSError: the file cannot be written; an old file at the path is unchanged.
        TypeError: `target` is neither a path nor a file.
    """
    pieces = _encode(ex, debug, kernels)
    if isinstance(target, (str, os.PathLike)):
        with replacing(target) as file:
            write_all(file, _runs(pieces))
    elif not hasattr(target, "write"):
        raise TypeError(f"save: expected a path or a file to write, got {type(target).__name__}")
    else:
        write_all(target, _runs(pieces))


def _views(pieces: Iterable[bytes | NDArray[Any]]) -> Iterator[bytes | memoryview]:
    for piece in pieces:
        yield flat_bytes(little_endian(piece)).data if isinstance(piece, np.ndarray) else piece


def _runs(pieces: Iterable[bytes | NDArray[Any]]) -> Iterator[memoryview]:
    """Yield the pieces joined into few buffers; large ones are not copied."""
    run: list[bytes | memoryview] = []
    size = 0
    for view in _views(pieces):
        if run and size + len(view) > _RUN:
            yield memoryview(b"".join(run))
            run, size = [], 0
        if len(view) > _RUN:
            yield memoryview(view)
        else:
            run.append(view)
            size += len(view)
    yield memoryview(b"".join(run))
