"""The values that a run computes, in order, by the names of their variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from .._core import Storage
from ..executable import VMExecutable
from ..executable.variables import Variables
from ..isa import FuncKind
from ..values import Shape
from ..vm.runs import Run

__all__ = ["Computed", "computed"]

_OF_THE_MACHINE: Final = (Shape, Storage)
"""Values that lowering adds."""
_HEAP: Final = "shape_heap"


class Computed(NamedTuple):
    """A value that a program has computed.

    Attributes:
        name: of its variable.
        value: what it is.  The program may write into it when it goes on.
        time: how often a variable of this name has been computed, from 0.
        function: the function that has computed it, if known.
        pc: of the instruction, if known.
    """

    name: str
    value: Any
    time: int = 0
    function: str | None = None
    pc: int | None = None

    @property
    def key(self) -> tuple[str, int]:
        """What is compared with what."""
        return self.name, self.time

    def __str__(self) -> str:
        return self.name if self.time == 0 else f"{self.name} (time {self.time + 1})"


def computed(run: Run) -> Iterator[Computed]:
    """Run to the end; yield the value of each variable when it has been computed.

    Shapes and storages are left out, and names that several places of the program compute: passes
    give such names to what they add.  A variable counts once its register holds its value on every
    way that leads there.  A call in tail position does not count: its value is the result.

    Raises:
        Exception: what the program raises.
    """
    executable = run.vm.executable
    after = _after_definitions(executable)
    stops = bytes(bytearray(1 if pc in after else 0 for pc in range(len(executable))))
    times: Counter[str] = Counter()
    while run.resume_at(stops):
        frame = run.frame
        assert frame is not None
        name = after[frame.pc]
        if name in frame.register_of and not isinstance(frame.variables[name], _OF_THE_MACHINE):
            yield Computed(name, frame.variables[name], times[name], frame.function, frame.pc - 1)
            times[name] += 1


def _after_definitions(executable: VMExecutable) -> dict[int, str]:
    """The pcs after instructions that compute a variable, and its name."""
    after = {}
    for info in executable.functions:
        if info.kind == FuncKind.BYTECODE:
            for pc, name in Variables(executable, info).definitions():
                if pc + 1 < info.end_instr:
                    after[pc + 1] = name
    places = Counter(after.values())
    return {pc: name for pc, name in after.items() if places[name] == 1 and name != _HEAP}
