"""Operators of object detection: regions of images, resampled to one size."""

from __future__ import annotations

from typing import Any, Final, Literal

from ..ir.arith import simplify
from ..ir.expr import Call, Expr, TensorType, Tuple, TupleType, Type, const, int_imm
from .kinds import Floats, IllTyped, IllValued, Ints
from .lowering import is_allocatable, kernel_call, returning_call
from .registry import OPERATORS, Unsupported, operator
from .rules import common_dtype, common_vdevice, differ, like, need_floats, need_rank

__all__: list[str] = []

_NO_LOOPS: Final = Unsupported("The kernel computes the places of samples once for all channels.")


def _regions(data: TensorType, rois: TensorType, pooled_size: Ints, layout: str) -> Type:
    need_floats(data=data, rois=rois)
    common_dtype(data=data, rois=rois)
    vdevice = common_vdevice(data=data, rois=rois)
    need_rank(4, data=data)
    need_rank(2, rois=rois)
    if len(pooled_size) != 2 or min(pooled_size) < 1:
        raise IllValued(
            f"pooled_size: expected two numbers of at least 1, got {list(pooled_size)}"
        )
    if rois.dims is not None and differ(rois.dims[1], int_imm(5)):
        raise IllValued(f"rois: expected 5 numbers for each region, got {rois}")
    if data.dims is None or rois.dims is None:
        return like(data, None, ndim=4, vdevice=vdevice)
    dims = {"N": rois.dims[0], "C": data.dims[layout.index("C")]}
    dims.update(zip("HW", map(int_imm, pooled_size), strict=True))
    return like(data, [dims[letter] for letter in layout], vdevice=vdevice)


def _pair(pooled_size: Any) -> Any:
    return (pooled_size, pooled_size) if isinstance(pooled_size, int) else pooled_size


def _align_arguments(
    data: Any,
    rois: Any,
    pooled_size: Any,
    spatial_scale: float,
    sample_ratio: int = -1,
    aligned: bool = False,
    layout: str = "NCHW",
    mode: str = "avg",
) -> tuple[Any, ...]:
    return (data, rois, _pair(pooled_size), spatial_scale, sample_ratio, aligned, layout, mode)


def _align_inputs(call: Call) -> list[Any]:
    attrs = call.attrs
    names = ("pooled_size", "spatial_scale", "sample_ratio", "aligned")
    settings = [attrs[name] for name in names]
    return [*call.args, *settings, 0.0, attrs["mode"], attrs["layout"] == "NHWC"]


@operator(
    "vision.roi_align", arguments=_align_arguments, takes=_align_inputs, loops=_NO_LOOPS
)
def roi_align(
    data: TensorType,
    rois: TensorType,
    pooled_size: Ints,
    spatial_scale: float,
    sample_ratio: int = -1,
    aligned: bool = False,
    layout: Literal["NCHW", "NHWC"] = "NCHW",
    mode: Literal["avg", "max"] = "avg",
) -> Type:
    """Regions of images, divided into `pooled_size` parts along height and width: the mean or the
    greatest of the samples of each part, which are means of four neighbours.

    rois[n, 5]: the index of an image, and x and y of two corners, which are multiplied by
    `spatial_scale`.  sample_ratio: samples of a part along an axis; one for each element if it is
    not positive.  Without `aligned`, regions are at least one element high and wide.
    """
    return _regions(data, rois, pooled_size, layout)


def _pool_arguments(
    data: Any, rois: Any, pooled_size: Any, spatial_scale: float, layout: str = "NCHW"
) -> tuple[Any, ...]:
    return data, rois, _pair(pooled_size), spatial_scale, layout


def _pool_inputs(call: Call) -> list[Any]:
    return [*call.args, call.attrs["pooled_size"], call.attrs["spatial_scale"]]


@operator("vision.roi_pool", arguments=_pool_arguments, takes=_pool_inputs, loops=_NO_LOOPS)
def roi_pool(
    data: TensorType,
    rois: TensorType,
    pooled_size: Ints,
    spatial_scale: float,
    layout: Literal["NCHW"] = "NCHW",
) -> Type:
    """The greatest element of each of `pooled_size` parts of regions of images; 0 for a part
    without elements.

    rois[n, 5]: the index of an image, and x and y of the first and last elements, which are
    multiplied by `spatial_scale` and rounded.
    """
    return _regions(data, rois, pooled_size, layout)


