"""Sequences of tasks, such as calls of kernels, of which some depend on others.

A set of tasks is an int, with a bit for the position of each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

__all__ = ["all_before", "between_cuts", "needed_by_all_from"]

T = TypeVar("T")


def all_before(
    tasks: Sequence[T],
    touched: Callable[[T], Iterable[Hashable]],
    depends: Callable[[T, T], bool],
) -> list[int]:
    """For each task the set of the earlier ones that it depends on, directly or not.

    Args:
        tasks: in the order in which they run.
        touched: what a task works on; only tasks that share some of that can depend on each other.
        depends: whether a task depends directly on an earlier one.
    """
    users: dict[Hashable, list[int]] = {}
    before: list[int] = []
    for i, task in enumerate(tasks):
        found = 0
        things = set(touched(task))
        for k in sorted({k for thing in things for k in users.get(thing, ())}, reverse=True):
            if not found >> k & 1 and depends(task, tasks[k]):
                found |= 1 << k | before[k]
        before.append(found)
        for thing in things:
            users.setdefault(thing, []).append(i)
    return before


def needed_by_all_from(before: Sequence[int]) -> list[int]:
    """For each position, and the one after the last, the set of tasks that all tasks from there on
    depend on; after the last one, of all tasks."""
    common = (1 << len(before)) - 1
    found = [common]
    for tasks in reversed(before):
        common &= tasks
        found.append(common)
    return found[::-1]


def between_cuts(before: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The ranges of tasks of which some are independent of each other.  They are between *cuts*,
    positions such that all tasks from there on depend on all tasks before."""
    first = 0
    for i, tasks in enumerate(needed_by_all_from(before)):
        if tasks == (1 << i) - 1:
            if i - first > 1:
                yield first, i
            first = i
