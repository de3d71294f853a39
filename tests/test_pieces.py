"""Long arrays in pieces: the results are those of one call of numpy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from relaxvm import get_func
from relaxvm.kernels import PREFIX
from relaxvm.pieces import cut, order, reduce

SMALL = 1000
"""Elements of a piece in these tests, so that the arrays are small."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cut, order, reduce):
        monkeypatch.setattr(module, "PIECE", SMALL)
    monkeypatch.setattr(cut.pieces, "__kwdefaults__", {"row": 0, "most": SMALL})
    monkeypatch.setattr(order, "_SORTED", SMALL)
    monkeypatch.setattr(order, "_ORDERED", SMALL)


def vectors(size: int = 30_011) -> Iterator[np.ndarray]:
    """Vectors with few and many distinct elements, NaN, zeros of both signs, and gaps."""
    rng = np.random.default_rng(0)
    for dtype in ("f4", "f8", "f2", "i1", "u1", "i4", "i8", "u8", "?", "c8", ">f4"):
        for spread in (1, 30):
            yield np.minimum(np.abs(rng.standard_normal(size) * spread), 100).astype(dtype)
    x = rng.standard_normal(size).round(1).astype("f4")
    yield x
    yield x[::-2]
    x = x.copy()
    x[rng.integers(0, size, 5000)] = np.nan
    x[rng.integers(0, size, 5000)] = -0.0
    yield x
    yield x.astype("c8")
    yield np.full(size, np.nan, "f4")
    yield np.zeros(size, "i4")
    yield np.arange(size)
    yield np.arange(size)[::-1]
    yield np.repeat([3.0, 1.0, 2.0], size // 3)


def kernel(name: str) -> Any:
    return get_func(PREFIX + name)


def same(got: Any, want: Any) -> None:
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_sort() -> None:
    for x in vectors():
        got = np.empty_like(x)
        order.sort(x, got)
        same(got, np.sort(x))
        got = x.copy()
        order.sort(got, got)
        same(got, np.sort(x))
        order.sort(x, got[::-1])
        same(got[::-1], np.sort(x))


def test_argsort_is_stable() -> None:
    for x in vectors():
        same(order.argsort(x), np.argsort(x, kind="stable"))


def test_distinct() -> None:
    for x in vectors():
        for each in (x, x[: len(x) // 11 * 11].reshape(11, -1).T):
            want = np.unique(each, True, True, True)
            for got, expected in zip(order.distinct(each), want, strict=True):
                same(got, expected.reshape(got.shape))


def test_sorting_bfloat16() -> None:
    dtypes = pytest.importorskip("ml_dtypes")
    x = next(x for x in vectors() if np.isnan(x).any()).astype(dtypes.bfloat16)
    wide = x.astype("f4")
    want = np.argsort(wide, kind="stable")
    out, indices = np.empty_like(x), np.empty(len(x), np.int64)
    kernel("sort")(x, 0, 0, out)
    same(out.astype("f4"), wide[want])
    kernel("argsort")(x, 0, 0, indices)
    same(indices, want)
    kernel("topk")(x, 3, 0, "values", 0, out[:3])
    same(out[:3].astype("f4"), wide[want[:3]])
    values, counts = get_func("relax.run.unique")(x, 1, 0, 0, 1, None)
    expected = np.unique(wide, return_counts=True)
    same(values.astype("f4"), expected[0])
    same(counts, expected[1])


def slices() -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    for shape in ((5000, 3), (3, 5000), (300, 40), (60, 7, 11), (20_000, 1), (1, 20_000)):
        for spread in (1, 2, 100):
            yield rng.integers(0, spread, shape)
        x = rng.integers(0, 2, shape).astype("f4")
        x[x == 1] = -0.0
        x[rng.random(shape) < 0.02] = np.nan
        yield x
        yield np.repeat(rng.standard_normal((1, *shape[1:])), shape[0], 0)
    late = np.zeros((40, 500))
    late[:, -1] = rng.integers(0, 9, 40)
    yield late
    yield late.T


def test_distinct_slices() -> None:
    for x in slices():
        want = np.unique(x, True, True, True, axis=0)
        for got, expected in zip(order.distinct_slices(x), want, strict=True):
            same(got, expected.reshape(got.shape))


def test_order_of_occurrence() -> None:
    for x in (np.array([5, 3, 5, 1] * 1000), np.arange(4000)[::-1].copy()):
        found = order.in_order_of_occurrence(order.distinct(x))
        same(found.values, x[np.sort(np.unique(x, return_index=True)[1])])
        same(found.values[found.inverse], x)
        same(x[found.first], found.values)
        assert found.counts.sum() == len(x)


def tensors() -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    for shape in ((5003,), (3, 5003), (5003, 3), (70, 11, 13), (7, 1, 900)):
        yield rng.integers(-9, 9, shape)
        x = rng.standard_normal(shape)
        yield x
        yield x.T
        yield x.astype("f4")[::-1]
        x = x.round(1)
        x[rng.random(shape) < 0.01] = np.nan
        yield x
    yield np.broadcast_to(rng.standard_normal(50), (200, 50))


def axes_of(x: np.ndarray) -> Iterator[tuple[int, ...]]:
    yield ()
    yield tuple(range(x.ndim))
    for axis in range(x.ndim):
        yield (axis,)
    if x.ndim == 3:
        yield (0, 2)


@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.maximum, np.minimum])
def test_reduce(ufunc: np.ufunc) -> None:
    for x in tensors():
        for axes in axes_of(x):
            want = ufunc.reduce(x, axes, keepdims=True)
            got = np.empty(want.shape, x.dtype)
            reduce.reduce(ufunc, x, axes, got)
            last = tuple(axis - x.ndim for axis in axes)
            also = reduce.reduced(ufunc, x, last)
            if x.dtype.kind == "f" and ufunc in (np.add, np.multiply):
                np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
                np.testing.assert_array_equal(also, got)
            else:
                same(got, want)
                same(also, want)


def test_reduce_into_its_operand() -> None:
    x = np.arange(5000)
    reduce.reduce(np.add, x, (0,), x[:1])
    assert x[0] == np.arange(5000).sum()


def test_mean() -> None:
    for x in tensors():
        if x.dtype.kind == "f":
            got = np.empty((1,) * x.ndim, x.dtype)
            reduce.mean(x, tuple(range(x.ndim)), got)
            np.testing.assert_allclose(got, x.mean(keepdims=True), rtol=1e-4, atol=1e-5)


def test_find() -> None:
    for x in tensors():
        for axis in range(x.ndim):
            for find, numpys in (
                (reduce.find_greatest, np.argmax),
                (reduce.find_least, np.argmin),
            ):
                want: Any = numpys(x, axis, keepdims=True)  # type: ignore[call-overload]
                got = np.empty(want.shape, np.int64)
                find(x, axis, got)
                same(got, want)


def test_accumulate() -> None:
    for x in tensors():
        out = np.empty(x.shape, x.dtype)
        reduce.accumulate(np.add, x, out)
        same(out, np.add.accumulate(x))


def test_selections() -> None:
    for x in vectors():
        plain = np.ascontiguousarray(x)
        same(cut.positions(plain), np.flatnonzero(plain))
        at = np.random.default_rng(0).integers(0, len(x), 4000)
        same(cut.taken(x, at), x[at])
        same(cut.copied(x), x)
        many = x[:15_000].reshape(30, -1).T
        same(cut.flat(many), many.reshape(-1))
        if x.dtype.kind != "c":
            same(cut.converted(x, "f8"), x.astype("f8"))


@pytest.mark.parametrize(
    ("shape", "axes"), [((1, 2, 128, 128, 16), (2, 3)), ((4, 512, 512, 8), (0, 1, 2))]
)  # fmt: skip
def test_long_sums_of_floats_are_nearly_exact(
    shape: Any, axes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numpy adds one after another along axes other than the last: errors of 3e-6 and 2e-5."""
    monkeypatch.setattr(reduce, "PIECE", 1 << 24)
    x = np.random.default_rng(0).random(shape, np.float32)
    out = np.empty([1 if i in axes else dim for i, dim in enumerate(shape)], np.float32)
    reduce.mean(x, axes, out)
    np.testing.assert_allclose(out, x.mean(axes, np.float64, keepdims=True), rtol=1e-6)
