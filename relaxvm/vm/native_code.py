"""Native code of a virtual machine: of the compiled mode, and compiled while it runs.

Both forms have one code generator, `relaxvm.native.vm_code`, which works on the code that the core
runs.  Where there is no compiler, or it fails, the functions run as bytecode, with equal results.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ..errors import RelaxVMError, RelaxVMWarning
from ..executable import VMExecutable
from ..limits import Limits
from ..messages import warn

if TYPE_CHECKING:
    from ..core._code import Image

__all__ = ["HOT", "NativeCode"]

HOT: Final = 10_000
"""How often a function or one of its loops begins before it is compiled while it runs."""

_TIMEOUT: Final = 60.0
"""Seconds for the compiler ..."""
_LIMITED_TIMEOUT: Final = 10.0
"""... and where runs have a limit `wall_time`."""


class NativeCode:
    """The native code of a virtual machine: ``vm.native_code``.

    Attributes:
        problem: why functions that were to be compiled run as bytecode; None if there is no reason.
    """

    def __init__(self, executable: VMExecutable, image: Image, limits: Limits) -> None:
        self.problem: str | None = None
        self._executable = executable
        self._image = image
        self._timeout = _TIMEOUT if limits.wall_time is None else _LIMITED_TIMEOUT
        self._compiled: set[int] = set()
        self._sources: list[str] = []
        self._waiting: set[int] = set()
        self._is_working = False
        self._changed = threading.Condition(threading.RLock())
        """Guards the two before it, and tells when nothing is compiled any more."""
        _all.add(self)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the functions that have native code, in order of the function table."""
        table = self._executable.functions
        return tuple(table[index].name for index in sorted(self._compiled))

    @property
    def sources(self) -> tuple[str, ...]:
        """The C sources."""
        return tuple(self._sources)

    def compile_all(self) -> None:
        """Compile the functions that gain by it now.  If that fails, warn."""
        self._compile(None)
        if self.problem is not None:
            warn(f"{self.problem}; the functions of this program run as bytecode", RelaxVMWarning)

    def compile_soon(self, index: int) -> None:
        """Compile a function, and those that it calls, in the background."""
        with self._changed:
            if index in self._compiled or self.problem is not None:
                return
            self._waiting.add(index)
            if self._is_working:
                return
            self._is_working = True
        try:
            threading.Thread(target=self._work, name="relaxvm-compiler", daemon=True).start()
        except RuntimeError as error:  # there are too many, or the interpreter ends
            self._stop(f"cannot compile in the background: {error}")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is compiled in the background; return whether that was in time.

        Args:
            timeout: seconds to wait at most.
        """
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_working, timeout)

    def _work(self) -> None:
        problem: str | None = "the compilation in the background was interrupted"
        try:
            while True:
                with self._changed:
                    waiting = self._waiting - self._compiled
                    self._waiting.clear()
                    if not waiting or self.problem is not None:
                        problem = None
                        self._stop(None)
                        return
                self._compile(waiting)
        except Exception as error:  # nobody would see it in a thread
            problem = f"cannot compile in the background: {type(error).__name__}: {error}"
        finally:
            if problem is not None:
                self._stop(problem)

    def _stop(self, problem: str | None) -> None:
        """Nothing is compiled any more."""
        with self._changed:
            self.problem = self.problem or problem
            self._is_working = False
            self._changed.notify_all()

    def _compile(self, indices: Iterable[int] | None) -> None:
        try:
            program = self._executable._native_program(self._image, indices, timeout=self._timeout)
            if program is None:
                return
            program.attach(self._image)
        except (RelaxVMError, OSError) as error:
            self.problem = f"{error}".partition("\n")[0]
            return
        self._sources.append(program.source)
        self._compiled.update(program.indices)

    def _after_fork(self) -> None:
        """In a forked process, where the compiling thread is none: ask again for what it had."""
        self._changed = threading.Condition(threading.RLock())
        if self._is_working:
            self._is_working = False
            self._image.count_entries(HOT)

    def __repr__(self) -> str:
        if self.problem is not None:
            return f"<NativeCode: none, {self.problem}>"
        return f"<NativeCode of {len(self._compiled)} functions>"


_all: Final[weakref.WeakSet[NativeCode]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for code in list(_all):
        code._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
