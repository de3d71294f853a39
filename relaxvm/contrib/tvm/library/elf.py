"""Shared libraries of Linux and the BSDs, read as data: their code does not run.

Only the parts of an ELF file that a loader needs are read: the machine, the dynamic symbols, the
required libraries, and the targets of dynamic relocations.  Every offset is compared with the size
of the file before it is followed.

Source: System V Application Binary Interface, chapters "Object files" and "Dynamic linking".
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, NoReturn

from ....errors import FormatError
from ....executable.formats._extents import Extent, MemoryExtent

__all__ = ["MAGIC", "ElfFile", "Symbol"]

MAGIC: Final = b"\x7fELF"

_MACHINES: Final = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_SHARED: Final = 3  # e_type: ET_DYN
_LOAD: Final = 1  # p_type: PT_LOAD
_READ_ONLY: Final = 0x6474E552  # PT_GNU_RELRO: read-only once it is linked
_DYNAMIC, _RELA, _DYNSYM = 6, 4, 11  # sh_type
_NEEDED: Final = 1  # d_tag: DT_NEEDED
_WEAK: Final = 2  # binding of a symbol: STB_WEAK
_EXECUTABLE: Final = 1  # p_flags: PF_X
_EXECUTED: Final = 4  # sh_flags: SHF_EXECINSTR
_LONGEST: Final = 4096
"""The maximal length of a string in bytes."""

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")
_ENTRY: Final = struct.Struct("<qQ")


class Symbol(NamedTuple):
    """A dynamic symbol.

    Attributes:
        name: its name.
        address: relative to the load address of the library; 0 if it is undefined.
        size: in bytes, according to the file.
        defined: whether the library defines it, rather than imports it.
        weak: whether it is optional.
        info: its kind and binding, as in the file.
        entry: offset of its entry in the file.
    """

    name: str
    address: int
    size: int
    defined: bool
    weak: bool
    info: int
    entry: int


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class ElfFile:
    """A shared library of 64 bits, little endian.

    Args:
        data: the file.
        source: its name, for messages.

    Attributes:
        data: the file.
        machine: the machine it is for, as named by `platform.machine`.
        symbols: the dynamic symbols by name.
        needed: the libraries that it requires.

    Raises:
        FormatError: the file is not such a library, or not well-formed.
    """

    def __init__(self, data: bytes | memoryview | Extent, source: str = "<memory>") -> None:
        self.data = MemoryExtent(data) if isinstance(data, (bytes, memoryview)) else data
        self.source = source
        header = self._unpack(_HEADER, 0, "header")
        ident, kind, machine = header[0], header[1], header[2]
        if ident[:4] != MAGIC:
            self._fail(f"expected an ELF file, got one that starts with {ident[:4]!r}")
        if (ident[4], ident[5]) != (2, 1):
            self._fail("expected 64 bits and little endian")
        if kind != _SHARED:
            self._fail(f"expected a shared library, got an ELF file of type {kind}")
        self.machine = _MACHINES.get(machine, f"machine {machine}")
        self._segments = list(self._table(_SEGMENT, header[5], header[10], header[9], "segment"))
        self._sections = [
            _Section(*fields)
            for fields in self._table(_SECTION, header[6], header[12], header[11], "section")
        ]
        for kind, what in ((_DYNSYM, "dynamic symbols"), (_DYNAMIC, "dynamic entries")):
            if sum(section.type == kind for section in self._sections) > 1:
                self._fail(f"more than one section of {what}")
        self._text = 0
        self._names: dict[int, list[str]] = {}
        self._strings: dict[int, memoryview] = {}
        self.symbols = {symbol.name: symbol for symbol in self._read_symbols()}
        self.needed = tuple(self._read_needed())

    @property
    def is_for_this_machine(self) -> bool:
        """Return whether the process can load it, according to the header."""
        machine = platform.machine().lower()
        return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine) == self.machine

    def offset_of(self, address: int, size: int = 0) -> int:
        """Return the offset in the file of the bytes that are loaded to an address.

        Raises:
            FormatError: the file has no such bytes.
        """
        for kind, _, offset, start, _, stored, _, _ in self._segments:
            if kind == _LOAD and start <= address and address + size <= start + stored:
                self._within(offset + address - start, size, f"address {address:#x}")
                return int(offset + address - start)
        self._fail(f"no bytes at address {address:#x} + {size}")

    @property
    def code(self) -> list[memoryview]:
        """Return the machine code."""
        places = [(s.offset, s.size) for s in self._sections if s.flags & _EXECUTED]
        if not places:  # the file has no section table
            places = [(s[2], s[5]) for s in self._segments if s[0] == _LOAD and s[1] & _EXECUTABLE]
        for start, size in places:
            self._within(start, size, "code")
        return [self.data.part(start, size).read() for start, size in places]

    def defines(self, name: str) -> bool:
        """Return whether the library defines a symbol, rather than imports it."""
        return name in self.symbols and self.symbols[name].defined

    def extent_of(self, name: str, size: int | None = None) -> Extent:
        """Return the bytes of a symbol: as many as its size, or `size`.

        Raises:
            KeyError: the library does not define it.
            FormatError: the file ends before the last of them.
        """
        symbol = self.symbols[name]
        if not symbol.defined:
            raise KeyError(name)
        size = symbol.size if size is None else size
        return self.data.part(self.offset_of(symbol.address, size), size)

    def places_of(self, name: str) -> list[int]:
        """Return the addresses of the words that the dynamic linker sets to a symbol's address."""
        places = []
        for section in self._sections:
            if section.type != _RELA:
                continue
            names = self._names_of(section.link)
            for place, info, _ in self._rows(_RELOCATION, section, "relocation"):
                index = info >> 32
                if index and index < len(names) and names[index] == name:
                    places.append(place)
        return places

    def is_read_only(self, address: int) -> bool:
        """Return whether a word at an address is read-only after the library is linked."""
        return any(
            kind == _READ_ONLY and start <= address < start + size
            for kind, _, _, start, _, _, size, _ in self._segments
        )

    # Parts

    def _read_symbols(self) -> Iterator[Symbol]:
        for i, section in enumerate(self._sections):
            if section.type != _DYNSYM:
                continue
            names = self._names_of(i)
            rows = self._rows(_SYMBOL, section, "symbol")
            for k, (_, info, _, index, address, size) in enumerate(rows):
                entry = section.offset + k * _SYMBOL.size
                if k and names[k]:
                    weak = info >> 4 == _WEAK
                    yield Symbol(names[k], address, size, index != 0, weak, info, entry)

    def _names_of(self, table: int) -> list[str]:
        """Return the names of the symbols of a section."""
        section = self._section(table)
        if section.type != _DYNSYM:
            return []
        if table not in self._names:
            rows = self._rows(_SYMBOL, section, "symbol")
            self._names[table] = [self._string(section.link, row[0]) for row in rows]
        return self._names[table]

    def _read_needed(self) -> Iterator[str]:
        for section in self._sections:
            if section.type == _DYNAMIC:
                for tag, value in self._rows(_ENTRY, section, "dynamic entry"):
                    if tag == _NEEDED:
                        yield self._string(section.link, value)

    def _section(self, index: int) -> _Section:
        if not 0 <= index < len(self._sections):
            self._fail(f"section {index}: there are {len(self._sections)}")
        return self._sections[index]

    def _string(self, table: int, at: int) -> str:
        if table not in self._strings:
            section = self._section(table)
            self._within(section.offset, section.size, "strings")
            self._strings[table] = self.data.part(section.offset, section.size).read()
        strings = self._strings[table]
        if at >= strings.nbytes:
            self._fail(f"string {at}: the table has {strings.nbytes} bytes")
        text = bytes(strings[at : at + _LONGEST]).partition(b"\0")[0]
        self._text += len(text)
        if self._text > 4 * self.data.nbytes:  # strings may overlap, but not without bounds
            self._fail("its strings are longer than the file")
        return text.decode("utf-8", "replace")

    def _rows(
        self, layout: struct.Struct, section: _Section, what: str
    ) -> Iterator[tuple[Any, ...]]:
        count = section.size // layout.size
        return self._table(layout, section.offset, count, layout.size, what)

    def _table(
        self, layout: struct.Struct, offset: int, count: int, step: int, what: str
    ) -> Iterator[tuple[Any, ...]]:
        if count and step != layout.size:
            self._fail(f"{what}: expected entries of {layout.size} bytes, got {step}")
        self._within(offset, count * layout.size, f"{what} table")
        return layout.iter_unpack(self.data.part(offset, count * layout.size).read())

    def _unpack(self, layout: struct.Struct, offset: int, what: str) -> tuple[Any, ...]:
        self._within(offset, layout.size, what)
        return layout.unpack(self.data.part(offset, layout.size).read())

    def _within(self, offset: int, size: int, what: str) -> None:
        if offset + size > self.data.nbytes:
            self._fail(f"truncated: {what} needs {size} bytes at {offset}, "
                       f"the file has {self.data.nbytes}")

    def _fail(self, what: str) -> NoReturn:
        raise FormatError(f"{self.source}: bad shared library: {what}")
