"""Cases of operators of object detection; references go element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .sampling import separate
from .table import cases, kernel


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


def overlap(one: Any, other: Any) -> float:
    sides = []
    for i in (0, 1):
        low = max(min(one[i], one[i + 2]), min(other[i], other[i + 2]))
        high = min(max(one[i], one[i + 2]), max(other[i], other[i + 2]))
        sides.append(max(high - low, 0))
    areas = [abs(box[2] - box[0]) * abs(box[3] - box[1]) for box in (one, other)]
    both = sum(areas) - math.prod(sides)
    return math.prod(sides) / both if both > 0 else 0.0


def suppressed(
    data: Any, counts: Any, indices: Any, max_output_size: int = -1, iou_threshold: float = 0.5,
    force_suppress: bool = False, top_k: int = -1, coord_start: int = 2, score_index: int = 1,
    id_index: int = 0, return_indices: bool = True, invalid_to_bottom: bool = False,
    soft_nms_sigma: float = 0.0, score_threshold: float = 0.0,
) -> Any:  # fmt: skip
    """`vision.non_max_suppression`: one box after the other, in Python's numbers."""
    rows_out = np.full(data.shape, -1.0)
    kept_out = np.full(data.shape[:2], -1)
    count_out = np.zeros((len(data), 1), int)
    for b, count in enumerate(counts):
        order = sorted(range(count), key=lambda i, b=b: -data[b, i, 1])
        if 0 < top_k < count:
            order = order[:top_k]
        rows = {i: [float(v) for v in data[b, i]] for i in order}
        alive = [i for i in order if rows[i][1] > 0]
        kept: list[int] = []
        while alive and (max_output_size <= 0 or len(kept) < max_output_size):
            best = max(alive, key=lambda i, rows=rows: rows[i][1]) if soft_nms_sigma else alive[0]
            if soft_nms_sigma and rows[best][1] < score_threshold:
                break
            kept.append(best)
            alive.remove(best)
            for i in list(alive):
                if not (force_suppress or id_index < 0 or rows[i][0] == rows[best][0]):
                    continue
                common = overlap(rows[best][2:], rows[i][2:])
                if common >= iou_threshold:
                    alive.remove(i)
                elif soft_nms_sigma:
                    rows[i][1] *= math.exp(-(common**2) / (2 * soft_nms_sigma))
        together = soft_nms_sigma or invalid_to_bottom
        for place, i in enumerate(kept):
            rows_out[b, place if together else order.index(i)] = rows[i]
            kept_out[b, place] = indices[b, i]
        count_out[b] = len(kept)
    if not return_indices:
        return (rows_out,)
    return (rows_out, kept_out, count_out) if soft_nms_sigma else (kept_out, count_out)


def valid(
    data: Any, score_threshold: float = 0.0, id_index: int = 0, score_index: int = 1
) -> Any:
    counts = np.zeros(len(data), int)
    rows, places = np.full(data.shape, -1.0, data.dtype), np.full(data.shape[:2], -1)
    for b, i in np.ndindex(*data.shape[:2]):
        row = data[b, i]
        if row[score_index] > score_threshold and (id_index < 0 or row[id_index] >= 0):
            rows[b, counts[b]], places[b, counts[b]] = row, i
            counts[b] += 1
    return counts, rows, places


def separate_batches(boxes: Any, scores: Any, *limits: Any) -> Any:
    shape = (len(boxes), scores.shape[1] * scores.shape[2])
    places, found = np.zeros((*shape, 2), object), np.zeros(shape, scores.dtype)
    counts = np.zeros(len(boxes), object)
    numbers = [np.reshape(limit, 1) for limit in limits]
    for b, c, i in separate(boxes, scores, *numbers, 0):
        places[b, counts[b]], found[b, counts[b]] = (c, i), scores[b, c, i]
        counts[b] += 1
    return places, found, counts

def of_all_classes(
    boxes: Any, scores: Any, most: Any, overlap: Any, least: Any, output_format: str
) -> Any:
    assert output_format == "tensorflow"
    return separate_batches(boxes, scores, most, overlap, least)


