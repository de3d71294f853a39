"""Child processes of tests: none outlives its test, and deadlines allow for a busy machine.

Tests start processes with `run` and `start`, never with `subprocess` itself; ``test_children.py``
checks that.  Every process has its own process group, which is killed however the test ends.
Processes that leave their group are found and killed at the end of the run: see `left_behind`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, CalledProcessError, CompletedProcess, Popen, TimeoutExpired
from typing import Any

__all__ = ["DEADLINE", "PIPE", "CalledProcessError", "CompletedProcess", "Popen",
           "TimeoutExpired", "ends", "left_behind", "run", "run_script", "start",
           "take_signals"]  # fmt: skip

DEADLINE = float(os.environ.get("RELAXVM_TEST_DEADLINE", "1800"))
"""Seconds after which a process counts as hung: a hundred times the time of the slowest one."""

MARK = "RELAXVM_TEST_RUN"
"""Environment variable with the process id of the test run, set for all its processes."""


def take_signals() -> None:
    """Make SIGINT, SIGTERM and SIGHUP raise `KeyboardInterrupt`, so that this run cleans up.

    A background job of a script inherits an ignored SIGINT, and so do its children; tests need the
    signal.  An ignored SIGHUP (``nohup``) stays ignored.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.default_int_handler)


@contextlib.contextmanager
def start(command: Any, **options: Any) -> Iterator[Popen[Any]]:
    """Start a process; when the block ends, kill it and its process group.

    Args:
        command, options: as for `subprocess.Popen`.
    """
    with Popen(command, start_new_session=True, **options) as process:
        try:
            _bound(process)
            yield process
        finally:
            _kill_group(process)


def run(
    command: Any,
    *,
    input: Any = None,  # noqa: A002 (the name that subprocess.run has)
    capture_output: bool = False,
    check: bool = False,
    **options: Any,
) -> CompletedProcess[Any]:
    """Run a command and wait until it ends.

    Args:
        command, input, capture_output, check, options: as for `subprocess.run`.

    Raises:
        TimeoutExpired: it took longer than `DEADLINE`.
        CalledProcessError: with `check`, it failed; a note has its stderr.
    """
    if input is not None:
        options["stdin"] = PIPE
    if capture_output:
        options |= {"stdout": PIPE, "stderr": PIPE}
    with start(command, **options) as process:
        out, err = process.communicate(input, timeout=DEADLINE)
    done = CompletedProcess(command, process.returncode, out, err)
    if check and done.returncode != 0:
        error = CalledProcessError(done.returncode, command, out, err)
        error.add_note(err if isinstance(err, str) else (err or b"").decode(errors="replace"))
        raise error
    return done


def run_script(script: str, *args: object, **env: str) -> str:
    """Run a script in a process that has the installed package, and return its output.

    Args:
        args: arguments of the script.
        env: further environment variables.
    """
    command = [sys.executable, "-P", "-c", script, *map(str, args)]
    environment = {**os.environ, **env}
    done = run(command, capture_output=True, text=True, check=True, env=environment)
    return str(done.stdout)


def _bound(process: Popen[Any]) -> None:
    """Limit the processor time of a process, so that it ends even if the test run was killed."""
    if sys.platform == "linux":
        import resource

        seconds = int(DEADLINE)
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (seconds, seconds))


def _kill_group(process: Popen[Any]) -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS, for zombies
            os.killpg(process.pid, signal.SIGKILL)


def ends(pid: int, seconds: float = DEADLINE) -> bool:
    """Wait for a process; return whether it ends in time. A zombie has ended."""
    end = time.monotonic() + seconds
    while _state(pid) not in (None, "Z"):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def left_behind(seconds: float = 30.0) -> dict[int, str]:
    """Kill the processes of this test run that are still alive after a time.

    These are the children of this process and all processes with its `MARK`.

    Returns:
        process id -> description; empty where there is no ``/proc``.
    """
    found: dict[int, str] = {}
    end = time.monotonic() + seconds  # a killed process takes a moment to end
    while (found := _processes()) and time.monotonic() < end:
        time.sleep(0.05)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def _processes() -> dict[int, str]:
    mark = f"{MARK}={os.getpid()}".encode()
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        state = _state(pid)
        if pid == os.getpid() or state in (None, "Z"):
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            environment = (entry / "environ").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:  # it has ended, or belongs to another user
            continue
        if parent != os.getpid() and mark not in environment:
            continue
        command = b" ".join(words).decode(errors="replace").strip()
        if "multiprocessing.resource_tracker" in command:  # ends with the interpreter
            continue
        test = next((e for e in environment if e.startswith(b"PYTEST_CURRENT_TEST=")), b"")
        found[pid] = f"{command[:200]} ({test.decode(errors='replace').partition('=')[2]})"
    return found


def _state(pid: int) -> str | None:
    """Return the state of a process, a letter, from /proc; None if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
