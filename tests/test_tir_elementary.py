"""exp and similar functions in float32: accurate, and bit for bit the same in C and in Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from relaxvm import ir, tir
from relaxvm.native.toolchain import compiler
from relaxvm.tir.build import compile_prim_func
from relaxvm.tir.lower_c import c_source
from relaxvm.tir.normalize import normalize

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs a C compiler")

_erf = np.vectorize(math.erf)
EXACT: dict[str, Any] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": _erf,
}

SPECIAL = np.array(
    [0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x00000001,
     0x80000001, 0x00800000, 0x007FFFFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000, 0xBF800000],
    "uint32",
)  # fmt: skip
BITS = np.concatenate([SPECIAL, np.arange(0, 2**32, 20011, dtype="uint64").astype("uint32")])
VALUES = BITS.view("float32")
"""Floats of all sizes."""


def function(name: str, dtype: str) -> tir.PrimFunc:
    n, i = ir.Var("n", "int64"), ir.Var("i", "int64")
    A, B = (tir.decl_buffer((n,), dtype, name) for name in "AB")
    store = tir.BufferStore(B, getattr(tir, name)(A[i]), [i])
    return tir.PrimFunc([A, B], tir.For(i, 0, n, 0, store))


def results(name: str, values: Any, prefer: Any) -> Any:
    out = np.empty_like(values)
    compile_prim_func(function(name, values.dtype.name), name, prefer=prefer)(values, out)
    return out


@pytest.mark.parametrize("name", EXACT)
def test_values(name: str) -> None:
    got = results(name, VALUES, "python")
    with np.errstate(all="ignore"):
        exact = EXACT[name](VALUES.astype("float64"))
        expected = exact.astype("float32")
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    kept = ~np.isnan(expected)
    got, exact, expected = got[kept], exact[kept], expected[kept]
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))
    finite = np.isfinite(expected)
    got, exact, expected = got[finite], exact[finite], expected[finite]
    errors = np.abs(got - exact) / np.spacing(np.abs(expected)).astype("float64")
    assert errors.max() < 2.5


@needs_compiler
@pytest.mark.parametrize("name", EXACT)
def test_c_and_python_are_equal_bit_for_bit(name: str) -> None:
    # A C compiler makes different code for the end of a row.
    for values in (VALUES, VALUES[:1], VALUES[3:20]):
        a, b = results(name, values, "c"), results(name, values, "python")
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        numbers = ~np.isnan(a)
        np.testing.assert_array_equal(a[numbers].view("uint32"), b[numbers].view("uint32"))


@needs_compiler
@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_floats(name: str, dtype: str) -> None:
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    values = np.arange(2**16, dtype="uint16").view(dtype)
    a, b = results(name, values, "c"), results(name, values, "python")
    assert a.dtype == b.dtype == dtype
    np.testing.assert_array_equal(a.astype("float32"), b.astype("float32"))


@needs_compiler
def test_float64_uses_the_library_functions() -> None:
    values = np.linspace(0.1, 3)
    for name, exact in EXACT.items():
        for prefer in ("c", "python"):
            np.testing.assert_allclose(results(name, values, prefer), exact(values), rtol=1e-14)


def test_a_text_contains_only_the_functions_that_it_calls() -> None:
    text = c_source([normalize(function("tanh", "float32"), "f")])
    for name in ("scaled", "exp_float32", "signed_as", "tanh_float32"):
        assert text.count(f"float {name}(") == 1
    assert "erf_float32" not in text
    assert "exp_float32" not in c_source([normalize(function("exp", "float64"), "f")])
