"""Cases of operators on images; references compute each element of the result by itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .table import ROUNDED, cases

WIDE = np.longdouble
SAMPLED = {"float16": ROUNDED, "float32": 16, "float64": 16}


def place(mode: str, i: int, length: int, size: int, scale: Any, ends: Any) -> Any:
    """The place of an axis that an index of the result is at."""
    scale = WIDE(size) / length if scale is None else WIDE(scale)
    whole = scale * length
    if mode == "asymmetric":
        return i / scale
    if mode == "align_corners":
        return i * (length - 1) / (whole - 1) if abs(whole - 1) > 1e-9 else WIDE(0)
    if mode == "tf_half_pixel_for_nn":
        return (WIDE(i) + 0.5) / scale
    if mode == "tf_crop_and_resize":
        start, end = map(WIDE, ends)
        if abs(whole - 1) < 1e-9:
            return (start + end) * (length - 1) / 2
        return start * (length - 1) + i * (end - start) * (length - 1) / (whole - 1)
    if mode == "pytorch_half_pixel" and size == 1:
        return WIDE(0)
    found = (WIDE(i) + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        found += WIDE(length) / 2 * (1 - size / whole)
    return found


def kernel_at(method: str, distance: Any, a: Any) -> Any:
    d = abs(distance)
    if method == "linear":
        return max(WIDE(0), 1 - d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else WIDE(0)


NEAREST = {
    "round": lambda p: int(np.rint(p)),
    "round_prefer_ceil": lambda p: math.floor(p + WIDE(0.5)),
    "round_prefer_floor": lambda p: math.ceil(p - WIDE(0.5)),
    "floor": lambda p: math.floor(p + WIDE(1e-12)),
    "ceil": lambda p: math.ceil(p - WIDE(1e-12)),
}


def along(
    x: Any, axis: int, size: int, scale: Any, ends: Any, method: str, mode: str, rounding: str,
    a: Any, exclude: Any, antialias: bool, fill: Any,
) -> Any:  # fmt: skip
    """One axis resized, element by element; and where its places are beyond it."""
    rows = np.moveaxis(x, axis, 0)
    length = len(rows)
    out = np.empty((size, *rows.shape[1:]), x.dtype)
    beyond = []
    for i in range(size):
        p = place(mode, i, length, size, scale, ends)
        if mode == "tf_crop_and_resize" and not 0 <= p <= length - 1:
            beyond.append(i)
        if method == "nearest_neighbor":
            out[i] = rows[min(max(NEAREST[rounding](p), 0), length - 1)]
            continue
        width = WIDE(1)
        if antialias:
            width = min(width, WIDE(size) / length if scale is None else WIDE(scale))
        reach = math.ceil(2 / width) + 1
        weights: dict[int, Any] = {}
        for j in range(math.floor(p) - reach, math.floor(p) + reach + 1):
            weight = kernel_at(method, (j - p) * width, a)
            if not (exclude and not 0 <= j < length):
                weights[j] = weight
        total = sum(weights.values())
        out[i] = sum(rows[min(max(j, 0), length - 1)] * (w / total) for j, w in weights.items())
    return np.moveaxis(out, 0, axis), beyond


def resized(
    data: Any, size: Any, axes: Any, scales: Any = None, roi: Any = None, method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "round_prefer_floor", cubic_alpha: float = -0.75,
    exclude_outside: Any = False, antialias: bool = False, extrapolation_value: float = 0.0,
) -> Any:  # fmt: skip
    out, lost = data, []
    for k, axis in enumerate(axes):
        ends = None if roi is None else (roi[k], roi[k + len(axes)])
        out, beyond = along(
            out, axis, size[k], None if scales is None else scales[k], ends, method,
            coordinate_transformation_mode, rounding_method, WIDE(cubic_alpha), exclude_outside,
            antialias, extrapolation_value,
        )  # fmt: skip
        lost += [(axis, i) for i in beyond]
    for axis, i in lost:
        np.moveaxis(out, axis, 0)[i] = extrapolation_value
    return out


def resized_images(spatial: str) -> Any:
    def resize(
        data: Any, size: Any, roi: Any, layout: str, method: str,
        coordinate_transformation_mode: str, rounding_method: str, cubic_alpha: float,
        cubic_exclude: int, extrapolation_value: float, out_dtype: Any = None,
    ) -> Any:  # fmt: skip
        axes = [layout.index(letter) for letter in spatial]
        corners = coordinate_transformation_mode == "align_corners"
        return resized(
            data, size, axes, None, roi, method, coordinate_transformation_mode,
            rounding_method or ("round" if corners else "floor"), cubic_alpha, cubic_exclude,
            False, extrapolation_value,
        )  # fmt: skip

    return resize


cases(
    "image.resize2d",
    """
