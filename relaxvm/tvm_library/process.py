"""The code of a library in this process."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from _ctypes import dlopen, dlsym
from typing import Any, Final

from .._host import HostContext, LoadedLibrary, host_function, write_word
from .._native import host_address
from ..errors import LinkError
from ..executable import StoredKernels
from . import packed
from .copy import write_copy
from .elf import ElfFile
from .image import LIBRARY_CTX
from .vectors import alignment_of

__all__ = ["Code"]


class Code:
    """The code of a library, loaded from a private copy, with what it needs from its host.

    Args:
        stored: the library, as `LibraryImage.parts` gives it.

    Attributes:
        kernels: name -> address.
        alignment: bytes to which the kernels' tensors have to be aligned.
        given: objects that the code may refer to.
        keepalive: what has to live as long as the code is used; it is unloaded after that.

    Raises:
        LinkError: the library cannot be loaded here; the message says why.
        FormatError: it is not well-formed.
    """

    __slots__ = ("alignment", "given", "keepalive", "kernels")

    def __init__(self, stored: StoredKernels) -> None:
        library, elf, symbols = _load(stored)
        context = HostContext(packed.find, stored.source, packed.PACKED)
        self.given: list[Any] = [context]
        # A tuple: the cycle collector does not empty it, and its last item goes first.
        self.keepalive = self.given, library
        base = _base_of(library.handle, elf)
        _fill(base, elf, context)
        _attach(base, elf)
        self.kernels = {
            name: base + elf.symbols[symbol].address for name, symbol in symbols.items()
        }
        self.alignment = alignment_of(elf.machine, elf.code)
        if _stays(elf):
            _STAYING.append(self.keepalive)


_STAYING: Final[list[object]] = []
"""What is never unloaded."""

_SYSTEM: Final = re.compile(r"(ld-linux.*|lib(c|dl|gcc_s|m|mvec|pthread|rt|stdc\+\+))\.so")
_THREADS: Final = re.compile("pthread_(key_)?create|(thrd|tss)_create|_ZNSt6thread")


def _stays(elf: ElfFile) -> bool:
    """Whether code may be at work when no kernel is: that of threads which the library starts, or
    another library that it brings along, such as OpenMP's."""
    return any(map(_THREADS.match, elf.symbols)) or not all(map(_SYSTEM.match, elf.needed))


# Loading: what is loaded stays loaded when its file is gone


def _load(stored: StoredKernels) -> tuple[LoadedLibrary, ElfFile, dict[str, str]]:
    """A private copy: what is loaded, its file and its kernels."""
    if hasattr(os, "memfd_create"):  # which old C libraries lack
        with contextlib.suppress(OSError):  # and some systems do not allow
            return _load_from_memory(stored)
    return _load_from_folder(stored)


_serial: Final = itertools.count()


def _load_from_memory(stored: StoredKernels) -> tuple[LoadedLibrary, ElfFile, dict[str, str]]:
    with os.fdopen(os.memfd_create("relaxvm"), "w+b") as file:
        elf, kernels = write_copy(stored, file)
        # Two libraries of one path would be the same to dlopen: the path spells a number, too.
        number = f"{next(_serial):b}".replace("0", "/").replace("1", "/.")
        return _open(f"/proc/self/fd{number}/{file.fileno()}"), elf, kernels


def _load_from_folder(stored: StoredKernels) -> tuple[LoadedLibrary, ElfFile, dict[str, str]]:
    import tempfile  # here, for few need it

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
    """What to do where a library cannot be loaded from a folder, empty if it is not to blame."""
    if not os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return ""
    return (
        f"; code cannot be loaded from {os.path.dirname(folder)}, which is mounted with noexec: "
        f"set TMPDIR to a directory that permits it"
    )


# What the library needs

_PLACED: Final = (1, 2)
"""Kinds of symbols whose address the loader but moves: STT_OBJECT and STT_FUNC."""


def _base_of(handle: int, elf: ElfFile) -> int:
    """Where a library is loaded to."""
    some = next(
        symbol
        for symbol in elf.symbols.values()
        if symbol.defined and symbol.address and symbol.info & 0xF in _PLACED
    )
    return dlsym(handle, some.name) - some.address


def _fill(base: int, elf: ElfFile, context: HostContext) -> None:
    """Give a library the functions of its host."""
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
    """Tell kernels of ``relaxvm/kernel.h`` in the library who their host is."""
    attach = elf.symbols.get("relaxvm_attach")
    if attach is not None and attach.defined:
        from ctypes import CFUNCTYPE, c_void_p  # here, for few need it

        CFUNCTYPE(None, c_void_p)(base + attach.address)(host_address())
