"""Cases of kernels of places in windows, sums of windows, and determinants."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from .table import kernel


def places(
    x: Any, size: Any, strides: Any, padding: Any, dilation: Any, ceil_mode: Any, by_column: Any
) -> Any:
    """The place of the greatest element, window by window; without ceil_mode."""
    assert not ceil_mode
    lengths, axes = x.shape[2:], len(size)
    counts = [
        (lengths[i] + padding[i] + padding[axes + i] - (size[i] - 1) * dilation[i] - 1)
        // strides[i] + 1 for i in range(axes)
    ]  # fmt: skip
    out = np.full((*x.shape[:2], *counts), -1, object)
    for at in np.ndindex(*out.shape):
        plane, greatest = x[at[:2]], None
        for tap in itertools.product(*map(range, size)):
            place = [at[2 + i] * strides[i] - padding[i] + tap[i] * dilation[i]
                     for i in range(axes)]  # fmt: skip
            if all(0 <= p < n for p, n in zip(place, lengths, strict=True)) and (
                greatest is None or plane[tuple(place)] > greatest
            ):
                greatest = plane[tuple(place)]
                order = range(axes) if not by_column else range(axes)[::-1]
                index = 0
                for i in order:
                    index = index * lengths[i] + place[i]
                before = at[0] * x.shape[1] + at[1]
                out[at] = before * math.prod(lengths) + index
    return out


def folded(x: Any, output_size: Any, size: Any, strides: Any, padding: Any, dilation: Any) -> Any:
    axes = len(size)
    counts = [
        (output_size[i] + padding[i] + padding[axes + i] - (size[i] - 1) * dilation[i] - 1)
        // strides[i] + 1 for i in range(axes)
    ]  # fmt: skip
    taps = list(itertools.product(*map(range, size)))
    out = np.zeros((x.shape[0], x.shape[1] // len(taps), *output_size), x.dtype)
    for (b, c), (t, tap), (w, at) in itertools.product(
        np.ndindex(*out.shape[:2]), enumerate(taps), enumerate(np.ndindex(*counts))
    ):
        place = [at[i] * strides[i] - padding[i] + tap[i] * dilation[i] for i in range(axes)]
        if all(0 <= p < n for p, n in zip(place, output_size, strict=True)):
            out[(b, c, *place)] += x[b, c * len(taps) + t, w]
    return out


def leibniz(x: Any) -> Any:
    """Sums over permutations."""
    out = np.zeros(x.shape[:-2], x.dtype)
    n = x.shape[-1]
    for order in itertools.permutations(range(n)):
        swaps = sum(order[i] > order[j] for i in range(n) for j in range(i + 1, n))
        product = (-1) ** swaps * np.ones((), x.dtype)
        for row, column in enumerate(order):
            product = product * x[..., row, column]
        out = out + product
    return out


def bands(count: int, length: int, rate: int, lowest: float, highest: float) -> Any:
    """Triangles, element by element."""
    low, high = (2595 * math.log10(1 + edge / 700) for edge in (lowest, highest))
    mels = [low + i * (high - low) / (count + 2) for i in range(count + 2)]
    at = [int((length + 1) * 700 * (10 ** (mel / 2595) - 1) // rate) for mel in mels]
    out = np.zeros((length // 2 + 1, count), np.longdouble)
    for band, row in np.ndindex(count, len(out)):
        first, middle, last = at[band : band + 3]
        if row == middle:
            out[row, band] = 1
        elif first <= row < middle:
            out[row, band] = np.longdouble(row - first) / (middle - first)
        elif middle < row < last:
            out[row, band] = np.longdouble(last - row) / (last - middle)
    return out


kernel(
    "nn.max_pool_indices",
    lambda draw: (draw(2, 3, 7, 6), (3, 2), (2, 1), (1, 0, 1, 1), (1, 2), 0, 1),
    places,
    dtype="int64",
)
kernel(
    "nn.fold",
    lambda draw: (draw(2, 3 * 6, 9), (6, 5), (3, 2), (2, 1), (1, 0, 1, 0), (1, 2)),
    folded,
    ulps=8,
    of_largest=True,
)
kernel("det", lambda draw: (draw(3, 2, 4, 4),), leibniz, ulps=64, of_largest=True)
kernel("mel_weights", lambda draw: (8, 64, 8000, 100.0, 3900.0), bands, ulps=4,
       free=("shape", "dtype"))  # fmt: skip
