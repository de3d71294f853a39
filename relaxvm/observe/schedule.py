"""When the dataflow executor runs which call on which thread."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike
from types import TracebackType
from typing import IO, Any

from ..executable.formats.places import place_text
from ..messages import describe
from ..vm.machine import VirtualMachine
from .pictures import Timeline

__all__ = ["Schedule", "ScheduledCall", "schedule"]


@dataclass(frozen=True, slots=True)
class ScheduledCall:
    """A call that ran.

    Attributes:
        pc: of the instruction.
        name: of the function that was called.
        variable: what the call computes in the program's source; empty where that is not known.
        thread: 0 is the one that has called the program.
        start_ns, end_ns: nanoseconds since the first call began.
    """

    pc: int
    name: str
    variable: str
    thread: int
    start_ns: int
    end_ns: int


class Schedule:
    """The calls that a virtual machine with ``executor="dataflow"`` has put off, and when each ran
    on which thread, while the ``with`` block was active; see `schedule`."""

    def __init__(self, vm: VirtualMachine) -> None:
        if not isinstance(vm, VirtualMachine):
            raise TypeError(f"schedule: expected a relaxvm.VirtualMachine, got {describe(vm)}")
        if vm.executor != "dataflow":
            raise ValueError('schedule: the machine runs calls in order; make it with '
                             'executor="dataflow"')
        self._vm = vm
        self._noted: list[tuple[int, int, int, int]] = []

    def __enter__(self) -> Schedule:
        self._vm._note_calls(self._noted)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._vm._note_calls(None)

    @property
    def calls(self) -> tuple[ScheduledCall, ...]:
        """The calls in the order in which they began."""
        executable = self._vm.executable
        debug = executable.debug
        noted = sorted(self._noted, key=lambda call: call[2])
        origin = noted[0][2] if noted else 0
        found = []
        for pc, thread, start, end in noted:
            name = executable.functions[executable.instruction(pc)["func_idx"]].name
            variable = (None if debug is None else debug.variable(pc)) or ""
            found.append(ScheduledCall(pc, name, variable, thread, start - origin, end - origin))
        return tuple(found)

    @property
    def gain(self) -> float:
        """The time of all calls over the time during which at least one ran: 1 in order."""
        busy = total = last = 0
        for call in self.calls:
            total += call.end_ns - call.start_ns
            busy += max(0, call.end_ns - max(last, call.start_ns))
            last = max(last, call.end_ns)
        return total / busy if busy else 1.0

    def timeline(self) -> Timeline:
        """A picture: ``s.timeline().save("schedule.html")`` is one page that needs no network."""
        return Timeline(f"{len(self._noted)} calls, {self.gain:.2f} at once", self.lanes())

    def lanes(self) -> list[tuple[str, list[tuple[float, float, str, str]]]]:
        """The rows of the picture: the name of each thread, and its calls; see `Timeline`."""
        debug = self._vm.executable.debug
        threads: dict[int, list[tuple[float, float, str, str]]] = {0: []}
        for call in self.calls:
            place = "" if debug is None else place_text(debug.location(call.pc))
            label = call.variable or call.name.removeprefix("relaxvm.kernel.")
            title = (f"{call.name}, pc {call.pc}: {(call.end_ns - call.start_ns) / 1000:.1f} us  "
                     f"{place}")  # fmt: skip
            threads.setdefault(call.thread, []).append(
                (call.start_ns / 1000, call.end_ns / 1000, label, title)
            )
        return [(_lane(thread), threads[thread]) for thread in sorted(threads)]

    def chrome_trace(self) -> dict[str, Any]:
        """The calls in the JSON format of Chrome's trace viewer."""
        pid = os.getpid()
        calls = self.calls
        named: list[dict[str, Any]] = [
            {"ph": "M", "name": "thread_name", "pid": pid, "tid": thread,
             "args": {"name": _lane(thread)}}
            for thread in sorted({call.thread for call in calls})
        ]  # fmt: skip
        return {
            "displayTimeUnit": "ns",
            "otherData": {"producer": "relaxvm", "gain": self.gain},
            "traceEvents": named + [
                {"ph": "X", "name": call.name, "cat": "kernel", "pid": pid, "tid": call.thread,
                 "ts": call.start_ns / 1000, "dur": (call.end_ns - call.start_ns) / 1000,
                 "args": {"pc": call.pc, "variable": call.variable}}
                for call in calls
            ],
        }  # fmt: skip

    def save_chrome_trace(self, target: str | PathLike[str] | IO[bytes]) -> None:
        """Write `chrome_trace` to a path or a binary file; https://ui.perfetto.dev opens it."""
        with ExitStack() as stack:
            if isinstance(target, (str, PathLike)):
                target = stack.enter_context(open(target, "wb"))
            target.write(json.dumps(self.chrome_trace()).encode())

    def __str__(self) -> str:
        lines = [f"{len(self._noted)} calls, {self.gain:.2f} at once",
                 "  start us    end us  thread  call"]  # fmt: skip
        lines += [
            f"{call.start_ns / 1000:10.1f}{call.end_ns / 1000:10.1f}{call.thread:8}  {call.name}"
            f"{f' ({call.variable})' if call.variable else ''}, pc {call.pc}"
            for call in self.calls
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<relaxvm schedule: {len(self._noted)} calls, {self.gain:.2f} at once>"


def _lane(thread: int) -> str:
    return "the caller's thread" if thread == 0 else f"thread {thread} of the pool"


def schedule(vm: VirtualMachine) -> Schedule:
    """Note when the dataflow executor runs which call on which thread::

        vm = relaxvm.VirtualMachine("model.onnx", executor="dataflow")
        vm.main(x)                        # so that the times of calls are known
        with relaxvm.schedule(vm) as s:
            vm.main(x)
        print(s)                          # the calls, in the order in which they began
        s.timeline().save("schedule.html")

    Only calls that the executor puts off are noted: those in batches of which some calls are
    independent of each other.  Runs on all threads are.

    Args:
        vm: a virtual machine with ``executor="dataflow"``.

    Returns:
        A `Schedule`, active inside the ``with`` block.

    Raises:
        TypeError, ValueError: `vm` is none.
    """
    return Schedule(vm)
