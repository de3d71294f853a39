"""Special functions and other kernels of rare operators: values of tables, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.errors import RelaxVMError


def run(name: str, *args: Any, results: str) -> Any:
    return relaxvm.get_func(f"relaxvm.result.{name}")(*args, None, results)


def special(function: str, *operands: Any, dtype: str = "f8") -> Any:
    arrays = [np.asarray(each, dtype) for each in operands]
    return run("special", *arrays, function, results=arrays[0].dtype.name)


def ai(x: float) -> float:
    """The integral of cos(t^3 / 3 + x t) on the line t = s + i * a, where it falls off."""
    shift = 2.0 if x > 0 else 0.5
    s = np.linspace(-12, 12, 40001)
    t = s + 1j * shift
    f = np.exp(1j * (t**3 / 3 + x * t))
    return float((f[:-1] + f[1:]).sum().real * (s[1] - s[0]) / 2 / (2 * math.pi))


@pytest.mark.parametrize("x", [-12.0, -6.0, -5.4, -1.0, 0.0, 0.5, 4.0, 5.4, 5.6, 7.0])
def test_airy_is_its_integral(x: float) -> None:
    got = float(special("airy_ai", [x])[0])
    assert got == pytest.approx(ai(x), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("a", [0.5, 1.0, 3.0, 20.0, 700.0])
@pytest.mark.parametrize("factor", [0.2, 0.9, 1.1, 3.0])
def test_incomplete_gamma_functions_are_integrals(a: float, factor: float) -> None:
    """By the substitution t = exp(u), with the trapezoidal rule, which is exact on the line."""
    x = a * factor
    u = np.linspace(-60, 8, 2_000_001)
    density = np.exp(a * u - np.exp(u) - math.lgamma(a)) * (u[1] - u[0])
    lower = density[u < math.log(x)].sum()
    assert special("igamma", [a], [x])[0] == pytest.approx(lower, abs=1e-4)
    both = special("igamma", [a], [x]) + special("igammac", [a], [x])
    assert both[0] == pytest.approx(1, abs=1e-12)


def test_incomplete_gamma_functions_of_whole_numbers() -> None:
    """Sums of Poisson's distribution; of a large parameter the normal distribution."""
    for a in (1, 4, 30):
        x = 0.7 * a
        tail = sum(math.exp(k * math.log(x) - x - math.lgamma(k + 1)) for k in range(a))
        assert special("igammac", [a], [x])[0] == pytest.approx(tail, rel=1e-12)
    got = special("igamma", [4e6] * 3, [4e6 - 2000, 4e6, 4e6 + 2000])
    np.testing.assert_allclose(got, [0.158655, 0.5, 0.841345], atol=1e-3)
    ends = special("igamma", [0, 0, 2, -1, 2, math.inf], [0, 1, 0, 1, math.inf, 1])
    np.testing.assert_array_equal(ends, [math.nan, 1, 0, math.nan, 1, 0])


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("hermite_h", lambda x: [1, 2 * x, 4 * x**2 - 2, 8 * x**3 - 12 * x]),
        ("hermite_he", lambda x: [1, x, x**2 - 1, x**3 - 3 * x]),
        ("laguerre_l", lambda x: [1, 1 - x, 1 - 2 * x + x**2 / 2,
                                  1 - 3 * x + 1.5 * x**2 - x**3 / 6]),
        ("legendre_p", lambda x: [1, x, 1.5 * x**2 - 0.5, 2.5 * x**3 - 1.5 * x]),
    ],
)  # fmt: skip
def test_polynomials(name: str, rows: Any) -> None:
    x = np.array([-1.5, 0.0, 0.25, 3.0])
    got = special(name, x, [[-1.0], [0], [1], [2], [3.9]])
    np.testing.assert_allclose(got[0], 0)
    for i, row in enumerate(rows(x)):
        np.testing.assert_allclose(got[1 + i], np.broadcast_to(row, x.shape), atol=1e-12)


