"""Builtins for language models: caches, sampling, penalties."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxvm import Shape, get_func
from relaxvm.builtins import AttentionKVCache
from relaxvm.errors import InternalError

KV = "attention_kv_cache_"
F32 = np.float32


def call(name: str, *args: Any) -> Any:
    return get_func("vm.builtin." + name)(*args)


def rows(first: int, count: int, dtype: str = "float32") -> np.ndarray:
    """Rows of two elements, both equal to the number of the row."""
    return np.repeat(np.arange(first, first + count, dtype=dtype), 2).reshape(count, 2)


def cache_of(count: int, reserve: int = 4, fill: int = -1) -> AttentionKVCache:
    return call(KV + "create", rows(0, count), Shape([reserve, 2]), fill)


def held(cache: AttentionKVCache) -> list[int]:
    """Return the numbers of the rows in use, and check that every row is intact."""
    view = call(KV + "view", cache)
    assert (view[:, 0] == view[:, 1]).all()
    return view[:, 0].astype(int).tolist()


def override(
    cache: AttentionKVCache, added: np.ndarray, size: int, sinks: int | None = None
) -> None:
    if sinks is None:
        assert call(KV + "window_override", cache, added, size) is cache
    else:
        assert call(KV + "window_override_with_sinks", cache, added, size, sinks) is cache


# Caches


def test_create() -> None:
    initial = rows(0, 3)
    cache = call(KV + "create", initial, Shape([4, 2]), -1)
    initial[...] = 9
    assert held(cache) == [0, 1, 2]
    assert held(cache_of(3, fill=2)) == [0, 1]
    assert held(cache_of(3, fill=0)) == []
    assert held(cache_of(3, fill=-7)) == [0, 1, 2]
    assert held(cache_of(3, reserve=1)) == [0, 1, 2]
    assert held(cache_of(1, reserve=0)) == [0]
    assert held(cache_of(2, fill=4)) == [0, 1, 0, 0]  # never written: zero
    assert repr(cache) == "<AttentionKVCache: 3 rows of float32[2], 4 reserved>"
    assert held(call(KV + "create", rows(0, 2), (4, 2), True)) == [0]


def test_scalar_rows() -> None:
    cache = call(KV + "create", F32([1, 2]), Shape([4]), -1)
    call(KV + "append", cache, F32([3, 4, 5]))
    assert call(KV + "view", cache).tolist() == [1, 2, 3, 4, 5]


def test_reserving_more_than_there_is() -> None:
    for reserve in (1 << 46, 1 << 62):
        with pytest.raises(MemoryError, match=rf"cannot reserve float32\[{reserve}, 2\]"):
            cache_of(2, reserve=reserve)


def test_append() -> None:
    cache = cache_of(2)
    for count in (1, 0, 5, 20):
        before = held(cache)
        assert call(KV + "append", cache, rows(100, count)) is cache
        assert held(cache) == before + list(range(100, 100 + count))
    assert "32 reserved" in repr(cache)


def test_append_of_its_own_rows() -> None:
    cache = cache_of(2)
    for _ in range(3):
        call(KV + "append", cache, call(KV + "view", cache))
    assert held(cache) == [0, 1] * 8


def test_update() -> None:
    cache = cache_of(3)
    assert call(KV + "update", cache, rows(7, 3)) is cache
    assert held(cache) == [7, 8, 9]
    for count in (2, 4, 0):
        with pytest.raises(InternalError, match=f"update: expected 3 rows, got {count}"):
            call(KV + "update", cache, rows(0, count))


def test_view() -> None:
    cache = cache_of(2)
    view = call(KV + "view", cache)
    assert view.flags.carray
    for shape in (Shape([2, 2]), (2, 2)):
        assert call(KV + "view", cache, shape).shape == (2, 2)
    call(KV + "update", cache, rows(5, 2))
    assert view[:, 0].tolist() == [5, 6]
    call(KV + "append", cache, rows(0, 9))  # moves to larger memory
    call(KV + "update", cache, rows(20, 11))
    assert view[:, 0].tolist() == [5, 6]
    for bad in (Shape([2, 2]), Shape([11]), Shape([11, 1]), Shape([11, 2, 1])):
        with pytest.raises(InternalError, match=r"view: expected the shape \(11, 2\)"):
            call(KV + "view", cache, bad)


@pytest.mark.parametrize("layout", ["strided", "reversed", "read-only", "big-endian", "unaligned"])
def test_rows_of_any_layout(layout: str) -> None:
    plain = rows(1, 2)
    wide = np.zeros((4, 4), F32)
    wide[::2, ::2] = plain
    odd = {
        "strided": wide[::2, ::2],
        "reversed": plain[::-1, ::-1].copy()[::-1, ::-1],
        "read-only": plain.copy(),
        "big-endian": plain.astype(">f4"),
        "unaligned": np.zeros(17, np.uint8)[1:].view(F32).reshape(2, 2),
    }[layout]
    odd[...] = plain
    if layout == "read-only":
        odd.flags.writeable = False
    cache = call(KV + "create", odd, Shape([2, 2]), -1)
    call(KV + "append", cache, odd)
    override(cache, odd, 6)
    assert held(cache) == [1, 2] * 3
    call(KV + "update", cache, np.concatenate([odd] * 3))
    assert held(cache) == [1, 2] * 3
    assert call(KV + "view", cache).dtype == F32


def test_ring() -> None:
    cache = cache_of(4, fill=2)
    seen = []
    for i in range(10, 16):
        override(cache, rows(i, 1), 4)
        seen.append(held(cache))
    assert seen == [
        [0, 1, 10], [0, 1, 10, 11], [12, 1, 10, 11], [12, 13, 10, 11], [12, 13, 14, 11],
        [12, 13, 14, 15],
    ]  # fmt: skip


def test_ring_with_sinks() -> None:
    cache = cache_of(1, reserve=1)
    seen = []
    for i in (10, 13, 16, 19):
        override(cache, rows(i, 3), 7, 2)
        seen.append(held(cache))
    assert seen == [
        [0, 10, 11, 12], [0, 10, 11, 12, 13, 14, 15], [0, 10, 16, 17, 18, 14, 15],
        [0, 10, 21, 17, 18, 19, 20],
    ]  # fmt: skip


def test_ring_continues_after_appended_rows() -> None:
    cache = cache_of(2, reserve=8)
    call(KV + "append", cache, rows(2, 1))
    override(cache, rows(10, 2), 6)
    assert held(cache) == [0, 1, 2, 10, 11]
    call(KV + "array_popn", (cache,), 2)
    override(cache, rows(20, 1), 6)
    assert held(cache) == [0, 1, 2, 20]
    call(KV + "array_clear", (cache,))
    override(cache, rows(30, 2), 6, 1)
    assert held(cache) == [30, 31]


def test_ring_smaller_than_its_content() -> None:
    cache = cache_of(4)
    override(cache, rows(10, 2), 3)
    assert held(cache) == [10, 11, 2]
    override(cache, rows(20, 0), 3)
    assert held(cache) == [10, 11, 2]


@given(st.integers(0, 6), st.integers(1, 8), st.integers(0, 3), st.data())
def test_ring_law(start: int, size: int, sinks: int, data: st.DataObject) -> None:
    """Compared with a plain list: sinks stay once they are written, the rest are the last rows."""
    sinks = min(sinks, size - 1)
    start = min(start, size)
    cache = cache_of(8, reserve=data.draw(st.integers(0, 8)), fill=start)
    want, place, stamp = list(range(start)), start, 100
    for _ in range(data.draw(st.integers(1, 6))):
        count = data.draw(st.integers(0, size - sinks))
        override(cache, rows(stamp, count), size, sinks)
        for number in range(stamp, stamp + count):
            place = sinks if place == size else place
            want[place : place + 1] = [number]
            place += 1
        stamp += count
        assert held(cache) == want


def test_popn_and_clear() -> None:
    caches = [cache_of(4), cache_of(2)]
    for sequence in (caches, tuple(caches)):
        assert call(KV + "array_popn", sequence, 1) is None
    assert [held(cache) for cache in caches] == [[0, 1], []]
    for n in (1, -1):
        with pytest.raises(InternalError, match=f"popn: expected 0 to 0 rows.*got {n}"):
            call(KV + "array_popn", caches, n)
    assert held(caches[0]) == [0, 1]
    assert call(KV + "array_clear", caches) is None
    assert [cache.count for cache in caches] == [0, 0]
    assert call(KV + "array_popn", (), 5) is None
    assert call(KV + "array_clear", ()) is None


@pytest.mark.parametrize(
    ("error", "name", "args", "message"),
    [
        (InternalError, "create", (rows(0, 2), Shape([4, 3]), -1), "rows (2,) as in float32[2, 2]"),
        (InternalError, "create", (rows(0, 2), Shape([4]), -1), "reserved shape of rows (2,)"),
        (InternalError, "create", (rows(0, 2), Shape([4, 2, 1]), -1), "reserved shape of rows"),
        (InternalError, "create", (np.array(1.0), Shape([]), -1), "reserved shape"),
        (InternalError, "create", (rows(0, 2), Shape([-4, 2]), -1), "0 or more reserved rows"),
        (InternalError, "create", (rows(0, 2), Shape([4, 2]), 5), "at most 4 rows, got 5"),
        (TypeError, "create", (5, Shape([4, 2]), -1), "initial data: expected a tensor"),
        (TypeError, "create", (rows(0, 2), 5, -1), "reserved shape: expected a Shape"),
        (TypeError, "create", (rows(0, 2), Shape([4, 2]), 1.0), "count: expected an int"),
        (InternalError, "append", (..., rows(0, 1).reshape(2)), "float32 rows of shape (2,)"),
        (InternalError, "append", (..., rows(0, 1).reshape(1, 1, 2)), "rows of shape (2,)"),
        (InternalError, "append", (..., rows(0, 1, "float64")), "got float64[1, 2]"),
        (InternalError, "update", (..., rows(0, 2, "float16")), "got float16[2, 2]"),
        (InternalError, "append", (..., np.zeros((1, 3), F32)), "got float32[1, 3]"),
        (TypeError, "append", (..., 5), "append: expected a tensor, got int 5"),
        (TypeError, "append", (rows(0, 1), rows(0, 1)), "append: expected a key-value cache, got"),
        (TypeError, "view", (None,), "view: expected a key-value cache, got None"),
        (InternalError, "window_override", (..., rows(0, 5), 4), "at most 4 rows"),
        (InternalError, "window_override", (..., rows(0, 1), 0), "at most 0 rows"),
        (InternalError, "window_override", (..., rows(0, 1), -1), "at most -1 rows"),
        (InternalError, "window_override", (..., rows(0, 1, "int32"), 4), "got int32[1, 2]"),
        (InternalError, "window_override_with_sinks", (..., rows(0, 3), 4, 2),
         "at most 2 rows, for a ring of 4 with 2 sinks, got 3"),
        (InternalError, "window_override_with_sinks", (..., rows(0, 1), 4, -1), "with -1 sinks"),
        (TypeError, "array_popn", (rows(0, 1), 1), "array_popn: expected a tuple"),
        (TypeError, "array_popn", ((rows(0, 1),), 1), "array_popn: expected a key-value cache"),
        (TypeError, "array_clear", ((None,),), "array_clear: expected a key-value cache"),
    ],
)  # fmt: skip
def test_cache_errors(
    error: type[Exception], name: str, args: tuple[Any, ...], message: str
) -> None:
    cache = cache_of(2)
    with pytest.raises(error, match=re.escape(message)):
        call(KV + name, *[cache if arg is ... else arg for arg in args])
    assert held(cache) == [0, 1]


# Sampling


def test_sample_from_logits() -> None:
    logits = F32([[1, 5, 3]])
    prob = np.exp(logits[0]) / np.exp(logits[0]).sum()
    first = prob[1] / (prob[1] + prob[2])
    for row in (logits, logits[0], logits[None], logits.astype(">f4"), logits[:, ::-1]):
        assert call("sample_top_p_from_logits", row, 1, 1.0, 0) == 1
    assert call("sample_top_p_from_logits", logits, 1.0, 0.9, first - 1e-4) == 1
    assert call("sample_top_p_from_logits", logits, 1.0, 0.9, first + 1e-4) == 2
    assert call("sample_top_p_from_logits", logits, 1.0, 1.0, prob[1] + prob[2] + 1e-4) == 0
    assert call("sample_top_p_from_logits", logits, 1.0, 0.0, 0.9999) == 1
    assert call("sample_top_p_from_logits", logits, 1.0, 1.0, 1.0) == 0
    assert call("sample_top_p_from_logits", F32([[-np.inf, 3]]), 1, 1, 0.99) == 1


@pytest.mark.parametrize("temperature", [0, 1e-7, -1.0])
def test_no_temperature_picks_the_largest(temperature: float) -> None:
    for uniform in (0, 0.5, 1):
        assert call("sample_top_p_from_logits", F32([1, 5, 3]), temperature, 0.1, uniform) == 1


def test_temperature_flattens() -> None:
    logits = F32([0, 4])
    for heat in (1.0, 2.0, 8.0):
        share = 1 / (1 + np.exp(-4 / heat))
        assert call("sample_top_p_from_logits", logits, heat, 1.0, share - 1e-3) == 1
        assert call("sample_top_p_from_logits", logits, heat, 1.0, share + 1e-3) == 0


def test_sample_from_prob() -> None:
    prob = F32([[0.2, 0.5, 0.3]])
    for top_p, uniform, want in [
        (1.0, 0, 1), (1.0, 0.49, 1), (1.0, 0.51, 2), (1.0, 0.79, 2), (1.0, 0.81, 0), (1.0, 1.0, 0),
        (0.9, 0.99, 0), (0.7, 0.99, 2), (0.7, 0.72, 2), (0.7, 0.7, 1), (0.5, 0.99, 1), (0.0, 1, 1),
        (2.0, 0.99, 0),
    ]:  # fmt: skip
        assert call("sample_top_p_from_prob", prob, top_p, uniform) == want, (top_p, uniform)
    assert call("sample_top_p_from_prob", F32([np.nan, 0.5]), 1.0, 0.6) == 1
    assert call("sample_top_p_from_prob", F32([0, 0.5, 0]), 0.9, 1) == 1


@given(st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_many_small_probabilities(seed: int, uniform: float) -> None:
    """If none passes the cutoff, all are considered again."""
    prob = np.random.default_rng(seed).random(5000).astype(F32)
    prob /= prob.sum()
    order = np.argsort(-prob, kind="stable")
    token = call("sample_top_p_from_prob", prob, 0.5, uniform)
    rank = int(np.flatnonzero(order == token)[0])
    total = np.cumsum(prob[order], dtype=np.float64)
    before = total[rank] - prob[token]
    assert before <= 0.5
    assert abs(uniform - total[rank] / 0.5) < 2e-3


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 1))
def test_sampling_follows_the_distribution(seed: int, top_p: float) -> None:
    prob = np.random.default_rng(seed).random(5).astype(F32) + F32(0.01)
    prob /= prob.sum()
    order = np.argsort(-prob)
    kept = order[: 1 + int(np.count_nonzero(np.cumsum(prob[order])[:-1] < top_p))]
    grid = (np.arange(200) + 0.5) / 200
    drawn = [call("sample_top_p_from_logits", np.log(prob), 1.0, top_p, u) for u in grid]
    share = prob[kept] / prob[kept].sum()
    assert set(drawn) <= set(kept.tolist())
    assert np.allclose([drawn.count(token) / 200 for token in kept], share, atol=0.006)


def test_multinomial() -> None:
    prob = F32([[0.25, 0.5, 0.25]] * 6)
    uniform = F32([[0], [0.24], [0.25], [0.74], [0.75], [1]])
    got = call("multinomial_from_uniform", prob, uniform)
    assert got.dtype == np.int64
    assert got.tolist() == [[0], [0], [1], [1], [2], [2]]
    assert call("multinomial_from_uniform", prob, uniform.reshape(-1)).tolist() == got.tolist()
    swapped = prob[::-1].astype(">f4")
    assert call("multinomial_from_uniform", swapped, uniform).tolist() == got.tolist()
    assert call("multinomial_from_uniform", F32([[np.nan, 1]]), F32([[0]])).tolist() == [[1]]
    assert call("multinomial_from_uniform", F32([[0, 0]]), F32([[0]])).tolist() == [[1]]
    assert call("multinomial_from_uniform", prob[:0], uniform[:0]).shape == (0, 1)


P = F32([[0.5, 0.5]])
U = F32([[0.5]])


@pytest.mark.parametrize(
    ("error", "name", "args", "message"),
    [
        (InternalError, "sample_top_p_from_logits", (F32([[1], [2]]), 1, 1, 0), "float32[2, 1]"),
        (InternalError, "sample_top_p_from_logits", (np.array(1, F32), 1, 1, 0), "float32[]"),
        (InternalError, "sample_top_p_from_logits", (F32([]), 1, 1, 0), "float32[0]"),
        (InternalError, "sample_top_p_from_logits", (np.zeros(2), 1, 1, 0), "got float64[2]"),
        (InternalError, "sample_top_p_from_logits", (F32([1, np.nan]), 1, 1, 0), "got nan"),
        (InternalError, "sample_top_p_from_logits", (F32([1, np.nan]), 0, 1, 0), "got nan"),
        (InternalError, "sample_top_p_from_logits", (F32([1, np.inf]), 1, 1, 0), "got inf"),
        (InternalError, "sample_top_p_from_logits", (F32([-np.inf] * 2), 1, 1, 0), "got -inf"),
        (InternalError, "sample_top_p_from_logits", (P, np.nan, 1, 0), "a number as temperature"),
        (InternalError, "sample_top_p_from_logits", (P, 1, 1, 1.5), "sample of 0 to 1, got 1.5"),
        (InternalError, "sample_top_p_from_logits", (P, 1, 1, -0.5), "sample of 0 to 1, got -0.5"),
        (InternalError, "sample_top_p_from_logits", (P, 1, 1, np.nan), "sample of 0 to 1, got nan"),
        (TypeError, "sample_top_p_from_logits", (P, "1", 1, 0), "temperature: expected a number"),
        (TypeError, "sample_top_p_from_logits", (P, 1, None, 0), "top_p: expected a number"),
        (TypeError, "sample_top_p_from_logits", (5, 1, 1, 0), "logits: expected a tensor"),
        (InternalError, "sample_top_p_from_prob", (F32([[1], [2]]), 1, 0), "float32[2, 1]"),
        (InternalError, "sample_top_p_from_prob", (np.zeros(2), 1, 0), "got float64[2]"),
        (InternalError, "sample_top_p_from_prob", (F32([np.nan] * 2), 1, 0), "NaNs only"),
        (InternalError, "sample_top_p_from_prob", (F32([0, -1]), 0.5, 0), "above zero, got none"),
        (InternalError, "sample_top_p_from_prob", (P, 1, np.nan), "sample of 0 to 1"),
        (TypeError, "sample_top_p_from_prob", (P, "a", 0), "top_p: expected a number"),
        (InternalError, "multinomial_from_uniform", (P, F32([[1], [2]])), "and float32[2, 1]"),
        (InternalError, "multinomial_from_uniform", (P, F32([[1, 2]])), "and float32[1, 2]"),
        (InternalError, "multinomial_from_uniform", (P[0], U), "float32[2] and"),
        (InternalError, "multinomial_from_uniform", (P[:, :0], U), "float32[1, 0] and"),
        (InternalError, "multinomial_from_uniform", (P.astype("f8"), U), "float64[1, 2]"),
        (InternalError, "multinomial_from_uniform", (P, U.astype("f2")), "float16[1, 1]"),
        (TypeError, "multinomial_from_uniform", (P, 0.5), "expected a tensor, got float"),
    ],
)
def test_sampling_errors(
    error: type[Exception], name: str, args: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call(name, *args)


# In place


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def layouts(values: list[float]) -> list[np.ndarray]:
    plain = F32([values])
    wide = np.zeros((1, 2 * len(values)), F32)
    wide[:, ::2] = plain
    unaligned = np.zeros(4 * len(values) + 1, np.uint8)[1:].view(F32).reshape(1, -1)
    unaligned[...] = plain
    return [plain, plain[0].copy(), wide[:, ::2], plain.astype(">f4"), unaligned]


def test_repetition_penalty() -> None:
    for logits in layouts([4, -2, 0, 8]):
        assert call("apply_repetition_penalty", logits, ids(0, 1, 2), 2) is None
        assert logits.ravel().tolist() == [2, -4, 0, 8]
        call("apply_repetition_penalty", logits, ids(0, 1, 0, 2), 2.0)
        assert logits.ravel().tolist() == [0.5, -8, 0, 8]
        call("apply_repetition_penalty", logits, ids(), 2.0)
        call("apply_repetition_penalty", logits, np.array(3, np.int32), 8.0)
        call("apply_repetition_penalty", logits, ids(0, 9, 1)[::2].astype(">i4"), 0.5)
        assert logits.ravel().tolist() == [1, -4, 0, 1]


def test_repetition_penalty_of_long_histories() -> None:
    logits = F32([0, 1, -1, np.nan])
    call("apply_repetition_penalty", logits, np.repeat(ids(0, 1, 2, 3), 3000), 1.5)
    assert logits[:3].tolist() == [0, 0, -np.inf]
    assert np.isnan(logits[3])


def test_presence_and_frequency_penalty() -> None:
    name = "apply_presence_and_frequency_penalty"
    for logits in layouts([4, -2, 0, 8]):
        assert call(name, logits, ids(0, 1), ids(1, 2), 0.5, 0.25) is None
        assert logits.ravel().tolist() == [3.25, -3, 0, 8]
        call(name, logits, ids(0, 0), ids(0, 1), 0.5, 0.25)
        assert logits.ravel().tolist() == [2, -3, 0, 8]
        call(name, logits, ids(), ids(), 1, 1)
        assert logits.ravel().tolist() == [2, -3, 0, 8]


def test_softmax() -> None:
    for logits in layouts([1, -2, 0, 4]):
        want = np.exp(logits.astype(np.float64) / 2)
        assert call("apply_softmax_with_temperature", logits, 2) is None
        assert np.allclose(logits, want / want.sum(), rtol=1e-6)
    batch = F32([[[1, -2]], [[0, 4]]])
    want = np.exp(batch) / np.exp(batch).sum(-1, keepdims=True)
    call("apply_softmax_with_temperature", batch, 1.0)
    assert np.allclose(batch, want)


def test_softmax_at_the_edges() -> None:
    def softmax(values: list[float], temperature: float) -> list[float]:
        logits = F32(values)
        call("apply_softmax_with_temperature", logits, temperature)
        return logits.tolist()

    assert softmax([1, 3, 3, 2], 0) == [0, 0.5, 0.5, 0]
    assert softmax([1, -2], 1e-8) == [1, 0]
    assert softmax([1e30, -1e30], 1) == [1, 0]
    assert softmax([-np.inf, 1], 1) == [0, 1]
    assert np.isnan(softmax([np.nan, 1], 1)).all()
    empty = np.zeros((0, 3), F32)
    call("apply_softmax_with_temperature", empty, 1)
    scalar = np.array(5, F32)
    call("apply_softmax_with_temperature", scalar, 1)
    assert scalar == 1


def test_a_failed_penalty_changes_nothing() -> None:
    logits = F32([1, 2])
    for bad in (ids(0, 2), ids(-1, 0)):
        with pytest.raises(IndexError, match="expected token ids of 0 to 1, got"):
            call("apply_repetition_penalty", logits, bad, 2)
        with pytest.raises(IndexError, match="expected token ids of 0 to 1, got"):
            call("apply_presence_and_frequency_penalty", logits, bad, ids(1, 1), 1, 1)
    assert logits.tolist() == [1, 2]


READ_ONLY = F32([1, 2])
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("error", "name", "args", "message"),
    [
        (InternalError, "apply_repetition_penalty", (P, np.array([0]), 2), "int32, got int64[1]"),
        (InternalError, "apply_repetition_penalty", (np.zeros(2), ids(0), 2), "got float64[2]"),
        (ValueError, "apply_repetition_penalty", (P, ids(0), 0), "a penalty above zero, got 0.0"),
        (ValueError, "apply_repetition_penalty", (P, ids(0), -1), "a penalty above zero"),
        (ValueError, "apply_repetition_penalty", (P, ids(0), np.nan), "a penalty above zero"),
        (ValueError, "apply_repetition_penalty", (READ_ONLY, ids(0), 2), "got a read-only one"),
        (TypeError, "apply_repetition_penalty", (P, 5, 2), "expected a tensor, got int 5"),
        (TypeError, "apply_repetition_penalty", (P, ids(0), "2"), "penalty: expected a number"),
        (InternalError, "apply_presence_and_frequency_penalty", (P, ids(0), ids(1, 1), 1, 1),
         "a frequency for each of 1 tokens, got 2"),
        (InternalError, "apply_presence_and_frequency_penalty", (P, ids(0), np.array([1]), 1, 1),
         "token frequencies: expected int32"),
        (ValueError, "apply_presence_and_frequency_penalty", (READ_ONLY, ids(0), ids(1), 1, 1),
         "got a read-only one"),
        (InternalError, "apply_softmax_with_temperature", (np.zeros(2), 1), "got float64[2]"),
        (ValueError, "apply_softmax_with_temperature", (P, -1), "a temperature >= 0, got -1.0"),
        (ValueError, "apply_softmax_with_temperature", (P, np.nan), "a temperature >= 0, got nan"),
        (ValueError, "apply_softmax_with_temperature", (READ_ONLY, 1), "got a read-only one"),
        (TypeError, "apply_softmax_with_temperature", (5, 1), "expected a tensor, got int 5"),
    ],
)  # fmt: skip
def test_in_place_errors(
    error: type[Exception], name: str, args: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call(name, *args)
    assert P.tolist() == [[0.5, 0.5]]
