"""PrimFuncs as callables: compiled C if there is a compiler, otherwise Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from ..errors import LimitError, RelaxVMWarning
from ..ir.json import save_json
from ..limits import Limits
from ..messages import warn
from ..native.c_support import symbol_of
from ..native.kernel_library import FunctionState, KernelLibrary, warn_no_compiler
from ..native.machine_code import SourceState
from ..native.toolchain import compiler
from ..vm.limited import run_limited
from .function import PrimFunc
from .lower_c import c_source
from .lower_python import python_source
from .normalize import Kernel
from .reassociate import asking, check_reassociate, kernel_of

__all__ = ["Backend", "build_kernels", "build_prim_funcs", "compile_prim_func"]

CHUNK: Final = 16
"""The number of functions per C file.  The files of a library are compiled in parallel."""

Backend = Literal["c", "python"]


def _state_of(kernel: Kernel) -> FunctionState:
    writes = [i for i, p in enumerate(kernel.params) if p.written]
    return {"symbol": symbol_of(kernel.name), "writes": writes, "python": ""}


def build_prim_funcs(
    funcs: Mapping[str, PrimFunc],
    *,
    prefer: Backend = "c",
    reassociate: bool = False,
    limits: Limits | None = None,
) -> KernelLibrary:
    """Build callables from functions.

    Args:
        funcs: the functions by name.
        prefer: "c" for C if there is a compiler, "python" for Python.
        reassociate: reductions of floats may be in another order, for speed; see
            `relaxvm.tir.reassociate`.
        limits: bounds of time and memory, as of `relaxvm.build`.

    Raises:
        ValueError, NotImplementedError: a function cannot be lowered; the message names it.
        CompilerError: the C compiler fails.
        LimitError: a limit is reached.
    """
    if prefer not in ("c", "python"):
        raise ValueError(f"build_prim_funcs: prefer: expected 'c' or 'python', got {prefer!r}")
    if check_reassociate(reassociate):
        funcs = {name: asking(func) for name, func in funcs.items()}
    return run_limited(lambda: _build(funcs, prefer), limits, "build_prim_funcs")


def _build(funcs: Mapping[str, PrimFunc], prefer: Backend) -> KernelLibrary:
    kernels = []
    for name, func in funcs.items():
        try:
            kernels.append(kernel_of(func, name))
        except LimitError as error:
            error.add_note(f"in function {name!r}")
            raise
    return build_kernels(kernels, prefer, lambda: _ir_of(funcs))


def _ir_of(funcs: Mapping[str, PrimFunc]) -> dict[str, str]:
    """Return functions as JSON, without places in sources, which no kernel shows."""
    return {name: save_json(func, spans=False) for name, func in funcs.items()}


def build_kernels(
    kernels: Sequence[Kernel],
    prefer: Backend = "c",
    write_ir: Callable[[], Mapping[str, str]] | None = None,
) -> KernelLibrary:
    """Build callables from functions in normal form.

    Args:
        kernels: the functions, whose names are different.
        prefer: "c" for C if there is a compiler, "python" for Python.
        write_ir: returns the functions as JSON, by name, so that they can be saved.

    Raises:
        NotImplementedError: a function can be written neither in C nor in Python.
        CompilerError: the C compiler fails.
    """
    sources: list[SourceState] = []
    if prefer == "c" and kernels:
        if compiler() is None:
            warn_no_compiler([kernel.name for kernel in kernels])
        else:
            sources = _sources_of(kernels)
    by_name = {kernel.name: kernel for kernel in kernels}
    states = {name: _state_of(kernel) for name, kernel in by_name.items()}
    return KernelLibrary.of_texts(
        states, sources, lambda name: python_source(by_name[name]), write_ir
    )


def compile_prim_func(
    func: PrimFunc,
    name: str | None = None,
    *,
    prefer: Backend = "c",
    reassociate: bool = False,
    limits: Limits | None = None,
) -> Callable[..., Any]:
    """Build a callable from one function; see `build_prim_funcs`."""
    if name is None:
        name = str(func.attrs.get("global_symbol", "main"))
    library = build_prim_funcs(
        {name: func}, prefer=prefer, reassociate=reassociate, limits=limits
    )
    return library[name]


def _sources_of(kernels: Sequence[Kernel]) -> list[SourceState]:
    sources: list[SourceState] = []
    for start in range(0, len(kernels), CHUNK):
        chunk = kernels[start : start + CHUNK]
        try:
            text = c_source(chunk)
        except NotImplementedError:
            chunk = _kernels_in_c(chunk)
            if not chunk:
                continue
            text = c_source(chunk)
        sources.append({"text": text, "names": [kernel.name for kernel in chunk]})
    return sources


def _kernels_in_c(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The kernels that can be written in C; warns that the others run as Python."""
    found = []
    for kernel in kernels:
        try:
            c_source([kernel])
        except NotImplementedError as reason:
            warn(f"{reason}; it runs as Python", RelaxVMWarning)
        else:
            found.append(kernel)
    return found
