"""Gathering and scattering elements by index, and what is selected by a condition."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ir import Expr, TensorType, TupleGetItem
from ...common.values import Value
from ..graph import Graph, Problem
from ..registry import onnx
from .movement import flatten
from .ranks import in_shape, part, shape_vector

__all__: list[str] = []


@onnx("GatherElements", since=11)
def gather_elements(g: Graph, x: Value, indices: Value, *, axis: int = 0) -> Expr:
    """R.gather_elements."""
    return g.op("gather_elements", x, indices, axis)


@onnx("GatherND", since=11)
def gather_nd(g: Graph, x: Value, indices: Value, *, batch_dims: int = 0) -> Expr:
    """R.gather_nd."""
    return g.op("gather_nd", x, indices, batch_dims)


def _reduction(name: str) -> str:
    if name not in ("none", "add", "mul", "max", "min"):
        raise Problem(f"reduction: expected none, add, mul, max or min, got {name}")
    return "update" if name == "none" else name


@onnx("ScatterElements", since=11)
def scatter_elements(
    g: Graph,
    x: Value,
    indices: Value,
    updates: Value,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> Expr:
    """R.scatter_elements."""
    return g.op("scatter_elements", x, indices, updates, axis, _reduction(reduction))


@onnx("Scatter", since=9)
def scatter(g: Graph, x: Value, indices: Value, updates: Value, *, axis: int = 0) -> Expr:
    """R.scatter_elements."""
    return g.op("scatter_elements", x, indices, updates, axis)


@onnx("ScatterND", since=11)
def scatter_nd(
    g: Graph, x: Value, indices: Value, updates: Value, *, reduction: str = "none"
) -> Expr:
    """R.scatter_nd."""
    return g.op("scatter_nd", x, indices, updates, _reduction(reduction))


@onnx("ReverseSequence", since=10)
def reverse_sequence(
    g: Graph, x: Value, lengths: Value, *, batch_axis: int = 1, time_axis: int = 0
) -> Expr:
    """R.reverse_sequence."""
    return g.op("reverse_sequence", x, lengths, time_axis, batch_axis)


@onnx("Trilu", since=14)
def trilu(g: Graph, x: Value, k: Value | None = None, *, upper: int = 1) -> Expr:
    """R.triu or R.tril."""
    diagonal = 0 if k is None else g.elements(k, 1, "k")[0]
    return g.op("triu" if upper else "tril", x, diagonal)


@onnx("OneHot", since=9)
def one_hot(g: Graph, indices: Value, depth: Value, values: Value, *, axis: int = -1) -> Expr:
    """The second of values where an index is the place along a new axis, else the first; negative
    indices count from the end."""
    if indices.ndim < 0 and axis >= 0:
        rows = Value(g.emit(flatten(g, indices, axis=axis)))
        found = one_hot(g, rows, depth, values, axis=1)
        shape = shape_vector(g, indices)
        length = g.op("take", shape_vector(g, found), np.array([1]), 0)
        dims = g.op("concat", [part(g, shape, 0, axis), length, part(g, shape, axis)], 0)
        return g.expr(in_shape(g, found, dims))
    ndim = indices.ndim + 1
    if indices.ndim >= 0:
        if not -ndim <= axis < ndim:
            raise Problem(f"axis: expected an axis of a tensor of rank {ndim}, got {axis}")
        axis -= 0 if axis < 0 else ndim
    if depth.dtype is not None and "int" not in depth.dtype:
        depth = Value(g.op("astype", depth, "int64"))
    (length,) = g.elements(depth, 1, "depth")
    index: Any = indices
    if indices.dtype not in ("int64", "int32"):
        index = Value(g.op("astype", indices, "int64"))
    places = g.op("arange", 0, length, 1, index.dtype)
    places = g.op("reshape", places, [-1, *[1] * (-1 - axis)])
    negative = g.op("less", index, np.zeros((), index.dtype))
    total = g.op("full", (), length, index.dtype)
    index = g.op("where", negative, g.op("add", index, total), index)
    chosen = g.op("equal", g.op("expand_dims", index, axis), places)
    off, on = [g.op("take", values, np.array(i), 0) for i in range(2)]
    return g.op("where", chosen, on, off)


@onnx("NonZero", since=9)
def nonzero(g: Graph, x: Value) -> Expr:
    """R.nonzero."""
    return g.op("nonzero", x)


@onnx("Compress", since=9)
def compress(g: Graph, x: Value, condition: Value, *, axis: int | None = None) -> Expr:
    """The slices of x along an axis, or its elements in order, where a condition holds."""
    found = g.op("nonzero", condition)
    indices = Value(g.run("flatten", [found, None], TensorType(None, "int64", ndim=1)))
    if axis is None:
        x, axis = Value(g.run("flatten", [x, None], TensorType(None, x.dtype, ndim=1))), 0
    return g.op("take", x, indices, axis)


@onnx("Unique", since=11)
def unique(g: Graph, x: Value, *, axis: int | None = None, sorted: int = 1) -> Any:  # noqa: A002
    """R.unique: the elements or slices, their first places, where each went, and their numbers."""
    assert g.node is not None
    wanted = [len(g.node.output) > i and bool(g.node.output[i]) for i in range(4)]
    found = g.op("unique", x, bool(sorted), *wanted[1:], axis)
    if not any(wanted[1:]):
        return found
    places = np.cumsum([True, *wanted[1:]]) - 1
    return tuple(
        [
            Value(g.emit(TupleGetItem(found, int(at)))) if i == 0 or is_wanted else None
            for i, (at, is_wanted) in enumerate(zip(places, wanted, strict=True))
        ]
    )
