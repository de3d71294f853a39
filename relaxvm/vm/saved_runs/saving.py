"""A paused run to a file: what `relaxvm.vm.Run.save` does."""

from __future__ import annotations

import os
import threading
from typing import IO, TYPE_CHECKING

from ...errors import RelaxVMError
from ...executable.formats._files import replacing, write_all
from .layout import FrameRecord, RunRecord
from .programs import program_of
from .writer import encode

if TYPE_CHECKING:
    from ..runs import Run

__all__ = ["save"]


def save(run: Run, target: str | os.PathLike[str] | IO[bytes]) -> None:
    """See `relaxvm.vm.Run.save`."""
    if not isinstance(target, (str, os.PathLike)) and not hasattr(target, "write"):
        raise TypeError(f"save: expected a path or a file to write, got {type(target).__name__}")
    # Between two parts of going on, it is not running for a moment.
    if run._is_running or run._thread not in (0, threading.get_ident()):
        raise RelaxVMError(_in_progress(run))
    if run.done:
        raise RelaxVMError("the run has ended: there is nothing to save but its result")
    vm = run.vm
    program = program_of(vm.executable)
    found = run.some_frames(0, run.depth)
    frames = [FrameRecord(*frame) for frame in run._frames(0, run.depth)]
    names = [
        {register: name for name, register in frame.register_of.items()} for frame in found
    ]
    fuel, wall_ns = run._used
    record = RunRecord(
        program.digest, run.index, int(run._has_begun), run.position, fuel, wall_ns
    )
    pieces = encode(
        vm, program, record, frames[::-1], names[::-1], dict(vm.state), dict(vm._rooms)
    )
    head = next(pieces)  # what cannot be saved is refused here, before there is a file
    if isinstance(target, (str, os.PathLike)):
        with replacing(target) as file:
            write_all(file, [head])
            write_all(file, pieces)
    else:
        write_all(target, [head])
        write_all(target, pieces)


def _in_progress(run: Run) -> str:
    if run._thread == threading.get_ident():
        return ("the run is in progress: the function that saves it is one that it has called, and "
                "a Python function on the stack cannot be saved; suspend(wait=False) pauses it "
                "when the function has returned")
    return "the run is in progress in another thread; suspend() pauses it"
