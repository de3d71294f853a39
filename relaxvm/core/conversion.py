"""Conversion of what packed functions return to run-time values, each large tuple once in a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..nested import convert_nested
from ..values import is_own_tuple, is_tuple_of_values, to_value, tuple_of_values

__all__ = ["Converter"]

REMEMBERED_FROM: Final = 128
"""Tuples in one result from which on they are remembered; fewer are not kept alive."""


class Converter:
    """Converts results as `relaxvm.values.to_value` does, and remembers tuples that need no more.

    A loop may call a function whose result contains the result before: a chain of tuples, one
    longer each time.  If each were converted as a whole, the time would be quadratic in the number
    of calls.  So the tuples of large results are remembered by identity: they are immutable and
    hold run-time values.  They stay alive until `known` is cleared, at the end of the run or when
    they are more than twice as many as in the largest result.

    Args:
        owns_tuples: make every tuple a new one, since the program changes tuples in place.  Then
            nothing is remembered.
        pause: is called with the steps of the conversion, see `relaxvm.nested.convert_nested`.

    Attributes:
        known: the tuples, by their ids.
    """

    __slots__ = ("_owns_tuples", "_pause", "_room", "known")

    def __init__(self, owns_tuples: bool, pause: Callable[[int], object]) -> None:
        self._owns_tuples = owns_tuples
        self._pause = pause
        self._room = 2 * REMEMBERED_FROM
        self.known: Final[dict[int, tuple[Any, ...]]] = {}

    def __call__(self, x: Any) -> Any:
        """Return the run-time value of an object."""
        if not isinstance(x, (tuple, list)):
            return to_value(x)
        if self._owns_tuples:
            return convert_nested(x, is_own_tuple, to_value, pause=self._pause)
        if not is_tuple_of_values(x):
            return to_value(x)
        if not self.known:
            done: dict[int, tuple[Any, Any]] = {}
            value = convert_nested(
                x, is_tuple_of_values, to_value, tuple_of_values, done=done, pause=self._pause
            )
            if len(done) >= REMEMBERED_FROM:
                self._remember(done)
            return value
        return self._convert_rest(x)

    def _convert_rest(self, x: Any) -> Any:
        """As `__call__`, where some tuples are known."""
        known = self.known

        def is_nested(item: Any) -> bool:
            return id(item) not in known and is_tuple_of_values(item)

        def convert(item: Any) -> Any:
            return item if id(item) in known else to_value(item)

        done: dict[int, tuple[Any, Any]] = {}
        value = convert_nested(x, is_nested, convert, tuple_of_values, done=done, pause=self._pause)
        self._remember(done)
        return value

    def _remember(self, done: dict[int, tuple[Any, Any]]) -> None:
        if len(self.known) + len(done) > self._room:
            self.known.clear()
            self._room = max(self._room, 2 * len(done))
        # Not the lists, which may change, nor what contained some: only what was made of them.
        self.known.update((id(made), made) for _, made in done.values() if type(made) is tuple)
