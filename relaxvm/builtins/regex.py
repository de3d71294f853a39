"""Regular expressions that are matched in time linear in the text.

The syntax is that of RE2, the one that ONNX names, as far as Python's parser reads it.  References
to groups and assertions about what is ahead or behind are refused, as RE2 refuses them.  A pattern
becomes a nondeterministic automaton, whose states are followed side by side: no pattern takes
exponential time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from ..core._deadlines import check_time

_parser: Final[Any] = import_module("re._parser")
"""Python's parser of regular expressions, which has no public name."""

__all__ = ["Pattern", "compiled"]

_MOST_STATES: Final = 10_000
_MOST_DEPTH: Final = 200
Test = Callable[[str], bool]
Edge = tuple[str, Any, int]
"""What an edge needs, and where it leads: "char" and a test of a character, "at" and the name of a
place, or "" and None."""


def _is_word(c: str) -> bool:
    return c == "_" or (c.isascii() and c.isalnum())


_CATEGORIES: Final[dict[str, Test]] = {
    "CATEGORY_DIGIT": lambda c: "0" <= c <= "9",
    "CATEGORY_SPACE": lambda c: c in " \t\n\r\f",
    "CATEGORY_WORD": _is_word,
}


def _category(name: str) -> Test:
    test = _CATEGORIES.get(name.replace("NOT_", ""))
    if test is None:
        raise ValueError(f"regular expression: {name} is not supported")
    return (lambda c: not test(c)) if "NOT_" in name else test


