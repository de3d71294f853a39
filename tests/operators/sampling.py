"""Cases of samples of images at coordinates, and of boxes; references go element by element."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from .images import kernel_at
from .table import ROUNDED, cases, kernel

SAMPLED = {"float16": 2, "float32": 32, "float64": 32}
ALPHA = np.longdouble(-0.75)


def mirrored(place: Any, low: Any, high: Any) -> Any:
    while not low <= place <= high and low < high:
        place = 2 * low - place if place < low else 2 * high - place
    return place if low < high else low


def sampled(
    data: Any, grid: Any, method: str = "bilinear", layout: str = "NCHW",
    padding_mode: str = "zeros", align_corners: bool = False,
) -> Any:  # fmt: skip
    x = np.moveaxis(data, -1, 1) if layout[-1] == "C" else data
    lengths, axes = x.shape[2:], x.ndim - 2
    out = np.zeros((*x.shape[:2], *grid.shape[2:]), x.dtype)
    for n, *at in np.ndindex(len(x), *grid.shape[2:]):
        along = []
        for i, length in enumerate(lengths):
            c = grid[(n, axes - 1 - i, *at)]
            p = (c + 1) / 2 * (length - 1) if align_corners else ((c + 1) * length - 1) / 2
            low, high = (0, length - 1) if align_corners else (-0.5, length - 0.5)
            if method == "nearest":
                p = np.rint(p)
            if padding_mode == "border" and method != "bicubic":
                p = min(max(p, 0), length - 1)
            elif padding_mode == "reflection":
                p = mirrored(p, low, high)
            taps = [(int(np.rint(p)), 1)] if method == "nearest" else [
                (j, kernel_at("linear" if method == "bilinear" else "cubic", j - p, ALPHA))
                for j in range(math.floor(p) - 1, math.floor(p) + 3)
            ]  # fmt: skip
            if padding_mode == "reflection":
                taps = [(int(mirrored(j, low, high)), w) for j, w in taps]
            if padding_mode != "zeros":
                taps = [(min(max(j, 0), length - 1), w) for j, w in taps]
            along.append(taps)
        for combination in itertools.product(*along):
            place = [j for j, _ in combination]
            if all(0 <= j < length for j, length in zip(place, lengths, strict=True)):
                weight = math.prod([w for _, w in combination], start=np.longdouble(1))
                out[(n, slice(None), *at)] += x[(n, slice(None), *place)] * weight
    return np.moveaxis(out, 1, -1) if layout[-1] == "C" else out


def affine(data: Any, size: Any, align_corners: bool = True) -> Any:
    out = np.zeros((len(data), len(size), *size), data.dtype)
    for at in np.ndindex(*size):
        point = [
            ((2 * np.longdouble(i) / (length - 1) - 1) if length > 1 else np.longdouble(0))
            if align_corners else (2 * np.longdouble(i) + 1) / length - 1
            for i, length in zip(at, size, strict=True)
        ]  # fmt: skip
        out[(..., *at)] = data @ np.array([*point[::-1], 1])
    return out


cases(
    "image.grid_sample",
    """
image.grid_sample(f(n, 3, 5, 6), f(n, 2, 8, m)) | R.Tensor((n, 3, 8, m), "float32")
image.grid_sample(f(n, 3, 4, 5, 6), f(n, 3, 7, 8, 9), layout="NCDHW") |
    R.Tensor((n, 3, 7, 8, 9), "float32")
image.grid_sample(f(n, 5, 6, 3), f(n, 2, 8, 9), layout="NHWC") | R.Tensor((n, 8, 9, 3), "float32")
image.grid_sample(rank(4), f(n, 2, 8, 9)) | R.Tensor(dtype="float32", ndim=4)
""",
    """
image.grid_sample(f(2, 3, 5, 6), f(2, 8, 9, 2)) | ValueError: relax.image.grid_sample: grid:
    expected 2 coordinates in dimension 1
image.grid_sample(f(2, 3, 5, 6), f(3, 2, 8, 9)) | ValueError: relax.image.grid_sample: the batch
    (dimension 0) differs: it is 2 in data and 3 in grid
image.grid_sample(f(2, 3, 5, 6), i(2, 2, 8, 9)) | TypeError: relax.image.grid_sample: grid: expected
    floats
image.grid_sample(f(2, 3, 5, 6), f(2, 2, 8, 9), "linear") | ValueError: relax.image.grid_sample:
    method: expected 'nearest' or 'bilinear' or 'bicubic', got str 'linear'
image.grid_sample(f(2, 3, 5, 6), f(2, 2, 8, 9), layout="NCWH") | ValueError:
    relax.image.grid_sample: layout: expected 'NCHW' or 'NHWC' or 'NCDHW' or 'NDHWC', got 'NCWH'
