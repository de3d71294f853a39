"""Native code of a virtual machine: of the compiled mode, and compiled while it runs.

Both forms have one code generator, `relaxvm.native.vm_code`, which works on the code that the core
runs.  Where there is no compiler, or it fails, the functions run as bytecode, with equal results.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ..errors import RelaxVMError, RelaxVMWarning
from ..executable import VMExecutable
from ..limits import Limits

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
        self._lock = threading.Lock()
        self._compiled: set[int] = set()
        self._sources: list[str] = []
        self._waiting: set[int] = set()
        self._idle = threading.Event()
        self._idle.set()

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
            warnings.warn(
                f"{self.problem}; the functions of this program run as bytecode",
                RelaxVMWarning, stacklevel=4,
            )  # fmt: skip

    def compile_soon(self, index: int) -> None:
        """Compile a function, and those that it calls, in the background."""
        with self._lock:
            if index in self._compiled or self.problem is not None:
                return
            self._waiting.add(index)
            if not self._idle.is_set():
                return
            self._idle.clear()
        try:
            threading.Thread(target=self._work, name="relaxvm-compiler", daemon=True).start()
        except RuntimeError as error:  # there are too many, or the interpreter ends
            self.problem = f"cannot compile in the background: {error}"
            self._idle.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is compiled in the background; return whether that was in time.

        Args:
            timeout: seconds to wait at most.
        """
        return self._idle.wait(timeout)

    def _work(self) -> None:
        while True:
            with self._lock:
                waiting = self._waiting - self._compiled
                self._waiting.clear()
                if not waiting or self.problem is not None:
                    self._idle.set()
                    return
            self._compile(waiting)

    def _compile(self, indices: Iterable[int] | None) -> None:
        try:
            program = self._executable.native_program(self._image, indices, timeout=self._timeout)
            if program is None:
                return
            program.attach(self._image)
        except (RelaxVMError, OSError) as error:
            self.problem = f"{error}".partition("\n")[0]
            return
        self._sources.append(program.source)
        self._compiled.update(program.indices)

    def __repr__(self) -> str:
        if self.problem is not None:
            return f"<NativeCode: none, {self.problem}>"
        return f"<NativeCode of {len(self._compiled)} functions>"
