"""The code of a library, loaded into this process."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from _ctypes import dlopen, dlsym
from typing import Any, Final

from ....core._host import HostContext, LoadedLibrary, host_function, write_word
from ....core._native import host_address
from ....errors import LinkError
from ....executable import StoredKernels
from . import compiled, packed
from .copy import write_copy
from .elf import ElfFile
from .image import LIBRARY_CTX, VM_TIR
from .vectors import alignment_of

__all__ = ["Code"]


class Code:
    """The code of a library, loaded from a private copy and connected to its host.

    Args:
        stored: the library, as returned by `LibraryImage.parts`.

    Attributes:
        kernels: name -> address.
        alignment: the alignment in bytes that the kernels require of tensors.
        given: objects that the code may refer to.
        keepalive: a reference to keep while the code is used; the code is unloaded afterwards.

    Raises:
        LinkError: the library cannot be loaded here; the message says why.
        FormatError: the library is not well-formed.
    """

    __slots__ = ("alignment", "given", "keepalive", "kernels")

    def __init__(self, stored: StoredKernels) -> None:
        library, elf, symbols = _load(stored)
        is_compiled = any(name.startswith(VM_TIR) for name in symbols)
        find = compiled.find if is_compiled else packed.find
        context = HostContext(find, stored.source, packed.PACKED)
        self.given: list[Any] = [context]
        # A tuple, since the cycle collector does not clear it; its last item is released first.
        self.keepalive = self.given, library
        base = _base_of(library.handle, elf)
        _fill(base, elf, context)
        _attach(base, elf)
        self.kernels = {
            name: base + elf.symbols[symbol].address for name, symbol in symbols.items()
        }
        self.alignment = alignment_of(elf.machine, elf.code)
        if _is_permanent(elf):
            _STAYING.append(self.keepalive)


_STAYING: Final[list[object]] = []
"""Libraries that are never unloaded."""

_SYSTEM: Final = re.compile(r"(ld-linux.*|lib(c|dl|gcc_s|m|mvec|pthread|rt|stdc\+\+))\.so")
_THREADS: Final = re.compile("pthread_(key_)?create|(thrd|tss)_create|_ZNSt6thread")


def _is_permanent(elf: ElfFile) -> bool:
    """Return whether code may run while no kernel does: in threads that the library, or another
    library that it loads such as OpenMP's, has started."""
    return any(map(_THREADS.match, elf.symbols)) or not all(map(_SYSTEM.match, elf.needed))


# Loading: a library stays loaded after its file is removed


def _load(stored: StoredKernels) -> tuple[LoadedLibrary, ElfFile, dict[str, str]]:
    """Load a private copy; return the loaded library, its file and its kernels."""
    if hasattr(os, "memfd_create"):  # old C libraries do not have it
        with contextlib.suppress(OSError):  # and some systems do not allow it
            return _load_from_memory(stored)
    return _load_from_folder(stored)


_serial: Final = itertools.count()


def _load_from_memory(stored: StoredKernels) -> tuple[LoadedLibrary, ElfFile, dict[str, str]]:
    with os.fdopen(os.memfd_create("relaxvm"), "w+b") as file:
        elf, kernels = write_copy(stored, file)
        # dlopen identifies libraries by their path, so the path encodes a serial number.
        number = f"{next(_serial):b}".replace("0", "/").replace("1", "/.")
        return _open(f"/proc/self/fd{number}/{file.fileno()}"), elf, kernels


def _load_from_folder(stored: StoredKernels) -> tuple[LoadedLibrary, ElfFile, dict[str, str]]:
    import tempfile  # here, since it is rarely needed

    try:
        with tempfile.TemporaryDirectory(
            prefix="relaxvm-", ignore_cleanup_errors=True
        ) as folder:
            path = os.path.join(folder, "library.so")
            with open(path, "w+b") as file:
                elf, kernels = write_copy(stored, file)
            try:
                return _open(path), elf, kernels
            except OSError as error:
                reason = str(error).replace(path, stored.source)
                raise LinkError(f"cannot load {stored.source}: {reason}{_hint(folder)}") from None
    except OSError as error:
        raise LinkError(
            f"cannot load {stored.source}: it is loaded from a copy, which cannot be written: "
            f"{error}; set TMPDIR to a directory that can be written"
        ) from None


def _open(path: str) -> LoadedLibrary:
    return LoadedLibrary(dlopen(path, os.RTLD_NOW | os.RTLD_LOCAL))


def _hint(folder: str) -> str:
    """Return what to do if a library cannot be loaded because of its folder; empty otherwise."""
    if not os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return ""
    return (
        f"; code cannot be loaded from {os.path.dirname(folder)}, which is mounted with noexec: "
        f"set TMPDIR to a directory that permits it"
    )


# What the library needs

_PLACED: Final = (1, 2)
"""Kinds of symbols whose address is only relocated by the loader: STT_OBJECT and STT_FUNC."""


def _base_of(handle: int, elf: ElfFile) -> int:
    """Return the address where a library is loaded."""
    some = next(
        symbol
        for symbol in elf.symbols.values()
        if symbol.defined and symbol.address and symbol.info & 0xF in _PLACED
    )
    return dlsym(handle, some.name) - some.address


def _fill(base: int, elf: ElfFile, context: HostContext) -> None:
    """Set the variables of a library to the functions of its host."""
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


def _attach(base: int, elf: ElfFile) -> None:
    """Set the host of kernels in the library that use ``relaxvm/kernel.h``."""
    attach = elf.symbols.get("relaxvm_attach")
    if attach is not None and attach.defined:
        from ctypes import CFUNCTYPE, c_void_p  # here, since it is rarely needed

        CFUNCTYPE(None, c_void_p)(base + attach.address)(host_address())
