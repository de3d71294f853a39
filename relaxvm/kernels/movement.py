"""Moving, converting and selecting elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..values import describe
from ._kernel import (
    PREFIX,
    as_operand,
    axis_of,
    broadcast,
    check_out,
    check_tensors,
    kernel,
    private,
)

__all__: list[str] = []


@kernel("cast", "x: tensor, out: tensor")
def cast(x: NDArray[Any], out: NDArray[Any]) -> None:
    """out = x converted to out's data type; a copy where that is x's.  x broadcasts to out's shape.
    Floats lose their fraction on the way to integers; what does not fit wraps or saturates as in
    numpy."""
    check_tensors("cast", x=x, out=out)
    if x.dtype.hasobject or out.dtype.hasobject:
        raise TypeError(
            f"cast: expected tensors of numbers, got x {describe(x)}, out {describe(out)}"
        )
    check_out("cast", out, out.dtype, broadcast("cast", x=x, out=out))
    np.copyto(out, x, casting="unsafe")


@kernel("fill", "value: int|float, out: tensor")
def fill(value: Any, out: NDArray[Any]) -> None:
    """All elements of out = a number, which goes with out's data type."""
    check_tensors("fill", out=out)
    check_out("fill", out, out.dtype, out.shape)
    if isinstance(value, np.ndarray):
        raise TypeError(
            f"fill: value: expected a number, got {describe(value)}; "
            f"{PREFIX}cast broadcasts a tensor"
        )
    np.copyto(out, as_operand("fill", "value", value, out.dtype))


@kernel("permute_dims", "x: tensor, *axes: int, out: tensor")
def permute_dims(*args: Any) -> None:
    """out = x with its axes in another order: out's axis i is x's axis axes[i].  Without axes their
    order is reversed: the transpose of a matrix."""
    if len(args) < 2:
        raise TypeError(f"permute_dims: expected x, axes and out, got {len(args)} arguments")
    x, *given, out = args
    check_tensors("permute_dims", x=x, out=out)
    axes = [axis_of("permute_dims", x, axis) for axis in given] or list(range(x.ndim))[::-1]
    if sorted(axes) != list(range(x.ndim)):
        raise ValueError(
            f"permute_dims: axes: expected each axis of {describe(x)} once, got {given}"
        )
    permuted = x.transpose(axes)
    check_out("permute_dims", out, x.dtype, permuted.shape)
    np.copyto(out, permuted)


@kernel("take", "x: tensor, indices: tensor, axis: int, out: tensor")
def take(x: NDArray[Any], indices: NDArray[Any], axis: int, out: NDArray[Any]) -> None:
    """out = the slices of x at indices along an axis.  indices: int64 tensor; out has x's data
    type, and x's shape with the shape of indices in the place of the axis.  IndexError unless the
    indices are from 0 to the length of the axis less one."""
    check_tensors("take", x=x, indices=indices)
    if indices.dtype != np.int64:
        raise ValueError(f"take: indices: expected an int64 tensor, got {describe(indices)}")
    axis = axis_of("take", x, axis)
    check_out("take", out, x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))
    if indices.size == 0:
        return
    least, greatest = int(indices.min()), int(indices.max())
    if least < 0 or greatest >= x.shape[axis]:
        raise IndexError(
            f"take: indices: expected 0 <= index < {x.shape[axis]}, "
            f"got {least if least < 0 else greatest}"
        )
    # With mode "raise", numpy collects the result elsewhere before it writes to out.
    np.take(x, private(indices, out), axis, out, mode="clip")