def test_segments_beside_slices() -> None:
    x = np.arange(24.0).reshape(2, 4, 3)
    got = run("segment_reduce", x, np.array([[1, 0, 3], [2, 2, 0]]), "max", -5, results="float64")
    np.testing.assert_array_equal(got[0], [x[0, 0], [-5] * 3, x[0, 1:].max(0)])
    np.testing.assert_array_equal(got[1], [x[1, :2].max(0), x[1, 2:].max(0), [-5] * 3])


def test_bits() -> None:
    assert run("xor_sum", np.array([6, 3, 8]), (0,), 0, results="uint64") == 13
    x = np.array([[1.5, -2.0]], "f4")
    want = x.astype("f8").view("u8")
    np.testing.assert_array_equal(run("xor_sum", x, (0,), 1, results="uint64"), want)
    mantissa, exponent = run("frexp", np.array([0.0, -6, math.inf], "f2"), results="float16,int32")
    np.testing.assert_array_equal(mantissa, np.array([0, -0.75, math.inf], "f2"))
    assert exponent.tolist()[:2] == [0, 3]


IMAGE = np.zeros((1, 2, 6, 5), "f4")


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("special", (np.ones(2, "i8"), "airy_ai"), "special: airy_ai: expected floats"),
        ("special", (np.ones(2), np.ones(2), "gcd"), "special: gcd: expected integers"),
        ("special", (np.ones(2), np.ones(2), "airy_ai"), "special: airy_ai: expected 1 tensors"),
        ("special", (np.ones(2), "igamma"), "special: igamma: expected 2 tensors, got 1"),
        ("special", (np.ones(2), np.ones(3), "igamma"), "special: expected shapes that broadcast"),
        ("special", (np.ones(2), "sinc"), "special: function: expected 'airy_ai' or"),
        ("special", (np.ones(1), np.full(1, 1e9), "legendre_p"),
         "special: expected degrees of at most 1048576, got 1e\\+09"),
        ("segment_reduce", (np.ones(3), np.array([2, 2]), "sum", None),
         "segment_reduce: lengths: expected sums of at most 3 numbers"),
        ("segment_reduce", (np.ones(3), np.array([-1, 2]), "sum", None),
         "segment_reduce: lengths: expected sums"),
        ("segment_reduce", (np.ones((3, 2)), np.ones((2, 1), "i8"), "sum", None),
         "segment_reduce: lengths: expected the shape of x up to the axis"),
        ("xor_sum", (np.ones(2, "c8"), (0,), 0), "xor_sum: x: expected numbers"),
        ("nn.fractional_max_pool", (IMAGE, np.zeros((1, 2, 2), "f4"), (3, 3), (5, 2)),
         r"nn.fractional_max_pool: output_size: expected windows \[3, 3\]"),
        ("nn.fractional_max_pool", (IMAGE, np.zeros((1, 2, 3), "f4"), (3, 3), (2, 2)),
         r"nn.fractional_max_pool: expected x\[batch"),
        ("nn.fractional_max_pool", (IMAGE, np.full((1, 2, 2), 2, "f4"), (3, 3), (2, 2)),
         "nn.fractional_max_pool: samples: expected numbers from 0 to 1"),
        ("vision.ps_roi_pool", (IMAGE, np.zeros((1, 5), "f4"), (2, 2), 1.0),
         "vision.ps_roi_pool: x: expected a multiple of 4 channels"),
    ],
)  # fmt: skip
def test_what_is_refused(name: str, args: tuple[Any, ...], message: str) -> None:
    count = 2 if name in ("nn.fractional_max_pool", "frexp") else 1
    dtype = "uint64" if name == "xor_sum" else args[0].dtype.name
    results = ",".join([dtype, "int64"][:count])
    with pytest.raises((TypeError, ValueError, RelaxVMError), match=message):
        run(name, *args, results=results)
