"""The outcomes of a mutant."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Ending", "Outcome", "described", "is_from_function"]


class Outcome(IntEnum):
    """The outcome of a mutant; of several calls, the greatest."""

    REFUSED = 0
    """Not read: an exception of relaxvm that the documentation names."""
    RESULT = 1
    """Read; every call gave a result."""
    RELAXVM_ERROR = 2
    """Read; a call raised one of relaxvm's exceptions."""
    KERNEL_ERROR = 3
    """Read; a packed function raised, and the exception says where in the executable."""
    STRAY_ERROR = 4
    """Any other exception, or a wrong result: a fault of relaxvm."""


Ending = tuple[Outcome, str]
"""An outcome; and the class of the exception, or the kind of the result."""


def described(error: BaseException) -> str:
    """Return class and message of an exception, in one line."""
    return f"{type(error).__name__}: {str(error)[:200]}".replace("\n", " ")


def is_from_function(error: BaseException) -> bool:
    """Whether an exception is one of a packed function, and says where in the executable.

    A SystemError is not: something in C has broken the rules of Python."""
    notes = getattr(error, "__notes__", ())
    return type(error) is not SystemError and any(note.startswith("in ") for note in notes)
