"""Tensors of unknown rank, which get a known one when the model runs.

An operator whose program depends on the rank asks for it by `rank_of`, and the program gets a
branch for each rank.

Few operators depend on how many axes there are: the others see an axis, those before it and those
behind it.  So a tensor of unknown rank is reshaped by vectors that are computed from its shape, and
the result gets the shape that the operator states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ....ir import Expr, StringImm, TensorType
from ...common.values import Value
from ..graph import Graph, Problem, Undecided

__all__ = [
    "MOST_BRANCHES",
    "as_image",
    "at_least",
    "axes_of",
    "axis_in_the_middle",
    "by_row",
    "first_axes",
    "in_shape",
    "last_axes",
    "length_of_axis",
    "length_of_vector",
    "like",
    "matrix_turned",
    "number_of_axes",
    "part",
    "rank_of",
    "shape_vector",
    "where_axis",
    "with_rank",
    "with_unit_axes",
    "without_unit_axes",
]  # fmt: skip

MOST_BRANCHES: Final = 6
"""The highest rank of tensors for which programs get a branch for each rank."""
_MOST = 1 << 48
"""The end of every axis."""
_MOST_AXES = 64
"""Of arrays."""


def rank_of(x: Value, name: str, least: int = 1, most: int = MOST_BRANCHES) -> int:
    """The rank of an operand; where only the run knows it, the operator is imported once for each.

    Args:
        x: the operand.
        name: of it.
        least, most: the ranks that the operator has.

    Raises:
        Problem: it is another one.
    """
    if x.ndim < 0:
        types = [TensorType(None, x.dtype, ndim=rank) for rank in range(least, most + 1)]
        raise Undecided(x, types, name)
    if not least <= x.ndim:
        raise Problem(f"{name}: expected a tensor of rank {least} or more, got {x.type}")
    return x.ndim


def length_of_vector(x: Value, name: str, lengths: Sequence[int]) -> int:
    """The length of a vector; where only the run knows it, the operator is imported once for each.

    Args:
        x: the vector.
        name: of it.
        lengths: those that the operator has.

    Raises:
        Problem: it is another one.
    """
    found = x.length
    if found is None:
        raise Undecided(x, [TensorType((length,), x.dtype) for length in lengths], name)
    if found not in lengths:
        wanted = " or ".join(map(str, lengths))
        raise Problem(f"{name}: expected {wanted} elements, got {found}")
    return found


def shape_vector(g: Graph, x: Value | Expr) -> Value:
    """The dimensions as a vector of int64."""
    return Value(g.op("shape_to_tensor", g.op("shape_of", x)))


def number_of_axes(g: Graph, shape: Value) -> Expr:
    """The length of such a vector, as an int64 of no axes."""
    return g.op("take", shape_vector(g, shape), np.array(0), 0)


def part(g: Graph, vector: Value | Expr, start: int, end: int = _MOST) -> Value:
    """``vector[start:end]``."""
    return Value(g.op("strided_slice", vector, [0], [start], [end]))


def length_of_axis(g: Graph, x: Value, axis: int) -> Expr:
    """The length of an axis, as an int64 of no axes."""
    return g.op("take", part(g, shape_vector(g, x), axis), np.array(0), 0)


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


def with_rank(g: Graph, x: Value, rank: int, name: str) -> Value:
    """x, which an attribute says to have this rank: an error of the run if it has another one.

    Raises:
        Problem: it is known to have another one.
    """
    if x.ndim < 0:
        return Value(g.context.builder.match_cast(g.expr(x), TensorType(None, x.dtype, ndim=rank)))
    if x.ndim != rank:
        raise Problem(f"{name}: expected a tensor of rank {rank}, got {x.type}")
    return x


def by_row(g: Graph, p: Value, x: Value) -> Value:
    """A number for a tensor, or for each row of its matrices, in a shape that broadcasts to it.

    Args:
        g: the graph.
        p: a number, a vector of numbers of rows, or a tensor that broadcasts already.
        x: the tensor.
    """
    if p.ndim == 1 and (p.length == 1 or x.ndim >= 0):
        shape = () if p.length == 1 or x.ndim == 1 else (-1, 1)
        known = p.constant()
        return Value(g.op("reshape", p, shape)) if known is None else Value(
            known=known.reshape(shape)
        )  # fmt: skip
    if p.ndim >= 0 and p.ndim != 1:
        return p
    dims = shape_vector(g, p)
    counts = [number_of_axes(g, each) for each in (dims, shape_vector(g, x))]
    is_vector = g.op("equal", counts[0], np.array(1))
    has_rows = g.op("greater", counts[1], np.array(1))
    more = g.op("astype", g.op("logical_and", is_vector, has_rows), "int64")
    ones = g.op("ones", g.shape_in(Value(g.op("reshape", more, (1,)))), "int64")
    return in_shape(g, p, g.op("concat", [dims, ones], 0))


def last_axes(g: Graph, x: Value, rank: int) -> Value:
    """x with this rank, of at most as many axes: axes of length 1 come first."""
    if x.ndim == rank:
        return x
    shape = g.op("concat", [np.ones(rank, np.int64), shape_vector(g, x)], 0)
    return in_shape(g, x, part(g, shape, -rank), rank)


def at_least(g: Graph, x: Value, rank: int) -> Value:
    """x with axes of length 1 before the others, so that there are `rank` or more."""
    if x.ndim >= rank:
        return x
    shape = shape_vector(g, x)
    missing = g.op("maximum", g.op("subtract", np.array([rank]), shape_vector(g, shape)),
                   np.array(0))  # fmt: skip
    ones = g.op("ones", g.shape_in(Value(missing)), "int64")
    return in_shape(g, x, g.op("concat", [ones, shape], 0))


def matrix_turned(g: Graph, x: Value) -> Value:
    """x with its last two axes swapped."""
    if x.ndim >= 0:
        rank = rank_of(x, "a matrix", 2)
        return Value(g.op("permute_dims", x, (*range(rank - 2), rank - 1, rank - 2)))
    shape = shape_vector(g, x)
    pair = part(g, shape, -2)
    flat = in_shape(g, x, g.op("concat", [np.array([-1]), pair], 0), 3)
    turned = g.op("permute_dims", flat, (0, 2, 1))
    dims = g.op("concat", [part(g, shape, 0, -2), g.op("flip", pair, 0)], 0)
    return in_shape(g, turned, dims)


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
