"""The results of a profile as plain rows: the merged records of all threads."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import numpy as np

from ..executable import FunctionInfo, VMExecutable
from ..executable.debug_info import DebugInfo
from ..executable.formats.places import part_lines
from ..executable.formats.text import format_instruction
from ..isa import FuncKind
from ..values import Shape
from .recorder import EVENT_WORDS, OPEN, RUN, Node, Recorder, Tally

__all__ = [
    "CATEGORIES",
    "Event",
    "FunctionRow",
    "MemorySample",
    "Results",
    "SiteRow",
    "ThreadRow",
    "Timing",
    "collect",
    "events",
    "source_of",
]

CATEGORIES: Final = ("kernel", "builtin", "dispatch")
"""Categories of time: packed and compiled functions, ``vm.builtin.*``, and the VM's own loop."""

_MAX_TEXT: Final = 200
"""The most characters of an instruction; a call may have thousands of arguments."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of a group of calls, in nanoseconds, without the time spent in the hook.

    Attributes:
        count: number of calls, including failed ones.
        errors: number of calls that raised.
        total_ns: time of the calls; in a recursion only the outermost call counts.
        self_ns: the same without the calls made by the callee.
        min_ns, max_ns: shortest and longest call.
        nbytes: bytes of the tensors passed and returned.
        allocated: bytes of new storages, and of new tensors with memory of their own, that the
            calls returned themselves; not those that functions of the program made inside.
        share: `self_ns` as a fraction of the time of all runs, 0 to 1.
    """

    count: int
    errors: int
    total_ns: int
    self_ns: int
    min_ns: int
    max_ns: int
    nbytes: int
    allocated: int
    share: float

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class FunctionRow(Timing):
    """A function: its name and its category, one of `CATEGORIES`."""

    name: str
    category: str


@dataclass(frozen=True, slots=True)
class SiteRow(Timing):
    """A call site.

    Attributes:
        caller: the bytecode function that contains the instruction; empty for a run from Python.
        pc: number of the instruction, from the start of the executable; -1 for a run from Python.
        callee: name of the function called.
        instruction: the instruction as in the listing; empty for a run from Python.
        source: ``file:line:column`` of the binding in the source; empty if it is not known.
        variable: the variable that the binding defines; empty if it is not known.
        shapes: argument lists and the number of calls with each, the most frequent first.
    """

    caller: str
    pc: int
    callee: str
    instruction: str
    source: str
    variable: str
    shapes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class LineRow(Timing):
    """A line of the source, or a node of the model, with all calls that were made of it.

    Attributes:
        source: ``file:line``; empty for calls that come from nowhere in the source.
        text: the line; empty if it is not known.
        parts: other lines that these calls compute as well, since a pass has put them into one
            operation; they have rows of their own only for their other calls.
    """

    source: str
    text: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread: its name, its id in the operating system, and the runs that began on it."""

    name: str
    native_id: int
    runs: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Bytes held by the VM's allocators at a time (nanoseconds since the profile began)."""

    time_ns: int
    live_bytes: int
    cached_bytes: int


@dataclass(frozen=True, slots=True)
class Event:
    """A finished call on the timeline; times in nanoseconds since the profile began.

    Attributes:
        thread: index into `Results.threads`.
        pc: the call instruction, -1 for a run from Python.
        elapsed_ns: duration without the time spent in the hook.
    """

    thread: int
    name: str
    pc: int
    start_ns: int
    end_ns: int
    elapsed_ns: int


