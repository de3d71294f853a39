"""Recurrent layers: plain, gated, and long short-term memory.

They run over the first axis of x[steps, batch, inputs].  The first axis of weights and states is
the direction: one, or for "bidirectional" two, of which the second runs backwards.  Biases are
those of the inputs, then those of the states.  `lengths` has the number of steps of each sequence
of the batch, None for all: after these its result is 0 and its state does not change; backwards, it
begins at its last step.

Source: the operators LSTM, GRU and RNN of the ONNX specification.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..messages import describe, readable
from ..pieces.cut import apply, check_time, converted, copy_pieces
from ..pieces.reduce import reduce
from ._kernel import kernel
from ._multiply import multiply
from .checks import WrongValue, check_out, native, working_dtype
from .kinds import Flag, Floats, Integers, Number, Out, Text, a_choice

__all__ = ["Direction", "range_of"]

Direction: TypeAlias = Annotated[str, a_choice("forward", "reverse", "bidirectional")]
Array: TypeAlias = NDArray[Any]
Function: TypeAlias = Callable[[Array], Array]
Step: TypeAlias = Callable[[int, Array, Array, Sequence[Array]], Sequence[Array]]

_CALL: Final = re.compile(r"(\w+)(?:\(([^()]*)\))?")
_FUNCTIONS: Final[dict[str, tuple[int, Callable[..., Array]]]] = {
    "Relu": (0, lambda x: np.maximum(x, 0)),
    "Tanh": (0, np.tanh),
    "Sigmoid": (0, lambda x: 1 / (1 + np.exp(-x))),
    "Affine": (2, lambda x, a, b: a * x + b),
    "LeakyRelu": (1, lambda x, a: np.where(x < 0, a * x, x)),
    "ThresholdedRelu": (1, lambda x, a: np.where(x > a, x, 0)),
    "ScaledTanh": (2, lambda x, a, b: a * np.tanh(b * x)),
    "HardSigmoid": (2, lambda x, a, b: np.clip(a * x + b, 0, 1)),
    "Elu": (1, lambda x, a: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x)),
    "Softsign": (0, lambda x: x / (1 + np.abs(x))),
    "Softplus": (0, lambda x: np.logaddexp(x, 0)),
}
"""Name -> number of parameters, and the function."""


def functions_of(text: str, count: int, clip: float | None) -> list[Function]:
    """The functions of a text such as "Sigmoid,Tanh,LeakyRelu(0.1)".

    Raises:
        WrongValue: there are not `count` functions, or one is unknown.
    """
    names = [name for name in text.split(";") if name]
    if len(names) != count:
        raise WrongValue(f"activations: expected {count} functions, got {readable(text)!r}")
    return [_function_of(name, clip) for name in names]


def _function_of(name: str, clip: float | None) -> Function:
    match = _CALL.fullmatch(name)
    count, function = _FUNCTIONS.get(match[1] if match else "", (-1, np.tanh))
    given = match[2].split(",") if match and match[2] else []
    try:
        numbers = [float(number) for number in given]
    except ValueError:
        count = -1
    if count != len(given):
        raise WrongValue(
            f"activations: expected functions of {', '.join(_FUNCTIONS)} with their parameters, "
            f"got {readable(name)!r}"
        )

    def compute(x: Array) -> Array:
        if clip is not None:
            x = np.clip(x, -clip, clip)
        with np.errstate(over="ignore"):  # to infinity, whose reciprocal is 0
            found: Array = function(x, *map(x.dtype.type, numbers))
        return found

    return compute


def _working(x: Array) -> np.dtype[Any]:
    """The data type that a layer computes in."""
    working = working_dtype(native(x.dtype))
    assert working is not None, "the kind of the parameter is Floats"
    return working


def _need(name: str, tensor: Array | None, *shape: int) -> None:
    if tensor is not None and tensor.shape != shape:
        raise WrongValue(f"{name}: expected the shape {list(shape)}, got {describe(tensor)}")


def _recur(
    kind: str,
    gates: int,
    x: Array,
    weight: Array,
    recurrence: Array,
    bias: Array,
    states: Sequence[Array],
    lengths: Array | None,
    direction: str,
    outs: Sequence[Array],
    step: Step,
    quantized: bool = False,
) -> None:
    """Check shapes, and run the steps.

    Args:
        kind: of the layer, for messages.
        gates: how many times the size of the state the weights have.
        states: the initial ones; the first is also the result of a step.
        outs: the results of all steps, then the last states.
        step: computes the new states, given the direction, the product of the input and the
            weights with the biases of the inputs, the biases of the states, and the states.
        quantized: whether the inputs are rounded by `as_quantized`.
    """
    if x.ndim != 3 or weight.ndim != 3 or recurrence.ndim != 3:
        raise WrongValue(
            f"expected x, weight and recurrence of rank 3, got x {describe(x)}, weight "
            f"{describe(weight)}, recurrence {describe(recurrence)}"
        )
    steps, batch, width = x.shape
    directions = 2 if direction == "bidirectional" else 1
    size = recurrence.shape[2]
    _need("weight", weight, directions, gates * size, width)
    _need("recurrence", recurrence, directions, gates * size, size)
    _need("bias", bias, directions, 2 * gates * size)
    for name, state in zip(("initial_h", "initial_c"), states, strict=False):
        _need(name, state, directions, batch, size)
    _need("lengths", lengths, batch)
    if len(outs) != 1 + len(states):
        raise WrongValue(f"expected {1 + len(states)} outs for {kind}, got {len(outs)}")
    check_out(outs[0], x.dtype, (steps, directions, batch, size))
    for out in outs[1:]:
        check_out(out, x.dtype, (directions, batch, size))
    working = _working(x)
    # Copies, which other threads do not write to, and which the results do not overlap.
    last = None if lengths is None else np.array(lengths, np.int64)
    if last is not None and ((last < 0) | (last > steps)).any():
        raise WrongValue(f"lengths: expected numbers from 0 to {steps}, got {last.tolist()}")
    x = np.array(x)
    if quantized:
        run = x if last is None else x[: last.max(initial=0)]
        copy_pieces(run, as_quantized(converted(run, working)))
    given = [(np.array(w.T, working, order="C"), np.array(b, working).reshape(2, -1))
             for w, b in zip(weight, bias, strict=True)]  # fmt: skip
    found = [[np.array(state[i], working) for state in states] for i in range(directions)]
    for i in range(directions):
        inputs, (of_inputs, of_states) = given[i]
        backwards = direction == "reverse" or i == 1
        current: Sequence[Array] = found[i]
        for t in reversed(range(steps)) if backwards else range(steps):
            check_time()
            product = np.empty((batch, gates * size), working)
            multiply(converted(x[t], working), inputs, product)
            apply(np.add, product, product, of_inputs)
            new = step(i, product, of_states, current)
            result = new[0]
            if last is not None:
                runs = (t < last)[:, None]
                new = [np.where(runs, a, b) for a, b in zip(new, current, strict=True)]
                result = np.where(runs, result, 0)
            copy_pieces(outs[0][t, i], result)
            current = new
        found[i] = list(current)
    for k, out in enumerate(outs[1:]):
        for i in range(directions):
            copy_pieces(out[i], found[i][k])


def as_quantized(x: Array) -> Array:
    """x, rounded to 256 numbers of equal distance from its least to its greatest element, 0 among
    them: what ``DynamicQuantizeLinear`` of the ONNX specification and its inverse leave of it."""
    least, greatest = range_of(x)
    scale = (greatest - least) / x.dtype.type(255)
    if not scale > 0:
        return x
    zero = np.rint(np.clip(-least / scale, 0, 255))
    found = np.empty_like(x)

    def rounded(part: Array, out: Array) -> None:
        np.multiply(np.clip(np.rint(part / scale) + zero, 0, 255) - zero, scale, out)

    apply(rounded, found, x)
    return found


def range_of(x: Array) -> tuple[Any, Any]:
    """The least and the greatest element, 0 among them."""
    return _bound(np.minimum, x), _bound(np.maximum, x)


def _bound(ufunc: np.ufunc, x: Array) -> Any:
    """The least or greatest of 0 and the elements."""
    if not x.size:
        return x.dtype.type(0)
    found = np.empty([1] * x.ndim, x.dtype)
    reduce(ufunc, x, tuple(range(x.ndim)), found)
    return ufunc(found.reshape(())[()], x.dtype.type(0))


def _products(
    recurrence: Array, direction: str
) -> Callable[[int, Array, slice], Array] | None:
    """Products of states and some of the gates' recurrence weights; None if these do not fit, which
    `_recur` says."""
    if recurrence.ndim != 3 or len(recurrence) != _count(direction):
        return None
    working = _working(recurrence)
    # Copies: the results may overlap the weights.
    weights = [np.array(each.T, working, order="C") for each in recurrence]

    def product(i: int, state: Array, gates: slice) -> Array:
        matrix = weights[i][:, gates]
        found = np.empty((len(state), matrix.shape[1]), working)
        multiply(state, matrix, found)
        return found

    return product


def _count(direction: str) -> int:
    return 2 if direction == "bidirectional" else 1


@kernel("nn.lstm")
def lstm(
    x: Floats,
    weight: Floats,
    recurrence: Floats,
    bias: Floats,
    initial_h: Floats,
    initial_c: Floats,
    lengths: Integers | None,
    peepholes: Floats | None,
    direction: Direction,
    activations: Text,
    clip: Number | None,
    input_forget: Flag,
    quantized: Flag,
    *outs: Out,
) -> None:
    """Long short-term memory: outs = the states of all steps [steps, directions, batch, size], the
    last states, and the last cells.  weight[directions, 4 * size, inputs], recurrence[directions,
    4 * size, size] and bias[directions, 8 * size] have the gates in the order input, output,
    forget, cell; peepholes[directions, 3 * size] the weights of the cells in the first three.
    activations: for each direction those of gates, cell and state, "Sigmoid;Tanh;Tanh".  clip:
    bound of their arguments.  With input_forget, the forget gate is 1 - the input gate.  With
    quantized, x as a whole, and the states of each step, are rounded to the 256 numbers of dynamic
    quantization before they are multiplied.  Uses memory of the size of x and the weights."""
    functions = functions_of(activations, 3 * _count(direction), clip)
    size = recurrence.shape[-1]
    if peepholes is not None:
        _need("peepholes", peepholes, _count(direction), 3 * size)
        peepholes = np.array(peepholes, _working(x))
    products = _products(recurrence, direction)

    def step(i: int, given: Array, bias: Array, states: Sequence[Array]) -> Sequence[Array]:
        assert products is not None
        h, c = states
        total = given + products(i, as_quantized(h) if quantized else h, slice(None)) + bias
        gate, candidate, output = functions[3 * i : 3 * i + 3]
        to_i, to_o, to_f, to_c = np.split(total, 4, axis=1)
        if peepholes is not None:
            of_i, of_o, of_f = np.split(peepholes[i], 3)
            to_i, to_f = to_i + of_i * c, to_f + of_f * c
        let = gate(to_i)
        kept = 1 - let if input_forget else gate(to_f)
        cell = kept * c + let * candidate(to_c)
        if peepholes is not None:
            to_o = to_o + of_o * cell
        return gate(to_o) * output(cell), cell

    _recur("lstm", 4, x, weight, recurrence, bias, (initial_h, initial_c), lengths, direction,
           outs, step, quantized)  # fmt: skip


@kernel("nn.gru")
def gru(
    x: Floats,
    weight: Floats,
    recurrence: Floats,
    bias: Floats,
    initial_h: Floats,
    lengths: Integers | None,
    direction: Direction,
    activations: Text,
    clip: Number | None,
    linear_before_reset: Flag,
    *outs: Out,
) -> None:
    """Gated recurrent unit: outs = the states of all steps, and the last states.  The gates are in
    the order update, reset, hidden.  activations: for each direction those of gates and state,
    "Sigmoid;Tanh".  With linear_before_reset, the reset gate is applied to the product of state and
    weights rather than to the state.  Otherwise as `nn.lstm`."""
    functions = functions_of(activations, 2 * _count(direction), clip)
    size = recurrence.shape[-1]
    products = _products(recurrence, direction)

    def step(i: int, given: Array, bias: Array, states: Sequence[Array]) -> Sequence[Array]:
        assert products is not None
        (h,) = states
        gate, hidden = functions[2 * i : 2 * i + 2]
        both = slice(0, 2 * size)
        gates = gate(given[:, both] + products(i, h, both) + bias[both])
        update, reset = np.split(gates, 2, axis=1)
        rest = slice(2 * size, None)
        if linear_before_reset:
            inner = reset * (products(i, h, rest) + bias[rest])
        else:
            inner = products(i, reset * h, rest) + bias[rest]
        return ((1 - update) * hidden(given[:, rest] + inner) + update * h,)

    _recur("gru", 3, x, weight, recurrence, bias, (initial_h,), lengths, direction, outs, step)


@kernel("nn.rnn")
def rnn(
    x: Floats,
    weight: Floats,
    recurrence: Floats,
    bias: Floats,
    initial_h: Floats,
    lengths: Integers | None,
    direction: Direction,
    activations: Text,
    clip: Number | None,
    *outs: Out,
) -> None:
    """Plain recurrent layer: outs = the states of all steps, and the last states.  activations: one
    for each direction.  Otherwise as `nn.lstm`."""
    functions = functions_of(activations, _count(direction), clip)
    products = _products(recurrence, direction)

    def step(i: int, given: Array, bias: Array, states: Sequence[Array]) -> Sequence[Array]:
        assert products is not None
        return (functions[i](given + products(i, states[0], slice(None)) + bias),)

    _recur("rnn", 1, x, weight, recurrence, bias, (initial_h,), lengths, direction, outs, step)
