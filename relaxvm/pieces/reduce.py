"""Reductions and running totals in pieces."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .cut import PIECE, apply, check_time, copied, copy_pieces

__all__ = ["accumulate", "find_greatest", "find_least", "mean", "reduce", "reduced"]

Axes = tuple[int, ...]

_arg_reduce: Final[dict[np.ufunc, Any]] = {np.greater: np.argmax, np.less: np.argmin}


def reduce(
    ufunc: Any, x: NDArray[Any], axes: Axes, out: NDArray[Any], dtype: DTypeLike | None = None
) -> None:
    """out = ``ufunc.reduce(x, axes, dtype, keepdims=True)``.

    Args:
        ufunc: whose result does not depend on the order, but for the last bits of floats.
        x: may overlap with `out`.
        axes: not negative.
        out: with length 1 along axes.
        dtype: that the ufunc computes in, by default that of `out`.
    """
    if x.size <= PIECE and not _is_long_sum(ufunc, x, axes, out):
        _reduce_at_once(ufunc, x, axes, out, dtype)
        return
    if np.may_share_memory(x, out):
        x = copied(x)
    _reduce(ufunc, x, axes, out, dtype)


def _reduce(
    ufunc: Any, x: NDArray[Any], axes: Axes, out: NDArray[Any], dtype: DTypeLike | None
) -> None:
    is_long = _is_long_sum(ufunc, x, axes, out)
    if x.size <= PIECE and not is_long:
        _reduce_at_once(ufunc, x, axes, out, dtype)
        return
    axis = max(axes, key=lambda i: x.shape[i]) if is_long else _axis_to_halve(x, axes)
    first, second = _halves(x, axis)
    if axis in axes:
        _reduce(ufunc, first, axes, out, dtype)
        check_time()
        more = np.empty_like(out)
        _reduce(ufunc, second, axes, more, dtype)
        ufunc(out, more, out=out)
    else:
        one, other = _halves(out, axis)
        _reduce(ufunc, first, axes, one, dtype)
        check_time()
        _reduce(ufunc, second, axes, other, dtype)


def _reduce_at_once(
    ufunc: Any, x: NDArray[Any], axes: Axes, out: NDArray[Any], dtype: DTypeLike | None
) -> None:
    if ufunc.identity is None and any(stride < 0 for stride in x.strides):
        # numpy before 2 begins at the wrong end where it is given the output.
        result = ufunc.reduce(x, axes, out.dtype if dtype is None else dtype, keepdims=True)
        np.copyto(out, result, "same_kind")
    else:
        ufunc.reduce(x, axes, dtype, out, keepdims=True)


_LONG_SUM: Final = 1024
"""The most numbers that are added one after another to one float, whose error grows with them."""


def _is_long_sum(ufunc: Any, x: NDArray[Any], axes: Axes, out: NDArray[Any]) -> bool:
    """Whether numpy would add more numbers than that in a row: it adds in pairs only along the last
    axis."""
    return (
        ufunc is np.add
        and x.dtype.kind == "f"
        and x.ndim - 1 not in axes
        and x.size > _LONG_SUM * out.size > 0
    )


def _axis_to_halve(x: NDArray[Any], axes: Axes) -> int:
    """The axis of the largest stride, for parts that lie together.  Halves of a reduced axis need
    memory for two results: one that is kept comes first if results are large."""
    kept = [i for i, dim in enumerate(x.shape) if dim > 1 and i not in axes]
    if int(np.prod([x.shape[i] for i in kept])) <= PIECE:
        kept = [i for i, dim in enumerate(x.shape) if dim > 1]
    return max(kept, key=lambda i: abs(x.strides[i]))


def _halves(x: NDArray[Any], axis: int) -> tuple[NDArray[Any], NDArray[Any]]:
    before = (slice(None),) * axis
    half = x.shape[axis] // 2
    return x[(*before, slice(half))], x[(*before, slice(half, None))]


def reduced(ufunc: Any, x: NDArray[Any], axes: Axes) -> NDArray[Any]:
    """``ufunc.reduce(x, axes, keepdims=True)``, in x's data type.

    Args:
        axes: counted from the end, thus negative.
    """
    if x.size <= PIECE:
        return np.asarray(ufunc.reduce(x, axes, keepdims=True))
    places = tuple([axis + x.ndim for axis in axes])
    out = np.empty([1 if i in places else dim for i, dim in enumerate(x.shape)], x.dtype)
    _reduce(ufunc, x, places, out, None)
    return out


def mean(x: NDArray[Any], axes: Axes, out: NDArray[Any], dtype: DTypeLike | None = None) -> None:
    """out = ``numpy.mean(x, axes, dtype, keepdims=True)``; otherwise as `reduce`."""
    if x.size <= PIECE and not _is_long_sum(np.add, x, axes, out):
        np.mean(x, axes, dtype, out, keepdims=True)
        return
    reduce(np.add, x, axes, out, dtype)
    count = np.intp(x.size // out.size)  # of this data type, as in numpy.mean
    apply(partial(np.true_divide, casting="unsafe"), out, out, count)


def find_greatest(x: NDArray[Any], axis: int, out: NDArray[np.int64]) -> None:
    """out = ``numpy.argmax(x, axis, keepdims=True)``; the two do not overlap."""
    _find(np.greater, x, axis, out)


def find_least(x: NDArray[Any], axis: int, out: NDArray[np.int64]) -> None:
    """out = ``numpy.argmin(x, axis, keepdims=True)``; the two do not overlap."""
    _find(np.less, x, axis, out)


def _find(is_better: np.ufunc, x: NDArray[Any], axis: int, out: NDArray[np.int64]) -> None:
    if x.size <= PIECE:
        _arg_reduce[is_better](x, axis, out, keepdims=True)
        return
    at = _axis_to_halve(x, (axis,))
    first, second = _halves(x, at)
    if at != axis:
        one, other = _halves(out, at)
        _find(is_better, first, axis, one)
        check_time()
        _find(is_better, second, axis, other)
        return
    _find(is_better, first, axis, out)
    check_time()
    more = np.empty_like(out)
    _find(is_better, second, axis, more)
    a = np.take_along_axis(first, out, axis)
    b = np.take_along_axis(second, more, axis)
    later = is_better(b, a) | ((b != b) & (a == a))  # the first NaN, if there is one
    np.copyto(out, more + first.shape[axis], where=later)


def accumulate(ufunc: np.ufunc, x: NDArray[Any], out: NDArray[Any]) -> None:
    """out = the totals along the first axis, of x converted to out's data type, of which there is
    at least one: the same additions in the same order as by ``ufunc.accumulate``.

    Args:
        x: may be the same elements as `out` in the same order.
    """
    step = max(1, PIECE * len(out) // max(out.size, 1))
    for start in range(0, len(out), step):
        part = out[start : start + step]
        copy_pieces(part, x[start : start + step])
        if start:
            check_time()
            apply(ufunc, part[:1], part[:1], out[start - 1 : start])
        if len(part) > 1:
            ufunc.accumulate(part, 0, None, part)
