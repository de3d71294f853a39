"""Order of elements along an axis."""

from __future__ import annotations

from typing import Any, Final, Literal

from ..ir.expr import Call, IntImm, TensorType, TupleType, Type, int_imm
from .kinds import Axis, DType
from .registry import Unsupported, attributes_of, operator
from .rules import like

__all__ = ["argsort", "sort", "topk"]


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
