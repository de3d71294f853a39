"""Runs that go on where they have stopped, on whichever machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ...executable import VMExecutable
from ...executable.formats.binary import digest
from ...limits import Limits
from ...vm.machine import VirtualMachine
from ...vm.saved_runs.loading import load_run
from .predictor import Model, executable_of

__all__ = ["checkpoint_name", "run_to_end"]


def run_to_end(
    model: Model,
    *args: Any,
    checkpoints: str | os.PathLike[str],
    every: float = 30.0,
    function: str = "main",
    limits: Limits | None = None,
    functions: Mapping[str, Callable[..., Any]] | Iterable[str] | None = None,
) -> Any:
    """Return the result of a call, and save the run now and then: if the process ends, the next
    call with the same program and arguments goes on where the last saved one was.

    Args:
        model: the path of a file that `relaxvm.VirtualMachine` takes, or an executable.
        args: the arguments: arrays, numbers, text, and tuples of these.
        checkpoints: a folder for the files of runs, for instance one that many machines share.  It
            is made if need be.  The file of a run has the name of what it computes, and is removed
            when there is a result.
        every: seconds between two times that the run is saved.
        function, limits, functions: as for `relaxvm.VirtualMachine`.

    Raises:
        OSError: the folder cannot be made.
        TypeError: an argument is of another kind.
        FormatError: the file of the run is damaged.
        Exception: what the program raises; the file of the run stays.
    """
    executable = executable_of(model, limits)
    vm = VirtualMachine(executable, limits=limits, functions=functions)
    folder = Path(checkpoints)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / checkpoint_name(executable, function, args)
    try:
        run = load_run(path, vm, checkpoint=path, every=every)
    except FileNotFoundError:
        run = vm[function].start(*args, checkpoint=path, every=every)
    result = run.result()
    with suppress(FileNotFoundError):  # another attempt at the same run has ended before
        path.unlink()
    return result


def checkpoint_name(executable: VMExecutable, function: str, args: Sequence[Any]) -> str:
    """The name of the file of a run: of the program, the function and the arguments."""
    found = hashlib.sha256(digest(executable))
    found.update(function.encode() + b"\0")
    _add(found, args)
    return f"{found.hexdigest()[:32]}.ckpt"


def _add(found: Any, value: Any) -> None:
    """Add an argument to a digest; equal bytes are equal arguments."""
    if isinstance(value, (tuple, list)):
        found.update(f"({len(value)}".encode())
        for item in value:
            _add(found, item)
    elif isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        array = np.ascontiguousarray(value)
        found.update(f"a{value.dtype.str}{value.dtype.name}{value.shape}".encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    elif value is None or isinstance(value, (bool, int, float, str, bytes)):
        text = repr(value).encode()
        found.update(f"s{len(text)}".encode() + text)
    else:
        raise TypeError(f"run_to_end: expected arrays, numbers, text, or tuples of these, got "
                        f"{type(value).__name__}")  # fmt: skip
