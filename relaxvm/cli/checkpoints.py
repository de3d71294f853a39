"""Runs with checkpoints: saved now and then, and when the command is told to stop."""

from __future__ import annotations

import contextlib
import shlex
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import FormatError, SuspendedError
from .console import Console
from .exits import CommandError, Exit, UsageError, read_error, write_error
from .machines import running

if TYPE_CHECKING:
    from ..vm import Run, VirtualMachine

__all__ = ["checked_interval", "checkpointed", "resumed"]


def checked_interval(every: float | None) -> float | None:
    """Return the value of ``--every``.

    Raises:
        UsageError: it is no time.
    """
    if every is not None and not 0 < every <= threading.TIMEOUT_MAX:
        raise UsageError(f"--every: expected seconds above 0, got {every:g}")
    return every


def resumed(vm: VirtualMachine, source: str, path: str, every: float | None) -> Run:
    """Load a run that was saved, with checkpoints from now on.

    Raises:
        CommandError: the file cannot be read, or is none of this program.
    """
    from ..vm.saved_runs.loading import load_run

    try:
        return load_run(source, vm, checkpoint=path, every=every)
    except OSError as error:
        raise read_error(source, error) from error
    except FormatError as error:
        raise CommandError(str(error), Exit.MALFORMED) from error


def checkpointed(run: Run, path: str, program: str, console: Console) -> Any:
    """Run to the end.  SIGTERM and Ctrl-C save the run and end the command.

    Returns:
        The result.

    Raises:
        CommandError: the program has failed, or the command was told to stop.
    """
    name = run.function
    with _stopping(run) as stopped, console.progress(f"running {name}"):
        try:
            with running(name):
                try:
                    return run.result()
                except SuspendedError:
                    pass  # not an error of the program
        finally:
            if stopped and not run.done:
                _save(run, path)
    command = f"relaxvm resume {shlex.quote(path)} {shlex.quote(program)}"
    raise CommandError(
        f"stopped at instruction {run.position:,}; go on with: {command}", Exit.INTERRUPTED
    )


def _save(run: Run, path: str) -> None:
    try:
        run.save(path)
    except OSError as error:
        raise write_error(path, error) from error


@contextlib.contextmanager
def _stopping(run: Run) -> Iterator[list[int]]:
    """Let signals pause a run; the list has those that did."""
    stopped: list[int] = []

    def stop(number: int, _: object) -> None:
        if stopped:  # the second time it is urgent: the function that it has called takes long
            raise KeyboardInterrupt
        stopped.append(number)
        run.suspend(wait=False)

    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    old = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
