"""Activations that are short programs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....ir import Expr, IntImm, int_imm
from ....ir.arith import simplify
from ...common.values import Value
from ..graph import Graph, Problem
from ..registry import onnx
from .classes import dtype_of_numbers
from .elementwise import scalar

__all__: list[str] = []


@onnx("Hardmax", since=13)
def hardmax(g: Graph, x: Value, *, axis: int = -1) -> Expr:
    """1 at the place of the first of the greatest elements along an axis, 0 elsewhere."""
    if x.dtype is None:
        raise Problem("x: expected a tensor of known data type")
    if x.ndim >= 0 and not -x.ndim <= axis < x.ndim:
        raise Problem(f"axis: expected one of {x.ndim} axes, got {axis}")
    if x.dims is None:
        found = g.op("argmax", x, axis, True)
        places = g.op("cumsum", g.op("ones_like", x, "int64"), axis, None, True)
    else:
        found = g.op("argmax", _with_an_element(g, x, axis), axis, True)
        places = g.op("arange", 0, x.dims[axis], 1, "int64")
        places = g.op("reshape", places, [-1, *[1] * (x.ndim - 1 - axis % x.ndim)])
    return g.op("astype", g.op("equal", found, places), x.dtype)


def _with_an_element(g: Graph, x: Value, axis: int) -> Value:
    """A tensor which has elements along an axis: one more, the least, behind those of an axis that
    may have none.  It is the first of the greatest of no others."""
    assert x.dims is not None
    length = x.dims[axis]
    if isinstance(length, IntImm) and length.value > 0:
        return x
    widths = [0] * (2 * x.ndim)
    widths[2 * (axis % x.ndim) + 1] = 1
    dtype = dtype_of_numbers(x)
    is_integer = np.issubdtype(dtype, np.integer)
    least = np.iinfo(dtype).min if is_integer else -math.inf
    return Value(g.op("nn.pad", x, widths, "constant", least))


@onnx("Hardmax", since=1)
def hardmax_of_rows(g: Graph, x: Value, *, axis: int = 1) -> Expr:
    """As since version 13, of the axes from `axis` on together."""
    if x.dims is None or not -x.ndim <= axis <= x.ndim:
        raise Problem(f"expected a tensor of known shape, and an axis of it, got axis {axis}")
    if axis % x.ndim == x.ndim - 1:
        return hardmax(g, x)
    if any(isinstance(dim, IntImm) and dim.value == 0 for dim in x.dims):
        return g.expr(x)
    at = axis % x.ndim
    rows = g.op("reshape", x, [*x.dims[:at], simplify(math.prod(x.dims[at:], start=int_imm(1)))])
    return g.reshaped(Value(hardmax(g, Value(rows))), list(x.dims))


@onnx("Shrink", since=9)
def shrink(g: Graph, x: Value, *, bias: float = 0.0, lambd: float = 0.5) -> Expr:
    """x moved towards 0 by `bias` where it is further than `lambd` away from 0; 0 elsewhere."""
    offset, zero = scalar(g, bias, x), scalar(g, 0, x)
    below = g.op("less", x, scalar(g, -lambd, x))
    above = g.op("greater", x, scalar(g, lambd, x))
    lower: Any = g.op("where", above, g.op("subtract", x, offset), zero)
    return g.op("where", below, g.op("add", x, offset), lower)
