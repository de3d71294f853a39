"""An example of each shipped kernel: arguments, and the result by plain numpy or plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from relaxvm.values import Shape

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Where imported, each test draws the same numbers, whichever tests run before it."""
    RNG.bit_generator.state = np.random.default_rng(7).bit_generator.state


@dataclass(frozen=True)
class Example:
    """Arguments of a kernel but `out`, and what it has to give.

    Attributes:
        args: of shapes that stay valid when matrices get more rows.
        want: the result or a tuple of results of such arguments.
        grows: positions of the arguments that can get more rows; None for none, as the kernel uses
            memory by its documentation.
        takes_any: what of `out` the kernel does not prescribe: "shape", "dtype".
    """

    args: tuple[Any, ...]
    want: Callable[..., Any]
    grows: tuple[int, ...] | None = (0,)
    takes_any: tuple[str, ...] = ()

    def results(self, *args: Any) -> tuple[np.ndarray, ...]:
        """What `want` gives, always a tuple of arrays."""
        found = self.want(*(args or self.args))
        return found if isinstance(found, tuple) else (np.asarray(found),)


def normal(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    return np.asarray(RNG.standard_normal(shape), dtype=dtype)


def positive(*shape: int) -> np.ndarray:
    return np.asarray(RNG.uniform(0.1, 0.9, shape))


def bools(*shape: int) -> np.ndarray:
    return np.asarray(RNG.integers(0, 2, shape), dtype=np.bool_)


def counts(*shape: int, dtype: Any = np.int64) -> np.ndarray:
    """Small positive integers."""
    return np.asarray(RNG.integers(1, 9, shape), dtype=dtype)


def per_element(function: Callable[[float], float]) -> Callable[..., np.ndarray]:
    """A function of Python floats, element by element."""
    return np.vectorize(function, otypes=[np.float64])


# Functions of one tensor, of floats, integers, bools

FLOAT_UNARY: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "negative": lambda x: 0 - x, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "tanh": np.tanh, "square": lambda x: x * x,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "erf": per_element(math.erf),
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "atanh": np.arctanh,
    "acosh": per_element(math.acosh),
    "sign": lambda x: (x > 0) * 1.0 - (x < 0), "relu": lambda x: np.where(x > 0, x, 0),
    "nn.silu": lambda x: x / (1 + np.exp(-x)),
    "nn.gelu": lambda x: x * (1 + per_element(math.erf)(x / math.sqrt(2))) / 2,
    "nn.gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
}  # fmt: skip
CLASSIFYING: dict[str, Callable[..., Any]] = {
    "isnan": lambda x: x != x, "isinf": lambda x: np.abs(x) == math.inf,
    "isfinite": lambda x: np.abs(x) < math.inf,
}  # fmt: skip
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "floor_divide": lambda a, b: a // b, "floor_mod": lambda a, b: a % b,
    "mod": lambda a, b: np.sign(a) * (np.abs(a) % np.abs(b)), "power": lambda a, b: a**b,
    "maximum": lambda a, b: np.where(a >= b, a, b), "minimum": lambda a, b: np.where(a <= b, a, b),
}  # fmt: skip
FLOAT_BINARY: dict[str, Callable[..., Any]] = {
    "divide": lambda a, b: a / b, "atan2": np.vectorize(math.atan2, otypes=[np.float64]),
    "log_add_exp": lambda a, b: np.log(np.exp(a) + np.exp(b)),
}  # fmt: skip
COMPARISON: dict[str, Callable[..., Any]] = {
    "equal": lambda a, b: a == b, "not_equal": lambda a, b: a != b, "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b, "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
}  # fmt: skip
LOGICAL: dict[str, Callable[..., Any]] = {
    "logical_and": lambda a, b: a & b, "logical_or": lambda a, b: a | b,
    "logical_xor": lambda a, b: a ^ b,
}  # fmt: skip
BITWISE: dict[str, Callable[..., Any]] = {
    "bitwise_and": lambda a, b: a & b, "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b, "left_shift": lambda a, b: a << b,
    "right_shift": lambda a, b: a >> b,
}  # fmt: skip



def clipped(x: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.where(x < low, low, np.where(x > high, high, x))


# Reductions


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *axes: function(x, axis=axes or None)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "prod": np.prod, "mean": np.mean, "max": np.max, "min": np.min,
}  # fmt: skip
ARG_REDUCTIONS: dict[str, Callable[..., Any]] = {"argmax": np.argmax, "argmin": np.argmin}


