"""A library of TVM in this process: its kernels, and what they need from their host.

The library is loaded from a private copy, so that TVM may have the same file loaded: each copy has
its own variables for a loader to fill.  The copy lacks the tree of modules, which code does not
look at: a hole in the file takes its place.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from numpy.typing import NDArray

from .._host import HostContext, TensorSequence, host_function, write_word
from .._native import NativeFunction
from ..errors import FormatError, LinkError
from ..executable import StoredKernels
from ..formats.const_loader import load_constants
from ..limits import Limits
from . import packed
from .elf import ElfFile, Symbol
from .image import CONSTANTS, LIBRARY_CTX, PART, LibraryImage, problems
from .vectors import alignment_of

__all__ = ["LibraryKernels", "write_copy"]

_INITIALIZER: Final = "__init_"
"""What comes before a function's name in that of the one that takes its constants."""

_WEAK: Final = 2 << 4
"""Binding of a symbol that a library does without."""


class LibraryKernels(Mapping[str, Callable[..., Any]]):
    """The kernels of a library of TVM, loaded: name -> `NativeFunction`.

    Args:
        stored: the library, as `LibraryImage.parts` gives it.

    Raises:
        LinkError: the library cannot run here; the message has all reasons.
        FormatError: it is not well-formed.
    """

    def __init__(self, stored: StoredKernels) -> None:
        if sys.platform != "linux":
            raise LinkError(
                f"{stored.source}: libraries of TVM are loaded on Linux, this is {sys.platform}"
            )
        self.stored = stored
        with tempfile.TemporaryDirectory(prefix="relaxvm-", ignore_cleanup_errors=True) as folder:
            path = os.path.join(folder, "library.so")
            elf, kernels = write_copy(stored, path)
            try:
                # What is loaded stays loaded when its file is gone.
                self._library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
            except OSError as error:
                reason = str(error).replace(path, stored.source)
                raise LinkError(f"cannot load {stored.source}: {reason}{_hint(folder)}") from None
        self._context = HostContext(packed.find, stored.source, packed.PACKED)
        base = _fill(self._library, elf, self._context)
        alignment = alignment_of(elf.machine, elf.code)
        self._kernels = {
            name: NativeFunction(
                base + elf.symbols[symbol].address, name, self, writes=None, alignment=alignment
            )
            for name, symbol in kernels.items()
        }
        self._initialize()

    def _initialize(self) -> None:
        """Hand the constants of const_loader modules to the functions that are there for it."""
        constants: dict[str, list[NDArray[Any]]] = {}
        for part, content in self.stored.parts.items():
            if part.startswith(CONSTANTS + "/"):
                found = load_constants(content, Limits(), self.stored.source)
                for function, tensors in found.items():
                    # A loader around another one knows its functions, not their constants.
                    if function not in constants or tensors:
                        constants[function] = tensors
        for function, tensors in constants.items():
            initialize = self._kernels.pop(_INITIALIZER + function, None)
            if initialize is not None:
                # The library may keep them, and nothing says until when.
                sequence = TensorSequence(tensors, initialize.address)
                sequence.keep_forever()
                call = NativeFunction(
                    sequence.function, initialize.name, sequence, self_address=sequence.address,
                    writes=(),
                )  # fmt: skip
                if call() not in (0, None):
                    raise LinkError(f"{self.stored.source}: {function} does not take its constants")

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def __reduce__(self) -> tuple[Any, ...]:
        return LibraryKernels, (self.stored,)

    def __repr__(self) -> str:
        return f"<LibraryKernels of {self.stored.source}: {len(self)} functions>"


def write_copy(
    stored: StoredKernels, path: str | os.PathLike[str]
) -> tuple[ElfFile, dict[str, str]]:
    """Write the copy that is loaded: what it asks TVM's libraries for is optional there.

    Raises:
        LinkError: it cannot be run here; the message has all reasons.
        FormatError: it is not well-formed.
    """
    source = stored.source
    try:
        about = json.loads(stored.parts[PART])
        size, compiled, kinds = int(about["size"]), list(about["compiled"]), list(about["modules"])
        extents = [
            (int(name.removeprefix(PART + "/")), part)
            for name, part in stored.parts.items()
            if name.startswith(PART + "/")
        ]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise FormatError(f"{source}: bad kernel section (part {PART!r})") from None
    if any(not 0 <= start <= size - len(part) for start, part in extents):
        raise FormatError(f"{source}: bad kernel section: parts of {PART!r} beyond its size")
    with open(path, "w+b") as file:
        file.truncate(size)
        for start, part in extents:
            os.pwrite(file.fileno(), part, start)
        view = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        image = LibraryImage(view, source, tree=False)
        reasons = problems(image, compiled, kinds)
        if reasons:
            raise LinkError(f"{source}: cannot be run here: {'; '.join(reasons)}")
        for name in image.host_symbols:
            symbol = image.elf.symbols[name]
            os.pwrite(file.fileno(), bytes([_WEAK | symbol.info & 0xF]), symbol.entry + 4)
    return image.elf, image.kernels


def _hint(folder: str) -> str:
    """What to do where a library cannot be loaded from a folder, empty if it is not to blame."""
    if not os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return ""
    return (
        f"; code cannot be loaded from {os.path.dirname(folder)}, which is mounted with noexec: "
        f"set TMPDIR to a directory that permits it"
    )


def _fill(library: ctypes.CDLL, elf: ElfFile, context: HostContext) -> int:
    """Give the library the functions of its host; where it is loaded to."""
    some = next(symbol for symbol in elf.symbols.values() if symbol.defined and symbol.address)
    base = _address(library, some) - some.address
    for name, symbol in elf.symbols.items():
        if symbol.defined:
            function = host_function(name[2:]) if name.startswith("__TVM") else None
            if function is not None:
                write_word(base + symbol.address, function, elf.is_read_only(symbol.address))
        elif (function := host_function(name)) is not None:
            for place in elf.places_of(name):
                write_word(base + place, function, elf.is_read_only(place))
    if LIBRARY_CTX in elf.symbols:
        address = elf.symbols[LIBRARY_CTX].address
        write_word(base + address, context.address, elf.is_read_only(address))
    return base


def _address(library: ctypes.CDLL, symbol: Symbol) -> int:
    address = ctypes.cast(library[symbol.name], ctypes.c_void_p).value
    assert address is not None
    return address
