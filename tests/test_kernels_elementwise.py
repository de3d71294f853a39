"""Elementwise kernels: those that are more than one ufunc, and edge cases."""

from __future__ import annotations

import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.executable.formats._tensors import MAX_RANK
from relaxvm.kernels import PREFIX, ChainStep, record_of, ufunc_of
from relaxvm.kernels._blocks import BLOCK

from .kernel_examples import bools, counts, normal, reference, seeded  # noqa: F401
from .operators.test_kernels import REGISTERED, first

STEPPED = ("rsqrt", "sigmoid", "erf", "nn.silu", "nn.gelu", "nn.gelu_tanh")
"""Computed block by block."""


def run(name: str, *args: Any) -> None:
    assert relaxvm.get_func(PREFIX + name)(*args) is None


def result(name: str, x: np.ndarray, *args: Any) -> np.ndarray:
    """Return the result of a kernel that keeps shape and data type."""
    out = np.empty_like(x)
    run(name, x, *args, out)
    return out


# erf


def test_erf_of_float64() -> None:
    x = np.concatenate([np.linspace(-7, 7, 40_001), normal(1000) * 1e-3, [0.46875, 4, 6]])
    want = np.vectorize(math.erf)(x)
    np.testing.assert_allclose(result("erf", x), want, rtol=1e-15)


def test_erf_of_float32() -> None:
    x = np.concatenate([np.linspace(-5, 5, 40_001), normal(1000) * 1e-3]).astype(np.float32)
    want = np.vectorize(math.erf)(x)
    error = np.abs(result("erf", x) - want)
    assert (error <= 1.5 * np.spacing(np.abs(want).astype(np.float32))).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_erf_at_the_ends(dtype: Any) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 30, -30], dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = result("erf", x)
    np.testing.assert_array_equal(got, [0, 0, 1, -1, np.nan, 1, -1])
    assert np.signbit(got[:2]).tolist() == [False, True]


def test_erf_is_odd_and_keeps_the_smallest() -> None:
    x = np.array([5e-324, 1e-300, 1e-10, 0.3, 1, 3])
    np.testing.assert_array_equal(result("erf", -x), -result("erf", x))
    np.testing.assert_allclose(result("erf", x[1:3]), x[1:3] * 2 / math.sqrt(math.pi), rtol=1e-15)


# where


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "i2", "?", "F", "D", "f2"])
@pytest.mark.parametrize("shape", [(70_000,), (300, 256), (2, 3)])
def test_where_of_many_elements(dtype: str, shape: tuple[int, ...]) -> None:
    """With broadcasting, numbers, any layout, and in place."""
    where = relaxvm.get_func("relaxvm.kernel.where").__wrapped__
    rng = np.random.default_rng(1)
    cond = rng.random(shape) < 0.5
    a, b = (np.asarray(rng.integers(0, 100, shape), dtype) for _ in range(2))
    row, one = b[..., :1], b.reshape(-1)[3:4].reshape((1,) * len(shape))
    givens: list[tuple[Any, Any, Any]] = [
        (cond, a, b), (cond, row, b), (cond, a, one), (cond[:1], a, b),
        (cond.T.copy().T, a, b[::-1].copy()[::-1]),
    ]  # fmt: skip
    if dtype != "?":
        givens += [(cond, 0, b), (cond, 1, 0)]
    for given in givens:
        want = np.where(*[np.asarray(x, dtype) if type(x) is int else x for x in given])
        out = np.empty(want.shape, dtype)
        where(*given, out)
        assert out.tobytes() == want.tobytes()
    for out in (a, b):
        want = np.where(cond, a, b)
        where(cond, a, b, out)
        assert out.tobytes() == want.tobytes()
    flat = np.arange(1000)
    where(np.arange(999) % 2 == 0, flat[:-1], flat[1:], flat[1:])
    assert flat.tolist() == [0, *[i if i % 2 == 0 else i + 1 for i in range(999)]]


