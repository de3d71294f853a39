"""Reductions, and products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir import prim
from ....ir.arith import simplify
from ....ir.expr import Expr, IntImm
from ....te import Tensor, compute, reduce_axis, topi
from ....te import sum as te_sum
from .rules import LOOPS, Entry, loops

__all__: list[str] = []

for _name in ("max", "min", "sum", "prod", "argmax", "argmin"):
    loops(_name)(getattr(topi, _name))
LOOPS["matmul"] = Entry("matmul", None, None)


def _all_axes(x: Tensor, axis: Any) -> list[int]:
    if axis is None:
        return list(range(x.ndim))
    axes = [axis] if isinstance(axis, int) else axis
    return sorted(int(a) % x.ndim for a in axes)


def mean(x: Tensor, axis: Any = None, keepdims: bool = False) -> Any:
    """The sum, divided by the number of elements."""
    count: Expr = IntImm("int64", 1)
    for a in _all_axes(x, axis):
        count = count * x.shape[a]
    return topi.divide(topi.sum(x, axis, keepdims), prim.cast(simplify(count), x.dtype))


loops("mean")(mean)


@loops("variance")
def _variance(x: Tensor, axis: Any = None, keepdims: bool = False) -> Any:
    difference = topi.subtract(x, mean(x, axis, True))
    return mean(topi.multiply(difference, difference), axis, keepdims)


@loops("std")
def _std(x: Tensor, axis: Any = None, keepdims: bool = False) -> Any:
    return topi.sqrt(_variance(x, axis, keepdims))


@loops("outer")
def _outer(x: Tensor, y: Tensor) -> Tensor:
    return compute((x.shape[0], y.shape[0]), lambda i, j: x[i] * y[j], "outer")


@loops("einsum")
def _einsum(operands: Sequence[Tensor], subscripts: str) -> Tensor:
    left, _, right = subscripts.replace(" ", "").partition("->")
    inputs = left.split(",")
    if "->" not in subscripts:
        right = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    dims = {
        letter: dim
        for letters, tensor in zip(inputs, operands, strict=True)
        for letter, dim in zip(letters, tensor.shape, strict=True)
    }
    inner = [c for c in dict.fromkeys(left) if c in dims and c not in right]
    taps = {c: reduce_axis((0, dims[c]), c) for c in inner}

    def element(*i: Expr) -> Any:
        places = dict(zip(right, i, strict=True))
        places.update({c: tap.var for c, tap in taps.items()})
        value: Any = None
        for letters, tensor in zip(inputs, operands, strict=True):
            factor = tensor[tuple(places[c] for c in letters)]
            value = factor if value is None else value * factor
        return te_sum(value, list(taps.values())) if taps else value

    names = [f"ax{k}" for k in range(len(right))]
    return compute([dims[c] for c in right], element, "T_einsum", varargs_names=names)
