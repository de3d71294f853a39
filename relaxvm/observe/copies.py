"""Copies of values: a program may write into the arrays that it is given, and that it computes."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from ..values import Shape

__all__ = ["copied"]

T = TypeVar("T")


def copied(value: T) -> T:
    """A value with copies of the arrays in it, also in tuples; what is shared stays shared."""
    made: T = _copied(value, {})
    return made


def _copied(value: Any, done: dict[int, Any]) -> Any:
    if id(value) in done:
        return done[id(value)]
    if isinstance(value, np.ndarray):
        done[id(value)] = value.copy()
    elif isinstance(value, (tuple, list)) and not isinstance(value, Shape):
        done[id(value)] = tuple([_copied(item, done) for item in value])
    else:
        return value
    return done[id(value)]
