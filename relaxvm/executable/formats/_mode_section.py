"""The mode section: how the functions of a program are to run, other than as bytecode."""

from __future__ import annotations

from typing import Final

from ...errors import FormatError
from ._fields import Reader, Writer

__all__ = ["load", "save"]

_MODES: Final = ("compiled",)
_SIZE: Final = 8


def save(to: Writer, mode: str) -> None:
    if mode not in _MODES:
        raise FormatError(f"expected one of {', '.join(_MODES)}, got {mode!r}")
    to.put(mode.encode("ascii").ljust(_SIZE, b"\0"))


def load(read: Reader) -> str:
    data = bytes(read.stream.take(_SIZE))
    for mode in _MODES:
        if data == mode.encode("ascii").ljust(_SIZE, b"\0"):
            return mode
    raise FormatError(f"expected one of {', '.join(_MODES)}, got {data!r}")
