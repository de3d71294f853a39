"""Non-maximum suppression: the operators beside references that go box by box, and beside what
apache-tvm 0.27 computes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import op
from relaxvm.ir import BlockBuilder, TensorType, Var

from .operators.detection import suppressed

VISION: Any = op.vision

DATA = np.array([[[0, 0.8, 1, 20, 25, 45], [1, 0.7, 30, 60, 50, 80], [0, 0.4, 4, 21, 19, 40],
                  [2, 0.9, 35, 61, 52, 79], [1, 0.5, 100, 60, 70, 110],
                  [-1, 0.95, 1, 2, 3, 4]]], np.float32)  # fmt: skip


def run(make: Any, *arrays: Any, symbolic: bool = False) -> Any:
    """The result of a call on arrays, whose first dimension may be a variable."""
    builder, batch = BlockBuilder(), Var("batch", "int64")
    params = [
        Var(f"x{i}", TensorType(
            (batch, *a.shape[1:]) if symbolic and a.ndim else a.shape, str(a.dtype)))
        for i, a in enumerate(arrays)
    ]  # fmt: skip
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(make(*params)))
    return relaxvm.VirtualMachine(relaxvm.build(builder.get()))["main"](*arrays)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"return_indices": False},
    {"return_indices": False, "invalid_to_bottom": True},
    {"force_suppress": True},
    {"id_index": -1, "iou_threshold": 0.2},
    {"top_k": 5},
    {"top_k": 5, "return_indices": False},
    {"max_output_size": 3},
    {"max_output_size": 0},
    {"soft_nms_sigma": 0.5},
    {"soft_nms_sigma": 0.3, "force_suppress": True, "score_threshold": 0.2},
    {"soft_nms_sigma": 0.3, "force_suppress": True, "return_indices": False, "top_k": 6},
    {"soft_nms_sigma": 0.1, "iou_threshold": 1.1, "force_suppress": True, "max_output_size": 4},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: ",".join(options) or "default")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_non_max_suppression(options: dict[str, Any], dtype: Any) -> None:
    rng = np.random.default_rng(2)
    batch, count = 3, 12
    data = np.empty((batch, count, 6), dtype)
    data[..., 0] = rng.integers(-1, 3, (batch, count))
    data[..., 1] = rng.random((batch, count))
    data[1, :, 1] = rng.integers(0, 3, count) / 2  # equal scores, and some of 0
    data[..., 2:4] = rng.random((batch, count, 2)) * 6
    data[..., 4:6] = data[..., 2:4] + rng.random((batch, count, 2)) * 10 - 1
    counts = np.array([count, count - 1, 0], np.int32)
    indices = np.tile(np.arange(count, dtype=np.int32)[::-1], (batch, 1))
    found = run(lambda *x: VISION.non_max_suppression(*x, **options), data, counts, indices,
                symbolic=True)  # fmt: skip
    expected = suppressed(data, counts, indices, **options)
    for one, other in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_what_tvm_computes() -> None:
    """Results of apache-tvm 0.27 on a CPU."""
    counts, indices = np.array([5], np.int32), np.arange(6, dtype=np.int32)[None]

    def kept(**options: Any) -> Any:
        return run(lambda *x: VISION.non_max_suppression(*x, **options), DATA, counts, indices)

    assert kept()[0].tolist() == [[3, 0, 1, 4, 2, -1]]
    assert kept(force_suppress=True)[0].tolist() == [[3, 0, 4, 2, -1, -1]]
    assert kept(iou_threshold=0.0)[0].tolist() == [[3, 0, 1, -1, -1, -1]]
    rows, places, number = kept(
        soft_nms_sigma=0.5, score_threshold=0.3, force_suppress=True
    )
    assert places.tolist() == [[3, 0, 4, 2, -1, -1]]
    assert number.tolist() == [[4]]
    np.testing.assert_allclose(rows[0, :, 1], [0.9, 0.8, 0.5, 0.31921, -1, -1], rtol=1e-4)
    number, rows, places = run(lambda x: VISION.get_valid_counts(x, 0.45), DATA)
    assert (number.tolist(), places.tolist()) == ([4], [[0, 1, 3, 4, -1, -1]])
    assert (rows[0, :4] == DATA[0, [0, 1, 3, 4]]).all()
    assert (rows[0, 4:] == -1).all()


@pytest.mark.parametrize("count", [0, 7, 40_000])
def test_valid_counts(count: int) -> None:
    rng = np.random.default_rng(3)
    data = rng.random((2, count, 3)).astype(np.float32)
    data[..., 0] = rng.integers(-1, 2, (2, count))
    for id_index in (0, -1):
        number, rows, places = run(
            lambda x, at=id_index: VISION.get_valid_counts(x, 0.5, at, 2), data
        )
        for b in range(2):
            kept = [i for i in range(count)
                    if data[b, i, 2] > 0.5 and (id_index or data[b, i, 0] >= 0)]  # fmt: skip
            assert number[b] == len(kept)
            assert (places[b] == kept + [-1] * (count - len(kept))).all()
            assert (rows[b, : len(kept)] == data[b, kept]).all()
            assert (rows[b, len(kept) :] == -1).all()


BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11],
                   [0, 10.1, 1, 11.1], [0, 100, 1, 101]]], np.float32)  # fmt: skip
SCORES = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]]], np.float32)


def limits(most: int, overlap: float, least: float) -> list[Any]:
    return [np.array(most), np.array(overlap, np.float32), np.array(least, np.float32)]


def test_all_class_non_max_suppression() -> None:
    """Also results of apache-tvm 0.27."""
    found, count = run(VISION.all_class_non_max_suppression, BOXES, SCORES, *limits(3, 0.5, 0.0))
    assert found.tolist() == [[0, 0, 3], [0, 0, 0], [0, 0, 5], [0, 1, 5], [0, 1, 4], [0, 1, 2]]
    assert (found.dtype, count.tolist()) == (np.int64, [6])
    places, scores, count = run(
        lambda *x: VISION.all_class_non_max_suppression(*x, output_format="tensorflow"),
        BOXES, SCORES, *limits(10, 0.5, 0.4),
    )  # fmt: skip
    assert places[0, :4].tolist() == [[0, 3], [0, 0], [1, 5], [1, 4]]
    assert not places[0, 4:].any()
    np.testing.assert_allclose(scores[0], [0.95, 0.9, 0.6, 0.5, *[0] * 8], rtol=1e-6)
    assert count.tolist() == [4]
    none, count = run(VISION.all_class_non_max_suppression, BOXES, SCORES, *limits(0, 0.5, 0.0))
    assert (none.shape, count.tolist()) == ((0, 3), [0])


@pytest.mark.parametrize("options", [
    {}, {"clip": True}, {"threshold": 0.4}, {"keep_background": False},
    {"apply_softmax": False, "threshold": 0.1, "keep_background": False},
    {"variances": (0.1, 0.1, 0.2, 0.2)},
])  # fmt: skip
def test_boxes_of_priors(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(4)
    scores = rng.standard_normal((2, 3, 5)).astype(np.float32)
    moves = rng.standard_normal((2, 20)).astype(np.float32)
    priors = rng.random((1, 5, 4)).astype(np.float32)
    boxes, found = run(
        lambda *x: VISION.multibox_transform_loc(*x, **options), scores, moves, priors
    )
    expected = np.exp(scores.astype(float))
    expected /= expected.sum(1, keepdims=True)
    if not options.get("apply_softmax", True):
        expected = scores.astype(float)
    expected[expected < options.get("threshold", 0.0)] = 0
    if not options.get("keep_background", True):
        expected[:, 0] = 0
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    near_x, near_y, far_x, far_y = options.get("variances", (1, 1, 1, 1))
    for b, i in np.ndindex(2, 5):
        left, top, right, bottom = priors[0, i].astype(float)
        x, y, width, height = moves[b].reshape(5, 4)[i].astype(float)
        middle_x = x * near_x * (right - left) + (left + right) / 2
        middle_y = y * near_y * (bottom - top) + (top + bottom) / 2
        half_x = math.exp(width * far_x) * (right - left) / 2
        half_y = math.exp(height * far_y) * (bottom - top) / 2
        corners = np.array([middle_y - half_y, middle_x - half_x,
                            middle_y + half_y, middle_x + half_x])  # fmt: skip
        if options.get("clip"):
            corners = corners.clip(0, 1)
        np.testing.assert_allclose(boxes[b, i], corners, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [7, -1])
def test_more_rows_than_there_are(count: int) -> None:
    with pytest.raises(ValueError, match=f"valid_count: expected 0 to 6, got {count}"):
        run(VISION.non_max_suppression, DATA, np.array([count], np.int32),
            np.zeros((1, 6), np.int32))  # fmt: skip


@pytest.mark.filterwarnings("error")
def test_boxes_that_are_no_numbers() -> None:
    data = DATA.copy()
    data[0, 0, 2:] = [-np.inf, -np.inf, np.inf, np.inf]
    data[0, 1, 2:] = np.nan
    places, count = run(lambda *x: VISION.non_max_suppression(*x, force_suppress=True), data,
                        np.array([6], np.int32), np.arange(6, dtype=np.int32)[None])  # fmt: skip
    assert places.tolist() == [[5, 3, 0, 1, 4, 2]]
    assert count.tolist() == [[6]]


def test_wrong_outs() -> None:
    kernel = relaxvm.get_func("relaxvm.kernel.vision.non_max_suppression")
    args = (DATA, np.array([1]), np.zeros((1, 6), np.int32), -1, 0.5, 0, -1, 2, 1, 0, 1, 0)
    with pytest.raises(ValueError, match="expected 2 outs, got 1"):
        kernel(*args, 0.0, 0.0, np.zeros((1, 6), np.int32))
    with pytest.raises(ValueError, match="expected 3 outs, got 2"):
        kernel(*args, 0.5, 0.0, np.zeros((1, 6), np.int32), np.zeros((1, 1), np.int32))
    with pytest.raises(ValueError, match="more than 6 columns"):
        kernel(*args[:7], 3, *args[8:], 0.0, 0.0, np.zeros((1, 6), np.int32),
               np.zeros((1, 1), np.int32))  # fmt: skip
    with pytest.raises(ValueError, match=r"expected valid_count\[batch\] and indices\[batch, n\]"):
        kernel(DATA, np.array([1, 1]), *args[2:], 0.0, 0.0, np.zeros((1, 6), np.int32),
               np.zeros((1, 1), np.int32))  # fmt: skip
    with pytest.raises(ValueError, match="expected 3 outs, got 1"):
        relaxvm.get_func("relaxvm.kernel.vision.get_valid_counts")(DATA, 0.0, 0, 1, np.zeros(1))
    with pytest.raises(ValueError, match=r"expected boxes\[batch, n, 4\] and scores"):
        relaxvm.get_func("relaxvm.kernel.vision.best_boxes")(
            BOXES, SCORES[:, :, :5], *limits(1, 0.5, 0.0), np.zeros(1), np.zeros(1), np.zeros(1)
        )
