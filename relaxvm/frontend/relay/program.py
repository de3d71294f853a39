"""From a text, and the texts that it imports, to a module."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ...core.checkpoints import checkpoint
from ...errors import FormatError, LimitError, NestingError, ParseError
from ...executable.formats._files import read_all
from ...ir import IRModule
from ...ir.nesting import headroom
from ...limits import Limits
from ...vm.limited import run_limited
from . import syntax
from .infer import infer_types
from .lower import lower
from .params import read_params
from .parser import parse_text
from .scopes import Definitions, resolve
from .source import Source

__all__ = ["SUFFIXES", "from_text", "read_program"]

SUFFIXES: Final = (".relay", ".rly")
"""Of the names of files with Relay text."""
_MOST_IMPORTS: Final = 1000
_OWN: Final = os.path.join(os.path.dirname(__file__), "std")
"""The folder of the texts that can be imported from anywhere."""


def from_text(
    source: str | os.PathLike[str],
    params: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    file: str | None = None,
    limits: Limits | None = None,
) -> IRModule:
    """Return the program of a Relay text as a module.

    Args:
        source: the text, or a path: an `os.PathLike`, or a string without line breaks that ends in
            ".relay" or ".rly".
        params: values of parameters of ``@main`` by name, which become constants; or the path of a
            ``.npz`` or ``.params`` file with them.
        file: the name of the text in messages.
        limits: bounds of files and definitions, and of the time and memory that reading takes
            (`wall_time`, `live_bytes`, `alloc_bytes`); None: those of ``Limits()``.

    A text without definitions is an expression; it becomes the function ``main``, with its
    ``free_var`` as parameters.

    Raises:
        ParseError: the text or the program is wrong; the message has file, line, column, the line,
            what was expected and what was found.
        NestingError: the program is nested too deeply.
        LimitError: a limit is reached: a file is larger than ``limits.file_bytes``, say, or there
            are more definitions than ``limits.functions``.
        FormatError: the file of parameters is malformed.
        ValueError: ``@main`` has no parameter of a name in `params`.
        OSError: a file cannot be read.
    """
    bounds = limits or Limits()

    def work() -> IRModule:
        values = _read_values(params, bounds)
        try:
            with headroom("reading a Relay program"):
                definitions, public = read_program(source, file, bounds)
                return lower(definitions, public, values)
        except NestingError:
            raise
        except RecursionError:
            # The text is nested at most `MOST_LEVELS` deep, but types that are inferred are not.
            raise NestingError(
                "reading a Relay program: its types are nested too deeply: a type of thousands of "
                "tuples or functions in each other was inferred; annotate the functions"
            ) from None

    return run_limited(work, limits, "from_text")


def _read_values(params: Any, limits: Limits) -> Mapping[str, Any]:
    if params is None:
        return {}
    if isinstance(params, Mapping):
        return params
    if os.fspath(params).endswith(".npz"):
        return _read_npz(params, limits)
    return read_params(params, limits=limits)


def _read_npz(path: str | os.PathLike[str], limits: Limits) -> dict[str, Any]:
    """The arrays of a file; those that it has compressed count with their size in memory."""
    values: dict[str, Any] = {}
    with open(path, "rb") as file:
        try:
            arrays = np.load(file, allow_pickle=False)
            if not isinstance(arrays, np.lib.npyio.NpzFile):
                raise ValueError("it holds one array, without a name")
            limits.check("constants", len(arrays.files), f"{os.fspath(path)}: arrays")
            archive, total = arrays.zip, 0
            assert archive is not None
            for name in arrays.files:
                checkpoint()
                total += archive.getinfo(f"{name}.npy").file_size
                limits.check("file_bytes", total, f"{os.fspath(path)}: arrays")
                values[name] = arrays[name]
        except (ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            if isinstance(error, LimitError):
                raise
            raise FormatError(f"{os.fspath(path)}: expected arrays by name, as numpy.savez writes "
                              f"them: {error}") from None  # fmt: skip
    return values


def read_program(
    source: str | os.PathLike[str], file: str | None = None, limits: Limits | None = None
) -> tuple[Definitions, list[str]]:
    """Return the definitions of a program with types, and the names of the text's own functions.

    Functions of imported texts are left out if they are not used.
    """
    limits = limits or Limits()
    text, name, folder = _text_of(source, file, limits)
    reader = _Reader(folder, limits)
    module = reader.read(Source(text, name))
    definitions = reader.definitions
    if module.expression is not None:
        definitions.add(_main_of(module))
    public = [func.name for func in module.functions]
    reader.resolve(public)
    used = Definitions()
    used.types, used.constructors = definitions.types, definitions.constructors
    used.functions = {n: f for n, f in definitions.functions.items() if n in reader.resolved}
    infer_types(used)
    return used, public


def _main_of(module: syntax.Module) -> syntax.Module:
    block = module.expression
    assert block is not None
    function = syntax.Function(module.place, [], list(block.free_vars), None, block, {})
    block.free_vars = ()
    if isinstance(block.result, syntax.Function) and not block.statements and not function.params:
        function = block.result
    module.functions.append(syntax.FunctionDef(module.place, "main", function))
    return syntax.Module(module.place, None, [], [], module.functions, None, {})


def _text_of(
    source: str | os.PathLike[str], file: str | None, limits: Limits
) -> tuple[str, str, str | None]:
    """The text, its name, and the folder of its file."""
    is_path = not isinstance(source, str) or (
        source.endswith(SUFFIXES) and "\n" not in source and "{" not in source
    )
    if not is_path:
        assert isinstance(source, str)
        limits.check("file_bytes", len(source), file or "<relay>")
        return source, file or "<relay>", None
    path = os.fspath(source)
    return _read_file(path, limits), file or path, os.path.dirname(path)


def _read_file(path: str, limits: Limits) -> str:
    with open(path, "rb") as stream:
        limits.check("file_bytes", os.fstat(stream.fileno()).st_size, path)
        data = read_all(stream, path, limits)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ParseError(f"{path}: expected UTF-8: {error}") from None


class _Reader:
    """Reads a text and those that it imports: from the folder of the text, and relaxvm's own.

    Attributes:
        definitions: all of them.
        resolved: the functions whose names are resolved.
    """

    def __init__(self, folder: str | None, limits: Limits) -> None:
        self._folder = folder
        self.definitions = Definitions()
        self.resolved: set[str] = set()
        self._constants: dict[Source, Mapping[str, Any]] = {}
        self._limits = limits
        self._read: dict[str, bool] = {}
        """Name of a file -> whether all of it is read."""

    def read(self, source: Source) -> syntax.Module:
        """Read a text, and first those that it imports."""
        module = parse_text(source)
        for each in module.imports:
            self._import(each)
        self.definitions.add(module)
        self._constants[source] = module.constants
        count = len(self.definitions.functions) + len(self.definitions.types)
        self._limits.check("functions", count, f"{source.file}: definitions")
        return module

    def _import(self, statement: syntax.Import) -> None:
        name, place = statement.name, statement.place
        if os.path.basename(name) != name or not name.endswith(".rly"):
            place.fail(f'import: expected the name of a .rly file, without a folder, got "{name}"')
        done = self._read.get(name)
        if done:
            return
        if done is not None:
            place.fail(f"import: {name} imports itself")
        if len(self._read) >= _MOST_IMPORTS:
            raise LimitError(f"{place.span}: more than {_MOST_IMPORTS} imports")
        found = None
        for folder in (self._folder, _OWN):
            path = None if folder is None else os.path.join(folder, name)
            if path is not None and os.path.isfile(path):
                found = path
                break
        if found is None:
            own = ", ".join(sorted(os.listdir(_OWN)))
            place.fail(f"import: there is no {name} in the folder of the program, nor among {own}")
        self._read[name] = False
        try:
            text = _read_file(found, self._limits)
        except OSError as error:
            place.fail(f"import: {error}")
        self.read(Source(text, found))
        self._read[name] = True

    def resolve(self, names: list[str]) -> None:
        """Resolve the names in functions, and in all functions that these use."""
        work = [self.definitions.functions[name] for name in reversed(names)]
        while work:
            checkpoint()
            func = work.pop()
            if func.name in self.resolved:
                continue
            self.resolved.add(func.name)
            resolve(func.function, self.definitions, self._constants[func.place.source])
            inner: list[Any] = [func.function]
            while inner:
                node = inner.pop()
                if isinstance(node, syntax.GlobalName) and node.target is not None:
                    work.append(node.target)
                inner += syntax.parts_of(node)