# Non-maximum suppression


def _made(name: str, *args: Any) -> Any:
    """A call of another operator."""
    return OPERATORS[name].make(*args)


def _dim(ty: TensorType, axis: int) -> Expr | None:
    return None if ty.dims is None else ty.dims[axis]


def _need_equal(what: str, a: Expr | None, b: Expr | None) -> None:
    if a is not None and b is not None and differ(a, b):
        raise IllValued(f"{what}: expected equal numbers, got {a} and {b}")


def _limit(name: str, ty: TensorType, integer: bool) -> None:
    if ty.dtype is not None and ("int" in ty.dtype) != integer:
        kind = "an integer" if integer else "a float"
        raise IllTyped(f"{name}: expected {kind}, got {ty}")
    if ty.ndim > 1 or (ty.ndim == 1 and ty.dims is not None and differ(ty.dims[0], int_imm(1))):
        raise IllValued(f"{name}: expected one number, got {ty}")


_END: Final = 1 << 62
"""Beyond the end of every axis."""

_SUPPRESSES: Final = Unsupported("The kernel looks at one box after the other.")


def _lower_selection(builder: Any, call: Call) -> Expr:
    if call.attrs["output_format"] == "onnx":
        most, *limits = call.args[2:]
        inputs = [*call.args[:2], most, *limits, 0]
        chosen = builder.emit(
            returning_call("vision.select_boxes", inputs, call.ty.fields[0]), "indices"
        )
        lengths = builder.emit(_made("shape_to_tensor", _made("shape_of", chosen)))
        return Tuple([chosen, builder.emit(_made("strided_slice", lengths, (0,), (0,), (1,)))])
    make = kernel_call if is_allocatable(call.ty) else returning_call
    return make("vision.best_boxes", call.args, call.ty)


@operator("vision.all_class_non_max_suppression", lower=_lower_selection)
def all_class_non_max_suppression(
    boxes: TensorType,
    scores: TensorType,
    max_output_boxes_per_class: TensorType,
    iou_threshold: TensorType,
    score_threshold: TensorType,
    output_format: Literal["onnx", "tensorflow"] = "onnx",
) -> Type:
    """The best boxes of each class, without those that overlap with a better one.

    boxes[batch, n, 4]: two opposite corners (y, x); scores[batch, classes, n]; the limits are
    tensors of one number.  The result is a tuple.  "onnx": int64[k, 3], batch, class and index of
    the k boxes that are kept, the best of each class first, and k as int64[1].  "tensorflow":
    int64[batch, classes * n, 2], class and index; their scores, [batch, classes * n]; and how many
    of each batch are kept, int64[batch]; zeros are after them.
    """
    need_floats(boxes=boxes, scores=scores)
    dtype = common_dtype(boxes=boxes, scores=scores)
    vdevice = common_vdevice(boxes=boxes, scores=scores)
    need_rank(3, boxes=boxes, scores=scores)
    _need_equal("columns of boxes", _dim(boxes, 2), int_imm(4))
    _need_equal("batches of boxes and scores", _dim(boxes, 0), _dim(scores, 0))
    _need_equal("the boxes of boxes and scores", _dim(boxes, 1), _dim(scores, 2))
    _limit("max_output_boxes_per_class", max_output_boxes_per_class, integer=True)
    _limit("iou_threshold", iou_threshold, integer=False)
    _limit("score_threshold", score_threshold, integer=False)
    if output_format == "onnx":
        return TupleType([TensorType(None, "int64", vdevice, 2),
                          TensorType((1,), "int64", vdevice)])  # fmt: skip
    if scores.dims is None:
        found = [TensorType(None, kind, vdevice, ndim)
                 for kind, ndim in (("int64", 3), (dtype, 2), ("int64", 1))]  # fmt: skip
        return TupleType(found)
    batch, classes, count = scores.dims
    most = simplify(classes * count)
    return TupleType([
        TensorType((batch, most, 2), "int64", vdevice),
        TensorType((batch, most), dtype, vdevice),
        TensorType((batch,), "int64", vdevice),
    ])  # fmt: skip


def _rows(data: TensorType) -> None:
    need_floats(data=data)
    need_rank(3, data=data)


