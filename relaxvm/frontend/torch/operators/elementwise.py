"""Arithmetic and functions of each element."""

from __future__ import annotations

from typing import Any

from ....ir import Expr
from ...common.values import Value
from ..graph import Graph
from ..promotion import floats, promoted
from ..registry import aten

__all__: list[str] = []


@aten("add.Tensor", "add.Scalar")
def add(g: Graph, self: Value, other: Any, alpha: Any = 1) -> Expr:
    """self + alpha * other."""
    x, y = promoted(g, self, other)
    if alpha != 1:
        y = Value(g.op("multiply", y, promoted(g, alpha, dtype=x.dtype)[0]))
    return g.op("logical_or" if x.dtype == "bool" else "add", x, y)


@aten("sub.Tensor", "sub.Scalar")
def sub(g: Graph, self: Value, other: Any, alpha: Any = 1) -> Expr:
    """self - alpha * other."""
    x, y = promoted(g, self, other)
    if alpha != 1:
        y = Value(g.op("multiply", y, promoted(g, alpha, dtype=x.dtype)[0]))
    return g.op("subtract", x, y)


@aten("mul.Tensor", "mul.Scalar")
def mul(g: Graph, self: Value, other: Any) -> Expr:
    """self * other."""
    x, y = promoted(g, self, other)
    return g.op("logical_and" if x.dtype == "bool" else "multiply", x, y)


@aten("div.Tensor", "div.Scalar")
def div(g: Graph, self: Value, other: Any) -> Expr:
    """self / other; integers become floats."""
    return g.op("divide", *floats(g, self, other))


@aten("relu")
def relu(g: Graph, self: Value) -> Expr:
    """max(self, 0)."""
    return g.op("nn.relu", self)


@aten("gt.Tensor", "gt.Scalar")
def gt(g: Graph, self: Value, other: Any) -> Expr:
    """self > other."""
    return g.op("greater", *promoted(g, self, other))


@aten("tanh")
def tanh(g: Graph, self: Value) -> Expr:
    """The hyperbolic tangent."""
    return g.op("tanh", *floats(g, self))
