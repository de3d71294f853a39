"""State that a VM keeps from one call to the next, and arguments that a program changes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..core._kept import extended, is_put, opened
from ..messages import describe
from ..pieces.cut import copied, copy_pieces
from .arguments import as_array, as_int, as_sequence, as_shape, as_str
from .registration import OWN_PREFIX, builtin

__all__ = [
    "Room", "assign", "cache_extend", "cache_open", "put", "state_open", "state_read",
    "state_write", "unshared", "within",
]  # fmt: skip

_MOST: Final = (1 << 63) - 1
"""A bound that is none."""


def _state_of(ctx: Any, subject: str) -> dict[str, NDArray[Any]]:
    state = getattr(ctx, "_state", None)  # of ``state``, without the call of a property
    if isinstance(state, dict):
        return state
    raise TypeError(f"{subject}: ctx: expected the VM state, got {describe(ctx)}")


@builtin("state_read", "ctx: vm, name: str, initial: tensor", result="tensor", prefix=OWN_PREFIX)
def state_read(ctx: Any, name: Any, initial: Any) -> NDArray[Any]:
    """Return what the VM keeps under a name; `initial` until something is written.

    Raises:
        TypeError: an argument is of the wrong kind, or the user put a value of another data type or
            shape into ``vm.state``.
    """
    state = _state_of(ctx, "state_read")
    key, first = as_str(name, "state_read: name"), as_array(initial, "state_read: initial")
    found = state.get(key)
    if found is None:
        return first
    if not isinstance(found, np.ndarray) or found.dtype != first.dtype or (
        found.shape != first.shape
    ):  # fmt: skip
        raise TypeError(f"vm.state[{key!r}]: expected {describe(first)}, got {describe(found)}")
    return found


@builtin("state_open", "ctx: vm, name: str, initial: tensor", result="tensor", prefix=OWN_PREFIX)
def state_open(ctx: Any, name: Any, initial: Any) -> NDArray[Any]:
    """Return what the VM keeps under a name, to be written to by `put`; a copy of `initial` is kept
    before that if there is nothing.

    Raises:
        TypeError: an argument is of the wrong kind, or the user put a value of another data type or
            shape into ``vm.state``, or one that is read-only.
    """
    state = _state_of(ctx, "state_open")
    key, first = as_str(name, "state_open: name"), as_array(initial, "state_open: initial")
    if state.get(key) is None:
        state[key] = copied(first)
    found = state_read(ctx, name, initial)
    if not found.flags.writeable:
        raise TypeError(f"vm.state[{key!r}]: the program writes to it, but it is read-only")
    return found


@builtin(
    "cache_open",
    "ctx: vm, name: str, initial: tensor, axis: int",
    result="tensor",
    prefix=OWN_PREFIX,
)
def cache_open(ctx: Any, name: Any, initial: Any, axis: Any) -> NDArray[Any]:
    """Return what the VM keeps under a name, which `cache_extend` makes longer; a copy of `initial`
    is kept before that if there is nothing.

    Args:
        axis: the axis whose length may be another one than that of `initial`.

    Raises:
        TypeError: an argument is of the wrong kind, or the user put a value of another data type or
            shape into ``vm.state``.
        ValueError: there is no such axis.
    """
    state = _state_of(ctx, "cache_open")
    found = opened(state, name, initial, axis)  # the usual case
    if found is not None:
        return found
    key, first = as_str(name, "cache_open: name"), as_array(initial, "cache_open: initial")
    place = _axis(axis, first, "cache_open")
    if state.get(key) is None:
        state[key] = copied(first)
    return _kept(state, key, first, place, "an array like")


@builtin(
    "cache_extend",
    "ctx: vm, name: str, new: tensor, axis: int",
    result="tensor",
    prefix=OWN_PREFIX,
)
def cache_extend(ctx: Any, name: Any, new: Any, axis: Any) -> NDArray[Any]:
    """Put a tensor behind what the VM keeps under a name, if there is anything, along an axis, and
    return both together.

    What is there is not copied, as long as there is room behind it, and nothing but this function
    has put anything there; else both are copied to a place with room for twice as much.  Arrays
    that were returned before keep their elements, since only the room behind the longest is
    written to.

    Raises:
        TypeError: an argument is of the wrong kind, or data types or shapes differ.
        ValueError: there is no such axis.
    """
    state = _state_of(ctx, "cache_extend")
    rooms: dict[str, Room] = getattr(ctx, "_rooms", {})
    longer = extended(state, rooms, name, new, axis)  # the usual case
    if longer is not None:
        return longer
    key, added = as_str(name, "cache_extend: name"), as_array(new, "cache_extend: new")
    place = _axis(axis, added, "cache_extend")
    head: tuple[Any, ...] = (slice(None),) * place
    old = added[(*head, slice(0))]
    if state.get(key) is not None:
        old = _kept(state, key, added, place, "an array to continue with")
    start, end = old.shape[place], old.shape[place] + added.shape[place]
    room = rooms.get(key)
    if room is None or not room.continues(old, start, end, place):
        shape = (*old.shape[:place], max(2 * end, _LEAST_ROOM), *old.shape[place + 1 :])
        room = rooms[key] = Room(np.empty(shape, old.dtype))
        copy_pieces(room.buffer[(*head, slice(start))], old)
    copy_pieces(room.buffer[(*head, slice(start, end))], added)
    room.used = end
    found: NDArray[Any] = room.buffer[(*head, slice(end))]
    state[key] = room.last = found
    return found


class Room:
    """An array that is longer than what is kept in it, how much of it was ever used, and the part
    that was returned last."""

    __slots__ = "buffer", "last", "used"

    def __init__(self, buffer: NDArray[Any]) -> None:
        self.buffer = buffer
        self.used = 0
        self.last: NDArray[Any] | None = None

    @classmethod
    def restored(cls, buffer: Any, used: int) -> Room:
        """A room of a saved run.

        Raises:
            TypeError: the buffer is no tensor.
            ValueError: more is used than any axis has.
        """
        found = cls(as_array(buffer, "buffer"))
        if not 0 <= used <= max(found.buffer.shape, default=0) or not found.buffer.flags.writeable:
            raise ValueError(f"expected memory with {used} places in use, got {describe(buffer)}")
        found.used = used
        return found

    def continues(self, old: NDArray[Any], start: int, end: int, axis: int) -> bool:
        """Whether an array of the length `start` is all that was ever used, and there is room up to
        `end`."""
        buffer = self.buffer
        if old is self.last:  # no need to look at addresses
            return self.used == start and end <= buffer.shape[axis]
        shape = (*old.shape[:axis], buffer.shape[axis], *old.shape[axis + 1 :])
        is_start = (
            old.base is buffer and old.strides == buffer.strides and shape == buffer.shape
            and old.__array_interface__["data"] == buffer.__array_interface__["data"]
        )  # fmt: skip
        return is_start and self.used == start and end <= buffer.shape[axis]


_LEAST_ROOM: Final = 16


def _axis(axis: Any, array: NDArray[Any], subject: str) -> int:
    found = as_int(axis, f"{subject}: axis")
    if not -array.ndim <= found < array.ndim:
        raise ValueError(f"{subject}: axis: expected one of {describe(array)}, got {found}")
    return found % array.ndim


def _kept(
    state: dict[str, NDArray[Any]], key: str, like: NDArray[Any], axis: int, what: str
) -> NDArray[Any]:
    """What is kept; its data type and shape are those of an array, apart from an axis."""
    found = state.get(key)
    if isinstance(found, np.ndarray) and found.dtype == like.dtype and found.ndim == like.ndim:
        shape = [*found.shape]
        shape[axis] = like.shape[axis]
        if tuple(shape) == like.shape:
            return found
    raise TypeError(f"vm.state[{key!r}]: expected {what} {describe(like)}, apart from the length "
                    f"of axis {axis}, got {describe(found)}")  # fmt: skip


@builtin(
    "put",
    "x: tensor, value: tensor, parts: shape|tuple, indices: tuple",
    result="tensor",
    prefix=OWN_PREFIX,
)
def put(x: Any, value: Any, parts: Any, indices: Any) -> NDArray[Any]:
    """Write elements to a part of a tensor, in place; returns the tensor.

    Args:
        x: the tensor.
        value: what is written; it broadcasts to the part.
        parts: four numbers for each part of a part: axis, start, end and step, as of a slice; or
            axis, index, 0 and 0.
        indices: for each of the first axes of the part a tensor of places, or 0 for all; empty for
            the whole part.

    Raises:
        TypeError: an argument is of the wrong kind.
        ValueError: x is read-only, the value does not broadcast to the part, or `parts` are none.
        IndexError: a place is not in the tensor.
    """
    if isinstance(parts, tuple) and not parts and is_put(x, value, indices):
        target: NDArray[Any] = x
        return target
    target, new = as_array(x, "put: x"), as_array(value, "put: value")
    steps = as_shape(parts, "put: parts")
    if not target.flags.writeable:
        raise ValueError("put: x: expected a tensor to write to, got a read-only one")
    if len(steps) % 4:
        raise ValueError(f"put: parts: expected four numbers for each, got {len(steps)}")
    part = target
    for axis, start, end, step in zip(*[iter(steps)] * 4, strict=True):
        if not -part.ndim <= axis < part.ndim or step < 0:
            raise ValueError(f"put: parts: expected an axis of {describe(part)} and a step, got "
                             f"{axis} and {step}")  # fmt: skip
        place: list[Any] = [slice(None)] * part.ndim
        place[axis] = slice(start, end, step) if step else start
        part = part[(*place, ...)]
    where = [
        slice(None) if isinstance(each, int) else as_array(each, "put: index")
        for each in as_sequence(indices, "put: indices")
    ]
    try:
        if where:
            part[tuple(where)] = new
        else:
            copy_pieces(part, np.broadcast_to(new, part.shape))
    except ValueError as error:
        raise ValueError(f"put: value: {error}") from None
    return target


@builtin("unshared", "x: tensor, others: tuple", result="tensor", prefix=OWN_PREFIX)
def unshared(x: Any, others: Any) -> NDArray[Any]:
    """Return a tensor, or a copy of it if it shares memory with one of `others`.

    Raises:
        TypeError: an argument is of the wrong kind.
    """
    tensor = as_array(x, "unshared: x")
    for other in as_sequence(others, "unshared: others"):
        if np.may_share_memory(tensor, as_array(other, "unshared: other")):
            return copied(tensor)
    return tensor


@builtin("state_write", "ctx: vm, name: str, value: tensor", result="none", prefix=OWN_PREFIX)
def state_write(ctx: Any, name: Any, value: Any) -> None:
    """Let the VM keep a copy of a tensor under a name.

    Raises:
        TypeError: an argument is of the wrong kind.
    """
    state = _state_of(ctx, "state_write")
    key, new = as_str(name, "state_write: name"), as_array(value, "state_write: value")
    state[key] = copied(new)


@builtin("assign", "x: tensor, value: tensor, name: str", result="none", prefix=OWN_PREFIX)
def assign(x: Any, value: Any, name: Any) -> None:
    """Write the elements of a tensor into another one of the same data type and shape.

    Args:
        name: begins messages of errors.

    Raises:
        TypeError: an argument is of the wrong kind.
        ValueError: data types or shapes differ, or x is read-only.
    """
    subject = as_str(name, "assign: name")
    target, new = as_array(x, subject), as_array(value, f"{subject}: value")
    if target.dtype != new.dtype or target.shape != new.shape:
        raise ValueError(f"{subject}: expected {describe(target)}, got {describe(new)}")
    if not target.flags.writeable:
        raise ValueError(f"{subject}: the program changes this tensor, but it is read-only")
    copy_pieces(target, new)


@builtin("within", "number: int, least: int, most: int, name: str", result="none",
         prefix=OWN_PREFIX)  # fmt: skip
def within(number: Any, least: Any, most: Any, name: Any) -> None:
    """Check a number.

    Args:
        least, most: what it may be.
        name: begins messages of errors.

    Raises:
        TypeError: an argument is of the wrong kind.
        ValueError: the number is out of range.
    """
    subject = as_str(name, "within: name")
    value = as_int(number, subject)
    low, high = as_int(least, "within: least"), as_int(most, "within: most")
    if not low <= value <= high:
        expected = f"{low} to {high}"
        if high == _MOST:
            expected = f"at least {low}"
        elif low == -_MOST:
            expected = f"at most {high}"
        raise ValueError(f"{subject}: expected {expected}, got {value}")
