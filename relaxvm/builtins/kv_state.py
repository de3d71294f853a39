"""State of language models: sequences of tokens in a cache or a recurrent state.

These functions take both kinds of state: paged caches of attention, and recurrent states.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ..errors import InternalError
from ..messages import describe
from .arguments import as_int, as_shape
from .registration import builtin

__all__ = ["KVState", "as_state"]


class KVState(ABC):
    """State that belongs to numbered sequences.

    Attributes:
        batch: the numbers of the sequences of the current forward pass.
        counts: how many tokens each of them gets.
    """

    batch: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()

    @abstractmethod
    def clear(self) -> None:
        """Remove all sequences."""

    @abstractmethod
    def add_sequence(self, number: int) -> None:
        """Begin a sequence."""

    @abstractmethod
    def remove_sequence(self, number: int) -> None:
        """End a sequence."""

    @abstractmethod
    def fork_sequence(self, number: int, child: int, at: int) -> None:
        """Begin a sequence with the first `at` tokens of another one; with all of them for -1."""

    @abstractmethod
    def popn(self, number: int, count: int) -> None:
        """Remove the last tokens of a sequence."""

    @abstractmethod
    def begin_forward(
        self, batch: Sequence[int], counts: Sequence[int], tree: Sequence[int] | None
    ) -> None:
        """Begin a forward pass that appends tokens."""

    @abstractmethod
    def end_forward(self) -> None:
        """End a forward pass."""

    def check_batch(self, batch: Sequence[int], counts: Sequence[int]) -> None:
        """Check that there is a count for each sequence."""
        if len(batch) != len(counts):
            raise InternalError(
                f"begin_forward: expected a count for each of {len(batch)} sequences, got "
                f"{len(counts)}"
            )


def as_state(value: Any, subject: str) -> KVState:
    """Return the state of a language model.

    Raises:
        TypeError: it is none.
    """
    if isinstance(value, KVState):
        return value
    raise TypeError(f"{subject}: expected the state of a language model, got {describe(value)}")


@builtin("kv_state_clear", "state: object", result="none")
def kv_state_clear(state: Any) -> None:
    """Remove all sequences of a state.

    Raises:
        TypeError: not a state.
    """
    as_state(state, "kv_state_clear").clear()


@builtin("kv_state_add_sequence", "state: object, sequence: int", result="none")
def kv_state_add_sequence(state: Any, sequence: Any) -> None:
    """Begin a sequence without tokens, under a number of the caller's choice.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there is such a sequence, or no room for one.
    """
    subject = "kv_state_add_sequence"
    as_state(state, subject).add_sequence(as_int(sequence, f"{subject}: sequence"))


@builtin("kv_state_remove_sequence", "state: object, sequence: int", result="none")
def kv_state_remove_sequence(state: Any, sequence: Any) -> None:
    """End a sequence; its room is free afterwards.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there is no such sequence.
    """
    subject = "kv_state_remove_sequence"
    as_state(state, subject).remove_sequence(as_int(sequence, f"{subject}: sequence"))


@builtin(
    "kv_state_fork_sequence", "state: object, parent: int, child: int, at: int = ...", result="none"
)
def kv_state_fork_sequence(state: Any, parent: Any, child: Any, at: Any = -1) -> None:
    """Begin a sequence `child` with the first `at` tokens of `parent`; -1 stands for all tokens.

    A paged cache copies at most one page.  A recurrent state has no first tokens: the child has the
    parent's state, and `at` is ignored.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there is no parent or a child already, the place is not in the parent, or
            there is no room.
    """
    subject = "kv_state_fork_sequence"
    as_state(state, subject).fork_sequence(
        as_int(parent, f"{subject}: parent"),
        as_int(child, f"{subject}: child"),
        as_int(at, f"{subject}: at"),
    )


@builtin("kv_state_popn", "state: object, sequence: int, n: int", result="none")
def kv_state_popn(state: Any, sequence: Any, n: Any) -> None:
    """Remove the last `n` tokens of a sequence.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there is no such sequence, or it has fewer tokens; of a recurrent state,
            fewer
            that can be taken back.
    """
    subject = "kv_state_popn"
    as_state(state, subject).popn(
        as_int(sequence, f"{subject}: sequence"), as_int(n, f"{subject}: n")
    )


@builtin(
    "kv_state_begin_forward",
    "state: object, sequences: shape|tuple, counts: shape|tuple, tree: shape|tuple|none = ...",
    result="none",
)
def kv_state_begin_forward(state: Any, sequences: Any, counts: Any, tree: Any = None) -> None:
    """Begin a forward pass, which appends tokens to sequences.

    Args:
        state: a paged cache, or a recurrent state.
        sequences: their numbers.
        counts: how many tokens each of them gets.
        tree: for tokens that form a tree in each sequence, the node before each token, -1 for a
            root; all sequences one after another.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: there is no such sequence, the arguments do not fit each other, or the cache
            is full.
    """
    subject = "kv_state_begin_forward"
    as_state(state, subject).begin_forward(
        as_shape(sequences, f"{subject}: sequences"),
        as_shape(counts, f"{subject}: counts"),
        None if tree is None else as_shape(tree, f"{subject}: tree"),
    )


@builtin("kv_state_end_forward", "state: object", result="none")
def kv_state_end_forward(state: Any) -> None:
    """End a forward pass.

    Raises:
        TypeError: not a state.
        InternalError: a sequence of the pass is gone.
    """
    as_state(state, "kv_state_end_forward").end_forward()