def _need_column(name: str, column: int, data: TensorType, least: int = 0, last: int = 0) -> None:
    columns = _dim(data, 2)
    known = getattr(columns, "value", None)
    if column < least or (known is not None and column + last >= known):
        end = "" if known is None else f" to {known - 1 - last}"
        raise IllValued(f"{name}: expected a column, {least}{end or ' or more'}, got {column}")


@operator("vision.get_valid_counts", loops=_SUPPRESSES)
def get_valid_counts(
    data: TensorType, score_threshold: float = 0.0, id_index: int = 0, score_index: int = 1
) -> Type:
    """The rows of data[batch, n, columns] with a score above a threshold, and an id of at least 0
    if `id_index` is not -1: a tuple of how many there are, int32[batch]; these rows, and rows of -1
    after them; and their indices, int32[batch, n], and -1 after them."""
    _rows(data)
    _need_column("score_index", score_index, data)
    _need_column("id_index", id_index, data, least=-1)
    if data.dims is None:
        return TupleType([like(data, None, dtype="int32", ndim=1), like(data, None, ndim=3),
                          like(data, None, dtype="int32", ndim=2)])  # fmt: skip
    dims = data.dims
    return TupleType([like(data, dims[:1], dtype="int32"), data,
                      like(data, dims[:2], dtype="int32")])  # fmt: skip


@operator("vision.non_max_suppression", loops=_SUPPRESSES)
def non_max_suppression(
    data: TensorType,
    valid_count: TensorType,
    indices: TensorType,
    max_output_size: int = -1,
    iou_threshold: float = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
    soft_nms_sigma: float = 0.0,
    score_threshold: float = 0.0,
) -> Type:
    """The best boxes, without those of an equal id, or with `force_suppress` of any id, that
    overlap with a better one by `iou_threshold` or more.

    data[batch, n, columns]: the four columns from `coord_start` on are two opposite corners;
    valid_count[batch]: how many rows there are; indices[batch, n]: what stands for them in the
    result.  `max_output_size` boxes are kept at most, of the best `top_k`; -1 is no limit.  With
    `soft_nms_sigma` above 0, scores of others that overlap become smaller, by
    ``exp(-overlap**2 / (2 * sigma))``, and boxes are kept while they reach `score_threshold`.

    The result is a tuple of what stands for the boxes, int32[batch, n], with -1 after them, and how
    many they are, int32[batch, 1]; with `soft_nms_sigma`, the rows are before them.  Without
    `return_indices`, it is data with the best rows first, and -1 for the others; those between the
    best move to the end with `invalid_to_bottom`.
    """
    _rows(data)
    need_rank(1, valid_count=valid_count)
    need_rank(2, indices=indices)
    for name, ty in (("valid_count", valid_count), ("indices", indices)):
        if ty.dtype not in (None, "int32", "int64"):
            raise IllTyped(f"{name}: expected integers, got {ty}")
    _need_column("coord_start", coord_start, data, last=3)
    _need_column("score_index", score_index, data)
    _need_column("id_index", id_index, data, least=-1)
    if soft_nms_sigma < 0:
        raise IllValued(f"soft_nms_sigma: expected 0 or more, got {soft_nms_sigma}")
    _need_equal("batches of data and valid_count", _dim(data, 0), _dim(valid_count, 0))
    for axis, what in enumerate(("batches", "boxes")):
        _need_equal(f"{what} of data and indices", _dim(data, axis), _dim(indices, axis))
    rows = data if data.dims is not None else like(data, None, ndim=3)
    if not return_indices:
        return rows
    dims = data.dims
    found = [
        like(data, None if dims is None else dims[:2], dtype="int32", ndim=2),
        like(data, None if dims is None else (dims[0], 1), dtype="int32", ndim=2),
    ]
    return TupleType([rows, *found] if soft_nms_sigma else found)


