"""Operands that torch refuses, where relaxvm's operators have a meaning for them.

Checks are calls of builtins that return their operand: what uses it comes after the check.
"""

from __future__ import annotations

from typing import Any, Final

from ...ir import int_imm
from ..common.emitter import Emitter
from .forms import Tensor, constant_of, dtype_of, is_integral, type_of

MOST: Final = (1 << 63) - 1

__all__ = ["divisor", "index_within"]


def index_within(c: Emitter, index: Tensor, end: Any, subject: str) -> Tensor:
    """Indices, of which none is negative or reaches the end.

    Args:
        end: an int or an expression; None where indices are not bounded.
        subject: begins the message of an error.
    """
    most = MOST if end is None else end
    elements = constant_of(index)
    if elements is not None:
        if not elements.size:
            return index
        if isinstance(most, int) and elements.min() >= 0 and elements.max() < most:
            return index
    return c.builtin("indices_within", [index, int_imm(0), most, subject], type_of(index))


def divisor(c: Emitter, x: Tensor, subject: str) -> Tensor:
    """What integers are divided by, of which none is 0; floats may be.

    Args:
        subject: begins the message of an error.
    """
    if not is_integral(dtype_of(x)):
        return x
    elements = constant_of(x)
    if elements is not None and elements.all():
        return x
    return c.builtin("nonzero_divisor", [x, subject], type_of(x))
