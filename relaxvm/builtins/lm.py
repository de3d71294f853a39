"""Language models: key-value caches, sampling, and the changes to logits before sampling.

Probabilities and logits are float32 throughout.  A *row* has one axis of a vocabulary's length;
leading axes of length 1 are allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InternalError
from ..messages import describe
from ..pieces.cut import apply, converted, copied, copy_pieces, flat, pieces, positions, taken
from ..pieces.order import argsort, distinct
from ..pieces.reduce import accumulate, find_greatest, reduced
from ..values import Shape
from .arguments import as_array, as_float, as_int, as_sequence, as_shape
from .registration import builtin
from .saved_fields import as_count, as_fields, as_tensor

__all__ = [
    "AttentionKVCache",
    "apply_presence_and_frequency_penalty",
    "apply_repetition_penalty",
    "apply_softmax_with_temperature",
    "attention_kv_cache_append",
    "attention_kv_cache_array_clear",
    "attention_kv_cache_array_popn",
    "attention_kv_cache_create",
    "attention_kv_cache_update",
    "attention_kv_cache_view",
    "attention_kv_cache_window_override",
    "attention_kv_cache_window_override_with_sinks",
    "multinomial_from_uniform",
    "sample_top_p_from_logits",
    "sample_top_p_from_prob",
]

Floats = NDArray[np.float32]


# Key-value caches


def _reserve(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Allocate zeroed memory for rows, so that a program cannot read old data of the process."""
    try:
        return np.zeros(shape, dtype)
    except (MemoryError, ValueError):  # the latter where numpy cannot express the size
        raise MemoryError(f"key-value cache: cannot reserve {dtype}{list(shape)}") from None


