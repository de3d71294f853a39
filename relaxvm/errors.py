"""Exception and warning classes.

Mistakes of a user and bugs of relaxvm have different classes: `BugError` is always a bug.  The
names `InternalError` and `DiagnosticError` come from TVM, where a failed check of any kind is an
InternalError, so that programs which catch it keep working.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = [
    "AnnotationWarning",
    "ArityError",
    "BindError",
    "BugError",
    "CancelledError",
    "CheckpointWarning",
    "CompilerError",
    "CopyWarning",
    "DeadlineError",
    "DiagnosticError",
    "DimensionError",
    "ExprSizeError",
    "FormatError",
    "InternalError",
    "LimitError",
    "LinkError",
    "MatchError",
    "MissingExtraError",
    "NameClashWarning",
    "NestingError",
    "NoCompilerError",
    "NotFiniteError",
    "OperatorTypeError",
    "OperatorValueError",
    "ParseError",
    "QueueFullError",
    "RelaxVMError",
    "RelaxVMWarning",
    "SuspendedError",
    "TypeSizeError",
    "UnreachableClauseWarning",
    "UnsavableError",
    "VerifyError",
    "did_you_mean",
]


class RelaxVMError(RuntimeError):
    """Base class of all exceptions that relaxvm itself raises, except for builtin exceptions where
    these are documented (TypeError, ValueError, IndexError, AttributeError)."""


class InternalError(RelaxVMError):
    """A check failed: the VM or the builder was called with something that it cannot do.  The name
    comes from TVM; it is a mistake of the caller, not a bug of relaxvm."""


class LinkError(InternalError):
    """Packed functions that an executable needs are missing or not allowed.  The message names all
    of them.

    Attributes:
        missing: names of the functions, in order of the function table.
    """

    def __init__(self, message: str, missing: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing


class OperatorTypeError(InternalError, TypeError, ValueError):
    """An operand or attribute of an operator has a wrong type, or is missing.  TVM raises a
    TypeError, a ValueError or an InternalError for these, as the operator has it."""


class OperatorValueError(InternalError, ValueError, TypeError):
    """The operands and attributes of an operator do not fit each other.  TVM raises a ValueError, a
    TypeError or an InternalError for these, as the operator has it."""


class DimensionError(InternalError, TypeError):
    """A dimension of a shape is not an int64 scalar."""


class DiagnosticError(RelaxVMError):
    """A script or text is wrong at a known position."""


class NestingError(DiagnosticError, RecursionError):
    """A program is nested too deeply to be traversed with Python's stack.  The message has the
    position and the depth."""


class ParseError(DiagnosticError, ValueError):
    """Text could not be parsed.

    Attributes:
        line, column: 1-based position of the error.
    """

    def __init__(self, message: str, *, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class FormatError(RelaxVMError, ValueError):
    """A stream is not a well-formed executable, or the format cannot express a value."""


class VerifyError(RelaxVMError):
    """An executable breaks rules of the verifier.

    Attributes:
        report: the `relaxvm.Report` with all problems.
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
    """A type has too many components; see `relaxvm.ir.MOST_TYPE_PARTS`."""


class ExprSizeError(LimitError, ValueError):
    """A scalar, a statement or a program has too many parts, where shared parts count once per use;
    see `relaxvm.ir.MOST_EXPR_PARTS`."""


class BindError(RelaxVMError, ValueError):
    """A parameter or a symbolic variable of a function cannot be bound: there is none of the name,
    or several, or it is bound twice."""


class MatchError(RelaxVMError):
    """A value of a data type has no clause in a `match` that is not exhaustive.

    Attributes:
        value: the value, as shortened text.
        missing: the constructors that have no clause, as text.
    """

    def __init__(self, message: str, value: str = "", missing: str = "") -> None:
        super().__init__(message)
        self.value = value
        self.missing = missing


class CancelledError(RelaxVMError):
    """The run was stopped by ``vm.cancel()``."""


