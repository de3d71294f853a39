"""Libraries of kernels: functions by name, made from C and Python source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from ..errors import NestingError, RelaxVMWarning
from ..messages import warn
from .functions import NativeFunction, load_function
from .machine_code import SourceState, code_for_here, libraries_of
from .python_runtime import namespace
from .toolchain import compiler, why_no_compiler

__all__ = ["FunctionState", "KernelLibrary", "LibraryState", "load_python", "warn_no_compiler"]


class FunctionState(TypedDict):
    """The source of a function in a library.

    `symbol` is its name in C, `writes` the indices of the parameters that it writes, `python` its
    Python source.
    """

    symbol: str
    writes: list[int]
    python: str


class LibraryState(TypedDict):
    """The sources of a library, as plain values for JSON."""

    version: int
    sources: list[SourceState]
    functions: dict[str, FunctionState]


class KernelLibrary(Mapping[str, Callable[..., Any]]):
    """The functions of a module, by name, as callables that take tensors and scalars.

    It can be stored: ``KernelLibrary(library.state())`` is made from the same sources, on this
    machine or another one.  This runs their code, so only load what you trust.

    Args:
        state: the result of `state`.
        binaries: shared libraries compiled from the C sources, one each, as returned by `binaries`;
            None to compile the sources.
        prim_funcs: the functions as IR, see `prim_funcs`.

    Raises:
        CompilerError: the compiler fails.
        LinkError: a binary cannot be loaded here.
        ValueError: the version of the state is unknown.
    """

    def __init__(
        self,
        state: LibraryState,
        binaries: Sequence[Path] | None = None,
        prim_funcs: Mapping[str, str] | None = None,
    ) -> None:
        if state["version"] != 1:
            raise ValueError(f"kernel library: expected version 1, got {state['version']}")
        self._sources = list(state["sources"])
        self._states = dict(state["functions"])
        self._write_python: Callable[[str], str] | None = None
        self._write_ir: Callable[[], Mapping[str, str]] | None = None
        self._prim_funcs = prim_funcs
        self._functions: dict[str, Callable[..., Any]] = {}
        self._binaries: Sequence[Path | bytes] | None = None
        self._load(binaries)

    @classmethod
    def of_texts(
        cls,
        functions: dict[str, FunctionState],
        sources: list[SourceState],
        write_python: Callable[[str], str],
        write_ir: Callable[[], Mapping[str, str]] | None = None,
    ) -> KernelLibrary:
        """Return a library of functions whose Python source may be generated later.  Functions that
        are not in a C source run as Python.

        Args:
            functions: by name; `python` is empty if the source has not been generated.
            sources: the C sources.
            write_python: generates the Python source of a function, by name.
            write_ir: returns the IR of the functions, see `prim_funcs`.
        """
        library = cls.__new__(cls)
        library._sources = sources
        library._write_python = write_python
        library._write_ir = write_ir
        library._prim_funcs = None
        library._states = functions
        library._functions = {}
        library._binaries = None
        library._load(None)
        return library

    def _load(self, binaries: Sequence[Path] | None) -> None:
        if binaries is not None:
            self._open(binaries)
        elif self._sources and compiler() is None:
            warn_no_compiler([name for source in self._sources for name in source["names"]])
            self._binaries = []
        elif self._sources:
            self._link(code_for_here(self._sources))
        for name in self._states:
            if name not in self._functions:
                self._functions[name] = load_python(self.python_source(name))

    def _open(self, binaries: Sequence[Path]) -> None:
        for source, path in zip(self._sources, binaries, strict=True):
            self._link((name, path) for name in source["names"])

    def _link(self, places: Iterable[tuple[str, Path]]) -> None:
        for name, path in places:
            state = self._states[name]
            self._functions[name] = load_function(
                path, state["symbol"], name=name, writes=state["writes"]
            )

    def state(self) -> LibraryState:
        """Return the state from which `KernelLibrary` makes an equal library."""
        for name in self._states:
            self.python_source(name)
        return {"version": 1, "sources": self._sources, "functions": self._states}

    @property
    def binaries(self) -> Sequence[Path | bytes]:
        """Shared libraries of the C sources for any machine of the platform, as paths or as their
        content; empty if the functions run as Python.  They are compiled on first access, since the
        code that runs in this process is only for this machine."""
        if self._binaries is None:
            self._binaries = libraries_of(self._sources)
        return self._binaries

    @binaries.setter
    def binaries(self, binaries: Sequence[Path | bytes]) -> None:
        self._binaries = binaries

    @property
    def prim_funcs(self) -> Mapping[str, str]:
        """The functions as IR, by name: JSON of `relaxvm.ir.save_json`.  Empty if they were made of
        other sources, such as those in a file of `export_library`."""
        if self._prim_funcs is None:
            self._prim_funcs = {} if self._write_ir is None else self._write_ir()
        return self._prim_funcs

    @property
    def backends(self) -> dict[str, Literal["c", "python"]]:
        """Name -> how the function runs: "c", or "python" if there is no compiler or it cannot be
        written in C."""
        return {
            name: "c" if isinstance(function, NativeFunction) else "python"
            for name, function in self._functions.items()
        }

    @property
    def c_sources(self) -> list[str]:
        """Return the C sources; empty if all functions run as Python."""
        return [source["text"] for source in self._sources]

    def __reduce__(self) -> tuple[Any, ...]:
        return KernelLibrary, (self.state(), None, self.prim_funcs)

    def python_source(self, name: str) -> str:
        """Return the Python source of a function."""
        state = self._states[name]
        if not state["python"] and self._write_python is not None:
            state["python"] = self._write_python(name)
        return state["python"]

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __repr__(self) -> str:
        how = "C" if self._sources else "Python"
        return f"<KernelLibrary of {len(self)} functions in {how}>"


def warn_no_compiler(names: Sequence[str]) -> None:
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    warn(f"{why_no_compiler()}; {listed} will run as Python, which is slower", RelaxVMWarning)


def load_python(text: str) -> Callable[..., Any]:
    """Return the function that a result of `python_source` defines.

    Raises:
        NestingError: its expressions are nested too deeply for Python.
    """
    names = namespace()
    try:
        code = compile(text, "<kernel>", "exec")
    except (SyntaxError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        raise NestingError(
            f"a kernel as Python: its expressions are nested too deeply: {reason}; bind parts of "
            f"them to variables, or install a C compiler"
        ) from None
    exec(code, names)
    function: Any = names["function"]
    function.source = text
    loaded: Callable[..., Any] = function
    return loaded
