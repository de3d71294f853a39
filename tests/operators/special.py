"""Special functions, numbers by their bits, segments, and pools whose windows are drawn: kernels of
programs from PyTorch."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import numpy as np

from .table import kernel


def hermite(x: Any, degree: Any, function: str) -> Any:
    """Written out."""
    of = [lambda x: 1 + 0 * x, lambda x: 2 * x, lambda x: 4 * x**2 - 2, lambda x: 8 * x**3 - 12 * x]
    x, degree = np.broadcast_arrays(x, degree)
    out = np.zeros(x.shape, x.dtype)
    for index in np.ndindex(x.shape):
        out[index] = of[int(degree[index])](x[index])
    return out


def halved(x: Any) -> tuple[Any, Any]:
    """By halving and doubling."""
    mantissa, exponent = x.copy(), np.zeros(x.shape, object)
    for index in np.ndindex(x.shape):
        while abs(mantissa[index]) >= 1:
            mantissa[index] /= 2
            exponent[index] += 1
        while 0 < abs(mantissa[index]) < 0.5:
            mantissa[index] *= 2
            exponent[index] -= 1
    return mantissa, exponent


def bits(x: Any, axes: Any, keepdims: int) -> Any:
    """Element by element, along the middle one of three axes."""
    out = np.zeros((x.shape[0], 1, x.shape[2]), object)
    for i, j, k in np.ndindex(x.shape):
        out[i, 0, k] ^= int.from_bytes(struct.pack("<d", x[i, j, k]), "little")
    return out


def segments(x: Any, lengths: Any, reduce: str, initial: Any) -> Any:
    """Sums of rows, element by element."""
    out = np.zeros((len(lengths), *x.shape[1:]), x.dtype)
    row = 0
    for i, length in enumerate(lengths.tolist()):
        for _ in range(length):
            out[i] += x[row]
            row += 1
    return out


def drawn_windows(x: Any, samples: Any, size: Any, output_size: Any) -> Any:
    """Window by window; steps are computed with halves and quarters, which are exact."""
    best = np.zeros((*x.shape[:2], *output_size), x.dtype)
    places = np.zeros(best.shape, object)
    for n, c, i, j in np.ndindex(best.shape):
        begin = []
        for axis, at in enumerate((i, j)):
            room = x.shape[2 + axis] - size[axis]
            step = room / (output_size[axis] - 1)
            sample = float(samples[n, c, 1 - axis])
            is_last = at == output_size[axis] - 1
            begin.append(room if is_last else int((at + sample) * step) - int(sample * step))
        window = itertools.product(*(range(b, b + w) for b, w in zip(begin, size, strict=True)))
        row, column = max(window, key=lambda place: x[n, c, place[0], place[1]])
        best[n, c, i, j] = x[n, c, row, column]
        places[n, c, i, j] = row * x.shape[3] + column
    return best, places


def means(x: Any, rois: Any, pooled_size: Any, scale: float) -> Any:
    """Of boxes that are whole numbers of parts, element by element."""
    tall, wide = pooled_size
    out = np.zeros((len(rois), x.shape[1] // (tall * wide), tall, wide), x.dtype)
    for r, c, i, j in np.ndindex(out.shape):
        image, left, top, right, bottom = (int(each) for each in rois[r])
        high, broad = (bottom - top) // tall, (right - left) // wide
        channel = (c * tall + i) * wide + j
        part = [
            x[image, channel, top + i * high + a, left + j * broad + b]
            for a in range(high)
            for b in range(broad)
        ]
        out[r, c, i, j] = sum(part) / len(part)
    return out


kernel(
    "special",
    lambda draw: (draw(3, 4), np.array([0.0, 1.0, 2.0, 3.0]), "hermite_h"),
    hermite,
    ulps=8,
    of_largest=True,
)
kernel("frexp", lambda draw: (draw(3, 5),), halved, dtype="float64,int32")
kernel("xor_sum", lambda draw: (draw(2, 5, 3), (1,), 1), bits, dtype="uint64")
kernel(
    "segment_reduce",
    lambda draw: (draw(7, 3), np.array([2, 0, 4, 1]), "sum", None),
    segments,
    ulps=4,
    of_largest=True,
)
kernel(
    "nn.fractional_max_pool",
    lambda draw: (draw(2, 3, 7, 10), np.rint(abs(draw(2, 3, 2))) % 4 / 4, (2, 3), (3, 5)),
    drawn_windows,
    dtype="float64,int64",
)
kernel(
    "vision.ps_roi_pool",
    lambda draw: (
        draw(2, 12, 9, 11), np.array([[1.0, 2, 1, 8, 5], [0, 0, 0, 10, 8]]), (2, 2), 1.0
    ),
    means,
    ulps=8,
    of_largest=True,
)  # fmt: skip