class DeadlineError(RelaxVMError, TimeoutError):
    """A call in a scheduler did not end within its timeout."""

    def __new__(cls, *args: object) -> DeadlineError:
        # Both bases have a `__new__`, and that of the first one does not make a TimeoutError.
        # Programs that make exceptions by `__new__` alone, such as tblib's, need the other one.
        return TimeoutError.__new__(cls, *args)


class QueueFullError(RelaxVMError):
    """As many calls wait in a scheduler as may, so it takes no further one now."""


class SuspendedError(RelaxVMError):
    """A run was suspended before it had a result: it is paused, can be saved, and goes on with
    ``run.result()``."""


class UnsavableError(RelaxVMError, TypeError):
    """A run holds a value that a file cannot hold, such as a Python function that the executable
    does not name.

    Attributes:
        function, pc, register: where it is; None if it is in the state of the virtual machine.
    """

    def __init__(
        self,
        message: str,
        function: str | None = None,
        pc: int | None = None,
        register: int | None = None,
    ) -> None:
        super().__init__(message)
        self.function = function
        self.pc = pc
        self.register = register


class CompilerError(RelaxVMError):
    """The system's C compiler failed.

    Attributes:
        output: the complete output of the compiler.
    """

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class NoCompilerError(CompilerError):
    """There is no C compiler on this system."""


class NotFiniteError(RelaxVMError, FloatingPointError):
    """A value is not finite, where ``relaxvm.capture(vm, nan_stop=True)`` looks for that.

    Attributes:
        variable: the variable, or the parameter, that has it, if known.
        inputs: copies of the arguments of the operation that has made it; None for a parameter.
    """

    def __init__(self, message: str, variable: str | None = None, inputs: object = None) -> None:
        super().__init__(message)
        self.variable = variable
        self.inputs = inputs


class MissingExtraError(ImportError):
    """An optional dependency is not installed.  The message names the extra to install."""


class BugError(RelaxVMError):
    """A bug in relaxvm.  Please report it."""

    def __str__(self) -> str:
        return f"this is a bug in relaxvm: {super().__str__()}"


class RelaxVMWarning(UserWarning):
    """Category of all warnings of relaxvm."""


class AnnotationWarning(RelaxVMWarning):
    """A type that a program for TVM declares contradicts the value, and is not used."""


class CheckpointWarning(RelaxVMWarning):
    """A checkpoint of a run could not be written; the one before is still there, and the run goes
    on."""


class CopyWarning(RelaxVMWarning):
    """A large argument of a function has to be copied in every call."""


class NameClashWarning(RelaxVMWarning):
    """A function of a program has the name of a method or attribute of a virtual machine."""


class UnreachableClauseWarning(RelaxVMWarning):
    """A clause of a `match` is never reached."""


_LONGEST_NAME: Final = 200
_MOST_LISTED: Final = 8
_MOST_NAMES: Final = 2000


def did_you_mean(name: str, known: Iterable[str], else_list: str = "") -> str:
    """Return a hint to append to an error message: the nearest known names, or nothing.

    With `else_list`, such as ``"its functions are"``, some of the known names follow these words
    where none is near.

    The time is bounded: long names have no hint, and of many known names those of another length
    or with another beginning are left out.
    """
    import difflib  # here, since it is only needed after an error

    known = list(known)
    shown = [repr(k) for k in known[:_MOST_LISTED] if len(k) <= _LONGEST_NAME]
    more = ", ..." * (len(shown) < len(known))
    listed = f"; {else_list} {', '.join(shown)}{more}" if else_list and shown else ""
    if len(name) > _LONGEST_NAME:
        return listed
    alike = [k for k in known if 5 * abs(len(k) - len(name)) <= 2 * (len(k) + len(name))]
    if len(alike) > _MOST_NAMES:
        alike = [k for k in alike if k[:1] == name[:1]][:_MOST_NAMES]
    near = difflib.get_close_matches(name, alike, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else listed
