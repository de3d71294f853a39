"""Names of variables that stand for nothing but an effect.

A call that writes its results into arguments has no value.  Its variable is never read; its name
says which variable of the program the call computes: ``_hidden``.
"""

from __future__ import annotations

__all__ = ["name_behind", "nothing_named"]


def nothing_named(name: str) -> str:
    """The name of the variable of a call without a value that computes a variable `name`."""
    return name if name.startswith("_") else f"_{name}"


def name_behind(name: str) -> str | None:
    """The name that `nothing_named` was given; None for other names."""
    return name[1:] or None if name.startswith("_") and not name.startswith("__") else None
