"""Steps of optimizers: new tensors from gradients and from what earlier steps have left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ....ir import Expr
from ..graph import Graph, Problem
from ..registry import onnx
from ..values import Value
from .elementwise import scalar

__all__: list[str] = []

TRAINING: Final = "ai.onnx.preview.training"


def _groups(tensors: tuple[Value, ...], kinds: int) -> list[tuple[Value, ...]]:
    """The tensors of each step: one of each kind."""
    count, rest = divmod(len(tensors), kinds)
    if rest:
        raise Problem(f"expected {kinds} tensors for each that is changed, got {len(tensors)}")
    return [tuple([tensors[i + k * count] for k in range(kinds)]) for i in range(count)]


def _in_order(results: Sequence[tuple[Expr, ...]]) -> tuple[Value, ...]:
    return tuple([Value(each) for kind in zip(*results, strict=True) for each in kind])


def _regularized(g: Graph, x: Value, gradient: Value, norm: float) -> Expr:
    if not norm:
        return g.expr(gradient)
    return g.op("add", g.op("multiply", x, scalar(g, norm, x)), gradient)


def _scaled(g: Graph, x: Any, factor: Any, like: Value) -> Expr:
    """The product with a number, or with a tensor of rank 0 of another data type."""
    if isinstance(factor, (int, float)):
        return g.op("multiply", x, scalar(g, factor, like))
    return g.op("multiply", x, g.op("astype", factor, like.dtype))


def _blended(g: Graph, old: Value, new: Any, weight: float) -> Expr:
    return g.op("add", _scaled(g, old, weight, old), _scaled(g, new, 1 - weight, old))


@onnx("Adagrad", since=1, domain=TRAINING)
def adagrad(
    g: Graph,
    rate: Value,
    step: Value,
    *tensors: Value,
    norm_coefficient: float = 0.0,
    decay_factor: float = 0.0,
    epsilon: float = 0.0,
) -> Any:
    """A step of AdaGrad."""
    count = g.op("astype", step, "float32")
    decay = g.op("add", g.op("multiply", count, np.array(decay_factor, "f4")), np.array(1, "f4"))
    rate = Value(g.op("divide", g.op("astype", rate, "float32"), decay))
    results = []
    for x, gradient, squares in _groups(tensors, 3):
        slope = _regularized(g, x, gradient, norm_coefficient)
        total = g.op("add", squares, g.op("square", slope))
        root = g.op("add", g.op("sqrt", total), scalar(g, epsilon, x))
        change = g.op("divide", _scaled(g, slope, rate, x), root)
        results.append((g.op("subtract", x, change), total))
    return _in_order(results)


@onnx("Adam", since=1, domain=TRAINING)
def adam(
    g: Graph,
    rate: Value,
    step: Value,
    *tensors: Value,
    alpha: float = 0.9,
    beta: float = 0.999,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
    epsilon: float = 0.0,
) -> Any:
    """A step of Adam."""
    one = np.array(1, "f8")
    count = g.op("astype", step, "float64")
    unbiased = [
        g.op("subtract", one, g.op("power", np.array(base, "f8"), count)) for base in (alpha, beta)
    ]
    rate64 = g.op("astype", rate, "float64")
    adjusted = g.op("divide", g.op("multiply", rate64, g.op("sqrt", unbiased[1])), unbiased[0])
    is_later = g.op("greater", count, np.array(0, "f8"))
    factor = Value(g.op("where", is_later, adjusted, rate64))
    results = []
    for x, gradient, mean, squares in _groups(tensors, 4):
        slope = _regularized(g, x, gradient, norm_coefficient)
        new_mean = _blended(g, mean, slope, alpha)
        new_squares = _blended(g, squares, g.op("square", slope), beta)
        root = g.op("add", g.op("sqrt", new_squares), scalar(g, epsilon, x))
        change = g.op("divide", _scaled(g, new_mean, factor, x), root)
        moved = g.op("subtract", x, change)
        results.append((_scaled(g, moved, 1 - norm_coefficient_post, x), new_mean, new_squares))
    return _in_order(results)


@onnx("Momentum", since=1, domain=TRAINING)
def momentum(
    g: Graph,
    rate: Value,
    step: Value,
    *tensors: Value,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> Any:
    """A step of gradient descent with momentum, the standard one or Nesterov's."""
    if mode not in ("standard", "nesterov"):
        raise Problem(f"mode: expected standard or nesterov, got {mode}")
    count = g.op("astype", step, "float32")
    is_later = g.op("greater", count, np.array(0, "f4"))
    weight = Value(g.op("where", is_later, np.array(beta, "f4"), np.array(1, "f4")))
    results = []
    for x, gradient, speed in _groups(tensors, 3):
        slope = _regularized(g, x, gradient, norm_coefficient)
        new_speed = g.op(
            "add", _scaled(g, speed, alpha, x), _scaled(g, slope, weight, x)
        )
        change: Any = new_speed
        if mode == "nesterov":
            change = g.op("add", slope, _scaled(g, new_speed, alpha, x))
        results.append((g.op("subtract", x, _scaled(g, change, rate, x)), new_speed))
    return _in_order(results)
