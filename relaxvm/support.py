"""The value of a record's field for something that is not supported."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Unsupported"]


class Unsupported(NamedTuple):
    """The value of a field that a kernel or operator does not support, with the reason.

    It is false, so that ``if record.in_place:`` works.

    Attributes:
        reason: why, in one sentence.
    """

    reason: str

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"not supported: {self.reason}"
