"""The content of a library exported by TVM, read without running its code.

A library has its kernels as symbols ``__tvm_ffi_NAME`` and, in the bytes of one symbol, a tree of
modules::

    u64 size, then in that many bytes
    u64 n + 1, u64 each             where in the next list the imports of module i start and end
    u64 count, u64 each             imports: indices of modules
    n modules: string kind, then string content (but not for "_lib", the library itself)

The bytecode is the content of the module ``relax.VMExecutable``.
Source: ``ProcessLibraryBin`` of TVM's FFI.
"""

from __future__ import annotations

import json
import mmap as _mmap
import platform
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn

from ....errors import FormatError, LinkError
from ....executable import LIBRARY_PART, StoredKernels, VMExecutable
from ....executable.formats import binary
from ....executable.formats._extents import Extent, FileExtent, MemoryExtent
from ....executable.formats._files import name_of, read_all, size_on_disk
from ....isa import FuncKind
from ....limits import Limits
from ....messages import readable
from ....native.functions import PREFIX
from .elf import MAGIC, ElfFile

__all__ = [
    "CONSTANTS",
    "CONTAINER",
    "LIBRARY_BIN",
    "LIBRARY_CTX",
    "VM_TIR",
    "LibraryImage",
    "Module",
    "compiled_functions",
    "library_in",
    "problems",
]

LIBRARY_BIN: Final = PREFIX + "_library_bin"
LIBRARY_CTX: Final = PREFIX + "_library_ctx"
THE_LIBRARY: Final = "_lib"
CONSTANTS: Final = "const_loader"
EXECUTABLE: Final = "relax.VMExecutable"
MAX_MODULES: Final = 4096
MAX_IMPORTS: Final = 1 << 16
SMALL: Final = 1 << 20
"""The size of each read of a file; large reads let other threads run."""


CONTAINER: Final = "relaxvm_container"
"""Symbol of the data that relaxvm itself stores in a library: see `relaxvm.native.export`."""

VM_TIR: Final = "__vmtir__"
"""Prefix of the name of the machine code of a Relax function."""

_U64: Final = struct.Struct("<Q")

SLOTS: Final = (
    "__TVMBackendAnyListMoveFromPackedReturn",
    "__TVMBackendAnyListResetItem",
    "__TVMBackendAnyListSetPackedArg",
    "__TVMBackendAllocWorkspace",
    "__TVMBackendFreeWorkspace",
    "__TVMBackendGetFuncFromEnv",
    "__TVMBackendParallelBarrier",
    "__TVMBackendParallelLaunch",
    "__TVMFFIEnvModLookupFromImports",
    "__TVMFFIErrorSetRaisedFromCStr",
    "__TVMFFIErrorSetRaisedFromCStrParts",
    "__TVMFFIFunctionCall",
    "__TVMFFIHandleInitOnce",
)
"""Variables of a library that its loader fills with functions."""

_HOST_PREFIXES: Final = ("TVMFFI", "TVMBackend")


class Module(NamedTuple):
    """A module of the tree.

    Attributes:
        kind: its kind; "_lib" is the library itself.
        content: its bytes.
        imports: indices of the modules in which it looks up functions.
    """

    kind: str
    content: Extent
    imports: tuple[int, ...]