def _lower_boxes(builder: Any, call: Call) -> Expr:
    """The boxes and scores, in operators."""
    scores, offsets, anchors = call.args
    attrs = call.attrs
    dtype = call.ty.fields[0].dtype

    def number(value: float) -> Expr:
        return const(value, dtype)

    def emitted(name: str, *args: Any) -> Any:
        return builder.emit(_made(name, *args))

    edges = emitted("split", anchors, 4, 2)
    left, top, right, bottom = (builder.emit(edges[i]) for i in range(4))
    moves = [
        emitted("expand_dims", _made("strided_slice", offsets, (1,), (i,), (_END,), (4,)), 2)
        for i in range(4)
    ]
    ends = []
    for first, last, move, size, near, far in (
        (left, right, moves[0], moves[2], attrs["variances"][0], attrs["variances"][2]),
        (top, bottom, moves[1], moves[3], attrs["variances"][1], attrs["variances"][3]),
    ):
        length = emitted("subtract", last, first)
        center = emitted("multiply", _made("add", first, last), number(0.5))
        moved = _made("multiply", _made("multiply", move, number(near)), length)
        middle = emitted("add", moved, center)
        factor = _made("exp", _made("multiply", size, number(far)))
        reach = emitted("multiply", _made("multiply", factor, length), number(0.5))
        ends.append((emitted("subtract", middle, reach), emitted("add", middle, reach)))
    (low_x, high_x), (low_y, high_y) = ends
    boxes = builder.emit(_made("concat", [low_y, low_x, high_y, high_x], 2))
    if attrs["clip"]:
        boxes = builder.emit(_made("clip", boxes, 0, 1))
    if attrs["apply_softmax"]:
        scores = builder.emit(_made("nn.softmax", scores, 1))
    is_enough = _made("astype", _made("greater_equal", scores, number(attrs["threshold"])), dtype)
    scores = builder.emit(_made("multiply", scores, is_enough))
    if not attrs["keep_background"]:
        background = _made("strided_slice", scores, (1,), (0,), (1,))
        others = _made("strided_slice", scores, (1,), (1,), (_END,))
        scores = builder.emit(_made("concat", [_made("zeros_like", background), others], 1))
    return Tuple([boxes, scores])


@operator("vision.multibox_transform_loc", lower=_lower_boxes)
def multibox_transform_loc(
    cls_pred: TensorType,
    loc_pred: TensorType,
    anchor: TensorType,
    clip: bool = False,
    threshold: float = 0.0,
    variances: Floats = (1.0, 1.0, 1.0, 1.0),
    keep_background: bool = True,
    apply_softmax: bool = True,
) -> Type:
    """The boxes and scores of a detector, from its priors and what it predicts.

    cls_pred[batch, classes, n]: scores; loc_pred[batch, 4 * n]: moves of the middle (x, y) and of
    the size (width, height), times `variances`; anchor[1, n, 4]: priors (left, top, right, bottom).
    The result is a tuple of boxes[batch, n, 4], as (top, left, bottom, right), and scores[batch,
    classes, n].  With `apply_softmax`, scores are softmax over the classes; those below `threshold`
    become 0, as do those of class 0 without `keep_background`.  With `clip`, boxes are in 0 to 1.
    """
    named = {"cls_pred": cls_pred, "loc_pred": loc_pred, "anchor": anchor}
    need_floats(**named)
    common_dtype(**named)
    vdevice = common_vdevice(**named)
    need_rank(3, cls_pred=cls_pred, anchor=anchor)
    need_rank(2, loc_pred=loc_pred)
    if len(variances) != 4:
        raise IllValued(f"variances: expected 4 numbers, got {list(variances)}")
    _need_equal("batches of cls_pred and loc_pred", _dim(cls_pred, 0), _dim(loc_pred, 0))
    _need_equal("batches of anchor", _dim(anchor, 0), int_imm(1))
    _need_equal("columns of anchor", _dim(anchor, 2), int_imm(4))
    length = _dim(loc_pred, 1)
    if length is not None and getattr(length, "value", 0) % 4:
        raise IllValued(f"loc_pred: expected four numbers for each box, got {loc_pred}")
    if cls_pred.dims is None:
        unknown = like(cls_pred, None, ndim=3, vdevice=vdevice)
        return TupleType([unknown, unknown])
    batch, _, count = cls_pred.dims
    _need_equal("the boxes of cls_pred and anchor", count, _dim(anchor, 1))
    _need_equal("the numbers of loc_pred", simplify(count * 4), length)
    return TupleType([like(cls_pred, (batch, count, 4), vdevice=vdevice),
                      like(cls_pred, vdevice=vdevice)])  # fmt: skip