""",
    """
image.grid_sample(x(2, 3, 4, 5), x(2, 2, 3, 2))
image.grid_sample(x(1, 2, 4, 5), x(1, 2, 3, 4), "bicubic", "NCHW", "border")
image.grid_sample(x(1, 2, 4, 5), x(1, 2, 3, 4), "bicubic", "NCHW", "reflection", True)
image.grid_sample(x(1, 2, 4, 5), x(1, 2, 3, 4), "bilinear", "NCHW", "reflection")
image.grid_sample(x(1, 4, 5, 2), x(1, 2, 3, 4), "nearest", "NHWC", "reflection")
image.grid_sample(x(1, 2, 4, 5), x(1, 2, 3, 4), "bilinear", "NCHW", "zeros", True)
image.grid_sample(x(1, 2, 3, 2, 3), x(1, 3, 2, 2, 3), "bilinear", "NCDHW", "border", True)
""",
    reference=sampled,
    within=((-9, 9), (-1.6, 1.6)),
    dtypes="fd",
    ulps=SAMPLED,
    of_largest=True,
)
cases(
    "image.affine_grid",
    """
image.affine_grid(f(n, 2, 3), (5, m)) | R.Tensor((n, 2, 5, m), "float32")
image.affine_grid(f(n, 3, 4), (5, 6, 7)) | R.Tensor((n, 3, 5, 6, 7), "float32")
image.affine_grid(f(n, 2, 3), n) | R.Tensor((n, 2, n, n), "float32")
image.affine_grid(rank(3), (5, 6)) | R.Tensor(dtype="float32", ndim=4)
""",
    """
image.affine_grid(f(2, 2, 4), (5, 6)) | ValueError: relax.image.affine_grid: data: expected matrices
    of 2 rows and 3 columns
image.affine_grid(f(2, 2, 3), (5,)) | ValueError: relax.image.affine_grid: size: expected 2 or 3
    lengths
image.affine_grid(i(2, 2, 3), (5, 6)) | TypeError: relax.image.affine_grid: data: expected floats
""",
    """
image.affine_grid(x(2, 2, 3), (3, 4))
image.affine_grid(x(2, 2, 3), (3, 1), False)
image.affine_grid(x(2, 3, 4), (2, 1, 3))
""",
    reference=affine,
    dtypes="fhd",
    ulps={"float16": ROUNDED, "float32": ROUNDED, "float64": 8},
    of_largest=True,
)


def middle(x: Any, axes: Any, size: Any) -> Any:
    for axis, length in zip(axes, size, strict=True):
        rows = np.moveaxis(x, axis, 0)
        out = np.zeros((length, *rows.shape[1:]), x.dtype)
        for i in range(length):
            at = i + (len(rows) - length) // 2 if length < len(rows) else (
                i - (length - len(rows)) // 2)  # fmt: skip
            if 0 <= at < len(rows):
                out[i] = rows[at]
        x = np.moveaxis(out, 0, axis)
    return x


kernel("image.center_crop_pad", lambda draw: (draw(5, 4, 3), (0, 2), (2, 6)), middle)


def separate(
    boxes: Any, scores: Any, most: Any, iou_threshold: Any, score_threshold: Any, are_centers: Any
) -> Any:
    """Boxes one after the other, the best first, each compared with those that are kept."""

    def corners(box: Any) -> Any:
        a, b, c, d = box
        if are_centers:
            return a - c / 2, b - d / 2, a + c / 2, b + d / 2
        return min(a, c), min(b, d), max(a, c), max(b, d)

    def overlap(one: Any, other: Any) -> Any:
        p, q = corners(one), corners(other)
        common = math.prod(
            [max(np.longdouble(0), min(p[i + 2], q[i + 2]) - max(p[i], q[i])) for i in (0, 1)]
        )
        both = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (p, q)) - common
        return common / both

    found = []
    for b, c in np.ndindex(scores.shape[:2]):
        kept: list[int] = []
        for i in sorted(range(scores.shape[2]), key=lambda i, b=b, c=c: -scores[b, c, i]):
            if scores[b, c, i] > score_threshold[0] and len(kept) < most[0] and all(
                overlap(boxes[b, i], boxes[b, k]) <= iou_threshold[0] for k in kept
            ):  # fmt: skip
                kept.append(i)
        found += [(b, c, i) for i in kept]
    return np.array(found, object)


kernel(
    "vision.select_boxes",
    lambda draw: (draw(2, 20, 4), draw(2, 2, 20), np.array([7]), np.array([0.3]), np.array([-5.0]),
                  0),
    separate,
    dtype="int64",
)  # fmt: skip
