"""Which allocations of a function may take over each other's memory without an order among calls
that are independent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ..analysis.allocations import (
    ALLOC_TENSOR,
    KERNELS,
    VIEWS,
    Allocation,
    Allocations,
    HeldGroup,
    Region,
    uses,
)
from ..dependences import all_before, needed_by_all_from
from ..ir import Call, ExternFunc, If, Op, Var

__all__ = ["keep_branches_apart"]

_WITHOUT_WORK: Final = VIEWS | {"relax.shape_of", "vm.builtin.shape_of"}
"""Operators and packed functions that read and write no elements."""

_Part = tuple[Allocation, Var | None]
"""An allocation, or the view of it that is in a variable."""


class _Task(NamedTuple):
    """A binding that reads or writes memory.

    Attributes:
        point: of the binding.
        read, written: the allocations.
    """

    point: int
    read: frozenset[_Part]
    written: frozenset[_Part]

    def touched(self) -> set[Allocation]:
        return {made for made, _ in self.read | self.written}

    def depends_on(self, earlier: _Task) -> bool:
        return _meet(self.written, earlier.read | earlier.written) or _meet(
            self.read, earlier.written
        )


def _meet(some: frozenset[_Part], others: frozenset[_Part]) -> bool:
    return any(
        made is other and (part is None or of_other is None or part is of_other)
        for made, part in some
        for other, of_other in others
    )


def keep_branches_apart(allocations: Allocations) -> None:
    """Let each allocation be used until all later calls depend on its uses.

    So a tensor that takes over its memory is written by a call that has to wait for these uses in
    any case.  Calls of anything but kernels, and Ifs, run after all that is before them in any
    case.
    """
    for region in dict.fromkeys([allocations.body, *allocations.regions]):
        for tasks in _stretches(allocations, region):
            _extend(region, tasks)


def _extend(region: Region, tasks: list[_Task]) -> None:
    users: dict[Allocation, int] = {}
    for i, task in enumerate(tasks):
        for made in task.touched():
            users[made] = users.get(made, 0) | 1 << i
    needed = needed_by_all_from(all_before(tasks, _Task.touched, _Task.depends_on))
    for made, own in users.items():
        if made.region is not region or made.escapes or made.end > tasks[-1].point:
            continue
        low, high = 0, len(tasks)  # the first position from which on all depend on the uses
        while low < high:
            middle = (low + high) // 2
            if own & ~needed[middle]:
                low = middle + 1
            else:
                high = middle
        if low > 0:
            point = tasks[low - 1].point
            made.end = max(made.end, point)
            made.sure = max(made.sure, point)
            made.last = made.held_until(made.end)


def _stretches(allocations: Allocations, region: Region) -> Iterator[list[_Task]]:
    """The calls of kernels of a region, in lists of those between two bindings of other kinds."""
    tasks: list[_Task] = []
    views: set[Var] = set()
    for point, binding in zip(region.starts, region.bindings, strict=True):
        value = binding.value
        if isinstance(value, If):
            orders = True
        elif not isinstance(value, Call) or value.op is ALLOC_TENSOR:
            orders = False
        else:
            op = value.op
            name = op.name if isinstance(op, Op) else getattr(op, "global_symbol", "")
            is_kernel = isinstance(op, ExternFunc) and name.startswith(KERNELS)
            orders = not is_kernel and name not in _WITHOUT_WORK
            if name in VIEWS:
                views.add(binding.var)
            elif is_kernel:
                tasks.append(_task(allocations, value, point, views))
        if orders and tasks:
            yield tasks
            tasks = []
    if tasks:
        yield tasks


def _task(allocations: Allocations, call: Call, point: int, views: set[Var]) -> _Task:
    parts = {var: _parts(allocations.of(var), var if var in views else None) for var in uses(call)}
    out = call.args[-1] if call.args else None
    written = {
        (made, part) for held in parts.values() for made, part in held if made.first == point
    }
    if isinstance(out, Var):
        written |= parts.get(out, frozenset())
    read = {each for held in parts.values() for each in held} - written
    return _Task(point, frozenset(read), frozenset(written))


def _parts(held: Any, part: Var | None) -> frozenset[_Part]:
    if type(held) is Allocation:
        return frozenset([(held, part)])
    if isinstance(held, HeldGroup):
        found: frozenset[_Part] = frozenset()
        return found.union(*(_parts(each, None) for each in held.parts))
    return frozenset()
