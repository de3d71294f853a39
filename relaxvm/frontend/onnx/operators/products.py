"""Products of matrices."""

from __future__ import annotations

from typing import Any

from ....ir import Expr, TensorType
from ...common import products
from ...common.values import Value
from ..graph import Graph
from ..registry import onnx
from .elementwise import scalar

__all__: list[str] = []


@onnx("MatMul", since=1)
def matmul(g: Graph, a: Value, b: Value) -> Expr:
    """R.matmul."""
    return g.op("matmul", a, b)


@onnx("Gemm", since=7)
def gemm(
    g: Graph,
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Expr:
    """alpha * A @ B + beta * C, of matrices that may be transposed."""
    left: Any = g.op("permute_dims", a, (1, 0)) if transA else a
    right: Any = g.op("permute_dims", b, (1, 0)) if transB else b
    product = g.op("matmul", left, right)
    if alpha != 1:
        product = g.op("multiply", product, scalar(g, alpha, a))
    if c is None or beta == 0:
        return product
    offset: Any = c if beta == 1 else g.op("multiply", c, scalar(g, beta, c))
    return g.op("add", product, offset)


@onnx("Gemm", since=1)
def gemm_with_broadcast(
    g: Graph,
    a: Value,
    b: Value,
    c: Value,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 0,
    transA: int = 0,
    transB: int = 0,
) -> Expr:
    """As later versions; C broadcasts in any case."""
    return gemm(g, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


@onnx("Einsum", since=12)
def einsum(g: Graph, *operands: Value, equation: str) -> Expr:
    """R.matmul or R.einsum."""
    dtype = operands[0].dtype if operands else None
    if dtype not in ("bfloat16", "float16"):
        return products.einsum(g, [g.expr(each) for each in operands], equation)
    wide = [g.op("astype", each, "float32") for each in operands]
    return g.op("astype", products.einsum(g, wide, equation), dtype)


@onnx("Det", since=11)
def det(g: Graph, x: Value) -> Expr:
    """The determinants of matrices."""
    dims = None if x.dims is None else list(x.dims[:-2])
    ndim = -1 if dims is not None or x.ndim < 0 else x.ndim - 2
    return g.run("det", [x], TensorType.of(dims, x.dtype, ndim=ndim), x.dtype or "?")
