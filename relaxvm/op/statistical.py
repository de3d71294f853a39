"""Reductions over axes, and running sums."""

from __future__ import annotations

from typing import Any, Final

from ..ir.expr import Call, TensorType, Type, int_imm
from .elementwise import astype
from .kinds import Axes, Axis, DType
from .registry import Constructor, Unsupported, attributes_of, operator
from .rules import (
    DtypeCheck,
    any_dtype,
    like,
    need_floats,
    need_numbers,
    product,
)

__all__ = ["argmax", "argmin", "cumprod", "cumsum", "reduction"]


def _reduced(x: TensorType, axes: tuple[int, ...] | None, keepdims: bool) -> TensorType:
    """The type of a tensor without some axes, or with length 1 there."""
    if axes is None and not keepdims:
        return like(x, ())
    if x.ndim == -1:
        return like(x, None)
    gone = range(x.ndim) if axes is None else axes
    if x.dims is None and len(gone) < x.ndim:
        return like(x, None, ndim=x.ndim if keepdims else x.ndim - len(gone))
    one = int_imm(1)
    if x.dims is None:
        return like(x, (one,) * x.ndim if keepdims else ())
    if keepdims:
        return like(x, [one if i in gone else dim for i, dim in enumerate(x.dims)])
    return like(x, [dim for i, dim in enumerate(x.dims) if i not in gone])


def _reduced_axes(call: Call) -> list[Any]:
    x, axes = call.args[0], attributes_of(call)["axis"]
    return [x] if axes is None else [x, axes]


def reduction(name: str, check: DtypeCheck, doc: str) -> Constructor:
    """Register a reduction of one tensor over axes.

    Args:
        name: name of the operator, and of its formula for loops.
        check: checks the data type.
        doc: the beginning of the documentation.
    """

    def rule(x: TensorType, axis: Axes | None = None, keepdims: bool = False) -> Type:
        check(x=x)
        return _reduced(x, axis, keepdims)

    rule.__doc__ = (
        f"{doc} over axes, all of them if none is given.\n\n"
        "The axes are not part of the result, or with `keepdims` have length 1 there."
    )
    return operator(name, takes=_reduced_axes, loops=name)(rule)


_REDUCTIONS: Final[dict[str, tuple[DtypeCheck, str]]] = {
    "max": (any_dtype, "The greatest element of x"),
    "mean": (need_floats, "The mean of x"),
    "min": (any_dtype, "The least element of x"),
    "prod": (need_numbers, "The product of x"),
    "sum": (need_numbers, "The sum of x"),
}

for _name, (_check, _doc) in _REDUCTIONS.items():
    reduction(_name, _check, _doc)


_NO_PAIRS: Final = Unsupported(
    "A reduction in a formula combines single values; this one needs pairs of value and index."
)


def _found_axis(call: Call) -> list[Any]:
    return [call.args[0], attributes_of(call)["axis"]]


@operator("argmax", loops=_NO_PAIRS, takes=_found_axis)
def argmax(x: TensorType, axis: Axis | None = None, keepdims: bool = False) -> Type:
    """The index, int64, of the first of the greatest elements along an axis; if none is given, the
    index among all elements in order."""
    return like(_reduced(x, None if axis is None else (axis,), keepdims), dtype="int64")


@operator("argmin", loops=_NO_PAIRS, takes=_found_axis)
def argmin(x: TensorType, axis: Axis | None = None, keepdims: bool = False) -> Type:
    """The index, int64, of the first of the least elements; axes as of `argmax`."""
    return like(_reduced(x, None if axis is None else (axis,), keepdims), dtype="int64")


_NO_SCANS: Final = Unsupported(
    "A formula computes each element by itself, which takes quadratic time for running sums."
)


def _scanned(call: Call) -> list[Any]:
    x, attrs = call.args[0], attributes_of(call)
    if attrs["dtype"] not in (None, x.ty.dtype):
        x = astype(x, attrs["dtype"])
    return [x, attrs["axis"], attrs["exclusive"]]


def _scan(data: TensorType, axis: int | None, dtype: str | None) -> Type:
    dtype = data.dtype if dtype is None else dtype
    if axis is not None:
        return like(data, dtype=dtype)
    if data.dims is None:
        return like(data, None, dtype=dtype, ndim=1)
    return like(data, [product(data.dims)], dtype=dtype)


@operator("cumsum", loops=_NO_SCANS, takes=_scanned)
def cumsum(
    data: TensorType, axis: Axis | None = None, dtype: DType | None = None, exclusive: bool = False
) -> Type:
    """The running sum along an axis; if none is given, of all elements in order, as a vector.

    With `exclusive`, an element is not part of its own sum.  The elements are converted to `dtype`
    first.
    """
    if dtype is None:
        need_numbers(data=data)
    return _scan(data, axis, dtype)


@operator("cumprod", loops=_NO_SCANS, takes=_scanned)
def cumprod(
    data: TensorType, axis: Axis | None = None, dtype: DType | None = None, exclusive: bool = False
) -> Type:
    """The running product, with the parameters of `cumsum`."""
    if dtype is None:
        need_numbers(data=data)
    return _scan(data, axis, dtype)
