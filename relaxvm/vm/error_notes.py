"""Notes on errors: the position in the executable where an exception was raised.

An exception that passes through a run keeps its class, message and traceback, and receives one note
per VM frame, innermost first::

    in main, pc 7: call vm.builtin.match_shape in: %0, %2, i2, ... dst: %void
      with float32[2, 3], int64[4], int 2
      n = 3, set by argument x axis 1 (pc 3)
      binding y at model.py:12:5
        y = R.match_cast(x, R.Tensor((n, 4), "float32"))
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

If a dimension was compared with a symbolic one, the note shows its value and what set it.  The note
of any other instruction shows the symbolic dimensions of its function::

      where n = 3 (axis 1 of x), m = 5 (axis 0 of w)

The last lines depend on debug information in the executable.

Notes are text, so they keep no argument alive.  Their number and length are bounded, and they are
written without calling code of the arguments' classes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .._core import VMFunction
from ..executable import FunctionInfo, VMExecutable
from ..executable.formats import text
from ..executable.formats.places import place_note, place_text
from ..isa import OP_BY_CODE, VM_REGISTER, FuncKind, Opcode
from ..messages import describe, readable
from .dimensions import checked_slots, dimensions, is_computation, is_heap, origins

__all__ = ["ErrorNotes", "Frame"]

Frame = tuple[int, tuple[Any, ...], Any]
"""A pc, counted from the start of the executable, the first arguments of its instruction, where a
function is represented by its table entry, and the function's shape heap, None if it has none."""

_CALL_HEAD: Final = OP_BY_CODE[Opcode.CALL].fixed_words
"""Words of a call before its arguments; the last one is the argument count."""

MAX_NOTES: Final = 64
"""The most notes on one exception, which may pass through many nested runs."""
MAX_ARGS: Final = 16
"""The most arguments described per frame; longer argument lists are not printed as code."""
MAX_TEXT: Final = 200
"""The most characters of an instruction."""
MAX_NAME: Final = 80
"""The most characters of a function's name."""


class ErrorNotes:
    """Writes the notes for one executable."""

    __slots__ = ("_executable", "_functions", "_starts")

    def __init__(self, executable: VMExecutable) -> None:
        self._executable = executable
        functions = [f for f in executable.functions if f.kind == FuncKind.BYTECODE]
        functions.sort(key=lambda f: f.start_instr)
        self._functions = functions
        self._starts = [f.start_instr for f in functions]

    def add_to(self, exc: BaseException, frames: Sequence[Frame | None], total: int) -> None:
        """Add a note per frame.

        Args:
            exc: the exception.
            frames: innermost first; None marks the frames left out of a long stack.
            total: number of frames, including those left out.
        """
        hidden = total - sum(frame is not None for frame in frames)
        for frame in frames:
            if len(getattr(exc, "__notes__", ())) >= MAX_NOTES:
                return
            if frame is None:
                exc.add_note(f"... {hidden:,} more frames ...")
            else:
                exc.add_note(self.describe_frame(*frame))

    def describe_frame(self, pc: int, args: Sequence[Any], heap: Any = None) -> str:
        """Return the note of one frame."""
        start = int(self._executable.instr_offset[pc])
        words = self._executable.instr_data[start : start + _CALL_HEAD + MAX_ARGS].tolist()
        note = f"in {self._function_of(pc)}, pc {pc}: {self._instruction(pc, words)}"
        place = place_note(self._executable.debug, pc)
        return note + self._values(words, args) + self._heap(pc, args, heap) + place

    def describe_place(self, pc: int) -> str:
        """Return the function, pc and variable of an instruction in one line; empty for a pc that
        is not in the executable, as in compiled functions."""
        if not 0 <= pc < len(self._executable):
            return ""
        debug = self._executable.debug
        place = "" if debug is None else place_text(debug.location(pc))
        return f"{self._function_of(pc)}, pc {pc}{': ' if place else ''}{place}"

    def _values(self, words: Sequence[int], args: Sequence[Any]) -> str:
        if not args:
            return ""
        values = [_describe(arg) for arg in args[:MAX_ARGS]]
        count = len(args)
        if words[0] == Opcode.CALL:
            count = words[_CALL_HEAD - 1]
            operands = zip(words[_CALL_HEAD:], values, strict=False)
            values = ["vm" if word == VM_REGISTER else value for word, value in operands]
        if count > len(values):
            values.append(f"... {count - len(values):,} more")
        return f"\n  with {', '.join(values)}"

    def _heap(self, pc: int, args: Sequence[Any], own: Any) -> str:
        """Describe what set the dimensions that this instruction compared with, or that it had."""
        slots = checked_slots(self._executable, pc)
        if not slots:
            sizes = [size for arg in args if type(arg) is np.ndarray for size in arg.shape]
            dims = dimensions(self._executable, self._info(pc), pc, own, sizes)
            return f"\n  where {', '.join(dims)}" if dims else ""
        heap = next((arg for arg in args[:2] if is_heap(arg)), None)
        with_slots = is_computation(self._executable, pc)
        lines = origins(self._executable, self._info(pc), slots, heap, with_slots)
        return "".join(f"\n  {line}" for line in lines)

    def _info(self, pc: int) -> FunctionInfo:
        return self._functions[bisect_right(self._starts, pc) - 1]

    def _function_of(self, pc: int) -> str:
        return readable(self._info(pc).name, MAX_NAME)

    def _instruction(self, pc: int, words: Sequence[int]) -> str:
        if words[0] == Opcode.CALL and words[_CALL_HEAD - 1] > MAX_ARGS:
            callee = readable(self._executable.functions[words[2]].name, MAX_NAME)
            return f"call {callee} in: {words[_CALL_HEAD - 1]:,} arguments"
        return _clip(" ".join(text.format_instruction(self._executable, pc).split()), MAX_TEXT)


def _describe(arg: Any) -> str:
    if isinstance(arg, (FunctionInfo, VMFunction)):
        return f"function {readable(arg.name, MAX_NAME)}"
    return describe(arg)


def _clip(string: str, limit: int) -> str:
    return string if len(string) <= limit else string[: limit - 3] + "..."
