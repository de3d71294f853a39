"""Non-maximum suppression: the best boxes, without those that overlap with better ones."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces import order
from ..pieces.cut import check_time, copy_pieces, pieces
from ._arrays import copy_if_overlapping
from ._kernel import kernel
from .checks import WrongValue, check_out, native, need_numbers, working_dtype
from .kinds import Flag, Float, Floats, Int, Integers, Out, Tensor, an_int
from .sampling import corners_of, number_of, suppressed

__all__: list[str] = []

Column: TypeAlias = Annotated[int, an_int(least=0)]
ColumnOrNone: TypeAlias = Annotated[int, an_int(least=-1)]

_INT32 = np.dtype(np.int32)


@kernel("vision.get_valid_counts")
def get_valid_counts(
    x: Floats, score_threshold: Float, id_index: ColumnOrNone, score_index: Column, *outs: Out
) -> None:
    """outs = how many rows of x have a score above score_threshold, and an id of at least 0 if
    id_index is not -1; these rows, and rows of -1 after them; their indices, and -1 after them.
    x[batch, n, columns]; outs[batch] and outs[batch, n] of int32, outs[batch, n, columns]."""
    count, found, indices = _three(outs)
    _check_columns(x, score_index, id_index)
    check_out(count, _INT32, (len(x),))
    check_out(found, native(x.dtype), x.shape)
    check_out(indices, _INT32, x.shape[:2])
    for out in outs:
        x = copy_if_overlapping(x, out)
    copy_pieces(found, -1)
    copy_pieces(indices, -1)
    for b, rows in enumerate(x):
        at = 0
        for first, part in _parts(rows):
            wanted = part[:, score_index] > score_threshold
            if id_index >= 0:
                wanted &= part[:, id_index] >= 0
            places = np.flatnonzero(wanted)
            found[b, at : at + len(places)] = part[places]
            indices[b, at : at + len(places)] = places + first
            at += len(places)
        count[b] = at
        check_time()


def _parts(rows: NDArray[Any]) -> Any:
    """Copies of rows, some at a time, and the index of the first."""
    first = 0
    for (part,) in pieces(rows, row=1):
        yield first, np.array(part, native(part.dtype))
        first += len(part)


def _three(outs: tuple[NDArray[Any], ...]) -> tuple[NDArray[Any], ...]:
    if len(outs) != 3:
        raise WrongValue(f"expected 3 outs, got {len(outs)}")
    return outs


def _check_columns(x: NDArray[Any], *columns: int, last: int = 0) -> None:
    if x.ndim != 3 or max(*columns, last) >= x.shape[2]:
        raise WrongValue(
            f"expected x[batch, n, columns] with more than {max(*columns, last)} columns, got "
            f"{describe(x)}"
        )


@kernel("vision.non_max_suppression")
def non_max_suppression(
    x: Floats,
    valid_count: Integers,
    indices: Integers,
    max_output_size: Int,
    iou_threshold: Float,
    force_suppress: Flag,
    top_k: Int,
    coord_start: Column,
    score_index: Column,
    id_index: ColumnOrNone,
    return_indices: Flag,
    invalid_to_bottom: Flag,
    soft_nms_sigma: Float,
    score_threshold: Float,
    *outs: Out,
) -> None:
    """The boxes of the first valid_count[b] rows of x[b], the best first, without those of an equal
    id, or with force_suppress of any id, whose common area with a better one is iou_threshold of
    both or more.  x[batch, n, columns]: four columns from coord_start on are two opposite corners;
    boxes with a score of 0 or less are left out.  max_output_size, top_k: how many are kept, and
    how many are looked at, all if not positive.  soft_nms_sigma: if positive, the scores of others
    that overlap become smaller, and boxes are kept while their scores reach score_threshold.

    outs: with return_indices, indices[b, i] of the rows that are kept, then -1, and how many they
    are, int32[batch, n] and int32[batch, 1]; before them x with scores changed, if soft_nms_sigma
    is positive.  Without return_indices, the rows that are kept, in their places by score, or with
    invalid_to_bottom or soft_nms_sigma without gaps; the others are -1."""
    is_soft = soft_nms_sigma > 0
    _check_columns(x, score_index, id_index, last=coord_start + 3)
    if valid_count.shape != x.shape[:1] or indices.shape != x.shape[:2]:
        raise WrongValue(
            f"expected valid_count[batch] and indices[batch, n] of {describe(x)}, got valid_count "
            f"{describe(valid_count)}, indices {describe(indices)}"
        )
    number = (3 if is_soft else 2) if return_indices else 1
    if len(outs) != number:
        raise WrongValue(f"expected {number} outs, got {len(outs)}")
    rows_out = outs[0] if is_soft or not return_indices else None
    if rows_out is not None:
        check_out(rows_out, native(x.dtype), x.shape)
    if return_indices:
        check_out(outs[-2], _INT32, x.shape[:2])
        check_out(outs[-1], _INT32, (len(x), 1))
    for out in outs:
        x, indices = copy_if_overlapping(x, out), copy_if_overlapping(indices, out)
        valid_count = copy_if_overlapping(valid_count, out)
    for out in outs:
        copy_pieces(out, -1)
    for b, count in enumerate(valid_count.tolist()):
        if not 0 <= count <= x.shape[1]:
            raise WrongValue(f"valid_count: expected 0 to {x.shape[1]}, got {count}")
        places = _best_first(x[b, :count, score_index])
        if 0 < top_k < count:
            places = places[:top_k]
        rows = np.array(x[b, places], working_dtype(native(x.dtype)))
        scores = rows[:, score_index]  # a view: softer scores are part of the rows
        ids = None if force_suppress or id_index < 0 else rows[:, id_index]
        boxes = _Boxes(rows[:, coord_start : coord_start + 4], ids, iou_threshold)
        limit = max_output_size if max_output_size > 0 else len(rows)
        if is_soft:
            kept = _softly(boxes, scores, limit, soft_nms_sigma, score_threshold)
        else:
            kept = _hard(boxes, scores, limit)
        if rows_out is not None:
            written = slice(len(kept)) if is_soft or invalid_to_bottom else kept
            rows_out[b, written] = rows[kept]
        if return_indices:
            outs[-2][b, : len(kept)] = indices[b, places[kept]]
            outs[-1][b, 0] = len(kept)


def _best_first(scores: NDArray[Any]) -> NDArray[np.intp]:
    """The indices of scores, the greatest first, those of equal ones in increasing order; NaN
    last."""
    return order.argsort(-np.array(scores, np.float64))


def _quiet() -> Any:
    """No warnings: boxes without ends, or with NaN, do not overlap with others."""
    return np.errstate(invalid="ignore", over="ignore")


class _Boxes:
    """Boxes, some of which may suppress others.

    Args:
        corners: rows of the coordinates of two opposite corners.
        ids: boxes of other ids do not suppress each other; None if all do.
        threshold: the common area over the area of both that is too much.
    """

    def __init__(
        self, corners: NDArray[Any], ids: NDArray[Any] | None, threshold: float
    ) -> None:
        a, b, c, d = corners.T
        self.low = np.minimum(a, c), np.minimum(b, d)
        self.high = np.maximum(a, c), np.maximum(b, d)
        with _quiet():
            self.areas = (self.high[0] - self.low[0]) * (self.high[1] - self.low[1])
        self.ids = None if ids is None else ids.copy()
        self.threshold = threshold

    def __len__(self) -> int:
        return len(self.areas)

    def overlaps(self, at: int) -> NDArray[Any]:
        """The common area of one box and each box over the area of both; 0 for other ids."""
        check_time()
        with _quiet():
            sides = [
                np.maximum(np.minimum(high[at], high) - np.maximum(low[at], low), 0)
                for low, high in zip(self.low, self.high, strict=True)
            ]
            common = sides[0] * sides[1]
            union = self.areas[at] + self.areas - common
            found: NDArray[Any] = np.divide(common, union, np.zeros_like(common), where=union > 0)
        if self.ids is not None:
            found[self.ids != self.ids[at]] = -1
        return found


def _hard(boxes: _Boxes, scores: NDArray[Any], limit: int) -> list[int]:
    """The boxes that are kept, which are in the order of their scores."""
    alive = scores > 0
    kept: list[int] = []
    at = 0
    while len(kept) < limit:
        later = np.flatnonzero(alive[at:])
        if not len(later):
            break
        at += int(later[0])
        kept.append(at)
        alive &= boxes.overlaps(at) < boxes.threshold
        at += 1
    return kept


def _softly(
    boxes: _Boxes, scores: NDArray[Any], limit: int, sigma: float, least: float
) -> list[int]:
    """As `_hard`; the scores of boxes that overlap with one that is kept become smaller."""
    alive = scores > 0
    kept: list[int] = []
    while len(kept) < limit and alive.any():
        at = int(np.where(alive, scores, -np.inf).argmax())
        if scores[at] < least:
            break
        kept.append(at)
        alive[at] = False
        overlaps = boxes.overlaps(at)
        is_softened = alive & (overlaps > 0) & (overlaps < boxes.threshold)
        scores[is_softened] *= np.exp(-0.5 * overlaps[is_softened] ** 2 / sigma)
        alive &= overlaps < boxes.threshold
    return kept


@kernel("vision.best_boxes")
def best_boxes(
    boxes: Floats,
    scores: Floats,
    most: Tensor,
    iou_threshold: Tensor,
    score_threshold: Tensor,
    *outs: Out,
) -> None:
    """outs = as of `vision.select_boxes`, for each batch of its own: class and index, [batch,
    classes * n, 2]; the scores, [batch, classes * n]; and how many there are, [batch]; indices
    and numbers of any number type.  Zeros are after them."""
    indices, found, count = _three(outs)
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[2] != 4 or (
        len(boxes) != len(scores) or boxes.shape[1] != scores.shape[2]
    ):
        raise WrongValue(
            f"expected boxes[batch, n, 4] and scores[batch, classes, n], got boxes "
            f"{describe(boxes)}, scores {describe(scores)}"
        )
    shape = (len(boxes), scores.shape[1] * scores.shape[2])
    need_numbers("outs[0]", indices)
    need_numbers("outs[2]", count)
    check_out(indices, indices.dtype, (*shape, 2))
    check_out(found, native(scores.dtype), shape)
    check_out(count, count.dtype, (len(boxes),))
    for out in outs:
        boxes, scores = copy_if_overlapping(boxes, out), copy_if_overlapping(scores, out)
    limit = number_of("most", most)
    overlap = number_of("iou_threshold", iou_threshold)
    least = number_of("score_threshold", score_threshold)
    for out in outs:
        copy_pieces(out, 0)
    for b, corners in enumerate(boxes):
        placed = corners_of(corners, are_centers=False)
        at = 0
        for c, row in enumerate(scores[b]):
            kept = suppressed(placed, row, limit, overlap, least)
            indices[b, at : at + len(kept), 0] = c
            indices[b, at : at + len(kept), 1] = kept
            found[b, at : at + len(kept)] = row[kept]
            at += len(kept)
        count[b] = at
