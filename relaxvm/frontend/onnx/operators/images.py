"""Operators on images: other sizes, and samples at coordinates."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

import numpy as np

from ....ir import Expr, IntImm, TensorType
from ....ir.arith import prove_equal, simplify
from ...common.values import Value, as_expr
from ..graph import Graph, Problem
from ..registry import onnx
from .ranks import axes_of, length_of_vector

__all__: list[str] = []

_MODES: Final = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}
_COORDINATES: Final = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
_POLICIES: Final = ("stretch", "not_larger", "not_smaller")


class _Settings:
    """The attributes of Resize, as the kernel takes them."""

    def __init__(
        self,
        mode: str,
        coordinates: str,
        nearest_mode: str,
        cubic_coeff_a: float,
        exclude_outside: int,
        extrapolation_value: float,
        antialias: int,
    ) -> None:
        if mode not in _MODES:
            raise Problem(f"mode: {mode!r} is not a mode")
        if coordinates not in _COORDINATES:
            raise Problem(f"coordinate_transformation_mode: {coordinates!r} is not a mode")
        self.method = _MODES[mode]
        self.coordinates = coordinates
        self.rounding = nearest_mode
        self.rest = (cubic_coeff_a, bool(exclude_outside), bool(antialias), extrapolation_value)

    def values(self) -> list[Any]:
        return [self.method, self.coordinates, self.rounding, *self.rest]


def _scaled(dim: Any, scale: float) -> Any:
    """The length of an axis times a scale, rounded down; None if only the run knows it."""
    if isinstance(dim, IntImm):
        return int(np.float32(dim.value) * np.float32(scale))
    exact = Fraction(scale)
    if exact.denominator > 1 << 10:
        return None
    return simplify(dim * exact.numerator // exact.denominator)


def _floats(value: Value | None, name: str) -> list[float] | None:
    """The elements of an input that may be left out, or is empty; None then."""
    if value is None:
        return None
    constant = value.constant()
    if constant is None:
        raise Problem(f"{name}: expected values that are known before the model runs")
    return [float(each) for each in constant.reshape(-1)] or None


def _is_empty(value: Value | None) -> bool:
    return value is None or value.length == 0


def _resized(
    g: Graph,
    x: Value,
    places: list[int],
    size: list[Any] | None,
    scales: list[float] | None,
    region: list[float] | None,
    settings: _Settings,
) -> Expr:
    """R.image.resize of the axes whose lengths change; `scales` where the node states them."""
    dims = x.dims
    if size is None and dims is not None:
        assert scales is not None
        size = [_scaled(dims[axis], scale) for axis, scale in zip(places, scales, strict=True)]
    if size is None or None in size:
        assert scales is not None
        return _at_run_time(g, x, places, Value(known=np.array(scales)), None, region, settings)
    kept = [
        i for i, axis in enumerate(places)
        if region is not None or not _stays(size[i], None if dims is None else dims[axis],
                                            None if scales is None else scales[i])
    ]  # fmt: skip
    if not kept:
        return g.expr(x)
    count = len(places)
    return g.op(
        "image.resize", x, [size[i] for i in kept], [places[i] for i in kept],
        None if scales is None else [scales[i] for i in kept],
        None if region is None else [region[i + j] for j in (0, count) for i in kept],
        *settings.values(),
    )  # fmt: skip


def _stays(size: Any, dim: Any, scale: float | None) -> bool:
    if scale is not None:
        return scale == 1
    return dim is not None and prove_equal(dim, as_expr(size))


def _kept_aspect(
    x: Value, places: list[int], size: list[Any], policy: str
) -> tuple[list[float], list[int]]:
    """One scale for all axes of known lengths, so that the result is not larger, or not smaller,
    than `size`; and the lengths of the result."""
    dims: Any = [x.dims[axis] for axis in places] if x.dims is not None else []
    ratios = [int(n) / int(dim) for n, dim in zip(size, dims, strict=True)]
    if policy not in _POLICIES:
        raise Problem(f"keep_aspect_ratio_policy: {policy!r} is not a policy")
    factor = min(ratios) if policy == "not_larger" else max(ratios)
    return [factor] * len(places), [math.floor(int(dim) * factor + 0.5) for dim in dims]


@onnx("Resize", since=11)
def resize(
    g: Graph,
    x: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Expr:
    """R.image.resize."""
    settings = _Settings(
        mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, exclude_outside,
        extrapolation_value, antialias,
    )  # fmt: skip
    if _is_empty(scales) == _is_empty(sizes):
        raise Problem("expected scales or sizes, one of them")
    given = sizes if _is_empty(scales) else scales
    assert given is not None
    ndim = x.ndim if x.ndim >= 0 else len(given.places or ()) or None if axes is None else None
    if ndim is None:
        if coordinate_transformation_mode == "tf_crop_and_resize" and roi is None:
            raise Problem("roi: expected the starts and ends of the axes, got nothing")
        return _in_any_rank(
            g, x, None if given is sizes else scales, None if given is scales else sizes,
            roi if coordinate_transformation_mode == "tf_crop_and_resize" else None, axes, settings,
            keep_aspect_ratio_policy,
        )  # fmt: skip
    places = list(range(ndim)) if axes is None else [axis % ndim for axis in axes]
    count = len(places)
    if given.length not in (None, count):
        raise Problem(f"expected scales or sizes for {count} axes, got {given.length}")
    region: Any = None
    policy = keep_aspect_ratio_policy
    if coordinate_transformation_mode == "tf_crop_and_resize":
        if roi is None or roi.length not in (None, 2 * count):
            raise Problem(f"roi: expected {2 * count} numbers, got {roi and roi.type}")
        region = roi if roi.constant() is None else _floats(roi, "roi")
    if given is sizes:
        size = g.shape_in(given)
        dims = [None if x.dims is None else x.dims[axis] for axis in places]
        is_known = isinstance(size, list) and all(
            isinstance(n, (int, IntImm)) for n in [*dims, *size]
        )
        if not isinstance(size, list) or isinstance(region, Value) or (
            policy != "stretch" and not is_known
        ):
            return _at_run_time(g, x, places, None, size, region, settings, policy)
        if policy != "stretch":
            factors, size = _kept_aspect(x, places, size, policy)
            return _resized(g, x, places, size, factors, region, settings)
        return _resized(g, x, places, size, None, region, settings)
    if given.constant() is None or isinstance(region, Value):
        return _at_run_time(g, x, places, given, None, region, settings)
    return _resized(g, x, places, None, _floats(given, "scales"), region, settings)


def _in_any_rank(
    g: Graph,
    x: Value,
    scales: Value | None,
    sizes: Value | None,
    region: Value | None,
    axes: list[int] | None,
    settings: _Settings,
    policy: str,
) -> Expr:
    """The same, where only the run knows how many axes there are."""
    size = None if sizes is None else g.shape_in(sizes)
    places = g.shape_in(Value(axes_of(g, x, axes)))
    return _at_run_time(g, x, places, scales, size, region, settings, policy)


def _at_run_time(
    g: Graph,
    x: Value,
    places: Any,
    scales: Value | None,
    size: Any,
    region: Value | list[float] | None,
    settings: _Settings,
    policy: str = "stretch",
) -> Expr:
    """The same, where only the run knows the scales, the sizes or the region."""
    if policy not in _POLICIES:
        raise Problem(f"keep_aspect_ratio_policy: {policy!r} is not a policy")
    factors: Any = scales
    if scales is not None and scales.dtype != "float64":
        factors = g.op("astype", scales, "float64")
    ends: Any = np.array(region) if isinstance(region, list) else region
    if isinstance(region, Value) and region.dtype != "float64":
        ends = g.op("astype", region, "float64")
    is_whole = x.ndim < 0 and isinstance(places, list)
    ty = TensorType(None, x.dtype, ndim=len(places) if is_whole else x.ndim)
    inputs = [x, factors, ends, places, size, *settings.values(), policy]
    return g.run("image.resize", inputs, ty, x.dtype or "?")


def _upsampled(g: Graph, x: Value, scales: list[float], mode: str) -> Expr:
    """Resizing before version 11: indices are divided by scales, and rounded down; up where an axis
    becomes shorter."""
    if mode in ("bilinear", "linear"):
        settings = _Settings("linear", "asymmetric", "floor", -0.75, 0, 0.0, 0)
        return _resized(g, x, list(range(len(scales))), None, scales, None, settings)
    found: Any = x
    for rounding in ("ceil", "floor"):
        places = [
            axis for axis, scale in enumerate(scales)
            if (scale < 1 if rounding == "ceil" else scale > 1)
        ]  # fmt: skip
        if places:
            settings = _Settings(mode, "asymmetric", rounding, -0.75, 0, 0.0, 0)
            chosen = [scales[axis] for axis in places]
            found = Value(_resized(g, found, places, None, chosen, None, settings))
    return g.expr(found)


def _upsampled_at_run_time(g: Graph, x: Value, scales: Value, mode: str, rounding: str) -> Expr:
    """The same with scales of the run, and one rounding for all axes."""
    settings = _Settings(mode, "asymmetric", rounding, -0.75, 0, 0.0, 0)
    places: Any = scales.places
    if places is None and x.ndim < 0:
        return _in_any_rank(g, x, scales, None, None, None, settings, "stretch")
    if places is None:
        places = list(range(x.ndim))
    return _at_run_time(g, x, places, scales, None, None, settings)


@onnx("Resize", "Upsample", since=9)
def resize_by_scales(g: Graph, x: Value, scales: Value, *, mode: str = "nearest") -> Expr:
    """R.image.resize."""
    if scales.constant() is None:
        if mode != "nearest":
            return _upsampled_at_run_time(g, x, scales, mode, "floor")
        one = Value(known=np.ones((), np.float32))
        shrunk = _upsampled_at_run_time(g, x, Value(g.op("minimum", scales, one)), mode, "ceil")
        grown = Value(g.op("maximum", scales, one))
        return _upsampled_at_run_time(g, Value(shrunk), grown, mode, "floor")
    return _upsampled(g, x, _floats(scales, "scales") or [], mode)


@onnx("Upsample", since=1)
def upsample_since_1(
    g: Graph, x: Value, *, height_scale: float, width_scale: float, mode: str = "nearest"
) -> Expr:
    """R.image.resize, of height and width."""
    return _upsampled(g, x, [1.0, 1.0, height_scale, width_scale], mode)


@onnx("Upsample", since=7)
def upsample(g: Graph, x: Value, *, mode: str = "nearest", scales: list[float]) -> Expr:
    """R.image.resize."""
    return _upsampled(g, x, scales, mode)


# Samples at coordinates

_METHODS: Final = {
    "nearest": "nearest", "linear": "bilinear", "bilinear": "bilinear", "cubic": "bicubic",
    "bicubic": "bicubic",
}  # fmt: skip


@onnx("GridSample", since=16)
def grid_sample(
    g: Graph,
    x: Value,
    grid: Value,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Expr:
    """The kernel of R.image.grid_sample; the coordinates of the grid are last."""
    if mode not in _METHODS:
        raise Problem(f"mode: {mode!r} is not a mode")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise Problem(f"padding_mode: {padding_mode!r} is not a mode")
    dims = None
    if x.dims is not None and grid.dims is not None:
        dims = [*x.dims[:2], *grid.dims[1:-1]]
    ty = TensorType.of(dims, x.dtype, ndim=x.ndim)
    settings = [_METHODS[mode], padding_mode, align_corners, 0, 0]
    return g.run("image.grid_sample", [x, grid, *settings], ty, x.dtype or "?")


@onnx("AffineGrid", since=20)
def affine_grid(g: Graph, theta: Value, size: Value, *, align_corners: int = 0) -> Expr:
    """The kernel of R.image.affine_grid; the coordinates are last."""
    count = length_of_vector(size, "size", (4, 5))
    known = size.ints()
    lengths: Any = g.op("strided_slice", size, [0], [2], [count]) if known is None else known[2:]
    if known is None:
        lengths = g.shape_in(Value(lengths))
    dims = None
    if known is not None and theta.dims is not None:
        dims = [theta.dims[0], *known[2:], count - 2]
    ty = TensorType.of(dims, theta.dtype, ndim=count)
    return g.run("image.affine_grid", [theta, lengths, align_corners, 0], ty, theta.dtype or "?")


@onnx("CenterCropPad", since=18)
def center_crop_pad(
    g: Graph, x: Value, shape: Value, *, axes: list[int] | None = None
) -> Expr:
    """The middle of x along axes, with zeros around it where it is too short."""
    ndim = x.ndim if x.ndim >= 0 or axes is not None or shape.length is None else shape.length
    size = g.shape_in(shape)
    places: Any
    if ndim < 0:
        places = g.shape_in(Value(axes_of(g, x, axes)))
    else:
        places = list(range(ndim)) if axes is None else [axis % ndim for axis in axes]
    dims: Any = None
    if isinstance(size, list) and x.dims is not None and len(size) == len(places):
        dims = list(x.dims)
        for axis, length in zip(places, size, strict=True):
            dims[axis] = length
    ty = TensorType.of(dims, x.dtype, ndim=ndim)
    return g.run("image.center_crop_pad", [x, places, size], ty, x.dtype or "?")


@onnx("NonMaxSuppression", since=10)
def non_max_suppression(
    g: Graph,
    boxes: Value,
    scores: Value,
    max_output_boxes_per_class: Value | None = None,
    iou_threshold: Value | None = None,
    score_threshold: Value | None = None,
    *,
    center_point_box: int = 0,
) -> Expr:
    """Batch, class and index of the boxes that do not overlap with better ones."""
    limits = [max_output_boxes_per_class, iou_threshold, score_threshold]
    ty = TensorType(None, "int64", ndim=2)
    inputs = [boxes, scores, *limits, center_point_box]
    return g.run("vision.select_boxes", inputs, ty, "int64")


# Regions


def _with_images(g: Graph, rois: Value, indices: Value) -> Value:
    """Regions with the indices of their images before them."""
    column = g.op("astype", g.op("expand_dims", indices, (1,)), rois.dtype)
    return Value(g.op("concat", [Value(column), rois], 1))


@onnx("RoiAlign", since=16)
def roi_align(
    g: Graph,
    x: Value,
    rois: Value,
    batch_indices: Value,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Expr:
    """The kernel of R.vision.roi_align, with regions moved by half an element for "half_pixel"."""
    if coordinate_transformation_mode not in ("half_pixel", "output_half_pixel"):
        raise Problem(f"coordinate_transformation_mode: {coordinate_transformation_mode!r}")
    if mode not in ("avg", "max"):
        raise Problem(f"mode: {mode!r} is not a mode")
    regions = _with_images(g, rois, batch_indices)
    is_half = coordinate_transformation_mode == "half_pixel"
    size = [output_height, output_width]
    dims: Any = None
    if x.dims is not None and regions.dims is not None:
        dims = [regions.dims[0], x.dims[1], *size]
    ty = TensorType.of(dims, x.dtype, ndim=4)
    offset, how = (0.5 if is_half else 0.0), ("avg" if mode == "avg" else "max_of_terms")
    settings = [size, spatial_scale, sampling_ratio, is_half, offset, how, 0]
    return g.run("vision.roi_align", [x, regions, *settings], ty, x.dtype or "?")


@onnx("RoiAlign", since=10)
def roi_align_without_offset(
    g: Graph,
    x: Value,
    rois: Value,
    batch_indices: Value,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Expr:
    """As of later versions, with "output_half_pixel"."""
    return roi_align(
        g, x, rois, batch_indices, coordinate_transformation_mode="output_half_pixel", mode=mode,
        output_height=output_height, output_width=output_width, sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )  # fmt: skip


@onnx("MaxRoiPool", since=1)
def max_roi_pool(
    g: Graph, x: Value, rois: Value, *, pooled_shape: list[int], spatial_scale: float = 1.0
) -> Expr:
    """R.vision.roi_pool."""
    return g.op("vision.roi_pool", x, rois, pooled_shape, spatial_scale)
