"""Rules that programs break."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Problem"]


class Problem(NamedTuple):
    """A rule that a program breaks."""

    function: str
    pc: int
    message: str

    def __str__(self) -> str:
        return f"function {self.function!r}, pc {self.pc}: {self.message}"