def placed(
    scores: Any, moves: Any, priors: Any, clip: bool = False, threshold: float = 0.0,
    variances: Any = (1, 1, 1, 1), keep_background: bool = True, apply_softmax: bool = True,
) -> Any:  # fmt: skip
    """Boxes of priors, one by one, and their scores."""
    found = scores.copy()
    if apply_softmax:
        found = np.exp(found - found.max(1, keepdims=True))
        found /= found.sum(1, keepdims=True)
    found[found < threshold] = 0
    if not keep_background:
        found[:, 0] = 0
    boxes = np.zeros((len(scores), scores.shape[2], 4), scores.dtype)
    for b, i in np.ndindex(*boxes.shape[:2]):
        (left, top, right, bottom), move = priors[0, i], moves[b].reshape(-1, 4)[i]
        ends = []
        for first, last, axis in ((top, bottom, 1), (left, right, 0)):
            middle = move[axis] * variances[axis] * (last - first) + (first + last) / 2
            half = np.exp(move[axis + 2] * variances[axis + 2]) * (last - first) / 2
            ends.append((middle - half, middle + half))
        boxes[b, i] = [ends[0][0], ends[1][0], ends[0][1], ends[1][1]]
    return (boxes.clip(0, 1) if clip else boxes), found


cases(
    "vision.get_valid_counts",
    """
vision.get_valid_counts(f(n, 5, 6)) | R.Tuple(R.Tensor((n,), "int32"),
    R.Tensor((n, 5, 6), "float32"), R.Tensor((n, 5), "int32"))
vision.get_valid_counts(rank(3), 0.5, -1, 0) | R.Tuple(R.Tensor(dtype="int32", ndim=1),
    R.Tensor(dtype="float32", ndim=3), R.Tensor(dtype="int32", ndim=2))
""",
    """
vision.get_valid_counts(f(5, 6)) | ValueError: relax.vision.get_valid_counts: data: expected a
    tensor of rank 3
vision.get_valid_counts(i(1, 5, 6)) | TypeError: relax.vision.get_valid_counts: data: expected
    floats
vision.get_valid_counts(f(1, 5, 6), score_index=6) | ValueError: relax.vision.get_valid_counts:
    score_index: expected a column, 0 to 5, got 6
vision.get_valid_counts(f(1, 5, 6), id_index=-2) | ValueError: relax.vision.get_valid_counts:
    id_index: expected a column, -1 to 5, got -2
""",
    """
vision.get_valid_counts(x(2, 7, 6))
vision.get_valid_counts(x(2, 7, 6), 1.5, -1, 3)
""",
    reference=valid,
    dtypes="fhd",
)
cases(
    "vision.non_max_suppression",
    """
vision.non_max_suppression(f(n, 5, 6), j(n), j(n, 5)) | R.Tuple(R.Tensor((n, 5), "int32"),
    R.Tensor((n, 1), "int32"))
vision.non_max_suppression(f(n, 5, 6), j(n), j(n, 5), soft_nms_sigma=0.5) | R.Tuple(
    R.Tensor((n, 5, 6), "float32"), R.Tensor((n, 5), "int32"), R.Tensor((n, 1), "int32"))
vision.non_max_suppression(f(n, 5, 6), j(n), j(n, 5), return_indices=False) |
    R.Tensor((n, 5, 6), "float32")
vision.non_max_suppression(rank(3), j(n), j(n, 5)) | R.Tuple(R.Tensor(dtype="int32", ndim=2),
    R.Tensor(dtype="int32", ndim=2))
""",
    """
vision.non_max_suppression(f(2, 5, 6), j(3), j(2, 5)) | ValueError:
    relax.vision.non_max_suppression: batches of data and valid_count: expected equal numbers, got 2
    and 3
vision.non_max_suppression(f(2, 5, 6), j(2), j(2, 4)) | ValueError:
    relax.vision.non_max_suppression: boxes of data and indices: expected equal numbers, got 5 and 4
vision.non_max_suppression(f(2, 5, 6), f(2), j(2, 5)) | TypeError:
    relax.vision.non_max_suppression: valid_count: expected integers
vision.non_max_suppression(f(2, 5, 6), j(2), j(2, 5), coord_start=3) | ValueError:
    relax.vision.non_max_suppression: coord_start: expected a column, 0 to 2, got 3
vision.non_max_suppression(f(2, 5, 6), j(2), j(2, 5), soft_nms_sigma=-1.0) | ValueError:
    relax.vision.non_max_suppression: soft_nms_sigma: expected 0 or more, got -1.0
""",
    """
vision.non_max_suppression(x(2, 7, 6), j(2), j(2, 7))
vision.non_max_suppression(x(2, 7, 6), j(2), j(2, 7), 3, 0.2, True, 6, return_indices=False)
vision.non_max_suppression(x(2, 7, 6), j(2), j(2, 7), 3, 0.9, True, soft_nms_sigma=0.5)
""",
    reference=suppressed,
    within=((-9, 9), (0, 7), (0, 9)),
    dtypes="fd",
    ulps=32,
    of_largest=True,
)
cases(
    "vision.all_class_non_max_suppression",
    """
vision.all_class_non_max_suppression(f(n, 5, 4), f(n, 3, 5), i(), f(), f()) | R.Tuple(
    R.Tensor(dtype="int64", ndim=2), R.Tensor((1,), "int64"))
vision.all_class_non_max_suppression(f(n, 5, 4), f(n, 3, 5), i(1), f(1), f(1), "tensorflow") |
    R.Tuple(R.Tensor((n, 15, 2), "int64"), R.Tensor((n, 15), "float32"), R.Tensor((n,), "int64"))
vision.all_class_non_max_suppression(rank(3), rank(3), i(), f(), f(), "tensorflow") | R.Tuple(
    R.Tensor(dtype="int64", ndim=3), R.Tensor(dtype="float32", ndim=2),
    R.Tensor(dtype="int64", ndim=1))
""",
    """
vision.all_class_non_max_suppression(f(n, 5, 3), f(n, 3, 5), i(), f(), f()) | ValueError:
    relax.vision.all_class_non_max_suppression: columns of boxes: expected equal numbers, got 3 and
    4
vision.all_class_non_max_suppression(f(n, 5, 4), f(n, 3, 6), i(), f(), f()) | ValueError:
    relax.vision.all_class_non_max_suppression: the boxes of boxes and scores: expected equal
    numbers, got 5 and 6
vision.all_class_non_max_suppression(f(n, 5, 4), f(n, 3, 5), f(), f(), f()) | TypeError:
    relax.vision.all_class_non_max_suppression: max_output_boxes_per_class: expected an integer
vision.all_class_non_max_suppression(f(n, 5, 4), f(n, 3, 5), i(2), f(), f()) | ValueError:
    relax.vision.all_class_non_max_suppression: max_output_boxes_per_class: expected one number
vision.all_class_non_max_suppression(f(n, 5, 4), f(n, 3, 5), i(), f(), f(), "no") | ValueError:
    relax.vision.all_class_non_max_suppression: output_format: expected 'onnx' or 'tensorflow'
""",
    """
vision.all_class_non_max_suppression(f(2, 7, 4), f(2, 3, 7), i(), f(), f(), "tensorflow")
""",
    reference=of_all_classes,
    within=((-9, 9), (-9, 9), (0, 5), (0, 1), (-5, 0)),
)
cases(
    "vision.multibox_transform_loc",
    """
vision.multibox_transform_loc(f(n, 3, 4), f(n, 16), f(1, 4, 4)) | R.Tuple(
    R.Tensor((n, 4, 4), "float32"), R.Tensor((n, 3, 4), "float32"))
vision.multibox_transform_loc(rank(3), f(n, 16), f(1, 4, 4)) | R.Tuple(
    R.Tensor(dtype="float32", ndim=3), R.Tensor(dtype="float32", ndim=3))
""",
    """
vision.multibox_transform_loc(f(n, 3, 4), f(n, 15), f(1, 4, 4)) | ValueError:
    relax.vision.multibox_transform_loc: loc_pred: expected four numbers for each box
vision.multibox_transform_loc(f(n, 3, 4), f(n, 20), f(1, 4, 4)) | ValueError:
    relax.vision.multibox_transform_loc: the numbers of loc_pred: expected equal numbers, got 16 and
    20
vision.multibox_transform_loc(f(n, 3, 4), f(n, 16), f(2, 4, 4)) | ValueError:
    relax.vision.multibox_transform_loc: batches of anchor: expected equal numbers, got 2 and 1
vision.multibox_transform_loc(f(n, 3, 4), f(n, 16), f(1, 4, 4), variances=(1, 1)) | ValueError:
    relax.vision.multibox_transform_loc: variances: expected 4 numbers
""",
    """
vision.multibox_transform_loc(x(2, 3, 4), x(2, 16), x(1, 4, 4))
vision.multibox_transform_loc(x(2, 3, 4), x(2, 16), x(1, 4, 4), True, 0.4, (0.1, 0.1, 0.2, 0.2),
    False, False)
""",
    reference=placed,
    within=(-2, 2),
    dtypes="fd",
    ulps=32,
    of_largest=True,
)


kernel(
    "vision.best_boxes",
    lambda draw: (draw(2, 20, 4), draw(2, 2, 20), np.array([7]), np.array([0.3]),
                  np.array([-5.0])),
    separate_batches,
    free=("dtype",),
)  # fmt: skip
