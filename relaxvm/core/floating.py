"""What numpy says about divisions by zero and overflows, for loops that run without it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final

import numpy as np

from ._deadlines import in_run, warn_later

__all__ = ["is_ignored", "report_again", "report_status", "warn"]

_PACKAGE: Final = __name__.partition(".")[0]

# Bit of the status, key of `numpy.geterr`, numpy's words; in numpy's order.
_KINDS: Final = (
    (1, "divide", "divide by zero"),
    (2, "over", "overflow"),
    (4, "under", "underflow"),
    (8, "invalid", "invalid value"),
)


def report_status(status: int, name: str) -> bool:
    """Do what ``numpy.errstate`` asks for after an operation.

    A warning is given once the call of the kernel has ended, by the run that has called it, which
    knows the position in the program.

    Args:
        status: what happened: 1 a division by zero, 2 an overflow, 4 an underflow, 8 something
            invalid, or a sum of these.
        name: of the ufunc.

    Returns:
        Whether the run has a warning to give.

    Raises:
        FloatingPointError: the setting is ``"raise"``.
        NameError: it is ``"call"`` or ``"log"``, and there is nothing to call or to write to.
    """
    settings = {kind: str(setting) for kind, setting in np.geterr().items()}
    later = False
    for bit, key, words in _KINDS:
        if status & bit:
            later |= _act(settings[key], words, name, status)
    return later


def report_again(reference: Callable[..., Any], args: Sequence[Any]) -> None:
    """Do what ``numpy.errstate`` asks for after a kernel in C, which knows that something happened
    but not in which operation: run its reference in numpy on the same arguments.

    Raises:
        FloatingPointError: the setting is ``"raise"``.
    """
    settings = {kind: str(setting) for kind, setting in np.geterr().items()}
    warned: dict[str, Any] = {kind: "call" for kind in settings if settings[kind] == "warn"}
    if not warned or not in_run() or not {"call", "log"}.isdisjoint(settings.values()):
        reference(*args)  # numpy says it
        return
    heard: dict[str, None] = {}
    with np.errstate(**warned, call=lambda words, status: heard.update({words: None})):
        reference(*args)
    for words in heard:
        warn_later(f"{words} encountered in {reference.__name__}")


def is_ignored(status: int) -> bool:
    """Whether ``numpy.errstate`` asks for nothing after an operation with this status."""
    settings: dict[str, Any] = dict(np.geterr())
    return all(settings[key] == "ignore" for bit, key, _ in _KINDS if status & bit)


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Give a warning at the line that has called this package."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE


def _act(setting: str, words: str, name: str, status: int) -> bool:
    """Returns whether the run has a warning to give."""
    message = f"{words} encountered in {name}"
    if setting == "warn":
        if warn_later(message):
            return True
        warn(message)
    elif setting == "raise":
        raise FloatingPointError(message)
    elif setting == "print":
        sys.stderr.write(f"Warning: {message}\n")
    elif setting in ("call", "log"):
        _call(setting, words, name, status)
    return False


def _call(setting: str, words: str, name: str, status: int) -> None:
    func = np.geterrcall()
    if setting == "call":
        if func is None:
            raise NameError(f"python callback specified for {words} (in  {name}) but no function "
                            "found.")
        func(words, status)  # type: ignore[operator]
    else:
        if func is None:
            raise NameError(f"log specified for {words} (in {name}) but no object with write "
                            "method found.")
        func.write(f"Warning: {words} encountered in {name}\n")  # type: ignore[union-attr]
