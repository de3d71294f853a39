"""PrimFuncs as callables: compiled from C where there is a compiler, else Python."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

from ..errors import RelaxVMWarning
from ..toolchain import compiler, load_function, why_no_compiler
from .function import PrimFunc
from .lower_c import c_source, symbol_of
from .lower_python import python_source
from .machine_code import SourceState, code_for_here, libraries_of
from .normalize import Kernel, normalize
from .python_runtime import namespace

__all__ = ["KernelLibrary", "LibraryState", "build_prim_funcs", "compile_prim_func"]

CHUNK: Final = 16
"""So many functions are in one text of C.  Where libraries or objects are made of whole texts, they
are compiled side by side."""

Backend = Literal["c", "python"]


class FunctionState(TypedDict):
    """What a function of a library is made from.

    `symbol` is its name in C, `writes` the numbers of the parameters that it writes, `python` its
    text in Python.
    """

    symbol: str
    writes: list[int]
    python: str


class LibraryState(TypedDict):
    """What a library is made from, in plain values for JSON."""

    version: int
    sources: list[SourceState]
    functions: dict[str, FunctionState]


class KernelLibrary(Mapping[str, Callable[..., Any]]):
    """The functions of a module, by name, as callables that take tensors and scalars.

    It can be stored: ``KernelLibrary(library.state())`` is made of the same texts, on this machine
    or another one.  Making it runs them, so load what you trust.

    Args:
        state: what `state` gave.
        binaries: shared libraries of the texts of C, one each, as `binaries` named them; None to
            compile the texts.

    Raises:
        CompilerError: the compiler fails.
        LinkError: a binary cannot be loaded here.
        ValueError: the state is of a version that is not known.
    """

    def __init__(self, state: LibraryState, binaries: Sequence[Path] | None = None) -> None:
        if state["version"] != 1:
            raise ValueError(f"kernel library: expected version 1, got {state['version']}")
        self._sources = list(state["sources"])
        self._states = dict(state["functions"])
        self._kernels: dict[str, Kernel] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        self._binaries: Sequence[Path | bytes] | None = None
        self._load(binaries)

    @classmethod
    def of_kernels(cls, kernels: Sequence[Kernel], sources: list[SourceState]) -> KernelLibrary:
        """The library of functions in normal form.  Those that are in no text of C are Python."""
        library = cls.__new__(cls)
        library._sources = sources
        library._kernels = {kernel.name: kernel for kernel in kernels}
        library._states = {kernel.name: _state_of(kernel) for kernel in kernels}
        library._functions = {}
        library._binaries = None
        library._load(None)
        return library

    def _load(self, binaries: Sequence[Path] | None) -> None:
        if binaries is not None:
            self._open(binaries)
        elif self._sources and compiler() is None:
            _warn_no_compiler([name for source in self._sources for name in source["names"]])
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
        """What `KernelLibrary` makes an equal library of."""
        for name in self._states:
            self.python_source(name)
        return {"version": 1, "sources": self._sources, "functions": self._states}

    @property
    def binaries(self) -> Sequence[Path | bytes]:
        """The texts of C as shared libraries for any machine of the platform, as paths or as their
        content; none where Python runs.  They are compiled when they are first asked for: what runs
        here is for this machine."""
        if self._binaries is None:
            self._binaries = libraries_of(self._sources)
        return self._binaries

    @binaries.setter
    def binaries(self, binaries: Sequence[Path | bytes]) -> None:
        self._binaries = binaries

    @property
    def c_sources(self) -> list[str]:
        """The texts of C; none where everything is Python."""
        return [source["text"] for source in self._sources]

    def __reduce__(self) -> tuple[Any, ...]:
        return KernelLibrary, (self.state(),)

    def python_source(self, name: str) -> str:
        """A function as Python."""
        state = self._states[name]
        if not state["python"]:
            state["python"] = python_source(self._kernels[name])
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


def _state_of(kernel: Kernel) -> FunctionState:
    writes = [i for i, p in enumerate(kernel.params) if p.written]
    return {"symbol": symbol_of(kernel.name), "writes": writes, "python": ""}


def build_prim_funcs(funcs: Mapping[str, PrimFunc], *, prefer: Backend = "c") -> KernelLibrary:
    """Make callables of functions.

    Args:
        funcs: the functions by name.
        prefer: "c" for C, if there is a compiler, "python" for Python.

    Raises:
        ValueError, NotImplementedError: a function cannot be lowered; the message names it.
        CompilerError: the compiler fails.
    """
    if prefer not in ("c", "python"):
        raise ValueError(f"build_prim_funcs: prefer: expected 'c' or 'python', got {prefer!r}")
    kernels = [normalize(func, name) for name, func in funcs.items()]
    sources: list[SourceState] = []
    if prefer == "c" and kernels:
        if compiler() is None:
            _warn_no_compiler([kernel.name for kernel in kernels])
        else:
            sources = _sources_of(kernels)
    return KernelLibrary.of_kernels(kernels, sources)


def compile_prim_func(
    func: PrimFunc, name: str | None = None, *, prefer: Backend = "c"
) -> Callable[..., Any]:
    """One function as a callable; see `build_prim_funcs`."""
    if name is None:
        name = str(func.attrs.get("global_symbol", "main"))
    return build_prim_funcs({name: func}, prefer=prefer)[name]


def _sources_of(kernels: Sequence[Kernel]) -> list[SourceState]:
    sources: list[SourceState] = []
    for start in range(0, len(kernels), CHUNK):
        chunk = kernels[start : start + CHUNK]
        try:
            text = c_source(chunk)
        except NotImplementedError:
            chunk = _those_with_c(chunk)
            if not chunk:
                continue
            text = c_source(chunk)
        sources.append({"text": text, "names": [kernel.name for kernel in chunk]})
    return sources


def _those_with_c(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Those that there is C for; of the others a warning says that they are Python."""
    found = []
    for kernel in kernels:
        try:
            c_source([kernel])
        except NotImplementedError as reason:
            warnings.warn(f"{reason}; it runs as Python", RelaxVMWarning, stacklevel=5)
        else:
            found.append(kernel)
    return found


def _warn_no_compiler(names: Sequence[str]) -> None:
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    warnings.warn(
        f"{why_no_compiler()}; {listed} will run as Python, which is slower",
        RelaxVMWarning,
        stacklevel=4,
    )


def load_python(text: str) -> Callable[..., Any]:
    """The function that a text of `python_source` defines."""
    names = namespace()
    exec(compile(text, "<kernel>", "exec"), names)
    function: Any = names["function"]
    function.source = text
    loaded: Callable[..., Any] = function
    return loaded