@dataclass(frozen=True, slots=True)
class Results:
    """A profile as data.  All times in nanoseconds.

    Attributes:
        wall_ns: time of the runs that Python started, summed over threads, without the hook.
            Equals the sum of `self_ns` over all functions, except for active calls.
        categories: `self_ns` by category, in the order of `CATEGORIES`.
        hook_events: calls of the hook.
        hook_ns: time spent inside the hook; not included in any other number.
        hook_call_ns: estimated time per event to enter and leave the hook; subtracted from all
            other numbers.
        dropped_events: calls that are counted in the rows but not kept for the trace.
        dropped_samples: changes of memory that are not kept.
    """

    functions: tuple[FunctionRow, ...]
    sites: tuple[SiteRow, ...]
    lines: tuple[LineRow, ...]
    threads: tuple[ThreadRow, ...]
    memory: tuple[MemorySample, ...]
    stacks: tuple[tuple[tuple[str, ...], int], ...]
    categories: dict[str, int]
    runs: int
    wall_ns: int
    hook_events: int
    hook_ns: int
    hook_call_ns: float
    dropped_events: int
    dropped_samples: int

    @property
    def dispatch_share(self) -> float:
        """Fraction of the time of all runs that is spent in the VM's loop, 0 to 1."""
        return self.categories["dispatch"] / self.wall_ns if self.wall_ns else 0.0

    @property
    def peak_live_bytes(self) -> int:
        return max((sample.live_bytes for sample in self.memory), default=0)


def collect(recorder: Recorder, executable: VMExecutable, origin: int, call_cost: float) -> Results:
    """Merge the records of all threads.

    Args:
        origin: clock value at which the profile began.
        call_cost: nanoseconds per event to enter and leave the hook.
    """
    threads = list(recorder.threads)
    wall = sum(thread.wall_ns for thread in threads)
    place = _Place(executable)

    functions: dict[str, Tally] = {}
    sites: dict[tuple[int, str], Tally] = {}
    shapes: dict[tuple[int, str], Counter[str]] = {}
    stacks: Counter[tuple[str, ...]] = Counter()
    for thread in threads:
        for name, tally in list(thread.functions.items()):
            _merge(functions.setdefault(name, Tally()), tally)
        for site in list(thread.sites):
            key = (site.pc, site.name)
            _merge(sites.setdefault(key, Tally()), site)
            seen = shapes.setdefault(key, Counter())
            for args, count in list(site.shapes.items()):
                seen["other" if args is None else _args_text(args)] += count
        for stack, own in _stacks(thread.root):
            stacks[stack] += own

    categories = dict.fromkeys(CATEGORIES, 0)
    for name, tally in functions.items():
        categories[place.category(name)] += tally.own
    lines: dict[tuple[str, str], Tally] = {}
    parts: dict[tuple[str, str], dict[str, None]] = {}
    for (pc, _), tally in sorted(sites.items(), key=itemgetter(0)):
        if pc != RUN:
            line = line_of(executable.debug, pc)
            _merge(lines.setdefault(line, Tally()), tally)
            parts.setdefault(line, {}).update(dict.fromkeys(_parts_of(executable.debug, pc)))
    return Results(
        functions=tuple(
            FunctionRow(**_timing(tally, wall), name=name, category=place.category(name))
            for name, tally in functions.items()
        ),
        sites=tuple(
            SiteRow(
                **_timing(tally, wall),
                caller=place.caller(pc),
                pc=pc,
                callee=name,
                instruction=place.instruction(pc),
                source=source,
                variable=variable,
                shapes=_most_frequent_first(shapes[pc, name]),
            )
            for (pc, name), tally in sorted(sites.items())
            for source, variable in [source_of(executable.debug, pc)]
        ),
        lines=tuple(
            LineRow(**_timing(tally, wall), source=line[0], text=line[1], parts=tuple(parts[line]))
            for line, tally in lines.items()
        ),
        threads=tuple(ThreadRow(t.name, t.native_id, t.runs, t.wall_ns) for t in threads),
        memory=tuple(sorted(
            (MemorySample(time - origin, live, cached) for time, live, cached in recorder.memory),
            key=lambda sample: sample.time_ns,
        )),
        stacks=tuple(sorted(stacks.items())),
        categories=categories,
        runs=sum(thread.runs for thread in threads),
        wall_ns=wall,
        hook_events=sum(thread.hook_events for thread in threads),
        hook_ns=sum(thread.hook_ns for thread in threads),
        hook_call_ns=call_cost,
        dropped_events=sum(thread.dropped for thread in threads),
        dropped_samples=recorder.dropped_samples,
    )


