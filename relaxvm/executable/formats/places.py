"""Debug information as text for people: in errors, listings and tables.

Names and lines come from untrusted files, so the text is made printable and short.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from ...messages import readable
from ..debug_info import DebugInfo, Location, Span
from ..underline import underlined

__all__ = [
    "excerpt", "part_lines", "parts_text", "place_lines", "place_note", "place_text", "span_text",
]  # fmt: skip

_NAME: Final = 80
"""The most characters shown of the name of a file or variable."""
_TEXT: Final = 200
"""The most characters shown of a line of source of a part."""
_PARTS: Final = 8
"""The most parts shown of an operation."""
_LINES: Final = 8
"""The most lines of source shown for one span."""


def span_text(span: Span) -> str:
    """Return ``file:line:column``; only the end of a long path."""
    file = span.file if len(span.file) <= _NAME else f"...{span.file[3 - _NAME :]}"
    return f"{readable(file, _NAME)}:{span.line}:{span.column}"


def place_text(place: Location) -> str:
    """Return ``variable at file:line:column``, or as much as is known."""
    known = []
    if place.variable is not None:
        known.append(readable(place.variable, _NAME))
    if place.span is not None:
        known.append(span_text(place.span))
    return " at ".join(known)


def excerpt(debug: DebugInfo, span: Span) -> tuple[str, str] | None:
    """Return the first line of a span and carets under the part that the span covers; None if the
    text of the line is not available."""
    line = debug.line(span.file, span.line)
    if line is None:
        return None
    end = span.end_column if span.end_line == span.line else len(line) + 1
    return underlined(line, span.column, end)


def place_note(debug: DebugInfo | None, index: int) -> str:
    """Return the lines of an error note that show a location: where it is, the line of source, and
    carets under the part that it covers; empty if nothing is known.

    Args:
        debug: of the executable.
        index: pc of the instruction, or what else the locations of `debug` are numbered by.
    """
    if debug is None:
        return ""
    place = debug.location(index)
    shown = place_text(place)
    if not shown:
        return ""
    note = f"\n  {'at' if place.variable is None else 'binding'} {shown}"
    lines = None if place.span is None else excerpt(debug, place.span)
    if lines is not None:
        note += f"\n    {lines[0]}\n    {lines[1]}"
    others = parts_text(place)
    if others:
        note += f"\n  which also computes {others}"
        note += "".join(f"\n    {readable(text, _TEXT)}" for text in part_lines(debug, place))
    return note


def parts_text(place: Location) -> str:
    """Return the other bindings that an operation was made of, the last ones; empty without any."""
    left_out = len(place.parts) - _PARTS
    shown = [place_text(Location(place.pc, *part)) for part in place.parts[-_PARTS:]]
    return ", ".join([*([f"{left_out} more"] if left_out > 0 else []), *shown])


def part_lines(debug: DebugInfo, place: Location) -> list[str]:
    """Return the lines of source of the other bindings that an operation was made of, the last
    ones, each once; without the line of the operation itself."""
    own = None if place.span is None else (place.span.file, place.span.line)
    found: dict[str, None] = {}
    for span, _ in place.parts[-_PARTS:]:
        if span is None or (span.file, span.line) == own:
            continue
        text = debug.line(span.file, span.line)
        if text is not None:
            found[text.strip()] = None
    return list(found)


def place_lines(debug: DebugInfo, place: Location) -> Iterator[str]:
    """Yield the lines that a listing shows before the first instruction of a location."""
    yield f"# {place_text(place) or 'of unknown origin'}"
    if place.parts:
        yield f"#   with {parts_text(place)}"
    if place.span is None:
        return
    lines = list(islice(debug.lines(place.span), _LINES + 1))
    width = len(str(lines[-1][0])) if lines else 0
    for number, text in lines[:_LINES]:
        shown, _ = underlined(text, 1, 1)
        yield f"#   {number:>{width}} | {shown}"
    if len(lines) > _LINES:
        yield f"#   {'':>{width}} | ..."