class LibraryImage:
    """A library of TVM, as data.

    Args:
        data: the file.
        source: its name, for messages.
        tree: whether the tree of modules is read.

    Attributes:
        elf: the shared library.
        modules: the tree, starting with its root; empty for a library that has only kernels.

    Raises:
        FormatError: the library is not well-formed.
    """

    def __init__(
        self, data: bytes | memoryview | Extent, source: str, *, tree: bool = True
    ) -> None:
        self.source = source
        self.elf = ElfFile(data, source)
        self.modules: list[Module] = []
        self._blob = (0, 0)
        if tree and self.elf.defines(LIBRARY_BIN):
            (size,) = _U64.unpack(self.elf.extent_of(LIBRARY_BIN, _U64.size).read())
            blob = self.elf.extent_of(LIBRARY_BIN, _U64.size + size)
            start = self.elf.offset_of(self.elf.symbols[LIBRARY_BIN].address)
            self._blob = (start, start + blob.nbytes)
            self.modules = _read_modules(blob.part(_U64.size, size), source)

    @property
    def kernels(self) -> dict[str, str]:
        """The kernels of the library: name -> symbol."""
        return {
            name.removeprefix(PREFIX): name
            for name, symbol in self.elf.symbols.items()
            if name.startswith(PREFIX) and symbol.defined and name not in (LIBRARY_BIN, LIBRARY_CTX)
        }

    @property
    def has_container(self) -> bool:
        """Whether relaxvm made the library, which then contains its own form of the executable."""
        return self.elf.defines(CONTAINER)

    @property
    def slots(self) -> list[str]:
        """Variables that the loader must set to functions."""
        return [name for name in self.elf.symbols if name in SLOTS]

    @property
    def host_symbols(self) -> list[str]:
        """Functions of TVM's libraries that the library imports."""
        return [
            name
            for name, symbol in self.elf.symbols.items()
            if not symbol.defined and name.startswith(_HOST_PREFIXES)
        ]

    @property
    def system_symbols(self) -> list[str]:
        """Functions of other libraries that the library requires."""
        return [
            name
            for name, symbol in self.elf.symbols.items()
            if not symbol.defined and not symbol.weak and not name.startswith(_HOST_PREFIXES)
        ]

    def executable(
        self, *, limits: Limits | None = None, mmap: bool = False, strict: bool = True
    ) -> VMExecutable:
        """Return the bytecode, with the kernels as `StoredKernels`.

        Args:
            limits, mmap, strict: as for `relaxvm.load`.

        Raises:
            LinkError: there is no bytecode.
            FormatError, LimitError: as `relaxvm.executable.formats.binary.loads`.
        """
        return self.decoded(limits=limits, mmap=mmap, strict=strict).executable

    def decoded(
        self, *, limits: Limits | None = None, mmap: bool = False, strict: bool = True
    ) -> binary.Decoded:
        """Read as `executable` does; return also where the sections of the binary form are."""
        name, limits = self.source, limits or Limits()
        if self.has_container:
            content = self.elf.extent_of(CONTAINER)
            ex, sections = binary.decode(content.stream(mmap), name, limits, strict)
            if isinstance(ex.kernels, StoredKernels):
                parts = {**ex.kernels.parts, **self.parts()}
                stored = StoredKernels(parts, name, ex.kernels.saved)
                ex = ex.with_kernels(stored)
            return binary.Decoded(ex, sections)
        for module in self.modules:
            if module.kind == EXECUTABLE:
                ex, sections = binary.decode(module.content.stream(mmap), name, limits, strict)
                stored = StoredKernels(self.parts(compiled_functions(ex)), name)
                return binary.Decoded(ex.with_kernels(stored), sections)
        raise LinkError(
            f"{self.source}: expected a library with a program, got {self._describe_content()}"
        )

    def _describe_content(self) -> str:
        """Describe a library that contains no program."""
        kinds = ", ".join(readable(m.kind) for m in self.modules if m.kind != THE_LIBRARY)
        if kinds:
            return f"one with modules of other kinds than {EXECUTABLE}: {kinds}"
        if self.slots or self.host_symbols:
            return "one of kernels that TVM compiled without a Relax function that calls them"
        return (f"one without the symbol {LIBRARY_BIN}, which TVM's export_library adds; for a "
                f"library of kernels there is relaxvm.load_kernels")

    def parts(self, compiled: Sequence[str] = ()) -> dict[str, bytes]:
        """Return the library as parts of a kernel section: all but the tree of modules, which its
        code does not read and whose constants may be large.

        Args:
            compiled: functions of the program that are machine code.
        """
        data, (start, end) = self.elf.data, self._blob
        about = {
            "version": 1,
            "size": data.nbytes,
            "names": sorted(self.kernels),
            "compiled": list(compiled),
            "modules": [module.kind for module in self.modules],
        }
        before = data.part(0, start) if end else data
        parts = {
            LIBRARY_PART: json.dumps(about).encode(),
            f"{LIBRARY_PART}/0": bytes(before.read()),
        }
        if end:
            parts[f"{LIBRARY_PART}/{end}"] = bytes(data.part(end, data.nbytes - end).read())
        for i, module in enumerate(self.modules):
            if module.kind == CONSTANTS:
                parts[f"{CONSTANTS}/{i}"] = bytes(module.content.read())
        return parts


def library_in(
    source: Any, limits: Limits, *, name: str | None = None, mmap: bool = False
) -> LibraryImage | None:
    """Return the library in a file or in memory, or None if it is something else.

    Args:
        source: file opened for reading bytes, or a buffer.  The image reads from it on demand.
        limits: bounds on the content.
        name: for messages; by default the name of the file.
        mmap: whether to map a file on disk instead of reading it.

    Raises:
        OSError: the file cannot be read.
        FormatError: the library is not well-formed.
        LimitError: it is larger than ``limits.file_bytes``.
    """
    if hasattr(source, "read") and not isinstance(source, _mmap.mmap):
        if _head_of(source) != MAGIC:
            return None
        name = name or name_of(source)
        return LibraryImage(_extent_of(source, name, limits, mmap), name)
    try:
        view = memoryview(source).cast("B")
    except TypeError:
        return None
    if bytes(view[: len(MAGIC)]) != MAGIC:
        return None
    limits.check("file_bytes", view.nbytes, "<bytes>")
    return LibraryImage(view if view.readonly else bytes(view), "<bytes>")


