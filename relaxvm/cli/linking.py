"""``link``: put several executables into one."""

from __future__ import annotations

import argparse
import os
from typing import Any

from ..executable import VMExecutable
from ..executable.combining import link
from ..isa import FuncKind
from ..messages import readable
from ..verify import verify
from .console import Console
from .exits import Exit, UsageError, write_error
from .files import add_limits_argument, limits_of, open_executable

__all__ = ["add_commands"]


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "link", parents=[common], help="put several executables into one",
        description="Put several executables, or models, into one executable. The function main "
        "of the file with the prefix a becomes a.main. Does not run any of their code.",
    )  # fmt: skip
    parser.add_argument("files", metavar="PREFIX=FILE", nargs="+",
                        help="a file that `relaxvm run` takes, and the prefix of its "
                        "functions")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="PATH", required=True, help="file to write")
    add_limits_argument(parser)
    parser.add_argument("--strip", action="store_true", help="leave debug information out")
    parser.set_defaults(command=_link)


def _link(args: argparse.Namespace, console: Console) -> int:
    limits = limits_of(args)
    executables: dict[str, VMExecutable] = {}
    for each in args.files:
        prefix, equals, path = each.partition("=")
        if not equals:
            raise UsageError(f"{readable(each)}: expected PREFIX=FILE")
        if prefix in executables:
            raise UsageError(f"two files have the prefix {readable(prefix)}")
        with console.progress(f"reading {path}"):
            executable = open_executable(path, limits).executable
            verify(executable).check()
        executables[prefix] = executable
        if os.path.exists(args.output) and os.path.samefile(path, args.output):
            raise UsageError(f"{readable(path)} would be overwritten; choose another --output")
    try:
        linked = link(executables)
    except ValueError as error:
        raise UsageError(str(error)) from error
    with console.progress(f"writing {args.output}"):
        try:
            linked.save(args.output, debug=not args.strip)
        except OSError as error:
            raise write_error(args.output, error) from error
    console.result({
        "file": args.output,
        "bytes": os.path.getsize(args.output),
        "functions": [info.name for info in linked if info.kind != FuncKind.PACKED],
        "instructions": len(linked),
    })  # fmt: skip
    return Exit.OK
