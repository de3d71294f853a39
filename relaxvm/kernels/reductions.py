"""Reductions and running totals along axes of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..dtypes import extreme_of
from ..messages import describe
from ..pieces import reduce as cut
from ..pieces.cut import PIECE, copy_pieces, flat
from ._arrays import assign, copy_if_overlapping, copy_if_overlapping_differently
from ._kernel import kernel
from .checks import Dims, WrongType, WrongValue, check_out, native
from .kinds import Axis, Flag, Out, OutAny, axes_or_all, taken_by

__all__: list[str] = []

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
    _total(np.add, x, axes, out)


@kernel("collapse_sum_to")
def collapse_sum_to(x: Added, out: OutAny) -> None:
    """out = the sum of x over the axes that out does not have, which are the first ones, and over
    those along which out has length 1: what broadcasting out to x's shape has repeated."""
    before = x.ndim - out.ndim
    kept = x.shape[max(0, before) :]
    if before < 0 or any(
        length not in (1, dim) for length, dim in zip(out.shape, kept, strict=True)
    ):
        raise WrongValue(
            f"out: expected a shape that broadcasts to that of x {describe(x)}, got {describe(out)}"
        )
    axes = [i + before for i, length in enumerate(out.shape) if length != kept[i]]
    shape = (1,) * before + out.shape
    if not out.flags.c_contiguous:
        work = np.empty(out.shape, native(x.dtype))
        _total(np.add, x, (*range(before), *axes), work.reshape(shape))
        check_out(out, native(x.dtype), out.shape)
        assign(out, work)
        return
    _total(np.add, x, (*range(before), *axes), out.reshape(shape))


@kernel("prod")
def prod(x: Multiplied, *axes: Reduced, out: Out) -> None:
    """out = the product of x over axes; otherwise as `sum`.  The product of bools is true if all
    of them are."""
    _total(np.multiply, x, axes, out)


@kernel("mean")
def mean(x: Divided, *axes: Reduced, out: Out) -> None:
    """out = the mean of x, of floats, over axes; otherwise as `sum`.  The mean of nothing is
    NaN."""
    result = _with_axes(x, axes, out)
    if _is_narrow(x.dtype):
        wide = np.empty(result.shape, np.float32)
        cut.mean(x, axes, wide, np.float32)
        copy_pieces(result, wide)
    else:
        cut.mean(x, axes, result)


@kernel("max")
def max_(x: Greatest, *axes: Reduced, out: Out) -> None:
    """out = the greatest element of x over axes, NaN if there is one; otherwise as `sum`.  That of
    no elements is the least number of the data type: minus infinity where there is one."""
    _find_extreme(np.maximum, x, axes, out)


@kernel("min")
def min_(x: Least, *axes: Reduced, out: Out) -> None:
    """out = the least element of x over axes; otherwise as `max`.  That of no elements is the
    greatest number of the data type."""
    _find_extreme(np.minimum, x, axes, out)


@kernel("argmax")
def argmax(x: Ordered, axis: Axis | None, out: Out) -> None:
    """out = the index of the greatest element of x along an axis: the first such, or the first NaN.
    With None, x is flattened first.  out: int64 tensor, x's shape with the axis removed,
    or kept with length 1.  ValueError if there are no elements."""
    _arg_reduce(cut.find_greatest, x, axis, out)


@kernel("argmin")
def argmin(x: Ordered, axis: Axis | None, out: Out) -> None:
    """out = the index of the least element of x along an axis; otherwise as `argmax`."""
    _arg_reduce(cut.find_least, x, axis, out)


def _find_extreme(ufunc: Any, x: NDArray[Any], axes: Dims, out: NDArray[Any]) -> None:
    result = _with_axes(x, axes, out)
    if not result.size:
        return  # numpy wants elements to reduce even then
    if not x.size:
        if x.dtype.kind == "c":
            _check_elements(x, axes, result)
        copy_pieces(result, extreme_of(native(x.dtype), greatest=ufunc is np.minimum))
    else:
        cut.reduce(ufunc, x, axes, result)


def _check_elements(x: NDArray[Any], axes: Dims, result: NDArray[Any]) -> None:
    """Raise if results are to be found among no elements."""
    if result.size and not x.size:
        along = next(i for i in axes if not x.shape[i])
        raise WrongValue(f"x: expected elements along axis {along}, got {describe(x)}")


def _with_axes(
    x: NDArray[Any], axes: Dims, out: NDArray[Any], dtype: np.dtype[Any] | None = None
) -> NDArray[Any]:
    """Check `out`; return it with the axes kept, with length 1."""
    dropped = tuple([dim for i, dim in enumerate(x.shape) if i not in axes])
    kept = tuple([1 if i in axes else dim for i, dim in enumerate(x.shape)])
    check_out(out, native(x.dtype) if dtype is None else dtype, dropped, kept)
    if out.ndim == x.ndim:
        return out
    return out[tuple([None if i in axes else slice(None) for i in range(x.ndim)])]


def _total(ufunc: Any, x: NDArray[Any], axes: Dims, out: NDArray[Any]) -> None:
    result = _with_axes(x, axes, out)
    if _is_narrow(x.dtype):
        wide = np.empty(result.shape, np.float32)
        cut.reduce(ufunc, x, axes, wide, np.float32)
        copy_pieces(result, wide)
    else:
        cut.reduce(ufunc, x, axes, result, native(x.dtype))


def _arg_reduce(
    find: Callable[[NDArray[Any], int, NDArray[Any]], None],
    x: NDArray[Any],
    axis: int | None,
    out: NDArray[Any],
) -> None:
    axes = tuple(range(x.ndim)) if axis is None else (axis,)
    result = _with_axes(x, axes, out, np.dtype(np.int64))
    _check_elements(x, axes, result)
    if not result.size:
        return
    x = copy_if_overlapping(x, out)
    if axis is None:
        x, axis, result = flat(x), 0, result.reshape(1)
    find(x, axis, result)


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
        cut.accumulate(ufunc, np.moveaxis(x, axis, 0), np.moveaxis(out, axis, 0))
    elif x.dtype == out.dtype:
        ufunc.accumulate(x, axis, None, out)
    else:
        np.copyto(out, x, casting="unsafe")
        ufunc.accumulate(out, axis, None, out)


def _is_narrow(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize < 4 and dtype.kind not in "biu"
