"""Reference results of kernels, by plain numpy or plain loops, and arguments for kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seed the random numbers of each test of a module that imports this fixture."""
    RNG.bit_generator.state = np.random.default_rng(7).bit_generator.state


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
    """Apply a function of Python floats element by element."""
    return np.vectorize(function, otypes=[np.float64])


# Functions of one tensor, of floats, integers, bools

FLOAT_UNARY: dict[str, Callable[..., Any]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "erf": per_element(math.erf),
    "nn.silu": lambda x: x / (1 + np.exp(-x)),
    "nn.gelu": lambda x: x * (1 + per_element(math.erf)(x / math.sqrt(2))) / 2,
    "nn.gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
}  # fmt: skip


# Reductions


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "prod": np.prod, "mean": np.mean, "max": np.max, "min": np.min,
}  # fmt: skip


def cumulated(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """Cumulative results along an axis, by reducing the elements up to each one."""

    def want(x: np.ndarray, axis: int | None, exclusive: bool) -> np.ndarray:
        if axis is None:
            x, axis = x.reshape(-1), 0
        rows = np.moveaxis(x, axis, 0)
        parts = [function(rows[: i + (not exclusive)], axis=0) for i in range(len(rows))]
        return np.moveaxis(np.array(parts).reshape(rows.shape), 0, axis)

    return want


# Search


def ordered(row: list[float], descending: bool) -> list[int]:
    """Indices that sort a row, stably; NaN is greater than all numbers."""
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
    """A convolution by plain loops, for images of any rank."""
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
    """Pooling by plain loops: average, or maximum if `count_include_pad` is None."""
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
    """Attention, one query at a time."""
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


