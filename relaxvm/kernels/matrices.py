"""Linear algebra: determinants, systems of equations, and triangular factors of matrices.

LAPACK takes matrices of at most 512 rows in one call, which nothing interrupts.  Larger ones are
computed panel by panel, with a look at the time in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import check_time
from ._arrays import copy_if_overlapping
from ._blocks import row_blocks
from ._kernel import kernel
from .checks import WrongValue, check_out, native, working_dtype
from .kinds import Flag, Floats, Out

__all__ = [
    "AT_ONCE",
    "PANEL",
    "check_matrices",
    "each_matrix",
    "expected_outs",
    "failures",
    "product",
]

AT_ONCE: Final = 512
"""Rows of a matrix that LAPACK may take in one call."""
PANEL: Final = 64
"""Columns that are eliminated together."""
_PRODUCTS: Final = 1 << 28
"""Multiplications between two looks at the time."""

_INT32: Final = np.dtype(np.int32)


def check_matrices(x: NDArray[Any], name: str = "x", *, is_square: bool = True) -> None:
    """Raise `WrongValue` if a tensor has no matrices, or none that are square."""
    if x.ndim < 2 or (is_square and x.shape[-1] != x.shape[-2]):
        kind = "square matrices [..., n, n]" if is_square else "matrices [..., m, n]"
        raise WrongValue(f"{name}: expected {kind}, got {describe(x)}")


def expected_outs(outs: Sequence[NDArray[Any]], count: int) -> Sequence[NDArray[Any]]:
    """The outputs; raises `WrongValue` if there are more or fewer than `count`."""
    if len(outs) != count:
        raise WrongValue(f"expected {count} outs, got {len(outs)}")
    return outs


@contextmanager
def failures(text: str) -> Iterator[None]:
    """Raise `WrongValue` with a text where LAPACK finds no result."""
    try:
        yield
    except np.linalg.LinAlgError:
        raise WrongValue(text) from None


def product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """a @ b of matrices, some rows at a time, with a look at the time before each part."""
    out = np.empty((a.shape[0], b.shape[1]), a.dtype)
    step = max(1, _PRODUCTS // max(b.size, 1))
    for row in range(0, len(a), step):
        check_time()
        np.matmul(a[row : row + step], b, out=out[row : row + step])
    return out


def each_matrix(
    at_once: Callable[..., Any],
    large: Callable[..., Any],
    operands: list[NDArray[Any]],
    outs: list[NDArray[Any]],
) -> None:
    """Compute outs, matrix by matrix.

    Args:
        at_once: takes blocks of matrices in the data type that they are computed in, and returns a
            result for each of outs.
        large: the same for a single matrix of any size; the arguments are copies.
        operands: tensors ``[..., m, n]``; the first decides which function is taken.
        outs: their leading axes are those of the operands, and two more follow.
    """
    dtype = working_dtype(native(operands[0].dtype))
    for out in outs:
        operands = [copy_if_overlapping(x, out) for x in operands]
    if max(operands[0].shape[-2:]) > AT_ONCE:
        for index in np.ndindex(operands[0].shape[:-2]):
            found = large(*[np.array(x[index], dtype) for x in operands])
            for out, result in zip(outs, found, strict=True):
                out[index] = result
        return
    count = len(operands)
    if 0 in operands[0].shape[:-2]:
        return
    for blocks in row_blocks(*operands, *outs, row=2):
        found = at_once(*[x.astype(dtype, copy=False) for x in blocks[:count]])
        for out, result in zip(blocks[count:], found, strict=True):
            out[...] = result


# Elimination


@kernel("det")
def det(x: Floats, out: Out) -> None:
    """out = the determinants of matrices x[..., n, n]; 1 for n = 0.  16-bit floats are computed in
    float32.  A copy of each matrix with more than 512 rows is made."""
    check_matrices(x)
    check_out(out, native(x.dtype), x.shape[:-2])
    written = out[..., np.newaxis, np.newaxis]
    each_matrix(
        lambda a: [np.linalg.det(a)[..., np.newaxis, np.newaxis]],
        lambda a: [_determinant(a)],
        [x],
        [written],
    )


def _determinant(rows: NDArray[Any]) -> Any:
    """The determinant of a matrix, which is written."""
    pivots = _eliminate(rows)
    diagonal = np.diagonal(rows).astype(np.float64)
    swaps = int((pivots != np.arange(len(pivots))).sum())
    sign = math.prod(np.sign(diagonal).tolist()) * (-1) ** swaps
    if sign == 0:
        return 0.0
    with np.errstate(over="ignore"):
        return sign * np.exp(np.log(np.abs(diagonal)).sum())


def _eliminate(rows: NDArray[Any]) -> NDArray[Any]:
    """Gaussian elimination with pivots, in place: the factors of a matrix, L below the diagonal
    and U above, and for each column the row that it is swapped with."""
    count, columns = rows.shape
    steps = min(count, columns)
    pivots = np.arange(steps)
    for start in range(0, steps, PANEL):
        end = min(start + PANEL, steps)
        for j in range(start, end):
            check_time()
            pivot = j + int(np.argmax(np.abs(rows[j:, j])))
            pivots[j] = pivot
            if pivot != j:
                rows[[j, pivot]] = rows[[pivot, j]]
            if rows[j, j] == 0:
                continue
            rows[j + 1 :, j] /= rows[j, j]
            rows[j + 1 :, j + 1 : end] -= np.outer(rows[j + 1 :, j], rows[j, j + 1 : end])
        for j in range(start + 1, end):
            rows[j, end:] -= rows[j, start:j] @ rows[start:j, end:]
        if end < min(count, columns) or end < columns:
            rows[end:, end:] -= product(rows[end:, start:end], rows[start:end, end:])
    return pivots


@kernel("linalg.lu")
def lu(x: Floats, *outs: Out) -> None:
    """outs = the factors of matrices x[..., m, n] in one matrix, U on and above the diagonal, and
    L, whose diagonal has ones, below; and pivots[..., min(m, n)], int32: the row that each row was
    swapped with, one after the other, counted from 1, as of LAPACK's getrf.  16-bit floats are
    computed in float32."""
    out, pivots = expected_outs(outs, 2)
    check_matrices(x, is_square=False)
    steps = min(x.shape[-2:])
    check_out(out, native(x.dtype), x.shape)
    check_out(pivots, _INT32, (*x.shape[:-2], steps))
    dtype = working_dtype(native(x.dtype))
    for each in outs:
        x = copy_if_overlapping(x, each)
    for index in np.ndindex(x.shape[:-2]):
        check_time()
        rows = np.array(x[index], dtype)
        found = _eliminate(rows)
        out[index] = rows
        pivots[index] = found + 1


@kernel("linalg.solve")
def solve(a: Floats, b: Floats, out: Out) -> None:
    """out[..., n, k] = the x for which a @ x is b, for matrices a[..., n, n] and b[..., n, k].
    Raises ValueError if a matrix is singular.  16-bit floats are computed in float32."""
    check_matrices(a, "a")
    _check_right(a, b)
    check_out(out, native(a.dtype), b.shape)
    with failures("a: expected matrices with an inverse, got a singular one"):
        each_matrix(lambda a, b: [np.linalg.solve(a, b)], _solve_large, [a, b], [out])


def _check_right(a: NDArray[Any], b: NDArray[Any]) -> None:
    if b.ndim < 2 or b.shape[:-1] != a.shape[:-1]:
        raise WrongValue(
            f"b: expected as many rows and matrices as of a, {describe(a)}, got {describe(b)}"
        )


def _solve_large(a: NDArray[Any], b: NDArray[Any]) -> list[NDArray[Any]]:
    pivots = _eliminate(a)
    if not np.diagonal(a).all():
        raise np.linalg.LinAlgError
    for i, pivot in enumerate(pivots.tolist()):
        if i != pivot:
            b[[i, pivot]] = b[[pivot, i]]
    _substitute(a, b, is_upper=False, is_unit=True)
    _substitute(a, b, is_upper=True, is_unit=False)
    return [b]


def _substitute(a: NDArray[Any], b: NDArray[Any], *, is_upper: bool, is_unit: bool) -> None:
    """Solve a triangular system in place of b, block by block."""
    starts = range(0, len(a), PANEL)
    for start in reversed(starts) if is_upper else starts:
        end = start + PANEL
        block = _triangle(a[start:end, start:end], is_upper=is_upper, is_unit=is_unit)
        check_time()
        b[start:end] = np.linalg.solve(block, b[start:end])
        if is_upper:
            b[:start] -= product(a[:start, start:end], b[start:end])
        else:
            b[end:] -= product(a[end:, start:end], b[start:end])


def _triangle(a: NDArray[Any], *, is_upper: bool, is_unit: bool) -> NDArray[Any]:
    """A triangle of matrices, and zeros; with ones along the diagonal, if asked."""
    found = np.triu(a) if is_upper else np.tril(a)
    if is_unit:
        places = range(a.shape[-1])
        found[..., places, places] = 1
    return found


@kernel("linalg.solve_triangular")
def solve_triangular(a: Floats, b: Floats, upper: Flag, unit: Flag, out: Out) -> None:
    """As `linalg.solve` for the upper triangles of matrices a, or the lower ones; the elements on
    the other side are not used.  unit: ones stand for the elements of the diagonal.  A 0 on the
    diagonal gives infinite elements and NaN."""
    check_matrices(a, "a")
    _check_right(a, b)
    check_out(out, native(a.dtype), b.shape)

    def at_once(a: NDArray[Any], b: NDArray[Any]) -> list[NDArray[Any]]:
        return [_by_rows(_triangle(a, is_upper=upper, is_unit=unit), b.copy(), upper)]

    def large(a: NDArray[Any], b: NDArray[Any]) -> list[NDArray[Any]]:
        if not unit and not np.diagonal(a).all():
            return at_once(a, b)
        _substitute(a, b, is_upper=upper, is_unit=unit)
        return [b]

    each_matrix(at_once, large, [a, b], [out])


def _by_rows(a: NDArray[Any], b: NDArray[Any], is_upper: bool) -> NDArray[Any]:
    """The solution of triangular systems, a row at a time, in place of b."""
    count = a.shape[-1]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for i in range(count - 1, -1, -1) if is_upper else range(count):
            if i % PANEL == 0:
                check_time()
            others = slice(i + 1, count) if is_upper else slice(0, i)
            rest = a[..., i : i + 1, others] @ b[..., others, :]
            b[..., i, :] = (b[..., i, :] - rest[..., 0, :]) / a[..., i, i, np.newaxis]
    return b


@kernel("linalg.cholesky")
def cholesky(x: Floats, out: Out) -> None:
    """out[..., n, n] = the lower triangular factors L of symmetric matrices x[..., n, n], which are
    L @ L.T; their lower triangles are used.  Raises ValueError if a matrix is not positive
    definite.  16-bit floats are computed in float32."""
    check_matrices(x)
    check_out(out, native(x.dtype), x.shape)
    with failures("x: expected positive definite matrices"):
        each_matrix(lambda a: [np.linalg.cholesky(a)], _cholesky_large, [x], [out])


def _cholesky_large(a: NDArray[Any]) -> list[NDArray[Any]]:
    for start in range(0, len(a), PANEL):
        end = start + PANEL
        check_time()
        factor = np.linalg.cholesky(a[start:end, start:end])
        a[start:end, start:end] = factor
        below = np.linalg.solve(factor, a[end:, start:end].T).T
        a[end:, start:end] = below
        a[end:, end:] -= product(below, below.T)
    return [np.tril(a)]
