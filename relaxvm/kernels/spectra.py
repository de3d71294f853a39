"""Linear algebra: orthogonal factors, singular values and eigenvalues of matrices.

As of `relaxvm.kernels.matrices`, LAPACK gets parts of large matrices alone.  Householder's
reflections are put together in panels; singular values and eigenvectors are found by Jacobi's
method, whose rotations turn blocks of columns.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import check_time
from ._kernel import kernel
from .checks import WrongValue, check_out, native
from .kinds import Flag, Floats, Out
from .matrices import (
    AT_ONCE,
    PANEL,
    check_matrices,
    each_matrix,
    expected_outs,
    failures,
    product,
)

__all__: list[str] = []

_BLOCK: Final = 128
"""Columns that a rotation turns are twice as many."""
_SWEEPS: Final = 40
"""Jacobi's method needs about 8."""
_ACCURACY: Final = 2**-6
"""Rotations end where what is left is this part of the accuracy of the result, for float32."""
_REFLECTED: Final = 1 << 24
"""Elements of a panel times its columns that LAPACK may reflect in one call."""

_FAILED: Final = "x: expected finite numbers, for which the method converges"


@kernel("linalg.qr")
def qr(x: Floats, complete: Flag, *outs: Out) -> None:
    """outs = q[..., m, k] and r[..., k, n], whose product is x[..., m, n]: the columns of q are
    orthogonal and of length 1, and r is upper triangular.  k is the lesser one of m and n, or m if
    complete.  16-bit floats are computed in float32."""
    q, r = expected_outs(outs, 2)
    check_matrices(x, is_square=False)
    m, n = x.shape[-2:]
    k = m if complete else min(m, n)
    check_out(q, native(x.dtype), (*x.shape[:-1], k))
    check_out(r, native(x.dtype), (*x.shape[:-2], k, n))
    mode: Any = "complete" if complete else "reduced"
    each_matrix(lambda a: np.linalg.qr(a, mode), lambda a: _reflected(a, k), [x], [q, r])


