"""Whether a machine can be where the frames of a saved run say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import FormatError
from ...isa import FuncKind
from ...messages import readable
from .layout import FrameRecord, RunRecord

if TYPE_CHECKING:
    from ..machine import VirtualMachine

__all__ = ["check_frames"]


def check_frames(vm: VirtualMachine, run: RunRecord, frames: Sequence[FrameRecord]) -> None:
    """Check that a run of the machine can go on from these frames.

    Every pc is a place where runs pause, or a call that has pushed a frame, and every frame has the
    registers of its function.  What is in registers is not checked against what the instructions
    expect: every operation looks at its operands when it runs.

    Raises:
        FormatError: it cannot.
        LimitError: there are too many frames.
    """
    table = vm.executable.functions
    if not frames:
        raise FormatError("a run has at least one frame")
    vm.limits.check("call_depth", len(frames), "frames")
    if not 0 <= run.function < len(table) or table[run.function].kind == FuncKind.PACKED:
        raise FormatError(f"there is no function {run.function} that can be started")
    for number, frame in enumerate(frames):
        if not 0 <= frame.function < len(table) or table[frame.function].kind == FuncKind.PACKED:
            raise FormatError(f"frame {number}: there is no function {frame.function} with code")
        name = readable(table[frame.function].name)
        is_call = number + 1 < len(frames)
        can, registers, start = vm._can_resume(frame.function, frame.pc, is_call)
        if not can:
            what = "no call that a frame returns to" if is_call else "no place where a run pauses"
            raise FormatError(f"frame {number}: pc {frame.pc} of {name} is {what}")
        if len(frame.registers) != registers:
            raise FormatError(f"frame {number}: {name} has {registers} registers, got "
                              f"{len(frame.registers)}")  # fmt: skip
    if run.begun not in (0, 1) or min(run.position, run.fuel_used, run.wall_used_ns) < 0:
        raise FormatError("expected counts of at least 0")
    if not run.begun and (run.position or len(frames) > 1 or frames[0].function != run.function
                          or frames[0].pc != start):  # fmt: skip
        raise FormatError("a run that has not begun is at the first instruction of its function")

