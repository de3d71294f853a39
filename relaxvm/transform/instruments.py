"""Instruments, which run around each pass: to time it, or to print, dump or check its result.

Source: ``tvm.instrument`` of apache-tvm 0.27; `DumpIR` and `WellFormedInstrument` are ours.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..ir import IRModule

if TYPE_CHECKING:
    from .pass_infra import Pass

__all__ = [
    "DumpIR",
    "PassInstrument",
    "PassTimingInstrument",
    "PrintAfterAll",
    "PrintBeforeAll",
    "WellFormedInstrument",
    "pass_instrument",
]


class PassInstrument:
    """Base of instruments; its methods are called around each pass of a `PassContext`."""

    def enter_pass_ctx(self) -> None:
        """Called when the context is entered."""

    def exit_pass_ctx(self) -> None:
        """Called when the context is left."""

    def should_run(self, mod: IRModule, info: Pass) -> bool:
        """Return whether a pass should run; it is skipped if any instrument returns false."""
        return True

    def run_before_pass(self, mod: IRModule, info: Pass) -> None:
        """Called before a pass runs on `mod`."""

    def run_after_pass(self, mod: IRModule, info: Pass) -> None:
        """Called after a pass has returned `mod`."""


def pass_instrument(pi_cls: type | None = None) -> Any:
    """Class decorator, with or without parentheses: make an instrument from a plain class that has
    some of the methods."""
    if pi_cls is None:
        return pass_instrument
    name, doc = pi_cls.__name__, pi_cls.__doc__
    made: type[PassInstrument] = type(name, (pi_cls, PassInstrument), {"__doc__": doc})
    return made


class PassTimingInstrument(PassInstrument):
    """Times passes; `render` returns a table with nested passes indented."""

    def __init__(self) -> None:
        self._depth = 0
        self._starts: list[tuple[int, float]] = []
        self._rows: list[tuple[int, str, float]] = []

    def run_before_pass(self, mod: IRModule, info: Pass) -> None:
        self._rows.append((self._depth, info.name, 0.0))
        self._starts.append((len(self._rows) - 1, time.perf_counter()))
        self._depth += 1

    def run_after_pass(self, mod: IRModule, info: Pass) -> None:
        row, start = self._starts.pop()
        depth, name, _ = self._rows[row]
        self._rows[row] = (depth, name, time.perf_counter() - start)
        self._depth -= 1

    @property
    def times(self) -> list[tuple[str, float]]:
        """Return (pass, seconds) in order of start; the time of a Sequential includes its passes.
        """
        return [(name, seconds) for _, name, seconds in self._rows]

    def render(self) -> str:
        """Return the table: milliseconds, and the share of the total time of outermost passes."""
        total = sum(seconds for depth, _, seconds in self._rows if depth == 0) or 1.0
        return "\n".join(
            f"{seconds * 1e3:10.3f} ms {seconds / total:6.1%}  {'  ' * depth}{name}"
            for depth, name, seconds in self._rows
        )


class _Printing(PassInstrument):
    def __init__(self, file: IO[str] | None = None) -> None:
        self._file = file

    def _print(self, when: str, mod: IRModule, info: Pass) -> None:
        print(f"# {when} {info.name}\n{mod.script()}\n", file=self._file or sys.stderr)


class PrintBeforeAll(_Printing):
    """Prints the module before each pass, to stderr or a file."""

    def run_before_pass(self, mod: IRModule, info: Pass) -> None:
        self._print("before", mod, info)


class PrintAfterAll(_Printing):
    """Prints the module after each pass, to stderr or a file."""

    def run_after_pass(self, mod: IRModule, info: Pass) -> None:
        self._print("after", mod, info)


class WellFormedInstrument(PassInstrument):
    """Checks the module after each pass, and names the pass that broke it."""

    def run_after_pass(self, mod: IRModule, info: Pass) -> None:
        from ..analysis import IllFormedError, well_formed

        try:
            well_formed(mod)
        except IllFormedError as error:
            error.add_note(f"after pass {info.name}")
            raise


class DumpIR(PassInstrument):
    """Writes the module after each pass to ``NN-Name.py`` in a folder, which is created if needed.

    Args:
        dump_dir: the folder.
        refresh: whether to delete what such a run has written to the folder before.
    """

    def __init__(self, dump_dir: str | Path, refresh: bool = False) -> None:
        self._folder = Path(dump_dir)
        self._number = 0
        if refresh and self._folder.is_dir():
            for path in self._folder.iterdir():
                if re.fullmatch(r"\d{2,}-.*\.py", path.name):
                    path.unlink()

    def run_after_pass(self, mod: IRModule, info: Any) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in info.name)
        path = self._folder / f"{self._number:02d}-{name}.py"
        path.write_text(mod.script() + "\n", encoding="utf-8")
        self._number += 1
