"""Reductions and running totals along axes of a tensor."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ._arrays import copy_if_overlapping, copy_if_overlapping_differently
from ._blocks import piecewise
from ._kernel import kernel
from ._pieces import PIECE, check_time, copy_pieces
from .checks import Dims, WrongType, check_out, native
from .kinds import Axis, Flag, Out, axes_or_all, taken_by

__all__: list[str] = []

_ADD: Final[Any] = np.add  # numpy's stubs want a literal `keepdims`
_MULTIPLY: Final[Any] = np.multiply
_MAXIMUM: Final[Any] = np.maximum
_MINIMUM: Final[Any] = np.minimum

Reduced: TypeAlias = Annotated[int, axes_or_all()]
Added: TypeAlias = Annotated[NDArray[Any], taken_by(np.add, "accumulator")]
Multiplied: TypeAlias = Annotated[NDArray[Any], taken_by(np.multiply, "accumulator")]
Divided: TypeAlias = Annotated[NDArray[Any], taken_by(np.true_divide, "accumulator")]
Ordered: TypeAlias = Annotated[NDArray[Any], taken_by(np.less)]
Greatest: TypeAlias = Annotated[NDArray[Any], taken_by(np.maximum, "accumulator")]
Least: TypeAlias = Annotated[NDArray[Any], taken_by(np.minimum, "accumulator")]


@kernel("sum")
def sum_(x: Added, *axes: Reduced, out: Out) -> None:
    """out = the sum of x over axes: a Shape of them, or ints; None, or none at all, means all axes.
    out has x's data type, and x's shape with the axes removed, or kept with length 1.  Floats
    narrower than 32 bits are added in float32; the sum of bools is true if one of them is."""
    _total(_ADD, x, axes, out)


@kernel("prod")
def prod(x: Multiplied, *axes: Reduced, out: Out) -> None:
    """out = the product of x over axes; otherwise as `sum`.  The product of bools is true if all
    of them are."""
    _total(_MULTIPLY, x, axes, out)


@kernel("mean")
def mean(x: Divided, *axes: Reduced, out: Out) -> None:
    """out = the mean of x, of floats, over axes; otherwise as `sum`.  The mean of nothing is
    NaN."""
    keep = _keeps_axes(x, axes, out)
    if _is_narrow(x.dtype):
        np.copyto(out, np.mean(x, axes, np.float32, keepdims=keep), casting="same_kind")
    else:
        np.mean(x, axes, out=out, keepdims=keep)


@kernel("max")
def max_(x: Greatest, *axes: Reduced, out: Out) -> None:
    """out = the greatest element of x over axes, NaN if there is one; otherwise as `sum`.
    ValueError if there are no elements."""
    _MAXIMUM.reduce(x, axes, None, out, keepdims=_keeps_axes(x, axes, out))


@kernel("min")
def min_(x: Least, *axes: Reduced, out: Out) -> None:
    """out = the least element of x over axes; otherwise as `max`."""
    _MINIMUM.reduce(x, axes, None, out, keepdims=_keeps_axes(x, axes, out))


@kernel("argmax")
def argmax(x: Ordered, axis: Axis | None, out: Out) -> None:
    """out = the index of the greatest element of x along an axis: the first such, or the first NaN.
    With None, x is flattened first.  out: int64 tensor, x's shape with the axis removed,
    or kept with length 1.  ValueError if there are no elements."""
    _arg_reduce(np.argmax, x, axis, out)


@kernel("argmin")
def argmin(x: Ordered, axis: Axis | None, out: Out) -> None:
    """out = the index of the least element of x along an axis; otherwise as `argmax`."""
    _arg_reduce(np.argmin, x, axis, out)


def _keeps_axes(
    x: NDArray[Any], axes: Dims, out: NDArray[Any], dtype: np.dtype[Any] | None = None
) -> bool:
    """Check `out`; return whether it keeps the axes, with length 1."""
    dropped = tuple([dim for i, dim in enumerate(x.shape) if i not in axes])
    kept = tuple([1 if i in axes else dim for i, dim in enumerate(x.shape)])
    check_out(out, native(x.dtype) if dtype is None else dtype, dropped, kept)
    return out.ndim == x.ndim


def _total(ufunc: Any, x: NDArray[Any], axes: Dims, out: NDArray[Any]) -> None:
    keep = _keeps_axes(x, axes, out)
    if _is_narrow(x.dtype):
        np.copyto(out, ufunc.reduce(x, axes, np.float32, keepdims=keep), casting="same_kind")
    else:
        ufunc.reduce(x, axes, native(x.dtype), out, keepdims=keep)


def _arg_reduce(find: Any, x: NDArray[Any], axis: int | None, out: NDArray[Any]) -> None:
    axes = tuple(range(x.ndim)) if axis is None else (axis,)
    keep = _keeps_axes(x, axes, out, np.dtype(np.int64))
    find(copy_if_overlapping(x, out), axis, out, keepdims=keep)


Summed: TypeAlias = Annotated[NDArray[Any], taken_by(np.add)]
Factors: TypeAlias = Annotated[NDArray[Any], taken_by(np.multiply)]


@kernel("cumsum")
def cumsum(x: Summed, axis: Axis | None, exclusive: Flag, out: Summed) -> None:
    """out = the sums of x along an axis up to each element, that element excluded if exclusive.
    With None, x is flattened first.  out may be of another number type; x is converted to
    it first."""
    _cumulate(np.add, x, axis, exclusive, out)


@kernel("cumprod")
def cumprod(x: Factors, axis: Axis | None, exclusive: Flag, out: Factors) -> None:
    """out = the products of x along an axis up to each element; otherwise as `cumsum`."""
    _cumulate(np.multiply, x, axis, exclusive, out)


def _cumulate(
    ufunc: np.ufunc, x: NDArray[Any], axis: int | None, exclusive: bool, out: NDArray[Any]
) -> None:
    if axis is None:
        x, axis = x.reshape(-1), 0
    if out.dtype == np.bool_:
        raise WrongType(f"out: expected numbers, got {describe(out)}")
    check_out(out, out.dtype, x.shape)
    x = copy_if_overlapping_differently(x, out)
    if exclusive and x.shape[axis]:
        before: tuple[Any, ...] = (slice(None),) * axis
        x = copy_if_overlapping(x, out)[(*before, slice(-1))]
        out[(*before, 0)] = ufunc.identity
        out = out[(*before, slice(1, None))]
    if out.size > PIECE:
        _cumulate_pieces(ufunc, np.moveaxis(x, axis, 0), np.moveaxis(out, axis, 0))
    elif x.dtype == out.dtype:
        ufunc.accumulate(x, axis, None, out)
    else:
        np.copyto(out, x, casting="unsafe")
        ufunc.accumulate(out, axis, None, out)


def _cumulate_pieces(ufunc: np.ufunc, x: NDArray[Any], out: NDArray[Any]) -> None:
    """The totals along the first axis, of some slices at a time: the same additions in the same
    order."""
    step = max(1, PIECE * len(out) // out.size)
    for start in range(0, len(out), step):
        part = out[start : start + step]
        copy_pieces(part, x[start : start + step])
        if start:
            check_time()
            piecewise(ufunc, part[:1], part[:1], out[start - 1 : start])
        if step > 1:
            ufunc.accumulate(part, 0, None, part)


def _is_narrow(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize < 4 and dtype.kind not in "biu"
