"""Which values the clauses of a `Match` leave out, and which clauses are never reached.

Source: L. Maranget, "Warnings for pattern matching", Journal of Functional Programming 17 (2007).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from ..errors import ExprSizeError
from .adt import (
    Clause,
    Constructor,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
)

__all__ = ["missing_patterns", "pattern_text", "unreachable_clauses"]

_MOST_STEPS: Final = 100_000

_ANY: Final = PatternWildcard()

_Row = tuple[Pattern, ...]


def missing_patterns(clauses: Sequence[Clause], most: int = 8) -> list[Pattern]:
    """Return patterns of values that no clause matches, up to `most` of them; none if the clauses
    match every value.  A clause with a guard counts as one that does not match.

    Raises:
        ExprSizeError: the patterns are so many and so deep that the search would not end.
    """
    rows: list[_Row] = [(clause.lhs,) for clause in clauses if clause.guard is None]
    return [found for (found,) in islice(_missing(rows, 1, _Steps()), most)]


def unreachable_clauses(clauses: Sequence[Clause]) -> list[int]:
    """Return the positions of the clauses that never match, since clauses before them match all
    that they do.  Where the search for them would not end, it stops: the rest count as reached.
    """
    steps = _Steps()
    rows: list[_Row] = []
    found: list[int] = []
    for position, clause in enumerate(clauses):
        try:
            is_useful = _is_useful(rows, (clause.lhs,), steps)
        except ExprSizeError:
            return found
        if not is_useful:
            found.append(position)
        elif clause.guard is None:
            rows.append((clause.lhs,))
    return found


def pattern_text(pattern: Pattern) -> str:
    """Return a pattern as it is written in script."""
    if isinstance(pattern, PatternConstructor):
        inner = ", ".join(map(pattern_text, pattern.patterns))
        return f"{pattern.constructor.qualified_name}({inner})"
    if isinstance(pattern, PatternTuple):
        inner = ", ".join(map(pattern_text, pattern.patterns))
        return f"({inner}{',' * (len(pattern.patterns) == 1)})"
    return pattern.var.name if isinstance(pattern, PatternVar) else "_"


class _Steps:
    """Counts the steps of a search."""

    def __init__(self) -> None:
        self._left = _MOST_STEPS

    def take(self, count: int) -> None:
        self._left -= 1 + count
        if self._left < 0:
            raise ExprSizeError(
                "the patterns of a match are so many and so deep that the search for those that "
                "are missing would not end; divide it into several matches"
            )


def _rows_of(rows: Sequence[_Row], constructor: Constructor) -> list[_Row]:
    """The rows that may match a value of a constructor, its fields first."""
    found: list[_Row] = []
    for row in rows:
        first = row[0]
        if isinstance(first, PatternConstructor):
            if first.constructor.tag == constructor.tag:
                found.append((*first.patterns, *row[1:]))
        else:
            found.append(((_ANY,) * len(constructor.inputs)) + row[1:])
    return found


def _rows_of_tuple(rows: Sequence[_Row], count: int) -> list[_Row]:
    found: list[_Row] = []
    for row in rows:
        first = row[0]
        inner = first.patterns if isinstance(first, PatternTuple) else (_ANY,) * count
        found.append((*inner, *row[1:]))
    return found


def _others(rows: Sequence[_Row]) -> list[_Row]:
    """The rows that match whatever the first value is, without it."""
    return [row[1:] for row in rows if isinstance(row[0], (PatternVar, PatternWildcard))]


def _head(rows: Sequence[_Row]) -> PatternConstructor | PatternTuple | None:
    """A pattern in the first column that not every value matches, if there is one."""
    for row in rows:
        if isinstance(row[0], (PatternConstructor, PatternTuple)):
            return row[0]
    return None


def _matches_all(patterns: _Row) -> bool:
    """Whether patterns match all values."""
    return all(
        _matches_all(pattern.patterns)
        if isinstance(pattern, PatternTuple)
        else not isinstance(pattern, PatternConstructor)
        for pattern in patterns
    )


def _tags(rows: Sequence[_Row]) -> set[int]:
    """The tags of the constructors in the first column."""
    return {row[0].constructor.tag for row in rows if isinstance(row[0], PatternConstructor)}


def _missing(rows: Sequence[_Row], width: int, steps: _Steps) -> Iterator[_Row]:
    """Yield rows of patterns of values that no row matches."""
    steps.take(len(rows))
    if not rows:
        yield (_ANY,) * width
        return
    if any(map(_matches_all, rows)):
        return
    head = _head(rows)
    if head is None:
        for rest in _missing(_others(rows), width - 1, steps):
            yield (_ANY, *rest)
    elif isinstance(head, PatternTuple):
        count = len(head.patterns)
        for found in _missing(_rows_of_tuple(rows, count), count + width - 1, steps):
            yield (PatternTuple(found[:count]), *found[count:])
    else:
        tags = _tags(rows)
        others_missing = True  # for the constructors that no row has
        for constructor in head.constructor.belong_to.definition.constructors:
            count = len(constructor.inputs)
            if constructor.tag in tags:
                for found in _missing(_rows_of(rows, constructor), count + width - 1, steps):
                    yield (PatternConstructor(constructor, found[:count]), *found[count:])
            elif others_missing:
                others_missing = False
                for rest in _missing(_others(rows), width - 1, steps):
                    others_missing = True
                    yield (PatternConstructor(constructor, (_ANY,) * count), *rest)


def _is_useful(rows: Sequence[_Row], row: _Row, steps: _Steps) -> bool:
    """Whether a row matches values that no row before it matches."""
    steps.take(len(rows))
    if not rows or any(map(_matches_all, rows)):
        return not rows
    first = row[0]
    if isinstance(first, PatternConstructor):
        (inner,) = _rows_of([row], first.constructor)
        return _is_useful(_rows_of(rows, first.constructor), inner, steps)
    head = _head(rows)
    if isinstance(first, PatternTuple) or isinstance(head, PatternTuple):
        tuple_ = first if isinstance(first, PatternTuple) else head
        assert isinstance(tuple_, PatternTuple)
        count = len(tuple_.patterns)
        (inner,) = _rows_of_tuple([row], count)
        return _is_useful(_rows_of_tuple(rows, count), inner, steps)
    if head is None:
        return _is_useful(_others(rows), row[1:], steps)
    constructors = head.constructor.belong_to.definition.constructors
    if len(_tags(rows)) < len(constructors):
        return _is_useful(_others(rows), row[1:], steps)
    return any(
        _is_useful(_rows_of(rows, constructor), _rows_of([row], constructor)[0], steps)
        for constructor in constructors
    )
