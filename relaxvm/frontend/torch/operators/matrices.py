"""Linear algebra.

Matrices that have no result, such as singular ones of `linalg_solve`, raise an error; where PyTorch
returns a tensor `info` about them, it is 0 for all that have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ....ir import TensorType, TupleType
from ...common.emitter import Emitter, Problem
from ..forms import (
    Tensor,
    axis_of,
    broadcast_dims,
    cast,
    dims_of,
    dtype_of,
    each_of,
    is_float,
    items,
    known,
    length,
    number,
    numel,
    rank_of,
    reshaped,
    same_dim,
    sliced,
    tensor_type,
)
from ..pairs import Pair, complex_op
from ..registry import aten
from .products import product
from .reductions import vector_norm
from .shapes import diagonal, expand, moved, permuted, swapped

__all__ = ["singular_values"]

_Dims = Sequence[Any]


def _kernel(c: Emitter, name: str, inputs: list[Any], *results: tuple[_Dims, str]) -> list[Any]:
    """The results of a kernel, each of some dimensions and a data type."""
    types = [tensor_type(dims, dtype) for dims, dtype in results]
    text = ",".join(dtype for _, dtype in results)
    given = [c.expr(each) if not isinstance(each, int) else each for each in inputs]
    if len(types) == 1:
        return [c.run(name, given, types[0], text)]
    return items(c, c.run(name, given, TupleType(types), text))


def _info(c: Emitter, x: Tensor) -> Tensor:
    return c.op("zeros", dims_of(x)[:-2], "int32")


def _turned(c: Emitter, x: Tensor) -> Tensor:
    """The transposed matrices."""
    return swapped(c, x, rank_of(x) - 2, rank_of(x) - 1)


def _eye(c: Emitter, like: Tensor) -> Tensor:
    """Unit matrices of the shape of other matrices."""
    dims = dims_of(like)
    return expand(c, c.op("eye", dims[-1], dims[-1], 0, dtype_of(like)), dims)


def _floats(c: Emitter, x: Tensor, what: str = "matrices") -> Tensor:
    if not is_float(dtype_of(x)):
        raise Problem(f"{what}: expected floats, got {dtype_of(x)}")
    return x


def _together(c: Emitter, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices with the same leading axes."""
    batch = broadcast_dims(dims_of(a)[:-2], dims_of(b)[:-2])
    return (
        expand(c, a, [*batch, *dims_of(a)[-2:]]),
        expand(c, b, [*batch, *dims_of(b)[-2:]]),
    )


# Systems of equations


def _solve(c: Emitter, a: Tensor, b: Tensor) -> Tensor:
    a, b = _together(c, _floats(c, a), b)
    found: Tensor = _kernel(c, "linalg.solve", [a, b], (dims_of(b), dtype_of(b)))[0]
    return found


@aten("inverse", "linalg_inv")
def inverse(c: Emitter, self: Tensor | None = None, A: Tensor | None = None) -> Tensor:
    """The inverse of matrices, by the kernel linalg.solve."""
    x = self if self is not None else A
    assert x is not None
    return _solve(c, x, _eye(c, x))


@aten("linalg_inv_ex")
def inverse_ex(c: Emitter, A: Tensor, check_errors: bool = False) -> Any:
    """The inverse of matrices, and 0 for each."""
    return inverse(c, A), _info(c, A)


def _solved(c: Emitter, a: Tensor, b: Tensor, left: bool) -> Tensor:
    x, y = dims_of(a), dims_of(b)
    is_vector = len(y) == 1 or (len(x) - 1 == len(y) and all(map(same_dim, x[:-1], y)))
    if is_vector:
        wide = reshaped(c, b, [*y, 1])
        found = _solve(c, a, wide)
        return reshaped(c, found, dims_of(found)[:-1])
    if left:
        return _solve(c, a, b)
    return _turned(c, _solve(c, _turned(c, a), _turned(c, b)))


