"""How large an expression or a statement may be, counted as a walk visits it.

``d = d + d`` doubles an expression, since both operands are the same node.  Walks do not remember
what they have seen: the time of a walk is proportional to the number of *parts*, where a node that
is used twice counts twice.  So constructors count the parts, and those of scalars, functions,
branches and statements refuse too many.

Calls and tuples may be shared more than that before `BlockBuilder` binds each to a variable, once.
They are refused where they are walked or become part of a function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..errors import ExprSizeError
from .node import Node

__all__ = [
    "COUNTLESS",
    "MOST_EXPR_PARTS",
    "MOST_PROGRAM_PARTS",
    "check_parts",
    "check_walk",
    "count_parts",
]

MOST_EXPR_PARTS: Final = Node.MOST_PARTS
"""The largest number of parts of an expression without blocks, such as a dimension, or calls that
are arguments of calls."""

MOST_PROGRAM_PARTS: Final = 1 << 22
"""The largest number of parts of a sequence of blocks, a conditional, a function or a statement."""


COUNTLESS: Final = 1 << 62
"""Calls and tuples are not counted beyond this."""


def check_parts(parts: int, most: int = MOST_EXPR_PARTS) -> int:
    """Return the number of parts of an expression or a statement.

    Raises:
        ExprSizeError: there are more than `most`.
    """
    if parts > most:
        kind = "an expression" if most == MOST_EXPR_PARTS else "a function, branch or statement"
        raise ExprSizeError(
            f"{kind} of {parts} parts: it has at most {most}, where shared parts count once per "
            "use; bind parts of it to variables"
        )
    return parts


def check_walk(expr: Any) -> None:
    """Check that a call or a tuple may be walked; its operands that are plain do not count.

    Raises:
        ExprSizeError: it has too many parts.
    """
    if expr._parts > MOST_EXPR_PARTS:
        operands = [getattr(expr, field) for field in expr.FIELDS]
        plain = sum(len(x) for x in operands if isinstance(x, tuple))
        check_parts(expr._parts - plain)


def count_parts(node: Any) -> None:
    """Set the number of parts of a node whose fields have been set one by one.

    Raises:
        ExprSizeError: there are too many.
    """
    if isinstance(type(node)._parts, int):
        return  # the class has no parts to count
    parts = 1
    work = [getattr(node, field) for field in node.FIELDS]
    while work:
        value = work.pop()
        if isinstance(value, Node):
            parts += value._parts - node.FREE_PARTS
        elif isinstance(value, (tuple, list)):
            work += value
        elif isinstance(value, Mapping):
            work += value.values()
    node._parts = check_parts(min(parts, COUNTLESS), node.MOST_PARTS)