class AttentionKVCache:
    """Rows of one data type and shape, in memory that grows by doubling.

    Rows are appended at the end, or written to a ring of the first rows (`override`).

    Attributes:
        count: rows in use.
    """

    __slots__ = ("_next", "_rows", "count")

    def __init__(self, reserved: Shape, dtype: np.dtype[Any]) -> None:
        self._rows = _reserve(reserved, dtype.newbyteorder("="))
        self.count = 0
        self._next = 0  # the row that `override` writes next, at most `count`

    def saved_fields(self) -> tuple[Any, ...]:
        """See `relaxvm.vm.saved_runs.states`."""
        return self._rows, self.count, self._next

    def restore_fields(self, fields: tuple[Any, ...]) -> None:
        """See `relaxvm.vm.saved_runs.states`."""
        rows, count, following = as_fields(fields, 3, "attention cache")
        self._rows = as_tensor(rows, "attention cache: rows", writeable=True)
        if not self._rows.ndim or not self._rows.dtype.isnative:
            raise ValueError("attention cache: rows: expected native rows")
        self.count = as_count(count, "attention cache: count", len(self._rows))
        self._next = as_count(following, "attention cache: next row", self.count)

    def __repr__(self) -> str:
        rows = self._rows
        return (f"<AttentionKVCache: {self.count} rows of {rows.dtype}"
                f"{list(rows.shape[1:])}, {len(rows)} reserved>")

    def view(self) -> NDArray[Any]:
        """Return the rows in use, as a view of the cache's memory."""
        return self._rows[: self.count]

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows at the end."""
        end = self.count + len(rows)
        self._reserve(end)
        copy_pieces(self._rows[self.count : end], rows)
        if self._next == self.count:
            self._next = end
        self.count = end

    def update(self, rows: NDArray[Any]) -> None:
        """Replace all rows in use."""
        copy_pieces(self._rows[: self.count], rows)

    def override(self, rows: NDArray[Any], max_rows: int, sinks: int) -> None:
        """Write rows to the ring of the first `max_rows`; once the ring is full, the first `sinks`
        rows are kept."""
        fit = min(len(rows), max(max_rows - self._next, 0))
        wrapped = len(rows) - fit
        count = min(self.count + len(rows), max_rows)
        self._reserve(max(count, self._next + fit))
        copy_pieces(self._rows[self._next : self._next + fit], rows[:fit])
        self._next += fit
        if wrapped:
            copy_pieces(self._rows[sinks : sinks + wrapped], rows[fit:])
            self._next = sinks + wrapped
        self.count = count

    def pop(self, n: int) -> None:
        """Remove the last `n` rows."""
        self.count -= n
        self._next = min(self._next, self.count)

    def fill(self, count: int) -> None:
        """Set the number of rows in use; the ring continues after them."""
        self.count = self._next = count

    def _reserve(self, rows: int) -> None:
        reserved = len(self._rows)
        if rows <= reserved:
            return
        reserved = max(reserved, 1)
        while reserved < rows:
            reserved *= 2
        grown = _reserve((reserved, *self._rows.shape[1:]), self._rows.dtype)
        copy_pieces(grown[: self.count], self.view())
        self._rows = grown

    def check_rows(self, rows: Any, subject: str) -> NDArray[Any]:
        """Return `rows` as an array after checking that its rows fit this cache.

        Raises:
            TypeError: not a tensor.
            InternalError: the data type or the shape of rows is different.
        """
        tensor = as_array(rows, subject)
        own = self._rows
        if tensor.dtype.newbyteorder("=") != own.dtype or tensor.shape[1:] != own.shape[1:]:
            raise InternalError(f"{subject}: expected {own.dtype} rows of shape "
                                f"{own.shape[1:]}, got {describe(tensor)}")
        if tensor.ndim == 0:
            raise InternalError(f"{subject}: expected rows, got {describe(tensor)}")
        return tensor


def _as_cache(value: Any, subject: str) -> AttentionKVCache:
    if isinstance(value, AttentionKVCache):
        return value
    raise TypeError(f"{subject}: expected a key-value cache, got {describe(value)}")


@builtin(
    "attention_kv_cache_create",
    "init: tensor, reserve: shape|tuple, count: int",
    result="object",
)
def attention_kv_cache_create(init: Any, reserve: Any, count: Any) -> AttentionKVCache:
    """Create a cache that starts with the rows of a tensor, ``init: any[n, ...]``.

    Args:
        init: the first rows; they are copied.
        reserve: shape of the memory that is reserved initially.
        count: number of rows in use; negative for all of `init`.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: `reserve` does not fit the rows, or `count` is greater than their number.
        MemoryError: the system does not have the memory for `reserve`.
    """
    subject = "attention_kv_cache_create"
    tensor = as_array(init, f"{subject}: initial data")
    shape = as_shape(reserve, f"{subject}: reserved shape")
    rows = as_int(count, f"{subject}: count")
    if tensor.ndim == 0 or shape[1:] != tensor.shape[1:] or len(shape) != tensor.ndim:
        raise InternalError(f"{subject}: expected a reserved shape of rows {tensor.shape[1:]} as "
                            f"in {describe(tensor)}, got {describe(shape)}")
    if shape[0] < 0:
        raise InternalError(f"{subject}: expected 0 or more reserved rows, got {describe(shape)}")
    cache = AttentionKVCache(shape, tensor.dtype)
    cache.append(tensor)
    if rows >= 0:
        most = max(shape[0], len(tensor))
        if rows > most:
            raise InternalError(f"{subject}: expected a count of at most {most} rows, got {rows}")
        cache.fill(rows)
    return cache


@builtin("attention_kv_cache_append", "cache: object, rows: tensor", result="object")
def attention_kv_cache_append(cache: Any, rows: Any) -> AttentionKVCache:
    """Add rows at the end of a cache; returns the cache.

    Raises:
        TypeError: not a cache, or not a tensor.
        InternalError: rows of another data type or shape.
    """
    subject = "attention_kv_cache_append"
    held = _as_cache(cache, subject)
    held.append(held.check_rows(rows, subject))
    return held


@builtin("attention_kv_cache_update", "cache: object, rows: tensor", result="object")
def attention_kv_cache_update(cache: Any, rows: Any) -> AttentionKVCache:
    """Replace all rows of a cache by the same number of rows; returns the cache.

    Raises:
        TypeError: not a cache, or not a tensor.
        InternalError: the number of rows, their data type or shape is different.
    """
    subject = "attention_kv_cache_update"
    held = _as_cache(cache, subject)
    tensor = held.check_rows(rows, subject)
    if len(tensor) != held.count:
        raise InternalError(f"{subject}: expected {held.count} rows, got {len(tensor)}")
    held.update(tensor)
    return held


@builtin("attention_kv_cache_view", "cache: object, shape: shape|tuple = ...", result="tensor")
def attention_kv_cache_view(cache: Any, shape: Any = None) -> NDArray[Any]:
    """Return the rows of a cache, as a tensor over the cache's memory.

    Later updates and overrides are visible in it, until the cache moves to larger memory.

    Raises:
        TypeError: not a cache.
        InternalError: `shape` is given and is not the shape of the rows in use.
    """
    subject = "attention_kv_cache_view"
    rows = _as_cache(cache, subject).view()
    if shape is not None and as_shape(shape, f"{subject}: shape") != rows.shape:
        raise InternalError(f"{subject}: expected the shape {rows.shape} of the rows in use, "
                            f"got {describe(shape)}")
    return rows


@builtin(
    "attention_kv_cache_window_override",
    "cache: object, rows: tensor, max_rows: int",
    result="object",
)
def attention_kv_cache_window_override(cache: Any, rows: Any, max_rows: Any) -> AttentionKVCache:
    """Write rows to a ring buffer of the first `max_rows` of a cache; returns the cache.

    Writing starts after the rows in use and continues at row 0 when the ring is full.

    Raises:
        TypeError: not a cache, or not a tensor.
        InternalError: more rows than the ring has, or rows of another data type or shape.
    """
    return _override(cache, rows, max_rows, 0, "attention_kv_cache_window_override")


@builtin(
    "attention_kv_cache_window_override_with_sinks",
    "cache: object, rows: tensor, max_rows: int, sinks: int",
    result="object",
)
def attention_kv_cache_window_override_with_sinks(
    cache: Any, rows: Any, max_rows: Any, sinks: Any
) -> AttentionKVCache:
    """Like `attention_kv_cache_window_override`, but a full ring continues at row `sinks`: the
    first `sinks` rows, the attention sinks, are kept.

    Raises:
        TypeError: not a cache, or not a tensor.
        InternalError: there are more rows than the ring has without the sinks, the number of sinks
            is negative, or the rows have another data type or shape.
    """
    return _override(cache, rows, max_rows, sinks, "attention_kv_cache_window_override_with_sinks")


def _override(
    cache: Any, rows: Any, max_rows: Any, sinks: Any, subject: str
) -> AttentionKVCache:
    held = _as_cache(cache, subject)
    tensor = held.check_rows(rows, subject)
    most = as_int(max_rows, f"{subject}: size of the ring")
    kept = as_int(sinks, f"{subject}: number of sinks")
    if kept < 0 or len(tensor) > most - kept:
        raise InternalError(f"{subject}: expected at most {most - kept} rows, for a ring of {most} "
                            f"with {kept} sinks, got {len(tensor)}")
    held.override(tensor, most, kept)
    return held


def _as_caches(values: Any, subject: str) -> list[AttentionKVCache]:
    return [_as_cache(value, subject) for value in as_sequence(values, subject)]


@builtin("attention_kv_cache_array_popn", "caches: tuple, n: int", result="none")
def attention_kv_cache_array_popn(caches: Any, n: Any) -> None:
    """Remove the last `n` rows from each cache of a tuple; on an error no cache changes.

    Raises:
        TypeError: not a tuple of caches.
        InternalError: a cache has fewer rows, or `n` is negative.
    """
    subject = "attention_kv_cache_array_popn"
    held = _as_caches(caches, subject)
    rows = as_int(n, f"{subject}: n")
    least = min((cache.count for cache in held), default=max(rows, 0))
    if not 0 <= rows <= least:
        raise InternalError(f"{subject}: expected 0 to {least} rows to take away, got {rows}")
    for cache in held:
        cache.pop(rows)


@builtin("attention_kv_cache_array_clear", "caches: tuple", result="none")
def attention_kv_cache_array_clear(caches: Any) -> None:
    """Remove all rows from each cache of a tuple; the memory stays reserved.

    Raises:
        TypeError: not a tuple of caches.
    """
    for cache in _as_caches(caches, "attention_kv_cache_array_clear"):
        cache.pop(cache.count)


# Sampling


def _as_float32(value: Any, subject: str) -> NDArray[Any]:
    tensor = as_array(value, subject)
    if tensor.dtype.newbyteorder("=") != np.float32:
        raise InternalError(f"{subject}: expected float32, got {describe(tensor)}")
    return tensor


def _row(value: Any, subject: str) -> Floats:
    """Return the only row of a tensor, contiguous and in native byte order; a view if possible."""
    tensor = _as_float32(value, subject)
    if tensor.ndim == 0 or tensor.size == 0 or tensor.size != tensor.shape[-1]:
        raise InternalError(f"{subject}: expected float32[n], n > 0, with leading dimensions of 1, "
                            f"got {describe(tensor)}")
    return flat(converted(tensor, np.float32))


def _uniform(value: Any, subject: str) -> float:
    sample = as_float(value, f"{subject}: uniform sample")
    if not 0 <= sample <= 1:
        raise InternalError(f"{subject}: expected a uniform sample of 0 to 1, got {sample}")
    return sample


def _pick(prob: Floats, top_p: float, uniform: float) -> int:
    """Return a position in descending probabilities: of the fewest that sum to `top_p`, at least
    one, choose one in proportion to its probability."""
    total = np.empty_like(prob)
    accumulate(np.add, prob, total)
    kept = 1 + sum(int(np.count_nonzero(part < top_p)) for (part,) in pieces(total[:-1]))
    shares = total[:kept]
    apply(np.divide, shares, shares, total[kept - 1])
    return min(int(np.searchsorted(shares, uniform, side="right")), kept - 1)


@builtin(
    "sample_top_p_from_logits",
    "logits: tensor, temperature: float|int, top_p: float|int, uniform_sample: float|int",
    result="int",
)
def sample_top_p_from_logits(
    logits: Any, temperature: Any, top_p: Any, uniform_sample: Any
) -> int:
    """Draw a token by nucleus sampling, ``logits: float32[1, ..., n]``.

    Of the probabilities ``softmax(logits / temperature)`` the fewest that sum to `top_p` are kept,
    largest first; `uniform_sample`, 0 to 1, chooses one in proportion.  A temperature below 1e-6
    chooses the largest logit.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: the logits are not one row of float32, contain NaN or positive infinity, or
            are all negative infinity; or the uniform sample is not within 0 to 1.
    """
    subject = "sample_top_p_from_logits"
    row = _row(logits, f"{subject}: logits")
    heat = as_float(temperature, f"{subject}: temperature")
    mass = as_float(top_p, f"{subject}: top_p")
    uniform = _uniform(uniform_sample, subject)
    largest = reduced(np.maximum, row, (-1,))[0]
    if not np.isfinite(largest):  # a NaN anywhere makes it NaN
        raise InternalError(f"{subject}: expected logits with a finite largest one, got {largest}")
    if heat < 1e-6:
        token = np.empty(1, np.int64)
        find_greatest(row, 0, token)
        return int(token[0])
    order = _descending(row)
    prob = taken(row, order)
    apply(np.subtract, prob, prob, largest)
    apply(np.divide, prob, prob, np.float32(heat))
    apply(np.exp, prob, prob)
    if not np.isfinite(prob[0]):
        raise InternalError(f"{subject}: expected a number as temperature, got {heat}")
    apply(np.divide, prob, prob, reduced(np.add, prob, (-1,)))
    return int(order[_pick(prob, mass, uniform)])


def _descending(row: Floats) -> NDArray[np.intp]:
    """The positions of numbers, the greatest first, those of equal ones in increasing order."""
    negative = np.empty_like(row)
    apply(np.negative, negative, row)
    return argsort(negative)


@builtin(
    "sample_top_p_from_prob",
    "prob: tensor, top_p: float|int, uniform_sample: float|int",
    result="int",
)
def sample_top_p_from_prob(prob: Any, top_p: Any, uniform_sample: Any) -> int:
    """Draw a token by nucleus sampling from probabilities, ``prob: float32[1, ..., n]``.

    The fewest that sum to `top_p` are kept, largest first; `uniform_sample`, 0 to 1, chooses one in
    proportion.  As in TVM the largest one is chosen whenever ``uniform_sample * top_p`` is below
    it, which favours it slightly if the kept ones sum to more than `top_p`.  NaNs count as zero.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: the probabilities are not one row of float32, or none is above zero; or the
            uniform sample is not within 0 to 1.
    """
    subject = "sample_top_p_from_prob"
    row = _row(prob, f"{subject}: probabilities")
    mass = as_float(top_p, f"{subject}: top_p")
    uniform = _uniform(uniform_sample, subject)
    # At most 1024 / top_p tokens pass the cutoff, usually a handful: far fewer to sort.  All tokens
    # are needed only if these do not sum to top_p.
    for cutoff in (mass / 1024, 0.0) if mass < 1 else (0.0,):
        passes = np.empty(len(row), np.bool_)
        apply(partial(_passes, cutoff), passes, row)
        tokens = positions(passes)
        order = taken(tokens, _descending(taken(row, tokens)))
        kept = taken(row, order)
        if len(kept) and uniform * mass < kept[0]:
            return int(order[0])
        if len(kept) and (not cutoff or reduced(np.add, kept, (-1,))[0] >= mass):
            return int(order[_pick(kept, mass, uniform)])
    raise InternalError(f"{subject}: expected a probability above zero, got "
                        f"{'NaNs only' if np.isnan(row).all() else 'none'}")


def _passes(cutoff: float, prob: Floats, out: NDArray[np.bool_]) -> None:
    if cutoff:
        np.greater_equal(prob, cutoff, out=out)
    else:
        np.greater(prob, 0, out=out)


@builtin("multinomial_from_uniform", "prob: tensor, uniform_sample: tensor", result="tensor")
def multinomial_from_uniform(prob: Any, uniform_sample: Any) -> NDArray[np.int64]:
    """Draw a token per row: ``prob: float32[b, n], uniform_sample: float32[b, 1]`` to int64[b, 1].

    It is the first token at which the running sum of the row exceeds the sample, or the last token
    if there is no such one.

    Raises:
        TypeError: an argument is not a tensor.
        InternalError: the data type is not float32, the shapes are wrong, or there are no tokens.
    """
    subject = "multinomial_from_uniform"
    rows = _as_float32(prob, f"{subject}: probabilities")
    samples = _as_float32(uniform_sample, f"{subject}: uniform samples")
    if rows.ndim != 2 or rows.shape[1] == 0 or samples.shape not in (
        (rows.shape[0],), (rows.shape[0], 1)
    ):  # fmt: skip
        raise InternalError(f"{subject}: expected float32[b, n], n > 0, and float32[b, 1], "
                            f"got {describe(rows)} and {describe(samples)}")
    total = np.empty(rows.shape, np.float32)
    accumulate(np.add, rows.T, total.T)
    exceeds = np.empty(rows.shape, np.bool_)
    apply(np.greater, exceeds, total, samples.reshape(-1, 1))
    exceeds[:, -1] = True
    tokens = np.empty((len(rows), 1), np.int64)
    find_greatest(exceeds, 1, tokens)
    return tokens


# In place on logits


def _edit(logits: Any, subject: str, change: Callable[[Floats], None]) -> None:
    """Apply `change` to the flat elements of a tensor with any layout and byte order."""
    tensor = _as_float32(logits, subject)
    if not tensor.flags.writeable:
        raise ValueError(f"{subject}: expected a writable tensor, got a read-only one")
    elements = flat(converted(tensor, np.float32))
    change(elements)
    if not np.may_share_memory(elements, tensor):
        copy_pieces(tensor, elements.reshape(tensor.shape))


def _tokens(ids: Any, size: int, subject: str) -> NDArray[np.int32]:
    """Return token ids as a flat array after checking that all are below `size`: a copy, so that
    these are the ids that are used, whatever another thread writes meanwhile."""
    tokens = _as_int32(ids, subject)
    if len(tokens):
        least, most = (reduced(f, tokens, (-1,)).item() for f in (np.minimum, np.maximum))
        if not 0 <= least <= most < size:
            raise IndexError(f"{subject}: expected token ids of 0 to {size - 1}, "
                             f"got {least} to {most}")
    return tokens


def _as_int32(value: Any, subject: str) -> NDArray[np.int32]:
    tensor = as_array(value, subject)
    if tensor.dtype.newbyteorder("=") != np.int32:
        raise InternalError(f"{subject}: expected int32, got {describe(tensor)}")
    return flat(copied(converted(tensor, np.int32)))


@builtin(
    "apply_repetition_penalty",
    "logits: tensor, token_ids: tensor, penalty: float|int",
    result="none",
)
def apply_repetition_penalty(logits: Any, token_ids: Any, penalty: Any) -> None:
    """Penalise tokens, in place: ``logits: float32[1, ..., n]``, ``token_ids: int32[...]``.

    A logit above zero is divided by the penalty, any other logit is multiplied by it, once for each
    occurrence of the token in the list.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: a data type is wrong.
        IndexError: there is no such token.
        ValueError: the penalty is not above zero, or the logits are read-only.
    """
    subject = "apply_repetition_penalty"
    factor = as_float(penalty, f"{subject}: penalty")
    if not factor > 0:
        raise ValueError(f"{subject}: expected a penalty above zero, got {factor}")

    def change(elements: Floats) -> None:
        found = distinct(_tokens(token_ids, len(elements), subject))
        for tokens, times in pieces(found.values, found.counts):
            old = elements[tokens].astype(np.float64)
            with np.errstate(over="ignore", invalid="ignore"):
                power = np.power(factor, times)
                new = np.where(old > 0, old / power, old * power)
                elements[tokens] = np.where(old == 0, old, new)  # 0 even if the power overflows

    _edit(logits, subject, change)


@builtin(
    "apply_presence_and_frequency_penalty",
    "logits: tensor, token_ids: tensor, token_freqs: tensor, presence_penalty: float|int, "
    "frequency_penalty: float|int",
    result="none",
)
def apply_presence_and_frequency_penalty(
    logits: Any,
    token_ids: Any,
    token_freqs: Any,
    presence_penalty: Any,
    frequency_penalty: Any,
) -> None:
    """Penalise tokens, in place: ``logits[id] -= presence_penalty + frequency_penalty * freq``.

    ``logits: float32[1, ..., n]``, ``token_ids: int32[k]``, ``token_freqs: int32[k]``.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: a data type is wrong, or the numbers of frequencies and tokens differ.
        IndexError: there is no such token.
        ValueError: the logits are read-only.
    """
    subject = "apply_presence_and_frequency_penalty"
    presence = as_float(presence_penalty, f"{subject}: presence penalty")
    frequency = as_float(frequency_penalty, f"{subject}: frequency penalty")
    freqs = _as_int32(token_freqs, f"{subject}: token frequencies")

    def change(elements: Floats) -> None:
        ids = _tokens(token_ids, len(elements), subject)
        if len(ids) != len(freqs):
            raise InternalError(f"{subject}: expected a frequency for each of {len(ids)} tokens, "
                                f"got {len(freqs)}")
        found = distinct(ids)
        penalty = np.zeros(len(found.values), np.float64)
        for place, freq in pieces(found.inverse, freqs):
            np.add.at(penalty, place, presence + frequency * freq)
        for tokens, less in pieces(found.values, penalty):
            elements[tokens] = elements[tokens].astype(np.float64) - less

    _edit(logits, subject, change)


@builtin(
    "apply_softmax_with_temperature", "logits: tensor, temperature: float|int", result="none"
)
def apply_softmax_with_temperature(logits: Any, temperature: Any) -> None:
    """Compute the softmax over the last axis, in place: ``logits: float32[..., n]``.

    At temperature 0 the largest logits of a row share the probability equally.

    Raises:
        TypeError: an argument is of another kind.
        InternalError: the data type is not float32.
        ValueError: the temperature is negative or NaN, or the logits are read-only.
    """
    subject = "apply_softmax_with_temperature"
    heat = as_float(temperature, f"{subject}: temperature")
    if not heat >= 0:
        raise ValueError(f"{subject}: expected a temperature >= 0, got {heat}")
    shape: Sequence[int] = as_array(logits, subject).shape

    def change(elements: Floats) -> None:
        if not len(elements):
            return
        for (rows,) in pieces(elements.reshape(-1, shape[-1] if shape else 1), row=1):
            largest = reduced(np.maximum, rows, (-1,))
            weights = np.empty(rows.shape, np.float64)
            with np.errstate(invalid="ignore", over="ignore"):
                apply(partial(_weigh, heat), weights, rows, largest)
                total = reduced(np.add, weights, (-1,))
                apply(np.divide, rows, weights, total)

    _edit(logits, subject, change)


def _weigh(heat: float, logits: Floats, largest: Floats, out: NDArray[np.float64]) -> None:
    """out = the weights of logits at a temperature, if these are the largest ones."""
    if heat:
        np.divide(logits - largest, heat, out=out, dtype=np.float64)
        np.exp(out, out=out)
    else:
        np.equal(logits, largest, out=out)
