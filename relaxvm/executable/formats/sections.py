"""The sections that may follow TVM's stream: the table `SECTIONS`, and how they are framed.

TVM reads the stream, and stops before them.  Each section is::

    8 bytes     magic: the letters ``rvm`` and five more
    u32         version
    u32         flags: 1 if a reader that does not know the section must refuse the file,
                2 if the checksum is there
    u64         size of the content
    32 bytes    checksum: the SHA-256 of the content, if a flag says so
    content

Sections are in the order of the table, and each occurs at most once.  To add one, add an entry to
`SECTIONS`: its content is ``VMExecutable.sections[name]``.  ``docs/format.md`` has the table, which
``scripts/gen_sections.py`` writes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

from ...errors import FormatError, RelaxVMWarning
from ...messages import warn
from ._fields import Reader, Writer

__all__ = ["SECTIONS", "Section", "SectionPlace", "load_sections", "save_sections"]

_FRAME: Final = struct.Struct("<8sIIQ")
_DIGEST_SIZE: Final = 32
_MAGIC: Final = re.compile(rb"rvm[a-z]{5}")
_REQUIRED: Final = 1
_CHECKSUM: Final = 2


class Section(NamedTuple):
    """An entry of the table.

    Attributes:
        name: its key in `VMExecutable.sections`, and its name in documentation.
        title: its name in messages.
        magic: its first bytes: ``rvm`` and five lower-case letters.
        version: the version that is written, and the only one that is read.
        about: what it contains, in one line.
        home: of the module ``_HOME_section``, which is imported when a file has such a section or
            gets one: its `save` writes the content; its `load` reads it, and checks all that can be
            checked without the program.  The reader ends where the content ends.
        rule: the rule of `relaxvm.verify` that checks the content against the program, if any.
        limits: the fields of `Limits` that bound the content, apart from ``file_bytes``.
        required: whether a reader that does not know the section must refuse the file.
        checksum: whether a checksum is in front of the content.
        flagged: whether flags say that there is a checksum.  Only the kernel section, which is
            older than the flags, has one that they do not mention.
    """

    name: str
    title: str
    magic: bytes
    version: int
    about: str
    home: str
    rule: str | None = None
    limits: tuple[str, ...] = ()
    required: bool = False
    checksum: bool = True
    flagged: bool = True

    def save(self, to: Writer, content: Any) -> None:
        self._module.save(to, content)

    def load(self, read: Reader) -> Any:
        return self._module.load(read)

    @property
    def _module(self) -> Any:
        return import_module(f"{__package__}._{self.home}_section")

    @property
    def flags(self) -> int:
        return _REQUIRED * self.required + _CHECKSUM * (self.checksum and self.flagged)


SECTIONS: Final = {
    section.name: section
    for section in (
        Section(
            "debug", "debug section", b"rvmdebug", 1,
            "locations of the instructions in the source, and variables of the IR",
            "debug", "debug-info", ("instructions", "name_bytes"), checksum=False,
        ),
        Section(
            "exec_mode", "mode section", b"rvmxmode", 1,
            "that the program was built with `exec_mode=\"compiled\"`",
            "mode", None, checksum=False,
        ),
        Section(
            "kernels", "kernel section", b"rvmkrnls", 1,
            "compiled code of the program's kernels, by `export_library`",
            "kernel", None, ("name_bytes",), flagged=False,
        ),
        Section(
            "prim_funcs", "PrimFunc section", b"rvmprims", 1,
            "the program's PrimFuncs as IR, of which kernels are made",
            "prim_func", "prim-funcs", ("functions", "name_bytes"),
        ),
        Section(
            "data_types", "section of data types", b"rvmtypes", 1,
            "definitions of data types, and the types of the functions that use them",
            "data_type", "data-types", ("data_parts", "name_bytes"),
        ),
        Section(
            "values", "section of values", b"rvmvalue", 1, "constants of data types",
            "value", "constant-data", ("data_parts", "rank", "shape_dims"), required=True,
        ),
        Section(
            "names", "section of names", b"rvmnames", 1,
            "names of inputs and outputs in the model that the program was made of",
            "names", None, ("data_parts", "name_bytes"),
        ),
        Section(
            "model", "section of the model", b"rvmmodel", 1,
            "what the model says of itself: author, description, metadata, types of its interface",
            "model", None, ("data_parts", "name_bytes", "shape_dims"),
        ),
        Section(
            "tensors", "section of tensors", b"rvmtensr", 1,
            "constant tensors at multiples of 64 bytes, for files that are memory-mapped",
            "tensor", None, ("rank",), required=True, checksum=False,
        ),
    )
}  # fmt: skip
"""The sections by name, in the order in which they are written."""

_BY_MAGIC: Final = {section.magic: section for section in SECTIONS.values()}
_ORDER: Final = {section: place for place, section in enumerate(SECTIONS.values())}


class SectionPlace(NamedTuple):
    """A section in a file: where it is, and how many bytes it takes with its frame."""

    name: str
    version: int
    required: bool
    offset: int
    nbytes: int


# Writing


def save_sections(to: Writer, contents: Mapping[str, Any]) -> None:
    """Write sections.

    Args:
        to: gets the bytes.
        contents: the content of each section by name; None for a section to leave out.

    Raises:
        FormatError: a name is not in the table, or content has no binary form.
    """
    unknown = contents.keys() - SECTIONS.keys()
    if unknown:
        raise FormatError(f"unknown section {min(unknown)!r}; known: {', '.join(SECTIONS)}")
    for name, section in SECTIONS.items():
        content = contents.get(name)
        if content is not None:
            to.place = section.title
            _save(to, section, content)


def _save(to: Writer, section: Section, content: Any) -> None:
    digest_size = _DIGEST_SIZE if section.checksum else 0
    inner = Writer(to.position + _FRAME.size + digest_size)
    section.save(inner, content)
    pieces = [*inner.views()]
    size = sum(map(len, pieces))
    to.put(_FRAME.pack(section.magic, section.version, section.flags, size))
    if section.checksum:
        to.put(_digest(*pieces))
    to.put_all(inner)


def _digest(*pieces: bytes | memoryview) -> bytes:
    import hashlib  # here, since it is slow to import and most files have no checksum

    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


# Reading


class _Frame(NamedTuple):
    """The head of a section."""

    section: Section | None
    title: str
    version: int
    flags: int
    size: int
    offset: int

    @property
    def checksum_size(self) -> int:
        checked = self.flags & _CHECKSUM if self.section is None else self.section.checksum
        return _DIGEST_SIZE if checked else 0


def load_sections(
    read: Reader, strict: bool
) -> tuple[dict[str, Any], tuple[SectionPlace, ...]]:
    """Read the sections that come next, up to the first bytes that are none.

    Args:
        read: the file, after the stream.
        strict: whether an optional section of an unknown kind or version is an error, or is left
            out with a warning.

    Returns:
        The contents by name, and where each section is.

    Raises:
        FormatError: a section is not well-formed, required and of an unknown kind or version, or
            not in its place.
        LimitError: a section exceeds a limit.
    """
    contents: dict[str, Any] = {}
    places = []
    last: Section | None = None
    while (frame := _next(read)) is not None:
        section = frame.section
        fault = _fault(frame)
        if fault is not None:
            _leave_out(read, frame, fault, strict)
            continue
        assert section is not None
        if last is not None and _ORDER[section] <= _ORDER[last]:
            raise FormatError(
                f"expected it before the {last.title}" if section is not last
                else f"there is another one before byte {frame.offset}"
            )
        contents[section.name] = _load(read, frame, section)
        size = read.stream.position - frame.offset
        places.append(
            SectionPlace(section.name, section.version, section.required, frame.offset, size)
        )
        last = section
    return contents, tuple(places)


def _next(read: Reader) -> _Frame | None:
    """Read the head of the next section; None if there is none."""
    read.section = "sections"
    magic = read.stream.peek(8)
    if not _MAGIC.fullmatch(magic):
        return None
    section = _BY_MAGIC.get(magic)
    read.section = f"section {magic.decode()!r}" if section is None else section.title
    offset = read.stream.position
    _, version, flags, size = read.unpack(_FRAME)
    frame = _Frame(section, read.section, version, flags, size, offset)
    read.fits(size + frame.checksum_size, 1)
    return frame


def _fault(frame: _Frame) -> str | None:
    """Return why a section cannot be read, None if it can."""
    section = frame.section
    if section is None:
        return f"unknown, of version {frame.version}"
    if frame.version != section.version:
        return f"expected version {section.version}, got {frame.version}"
    if frame.flags != section.flags:
        raise FormatError(f"expected flags {section.flags}, got {frame.flags}")
    return None


def _leave_out(read: Reader, frame: _Frame, fault: str, strict: bool) -> None:
    """Warn about a section that cannot be read, and read past it."""
    if frame.flags & ~(_REQUIRED | _CHECKSUM):
        raise FormatError(f"{fault}, with unknown flags {frame.flags}")
    if frame.flags & _REQUIRED:
        raise FormatError(f"{fault}; the program needs it")
    if strict:
        raise FormatError(f"{fault}; strict=False leaves it out")
    warn(f"{read.name}: {frame.title} left out: {fault}", RelaxVMWarning)
    read.stream.take(frame.checksum_size + frame.size)


def _load(read: Reader, frame: _Frame, section: Section) -> Any:
    digest = bytes(read.stream.take(frame.checksum_size))
    content = read.stream.part(frame.size)
    if digest:
        if not content.is_own:
            # A copy: what is checked is what is read, even if the memory is changed meanwhile.
            content.data = memoryview(bytes(content.data))
            content.share = False
        if read.checks_content and _digest(content.data) != digest:
            raise FormatError(
                f"its content has changed: the checksum of bytes {content.position} to "
                f"{content.end - 1} differs"
            )
    inner = Reader(content, read.name, read.limits, section.title)
    try:
        value = section.load(inner)
        inner.section = section.title
        if inner.left:
            raise FormatError(
                f"expected its end at byte {content.end}, got it at {content.position}"
            )
    except FormatError:
        read.section = inner.place
        raise
    return value
