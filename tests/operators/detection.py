"""Cases of operators of object detection; references go element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .table import cases


def neighbours(image: Any, y: Any, x: Any) -> Any:
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros(len(image), image.dtype)
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    i, j = math.floor(y), math.floor(x)
    total = 0
    for k, a in ((i, 1 - (y - i)), (i + 1, y - i)):
        for m, b in ((j, 1 - (x - j)), (j + 1, x - j)):
            if k < height and m < width:
                total = total + image[:, k, m] * (a * b)
    return total


def aligned_regions(
    data: Any, rois: Any, pooled_size: Any, spatial_scale: float, sample_ratio: int = -1,
    aligned: bool = False, layout: str = "NCHW", mode: str = "avg",
) -> Any:  # fmt: skip
    images = np.moveaxis(data, -1, 1) if layout == "NHWC" else data
    out = np.zeros((len(rois), images.shape[1], *pooled_size), data.dtype)
    for n, roi in enumerate(rois):
        left, top, right, bottom = roi[1:] * np.longdouble(spatial_scale)
        sides = (bottom - top, right - left)
        sides = sides if aligned else tuple(max(side, np.longdouble(1)) for side in sides)
        steps = [side / parts for side, parts in zip(sides, pooled_size, strict=True)]
        counts = [sample_ratio if sample_ratio > 0 else math.ceil(step) for step in steps]
        for i, j in np.ndindex(*pooled_size):
            samples = [
                neighbours(images[int(roi[0])], top + steps[0] * (i + (p + 0.5) / counts[0]),
                           left + steps[1] * (j + (q + 0.5) / counts[1]))
                for p, q in np.ndindex(*counts)
            ]  # fmt: skip
            whole = np.array(samples)
            out[n, :, i, j] = whole.mean(0) if mode == "avg" else whole.max(0)
    return np.moveaxis(out, 1, -1) if layout == "NHWC" else out


def pooled_regions(
    data: Any, rois: Any, pooled_size: Any, spatial_scale: float, layout: str = "NCHW"
) -> Any:
    out = np.zeros((len(rois), data.shape[1], *pooled_size), data.dtype)
    for n, roi in enumerate(rois):
        ends = [math.floor(v * np.longdouble(spatial_scale) + 0.5) for v in roi[1:]]
        for at in np.ndindex(*pooled_size):
            part = []
            for axis, i in enumerate(at):
                first, last = ends[1 - axis], ends[3 - axis]
                step = max(last - first + 1, 1) / np.longdouble(pooled_size[axis])
                length = data.shape[2 + axis]
                part.append(slice(*[
                    min(max(end + first, 0), length)
                    for end in (math.floor(i * step), math.ceil((i + 1) * step))
                ]))  # fmt: skip
            elements = data[(int(roi[0]), slice(None), *part)]
            if elements.size:
                out[(n, slice(None), *at)] = elements.max((1, 2))
    return out


cases(
    "vision.roi_align",
    """
vision.roi_align(f(n, 3, 8, 8), f(5, 5), (2, 3), 0.5) | R.Tensor((5, 3, 2, 3), "float32")
vision.roi_align(f(n, 8, 8, 3), f(m, 5), 2, 0.5, layout="NHWC") |
    R.Tensor((m, 2, 2, 3), "float32")
vision.roi_align(rank(4), f(5, 5), (2, 3), 0.5) | R.Tensor(dtype="float32", ndim=4)
""",
    """
vision.roi_align(f(1, 3, 8, 8), f(5, 4), (2, 3), 0.5) | ValueError: relax.vision.roi_align: rois:
    expected 5 numbers for each region
vision.roi_align(f(1, 3, 8, 8), f(5, 5), (2, 3), 0.5, mode="min") | ValueError:
    relax.vision.roi_align: mode: expected 'avg' or 'max', got str 'min'
vision.roi_align(f(1, 3, 8, 8), f(5, 5), 0, 0.5) | ValueError: relax.vision.roi_align: pooled_size:
    expected two numbers of at least 1, got [0, 0]
""",
    """
vision.roi_align(x(2, 3, 6, 5), x(3, 5), (2, 3), 4.0, 2)
vision.roi_align(x(2, 3, 6, 5), x(3, 5), 2, 4.0, -1, False, "NCHW", "max")
vision.roi_align(x(2, 6, 5, 3), x(3, 5), (3, 1), 5.0, 2, True, "NHWC")
""",
    reference=aligned_regions,
    within=((-9, 9), (0, 1.9)),
    failures="""
vision.roi_align(f(1, 1, 2, 2), f(1, 5), 2, 1.0) | np.ones((1, 1, 2, 2), "f4"),
    np.full((1, 5), 3, "f4") | ValueError: vision.roi_align: rois: expected finite numbers, and
    images 0 to 0, got [3.0, 3.0, 3.0, 3.0, 3.0]
vision.roi_align(f(1, 1, 2, 2), f(1, 5), 2, 1.0) | np.ones((1, 1, 2, 2), "f4"),
    np.array([[0, 0, 0, 1e9, 1]], "f4") | ValueError: vision.roi_align: rois: expected regions of at
    most 65536 samples along an axis, got 1000000000
""",
    dtypes="fd",
    ulps=32,
    of_largest=True,
)
cases(
    "vision.roi_pool",
    """
vision.roi_pool(f(n, 3, 8, 8), f(5, 5), (2, 3), 0.5) | R.Tensor((5, 3, 2, 3), "float32")
""",
    """
vision.roi_pool(f(1, 3, 8, 8), f(5, 4), (2, 3), 0.5) | ValueError: relax.vision.roi_pool: rois:
    expected 5 numbers for each region
""",
    """
vision.roi_pool(x(2, 3, 6, 5), x(3, 5), (2, 3), 4.0)
vision.roi_pool(x(2, 3, 6, 5), x(4, 5), 3, 2.0)
""",
    reference=pooled_regions,
    within=((-9, 9), (0, 1.9)),
    dtypes="fd",
)