@aten("linalg_solve")
def solve(c: Emitter, A: Tensor, B: Tensor, left: bool = True) -> Tensor:
    """The X for which A @ X is B, or X @ A if not left, by the kernel linalg.solve."""
    return _solved(c, A, B, left)


@aten("linalg_solve_ex")
def solve_ex(
    c: Emitter, A: Tensor, B: Tensor, left: bool = True, check_errors: bool = False
) -> Any:
    """As `linalg_solve`, and 0 for each matrix."""
    return _solved(c, A, B, left), _info(c, A)


@aten("_linalg_solve_ex")
def solve_with_factors(
    c: Emitter, A: Tensor, B: Tensor, left: bool = True, check_errors: bool = False
) -> Any:
    """As `linalg_solve`, with the factors of the matrices, and 0 for each."""
    factors, pivots = _factors(c, A)
    return _solved(c, A, B, left), factors, pivots, _info(c, A)


@aten("linalg_solve_triangular")
def solve_triangular(
    c: Emitter, self: Tensor, B: Tensor, upper: bool, left: bool = True,
    unitriangular: bool = False,
) -> Tensor:  # fmt: skip
    """The X for which A @ X is B, or X @ A if not left, for a triangle A, by the kernel."""
    if not left:
        found = solve_triangular(c, _turned(c, self), _turned(c, B), not upper, True, unitriangular)
        return _turned(c, found)
    a, b = _together(c, _floats(c, self), B)
    inputs = [a, b, int(upper), int(unitriangular)]
    solved: Tensor = _kernel(c, "linalg.solve_triangular", inputs, (dims_of(b), dtype_of(b)))[0]
    return solved


@aten("triangular_solve")
def triangular_solve(
    c: Emitter, self: Tensor, A: Tensor, upper: bool = True, transpose: bool = False,
    unitriangular: bool = False,
) -> Any:  # fmt: skip
    """As `linalg_solve_triangular`, and the matrices."""
    a, b = _together(c, A, self)
    given = _turned(c, a) if transpose else a
    return solve_triangular(c, given, b, upper != transpose, True, unitriangular), a


# Factors


@each_of("cholesky", "linalg_cholesky", "linalg_cholesky_ex")
def cholesky(
    name: str, c: Emitter, self: Tensor, upper: bool = False, check_errors: bool = False
) -> Any:
    """The triangular factors of positive definite matrices, by the kernel."""
    x = _turned(c, self) if upper else self
    (found,) = _kernel(c, "linalg.cholesky", [_floats(c, x)], (dims_of(x), dtype_of(x)))
    found = _turned(c, found) if upper else found
    return (found, _info(c, self)) if name == "linalg_cholesky_ex" else found


