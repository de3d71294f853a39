"""Conversion of nested tuples and lists, each of them once.

A tuple may stand in others many times: six levels of a thousand references each have 10^18 leaves.
So every conversion remembers what it has converted.  It does not recurse either: a program may nest
tuples to any depth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

__all__ = ["convert_nested"]

_PAUSE_STEPS: Final = 4096
"""Between two pauses; converting so many items takes some milliseconds."""
_TUPLE_STEPS: Final = 16
"""Of a tuple, beside those of its items."""


def convert_nested(
    value: Any,
    is_nested: Callable[[Any], bool],
    convert: Callable[[Any], Any],
    build: Callable[[Any, list[Any]], Any] = lambda outer, items: tuple(items),
    *,
    items_of: Callable[[Any], Iterable[Any]] = iter,
    key: Callable[[Any], int] = id,
    done: dict[int, tuple[Any, Any]] | None = None,
    pause: Callable[[int], object] | None = None,
) -> Any:
    """Convert a value and all that it contains.

    Args:
        value: the value.
        is_nested: whether a value has items.
        convert: converts values that have none.
        build: makes the result for a value from those for its items; a tuple if it is not given.
        items_of: the items of a value.
        key: a number that is equal for two objects only if both are the same value.
        done: what was converted before by calls with equal functions; receives what is converted
            now.
        pause: is called with the number of steps since the last time, when these are about 4,096.
            An item is one step, a tuple is 16; a step keeps at most 16 bytes.  An exception of
            `pause` ends the conversion.

    Raises:
        ValueError: a list contains itself.
    """
    if not is_nested(value):
        return convert(value)
    if done is None:
        done = {}
    found = done.get(key(value))
    if found is not None:
        return found[1]
    opened: list[tuple[Any, Iterator[Any], list[Any]]] = [(value, iter(items_of(value)), [])]
    active = {key(value)}
    count = 0
    while True:
        outer, rest, items = opened[-1]
        for item in rest:
            if not is_nested(item):
                items.append(convert(item))
                if len(items) % _PAUSE_STEPS == 0 and pause is not None:
                    pause(_PAUSE_STEPS)
                continue
            number = key(item)
            found = done.get(number)
            if found is not None:
                items.append(found[1])
                continue
            if number in active:
                raise ValueError(f"a {type(item).__name__} contains itself; expected nested tuples "
                                 f"or lists that end")
            active.add(number)
            opened.append((item, iter(items_of(item)), []))
            break
        else:
            made = build(outer, items)
            done[key(outer)] = outer, made  # an object that stays, so that its key does
            active.discard(key(outer))
            opened.pop()
            count += _TUPLE_STEPS + len(items) % _PAUSE_STEPS
            if pause is not None and count >= _PAUSE_STEPS:
                pause(count)
                count = 0
            if not opened:
                return made
            opened[-1][2].append(made)
