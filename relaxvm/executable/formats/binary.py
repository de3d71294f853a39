"""The binary form: TVM's stream, byte for byte.

Little endian, no padding; ``string`` is a u64 count of bytes and that many bytes of UTF-8::

    header          u64 magic, string version
    functions       u64 count, each: i32 kind, string name, i64 start_instr, i64 end_instr,
                    i64 num_args, i64 register_file_size, u64 count, string per parameter
    memory scopes   u64 count, each: i64 constant index, string scope      (not in the older magic)
    constants       u64 count, each: i32 type, payload
    offsets         u64 count, i64 each
    words           u64 count, i64 each

Further sections may follow, which TVM's reader does not reach: see
`relaxvm.executable.formats.sections`.

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
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError, RelaxVMWarning
from ...isa import WORD_MAX, WORD_MIN, FuncKind
from ...limits import Limits
from ...messages import readable, warn
from ...values import is_adt
from ..executable import FunctionInfo, StoredKernels, VMExecutable
from ..file_kinds import HEAD_BYTES, kind_of
from ._constants import LEAST, PREFIX, STRING, load_constant, save_constant
from ._fields import I64, U64, Reader, Writer
from ._files import name_of, read_all, replacing, size_on_disk, write_all
from ._streams import BufferStream, FileStream
from ._tensor_section import PLACEHOLDER
from ._tensors import MAX_RANK
from .sections import SectionPlace, load_sections, save_sections

__all__ = ["Decoded", "Source", "digest", "dumps", "load", "loads", "read", "read_buffer", "save"]

Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Any
"""The input of `load`: a path, a binary file, or anything with the buffer protocol."""

MAGIC: Final = 0xD225DE2F4214151E
MAGIC_WITHOUT_SCOPES: Final = 0xD225DE2F4214151D
VERSION: Final = b"0.14"

_KINDS: Final = {int(kind): kind for kind in FuncKind}

_I32: Final = struct.Struct("<i")
_I32_U64: Final = struct.Struct("<iQ")
_I64_U64: Final = struct.Struct("<qQ")
_FUNCTION: Final = struct.Struct("<qqqqQ")

# The minimal size of an entry in each section, to refuse early a count that cannot fit.
_LEAST_FUNCTION: Final = _I32_U64.size + _FUNCTION.size
_LEAST_SCOPE: Final = _I64_U64.size

_RUN: Final = 1 << 18
"""Small pieces are joined and written in runs of about this many bytes."""


# Header


_RELAY_VERSION: Final = re.compile(rb"0\.\d{1,2}\.[\w.+-]{1,40}")
"""The version in executables of the Relay VM, which have the same magic: that of TVM."""


def _save_header(to: Writer) -> None:
    to.put(U64.pack(MAGIC) + U64.pack(len(VERSION)) + VERSION)


def _load_header(read: Reader) -> bool:
    """Read the header; return whether there is a section of memory scopes."""
    (magic,) = read.unpack(U64)
    if magic not in (MAGIC, MAGIC_WITHOUT_SCOPES):
        head = U64.pack(magic) + read.stream.peek(HEAD_BYTES - U64.size)
        raise FormatError(_unknown_magic(head, read.name))
    version = bytes(read.stream.take(read.count(1)))
    if version != VERSION:
        if magic == MAGIC_WITHOUT_SCOPES and _RELAY_VERSION.fullmatch(version):
            raise FormatError(
                f"this is an executable of the Relay VM of TVM {version[:32].decode()}; "
                "relaxvm.frontend.relay.load_executable reads those of TVM 0.7 to 0.19"
            )
        raise FormatError(f"expected version {VERSION!r}, got {version[:32]!r}")
    return bool(magic == MAGIC)


_SHARED_LIBRARIES: Final = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_ARCHIVES: Final = (b"!<arch>\n", b"\x1f\x8b")
"""The first bytes of archives of object files, which TVM writes to ``.a`` and ``.tar``."""


def _unknown_magic(head: bytes, name: str) -> str:
    """Return the message about a file that does not start like an executable."""
    expected = f"expected the magic {MAGIC:#x} or {MAGIC_WITHOUT_SCOPES:#x}, got "
    if head.startswith(_SHARED_LIBRARIES):
        return (f"{expected}a shared library, which relaxvm.load reads from a path or memory if it "
                f"is one of Linux; or write the stream alone with TVM's "
                f"ex.mod.write_to_file(path, '')")
    if head.startswith(_ARCHIVES):
        return (f"{expected}an archive; TVM's ex.export_library writes object files to .a and "
                f".tar, and what can be loaded to .so")
    kind = kind_of(head, name)
    found = f"{expected}{U64.unpack(head[:8])[0]:#x} ({head[:8]!r})"
    return found if kind is None else f"{found}; {kind}"


# Functions


def _save_functions(to: Writer, functions: Sequence[FunctionInfo]) -> None:
    to.put(U64.pack(len(functions)))
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


def _load_functions(read: Reader) -> list[FunctionInfo]:
    read.section = "function table"
    functions = []
    for _ in read.entries("function", read.count(_LEAST_FUNCTION, "functions")):
        kind, size = read.unpack(_I32_U64)
        if kind not in _KINDS:
            raise FormatError(f"unknown kind {kind}, expected 0, 1 or 2")
        name = read.name_of(size)
        start, end, num_args, registers, num_params = read.unpack(_FUNCTION)
        read.fits(num_params, U64.size)
        params = tuple([read.name_of(read.count(1)) for _ in range(num_params)])
        functions.append(FunctionInfo(_KINDS[kind], name, start, end, num_args, registers, params))
    return functions


# Memory scopes


def _save_scopes(to: Writer, scopes: Mapping[int, str], num_constants: int) -> None:
    to.put(U64.pack(len(scopes)))
    for i, (index, scope) in enumerate(sorted(scopes.items())):
        to.place = f"memory scope {i}"
        _check_scope(index, num_constants)
        to.put(I64.pack(index))
        to.name(scope, "scope")


def _load_scopes(read: Reader) -> dict[int, str]:
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


def _save_constants(to: Writer, constants: Sequence[Any]) -> None:
    to.put(U64.pack(len(constants)))
    for i, value in enumerate(constants):
        to.place = f"constant {i}"
        if is_adt(value):
            to.put(_I32.pack(STRING))
            to.string(value.constructor, "name of a constructor")
        else:
            save_constant(to, value)


def _load_constants(read: Reader, scopes: Mapping[int, str]) -> list[Any]:
    read.section = "constant pool"
    count = read.count(LEAST, "constants")
    for index in scopes:
        _check_scope(index, count)
    rank = MAX_RANK if read.limits.rank is None else min(read.limits.rank, MAX_RANK)
    read.section = "constant"
    constants: list[Any] = []
    while len(constants) < count:
        read.index = len(constants)
        constants += read.stream.tensors(count - len(constants), PREFIX, rank)
        if len(constants) < count:  # not an ordinary tensor
            read.index = len(constants)
            constants.append(load_constant(read))
    read.index = -1
    return constants


# Code


def _save_words(to: Writer, words: NDArray[np.int64]) -> None:
    to.put(U64.pack(len(words)))
    to.array(words)


def _load_words(read: Reader, section: str, limit: str | None = None) -> NDArray[np.int64]:
    read.section = section
    return read.stream.words(read.count(I64.size, limit))


# The whole


def _encode(
    ex: VMExecutable,
    debug: bool,
    prim_funcs: bool,
    kernels: Mapping[str, bytes] | None = None,
    aligned: bool = False,
) -> Writer:
    """Return the stream in pieces.  All errors are raised here, before a byte is written."""
    to = Writer()
    tensors = {i: value for i, value in enumerate(ex.constants) if isinstance(value, np.ndarray)}
    constants = ex.constants
    if aligned and tensors:
        constants = tuple([PLACEHOLDER if i in tensors else c for i, c in enumerate(constants)])
    contents = {
        **ex.sections,
        "debug": ex.debug if debug else None,
        "kernels": kernels or None,
        "prim_funcs": (ex.prim_funcs or None) if prim_funcs else None,
        "values": {i: value for i, value in enumerate(ex.constants) if is_adt(value)} or None,
        "tensors": (aligned and tensors) or None,
    }
    try:
        _save_header(to)
        _save_functions(to, ex.functions)
        _save_scopes(to, ex.memory_scopes, len(ex.constants))
        _save_constants(to, constants)
        _save_words(to, ex.instr_offset)
        _save_words(to, ex.instr_data)
        to.place = "sections"
        save_sections(to, contents)
    except FormatError as fault:
        raise FormatError(f"cannot save executable ({to.place}: {fault})") from None
    return to


class Decoded(NamedTuple):
    """What was read: an executable, and where the sections behind its stream are."""

    executable: VMExecutable
    sections: tuple[SectionPlace, ...]


def decode(
    stream: BufferStream | FileStream,
    name: str,
    limits: Limits,
    strict: bool,
    checks_content: bool = True,
) -> Decoded:
    """Read an executable from a stream; arguments and errors as for `read_buffer`."""
    read = Reader(stream, name, limits, checks_content=checks_content)
    try:
        has_scopes = _load_header(read)
        functions = _load_functions(read)
        scopes = _load_scopes(read) if has_scopes else {}
        constants = _load_constants(read, scopes)
        offsets = _load_words(read, "instruction offsets", "instructions")
        words = _load_words(read, "instruction words")
        contents, places = load_sections(read, strict)
        _put_values(read, constants, contents.pop("values", {}))
        _put_tensors(read, constants, contents.pop("tensors", {}))
        _check_end(read, strict)
    except FormatError as fault:
        raise FormatError(f"{name}: bad executable ({read.place}: {fault})") from None
    debug, kernels = contents.pop("debug", None), contents.pop("kernels", None)
    saved = contents.pop("prim_funcs", None)
    if kernels is None:
        kernels = saved
    elif saved is not None:
        kernels = StoredKernels(kernels.parts, kernels.source, saved)
    ex = VMExecutable(functions, constants, offsets, words, scopes, debug, kernels, contents)
    return Decoded(ex, places)


def _put_values(read: Reader, constants: list[Any], values: Mapping[int, Any]) -> None:
    """Put constants of data types into the pool, where the stream has the names of their
    constructors."""
    read.section = "section of values"
    for index, value in values.items():
        if index >= len(constants):
            raise FormatError(f"constant {index}: there are {len(constants)} constants")
        if constants[index] != value.constructor or type(constants[index]) is not str:
            raise FormatError(
                f"constant {index}: expected the string {readable(value.constructor)!r} in its "
                "place in the stream"
            )
        constants[index] = value


def _put_tensors(read: Reader, constants: list[Any], tensors: Mapping[int, Any]) -> None:
    """Put tensors into the pool, where the stream has empty strings."""
    read.section = "section of tensors"
    for index, array in tensors.items():
        if index >= len(constants):
            raise FormatError(f"constant {index}: there are {len(constants)} constants")
        if constants[index] != PLACEHOLDER or type(constants[index]) is not str:
            raise FormatError(f"constant {index}: expected an empty string in its place in the "
                              f"stream")  # fmt: skip
        constants[index] = array


def _check_end(read: Reader, strict: bool) -> None:
    read.section = "end"
    if read.left == 0:
        return
    fault = f"{read.left} bytes follow at byte {read.stream.position}"
    if strict:
        raise FormatError(fault)
    warn(f"{read.name}: {fault}", RelaxVMWarning)


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
    return read_buffer(data, limits=limits, mmap=mmap, strict=strict, name=name).executable


def read_buffer(
    data: Any,
    *,
    limits: Limits | None = None,
    mmap: bool = False,
    strict: bool = True,
    name: str = "<bytes>",
    checks_content: bool = True,
) -> Decoded:
    """Read as `loads` does; return also where the sections are.

    Args:
        data, limits, mmap, strict, name: as for `loads`.
        checks_content: whether the checksums of sections are checked: not if the file has not
            changed since that was done.
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
    return decode(BufferStream(view, mmap), name, limits, strict, checks_content)


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
    return read(source, limits=limits, mmap=mmap, strict=strict).executable


