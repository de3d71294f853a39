"""Reductions and running totals along axes of a tensor."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..values import describe
from ._attributes import axes_of, flag_of
from ._kernel import (
    Dims,
    apart,
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

_MULTIPLY: Final[Any] = np.multiply

_REDUCTION = "x: tensor, *axes: int|shape|none, out: tensor"


@kernel("sum", _REDUCTION, direct=True)
def sum_(*args: Any) -> None:
    """out = the sum of x over axes: a Shape of them, or ints; None, or none at all, stands for all.
    out has x's data type, and x's shape with the axes left out or kept with length 1.  Floats
    narrower than 32 bits are added up in float32; the sum of bools is whether one is true."""
    _total("sum", _ADD, args)


@kernel("prod", _REDUCTION, direct=True)
def prod(*args: Any) -> None:
    """out = the product of x over axes; as `sum` else.  The product of bools is whether all are
    true."""
    _total("prod", _MULTIPLY, args)


@kernel("mean", _REDUCTION, direct=True)
def mean(*args: Any) -> None:
    """out = the mean of x, of floats, over axes; as `sum` else.  The mean of nothing is NaN."""
    x, out, axes = _arguments("mean", args)
    keep = _check("mean", x, out, axes, np.true_divide)
    if _is_narrow(x.dtype):
        np.copyto(out, np.mean(x, axes, np.float32, keepdims=keep), casting="same_kind")
    else:
        np.mean(x, axes, out=out, keepdims=keep)


@kernel("max", _REDUCTION, direct=True)
def max_(*args: Any) -> None:
    """out = the greatest element of x over axes, NaN if there is one; as `sum` else.  ValueError if
    there are no elements."""
    _reduce("max", np.maximum, args)


@kernel("min", _REDUCTION, direct=True)
def min_(*args: Any) -> None:
    """out = the least element of x over axes; as `max` else."""
    _reduce("min", np.minimum, args)


@kernel("argmax", "x: tensor, axis: int|none, out: tensor", direct=True)
def argmax(x: NDArray[Any], axis: int | None, out: NDArray[Any]) -> None:
    """out = the index of the greatest element of x along an axis: the first such, or the first NaN.
    An axis of None stands for x as a vector.  out: int64 tensor, x's shape with the axis left out
    or kept with length 1.  ValueError if there are no elements."""
    _arg_reduce("argmax", np.argmax, x, axis, out)


@kernel("argmin", "x: tensor, axis: int|none, out: tensor", direct=True)
def argmin(x: NDArray[Any], axis: int | None, out: NDArray[Any]) -> None:
    """out = the index of the least element of x along an axis; as `argmax` else."""
    _arg_reduce("argmin", np.argmin, x, axis, out)


def _arguments(name: str, args: tuple[Any, ...]) -> tuple[NDArray[Any], NDArray[Any], Dims]:
    """x, out, and the axes counted from the front."""
    if len(args) < 2:
        raise TypeError(f"{name}: expected x, axes and out, got {len(args)} arguments")
    x, *given, out = args
    check_tensors(name, x=x, out=out)
    if not given or given == [None]:
        return x, out, tuple(range(x.ndim))
    is_shape = len(given) == 1 and isinstance(given[0], tuple)
    return x, out, axes_of(name, x, given[0] if is_shape else given)


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


def _total(name: str, ufunc: Any, args: tuple[Any, ...]) -> None:
    x, out, axes = _arguments(name, args)
    keep = _check(name, x, out, axes, ufunc)
    if _is_narrow(x.dtype):
        np.copyto(out, ufunc.reduce(x, axes, np.float32, keepdims=keep), casting="same_kind")
    else:
        ufunc.reduce(x, axes, native(x.dtype), out, keepdims=keep)


def _arg_reduce(name: str, find: Any, x: NDArray[Any], axis: Any, out: NDArray[Any]) -> None:
    check_tensors(name, x=x)
    result_dtype(name, np.less, x=x, other=x)  # has an order
    if axis is not None:
        axis = axis_of(name, x, axis)
    axes = tuple(range(x.ndim)) if axis is None else (axis,)
    check_out(name, out, np.dtype(np.int64), *_shapes(x.shape, axes))
    find(private(x, out), axis, out, keepdims=out.ndim == x.ndim)


_CUMULATION = "x: tensor, axis: int|none, exclusive: bool|int, out: tensor"


@kernel("cumsum", _CUMULATION, direct=True)
def cumsum(x: NDArray[Any], axis: int | None, exclusive: Any, out: NDArray[Any]) -> None:
    """out = the sums of x along an axis up to each element, that element excluded if exclusive.
    An axis of None stands for x as a vector.  out may be of another number type; x is converted to
    it first."""
    _cumulate("cumsum", np.add, x, axis, exclusive, out)


@kernel("cumprod", _CUMULATION)
def cumprod(x: NDArray[Any], axis: int | None, exclusive: Any, out: NDArray[Any]) -> None:
    """out = the products of x along an axis up to each element; as `cumsum` else."""
    _cumulate("cumprod", np.multiply, x, axis, exclusive, out)


def _cumulate(
    name: str, ufunc: np.ufunc, x: NDArray[Any], axis: Any, exclusive: Any, out: NDArray[Any]
) -> None:
    check_tensors(name, x=x, out=out)
    exclusive = flag_of(name, "exclusive", exclusive)
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis = axis_of(name, x, axis)
    for tensor in (x, out):
        result_dtype(name, ufunc, a=tensor, b=tensor)
    if out.dtype == np.bool_:
        raise TypeError(f"{name}: out: expected numbers, got {describe(out)}")
    check_out(name, out, out.dtype, x.shape)
    x = apart(x, out)
    if exclusive and x.shape[axis]:
        before = (slice(None),) * axis
        x = private(x, out)[(*before, slice(-1))]
        out[(*before, 0)] = ufunc.identity
        out = out[(*before, slice(1, None))]
    if x.dtype == out.dtype:
        ufunc.accumulate(x, axis, None, out)
    else:
        np.copyto(out, x, casting="unsafe")
        ufunc.accumulate(out, axis, None, out)


def _is_narrow(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize < 4 and dtype.kind not in "biu"