def _reflected(a: NDArray[Any], k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The first k columns of q, and r, for a matrix, which is written."""
    m, n = a.shape
    width = min(PANEL, max(1, int((_REFLECTED // m) ** 0.5)))
    panels = []
    for start in range(0, min(m, n), width):
        check_time()
        end = min(start + width, n)
        raw, tau = np.linalg.qr(a[start:, start:end], "raw")
        count = len(tau)
        vectors = np.tril(raw.T[:, :count], -1)
        vectors[range(count), range(count)] = 1
        a[start:, start:end] = np.triu(raw.T)
        factor = _together(vectors, tau)
        panels.append((start, vectors, factor))
        rest = a[start:, end:]
        rest -= product(vectors, factor.T @ product(vectors.T, rest))
    q = np.eye(m, k, dtype=a.dtype)
    for start, vectors, factor in reversed(panels):
        rest = q[start:, start:]
        rest -= product(vectors, factor @ product(vectors.T, rest))
    return q, np.triu(a[:k])


def _together(vectors: NDArray[Any], tau: NDArray[Any]) -> NDArray[Any]:
    """The T for which I - V T V.T is the product of reflections, as of LAPACK's larft."""
    count = len(tau)
    products = product(vectors.T, vectors)
    found = np.zeros((count, count), vectors.dtype)
    for i in range(count):
        found[:i, i] = -tau[i] * (found[:i, :i] @ products[:i, i])
        found[i, i] = tau[i]
    return found


@kernel("linalg.svd")
def svd(x: Floats, full: Flag, *outs: Out) -> None:
    """outs = u, s and vh, where u @ diag(s) @ vh is x[..., m, n]: s[..., k] are singular values,
    the greatest first, k the lesser one of m and n; the columns of u[..., m, k] and the rows of
    vh[..., k, n] are orthogonal and of length 1.  full: u[..., m, m] and vh[..., n, n] have further
    ones.  16-bit floats are computed in float32.  Raises ValueError if an element is infinite or
    NaN."""
    u, s, vh = expected_outs(outs, 3)
    check_matrices(x, is_square=False)
    m, n = x.shape[-2:]
    k = min(m, n)
    dtype, batch = native(x.dtype), x.shape[:-2]
    check_out(u, dtype, (*batch, m, m if full else k))
    check_out(s, dtype, (*batch, k))
    check_out(vh, dtype, (*batch, n if full else k, n))

    def at_once(a: NDArray[Any]) -> tuple[Any, Any, Any]:
        u, s, vh = np.linalg.svd(a, full_matrices=full)
        return u, s[..., np.newaxis], vh

    def large(a: NDArray[Any]) -> tuple[Any, Any, Any]:
        if not np.isfinite(a).all():
            raise np.linalg.LinAlgError
        if m < n:
            v, s, uh = _values(np.ascontiguousarray(a.T), full)
            return uh.T, s[:, np.newaxis], v.T
        u, s, vh = _values(a, full)
        return u, s[:, np.newaxis], vh

    with failures(_FAILED):
        each_matrix(at_once, large, [x], [u, s[..., np.newaxis], vh])


def _values(a: NDArray[Any], full: bool) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """u, s and vh of a matrix with at least as many rows as columns, which is written."""
    m, n = a.shape
    if n == 0:
        return np.eye(m, m if full else 0, dtype=a.dtype), np.empty(0, a.dtype), a[:0]
    q, r = _reflected(a, m if full else n)
    inner, s, vh = _turned(r[:n]) if n > AT_ONCE else np.linalg.svd(r[:n])
    q[:, :n] = product(q[:, :n], inner.astype(q.dtype, copy=False))
    return q, s, vh


def _pairs(count: int) -> Iterator[NDArray[Any]]:
    """The columns of all pairs of blocks, among `count` columns."""
    starts = range(0, count, _BLOCK)
    for i, j in itertools.combinations(starts, 2):
        yield np.r_[i : i + _BLOCK, j : min(j + _BLOCK, count)]


def _turned(a: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """u, s and vh of a square matrix, by rotations of its columns that make them orthogonal."""
    count, dtype = len(a), a.dtype
    scale = float(np.abs(a).max(initial=0)) or 1.0
    a = a.astype(np.float64) / scale
    bound = _bound(a, dtype)
    v = np.eye(count)
    for _ in range(_SWEEPS):
        changed = False
        for columns in _pairs(count):
            check_time()
            part = a[:, columns]
            cross = product(part[:, :_BLOCK].T, part[:, _BLOCK:])
            lengths = np.sqrt((part * part).sum(0))
            of_both = np.maximum(lengths[:_BLOCK, None], lengths[None, _BLOCK:])
            if (np.abs(cross) <= bound * of_both).all():
                continue
            changed = True
            _, r = np.linalg.qr(part)
            turn = np.linalg.svd(r)[2].T
            a[:, columns] = product(part, turn)
            v[:, columns] = product(v[:, columns], turn)
        if not changed:
            break
    else:
        raise np.linalg.LinAlgError
    order = np.argsort(-np.sqrt((a * a).sum(0)), kind="stable")
    u, r = _reflected(a[:, order], count)  # r is diagonal, but for rounding
    diagonal = np.diagonal(r)
    u *= np.where(diagonal < 0, -1, 1)
    s = np.abs(diagonal)
    again = np.argsort(-s, kind="stable")
    return u[:, again].astype(dtype), s[again] * scale, v[:, order].T[again]


def _bound(a: NDArray[Any], dtype: np.dtype[Any]) -> float:
    """How far from 0 may be what rotations make 0, for results of a data type."""
    least = max(np.finfo(a.dtype).eps * len(a), np.finfo(dtype).eps * _ACCURACY)
    return float(np.linalg.norm(a) * least)


@kernel("linalg.eigh")
def eigh(x: Floats, *outs: Out) -> None:
    """outs = w and v: w[..., n] are the eigenvalues of symmetric matrices x[..., n, n], the least
    first, and the columns of v[..., n, n] their eigenvectors, of length 1.  The lower triangles are
    used.  16-bit floats are computed in float32.  Raises ValueError if an element is infinite or
    NaN."""
    w, v = expected_outs(outs, 2)
    check_matrices(x)
    check_out(w, native(x.dtype), x.shape[:-1])
    check_out(v, native(x.dtype), x.shape)

    def at_once(a: NDArray[Any]) -> tuple[Any, Any]:
        w, v = np.linalg.eigh(a)
        return w[..., np.newaxis], v

    with failures(_FAILED):
        each_matrix(at_once, _rotated, [x], [w[..., np.newaxis], v])


def _rotated(a: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Eigenvalues and eigenvectors by rotations from both sides that make a matrix diagonal."""
    if not np.isfinite(a).all():
        raise np.linalg.LinAlgError
    count, dtype = len(a), a.dtype
    a = np.tril(a).astype(np.float64)
    a += np.tril(a, -1).T
    bound = _bound(a, dtype)
    v = np.eye(count)
    for _ in range(_SWEEPS):
        changed = False
        for columns in _pairs(count):
            check_time()
            part = a[np.ix_(columns, columns)]
            if np.linalg.norm(part[:_BLOCK, _BLOCK:]) <= bound:
                continue
            changed = True
            turn = np.linalg.eigh(part)[1]
            a[:, columns] = product(a[:, columns], turn)
            a[columns] = product(np.ascontiguousarray(turn.T), a[columns])
            v[:, columns] = product(v[:, columns], turn)
        if not changed:
            break
    else:
        raise np.linalg.LinAlgError
    for start in range(0, count, _BLOCK):  # the blocks of the diagonal by themselves
        check_time()
        end = start + _BLOCK
        values, turn = np.linalg.eigh(a[start:end, start:end])
        a[range(start, start + len(values)), range(start, start + len(values))] = values
        v[:, start:end] = product(v[:, start:end], turn)
    w = np.diagonal(a)
    order = np.argsort(w, kind="stable")
    return w[order, np.newaxis], v[:, order]


@kernel("linalg.eig")
def eig(x: Floats, *outs: Out) -> None:
    """outs = w and v: w[..., n, 2] are the eigenvalues of matrices x[..., n, n], with real and
    imaginary parts, and the columns of v[..., n, n, 2] their eigenvectors, of length 1.  n is at
    most 512.  16-bit floats are computed in float32.  Raises ValueError if an element is infinite
    or NaN."""
    w, v = expected_outs(outs, 2)
    check_matrices(x)
    if x.shape[-1] > AT_ONCE:
        raise WrongValue(f"x: expected matrices of at most {AT_ONCE} rows, got {describe(x)}")
    check_out(w, native(x.dtype), (*x.shape[:-1], 2))
    check_out(v, native(x.dtype), (*x.shape, 2))
    n = x.shape[-1]
    flat = v.reshape(*x.shape[:-1], 2 * n) if v.flags.c_contiguous else np.empty_like(v).reshape(
        *x.shape[:-1], 2 * n
    )  # fmt: skip

    def at_once(a: NDArray[Any]) -> tuple[Any, Any]:
        values, vectors = np.linalg.eig(a)
        both = [np.stack([each.real, each.imag], -1) for each in (values, vectors)]
        return both[0], both[1].reshape(*a.shape[:-1], 2 * n)

    with failures(_FAILED):
        each_matrix(at_once, at_once, [x], [w, flat])
    if not v.flags.c_contiguous:
        v[...] = flat.reshape(v.shape)
