"""Runs as objects: begun, stepped, paused, looked at, changed, and ended by hand."""

from __future__ import annotations

import operator
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, Final, Self

from .._core import Stepper
from ..errors import CancelledError, RelaxVMError, SuspendedError, did_you_mean
from ..executable import VMExecutable
from ..executable.debug_info import Location, Span
from ..executable.formats.places import span_text
from ..executable.formats.text import format_instruction
from ..executable.variables import Variables
from ..isa import FuncKind
from ..messages import describe, readable
from .machine import VirtualMachine
from .stops import find_pcs

if TYPE_CHECKING:
    from .saved_runs.checkpoints import Checkpoints
    from .saved_runs.reader import SavedRun

__all__ = ["Frame", "Run", "Until"]

_ENDLESS: Final = (1 << 63) - 1
_AGAIN: Final = 0.0005
"""Seconds until a run that was not in progress is interrupted again."""

Place = str | int
"""See `relaxvm.vm.stops.find_pcs`."""
Until = Place | Callable[["Run"], object] | Iterable[Place]


def _number_of_instructions(value: Any, method: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{method}: expected a number of instructions, got {describe(value)}"
        ) from None
    if number < 1:
        raise ValueError(f"{method}: expected at least one instruction, got {number}")
    return number


class Frame:
    """A function that a paused run is in: a snapshot, which does not change when the run goes on.

    Attributes:
        function: its name.
        pc: of the instruction that it is at: the one that is next in the innermost frame, and the
            call that has not returned yet in the others.
        registers: their values, by number; one that was never written has None.
    """

    __slots__ = ("_executable", "_variables", "function", "pc", "registers")

    def __init__(
        self, executable: VMExecutable, function: str, pc: int, registers: tuple[Any, ...],
        variables: Mapping[str, int],
    ) -> None:  # fmt: skip
        self._executable = executable
        self._variables = variables
        self.function = function
        self.pc = pc
        self.registers = registers

    @property
    def variables(self) -> dict[str, Any]:
        """The values of the variables that have been computed, and of the parameters, by name.

        A variable is left out once its register holds another value.
        """
        return {name: self.registers[index] for name, index in self._variables.items()}

    @property
    def register_of(self) -> dict[str, int]:
        """The registers that hold the `variables`."""
        return dict(self._variables)

    @property
    def location(self) -> Location:
        """Where in the source the instruction comes from, and the variable that it computes."""
        from ..executable.debug_info import Location

        debug = self._executable.debug
        return Location(self.pc) if debug is None else debug.location(self.pc)

    @property
    def span(self) -> Span | None:
        """The piece of the source, if known."""
        return self.location.span

    @property
    def file(self) -> str | None:
        """The file of the source, if known."""
        span = self.location.span
        return None if span is None else span.file

    @property
    def line(self) -> int | None:
        """The line of the source, if known."""
        span = self.location.span
        return None if span is None else span.line

    @property
    def instruction(self) -> str:
        """The instruction as a listing shows it."""
        if self.pc >= len(self._executable):
            return "call of compiled code"
        return " ".join(format_instruction(self._executable, self.pc).split())

    def __repr__(self) -> str:
        span = self.location.span
        at = "" if span is None else f" at {span_text(span)}"
        return f"<Frame of {readable(self.function)}, pc {self.pc}{at}>"


