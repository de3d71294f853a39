"""`relaxvm.profile(vm)`: measure where a program spends its time.

    with relaxvm.profile(vm) as p:
        vm.main(x)
    print(p)
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from os import PathLike
from time import perf_counter_ns
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final, cast

from .._core import Machine
from ..errors import RelaxVMError
from ..executable.formats.places import place_text
from ..messages import describe
from . import report
from .chrome_trace import trace_events, trace_header, write_trace
from .pictures import Timeline
from .recorder import RUN, Clock, Recorder
from .results import (
    FunctionRow,
    LineRow,
    MemorySample,
    Results,
    SiteRow,
    ThreadRow,
    collect,
    events,
)

if TYPE_CHECKING:
    from ..vm import VirtualMachine
    from .schedule import Schedule

__all__ = ["Profile", "profile"]

_CALIBRATION_CALLS: Final = 50
_CALIBRATION_ROUNDS: Final = 8
"""The least of several rounds counts: an interrupted one would take time away from every call."""


class Profile:
    """A profile of the runs of a VM that begin while it is active.

    A context manager; entering it again adds to the recorded results.  Runs on all threads are
    recorded.  The results may be read at any time, also during a run: a run counts once it has
    ended.

    While the profile is active, the VM calls every builtin separately, by its Python reference:
    builtins that the core normally fuses or executes inside its loop are timed as ordinary calls.
    So compare the rows with each other, not with the time of a run without the profile.

    Args:
        vm: the VM to observe, or a `relaxvm.contrib.tvm.VirtualMachine`.
        shapes: record shapes and dtypes of the arguments per call site, and their bytes.
        memory: record bytes live and cached in the VM's allocators whenever a call may change them.
        max_events: the most calls kept for `chrome_trace`; the tables count all calls.
    """

    def __init__(
        self,
        vm: Any,
        *,
        shapes: bool = True,
        memory: bool = True,
        max_events: int = 1_000_000,
        _clock: Clock = perf_counter_ns,
    ) -> None:
        # A VM for objects of TVM has one of relaxvm.
        machine = vm if isinstance(vm, Machine) else getattr(vm, "vm", vm)
        if not isinstance(machine, Machine):
            raise TypeError(f"profile: expected a VirtualMachine, got {describe(vm)}")
        self._vm = cast("VirtualMachine", machine)
        self._executable = self._vm.executable
        self._clock = _clock
        self._active = False
        self._origin = 0
        self._call_cost = 0.0
        self._recorder = Recorder(
            _memory_reader(self._vm) if memory else None,
            shapes=shapes,
            max_events=max_events,
            clock=_clock,
            state=self._vm.state,
        )

    def __enter__(self) -> Profile:
        if self._active:
            raise RelaxVMError("profile: already active")
        if not self._origin:
            self._call_cost = _hook_call_cost(self._clock)
            self._recorder.half_way_ns = round(self._call_cost / 2)
            self._origin = self._clock()
        self._vm._add_hook(self._recorder)
        self._recorder.start()
        self._active = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._active = False
        self._vm._remove_hook(self._recorder)
        self._recorder.stop()

    # Results as data

    @property
    def results(self) -> Results:
        """All results so far."""
        return collect(self._recorder, self._executable, self._origin, self._call_cost)

    @property
    def functions(self) -> tuple[FunctionRow, ...]:
        """One row per function called, in no particular order."""
        return self.results.functions

    @property
    def sites(self) -> tuple[SiteRow, ...]:
        """One row per call site, in the order of the code."""
        return self.results.sites

    @property
    def lines(self) -> tuple[LineRow, ...]:
        """One row per line of the source, or node of the model, in the order of the code."""
        return self.results.lines

    @property
    def threads(self) -> tuple[ThreadRow, ...]:
        return self.results.threads

    @property
    def memory(self) -> tuple[MemorySample, ...]:
        """The allocation timeline: one sample for each change."""
        return self.results.memory

    def to_dict(self, *, samples: bool = False) -> dict[str, Any]:
        """Return the results as plain dicts and lists; times in nanoseconds.

        Args:
            samples: whether ``["samples"]`` has the calls one by one, up to `max_events`.
        """
        return report.as_dict(
            self.results, events(self._recorder, self._origin) if samples else None
        )

    # Results as text

    def table(self, by: str = "function", sort: str = "self", limit: int | None = 30) -> str:
        """Return a summary and a table.

        Args:
            by: "function"; "site", for call sites; or "line", for lines of the source, which are
                the nodes of a model.
            sort: "self", "total", "count", "mean", "max", "bytes" or "allocated"; the largest come
                first.
            limit: the number of rows, None for all.

        Raises:
            ValueError: unknown `by` or `sort`.
        """
        return report.as_table(self.results, by, sort, limit)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """The tables of functions and of call sites, for a notebook."""
        import html

        summary, _, functions = self.table().partition("\n\n")
        _, _, sites = self.table(by="site").partition("\n\n")
        parts = [f"<p>{html.escape(summary)}</p>", f"<pre>{html.escape(functions)}</pre>",
                 f"<details><summary>call sites</summary><pre>{html.escape(sites)}</pre></details>"]
        return "\n".join(parts)

    def __repr__(self) -> str:
        runs = sum(thread.runs for thread in self._recorder.threads)
        return f"<Profile of {runs} runs{', active' if self._active else ''}>"

    def to_json(self, *, samples: bool = False) -> str:
        """Return `to_dict` as JSON."""
        data = self.to_dict(samples=samples)
        # A line for each sample would be longer than the sample.
        calls = data.pop("samples", None)
        text = json.dumps(data, indent=1)
        if calls is None:
            return text + "\n"
        return f'{text.removesuffix("}").rstrip()},\n "samples": {json.dumps(calls)}\n}}\n'

    def to_csv(self, by: str = "function") -> str:
        """Return a header and one row per function, call site ("site"), or line ("line").

        Raises:
            ValueError: unknown `by`.
        """
        return report.as_csv(self.results, by)

    def folded(self) -> str:
        """Return stacks and their self time in nanoseconds, one per line, for flame graph tools.
        Stacks of more than 256 functions are truncated."""
        return report.as_folded(self.results)

    # The timeline

    def timeline(self, schedule: Schedule | None = None) -> Timeline:
        """The calls over time as a picture: ``p.timeline().save("calls.html")`` is one page that
        needs no network.

        Args:
            schedule: of the dataflow executor, for rows with the calls that ran side by side below
                those of the profile, which sees calls in order.
        """
        results = self.results
        lanes: list[tuple[str, list[tuple[float, float, str, str]]]] = [
            (thread.name, []) for thread in results.threads]
        debug = self._executable.debug
        for event in events(self._recorder, self._origin):
            place = "" if debug is None or event.pc < 0 else place_text(debug.location(event.pc))
            where = "" if event.pc < 0 else f", pc {event.pc}"
            title = f"{event.name}{where}: {event.elapsed_ns / 1000:.1f} us  {place}"
            lanes[event.thread][1].append(
                (event.start_ns / 1000, event.end_ns / 1000, event.name, title))
        if schedule is not None:
            lanes += [(f"side by side, {name}", calls) for name, calls in schedule.lanes()]
        return Timeline(f"{results.runs} runs", lanes)

    def chrome_trace(self) -> dict[str, Any]:
        """Return the timeline of all calls in the JSON format of Chrome's trace viewer."""
        results = self.results
        return {**trace_header(results), "traceEvents": list(self._trace_events(results))}

    def save_chrome_trace(self, target: str | PathLike[str] | IO[bytes]) -> None:
        """Write `chrome_trace` to a path or a binary file; https://ui.perfetto.dev opens it."""
        results = self.results
        with ExitStack() as stack:
            if isinstance(target, (str, PathLike)):
                target = stack.enter_context(open(target, "wb"))
            write_trace(target, trace_header(results), self._trace_events(results))

    def _trace_events(self, results: Results) -> Iterator[dict[str, Any]]:
        category = {row.name: row.category for row in results.functions}
        timeline = events(self._recorder, self._origin)
        debug = self._executable.debug
        return trace_events(results, timeline, os.getpid(), category.__getitem__, debug)


