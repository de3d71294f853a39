"""Linear layers with weights in blocks of 16 columns, and functions that follow them.

The results of these kernels in C differ by rounding from those of the kernels that they stand for:
sums have another order, and functions are approximations of their own
(`relaxvm/kernels/c/sets/math.h`).  Passes that optimize models put calls of them into programs.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ._arrays import aligned_zeros, copy_if_overlapping
from ._functions import FUNCTIONS, Function, apply_function
from ._kernel import ChainStep, kernel
from ._multiply import multiply
from .blocks import BLOCK
from .checks import FLOAT32, WrongValue, check_out
from .kinds import Flag, Float, Floats, Integers, Out, OutLike
from .nn import Mask, attention, layer_norm, softmax
from .recurrent import Direction, gru, lstm

__all__ = ["GATES", "GRU_GATES", "pack_gates", "pack_linear"]

GATES: Final = 4
"""Of a long short-term memory: input, output, forget, cell."""

GRU_GATES: Final = 3
"""Of a gated recurrent unit: update, reset, hidden."""


def pack_linear(weight: NDArray[Any]) -> NDArray[np.float32]:
    """weight[inputs, outputs] as [blocks of outputs, inputs, 16], with zeros in the last block."""
    inputs, outputs = weight.shape
    packed = aligned_zeros((-(-outputs // BLOCK), inputs, BLOCK), np.float32)
    whole = outputs // BLOCK * BLOCK
    split = weight[:, :whole].reshape(inputs, -1, BLOCK)
    packed[: whole // BLOCK] = split.transpose(1, 0, 2)
    if whole < outputs:
        packed[-1, :, : outputs - whole] = weight[:, whole:]
    return packed


def pack_gates(weight: NDArray[Any], gates: int) -> NDArray[np.float32]:
    """weight[directions, gates * size, inputs] as [directions, gates * blocks, inputs, 16]: the
    gates of 16 elements of the state are side by side."""
    directions, rows, inputs = weight.shape
    size = rows // gates
    blocks = -(-size // BLOCK)
    packed = np.zeros((directions, gates, blocks * BLOCK, inputs), np.float32)
    packed[:, :, :size] = weight.reshape(directions, gates, size, inputs)
    split = packed.reshape(directions, gates, blocks, BLOCK, inputs)
    split = split.transpose(0, 2, 1, 4, 3)
    return np.ascontiguousarray(split.reshape(directions, gates * blocks, inputs, BLOCK))


def _unpacked_gates(weight: NDArray[Any], gates: int, size: int) -> NDArray[Any]:
    """What `pack_gates` has packed."""
    directions, _, inputs, _ = weight.shape
    split = weight.reshape(directions, -1, gates, inputs, BLOCK).transpose(0, 2, 1, 4, 3)
    plain = split.reshape(directions, gates, -1, inputs)[:, :, :size]
    return plain.reshape(directions, gates * size, inputs)


@kernel("nn.lstm_blocks")
def lstm_blocks(
    x: Floats,
    weight: Floats,
    recurrence: Floats,
    bias: Floats,
    initial_h: Floats,
    initial_c: Floats,
    lengths: Integers | None,
    direction: Direction,
    *outs: Out,
) -> None:
    """As `nn.lstm`, with the usual functions, of weights whose gates are in blocks:
    weight[directions, 4 * blocks, inputs, 16], recurrence[directions, 4 * blocks, size, 16], and
    bias[directions, 64 * blocks], the sum of both biases.  The four gates of 16 elements of the
    state are side by side.  float32."""
    weight, recurrence, bias = _unpacked_layer(x, weight, recurrence, bias, direction, GATES)
    functions = ";".join(["Sigmoid;Tanh;Tanh"] * len(bias))
    lstm(
        x, weight, recurrence, np.concatenate([bias, np.zeros_like(bias)], 1), initial_h,
        initial_c, lengths, None, direction, functions, None, False, False, *outs,
    )  # fmt: skip


@kernel("nn.gru_blocks")
def gru_blocks(
    x: Floats,
    weight: Floats,
    recurrence: Floats,
    bias: Floats,
    hidden_bias: Floats,
    initial_h: Floats,
    lengths: Integers | None,
    direction: Direction,
    linear_before_reset: Flag,
    *outs: Out,
) -> None:
    """As `nn.gru`, with the usual functions, of weights whose gates are in blocks:
    weight[directions, 3 * blocks, inputs, 16], recurrence[directions, 3 * blocks, size, 16], and
    bias[directions, 48 * blocks], of the inputs, the biases of the states for update and reset
    among them; hidden_bias[directions, 16 * blocks] is that of the states for the hidden gate.  The
    three gates of 16 elements of the state are side by side.  float32."""
    weight, recurrence, bias = _unpacked_layer(x, weight, recurrence, bias, direction, GRU_GATES)
    directions, _, size = recurrence.shape
    if hidden_bias.shape != (directions, -(-size // BLOCK) * BLOCK):
        raise WrongValue(
            f"hidden_bias: expected {[directions, -(-size // BLOCK) * BLOCK]}, got "
            f"{describe(hidden_bias)}"
        )
    of_states = np.zeros_like(bias)
    of_states[:, 2 * size :] = hidden_bias[:, :size]
    functions = ";".join(["Sigmoid;Tanh"] * directions)
    gru(
        x, weight, recurrence, np.concatenate([bias, of_states], 1), initial_h, lengths, direction,
        functions, None, linear_before_reset, *outs,
    )  # fmt: skip


def _unpacked_layer(
    x: NDArray[Any],
    weight: NDArray[Any],
    recurrence: NDArray[Any],
    bias: NDArray[Any],
    direction: str,
    gates: int,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Weights, recurrence weights, and biases of a layer, as `pack_gates` has packed them.

    Raises:
        WrongValue: they do not fit each other.
    """
    size = recurrence.shape[2] if recurrence.ndim == 4 else 0
    directions = 2 if direction == "bidirectional" else 1
    blocks = -(-size // BLOCK)
    for name, packed, inputs in (("weight", weight, x.shape[-1] if x.ndim else 0),
                                 ("recurrence", recurrence, size)):  # fmt: skip
        shape = directions, gates * blocks, inputs, BLOCK
        if packed.shape != shape:
            raise WrongValue(f"{name}: expected {list(shape)}, got {describe(packed)}")
    if bias.shape != (directions, gates * blocks * BLOCK):
        raise WrongValue(
            f"bias: expected {[directions, gates * blocks * BLOCK]}, got {describe(bias)}"
        )
    plain = _unpacked_gates(bias.reshape(directions, -1, 1, BLOCK), gates, size)[:, :, 0]
    return _unpacked_gates(weight, gates, size), _unpacked_gates(recurrence, gates, size), plain


@kernel("nn.apply", step=ChainStep(2, is_exact=True, choices=FUNCTIONS), in_place=True)
def apply(x: Floats, function: Function, out: OutLike) -> None:
    """out = a function of each element of x: "relu", "gelu", "gelu_tanh", "silu", "sigmoid",
    "tanh", "erf", "exp", or "hard_swish", the product of x and x / 6 + 1 / 2, which is bounded by 0
    and 1.  In C, of float32, results are within 7 units in the last place, those of "gelu",
    "gelu_tanh", "silu" and "hard_swish" within 1e-6 of x."""
    apply_function(function, x, out)


@kernel("nn.softmax_rows")
def softmax_rows(x: Floats, scale: Float, out: OutLike) -> None:
    """out = softmax of x * scale along the last axis.  x: at least one axis."""
    if not x.ndim:
        raise WrongValue(f"x: expected at least one axis, got {describe(x)}")
    scaled = np.empty_like(x)
    with np.errstate(all="ignore"):
        multiplied = np.multiply(x, x.dtype.type(scale), out=scaled)
    softmax(multiplied, x.ndim - 1, out)


@kernel("nn.layer_norm_rows")
def layer_norm_rows(
    x: Floats, gamma: Floats, beta: Floats | None, epsilon: Float, out: OutLike
) -> None:
    """out = x, normalized along the last axis, times gamma, plus beta, as `nn.layer_norm`."""
    if not x.ndim:
        raise WrongValue(f"x: expected at least one axis, got {describe(x)}")
    for name, vector in (("gamma", gamma), ("beta", beta)):
        if vector is not None and vector.shape != x.shape[-1:]:
            raise WrongValue(
                f"{name}: expected the shape {list(x.shape[-1:])}, got {describe(vector)}"
            )
    shift = np.zeros(x.shape[-1:], x.dtype) if beta is None else beta
    layer_norm(x, gamma, shift, (x.ndim - 1,), epsilon, True, True, out)


@kernel("nn.linear_blocks")
def linear_blocks(
    x: Floats,
    weight: Floats,
    bias: Floats | None,
    residual: Floats | None,
    function: Function | None,
    out: Out,
) -> None:
    """out[..., outputs] = a function of the product of x[..., inputs] and weight[blocks of outputs,
    inputs, 16], plus bias, a number for each output up to a whole block, plus residual, of the
    shape of out.  function: as of `nn.apply`, or None.  float32.  The reference uses memory for its
    operands in another layout."""
    if x.ndim < 1 or weight.ndim != 3 or weight.shape[1:] != (x.shape[-1], BLOCK):
        raise WrongValue(
            f"expected x[..., inputs] and weight[blocks, inputs, {BLOCK}], got x {describe(x)}, "
            f"weight {describe(weight)}"
        )
    blocks, inputs, _ = weight.shape
    columns = out.shape[-1] if out.ndim else 0
    if -(-columns // BLOCK) != blocks:
        raise WrongValue(f"out: expected columns for {blocks} blocks, got {describe(out)}")
    check_out(out, FLOAT32, (*x.shape[:-1], columns))
    if bias is not None and bias.shape != (blocks * BLOCK,):
        raise WrongValue(f"bias: expected {blocks * BLOCK} elements, got {describe(bias)}")
    if residual is not None and residual.shape != out.shape:
        raise WrongValue(f"residual: expected the shape of out, got {describe(residual)}")
    bias, residual = (
        None if each is None else copy_if_overlapping(each, out) for each in (bias, residual)
    )
    plain = weight.transpose(1, 0, 2).reshape(inputs, blocks * BLOCK)[:, :columns]
    rows = np.asarray(x, np.float32).reshape(-1, inputs)
    products = np.empty((len(rows), columns), np.float32)
    multiply(rows, np.asarray(plain, np.float32), products)
    if bias is not None:
        products += bias[:columns]
    result = products.reshape(out.shape)
    if residual is not None:
        result += residual
    if function is not None:
        apply_function(function, result, result)
    out[...] = result


@kernel("nn.attention_tiles")
def attention_tiles(
    query: Floats,
    key: Floats,
    value: Floats,
    bias: Floats | None,
    scale: Float | None,
    causal_mask: Mask | None,
    by_head: Flag,
    out: Out,
) -> None:
    """As `nn.attention`; by_head: query, key and value, but not out, are [batch, heads, length,
    size]."""
    if by_head and query.ndim == key.ndim == value.ndim == 4:
        query, key, value = (np.swapaxes(tensor, 1, 2) for tensor in (query, key, value))
    attention(query, key, value, bias, scale, causal_mask, out)
