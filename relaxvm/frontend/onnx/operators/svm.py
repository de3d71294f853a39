"""Support vector machines of ai.onnx.ml."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....ir import Expr, TensorType
from ...common.values import Value
from ..graph import Graph, Problem
from ..registry import ML, onnx
from .attention import dims_of, length_of
from .classes import as_float, dtype_of_numbers, texts_at, transformed

__all__: list[str] = []

def _similar(
    g: Graph, x: Value, vectors: NDArray[Any], kernel: str, parameters: list[float] | None
) -> Expr:
    """The kernel function of each row and each support vector."""
    gamma, offset, degree = (*(parameters or ()), 0.0, 0.0, 0.0)[:3]
    dtype = dtype_of_numbers(x)
    columns = length_of(dims_of(g, x, 2, "X")[1])
    if columns is not None and columns != vectors.shape[1]:
        raise Problem(f"support_vectors: expected vectors of {columns}, got {vectors.shape[1]}")
    product = g.op("matmul", x, vectors.T.copy())
    if kernel == "LINEAR":
        return product
    if kernel == "RBF":
        own = g.op("sum", g.op("multiply", x, x), [1], True)
        theirs = np.square(vectors).sum(1).astype(dtype)
        twice = g.op("multiply", product, np.array(2, dtype))
        distance = g.op("subtract", g.op("add", own, theirs), twice)
        distance = g.op("maximum", distance, np.array(0, dtype))
        return g.op("exp", g.op("multiply", distance, np.array(-gamma, dtype)))
    line = g.op("add", g.op("multiply", product, np.array(gamma, dtype)), np.array(offset, dtype))
    if kernel == "SIGMOID":
        return g.op("tanh", line)
    if kernel == "POLY":
        return g.op("power", line, np.array(int(degree), dtype))
    raise Problem(f"kernel_type: {kernel!r} is not a kernel")


@onnx("SVMRegressor", since=1, domain=ML)
def svm_regressor(
    g: Graph,
    x: Value,
    *,
    coefficients: list[float],
    kernel_params: list[float] | None = None,
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: list[float],
    support_vectors: list[float] | None = None,
) -> Expr:
    """The sum of the coefficients times the kernel function of the support vectors, plus rho."""
    x = as_float(g, x)
    dtype = dtype_of_numbers(x)
    if n_supports:
        if len(coefficients) != n_supports or len(support_vectors or ()) % n_supports:
            raise Problem(f"expected coefficients and vectors of {n_supports} supports")
        vectors = np.array(support_vectors, dtype).reshape(n_supports, -1)
        similar: Any = _similar(g, x, vectors, kernel_type, kernel_params)
    else:
        similar = x
    found: Expr = g.op("matmul", similar, np.array(coefficients, dtype).reshape(-1, 1))
    found = g.op("add", found, np.array(rho[0], dtype))
    if one_class:
        above = g.op("greater", found, np.array(0, dtype))
        found = g.op("where", above, np.array(1, dtype), np.array(-1, dtype))
    found = transformed(g, found, post_transform)
    return found if found.ty.dtype == "float32" else g.op("astype", found, "float32")


@onnx("SVMClassifier", since=1, domain=ML)
def svm_classifier(
    g: Graph,
    x: Value,
    *,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    coefficients: list[float],
    kernel_params: list[float] | None = None,
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: list[float] | None = None,
    prob_b: list[float] | None = None,
    rho: list[float],
    support_vectors: list[float] | None = None,
    vectors_per_class: list[int] | None = None,
) -> Any:
    """The class that wins most of the comparisons of two, and the scores of these, or the
    probabilities of the classes."""
    labels: list[Any] = classlabels_strings or classlabels_ints or []
    count = len(labels)
    x = as_float(g, x)
    if not vectors_per_class:
        if prob_a:
            raise Problem("probabilities without support vectors are not supported")
        scores = _linear_scores(g, x, coefficients, rho, count)
        winner: Expr = g.op("argmax", scores, 1)
    else:
        if count < 2 or len(vectors_per_class) != count or len(rho) != count * (count - 1) // 2:
            raise Problem(
                f"expected vectors for each class, and a rho for two each, got {count} classes, "
                f"vectors for {len(vectors_per_class)}, and {len(rho)} rhos"
            )
        total = sum(vectors_per_class)
        if len(coefficients) != total * (count - 1) or len(support_vectors or ()) % max(total, 1):
            raise Problem(f"expected coefficients and vectors of {total} supports")
        vectors = np.array(support_vectors, dtype_of_numbers(x)).reshape(total, -1)
        similar = _similar(g, x, vectors, kernel_type, kernel_params)
        scores = _pair_scores(g, similar, coefficients, rho, vectors_per_class)
        winner = _most_votes(g, scores, count)
        if prob_a:
            scores = _probabilities(g, scores, prob_a, prob_b or [], count)
        elif count == 2:
            if post_transform != "NONE":
                raise Problem(
                    f"post_transform: {post_transform!r} of the scores of two classes is not "
                    f"supported"
                )
            scores = g.op("concat", [g.op("negative", scores), scores], 1)
    found = transformed(g, scores, post_transform)
    if found.ty.dtype != "float32":
        found = g.op("astype", found, "float32")
    if classlabels_strings:
        return texts_at(g, classlabels_strings, winner), Value(found)
    return Value(g.op("take", np.array(labels, np.int64), winner, 0)), Value(found)


def _pairs(count: int) -> list[tuple[int, int]]:
    return list(itertools.combinations(range(count), 2))


def _linear_scores(
    g: Graph, x: Value, coefficients: list[float], rho: list[float], count: int
) -> Expr:
    """A score for each class, without support vectors."""
    if count < 1 or len(coefficients) % count or not rho:
        raise Problem(f"expected coefficients for {count} classes, and rho")
    weights = np.array(coefficients, dtype_of_numbers(x)).reshape(count, -1)
    scores = g.op("matmul", x, weights.T.copy())
    return g.op("add", scores, np.array(rho[0], dtype_of_numbers(x)))


def _pair_scores(
    g: Graph, similar: Expr, coefficients: list[float], rho: list[float], sizes: list[int]
) -> Expr:
    """A score for each two classes: above 0 for the first one."""
    dtype = similar.ty.dtype
    count, total = len(sizes), sum(sizes)
    given = np.array(coefficients, dtype).reshape(count - 1, total)
    weights = np.zeros((total, len(rho)), dtype)
    ends = np.cumsum([0, *sizes])
    for column, (i, j) in enumerate(_pairs(count)):
        mine, other = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        weights[mine, column], weights[other, column] = given[j - 1, mine], given[i, other]
    return g.op("add", g.op("matmul", similar, weights), np.array(rho, dtype))


def _most_votes(g: Graph, scores: Expr, count: int) -> Expr:
    """The class that wins most comparisons, the first one of several."""
    dtype = scores.ty.dtype
    pairs = _pairs(count)
    wins = g.op("astype", g.op("greater", scores, np.array(0, dtype)), dtype)
    for_first, for_second = (np.zeros((len(pairs), count), dtype) for _ in range(2))
    for row, (i, j) in enumerate(pairs):
        for_first[row, i], for_second[row, j] = 1, 1
    losses = g.op("subtract", np.array(1, dtype), wins)
    votes = g.op("add", g.op("matmul", wins, for_first), g.op("matmul", losses, for_second))
    return g.op("argmax", votes, 1)


def _probabilities(
    g: Graph, scores: Expr, prob_a: list[float], prob_b: list[float], count: int
) -> Expr:
    """A probability for each class, by Platt's method for two and by coupling of these."""
    dtype = scores.ty.dtype
    pairs = _pairs(count)
    if not len(prob_a) == len(prob_b) == len(pairs):
        raise Problem(f"expected prob_a and prob_b for {len(pairs)} pairs of classes")
    line = g.op("multiply", scores, np.array(prob_a, dtype))
    line = g.op("add", line, np.array(prob_b, dtype))
    first = g.op("sigmoid", g.op("negative", line))
    least = 1e-7
    first = g.op("maximum", g.op("minimum", first, np.array(1 - least, dtype)),
                 np.array(least, dtype))  # fmt: skip
    both = g.op("concat", [first, g.op("subtract", np.array(1, dtype), first)], 1)
    # Places in `both` of the probability of i against j; those of i against i are not read.
    places = np.zeros((count, count), np.int64)
    for column, (i, j) in enumerate(pairs):
        places[i, j], places[j, i] = column, len(pairs) + column
    table = g.op("take", both, places, 1)
    rows = scores.ty.dims
    ty = TensorType.of(None if rows is None else (rows[0], count), dtype, ndim=2)
    call = g.builtin("pairwise_probabilities", [table])
    return g.context.builder.match_cast(call, ty)
