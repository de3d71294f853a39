"""Products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...common import products
from ...common.emitter import Emitter, Problem
from ..forms import (
    Tensor,
    axis_of,
    broadcast_dims,
    cast,
    dims_of,
    dtype_of,
    floating,
    length,
    number,
    promoted,
    promoted_dtype,
    rank_of,
    reshaped,
    same_dim,
)
from ..registry import aten
from .reductions import vector_norm
from .shapes import expand, swapped

__all__ = ["product"]


def product(c: Emitter, a: Tensor, b: Tensor) -> Tensor:
    """R.matmul; of bools whether any product is true."""
    a, b = promoted(c, a, b)
    if dtype_of(a) == "bool":
        found = c.op("matmul", cast(c, a, "int32"), cast(c, b, "int32"))
        return cast(c, found, "bool")
    if rank_of(a) == 1 and rank_of(b) == 1:
        size = dims_of(a)[0]
        found = c.op("matmul", reshaped(c, a, [1, size]), reshaped(c, b, [size, 1]))
        return reshaped(c, found, [])
    return c.op("matmul", a, b)


@aten("mm", "bmm")
def mm(c: Emitter, self: Tensor, mat2: Tensor) -> Tensor:
    """R.matmul."""
    return product(c, self, mat2)


@aten("matmul", "linalg_matmul")
def matmul(c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """R.matmul."""
    return product(c, self, other)


@aten("mv")
def mv(c: Emitter, self: Tensor, vec: Tensor) -> Tensor:
    """R.matmul of a matrix and a vector."""
    return product(c, self, vec)


@aten("dot", "inner")
def dot(c: Emitter, self: Tensor, tensor: Tensor | None = None, other: Tensor | None = None
        ) -> Tensor:  # fmt: skip
    """R.matmul of vectors; of tensors over their last axes."""
    second = tensor if tensor is not None else other
    assert second is not None
    if rank_of(self) == 0 or rank_of(second) == 0:
        return c.op("multiply", *promoted(c, self, second))
    if rank_of(second) == 1:
        return product(c, self, second)
    a, b = dims_of(self), dims_of(second)
    rows = reshaped(c, self, [-1, a[-1]])
    columns = swapped(c, reshaped(c, second, [-1, b[-1]]), 0, 1)
    return reshaped(c, product(c, rows, columns), [*a[:-1], *b[:-1]])


@aten("vdot")
def vdot(c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """R.matmul of vectors."""
    return product(c, self, other)


@aten("outer", "ger")
def outer(c: Emitter, self: Tensor, vec2: Tensor) -> Tensor:
    """The products of each element of a vector with each of another."""
    a, b = promoted(c, self, vec2)
    wide = reshaped(c, a, [*dims_of(a), 1])
    return c.op("logical_and" if dtype_of(a) == "bool" else "multiply", wide, b)


@aten("kron")
def kron(c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """The products of each element of a tensor with another tensor."""
    a, b = promoted(c, self, other)
    rank = max(rank_of(a), rank_of(b))
    x = [1] * (rank - rank_of(a)) + dims_of(a)
    y = [1] * (rank - rank_of(b)) + dims_of(b)
    left = reshaped(c, a, [each for dim in x for each in (dim, 1)])
    right = reshaped(c, b, [each for dim in y for each in (1, dim)])
    name = "logical_and" if dtype_of(a) == "bool" else "multiply"
    return reshaped(c, c.op(name, left, right), [length(p * q) for p, q in zip(x, y, strict=True)])


def _added(c: Emitter, start: Tensor, found: Tensor, beta: Any, alpha: Any) -> Tensor:
    """beta * start + alpha * found."""
    dtype = promoted_dtype(start, found)
    found = cast(c, found, dtype)
    if alpha != 1:
        found = c.op("multiply", found, number(c, alpha, dtype))
    if beta == 0:
        return expand(c, found, broadcast_dims(dims_of(start), dims_of(found)))
    start = cast(c, start, dtype)
    if beta != 1:
        start = c.op("multiply", start, number(c, beta, dtype))
    return c.op("logical_or" if dtype == "bool" else "add", start, found)


@aten("addmm", "_addmm_activation")
def addmm(
    c: Emitter, self: Tensor, mat1: Tensor, mat2: Tensor, beta: Any = 1, alpha: Any = 1,
    use_gelu: bool | None = None,
) -> Tensor:  # fmt: skip
    """beta * x + alpha * (a @ b)."""
    return _added(c, self, product(c, mat1, mat2), beta, alpha)


@aten("addmv")
def addmv(
    c: Emitter, self: Tensor, mat: Tensor, vec: Tensor, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """beta * x + alpha * (a @ b)."""
    return _added(c, self, product(c, mat, vec), beta, alpha)


@aten("addr")
def addr(
    c: Emitter, self: Tensor, vec1: Tensor, vec2: Tensor, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """beta * x + alpha * outer(a, b)."""
    return _added(c, self, outer(c, vec1, vec2), beta, alpha)


@aten("baddbmm")
def baddbmm(
    c: Emitter, self: Tensor, batch1: Tensor, batch2: Tensor, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """beta * x + alpha * (a @ b)."""
    return _added(c, self, product(c, batch1, batch2), beta, alpha)


@aten("addbmm")
def addbmm(
    c: Emitter, self: Tensor, batch1: Tensor, batch2: Tensor, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """beta * x + alpha * the sum of a @ b over the first axis."""
    total = c.op("sum", product(c, batch1, batch2), [0], False)
    return _added(c, self, total, beta, alpha)


@aten("linear")
def linear(
    c: Emitter, input: Tensor, weight: Tensor, bias: Tensor | None = None  # noqa: A002
) -> Tensor:
    """x @ weight.T + bias."""
    if rank_of(weight) == 1:
        found = product(c, input, weight)
    else:
        found = c.op("matmul", input, swapped(c, weight, 0, 1))
    return found if bias is None else c.op("add", found, bias)


@aten("bilinear")
def bilinear(
    c: Emitter, input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """x @ weight[k] @ y for each k."""
    x, y = dims_of(input1), dims_of(input2)
    a, b = reshaped(c, input1, [-1, x[-1]]), reshaped(c, input2, [-1, y[-1]])
    operands = [c.expr(each) for each in (a, weight, b)]
    found: Tensor = c.op("einsum", operands, "bn,onm,bm->bo")
    found = reshaped(c, found, [*x[:-1], dims_of(weight)[0]])
    return found if bias is None else c.op("add", found, bias)


@aten("einsum")
def einsum(c: Emitter, equation: str, tensors: Any, path: Any = None) -> Tensor:
    """R.matmul or R.einsum."""
    operands = [c.expr(each) for each in promoted(c, *tensors)]
    return products.einsum(c, operands, equation)


@aten("tensordot")
def tensordot(
    c: Emitter, self: Tensor, other: Tensor, dims_self: Any, dims_other: Any
) -> Tensor:
    """Sums of products over pairs of axes."""
    a, b = [i % rank_of(self) for i in dims_self], [i % rank_of(other) for i in dims_other]
    rest_a = [i for i in range(rank_of(self)) if i not in a]
    rest_b = [i for i in range(rank_of(other)) if i not in b]
    x, y = dims_of(self), dims_of(other)
    for i, j in zip(a, b, strict=True):  # a length of 1 goes with any other
        if same_dim(x[i], 1) and not same_dim(y[j], 1):
            other = c.op("sum", other, [j], True)
        elif same_dim(y[j], 1) and not same_dim(x[i], 1):
            self = c.op("sum", self, [i], True)
    x, y = dims_of(self), dims_of(other)
    left = c.op("permute_dims", self, [*rest_a, *a]) if rank_of(self) else self
    right = c.op("permute_dims", other, [*b, *rest_b]) if rank_of(other) else other
    size: Any = 1
    for i in a:
        size = size * x[i]
    size = length(size)
    found = product(c, reshaped(c, left, [-1, size]), reshaped(c, right, [size, -1]))
    return reshaped(c, found, [*[x[i] for i in rest_a], *[y[i] for i in rest_b]])


@aten("chain_matmul", "linalg_multi_dot")
def chain(c: Emitter, matrices: Any = None, tensors: Any = None) -> Tensor:
    """R.matmul of several matrices in a row."""
    found: Tensor
    found, *rest = matrices if matrices is not None else tensors
    for each in rest:
        found = product(c, found, each)
    return found


@aten("linalg_cross")
def linalg_cross(c: Emitter, self: Tensor, other: Tensor, dim: int = -1) -> Tensor:
    """The same, along the last axis where none is named."""
    return cross(c, self, other, dim)


@aten("cross")
def cross(c: Emitter, self: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The products of vectors of three elements along an axis that are normal to both."""
    a, b = promoted(c, self, other)
    dims = broadcast_dims(dims_of(a), dims_of(b))
    a, b = expand(c, a, dims), expand(c, b, dims)
    if dim is None:
        dim = next((i for i, each in enumerate(dims) if same_dim(each, 3)), -1)
    axis = dim % len(dims)

    def turned(x: Tensor, order: list[int]) -> Tensor:
        return c.op("take", x, c.expr(np.array(order)), axis)

    first = c.op("multiply", turned(a, [1, 2, 0]), turned(b, [2, 0, 1]))
    second = c.op("multiply", turned(a, [2, 0, 1]), turned(b, [1, 2, 0]))
    return c.op("subtract", first, second)


