"""The command line: ``relaxvm`` and ``python -m relaxvm``."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from .console import Console, plain
from .exits import CommandError, Exit, exit_code_of

__all__ = ["main"]

_EPILOG = """\
exit codes:
    0  success
    1  the run, the compilation, the verification or the writing of a result failed
    2  wrong usage: options, function names, inputs that do not fit
    3  a file cannot be read or is not well formed
    4  functions that the executable needs, or an optional package, are missing
    5  a limit was reached
   70  a bug in relaxvm
  130  interrupted
  141  the reader of the output has closed it

inspect, dis, decompile, asm, check and verify do not run any code of the file.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: arguments after the program's name; those of the process if None.

    Returns:
        The exit code; see `relaxvm.cli.exits.Exit`.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A character that the terminal cannot encode must not abort the command.
            stream.reconfigure(errors="backslashreplace")
    try:
        args = _parser().parse_args(argv)
    except SystemExit as stop:  # argparse has printed help or the error
        return stop.code if isinstance(stop.code, int) else Exit.USAGE
    console = Console(as_json=args.json, debug=args.debug, progress=args.progress)
    if args.verbose:
        _show_logs(args.verbose)
    try:
        with _plain_warnings(console, sys._getframe(1).f_code.co_filename):
            code: int = args.command(args, console)
        console.flush()
        return code
    except BrokenPipeError:
        _abandon_output()
        return Exit.BROKEN_PIPE
    except KeyboardInterrupt as error:
        return _fail(console, error, Exit.INTERRUPTED)
    except Exception as error:
        return _fail(console, error, exit_code_of(error))


def _fail(console: Console, error: BaseException, code: Exit) -> int:
    try:
        console.error(error, code)
        console.flush()
    except (BrokenPipeError, CommandError):
        # The error is on stderr; the rest of stdout cannot be written.
        _abandon_output()
    return code


@contextlib.contextmanager
def _plain_warnings(console: Console, starter: str) -> Iterator[None]:
    """Show warnings of programs as remarks: the line of Python that they come from is one of
    relaxvm, or of the file `starter` that called `main`.  Those of users' own modules keep theirs.
    Nobody looks for functions among the attributes of a virtual machine here."""
    from ..errors import NameClashWarning

    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

    def show(message: Any, category: type, filename: str, *place: Any, **more: Any) -> None:
        if filename == starter or os.path.abspath(filename).startswith(package + os.sep):
            console.note(f"warning: {message}")
        else:
            default(message, category, filename, *place, **more)

    with warnings.catch_warnings():
        default, warnings.showwarning = warnings.showwarning, show
        warnings.simplefilter("ignore", NameClashWarning)
        yield


def _show_logs(verbose: int) -> None:
    """Show what relaxvm logs; its names come from files, so control characters are escaped."""
    import logging

    class Plain(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return plain(f"{record.name}: {record.getMessage()}")

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Plain())
    logger = logging.getLogger("relaxvm")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if verbose > 1 else logging.INFO)


def _abandon_output() -> None:
    """Redirect stdout after its reader has closed it, so that flushing at exit does not fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    # Imported here so that importing relaxvm.cli stays cheap.
    from .. import __version__
    from . import (
        assemble,
        cache,
        check,
        check_models,
        comparing,
        compiling,
        completion,
        debugging,
        drawing,
        experiments,
        linking,
        look,
        run,
        serving,
    )

    common = argparse.ArgumentParser(add_help=False)
    group = common.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="results and errors as JSON on stdout")
    group.add_argument("--progress", action="store_true",
                       help="report progress on stderr even if it is not a terminal")  # fmt: skip
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")
    group.add_argument("-v", "--verbose", action="count", default=0,
                       help="say on stderr what the cache and the C compiler do; twice: the "
                       "passes, too")  # fmt: skip

    parser = argparse.ArgumentParser(
        prog="relaxvm",
        description="Compile, run, verify and inspect executables of the Relax VM.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"relaxvm {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    modules = (
        run, debugging, look, assemble, linking, compiling, comparing, drawing, experiments,
        check_models, check, cache, serving, completion,
    )  # fmt: skip
    for group_of_commands in modules:
        group_of_commands.add_commands(commands, common)
    return parser
