"""Shapes as tensors, and tensors as shapes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._core import charge_objects
from ..errors import InternalError
from ..messages import describe
from ..pieces.cut import PIECE, check_time, pieces
from ..values import Shape
from .arguments import as_array
from .registration import RUN_PREFIX, builtin

__all__ = ["ints_of", "shape_to_tensor", "tensor_to_shape"]

_INT_BYTES: Final = 40
"""What an int in a list takes."""


@builtin("tensor_to_shape", "x: tensor", result="shape")
def tensor_to_shape(x: Any) -> Shape:
    """Return the elements of a tensor as a Shape: ``x: int16[n]``, ``int32[n]`` or ``int64[n]``.

    Raises:
        TypeError: not a tensor.
        InternalError: the rank or data type is different.
    """
    tensor = as_array(x, "tensor_to_shape")
    if tensor.ndim != 1 or tensor.dtype.kind != "i" or tensor.dtype.itemsize == 1:
        raise InternalError(f"tensor_to_shape: expected int16[n], int32[n] or int64[n], "
                            f"got {describe(tensor)}")
    return tuple.__new__(Shape, ints_of(tensor))  # without checks: no int has more than 64 bits


def ints_of(vector: NDArray[Any]) -> list[int]:
    """Return the elements of a vector of integers.

    Raises:
        LimitError: the list, and a tuple of it, are beyond the limit of the run.
    """
    charge_objects(2 * _INT_BYTES * len(vector))
    found: list[int] = []
    for (part,) in pieces(vector):
        found += part.tolist()
    return found


@builtin("shape_to_tensor", "shape: shape", result="tensor", prefix=RUN_PREFIX)
def shape_to_tensor(shape: Any) -> NDArray[np.int64]:
    """Return a shape as an int64 tensor of rank 1.

    Raises:
        TypeError: not a shape.
    """
    if not isinstance(shape, Shape):
        raise TypeError(f"shape_to_tensor: expected a shape, got {describe(shape)}")
    out = np.empty(len(shape), np.int64)
    for start in range(0, len(shape), PIECE):
        if start:
            check_time()
        out[start : start + PIECE] = tuple.__getitem__(shape, slice(start, start + PIECE))
    return out
