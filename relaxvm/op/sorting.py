"""Order of elements along an axis."""

from __future__ import annotations

from typing import Any, Final, Literal

from ..ir.expr import Call, IntImm, TensorType, TupleType, Type, int_imm
from .kinds import Axes, Axis, DType, IllValued
from .registry import Unsupported, attributes_of, operator
from .rules import like, need_numbers
from .statistical import reduced

__all__ = ["argsort", "bucketize", "median", "sort", "topk"]


_NO_LOOPS: Final = Unsupported(
    "A formula computes each element by itself; sorting needs statements that exchange elements."
)


@operator("sort", loops=_NO_LOOPS)
def sort(x: TensorType, axis: Axis = -1, descending: bool = False) -> Type:
    """The elements along an axis in order; NaN counts as the greatest."""
    return x


@operator(
    "argsort",
    loops=_NO_LOOPS,
    takes=lambda call: [call.args[0], attributes_of(call)["axis"], call.attrs["descending"]],
)
def argsort(
    data: TensorType, axis: Axis = -1, descending: bool = False, dtype: DType = "int32"
) -> Type:
    """The indices that sort the elements along an axis; equal elements keep their order."""
    return like(data, dtype=dtype)


def _chosen(call: Call) -> list[object]:
    attrs = attributes_of(call)
    values: Any = call.ty.fields[0] if type(call.ty) is TupleType else call.ty
    # The number as it is known from the type: k, or all there are.
    count = values.dims[attrs["axis"]] if values.dims is not None else attrs["k"]
    return [call.args[0], count, attrs["axis"], attrs["ret_type"], attrs["largest"]]


@operator("topk", loops=_NO_LOOPS, takes=_chosen)
def topk(
    data: TensorType,
    k: int = 1,
    axis: Axis = -1,
    ret_type: Literal["both", "values", "indices"] = "both",
    largest: bool = True,
    dtype: DType = "int32",
) -> Type:
    """The k greatest elements along an axis, or the k least, in order, and their indices of data
    type `dtype`: a tuple, or one of the two.

    All elements if k is 0 or less, or if it is known that there are at most k.
    """
    values = like(data, None, ndim=data.ndim)
    if data.dims is not None:
        dims = list(data.dims)
        length = dims[axis]
        if k > 0 and not (isinstance(length, IntImm) and length.value <= k):
            dims[axis] = int_imm(k)
        values = like(data, dims)
    indices = like(values, dtype=dtype)
    if ret_type == "both":
        return TupleType((values, indices))
    return values if ret_type == "values" else indices


def _one_axis(call: Call) -> list[Any]:
    axes = attributes_of(call)["axis"]
    x = call.args[0]
    return [x, axes[0] if axes is not None and not _are_all(x.ty, axes) else None]


def _are_all(x: TensorType, axes: tuple[int, ...]) -> bool:
    return len(axes) > 1 and len(axes) == x.ndim


@operator("median", loops=_NO_LOOPS, takes=_one_axis)
def median(x: TensorType, axis: Axes | None = None, keepdims: bool = False) -> Type:
    """The median along an axis and its index, int64: a tuple.  Of all elements, if no axis is given
    or several, which are all there are: no index.

    Of an even number of elements it is the lesser one in the middle; NaN counts as the greatest.
    The axes are not part of the result, or with `keepdims` have length 1 there.
    """
    if axis is not None and len(axis) != 1 and not _are_all(x, axis):
        raise IllValued(f"axis: expected one axis or all of them, got {list(axis)}")
    values = reduced(x, axis, keepdims)
    if axis is None or _are_all(x, axis):
        return values
    return TupleType((values, like(values, dtype="int64")))


def _bucketize_inputs(call: Call) -> list[Any]:
    return [*call.args, call.attrs["right"]]


@operator("bucketize", loops=_NO_LOOPS, takes=_bucketize_inputs)
def bucketize(
    input_tensor: TensorType, boundaries: TensorType, out_int32: bool = False, right: bool = False
) -> Type:
    """For each element how many boundaries, a vector in increasing order, are below it; with
    `right`, those equal to it count, too.  Of data type int64, or with `out_int32` int32."""
    need_numbers(input_tensor=input_tensor, boundaries=boundaries)
    if boundaries.ndim not in (-1, 1):
        raise IllValued(f"boundaries: expected a vector, got {boundaries}")
    return like(input_tensor, dtype="int32" if out_int32 else "int64")
