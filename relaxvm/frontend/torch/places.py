"""The lines of the user's program that nodes come from."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ...executable.debug_info import Span
from ...messages import readable
from . import messages

__all__ = ["Place", "Places", "place_of"]

_LINE: Final = re.compile(r'File "([^"\n]{1,4096})", line (\d{1,9}), in ([^\n]{1,256})')
_OWN: Final = re.compile(r"/(?:site|dist)-packages/|^<|^torch/|/lib/python\d")
"""Files that are not the user's."""
_MOST_LINE: Final = 1_000_000
_MOST_TEXT: Final = 1_000_000
"""The most lines of all files whose text is kept."""


class Place(NamedTuple):
    """A line of Python.

    Attributes:
        file: its path where the program was exported.
        line: from 1.
        function: its name.
        text: the line; "" if it is not known.
    """

    file: str
    line: int
    function: str
    text: str

    def __str__(self) -> str:
        name = self.file.replace("\\", "/").rpartition("/")[2]
        return f"{readable(name)}:{self.line} in {readable(self.function)}"


def place_of(node: messages.Node) -> Place | None:
    """The innermost line of a node's stack that is not in a package; the innermost one if all are;
    None if it has none."""
    trace = node.metadata.get("stack_trace", "")
    found: Place | None = None
    for match in _LINE.finditer(trace):
        file, line, function = match[1], int(match[2]), match[3].strip()
        rest = trace[match.end() : match.end() + 2000].lstrip("\n")
        first = rest.partition("\n")[0]
        text = "" if first.lstrip().startswith("File ") else first.strip()
        is_own = not _OWN.search(file)
        if 0 < line <= _MOST_LINE and (is_own or found is None or _OWN.search(found.file)):
            found = Place(file, line, function, text)
    return found


class Places:
    """The user's lines, for errors, listings and profiles.

    Args:
        name: of the archive, for nodes whose line is not known.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: dict[str, dict[int, str]] = {}

    def of(self, node: messages.Node) -> Span | None:
        """The place of a node."""
        place = place_of(node)
        if place is None:
            return None
        self._lines.setdefault(place.file, {})[place.line] = place.text
        return Span(place.file, place.line, 1, place.line, max(2, len(place.text) + 1))

    def text_of(self, node: messages.Node) -> str:
        """The place of a node as text: ``model.py:42 in forward``."""
        place = place_of(node)
        return "" if place is None else str(place)

    def texts(self) -> dict[str, str]:
        """The lines by file, each at its place; lines that no node comes from are empty."""
        found: dict[str, str] = {}
        rest = _MOST_TEXT
        for file, lines in self._lines.items():
            count = max(lines)
            if count <= rest:
                found[file] = "".join(f"{lines.get(i, '')}\n" for i in range(1, count + 1))
                rest -= count
        return found
