"""``asm``: assemble a complete listing into a binary file."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ..errors import FormatError, ParseError, VerifyError
from ..executable import VMExecutable
from ..executable.formats import binary
from ..limits import Limits
from ..verify import verify
from .arrays import replacing
from .console import Console
from .exits import CommandError, Exit, UsageError, read_error
from .files import STDIO, parse_listing, read_stream, standard_input

__all__ = ["add_commands"]


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    asm = commands.add_parser(
        "asm", parents=[common], help="assemble a listing",
        description="Read the output of `relaxvm dis --complete`, or a listing of Relay's virtual "
        "machine, verify it, and write the binary form. Does not run any of its code.",
    )  # fmt: skip
    asm.add_argument("file", metavar="FILE", help="complete listing; - for stdin")
    asm.add_argument("-o", "--output", metavar="PATH", required=True,
                     help="file to write; - for stdout")  # fmt: skip
    asm.add_argument("--isa", choices=("relaxvm", "relay"), default="relaxvm",
                     help="relay: a listing in the register instruction set of Relay, which is "
                     "translated")  # fmt: skip
    asm.add_argument("--no-verify", action="store_true", help="write it even if it is not valid")
    asm.add_argument("--strip", action="store_true", help="leave debug information out")
    asm.set_defaults(command=_asm)


def _asm(args: argparse.Namespace, console: Console) -> int:
    if args.output == STDIO and (console.as_json or sys.stdout.isatty()):
        raise UsageError("--output -: expected a pipe or a file at standard output, "
                         + ("with --json it is used for the result" if console.as_json
                            else "got a terminal"))  # fmt: skip
    data, name = _read(args.file)
    with console.progress(f"assembling {name}"):
        executable = parse_listing(data, name) if args.isa == "relaxvm" else _relay(data, name)
        if not args.no_verify:
            verify(executable).check()
        data = _dump(executable, debug=not args.strip)
    if args.output == STDIO:
        sys.stdout.buffer.write(data)
    else:
        with replacing(args.output) as file:
            file.write(data)
    console.result({"file": args.output, "bytes": len(data),
                    "functions": len(executable.functions), "instructions": len(executable)})
    return Exit.OK


def _relay(data: bytes, name: str) -> VMExecutable:
    from ..relay_isa import assemble, translate

    try:
        return translate(assemble(data.decode(), file=name))
    except (ParseError, VerifyError, UnicodeDecodeError) as error:
        message = f"{name}: {error}" if not isinstance(error, ParseError) else str(error)
        raise CommandError(message, Exit.MALFORMED) from error


def _read(name: str) -> tuple[bytes, str]:
    """Return the bytes of a file and its name for messages."""
    if name == STDIO:
        return read_stream(standard_input(), "<stdin>", Limits()), "<stdin>"
    try:
        with open(name, "rb") as file:
            return read_stream(file, name, Limits()), name
    except OSError as error:
        raise read_error(name, error) from error


def _dump(executable: VMExecutable, *, debug: bool) -> bytes:
    try:
        return binary.dumps(executable, debug=debug)
    except FormatError as error:
        # The listing is valid, but cannot be expressed in the binary form.
        raise CommandError(str(error)) from error
