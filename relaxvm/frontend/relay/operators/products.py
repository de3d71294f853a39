"""Products of matrices."""

from __future__ import annotations

from typing import Any

from .... import op
from ....ir import Expr
from .equal_dims import batch_dims
from .operands import items_of, or_none, rank_of
from .table import relay

__all__: list[str] = []


@relay("nn.dense")
def _dense(x: Expr, weight: Expr, *, units: Any = None, out_dtype: str | None = "") -> Any:
    return op.matmul(x, op.permute_dims(weight), or_none(out_dtype))


def _transposed(x: Expr, wanted: bool) -> Any:
    if not wanted:
        return x
    rank = rank_of(x)
    return op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])


@relay("nn.matmul", equal=batch_dims)
def _matmul(
    x: Expr,
    y: Expr,
    *,
    units: Any = None,
    out_dtype: str | None = "",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Any:
    return op.matmul(_transposed(x, transpose_a), _transposed(y, transpose_b), or_none(out_dtype))


@relay("nn.batch_matmul", equal=batch_dims)
def _batch_matmul(
    x: Expr,
    y: Expr,
    *,
    out_dtype: str | None = "",
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Any:
    return _matmul(x, y, out_dtype=out_dtype, transpose_a=transpose_a, transpose_b=transpose_b)


@relay("einsum")
def _einsum(tensors: Expr, *, equation: str) -> Any:
    return op.einsum(items_of(tensors), equation)
