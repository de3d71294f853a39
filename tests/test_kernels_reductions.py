"""Kernels that reduce, accumulate, sort and search."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.dtypes import as_dtype
from relaxvm.kernels import PREFIX
from relaxvm.kernels._blocks import BLOCK
from relaxvm.values import Shape

from .kernel_examples import bools, counts, normal, reference, seeded  # noqa: F401


def run(name: str, *args: Any) -> None:
    assert relaxvm.get_func(PREFIX + name)(*args) is None


def check(name: str, *args: Any, want: Any, rtol: float = 0) -> None:
    """Run a kernel with outputs like the expected results, and compare."""
    wanted = want if isinstance(want, tuple) else (np.asarray(want),)
    outs = [np.full(each.shape, 77).astype(each.dtype) for each in wanted]
    run(name, *args, *outs)
    for out, each in zip(outs, wanted, strict=True):
        np.testing.assert_allclose(out, each, rtol=rtol, atol=rtol)


def refuses(name: str, *args: Any, error: type[Exception], message: str) -> None:
    """`args` include the outputs."""
    with pytest.raises(error, match=f"^{name}: {message}"):
        run(name, *args)


# Reductions

REDUCTIONS = ("sum", "prod", "mean", "max", "min")


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axes", [None, Shape([0]), Shape([-1, 0]), Shape([0, 1, 2]), Shape()])
@pytest.mark.parametrize("keep", [False, True])
def test_axes_of_an_operator(name: str, axes: Any, keep: bool) -> None:
    x = normal(2, 3, 4)
    want = reference(name, x, axes, keep)
    check(name, x, axes, want=want, rtol=1e-14)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("step", [1, -1, -2])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_reversed_operands(name: str, step: int, axis: int) -> None:
    """numpy before 2 takes the greatest of all but one element of these."""
    x = normal(4, 3, 5)[::-1, :, ::-1]
    want = reference(name, x, Shape([axis]), False)
    holder = np.full([2 * dim for dim in want.shape], 77.0)
    out = holder[::step, ::step][: want.shape[0], : want.shape[1]]
    run(name, x, axis, out)
    np.testing.assert_allclose(out, want, rtol=1e-14, atol=1e-14)


def test_axes_are_refused() -> None:
    x = normal(2, 3)
    for name in REDUCTIONS:
        refuses(name, x, Shape([0, -2]), x[0], error=ValueError, message="axes: expected each axis")
        refuses(name, x, Shape([2]), x[0], error=ValueError, message="axis: expected an axis of")
        refuses(name, x, None, 0, x[0], error=TypeError, message="axis: expected an int, got None")


def test_sums_and_products_of_bools_and_integers() -> None:
    x = np.array([[True, False], [True, True], [False, False]])
    check("sum", x, Shape([1]), want=np.array([True, True, False]))
    check("prod", x, Shape([1]), want=np.array([False, True, False]))
    check("prod", np.array([100, 3], np.int8), None, want=np.array(300 - 256, np.int8))
    check("max", x, Shape([0]), want=np.array([True, True]))


def test_products_of_narrow_floats_are_rounded_once() -> None:
    x = np.full(9, 1.1, np.float16)
    want = np.prod(x.astype(np.float32)).astype(np.float16)
    check("prod", x, None, want=want)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("keep", [False, True])
def test_arg_reductions_of_all_axes(name: str, keep: bool) -> None:
    x = counts(3, 4, 5)
    check(name, x, None, want=getattr(np, name)(x, axis=None, keepdims=keep))
    check(name, x.T, None, want=getattr(np, name)(x.T, axis=None, keepdims=keep))


def test_arg_reductions_find_the_first_nan() -> None:
    x = np.array([1, np.nan, 3, np.nan])
    check("argmax", x, 0, want=np.array(1))
    check("argmin", x, 0, want=np.array(1))


# Cumulative sums


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("exclusive", [False, True, 0, 1])
def test_running_totals(name: str, axis: Any, exclusive: Any) -> None:
    for x in (normal(2, 3, 4), counts(2, 3, 4), normal(2, 3, 4).T, counts(3, dtype=np.int8)):
        if axis == 1 and x.ndim == 1:
            continue
        want = reference(name, x, axis, exclusive=exclusive)
        check(name, x, axis, exclusive, want=want, rtol=1e-13)
        if want.shape == x.shape:
            run(name, x, axis, exclusive, x)
            np.testing.assert_allclose(x, want, rtol=1e-13)


def test_running_totals_in_another_type() -> None:
    check("cumsum", np.array([0.6, 1.6, 2.6]), 0, False, want=np.array([0, 1, 3], np.int32))
    check("cumsum", np.array([True, True]), 0, False, want=np.array([1, 2], np.int32))
    check("cumsum", np.array([100, 100], np.int8), 0, False, want=np.array([100, 200]))
    check("cumsum", np.empty((2, 0)), 1, True, want=np.empty((2, 0)))
    check("cumsum", np.array(3.0), None, False, want=np.array([3.0]))


def test_running_totals_over_what_they_read() -> None:
    for exclusive in (False, True):
        for start in (0, 1, 3):
            buffer = np.arange(1.0, 12)
            x, out = buffer[:8], buffer[start : start + 8]
            want = reference("cumsum", x, 0, exclusive=exclusive)
            run("cumsum", x, 0, exclusive, out)
            np.testing.assert_array_equal(out, want)


def test_running_totals_refuse() -> None:
    x = normal(2, 3)
    refuses("cumsum", x, 2, False, x, error=ValueError, message="axis: expected an axis of")
    refuses("cumsum", x, None, False, x, error=ValueError, message=r"out: expected float64\[6\]")
    refuses("cumsum", x, 0, 2, x, error=ValueError, message="exclusive: expected a bool, got int 2")
    refuses("cumsum", x, 0, 0, bools(2, 3), error=TypeError, message="out: expected numbers, got")


# Search


WITH_NAN = np.array([3, np.nan, 1, 2, np.nan, 1, -np.inf, np.inf])


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sort(descending: bool, axis: int) -> None:
    for x in (counts(5, 7, 3), normal(4, 3, 2, dtype=np.float16), bools(3, 4, 1)):
        want = reference("sort", x, axis, descending)
        check("sort", x, axis, descending, want=want)
        run("sort", x, axis, descending, x)
        np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("descending", [False, True])
def test_sort_takes_nan_for_the_greatest(descending: bool) -> None:
    want = reference("sort", WITH_NAN, 0, descending)
    assert np.isnan(want[:2] if descending else want[-2:]).all()
    check("sort", WITH_NAN, 0, descending, want=want)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32])
def test_argsort(descending: bool, axis: int, dtype: Any) -> None:
    x = counts(5, 7, 3).astype(float)  # has ties
    x[1, 2:4] = np.nan
    want = reference("argsort", x, axis, descending, dtype=dtype)
    check("argsort", x, axis, descending, want=want)


def test_argsort_of_many_rows() -> None:
    x = counts(3, BLOCK // 4, 7)
    want = np.argsort(x, 2, kind="stable")
    check("argsort", x, 2, False, want=want)
    check("argsort", x.astype(np.int64), 2, False, want=want.astype(np.int32))


def top(x: np.ndarray, k: int, axis: int, ret_type: str, largest: bool) -> Any:
    dtypes = {"both": (x.dtype, "int64"), "values": x.dtype, "indices": "int64"}
    return reference("topk", x, k, axis, ret_type, largest, dtype=dtypes[ret_type])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("k", [1, 3, 0, -1])
@pytest.mark.parametrize("ret_type", ["both", "values", "indices"])
def test_topk(largest: bool, axis: int, k: int, ret_type: str) -> None:
    x = counts(4, 5, 6).astype(np.float32)  # has ties
    x[0, :2, 3] = np.nan
    check("topk", x, k, axis, ret_type, largest, want=top(x, k, axis, ret_type, largest))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 5, 300])
@pytest.mark.parametrize("nans", [0, 3, 1195])
def test_topk_of_long_rows(largest: bool, k: int, nans: int) -> None:
    x = np.random.default_rng(k).integers(0, 40, (3, 1200)).astype(np.float64)
    x[1, np.random.default_rng(nans).permutation(1200)[:nans]] = np.nan
    check("topk", x, k, 1, "both", largest, want=top(x, k, 1, "both", largest))


def test_search_in_empty_tensors() -> None:
    x = np.empty((0, 3))
    for axis, descending in itertools.product((0, 1), (False, True)):
        check("sort", x, axis, descending, want=x)
        check("argsort", x, axis, descending, want=x.astype(int))
    check("topk", x, 2, 1, "both", True, want=(x[:, :2], x[:, :2].astype(int)))
    check("topk", x, 0, 0, "values", True, want=x)


@pytest.mark.parametrize(
    ("dtype", "least", "greatest"),
    [
        ("bool", False, True), ("int8", -128, 127), ("uint64", 0, (1 << 64) - 1),
        ("float16", -np.inf, np.inf), ("float64", -np.inf, np.inf),
        ("bfloat16", -np.inf, np.inf), ("float8_e4m3fn", -448, 448),
    ],
)  # fmt: skip
def test_the_greatest_and_least_of_no_elements(dtype: str, least: Any, greatest: Any) -> None:
    x = np.empty((2, 0, 3), as_dtype(dtype))
    for name, number in (("max", least), ("min", greatest)):
        for axis, shape in ((1, (2, 3)), (None, ()), (0, (0, 3))):
            out = np.ones(shape, x.dtype)
            run(name, x, axis, out)
            assert (out == np.array(number).astype(x.dtype)).all()


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_no_elements_and_no_results(name: str) -> None:
    x = np.empty((0, 0, 3))
    dtype = int if name.startswith("arg") else float
    check(name, x, 0, want=np.empty((0, 3), dtype))
    check(name, x, 1, want=np.empty((0, 3), dtype))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_no_elements_to_choose_from(name: str) -> None:
    x = np.empty((2, 0))
    message = r"x: expected elements along axis 1, got float64\[2, 0\]"
    out = np.empty(2, int)
    refuses(name, x, 1, out, error=ValueError, message=message)
    refuses(name, x.T, 0, out, error=ValueError, message="x: expected elements along axis 0, got")
    check(name, x, 0, want=out[:0])


def test_search_refuses() -> None:
    x = normal(2, 3)
    i = np.empty((2, 1), np.int64)
    refuses("sort", x, 2, False, x, error=ValueError, message="axis: expected an axis of")
    refuses("sort", np.array(1.0), 0, False, x, error=ValueError, message="axis: expected an axis")
    refuses("argsort", x, 0, False, bools(2, 3), error=TypeError, message="out: .* of numbers")
    refuses("topk", x, 4, 1, "both", True, x, i, error=ValueError, message="k: .* at most 3")
    refuses(
        "topk", x, 1, 1, "all", True, x, i, error=ValueError, message="ret_type: expected 'both'"
    )
    refuses("topk", x, 1, 1, "both", True, x, error=ValueError, message="expected 2 outs with")
    refuses("topk", x, 1, 1, "values", True, x, i, error=ValueError, message="expected 1 out with")
    refuses("topk", x, 1, 1, "values", True, error=TypeError, message="expected x, k, axis, ret_")
    refuses("topk", x, 1, 1, "indices", True, bools(2, 1), error=TypeError, message=r"outs\[0\]: e")
