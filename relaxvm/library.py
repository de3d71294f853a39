"""Kernels of an executable in a file: what `VMExecutable.export_library` stores of them.

The file is the binary form, or a shared library that has it inside (`relaxvm.shared_library`).  The
kernel section of the binary form has parts by name:

=====================  ===========================================================================
``kernels``            JSON: the PrimFuncs as text of C and Python, `relaxvm.tir.build.LibraryState`
``functions``          JSON: the functions of the compiled mode, `relaxvm.generated.GeneratedCode`
``native/PLATFORM/I``  the shared library that the I-th text of C was compiled to
``tvm_library...``     in place of these, the one shared library that all texts were compiled to, as
                       `relaxvm.tvm_library` reads it from a file
=====================  ===========================================================================

Reading a file keeps the parts as they are.  `load_kernels` makes callables of them, which is to run
what the file brings along: for files that are trusted.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from .errors import FormatError, LinkError, RelaxVMWarning
from .executable import StoredKernels, VMExecutable
from .formats import binary
from .formats._files import replacing
from .generated import CompiledFunctions, GeneratedCode
from .shared_library import SUFFIXES, check_for_tvm, is_shared_library, write_library
from .source import DebugInfo
from .tir.build import KernelLibrary, LibraryState
from .tvm_library.image import PART, is_of_tvm
from .values import describe, readable

__all__ = ["export_library", "load_kernels", "parts_of", "platform_name"]

_KERNELS: Final = "kernels"
_FUNCTIONS: Final = "functions"


def platform_name() -> str:
    """What machine code is for: ``linux-x86_64-64``."""
    bits = sys.maxsize.bit_length() + 1
    return f"{sys.platform}-{platform.machine() or 'unknown'}-{bits}"


def export_library(
    executable: VMExecutable,
    path: str | os.PathLike[str],
    *,
    debug: bool = True,
    native: bool = True,
    for_tvm: bool | Iterable[str] = False,
) -> None:
    """See `VMExecutable.export_library`."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"export_library: expected a path, got {describe(path)}")
    kernels = _as_stored(executable.kernels)
    of_tvm = kernels if isinstance(kernels, StoredKernels) and is_of_tvm(kernels) else None
    is_linked = native and is_shared_library(path) and of_tvm is None
    parts = parts_of(kernels, native=native and not is_linked)
    if for_tvm is not False:
        if of_tvm is not None:
            raise ValueError(f"export_library: for_tvm: the kernels are machine code that TVM has "
                             f"compiled, which is not linked anew; it has {of_tvm.source}")
        _check_for_tvm(executable, parts, for_tvm, path, is_linked)
    if not is_linked:
        binary.save(executable, path, debug=debug, kernels=parts)
        return
    state = _library_state(parts)
    with replacing(path) as file:
        write_library(
            lambda to: binary.save(executable, to, debug=debug, kernels=parts), state, file
        )


def _as_stored(kernels: Mapping[str, Callable[..., Any]]) -> Mapping[str, Callable[..., Any]]:
    """What the code of a library was loaded from; other kernels as they are."""
    stored: Mapping[str, Callable[..., Any]] = getattr(kernels, "stored", kernels)
    return stored


def _check_for_tvm(
    executable: VMExecutable,
    parts: Mapping[str, bytes],
    for_tvm: bool | Iterable[str],
    path: str | os.PathLike[str],
    is_linked: bool,
) -> None:
    if not is_linked:
        where = " or ".join(SUFFIXES) or ".so, on other systems than this one"
        raise ValueError(
            f"export_library: for_tvm: TVM loads shared libraries, which native=True writes to "
            f"paths that end in {where}; got {os.fsdecode(path)}"
        )
    if isinstance(for_tvm, str):
        raise TypeError("export_library: for_tvm: expected True or names of functions, got a str")
    registered = () if isinstance(for_tvm, bool) else set(for_tvm)
    check_for_tvm(executable, _library_state(parts), registered)


