"""PrimFuncs as callables: compiled from C where there is a compiler, else Python."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal, TypedDict

from ..errors import RelaxVMWarning
from ..toolchain import compile_c, compiler, load_function
from .function import PrimFunc
from .lower_c import c_source, symbol_of
from .lower_python import python_source
from .normalize import Kernel, normalize
from .python_runtime import namespace

__all__ = ["KernelLibrary", "build_prim_funcs", "compile_prim_func"]

CHUNK: Final = 16
"""Functions in one text of C.  Texts are compiled side by side."""

Backend = Literal["c", "python"]


class _FunctionState(TypedDict):
    symbol: str
    writes: list[int]
    python: str


class LibraryState(TypedDict):
    """What a library is made from, in plain values for JSON."""

    version: int
    sources: list[dict[str, Any]]
    functions: dict[str, _FunctionState]


class KernelLibrary(Mapping[str, Callable[..., Any]]):
    """The functions of a module, by name, as callables that take tensors and scalars.

    Attributes:
        c_sources: texts of C, each with the names of its functions; empty where Python runs.
    """

    def __init__(self, state: LibraryState) -> None:
        """Make callables of what `state` gave; compiles unless the cache has it.

        Raises:
            CompilerError: the compiler fails.
        """
        self._state = state
        self._functions: dict[str, Callable[..., Any]] = {}
        self.c_sources = [(s["text"], tuple(s["names"])) for s in state["sources"]]
        if self.c_sources and compiler() is None:
            _warn_no_compiler([name for _, names in self.c_sources for name in names])
            self.c_sources = []
        self._load_native()
        for name, function in state["functions"].items():
            if name not in self._functions:
                self._functions[name] = load_python(function["python"])

    def _load_native(self) -> None:
        if not self.c_sources:
            return
        if len(self.c_sources) == 1:
            paths = [_compile(*self.c_sources[0])]
        else:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                paths = list(pool.map(lambda source: _compile(*source), self.c_sources))
        for (_, names), path in zip(self.c_sources, paths, strict=True):
            for name in names:
                function = self._state["functions"][name]
                self._functions[name] = load_function(
                    path, function["symbol"], name=name, writes=function["writes"]
                )

    def state(self) -> LibraryState:
        """What `KernelLibrary` makes an equal library of, also on another machine."""
        return self._state

    def python_source(self, name: str) -> str:
        """The function as Python."""
        return self._state["functions"][name]["python"]

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __repr__(self) -> str:
        how = "C" if self.c_sources else "Python"
        return f"<KernelLibrary of {len(self)} functions in {how}>"


def build_prim_funcs(funcs: Mapping[str, PrimFunc], *, prefer: Backend = "c") -> KernelLibrary:
    """Make callables of functions.

    Args:
        funcs: the functions by name.
        prefer: "c" for C, if there is a compiler, "python" for Python.

    Raises:
        ValueError, NotImplementedError: a function cannot be lowered; the message names it.
        CompilerError: the compiler fails.
    """
    kernels = [normalize(func, name) for name, func in funcs.items()]
    sources: list[dict[str, Any]] = []
    if prefer == "c" and kernels:
        if compiler() is None:
            _warn_no_compiler([kernel.name for kernel in kernels])
        else:
            sources = [
                {"text": c_source(chunk), "names": [kernel.name for kernel in chunk]}
                for chunk in _chunks(_with_c(kernels))
            ]
    functions: dict[str, _FunctionState] = {
        kernel.name: {
            "symbol": symbol_of(kernel.name),
            "writes": [i for i, p in enumerate(kernel.params) if p.written],
            "python": python_source(kernel),
        }
        for kernel in kernels
    }
    return KernelLibrary({"version": 1, "sources": sources, "functions": functions})


def compile_prim_func(
    func: PrimFunc, name: str | None = None, *, prefer: Backend = "c"
) -> Callable[..., Any]:
    """One function as a callable; see `build_prim_funcs`."""
    if name is None:
        name = str(func.attrs.get("global_symbol", "main"))
    return build_prim_funcs({name: func}, prefer=prefer)[name]


def _with_c(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Those that there is C for; of the others a warning says that they are Python."""
    found = []
    for kernel in kernels:
        try:
            c_source([kernel])
        except NotImplementedError as reason:
            warnings.warn(f"{reason}; it runs as Python", RelaxVMWarning, stacklevel=4)
        else:
            found.append(kernel)
    return found


def _chunks(kernels: Sequence[Kernel]) -> list[Sequence[Kernel]]:
    return [kernels[i : i + CHUNK] for i in range(0, len(kernels), CHUNK)]


def _compile(text: str, names: Sequence[str]) -> Any:
    return compile_c(text, name="kernels" if len(names) > 1 else symbol_of(names[0])[:64])


def _warn_no_compiler(names: Sequence[str]) -> None:
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    warnings.warn(
        f"there is no C compiler: {listed} will run as Python, which is slower; install cc or set "
        "CC",
        RelaxVMWarning,
        stacklevel=4,
    )


def load_python(text: str) -> Callable[..., Any]:
    """The function that a text of `python_source` defines."""
    names = namespace()
    exec(compile(text, "<kernel>", "exec"), names)
    function: Callable[..., Any] = names["function"]
    function.source = text  # type: ignore[attr-defined]
    return function
