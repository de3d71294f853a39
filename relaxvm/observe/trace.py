"""`relaxvm.trace(vm, "main", x)`: every instruction that a run executes, for studies of programs.

    t = relaxvm.trace(vm, "main", x)
    print(t)                    # how often each opcode, builtin and pair of them runs
    t.save("trace.npz")
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from .._core import Machine
from ..messages import describe, readable

if TYPE_CHECKING:
    from ..vm import VirtualMachine

__all__ = ["Trace", "trace"]

_MOST: Final = 1_000_000


class Trace:
    """The instructions that a run has executed.

    Attributes:
        pcs: int32, the pc of each, in order.
        depths: int32, the number of frames at each.
        result: of the run; None if it was ended.
        complete: whether the run has come to its end.
    """

    def __init__(
        self, vm: VirtualMachine, pcs: NDArray[np.int32], depths: NDArray[np.int32], result: Any,
        complete: bool,
    ) -> None:  # fmt: skip
        self._vm = vm
        self.pcs = pcs
        self.depths = depths
        self.result = result
        self.complete = complete

    @property
    def names(self) -> list[str]:
        """What each instruction of the executable is: ``ret``, ``goto``, ``if``, or the name of the
        function that it calls."""
        executable = self._vm.executable
        return [
            executable.functions[instruction["func_idx"]].name
            if instruction.op.name == "call" else instruction.op.name
            for _, instruction in executable.instructions()
        ]  # fmt: skip

    def counts(self) -> Counter[str]:
        """How often each name ran."""
        names = self.names
        totals = np.bincount(self.pcs, minlength=len(names)).tolist()
        found: Counter[str] = Counter()
        for name, total in zip(names, totals, strict=True):
            if total:
                found[name] += total
        return found

    def pairs(self) -> Counter[tuple[str, str]]:
        """How often one name ran right after another."""
        names = self.names
        size = len(names)
        both = self.pcs[:-1].astype(np.int64) * size + self.pcs[1:]
        found: Counter[tuple[str, str]] = Counter()
        for key, total in zip(*np.unique(both, return_counts=True), strict=True):
            found[names[int(key) // size], names[int(key) % size]] += int(total)
        return found

    def operations(self) -> Counter[str]:
        """How many operations of each kind the translated code of calls has, over all functions
        (see `relaxvm.core.operations`): what the loop runs instead of the instructions."""
        found: Counter[str] = Counter()
        for function in self._vm.functions.values():
            found.update(row.operation.name for row in function.translated if not row.is_fallback)
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an ``.npz``: ``pcs``, ``depths``, ``names`` of all instructions, and the words of
        the program, ``instr_data`` and ``instr_offset``."""
        executable = self._vm.executable
        np.savez_compressed(
            path, pcs=self.pcs, depths=self.depths, names=np.array(self.names),
            instr_data=executable.instr_data, instr_offset=executable.instr_offset,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.pcs)

    def __repr__(self) -> str:
        lines = [f"{len(self):,} instructions, up to {int(self.depths.max(initial=0))} frames deep"
                 f"{'' if self.complete else ', not to the end'}"]  # fmt: skip
        lines += [f"{total:>9,}  {readable(name)}" for name, total in self.counts().most_common(12)]
        lines.append("pairs:")
        lines += [f"{total:>9,}  {readable(a)}, {readable(b)}"
                  for (a, b), total in self.pairs().most_common(8)]  # fmt: skip
        return "\n".join(lines)


def trace(vm: Any, function: str = "main", *args: Any, most: int = _MOST, **kwargs: Any) -> Trace:
    """Run a function instruction by instruction, and keep which ones ran.

    Args:
        vm: the VM, or a `relaxvm.contrib.tvm.VirtualMachine`.
        function: the function.
        args, kwargs: its arguments.
        most: the most instructions; the run is ended after them.

    Raises:
        TypeError: `vm` is none.
        ValueError: `most` is below 1.
        KeyError: there is no such function.
        Exception: what the program raises.
    """
    machine = vm if isinstance(vm, Machine) else getattr(vm, "vm", vm)
    if not isinstance(machine, Machine):
        raise TypeError(f"trace: expected a VirtualMachine, got {describe(vm)}")
    if most < 1:
        raise ValueError(f"trace: expected at least one instruction, got most={most}")
    owner = cast("VirtualMachine", machine)
    run = owner.functions[function].start(*args, **kwargs)
    pcs: list[int] = []
    depths: list[int] = []
    size = len(owner.executable)
    paused = run.resume_at(steps=0)
    while paused and len(pcs) < most:
        ((_, pc, _),) = run._frames(0, 1)
        if pc < size:  # else it is of a function that is compiled code
            pcs.append(pc)
            depths.append(run.depth)
        paused = run.resume_at(steps=1)
    complete = run.done
    result = run.result() if complete else None
    run.cancel()
    return Trace(owner, np.array(pcs, np.int32), np.array(depths, np.int32), result, complete)
