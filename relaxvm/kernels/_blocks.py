"""Work in blocks that stay in the cache, for kernels that are more than one ufunc.

Such a kernel computes with temporaries of a block's size instead of the result's, and passes over
a block again and again while it is near.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..values import describe
from ._kernel import FLOAT32, FLOAT64, PREFIX, native

__all__ = ["BLOCK", "blockwise", "float_dtype", "row_blocks", "working_dtype"]

BLOCK: Final = 8192
"""Elements of a block: three of float64 fit a second-level cache of 256 KiB."""

_nditer: Final[Any] = np.nditer  # numpy's stubs want literal flags

Step = Callable[..., None]
"""``step(out, *inputs)`` computes a block.  `out` may be one of the inputs, never part of one."""


def blockwise(
    step: Step, out: NDArray[Any], *inputs: Any, dtype: np.dtype[Any] | None = None
) -> None:
    """Compute `out`, element by element, from inputs that broadcast to its shape.

    Args:
        step: computes a block; the blocks it gets are one-dimensional, or the arrays themselves.
        out: where the result is written; any overlap with inputs is seen to.
        inputs: tensors and numpy scalars.
        dtype: the data type that the step computes in, `out`'s unless given; blocks are converted.
    """
    dtype = native(out.dtype) if dtype is None else dtype
    if all(_is_plain(each, out.shape, dtype) for each in (out, *inputs)):
        inputs = tuple([_apart(x, out) for x in inputs])
        if out.size <= BLOCK:
            step(out, *inputs)
            return
        flat = [each.reshape(-1) for each in (out, *inputs)]
        for start in range(0, out.size, BLOCK):
            step(*[each[start : start + BLOCK] for each in flat])
        return
    elementwise = ["overlap_assume_elementwise"]
    iterator = _nditer(
        (out, *inputs),
        flags=("external_loop", "buffered", "zerosize_ok", "copy_if_overlap"),
        op_flags=[
            ["writeonly", "no_broadcast", *elementwise],
            *[["readonly", *elementwise] for _ in inputs],
        ],
        op_dtypes=[dtype] * (1 + len(inputs)),
        casting="same_kind",
        buffersize=BLOCK,
    )
    with iterator:
        for blocks in iterator:
            step(*blocks)


def _is_plain(each: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    return (
        type(each) is np.ndarray
        and each.dtype == dtype
        and each.shape == shape
        and each.flags.c_contiguous
        and each.flags.aligned
    )


def _apart(x: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
    """An input that a step may read beside `out`; both are contiguous and of one shape."""
    if x is out or not np.may_share_memory(x, out):
        return x
    start, begin = (each.__array_interface__["data"][0] for each in (x, out))
    return x if start == begin else x.copy()


def row_blocks(*tensors: NDArray[Any]) -> Iterator[list[NDArray[Any]]]:
    """Blocks of rows of tensors of one shape, whose last axis is a row: matrices with about `BLOCK`
    elements, at least a row.

    Where the leading axes of a tensor do not make one axis without a copy, all of them have the
    blocks of each index of the first axis.
    """
    shape = tensors[0].shape
    if len(shape) == 1:
        yield [tensor[None] for tensor in tensors]
        return
    if 0 in shape[:-1]:
        return
    if len(shape) > 2:
        flat = [_as_matrix(tensor) for tensor in tensors]
        if any(matrix is None for matrix in flat):
            for parts in zip(*tensors, strict=True):
                yield from row_blocks(*parts)
            return
        tensors = tuple([matrix for matrix in flat if matrix is not None])
    rows = max(1, BLOCK // max(1, shape[-1]))
    for start in range(0, len(tensors[0]), rows):
        yield [tensor[start : start + rows] for tensor in tensors]


def _as_matrix(tensor: NDArray[Any]) -> NDArray[Any] | None:
    """A view of a tensor as a matrix of rows, None if there is none."""
    shape, strides = tensor.shape[:-1], tensor.strides[:-1]
    axes = [i for i, dim in enumerate(shape) if dim != 1]
    for i, j in itertools.pairwise(axes):
        if strides[i] != strides[j] * shape[j]:
            return None
    return tensor.reshape(math.prod(shape), tensor.shape[-1])


def float_dtype(name: str, **tensors: NDArray[Any]) -> np.dtype[Any]:
    """The one float type of all tensors.

    Raises:
        TypeError: a tensor of something else, or they differ.
    """
    dtypes = {native(tensor.dtype) for tensor in tensors.values()}
    if len(dtypes) == 1:
        (dtype,) = dtypes
        if working_dtype(dtype) is not None:
            return dtype
    got = ", ".join(f"{name} {describe(tensor)}" for name, tensor in tensors.items())
    kind = "floats" if len(tensors) == 1 else "floats of one data type"
    raise TypeError(f"{name}: expected {kind}, got {got}; {PREFIX}cast converts")


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The type that floats of a data type are computed in: float32 for narrower ones, which those
    of ml_dtypes are; None if they are no floats of at most 64 bits."""
    if dtype in (FLOAT32, FLOAT64):
        return dtype
    is_narrow = dtype.itemsize < 4 and dtype.kind not in "biu" and not dtype.hasobject
    return FLOAT32 if is_narrow and np.can_cast(dtype, FLOAT32, "safe") else None
