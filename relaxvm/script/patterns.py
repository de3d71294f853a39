"""Patterns of ``match`` in script: alternatives, and values that stand for a comparison."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import numpy as np

from .. import op
from ..ir.expr import Expr, TensorType, Var, const
from .source import Source

__all__ = ["alternatives", "comparison", "literal_of"]

_MOST_ALTERNATIVES: Final = 64


def alternatives(source: Source, node: ast.pattern) -> list[ast.pattern]:
    """Return the patterns without alternatives that a pattern stands for, in order: two for
    ``Cons(A() | B(), _)``."""
    if _count(node) > _MOST_ALTERNATIVES:
        source.error(
            node,
            f"the alternatives of a case stand for more than {_MOST_ALTERNATIVES} patterns; divide "
            "it into several cases, or match the inner value in the result",
        )
    found = list(_expanded(node))
    names = _names(found[0])
    for pattern in found:
        if _names(pattern) != names:
            source.error(node, "the alternatives of a pattern must have the same variables")
    return found


def _parts(node: ast.pattern) -> list[ast.pattern]:
    """The patterns inside a pattern that is no alternative."""
    if isinstance(node, (ast.MatchClass, ast.MatchSequence)):
        return node.patterns
    if isinstance(node, ast.MatchAs) and node.pattern is not None:
        return [node.pattern]
    return []


def _count(node: ast.pattern) -> int:
    if isinstance(node, ast.MatchOr):
        return sum(map(_count, node.patterns))
    found = 1
    for part in _parts(node):
        found = min(found * _count(part), _MOST_ALTERNATIVES + 1)
    return found


def _expanded(node: ast.pattern) -> Iterator[ast.pattern]:
    if isinstance(node, ast.MatchOr):
        for alternative in node.patterns:
            yield from _expanded(alternative)
        return
    parts = _parts(node)
    if not parts:
        yield node
        return
    for chosen in product(*(list(_expanded(part)) for part in parts)):
        fields = {name: getattr(node, name) for name in node._fields}
        fields |= {"pattern": chosen[0]} if isinstance(node, ast.MatchAs) else {
            "patterns": list(chosen)
        }  # fmt: skip
        yield ast.copy_location(type(node)(**fields), node)


def _names(node: ast.pattern) -> set[str | None]:
    return {part.name for part in ast.walk(node) if isinstance(part, ast.MatchAs)} - {None}


def literal_of(node: ast.pattern) -> Any:
    """Return the number or bool that a pattern consists of; None if it is not one."""
    if isinstance(node, ast.MatchSingleton):
        return node.value
    if not isinstance(node, ast.MatchValue):
        return None
    expr, sign = node.value, 1
    if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.USub):
        expr, sign = expr.operand, -1
    value: Any = expr.value if isinstance(expr, ast.Constant) else None
    return sign * value if type(value) in (int, float) else None


def comparison(compared: list[tuple[Var, Any]]) -> Expr:
    """Return the condition that variables, which are scalar tensors, have certain values.

    Raises:
        TypeError: a variable is no scalar tensor of known data type, or a value does not fit it.
    """
    found: Expr | None = None
    for var, value in compared:
        ty = var.ty
        if type(ty) is not TensorType or ty.ndim != 0 or ty.dtype is None:
            raise TypeError(
                f"the value {value} is compared with one of type {ty}; expected a tensor without "
                "dimensions, of known data type"
            )
        try:
            fits = _fits(value, np.dtype(ty.dtype))
        except TypeError:  # a data type that numpy does not have
            fits = False
        if not fits:
            raise TypeError(f"the value {value} is not one of data type {ty.dtype}")
        test = op.equal(var, const(value, ty.dtype))
        found = test if found is None else op.logical_and(found, test)
    assert found is not None
    return found


def _fits(value: Any, dtype: np.dtype[Any]) -> bool:
    if type(value) is bool or dtype.kind == "b":
        return type(value) is bool and dtype.kind == "b"
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return type(value) is int and info.min <= value <= info.max
    if dtype.kind != "f":
        return False
    with np.errstate(all="ignore"):
        try:
            rounded = float(np.array(value, "float64").astype(dtype))
        except OverflowError:
            return False
    return bool(np.isfinite(rounded)) and (type(value) is float or rounded == value)
