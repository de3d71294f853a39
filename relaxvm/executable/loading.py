"""Load a verified executable from a file, bytes or text.

`relaxvm.executable.formats` reads; the functions here also check the result against all rules of
`relaxvm.verify`, so that a `VirtualMachine` can run it safely.
"""

from __future__ import annotations

import os
from typing import Any

from ..limits import Limits
from ..parameters import lists_parameters
from .executable import StoredKernels, VMExecutable
from .formats import binary
from .prim_funcs import SavedPrimFuncs

__all__ = ["load", "load_library", "loads", "parse_text", "read"]


@lists_parameters
def load(
    source: binary.Source,
    *,
    limits: Limits | None = None,
    mmap: bool = False,
    strict: bool = True,
    native: bool = False,
) -> VMExecutable:
    """Read an executable from a file or from memory, and verify it.

    A file has the binary form, or is a shared library that contains it, written by the
    ``export_library`` of TVM or relaxvm.  None of its code runs, and no other file is opened,
    unless `native` is true.  PrimFuncs in the file are kept as they are: creating a
    `VirtualMachine` checks and compiles them.

    Args:
        source: path, file opened for reading bytes (read from its position to its end), or anything
            with the buffer protocol.
        limits: bounds on the content; None: those of ``Limits()``.
        mmap: map the file instead of reading it: tensors are read-only views of the mapping, loaded
            page by page when they are used.  They may be unaligned, which numpy supports but
            handles more slowly; if the file has PrimFuncs, or with `native`, the unaligned ones are
            copied.  While the executable exists, the file must not be changed in place; replacing
            it, as ``VMExecutable.save`` does, is fine (except on Windows, which refuses).
        strict: whether bytes after the end are an error or a `RelaxVMWarning`.
        native: whether to load the kernels that ``VMExecutable.export_library`` has stored in the
            file.  Their code runs with all rights of the process: only for files that you trust.
            Without it a VM makes kernels of the PrimFuncs in the file, and reports which kernels
            are missing.

    Raises:
        OSError: the file cannot be read.
        FormatError: the stream is not well-formed.
        LimitError: the content exceeds `limits`.
        VerifyError: the executable is not valid; the error has the report with all problems.
        MissingExtraError: a tensor has a data type of ml_dtypes, and that is not installed.
        TypeError: `source` is none of these.
        ValueError: `mmap` with a source that cannot be mapped.
        LinkError: a library of TVM cannot be run here; the message has all reasons.
        CompilerError: its kernels have to be compiled, and the compiler fails.
    """
    ex = read(source, limits=limits, mmap=mmap, strict=strict)
    return _finished(ex, limits, mmap, native)


def _finished(ex: VMExecutable, limits: Limits | None, mmap: bool, native: bool) -> VMExecutable:
    """Verify what was read, and load the kernels in it."""
    if native and isinstance(ex.kernels, StoredKernels):
        return _with_kernels(ex, limits)
    if mmap and isinstance(ex.kernels, SavedPrimFuncs):
        from ..native.stored import with_aligned_constants

        ex = with_aligned_constants(ex)
    return _verified(ex, limits)


def read(
    source: binary.Source,
    *,
    limits: Limits | None = None,
    mmap: bool = False,
    strict: bool = True,
) -> VMExecutable:
    """Read an executable without verifying it: the binary form, alone or in a shared library.

    Arguments and errors are those of `load`, without VerifyError.
    """
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            return read(file, limits=limits, mmap=mmap, strict=strict)
    if _is_binary_form(source):
        return binary.load(source, limits=limits, mmap=mmap, strict=strict)
    from ..contrib.tvm.library.image import library_in  # here, since few files are libraries

    library = library_in(source, limits or Limits(), mmap=mmap)
    if library is not None:
        return library.executable(limits=limits, mmap=mmap, strict=strict)
    return binary.load(source, limits=limits, mmap=mmap, strict=strict)


