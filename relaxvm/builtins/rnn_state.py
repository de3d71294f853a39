"""Recurrent states of language models: of each sequence the current state and earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._core import charge_objects
from ..errors import InternalError
from ..messages import describe
from ..pieces.cut import copied, copy_pieces
from .arguments import as_array, as_callable, as_int, as_sequence
from .kv_state import KVState
from .registration import builtin
from .saved_fields import (
    as_count,
    as_counts,
    as_fields,
    as_flag,
    as_function,
    as_rows,
    as_tensor,
)

__all__ = ["RNNState", "rnn_state_create", "rnn_state_debug_get", "rnn_state_get", "rnn_state_set"]

_BYTES_PER_SEQUENCE = 500
_MOST_NUMBER = 1 << 62


class _Sequence:
    """A sequence of a recurrent state.

    Attributes:
        slot: its place in the storages.
        now: the place of its current state among the earlier ones.
        undoable: how many steps can be taken back.
        length: the number of tokens.
    """

    __slots__ = ("length", "now", "slot", "undoable")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.now = self.undoable = self.length = 0


class RNNState(KVState):
    """States of some layers for numbered sequences.

    Attributes:
        storages: for each layer and state an array ``[sequences, history, ...]``.
    """

    def __init__(
        self,
        layers: int,
        most: int,
        history: int,
        getters: Sequence[Callable[..., Any] | None],
        setters: Sequence[Callable[..., Any] | None],
        initial: Sequence[NDArray[Any]],
    ) -> None:
        charge_objects(200 * layers * len(initial) + 36 * most)
        self._initial = [copied(each) for each in initial]
        self._getters, self._setters = getters, setters
        self._history, self._most = history, most
        self.storages = [
            [_zeros((most, history, *each.shape), each.dtype) for each in initial]
            for _ in range(layers)
        ]
        self._sequences: dict[int, _Sequence] = {}
        self._free: list[int] = []
        self._slots = self._places = np.zeros(0, np.int32)
        self._is_open = False
        self.clear()

    def saved_fields(self) -> tuple[Any, ...]:
        """See `relaxvm.vm.saved_runs.states`."""
        sequences = tuple([
            (number, each.slot, each.now, each.undoable, each.length)
            for number, each in self._sequences.items()
        ])
        return (
            tuple(self._initial), tuple(self._getters), tuple(self._setters), self._history,
            self._most, tuple([tuple(layer) for layer in self.storages]), sequences,
            tuple(self._free), self._slots, self._places, self._is_open, tuple(self.batch),
            tuple(self.counts),
        )  # fmt: skip

    def restore_fields(self, fields: tuple[Any, ...]) -> None:
        """See `relaxvm.vm.saved_runs.states`."""
        subject = "recurrent state"
        (
            initial, getters, setters, history, most, storages, sequences, free, slots, places,
            is_open, batch, counts,
        ) = as_fields(fields, 13, subject)  # fmt: skip
        self._initial = [as_tensor(each, subject) for each in as_rows(initial, subject)]
        states = len(self._initial)
        self._getters, self._setters = [
            [as_function(each, subject) for each in as_fields(group, states, subject)]
            for group in (getters, setters)
        ]
        self._history, self._most = as_count(history, subject, least=1), as_count(most, subject)
        self.storages = [
            [
                as_tensor(each, subject, (self._most, self._history, *first.shape), first.dtype,
                          writeable=True)
                for each, first in zip(
                    as_fields(layer, states, subject), self._initial, strict=True
                )
            ]
            for layer in as_rows(storages, subject)
        ]  # fmt: skip
        self._sequences = {}
        for row in as_rows(sequences, subject):
            number, slot, now, undoable, length = as_fields(row, 5, subject)
            found = _Sequence(as_count(slot, subject, self._most - 1))
            found.now = as_count(now, subject, self._history - 1)
            found.undoable = as_count(undoable, subject, self._history - 1)
            found.length = as_count(length, subject)
            self._sequences[as_count(number, subject, least=-_MOST_NUMBER)] = found
        self._free = list(as_counts(free, subject, self._most - 1))
        used = sorted([*self._free, *(each.slot for each in self._sequences.values())])
        if used != list(range(self._most)):
            raise ValueError(f"{subject}: expected each slot once")
        self.batch = as_counts(batch, subject, least=-_MOST_NUMBER)
        self.counts = as_counts(counts, subject, least=-_MOST_NUMBER)
        self.check_batch(self.batch, self.counts)
        self._slots = as_tensor(slots, subject, (None,), np.int32)
        self._places = as_tensor(places, subject, self._slots.shape, np.int32)
        if (self._slots < 0).any() or (self._slots >= max(self._most, 1)).any():
            raise ValueError(f"{subject}: expected slots of the state")
        if (self._places < 0).any() or (self._places >= self._history).any():
            raise ValueError(f"{subject}: expected places in the history")
        self._is_open = as_flag(is_open, subject)

    def clear(self) -> None:
        self._sequences.clear()
        self._free = list(range(self._most - 1, -1, -1))
        self.batch = self.counts = ()
        self._is_open = False

    def _sequence(self, number: int) -> _Sequence:
        found = self._sequences.get(number)
        if found is None:
            raise InternalError(f"the recurrent state has no sequence {number}")
        return found

    def _new(self, number: int) -> _Sequence:
        if number in self._sequences:
            raise InternalError(f"the recurrent state has a sequence {number} already")
        if not self._free:
            raise InternalError(
                f"the recurrent state has {self._most} sequences, which is the most"
            )
        charge_objects(_BYTES_PER_SEQUENCE)
        self._is_open = False
        found = self._sequences[number] = _Sequence(self._free.pop())
        return found

    def add_sequence(self, number: int) -> None:
        slot = self._new(number).slot
        for layer in self.storages:
            for storage, initial in zip(layer, self._initial, strict=True):
                copy_pieces(storage[slot, 0], initial)

    def remove_sequence(self, number: int) -> None:
        self._free.append(self._sequence(number).slot)
        del self._sequences[number]
        self._is_open = False

    def fork_sequence(self, number: int, child: int, at: int) -> None:
        parent = self._sequence(number)
        new = self._new(child)
        new.now, new.undoable, new.length = parent.now, parent.undoable, parent.length
        for layer in self.storages:
            for storage in layer:
                copy_pieces(storage[new.slot], storage[parent.slot])

    def popn(self, number: int, count: int) -> None:
        sequence = self._sequence(number)
        if not 0 <= count <= sequence.undoable:
            raise InternalError(
                f"popn: expected 0 to {sequence.undoable} tokens of the sequence {number}, those "
                f"that can be taken back, got {count}"
            )
        sequence.length -= count
        sequence.undoable -= count
        sequence.now = (sequence.now - count) % self._history
        self._is_open = False

    def begin_forward(
        self, batch: Sequence[int], counts: Sequence[int], tree: Sequence[int] | None
    ) -> None:
        self.check_batch(batch, counts)
        if tree is not None and list(tree) != [i - 1 for count in counts for i in range(count)]:
            raise InternalError("begin_forward: a recurrent state takes chains of tokens, no trees")
        found = [self._sequence(number) for number in batch]
        self._slots = np.array([each.slot for each in found], np.int32)
        self._places = np.array([each.now for each in found], np.int32)
        self.batch, self.counts = tuple(batch), tuple(counts)
        self._is_open = True

    def end_forward(self) -> None:
        found = [self._sequence(number) for number in self.batch]
        for sequence, count in zip(found, self.counts, strict=True):
            sequence.length += count
            # The tokens of a prompt cannot be taken back one by one.
            sequence.undoable = 0 if count > 1 else min(sequence.undoable + 1, self._history - 1)
            sequence.now = (sequence.now + 1) % self._history
        self._is_open = False

    def _storage(self, layer: int, state: int, subject: str) -> NDArray[Any]:
        if not (0 <= layer < len(self.storages) and 0 <= state < len(self._initial)):
            raise InternalError(
                f"{subject}: expected a layer below {len(self.storages)} and a state below "
                f"{len(self._initial)}, got {layer} and {state}"
            )
        return self.storages[layer][state]

    def _open_storage(self, layer: int, state: int, subject: str) -> NDArray[Any]:
        found = self._storage(layer, state, subject)
        if not self._is_open or not len(self._slots):
            raise InternalError(f"{subject}: call kv_state_begin_forward with sequences first")
        return found

    def _check(self, data: NDArray[Any], storage: NDArray[Any], subject: str) -> None:
        shape = (len(self._slots), *storage.shape[2:])
        if data.shape != shape or data.dtype.newbyteorder("=") != storage.dtype:
            raise InternalError(
                f"{subject}: expected {storage.dtype}{list(shape)}, got {describe(data)}"
            )

    def get(self, layer: int, state: int, out: NDArray[Any], subject: str) -> None:
        """Write the states of the current sequences to `out`."""
        storage = self._open_storage(layer, state, subject)
        self._check(out, storage, subject)
        function = self._getters[state]
        if function is not None:
            function(storage, self._slots, self._places, out)
            return
        for row, slot, place in zip(out, self._slots, self._places, strict=True):
            copy_pieces(row, storage[slot, place])

    def set(self, layer: int, state: int, data: NDArray[Any], subject: str) -> None:
        """Write the next states of the current sequences."""
        storage = self._open_storage(layer, state, subject)
        self._check(data, storage, subject)
        function = self._setters[state]
        if function is not None:
            function(storage, self._slots, self._places, data)
            return
        for row, slot, place in zip(data, self._slots, self._places, strict=True):
            copy_pieces(storage[slot, (place + 1) % self._history], row)

    def current(self, layer: int, state: int, number: int, subject: str) -> NDArray[Any]:
        """A copy of the state of a sequence."""
        sequence = self._sequence(number)
        return copied(self._storage(layer, state, subject)[sequence.slot, sequence.now])


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    try:
        return np.zeros(shape, dtype.newbyteorder("="))
    except (MemoryError, ValueError):  # the latter where numpy cannot express the size
        raise MemoryError(f"rnn_state_create: cannot reserve {dtype}{list(shape)}") from None


def _as_rnn_state(value: Any, subject: str) -> RNNState:
    if isinstance(value, RNNState):
        return value
    raise TypeError(f"{subject}: expected a recurrent state, got {describe(value)}")


@builtin(
    "rnn_state_create",
    "layers: int, sequences: int, history: int, getters: tuple, setters: tuple, initial: tuple",
    result="object",
)
def rnn_state_create(
    layers: Any, sequences: Any, history: Any, getters: Any, setters: Any, initial: Any
) -> RNNState:
    """Create a recurrent state.

    Args:
        layers: the number of layers; each has all the states of `initial`.
        sequences: the most sequences at a time.
        history: how many states of a sequence are kept: the current one, and those that
            `kv_state_popn` can go back to.
        getters: for each state a function ``f(storage, slots, places, out)`` that writes
            ``storage[slots[i], places[i]]`` to ``out[i]``; None for relaxvm's own.
        setters: for each state a function ``f(storage, slots, places, data)`` that writes
            ``data[i]`` to ``storage[slots[i], (places[i] + 1) % history]``; None for relaxvm's own.
        initial: the states that a sequence begins with, of one layer.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: a number is not positive, or the tuples have different lengths.
        MemoryError: the system does not have the memory.
    """
    subject = "rnn_state_create"
    sizes = [
        as_int(value, f"{subject}: {name}")
        for name, value in (("layers", layers), ("sequences", sequences), ("history", history))
    ]
    states = [as_array(each, f"{subject}: initial state") for each in
              as_sequence(initial, f"{subject}: initial")]  # fmt: skip
    functions = [
        [None if f is None else as_callable(f, subject) for f in as_sequence(value, subject)]
        for value in (getters, setters)
    ]
    if min(sizes) <= 0 or not states:
        raise InternalError(
            f"{subject}: expected at least 1 layer, sequence, place of the history and state, got "
            f"{sizes} and {len(states)} states"
        )
    if any(len(each) != len(states) for each in functions):
        raise InternalError(
            f"{subject}: expected a getter and a setter for each of {len(states)} states, got "
            f"{len(functions[0])} and {len(functions[1])}"
        )
    count, most, kept = sizes
    return RNNState(count, most, kept, functions[0], functions[1], states)


@builtin("rnn_state_get", "state: object, layer: int, index: int, out: tensor", result="none")
def rnn_state_get(state: Any, layer: Any, index: Any, out: Any) -> None:
    """Write the states of the sequences of the current forward pass to ``out: [batch, ...]``.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there is no such layer or state, no forward pass, or `out` does not fit.
    """
    subject = "rnn_state_get"
    _as_rnn_state(state, subject).get(
        as_int(layer, subject), as_int(index, subject), as_array(out, f"{subject}: out"), subject
    )


@builtin("rnn_state_set", "state: object, layer: int, index: int, data: tensor", result="object")
def rnn_state_set(state: Any, layer: Any, index: Any, data: Any) -> RNNState:
    """Keep ``data: [batch, ...]`` as the next states of the sequences of the current forward pass;
    returns the recurrent state.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there is no such layer or state, no forward pass, or the data does not fit.
    """
    subject = "rnn_state_set"
    held = _as_rnn_state(state, subject)
    held.set(
        as_int(layer, subject), as_int(index, subject), as_array(data, f"{subject}: data"), subject
    )
    return held


@builtin(
    "rnn_state_debug_get", "state: object, layer: int, index: int, sequence: int", result="tensor"
)
def rnn_state_debug_get(state: Any, layer: Any, index: Any, sequence: Any) -> NDArray[Any]:
    """Return a copy of the state of a sequence.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there is no such layer, state or sequence.
    """
    subject = "rnn_state_debug_get"
    return _as_rnn_state(state, subject).current(
        as_int(layer, subject), as_int(index, subject), as_int(sequence, subject), subject
    )
