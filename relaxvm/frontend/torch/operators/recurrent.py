"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...common.emitter import Emitter, Problem
from ..forms import (
    Tensor,
    dims_of,
    dtype_of,
    each_of,
    item,
    length,
    rank_of,
    reshaped,
    sliced,
)
from ..registry import aten
from .products import linear
from .shapes import stack, swapped

__all__: list[str] = []

_ORDERS = {"nn.lstm": (0, 3, 1, 2), "nn.gru": (1, 0, 2), "nn.rnn": (0,)}
"""The places of the gates in torch's weights, in the order of relaxvm's."""


def _reordered(c: Emitter, x: Tensor, order: Sequence[int]) -> Tensor:
    """Weights with their gates, which are parts of the first axis, in another order."""
    if len(order) == 1:
        return x
    size = length(dims_of(x)[0] // len(order))
    parts = [c.expr(sliced(c, x, 0, length(i * size), length((i + 1) * size))) for i in order]
    return c.op("concat", parts, 0)


def _layers(
    c: Emitter, name: str, x: Tensor, states: Sequence[Tensor], params: Sequence[Tensor],
    has_biases: bool, num_layers: int, bidirectional: bool, **attrs: Any,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """The states of all steps and the last states of all layers; x[steps, batch, inputs]."""
    order = _ORDERS[name]
    directions = 2 if bidirectional else 1
    per = 4 if has_biases else 2
    is_projected = len(params) == num_layers * directions * (per + 1)
    per += is_projected
    last: list[list[Tensor]] = [[] for _ in states]
    steps, batch, _ = dims_of(x)
    for layer in range(num_layers):
        weights: list[list[Tensor]] = [[], [], [], []]
        for direction in range(directions):
            at = (layer * directions + direction) * per
            given = list(params[at : at + per])
            if is_projected:
                weights[3].append(swapped(c, given.pop(), 0, 1))
            given = [_reordered(c, each, order) for each in given]
            weights[0].append(given[0])
            weights[1].append(given[1])
            if has_biases:
                weights[2].append(c.op("concat", [c.expr(given[2]), c.expr(given[3])], 0))
        first = layer * directions
        initial = [sliced(c, each, 0, first, first + directions) for each in states]
        if is_projected:
            x, initial = _unprojected(c, x, initial, weights)
        wide, recurrence = stack(c, weights[0], 0), stack(c, weights[1], 0)
        hidden = dims_of(recurrence)[2]
        if has_biases:
            bias = stack(c, weights[2], 0)
        else:
            bias = c.op("zeros", [directions, 2 * len(order) * hidden], dtype_of(x))
        call = c.op(
            name, x, wide, recurrence, bias, *initial,
            direction="bidirectional" if bidirectional else "forward", **attrs,
        )  # fmt: skip
        results = [item(c, call, i) for i in range(1 + len(last))]
        if is_projected:
            projection = stack(c, weights[3], 0)
            results[:2] = [c.op("matmul", each, projection) for each in results[:2]]
            hidden = dims_of(projection)[2]
        for each, state in zip(last, results[1:], strict=True):
            each.append(c.expr(state))
        found = c.op("permute_dims", results[0], [0, 2, 1, 3])
        x = reshaped(c, found, [steps, batch, length(directions * hidden)])
    return x, [each[0] if len(each) == 1 else c.op("concat", each, 0) for each in last]


def _unprojected(
    c: Emitter, x: Tensor, initial: Sequence[Tensor], weights: list[list[Tensor]]
) -> tuple[Tensor, list[Tensor]]:
    """A layer whose state h is ``h2 @ p`` (``proj_size``) as one with the state h2.

    The recurrence ``h @ r`` is ``h2 @ (p @ r)``.  Only the first step has an h that is no
    projection: it gets ``h @ r`` as a part of its input, that is zero in the other steps, and
    begins with an h2 of zeros.  The weights for inputs and recurrences are replaced.
    """
    inputs, recurrences, _, projections = weights
    steps, batch, _ = dims_of(x)
    h, cell = initial
    size = dims_of(h)[2]
    rest = c.op("zeros", [length(steps - 1), batch, size], dtype_of(x))
    nothing = c.op("zeros", dims_of(recurrences[0]), dtype_of(x))
    parts = [x]
    for i, recurrence in enumerate(recurrences):
        start = sliced(c, h, 0, i, i + 1)
        parts.append(c.op("concat", [start, rest] if i == 0 else [rest, start], 0))
        others = [recurrence if k == i else nothing for k in range(len(recurrences))]
        inputs[i] = c.op("concat", [inputs[i], *others], 1)
    for i, recurrence in enumerate(recurrences):
        recurrences[i] = c.op("matmul", recurrence, swapped(c, projections[i], 0, 1))
    return c.op("concat", parts, 2), [c.op("zeros", dims_of(cell), dtype_of(x)), cell]


def _steps_first(
    c: Emitter, x: Tensor, states: Sequence[Tensor], batch_first: bool
) -> tuple[Tensor, list[Tensor], bool]:
    """x[steps, batch, inputs] and states[layers, batch, size]; whether there is no batch."""
    is_single = rank_of(x) == 2
    if is_single:
        x = reshaped(c, x, [dims_of(x)[0], 1, dims_of(x)[1]])
        return x, [reshaped(c, s, [dims_of(s)[0], 1, dims_of(s)[1]]) for s in states], True
    return (swapped(c, x, 0, 1) if batch_first else x), list(states), False


def _back(
    c: Emitter, x: Tensor, last: list[Tensor], batch_first: bool, is_single: bool
) -> tuple[Tensor, ...]:
    if is_single:
        dims = dims_of(x)
        x = reshaped(c, x, [dims[0], dims[2]])
        return x, *[reshaped(c, s, [dims_of(s)[0], dims_of(s)[2]]) for s in last]
    return (swapped(c, x, 0, 1) if batch_first else x), *last


def _checked(train: bool, dropout: float) -> None:
    if train and dropout:
        raise Problem("dropout in training is not supported")


def _named(functions: list[str], bidirectional: bool) -> str:
    """The functions for each direction as the kernels take them."""
    return ";".join(functions * (2 if bidirectional else 1))


@aten("lstm.input")
def lstm(
    c: Emitter, input: Tensor, hx: Any, params: Any, has_biases: bool, num_layers: int,  # noqa: A002
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    """R.nn.lstm of each layer."""
    _checked(train, dropout)
    x, states, is_single = _steps_first(c, input, hx, batch_first)
    y, last = _layers(c, "nn.lstm", x, states, params, has_biases, num_layers, bidirectional,
                      activations=_named(["Sigmoid", "Tanh", "Tanh"], bidirectional))  # fmt: skip
    return _back(c, y, last, batch_first, is_single)


@each_of("gru.input", "rnn_tanh.input", "rnn_relu.input")
def gru_or_rnn(
    name: str, c: Emitter, input: Tensor, hx: Tensor, params: Any, has_biases: bool,  # noqa: A002
    num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    """R.nn.gru or R.nn.rnn of each layer."""
    _checked(train, dropout)
    x, states, is_single = _steps_first(c, input, [hx], batch_first)
    attrs: dict[str, Any] = {"linear_before_reset": True} if name == "gru" else {}
    functions = {"gru": ["Sigmoid", "Tanh"], "rnn_tanh": ["Tanh"], "rnn_relu": ["Relu"]}[name]
    attrs["activations"] = _named(functions, bidirectional)
    target = "nn.gru" if name == "gru" else "nn.rnn"
    y, last = _layers(c, target, x, states, params, has_biases, num_layers, bidirectional, **attrs)
    return _back(c, y, last, batch_first, is_single)


# Single steps


def _gates(
    c: Emitter, x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None,
    b_hh: Tensor | None, count: int,
) -> tuple[list[Tensor], list[Tensor]]:  # fmt: skip
    """The parts of both products for each gate."""
    found = []
    for each, weight, bias in ((x, w_ih, b_ih), (h, w_hh, b_hh)):
        total = linear(c, each, weight, bias)
        axis = rank_of(total) - 1
        size = length(dims_of(total)[axis] // count)
        found.append([sliced(c, total, axis, length(i * size), length((i + 1) * size))
                      for i in range(count)])  # fmt: skip
    return found[0], found[1]


@aten("lstm_cell")
def lstm_cell(
    c: Emitter, input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,  # noqa: A002
    b_hh: Tensor | None = None,
) -> Any:  # fmt: skip
    """One step of long short-term memory."""
    h, cell = hx
    first, second = _gates(c, input, h, w_ih, w_hh, b_ih, b_hh, 4)
    i, f, g, o = (c.op("add", a, b) for a, b in zip(first, second, strict=True))
    kept = c.op("multiply", c.op("sigmoid", f), cell)
    new = c.op("add", kept, c.op("multiply", c.op("sigmoid", i), c.op("tanh", g)))
    return c.op("multiply", c.op("sigmoid", o), c.op("tanh", new)), new


@aten("gru_cell")
def gru_cell(
    c: Emitter, input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,  # noqa: A002
    b_hh: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """One step of a gated recurrent unit."""
    (r, z, n), (r2, z2, n2) = _gates(c, input, hx, w_ih, w_hh, b_ih, b_hh, 3)
    reset = c.op("sigmoid", c.op("add", r, r2))
    update = c.op("sigmoid", c.op("add", z, z2))
    new = c.op("tanh", c.op("add", n, c.op("multiply", reset, n2)))
    apart = c.op("subtract", hx, new)
    return c.op("add", new, c.op("multiply", update, apart))


@each_of("rnn_tanh_cell", "rnn_relu_cell")
def rnn_cell(
    name: str, c: Emitter, input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor,  # noqa: A002
    b_ih: Tensor | None = None, b_hh: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """One step of a plain recurrent layer."""
    (a,), (b,) = _gates(c, input, hx, w_ih, w_hh, b_ih, b_hh, 1)
    return c.op("tanh" if name == "rnn_tanh_cell" else "nn.relu", c.op("add", a, b))


