"""Regions of images, resampled to one size."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import check_time, copy_pieces
from ._arrays import copy_if_overlapping
from ._kernel import kernel
from ._multiply import multiply
from .checks import Dims, WrongValue, check_out, native, working_dtype
from .kinds import Flag, Float, Floats, Int, Out, a_choice, ints

__all__: list[str] = []

Size: TypeAlias = Annotated[Dims, ints(count=2, least=1)]
Mode: TypeAlias = Annotated[str, a_choice("avg", "max", "max_of_terms")]
Rows: TypeAlias = NDArray[Any]

_MOST_SAMPLES: Final = 1 << 16
"""Most samples along an axis of a region."""


@kernel("vision.roi_align")
def roi_align(
    x: Floats,
    rois: Floats,
    pooled_size: Size,
    spatial_scale: Float,
    sample_ratio: Int,
    aligned: Flag,
    offset: Float,
    mode: Mode,
    channels_last: Flag,
    out: Out,
) -> None:
    """out = regions of images, divided into pooled_size parts along height and width: the "avg" or
    "max" of samples of each part, which are means of four neighbours; or, as ONNX has it, the
    "max_of_terms" of these means.  x[batch, channels, height,
    width], or with channels last; rois[n, 5]: the index of an image, and x and y of two corners,
    which are multiplied by spatial_scale, less offset.  sample_ratio: samples of a part along an
    axis; 0 or less for one for each element.  Without aligned, regions are at least one element
    high and wide."""
    images = _images(x, rois, channels_last)
    shape = (len(rois), images.shape[1], *pooled_size)
    check_out(out, native(x.dtype), _in_layout(shape, channels_last))
    written = np.moveaxis(out, -1, 1) if channels_last else out
    images, rois = copy_if_overlapping(images, out), copy_if_overlapping(rois, out)
    dtype = working_dtype(native(x.dtype))
    assert dtype is not None  # they are floats, as the kinds have checked
    are_finite: dict[int, bool] = {}
    for roi, result in zip(rois.astype(np.float64), written, strict=True):
        place = _image_of(roi, len(images))
        image = images[place]
        if place not in are_finite:
            are_finite[place] = bool(np.isfinite(image).all())
        left, top, right, bottom = roi[1:] * spatial_scale - offset
        found = []
        for start, end, parts, length in (
            (top, bottom, pooled_size[0], image.shape[1]),
            (left, right, pooled_size[1], image.shape[2]),
        ):
            whole = end - start if aligned else max(end - start, 1.0)
            found.append(_samples(start, whole, parts, sample_ratio, length))
        down, across = found
        if 0 in image.shape[1:] or not down.per_part or not across.per_part:
            copy_pieces(result, 0 if mode == "avg" else -np.inf)
            continue
        if mode == "max_of_terms":
            sampled = _greatest_term(image, down, across, dtype)
        elif not are_finite[place]:
            sampled = _means(image, down, across, dtype)
            if mode == "avg":
                sampled = _in_parts(sampled, pooled_size, down, across).mean((2, 4))
        else:
            rows, columns = _matrix(down, image.shape[1]), _matrix(across, image.shape[2])
            if mode == "avg":
                rows = rows.reshape(pooled_size[0], down.per_part, -1).mean(1)
                columns = columns.reshape(pooled_size[1], across.per_part, -1).mean(1)
            part = np.empty((len(image), len(rows), image.shape[2]), dtype)
            multiply(rows.astype(dtype), image.astype(dtype, copy=False), part)
            sampled = np.empty((len(image), len(rows), len(columns)), dtype)
            multiply(part, np.ascontiguousarray(columns.T, dtype), sampled)
        if mode != "avg":
            sampled = _in_parts(sampled, pooled_size, down, across).max((2, 4))
        copy_pieces(result, sampled)
        check_time()


def _images(x: NDArray[Any], rois: NDArray[Any], channels_last: bool) -> NDArray[Any]:
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5:
        raise WrongValue(
            f"expected x of four axes and rois[n, 5], got x {describe(x)}, rois {describe(rois)}"
        )
    return np.moveaxis(x, -1, 1) if channels_last else x


def _in_layout(shape: Dims, channels_last: bool) -> Dims:
    return (shape[0], *shape[2:], shape[1]) if channels_last else shape


def _image_of(roi: NDArray[np.float64], count: int) -> int:
    if not np.isfinite(roi).all() or not 0 <= int(roi[0]) < count:
        raise WrongValue(
            f"rois: expected finite numbers, and images 0 to {count - 1}, got {roi.tolist()}"
        )
    return int(roi[0])


class Samples(NamedTuple):
    """The samples of a region along an axis: each is between two elements.

    Attributes:
        low, high: the indices of the elements.
        low_weight, high_weight: their weights; zeros for a sample outside.
        per_part: the samples of a part of the region.
    """

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    low_weight: NDArray[np.float64]
    high_weight: NDArray[np.float64]
    per_part: int


def _samples(start: float, whole: float, parts: int, ratio: int, length: int) -> Samples:
    """The samples of a region of an axis."""
    count = ratio if ratio > 0 else max(0, math.ceil(whole / parts))
    if count * parts > _MOST_SAMPLES:
        raise WrongValue(
            f"rois: expected regions of at most {_MOST_SAMPLES} samples along an axis, got "
            f"{count * parts}"
        )
    size = whole / parts
    inner = (np.arange(count) + 0.5) * (size / max(1, count))
    at = (start + np.arange(parts)[:, None] * size + inner).reshape(-1)
    inside = (at >= -1) & (at <= length) if length else np.zeros(len(at), bool)
    places = np.where(inside, np.clip(at, 0, max(0, length - 1)), 0)
    low = places.astype(np.int64)
    high = np.minimum(low + 1, max(0, length - 1))
    ratio_high = places - low
    below, above = (np.where(inside, each, 0.0) for each in (1 - ratio_high, ratio_high))
    return Samples(low, high, below, above, count)


def _matrix(samples: Samples, length: int) -> Rows:
    """The weights of the elements of an axis, a row for each sample."""
    weights = np.zeros((len(samples.low), length))
    if length:
        rows = np.arange(len(samples.low))
        weights[rows, samples.low] += samples.low_weight
        weights[rows, samples.high] += samples.high_weight
    return weights


def _in_parts(
    sampled: NDArray[Any], pooled_size: Dims, down: Samples, across: Samples
) -> NDArray[Any]:
    """The samples of each part of a region: axes 2 and 4 are those of a part."""
    height, width = pooled_size
    return sampled.reshape(len(sampled), height, down.per_part, width, across.per_part)


def _means(
    image: NDArray[Any], down: Samples, across: Samples, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """The means of the four neighbours of each sample.  An element without weight does not count:
    it may be infinite, or not a number, which products of matrices would add up."""
    found = np.zeros((len(image), len(down.low), len(across.low)), dtype)
    for i, weight in ((down.low, down.low_weight), (down.high, down.high_weight)):
        for j, factor in ((across.low, across.low_weight), (across.high, across.high_weight)):
            weights = np.outer(weight, factor).astype(dtype)
            part = image[:, i[:, None], j].astype(dtype, copy=False)
            np.multiply(part, weights, out=part, where=weights != 0)
            np.add(found, part, out=found, where=weights != 0)
    return found


def _greatest_term(
    image: NDArray[Any], down: Samples, across: Samples, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """The greatest of the four neighbours of each sample, times their weights."""
    found = np.zeros((len(image), len(down.low), len(across.low)), dtype)
    is_first = True
    for i, weight in ((down.low, down.low_weight), (down.high, down.high_weight)):
        rows = image[:, i] * weight.astype(dtype)[:, None]
        for j, factor in ((across.low, across.low_weight), (across.high, across.high_weight)):
            term = rows[:, :, j] * factor.astype(dtype)
            found = term if is_first else np.maximum(found, term)
            is_first = False
    return found


@kernel("vision.roi_pool")
def roi_pool(
    x: Floats, rois: Floats, pooled_size: Size, spatial_scale: Float, out: Out
) -> None:
    """out = the greatest element of each of pooled_size parts of regions of images x[batch,
    channels, height, width], 0 for a part without elements.  rois[n, 5]: the index of an image, and
    x and y of the first and last elements, which are multiplied by spatial_scale and rounded."""
    images = _images(x, rois, False)
    check_out(out, native(x.dtype), (len(rois), images.shape[1], *pooled_size))
    images, rois = copy_if_overlapping(images, out), copy_if_overlapping(rois, out)
    for roi, result in zip(rois.astype(np.float64), out, strict=True):
        image = images[_image_of(roi, len(images))]
        left, top, right, bottom = np.floor(roi[1:] * spatial_scale + 0.5)
        rows = _parts(top, bottom, pooled_size[0], image.shape[1])
        columns = _parts(left, right, pooled_size[1], image.shape[2])
        for i, (first, end) in enumerate(rows):
            band = image[:, first:end].max(1) if first < end else None
            for j, (start, stop) in enumerate(columns):
                if band is None or start >= stop:
                    result[:, i, j] = 0
                else:
                    result[:, i, j] = band[:, start:stop].max(1)
        check_time()


@kernel("vision.ps_roi_pool")
def ps_roi_pool(
    x: Floats, rois: Floats, pooled_size: Size, spatial_scale: Float, out: Out
) -> None:
    """out = the mean of each of pooled_size parts of regions of images x[batch, channels, height,
    width], 0 for a part without elements; each part has channels of its own, so that out has as
    many times fewer.  rois as for `vision.roi_pool`, but without the last elements; parts never
    have the last row and column of an image."""
    images = _images(x, rois, False)
    parts = pooled_size[0] * pooled_size[1]
    if images.shape[1] % parts:
        raise WrongValue(f"x: expected a multiple of {parts} channels, got {describe(x)}")
    check_out(out, native(x.dtype), (len(rois), images.shape[1] // parts, *pooled_size))
    images, rois = copy_if_overlapping(images, out), copy_if_overlapping(rois, out)
    for roi, result in zip(rois.astype(np.float64), out, strict=True):
        image = images[_image_of(roi, len(images))]
        image = image.reshape(-1, *pooled_size, *image.shape[1:])
        scaled = roi[1:] * spatial_scale
        left, top, right, bottom = np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)
        rows = _parts(top, bottom - 1, pooled_size[0], image.shape[3] - 1)
        columns = _parts(left, right - 1, pooled_size[1], image.shape[4] - 1)
        for i, (first, end) in enumerate(rows):
            for j, (start, stop) in enumerate(columns):
                part = image[:, i, j, first:end, start:stop].astype(np.float64)
                result[:, i, j] = part.mean((1, 2)) if part.size else 0
        check_time()


def _parts(first: float, last: float, count: int, length: int) -> list[tuple[int, int]]:
    """The elements of an axis that the parts of a region have."""
    size = max(last - first + 1, 1) / count
    places = np.arange(count + 1) * size
    starts = np.clip(np.floor(places[:-1]) + first, 0, length).astype(int)
    ends = np.clip(np.ceil(places[1:]) + first, 0, length).astype(int)
    return list(zip(starts.tolist(), ends.tolist(), strict=True))
