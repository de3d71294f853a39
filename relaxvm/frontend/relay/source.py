"""Relay text and places in it, for messages."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import NamedTuple, NoReturn

from ...errors import NestingError, ParseError
from ...executable.debug_info import Span
from ...executable.underline import underlined

__all__ = ["MOST_LEVELS", "Place", "Source"]

MOST_LEVELS = 500
"""The most levels of expressions, types and patterns in each other.  Sequences of bindings are not
nested; they have any length."""


class Source:
    """A text and the name of its file."""

    def __init__(self, text: str, file: str = "<relay>") -> None:
        self.text = text
        self.file = file

    @cached_property
    def _starts(self) -> list[int]:
        """The offset of the first character of each line."""
        starts, at = [0], self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of a character; both count from 1."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def span(self, start: int, end: int) -> Span:
        """Return a piece of the text as a location."""
        return Span(self.file, *self.position(start), *self.position(max(start, end)))

    def fail(
        self, start: int, end: int, message: str, kind: type[ParseError | NestingError] = ParseError
    ) -> NoReturn:
        """Raise an error with file, line, column, message, and the line with carets under it."""
        span = self.span(start, end)
        first = self._starts[span.line - 1]
        last = self.text.find("\n", first)
        line = self.text[first : last if last >= 0 else None]
        same = span.end_line == span.line
        shown, carets = underlined(
            line, span.column, span.end_column if same else span.column + len(line)
        )
        margin = f"{span.line:5} | "
        text = f"{span}: {message}\n{margin}{shown}\n{' ' * (len(margin) - 2)}| {carets}"
        if issubclass(kind, ParseError):
            raise kind(text, line=span.line, column=span.column)
        raise kind(text)


class Place(NamedTuple):
    """A piece of a text, from offset `start` to before `end`.

    Attributes:
        origin: the place in another program that a comment of the text names, or None.
    """

    source: Source
    start: int
    end: int
    origin: Span | None = None

    def fail(self, message: str) -> NoReturn:
        """Raise a `ParseError` that points here."""
        self.source.fail(self.start, self.end, message)

    @property
    def span(self) -> Span:
        """The location for debug information: the one that a comment names, else this one."""
        return self.origin or self.source.span(self.start, self.end)

    def to(self, last: Place) -> Place:
        """The piece from the start of this one to the end of `last`, with the origin of `last`."""
        return Place(self.source, self.start, last.end, last.origin)
