"""Formulas: what passes that recognize operators look for, and what they make of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from .. import dpl
from ..dpl.pattern import DFPattern, is_op
from ..ir import Constant, Expr, Function, IRModule
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["TOLERANCE", "Formula", "either_order", "is_near", "number_of", "replacing"]

TOLERANCE: Final = 1e-4
"""How far a number may be from the one that a formula has, relative to it: exporters round."""


class Formula(NamedTuple):
    """A formula: its pattern, and what makes the operator of the matched parts, or None if numbers
    or shapes are others."""

    pattern: DFPattern
    make: Callable[[dict[DFPattern, Expr]], Any]


def number_of(expr: Expr) -> float:
    """The value of a constant with one element; NaN for others."""
    if isinstance(expr, Constant) and expr.data.size == 1:
        return float(expr.data.reshape(-1)[0])
    return math.nan


def is_near(expr: Expr, value: float) -> bool:
    """Whether a constant is this number, but for rounding."""
    return abs(number_of(expr) - value) <= TOLERANCE * abs(value)


def either_order(name: str, a: DFPattern, b: DFPattern) -> Any:
    """A call of an operator whose operands may be exchanged, which patterns do by themselves."""
    return is_op(name)(a, b)


def _rule(formula: Callable[[], Formula]) -> tuple[DFPattern, Callable[..., Any]]:
    pattern, make = formula()

    def rewrite(expr: Expr, found: dict[DFPattern, Expr]) -> Any:
        made = make(found)
        return expr if made is None else made

    return pattern, rewrite


def replacing(name: str, formulas: Iterable[Callable[[], Formula]]) -> Pass:
    """A pass that replaces formulas, one after the other."""

    @function_pass(name=name)
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return dpl.rewrite_calls(map(_rule, formulas), func)

    return run
