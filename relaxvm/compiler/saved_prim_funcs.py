"""Kernels from the PrimFuncs in a file: read, checked and compiled as when a program is built.

`relaxvm.hooks` leads from the runtime to here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ..errors import FormatError, RelaxVMError
from ..executable.prim_funcs import MadeKernel, PrimFuncFacts, SavedPrimFuncs
from ..ir.json import load_json
from ..ir.nesting import headroom
from ..limits import Limits
from ..native.kernel_library import KernelLibrary
from ..tir import PrimFunc
from ..tir.build import Backend, build_kernels
from ..tir.c_prelude import bits_of
from ..tir.lower_c import static_size, unproved_in_c
from ..tir.lower_python import unproved_in_python
from ..tir.normalize import Kernel
from ..tir.reassociate import kernel_of
from ..vm.limited import run_limited

__all__ = ["check_all", "library_of", "make_kernels"]

_REFUSED = (TypeError, ValueError, NotImplementedError, LookupError, ArithmeticError,
            AttributeError, AssertionError, RecursionError)  # fmt: skip
"""What the lowering raises for a function that it cannot lower."""


class _Read(NamedTuple):
    """A function that was read and checked."""

    func: PrimFunc
    kernel: Kernel
    facts: PrimFuncFacts


def make_kernels(
    saved: SavedPrimFuncs, names: Sequence[str], limits: Limits | None, counted: bool
) -> dict[str, MadeKernel]:
    """Make kernels of functions of a file.

    Args:
        saved: the functions.
        names: those to make kernels of.
        limits: bounds of the work, and on the functions.
        counted: whether the memory of local buffers must count: kernels whose local buffers depend
            on arguments then run as Python.

    Raises:
        FormatError: a function is malformed, or cannot be lowered; the message says where it is.
        LimitError: a limit is exceeded.
        CompilerError: the C compiler fails.
    """

    def work() -> dict[str, MadeKernel]:
        read = {name: _read(saved, name, limits) for name in names}
        in_python = {name for name in names if counted and read[name].facts.grows}
        made = {}
        choices: tuple[tuple[Backend, Collection[str]], ...] = (
            ("c", read.keys() - in_python), ("python", in_python)
        )  # fmt: skip
        for prefer, chosen in choices:
            functions = {name: read[name] for name in names if name in chosen}
            library = _library(saved, functions, prefer)
            for name, backend in library.backends.items():
                made[name] = MadeKernel(library[name], backend, read[name].facts)
        return made

    return run_limited(work, limits, saved.source)


def check_all(saved: SavedPrimFuncs, limits: Limits | None) -> None:
    """Check all functions of a file, and make no kernels.  Errors are those of `make_kernels`."""

    def work() -> None:
        for name in saved:
            _read(saved, name, limits)

    run_limited(work, limits, saved.source)


def library_of(saved: SavedPrimFuncs) -> KernelLibrary:
    """Return all functions of a file as a library.  Errors are those of `make_kernels`."""
    return _library(saved, {name: _read(saved, name, None) for name in saved}, "c")


def _read(saved: SavedPrimFuncs, name: str, limits: Limits | None) -> _Read:
    place = saved.place(name)
    with _at(place):
        func = load_json(saved.texts[name], limits=limits)
        if not isinstance(func, PrimFunc):
            raise FormatError(f"expected a PrimFunc, got {type(func).__name__}")
        with headroom(place, func):
            kernel = kernel_of(func, name)
            facts = _facts_of(kernel)
    if limits is not None:
        # `run_limited` adds the file to errors of limits.
        facts.check(limits, place.removeprefix(f"{saved.source}: "))
    return _Read(func, kernel, facts)


def _facts_of(kernel: Kernel) -> PrimFuncFacts:
    """Return what is known about a function before it runs."""
    try:
        unproved = unproved_in_c(kernel)
    except NotImplementedError:  # then it runs as Python
        unproved = unproved_in_python(kernel)
    sizes = [static_size(buffer) for buffer in kernel.allocs]
    widths = [math.ceil(bits_of(buffer.ty.dtype) / 8) for buffer in kernel.allocs]
    return PrimFuncFacts(
        tuple(unproved),
        tuple(None if n is None else n * w for n, w in zip(sizes, widths, strict=True)),
    )


def _library(saved: SavedPrimFuncs, read: dict[str, _Read], prefer: Backend) -> KernelLibrary:
    place = f"{saved.source}: PrimFuncs {', '.join(map(repr, read))}"
    kernels = [function.kernel for function in read.values()]
    texts = {name: saved.texts[name] for name in read}
    with _at(place), headroom(place, *(function.func for function in read.values())):
        return build_kernels(kernels, prefer, lambda: texts)


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Context manager: errors about a function name its place in the file."""
    try:
        yield
    except FormatError as error:
        raise FormatError(f"{place}: {error}") from None
    except RelaxVMError as error:
        error.add_note(f"in {place}")
        raise
    except _REFUSED as error:
        raise FormatError(f"{place}: {error}") from error
