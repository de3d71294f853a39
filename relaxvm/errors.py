"""Exception and warning classes.

A user's mistake and a bug of ours are different classes: `BugError` is always the latter.  The
names `InternalError` and `DiagnosticError` are TVM's: there a failed check of any kind is an
InternalError, and programs that catch it keep working here.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "ArityError",
    "BugError",
    "CancelledError",
    "CompilerError",
    "DiagnosticError",
    "FormatError",
    "InternalError",
    "LimitError",
    "LinkError",
    "MissingExtraError",
    "NestingError",
    "NoCompilerError",
    "ParseError",
    "RelaxVMError",
    "RelaxVMWarning",
    "TypeSizeError",
    "VerifyError",
    "did_you_mean",
]


class RelaxVMError(RuntimeError):
    """Base of all exceptions that relaxvm itself raises, unless a builtin type is asked for by name
    (TypeError, ValueError, IndexError, AttributeError)."""


class InternalError(RelaxVMError):
    """A check failed: an operation was asked for that the VM or the builder cannot do.  The name is
    TVM's; the fault is the caller's."""


class LinkError(InternalError):
    """Packed functions that an executable needs are missing or not allowed.  Names all of them.

    Attributes:
        missing: names of the functions, in order of the function table.
    """

    def __init__(self, message: str, missing: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing


class DiagnosticError(RelaxVMError):
    """A script or text is wrong at a known place."""


class NestingError(DiagnosticError, RecursionError):
    """A program is nested more deeply than Python's stack allows it to be walked.  Names the place
    and the depth."""


class ParseError(DiagnosticError, ValueError):
    """Text could not be parsed.

    Attributes:
        line, column: 1-based position of the fault.
    """

    def __init__(self, message: str, *, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class FormatError(RelaxVMError, ValueError):
    """A stream is not a well-formed executable, or a value cannot be held by the format."""


class VerifyError(RelaxVMError):
    """An executable breaks rules of the verifier.

    Attributes:
        report: the `relaxvm.Report` with every problem found.
    """

    def __init__(self, message: str, report: object = None) -> None:
        super().__init__(message)
        self.report = report


class ArityError(InternalError):
    """A VM function was called with the wrong number of arguments."""


class LimitError(RelaxVMError):
    """A limit of `relaxvm.Limits` was reached.

    Attributes:
        limit: name of the field of `relaxvm.Limits`.
    """

    def __init__(self, message: str, limit: str = "") -> None:
        super().__init__(message)
        self.limit = limit


class TypeSizeError(LimitError, ValueError):
    """A type is made of too many others; see `relaxvm.ir.MOST_TYPE_PARTS`."""


class CancelledError(RelaxVMError):
    """The run was stopped by ``vm.cancel()``."""


class CompilerError(RelaxVMError):
    """The system's C compiler has not done what it was asked for.

    Attributes:
        output: all that the compiler wrote.
    """

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class NoCompilerError(CompilerError):
    """There is no C compiler on this system."""


class MissingExtraError(ImportError):
    """An optional dependency is not installed.  Names the extra that brings it."""


class BugError(RelaxVMError):
    """relaxvm contradicts itself.  Please report it."""

    def __str__(self) -> str:
        return f"this is a bug in relaxvm: {super().__str__()}"


class RelaxVMWarning(UserWarning):
    """Category of all warnings of relaxvm."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that ends an error message: the nearest of the known names, or an empty string."""
    import difflib  # here, so that a start without errors does not pay for it

    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
