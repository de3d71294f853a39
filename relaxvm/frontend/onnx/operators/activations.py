"""Activations that are short programs."""

from __future__ import annotations

from typing import Any

from ....ir import Expr
from ...common.values import Value
from ..graph import Graph, Problem
from ..registry import onnx
from .elementwise import scalar

__all__: list[str] = []


@onnx("Hardmax", since=13)
def hardmax(g: Graph, x: Value, *, axis: int = -1) -> Expr:
    """1 at the place of the first of the greatest elements along an axis, 0 elsewhere."""
    if x.dtype is None:
        raise Problem("x: expected a tensor of known data type")
    if x.ndim >= 0 and not -x.ndim <= axis < x.ndim:
        raise Problem(f"axis: expected one of {x.ndim} axes, got {axis}")
    found = g.op("argmax", x, axis, True)
    if x.dims is None:
        places = g.op("cumsum", g.op("ones_like", x, "int64"), axis, None, True)
    else:
        places = g.op("arange", 0, x.dims[axis], 1, "int64")
        places = g.op("reshape", places, [-1, *[1] * (x.ndim - 1 - axis % x.ndim)])
    return g.op("astype", g.op("equal", found, places), x.dtype)


@onnx("Hardmax", since=1)
def hardmax_of_rows(g: Graph, x: Value, *, axis: int = 1) -> Expr:
    """As since version 13, of the axes from `axis` on together."""
    if x.dims is None or not -x.ndim <= axis <= x.ndim:
        raise Problem(f"expected a tensor of known shape, and an axis of it, got axis {axis}")
    if axis % x.ndim == x.ndim - 1:
        return hardmax(g, x)
    rows = g.op("reshape", x, [*x.dims[: axis % x.ndim], -1])
    return g.reshaped(Value(hardmax(g, Value(rows))), list(x.dims))


@onnx("Shrink", since=9)
def shrink(g: Graph, x: Value, *, bias: float = 0.0, lambd: float = 0.5) -> Expr:
    """x moved towards 0 by `bias` where it is further than `lambd` away from 0; 0 elsewhere."""
    offset, zero = scalar(g, bias, x), scalar(g, 0, x)
    below = g.op("less", x, scalar(g, -lambd, x))
    above = g.op("greater", x, scalar(g, lambd, x))
    lower: Any = g.op("where", above, g.op("subtract", x, offset), zero)
    return g.op("where", below, g.op("add", x, offset), lower)
