"""Recurrent layers, as ONNX has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ...ir.expr import Call, TensorType, TupleType, Type, int_imm
from ..kinds import IllValued
from ..registry import Takes, Unsupported, attributes_of, operator
from ..rules import common_dtype, differ, like, need_floats

__all__ = ["gru", "lstm", "rnn"]

_NO_LOOPS = Unsupported("TVM has no such operator.")


def _results(
    gates: int, direction: str, x: TensorType, weight: TensorType, recurrence: TensorType,
    bias: TensorType, states: Sequence[TensorType],
) -> Type:  # fmt: skip
    """The type of the states of all steps and of the last states."""
    names = ("x", "weight", "recurrence", "bias", "initial_h", "initial_c")
    ranks = (3, 3, 3, 2, 3, 3)
    tensors = dict(zip(names, (x, weight, recurrence, bias, *states), strict=False))
    need_floats(**tensors)
    common_dtype(**tensors)
    for (name, ty), rank in zip(tensors.items(), ranks, strict=False):
        if ty.ndim not in (-1, rank):
            raise IllValued(f"{name}: expected a tensor of rank {rank}, got {ty}")
    directions = 2 if direction == "bidirectional" else 1
    for name in ("weight", "recurrence", "bias", "initial_h"):
        dims = tensors[name].dims
        if dims is not None and differ(dims[0], int_imm(directions)):
            raise IllValued(
                f"{name}: expected {directions} directions, as direction is {direction!r}, "
                f"got {tensors[name]}"
            )
    size = None if recurrence.dims is None else recurrence.dims[2]
    if weight.dims is not None and size is not None and differ(weight.dims[1], gates * size):
        raise IllValued(f"weight: expected {gates} gates of size {size}, got {weight}")
    known = x.dims is not None and size is not None
    kept = [directions, x.dims[1], size] if known else None  # type: ignore[index]
    whole = [x.dims[0], *kept] if known else None  # type: ignore[index, misc]
    last = like(x, None if kept is None else [_dim(d) for d in kept], ndim=3)
    every = like(x, None if whole is None else [_dim(d) for d in whole], ndim=4)
    return TupleType((every, *[last] * len(states)))


def _dim(dim: Any) -> Any:
    return int_imm(dim) if isinstance(dim, int) else dim


def _takes(count: int) -> Takes:
    """The arguments of a kernel: None for operands that are left out."""

    def takes(call: Call) -> list[Any]:
        missing = [None] * (count - len(call.args))
        return [*call.args, *missing, *attributes_of(call).values()]

    return takes


@operator("nn.lstm", loops=_NO_LOOPS, takes=_takes(8))
def lstm(
    x: TensorType,
    weight: TensorType,
    recurrence: TensorType,
    bias: TensorType,
    initial_h: TensorType,
    initial_c: TensorType,
    lengths: TensorType | None = None,
    peepholes: TensorType | None = None,
    direction: Literal["forward", "reverse", "bidirectional"] = "forward",
    activations: str = "Sigmoid;Tanh;Tanh",
    clip: float | None = None,
    input_forget: bool = False,
    quantized: bool = False,
) -> Type:
    """Long short-term memory over x[steps, batch, inputs]: a tuple of the states of all steps, the
    last states and the last cells.  With quantized, inputs and states are rounded as by dynamic
    quantization to 8 bits before they are multiplied."""
    return _results(4, direction, x, weight, recurrence, bias, (initial_h, initial_c))


@operator("nn.gru", loops=_NO_LOOPS, takes=_takes(6))
def gru(
    x: TensorType,
    weight: TensorType,
    recurrence: TensorType,
    bias: TensorType,
    initial_h: TensorType,
    lengths: TensorType | None = None,
    direction: Literal["forward", "reverse", "bidirectional"] = "forward",
    activations: str = "Sigmoid;Tanh",
    clip: float | None = None,
    linear_before_reset: bool = False,
) -> Type:
    """Gated recurrent units over x[steps, batch, inputs]: a tuple of the states of all steps and
    the last states."""
    return _results(3, direction, x, weight, recurrence, bias, (initial_h,))


@operator("nn.rnn", loops=_NO_LOOPS, takes=_takes(6))
def rnn(
    x: TensorType,
    weight: TensorType,
    recurrence: TensorType,
    bias: TensorType,
    initial_h: TensorType,
    lengths: TensorType | None = None,
    direction: Literal["forward", "reverse", "bidirectional"] = "forward",
    activations: str = "Tanh",
    clip: float | None = None,
) -> Type:
    """A plain recurrent layer over x[steps, batch, inputs]: a tuple of the states of all steps and
    the last states."""
    return _results(1, direction, x, weight, recurrence, bias, (initial_h,))
