"""What a saved run refers to in its executable: the digest that names it, and its constants."""

from __future__ import annotations

import hashlib
import weakref
from bisect import bisect_right
from typing import Any, Final

import numpy as np

from ...errors import FormatError
from ...executable import VMExecutable
from ...executable.formats import binary
from .memory import extent_of

__all__ = ["Program", "program_of"]


class Program:
    """What is known of an executable.

    Attributes:
        digest: SHA-256 of its binary form without debug information, 32 bytes; of its listing if
            it has no binary form.
        number_of: the numbers of the constants that are objects, by their ids.
    """

    def __init__(self, executable: VMExecutable) -> None:
        self.digest = _digest_of(executable)
        self.number_of: dict[int, int] = {}
        extents = []
        for number, value in enumerate(executable.constants):
            if value is None or isinstance(value, (bool, int, float, str)):
                continue  # as short as a reference, or equal ones are one object anyway
            self.number_of.setdefault(id(value), number)
            if isinstance(value, np.ndarray) and value.nbytes and not value.dtype.hasobject:
                extents.append((*extent_of(value), number))
        extents.sort()
        self._starts = [start for start, _, _ in extents]
        self._extents = extents

    def constant_at(self, start: int, end: int) -> tuple[int, int] | None:
        """The number of the constant whose memory has the bytes from `start` to `end`, and where
        that memory begins; None if there is none."""
        at = bisect_right(self._starts, start) - 1
        if at < 0 or end > self._extents[at][1]:
            return None
        return self._extents[at][2], self._extents[at][0]


def _digest_of(executable: VMExecutable) -> bytes:
    try:
        return binary.digest(executable)
    except FormatError:  # of constants that only a listing has
        listing = executable.strip().as_text(complete=True)
        return hashlib.sha256(listing.encode()).digest()


_programs: Final[dict[int, tuple[weakref.ref[VMExecutable], Program]]] = {}
"""By the ids of executables, which are immutable: to hash one takes a second for two gigabytes."""


def program_of(executable: VMExecutable) -> Program:
    """Return what is known of an executable.

    Raises:
        FormatError: it has neither a binary form nor a listing; the message says why.
    """
    key = id(executable)
    known = _programs.get(key)
    if known is None:
        program = Program(executable)
        forget: Any = _programs.pop
        known = weakref.ref(executable, lambda _: forget(key, None)), program
        _programs[key] = known
    return known[1]
