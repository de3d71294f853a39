"""Load the kernels stored in a file.  This runs code of the file.

`relaxvm.native.export` describes the parts of a file.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from ..core._native import copy_aligned, is_contiguous
from ..core.ffi import ALIGNMENT
from ..errors import FormatError, LinkError, RelaxVMWarning
from ..executable import LIBRARY_PART, StoredKernels, VMExecutable
from ..messages import describe, warn
from .kernel_library import KernelLibrary, LibraryState

__all__ = [
    "KERNELS", "CheckedPart", "LinkedLibrary", "load_stored", "platform_name",
    "with_aligned_constants",
]  # fmt: skip

KERNELS: Final = "kernels"


def platform_name() -> str:
    """Return the platform of machine code: ``linux-x86_64-64``."""
    bits = sys.maxsize.bit_length() + 1
    return f"{sys.platform}-{platform.machine() or 'unknown'}-{bits}"


def with_aligned_constants(executable: VMExecutable) -> VMExecutable:
    """Return the program with aligned constants, which kernels need not copy in each call."""

    def is_ready(constant: Any) -> bool:
        return not isinstance(constant, np.ndarray) or is_contiguous(constant, ALIGNMENT)

    if all(map(is_ready, executable.constants)):
        return executable
    constants = [c if is_ready(c) else copy_aligned(c, ALIGNMENT) for c in executable.constants]
    return executable.but(constants=constants)


class LinkedLibrary(KernelLibrary):
    """Kernels whose machine code is in one shared library, stored in parts of a file."""

    image: Mapping[str, bytes] = {}


def load_stored(stored: StoredKernels) -> Mapping[str, Callable[..., Any]]:
    """Make the kernels of a file callable.  This runs code of the file.

    Machine code is loaded if it is for this platform; otherwise the C source is compiled, or if
    there is no compiler the Python source is run.

    Raises:
        FormatError: a part is malformed.
        CompilerError: the compiler fails.
    """
    kernels: Mapping[str, Callable[..., Any]] = {}
    if stored.is_of_tvm:
        from ..contrib.tvm.library.loaded import LibraryKernels

        return LibraryKernels(stored)
    if KERNELS in stored.parts:
        state = CheckedPart(stored.parts, stored.source, KERNELS).library_state()
        kernels = _native(stored, state) or KernelLibrary(state, None, stored.prim_funcs)
    return kernels


def _native(stored: StoredKernels, state: LibraryState) -> KernelLibrary | None:
    """Return the library with the machine code of the file, or None if it cannot be loaded here."""
    if not state["sources"]:
        return None
    with tempfile.TemporaryDirectory(prefix="relaxvm-", ignore_cleanup_errors=True) as folder:
        try:
            paths = _machine_code(stored, len(state["sources"]), Path(folder))
            # Loaded libraries stay loaded after their files are removed.
            if not paths:
                return None
            is_linked = LIBRARY_PART in stored.parts
            library = (LinkedLibrary if is_linked else KernelLibrary)(
                state, paths, stored.prim_funcs
            )
        except LinkError as error:
            warn(
                f"{stored.source}: its machine code cannot be loaded here, so it is compiled "
                f"again: {error}",
                RelaxVMWarning,
            )
            return None
        if isinstance(library, LinkedLibrary):
            library.image = {
                name: part for name, part in stored.parts.items() if name.startswith(LIBRARY_PART)
            }
        else:
            library.binaries = [path.read_bytes() for path in paths]
    return library


def _are_tensors(value: Any) -> bool:
    return type(value) is bool or (type(value) is list and all(map(_are_tensors, value)))


def _machine_code(stored: StoredKernels, count: int, folder: Path) -> list[Path]:
    """Write the shared libraries for `count` C sources to a folder; return an empty list if the
    file has none for this platform."""
    if LIBRARY_PART in stored.parts:
        from ..contrib.tvm.library.copy import write_copy

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


class CheckedPart:
    """A part in JSON, whose fields are checked one by one."""

    def __init__(self, parts: Mapping[str, bytes], source: str, part: str) -> None:
        self._subject = f"{source}: bad kernel section (part {part!r})"
        try:
            self._value: Any = json.loads(parts[part])
        except (ValueError, RecursionError) as error:
            self._fail(f"not JSON: {error}")
        self._require(type(self._value) is dict, "an object", self._value)
        self._require(self._value.get("version") == 1, "version 1", self._value.get("version"))

    def _fail(self, what: str) -> NoReturn:
        raise FormatError(f"{self._subject}: {what}")

    def _require(self, is_valid: bool, expected: str, got: Any) -> None:
        if not is_valid:
            self._fail(f"expected {expected}, got {describe(got)}")

    def library_state(self) -> Any:
        sources, functions = self._value.get("sources"), self._value.get("functions")
        self._require(type(functions) is dict, "functions", functions)
        for name, function in functions.items():
            self._require(
                type(function) is dict
                and type(function.get("symbol")) is str
                and type(function.get("python")) is str
                and type(function.get("writes")) is list
                and all(type(i) is int for i in function["writes"]),
                "symbol, writes and python of a function", name,
            )  # fmt: skip
        self._require(type(sources) is list, "sources", sources)
        for source in sources:
            self._require(
                type(source) is dict
                and type(source.get("text")) is str
                and type(source.get("names")) is list
                and all(type(name) is str and name in functions for name in source["names"]),
                "text and names of a source", source,
            )  # fmt: skip
        return self._value
