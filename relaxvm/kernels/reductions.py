"""Reductions over axes of a tensor."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..values import describe
from ._kernel import (
    PREFIX,
    Dims,
    axis_of,
    check_out,
    check_tensors,
    kernel,
    native,
    private,
    result_dtype,
)

__all__: list[str] = []

_ADD: Final[Any] = np.add  # numpy's stubs want a literal `keepdims`

_REDUCTION = "x: tensor, *axes: int, out: tensor"


@kernel("sum", _REDUCTION)
def sum_(*args: Any) -> None:
    """out = the sum of x over axes, all of them if none is given.  out has x's data type, a number
    type, and x's shape with the axes left out or kept with length 1.  Floats narrower than 32 bits
    are added up in float32."""
    x, out, axes = _arguments("sum", args)
    if x.dtype == np.bool_:
        raise TypeError(f"sum: x: expected numbers, got {describe(x)}; {PREFIX}cast converts")
    keep = _check("sum", x, out, axes, np.add)
    if _is_narrow(x.dtype):
        np.copyto(out, _ADD.reduce(x, axes, np.float32, keepdims=keep), casting="same_kind")
    else:
        _ADD.reduce(x, axes, native(x.dtype), out, keepdims=keep)


@kernel("mean", _REDUCTION)
def mean(*args: Any) -> None:
    """out = the mean of x, of floats, over axes; as `sum` else.  The mean of nothing is NaN."""
    x, out, axes = _arguments("mean", args)
    keep = _check("mean", x, out, axes, np.true_divide)
    if _is_narrow(x.dtype):
        np.copyto(out, np.mean(x, axes, np.float32, keepdims=keep), casting="same_kind")
    else:
        np.mean(x, axes, out=out, keepdims=keep)


@kernel("max", _REDUCTION)
def max_(*args: Any) -> None:
    """out = the greatest element of x over axes, NaN if there is one; as `sum` else.  ValueError if
    there are no elements."""
    _reduce("max", np.maximum, args)


@kernel("min", _REDUCTION)
def min_(*args: Any) -> None:
    """out = the least element of x over axes; as `max` else."""
    _reduce("min", np.minimum, args)


@kernel("argmax", "x: tensor, axis: int, out: tensor")
def argmax(x: NDArray[Any], axis: int, out: NDArray[Any]) -> None:
    """out = the index of the greatest element of x along an axis: the first such, or the first NaN.
    out: int64 tensor, x's shape with the axis left out or kept with length 1.  ValueError if the
    axis has no elements."""
    _arg_reduce("argmax", np.argmax, x, axis, out)


@kernel("argmin", "x: tensor, axis: int, out: tensor")
def argmin(x: NDArray[Any], axis: int, out: NDArray[Any]) -> None:
    """out = the index of the least element of x along an axis; as `argmax` else."""
    _arg_reduce("argmin", np.argmin, x, axis, out)


def _arguments(name: str, args: tuple[Any, ...]) -> tuple[NDArray[Any], NDArray[Any], Dims]:
    """x, out, and the axes counted from the front."""
    if len(args) < 2:
        raise TypeError(f"{name}: expected x, axes and out, got {len(args)} arguments")
    x, *given, out = args
    check_tensors(name, x=x, out=out)
    axes = tuple(axis_of(name, x, axis) for axis in given) or tuple(range(x.ndim))
    if len(set(axes)) < len(axes):
        raise ValueError(f"{name}: axes: expected each axis once, got {given}")
    return x, out, axes


def _check(name: str, x: NDArray[Any], out: NDArray[Any], axes: Dims, ufunc: Any) -> bool:
    """Check the arguments of a reduction; answer whether `out` keeps the axes with length 1."""
    check_out(name, out, result_dtype(name, ufunc, x=x, accumulator=x), *_shapes(x.shape, axes))
    return out.ndim == x.ndim


def _shapes(shape: Dims, axes: Dims) -> tuple[Dims, Dims]:
    """The shape of a reduction, without and with the axes."""
    dropped = tuple(dim for i, dim in enumerate(shape) if i not in axes)
    return dropped, tuple(1 if i in axes else dim for i, dim in enumerate(shape))


def _reduce(name: str, ufunc: Any, args: tuple[Any, ...]) -> None:
    x, out, axes = _arguments(name, args)
    keep = _check(name, x, out, axes, ufunc)
    ufunc.reduce(x, axes, None, out, keepdims=keep)


def _arg_reduce(name: str, find: Any, x: NDArray[Any], axis: int, out: NDArray[Any]) -> None:
    check_tensors(name, x=x)
    result_dtype(name, np.less, x=x, other=x)  # has an order
    axis = axis_of(name, x, axis)
    check_out(name, out, np.dtype(np.int64), *_shapes(x.shape, (axis,)))
    find(private(x, out), axis, out, keepdims=out.ndim == x.ndim)


def _is_narrow(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize < 4 and dtype.kind not in "biu"
