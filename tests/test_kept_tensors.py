"""Builtins that write to tensors which a VM keeps, beside numpy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import relaxvm

put = relaxvm.get_func("relaxvm.builtin.put")
cache_extend = relaxvm.get_func("relaxvm.builtin.cache_extend")


def _vm() -> Any:
    return SimpleNamespace(_state={}, _rooms={})


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool", ">f4", "object"])
@pytest.mark.parametrize("seed", range(30))
def test_put_to_places_is_assignment(dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 5, rng.integers(1, 5)).tolist())
    axis = int(rng.integers(len(shape)))
    places = rng.integers(-shape[axis] if seed % 3 == 0 else 0, shape[axis], rng.integers(0, 4))
    if seed % 5 == 4:
        places = places.astype("int32")
    x = rng.integers(0, 9, shape).astype(dtype)
    if seed % 7 == 6:
        x = x[..., ::-1]
    value = rng.integers(0, 9, (*shape[:axis], len(places), *shape[axis + 1 :])).astype(
        "float64" if seed % 11 == 10 else dtype
    )
    if seed % 2 and axis:  # leading axes that broadcast
        value = value[(slice(1),) * (axis > 1)][0]
    wanted = x.copy()
    where = (slice(None),) * axis
    wanted[(*where, places)] = value
    assert put(x, value, (), (*(0 for _ in where), places)) is x
    assert x.dtype == wanted.dtype
    assert np.array_equal(x, wanted)


def test_put_of_a_part_of_itself() -> None:
    x = np.arange(12.0).reshape(4, 3)
    wanted = x.copy()
    wanted[np.array([1, 2, 3])] = x[:3].copy()
    assert np.array_equal(put(x, x[:3], (), (np.array([1, 2, 3]),)), wanted)
    numbers = np.array([3, 2, 1, 0])
    wanted = numbers.copy()
    wanted[numbers.copy()] = [7, 8, 9, 10]
    assert np.array_equal(put(numbers, np.array([7, 8, 9, 10]), (), (numbers,)), wanted)


def test_put_refuses() -> None:
    x = np.zeros((2, 3), "float32")
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 1 with size 3"):
        put(x, np.ones((2, 1), "float32"), (), (0, np.array([3])))
    with pytest.raises(ValueError, match=r"put: value: .* could not be broadcast"):
        put(x, np.ones((2, 2), "float32"), (), (0, np.array([1])))
    x.flags.writeable = False
    with pytest.raises(ValueError, match="expected a tensor to write to, got a read-only one"):
        put(x, np.ones((2, 1), "float32"), (), (0, np.array([1])))
    assert not x.any()


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", ["float32", "int8", ">i4", "object"])
def test_a_cache_grows_as_concatenate(axis: int, dtype: str) -> None:
    rng = np.random.default_rng(axis + 1)
    vm, wanted, seen = _vm(), np.zeros(0, dtype), []
    for step in range(60):
        shape = [2, 3, 4]
        shape[axis] = int(rng.integers(0, 4))
        new = rng.integers(0, 99, shape).astype(dtype)
        if step % 7 == 3:
            new = np.asfortranarray(new)
        wanted = np.concatenate([wanted, new], axis) if step else new
        if step % 20 == 19:  # the user puts an array there
            vm._state["k"] = wanted = wanted[:, ::-1].astype(dtype)
            wanted = np.concatenate([wanted, new], axis)
        found = cache_extend(vm, "k", new, axis)
        assert found is vm._state["k"]
        assert found.flags.writeable
        assert found.dtype == np.dtype(dtype)
        assert np.array_equal(found, wanted)
        seen.append((found, wanted))
    assert all(np.array_equal(a, b) for a, b in seen)


def test_a_cache_that_was_cut_is_copied() -> None:
    """What was returned before stays, though the shorter array ends where it goes on."""
    vm = _vm()
    one = np.ones((1, 2), "float32")
    cache_extend(vm, "k", one, 0)
    long = cache_extend(vm, "k", 2 * one, 0)
    vm._state["k"] = long[:1]
    other = cache_extend(vm, "k", 3 * one, 0)
    assert long.tolist() == [[1, 1], [2, 2]]
    assert other.tolist() == [[1, 1], [3, 3]]


def test_cache_extend_refuses() -> None:
    vm = _vm()
    cache_extend(vm, "k", np.ones((1, 2), "float32"), 0)
    for axis in (2, -3, 1 << 70):
        with pytest.raises(ValueError, match="cache_extend: axis: expected one of"):
            cache_extend(vm, "k", np.ones((1, 2), "float32"), axis)
    for new in (np.ones((1, 3), "float32"), np.ones((1, 2), "int32"), np.ones(2, "float32")):
        with pytest.raises((TypeError, ValueError), match="expected"):
            cache_extend(vm, "k", new, 0)
    assert vm._state["k"].tolist() == [[1, 1]]
