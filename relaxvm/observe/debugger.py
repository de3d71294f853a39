"""`relaxvm.debug(vm)`: a debugger for programs; its commands are methods.

    d = relaxvm.debug(vm)
    d.break_("relaxvm.kernel.matmul", when="x.max() > 1")
    print(d.run("main", x))
    print(d.variables())
    d.back()
    d.interact()            # the same at a prompt

It stands on `relaxvm.vm.Run`.  Going back is running again from the start, on copies of the
arguments as they were, so it needs a program whose packed functions do the same each time.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np

from .._core import Machine
from ..errors import RelaxVMError, did_you_mean
from ..executable.formats.places import excerpt, place_text
from ..executable.formats.text import format_instruction
from ..isa import FuncKind
from ..messages import describe, readable
from ..values import Shape
from ..vm.runs import Frame, Run
from ..vm.stops import find_pcs
from .copies import copied
from .summaries import value_line

if TYPE_CHECKING:
    from ..executable import FunctionInfo, VMExecutable
    from ..vm import VirtualMachine

__all__ = ["Breakpoint", "Debugger", "DebuggerError", "Stop", "Table", "Watch", "debug"]

_ENDLESS: Final = (1 << 63) - 1
_REGISTER: Final = re.compile(r"%(\d+)")
_CHECKED_BYTES: Final = 1 << 24
"""Watched arrays up to this size are compared by all their elements, larger ones by a sample."""
_SAMPLE: Final = 1 << 16

Condition = str | Callable[[Frame], object]


class DebuggerError(RelaxVMError):
    """A command of the debugger cannot be done now, or names what is not there."""


class Breakpoint:
    """A place where a run stops.

    Attributes:
        number: counts from 1.
        place: as it was given, see `relaxvm.vm.stops.find_pcs`.
        pcs: the instructions that it stands for.
        when: a condition: an expression of the variables of the frame, or a function of the frame.
        hits: how often a run has stopped there.
        enabled: whether runs stop there.
        once: whether it goes away with the first stop.
    """

    def __init__(
        self, number: int, place: str | int, pcs: list[int], when: Condition | None, once: bool
    ) -> None:
        self.number = number
        self.place = place
        self.pcs = pcs
        self.when = when
        self.once = once
        self.hits = 0
        self.enabled = True

    def __repr__(self) -> str:
        place = f"pc {self.place}" if isinstance(self.place, int) else readable(self.place)
        if self.when is None:
            when = ""
        else:
            when = f" when {self.when if isinstance(self.when, str) else 'a function says so'}"
        where = f"pc {', '.join(map(str, self.pcs[:4]))}{', ...' * (len(self.pcs) > 4)}"
        state = "" if self.enabled else ", disabled"
        at = "" if isinstance(self.place, int) else f" ({where})"
        once = " once" if self.once else ""
        return f"#{self.number} break at {place}{at}{once}{when}: {self.hits} hits{state}"


class Watch:
    """Something whose change stops a run: a variable, a register, or an expression.

    Attributes:
        number: counts from 1, with the breakpoints.
        what: the expression, or a function of the frame.
        hits: how often it has changed.
        enabled: whether runs stop where it changes.
    """

    def __init__(self, number: int, what: Condition) -> None:
        self.number = number
        self.what = what
        self.hits = 0
        self.enabled = True
        self.last: Any = _UNKNOWN

    def __repr__(self) -> str:
        what = self.what if isinstance(self.what, str) else "a function"
        state = "" if self.enabled else ", disabled"
        return f"#{self.number} watch {what}: {self.hits} changes{state}"


_UNKNOWN: Final = object()
"""The value of a watch that has none in this frame."""


class Stop(NamedTuple):
    """Where a run has stopped, and why; as text, what a person wants to see.

    Attributes:
        reason: ``"breakpoint"``, ``"watch"``, ``"step"``, ``"end"`` or ``"error"``.
        frame: the innermost one; None at the end.
        cause: the `Breakpoint`, the `Watch`, the result, or the exception.
        text: the same for people.
    """

    reason: str
    frame: Frame | None
    cause: Any
    text: str

    def __repr__(self) -> str:
        return self.text


class Table(dict[Any, Any]):
    """Values by name, shown as a table: type, shape, statistics and some elements of each."""

    def __repr__(self) -> str:
        names = [name if isinstance(name, str) else f"%{name}" for name in self]
        width = min(max(map(len, names), default=0), 40)
        lines = [f"{readable(name, 40):<{width}}  {value_line(value)}"
                 for name, value in zip(names, self.values(), strict=True)]  # fmt: skip
        return "\n".join(lines) or "(none)"


class _Lines(str):
    """Text that Python's prompt and a notebook show as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _Assignment(NamedTuple):
    position: int
    level: int
    target: int
    value: Any


