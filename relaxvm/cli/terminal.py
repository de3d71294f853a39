"""Colours and progress bars on a terminal, by the package rich, if it is installed.

It decides about colours as other programs do: none where the stream is no terminal or ``NO_COLOR``
is set.  Without it, the same text is written plainly.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["Bar", "Terminal", "terminal"]

_THEME: Final = {
    "relaxvm.head": "bold",
    "relaxvm.place": "dim",
    "relaxvm.comment": "dim",
    "relaxvm.name": "cyan",
    "relaxvm.register": "magenta",
    "relaxvm.keyword": "bold blue",
    "relaxvm.differs": "red",
    "relaxvm.error": "bold red",
}

_PATTERNS: Final = (
    r"(?P<comment>(^|\s)#.*$)",
    r"(?P<place>\[[^\[\]\n]*:\d+(:\d+)?\])",
    r"(?P<register>%\d+\b)",
    r"(?P<name>\b(vm|relaxvm)\.(builtin|kernel)\.[\w.]+)",
    r"^\s*(?P<keyword>call|ret|goto|if)\s",
    r"^(?P<head>@\w+.*|\s*calls  .*)$",
    r"^(?P<differs>! .*)$",
    r"^(?P<error>relaxvm: error:)",
)
"""What stands out in tables and listings."""

_MOST: Final = 1 << 18
"""The most characters of a text that is searched for them: a longer one scrolls by."""


class Terminal:
    """A stream that shows colours.

    Args:
        console: of rich.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, text: str) -> None:
        """Write a text as it is, with the colours of what stands out in it."""
        from rich.text import Text

        styled = Text(text)
        if len(text) <= _MOST:
            for pattern in _PATTERNS:
                _mark(styled, pattern)
        # Lines are as long as the plain text has them, so that tables stay tables.
        self._console.print(styled, end="", soft_wrap=True)

    def bar(self, label: str, total: int | None) -> Bar:
        """A progress bar, which is shown at once."""
        return Bar(self._console, label, total)


class Bar:
    """A progress bar, until `stop`.

    Args:
        console: of rich.
        label: what is done.
        total: of `show`; None if it is not known.
    """

    def __init__(self, console: Console, label: str, total: int | None) -> None:
        from rich import progress

        columns: list[progress.ProgressColumn] = [
            progress.TextColumn("{task.description}", markup=False), progress.BarColumn(),
        ]  # fmt: skip
        if total is not None:
            columns.append(progress.MofNCompleteColumn())
        self._progress = progress.Progress(
            *columns, progress.TimeElapsedColumn(), console=console, transient=True
        )
        self._task = self._progress.add_task(label, total=total)
        self._progress.start()

    def show(self, done: int) -> None:
        """Show how much is done."""
        self._progress.update(self._task, completed=done)

    def stop(self) -> None:
        """Remove the bar."""
        self._progress.stop()


def _mark(styled: Text, pattern: str) -> None:
    for match in re.finditer(pattern, styled.plain, re.MULTILINE):
        for name, found in match.groupdict().items():
            if found is not None:
                styled.stylize(f"relaxvm.{name}", *match.span(name))


def terminal(stream: TextIO) -> Terminal | None:
    """Return what writes to a stream in colours; None if that is no terminal, has no colours, or
    rich is not installed."""
    if not stream.isatty():
        return None
    try:
        from rich.console import Console
        from rich.theme import Theme
    except ImportError:
        return None
    console = Console(file=stream, theme=Theme(_THEME), highlight=False, markup=False, emoji=False)
    if console.color_system is None or console.no_color:
        return None
    return Terminal(console)
