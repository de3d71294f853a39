"""``debug``: the debugger at a prompt."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ..observe.debugger import Debugger
from ..observe.debugger_prompt import Prompt, history
from .console import Console
from .exits import Exit, UsageError
from .inputs import gather_inputs
from .machines import add_run_arguments, make_vm

__all__ = ["add_commands"]


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    debug = commands.add_parser(
        "debug", parents=[common], help="run a function step by step",
        description="Run a function of a file under a debugger: stop at places, look at values, "
        "change them, go on, go back. Commands come from --execute, then from the terminal or "
        "standard input; `help` lists them.",
    )  # fmt: skip
    add_run_arguments(debug)
    debug.add_argument("--execute", "-x", metavar="COMMAND", action="append", default=[],
                       help="a command to begin with. May be repeated")  # fmt: skip
    debug.add_argument("--batch", action="store_true",
                       help="stop after those of --execute")  # fmt: skip
    debug.set_defaults(command=_debug)


def _debug(args: argparse.Namespace, console: Console) -> int:
    if args.json:
        raise UsageError("debug: its output is for people, there is no --json")
    vm, info = make_vm(args, console)
    executable = vm.executable

    def inputs(name: str) -> list[Any]:
        return gather_inputs(args, executable, executable.function(name), console)

    stdin = None if sys.stdin.isatty() else sys.stdin
    prompt = Prompt(Debugger(vm), inputs, console.text, stdin)
    prompt.default_function = info.name
    for line in args.execute:
        if prompt.onecmd(line):
            return Exit.FAILED if prompt.failed else Exit.OK
    if not args.batch:
        if stdin is None:
            with history():
                prompt.cmdloop(f"`run` starts {info.name}, `help` lists the commands")
        else:
            prompt.cmdloop()
    return Exit.FAILED if prompt.failed and stdin is not None else Exit.OK