class Debugger:
    """A debugger of the runs of a VM; see `relaxvm.debug`.

    The state of a program that changes its `VirtualMachine.state` is put back when a run starts
    again.

    Args:
        vm: the VM; runs that do not start here are not affected.
    """

    def __init__(self, vm: Any) -> None:
        machine = vm if isinstance(vm, Machine) else getattr(vm, "vm", vm)
        if not isinstance(machine, Machine):
            raise TypeError(f"debug: expected a VirtualMachine, got {describe(vm)}")
        self.vm = cast("VirtualMachine", machine)
        self._run: Run | None = None
        self._level = 0
        self._points: dict[int, Breakpoint | Watch] = {}
        self._next_number = 1
        self._call: tuple[str, tuple[Any, ...]] | None = None
        self._state: dict[str, Any] = {}
        self._assigned: list[_Assignment] = []
        self._end: Stop | None = None
        self._listed = 0

    # Running

    def run(self, function: str = "main", *args: Any, **kwargs: Any) -> Stop:
        """Start a function and run it to the first stop.

        Raises:
            DebuggerError: there is no such function.
            ArityError, TypeError: the arguments do not fit.
        """
        self.start(function, *args, **kwargs)
        return self.continue_()

    def start(self, function: str = "main", *args: Any, **kwargs: Any) -> Stop:
        """Start a function and stop before its first instruction; as `run`."""
        table = self.vm.functions
        if function not in table:
            raise DebuggerError(f"{readable(function)}: no function of the program"
                                f"{did_you_mean(function, list(table))}")
        ordered = self.vm._parameters_of(table[function]).order(args, kwargs)
        self._call = function, copied(ordered)
        self._state = {name: value.copy() for name, value in self.vm.state.items()}
        self._assigned = []
        self._restart()
        self._go_to(0)
        return self._stopped("step", None)

    def restart(self) -> Stop:
        """Start again, on the same arguments, and stop before the first instruction."""
        self._restart()
        self._assigned = []
        self._go_to(0)
        return self._stopped("step", None)

    def _restart(self) -> None:
        if self._call is None:
            raise DebuggerError("nothing has been run: run a function first")
        if self._run is not None:
            self._run.cancel()
        function, args = self._call
        self.vm.state.clear()
        self.vm.state.update({name: value.copy() for name, value in self._state.items()})
        self._run = self.vm.functions[function].start(*copied(args))
        self._end = None
        self._level = 0

    @property
    def current(self) -> Run:
        """The run that is debugged.

        Raises:
            DebuggerError: there is none.
        """
        if self._run is None:
            raise DebuggerError("nothing is being run: run a function first")
        return self._run

    def _live(self) -> Run:
        run = self.current
        if run.done:
            raise DebuggerError("the run has ended: `back` goes back into it, `restart` starts it "
                                "again")
        return run

    @property
    def position(self) -> int:
        """How many instructions the run has executed: what `go_to` takes."""
        return self.current.position

    def step(self, n: int = 1) -> Stop:
        """Run `n` instructions, into functions that are called."""
        return self._move(n, lambda run: (1, 0))

    def next(self, n: int = 1) -> Stop:
        """Run `n` instructions of this function; functions that they call run to their end."""
        return self._move(n, lambda run: (_ENDLESS, run.depth))

    def finish(self) -> Stop:
        """Run until this function has returned."""
        depth = self._live().depth - self._level
        return self._move(1, lambda run: (_ENDLESS, depth - 1))

    def continue_(self) -> Stop:
        """Run to the next stop."""
        return self._move(1, lambda run: (_ENDLESS, 0))

    def until(self, place: str | int) -> Stop:
        """Run to a place, or to the stop before it."""
        point = self.break_(place, once=True)
        try:
            return self.continue_()
        finally:
            self._points.pop(point.number, None)

    def _move(self, times: int, how: Callable[[Run], tuple[int, int]]) -> Stop:
        """Go on `times` times, each so many steps or to so many frames; stops end it."""
        if times < 1:
            raise DebuggerError(f"expected a number of at least 1, got {times}")
        self._live()
        self._listed = 0
        for _ in range(times):
            stop = self._advance(how)
            if stop is not None:
                return stop
        return self._stopped("step", None)

    def _advance(self, how: Callable[[Run], tuple[int, int]]) -> Stop | None:
        """Go on once; the stop if there was one that was not asked for."""
        run = self._live()
        stops, by_pc = self._stops()
        watches = [point for point in self._points.values()
                   if isinstance(point, Watch) and point.enabled]  # fmt: skip
        steps, depth = how(run)
        end = run.position + steps
        for watch in watches:
            watch.last = _fingerprint(self._value_of(watch.what))
        while self._resume(run, stops, 1 if watches else end - run.position, depth):
            self._replay()
            self._level = 0
            stop = self._point_hit(by_pc) or self._changed(watches)
            if stop is not None:
                return stop
            if run.position >= end or (depth and run.depth <= depth):
                return None
        return self._end

    def _resume(self, run: Run, stops: bytes | None, steps: int, depth: int) -> bool:
        """Go on; whether it has paused.  Otherwise `_end` says how it has ended."""
        try:
            if run.resume_at(stops, steps=steps, depth=depth):
                return True
        except Exception as error:
            notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
            self._end = Stop("error", None, error, f"{type(error).__name__}: {error}{notes}")
            return False
        self._end = Stop("end", None, run.result(), f"{readable(run.function)} has returned "
                         f"{value_line(run.result())}")
        return False

    def _point_hit(self, by_pc: Mapping[int, list[Breakpoint]]) -> Stop | None:
        frame = self.current.frame
        assert frame is not None
        for point in by_pc.get(frame.pc, ()):
            if point.when is None or self._holds(point, frame):
                point.hits += 1
                if point.once:
                    del self._points[point.number]
                return self._stopped("breakpoint", point)
        return None

    def _holds(self, point: Breakpoint, frame: Frame) -> bool:
        assert point.when is not None
        try:
            return bool(self._value_of(point.when, frame, strict=True))
        except Exception as error:
            raise DebuggerError(f"the condition of breakpoint {point.number}: "
                                f"{type(error).__name__}: {error}") from error

    def _changed(self, watches: list[Watch]) -> Stop | None:
        for watch in watches:
            value = self._value_of(watch.what)
            now = _fingerprint(value)
            before, watch.last = watch.last, now
            if before != now and now is not _UNKNOWN:
                watch.hits += 1
                shown = value_line(value) if value is not _UNKNOWN else "gone"
                return self._stopped("watch", watch, f"{watch.what} is now {shown}\n")
        return None

    def _stops(self) -> tuple[bytes | None, dict[int, list[Breakpoint]]]:
        by_pc: dict[int, list[Breakpoint]] = {}
        for point in self._points.values():
            if isinstance(point, Breakpoint) and point.enabled:
                for pc in point.pcs:
                    by_pc.setdefault(pc, []).append(point)
        if not by_pc:
            return None, by_pc
        marks = bytearray(len(self.vm.executable))
        for pc in by_pc:
            marks[pc] = 1
        return bytes(marks), by_pc

    def _stopped(self, reason: str, cause: Any, text: str = "") -> Stop:
        frame = self.current.frame
        if frame is None:
            assert self._end is not None
            return self._end
        if reason == "breakpoint":
            text += f"breakpoint {cause.number} at {readable(str(cause.place))}\n"
        elif reason == "watch":
            text = f"watch {cause.number}: {text}"
        return Stop(reason, frame, cause, text + self._where(frame))

    def _where(self, frame: Frame, number: int | None = None) -> str:
        head = "" if number is None else f"#{number} "
        place = place_text(frame.location)
        lines = [f"{head}{readable(frame.function)}, pc {frame.pc}"
                 f"{f', {place}' if place else ''}: {frame.instruction}"]  # fmt: skip
        debug = self.vm.executable.debug
        shown = None if debug is None or frame.span is None else excerpt(debug, frame.span)
        if shown is not None:
            lines += [f"    {line}" for line in shown]
        return "\n".join(lines)

    # Back

    def back(self, n: int = 1) -> Stop:
        """Go back `n` instructions: the program runs again from its start.  From the end of a run,
        or from its error, one leads to its last instruction."""
        if n < 1:
            raise DebuggerError(f"expected a number of at least 1, got {n}")
        return self.go_to(max(0, self.current.position - n))

    def go_to(self, position: int) -> Stop:
        """Go to where the run has executed `position` instructions, back or forward."""
        if position < 0:
            raise DebuggerError(f"expected a position of at least 0, got {position}")
        if position < self.current.position or self.current.done:
            self._restart()
        self._go_to(position)
        self._assigned = [item for item in self._assigned if item.position <= position]
        return self._stopped("step", None)

    def reverse_continue(self) -> Stop:
        """Go back to the last stop before this one, or to the start."""
        here = self.current.position
        assigned = list(self._assigned)
        hits = {number: point.hits for number, point in self._points.items()}
        found: tuple[int, Stop] | None = None
        self._restart()
        self._go_to(0)
        stop = self._point_hit(self._stops()[1])
        while self.position < here:
            if stop is not None:
                found = self.position, stop
            stop = self._advance(lambda run: (here - run.position, 0))
            if self.current.done:
                break
        for number, point in self._points.items():
            point.hits = hits.get(number, point.hits)
        self._assigned = assigned
        if found is None:
            return self.go_to(0)
        return found[1]._replace(frame=self.go_to(found[0]).frame)

    def _go_to(self, position: int) -> None:
        """Run on to a position, without stops, with the assignments that were made on the way."""
        run = self.current
        if not run._has_begun:
            run.resume_at(steps=0)
            self._replay()
        pending = [a.position for a in self._assigned if run.position < a.position <= position]
        for target in sorted({*pending, position}):
            if target > run.position and not run.done:
                try:
                    paused = run.resume_at(steps=target - run.position)
                except Exception as error:
                    raise DebuggerError(
                        f"the program does not do the same again: {type(error).__name__}: {error}, "
                        f"on the way to position {position}") from error
                if not paused:
                    self._end = Stop("end", None, run.result(), "the run has ended")
                self._replay()
        self._level = 0
        self._listed = 0

    def _replay(self) -> None:
        run = self.current
        for item in self._assigned:
            if item.position == run.position and not run.done:
                run.assign(item.target, copied(item.value), item.level)

    # Stops

    def break_(
        self, place: str | int, *, when: Condition | None = None, once: bool = False
    ) -> Breakpoint:
        """Stop at a place from now on.

        Args:
            place: a pc, a function, a function that is called, a variable, or ``"file:line"``; see
                `relaxvm.vm.stops.find_pcs`.
            when: stop only if this is true: an expression of the variables of the frame and of
                registers, such as ``"x.max() > 3 and %4 is not None"``, or a function of the
                `relaxvm.vm.Frame`.
            once: stop there once.

        Raises:
            DebuggerError: there is no such place, or `when` is no expression.
        """
        try:
            pcs = find_pcs(self.vm.executable, place)
        except ValueError as error:
            raise DebuggerError(str(error)) from error
        if isinstance(when, str):
            _compiled(when)
        point = Breakpoint(self._take_number(), place, pcs, when, once)
        self._points[point.number] = point
        return point

    def watch(self, what: Condition) -> Watch:
        """Stop where a value changes: after each instruction it is computed anew, in the innermost
        frame, and compared.

        Args:
            what: a variable, a register (``"%3"``), another expression of them, or a function of
                the frame.
        """
        if isinstance(what, str):
            _compiled(what)
        watch = Watch(self._take_number(), what)
        self._points[watch.number] = watch
        return watch

    def _take_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    def delete(self, number: int | None = None) -> None:
        """Delete a breakpoint or watch, or all of them.

        Raises:
            DebuggerError: there is no such one.
        """
        if number is None:
            self._points.clear()
        else:
            del self._points[self._point(number).number]

    def enable(self, number: int, on: bool = True) -> None:
        """Let runs stop at a breakpoint or watch, or not.

        Raises:
            DebuggerError: there is no such one.
        """
        self._point(number).enabled = on

    def _point(self, number: int) -> Breakpoint | Watch:
        if number not in self._points:
            known = ", ".join(map(str, self._points)) or "none"
            raise DebuggerError(f"there is no breakpoint or watch {number}; there are: {known}")
        return self._points[number]

    @property
    def breakpoints(self) -> tuple[Breakpoint | Watch, ...]:
        """The breakpoints and watches."""
        return tuple(self._points.values())

    # Looking

    @property
    def frame(self) -> Frame:
        """The frame that is looked at.

        Raises:
            DebuggerError: there is none.
        """
        self._live()
        return self.current.some_frames(self._level, 1)[0]

    def up(self, n: int = 1) -> str:
        """Look at the caller of the frame; returns where that is."""
        return self.select(self._level + n)

    def down(self, n: int = 1) -> str:
        """Look at the frame that this one has called."""
        return self.select(self._level - n)

    def select(self, number: int) -> str:
        """Look at the frame with a number: 0 is the innermost.

        Raises:
            DebuggerError: there is no such frame.
        """
        depth = self._live().depth
        if not 0 <= number < depth:
            raise DebuggerError(f"there is no frame {number}: they are 0 to {depth - 1}")
        self._level = number
        self._listed = 0
        return _Lines(self._where(self.frame, number))

    def backtrace(self, limit: int = 20) -> str:
        """The frames, the innermost first, with the arguments of each."""
        run = self._live()
        lines = []
        for number, frame in enumerate(run.some_frames(0, limit)):
            place = place_text(frame.location)
            mark = "->" if number == self._level else "  "
            lines.append(f"{mark} #{number} {readable(frame.function)}{self._params(frame)}, pc "
                         f"{frame.pc}{f', {place}' if place else ''}")  # fmt: skip
        if run.depth > limit:
            lines.append(f"   ... {run.depth - limit:,} more frames")
        return _Lines("\n".join(lines))

    def _params(self, frame: Frame) -> str:
        info = next(f for f in self.vm.executable.functions if f.name == frame.function)
        names = info.param_names or [f"arg{i}" for i in range(info.num_args)]
        shown = [f"{readable(name)}={describe(value)}"
                 for name, value in zip(names, frame.registers, strict=False)]  # fmt: skip
        return f"({', '.join(shown[:6])}{', ...' * (len(shown) > 6)})"

    def variables(self) -> Table:
        """The variables of the frame that have been computed, by name."""
        return Table(self.frame.variables)

    def registers(self) -> Table:
        """The registers of the frame that hold a value, by number."""
        return Table({i: value for i, value in enumerate(self.frame.registers)
                      if value is not None})  # fmt: skip

    def print(self, expression: str) -> Any:
        """The value of an expression: a variable, ``%3`` for a register, or Python over them, with
        ``np``.

        Raises:
            DebuggerError: it cannot be computed.
        """
        frame = self.frame
        if expression in frame.variables:
            return frame.variables[expression]
        try:
            return self._evaluate(expression, frame)
        except DebuggerError:
            raise
        except Exception as error:
            known = did_you_mean(expression, list(frame.variables))
            raise DebuggerError(f"{expression}: {type(error).__name__}: {error}{known}") from error

    def assign(self, target: str | int, value: Any) -> None:
        """Put a value into a variable or a register (``"%3"``, or its number) of the frame.

        Raises:
            DebuggerError: the frame has no such variable or register.
            TypeError: `value` is none of a program.
        """
        frame = self.frame
        if isinstance(target, str) and (match := _REGISTER.fullmatch(target)) is not None:
            target = int(match[1])
        try:
            self.current.assign(target, value, self._level)
        except (ValueError, IndexError) as error:
            raise DebuggerError(str(error)) from error
        register = frame.register_of[target] if isinstance(target, str) else target
        kept = copied(value)
        self._assigned.append(_Assignment(self.position, self._level, register, kept))

    def list(self, count: int = 11) -> str:
        """Instructions around that of the frame, with the source where it changes; again, the
        ones after them."""
        frame = self.frame
        executable = self.vm.executable
        info = self._info_of(frame.pc)
        first = self._listed or max(info.start_instr, frame.pc - count // 2)
        last = min(info.end_instr, first + count)
        self._listed = last if last < info.end_instr else 0
        return _Lines("\n".join(_listing(executable, info, first, last, frame.pc,
                                         {pc for point in self._points.values()
                                          if isinstance(point, Breakpoint) for pc in point.pcs})))

    def _info_of(self, pc: int) -> FunctionInfo:
        for info in self.vm.executable.functions:
            if info.kind == FuncKind.BYTECODE and info.start_instr <= pc < info.end_instr:
                return info
        raise DebuggerError(f"pc {pc}: compiled code has no instructions to list")

    # Values

    def _value_of(self, what: Condition, frame: Frame | None = None, strict: bool = False) -> Any:
        frame = self.current.frame if frame is None else frame
        if frame is None:
            return _UNKNOWN
        if not isinstance(what, str):
            return what(frame)
        try:
            return self._evaluate(what, frame)
        except (NameError, IndexError):
            if strict:
                raise
            return _UNKNOWN

    def _evaluate(self, expression: str, frame: Frame) -> Any:
        names = _Names(frame)
        return eval(_compiled(expression), {"np": np, "__builtins__": builtins}, names)

    def interact(self) -> None:
        """Read commands from a prompt, in a terminal or a notebook, until `quit`."""
        from .debugger_prompt import Prompt  # here, since programs do without

        Prompt(self).cmdloop()

    def __repr__(self) -> str:
        state = "nothing run" if self._run is None else repr(self._run)
        return f"<Debugger: {state}, {len(self._points)} breakpoints and watches>"


class _Names(Mapping[str, Any]):
    """The names of an expression: the variables of a frame, and `_r`, its registers."""

    def __init__(self, frame: Frame) -> None:
        self._values = {**frame.variables, "_r": frame.registers}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def debug(vm: Any) -> Debugger:
    """A debugger for the runs of a VM: breakpoints, steps forward and back, values::

        d = relaxvm.debug(vm)
        d.break_("relaxvm.kernel.matmul")   # or a function, a variable, a pc, "file:line"
        d.run("main", x)
        d.variables()
        d.next()
        d.back()
        d.interact()                        # the same at a prompt

    Args:
        vm: the VM, or a `relaxvm.contrib.tvm.VirtualMachine`.

    Raises:
        TypeError: `vm` is none.
    """
    return Debugger(vm)


def _compiled(expression: str) -> Any:
    try:
        return compile(_REGISTER.sub(r"_r[\1]", expression.strip()), "<expression>", "eval")
    except (SyntaxError, ValueError) as error:
        raise DebuggerError(f"{expression}: no expression: {error}") from error


def _fingerprint(value: Any) -> Any:
    """Something that compares equal as long as a value stays the same."""
    if value is _UNKNOWN:
        return _UNKNOWN
    if isinstance(value, np.ndarray):
        flat = value.reshape(-1)
        if value.nbytes > _CHECKED_BYTES:
            flat = flat[:: max(1, flat.size // _SAMPLE)]
        return value.shape, value.dtype.str, hash(flat.tobytes())
    if isinstance(value, (tuple, list)) and not isinstance(value, Shape):
        return tuple(_fingerprint(item) for item in value)
    if value is None or isinstance(value, (bool, int, float, str, Shape, np.generic)):
        return type(value), value if value == value else "nan"
    return id(value)


def _listing(
    executable: VMExecutable, info: FunctionInfo, first: int, last: int, pc: int, points: set[int]
) -> Iterator[str]:
    debug = executable.debug
    shown = None
    for at in range(first, last):
        span = None if debug is None else debug.span(at)
        if debug is not None and span is not None and (span.file, span.line) != shown:
            shown = span.file, span.line
            text = debug.line(span.file, span.line)
            if text is not None:
                yield f"     # {span.line}: {readable(text.strip(), 90)}"
        mark = "->" if at == pc else "  "
        point = "*" if at in points else " "
        yield f"{mark}{point}{at:>6}  {' '.join(format_instruction(executable, at).split())}"
    if last == info.end_instr:
        yield f"          end of {readable(info.name)}"