def read(
    source: Source,
    *,
    limits: Limits | None = None,
    mmap: bool = False,
    strict: bool = True,
) -> Decoded:
    """Read as `load` does; return also where the sections are."""
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            return _read_file(file, os.fsdecode(source), limits, mmap, strict)
    if hasattr(source, "read") and not isinstance(source, _mmap.mmap):
        return _read_file(source, name_of(source), limits, mmap, strict)
    try:
        memoryview(source)
    except TypeError:
        got = type(source).__name__
        raise TypeError(f"load: expected a path, a file or a buffer, got {got}") from None
    return read_buffer(source, limits=limits, mmap=mmap, strict=strict)


def _read_file(
    file: Any, name: str, limits: Limits | None, mmap: bool, strict: bool
) -> Decoded:
    limits = Limits() if limits is None else limits
    size = size_on_disk(file)
    if size is None:
        if mmap:
            raise ValueError(f"{name}: mmap=True: expected a file on disk")
        data = read_all(file, name, limits)
        return read_buffer(data, limits=limits, strict=strict, name=name)
    position = file.tell()
    if mmap:
        if position >= size:  # an empty file cannot be mapped
            return read_buffer(b"", limits=limits, strict=strict, name=name)
        mapping = memoryview(_mmap.mmap(file.fileno(), 0, access=_mmap.ACCESS_READ))
        part = mapping[position:]
        return read_buffer(part, limits=limits, mmap=True, strict=strict, name=name)
    limits.check("file_bytes", max(0, size - position), name)
    stream = FileStream(file, size)
    decoded = decode(stream, name, limits, strict)
    file.seek(stream.position)  # undo the stream's reading ahead
    return decoded


