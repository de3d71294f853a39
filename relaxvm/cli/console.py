"""Output of commands: results go to stdout, everything else to stderr."""

from __future__ import annotations

import json
import math
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, TextIO

from ..errors import BugError
from .exits import Exit, write_error
from .terminal import Bar, terminal

__all__ = ["Console", "Progress", "plain"]

_CONTROL: Final = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"
} | {
    # Bidirectional control characters, which reorder a line on screen.
    code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
}  # fmt: skip
_NOTES_SHOWN: Final = 12
_NAMELESS: Final[dict[type, str]] = {KeyboardInterrupt: "interrupted", MemoryError: "out of memory"}


def plain(text: str) -> str:
    """Escape all control characters of a text but tab and newline.  Names come from files, and
    must not move the cursor or change colours."""
    return text.translate(_CONTROL)


class Console:
    """Output of one command.

    Args:
        as_json: results and errors are JSON objects on stdout.
        debug: errors come with their traceback.
        progress: report progress even if stderr is not a terminal.
    """

    def __init__(self, *, as_json: bool, debug: bool, progress: bool) -> None:
        self.as_json = as_json
        self._debug = debug
        self._progress = progress
        self._out: TextIO = sys.stdout
        self._err: TextIO = sys.stderr

    def text(self, text: str) -> None:
        """Print a part of the result for people; nothing with --json."""
        if not self.as_json and text:
            with _writing():
                _show(self._out, plain(text if text.endswith("\n") else text + "\n"))

    def result(self, data: Mapping[str, Any]) -> None:
        """Print the result for programs; nothing without --json."""
        if self.as_json:
            self._write(_json(data) + "\n")

    def long_result(self, data: Mapping[str, Any], name: str, items: Iterable[Any]) -> None:
        """Print like `result`, with a last entry `name`: a list that is written item by item, since
        its JSON may not fit in memory."""
        if not self.as_json:
            return
        self._write(_json(data).removesuffix("\n}") + f',\n "{name}": [')
        separator = "\n  "
        for item in items:
            self._write(separator + json.dumps(_finite(item), allow_nan=False))
            separator = ",\n  "
        self._write("\n ]\n}\n")

    def note(self, text: str) -> None:
        """Print a remark to stderr."""
        self._err.write(plain(f"relaxvm: {text}\n"))

    def error(self, error: BaseException, code: Exit) -> None:
        """Print an error: one message, and a traceback only with --debug."""
        message = describe_error(error)
        if code == Exit.BUG and not isinstance(error, BugError):
            message = (f"this is a bug in relaxvm: {type(error).__name__}: {message} "
                       f"(--debug shows where)")
        if self._debug:
            self._err.write(plain("".join(traceback.format_exception(error))))
        _show(self._err, plain(f"relaxvm: error: {message}\n"))
        if self.as_json:
            self.result({"error": {
                "type": type(error.__cause__ or error).__name__,
                "message": message,
                "exit_code": int(code),
            }})  # fmt: skip

    @contextmanager
    def progress(self, label: str, total: int | None = None) -> Iterator[Progress]:
        """Report the progress of long work on stderr, if that is a terminal or --progress was
        given."""
        shown = self._progress or _is_terminal(self._err)
        with Progress(self._err, label, total, shown=shown) as progress:
            yield progress

    def flush(self) -> None:
        """Flush the results.

        Raises:
            BrokenPipeError: the reader has closed the output.
            CommandError: they cannot be written.
        """
        with _writing():
            self._out.flush()

    def _write(self, text: str) -> None:
        with _writing():
            self._out.write(text)


def _show(stream: TextIO, text: str) -> None:
    """Write a text for people, in colours where the stream has them."""
    colours = terminal(stream)
    if colours is None:
        stream.write(text)
    else:
        colours.write(text)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise write_error("standard output", error) from error


def describe_error(error: BaseException) -> str:
    """Return the message and notes of an exception, with its class if the message needs it."""
    lines = [str(error) or _NAMELESS.get(type(error), type(error).__name__)]
    source = error.__cause__ or error
    notes: list[str] = getattr(source, "__notes__", [])
    lines.extend(f"  {note}" for note in notes[:_NOTES_SHOWN])
    if len(notes) > _NOTES_SHOWN:
        lines.append(f"  ... and {len(notes) - _NOTES_SHOWN} more lines")
    return "\n".join(lines)


class Progress:
    """A line on stderr with the progress of some work: rewritten on a terminal, a new line at
    longer intervals elsewhere.  Nothing is printed in the first second."""

    SILENT: Final = 1.0
    """Seconds before the first line."""
    PERIOD: Final = 0.5
    """Seconds between two updates on a terminal."""
    PERIOD_PLAIN: Final = 5.0
    """Seconds between two lines elsewhere."""

    def __init__(self, stream: TextIO, label: str, total: int | None, *, shown: bool) -> None:
        self._stream = stream
        self._label = label
        self._total = total
        self._done = 0
        self._terminal = _is_terminal(stream)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True) if shown else None
        self._written = False
        self._bar: Bar | None = None

    def step(self, count: int = 1) -> None:
        """Add `count` to the work that is done."""
        self._done += count

    def __enter__(self) -> Progress:
        self._begun = time.monotonic()
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is None:
            return
        self._thread.join()
        if self._bar is not None:
            self._bar.stop()
        elif self._written and self._terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _tick(self) -> None:
        wait = self.SILENT
        while not self._stop.wait(wait):
            if not self._written:
                colours = terminal(self._stream)
                if colours is not None:
                    self._bar = colours.bar(plain(f"relaxvm: {self._label}"), self._total)
            if self._bar is None:
                self._write()
            else:
                self._bar.show(self._done)
            self._written = True
            wait = self.PERIOD if self._terminal else self.PERIOD_PLAIN

    def _write(self) -> None:
        seconds = time.monotonic() - self._begun
        done = "" if self._total is None else f" {self._done} of {self._total},"
        text = plain(f"relaxvm: {self._label},{done} {seconds:.0f} s")
        if self._terminal:
            # A line that wraps could not be rewritten.
            text = text[: shutil.get_terminal_size().columns - 1]
        self._stream.write(f"\r{text}\x1b[K" if self._terminal else f"{text}\n")
        self._stream.flush()


def _json(data: Mapping[str, Any]) -> str:
    return json.dumps(_finite(data), indent=1, allow_nan=False)


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


def _finite(data: Any) -> Any:
    """Return the data with infinities and NaN, which JSON does not have, replaced by strings."""
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(item) for item in data]
    return data
