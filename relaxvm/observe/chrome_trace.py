"""A profile as a timeline, in the JSON format of Chrome's trace viewer and Perfetto.

Complete events (``ph: X``) for calls, metadata events (``M``) for names, counter events (``C``) for
the memory of the VM's allocators.  Times are microseconds since the profile began, with nanoseconds
as decimals.  Source: the "Trace Event Format" document of Chrome.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from typing import IO, Any

from ..executable.debug_info import DebugInfo
from .recorder import RUN
from .results import Event, Results, source_of

__all__ = ["trace_events", "trace_header", "write_trace"]

_EVENTS_PER_WRITE = 1000


def trace_header(results: Results) -> dict[str, Any]:
    """Return the fields of a trace other than its events."""
    return {
        "displayTimeUnit": "ns",
        "otherData": {
            "producer": "relaxvm",
            "runs": results.runs,
            "wall_us": results.wall_ns / 1000,
            "hook_us": results.hook_ns / 1000,
            "dropped_events": results.dropped_events,
        },
    }


def trace_events(
    results: Results,
    timeline: Iterable[Event],
    pid: int,
    category: Callable[[str], str],
    debug: DebugInfo | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the events.  Calls of a thread nest: an event lies within that of its caller."""

    @cache
    def place(pc: int) -> dict[str, str]:
        named = zip(("source", "variable"), source_of(debug, pc), strict=True)
        return {name: text for name, text in named if text}

    yield _name("process_name", "relaxvm", pid, 0)
    for thread in results.threads:
        yield _name("thread_name", thread.name, pid, thread.native_id)
    tids = [thread.native_id for thread in results.threads]
    for event in timeline:
        args: dict[str, Any] = {"without_hook_us": event.elapsed_ns / 1000}
        if event.pc != RUN:
            args["pc"] = event.pc
            args |= place(event.pc)
        yield {
            "ph": "X",
            "name": event.name,
            "cat": "run" if event.pc == RUN else category(event.name),
            "pid": pid,
            "tid": tids[event.thread],
            "ts": event.start_ns / 1000,
            "dur": (event.end_ns - event.start_ns) / 1000,
            "args": args,
        }
    for sample in results.memory:
        yield {
            "ph": "C",
            "name": "allocator bytes",
            "pid": pid,
            "ts": sample.time_ns / 1000,
            "args": {"live": sample.live_bytes, "cached": sample.cached_bytes},
        }


def write_trace(
    file: IO[bytes], header: dict[str, Any], events: Iterable[dict[str, Any]]
) -> None:
    """Write a trace event by event, since the JSON of a long one may not fit in memory."""
    file.write(json.dumps(header)[:-1].encode() + b',"traceEvents":[')
    separator = b"\n"
    events = iter(events)
    while part := [json.dumps(event) for event in islice(events, _EVENTS_PER_WRITE)]:
        file.write(separator + ",\n".join(part).encode())
        separator = b",\n"
    file.write(b"\n]}\n")


def _name(what: str, value: str, pid: int, tid: int) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": value}}
