"""Sums of products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...ir import Expr, TensorType
from ...ir.arith import prove_equal
from .emitter import Emitter

__all__ = ["einsum"]

_FLOATS: Final = ("float32", "float64")


def einsum(g: Emitter, operands: Sequence[Expr], equation: str) -> Expr:
    """R.einsum, or R.matmul where the sum is a product of matrices: of these passes know more.

    Args:
        g: binds calls.
        operands: tensors of one data type.
        equation: as of `numpy.einsum`.
    """
    equation = equation.replace(" ", "")
    product = _matmul(g, operands, equation)
    return g.op("einsum", list(operands), equation) if product is None else product


def _matmul(g: Emitter, operands: Sequence[Expr], equation: str) -> Expr | None:
    """The sum as a product of matrices [..., rows, inner] and [..., inner, columns], whose axes may
    be in any order; None if it is something else.

    Dimensions that go together have to be known to be equal, since a sum takes a length of 1 in
    place of another one.
    """
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if not arrow or len(operands) != 2 or len(terms) != 2 or not (left + result).isascii():
        return None
    dims: list[dict[str, Any]] = []
    for operand, term in zip(operands, terms, strict=True):
        ty = operand.ty
        if not isinstance(ty, TensorType) or ty.dims is None or ty.dtype not in _FLOATS:
            return None
        if not term.isalpha() or len(set(term)) != len(term) or len(term) != ty.ndim:
            return None
        dims.append(dict(zip(term, ty.dims, strict=True)))
    of_a, of_b = dims
    both = [c for c in terms[0] if c in of_b]
    if not all(prove_equal(of_a[c], of_b[c]) for c in both):
        return None
    inner = [c for c in both if c not in result]
    batch = [c for c in result if c in both]
    rows, columns = ([c for c in result if c in x and c not in both] for x in (of_a, of_b))
    if len(inner) != 1 or len(batch) + len(rows) + len(columns) != len(result):
        return None  # sums of one operand alone, labels that neither has
    if len(of_a) != len(batch) + len(rows) + 1 or len(of_b) != len(batch) + len(columns) + 1:
        return None
    a, b = operands
    terms_of: tuple[str, str] = (terms[0], terms[1])
    if len(columns) != 1 or (len(rows) == 1 and result[-1] == rows[0]):
        a, b, rows, columns = b, a, columns, rows
        terms_of = terms_of[::-1]
    if len(columns) != 1 or not rows or (batch and len(rows) != 1):
        return None
    x = _permuted(g, a, terms_of[0], [*batch, *rows, *inner])
    y = _permuted(g, b, terms_of[1], [*batch, *inner, *columns])
    return _permuted(g, g.op("matmul", x, y), "".join([*batch, *rows, *columns]), result)


def _permuted(g: Emitter, x: Expr, labels: str, wanted: Sequence[str]) -> Expr:
    order = [labels.index(c) for c in wanted]
    return x if order == sorted(order) else g.op("permute_dims", x, order)
