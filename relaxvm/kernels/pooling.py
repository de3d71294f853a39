"""Pools of images: max_pool2d, avg_pool2d."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..values import describe
from ._attributes import flag_of, ints_of
from ._blocks import float_dtype, row_blocks, working_dtype
from ._kernel import check_out, check_tensors, kernel, native, private, result_dtype
from ._windows import Windows, taps

__all__: list[str] = []

_POOL: Final = (
    "x: tensor, pool_size: shape, strides: shape, padding: shape, dilation: shape, "
    "ceil_mode: bool|int, "
)


@kernel("nn.max_pool2d", _POOL + "out: tensor")
def max_pool2d(
    x: NDArray[Any],
    pool_size: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: Any,
    out: NDArray[Any],
) -> None:
    """out = the greatest element of each window, NaN if one is.  x[batch, channels, height, width];
    pool_size, strides and dilation: a number for height and one for width; padding: top, left,
    bottom, right; ceil_mode: whether a last window may reach beyond the padding, if it begins
    before that behind the image.  A window without elements has the least number of the data
    type."""
    name = "nn.max_pool2d"
    check_tensors(name, x=x)
    result_dtype(name, np.maximum, x=x, other=x)
    windows = _windows(name, x, pool_size, strides, padding, dilation, ceil_mode)
    check_out(name, out, x.dtype, (*x.shape[:2], *windows.count))
    for images, written in row_blocks(private(x, out), out, row=2):
        np.copyto(written, _least(native(x.dtype)))
        for _, _, elements, results in taps(windows, images, written):
            np.maximum(results, elements, out=results)


@kernel("nn.avg_pool2d", _POOL + "count_include_pad: bool|int, out: tensor")
def avg_pool2d(
    x: NDArray[Any],
    pool_size: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: Any,
    count_include_pad: Any,
    out: NDArray[Any],
) -> None:
    """out = the mean of each window, of floats; as `nn.max_pool2d` else.  count_include_pad:
    whether the padding counts, as zeros.  A window without elements has 0."""
    name = "nn.avg_pool2d"
    check_tensors(name, x=x)
    dtype = float_dtype(name, x=x)
    windows = _windows(name, x, pool_size, strides, padding, dilation, ceil_mode)
    include = flag_of(name, "count_include_pad", count_include_pad)
    check_out(name, out, dtype, (*x.shape[:2], *windows.count))
    working = working_dtype(dtype)
    counts = _counts(windows, x.shape[2:], include).astype(working)
    for images, written in row_blocks(private(x, out), out, row=2):
        total = written if written.dtype == working else np.empty(written.shape, working)
        np.copyto(total, 0)
        for _, _, elements, results in taps(windows, images, total):
            np.add(results, elements, out=results)
        np.divide(total, counts, out=total)
        if total is not written:
            np.copyto(written, total, casting="same_kind")


def _windows(
    name: str,
    x: NDArray[Any],
    pool_size: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: Any,
) -> Windows:
    if x.ndim != 4:
        raise ValueError(
            f"{name}: x: expected a tensor [batch, channels, height, width], got {describe(x)}"
        )
    size = ints_of(name, "pool_size", pool_size, 2, 1)
    return Windows(
        name, x.shape[2:], size, strides, padding, dilation,
        ceil_mode=flag_of(name, "ceil_mode", ceil_mode),
    )  # fmt: skip


def _least(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return False
    return np.iinfo(dtype).min if dtype.kind in "iu" else dtype.type(-np.inf)


def _counts(windows: Windows, image: tuple[int, ...], include: bool) -> NDArray[Any]:
    """The elements of each window, those of the padding included or not, at least 1."""
    height, width = (
        windows.taps_inside(axis, length, padded=include) for axis, length in enumerate(image)
    )
    return np.maximum(np.multiply.outer(height, width), 1)