# Chains


def by_ufuncs(name: str, x: np.ndarray) -> np.ndarray:
    """Compute a composite with numpy, one ufunc after the other on whole arrays."""
    names = {"divide": "true_divide"}
    values: list[np.ndarray] = []

    def operand(text: str) -> Any:
        if text.startswith("%"):
            return values[int(text[1:])]
        return x if text == "$0" else x.dtype.type(float(text))

    record = record_of(PREFIX + name)
    assert record is not None
    assert isinstance(record.step, ChainStep)
    assert record.step.chain is not None
    steps, _, wanted = str(record.step.chain(x.dtype)).partition(" -> ")
    for step in steps.split("; "):
        head, _, operands = step.rstrip(")").partition("(")
        head_name = head.rstrip("!").removeprefix("numpy.")
        function = getattr(np, names.get(head_name, head_name))
        with np.errstate(over="ignore" if head.endswith("!") else "warn"):
            values.append(function(*map(operand, operands.split(", "))))
    return values[int(wanted[1:])]


@pytest.mark.parametrize("name", STEPPED)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("size", [0, 2, 5, 1000, 3000, 20_000, BLOCK + 3])
def test_composites_are_their_ufuncs(name: str, dtype: str, size: int) -> None:
    """Bit for bit, in any layout, in place and with overlapping operands."""
    x = np.asarray(np.random.default_rng(size).uniform(0.01, 5, size), dtype)
    if name != "rsqrt" and size > 8:
        x *= np.random.default_rng(1).choice([-1, 1, 20, -20], size).astype(dtype)
        x[:7] = [0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -600]
    with warnings.catch_warnings(record=True) as expected:
        warnings.simplefilter("always")
        want = by_ufuncs(name, x)
    memory = np.zeros(x.nbytes + 1, np.uint8)[1:].view(dtype)  # not aligned
    memory[...] = x
    both = np.append(x, x[:1])
    inputs = (x, x[::-1].copy()[::-1], np.repeat(x, 2)[::2], memory,
              x.astype(x.dtype.newbyteorder()))  # fmt: skip
    pairs = [(given, np.empty_like(x)) for given in inputs]
    pairs += [(x, np.empty((size, 2), dtype)[:, 1]), (both[:size], both[-size or 0 :]), (x, x)]
    for given, out in pairs:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(name, given, out)
        assert out.tobytes() == want.tobytes()
        assert what_happened(caught, name) == what_happened(expected, name)


def what_happened(caught: list[warnings.WarningMessage], kernel: str) -> set[str]:
    """Loops in C name their ufunc, and the kernel in numpy itself."""
    said = [str(each.message).partition(" encountered in ") for each in caught]
    assert all(name == kernel or hasattr(np, name) for _, _, name in said)
    return {words for words, _, _ in said}


def test_composites_have_the_errors_of_their_ufuncs() -> None:
    x = np.array([-1.0, 0.0, 4.0])
    with pytest.warns(RuntimeWarning) as caught:
        run("rsqrt", x, np.empty(3))
    assert [str(w.message) for w in caught] == [
        "invalid value encountered in sqrt",
        "divide by zero encountered in reciprocal",
    ]
    with np.errstate(all="raise"):
        run("sigmoid", np.array([-1e4, 1.0]), np.empty(2))  # 1 / infinity is not reported
    with pytest.raises(TypeError, match=r"nn\.gelu: expected floats, got x int64"):
        run("nn.gelu", np.arange(3), np.empty(3, np.int64))
    with pytest.raises(ValueError, match=r"nn\.gelu: out: expected float32"):
        run("nn.gelu", np.zeros(3, np.float32), np.empty(3))


