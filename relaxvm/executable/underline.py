"""A line of source with carets under a piece of it, for messages."""

from __future__ import annotations

__all__ = ["underlined"]


def underlined(line: str, column: int, end_column: int, width: int = 100) -> tuple[str, str]:
    """Return a line of source, and a line of carets that marks a piece of it.

    The result is printable whatever the line holds: tabs become blanks, other control characters
    question marks.  Of a line of more than `width` characters, a part around the piece is shown.

    Args:
        line: the line of source.
        column: of the first character of the piece, counted from 1.
        end_column: of the character after its last one.  A piece that is empty or beyond the line
            is marked by one caret.
        width: most characters shown.
    """
    start = min(column - 1, len(line))
    left = 0 if len(line) <= width else max(0, min(start - width // 4, len(line) - width))
    shown = "".join(map(_shown, line[left : left + width])).rstrip()
    start -= left
    piece = shown[start : max(end_column - 1 - left, 0)]
    carets = "^" * max(1, sum(map(_cells, piece)))
    return shown, " " * sum(map(_cells, shown[:start].ljust(start))) + carets


def _shown(char: str) -> str:
    return char if char.isprintable() else " " if char == "\t" else "?"


def _cells(char: str) -> int:
    """Return how many cells of a terminal a character takes."""
    if char.isascii():
        return 1
    import unicodedata  # here, because few lines need it

    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
