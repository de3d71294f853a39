"""Checkpoints: a run is saved again and again to one file while it goes on."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, Final

from ...errors import CheckpointWarning, UnsavableError
from ...messages import describe

__all__ = ["DEFAULT_INTERVAL", "Checkpoints"]

DEFAULT_INTERVAL: Final = 60.0
"""Seconds."""

_AGAIN: Final = 0.001
"""Seconds until a run that was not in progress is interrupted again."""


class Checkpoints:
    """When a run is saved, and where to.

    The run is interrupted by a thread that waits, so the run itself looks at no clock.

    Args:
        path: the file, which is replaced each time.
        every: seconds between the end of one checkpoint and the beginning of the next one.

    Raises:
        ValueError: `every` is no positive number.
        TypeError: `path` is no path.
    """

    def __init__(self, path: str | os.PathLike[str], every: float | None = None) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"checkpoint: expected the path of a file, got {describe(path)}")
        interval = DEFAULT_INTERVAL if every is None else every
        is_number = isinstance(interval, (int, float)) and not isinstance(interval, bool)
        if not is_number or not 0 < interval <= threading.TIMEOUT_MAX:
            raise ValueError(f"every: expected a number of seconds above 0, got {interval!r}")
        self.path = os.fspath(path)
        self.every = float(interval)
        self._next = time.monotonic() + self.every
        self._failure = ""

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next checkpoint."""
        return time.monotonic() >= self._next

    def watch(self, interrupt: Callable[[], bool]) -> threading.Event:
        """Start a thread that interrupts the run when the next checkpoint is due.

        Args:
            interrupt: interrupts the run; returns whether it is in progress.

        Returns:
            What ends the thread when it is set.
        """
        over = threading.Event()

        def wait() -> None:
            if over.wait(max(0.0, self._next - time.monotonic())):
                return
            while not interrupt() and not over.wait(_AGAIN):
                pass  # it was not in progress yet

        threading.Thread(target=wait, name="relaxvm checkpoints", daemon=True).start()
        return over

    def write(self, save: Callable[[str], Any]) -> None:
        """Write a checkpoint, or warn that it could not be written."""
        try:
            save(self.path)
        except (OSError, MemoryError, UnsavableError) as error:
            message = f"{self.path}: no checkpoint was written: {type(error).__name__}: {error}"
            if message != self._failure:  # the same one again says nothing new
                warnings.warn(message, CheckpointWarning, stacklevel=2)
            self._failure = message
        else:
            self._failure = ""
        self._next = time.monotonic() + self.every
