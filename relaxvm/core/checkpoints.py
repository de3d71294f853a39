"""Checkpoints of the compiler, where it notices that a limit is reached.

The compiler is Python code, and nothing interrupts Python code at a safe place.  So walks over
programs call `checkpoint` once per binding, statement, node of a file and so on.  What happens
between two checkpoints is bounded, since the parts of an expression are (`relaxvm.ir.parts`).

`relaxvm.vm.limited` sets the limits; without any, a checkpoint does nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from ..errors import LimitError
from ..limits import Limits
from ._deadlines import check_time

__all__ = [
    "BYTES_PER_BLOCK",
    "check_objects",
    "checkpoint",
    "limited",
    "memory_left",
    "running",
    "time_left",
]

BYTES_PER_BLOCK: Final = 128
"""The bytes of memory for each block that Python's allocator of small objects has handed out.  It
is more than the mean size of a block, to allow for lists and dictionaries, which are larger."""

_PERIOD: Final = 0.05
"""Seconds between two counts of blocks: a count visits each pool of blocks."""

_COUNTS_BLOCKS: Final = sys.getallocatedblocks() > 0
"""False where Python has no allocator of its own for small objects, as with PYTHONMALLOC=malloc."""


def resident_bytes() -> int:
    """Return the memory of the process that is resident, as far as the system says: on Linux what
    it is now, elsewhere on POSIX the most that it has been, else 0."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


class _Compilation:
    """One piece of work under limits."""

    __slots__ = ("_arrays", "_deadline", "_limits", "_next", "_start")

    def __init__(self, limits: Limits, arrays: Callable[[], int]) -> None:
        self._limits = limits
        self._arrays = arrays
        self._start = self._measure()
        self._next = time.monotonic()
        self._deadline = None if limits.wall_time is None else self._next + limits.wall_time

    def time_left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def memory_left(self) -> int | None:
        limit = self._limits.live_bytes
        return None if limit is None else limit - self._objects() - self._arrays()

    def _measure(self) -> int:
        """The bytes of all objects, or something that grows with them."""
        if _COUNTS_BLOCKS:
            return sys.getallocatedblocks() * BYTES_PER_BLOCK
        return resident_bytes() - self._arrays()

    def _objects(self) -> int:
        return max(0, self._measure() - self._start)

    def look(self) -> None:
        """Check the memory, if it was not just done."""
        if self._limits.live_bytes is not None and time.monotonic() >= self._next:
            self.check(0, "its objects")
            self._next = time.monotonic() + _PERIOD

    def check(self, nbytes: int, subject: str) -> None:
        """Check that there is memory for so many bytes more."""
        limit = self._limits.live_bytes
        if limit is None:
            return
        objects, arrays = self._objects(), self._arrays()
        if nbytes + objects + arrays > limit:
            more = f"{nbytes} bytes more: " if nbytes else ""
            raise LimitError(
                f"{subject}: {more}about {objects} bytes of objects and {arrays} of arrays are "
                f"live, the limit is live_bytes={limit}",
                "live_bytes",
            )


_CURRENT: ContextVar[_Compilation | None] = ContextVar("relaxvm_compilation", default=None)
running = 0
"""The number of compilations under limits in this process.  Loops that take less than a microsecond
per turn look at it before they call `checkpoint`."""


@contextmanager
def limited(limits: Limits, arrays: Callable[[], int]) -> Iterator[None]:
    """Context manager: checkpoints check the memory of objects.

    Args:
        limits: `live_bytes` bounds what the process allocates in the meantime.
        arrays: returns the bytes of the arrays that count too.
    """
    global running
    token = _CURRENT.set(_Compilation(limits, arrays))
    running += 1
    try:
        yield
    finally:
        running -= 1
        _CURRENT.reset(token)


def checkpoint() -> None:
    """End the compilation if a limit is reached.

    Raises:
        LimitError: the time is over, or there are too many objects.
    """
    if running:
        check_time()
        current = _CURRENT.get()
        if current is not None:
            current.look()


def check_objects(nbytes: int, subject: str) -> None:
    """Check that there is memory for objects that are made next, in one step.

    Args:
        nbytes: about the bytes that they take.
        subject: what they are for, for the message.

    Raises:
        LimitError: they are above ``Limits.live_bytes``.
    """
    current = _CURRENT.get()
    if current is not None:
        current.check(nbytes, subject)


def time_left() -> float | None:
    """The seconds until the deadline of this compilation; None if there is none."""
    current = _CURRENT.get()
    return None if current is None else current.time_left()


def memory_left() -> int | None:
    """The bytes that this compilation may still allocate; None if there is no limit."""
    current = _CURRENT.get()
    return None if current is None else current.memory_left()
