"""Operators on images: other sizes, samples at coordinates, windows as columns, boxes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....ir import TensorType, prim
from ...common.deformed import deformed_conv
from ...common.emitter import Emitter
from ..forms import (
    Tensor,
    cast,
    dims_of,
    dtype_of,
    each_of,
    is_float,
    known,
    length,
    number,
    per_axis,
    rank_of,
    reshaped,
)
from ..registry import aten
from .neural import padded
from .shapes import expand, moved

__all__: list[str] = []


# Other sizes


def _scaled(dim: Any, scale: float) -> Any:
    if isinstance(dim, int):
        return int(dim * scale)
    exact = Fraction(scale)
    if exact.denominator > 1 << 16:
        # The product is rounded as torch rounds it: 100 * 0.29 is less than 29.
        return length(prim.cast(prim.cast(dim, "float64") * float(scale), "int64"))
    return length(prim.floordiv(dim * exact.numerator, exact.denominator))


def _resized(
    c: Emitter, x: Tensor, size: list[Any], method: str, coordinates: str, rounding: str,
    scales: list[Any], antialias: bool = False,
) -> Tensor:  # fmt: skip
    dims = dims_of(x)
    count = len(size)
    axes = list(range(len(dims) - count, len(dims)))
    dtype = dtype_of(x)
    wide = x if is_float(dtype) else cast(c, x, "float32")
    given: Any = None
    if all(each is not None for each in scales) and coordinates != "align_corners":
        given = [float(each) for each in scales]
    found = c.op(
        "image.resize", wide, size, axes, given, None, method, coordinates, rounding,
        -0.5 if antialias else -0.75, antialias, antialias,
    )  # fmt: skip
    if is_float(dtype):
        return found
    return cast(c, c.op("clip", c.op("round", found), 0, 255), dtype)


def _sizes(x: Tensor, output_size: Any, scales: list[Any], count: int) -> list[Any]:
    if output_size is not None:
        return [length(each) for each in output_size]
    dims = dims_of(x)[-count:]
    return [_scaled(dim, scale) for dim, scale in zip(dims, scales, strict=True)]


_LINEAR: Final = {"upsample_linear1d": 1, "upsample_bilinear2d": 2, "upsample_trilinear3d": 3}
_CUBIC: Final = {"upsample_bicubic2d": 2}


def _upsample_smooth(
    name: str, c: Emitter, x: Tensor, output_size: Any, align_corners: bool, scales: list[Any],
) -> Tensor:  # fmt: skip
    antialias = name.endswith("_aa")
    base = name.strip("_").removesuffix("_aa")
    method = "cubic" if base in _CUBIC else "linear"
    count = int(base[-2])
    scales = scales or [None] * count
    coordinates = "align_corners" if align_corners else (
        "half_pixel" if method == "cubic" or antialias else "pytorch_half_pixel")  # fmt: skip
    size = _sizes(x, output_size, scales, count)
    if antialias and align_corners:
        return _by_matrices(c, x, size, method)
    if coordinates == "pytorch_half_pixel":
        coordinates = "half_pixel"  # they differ for sizes of 1 alone, where torch has half_pixel
    return _resized(c, x, size, method, coordinates, "floor", scales, antialias)


def _by_matrices(c: Emitter, x: Tensor, size: list[Any], method: str) -> Tensor:
    """Antialiased with the scales of aligned corners, but about the centers of elements, as PyTorch
    has it."""
    dtype = dtype_of(x)
    found = cast(c, x, "float64")
    for axis, new in zip(range(rank_of(x) - len(size), rank_of(x)), size, strict=True):
        weights = _antialiasing(known(dims_of(x)[axis], "antialias with align_corners"),
                                known(new, "output_size"), method)  # fmt: skip
        found = moved(c, c.op("matmul", moved(c, found, axis, rank_of(x) - 1),
                              c.expr(weights.T)), rank_of(x) - 1, axis)  # fmt: skip
    if is_float(dtype):
        return cast(c, found, dtype)
    return cast(c, c.op("clip", c.op("round", found), 0, 255), dtype)


def _antialiasing(old: int, new: int, method: str) -> NDArray[np.float64]:
    """The weights of the elements, a row for each element of the result."""
    scale = (old - 1) / (new - 1) if new > 1 else 0.0
    wide = max(scale, 1.0)
    reach = wide * (2 if method == "cubic" else 1)
    weights = np.zeros((new, old))
    for i in range(new):
        center = scale * (i + 0.5)
        first, end = max(int(center - reach + 0.5), 0), min(int(center + reach + 0.5), old)
        apart = np.abs((np.arange(first, end) - center + 0.5) / wide)
        if method == "cubic":  # Keys's kernel with a = -1/2
            near = (1.5 * apart - 2.5) * apart**2 + 1
            row = np.where(apart < 1, near, ((-0.5 * apart + 2.5) * apart - 4) * apart + 2)
            row = np.where(apart < 2, row, 0)
        else:
            row = np.maximum(1 - apart, 0)
        weights[i, first:end] = row / (row.sum() or 1)
    return weights


@each_of("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec",
         "upsample_bicubic2d.vec", "_upsample_bilinear2d_aa.vec",
         "_upsample_bicubic2d_aa.vec")  # fmt: skip
def upsample_smooth_by_factors(
    name: str, c: Emitter, input: Tensor, output_size: Any, align_corners: bool,  # noqa: A002
    scale_factors: Any = None,
) -> Tensor:  # fmt: skip
    """R.image.resize, linear or cubic."""
    return _upsample_smooth(name, c, input, output_size, align_corners, scale_factors)


@each_of("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
         "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")  # fmt: skip
def upsample_smooth(
    name: str, c: Emitter, self: Tensor, output_size: Any, align_corners: bool,
    scales: Any = None, scales_d: Any = None, scales_h: Any = None, scales_w: Any = None,
) -> Tensor:  # fmt: skip
    """R.image.resize, linear or cubic."""
    count = int(name.strip("_").removesuffix("_aa")[-2])
    given = [scales] if count == 1 else [scales_d, scales_h, scales_w][3 - count :]
    return _upsample_smooth(name, c, self, output_size, align_corners, given)


def _upsample_nearest(
    name: str, c: Emitter, x: Tensor, output_size: Any, scales: list[Any]
) -> Tensor:
    is_exact = "exact" in name
    count = int(name[-2])
    size = _sizes(x, output_size, scales or [None] * count, count)
    dims = dims_of(x)
    found = x
    for i, (new, scale) in enumerate(zip(size, scales or [None] * count, strict=True)):
        axis = len(dims) - count + i
        old = dims[axis]
        if not isinstance(old, int) or not isinstance(new, int):
            if scales and all(each is not None and float(each).is_integer() for each in scales):
                found = _repeated(c, found, axis, int(scale))
                continue
            found = _nearest(c, found, axis, new, scale, is_exact, count == 2 and not is_exact)
            continue
        if count == 2 and not is_exact and new in (old, 2 * old):
            scale = new // old if old else 1  # torch takes no notice of the factor
        step = np.float32(1 / scale) if scale else np.float32(old) / np.float32(new)
        places = np.arange(new, dtype=np.float32)
        index = np.floor((places + np.float32(0.5)) * step if is_exact else places * step)
        index = np.minimum(index.astype(np.int64), old - 1)
        if not np.array_equal(index, np.arange(old)):
            found = c.op("take", found, c.expr(index), axis)
    return found


def _nearest(
    c: Emitter, x: Tensor, axis: int, new: Any, scale: float | None, is_exact: bool,
    is_same_or_double: bool,
) -> Tensor:  # fmt: skip
    """R.take along an axis whose length only the run knows.

    Args:
        is_same_or_double: whether the same and twice the length take no notice of the scale.
    """
    old = prim.as_scalar(dims_of(x)[axis])
    if scale:
        step = prim.as_scalar(float(np.float32(1 / scale)))
    else:
        step = prim.cast(old, "float64") / prim.cast(new, "float64")
    if is_same_or_double and scale:
        step = prim.select(prim.equal(new, old), prim.as_scalar(1.0),
                           prim.select(prim.equal(new, old * 2), prim.as_scalar(0.5), step))
    first = c.op("arange", 0, new, 1, "float32")
    if is_exact:
        first = c.op("add", first, number(c, 0.5, "float32"))
    places = c.op("multiply", first, number(c, step, "float32"))
    index = c.op("astype", c.op("floor", places), "int64")
    return c.op("take", x, c.op("minimum", index, number(c, length(old - 1), "int64")), axis)


def _repeated(c: Emitter, x: Tensor, axis: int, times: int) -> Tensor:
    return c.op("repeat", x, times, axis)


@each_of("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec",
         "_upsample_nearest_exact1d.vec", "_upsample_nearest_exact2d.vec",
         "_upsample_nearest_exact3d.vec")  # fmt: skip
def upsample_nearest_by_factors(
    name: str, c: Emitter, input: Tensor, output_size: Any, scale_factors: Any = None  # noqa: A002
) -> Tensor:
    """R.take of the nearest elements."""
    return _upsample_nearest(name, c, input, output_size, scale_factors)


@each_of("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
         "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
         "_upsample_nearest_exact3d")  # fmt: skip
def upsample_nearest(
    name: str, c: Emitter, self: Tensor, output_size: Any, scales: Any = None,
    scales_d: Any = None, scales_h: Any = None, scales_w: Any = None,
) -> Tensor:  # fmt: skip
    """R.take of the nearest elements."""
    count = int(name[-2])
    given = [scales] if count == 1 else [scales_d, scales_h, scales_w][3 - count :]
    wanted = given if all(each is not None for each in given) else []
    return _upsample_nearest(name, c, self, output_size, wanted)


# Samples at coordinates

_METHODS: Final = ("bilinear", "nearest", "bicubic")
_PADDING: Final = ("zeros", "border", "reflection")


@aten("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    c: Emitter, input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int,  # noqa: A002
    align_corners: bool,
) -> Tensor:  # fmt: skip
    """The kernel of R.image.grid_sample; the coordinates of the grid are last."""
    dims = [*dims_of(input)[:2], *dims_of(grid)[1:-1]]
    settings = [_METHODS[interpolation_mode], _PADDING[padding_mode], bool(align_corners), 0, 0]
    dtype = dtype_of(input)
    return c.run("image.grid_sample", [c.expr(input), c.expr(grid), *settings],
                 TensorType(dims, dtype), dtype)  # fmt: skip


@aten("affine_grid_generator")
def affine_grid(c: Emitter, theta: Tensor, size: Any, align_corners: bool) -> Tensor:
    """The kernel of R.image.affine_grid; the coordinates are last."""
    lengths = [length(each) for each in size[2:]]
    dims = [dims_of(theta)[0], *lengths, len(lengths)]
    dtype = dtype_of(theta)
    return c.run("image.affine_grid", [c.expr(theta), lengths, bool(align_corners), 0],
                 TensorType(dims, dtype), dtype)  # fmt: skip


# Windows as columns


@aten("im2col")
def im2col(
    c: Emitter, self: Tensor, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Tensor:
    """The elements of windows as columns."""


    is_single = rank_of(self) == 3
    x = reshaped(c, self, [1, *dims_of(self)]) if is_single else self
    size, step = per_axis(kernel_size, 2), per_axis(stride, 2)
    apart, pads = per_axis(dilation, 2), per_axis(padding, 2)
    x = padded(c, x, [pads[1], pads[1], pads[0], pads[0]])
    batch, channels, *lengths = dims_of(x)
    counts = [length((n - (k - 1) * d - 1) // s + 1)
              for n, k, d, s in zip(lengths, size, apart, step, strict=True)]  # fmt: skip
    for axis, (count, k, d, s) in ((3, (counts[1], size[1], apart[1], step[1])),
                                   (2, (counts[0], size[0], apart[0], step[0]))):  # fmt: skip
        places = c.op("multiply", c.op("arange", 0, count, 1, "int64"), number(c, s, "int64"))
        index = c.op("add", c.expr((np.arange(k) * d).reshape(-1, 1)), places)
        x = c.op("take", x, index, axis)
    x = c.op("permute_dims", x, [0, 1, 2, 4, 3, 5])
    rows, columns = length(channels * (size[0] * size[1])), length(counts[0] * counts[1])
    return reshaped(c, x, [rows, columns] if is_single else [batch, rows, columns])


@aten("col2im")
def col2im(
    c: Emitter, self: Tensor, output_size: Any, kernel_size: Any, dilation: Any, padding: Any,
    stride: Any,
) -> Tensor:  # fmt: skip
    """The kernel nn.fold: columns added up to an image."""
    is_single = rank_of(self) == 2
    x = reshaped(c, self, [1, *dims_of(self)]) if is_single else self
    size = [length(each) for each in output_size]
    window = per_axis(kernel_size, 2)
    batch, rows, _ = dims_of(x)
    channels = length(rows // (window[0] * window[1]))
    dtype = dtype_of(x)
    inputs = [c.expr(x), size, window, per_axis(stride, 2), per_axis(padding, 2) * 2,
              per_axis(dilation, 2)]  # fmt: skip
    found = c.run("nn.fold", inputs, TensorType([batch, channels, *size], dtype), dtype)
    return reshaped(c, found, dims_of(found)[1:]) if is_single else found


# torchvision's


@aten("torchvision::nms")
def nms(c: Emitter, dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The indices of boxes that do not overlap with better ones, the best first."""
    boxes = reshaped(c, dets, [1, *dims_of(dets)])
    ranks = reshaped(c, scores, [1, 1, -1])
    most = c.op("full", [], number(c, dims_of(dets)[0], "int64"), "int64")
    limit = number(c, iou_threshold, "float32")
    # Scores are shifted above 0, so that none is below a threshold.
    inputs = [boxes, c.expr(ranks), most, limit, None, 0]
    found = c.run("vision.select_boxes", inputs, TensorType(None, "int64", ndim=2), "int64")
    column = c.run("strided_slice", [found, [1], [2], [3], None],
                   TensorType(None, "int64", ndim=2), "int64")  # fmt: skip
    return c.run("flatten", [column, None], TensorType(None, "int64", ndim=1))


