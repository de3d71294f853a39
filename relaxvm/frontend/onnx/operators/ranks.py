"""Tensors of unknown rank, which get a known one when the model runs.

Few operators depend on how many axes there are: the others see an axis, those before it and those
behind it.  So a tensor of unknown rank is reshaped by vectors that are computed from its shape, and
the result gets the shape that the operator states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....ir import Expr, StringImm, TensorType
from ...common.values import Value
from ..graph import Graph

__all__ = [
    "as_image",
    "axes_of",
    "axis_in_the_middle",
    "first_axes",
    "in_shape",
    "like",
    "number_of_axes",
    "part",
    "shape_vector",
    "where_axis",
    "with_unit_axes",
    "without_unit_axes",
]  # fmt: skip

_MOST = 1 << 48
"""The end of every axis."""
_MOST_AXES = 64
"""Of arrays."""


def shape_vector(g: Graph, x: Value | Expr) -> Value:
    """The dimensions as a vector of int64."""
    return Value(g.op("shape_to_tensor", g.op("shape_of", x)))


def number_of_axes(g: Graph, shape: Value) -> Expr:
    """The length of such a vector, as an int64 of no axes."""
    return g.op("take", shape_vector(g, shape), np.array(0), 0)


def part(g: Graph, vector: Value | Expr, start: int, end: int = _MOST) -> Value:
    """``vector[start:end]``."""
    return Value(g.op("strided_slice", vector, [0], [start], [end]))


def in_shape(g: Graph, x: Value | Expr, shape: Value | Expr, rank: int = -1) -> Value:
    """The elements of x in the shape that a vector states, in which one length may be -1.

    Args:
        g: the graph.
        x: the tensor.
        shape: a vector of int64.
        rank: its length, if that is known.
    """
    value = x if isinstance(x, Value) else Value(x)
    ty = TensorType(None, value.dtype, ndim=rank)
    return Value(g.run("reshape", [value, g.shape_in(_as_value(shape)), 1], ty))


def _as_value(x: Value | Expr) -> Value:
    return x if isinstance(x, Value) else Value(x)


def like(g: Graph, x: Value | Expr, other: Value) -> Value:
    """The elements of x in the shape of another tensor."""
    return in_shape(g, x, shape_vector(g, other), other.ndim)


def first_axes(g: Graph, x: Value, count: int) -> Value:
    """x with `count` axes as they are and one for all the others."""
    shape = shape_vector(g, x)
    rest = g.op("prod", part(g, shape, count), [0], True)
    return in_shape(g, x, g.op("concat", [part(g, shape, 0, count), rest], 0), count + 1)


def as_image(g: Graph, x: Value, convert: Callable[[Value], Expr]) -> Expr:
    """What `convert` makes of x, whose shape it keeps; x has one axis behind the first two, if its
    rank is not known."""
    if x.ndim >= 0:
        return convert(x)
    return g.expr(like(g, convert(first_axes(g, x, 2)), x))


def axis_in_the_middle(g: Graph, x: Value, axis: int) -> Value:
    """x with three axes: one for those before `axis`, the axis, and one for those behind it."""
    least = axis + 1 if axis >= 0 else -axis
    shape = _of_rank(g, x, least, _MOST_AXES, f"axis {axis} of a tensor: number of axes")
    tail = part(g, shape, axis)
    before = g.op("prod", part(g, shape, 0, axis), [0], True)
    behind = g.op("prod", part(g, tail, 1), [0], True)
    dims = g.op("concat", [before, part(g, tail, 0, 1), behind], 0)
    return in_shape(g, x, dims, 3)


def _of_rank(g: Graph, x: Value, least: int, most: int, what: str) -> Value:
    """The dimensions of a tensor, whose number must be in a range: an error of the run if it is
    not, which begins with `what`."""
    shape = shape_vector(g, x)
    count = g.builtin("int_within", [number_of_axes(g, shape), least, most, StringImm(what)])
    vector = TensorType(None, "int64", ndim=1)
    counted = g.run("repeat", [np.ones(1, np.int64), count, 0], vector, "int64")
    end = g.shape_in(shape_vector(g, counted))  # so that the check is part of the result
    return Value(g.run("strided_slice", [shape, [0], [0], end, None], vector, "int64"))


def where_axis(
    g: Graph, shape: Value, axis: int, there: Any, elsewhere: Any
) -> Value:
    """A vector as long as `shape`, with another number at the place `axis`.

    Args:
        g: the graph.
        shape: the dimensions of a tensor.
        axis: a place in it, from the end if it is negative.
        there: the number at that place.
        elsewhere: the numbers at the others.
    """
    at: Any = np.array(axis)
    if axis < 0:
        at = g.op("add", number_of_axes(g, shape), np.array(axis))
    return Value(g.op("where", g.op("equal", places_of(g, shape), at), there, elsewhere))


def places_of(g: Graph, vector: Value) -> Expr:
    """0, 1, ... for each element of a vector of int64."""
    ones = g.op("ones_like", vector)
    return g.op("subtract", g.op("cumsum", ones, 0), ones)


def axes_of(g: Graph, x: Value, axes: Sequence[int] | Value | None = None) -> Expr:
    """Axes of x as a vector of int64, counted from the first one; all of them by default."""
    shape = shape_vector(g, x)
    if axes is None:
        return places_of(g, shape)
    if isinstance(axes, Value):
        stated: Any = g.op("astype", axes, "int64")
    else:
        stated = np.array(axes, np.int64)
    from_end = g.op("add", stated, number_of_axes(g, shape))
    return g.op("where", g.op("less", stated, np.array(0)), from_end, stated)


def with_unit_axes(g: Graph, x: Value, rank: int, name: str) -> Value:
    """x with axes of length 1 behind the first two, so that there are `rank`.

    Args:
        g: the graph.
        x: a tensor of 3 axes or more; others are an error of the run.
        rank: the number of axes of the result.
        name: of x, for that error.
    """
    shape = _of_rank(g, x, 3, rank, f"{name}: number of axes")
    missing = g.op("subtract", np.array([rank]), shape_vector(g, shape))
    ones = g.op("ones", g.shape_in(Value(missing)), "int64")
    dims = g.op("concat", [part(g, shape, 0, 2), ones, part(g, shape, 2)], 0)
    return in_shape(g, x, dims, rank)


def without_unit_axes(g: Graph, x: Value | Expr, rank: int, other: Value) -> Value:
    """A result for operands of `with_unit_axes`, with as many axes as `other` has."""
    shape = shape_vector(g, x)
    count = number_of_axes(g, shape_vector(g, other))
    start = g.op("subtract", np.array(rank + 2), count)
    begin = g.shape_in(Value(g.op("reshape", start, (1,))))
    kept = g.run("strided_slice", [shape, [0], begin, [_MOST], None],
                 TensorType(None, "int64", ndim=1), "int64")  # fmt: skip
    return in_shape(g, x, g.op("concat", [part(g, shape, 0, 2), kept], 0))
