"""The function table as columns, made from untrusted entries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import isa
from ..executable import FunctionInfo
from ..isa import FuncKind

__all__ = ["FunctionTable", "entry_faults"]

Words = NDArray[np.int64]

_NUMBERS: Final = ("start_instr", "end_instr", "num_args", "register_file_size")


class FunctionTable:
    """The entries of the function table, and columns of the well-formed ones.

    Attributes:
        entries: all entries.
        index: int64[m], which entries are well-formed.
        infos, names: these entries, and their names.
        kind, start, end, num_args, registers, num_names: int64[m], their fields; the last one is
            the number of parameter names.
    """

    def __init__(self, entries: tuple[Any, ...]) -> None:
        self.entries = entries
        every = range(len(entries))
        good = every if _plain(entries) else [i for i in every if not any(entry_faults(entries[i]))]
        self.index: Words = np.array(good, np.int64)
        self.infos: list[FunctionInfo] = [entries[i] for i in good]
        self.names = [info.name for info in self.infos]
        self.start, self.end, self.num_args, self.registers = (
            np.array([getattr(info, field) for info in self.infos], np.int64) for field in _NUMBERS
        )
        self.kind: Words = np.array([info.kind for info in self.infos], np.int64)
        self.num_names: Words = np.array([len(info.param_names) for info in self.infos], np.int64)

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, index: int) -> FunctionInfo | None:
        """Return the entry at a position of the table; None if it is malformed or missing."""
        row = int(np.searchsorted(self.index, index))
        if row < len(self.index) and self.index[row] == index:
            return self.infos[row]
        return None

    def spread(self, values: Words, missing: int) -> Words:
        """Return a column by position in the table, with `missing` for malformed entries."""
        full = np.full(len(self.entries), missing, np.int64)
        full[self.index] = values
        return full


def _plain(entries: tuple[Any, ...]) -> bool:
    """Return whether `entry_faults` finds nothing for any entry, but much faster."""
    if not set(map(type, entries)) <= {FunctionInfo}:
        return False
    expected = dict.fromkeys(_NUMBERS, int) | {"kind": FuncKind, "name": str, "param_names": tuple}
    if any(set(map(type, map(attrgetter(f), entries))) - {t} for f, t in expected.items()):
        return False
    if not set(map(type, chain.from_iterable(e.param_names for e in entries))) <= {str}:
        return False
    numbers = (map(attrgetter(field), entries) for field in _NUMBERS)
    return all(isa.WORD_MIN <= value <= isa.WORD_MAX for value in chain.from_iterable(numbers))


def entry_faults(entry: Any) -> Iterator[str]:
    """Yield what is wrong with the types in an entry of the function table.

    Subclasses are refused too: their attributes and comparisons could run arbitrary code.
    """
    if type(entry) is not FunctionInfo:
        yield f"expected a FunctionInfo, got {type(entry).__name__}"
        return
    if type(entry.kind) is not FuncKind:
        yield f"kind: expected a FuncKind, got {type(entry.kind).__name__}"
    if type(entry.name) is not str:
        yield f"name: expected a str, got {type(entry.name).__name__}"
    for field in _NUMBERS:
        value = getattr(entry, field)
        if type(value) is not int:
            yield f"{field}: expected an int, got {type(value).__name__}"
        elif not isa.WORD_MIN <= value <= isa.WORD_MAX:
            yield f"{field}: expected a 64-bit integer, got one of {value.bit_length()} bits"
    if type(entry.param_names) is not tuple:
        yield f"param_names: expected a tuple, got {type(entry.param_names).__name__}"
        return
    for i, name in enumerate(entry.param_names):
        if type(name) is not str:
            yield f"param_names: expected a str as item {i}, got {type(name).__name__}"
