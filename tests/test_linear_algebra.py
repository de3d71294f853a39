"""Matrices above the size that LAPACK gets in one call, and those that have no result."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.kernels import matrices, spectra

AT_ONCE = 40
LARGE = AT_ONCE + 30


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a size that LAPACK may get in one call are small here, so that tests are short."""
    for module in (matrices, spectra):
        monkeypatch.setattr(module, "AT_ONCE", AT_ONCE)
        monkeypatch.setattr(module, "PANEL", 8)
    monkeypatch.setattr(spectra, "_BLOCK", 16)


def kernel(name: str) -> Any:
    return relaxvm.get_func(f"relaxvm.kernel.linalg.{name}")


def drawn(kind: str, rows: int, columns: int, dtype: str = "f4") -> np.ndarray:
    rng = np.random.default_rng(rows)
    if kind == "zeros":
        return np.zeros((rows, columns), dtype)
    inner = 3 if kind == "low rank" else max(rows, columns)
    found = rng.standard_normal((rows, inner)) @ rng.standard_normal((inner, columns))
    return (found / inner).astype(dtype)


def check_orthogonal(q: Any, within: float) -> None:
    np.testing.assert_allclose(q.T @ q, np.eye(q.shape[1]), atol=within)


KINDS = ["full rank", "low rank", "zeros"]
SHAPES = [(LARGE, LARGE), (LARGE, 20), (20, LARGE), (2 * LARGE, LARGE)]


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("complete", [False, True])
def test_orthogonal_and_triangular_factors(
    kind: str, rows: int, columns: int, complete: bool
) -> None:
    x = drawn(kind, rows, columns)
    k = rows if complete else min(rows, columns)
    q, r = np.empty((rows, k), "f4"), np.empty((k, columns), "f4")
    kernel("qr")(x, int(complete), q, r)
    np.testing.assert_allclose(q @ r, x, atol=1e-4)
    check_orthogonal(q, 1e-4)
    np.testing.assert_array_equal(r, np.triu(r))


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_singular_values(kind: str, rows: int, columns: int) -> None:
    x = drawn(kind, rows, columns)
    k = min(rows, columns)
    for full in (0, 1):
        u = np.empty((rows, rows if full else k), "f4")
        s, vh = np.empty(k, "f4"), np.empty((columns if full else k, columns), "f4")
        kernel("svd")(x, full, u, s, vh)
        np.testing.assert_allclose(u[:, :k] * s @ vh[:k], x, atol=1e-4)
        check_orthogonal(u, 1e-4)
        check_orthogonal(vh.T, 1e-4)
        wanted = np.linalg.svd(x.astype("f8"), compute_uv=False)
        np.testing.assert_allclose(s, wanted, atol=1e-5 * max(wanted[0], 1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "within"), [("f4", 1e-4), ("f8", 1e-11)])
def test_eigenvalues(kind: str, dtype: str, within: float) -> None:
    x = drawn(kind, LARGE, LARGE, dtype)
    whole = np.tril(x) + np.tril(x, -1).T
    w, v = np.empty(LARGE, dtype), np.empty((LARGE, LARGE), dtype)
    kernel("eigh")(x, w, v)
    np.testing.assert_allclose(v * w @ v.T, whole, atol=within)
    check_orthogonal(v, within)
    np.testing.assert_allclose(w, np.linalg.eigvalsh(whole), atol=within)


def test_systems_of_equations() -> None:
    a = drawn("full rank", LARGE, LARGE, "f8") + np.eye(LARGE)
    b = drawn("full rank", LARGE, 5, "f8")
    out, factors = np.empty_like(b), np.empty_like(a)
    kernel("solve")(a, b, out)
    np.testing.assert_allclose(a @ out, b, atol=1e-9)
    for upper in (0, 1):
        for unit in (0, 1):
            triangle = (np.triu if upper else np.tril)(a, 0)
            if unit:
                np.fill_diagonal(triangle, 1)
            kernel("solve_triangular")(a, b, upper, unit, out)
            np.testing.assert_allclose(triangle @ out, b, atol=1e-8)
    kernel("cholesky")(a @ a.T + np.eye(LARGE), factors)
    np.testing.assert_allclose(factors @ factors.T, a @ a.T + np.eye(LARGE), atol=1e-9)
    pivots = np.empty(LARGE, "i4")
    kernel("lu")(a, factors, pivots)
    found = (np.tril(factors, -1) + np.eye(LARGE)) @ np.triu(factors)
    for i in reversed(range(LARGE)):
        found[[i, pivots[i] - 1]] = found[[pivots[i] - 1, i]]
    np.testing.assert_allclose(found, a, atol=1e-9)
    det = np.empty((), "f8")
    relaxvm.get_func("relaxvm.kernel.det")(a, det)
    np.testing.assert_allclose(det, np.linalg.det(a), rtol=1e-6)


@pytest.mark.parametrize("size", [4, LARGE])
def test_no_result(size: int) -> None:
    zeros, bad = np.zeros((size, size), "f4"), np.full((size, size), np.nan, "f4")
    out, vector = np.empty((size, size), "f4"), np.empty(size, "f4")
    for name, args, message in (
        ("solve", (zeros, zeros, out), "a: expected matrices with an inverse, got a singular one"),
        ("cholesky", (zeros - 1, out), "x: expected positive definite matrices"),
        ("svd", (bad, 0, out, vector, out.copy()), "x: expected finite numbers, for which"),
    ):
        with pytest.raises(ValueError, match=re.escape(f"linalg.{name}: {message}")):
            kernel(name)(*args)
    if size == LARGE:
        with pytest.raises(ValueError, match=r"linalg\.eigh: x: expected finite numbers"):
            kernel("eigh")(bad, vector, out)
        with pytest.raises(ValueError, match=f"expected matrices of at most {AT_ONCE} rows"):
            kernel("eig")(out, out, out)


def test_wrong_shapes() -> None:
    x, out = np.ones((2, 3), "f4"), np.empty((2, 2), "f4")
    with pytest.raises(ValueError, match=r"linalg\.cholesky: x: expected square matrices"):
        kernel("cholesky")(x, out)
    with pytest.raises(ValueError, match=r"linalg\.qr: expected 2 outs, got 1"):
        kernel("qr")(x, 0, out)
    with pytest.raises(ValueError, match=r"linalg\.solve: b: expected as many rows and matrices"):
        kernel("solve")(out, np.ones((3, 2), "f4"), out)
    with pytest.raises(ValueError, match=r"linalg\.lu: out: expected int32\[2\]"):
        kernel("lu")(x, np.empty_like(x), np.empty(2, "i8"))
    with pytest.raises(ValueError, match=r"linalg\.svd: x: expected matrices \[\.\.\., m, n\]"):
        kernel("svd")(np.ones(3, "f4"), 0, out, out, out)