def _extent_of(file: Any, name: str, limits: Limits, mmap: bool) -> Extent:
    """Return the rest of a file."""
    size = size_on_disk(file)
    if size is None:
        return MemoryExtent(read_all(file, name, limits))
    start = file.tell()
    limits.check("file_bytes", size - start, name)
    if size - start <= SMALL:
        return MemoryExtent(file.read(size - start))
    if not mmap:
        return FileExtent(file, name, start, size - start)
    mapping = memoryview(_mmap.mmap(file.fileno(), 0, access=_mmap.ACCESS_READ))
    return MemoryExtent(mapping[start:])


def problems(image: LibraryImage, compiled: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """Return the reasons why a library cannot be run here; empty if it can.

    Args:
        compiled: functions of its program that are machine code.
        kinds: the kinds of its modules.
    """
    found = []
    if not image.elf.is_for_this_machine:
        found.append(f"its code is for {image.elf.machine}, this machine is {platform.machine()}")
    for kind in kinds:
        if kind not in (THE_LIBRARY, EXECUTABLE, CONSTANTS):
            found.append(f"it has a module of kind {readable(kind)!r}, which relaxvm cannot run")
    lacking = [name for name in compiled if VM_TIR + name not in image.kernels]
    if lacking:
        found.append(f"the library has no machine code of {', '.join(map(readable, lacking))}")
    unknown = [name for name in image.host_symbols if "__" + name not in SLOTS]
    unknown += [
        name.removeprefix("__")
        for name, symbol in image.elf.symbols.items()
        if symbol.defined and name.startswith("__TVM") and name not in SLOTS
    ]
    found += [f"its code calls {name}, which relaxvm does not have" for name in unknown]
    return found


def _head_of(file: Any) -> Any:
    """Return the next bytes of an open file without changing its position."""
    if hasattr(file, "peek"):
        return file.peek(len(MAGIC))[: len(MAGIC)]
    if not (hasattr(file, "seekable") and file.seekable()):
        return b""
    at = file.tell()
    head = file.read(len(MAGIC))
    file.seek(at)
    return head


def compiled_functions(executable: VMExecutable) -> list[str]:
    """Return the names of the functions that are machine code of TVM's compiled mode."""
    return [info.name for info in executable.functions if info.kind == FuncKind.COMPILED]


def _read_modules(blob: Extent, source: str) -> list[Module]:
    read = _TreeReader(blob, source)
    starts = read.numbers(MAX_MODULES + 1, "modules")
    imports = read.numbers(MAX_IMPORTS, "imports")
    count = len(starts) - 1
    if not 1 <= count <= MAX_MODULES:
        read.fail(f"expected 1 to {MAX_MODULES} modules, got {count}")
    if starts[0] != 0 or starts[-1] != len(imports) or sorted(starts) != list(starts):
        read.fail("the imports of modules are not ranges of their list")
    if any(index >= count for index in imports):
        read.fail(f"an import of a module that does not exist; there are {count}")
    modules = []
    for i in range(count):
        kind = str(read.string().read(), "utf-8", "replace")
        content = MemoryExtent(b"") if kind == THE_LIBRARY else read.string()
        modules.append(Module(kind, content, tuple(imports[starts[i] : starts[i + 1]])))
    return modules


class _TreeReader:
    """Reads the tree of modules."""

    def __init__(self, blob: Extent, source: str) -> None:
        self.blob = blob
        self.source = source
        self.at = 0

    def number(self) -> int:
        return int(_U64.unpack(self.take(_U64.size).read())[0])

    def numbers(self, most: int, what: str) -> tuple[int, ...]:
        count = self.number()
        if count > most:
            self.fail(f"a list of {count} numbers for its {what}; expected at most {most}")
        return struct.unpack(f"<{count}Q", self.take(count * _U64.size).read())

    def string(self) -> Extent:
        return self.take(self.number())

    def take(self, size: int) -> Extent:
        left = self.blob.nbytes - self.at
        if size > left:
            self.fail(f"truncated at byte {self.at}: {size} bytes needed, {left} left")
        self.at += size
        return self.blob.part(self.at - size, size)

    def fail(self, what: str) -> NoReturn:
        raise FormatError(f"{self.source}: bad tree of modules: {what}")