def _is_binary_form(source: binary.Source) -> bool:
    """Whether memory begins as the binary form does; a file is not looked at."""
    try:
        head = bytes(memoryview(source)[:8])  # type: ignore[arg-type]
    except (TypeError, ValueError, NotImplementedError):
        return False
    return head == binary.MAGIC.to_bytes(8, "little")


def load_library(
    source: binary.Source,
    *,
    limits: Limits | None = None,
    mmap: bool = False,
    strict: bool = True,
    passed: bool = False,
) -> VMExecutable:
    """Load a program and the kernels in its file: `load` with ``native=True``.  Their code runs
    with all rights of the process.

    Args:
        source, limits, mmap, strict: as for `load`.
        passed: whether this very file was loaded before, by this copy of relaxvm and with default
            limits, so that neither its checksums need to be checked nor its code to be verified
            again: see `relaxvm.verify.verified.passed_before`.
    """
    if passed and _is_binary_form(source):
        from ..verify.verified import passed_before

        decoded = binary.read_buffer(
            source, limits=limits, mmap=mmap, strict=strict, checks_content=False
        )
        ex = decoded.executable
        passed_before(ex)
    else:
        ex = read(source, limits=limits, mmap=mmap, strict=strict)
    return _finished(ex, limits, mmap, native=True)


def _with_kernels(ex: VMExecutable, limits: Limits | None) -> VMExecutable:
    """Return the verified program with the kernels of its file, loaded."""
    from ..native.stored import load_stored, with_aligned_constants
    from ..verify.verified import passes_as

    stored = ex.kernels
    assert isinstance(stored, StoredKernels)
    ex = _verified(with_aligned_constants(ex), limits)
    return passes_as(ex.with_kernels(load_stored(stored)), ex)


@lists_parameters
def loads(
    data: Any, *, limits: Limits | None = None, mmap: bool = False, strict: bool = True
) -> VMExecutable:
    """Read an executable from memory, and verify it: the binary form, or a shared library that
    contains it.  None of its code runs.

    Args:
        data: bytes, bytearray, memoryview, mmap or anything else with a contiguous buffer.
        limits: bounds on the content; None: those of ``Limits()``.
        mmap: whether tensors are views of `data`, which must be read-only, instead of copies.
        strict: whether bytes after the end are an error or a `RelaxVMWarning`.

    Raises:
        FormatError, LimitError, VerifyError, MissingExtraError, TypeError, ValueError: as `load`.
    """
    from ..contrib.tvm.library.image import library_in

    library = library_in(data, limits or Limits())
    ex = (
        binary.loads(data, limits=limits, mmap=mmap, strict=strict)
        if library is None
        else library.executable(limits=limits, mmap=mmap, strict=strict)
    )
    return _verified(ex, limits)


def parse_text(
    source: str, *, filename: str = "<text>", limits: Limits | None = None
) -> VMExecutable:
    """Assemble a listing, and verify the result; see `relaxvm.executable.formats.text.parse_text`.

    Args:
        source: the output of ``as_text(complete=True)``, or a plain listing without constants.
        filename: the subject of error messages.
        limits: bounds on the content; None: those of ``Limits()``.

    Raises:
        ParseError: the text is wrong; the message has file, line, column and the line.
        LimitError: the content exceeds `limits`.
        VerifyError: the executable is not valid; the error has the report with all problems.
        MissingExtraError: the text names a data type of ml_dtypes, and that is not installed.
        TypeError: `source` is not a str.
    """
    if not isinstance(source, str):
        raise TypeError(f"parse_text: expected a str, got {type(source).__name__}")
    from .formats import text  # here, so that loading a binary file does not import it


    return _verified(text.parse_text(source, filename=filename), limits)


def _verified(ex: VMExecutable, limits: Limits | None) -> VMExecutable:
    from ..verify.verified import (
        ensure_verified,  # here, so that the formats can be used without the verifier
    )

    ensure_verified(ex, limits=limits)
    return ex
