"""Recurrent layers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ....ir import Expr, IntImm, TupleGetItem
from ...common.values import Value
from ..graph import Graph, Problem
from ..registry import onnx

__all__ = ["long_short_term"]

_DEFAULTS: Final[dict[str, tuple[float, ...]]] = {
    "Affine": (1.0, 0.0),
    "LeakyRelu": (0.01,),
    "ThresholdedRelu": (1.0,),
    "ScaledTanh": (1.0, 1.0),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0,),
}
"""Parameters of activations that have some."""
_NAMES: Final = ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", *_DEFAULTS)
_BY_LOWER: Final = {name.lower(): name for name in _NAMES}


def _activations(
    names: list[str] | None,
    default: list[str],
    alpha: list[float] | None,
    beta: list[float] | None,
    direction: str,
) -> str:
    """The functions as `relaxvm.kernels.recurrent` takes them."""
    if names is None:
        names = default * (2 if direction == "bidirectional" else 1)
    alphas, betas = list(alpha or ()), list(beta or ())
    found = []
    for given in names:
        name = _BY_LOWER.get(given.lower())
        if name is None:
            raise Problem(f"activations: {given!r} is not a function")
        defaults = _DEFAULTS.get(name, ())
        numbers = []
        if defaults:
            numbers.append(alphas.pop(0) if alphas else defaults[0])
        if len(defaults) > 1:
            numbers.append(betas.pop(0) if betas else defaults[1])
        found.append(f"{name}({','.join(map(repr, numbers))})" if numbers else name)
    return ";".join(found)


def _zeros(g: Graph, x: Value, like: Value) -> Expr:
    """Initial states: zeros of [directions, batch, size]; `like` has the recurrence weights."""
    dims, weights = g.named_dims(x, 3), g.named_dims(like, 3)
    if dims is None or weights is None:
        raise Problem(f"expected tensors of 3 axes, got X {x.type}, R {like.type}")
    return g.op("zeros", (weights[0], dims[1], weights[2]), x.dtype)


def _layer(
    g: Graph,
    name: str,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    lengths: Value | None,
    states: list[Value | None],
    layout: int,
    last: list[Any],
    gates: int,
    **attrs: Any,
) -> Any:
    if layout:
        x = Value(g.op("permute_dims", x, (1, 0, 2)))
        states = [None if s is None else Value(g.op("permute_dims", s, (1, 0, 2))) for s in states]
    if b is None:
        dims = g.named_dims(r, 3)
        if dims is None:
            raise Problem(f"R: expected a tensor of 3 axes, got {r.type}")
        b = Value(g.op("zeros", (dims[0], 2 * gates * dims[2]), x.dtype))
    if (weight := w.lengths()) is not None and len(weight) == 3:
        g.state_dims(x, [None, None, weight[2]])
        if (batch := x.dims) is not None and (size := r.lengths()) is not None and len(size) == 3:
            length = batch[1].value if isinstance(batch[1], IntImm) else None
            for state in states:
                if state is not None:
                    g.state_dims(state, [size[0], length, size[2]])
    initial = [Value(_zeros(g, x, r)) if state is None else state for state in states]
    while last and last[-1] is None:
        last.pop()
    if last and last[0] is None:  # lengths, which peepholes follow
        raise Problem("sequence_lens: expected them where P is given")
    call = g.op(name, x, w, r, b, *initial, *last, **attrs)
    results: list[Expr] = [g.emit(TupleGetItem(call, i)) for i in range(1 + len(initial))]
    if layout:
        order = (2, 0, 1, 3)
        results = [g.op("permute_dims", results[0], order),
                   *[g.op("permute_dims", each, (1, 0, 2)) for each in results[1:]]]  # fmt: skip
    return tuple([Value(each) for each in results])


@onnx("LSTM", since=1)
def lstm(
    g: Graph,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    initial_h: Value | None = None,
    initial_c: Value | None = None,
    p: Value | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,
    input_forget: int = 0,
    layout: int = 0,
    output_sequence: int = 0,
) -> Any:
    """R.nn.lstm."""
    return long_short_term(
        g, x, w, r, b, lengths, initial_h, initial_c, p, activation_alpha, activation_beta,
        activations, clip, direction, input_forget, layout,
    )  # fmt: skip


def long_short_term(
    g: Graph,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    lengths: Value | None,
    initial_h: Value | None,
    initial_c: Value | None,
    p: Value | None,
    alpha: list[float] | None,
    beta: list[float] | None,
    activations: list[str] | None,
    clip: float,
    direction: str,
    input_forget: int,
    layout: int = 0,
    quantized: bool = False,
) -> Any:
    """The results of R.nn.lstm for the operands and attributes of LSTM."""
    text = _activations(activations, ["Sigmoid", "Tanh", "Tanh"], alpha, beta, direction)
    if p is not None and lengths is None:
        lengths = _all_steps(g, x, layout)
    return _layer(
        g, "nn.lstm", x, w, r, b, lengths, [initial_h, initial_c], layout, [lengths, p], 4,
        direction=direction, activations=text, clip=clip or None, input_forget=bool(input_forget),
        quantized=quantized,
    )  # fmt: skip


def _all_steps(g: Graph, x: Value, layout: int) -> Value:
    """The number of steps of each sequence, where all have as many as there are."""
    dims = g.named_dims(x, 3)
    if dims is None:
        raise Problem(f"X: expected a tensor of 3 axes, got {x.type}")
    steps, batch = (dims[1], dims[0]) if layout else (dims[0], dims[1])
    found = np.empty((), object)
    found[()] = steps
    return Value(g.op("broadcast_to", Value(known=found), (batch,)))


@onnx("GRU", since=1)
def gru(
    g: Graph,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    initial_h: Value | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
    linear_before_reset: int = 0,
    output_sequence: int = 0,
) -> Any:
    """R.nn.gru."""
    text = _activations(activations, ["Sigmoid", "Tanh"], activation_alpha, activation_beta,
                        direction)  # fmt: skip
    return _layer(
        g, "nn.gru", x, w, r, b, lengths, [initial_h], layout, [lengths], 3, direction=direction,
        activations=text, clip=clip or None, linear_before_reset=bool(linear_before_reset),
    )  # fmt: skip


@onnx("RNN", since=1)
def rnn(
    g: Graph,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    initial_h: Value | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
    output_sequence: int = 0,
) -> Any:
    """R.nn.rnn."""
    text = _activations(activations, ["Tanh"], activation_alpha, activation_beta, direction)
    return _layer(
        g, "nn.rnn", x, w, r, b, lengths, [initial_h], layout, [lengths], 1, direction=direction,
        activations=text, clip=clip or None,
    )  # fmt: skip
