"""A profile as text: tables, CSV, folded stacks, and a dict for JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from ..messages import readable
from .results import Event, FunctionRow, LineRow, Results, SiteRow, Timing

__all__ = ["BY", "SORTS", "as_csv", "as_dict", "as_folded", "as_table"]

SCHEMA: Final = 2
"""Version of the layout of `as_dict`."""

_WIDTH: Final = 64
"""The most characters of an instruction or an argument list in a table."""

_LINE_WIDTH: Final = 100
"""The most characters of a line of the source in a table."""

BY: Final = ("function", "site", "line")

SORTS: Final[dict[str, Callable[[Timing], Any]]] = {
    "self": lambda row: -row.self_ns,
    "total": lambda row: -row.total_ns,
    "count": lambda row: -row.count,
    "mean": lambda row: -row.mean_ns,
    "max": lambda row: -row.max_ns,
    "bytes": lambda row: -row.nbytes,
    "allocated": lambda row: -row.allocated,
}
"""Sort keys of a table; the largest row comes first."""


EVENT: Final = ("thread", "name", "pc", "start_ns", "end_ns", "elapsed_ns")
"""The columns of a sample in `as_dict`."""


def as_dict(results: Results, samples: Iterable[Event] | None = None) -> dict[str, Any]:
    """Return plain dicts, lists, numbers and strings; times are nanoseconds.

    Args:
        samples: the calls one by one; None to leave them out.
    """
    data = _tables_as_dict(results)
    if samples is not None:
        rows = [[getattr(event, name) for name in EVENT] for event in samples]
        data["samples"] = {"columns": list(EVENT), "rows": rows}
    return data


def _tables_as_dict(results: Results) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "runs": results.runs,
        "wall_ns": results.wall_ns,
        "dispatch_share": results.dispatch_share,
        "self_ns": dict(results.categories),
        "hook": {
            "events": results.hook_events,
            "inside_ns": results.hook_ns,
            "outside_ns_per_event": results.hook_call_ns,
        },
        "functions": [_row(row) for row in _sorted(results.functions, "self")],
        "sites": [_row(row) for row in results.sites],
        "lines": [_row(row) for row in _sorted(results.lines, "self")],
        "threads": [asdict(row) for row in results.threads],
        "memory": [asdict(sample) for sample in results.memory],
        "peak_live_bytes": results.peak_live_bytes,
        "dropped_events": results.dropped_events,
        "dropped_samples": results.dropped_samples,
    }


def as_csv(results: Results, by: str) -> str:
    """Return a header and one line per function or call site; times are nanoseconds."""
    rows = _rows(results, by)
    out = io.StringIO()
    columns = [*_identity(by), "count", "errors", "total_ns", "self_ns", "mean_ns", "min_ns",
               "max_ns", "nbytes", "allocated", "share"]  # fmt: skip
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(_row(row))
    return out.getvalue()


def as_folded(results: Results) -> str:
    """Return lines like ``main;f;kernel 1234`` for flame graph tools: a stack and the nanoseconds
    spent in its last function."""
    return "".join(
        f"{';'.join(_frame(name) for name in stack)} {own}\n" for stack, own in results.stacks
    )


def _frame(name: str) -> str:
    # In this format, semicolons separate frames and newlines separate stacks.
    return name.replace(";", ":").replace("\n", " ")


def as_table(results: Results, by: str, sort: str, limit: int | None) -> str:
    """Return a summary and a table of functions or call sites.

    Raises:
        ValueError: unknown `by` or `sort`.
    """
    rows = _sorted(_rows(results, by), sort)
    shown = rows if limit is None else rows[:limit]
    lines = [*_summary(results), "", *_table(shown, by)]
    if len(shown) < len(rows):
        lines.append(f"... and {len(rows) - len(shown)} more")
    return "\n".join(lines) + "\n"


def _summary(results: Results) -> list[str]:
    threads = sum(thread.runs > 0 for thread in results.threads)
    wall = results.wall_ns
    lines = [
        f"{_plural(results.runs, 'run')} on {_plural(threads, 'thread')}, {_micros(wall)} us; "
        + ", ".join(f"{name} {_percent(ns, wall)}" for name, ns in results.categories.items()),
        f"the profiler's hook: {results.hook_events} events, {_micros(results.hook_ns)} us inside "
        f"and about {results.hook_call_ns:.0f} ns each to reach it, all of it left out",
    ]
    if results.peak_live_bytes:
        lines.append(f"memory: {results.peak_live_bytes} bytes live at the peak")
    if results.dropped_events or results.dropped_samples:
        lines.append(f"timeline: {_plural(results.dropped_events, 'call')} and "
                     f"{_plural(results.dropped_samples, 'sample')} of memory beyond the limit "
                     f"left out")
    return lines


def _table(rows: Sequence[Timing], by: str) -> list[str]:
    head = ["calls", "errors", "total us", "self us", "self %", "mean us", "min us", "max us",
            "bytes", "allocated"]  # fmt: skip
    cells = [
        [
            str(row.count),
            str(row.errors),
            _micros(row.total_ns),
            _micros(row.self_ns),
            f"{row.share * 100:.1f}",
            _micros(row.mean_ns),
            _micros(row.min_ns),
            _micros(row.max_ns),
            str(row.nbytes),
            str(row.allocated),
        ]
        for row in rows
    ]
    if not any(row.allocated for row in rows):
        for line in (head, *cells):
            del line[-1]
    if not any(row.errors for row in rows):
        for line in (head, *cells):
            del line[1]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    numbers = [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in (head, *cells)
    ]
    labels = [by, *map(_label, rows)]
    lines: list[str] = []
    for number, label, row in zip(numbers, labels, (None, *rows), strict=True):
        lines.append(f"{number}  {label}")
        if isinstance(row, LineRow):
            indent = " " * len(number)
            lines += [f"{indent}    with {readable(part, _LINE_WIDTH)}" for part in row.parts]
    return lines


def _label(row: Timing) -> str:
    if isinstance(row, SiteRow):
        text = f"run of {row.callee}"
        if row.caller:
            text = f"{row.caller}:{row.pc} {_clipped(row.instruction)}"
        if row.shapes:
            (args, _), *others = row.shapes
            text += f"  ({_clipped(args)})" + (f" and {len(others)} more" if others else "")
        place = " at ".join(filter(None, (row.variable, row.source)))
        if place:
            text += f"  [{readable(place, _WIDTH)}]"
        return text
    if isinstance(row, LineRow):
        if not row.source:
            return "of unknown origin"
        return readable(row.text, _LINE_WIDTH) + f"  [{readable(row.source, _WIDTH)}]"
    assert isinstance(row, FunctionRow)
    return f"{row.name} [{row.category}]"


def _clipped(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."


def _rows(results: Results, by: str) -> Sequence[Timing]:
    if by not in BY:
        raise ValueError(f"profile: expected by to be one of {', '.join(BY)}, got {by!r}")
    if by == "line":
        return results.lines
    return results.functions if by == "function" else results.sites


def _sorted(rows: Sequence[Timing], sort: str) -> list[Timing]:
    if sort not in SORTS:
        raise ValueError(f"profile: expected sort to be one of {', '.join(SORTS)}, got {sort!r}")
    key = SORTS[sort]
    return sorted(rows, key=lambda row: (key(row), _label(row)))


def _row(row: Timing) -> dict[str, Any]:
    fields = asdict(row)
    if isinstance(row, SiteRow):
        fields["shapes"] = [{"args": args, "count": count} for args, count in row.shapes]
    identity = {name: fields.pop(name) for name in _identity_of(row)}
    return {**identity, **fields, "mean_ns": row.mean_ns}


def _identity(by: str) -> tuple[str, ...]:
    if by == "function":
        return "name", "category"
    if by == "line":
        return "source", "text"
    return "caller", "pc", "callee", "instruction", "source", "variable"


def _identity_of(row: Timing) -> tuple[str, ...]:
    if isinstance(row, LineRow):
        return _identity("line")
    return _identity("function" if isinstance(row, FunctionRow) else "site")


def _micros(ns: float) -> str:
    return f"{ns / 1000:.1f}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
