"""The operators of Relax: ``relaxvm.op.add(x, y)`` is a call of "relax.add".

One registration per operator gives everything there is to it; see `registry`.  A family is a file.
"""

from __future__ import annotations

from . import (
    base,
    builtin,
    create,
    elementwise,
    index,
    linear_algebra,
    manipulate,
    memory,
    nn,
    sorting,
    statistical,
    vm,
)
from .registry import CONSTRUCTORS, OPERATORS, Constructor, Operator, offered

__all__ = [
    "CONSTRUCTORS",
    "OPERATORS",
    "Operator",
    "base",
    "builtin",
    "create",
    "elementwise",
    "index",
    "linear_algebra",
    "manipulate",
    "memory",
    "nn",
    "sorting",
    "statistical",
    "vm",
]


def __getattr__(name: str) -> Constructor:
    return offered("", name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in CONSTRUCTORS if "." not in name)})
