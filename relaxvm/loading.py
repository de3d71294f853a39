"""From a file, bytes or text to an executable that has been verified.

`relaxvm.formats` reads; here what was read is also checked against all rules of `relaxvm.verify`,
so that what comes out may be given to a `VirtualMachine`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .executable import StoredKernels, VMExecutable
from .ffi import ALIGNMENT
from .formats import binary
from .limits import Limits

__all__ = ["load", "load_library", "loads", "parse_text", "read"]


def load(
    source: binary.Source,
    *,
    limits: Limits | None = None,
    mmap: bool = False,
    strict: bool = True,
    native: bool = False,
) -> VMExecutable:
    """Read an executable from a file or from memory, and verify it.

    A file is of the binary form, or a shared library that holds it: what TVM's ``export_library``
    writes, and relaxvm's.  No code of it runs, and no other file is opened, unless `native` is
    true.

    Args:
        source: path, file opened for reading bytes (read from its position to its end), or anything
            with the buffer protocol.
        limits: bounds on what it may hold; None: those of ``Limits()``.
        mmap: map the file instead of reading it: tensors are read-only views of the mapping, loaded
            page by page when they are used.  They need not be aligned to their item size, which
            numpy handles (slower); with `native` those that are not aligned are copied.  While the
            executable lives, the file must not be changed in place; replacing it, as
            ``VMExecutable.save`` does, is fine (Windows does not let you).
        strict: whether bytes after the end are an error or a `RelaxVMWarning`.
        native: whether to load the kernels that ``VMExecutable.export_library`` has put into the
            file, which is to run their code with all rights of the process: for files you trust.
            Without it the program is read alone, and a VM of it says which kernels are missing.

    Raises:
        OSError: the file cannot be read.
        FormatError: not a well-formed stream.
        LimitError: more than `limits` allow.
        VerifyError: well-formed, but not fit to run; has the report with all problems.
        MissingExtraError: it holds a data type of ml_dtypes, which is not installed.
        TypeError: `source` is none of these.
        ValueError: `mmap` with something that cannot be mapped.
        LinkError: a library of TVM cannot be run here; the message has all reasons.
        CompilerError: its kernels have to be compiled, and the compiler fails.
    """
    ex = read(source, limits=limits, mmap=mmap, strict=strict)
    if native and isinstance(ex.kernels, StoredKernels):
        return _with_kernels(_verified(_aligned(ex), limits))
    return _verified(ex, limits)


def read(
    source: binary.Source,
    *,
    limits: Limits | None = None,
    mmap: bool = False,
    strict: bool = True,
) -> VMExecutable:
    """What is in a file, not verified: the binary form, by itself or in a shared library.

    Takes and raises what `load` does, but for VerifyError.
    """
    from .tvm_library.image import library_in  # here, so that `import relaxvm` does without

    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            return read(file, limits=limits, mmap=mmap, strict=strict)
    library = library_in(source, limits or Limits(), mmap=mmap)
    if library is not None:
        return library.executable(limits=limits, mmap=mmap, strict=strict)
    return binary.load(source, limits=limits, mmap=mmap, strict=strict)


def load_library(
    source: binary.Source,
    *,
    limits: Limits | None = None,
    mmap: bool = False,
    strict: bool = True,
) -> VMExecutable:
    """`load` with ``native=True``: the program and the kernels of its file, whose code runs with
    all rights of the process."""
    return load(source, limits=limits, mmap=mmap, strict=strict, native=True)


def _aligned(ex: VMExecutable) -> VMExecutable:
    """The program with constants that kernels take as they are, rather than copy in each call."""
    from ._native import copy_aligned, is_contiguous

    def is_ready(constant: Any) -> bool:
        return not isinstance(constant, np.ndarray) or is_contiguous(constant, ALIGNMENT)

    if all(map(is_ready, ex.constants)):
        return ex
    constants = [c if is_ready(c) else copy_aligned(c, ALIGNMENT) for c in ex.constants]
    return VMExecutable(
        ex.functions, constants, ex.instr_offset, ex.instr_data, ex.memory_scopes, ex.debug,
        ex.kernels,
    )  # fmt: skip


def _with_kernels(ex: VMExecutable) -> VMExecutable:
    assert isinstance(ex.kernels, StoredKernels)
    from .tvm_library.image import is_of_tvm
    from .verified import passes_as

    kernels: Mapping[str, Callable[..., Any]]
    if is_of_tvm(ex.kernels):  # does without the compiler
        from .tvm_library.loaded import LibraryKernels

        kernels = LibraryKernels(ex.kernels)
    else:
        from .library import load_kernels

        kernels = load_kernels(ex.kernels)
    return passes_as(ex.with_kernels(kernels), ex)


def loads(
    data: Any, *, limits: Limits | None = None, mmap: bool = False, strict: bool = True
) -> VMExecutable:
    """Read an executable from memory, and verify it: the binary form, or a shared library that
    holds it, no code of which runs.

    Args:
        data: bytes, bytearray, memoryview, mmap or anything else with a contiguous buffer.
        limits: bounds on what it may hold; None: those of ``Limits()``.
        mmap: whether tensors are views of `data`, which must be read-only, instead of copies.
        strict: whether bytes after the end are an error or a `RelaxVMWarning`.

    Raises:
        FormatError, LimitError, VerifyError, MissingExtraError, TypeError, ValueError: as `load`.
    """
    from .tvm_library.image import library_in

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
    """Assemble a listing, and verify the result; see `relaxvm.formats.text.parse_text`.

    Args:
        source: what ``as_text(complete=True)`` prints, or a plain listing without constants.
        filename: the subject of error messages.
        limits: bounds on what it may hold; None: those of ``Limits()``.

    Raises:
        ParseError: the text is wrong; the message has file, line, column and the line.
        LimitError: more than `limits` allow.
        VerifyError: well-formed, but not fit to run; has the report with all problems.
        MissingExtraError: a data type of ml_dtypes is named, which is not installed.
        TypeError: `source` is not a str.
    """
    if not isinstance(source, str):
        raise TypeError(f"parse_text: expected a str, got {type(source).__name__}")
    from .formats import text  # here, so that loading a file does not pay for it


    return _verified(text.parse_text(source, filename=filename), limits)


def _verified(ex: VMExecutable, limits: Limits | None) -> VMExecutable:
    from .verified import ensure_verified  # here, so that the formats can be used without it

    ensure_verified(ex, limits=limits)
    return ex
