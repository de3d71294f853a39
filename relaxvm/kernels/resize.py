"""Resizing of images, and their samples at coordinates."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import PIECE, check_time, copy_pieces
from ._arrays import copy_if_overlapping
from ._blocks import row_blocks
from ._kernel import kernel
from .checks import Dims, WrongValue, check_out, native, need_numbers
from .kinds import Axes, Flag, Float, Out, Tensor, a_choice, ints

__all__: list[str] = []

COORDINATES: Final = (
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
    "half_pixel_symmetric",
)
ROUNDING: Final = ("round", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil")

Method: TypeAlias = Annotated[str, a_choice("nearest_neighbor", "linear", "cubic")]
Coordinates: TypeAlias = Annotated[str, a_choice(*COORDINATES)]
Rounding: TypeAlias = Annotated[str, a_choice(*ROUNDING)]
Policy: TypeAlias = Annotated[str, a_choice("stretch", "not_larger", "not_smaller")]
Sizes: TypeAlias = Annotated[Dims, ints(like="axes", least=0)]
Places: TypeAlias = NDArray[np.float64]


@kernel("image.resize")
def resize(
    x: Tensor,
    scales: Tensor | None,
    region: Tensor | None,
    axes: Axes,
    size: Sizes | None,
    method: Method,
    coordinates: Coordinates,
    rounding: Rounding,
    cubic_alpha: Float,
    exclude_outside: Flag,
    antialias: Flag,
    extrapolation: Float,
    policy: Policy,
    out: Out,
) -> None:
    """out = x with other lengths of axes: those in size; without it, length * scale in float32,
    rounded down.  scales: float64, one for each axis, how much longer the axes become, which
    coordinates are computed with; without it, they are size / length.  method: "nearest_neighbor"
    with a rounding, "linear" or "cubic"; coordinates: how an index of the result becomes a place of
    x, as in ONNX and TVM.  region: for "tf_crop_and_resize", float64, the starts of the axes and
    then their ends, as parts of the axes; the rest of the result is extrapolation.
    exclude_outside: elements outside x have no weight; otherwise they are the outermost ones.
    antialias: where the result is smaller, the filter is wider.  policy: whether all axes have one
    scale, so that the result is "not_larger" or "not_smaller" than size; "stretch" for none.  x:
    numbers; bools, too, for "nearest_neighbor".  out may be of another data type.  Uses memory for
    an image."""
    lengths = [x.shape[axis] for axis in axes]
    if scales is None and size is None:
        raise WrongValue("expected size or scales, got neither")
    factors = None if scales is None else _numbers("scales", scales, len(axes))
    if factors is not None and not all(math.isfinite(f) and f > 0 for f in factors):
        raise WrongValue(f"scales: expected positive numbers, got {factors}")
    if size is None:
        assert factors is not None
        pairs = zip(lengths, factors, strict=True)
        size = tuple([int(np.float32(length) * np.float32(factor)) for length, factor in pairs])
    if policy != "stretch" and 0 not in lengths:
        ratios = [n / length for n, length in zip(size, lengths, strict=True)]
        common = min(ratios) if policy == "not_larger" else max(ratios)
        factors = [common] * len(axes)
        size = tuple([math.floor(length * common + 0.5) for length in lengths])
    parts = None
    if coordinates == "tf_crop_and_resize":
        if region is None:
            raise WrongValue("region: expected it with coordinates 'tf_crop_and_resize', got None")
        parts = _numbers("region", region, 2 * len(axes))
    shape = list(x.shape)
    for axis, length in zip(axes, size, strict=True):
        shape[axis] = length
    check_out(out, native(out.dtype) if out.dtype.kind in "biuf" else x.dtype, tuple(shape))
    if 0 in shape:
        return
    if 0 in lengths:
        raise WrongValue(f"x: expected elements along the axes {list(axes)}, got {describe(x)}")
    dtype = native(x.dtype)
    if method != "nearest_neighbor":
        need_numbers("x", x)
        dtype = _working(x.dtype, out.dtype)
    steps = []
    for i, axis in enumerate(axes):
        factor = None if factors is None else factors[i]
        if lengths[i] == size[i] and factor in (None, 1) and parts is None:
            continue
        ends = None if parts is None else (parts[i], parts[i + len(axes)])
        is_nearest = method == "nearest_neighbor"
        at = _places(coordinates, lengths[i], size[i], factor, ends, is_nearest)
        scale = size[i] / lengths[i] if factor is None else factor
        if is_nearest:
            weights = None
            indices = _nearest(at, rounding)[:, None]
        else:
            width = scale if antialias else 1.0
            indices, weights = _filter(at, method, cubic_alpha, width)
            if exclude_outside:
                _exclude(indices, weights, lengths[i])
            weights = weights.astype(dtype)
        beyond = None if parts is None else np.flatnonzero((at < 0) | (at > lengths[i] - 1))
        np.clip(indices, 0, lengths[i] - 1, out=indices)
        steps.append((size[i] / lengths[i], axis - x.ndim, indices, weights, beyond))
    steps.sort(key=lambda step: step[0])  # axes that become shorter first
    row = x.ndim - min(axes, default=x.ndim)
    for image, written in row_blocks(copy_if_overlapping(x, out), out, row=row):
        part = image
        for _, axis, indices, weights, _ in steps:
            part = _along(part, axis, indices, weights, dtype)
        copy_pieces(written, part)
        for _, axis, _, _, beyond in steps:
            if beyond is not None and beyond.size:
                np.moveaxis(written, axis, 0)[beyond] = extrapolation


def _numbers(name: str, tensor: NDArray[Any], count: int) -> list[float]:
    if native(tensor.dtype) != np.float64 or tensor.shape != (count,):
        raise WrongValue(f"{name}: expected float64[{count}], got {describe(tensor)}")
    numbers: list[float] = tensor.tolist()
    return numbers


def _working(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """The data type that weighted sums are computed in."""
    wide = any(dtype.kind in "iuf" and dtype.itemsize > 4 for dtype in dtypes)
    return np.dtype(np.float64 if wide else np.float32)


def _places(
    mode: str,
    length: int,
    size: int,
    scale: float | None,
    ends: tuple[float, float] | None,
    is_nearest: bool,
) -> Places:
    """The places of an axis of this length that the elements of the result are at."""
    at = np.arange(size, dtype=np.float64)
    # With both lengths known, products come before quotients, which are exact then.
    whole = float(size) if scale is None else scale * length

    def divided(at: Places) -> Places:
        if scale is None:
            return at * length / size
        if not is_nearest:
            return at / scale
        # In float32, as onnxruntime: 3 / 0.6 is 5, and the fifth element the nearest one.
        return (at.astype(np.float32) / np.float32(scale)).astype(np.float64)

    if mode == "asymmetric":
        return divided(at)
    if mode == "align_corners":
        return at * (length - 1) / (whole - 1) if whole != 1 else at * 0
    if mode == "tf_half_pixel_for_nn":
        return divided(at + 0.5)
    if mode == "tf_crop_and_resize":
        assert ends is not None
        start, end = ends
        if whole == 1:
            return np.full(size, (start + end) * (length - 1) / 2)
        return start * (length - 1) + at * ((end - start) * (length - 1) / (whole - 1))
    if mode == "pytorch_half_pixel" and size == 1:
        return at * 0
    places = divided(at + 0.5) - 0.5
    if mode == "half_pixel_symmetric":
        places += length / 2 * (1 - size / whole)
    return places


def _nearest(at: Places, rounding: str) -> NDArray[np.int64]:
    if rounding == "floor":
        found = np.floor(at)
    elif rounding == "ceil":
        found = np.ceil(at)
    elif rounding == "round_prefer_floor":
        found = np.ceil(at - 0.5)
    elif rounding == "round_prefer_ceil":
        found = np.floor(at + 0.5)
    else:  # the even one of two, as TVM does
        found = np.rint(at)
    return found.astype(np.int64)


def _filter(
    at: Places, method: str, alpha: float, scale: float
) -> tuple[NDArray[np.int64], Places]:
    """Indices of the elements around places, and their weights: one row for each place."""
    scale = min(scale, 1.0)
    radius = 1 if method == "linear" else 2
    start = math.floor(-radius / scale) + 1
    base = np.ceil(at) - 1
    ratio = at - base
    offsets = np.arange(start, 2 - start)
    distance = np.abs((offsets - ratio[:, None]) * scale)
    weights = np.maximum(1 - distance, 0) if method == "linear" else cubic(distance, alpha)
    if scale < 1:
        weights /= weights.sum(1, keepdims=True)
    return base.astype(np.int64)[:, None] + offsets, weights


def cubic(distance: Places, alpha: float) -> Places:
    """The weights of elements at distances of 0 or more, of cubic convolution."""
    near = ((alpha + 2) * distance - (alpha + 3)) * distance * distance + 1
    far = ((alpha * distance - 5 * alpha) * distance + 8 * alpha) * distance - 4 * alpha
    found: Places = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
    return found


def _exclude(indices: NDArray[np.int64], weights: Places, length: int) -> None:
    weights[(indices < 0) | (indices >= length)] = 0
    total = weights.sum(1, keepdims=True)
    np.divide(weights, total, out=weights, where=total != 0)


def _along(
    x: NDArray[Any],
    axis: int,
    indices: NDArray[np.int64],
    weights: NDArray[Any] | None,
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """The weighted sums of elements at indices along an axis."""
    shape = list(x.shape)
    shape[axis] = len(indices)
    out = np.empty(shape, dtype)
    before = x.ndim + axis
    others = x.size // x.shape[axis]
    step = max(1, PIECE // max(1, others))
    for start in range(0, len(indices), step):
        rows = slice(start, start + step)
        at: Any = (slice(None),) * before + (rows,)
        written = out[at]
        if weights is None:
            np.copyto(written, x.take(indices[rows, 0], axis))
        else:
            along = (-1,) + (1,) * (-axis - 1)
            for tap in range(indices.shape[1]):
                part = x.take(indices[rows, tap], axis).astype(dtype, copy=False)
                np.multiply(part, weights[rows, tap].reshape(along), out=part)
                if tap:
                    np.add(written, part, out=written)
                else:
                    np.copyto(written, part)
        check_time()
    return out
