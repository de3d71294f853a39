"""Scores of classes as ai.onnx.ml has them: transformations, and the class with the best one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....dtypes import as_dtype
from ....ir import Expr
from ...common.values import Value
from ..graph import Graph, Problem
from ..strings import table_of

__all__ = ["as_float", "dtype_of_numbers", "labelled", "texts_at", "transformed"]


def as_float(g: Graph, x: Value) -> Value:
    """Numbers as float32, or float64 if they are that."""
    return x if x.dtype in ("float32", "float64") else Value(g.op("astype", x, "float32"))


def dtype_of_numbers(x: Value) -> np.dtype[Any]:
    """The data type of a tensor of numbers.

    Raises:
        Problem: it is not known, or the tensor has strings.
    """
    if x.dtype is None or x.dtype == "str":
        raise Problem("expected a tensor of numbers of a known data type")
    return as_dtype(x.dtype)


def transformed(g: Graph, scores: Expr, transform: str) -> Expr:
    """Scores after a transformation: NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT."""
    dtype = scores.ty.dtype
    if transform == "NONE":
        return scores
    if transform == "SOFTMAX":
        return g.op("nn.softmax", scores, -1)
    if transform == "LOGISTIC":
        return g.op("sigmoid", scores)
    zero = np.array(0, dtype)
    if transform == "SOFTMAX_ZERO":  # zeros stay zeros
        top = g.op("max", scores, [-1], True)
        powers = g.op("exp", g.op("subtract", scores, top))
        is_zero = g.op("less_equal", g.op("abs", scores), np.array(1e-7, dtype))
        small = g.op("multiply", scores, g.op("exp", g.op("negative", top)))
        powers = g.op("where", is_zero, small, powers)
        return g.op("divide", powers, g.op("sum", powers, [-1], True))
    if transform == "PROBIT":  # Winitzki's approximation of the inverse error function
        centered = g.op("subtract", g.op("multiply", scores, np.array(2, dtype)),
                        np.array(1, dtype))  # fmt: skip
        square = g.op("multiply", centered, centered)
        log = g.op("log", g.op("subtract", np.array(1, dtype), square))
        half = g.op("add", g.op("multiply", log, np.array(0.5, dtype)),
                    np.array(2 / (math.pi * 0.147), dtype))  # fmt: skip
        rest = g.op("multiply", log, np.array(1 / 0.147, dtype))
        root = g.op("sqrt", g.op("subtract", g.op("multiply", half, half), rest))
        found = g.op("sqrt", g.op("subtract", root, half))
        scaled = g.op("multiply", found, np.array(1.41421356, dtype))
        below = g.op("less", centered, zero)
        return g.op("where", below, g.op("negative", scaled), scaled)
    raise Problem(f"post_transform: {transform!r} is not a transformation")


def labelled(
    g: Graph,
    scores: Expr,
    ints: list[int] | None,
    texts: list[str] | None,
    transform: str,
    is_positive: bool = False,
) -> Any:
    """The labels of the best classes, and the transformed scores, as float32.

    Args:
        g: the graph.
        scores: [rows, classes]; with two labels, one column stands for both classes.
        ints, texts: the labels.
        transform: see `transformed`.
        is_positive: whether the one column is a probability, rather than a distance from 0.
    """
    labels: list[Any] = texts or ints or [0, 1]
    dims = scores.ty.dims
    columns = getattr(dims[1], "value", None) if dims is not None else None
    if columns == 1 and len(labels) == 2:
        one = np.array(1, scores.ty.dtype)
        if is_positive:
            bound, other = 0.5, g.op("subtract", one, scores)
        else:
            bound, other = 0.0, g.op("negative", scores)
        second = g.op("greater", g.op("squeeze", scores, (1,)), np.array(bound, scores.ty.dtype))
        best: Expr = g.op("astype", second, "int64")
        if is_positive and transform != "NONE":
            other = g.op("negative", scores)
        scores = transformed(g, g.op("concat", [other, scores], 1), transform)
    elif columns != len(labels):
        raise Problem(f"expected a label for each of {columns} classes, got {len(labels)}")
    else:
        scores = transformed(g, scores, transform)
        best = g.op("argmax", scores, 1)
    if texts:
        return texts_at(g, texts, best), Value(_as_float32(g, scores))
    if labels != list(range(len(labels))):
        best = g.op("take", np.array(labels, np.int64), best, 0)
    return Value(best), Value(_as_float32(g, scores))


def _as_float32(g: Graph, scores: Expr) -> Expr:
    return scores if scores.ty.dtype == "float32" else g.op("astype", scores, "float32")


def texts_at(g: Graph, texts: Sequence[str], places: Expr) -> Value:
    """A tensor of strings, by their places in a list."""
    known = np.empty(len(texts), object)
    known[:] = texts
    table, _ = table_of(g, Value(known=known, dtype="str"))
    return Value(dtype="str", strings=(table, Value(places)))
