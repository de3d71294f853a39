"""Work in blocks that stay in the cache, for kernels that need several passes.

Their temporary arrays have the size of a block instead of the size of the result, and all passes
over a block are done while it is in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..pieces.cut import PIECE, apply, check_time, copy_pieces, pieces
from ._arrays import copy_if_overlapping_differently
from .checks import native

__all__ = [
    "BLOCK",
    "blockwise",
    "by_rows",
    "piecewise",
    "row_blocks",
]

BLOCK: Final = 16384
"""Elements of a block: 128 KiB of float64.  With smaller blocks, the calls of numpy cost more than
the cache saves."""

_nditer: Final[Any] = np.nditer  # numpy's stubs want literal flags

Step = Callable[..., None]
"""``step(out, *inputs)`` computes a block.  `out` may be one of the inputs, never part of one."""


def blockwise(
    step: Step, out: NDArray[Any], *inputs: Any, dtype: np.dtype[Any] | None = None
) -> None:
    """Compute `out`, element by element, from inputs that broadcast to its shape.

    Args:
        step: computes a block; its arguments are vectors.
        out: where the result is written; it may overlap with inputs.
        inputs: tensors and numpy scalars.
        dtype: the data type that the step computes in, by default that of `out`; blocks are
            converted.
    """
    dtype = native(out.dtype) if dtype is None else dtype
    if all(_is_plain(each, out.shape, dtype) for each in (out, *inputs)):
        inputs = tuple([copy_if_overlapping_differently(x, out) for x in inputs])
        flat = [each.reshape(-1) for each in (out, *inputs)]  # views, for they are contiguous
        if out.size <= BLOCK:
            step(*flat)
            return
        for start in range(0, out.size, BLOCK):
            if start:
                check_time()
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
            if out.size > BLOCK:
                check_time()


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
    return pieces(*tensors, row=row, most=BLOCK)


def piecewise(function: Callable[..., Any], out: NDArray[Any], *inputs: Any) -> None:
    """``function(*inputs, out=out)``, an elementwise function of numpy, piece by piece.

    Args:
        function: takes care of overlaps itself.
        out: where the result is written; it may overlap with inputs.
        inputs: tensors and numpy scalars that broadcast to out's shape.
    """
    if out.size <= PIECE:
        function(*inputs, out=out)
        return
    whole = [
        copy_if_overlapping_differently(np.broadcast_to(x, out.shape), out) for x in inputs
    ]
    apply(function, out, *whole)


def by_rows(
    step: Step,
    out: NDArray[Any],
    x: NDArray[Any],
    *weights: NDArray[Any],
    dtype: np.dtype[Any],
    row: int = 1,
) -> None:
    """Compute `out` from `x`, of the same shape, by blocks of rows.

    Args:
        step: ``step(out, x, *weights)`` computes rows, of any number of leading axes; `out` may be
            `x`.
        out: where the result is written.
        x: the input; it may overlap with `out`.
        weights: further inputs of the same shape, which do not overlap with `out`.
        dtype: the data type that the step computes in; blocks are converted.
        row: the number of last axes that make a row.
    """
    x = copy_if_overlapping_differently(x, out)
    for x_rows, out_rows, *weight_rows in row_blocks(x, out, *weights, row=row):
        if out.dtype == x.dtype == dtype:
            step(out_rows, x_rows, *weight_rows)
        else:
            work = np.empty(x_rows.shape, dtype)
            copy_pieces(work, x_rows)
            step(work, work, *weight_rows)
            copy_pieces(out_rows, work)