class Pattern:
    """A compiled pattern.

    Args:
        text: the pattern.

    Raises:
        ValueError: it is malformed, too large, or has something that is not supported.
    """

    def __init__(self, text: str) -> None:
        self._edges: list[list[Edge]] = []
        try:
            tree = _parser.parse(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"regular expression: {error}") from None
        flags = tree.state.flags
        self._ignores_case = bool(flags & re.IGNORECASE)
        self._is_multiline = bool(flags & re.MULTILINE)
        self._has_dotall = bool(flags & re.DOTALL)
        self._end = self._state()
        self._start = self._sequence(tree, self._end, 0)

    def _state(self, *edges: Edge) -> int:
        if len(self._edges) >= _MOST_STATES:
            raise ValueError(f"regular expression: more than {_MOST_STATES} states")
        self._edges.append(list(edges))
        return len(self._edges) - 1

    # Building: each method returns the state before a part, given the state behind it.

    def _sequence(self, items: Iterable[Any], to: int, depth: int) -> int:
        if depth > _MOST_DEPTH:
            raise ValueError(f"regular expression: nested deeper than {_MOST_DEPTH}")
        for op, value in reversed(list(items)):
            to = self._item(str(op), value, to, depth + 1)
        return to

    def _item(self, op: str, value: Any, to: int, depth: int) -> int:
        if op == "AT":
            return self._state(("at", self._place(str(value)), to))
        if op == "BRANCH":
            return self._state(*[("", None, self._sequence(b, to, depth)) for b in value[1]])
        if op == "SUBPATTERN":
            _, added, removed, inner = value
            if added or removed:
                raise ValueError("regular expression: flags of a group are not supported")
            return self._sequence(inner, to, depth)
        if op in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = value
            return self._repeat(least, most, inner, to, depth)
        return self._state(("char", self._test(op, value), to))

    def _repeat(self, least: int, most: Any, inner: Any, to: int, depth: int) -> int:
        if most is _parser.MAXREPEAT:
            loop = self._state(("", None, to))
            self._edges[loop].append(("", None, self._sequence(inner, loop, depth)))
            to = loop
        else:
            end = to
            for _ in range(int(most) - least):
                to = self._state(("", None, end), ("", None, self._sequence(inner, to, depth)))
        for _ in range(least):
            to = self._sequence(inner, to, depth)
            self._state()  # so that repeats of nothing count, too
        return to

    def _place(self, name: str) -> str:
        if name == "AT_BEGINNING" and self._is_multiline:
            return "AT_BEGINNING_LINE"
        if name == "AT_END":
            return "AT_END_LINE" if self._is_multiline else "AT_END_STRING"
        if name not in ("AT_BEGINNING", "AT_BEGINNING_STRING", "AT_END_STRING", "AT_BOUNDARY",
                        "AT_NON_BOUNDARY"):  # fmt: skip
            raise ValueError(f"regular expression: {name} is not supported")
        return name

    def _test(self, op: str, value: Any) -> Test:
        if op in ("LITERAL", "NOT_LITERAL"):
            found = self._range(value, value)
            return found if op == "LITERAL" else lambda c: not found(c)
        if op == "ANY":
            return (lambda c: True) if self._has_dotall else (lambda c: c != "\n")
        if op == "IN":
            is_negated = str(value[0][0]) == "NEGATE"
            tests = [self._member(str(o), v) for o, v in value[is_negated:]]
            if is_negated:
                return lambda c: not any(test(c) for test in tests)
            return lambda c: any(test(c) for test in tests)
        raise ValueError(f"regular expression: {op} is not supported")

    def _member(self, op: str, value: Any) -> Test:
        if op == "CATEGORY":
            return _category(str(value))
        if op == "RANGE":
            return self._range(*value)
        if op == "LITERAL":
            return self._range(value, value)
        raise ValueError(f"regular expression: {op} is not supported")

    def _range(self, first: int, last: int) -> Test:
        low, high = chr(first), chr(last)
        if not self._ignores_case:
            return lambda c: low <= c <= high
        return lambda c: low <= c <= high or low <= c.lower() <= high or low <= c.upper() <= high

    # Matching

    def matches(self, text: str) -> bool:
        """Whether the pattern matches the whole text."""
        states = self._closure([self._start], text, 0)
        for place, c in enumerate(text):
            check_time()
            reached = [
                to
                for state in states
                for kind, test, to in self._edges[state]
                if kind == "char" and test(c)
            ]
            if not reached:
                return False
            states = self._closure(reached, text, place + 1)
        return self._end in states

    def find(self, text: str, begin: int) -> tuple[int, int] | None:
        """The first match at or behind a place, and of those that begin there the longest one: its
        beginning and end.

        All beginnings are followed at once: of those that reach a state, the first one counts.
        """
        best: tuple[int, int] | None = None
        reached: dict[int, int] = {}
        for place in range(begin, len(text) + 1):
            check_time()
            if best is None:
                reached.setdefault(self._start, place)
            starts: dict[int, int] = {}
            for state, start in sorted(reached.items(), key=lambda item: item[1]):
                if state not in starts:
                    for each in self._closure([state], text, place):
                        starts.setdefault(each, start)
            if self._end in starts:
                best = starts[self._end], place
            if place == len(text):
                break
            reached = {}
            for state, start in starts.items():
                if best is not None and start > best[0]:
                    continue
                for kind, test, to in self._edges[state]:
                    if kind == "char" and test(text[place]) and start <= reached.get(to, start):
                        reached[to] = start
            if best is not None and not reached:
                break
        return best

    def _closure(self, states: list[int], text: str, place: int) -> set[int]:
        found = set(states)
        while states:
            for kind, value, to in self._edges[states.pop()]:
                if kind == "char" or to in found:
                    continue
                if kind == "" or _is_at(value, text, place):
                    found.add(to)
                    states.append(to)
        return found


def _is_at(name: str, text: str, place: int) -> bool:
    if name in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
        return place == 0
    if name == "AT_END_STRING":
        return place == len(text)
    if name == "AT_BEGINNING_LINE":
        return place == 0 or text[place - 1] == "\n"
    if name == "AT_END_LINE":
        return place == len(text) or text[place] == "\n"
    before = place > 0 and _is_word(text[place - 1])
    after = place < len(text) and _is_word(text[place])
    return (before != after) == (name == "AT_BOUNDARY")


@lru_cache(maxsize=64)
def compiled(text: str) -> Pattern:
    """A pattern; the last ones are kept."""
    return Pattern(text)