def test_composites_present_themselves_as_kernels() -> None:
    kernel = relaxvm.get_func("relaxvm.kernel.nn.gelu")
    assert kernel.__name__ == "nn.gelu"
    assert kernel.__wrapped__ is not kernel
    with pytest.raises(TypeError, match="programs refer to kernels by name"):
        pickle.dumps(kernel)
    out = np.empty(2)
    kernel(x=np.ones(2), out=out)
    assert out[0] == pytest.approx(0.8413447460685429)


# Blocks


@pytest.mark.parametrize("name", STEPPED)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_results_do_not_depend_on_blocks(name: str, dtype: Any) -> None:
    x = np.asarray(np.random.default_rng(1).uniform(0.1, 3, 2 * BLOCK + 5), dtype)
    whole = result(name, x)
    step = 1001
    parts = [result(name, x[i : i + step]) for i in range(0, len(x), step)]
    np.testing.assert_allclose(whole, np.concatenate(parts), rtol=2 * np.finfo(dtype).eps)
    strided = np.empty((2, len(x)), dtype)[:, ::2]
    run(name, np.stack([x, x])[:, ::2], strided)
    np.testing.assert_allclose(strided[1], whole[::2], rtol=2 * np.finfo(dtype).eps)
    run(name, x, x)
    np.testing.assert_array_equal(x, whole)


@pytest.mark.parametrize("name", [*STEPPED, "clip"])
@pytest.mark.parametrize("overlap", [1, BLOCK, BLOCK + 1])
def test_blocks_read_before_they_write(name: str, overlap: int) -> None:
    args = (0.2, 0.6) if name == "clip" else ()
    for forward in (True, False):
        buffer = np.random.default_rng(2).uniform(0.1, 0.9, 3 * BLOCK + overlap)
        x, out = buffer[:-overlap], buffer[overlap:]
        if not forward:
            x, out = out, x
        want = result(name, x.copy(), *args)
        run(name, x, *args, out)
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("operand", [0, 1, 2])
def test_where_over_part_of_an_operand(operand: int) -> None:
    memory = np.arange(40.0)
    args: list[Any] = [np.arange(7) % 2 == 0, -np.arange(7.0), -np.arange(7.0)]
    args[operand] = memory.view(np.bool_)[40:47] if operand == 0 else memory[6:13]
    want = np.where(*args)
    out = memory[4:18:2]
    run("where", *args, out)
    np.testing.assert_array_equal(out, want)


def test_narrow_floats_go_through_float32() -> None:
    x = np.linspace(-12, 8, 500).astype(np.float16)
    for name in ("sigmoid", "erf", "nn.silu", "nn.gelu", "nn.gelu_tanh"):
        want = reference(name, x.astype(np.float64))
        np.testing.assert_allclose(result(name, x), want, rtol=1e-3, atol=1e-7, err_msg=name)


def test_types_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.linspace(-2, 2, 9).astype(ml_dtypes.bfloat16)
    for name in ("sigmoid", "nn.gelu", "erf"):
        got = result(name, x)
        want = reference(name, x.astype(np.float64))
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=2**-8, err_msg=name)
    got = result("clip", x, -1, 0.5)
    assert got.astype(float).tolist() == [-1, -1, -1, -0.5, 0, 0.5, 0.5, 0.5, 0.5]


# Saturation


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_overflows_or_warns(dtype: Any) -> None:
    x = np.array([-np.inf, -1e4, -800, -90, 0, 90, 800, 1e4, np.inf], dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights = result("sigmoid", x)
        silu = result("nn.silu", x[1:])
        gelu = result("nn.gelu", x[1:])
        gelu_tanh = result("nn.gelu_tanh", x[1:-1])
    np.testing.assert_allclose(weights, [0, 0, 0, 0, 0.5, 1, 1, 1, 1], atol=1e-38)
    for got in (silu, gelu):
        np.testing.assert_allclose(got, [0, 0, 0, 0, 90, 800, 1e4, np.inf], atol=1e-35)
    np.testing.assert_allclose(gelu_tanh, [0, 0, 0, 0, 90, 800, 1e4], atol=1e-35)


def test_rsqrt_of_zero_is_reported_as_numpy_does() -> None:
    x = np.array([0, 4], np.float32)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="reciprocal"):
        result("rsqrt", x)
    with np.errstate(divide="ignore"):
        assert result("rsqrt", x).tolist() == [np.inf, 0.5]


