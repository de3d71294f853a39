"""Result forms without a kernel: the same elements in another shape that is known only at run time,
and sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import flat
from ..registry import GLOBAL, RESULT_PREFIX, Signature
from ..values import Shape
from ._kernel import wait
from .checks import Dims, WrongValue
from .kinds import Flag, Ints, Tensor, an_int, checked, parameters_of, signature_of

__all__: list[str] = []

F = TypeVar("F", bound=Callable[..., Any])


def view(name: str, result: str = "tensor") -> Callable[[F], F]:
    """Decorator: register a function as ``relaxvm.result.<name>``.  Its annotations are kinds of
    parameters; it returns a view of its first argument, or a copy if that is not contiguous."""

    def register(func: F) -> F:
        def make() -> None:
            parameters = parameters_of(func)
            takes: Signature = signature_of(parameters)._replace(result=result)
            run = checked(name, func, parameters)
            GLOBAL.register(RESULT_PREFIX + name, run, signature=takes, doc=func.__doc__)

        wait([RESULT_PREFIX + name], func, make)
        return func

    return register


@view("reshape")
def reshape(x: Tensor, shape: Ints, allowzero: Flag) -> NDArray[Any]:
    """x with another shape, in which -1 stands for the remaining elements, and 0 for the dimension
    of x at the same place, unless allowzero."""
    dims = list(shape)
    for i, dim in enumerate(dims):
        if dim == 0 and not allowzero:
            if i >= x.ndim:
                raise WrongValue(
                    f"shape: 0 at place {i} of {list(shape)}, but x has {x.ndim} dimensions"
                )
            dims[i] = x.shape[i]
    if dims.count(-1) > 1 or min(dims, default=0) < -1:
        raise WrongValue(
            f"shape: expected dimensions, of which one may be -1, got {list(shape)}"
        )
    if -1 in dims:
        rest = -math.prod(dims)
        at = dims.index(-1)
        # Of a tensor without elements any number would do: 0 is what numpy and others take.
        dims[at] = x.size // rest if rest else 0
    if math.prod(dims) != x.size:
        raise WrongValue(
            f"shape: {describe(x)} has {x.size} elements, which {list(shape)} does not hold"
        )
    return flat(x).reshape(dims)


@view("expand_dims")
def expand_dims(x: Tensor, axis: Ints) -> NDArray[Any]:
    """x with additional dimensions of length 1, which are these axes of the result."""
    ndim = x.ndim + len(axis)
    new = _axes(axis, ndim, f"a tensor of rank {ndim}")
    old = iter(x.shape)
    return x.reshape([1 if i in new else next(old) for i in range(ndim)])


@view("squeeze")
def squeeze(x: Tensor, axis: Ints | None) -> NDArray[Any]:
    """x without these axes, which have length 1; with None, without all axes of length 1."""
    if axis is None:
        return x.reshape([dim for dim in x.shape if dim != 1])
    axes = _axes(axis, x.ndim, describe(x))
    for i in axes:
        if x.shape[i] != 1:
            raise WrongValue(f"axis: expected axes of length 1, got axis {i} of {describe(x)}")
    return x.reshape([dim for i, dim in enumerate(x.shape) if i not in axes])


@view("flatten")
def flatten(x: Tensor, axis: Annotated[int, an_int()] | None) -> NDArray[Any]:
    """x as a matrix: the axes before axis, and the others; with None, as a vector."""
    if axis is None:
        return flat(x)
    if not -x.ndim <= axis <= x.ndim:
        raise WrongValue(f"axis: expected an axis of {describe(x)}, or its rank, got {axis}")
    axis += x.ndim if axis < 0 else 0
    rows = math.prod(x.shape[:axis])
    return flat(x).reshape(rows, math.prod(x.shape[axis:]))


@view("size")
def size(x: Tensor) -> NDArray[Any]:
    """The number of elements of x."""
    return np.array(x.size, np.int64)


@view("axes_or_all", result="shape")
def axes_or_all(x: Tensor, axes: Ints) -> Shape:
    """The axes, or all axes of x if there are none."""
    return Shape(axes or range(x.ndim))


def _axes(axes: Dims, ndim: int, subject: str) -> Dims:
    """Axes counted from the front."""
    found = tuple([axis + ndim if axis < 0 else axis for axis in axes])
    if len(set(found)) < len(found) or not all(0 <= axis < ndim for axis in found):
        raise WrongValue(f"axis: expected axes of {subject}, each once, got {list(axes)}")
    return found
