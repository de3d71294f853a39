"""Convolutions: conv1d, conv2d, by products of BLAS."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import PIECE, check_time, converted, copy_pieces
from ._arrays import copy_if_overlapping
from ._blocks import row_blocks
from ._kernel import kernel
from ._multiply import multiply
from ._windows import Windows, taps
from .checks import Dims, WrongValue, check_out, native, result_dtype, working_dtype
from .kinds import Out, Tensor, an_int, ints

__all__: list[str] = []

_COLUMNS: Final = 1 << 18
"""Most elements copied for one product, unless a row of results needs more: 1 MiB of float32."""

Groups: TypeAlias = Annotated[int, an_int(least=1)]
Step1d: TypeAlias = Annotated[Dims, ints(count=1, least=1)]
Step2d: TypeAlias = Annotated[Dims, ints(count=2, least=1)]
Padding1d: TypeAlias = Annotated[Dims, ints(count=2, least=0)]
Padding2d: TypeAlias = Annotated[Dims, ints(count=4, least=0)]


@kernel("nn.conv1d")
def conv1d(
    x: Tensor,
    weight: Tensor,
    strides: Step1d,
    padding: Padding1d,
    dilation: Step1d,
    groups: Groups,
    out: Out,
) -> None:
    """out = the sums of products of weight with each window of x.  x[batch, inputs, width],
    weight[outputs, inputs / groups, window], out[batch, outputs, results]; strides and dilation:
    one number; padding: left, right; otherwise as `nn.conv2d`."""
    _check_shapes(x, weight, groups, 3)
    left, right = padding
    windows = Windows(
        (1, x.shape[2]), (1, weight.shape[2]), (1, *strides), (0, left, 0, right), (1, *dilation)
    )
    check_out(out, _result_dtype(x, weight, out), (x.shape[0], weight.shape[0], windows.count[1]))
    _convolve(x[:, :, None], weight[:, :, None], windows, groups, out[:, :, None])


@kernel("nn.conv2d")
def conv2d(
    x: Tensor,
    weight: Tensor,
    strides: Step2d,
    padding: Padding2d,
    dilation: Step2d,
    groups: Groups,
    out: Out,
) -> None:
    """out = the sums of products of weight with each window of images x.  x[batch, inputs, height,
    width], weight[outputs, inputs / groups, height of the window, width of the window], out[batch,
    outputs, height, width]; strides and dilation: a number for height and one for width; padding:
    top, left, bottom, right, of zeros.  The outputs of a group are computed from the inputs of the
    group.  out may be of a wider data type, which x and weight are converted to first.  Uses memory
    for a padded image and for 1 MiB of elements copied for BLAS."""
    _check_shapes(x, weight, groups, 4)
    windows = Windows(x.shape[2:], weight.shape[2:], strides, padding, dilation)
    check_out(out, _result_dtype(x, weight, out), (x.shape[0], weight.shape[0], *windows.count))
    _convolve(x, weight, windows, groups, out)


def _check_shapes(x: NDArray[Any], weight: NDArray[Any], groups: int, ndim: int) -> None:
    """Check that the inputs fit each other.

    Raises:
        WrongValue: they do not.
    """
    if x.ndim != ndim or weight.ndim != ndim:
        raise WrongValue(
            f"expected tensors of {ndim} dimensions, got x {describe(x)}, weight "
            f"{describe(weight)}"
        )
    if x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise WrongValue(
            f"expected x[batch, inputs, ...], weight[outputs, inputs / groups, ...] with outputs a "
            f"multiple of groups, got x {describe(x)}, weight {describe(weight)}, groups {groups}"
        )
    if 0 in weight.shape[2:]:
        raise WrongValue(f"weight: expected a window, got {describe(weight)}")


def _result_dtype(x: NDArray[Any], weight: NDArray[Any], out: NDArray[Any]) -> np.dtype[Any]:
    dtype = result_dtype(np.subtract, x=x, weight=weight)  # numbers, not bools
    is_wider = dtype.kind in "iuf" and np.can_cast(dtype, out.dtype)
    return native(out.dtype) if is_wider else dtype


def _convolve(
    x: NDArray[Any], weight: NDArray[Any], windows: Windows, groups: int, out: NDArray[Any]
) -> None:
    """out = the convolution, image by image."""
    if not out.size:
        return
    x, weight = copy_if_overlapping(x, out), copy_if_overlapping(weight, out)
    dtype = working_dtype(native(out.dtype)) or native(out.dtype)
    weight = converted(weight, dtype)
    convolve: _Depthwise | _Columns
    if weight.shape[:2] == (groups, 1):
        convolve = _Depthwise(weight, windows)
    else:
        convolve = _Columns(x[0], weight, windows, groups)
    is_plain = out.dtype == dtype and out.flags.c_contiguous
    result = None if is_plain else np.empty(out.shape[1:], dtype)
    done = 0
    for image, written in zip(x, out, strict=True):
        if result is None:
            convolve(image, written)
        else:
            convolve(image, result)
            copy_pieces(written, result)
        done += image.size + written.size
        if done > PIECE:
            done = 0
            check_time()


class _Depthwise:
    """One channel at a time, tap by tap: BLAS has nothing to gain there."""

    def __init__(self, weight: NDArray[Any], windows: Windows) -> None:
        self.weight = weight[:, 0]
        self.windows = windows

    def __call__(self, image: NDArray[Any], out: NDArray[Any]) -> None:
        for results, channels, weight in row_blocks(out, image, self.weight, row=2):
            copy_pieces(results, 0)
            for i, j, elements, reached in taps(self.windows, channels, results):
                np.add(reached, elements * weight[..., i, j, None, None], out=reached)


class _Columns:
    """Copies the elements of each window to a column; weights @ columns is the result."""

    def __init__(
        self, image: NDArray[Any], weight: NDArray[Any], windows: Windows, groups: int
    ) -> None:
        """`weight` has the data type of the computation; all images have the shape of `image`."""
        height, width = windows.size
        self.windows = windows
        self.groups = groups
        self.weight = weight.reshape(groups, weight.shape[0] // groups, -1)
        self.are_pixels = height == width == 1 and windows.strides == (1, 1)
        window = max(1, image.shape[0] * height * width)
        rows, columns = windows.count
        self.rows = min(rows, max(1, _COLUMNS // (window * columns)))
        self.buffer = np.empty((image.shape[0], height, width, self.rows, columns), weight.dtype)
        self.padded: NDArray[Any] | None = None
        if any(windows.padding) or image.dtype != weight.dtype:
            top, left, bottom, right = windows.padding
            shape = (image.shape[0], top + image.shape[1] + bottom, left + image.shape[2] + right)
            self.padded = np.zeros(shape, weight.dtype)
            self.inner = self.padded[:, top : top + image.shape[1], left : left + image.shape[2]]

    def __call__(self, image: NDArray[Any], out: NDArray[Any]) -> None:
        """Compute an image; `out` is contiguous."""
        if self.padded is not None:
            copy_pieces(self.inner, image)
            image = self.padded
        results = out.reshape(*self.weight.shape[:2], *out.shape[1:])
        if self.are_pixels and image.flags.c_contiguous:
            self._multiply(image, results)
            return
        for start in range(0, out.shape[1], self.rows):
            rows = results[:, :, start : start + self.rows]
            columns = self.buffer[..., : rows.shape[2], :]
            copy_pieces(columns, self._windows(image, start, rows.shape[2]))
            # At the end there may be fewer rows than the buffer has: then the reshape copies.
            self._multiply(columns, rows)
            if columns.size > _COLUMNS >> 2:
                check_time()

    def _multiply(self, columns: NDArray[Any], results: NDArray[Any]) -> None:
        groups, outputs, taps_per_window = self.weight.shape
        pixels = results.shape[2] * results.shape[3]
        columns = columns.reshape(groups, taps_per_window, pixels)
        multiply(self.weight, columns, results.reshape(groups, outputs, pixels))

    def _windows(self, image: NDArray[Any], start: int, rows: int) -> NDArray[Any]:
        """A view of image[channel, row, column] by channel, tap and window."""
        (down, right), (far_down, far_right) = self.windows.strides, self.windows.dilation
        channel, row, column = image.strides
        return as_strided(
            image[:, start * down :],
            (image.shape[0], *self.windows.size, rows, self.windows.count[1]),
            (channel, row * far_down, column * far_right, row * down, column * right),
            writeable=False,
        )
