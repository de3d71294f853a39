"""Enumerations that print as those of onnxruntime do."""

from __future__ import annotations

from enum import Enum, IntEnum

__all__ = ["Choice"]


class Choice(IntEnum):
    """A number with a name, which is its text: ``ExecutionMode.ORT_PARALLEL``."""

    __str__ = Enum.__str__
    __format__ = Enum.__format__
