"""Attributes that are computed on first access."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["lazy"]

T = TypeVar("T")


class lazy(Generic[T]):
    """A decorator for a method without arguments, of a class without slots.

    Before Python 3.12 `functools.cached_property` has one lock for all instances: a process that is
    forked while another thread holds it waits forever.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, instance: Any, owner: type) -> T:
        value = self._compute(instance)
        instance.__dict__[self._compute.__name__] = value  # hides this descriptor from now on
        return value
