"""The debugger's prompt: its commands as lines of text, for a terminal, a notebook or a file."""

from __future__ import annotations

import cmd
import contextlib
import os
import shlex
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final

from .debugger import Debugger, DebuggerError
from .summaries import value_line

__all__ = ["Prompt", "history"]

_ALIASES: Final = {
    "r": "run", "s": "step", "n": "next", "c": "continue", "cont": "continue", "fin": "finish",
    "b": "break", "tb": "tbreak", "bt": "backtrace", "w": "backtrace", "where": "backtrace",
    "f": "frame", "u": "up", "d": "down", "p": "print", "l": "list", "q": "quit", "exit": "quit",
    "rs": "back", "rc": "reverse-continue", "i": "info", "h": "help", "v": "variables",
}  # fmt: skip
_INFO: Final = (
    "breakpoints", "functions", "locals", "position", "registers", "variables", "watchpoints",
)  # fmt: skip
_HISTORY_LINES: Final = 1000


class Prompt(cmd.Cmd):
    """Reads commands and does them with a `Debugger`; names are those of gdb and pdb.

    Args:
        debugger: does the commands.
        inputs: makes the arguments of ``run`` and ``start`` by function; without it, a function can
            only be run that has no parameters.
        write: where the answers go; standard output if None.
        stdin: where the commands come from, if that is no terminal.
    """

    prompt = "(relaxvm) "
    use_rawinput = True

    def __init__(
        self,
        debugger: Debugger,
        inputs: Callable[[str], list[Any]] | None = None,
        write: Callable[[str], None] | None = None,
        stdin: IO[str] | None = None,
    ) -> None:
        super().__init__(stdin=stdin)
        self.debugger = debugger
        self.failed = False
        """Whether a command has failed."""
        names = list(debugger.vm.functions)
        self.default_function = names[0] if len(names) == 1 else "main"
        """What ``run`` runs if it is not told."""
        self._inputs = inputs
        self._write = write or self._print
        if stdin is not None:
            self.use_rawinput = False
            self.prompt = ""

    def _print(self, text: str) -> None:
        self.stdout.write(text)

    def _say(self, answer: Any) -> None:
        if answer is not None:
            text = answer if isinstance(answer, str) else repr(answer)
            self._write(text if text.endswith("\n") else text + "\n")

    def _warn(self, message: Any, *place: Any, **more: Any) -> None:
        """Say what a warning says; its line of Python is one of the module `cmd`."""
        self._say(f"warning: {message}")

    # Lines

    def onecmd(self, line: str) -> bool:
        """Do a command; errors are answers.  Returns whether to leave."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = self._warn
                return bool(super().onecmd(line))
        except DebuggerError as error:
            self.failed = True
            self._say(f"error: {error}")
        except KeyboardInterrupt:
            self._say("interrupted")
        except Exception as error:  # of an expression, or an argument
            self.failed = True
            self._say(f"error: {type(error).__name__}: {error}")
        return False

    def parseline(self, line: str) -> tuple[str | None, str | None, str]:
        """Resolve abbreviations, and names that are no Python identifiers."""
        line = line.strip()
        if line == "EOF":
            return "quit", "", line
        word, _, rest = line.partition(" ")
        word = _ALIASES.get(word, word)
        return super().parseline(f"{word.replace('-', '_')} {rest}".strip())

    def default(self, line: str) -> None:
        """Any other line is an expression, as in pdb."""
        self.do_print(line)

    def emptyline(self) -> bool:
        """An empty line repeats the last command at a prompt."""
        return super().emptyline() if self.use_rawinput else False

    # Running

    def do_run(self, arg: str) -> None:
        """run [FUNCTION]: start a function on the inputs and run it to the first stop."""
        self._start(arg, self.debugger.run)

    def do_start(self, arg: str) -> None:
        """start [FUNCTION]: start a function and stop before its first instruction."""
        self._start(arg, self.debugger.start)

    def _start(self, arg: str, start: Callable[..., Any]) -> None:
        functions = self.debugger.vm.functions
        name = arg.strip() or self.default_function
        args = []
        if self._inputs is not None and name in functions:
            args = self._inputs(name)
        self._say(start(name, *args))

    def do_restart(self, arg: str) -> None:
        """restart: start again on the same arguments, and stop before the first instruction."""
        self._say(self.debugger.restart())

    def do_step(self, arg: str) -> None:
        """step [N]: run N instructions, into functions that are called."""
        self._say(self.debugger.step(_number(arg, 1)))

    def do_next(self, arg: str) -> None:
        """next [N]: run N instructions, over functions that are called."""
        self._say(self.debugger.next(_number(arg, 1)))

    def do_finish(self, arg: str) -> None:
        """finish: run until this function has returned."""
        self._say(self.debugger.finish())

    def do_continue(self, arg: str) -> None:
        """continue: run to the next stop."""
        self._say(self.debugger.continue_())

    def do_until(self, arg: str) -> None:
        """until PLACE: run to a place, or to the stop before it."""
        self._say(self.debugger.until(_place(arg)))

    def do_back(self, arg: str) -> None:
        """back [N]: go back N instructions (the program runs again from its start)."""
        self._say(self.debugger.back(_number(arg, 1)))

    def do_reverse_continue(self, arg: str) -> None:
        """reverse-continue: go back to the last stop before this one."""
        self._say(self.debugger.reverse_continue())

    def do_goto(self, arg: str) -> None:
        """goto POSITION: go to where the run has executed so many instructions."""
        self._say(self.debugger.go_to(_number(arg, None)))

    # Stops

    def do_break(self, arg: str) -> None:
        """break PLACE [if EXPRESSION]: stop at a function, a function that is called, a variable,
        FILE:LINE, or "pc N"; without a place, list the breakpoints."""
        self._break(arg, once=False)

    def do_tbreak(self, arg: str) -> None:
        """tbreak PLACE [if EXPRESSION]: stop there once."""
        self._break(arg, once=True)

    def _break(self, arg: str, *, once: bool) -> None:
        place, _, when = arg.partition(" if ")
        if not place.strip():
            self.do_info("breakpoints")
            return
        self._say(self.debugger.break_(_place(place), when=when.strip() or None, once=once))

    def do_watch(self, arg: str) -> None:
        """watch EXPRESSION: stop where the value of a variable, a register (%3) or an expression
        changes."""
        if not arg.strip():
            raise DebuggerError("watch: expected an expression")
        self._say(self.debugger.watch(arg.strip()))

    def do_delete(self, arg: str) -> None:
        """delete [N]: delete a breakpoint or watch, or all of them."""
        self.debugger.delete(_number(arg, None) if arg.strip() else None)

    def do_enable(self, arg: str) -> None:
        """enable N: let runs stop at a breakpoint or watch again."""
        self.debugger.enable(_number(arg, None))

    def do_disable(self, arg: str) -> None:
        """disable N: let runs not stop at a breakpoint or watch."""
        self.debugger.enable(_number(arg, None), False)

    # Looking

    def do_backtrace(self, arg: str) -> None:
        """backtrace [N]: the frames, the innermost first."""
        self._say(self.debugger.backtrace(_number(arg, 20)))

    def do_frame(self, arg: str) -> None:
        """frame [N]: look at frame N, 0 is the innermost."""
        self._say(self.debugger.select(_number(arg, self.debugger._level)))

    def do_up(self, arg: str) -> None:
        """up [N]: look at the caller of the frame."""
        self._say(self.debugger.up(_number(arg, 1)))

    def do_down(self, arg: str) -> None:
        """down [N]: look at the frame that this one has called."""
        self._say(self.debugger.down(_number(arg, 1)))

    def do_variables(self, arg: str) -> None:
        """variables: the variables of the frame that have been computed."""
        self._say(self.debugger.variables())

    def do_registers(self, arg: str) -> None:
        """registers: the registers of the frame that hold a value."""
        self._say(self.debugger.registers())

    def do_print(self, arg: str) -> None:
        """print EXPRESSION: a variable, a register (%3), or Python over them, with np."""
        value = self.debugger.print(arg.strip())
        self._say(f"{value_line(value)}\n{value!r}")

    def do_set(self, arg: str) -> None:
        """set NAME = EXPRESSION: put a value into a variable or a register (%3)."""
        target, equals, expression = arg.partition("=")
        if not equals:
            raise DebuggerError("set: expected NAME = EXPRESSION")
        self.debugger.assign(target.strip(), self.debugger.print(expression.strip()))

    def do_list(self, arg: str) -> None:
        """list [N]: N instructions around the one that is next; again, those after them."""
        self._say(self.debugger.list(_number(arg, 11)))

    def do_info(self, arg: str) -> None:
        """info breakpoints|functions|locals|position|registers: what there is."""
        what = arg.strip() or "breakpoints"
        kind = next((kind for kind in _INFO if kind.startswith(what)), None)
        if kind in ("breakpoints", "watchpoints"):
            points = self.debugger.breakpoints
            self._say("\n".join(map(repr, points)) or "no breakpoints or watches")
        elif kind == "functions":
            self._say("\n".join(map(repr, self.debugger.vm.functions.values())))
        elif kind == "position":
            self._say(f"{self.debugger.position} instructions have run")
        elif kind == "registers":
            self.do_registers("")
        elif kind is not None:
            self.do_variables("")
        else:
            raise DebuggerError(f"info {what}: expected one of {', '.join(_INFO)}")

    def do_quit(self, arg: str) -> bool:
        """quit: leave the debugger."""
        return True

    # Completion

    def completenames(self, text: str, *ignored: Any) -> list[str]:
        return [name.replace("_", "-") for name in super().completenames(text, *ignored)]

    def complete_run(self, text: str, *ignored: Any) -> list[str]:
        return [name for name in self.debugger.vm.functions if name.startswith(text)]

    complete_start = complete_run

    def complete_break(self, text: str, *ignored: Any) -> list[str]:
        executable = self.debugger.vm.executable
        names = [info.name for info in executable.functions]
        if executable.debug is not None:
            names += executable.debug.variables
        return sorted({name for name in names if name.startswith(text)})

    complete_tbreak = complete_until = complete_break

    def complete_print(self, text: str, *ignored: Any) -> list[str]:
        try:
            return [name for name in self.debugger.variables() if name.startswith(text)]
        except DebuggerError:
            return []

    complete_watch = complete_set = complete_print

    def complete_info(self, text: str, *ignored: Any) -> list[str]:
        return [name for name in _INFO if name.startswith(text)]


def _number(arg: str, default: int | None) -> int:
    text = arg.strip()
    if not text and default is not None:
        return default
    try:
        return int(text)
    except ValueError:
        raise DebuggerError(f"expected a number, got {text!r}") from None


def _place(text: str) -> str | int:
    text = text.strip()
    if len(text) > 1 and text[0] in "'\"":
        text = shlex.split(text)[0]
    return int(text) if text.isdigit() else text


@contextlib.contextmanager
def history() -> Iterator[None]:
    """Keep the lines of the prompt from one session to the next, where `readline` is there: in
    ``relaxvm/debug_history`` below ``$XDG_STATE_HOME`` or ``~/.local/state``."""
    try:
        import readline
    except ImportError:  # as on Windows
        yield
        return
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    file = Path(base) / "relaxvm" / "debug_history"
    # Names of functions have dots, and registers a percent sign.
    readline.set_completer_delims(" \t\n()[]+-*/=,")
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        readline.set_history_length(_HISTORY_LINES)
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(file)