# Writing


def dumps(
    ex: VMExecutable, *, debug: bool = True, prim_funcs: bool = True, aligned: bool = False
) -> bytes:
    """Return the stream of an executable.  Equal executables with equal debug information and equal
    PrimFuncs give equal bytes; tensors in another byte order or layout are written little endian
    and row-major.

    Args:
        debug: whether debug information, if there is any, follows the stream.
        prim_funcs: whether the PrimFuncs of its kernels, if there are any, do.
        aligned: as for `save`.

    Raises:
        FormatError: something has no binary form; the message names it.
    """
    return b"".join(_encode(ex, debug, prim_funcs, aligned=aligned).views())


def digest(ex: VMExecutable) -> bytes:
    """Return the SHA-256 of the stream of an executable without debug information, 32 bytes: equal
    for equal executables with equal PrimFuncs, in all processes.

    Raises:
        FormatError: as `dumps`.
    """
    import hashlib  # here, since it is slow to import and running a program does not need it

    found = hashlib.sha256()
    for view in _encode(ex, False, True).views():
        found.update(view)
    return found.digest()


def save(
    ex: VMExecutable,
    target: str | os.PathLike[str] | IO[bytes],
    *,
    debug: bool = True,
    prim_funcs: bool = True,
    kernels: Mapping[str, bytes] | None = None,
    aligned: bool = False,
) -> None:
    """Write the stream of an executable.

    A file at a path is replaced atomically: the bytes are written to a new file in the same folder
    and flushed to the disk; then it takes the name and permissions of the old one.  A symbolic link
    is followed.

    Args:
        target: path, or file opened for writing bytes.
        debug: whether debug information, if there is any, follows the stream.
        prim_funcs: whether the PrimFuncs of its kernels, if there are any, do.
        kernels: the content of a kernel section, by name.
        aligned: whether tensors are in a section of their own, aligned, for a file that is
            memory-mapped; TVM does not read them.

    Raises:
        FormatError: something has no binary form; nothing has been written.
        OSError: the file cannot be written; an old file at the path is unchanged.
        TypeError: `target` is neither a path nor a file.
    """
    encoded = _encode(ex, debug, prim_funcs, kernels, aligned)
    if isinstance(target, (str, os.PathLike)):
        with replacing(target) as file:
            write_all(file, _runs(encoded))
    elif not hasattr(target, "write"):
        raise TypeError(f"save: expected a path or a file to write, got {type(target).__name__}")
    else:
        write_all(target, _runs(encoded))


def _runs(encoded: Writer) -> Iterator[memoryview]:
    """Yield the pieces joined into few buffers; large ones are not copied."""
    run: list[bytes | memoryview] = []
    size = 0
    for view in encoded.views():
        if run and size + len(view) > _RUN:
            yield memoryview(b"".join(run))
            run, size = [], 0
        if len(view) > _RUN:
            yield memoryview(view)
        else:
            run.append(view)
            size += len(view)
    yield memoryview(b"".join(run))