def cumulated(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """Running totals along an axis, by reducing what comes before each element."""

    def want(x: np.ndarray, axis: int | None, exclusive: bool) -> np.ndarray:
        if axis is None:
            x, axis = x.reshape(-1), 0
        rows = np.moveaxis(x, axis, 0)
        parts = [function(rows[: i + (not exclusive)], axis=0) for i in range(len(rows))]
        return np.moveaxis(np.array(parts).reshape(rows.shape), 0, axis)

    return want


# Search


def ordered(row: list[float], descending: bool) -> list[int]:
    """Indices that sort a row, stably; NaN is greater than all."""
    return sorted(
        range(len(row)), key=lambda i: (math.isnan(row[i]), row[i]), reverse=False
    ) if not descending else sorted(
        range(len(row)), key=lambda i: (not math.isnan(row[i]), -row[i])
    )  # fmt: skip


def argsorted(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    return np.apply_along_axis(lambda row: ordered(row.tolist(), descending), axis, x)


def topk(x: np.ndarray, k: int, axis: int, ret_type: str, largest: bool) -> Any:
    found = np.take(argsorted(x, axis, largest), range(k if k > 0 else x.shape[axis]), axis)
    values = np.take_along_axis(x, found, axis)
    return {"both": (values, found), "values": values, "indices": found}[ret_type]


# Images


def convolved(
    x: np.ndarray, weight: np.ndarray, strides: Any, padding: Any, dilation: Any, groups: int
) -> np.ndarray:
    """A convolution by plain loops; of images of any number of axes."""
    axes = x.ndim - 2
    width = [(padding[i], padding[axes + i]) for i in range(axes)]
    padded = np.pad(x, [(0, 0), (0, 0), *width])
    count = [
        (padded.shape[2 + i] - dilation[i] * (weight.shape[2 + i] - 1) - 1) // strides[i] + 1
        for i in range(axes)
    ]
    out = np.zeros((x.shape[0], weight.shape[0], *count), x.dtype)
    if not x.size:
        return out
    inputs, outputs = weight.shape[1], weight.shape[0] // groups
    for o, *at in np.ndindex(weight.shape[0], *count):
        group = o // outputs
        window = tuple(
            slice(at[i] * strides[i],
                  at[i] * strides[i] + dilation[i] * (weight.shape[2 + i] - 1) + 1, dilation[i])
            for i in range(axes)
        )  # fmt: skip
        elements = padded[(slice(None), slice(group * inputs, (group + 1) * inputs), *window)]
        out[(slice(None), o, *at)] = (elements * weight[o]).reshape(len(x), -1).sum(-1)
    return out


def pooled(
    x: np.ndarray, size: Any, strides: Any, padding: Any, dilation: Any, ceil_mode: bool,
    count_include_pad: bool | None = None,
) -> np.ndarray:  # fmt: skip
    """A pool by plain loops: of means, or of maxima if `count_include_pad` is None."""
    count = []
    for i in range(2):
        room = x.shape[2 + i] + padding[i] + padding[2 + i] - dilation[i] * (size[i] - 1) - 1
        steps = math.ceil(room / strides[i]) if ceil_mode else room // strides[i]
        if ceil_mode and steps * strides[i] >= x.shape[2 + i] + padding[i]:
            steps -= 1
        count.append(steps + 1)
    out = np.zeros((*x.shape[:2], *count), x.dtype)
    for n, c, *at in np.ndindex(out.shape):
        inside, padded = [], 0
        for tap in np.ndindex(*size):
            place = [at[i] * strides[i] + tap[i] * dilation[i] - padding[i] for i in range(2)]
            if all(0 <= place[i] < x.shape[2 + i] for i in range(2)):
                inside.append(x[n, c, place[0], place[1]])
            padded += all(place[i] < x.shape[2 + i] + padding[2 + i] for i in range(2))
        if count_include_pad is None:
            out[n, c, at[0], at[1]] = max(inside, default=-math.inf)
        else:
            out[n, c, at[0], at[1]] = sum(inside) / max(
                1, padded if count_include_pad else len(inside)
            )
    return out


# Networks


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def layer_norm(
    x: np.ndarray, gamma: Any, beta: Any, axes: Any, epsilon: float, center: bool, scale: bool
) -> np.ndarray:
    rows = np.moveaxis(x, axes, range(-len(axes), 0))
    last = tuple(range(-len(axes), 0))
    mean, variance = rows.mean(last, keepdims=True), rows.var(last, keepdims=True)
    y = (rows - mean) / np.sqrt(variance + epsilon)
    y = y * gamma if scale else y
    y = y + beta if center else y
    return np.moveaxis(y, range(-len(axes), 0), axes)


def rms_norm(x: np.ndarray, weight: np.ndarray, axes: Any, epsilon: float) -> np.ndarray:
    rows = np.moveaxis(x, axes, range(-len(axes), 0))
    last = tuple(range(-len(axes), 0))
    y = rows / np.sqrt((rows * rows).mean(last, keepdims=True) + epsilon) * weight
    return np.moveaxis(y, range(-len(axes), 0), axes)


def batch_norm(
    x: np.ndarray, gamma: Any, beta: Any, mean: Any, variance: Any, axis: int, epsilon: float,
    center: bool, scale: bool,
) -> np.ndarray:  # fmt: skip
    rows = np.moveaxis(x, axis, -1)
    y = (rows - mean) / np.sqrt(variance + epsilon)
    y = y * gamma if scale else y
    y = y + beta if center else y
    return np.moveaxis(y, -1, axis)


def attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, bias: Any, scale: Any, causal_mask: Any
) -> np.ndarray:
    """Query by query."""
    batch, queries, heads, width = query.shape
    keys = key.shape[1]
    out = np.zeros((batch, queries, heads, value.shape[3]), query.dtype)
    for b, s, n in np.ndindex(batch, queries, heads):
        scores = key[b, :, n] @ query[b, s, n] * (1 / math.sqrt(width) if scale is None else scale)
        if bias is not None:
            scores = scores + np.broadcast_to(bias, (batch, heads, queries, keys))[b, n, s]
        seen = {None: keys, "TopLeft": s + 1, "BottomRight": s + 1 + keys - queries}[causal_mask]
        seen = min(keys, seen)
        if seen > 0:
            out[b, s, n] = softmax(scores[:seen], 0) @ value[b, :seen, n]
    return out


# Movement


def split(x: np.ndarray, sections: Any, axis: int) -> tuple[np.ndarray, ...]:
    if isinstance(sections, int):
        step = math.ceil(x.shape[axis] / sections)
        sections = range(step, step * sections, step)
    return tuple(np.split(x, list(sections), axis))


def padded(x: np.ndarray, width: Any, mode: str, value: float) -> np.ndarray:
    numpys = {"constant": "constant", "reflect": "reflect", "replicate": "edge",
              "circular": "wrap"}[mode]  # fmt: skip
    options = {"constant_values": value} if mode == "constant" else {}
    return np.pad(x, list(zip(width[::2], width[1::2], strict=True)), numpys, **options)


def taken(x: np.ndarray, indices: np.ndarray, axis: int | None, mode: str = "raise") -> np.ndarray:
    return np.take(x, indices, axis, mode=mode)


_M = normal(3, 3)
_ANY_FILL = ("shape", "dtype")

EXAMPLES: dict[str, Example] = (
    {name: Example((positive(3, 3),), want) for name, want in FLOAT_UNARY.items()}
    | {"acosh": Example((positive(3, 3) + 1,), FLOAT_UNARY["acosh"])}
    | {name: Example((_M,), want) for name, want in CLASSIFYING.items()}
    | {
        name: Example((positive(3, 3), positive(3)), want)
        for name, want in (ARITHMETIC | FLOAT_BINARY | COMPARISON).items()
    }
    | {name: Example((bools(3, 3), bools(3)), want) for name, want in LOGICAL.items()}
    | {name: Example((counts(3, 3), counts(3)), want) for name, want in BITWISE.items()}
    | {name: Example((_M, 0), _reduction(want)) for name, want in REDUCTIONS.items()}
    | {name: Example((_M, 1), want) for name, want in ARG_REDUCTIONS.items()}
    | {
        "logical_not": Example((bools(3, 3),), lambda x: ~x),
        "bitwise_not": Example((counts(3, 3),), lambda x: -1 - x),
        "clip": Example((_M, -0.5, 0.25), clipped),
        "where": Example((bools(3, 3), normal(3), 0), np.where),
        "cast": Example((_M,), lambda x: x + 0, takes_any=("dtype",)),
        "fused": Example(
            (_M, normal(3, 3), "multiply($0, $1); add(%0, 2.0) -> %1"), lambda x, y, _: x * y + 2,
            (0, 1),
        ),
        "fill": Example((1,), lambda v: np.full((3, 3), float(v)), None, _ANY_FILL),
        "full": Example((1,), lambda v: np.full((3, 3), float(v)), None, _ANY_FILL),
        "zeros": Example((), lambda: np.zeros((3, 3)), None, _ANY_FILL),
        "ones": Example((), lambda: np.ones((3, 3)), None, _ANY_FILL),
        "arange": Example((3, -9, -2), lambda a, b, s: np.arange(a, b, s), None, ("dtype",)),
        "reshape": Example((_M,), lambda x: x.reshape(-1), takes_any=("shape",)),
        "permute_dims": Example((_M, 1, 0), lambda x, *axes: x.transpose(axes)),
        "broadcast_to": Example((normal(3, 1),), lambda x: x + np.zeros(3), takes_any=("shape",)),
        "concat": Example(
            (_M, normal(3, 2), 1), lambda *a: np.concatenate(a[:-1], a[-1]), (0, 1)
        ),
        "stack": Example((_M, normal(3, 3), 1), lambda *a: np.stack(a[:-1], a[-1]), (0, 1)),
        "split": Example((normal(3, 5), 3, 1), split),
        "repeat": Example((_M, 2, 1), np.repeat),
        "tile": Example((_M, Shape([1, 2])), np.tile),
        "flip": Example((_M, 1), np.flip),
        "nn.pad": Example((_M, Shape([0, 0, 2, 1]), "constant", 2.5), padded),
        "take": Example((_M, np.array([2, 0, 0]), 1), taken),
        "strided_slice": Example(
            (_M, Shape([1]), Shape([-1]), Shape([-4]), Shape([-2])), lambda x, *_: x[:, -1:-4:-2]
        ),
        "cumsum": Example((_M, 1, False), cumulated(np.sum), takes_any=("dtype",)),
        "cumprod": Example((_M, 1, True), cumulated(np.prod), takes_any=("dtype",)),
        "sort": Example((_M, 1, True), lambda x, axis, _: -np.sort(-x, axis)),
        "argsort": Example((_M, 1, False), argsorted, takes_any=("dtype",)),
        "topk": Example((_M, 2, 1, "both", True), topk, takes_any=("dtype",)),
        "matmul": Example((_M, normal(3, 3)), lambda a, b: np.einsum("ik,kj->ij", a, b)),
        "matmul_nt": Example((_M, normal(3, 3)), lambda a, b: np.einsum("ik,jk->ij", a, b)),
        "matmul_tn": Example((_M, normal(3, 3)), lambda a, b: np.einsum("ki,kj->ij", a, b), None),
        "linear": Example(
            (_M, normal(4, 3), normal(4)), lambda x, w, b: np.einsum("ik,jk->ij", x, w) + b
        ),
        "einsum": Example((_M, normal(3, 3), "ij,kj->k"), lambda a, b, _: b @ a.sum(0), None),
        "nn.softmax": Example((_M, -1), softmax),
        "nn.log_softmax": Example((_M, -1), lambda x, axis: np.log(softmax(x, axis))),
        "nn.layer_norm": Example(
            (_M, normal(3), normal(3), Shape([-1]), 1e-3, True, True), layer_norm
        ),
        "nn.rms_norm": Example((_M, normal(3), Shape([-1]), 1e-3), rms_norm),
        "nn.batch_norm": Example(
            (_M, normal(3), normal(3), normal(3), positive(3), 1, 1e-3, True, True), batch_norm
        ),
        "nn.dropout": Example((_M,), lambda x: (x + 0, np.ones_like(x))),
        "nn.cross_entropy_with_logits": Example(
            (_M, normal(3, 3)), lambda x, y: -(x * y).sum() / len(x), (0, 1)
        ),
        "nn.attention": Example(
            (normal(1, 3, 2, 3), normal(1, 4, 2, 3), normal(1, 4, 2, 5), normal(1, 1, 3, 4), None,
             "TopLeft"),
            attention, None,
        ),
        "nn.conv1d": Example(
            (normal(2, 2, 5), normal(3, 2, 2), Shape([2]), Shape([1, 0]), Shape([2]), 1),
            convolved, None,
        ),
        "nn.conv2d": Example(
            (normal(2, 4, 4, 5), normal(2, 2, 2, 3), Shape([1, 2]), Shape([1, 0, 0, 2]),
             Shape([2, 1]), 2),
            convolved, None,
        ),
        "nn.max_pool2d": Example(
            (normal(3, 2, 4, 5), Shape([2, 2]), Shape([1, 2]), Shape([1, 0, 0, 1]), Shape([2, 1]),
             True),
            pooled,
        ),
        "nn.avg_pool2d": Example(
            (normal(3, 2, 4, 5), Shape([2, 2]), Shape([1, 2]), Shape([1, 0, 0, 1]), Shape([2, 1]),
             True, False),
            pooled,
        ),
    }
)  # fmt: skip
"""By the name that a kernel's messages begin with, without the prefix."""

ALIASES = {
    "remainder": "floor_mod", "nn.relu": "relu", "astype": "cast", "expand_dims": "reshape",
    "squeeze": "reshape", "flatten": "reshape", "nn.attention_bias": "nn.attention",
}  # fmt: skip
"""Other names of kernels."""