class Run(Stepper):
    """A run of a function, which goes on when it is told to: ``run = vm["main"].start(x)``.

    It has not begun at first, and pauses before instructions::

        run = vm["main"].start(x)
        run.resume(until="relaxvm.kernel.matmul")   # before a call of it
        print(run.frames[0].variables)
        run.step()                                  # that call
        print(run.result())                         # of the rest

    Results, errors and limits are those of a call.  The time that counts is that in which it is
    not paused; the memory limits count its registers, which are those of the source.  Packed
    functions run to their end when they are called, and so does a VM function that they call.
    Code is not rewritten for it, so it runs slower than a call; a tail call takes over the frame of
    its caller here too.  An instrument that is set when it starts sees it.

    A run keeps its VM alive, and its frames the values in them, until it ends or is dropped.  Any
    thread may resume it, but one at a time.

    A run that is paused can be written to a file, which `relaxvm.load_run` makes a run of again, in
    another process or on another machine::

        run.save("run.ckpt")
    """

    def __init__(
        self, vm: VirtualMachine, index: int, args: tuple[Any, ...], *, stepped: bool = True
    ) -> None:
        """Use ``vm[name].start(*args)``.

        Args:
            stepped: False for a run at the speed of a call, which does not pause, but can be
                cancelled by itself.
        """
        self._prepare(vm, None)
        self._is_stepped = stepped
        self._open(vm, index, args, stepped)

    def _prepare(self, vm: VirtualMachine, checkpoints: Checkpoints | None) -> None:
        self._vm = vm
        self._value: Any = None
        self._error: BaseException | None = None
        self._variables: dict[int, Variables] = {}
        self._stops: tuple[object, bytes] | None = None
        self._checkpoints = checkpoints
        self._is_stepped = True
        self._thread = 0  # of the call that makes it go on, which has several parts; else 0
        self._waiting: list[threading.Event] = []
        self._is_cancelled = False

    @classmethod
    def _restored(
        cls, vm: VirtualMachine, saved: SavedRun, checkpoints: Checkpoints | None
    ) -> Self:
        """A run that was saved, whose frames have been checked."""
        run = cls.__new__(cls)
        run._prepare(vm, checkpoints)
        record = saved.run
        run._restore(
            vm, record.function, [(f.function, f.pc, f.registers) for f in saved.frames],
            bool(record.begun), record.position, record.fuel_used, record.wall_used_ns,
            saved.object_bytes,
        )  # fmt: skip
        return run

    # What it is at

    @property
    def vm(self) -> VirtualMachine:
        """The virtual machine that runs it."""
        return self._vm

    @property
    def function(self) -> str:
        """The name of the function that was started."""
        return self._vm.executable.functions[self.index].name

    @property
    def done(self) -> bool:
        """Whether it has ended: with a result, an exception, or because it was cancelled."""
        return not self._has_frames

    @property
    def position(self) -> int:
        """How many instructions it has run; a tail call counts as one with its return."""
        return self._position

    @property
    def depth(self) -> int:
        """The number of frames, 0 once it has ended."""
        return self._depth

    @property
    def fuel_left(self) -> int | None:
        """The instructions that ``Limits(fuel=...)`` still lets it run; None without that limit."""
        return self._fuel_left

    @property
    def frame(self) -> Frame | None:
        """The innermost frame; None once it has ended."""
        frames = self.some_frames(0, 1)
        return frames[0] if frames else None

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The frames, the innermost one first; empty once it has ended.

        Raises:
            RelaxVMError: the run is in progress.
        """
        return self.some_frames(0, self.depth)

    def some_frames(self, first: int, count: int) -> tuple[Frame, ...]:
        """At most `count` of the frames, from number `first` on.

        Raises:
            RelaxVMError: the run is in progress.
        """
        if self.done:
            return ()
        executable = self._vm.executable
        found = []
        for index, pc, registers in self._frames(first, count):
            info = executable.functions[index]
            names: Mapping[str, int] = {}
            if info.kind == FuncKind.BYTECODE:
                known = self._variables.get(index)
                if known is None:
                    known = self._variables[index] = Variables(executable, info)
                names = known.at(pc)
            found.append(Frame(executable, info.name, pc, registers, names))
        return tuple(found)

    # Going on

    def step(self, n: int = 1) -> Frame | None:
        """Run `n` instructions; those of functions that they call count.

        Returns:
            The frame that it is in then, None if it has ended.

        Raises:
            TypeError: `n` is not an integer.
            ValueError: it is below 1.
            RelaxVMError: it has ended or is in progress.
            Exception: what the program raises.
        """
        self._go_on(_number_of_instructions(n, "step"), None, 0)
        return self.frame

    def next(self) -> Frame | None:
        """Run one instruction, and all of the functions that it calls; as `step`."""
        self._go_on(_ENDLESS, None, self.depth)
        return self.frame

    def finish(self) -> Frame | None:
        """Run until the innermost function has returned; as `step`."""
        depth = self.depth
        self._go_on(_ENDLESS, None, depth - 1)
        return self.frame

    def resume(self, fuel: int | None = None, until: Until | None = None) -> Frame | None:
        """Go on to the end, or to a place.

        Args:
            fuel: the most instructions to run now; it pauses when they are used up.
            until: where to pause: a pc, the name of a function, of a function that is called, or
                of a variable, or ``"file:line"`` (see `relaxvm.vm.stops.find_pcs`); several of
                these; or a function of the run that tells before each instruction whether to pause.

        Returns:
            The frame that it is in then, None if it has ended.

        Raises:
            TypeError: `fuel` is not an integer, or `until` no place.
            ValueError: there is no such place, or `fuel` is below 1.
            RelaxVMError: it has ended or is in progress.
            Exception: what the program raises.
        """
        steps = _ENDLESS if fuel is None else _number_of_instructions(fuel, "resume")
        if not callable(until):
            self._go_on(steps, self._stops_of(until), 0)
            return self.frame
        with self._going():
            if not self._has_begun:
                self._advance_one(0)  # to the first instruction
                if until(self):
                    return self.frame
            while steps > 0 and not self._waiting and self._advance_for(1, None, 0):
                steps -= 1
                if until(self):
                    break
        return self.frame

    def resume_at(
        self, stops: bytes | None = None, *, steps: int | None = None, depth: int = 0
    ) -> bool:
        """Go on as far as the core does without asking: what debuggers and schedulers stand on.

        Args:
            stops: a byte for each instruction of the executable, not 0 where to pause.
            steps: the most instructions to run.
            depth: pause where there are at most so many frames; 0 for nowhere.

        Returns:
            Whether it has paused; otherwise it has ended.
        """
        padded = None if stops is None else stops + bytes(2 * len(self._vm.executable.functions))
        return self._go_on(_ENDLESS if steps is None else steps, padded, depth)

    def result(self) -> Any:
        """Run what is left, and return the result.

        Raises:
            CancelledError: it was cancelled.
            SuspendedError: `suspend` has paused it before its end.
            Exception: what the program raises, or has raised.
        """
        if not self.done and self._go_on(_ENDLESS, None, 0):
            frame = self.frame
            at = "" if frame is None else f" in {readable(frame.function)} at pc {frame.pc}"
            raise SuspendedError(
                f"the run was suspended{at}; it can be saved, and result() goes on"
            )
        if self._error is not None:
            raise self._error
        return self._value

    def cancel(self) -> None:
        """End it: at once if it is paused; one that is in progress in another thread raises
        `CancelledError` there soon.  Does nothing once it has ended."""
        if self.done:
            return
        # First, so that a call that begins now ends, too.
        self._cancel()
        self._is_cancelled = True
        if not self._thread and not self._is_running:
            self._end()

    def _end(self) -> None:
        """End a paused run that was cancelled."""
        if not self.done:
            self._error = CancelledError("the run was cancelled")
            self._stop()

    def suspend(self, timeout: float | None = None, *, wait: bool = True) -> bool:
        """Pause it before its next instruction, where another thread makes it go on.

        The call in that thread returns as at any other place where it pauses; `result` raises
        `SuspendedError`.  A packed function that it has called ends first.

        Args:
            timeout: the most seconds to wait.
            wait: False to ask for it and return at once, as a handler of a signal or a function
                that the run itself has called has to.

        Returns:
            Whether it has not ended: then it is paused, or, with ``wait=False``, soon will be.

        Raises:
            TimeoutError: it goes on for longer than `timeout`; it pauses later.
            RelaxVMError: the run waits for this very call to end.
        """
        if not self._is_stepped:
            raise RelaxVMError("suspend: a run of async_call does not pause; cancel ends it")
        if not self._thread:
            return not self.done
        if wait and self._thread == threading.get_ident():
            raise RelaxVMError(
                "suspend: the run has called the function that calls this, and waits for it; "
                "suspend(wait=False) pauses it afterwards"
            )
        paused = threading.Event()
        self._waiting.append(paused)
        is_own = self._thread == threading.get_ident()
        end = time.monotonic() + (threading.TIMEOUT_MAX if timeout is None else timeout)
        while not self._interrupt() and not is_own and self._thread and time.monotonic() < end:
            if paused.wait(_AGAIN):  # the other thread was between two parts of going on
                break
        if not self._thread:  # it has paused meanwhile; nothing is left to ask for
            with suppress(ValueError):
                self._waiting.remove(paused)
        elif wait and not paused.wait(max(0.0, end - time.monotonic())):
            raise TimeoutError(f"suspend: the run has not paused within {timeout} s: a function "
                               f"that it has called takes long")  # fmt: skip
        return not self.done

    def save(self, target: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write it to a file, from which `relaxvm.load_run` goes on; it stays as it is.

        The file has the frames with all their values and what the machine keeps in ``vm.state``.
        It refers to constants of the executable, and has no code.  Equal runs give equal bytes.

        A file at a path is replaced atomically: the bytes are written to a new file in the same
        folder and flushed to the disk; then it takes the name of the old one.

        Args:
            target: path, or file opened for writing bytes.

        Raises:
            UnsavableError: a register holds what a file cannot hold, such as a Python function that
                the executable does not name, or an object of another package; the message and the
                error's attributes say where.
            RelaxVMError: it has ended, or is in progress: see `suspend`.
            FormatError: the executable has no binary form.
            OSError: the file cannot be written; an old file at the path is unchanged.
            TypeError: `target` is neither a path nor a file.
        """
        from .saved_runs import saving  # here, since most runs are not saved

        saving.save(self, target)

    def _go_on(self, steps: int, stops: bytes | None, depth: int) -> bool:
        """Go on as `_advance` does; return whether it has paused."""
        with self._going():
            while True:
                if self._waiting:
                    return True
                if not self._advance_for(steps, stops, depth):
                    return False
                left = self._interrupted_steps
                if left is None or self._waiting or self._has_arrived(left, stops, depth):
                    return True
                steps = left  # it was interrupted for a checkpoint

    @contextmanager
    def _going(self) -> Iterator[None]:
        """While it is made to go on; those who wait for its pause are told afterwards."""
        if self._thread:
            raise RelaxVMError("the run is in progress: only one that is paused can be used so")
        self._thread = threading.get_ident()
        try:
            yield
        finally:
            self._thread = 0
            while self._waiting:
                self._waiting.pop().set()
        if self._is_cancelled and not self.done:  # when it was about to pause
            self._end()
            assert self._error is not None
            raise self._error

    def _has_arrived(self, steps: int, stops: bytes | None, depth: int) -> bool:
        """Whether it would have paused where it was interrupted."""
        if steps <= 0 or (depth > 0 and self.depth <= depth):
            return True
        return stops is not None and bool(stops[self._frames(0, 1)[0][1]])

    def _advance_for(self, steps: int, stops: bytes | None, depth: int) -> bool:
        """Go on, and write a checkpoint if one is due when it pauses."""
        checkpoints = self._checkpoints
        if checkpoints is None:
            return self._advance_one(steps, stops, depth)
        over = checkpoints.watch(self._interrupt)
        try:
            paused = self._advance_one(steps, stops, depth)
        finally:
            over.set()
        if paused and checkpoints.is_due:
            checkpoints.write(self.save)
        return paused

    def _advance_one(self, steps: int, stops: bytes | None = None, depth: int = 0) -> bool:
        try:
            paused, value = self._advance(steps, stops, depth)
        except BaseException as error:
            if self.done and not self._is_running and self._error is None:
                self._error = error
            raise
        if not paused:
            self._value = value
        return paused

    def _stops_of(self, until: Until | None) -> bytes | None:
        if until is None:
            return None
        assert not callable(until)
        places: Sequence[Place] = [until] if isinstance(until, (str, int)) else list(until)
        key = tuple(places)
        if self._stops is None or self._stops[0] != key:
            marks = bytearray(len(self._vm.executable) + 2 * len(self._vm.executable.functions))
            for place in places:
                for pc in find_pcs(self._vm.executable, place):
                    marks[pc] = 1
            self._stops = key, bytes(marks)
        return self._stops[1]

    # Changing values

    def assign(self, target: str | int, value: Any, frame: int = 0) -> None:
        """Put a value into a register of a frame.

        Args:
            target: the number of a register, or the name of a variable that has been computed.
            value: the value; converted as an argument is.
            frame: the number of the frame, counted from the innermost.

        Raises:
            IndexError: there is no such frame or register.
            ValueError: the frame has no such variable.
            RelaxVMError: the run has ended or is in progress.
        """
        if isinstance(target, str):
            frames = self.some_frames(frame, 1)
            if not frames and self.done:
                raise RelaxVMError("the run has ended")
            if not frames:
                raise IndexError(f"there is no frame {frame}: the run has {self.depth}")
            known = frames[0].register_of
            if target not in known:
                raise ValueError(f"{readable(frames[0].function)} has no variable "
                                 f"{readable(target)!r} here{did_you_mean(target, list(known))}")
            target = known[target]
        self._store(frame, target, value)

    def __repr__(self) -> str:
        name = readable(self.function)
        if self._is_running:
            return f"<Run of {name}, in progress>"
        if not self.done:
            frame = self.frame
            assert frame is not None
            state = "paused" if self._has_begun else "not begun"
            return f"<Run of {name}, {state} in {readable(frame.function)} at pc {frame.pc}>"
        if self._error is not None:
            return f"<Run of {name}, ended with {type(self._error).__name__}>"
        return f"<Run of {name}, ended with {describe(self._value)}>"
