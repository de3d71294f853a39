"""The operators of Relax: ``relaxvm.op.add(x, y)`` is a call of "relax.add".

An operator is one record, made by one registration; see `registry`.  A family of operators is a
file.
"""

from __future__ import annotations

from typing import Any

from . import (
    base,
    builtin,
    combined,
    create,
    detection,
    elementwise,
    gather,
    images,
    index,
    inspect,
    layout,
    linear_algebra,
    manipulate,
    memory,
    nn,
    reference,
    sets,
    sorting,
    statistical,
    vm,
)
from .registry import CONSTRUCTORS, OPERATORS, Loops, Operator, Unsupported, offered

__all__ = [
    "CONSTRUCTORS",
    "OPERATORS",
    "Loops",
    "Operator",
    "Unsupported",
    "base",
    "builtin",
    "combined",
    "create",
    "detection",
    "elementwise",
    "gather",
    "images",
    "index",
    "inspect",
    "layout",
    "linear_algebra",
    "manipulate",
    "memory",
    "nn",
    "reference",
    "sets",
    "sorting",
    "statistical",
    "vm",
]


def __getattr__(name: str) -> Any:
    return offered("", name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in CONSTRUCTORS if "." not in name)})