def test_nan_stays_nan() -> None:
    x = np.array([np.nan, 1, np.nan], np.float32)
    for name in (*STEPPED, "relu", "sign", "floor", "round", "abs"):
        assert np.isnan(result(name, x)).tolist() == [True, False, True], name
    assert np.isnan(result("clip", x, 0, 1)).tolist() == [True, False, True]
    for name in ("maximum", "minimum", "add", "mod", "floor_mod"):
        for args in ((x, x[::-1].copy()), (x, 1), (1, x)):
            out = np.empty_like(x)
            run(name, *args, out)
            assert np.isnan(out).tolist() == [True, False, True], name


# Integers


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_division_of_integers(dtype: str) -> None:
    a, b = (np.array(each, dtype) for each in ([7, 7, -7, -7, 6, 0], [2, -2, 2, -2, -3, 5]))
    want = {
        "divide": [3, -3, -3, 3, -2, 0], "mod": [1, 1, -1, -1, 0, 0],
        "floor_divide": [3, -4, -4, 3, -2, 0], "floor_mod": [1, -1, 1, -1, 0, 0],
    }  # fmt: skip
    for name, expected in want.items():
        out = np.empty_like(a)
        run(name, a, b, out)
        assert out.tolist() == expected, name
        run(name, a, b, a_again := a.copy())
        np.testing.assert_array_equal(a_again, expected)
        run(name, a, 2, out)
        assert out[2] == {"divide": -3, "mod": -1, "floor_divide": -4, "floor_mod": 1}[name]