def _library_state(parts: Mapping[str, bytes]) -> LibraryState | None:
    """What the library of PrimFuncs is made from, if there is one."""
    if _KERNELS not in parts:
        return None
    state: LibraryState = _Checked(parts, "export_library", _KERNELS).library_state()
    return state


# Storing


def parts_of(kernels: Mapping[str, Callable[..., Any]], *, native: bool = True) -> dict[str, bytes]:
    """Kernels as parts of a file.

    Args:
        kernels: of an executable.
        native: whether the machine code of this platform is a part.

    Raises:
        TypeError: there is a kernel that is not made of text.
    """
    kernels = _as_stored(kernels)
    if isinstance(kernels, StoredKernels):
        return {
            name: part
            for name, part in kernels.parts.items()
            if native or is_of_tvm(kernels) or not name.startswith(("native/", PART))
        }
    parts: dict[str, bytes] = {}
    if isinstance(kernels, CompiledFunctions):
        parts[_FUNCTIONS] = _json(_state_of(kernels.code))
        kernels = kernels.kernels
    if isinstance(kernels, KernelLibrary):
        parts[_KERNELS] = _json(kernels.state())
        # Code that is for this very machine stays here.
        if native and "native" not in os.environ.get("RELAXVM_CFLAGS", ""):
            parts |= kernels.image if isinstance(kernels, _Linked) else _binaries(kernels)
    elif kernels:
        names = ", ".join(sorted(map(repr, kernels))[:3])
        raise TypeError(
            f"export_library: {names}: expected kernels that relaxvm has compiled, got "
            f"{type(kernels).__name__}; leave them out, and give them to the VirtualMachine"
        )
    return parts


class _Linked(KernelLibrary):
    """Kernels whose machine code is in one shared library: in these parts of a file."""

    image: Mapping[str, bytes] = {}


def _binaries(kernels: KernelLibrary) -> dict[str, bytes]:
    return {
        f"native/{platform_name()}/{i}": code if isinstance(code, bytes) else code.read_bytes()
        for i, code in enumerate(kernels.binaries)
    }


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _state_of(code: GeneratedCode) -> dict[str, Any]:
    debug = code.debug
    return {
        "version": 1,
        "text": code.text,
        "functions": code.functions,
        "packed": code.packed,
        "tensors": code.tensors,
        "debug": None if debug is None else {
            "runs": debug.runs.tolist(),
            "spans": debug.spans.tolist(),
            "files": debug.files,
            "variables": debug.variables,
            "line_numbers": debug.line_numbers.tolist(),
            "line_texts": debug.line_texts,
        },
    }  # fmt: skip


# Loading


def load_kernels(stored: StoredKernels) -> Mapping[str, Callable[..., Any]]:
    """Make the kernels of a file callable.  This runs code of the file.

    Machine code is loaded if it is for this platform; else the text of C is compiled, or where
    there is no compiler the text of Python is run.

    Raises:
        FormatError: a part is not what it should be.
        CompilerError: the compiler fails.
    """
    kernels: Mapping[str, Callable[..., Any]] = {}
    if is_of_tvm(stored):
        from .tvm_library.loaded import LibraryKernels

        return LibraryKernels(stored)
    if _KERNELS in stored.parts:
        state = _Checked(stored.parts, stored.source, _KERNELS).library_state()
        kernels = _native(stored, state) or KernelLibrary(state)
    if _FUNCTIONS in stored.parts:
        code = _Checked(stored.parts, stored.source, _FUNCTIONS).generated_code()
        return CompiledFunctions(code, kernels)
    return kernels


def _native(stored: StoredKernels, state: LibraryState) -> KernelLibrary | None:
    """The library with the machine code of the file, None if that cannot be loaded here."""
    if not state["sources"]:
        return None
    with tempfile.TemporaryDirectory(prefix="relaxvm-", ignore_cleanup_errors=True) as folder:
        try:
            paths = _machine_code(stored, len(state["sources"]), Path(folder))
            # What is loaded stays loaded when its file is gone.
            if not paths:
                return None
            library = (_Linked if PART in stored.parts else KernelLibrary)(state, paths)
        except LinkError as error:
            warnings.warn(
                f"{stored.source}: its machine code cannot be loaded here, so it is made anew: "
                f"{error}", RelaxVMWarning, stacklevel=5,
            )  # fmt: skip
            return None
        if isinstance(library, _Linked):
            library.image = {n: part for n, part in stored.parts.items() if n.startswith(PART)}
        else:
            library.binaries = [path.read_bytes() for path in paths]
    return library


