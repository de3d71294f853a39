"""Constants of data types as rows, so that nothing recurses however deep they are nested.

A row is a leaf, that is a constant of another kind, or a tuple, or a value of a data type.  Its
parts are rows before it.  Equal rows are one row.  So equal values have equal rows, and shared
parts are written once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from ..errors import FormatError
from ..isa import WORD_MAX, WORD_MIN
from ..nested import convert_nested
from ..values import Shape, adt_type, is_adt

__all__ = ["LEAF", "TUPLE", "FlatValues", "Row", "convert_leaves", "is_leaf", "leaves_of",
           "rebuilt"]  # fmt: skip

LEAF: Final = -1
TUPLE: Final = -2


Row = tuple[int, ...]
"""A row: its kind, that is `LEAF`, `TUPLE` or the number of the constructor, and the rows of its
parts; for a leaf, its number among the leaves."""

_PLAIN: Final = frozenset((int, str, bool, type(None)))


def _has_parts(value: Any) -> bool:
    return type(value) is tuple or is_adt(value)


def _parts(value: Any) -> Any:
    return value if type(value) is tuple else value.fields


def is_leaf(value: Any) -> bool:
    """Check whether a value is a constant without parts that has all external forms."""
    if type(value) is np.ndarray:
        return not value.dtype.hasobject
    if type(value) is int:
        return WORD_MIN <= value <= WORD_MAX
    return value is None or type(value) in (bool, float, str, Shape) or isinstance(value, np.dtype)


def constant_key_of(value: Any) -> tuple[Any, ...]:
    from .executable import constant_key  # here, since it looks into constants of data types

    return constant_key(value)


def leaves_of(value: Any) -> list[Any]:
    """Return what is in a constant of a data type, apart from values of data types and tuples; each
    object once."""
    found: list[Any] = []
    seen: set[int] = set()

    def keep(leaf: Any) -> None:
        if id(leaf) not in seen:
            seen.add(id(leaf))
            found.append(leaf)

    convert_nested(value, _has_parts, keep, lambda outer, items: None, items_of=_parts)
    return found


def convert_leaves(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Return a constant of a data type with its leaves converted; the same object where none
    changes."""

    def build(outer: Any, items: list[Any]) -> Any:
        if all(new is old for new, old in zip(items, _parts(outer), strict=True)):
            return outer
        if type(outer) is tuple:
            return tuple(items)
        return adt_type()(outer.constructor, outer.tag, items)

    return convert_nested(value, _has_parts, convert, build, items_of=_parts)


class FlatValues:
    """Rows of constants of data types.

    Attributes:
        constructors: name and tag of each constructor, in the order of first use.
        leaves: the leaves, in order.
        rows: the rows.
    """

    def __init__(self) -> None:
        self.constructors: dict[tuple[str, int], int] = {}
        self.leaves: list[Any] = []
        self.rows: list[Row] = []
        self._known: dict[Any, int] = {}
        self._done: dict[int, tuple[Any, Any]] = {}

    def add(self, value: Any) -> int:
        """Add a value with its parts; return its row.

        Raises:
            TypeError: a part is not hashable, so it is no constant.
        """
        number: int = convert_nested(
            value, _has_parts, self._leaf, self._join, items_of=_parts, done=self._done
        )
        return number

    def _leaf(self, value: Any) -> int:
        kind = type(value)
        key = (kind, value) if kind in _PLAIN else (LEAF, constant_key_of(value))
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.rows)
            self.rows.append((LEAF, len(self.leaves)))
            self.leaves.append(value)
        return number

    def _join(self, outer: Any, parts: list[int]) -> int:
        kind = TUPLE
        if type(outer) is not tuple:
            name = outer.constructor, outer.tag
            kind = self.constructors.setdefault(name, len(self.constructors))
        row = (kind, *parts)
        number = self._known.get(row)
        if number is None:
            number = self._known[row] = len(self.rows)
            self.rows.append(row)
        return number

    def words(self) -> array[int]:
        """The rows as words: -1 for a leaf; else the kind, the number of parts, the parts."""
        words = array("q")
        for kind, *parts in self.rows:
            if kind == LEAF:
                words.append(LEAF)
            else:
                words.extend((kind, len(parts), *parts))
        return words

    def key(self) -> tuple[Any, ...]:
        """A hashable key, equal for equal rows."""
        leaves = tuple(map(constant_key_of, self.leaves))
        return tuple(self.constructors), leaves, bytes(self.words())


def rebuilt(
    constructors: Sequence[tuple[str, int]],
    leaves: Iterable[Any],
    words: Sequence[int],
    count: Callable[[int], object],
) -> list[Any]:
    """Return the values of all rows.

    Args:
        constructors, leaves, words: see `FlatValues`.
        count: is called with the number of rows so far, now and then.

    Raises:
        FormatError: the words are no rows, or do not fit the leaves and constructors.
    """
    make = adt_type()
    values: list[Any] = []
    rest = iter(leaves)
    at, end, missing = 0, len(words), object()
    while at < end:
        if len(values) % 4096 == 0:
            count(len(values))
        kind = words[at]
        at += 1
        if kind == LEAF:
            value = next(rest, missing)
            if value is missing:
                raise FormatError(f"row {len(values)}: there is no leaf for it")
        else:
            if at == end or not 0 <= words[at] < end - at:
                raise FormatError(f"row {len(values)}: it has no end")
            parts = words[at + 1 : at + 1 + words[at]]
            at += 1 + words[at]
            if any(not 0 <= part < len(values) for part in parts):
                raise FormatError(f"row {len(values)}: expected parts before it")
            value = tuple([values[part] for part in parts])
            if kind != TUPLE:
                if not 0 <= kind < len(constructors):
                    raise FormatError(f"row {len(values)}: there is no constructor {kind}")
                value = make(*constructors[kind], value)
        values.append(value)
    count(len(values))
    if next(rest, missing) is not missing:
        raise FormatError("there are more leaves than rows for them")
    return values
