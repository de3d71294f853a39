"""Python work under the limits of a run: the compiler on programs of unknown origin.

The work is a packed function that a tiny program calls.  So it is a run like any other: the limits
of time hold for the kernels that it calls, and the limits of memory for the arrays that numpy
makes.  `relaxvm.core.checkpoints` counts the objects of Python.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from .._core import Machine
from ..core.checkpoints import limited
from ..errors import LimitError
from ..executable import VMExecutable
from ..executable.exec_builder import ExecBuilder
from ..limits import Limits
from ..values import cpu
from .allocators import NaiveAllocator

__all__ = ["run_limited"]

T = TypeVar("T")


@functools.cache
def _program() -> VMExecutable:
    """A function that calls another one, and returns its result."""
    builder = ExecBuilder()
    with builder.function("main", num_inputs=0):
        builder.emit_call("work", [], dst=builder.r(0))
        builder.emit_ret(builder.r(0))
    return builder.get()


class _Worker(Machine):
    """Runs the program; errors leave it as they are, without notes on its instructions."""

    def __init__(self, work: Callable[[], Any], limits: Limits, allocator: NaiveAllocator) -> None:
        program = _program()
        functions = [work if info.name == "work" else None for info in program.functions]
        quick = [None] * len(functions)
        self._setup(program, functions, quick, (allocator,), limits)
        self.run = self._function(functions.index(None))

    def _on_error(self, exc: BaseException, frames: Any, total: int) -> None:
        pass


def run_limited(work: Callable[[], T], limits: Limits | None, subject: str) -> T:
    """Return the result of a function that compiles, parses or reads a program.

    Args:
        work: the function.
        limits: bounds of its time and memory (`wall_time`, `live_bytes`, `alloc_bytes`); None for
            those of an outer call.
        subject: what it does, for messages.

    Raises:
        TypeError: `limits` is not a `Limits`.
        LimitError: a limit is reached.
    """
    if limits is None:
        return work()
    if not isinstance(limits, Limits):
        raise TypeError(f"{subject}: limits: expected relaxvm.Limits, got {type(limits).__name__}")
    allocator = NaiveAllocator(cpu(), live_bytes=limits.live_bytes, alloc_bytes=limits.alloc_bytes)
    bounds = Limits(
        wall_time=limits.wall_time, live_bytes=limits.live_bytes, alloc_bytes=limits.alloc_bytes
    )
    failed: list[MemoryError] = []

    def guarded() -> T:
        with limited(limits, lambda: allocator.stats()["live_bytes"]):
            try:
                return work()
            except MemoryError as error:  # an array was refused: the machine says by which limit
                failed.append(error)
                raise

    try:
        result: T = _Worker(guarded, bounds, allocator).run()
    except LimitError as error:
        if error.limit:
            error.args = (f"{subject}: {error}",)
        for refused in failed:
            for note in getattr(refused, "__notes__", ()):
                error.add_note(note)
        raise
    return result