def _are_tensors(value: Any) -> bool:
    return type(value) is bool or (type(value) is list and all(map(_are_tensors, value)))


def _machine_code(stored: StoredKernels, count: int, folder: Path) -> list[Path]:
    """Shared libraries for `count` texts of C, written to a folder; none if the file has none for
    this platform."""
    if PART in stored.parts:
        from .tvm_library.copy import write_copy

        with open(folder / "library.so", "w+b") as file:
            write_copy(stored, file)
        return [folder / "library.so"] * count
    paths = []
    for i in range(count):
        code = stored.parts.get(f"native/{platform_name()}/{i}")
        if code is None:
            return []
        paths.append(folder / f"{i}.so")
        paths[i].write_bytes(code)
    return paths


class _Checked:
    """A part in JSON, looked at field by field."""

    def __init__(self, parts: Mapping[str, bytes], source: str, part: str) -> None:
        self._subject = f"{source}: bad kernel section (part {part!r})"
        try:
            self._value: Any = json.loads(parts[part])
        except (ValueError, RecursionError) as error:
            self._fail(f"not JSON: {error}")
        self._demand(type(self._value) is dict, "an object", self._value)
        self._demand(self._value.get("version") == 1, "version 1", self._value.get("version"))

    def _fail(self, what: str) -> NoReturn:
        raise FormatError(f"{self._subject}: {what}")

    def _demand(self, is_so: bool, expected: str, got: Any) -> None:
        if not is_so:
            self._fail(f"expected {expected}, got {describe(got)}")

    def library_state(self) -> Any:
        sources, functions = self._value.get("sources"), self._value.get("functions")
        self._demand(type(functions) is dict, "functions", functions)
        for name, function in functions.items():
            self._demand(
                type(function) is dict
                and type(function.get("symbol")) is str
                and type(function.get("python")) is str
                and type(function.get("writes")) is list
                and all(type(i) is int for i in function["writes"]),
                "symbol, writes and python of a function", name,
            )  # fmt: skip
        self._demand(type(sources) is list, "sources", sources)
        for source in sources:
            self._demand(
                type(source) is dict
                and type(source.get("text")) is str
                and type(source.get("names")) is list
                and all(type(name) is str and name in functions for name in source["names"]),
                "text and names of a source", source,
            )  # fmt: skip
        return self._value

    def generated_code(self) -> GeneratedCode:
        text = self._value.get("text")
        self._demand(type(text) is str, "text", text)
        functions, packed = (self._names(key) for key in ("functions", "packed"))
        tensors = self._value.get("tensors", {})
        are_so = type(tensors) is dict and _are_tensors([*tensors.values()])
        self._demand(are_so, "tensors of functions", tensors)
        code = GeneratedCode(text, functions, packed, self._debug(), tensors)
        try:
            compiled = code.code
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self._fail(f"its text is not Python: {error}")
        missing = set(functions.values()) - set(compiled.co_names)
        if missing:
            self._fail(f"its text lacks {', '.join(map(readable, sorted(missing)))}")
        return code

    def _names(self, key: str) -> dict[str, str]:
        names = self._value.get(key)
        self._demand(
            type(names) is dict
            and all(type(name) is str and name.isidentifier() for name in names.values()),
            f"names of {key}", names,
        )  # fmt: skip
        return dict(names)

    def _debug(self) -> DebugInfo | None:
        columns = self._value.get("debug")
        if columns is None:
            return None
        try:
            return DebugInfo(**columns)
        except (TypeError, ValueError, OverflowError) as error:
            self._fail(f"debug information: {error}")