def profile(
    vm: Any, *, shapes: bool = True, memory: bool = True, max_events: int = 1_000_000
) -> Profile:
    """Measure where the runs of a VM spend their time::

        with relaxvm.profile(vm) as p:
            vm.main(x)
        print(p)                       # a table of functions
        print(p.table(by="site"))      # a table of call instructions, with argument shapes
        p.save_chrome_trace("t.json")  # for https://ui.perfetto.dev

    Args:
        vm: the VM to observe, on all threads; or a `relaxvm.contrib.tvm.VirtualMachine`.
        shapes: record shapes and dtypes of the arguments per call site, and their bytes.
        memory: record bytes live and cached in the VM's allocators whenever a call may change them.
        max_events: the most calls kept for the timeline.

    Returns:
        A `Profile`, active inside the ``with`` block.
    """
    return Profile(vm, shapes=shapes, memory=memory, max_events=max_events)


def _memory_reader(vm: VirtualMachine) -> Callable[[], tuple[int, int]]:
    def read() -> tuple[int, int]:
        stats = vm.memory_stats()
        return stats.live_bytes, stats.cached_bytes

    return read


def _hook_call_cost(clock: Clock) -> float:
    """Measure the nanoseconds per event to enter and leave the hook.

    It is the time of a loop of hook calls beyond the time that the hook measures for itself: the
    least of several rounds.
    """
    hook = Recorder(None, shapes=False, max_events=0, clock=clock)
    hook.start()
    hook(RUN, True, None, "", None, ())
    record = hook.threads[0]
    costs = []
    for _ in range(_CALIBRATION_ROUNDS):
        begun, inside, events_before = clock(), record.hook_ns, record.hook_events
        for _ in range(_CALIBRATION_CALLS):
            hook(0, True, None, "", None, ())
            hook(0, False, None, "", None, ())
        outside = clock() - begun - (record.hook_ns - inside)
        costs.append(max(0.0, outside / (record.hook_events - events_before)))
    return min(costs)
