"""Cases of recurrent layers; the references compute one sequence and one step at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .table import cases

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": lambda x: np.sinh(x) / np.cosh(x),
    "Relu": lambda x: np.where(x > 0, x, 0),
    "LeakyRelu": lambda x, a: np.where(x < 0, a * x, x),
    "Affine": lambda x, a, b: a * x + b,
    "ThresholdedRelu": lambda x, a: np.where(x > a, x, 0),
    "ScaledTanh": lambda x, a, b: a * np.sinh(b * x) / np.cosh(b * x),
    "HardSigmoid": lambda x, a, b: np.minimum(1, np.maximum(0, a * x + b)),
    "Elu": lambda x, a: np.where(x < 0, a * (np.exp(x) - 1), x),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Softplus": lambda x: np.log(np.exp(x) + 1),
}


def functions(text: str, clip: Any) -> list[Callable[[Any], Any]]:
    found = []
    for item in text.split(";"):
        name, _, rest = item.rstrip(")").partition("(")
        numbers = [np.longdouble(each) for each in rest.split(",") if each]

        def compute(x: Any, name: str = name, numbers: Any = numbers) -> Any:
            if clip is not None:
                x = np.minimum(np.maximum(x, -np.longdouble(clip)), np.longdouble(clip))
            return FUNCTIONS[name](x, *numbers)

        found.append(compute)
    return found


def layer(
    x: Any, size: int, direction: str, lengths: Any, states: list[Any],
    step: Callable[[int, Any, list[Any]], list[Any]],
) -> tuple[Any, ...]:  # fmt: skip
    """Run `step`, which takes direction, input and states of one sequence."""
    steps, batch, _ = x.shape
    directions = 2 if direction == "bidirectional" else 1
    every = np.zeros((steps, directions, batch, size), x.dtype)
    last = [np.array(state) for state in states]
    for d, b in np.ndindex(directions, batch):
        count = steps if lengths is None else int(lengths[b])
        current = [state[d, b] for state in states]
        backwards = direction == "reverse" or d == 1
        for t in range(count)[:: -1 if backwards else 1]:
            current = step(d, x[t, b], current)
            every[t, d, b] = current[0]
        for state, value in zip(last, current, strict=True):
            state[d, b] = value
    return (every, *last)


def lstm(
    x: Any, w: Any, r: Any, bias: Any, h0: Any, c0: Any, lengths: Any = None, p: Any = None,
    direction: str = "forward", activations: str = "Sigmoid;Tanh;Tanh", clip: Any = None,
    input_forget: bool = False, quantized: bool = False,
) -> Any:  # fmt: skip
    size = r.shape[2]
    chosen = functions(activations, clip)
    if quantized:
        return quantized_lstm(x, w, r, bias, h0, c0, lengths)

    def step(d: int, given: Any, states: list[Any]) -> list[Any]:
        h, c = states
        f, g, out = chosen[3 * d : 3 * d + 3]
        total = w[d] @ given + r[d] @ h + bias[d, : 4 * size] + bias[d, 4 * size :]
        i, o, k, z = (total[n * size : (n + 1) * size] for n in range(4))
        holes = np.zeros(3 * size) if p is None else p[d]
        let = f(i + holes[:size] * c)
        keep = 1 - let if input_forget else f(k + holes[2 * size :] * c)
        cell = keep * c + let * g(z)
        return [f(o + holes[size : 2 * size] * cell) * out(cell), cell]

    return layer(x, size, direction, lengths, [h0, c0], step)


def rounded(x: Any) -> Any:
    """What is left of x by 8 bits, 0 among their values."""
    low, high = min(x.min(), 0), max(x.max(), 0)
    step = (high - low) / 255
    zero = np.rint(-low / step) if step else 0
    return x if step == 0 else (np.rint(x / step).clip(-zero, 255 - zero)) * step


def quantized_lstm(x: Any, w: Any, r: Any, bias: Any, h0: Any, c0: Any, lengths: Any) -> Any:
    """All sequences take a step at once, since they are rounded at once."""
    steps, batch, size = *x.shape[:2], r.shape[2]
    x = np.concatenate([rounded(x[: max(lengths)]), x[max(lengths) :]])
    every, h, c = np.zeros((steps, 1, batch, size), x.dtype), np.array(h0), np.array(c0)
    for t in range(steps):
        states, cells = lstm(x[t : t + 1], w, r, bias, rounded(h), c)[1:]
        for b in range(batch):
            if t < lengths[b]:
                every[t, 0, b], h[0, b], c[0, b] = states[0, b], states[0, b], cells[0, b]
    return every, h, c


def gru(
    x: Any, w: Any, r: Any, bias: Any, h0: Any, lengths: Any = None, direction: str = "forward",
    activations: str = "Sigmoid;Tanh", clip: Any = None, linear_before_reset: bool = False,
) -> Any:  # fmt: skip
    size = r.shape[2]
    chosen = functions(activations, clip)

    def step(d: int, given: Any, states: list[Any]) -> list[Any]:
        (h,) = states
        f, g = chosen[2 * d : 2 * d + 2]
        of_input = w[d] @ given + bias[d, : 3 * size]
        of_state = bias[d, 3 * size :]
        z = f(of_input[:size] + r[d, :size] @ h + of_state[:size])
        rest = slice(size, 2 * size)
        reset = f(of_input[rest] + r[d, rest] @ h + of_state[rest])
        last = slice(2 * size, None)
        if linear_before_reset:
            inner = reset * (r[d, last] @ h + of_state[last])
        else:
            inner = r[d, last] @ (reset * h) + of_state[last]
        return [(1 - z) * g(of_input[last] + inner) + z * h]

    return layer(x, size, direction, lengths, [h0], step)


def rnn(
    x: Any, w: Any, r: Any, bias: Any, h0: Any, lengths: Any = None, direction: str = "forward",
    activations: str = "Tanh", clip: Any = None,
) -> Any:  # fmt: skip
    size = r.shape[2]
    chosen = functions(activations, clip)

    def step(d: int, given: Any, states: list[Any]) -> list[Any]:
        total = w[d] @ given + r[d] @ states[0] + bias[d, :size] + bias[d, size:]
        return [chosen[d](total)]

    return layer(x, size, direction, lengths, [h0], step)


COMMON = {
    "dtypes": "fhd",
    "ulps": {"float16": 4, "float32": 32, "float64": 64},
    "of_largest": True,
    "within": (-1, 1),
    "in_tvm": False,
}

cases(
    "nn.lstm",
    """