def line_of(debug: DebugInfo | None, pc: int) -> tuple[str, str]:
    """Return the line of the source of an instruction, as ``file:line`` and its text; empty if they
    are not known."""
    span = None if debug is None else debug.location(pc).span
    if debug is None or span is None:
        return "", ""
    return f"{span.file}:{span.line}", (debug.line(span.file, span.line) or "").strip()


def _parts_of(debug: DebugInfo | None, pc: int) -> list[str]:
    return [] if debug is None else part_lines(debug, debug.location(pc))


def source_of(debug: DebugInfo | None, pc: int) -> tuple[str, str]:
    """Return source location and variable of an instruction; empty if they are not known."""
    if debug is None or pc == RUN:
        return "", ""
    _, span, variable, _ = debug.location(pc)
    return "" if span is None else str(span), variable or ""


def events(recorder: Recorder, origin: int) -> Iterator[Event]:
    """Yield the calls kept for the timeline, thread by thread, in the order in which they began."""
    for index, thread in enumerate(list(recorder.threads)):
        words = thread.events
        # The thread may be appending to them.
        for at in range(0, len(words) // EVENT_WORDS * EVENT_WORDS, EVENT_WORDS):
            site, start, end, elapsed = words[at : at + EVENT_WORDS]
            if end != OPEN:
                where = thread.sites[site]
                yield Event(index, where.name, where.pc, start - origin, end - origin, elapsed)


class _Place:
    """Names for the numbers in a recorder's data."""

    def __init__(self, executable: VMExecutable) -> None:
        self._executable = executable
        self._by_name = {info.name: info for info in executable.functions}
        self._bytecode: list[FunctionInfo] = sorted(
            (info for info in executable.functions if info.kind == FuncKind.BYTECODE),
            key=lambda info: info.start_instr,
        )
        self._starts = [info.start_instr for info in self._bytecode]

    def caller(self, pc: int) -> str:
        if pc == RUN:
            return ""
        return self._bytecode[bisect_right(self._starts, pc) - 1].name

    def instruction(self, pc: int) -> str:
        if pc == RUN:
            return ""
        text = " ".join(format_instruction(self._executable, pc).split())
        return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."

    def category(self, name: str) -> str:
        info = self._by_name.get(name)
        if info is not None and info.kind == FuncKind.BYTECODE:
            return "dispatch"
        return "builtin" if name.startswith(("vm.builtin.", "relaxvm.builtin.")) else "kernel"


def _most_frequent_first(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _merge(into: Tally, tally: Tally) -> None:
    if tally.count:
        into.min = tally.min if into.count == 0 else min(into.min, tally.min)
        into.max = max(into.max, tally.max)
    into.count += tally.count
    into.errors += tally.errors
    into.total += tally.total
    into.own += tally.own
    into.nbytes += tally.nbytes
    into.allocated += tally.allocated


def _timing(tally: Tally, wall: int) -> dict[str, Any]:
    return {
        "count": tally.count,
        "errors": tally.errors,
        "total_ns": tally.total,
        "self_ns": tally.own,
        "min_ns": tally.min,
        "max_ns": tally.max,
        "nbytes": tally.nbytes,
        "allocated": tally.allocated,
        "share": tally.own / wall if wall else 0.0,
    }


def _stacks(root: Node) -> Iterable[tuple[tuple[str, ...], int]]:
    pending: list[tuple[tuple[str, ...], Node]] = [((), root)]
    while pending:
        stack, node = pending.pop()
        if node.own:
            yield stack, node.own
        for child in list(node.children.values()):
            pending.append(((*stack, child.name), child))


def _args_text(args: Iterable[Any]) -> str:
    return ", ".join(map(_arg_text, args))


def _arg_text(arg: Any) -> str:
    if isinstance(arg, Shape):
        return repr(arg)
    if isinstance(arg, tuple):
        dtype, shape = arg
        return f"{dtype}[{', '.join(map(str, shape))}]"
    if arg is type(None):
        return "None"
    if issubclass(arg, np.dtype):
        return "dtype"
    name: str = arg.__name__
    return _CLASS_WORDS.get(name, name)


_CLASS_WORDS: Final = {"VirtualMachine": "vm", "Storage": "storage", "Closure": "closure",
                       "VMFunction": "func", "function": "func"}  # fmt: skip
