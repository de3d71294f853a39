"""What numpy says about divisions by zero and overflows, for loops that run without it."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, Final, NamedTuple

import numpy as np

from ..messages import warn
from ._deadlines import warn_later

__all__ = ["is_ignored", "report_status", "reporting"]

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
    settings = _settings()
    later = False
    for bit, key, words in _KINDS:
        if status & bit:
            later |= _act(settings[key], words, name, status)
    return later


def _settings() -> dict[str, str]:
    return {kind: str(setting) for kind, setting in np.geterr().items()}


def reporting(body: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A kernel in numpy whose floating-point warnings name the program, not the kernel's code.

    The run that has called the kernel gives them once the call has ended; outside of runs they are
    given at the line that has called this package.

    Args:
        body: the kernel.
        name: of the kernel, for the messages.
    """
    var = default = ours = None

    def heard(words: str, status: int) -> None:
        message = f"{words} encountered in {name}"
        if not warn_later(message):
            warn(message)

    def prepare() -> None:
        nonlocal var, default, ours
        state = _numpy_state()
        if state is not None:
            var, default = state
            ours = contextvars.Context().run(_state_with, var, heard)

    @wraps(body)
    def run(*args: Any, **keywords: Any) -> Any:
        if ours is None:
            prepare()
        if var is not None and var.get() is default:
            before = var.set(ours)
            try:
                return body(*args, **keywords)
            finally:
                var.reset(before)
        settings = _settings()
        warned: dict[str, Any] = {kind: "call" for kind in settings if settings[kind] == "warn"}
        if not warned or "call" in settings.values() or "log" in settings.values():
            return body(*args, **keywords)  # by a kernel that this one is a part of, or by numpy
        with np.errstate(**warned, call=heard):
            return body(*args, **keywords)

    return run


class _State(NamedTuple):
    """Where numpy keeps its settings of floating-point errors.

    Attributes:
        var: the context variable.
        default: its value where nobody has changed the settings.
    """

    var: contextvars.ContextVar[Any]
    default: Any


@cache
def _numpy_state() -> _State | None:
    """Setting numpy's context variable takes a tenth of the time of an `numpy.errstate`.  None
    before numpy 2, which had none."""

    def find() -> _State | None:
        before = dict(contextvars.copy_context())
        with np.errstate(over="call"):
            for var, value in contextvars.copy_context().items():
                if before.get(var) is not value:
                    return _State(var, contextvars.Context().run(var.get))
        return None

    return contextvars.Context().run(find)


def _state_with(var: contextvars.ContextVar[Any], call: Callable[[str, int], None]) -> Any:
    with np.errstate(divide="call", over="call", invalid="call", call=call):
        return var.get()


def is_ignored(status: int) -> bool:
    """Whether ``numpy.errstate`` asks for nothing after an operation with this status."""
    settings = _settings()
    return all(settings[key] == "ignore" for bit, key, _ in _KINDS if status & bit)


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