image.resize2d(f(n, 3, 5, 6), (7, m)) | R.Tensor((n, 3, 7, m), "float32")
image.resize2d(f(n, 5, 6, 3), 7, layout="NHWC", out_dtype="float16") |
    R.Tensor((n, 7, 7, 3), "float16")
image.resize2d(i(n, 3, 5, 6), [7], method="nearest_neighbor") | R.Tensor((n, 3, 7, 7), "int64")
image.resize2d(rank(4), 7) | R.Tensor(dtype="float32", ndim=4)
image.resize2d(f(n, 3, 5, 6), shape_var(2), 0.5) | R.Tensor(dtype="float32", ndim=4)
""",
    """
image.resize2d(f(3, 5, 6), 7) | ValueError: relax.image.resize2d: data: expected a tensor of layout
    'NCHW'
image.resize2d(f(1, 3, 5, 6), 7, layout="NCHWc") | ValueError: relax.image.resize2d: layout:
    expected an order of the letters of 'NCHW', got 'NCHWc'
image.resize2d(f(1, 3, 5, 6), 7, method="area") | ValueError: relax.image.resize2d: method: expected
    'nearest_neighbor' or 'linear' or 'cubic', got 'area'
image.resize2d(f(1, 3, 5, 6), (1, 2, 3)) | ValueError: relax.image.resize2d: size: expected 2
    numbers
image.resize2d(f(1, 3, 5, 6), 7, (0, 1)) | ValueError: relax.image.resize2d: roi: expected 4
    numbers, got [0.0, 1.0]
image.resize2d(f(1, 3, 5, 6), 7, "x") | TypeError: relax.image.resize2d: roi[0]: expected a number
image.resize2d(b(1, 3, 5, 6), 7) | TypeError: relax.image.resize2d: data: expected numbers
image.resize2d(f(1, 3, 5, 6), 7, cubic_exclude=2) | ValueError: relax.image.resize2d: cubic_exclude:
    expected 0 or 1, got 2
image.resize2d(f(1, 3, 5, 6), 7, rounding_method="up") | ValueError: relax.image.resize2d:
    rounding_method: expected '' or 'round'
image.resize2d(f(1, 3, 5, 6), 7, coordinate_transformation_mode="up") | ValueError:
    relax.image.resize2d: coordinate_transformation_mode: expected 'half_pixel' or 'align_corners'
""",
    """
image.resize2d(x(2, 1, 3, 4), (5, 2))
image.resize2d(x(1, 3, 4, 2), (2, 5), layout="NHWC", method="cubic")
image.resize2d(x(1, 2, 3, 4), (7, 1), coordinate_transformation_mode="align_corners")
image.resize2d(x(1, 2, 3, 4), (1, 8), None, "NCHW", "linear", "pytorch_half_pixel")
image.resize2d(x(1, 1, 4, 4), 7, None, "NCHW", "cubic", "asymmetric", cubic_exclude=1)
image.resize2d(x(1, 1, 4, 5), 3, (-0.2, 0.1, 0.7, 1.2), "NCHW", "linear", "tf_crop_and_resize",
    extrapolation_value=2.5)