@aten("cholesky_solve")
def cholesky_solve(c: Emitter, self: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """The X for which L @ L.T @ X is B, for a triangle L."""
    lower = _turned(c, input2) if upper else input2
    found = solve_triangular(c, lower, self, False)
    return solve_triangular(c, _turned(c, lower), found, True)


@aten("cholesky_inverse")
def cholesky_inverse(c: Emitter, self: Tensor, upper: bool = False) -> Tensor:
    """The inverse of L @ L.T, for a triangle L."""
    return cholesky_solve(c, _eye(c, self), self, upper)


def _qr(c: Emitter, x: Tensor, complete: bool) -> list[Any]:
    *batch, m, n = dims_of(x)
    k = m if complete else _least(m, n)
    dtype = dtype_of(_floats(c, x))
    return _kernel(c, "linalg.qr", [x, int(complete)], ([*batch, m, k], dtype),
                   ([*batch, k, n], dtype))  # fmt: skip


def _least(m: Any, n: Any) -> Any:
    """The lesser one of two dimensions."""
    if same_dim(m, n):
        return m
    if not isinstance(m, int) or not isinstance(n, int):
        raise Problem("expected matrices whose sizes are known before the program runs")
    return min(m, n)


@aten("linalg_qr")
def linalg_qr(c: Emitter, A: Tensor, mode: str = "reduced") -> Any:
    """Orthogonal and triangular factors, by the kernel; the former without elements for "r"."""
    q, r = _qr(c, A, mode == "complete")
    return (c.op("zeros", [0], dtype_of(A)), r) if mode == "r" else (q, r)


@aten("qr")
def qr(c: Emitter, self: Tensor, some: bool = True) -> Any:
    """Orthogonal and triangular factors, by the kernel linalg.qr."""
    return tuple(_qr(c, self, not some))


def _factors(c: Emitter, x: Tensor) -> list[Any]:
    *batch, m, n = dims_of(x)
    results = (dims_of(x), dtype_of(_floats(c, x))), ([*batch, _least(m, n)], "int32")
    return _kernel(c, "linalg.lu", [x], *results)


def _need_pivots(pivot: bool) -> None:
    if not pivot:
        raise Problem("pivot: factors without pivots are not supported")


@each_of("linalg_lu_factor", "linalg_lu_factor_ex", "_lu_with_info")
def lu_factor(
    name: str, c: Emitter, A: Tensor | None = None, self: Tensor | None = None,
    pivot: bool = True, check_errors: bool = True,
) -> Any:  # fmt: skip
    """Triangular factors in one matrix, and the rows that were swapped, by the kernel linalg.lu."""
    _need_pivots(pivot)
    x = A if A is not None else self
    assert x is not None
    factors, pivots = _factors(c, x)
    if name == "linalg_lu_factor":
        return factors, pivots
    return factors, pivots, _info(c, x)


@aten("linalg_lu")
def linalg_lu(c: Emitter, A: Tensor, pivot: bool = True) -> Any:
    """The permutation, lower and upper triangles whose product a matrix is."""
    _need_pivots(pivot)
    return lu_unpack(c, *_factors(c, A))


@aten("lu_unpack")
def lu_unpack(
    c: Emitter, LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> Any:  # fmt: skip
    """The permutation and the triangles of factors in one matrix."""
    *batch, m, n = dims_of(LU_data)
    k, dtype = _least(m, n), dtype_of(LU_data)
    empty: Tensor = c.op("zeros", [0], dtype)
    found: list[Tensor] = [empty, empty, empty]
    if unpack_pivots:
        order = _order(c, LU_pivots, m)
        places = c.op("arange", 0, m, 1, "int64")
        rows = reshaped(c, order, [*batch, 1, m])
        is_there = c.op("equal", reshaped(c, places, [m, 1]), rows)
        found[0] = cast(c, is_there, dtype)
    if unpack_data:
        rank = rank_of(LU_data)
        left = c.op("tril", sliced(c, LU_data, rank - 1, 0, k), -1)
        found[1] = c.op("add", left, c.op("eye", m, k, 0, dtype))
        found[2] = c.op("triu", sliced(c, LU_data, rank - 2, 0, k), 0)
    return tuple(found)


def _order(c: Emitter, pivots: Tensor, rows: Any) -> Tensor:
    """The rows in the order that swaps, one after the other, leave them in."""
    *batch, count = dims_of(pivots)
    count, rows = known(count, "pivots"), known(rows, "rows")
    last = len(batch)
    order: Tensor = expand(c, c.op("arange", 0, rows, 1, "int64"), [*batch, rows])
    places = c.op("subtract", cast(c, pivots, "int64"), number(c, 1, "int64"))
    for i in range(count):
        at = sliced(c, places, last, i, i + 1)
        mine = sliced(c, order, last, i, i + 1)
        other = c.op("gather_elements", order, at, last)
        order = c.op("scatter_elements", order, at, mine, last)
        here = expand(c, c.expr(np.array([i])), [*batch, 1])
        order = c.op("scatter_elements", order, here, other, last)
    return order


def _lu_solve(c: Emitter, factors: Tensor, pivots: Tensor, b: Tensor) -> Tensor:
    factors, b = _together(c, factors, b)
    batch = dims_of(b)[:-2]
    order = _order(c, expand(c, pivots, [*batch, dims_of(pivots)[-1]]), dims_of(b)[-2])
    wide = expand(c, reshaped(c, order, [*dims_of(order), 1]), dims_of(b))
    b = c.op("gather_elements", b, wide, rank_of(b) - 2)
    b = solve_triangular(c, factors, b, False, True, True)
    return solve_triangular(c, factors, b, True)


@aten("lu_solve")
def lu_solve(c: Emitter, self: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """The X for which A @ X is B, from the factors of A."""
    return _lu_solve(c, LU_data, LU_pivots, self)


@aten("linalg_lu_solve")
def linalg_lu_solve(
    c: Emitter, LU: Tensor, pivots: Tensor, B: Tensor, left: bool = True, adjoint: bool = False
) -> Tensor:
    """The X for which A @ X is B, from the factors of A."""
    if adjoint or not left:
        raise Problem("expected left, and not adjoint")
    return _lu_solve(c, LU, pivots, B)


# Determinants


def _of_matrices(self: Tensor | None, A: Tensor | None) -> Tensor:
    x = self if self is not None else A
    assert x is not None
    return x


@each_of("linalg_det", "det", "_linalg_det")
def det(name: str, c: Emitter, self: Tensor | None = None, A: Tensor | None = None) -> Any:
    """The determinant, by the kernel."""
    x = _of_matrices(self, A)
    dims = dims_of(x)
    found = c.run("det", [c.expr(x)], TensorType(dims[:-2], dtype_of(x)), dtype_of(x))
    return (found, *_factors(c, x)) if name == "_linalg_det" else found


@each_of("slogdet", "linalg_slogdet", "_linalg_slogdet")
def slogdet(name: str, c: Emitter, self: Tensor | None = None, A: Tensor | None = None) -> Any:
    """The sign of the determinant, and the logarithm of its magnitude, from the factors."""
    x = _of_matrices(self, A)
    dtype = dtype_of(x)
    factors, pivots = _factors(c, x)
    found = diagonal(c, factors, 0, -2, -1)
    last = rank_of(found) - 1
    count = dims_of(found)[last]
    rows = c.op("arange", 1, length(count + 1), 1, "int32")
    swaps = c.op("sum", cast(c, c.op("not_equal", pivots, rows), "int32"), [last], False)
    is_odd = c.op("equal", c.op("mod", swaps, number(c, 2, "int32")), number(c, 1, "int32"))
    signs = c.op("prod", c.op("sign", found), [last], False)
    sign = c.op("where", is_odd, c.op("negative", signs), signs)
    size = c.op("sum", c.op("log", c.op("abs", found)), [last], False)
    both = cast(c, sign, dtype), cast(c, size, dtype)
    return (*both, factors, pivots) if name == "_linalg_slogdet" else both


@aten("logdet")
def logdet(c: Emitter, self: Tensor) -> Tensor:
    """The logarithm of the determinant; NaN if it is negative."""
    sign, size = slogdet(c=c, name="slogdet", self=self)
    dtype = dtype_of(self)
    is_negative = c.op("less", sign, number(c, 0, dtype))
    return c.op("where", is_negative, number(c, float("nan"), dtype), size)


# Singular values and eigenvalues


def _svd(c: Emitter, x: Tensor, full: bool) -> list[Any]:
    *batch, m, n = dims_of(x)
    k, dtype = _least(m, n), dtype_of(_floats(c, x))
    return _kernel(
        c, "linalg.svd", [x, int(full)], ([*batch, m, m if full else k], dtype),
        ([*batch, k], dtype), ([*batch, n if full else k, n], dtype),
    )  # fmt: skip


def singular_values(c: Emitter, x: Tensor) -> Tensor:
    """The singular values of matrices, the greatest first."""
    found: Tensor = _svd(c, x, False)[1]
    return found


@aten("_linalg_svd")
def linalg_svd_core(
    c: Emitter, A: Tensor, full_matrices: bool = False, compute_uv: bool = True,
    driver: str | None = None,
) -> Any:  # fmt: skip
    """The same, with the factors that the singular values need."""
    return linalg_svd(c, A, full_matrices, compute_uv, driver)


@aten("linalg_svd")
def linalg_svd(
    c: Emitter, A: Tensor, full_matrices: bool = True, compute_uv: bool = True,
    driver: str | None = None,
) -> Any:  # fmt: skip
    """Singular values and the orthogonal factors beside them, by the kernel linalg.svd."""
    u, s, vh = _svd(c, A, full_matrices)
    empty = c.op("zeros", [0], dtype_of(A))
    return (u, s, vh) if compute_uv else (empty, s, empty)


@aten("svd")
def svd(c: Emitter, self: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """Singular values and the orthogonal factors beside them, by the kernel linalg.svd."""
    u, s, vh = _svd(c, self, not some)
    v = _turned(c, vh)
    if compute_uv:
        return u, s, v
    return c.op("zeros", dims_of(u), dtype_of(u)), s, c.op("zeros", dims_of(v), dtype_of(v))


@aten("linalg_svdvals")
def svdvals(c: Emitter, A: Tensor, driver: str | None = None) -> Tensor:
    """Singular values, by the kernel linalg.svd."""
    return singular_values(c, A)


def _eigh(c: Emitter, x: Tensor, uplo: str = "L") -> list[Any]:
    x = _turned(c, x) if uplo.upper() == "U" else x
    dtype = dtype_of(_floats(c, x))
    return _kernel(c, "linalg.eigh", [x], (dims_of(x)[:-1], dtype), (dims_of(x), dtype))


@aten("linalg_eigh")
def linalg_eigh(c: Emitter, self: Tensor, UPLO: str = "L") -> Any:
    """Eigenvalues and eigenvectors of symmetric matrices, by the kernel."""
    return tuple(_eigh(c, self, UPLO))


@aten("_linalg_eigh")
def linalg_eigh_core(c: Emitter, A: Tensor, UPLO: str = "L", compute_v: bool = True) -> Any:
    """Eigenvalues and eigenvectors of symmetric matrices, by the kernel linalg.eigh."""
    w, v = _eigh(c, A, UPLO)
    return (w, v) if compute_v else (w, c.op("zeros", [0], dtype_of(A)))


@aten("linalg_matrix_sqrth")
def matrix_sqrth(c: Emitter, self: Tensor) -> Tensor:
    """The square root of symmetric matrices with eigenvalues of at least 0."""
    values, vectors = _eigh(c, _floats(c, self))
    roots = c.op("expand_dims", c.op("sqrt", values), rank_of(values) - 1)
    return product(c, c.op("multiply", vectors, roots), swapped(c, vectors, -1, -2))


@aten("linalg_eigvalsh")
def eigvalsh(c: Emitter, self: Tensor, UPLO: str = "L") -> Tensor:
    """Eigenvalues of symmetric matrices, by the kernel linalg.eigh."""
    found: Tensor = _eigh(c, self, UPLO)[0]
    return found


def _eig(c: Emitter, x: Tensor) -> list[Pair]:
    dims, dtype = dims_of(x), dtype_of(_floats(c, x))
    found = _kernel(c, "linalg.eig", [x], ([*dims[:-1], 2], dtype), ([*dims, 2], dtype))
    pairs = []
    for each in found:
        last = rank_of(each) - 1
        parts = [sliced(c, each, last, i, i + 1) for i in range(2)]
        pairs.append(Pair(*[reshaped(c, part, dims_of(each)[:-1]) for part in parts]))
    return pairs


@complex_op("linalg_eig")
def linalg_eig(c: Emitter, self: Tensor) -> Any:
    """Eigenvalues and eigenvectors, by the kernel linalg.eig."""
    return _eig(c, self)


@complex_op("linalg_eigvals", "_linalg_eigvals")
def eigvals(c: Emitter, self: Tensor) -> Pair:
    """Eigenvalues, by the kernel linalg.eig."""
    return _eig(c, self)[0]


# What follows from singular values

_EPS: Final = {"float32": 2.0**-23, "float64": 2.0**-52}


def _threshold(c: Emitter, x: Tensor, s: Tensor, atol: Any, rtol: Any) -> Tensor:
    """Below it singular values count as 0: max(atol, rtol * the greatest one)."""
    *_, m, n = dims_of(x)
    dtype, last = dtype_of(s), rank_of(s) - 1
    if rtol is None:
        if atol is None:
            most = max(known(m, "rows"), known(n, "columns"))
            rtol = most * _EPS[dtype]
        else:
            is_set = c.op("greater", _number(c, atol, dtype), number(c, 0, dtype))
            most = max(known(m, "rows"), known(n, "columns"))
            rtol = c.op("where", is_set, number(c, 0, dtype), number(c, most * _EPS[dtype], dtype))
    greatest = c.op("max", c.op("abs", s), [last], True)
    relative = c.op("multiply", greatest, _wide(c, _number(c, rtol, dtype)))
    if atol is None:
        return relative
    return c.op("maximum", relative, _wide(c, _number(c, atol, dtype)))


def _number(c: Emitter, x: Any, dtype: str) -> Tensor:
    return number(c, x, dtype) if isinstance(x, (int, float)) else cast(c, x, dtype)


def _wide(c: Emitter, x: Tensor) -> Tensor:
    return reshaped(c, x, [*dims_of(x), 1]) if rank_of(x) else x


def _pinv(c: Emitter, x: Tensor, atol: Any, rtol: Any, hermitian: bool) -> Tensor:
    dims = dims_of(x)
    if any(same_dim(dim, 0) for dim in dims[-2:]):
        return c.op("zeros", [*dims[:-2], dims[-1], dims[-2]], dtype_of(x))
    if hermitian:
        s, u = _eigh(c, x)
        vh = _turned(c, u)
    else:
        u, s, vh = _svd(c, x, False)
    dtype = dtype_of(s)
    is_large = c.op("greater", c.op("abs", s), _threshold(c, x, s, atol, rtol))
    one, zero = number(c, 1, dtype), number(c, 0, dtype)
    inverted = c.op("where", is_large, c.op("divide", one, c.op("where", is_large, s, one)), zero)
    wide = c.op("multiply", _turned(c, vh), _row(c, inverted))
    return product(c, wide, _turned(c, u))


def _row(c: Emitter, x: Tensor) -> Tensor:
    """Vectors as matrices of one row."""
    *batch, n = dims_of(x)
    return reshaped(c, x, [*batch, 1, n])


@aten("linalg_pinv.atol_rtol_float", "linalg_pinv.atol_rtol_tensor")
def pinv(
    c: Emitter, self: Tensor, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> Tensor:
    """The pseudo-inverse, by singular values."""
    return _pinv(c, self, atol, rtol, hermitian)


@aten("linalg_pinv", "linalg_pinv.rcond_tensor", "pinverse")
def pinverse(c: Emitter, self: Tensor, rcond: Any = 1e-15, hermitian: bool = False) -> Tensor:
    """The pseudo-inverse, by singular values."""
    return _pinv(c, self, 0.0, rcond, hermitian)


def _values(c: Emitter, x: Tensor, hermitian: bool) -> Tensor:
    return c.op("abs", _eigh(c, x)[0]) if hermitian else singular_values(c, x)


@aten("linalg_matrix_rank.atol_rtol_float", "linalg_matrix_rank.atol_rtol_tensor")
def matrix_rank(
    c: Emitter, self: Tensor | None = None, input: Tensor | None = None,  # noqa: A002
    atol: Any = None, rtol: Any = None, hermitian: bool = False,
) -> Tensor:  # fmt: skip
    """How many singular values are not 0."""
    x = _of_matrices(self, input)
    dims = dims_of(x)
    if any(same_dim(dim, 0) for dim in dims):
        return c.op("zeros", dims[:-2], "int64")
    s = _values(c, x, hermitian)
    is_large = c.op("greater", s, _threshold(c, x, s, atol, rtol))
    return c.op("sum", cast(c, is_large, "int64"), [rank_of(s) - 1], False)


@aten("linalg_matrix_rank", "linalg_matrix_rank.tol_tensor")
def matrix_rank_within(
    c: Emitter, tol: Any, self: Tensor | None = None, input: Tensor | None = None,  # noqa: A002
    hermitian: bool = False,
) -> Tensor:  # fmt: skip
    """How many singular values are greater than a number."""
    return matrix_rank(c, _of_matrices(self, input), None, tol, 0.0, hermitian)


@aten("linalg_cond", "linalg_cond.p_str")
def cond(c: Emitter, self: Tensor, p: Any = None) -> Tensor:
    """The greatest singular value over the least, or a norm times that of the inverse."""
    if p in (None, 2, -2):
        s = singular_values(c, self)
        last, count = rank_of(s) - 1, dims_of(s)[-1]
        ends = [sliced(c, s, last, 0, 1), sliced(c, s, last, length(count - 1), count)]
        above, below = ends if p != -2 else ends[::-1]
        return reshaped(c, c.op("divide", above, below), dims_of(s)[:-1])
    found = [matrix_norm(c, x, p, [-2, -1]) for x in (self, inverse(c, self))]
    return c.op("multiply", *found)


@aten("linalg_matrix_norm", "linalg_matrix_norm.str_ord")
def matrix_norm(
    c: Emitter, self: Tensor, ord: Any = "fro", dim: Any = (-2, -1),  # noqa: A002
    keepdim: bool = False, dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """The norm of matrices, along two axes."""
    x = cast(c, self, dtype)
    rows, columns = [axis_of(x, each) for each in dim]
    if ord == "fro":
        squares = c.op("sum", c.op("multiply", x, x), sorted((rows, columns)), keepdim)
        return c.op("sqrt", squares)
    if ord == "nuc" or abs(ord) == 2:
        rest = [i for i in range(rank_of(x)) if i not in (rows, columns)]
        s = singular_values(c, permuted(c, x, [*rest, rows, columns]))
        name = "sum" if ord == "nuc" else "max" if ord > 0 else "min"
        found = c.op(name, s, [rank_of(s) - 1], False)
        dims = [1 if i in (rows, columns) else dim for i, dim in enumerate(dims_of(x))]
        return reshaped(c, found, dims) if keepdim else found
    inner, outer = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = c.op("sum", c.op("abs", x), [inner], True)
    found = c.op("max" if ord > 0 else "min", sums, [outer], True)
    return found if keepdim else c.op("squeeze", found, sorted((rows, columns)))


@aten("linalg_norm", "linalg_norm.ord_str")
def norm(
    c: Emitter, self: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False,  # noqa: A002
    dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """The norm of a vector along one axis, or of matrices along two."""
    axes = dim if isinstance(dim, (list, tuple)) else None if dim is None else [dim]
    if axes is None and ord is None:
        return vector_norm(c, self, 2, None, keepdim, dtype)
    axes = list(range(rank_of(self))) if axes is None else axes
    if len(axes) == 1 or ord is None:
        return vector_norm(c, self, 2 if ord is None else ord, axes, keepdim, dtype)
    return matrix_norm(c, self, ord, axes, keepdim, dtype)


@aten("nuclear_norm", "nuclear_norm.dim")
def nuclear_norm(c: Emitter, self: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of the singular values of matrices."""
    return matrix_norm(c, self, "nuc", dim, keepdim)


@aten("linalg_lstsq")
def lstsq(c: Emitter, self: Tensor, b: Tensor, rcond: Any = None, driver: str | None = None) -> Any:
    """The X for which A @ X is nearest to B, by singular values; then the squared distances, ranks
    and singular values, as the driver computes them."""
    x = dims_of(self)
    is_vector = (
        len(x) - 1 == rank_of(b)
        and len(x) > 1
        and rank_of(b) >= 1
        and all(map(same_dim, x[:-1], dims_of(b)))
    )
    right = reshaped(c, b, [*dims_of(b), 1]) if is_vector else b
    left, right = _together(c, self, right)
    found = product(c, _pinv(c, left, None, rcond, False), right)
    *batch, m, n = dims_of(left)
    dtype = dtype_of(self)
    empty: Tensor = c.op("zeros", [0], dtype)
    rank: Tensor = c.op("zeros", [0], "int64")
    residuals, values = empty, empty
    if driver in ("gelsd", "gelss"):
        values = singular_values(c, left)
    if driver in (None, "gelsy", "gelsd", "gelss"):
        rank = matrix_rank(c, self, None, None, rcond)
    if known(m, "rows") > known(n, "columns"):
        apart = c.op("subtract", product(c, left, found), right)
        residuals = c.op("sum", c.op("multiply", apart, apart), [len(batch)], False)
    if is_vector:
        found = reshaped(c, found, dims_of(found)[:-1])
    return found, residuals, rank, values


# Powers


@aten("matrix_power", "linalg_matrix_power")
def matrix_power(c: Emitter, self: Tensor, n: int) -> Tensor:
    """The product of a matrix with itself, n times; of its inverse, if n is negative."""
    if n == 0:
        return _eye(c, self)
    square: Tensor = inverse(c, self) if n < 0 else self
    n = abs(n)
    found: Tensor | None = None
    while n:
        if n & 1:
            found = square if found is None else product(c, found, square)
        n >>= 1
        if n:
            square = product(c, square, square)
    assert found is not None
    return found


_HALVINGS: Final = 12
"""Halvings that make the argument small, for norms of up to some hundreds."""


@aten("matrix_exp", "linalg_matrix_exp")
def matrix_exp(c: Emitter, self: Tensor) -> Tensor:
    """The exponential function of matrices: Taylor's series of a part of them, in float64, squared
    again and again."""
    dtype = dtype_of(_floats(c, self))
    x = cast(c, self, "float64")
    unit = _eye(c, x)
    small = c.op("multiply", x, number(c, 2.0**-_HALVINGS, "float64"))
    found: Tensor = unit
    for i in range(10, 0, -1):
        step = c.op("divide", product(c, small, found), number(c, float(i), "float64"))
        found = c.op("add", unit, step)
    for _ in range(_HALVINGS):
        found = product(c, found, found)
    return cast(c, found, dtype)


# Tensors as matrices


@aten("linalg_tensorinv")
def tensorinv(c: Emitter, self: Tensor, ind: int = 2) -> Tensor:
    """The inverse of a tensor as a matrix from its last axes to its first ones."""
    dims = dims_of(self)
    size = numel(dims[ind:])
    found = inverse(c, reshaped(c, self, [size, size]))
    return reshaped(c, found, [*dims[ind:], *dims[:ind]])


@aten("linalg_tensorsolve")
def tensorsolve(c: Emitter, self: Tensor, other: Tensor, dims: Any = None) -> Tensor:
    """The X whose product with a tensor, over the axes of X, is another tensor."""
    x = self
    for axis in [axis_of(x, each) for each in dims or ()]:
        x = moved(c, x, axis, rank_of(x) - 1)
    size = numel(dims_of(other))
    matrix = reshaped(c, x, [size, size])
    found = _solve(c, matrix, reshaped(c, other, [size, 1]))
    return reshaped(c, found, dims_of(x)[rank_of(other) :])
