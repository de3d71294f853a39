"""Where the values of registers are while native code runs.

A state has a `Place` for each register of a frame.  A register that is not in memory has NULL in
its cell of the frame, so that a cell never holds a value that is no longer the register's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from .local_tensors import LocalTensor

__all__ = [
    "EMPTY", "MEMORY", "Group", "Heap", "Item", "ItemKind", "Place", "Scalar", "State", "join",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Cell:
    """In the frame: `MEMORY`, or known to be NULL, which reads as None: `EMPTY`."""

    name: str


MEMORY: Final = _Cell("memory")
EMPTY: Final = _Cell("empty")


class Scalar(Enum):
    """A local variable; the value is the first letter of its name."""

    INT = "i"
    """An int64_t."""
    BOOL = "b"
    """An int, 0 or 1."""
    ANY = "s"
    """An RvmScalar: None, an int, a bool or a float."""


@dataclass(frozen=True, slots=True)
class Heap:
    """A shape heap that nothing refers to but its register: local variables for its slots.

    Attributes:
        site: position of the word of the operation that made it, the pointer to its site.
        slots: the number of slots.
    """

    site: int
    slots: int


class ItemKind(Enum):
    """What an item of a group is."""

    REGISTER = "the value of a register, which is in memory and has not been written since"
    CONSTANT = "a constant of the pool"
    NONE = "None"
    INT = "a local variable, an int64_t"
    BOOL = "a local variable, 0 or 1"
    ANY = "a local variable, an RvmScalar"
    OWNED = "a local variable with a reference that belongs to the group"


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a group.

    Attributes:
        kind: what it is.
        at: the register, or the word of a constant.
        name: of the local variable.
    """

    kind: ItemKind
    at: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A tuple or a closure of which no object has been made.

    Attributes:
        function: of a closure, the index of its function; None for a tuple.
        items: the items, or captured values.
    """

    function: int | None
    items: tuple[Item | Group, ...]

    def leaves(self) -> Iterator[Item]:
        """The items, and those of groups among them."""
        for item in self.items:
            if isinstance(item, Group):
                yield from item.leaves()
            else:
                yield item

    def refers_to(self, register: int) -> bool:
        """Whether an item is the value of a register."""
        return any(leaf.kind is ItemKind.REGISTER and leaf.at == register for leaf in self.leaves())

    def owned(self) -> list[str]:
        """The local variables with references that belong to the group."""
        return [leaf.name for leaf in self.leaves() if leaf.kind is ItemKind.OWNED]

    def replaced(self, register: int, by: Item) -> Group:
        """The group with another item in the place of a register's value."""

        def replaced(item: Item | Group) -> Item | Group:
            if isinstance(item, Group):
                return item.replaced(register, by)
            return by if item.kind is ItemKind.REGISTER and item.at == register else item

        return Group(self.function, tuple(map(replaced, self.items)))


Place = _Cell | Scalar | Heap | Group | LocalTensor
class State(dict[int, Place]):
    """The places of all registers by number.

    Attributes:
        outside: the registers that are not in the frame.
    """

    __slots__ = ("outside",)

    def __init__(self, places: Mapping[int, Place] | Iterable[tuple[int, Place]]) -> None:
        super().__init__(places)
        self.outside = {r for r, place in self.items() if not isinstance(place, _Cell)}

    def __setitem__(self, register: int, place: Place) -> None:
        super().__setitem__(register, place)
        if isinstance(place, _Cell):
            self.outside.discard(register)
        else:
            self.outside.add(register)

    def groups(self) -> list[tuple[int, Group]]:
        """The registers that are groups."""
        found = [(register, self[register]) for register in sorted(self.outside)]
        return [(register, place) for register, place in found if isinstance(place, Group)]


def join(old: State | None, new: State, live: int) -> State:
    """The places where paths meet.

    A group or tensor without an object does not outlive the path that has made it.  What nobody
    reads is left behind.

    Args:
        old: the places on the paths so far; None for the first one.
        new: those on another one.
        live: the registers that are read later, as bits.
    """
    return State(
        (r, _joined(None if old is None else old[r], place, bool(live >> r & 1)))
        for r, place in new.items()
    )


def _joined(old: Place | None, new: Place, is_live: bool) -> Place:
    if not is_live:
        return MEMORY if old is MEMORY or new is MEMORY else EMPTY
    if isinstance(new, (Group, LocalTensor)):
        return MEMORY
    return new if old is None or old == new else MEMORY
