"""The executable as the rules see it: parts of the right types, functions in order of code.

Nothing here trusts the executable.  A part of a wrong type is replaced by an empty one and recorded
in `Parts.faults`; a malformed entry of the function table has no row in its columns.  So every rule
can read everything, in any order and whether or not other rules have failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import isa
from ..executable import VMExecutable
from ..executable._pool import odd_constants
from ..executable.debug_info import DebugInfo
from ..isa import ArgKind, FuncKind
from ..messages import readable
from ..registry import Registry
from ..values import is_adt
from .functions import FunctionTable
from .signatures import SignatureTable

__all__ = ["Bodies", "Parts", "Words"]

Words = NDArray[np.int64]

_NO_WORDS: Final[Words] = np.frombuffer(b"", np.int64)


class Bodies:
    """The ranges of bytecode functions in order of code, and the function of each instruction.

    The last element of each array means "no function": the whole code, and no bound on registers.
    So the index -1 needs no special case.

    Attributes:
        index: int64[f + 1], position in the function table; the last one is -1.
        start, end: int64[f + 1], the half-open range of instructions.
        registers: int64[f + 1], size of the register file.
    """

    def __init__(self, table: FunctionTable, num_instrs: int) -> None:
        start, end = table.start, table.end
        good = (start >= 0) & (start < end) & (end <= num_instrs)
        rows = np.flatnonzero(good & (table.kind == FuncKind.BYTECODE))
        rows = rows[np.lexsort((end[rows], start[rows]))]
        self.start = np.append(start[rows], 0)
        self.end = np.append(end[rows], num_instrs)
        self.registers = np.append(table.registers[rows], isa.VOID_REGISTER)
        self.index = np.append(table.index[rows], -1)
        # Instructions [bounds[i], bounds[i + 1]) belong to body owners[i].  Where functions
        # overlap, the instructions belong to the one that starts last.
        n = len(rows)
        bounds = np.empty(2 * n + 2, np.int64)
        bounds[0], bounds[-1] = 0, num_instrs
        bounds[1:-1:2] = self.start[:-1]
        bounds[2:-1:2] = np.minimum(self.end[:-1], np.append(self.start[1:-1], num_instrs)[:n])
        owners = np.full(2 * n + 1, -1, np.int64)
        owners[1::2] = np.arange(n)
        self._bounds, self._owners = bounds, owners

    def __len__(self) -> int:
        return len(self.index) - 1

    def owner(self, low: int, high: int) -> Words:
        """Return the body (a position in the arrays) of each instruction in [low, high), or -1."""
        first = int(np.searchsorted(self._bounds, low, "right")) - 1
        last = int(np.searchsorted(self._bounds, high, "left"))
        edges = np.clip(self._bounds[first : last + 1], low, high)
        return np.repeat(self._owners[first:last], np.diff(edges))

    def gaps(self) -> tuple[Words, Words]:
        """Return the start and end of each range of instructions that is in no function."""
        start = np.concatenate(([0], np.maximum.accumulate(self.end[:-1])))
        end = np.append(self.start[:-1], self.end[-1])
        return start[start < end], end[start < end]


def _values(odd: list[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    for index, value in odd:
        if is_adt(value):
            from ..executable.flat_values import leaves_of  # here, since most programs have none

            yield from ((index, leaf) for leaf in leaves_of(value))
        else:
            yield index, value


class Parts:
    """An executable, split into typed tables once for all rules.

    Attributes:
        executable: the executable that is verified.
        faults: what is wrong with the types of its parts.
        functions: the function table.
        odd: the constants that are not ordinary, with their indices; rules on single constants look
            only at these.
        values: the same, but for constants of data types what is in them: arrays and so on.
        most_dims: the largest rank of the ordinary ones, -1 if there are none.
        constants, scopes, offsets, words, debug, sections: the other parts.
        reached: int64[n + 1], the running maximum of the offsets; equal to the offsets where these
            ascend, as they should.  The last one is the end of the words.
        arg_bounds: int64[256] twice, see `Rows.odd_args`.
        bodies: ranges of the bytecode functions.
        signatures: the known signatures of the functions.
    """

    def __init__(self, executable: VMExecutable, registry: Registry) -> None:
        self.executable = executable
        self.faults: list[str] = []
        self.functions = FunctionTable(self._part("functions", tuple, ()))
        self.constants: tuple[Any, ...] = self._part("constants", tuple, ())
        odd, self.most_dims = odd_constants(self.constants)
        self.odd = [(i, self.constants[i]) for i in odd]
        self.values = [*_values(self.odd)]
        self.scopes: dict[Any, Any] = self._part("memory_scopes", dict, {})
        self.debug: DebugInfo | None = None
        if executable.debug is not None:
            self.debug = self._part("debug", DebugInfo, None)
        self.sections: dict[str, Any] = self._part("sections", dict, {})
        self.offsets = self._code("instr_offset")
        self.words = self._code("instr_data")
        end = len(self.words)
        self.reached: Words = np.maximum.accumulate(np.append(np.clip(self.offsets, 0, end), end))
        self.arg_bounds = self._arg_bounds()
        self.bodies = Bodies(self.functions, len(self.offsets))
        self.signatures = SignatureTable(
            self.functions, len(self.constants), self.odd, registry
        )

    def _part(self, name: str, kind: type, empty: Any) -> Any:
        value = getattr(self.executable, name)
        if type(value) is kind:
            return value
        self.faults.append(f"{name}: expected a {kind.__name__}, got {type(value).__name__}")
        return empty

    def _code(self, name: str) -> Words:
        value: Words = self._part(name, np.ndarray, _NO_WORDS)
        flags = value.flags
        plain = flags.c_contiguous and flags.aligned and not flags.writeable
        if value.dtype == np.int64 and value.ndim == 1 and plain:
            return value
        self.faults.append(
            f"{name}: expected read-only contiguous int64[n], got {value.dtype} with {value.ndim} "
            f"dimensions{', writable' if flags.writeable else ''}"
        )
        return _NO_WORDS

    def _arg_bounds(self) -> tuple[Words, Words]:
        """Return, per argument kind, the smallest value and the end of the values that are valid
        without a closer look.  The bound of registers differs by function."""
        low, high = np.zeros((2, 256), np.int64)
        low[ArgKind.IMMEDIATE], high[ArgKind.IMMEDIATE] = isa.VALUE_MIN, isa.VALUE_MAX + 1
        high[ArgKind.CONSTANT] = len(self.constants)
        high[ArgKind.FUNCTION] = len(self.functions)
        return low, high

    def function_name(self, index: int) -> str | None:
        """Return the name of an entry in printable form, None if there is none."""
        info = self.functions.get(index)
        return None if info is None else readable(info.name)

    def function_at(self, pc: int) -> str | None:
        """Return the name of the function that contains an instruction."""
        body = int(self.bodies.owner(pc, pc + 1)[0])
        index = int(self.bodies.index[body])
        return None if index < 0 else self.function_name(index)