nn.lstm(f(n, m, 3), f(1, 8, 3), f(1, 8, 2), f(1, 16), f(1, m, 2), f(1, m, 2)) |
    R.Tuple(R.Tensor((n, 1, m, 2), "float32"), R.Tensor((1, m, 2), "float32"),
    R.Tensor((1, m, 2), "float32"))
nn.lstm(rank(3), f(2, 8, 3), f(2, 8, 2), f(2, 16), f(2, m, 2), f(2, m, 2),
    direction="bidirectional") |
    R.Tuple(R.Tensor(dtype="float32", ndim=4), R.Tensor(dtype="float32", ndim=3),
    R.Tensor(dtype="float32", ndim=3))
""",
    """
nn.lstm(f(5, 3), f(1, 8, 3), f(1, 8, 2), f(1, 16), f(1, 4, 2), f(1, 4, 2)) | ValueError:
    relax.nn.lstm: x: expected a tensor of rank 3
nn.lstm(f(5, 4, 3), f(1, 7, 3), f(1, 8, 2), f(1, 16), f(1, 4, 2), f(1, 4, 2)) | ValueError:
    relax.nn.lstm: weight: expected 4 gates of size 2
nn.lstm(f(5, 4, 3), f(2, 8, 3), f(1, 8, 2), f(1, 16), f(1, 4, 2), f(1, 4, 2)) | ValueError:
    relax.nn.lstm: weight: expected 1 directions, as direction is 'forward'
""",
    """
nn.lstm(x(4, 3, 2), x(1, 12, 2), x(1, 12, 3), x(1, 24), x(1, 3, 3), x(1, 3, 3))
nn.lstm(x(3, 2, 2), x(2, 4, 2), x(2, 4, 1), x(2, 8), x(2, 2, 1), x(2, 2, 1),
    const([1, 3], "int64"), x(2, 3), "bidirectional",
    "Sigmoid;Tanh;Tanh;HardSigmoid(0.2,0.5);ScaledTanh(0.5,1.5);Softsign", 0.75, False)
nn.lstm(x(3, 2, 2), x(1, 8, 2), x(1, 8, 2), x(1, 16), x(1, 2, 2), x(1, 2, 2),
    const([0, 2], "int64"), direction="reverse", input_forget=True)
nn.lstm(x(3, 2, 2), x(1, 8, 2), x(1, 8, 2), x(1, 16), x(1, 2, 2), x(1, 2, 2),
    const([0, 2], "int64"), quantized=True)
""",
    reference=lstm,
    **COMMON,
)
cases(
    "nn.gru",
    """
nn.gru(f(n, m, 3), f(1, 6, 3), f(1, 6, 2), f(1, 12), f(1, m, 2)) |
    R.Tuple(R.Tensor((n, 1, m, 2), "float32"), R.Tensor((1, m, 2), "float32"))
""",
    """
nn.gru(f(5, 4, 3), f(1, 6, 3), f(1, 6, 2), f(1, 12), d(1, 4, 2)) | TypeError: relax.nn.gru:
""",
    """
nn.gru(x(4, 3, 2), x(1, 9, 2), x(1, 9, 3), x(1, 18), x(1, 3, 3))
nn.gru(x(3, 2, 2), x(2, 3, 2), x(2, 3, 1), x(2, 6), x(2, 2, 1), const([1, 3], "int64"),
    "bidirectional", "Sigmoid;Tanh;HardSigmoid(0.25,0.5);Elu(0.5)", 0.75, True)
""",
    reference=gru,
    **COMMON,
)
cases(
    "nn.rnn",
    """
nn.rnn(f(n, m, 3), f(1, 2, 3), f(1, 2, 2), f(1, 4), f(1, m, 2)) |
    R.Tuple(R.Tensor((n, 1, m, 2), "float32"), R.Tensor((1, m, 2), "float32"))
""",
    """
nn.rnn(f(5, 4, 3), f(1, 2, 3), f(1, 2, 2), f(4), f(1, 4, 2)) | ValueError: relax.nn.rnn: bias:
    expected a tensor of rank 2
""",
    """
nn.rnn(x(4, 3, 2), x(1, 3, 2), x(1, 3, 3), x(1, 6), x(1, 3, 3))
nn.rnn(x(3, 2, 2), x(2, 1, 2), x(2, 1, 1), x(2, 2), x(2, 2, 1), const([1, 3], "int64"),
    "bidirectional", "LeakyRelu(0.25);ThresholdedRelu(0.5)", 0.75)
nn.rnn(x(2, 2, 2), x(2, 1, 2), x(2, 1, 1), x(2, 2), x(2, 2, 1), direction="bidirectional",
    activations="Affine(0.5,0.25);Softplus")
nn.rnn(x(0, 2, 2), x(1, 3, 2), x(1, 3, 3), x(1, 6), x(1, 2, 3), activations="Relu")
""",
    reference=rnn,
    **COMMON,
)
