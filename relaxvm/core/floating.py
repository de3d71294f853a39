"""What numpy says about divisions by zero and overflows, for loops that run without it."""

from __future__ import annotations

import sys
import warnings
from typing import Any, Final

import numpy as np

__all__ = ["is_ignored", "report_status"]

# Bit of the status, key of `numpy.geterr`, numpy's words; in numpy's order.
_KINDS: Final = (
    (1, "divide", "divide by zero"),
    (2, "over", "overflow"),
    (4, "under", "underflow"),
    (8, "invalid", "invalid value"),
)


def report_status(status: int, name: str) -> None:
    """Do what ``numpy.errstate`` asks for after an operation.

    Args:
        status: what happened: 1 a division by zero, 2 an overflow, 4 an underflow, 8 something
            invalid, or a sum of these.
        name: of the ufunc.

    Raises:
        FloatingPointError: the setting is ``"raise"``.
        NameError: it is ``"call"`` or ``"log"``, and there is nothing to call or to write to.
    """
    settings = {kind: str(setting) for kind, setting in np.geterr().items()}
    for bit, key, words in _KINDS:
        if status & bit:
            _act(settings[key], words, name, status)


def is_ignored(status: int) -> bool:
    """Whether ``numpy.errstate`` asks for nothing after an operation with this status."""
    settings: dict[str, Any] = dict(np.geterr())
    return all(settings[key] == "ignore" for bit, key, _ in _KINDS if status & bit)


def _act(setting: str, words: str, name: str, status: int) -> None:
    message = f"{words} encountered in {name}"
    if setting == "warn":
        warnings.warn(message, RuntimeWarning, stacklevel=1)
    elif setting == "raise":
        raise FloatingPointError(message)
    elif setting == "print":
        sys.stderr.write(f"Warning: {message}\n")
    elif setting in ("call", "log"):
        _call(setting, words, name, status)


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
