"""How large a scalar or a statement may be, counted as a walk visits it.

``d = d + d`` doubles an expression, since both operands are the same node.  Walks do not remember
what they have seen: the time of a walk is proportional to the number of *parts*, where a node that
is used twice counts twice.  So constructors count the parts and refuse too many.

The parts of calls, tuples, branches and functions are not counted when they are made; see
`relaxvm.ir.sharing`.
"""

from __future__ import annotations

from types import MemberDescriptorType
from typing import Any, Final

from ..errors import ExprSizeError
from .node import Node

__all__ = [
    "MOST_DIM_PARTS",
    "MOST_EXPR_PARTS",
    "MOST_PROGRAM_PARTS",
    "check_parts",
    "count_parts",
    "parts_of",
]

MOST_EXPR_PARTS: Final = Node.MOST_PARTS
"""The largest number of parts of a scalar, such as a dimension."""

MOST_DIM_PARTS: Final = 64
"""The largest number of parts of a dimension that is written out where a variable stands for it;
such expressions grow where lengths are computed from lengths, again and again."""

MOST_PROGRAM_PARTS: Final = 1 << 22
"""The largest number of parts of a statement, and of a call that computes a scalar."""


def check_parts(parts: int, most: int = MOST_EXPR_PARTS) -> int:
    """Return the number of parts of a scalar or a statement.

    Raises:
        ExprSizeError: there are more than `most`.
    """
    if parts > most:
        kind = "an expression" if most == MOST_EXPR_PARTS else "a call or statement"
        raise ExprSizeError(
            f"{kind} of {parts} parts: it has at most {most}, where shared parts count once per "
            "use; bind parts of it to variables"
        )
    return parts


def parts_of(node: Node) -> int:
    """How many parts a scalar has, which its constructor counted."""
    return node._parts


def count_parts(node: Any) -> None:
    """Set the number of parts of a node whose fields have been set one by one.

    Raises:
        ExprSizeError: there are too many.
    """
    if type(type(node)._parts) is MemberDescriptorType:  # the class keeps it
        node._parts = check_parts(node.sum_of_parts(), node.MOST_PARTS)
