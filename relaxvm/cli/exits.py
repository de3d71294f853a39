"""Exit codes of the command line, and the exit code of each exception."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from ..errors import (
    BugError,
    FormatError,
    LimitError,
    LinkError,
    MissingExtraError,
    ParseError,
    RelaxVMError,
    VerifyError,
)

__all__ = [
    "CommandError",
    "Exit",
    "UsageError",
    "code_of_program",
    "exit_code_of",
    "read_error",
    "write_error",
]


class Exit(IntEnum):
    """The exit status of a command."""

    OK = 0
    FAILED = 1
    """The run, the compilation, the verification or the writing of a result failed."""
    USAGE = 2
    """The command line is wrong: options, function names, inputs that do not fit."""
    MALFORMED = 3
    """A file cannot be read or is not well formed."""
    MISSING = 4
    """Functions that the executable needs, or an optional package, are missing."""
    LIMIT = 5
    """A limit was reached, while loading or running."""
    BUG = 70
    """A bug in relaxvm."""
    INTERRUPTED = 130
    """Ctrl-C."""
    BROKEN_PIPE = 141
    """The reader of the output has closed it."""


BUILD_ERRORS: Final = (TypeError, ValueError, KeyError, NotImplementedError, OverflowError)
"""Python's own errors that `relaxvm.build` raises for programs that are wrong."""


class CommandError(Exception):
    """Ends a command with a message and an exit code."""

    code = Exit.FAILED

    def __init__(self, message: str, code: Exit | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class UsageError(CommandError):
    """The command line asks for something that does not exist or does not fit."""

    code = Exit.USAGE


def read_error(name: str, error: OSError) -> CommandError:
    """Return the error for an input file that cannot be read."""
    return CommandError(f"{name}: cannot be read: {error.strerror or error}", Exit.MALFORMED)


def write_error(name: str, error: OSError) -> CommandError:
    """Return the error for an output file that cannot be written."""
    return CommandError(f"{name}: cannot be written: {error.strerror or error}", Exit.FAILED)


_CODES = (
    (BugError, Exit.BUG),
    (LinkError, Exit.MISSING),
    (MissingExtraError, Exit.MISSING),
    (LimitError, Exit.LIMIT),
    (FormatError, Exit.MALFORMED),
    (ParseError, Exit.MALFORMED),
    (VerifyError, Exit.FAILED),
    (RelaxVMError, Exit.FAILED),
    (MemoryError, Exit.FAILED),
    (OSError, Exit.MALFORMED),
)


def code_of_program(error: BaseException) -> Exit:
    """Return the exit code for an error of a program in a file: well formed programs that do not
    compile, such as models with operators that are not supported, have FAILED."""
    is_malformed = isinstance(error, (FormatError, ParseError)) or type(error) is ValueError
    return Exit.MALFORMED if is_malformed else Exit.FAILED


def exit_code_of(error: BaseException) -> Exit:
    """Return the exit code for an exception of a command.  An unexpected exception is a bug."""
    if isinstance(error, CommandError):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.BUG)