image.resize2d(x(1, 1, 4, 5), 1, (0.2, 0.1, 0.7, 0.5), "NCHW", "linear", "tf_crop_and_resize")
image.resize2d(x(1, 2, 3, 5), (6, 3), None, "NCHW", "nearest_neighbor", "asymmetric", "")
image.resize2d(x(1, 2, 3, 5), (6, 3), None, "NCHW", "nearest_neighbor", "align_corners", "")
image.resize2d(x(1, 2, 3, 5), 4, None, "NCHW", "nearest_neighbor", "half_pixel", "ceil")
image.resize2d(x(1, 2, 3, 5), 7, None, "NCHW", "nearest_neighbor", "tf_half_pixel_for_nn", "floor")
image.resize2d(x(1, 2, 3, 5), (6, 10), None, "NCHW", "nearest_neighbor", "asymmetric", "round")
image.resize2d(h(1, 1, 3, 3), 5, out_dtype="float32")
image.resize2d(x(0, 1, 3, 3), 5)
""",
    reference=resized_images("HW"),
    dtypes="fhd",
    free=("dtype",),
    ulps=SAMPLED,
    of_largest=True,
)
cases(
    "image.resize3d",
    """
image.resize3d(f(n, 3, 5, 6, 7), (7, m, 8)) | R.Tensor((n, 3, 7, m, 8), "float32")
image.resize3d(f(n, 3, 5, 6, 7), 4) | R.Tensor((n, 3, 4, 4, 4), "float32")
""",
    """
image.resize3d(f(1, 3, 5, 6), 7) | ValueError: relax.image.resize3d: data: expected a tensor of
    layout 'NCDHW'
""",
    """
image.resize3d(x(1, 2, 2, 3, 2), (3, 4, 1))
image.resize3d(x(1, 1, 3, 2, 3), 2, None, "NCDHW", "cubic", "align_corners")
image.resize3d(x(1, 2, 3, 2, 3), (4, 4, 2), None, "NCDHW", "nearest_neighbor")
""",
    reference=resized_images("DHW"),
    dtypes="fhd",
    free=("dtype",),
    ulps=SAMPLED,
    of_largest=True,
)
cases(
    "image.resize",
    """
image.resize(f(n, 3, 5), (4,), [-1]) | R.Tensor((n, 3, 4), "float32")
image.resize(f(n, 3, 5), (m, 4), [1, 2], antialias=True) | R.Tensor((n, m, 4), "float32")
image.resize(rank(3), (4,), [1]) | R.Tensor(dtype="float32", ndim=3)
""",
    """
image.resize(f(2, 3, 5), (4, 5), [1]) | ValueError: relax.image.resize: size: expected 1 numbers
image.resize(f(2, 3, 5), (4,), [3]) | ValueError: relax.image.resize: axes: expected an axis
image.resize(f(2, 3, 5), (4,), [1], [0]) | ValueError: relax.image.resize: scales: expected 1
    positive numbers, got [0.0]
image.resize(f(2, 3), (4,), [1], None, None, "linear", "tf_crop_and_resize") | ValueError:
    relax.image.resize: roi: expected 2 numbers, got None
image.resize(f(2, 3), (4,), [1], rounding_method="") | ValueError: relax.image.resize:
    rounding_method: expected 'round' or 'floor'
""",
    """
image.resize(x(3, 9), (4,), [1], antialias=True)
image.resize(x(9, 3), (4,), [0], None, None, "cubic", antialias=True)
image.resize(x(2, 7), (3,), [1], None, None, "cubic", antialias=True, exclude_outside=True)
image.resize(x(3, 5), (4,), [1], [0.875], None, "linear", "half_pixel_symmetric")
image.resize(x(3, 5), (7, 2), [1, 0], [1.5, 0.75], None, "nearest_neighbor", "asymmetric", "floor")
image.resize(x(40, 50), (70, 20), [0, 1], None, None, "cubic", "half_pixel", cubic_alpha=-0.5)
""",
    reference=resized,
    dtypes="fhd",
    ulps={"float16": ROUNDED, "float32": 16, "float64": 64},
    of_largest=True,
    free=("dtype",),
    in_tvm=False,
)