def test_division_of_many_integers() -> None:
    rng = np.random.default_rng(3)
    a = rng.integers(-(2**62), 2**62, (3, BLOCK), np.int64)
    b = rng.integers(1, 2**31, (3, 1)) * np.array([[1], [-1], [1]])
    out = np.empty_like(a)
    run("divide", a, b, out)
    for row, divisor, got in zip(a[:, :50], b[:, 0], out, strict=True):
        want = [int(abs(n) // abs(d)) * (1 if (n < 0) == (d < 0) else -1)
                for n, d in ((int(n), int(divisor)) for n in row)]  # fmt: skip
        assert got[:50].tolist() == want


def test_division_of_unsigned_integers_and_by_zero() -> None:
    out = np.empty(2, np.uint8)
    run("divide", np.array([255, 7], np.uint8), np.array([2, 9], np.uint8), out)
    assert out.tolist() == [127, 0]
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
        run("divide", np.array([1]), np.array([0]), np.empty(1, np.int64))


@pytest.mark.parametrize("name", ["floor", "ceil", "round", "trunc"])
@pytest.mark.parametrize("dtype", ["int8", "uint64", "bool"])
def test_integers_are_round(name: str, dtype: str) -> None:
    x = counts(5).astype(dtype)
    np.testing.assert_array_equal(result(name, x), x)


def test_round_takes_the_even_neighbour() -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
    assert result("round", x).tolist() == [-2, -2, 0, 0, 2, 2]


def test_functions_of_integers_and_bools() -> None:
    assert result("sign", np.array([-5, 0, 3], np.int8)).tolist() == [-1, 0, 1]
    assert result("square", np.array([-5, 3])).tolist() == [25, 9]
    assert result("bitwise_not", bools(8)).dtype == np.bool_
    out = np.empty(2, np.bool_)
    for name, want in (("isnan", False), ("isinf", False), ("isfinite", True)):
        run(name, np.array([1, 2]), out)
        assert out.tolist() == [want, want]
    run("logical_xor", np.array([True, False]), True, out)
    assert out.tolist() == [False, True]
    run("bitwise_xor", np.array([True, False]), np.array([True, True]), out)
    assert out.tolist() == [False, True]


# clip


@pytest.mark.parametrize(
    ("x", "low", "high", "want"),
    [
        (np.array([-5, 0, 5], np.int8), -1, 3, [-1, 0, 3]),
        (np.array([-5, 0, 5], np.int8), -1000, 3.9, [-5, 0, 3]),
        (np.array([0, 9], np.uint8), -1, 300, [0, 9]),
        (np.array([-5, 5]), float("-inf"), float("inf"), [-5, 5]),
        (np.array([-5.0, 5.0], np.float32), float("-inf"), 1, [-5, 1]),
        (np.array([-5.0, 5.0]), 10**400, 10**500, [np.inf, np.inf]),
        (np.array([1.0, 5.0]), 2, 1, [2, 2]),
        (np.zeros((0, 2)), 0, 1, []),
    ],
)
def test_clip(x: np.ndarray, low: Any, high: Any, want: list[float]) -> None:
    assert result("clip", x, low, high).tolist() == want


def test_bounds_of_clip_beyond_ml_dtypes() -> None:
    x = np.array([1.0, 5.0], pytest.importorskip("ml_dtypes").bfloat16)
    assert result("clip", x, 2, 1 << 70).tolist() == [2, 5]
    assert result("clip", x, -(1 << 70), 2).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((bools(2), 0, 1), TypeError, "clip: min: expected a number that goes with bool"),
        ((counts(2), float("nan"), 1), ValueError, "clip: min: expected a number within int64"),
        ((counts(2), 0, None), TypeError, "clip: max: expected a number that goes with int64"),
    ],
)
def test_clip_refuses(args: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        run("clip", *args, np.empty_like(args[0]))


# Data types


@pytest.mark.parametrize("name", STEPPED)
@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.complex64, np.longdouble, object])
def test_only_floats(name: str, dtype: Any) -> None:
    if np.dtype(dtype) == np.float64:  # a long double may be a double
        return
    x = np.ones(2, dtype)
    with pytest.raises(TypeError, match=rf"^{name}: expected floats, got x .*cast converts"):
        run(name, x, np.empty_like(x))


# ufunc_of


def test_ufunc_of_is_what_the_kernel_computes() -> None:
    found = {name: ufunc_of(PREFIX + name) for name in REGISTERED}
    plain = {name: ufunc for name, ufunc in found.items() if ufunc is not None}
    assert len(plain) > 50
    assert plain["add"] is np.add
    assert plain["remainder"] is plain["floor_mod"] is np.remainder
    for name, ufunc in plain.items():
        example = first(name)
        args = example.args
        out, want = (np.empty_like(example.wants[0]) for _ in range(2))
        run(name, *args, out)
        ufunc(*args, out=want)
        np.testing.assert_array_equal(out, want, err_msg=name)


@pytest.mark.parametrize("name", ["relu", "sigmoid", "clip", "where", "cast", "sum", "nonesuch"])
def test_ufunc_of_others_is_none(name: str) -> None:
    assert ufunc_of(PREFIX + name) is None
    assert ufunc_of(name) is None


def test_more_dimensions_than_numpy_broadcasts() -> None:
    for dtype in (np.float32, np.int64):
        a, b = np.ones((1,) * min(38, MAX_RANK - 2) + (2, 3), dtype), np.full((3,), 2, dtype)
        for other in (a, b):
            out = np.zeros(a.shape, dtype)
            relaxvm.get_func("relaxvm.kernel.add")(a, other, out)
            np.testing.assert_array_equal(out, a + other)
    with pytest.raises(ValueError, match="add: expected shapes that broadcast"):
        relaxvm.get_func("relaxvm.kernel.add")(a, np.ones(2, np.int64), out)
