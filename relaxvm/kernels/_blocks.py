"""Work in blocks that stay in the cache, for kernels that are more than one ufunc.

Such a kernel computes with temporaries of a block's size instead of the result's, and passes over
a block again and again while it is near.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..values import describe
from ._kernel import FLOAT32, FLOAT64, PREFIX, apart, native

__all__ = [
    "BLOCK",
    "blockwise",
    "by_rows",
    "float_dtype",
    "row_blocks",
    "working_dtype",
]

BLOCK: Final = 16384
"""Elements of a block: 128 KiB of float64.  Fewer cost more calls of numpy than the cache gains."""

_nditer: Final[Any] = np.nditer  # numpy's stubs want literal flags

Step = Callable[..., None]
"""``step(out, *inputs)`` computes a block.  `out` may be one of the inputs, never part of one."""


def blockwise(
    step: Step, out: NDArray[Any], *inputs: Any, dtype: np.dtype[Any] | None = None
) -> None:
    """Compute `out`, element by element, from inputs that broadcast to its shape.

    Args:
        step: computes a block; the blocks it gets are vectors.
        out: where the result is written; any overlap with inputs is seen to.
        inputs: tensors and numpy scalars.
        dtype: the data type that the step computes in, `out`'s unless given; blocks are converted.
    """
    dtype = native(out.dtype) if dtype is None else dtype
    if all(_is_plain(each, out.shape, dtype) for each in (out, *inputs)):
        inputs = tuple([apart(x, out) for x in inputs])
        flat = [each.reshape(-1) for each in (out, *inputs)]  # views, for they are contiguous
        if out.size <= BLOCK:
            step(*flat)
            return
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


def row_blocks(*tensors: NDArray[Any], row: int = 1) -> Iterator[tuple[NDArray[Any], ...]]:
    """Blocks of rows: parts of the tensors of about `BLOCK` elements, at least a row.

    Args:
        tensors: their shapes are equal but for the last axes.  The first has the blocks' size.
        row: the number of last axes that make a row, and are never split.
    """
    shape = tensors[0].shape
    if len(shape) <= row or tensors[0].size <= BLOCK:
        yield tensors
        return
    inner = tensors[0].size // shape[0]
    if inner > BLOCK:
        for parts in zip(*tensors, strict=True):
            yield from row_blocks(*parts, row=row)
        return
    step = BLOCK // inner
    for start in range(0, shape[0], step):
        yield tuple([tensor[start : start + step] for tensor in tensors])


def by_rows(
    step: Step, out: NDArray[Any], x: NDArray[Any], *, dtype: np.dtype[Any], row: int = 1
) -> None:
    """Compute `out` from `x`, of the same shape, by blocks of rows.

    Args:
        step: ``step(out, x)`` computes rows, of any number of leading axes; `out` may be `x`.
        out: where the result is written.
        x: the input; any overlap with `out` is seen to.
        dtype: the data type that the step computes in; blocks are converted.
        row: the number of last axes that make a row.
    """
    x = apart(x, out)
    for x_rows, out_rows in row_blocks(x, out, row=row):
        if out.dtype == x.dtype == dtype:
            step(out_rows, x_rows)
        else:
            work = x_rows.astype(dtype)
            step(work, work)
            np.copyto(out_rows, work, casting="same_kind")


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