@aten("torchvision::roi_align")
def roi_align(
    c: Emitter, input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: Any,  # noqa: A002
    pooled_width: Any, sampling_ratio: int, aligned: bool,
) -> Tensor:  # fmt: skip
    """The kernel of R.vision.roi_align, with regions moved by half an element if aligned."""
    size = [length(pooled_height), length(pooled_width)]
    dtype = dtype_of(input)
    ty = TensorType([dims_of(rois)[0], dims_of(input)[1], *size], dtype)
    settings = [size, spatial_scale, sampling_ratio, bool(aligned), 0.5 if aligned else 0.0, "avg",
                0]  # fmt: skip
    return c.run("vision.roi_align", [c.expr(input), c.expr(rois), *settings], ty, dtype)


@aten("torchvision::roi_pool")
def roi_pool(
    c: Emitter, input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: Any,  # noqa: A002
    pooled_width: Any,
) -> Any:  # fmt: skip
    """R.vision.roi_pool; the places of the greatest elements cannot be asked for."""
    size = [length(pooled_height), length(pooled_width)]
    return c.op("vision.roi_pool", input, rois, size, spatial_scale), None


@aten("torchvision::ps_roi_pool")
def ps_roi_pool(
    c: Emitter, input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: Any,  # noqa: A002
    pooled_width: Any,
) -> Any:  # fmt: skip
    """Means of the parts of regions, each taken from channels of its own; and their numbers."""
    height, width = length(pooled_height), length(pooled_width)
    channels, dtype = dims_of(input)[1], dtype_of(input)
    shape = [dims_of(rois)[0], channels // (height * width), height, width]
    given = [c.expr(input), c.expr(rois), [height, width], spatial_scale]
    found = c.run("vision.ps_roi_pool", given, TensorType(shape, dtype), dtype)
    numbers = c.expr(np.arange(channels, dtype=np.int32).reshape(1, -1, height, width))
    return found, expand(c, numbers, shape)


@aten("torchvision::ps_roi_align")
def ps_roi_align(
    c: Emitter, input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: Any,  # noqa: A002
    pooled_width: Any, sampling_ratio: int,
) -> Any:  # fmt: skip
    """R.vision.roi_align, of which each part is taken from channels of its own; and their
    numbers."""
    height, width = length(pooled_height), length(pooled_width)
    parts = height * width
    count, (_, channels, _, _) = dims_of(rois)[0], dims_of(input)
    found = roi_align(c, input, rois, spatial_scale, height, width, sampling_ratio, True)
    flat = reshaped(c, found, [count, channels // parts, parts * parts])
    own = c.op("take", flat, c.expr(np.arange(parts) * (parts + 1)), 2)
    shape = [count, channels // parts, height, width]
    numbers = c.expr(np.arange(channels, dtype=np.int32).reshape(1, -1, height, width))
    return reshaped(c, own, shape), expand(c, numbers, shape)


@aten("torchvision::deform_conv2d")
def deform_conv2d(
    c: Emitter, input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor,  # noqa: A002
    bias: Tensor, stride_h: int, stride_w: int, pad_h: int, pad_w: int, dilation_h: int,
    dilation_w: int, groups: int, offset_groups: int, use_mask: bool,
) -> Any:  # fmt: skip
    """R.nn.conv2d of elements at moved places."""
    out_channels, _, *window = dims_of(weight)
    values = [c.value(each) for each in (input, weight, offset, bias, mask)]
    images, weights, moves, added, factors = values
    assert images is not None
    assert weights is not None
    assert moves is not None
    return deformed_conv(
        c, images, weights, moves, added, factors if use_mask else None, dims_of(input),
        (out_channels, *window), dims_of(offset)[2:], (stride_h, stride_w),
        (dilation_h, dilation_w), (pad_h, pad_w), groups, offset_groups,
    )  # fmt: skip
