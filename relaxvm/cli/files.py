"""Reading executables, and importing Python modules with kernels."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from ..contrib.tvm.library.image import LibraryImage, library_in
from ..errors import (
    BugError,
    FormatError,
    LimitError,
    MissingExtraError,
    ParseError,
    RelaxVMError,
)
from ..executable import VMExecutable
from ..executable.file_kinds import HEAD_BYTES, FileKind, kind_of
from ..executable.formats import binary, text
from ..executable.formats.sections import SectionPlace
from ..limits import Limits
from .exits import BUILD_ERRORS, CommandError, Exit, UsageError, code_of_program, read_error

__all__ = [
    "STDIO",
    "OpenedFile",
    "add_file_argument",
    "add_kernels_argument",
    "add_limits_argument",
    "import_kernels",
    "limits_of",
    "open_executable",
    "parse_listing",
    "program_kind",
    "read_stream",
    "standard_input",
]

STDIO: Final = "-"
"""The file name for standard input or output."""

_HEAD_BYTES: Final = 64
_CHUNK_BYTES: Final = 1 << 20
_TEXT_HEAD: Final = text.VERSION_LINE.rsplit(" ", 1)[0].encode()
"""The start of a complete listing of any version."""


_MAGICS: Final = tuple(
    magic.to_bytes(8, "little") for magic in (binary.MAGIC, binary.MAGIC_WITHOUT_SCOPES)
)


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """An executable that was read but not verified.

    Attributes:
        name: path, or ``<stdin>``.
        form: "binary", "text", "library", or "model" for one that was compiled from a model.
        size: bytes of the file.
        head: its first bytes.
        library: the shared library that contains it, if any.
        sections: the sections behind the stream of the binary form.
        kind: of a program that was compiled.
    """

    name: str
    executable: VMExecutable
    form: str
    size: int
    head: bytes
    library: LibraryImage | None = None
    sections: tuple[SectionPlace, ...] = ()
    kind: FileKind | None = None


def add_file_argument(
    parser: argparse.ArgumentParser, *, many: bool = False, optional: bool = False
) -> None:
    """Add the argument FILE and the options for the limits under which it is read."""
    what = ("executable, binary or a complete listing, of which - is the one at stdin; or a model "
            "(.onnx or .pt2), a Relay text, or a module in JSON")  # fmt: skip
    if many:
        parser.add_argument("files", metavar="FILE", nargs="+", help=what)
    else:
        parser.add_argument("file", metavar="FILE", nargs="?" if optional else None, help=what)
    add_limits_argument(parser)


def add_limits_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limits", choices=("default", "untrusted"), default="default",
                        help="bounds on the content of a file and the cost of a run")  # fmt: skip


def add_kernels_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kernels", metavar="MODULE", action="append", default=[],
        help="Python module or .py file to import first: it registers packed functions. "
        "This runs its code. May be repeated",
    )  # fmt: skip


def limits_of(args: argparse.Namespace) -> Limits:
    return Limits.untrusted() if args.limits == "untrusted" else Limits()


def open_executable(
    name: str, limits: Limits, *, mapped: bool = False, relax_pipeline: str = "default"
) -> OpenedFile:
    """Read an executable, binary or a complete listing, without verifying it.

    Args:
        name: path, or ``-``.
        mapped: map constants instead of reading them if possible, for commands that do not run it.
            Under other limits on bytes than the default ones, they are read: a mapped file that
            becomes shorter ends the process.
        relax_pipeline: how a program is compiled, as for `relaxvm.build`.

    Raises:
        CommandError: the file cannot be read.
        FormatError, ParseError, LimitError, MissingExtraError: from the reader of its form.
        LinkError: it is a shared library without bytecode.
    """
    if name == STDIO:
        return _from_stream(standard_input(), "<stdin>", limits)
    try:
        kind = program_kind(name) if os.path.isfile(name) else None
    except OSError as error:
        raise read_error(name, error) from error
    if kind is not None and kind.is_program:
        return _compiled(name, kind, limits, relax_pipeline)
    mapped = mapped and limits.file_bytes == Limits().file_bytes  # which maps do not count for
    try:
        with open(name, "rb") as file:
            if not os.path.isfile(name):
                return _from_stream(file, name, limits)
            head, size = file.read(_HEAD_BYTES), os.fstat(file.fileno()).st_size
            file.seek(0)
            if head.startswith(_TEXT_HEAD):
                return _from_bytes(read_stream(file, name, limits), name, limits)
            library = library_in(file, limits, name=name, mmap=mapped)
            if library is not None:
                executable, sections = library.decoded(limits=limits, mmap=mapped)
                return OpenedFile(name, executable, "library", size, head, library, sections)
            executable, sections = binary.read(
                name if mapped else file, limits=limits, mmap=mapped
            )
            return OpenedFile(name, executable, "binary", size, head, None, sections)
    except OSError as error:
        raise read_error(name, error) from error


def program_kind(name: str) -> FileKind | None:
    """The kind of a file; None for standard input, which has executables alone.

    Raises:
        OSError: it cannot be read.
    """
    if name == STDIO:
        return None
    with open(name, "rb") as file:
        return kind_of(file.read(HEAD_BYTES), name)


def _compiled(name: str, kind: FileKind, limits: Limits, relax_pipeline: str) -> OpenedFile:
    """Compile a model, or another program that is data."""
    from ..vm.program_cache import compile_file

    if kind.name == "script":
        raise UsageError(f"{name}: a Python script is only run by `relaxvm compile {name} -o FILE`")
    try:
        size = os.path.getsize(name)
        executable = compile_file(name, limits, relax_pipeline)
        return OpenedFile(name, executable, "model", size, b"", kind=kind)
    except OSError as error:
        raise read_error(name, error) from error
    except (FormatError, ParseError, LimitError, BugError, MissingExtraError):
        raise
    except RelaxVMError as error:
        raise CommandError(str(error), code_of_program(error)) from error
    except BUILD_ERRORS as error:
        raise CommandError(f"{name}: {type(error).__name__}: {error}") from error


def _from_stream(file: IO[bytes], name: str, limits: Limits) -> OpenedFile:
    """Read a pipe or a device.  It may be endless, so its form is checked before all of it is
    read."""
    head = file.read(_HEAD_BYTES)
    if not head.startswith((_TEXT_HEAD, *_MAGICS)):
        return _from_bytes(head, name, limits)  # raises
    return _from_bytes(head + read_stream(file, name, limits), name, limits)


def _from_bytes(data: bytes, name: str, limits: Limits) -> OpenedFile:
    head = data[:_HEAD_BYTES]
    if head.startswith(_TEXT_HEAD):
        return OpenedFile(name, parse_listing(data, name), "text", len(data), head)
    executable, sections = binary.read_buffer(data, limits=limits, name=name)
    return OpenedFile(name, executable, "binary", len(data), head, None, sections)


def parse_listing(data: bytes, name: str) -> VMExecutable:
    """Assemble a listing.

    Raises:
        CommandError: the listing is not UTF-8.
        ParseError, MissingExtraError: as `formats.text.parse_text`.
    """
    try:
        source = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"{name}: expected UTF-8 text, got byte 0x{data[error.start]:02x} at "
                           f"position {error.start}", Exit.MALFORMED) from error  # fmt: skip
    return text.parse_text(source, filename=name)


def read_stream(file: IO[bytes], name: str, limits: Limits) -> bytes:
    """Read the rest of a file, checking the limit while reading.

    Raises:
        LimitError: it has more bytes than ``limits.file_bytes``.
    """
    chunks: list[bytes] = []
    total = 0
    while chunk := file.read(_CHUNK_BYTES):
        total += len(chunk)
        limits.check("file_bytes", total, name)
        chunks.append(chunk)
    return b"".join(chunks)


def standard_input() -> IO[bytes]:
    """Return standard input as a binary file.

    Raises:
        UsageError: it is a terminal.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("-: expected a file or a pipe at standard input, got a terminal")
    return sys.stdin.buffer


def import_kernels(modules: list[str]) -> None:
    """Import Python modules for the packed functions they register.

    Args:
        modules: dotted names (also searched in the current directory), or paths of .py files.

    Raises:
        UsageError: there is no such module.
        CommandError: the module raised.
    """
    for module in modules:
        _import(module)


def _import(module: str) -> None:
    try:
        if module.endswith(".py"):
            _import_file(Path(module))
        else:
            _import_name(module)
    except UsageError:
        raise
    except Exception as error:
        raise CommandError(
            f"--kernels {module}: importing it raised {type(error).__name__}: {error}"
        ) from error


def _import_name(module: str) -> None:
    _look_in(os.getcwd())
    try:
        found = importlib.util.find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):
        found = False
    if not found:
        raise UsageError(f"--kernels {module}: no such module")
    importlib.import_module(module)


def _import_file(path: Path) -> None:
    if not path.is_file():
        raise UsageError(f"--kernels {path}: no such file")
    # A unique module name: the file may have the name of an existing module.
    name = f"relaxvm_kernels:{path.resolve()}"
    if name in sys.modules:
        return
    _look_in(str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--kernels {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _look_in(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)