@aten("cdist", "_cdist_forward")
def cdist(
    c: Emitter, x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: int | None = None
) -> Tensor:
    """The norms of differences of each row of a matrix and each of another."""
    dtype = dtype_of(x1)
    a, b = dims_of(x1), dims_of(x2)
    left = reshaped(c, x1, [*a[:-1], 1, a[-1]])
    right = reshaped(c, x2, [*b[:-2], 1, *b[-2:]])
    apart = c.op("subtract", left, right)
    if same_dim(a[-1], 0):
        return c.op("zeros", dims_of(apart)[:-1], dtype)
    return _norm(c, apart, p, rank_of(apart) - 1)


def _norm(c: Emitter, x: Tensor, p: float, axis: int, keepdim: bool = False) -> Tensor:
    return vector_norm(c, x, p, [axis], keepdim)


@aten("pairwise_distance")
def pairwise_distance(
    c: Emitter, x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The norms of differences along the last axis."""
    a, b = promoted(c, x1, x2)
    dtype = floating(dtype_of(a))
    apart = c.op("add", cast(c, c.op("subtract", a, b), dtype), number(c, eps, dtype))
    return _norm(c, apart, p, rank_of(apart) - 1, keepdim)


@aten("pdist", "_pdist_forward")
def pdist(c: Emitter, self: Tensor, p: float = 2.0) -> Tensor:
    """The norms of differences of all pairs of rows."""
    rows = dims_of(self)[0]
    if not isinstance(rows, int):
        raise Problem("pdist: expected a known number of rows")
    first, second = np.triu_indices(rows, 1)
    apart = c.op("subtract", c.op("take", self, c.expr(first), 0),
                 c.op("take", self, c.expr(second), 0))  # fmt: skip
    return _norm(c, apart, p, 1)


@aten("cosine_similarity")
def cosine_similarity(
    c: Emitter, x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8
) -> Tensor:
    """The cosine of the angle between vectors along an axis."""
    a, b = promoted(c, x1, x2)
    dims = broadcast_dims(dims_of(a), dims_of(b))
    a, b = expand(c, a, dims), expand(c, b, dims)
    dtype, axis = dtype_of(a), dim % max(len(dims), 1)
    bound = number(c, eps, dtype)

    def normal(x: Tensor) -> Tensor:
        if not dims:
            size: Tensor = c.op("abs", x)
        else:
            size = _norm(c, x, 2.0, axis, True)
        return c.op("divide", x, c.op("maximum", size, bound))

    products = c.op("multiply", normal(a), normal(b))
    return c.op("sum", products, [axis], False) if dims else products


@aten("_grouped_mm", "transformers::grouped_mm_fallback")
def grouped_product(
    c: Emitter, input: Tensor, weight: Tensor, offs: Tensor | None = None,  # noqa: A002
    bias: Tensor | None = None, out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """The product of each row and the matrix of its group; offs has the ends of groups of rows."""
    if offs is None or bias is not None or rank_of(input) != 2 or rank_of(weight) != 3:
        raise Problem("expected rows, a matrix for each group, and the ends of groups")
    rows = c.op("arange", 0, dims_of(input)[0], 1, "int64")
    group = c.op("bucketize", rows, cast(c, offs, "int64"), False, True)
    matrices = c.op("take", weight, group, 0)
    wide = reshaped(c, input, [dims_of(input)[0], 1, dims_of(input)[1]])
    found = c.op("matmul", wide, matrices)
    return cast(c, reshaped(c, found, [dims_of(input)[0], dims_of(weight)[2]]), out_dtype)


@aten("linalg_vecdot")
def vector_products(c: Emitter, x: Tensor, y: Tensor, dim: int = -1) -> Tensor:
    """The sums of products along an axis."""
    found = c.op("multiply", *promoted(c, x, y))
    return c.op("sum", found, [axis_of(found, dim)], False)
