"""``completion``: what a shell needs to complete commands, options and files."""

from __future__ import annotations

import argparse
from typing import Any, Final

from ..errors import MissingExtraError
from .console import Console
from .exits import Exit

__all__ = ["add_commands"]

_SHELLS: Final = ("bash", "zsh", "fish", "tcsh", "powershell")

_FILES: Final = frozenset({"FILE", "OTHER", "PATH", "PROGRAM"})
"""Names of arguments that are files, as ``--help`` shows them."""


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    completion = commands.add_parser(
        "completion", parents=[common], help="print a script of completions for a shell",
        description="Print a script that makes a shell complete the commands and options of "
        "relaxvm, and the names of files. Needs the extra cli.",
    )  # fmt: skip
    completion.add_argument("shell", choices=_SHELLS, help="the shell")
    completion.set_defaults(command=_completion)


def _completion(args: argparse.Namespace, console: Console) -> int:
    try:
        import shtab
    except ImportError:
        raise MissingExtraError(
            "completion: expected the package shtab; install it with the extra cli: "
            "pip install 'relaxvm[cli]'"
        ) from None
    from . import _parser

    parser = _parser()
    for each in _parsers(parser):
        for action in each._actions:
            if action.metavar in _FILES:
                vars(action)["complete"] = shtab.FILE
    script = shtab.complete(parser, args.shell)
    console.text(script)
    console.result({"shell": args.shell, "script": script})
    return Exit.OK


def _parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """A parser and those of its commands."""
    found = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in dict.fromkeys(action.choices.values()):
                found += _parsers(each)
    return found
