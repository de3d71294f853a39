"""The functions ``relax.run.*``, which operators of Relax are lowered to that have no kernel."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..values import Shape, describe
from .arguments import as_str
from .call import value_text
from .registration import builtin

__all__: list[str] = []

_PREFIX: Final = "relax.run."


@builtin("print", "format: str, *values: any", result="none", prefix=_PREFIX)
def print_formatted(*args: Any) -> None:
    """Print values to the standard output: as `format`, of `str.format`, says, or if it
    is empty with blanks between them.

    Raises:
        TypeError: there is no format.
        IndexError, KeyError, ValueError: the format asks for what is not there.
    """
    text, values = _format_of("print", args)
    print(text.format(*values) if text else " ".join(values))


@builtin("assert_op", "condition: any, format: str, *values: any", result="none", prefix=_PREFIX)
def assert_op(*args: Any) -> None:
    """Raise unless a condition, a bool or a bool tensor of rank 0, is true.

    Raises:
        AssertionError: it is false; the message is made of format and values, as of `print`.
        TypeError: the condition is no bool, or there is no format.
    """
    if not args:
        raise TypeError("assert_op: expected a condition and a format, got no arguments")
    condition, *rest = args
    text, values = _format_of("assert_op", rest)
    if isinstance(condition, np.ndarray) and condition.ndim == 0 and condition.dtype == np.bool_:
        condition = bool(condition)
    if not isinstance(condition, int):
        raise TypeError(
            f"assert_op: condition: expected a bool or a bool tensor of rank 0, got "
            f"{describe(condition)}"
        )
    if not condition:
        message = text.format(*values) if text else ", ".join(values)
        raise AssertionError(message or "Assertion Failed")


def _format_of(name: str, args: Any) -> tuple[str, list[str]]:
    if not args:
        raise TypeError(f"{name}: expected a format and values, got no arguments")
    template, *values = args
    return as_str(template, f"{name}: format"), [value_text(value) for value in values]


@builtin("shape_to_tensor", "shape: shape", result="tensor", prefix=_PREFIX)
def shape_to_tensor(shape: Any) -> NDArray[np.int64]:
    """A shape as an int64 tensor of rank 1.

    Raises:
        TypeError: not a shape.
    """
    if not isinstance(shape, Shape):
        raise TypeError(f"shape_to_tensor: expected a shape, got {describe(shape)}")
    return np.array(shape, np.int64)
