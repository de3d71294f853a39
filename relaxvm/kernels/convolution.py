"""Convolutions: conv1d, conv2d; BLAS does the products."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from ..values import describe
from ._attributes import int_of, ints_of
from ._blocks import row_blocks, working_dtype
from ._kernel import check_out, check_tensors, kernel, native, private, result_dtype
from ._windows import Windows, taps

__all__: list[str] = []

_SIGNATURE: Final = (
    "x: tensor, weight: tensor, strides: shape, padding: shape, dilation: shape, groups: int, "
    "out: tensor"
)
_COLUMNS: Final = 1 << 18
"""Elements laid out for one product, at least those of a row of results: 1 MiB of float32."""


@kernel("nn.conv1d", _SIGNATURE)
def conv1d(
    x: NDArray[Any],
    weight: NDArray[Any],
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    out: NDArray[Any],
) -> None:
    """out = x with a window of weights moved along it.  x[batch, inputs, width], weight[outputs,
    inputs / groups, window], out[batch, outputs, results]; strides and dilation: one number;
    padding: left, right; as `nn.conv2d` else."""
    name = "nn.conv1d"
    groups = _check(name, x, weight, groups, 3)
    strides = ints_of(name, "strides", strides, 1, 1)
    left, right = ints_of(name, "padding", padding, 2, 0)
    dilation = ints_of(name, "dilation", dilation, 1, 1)
    windows = Windows(
        name, (1, x.shape[2]), (1, weight.shape[2]), (1, *strides), (0, left, 0, right),
        (1, *dilation),
    )  # fmt: skip
    dtype = _result_dtype(name, x, weight, out)
    check_out(name, out, dtype, (x.shape[0], weight.shape[0], windows.count[1]))
    _convolve(x[:, :, None], weight[:, :, None], windows, groups, out[:, :, None])


@kernel("nn.conv2d", _SIGNATURE)
def conv2d(
    x: NDArray[Any],
    weight: NDArray[Any],
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    out: NDArray[Any],
) -> None:
    """out = images x with a window of weights moved over them.  x[batch, inputs, height, width],
    weight[outputs, inputs / groups, height of the window, width of the window], out[batch, outputs,
    height, width]; strides and dilation: a number for height and one for width; padding: top, left,
    bottom, right, of zeros.  The inputs of a group go to the outputs of the group.  out may be of a
    wider data type, which x and weight are converted to first.  Uses memory for a padded image and
    for 1 MiB of elements laid out for BLAS."""
    name = "nn.conv2d"
    groups = _check(name, x, weight, groups, 4)
    windows = Windows(name, x.shape[2:], weight.shape[2:], strides, padding, dilation)
    dtype = _result_dtype(name, x, weight, out)
    check_out(name, out, dtype, (x.shape[0], weight.shape[0], *windows.count))
    _convolve(x, weight, windows, groups, out)


def _check(name: str, x: NDArray[Any], weight: NDArray[Any], groups: Any, ndim: int) -> int:
    """Check the shapes of inputs; answer the number of groups."""
    check_tensors(name, x=x, weight=weight)
    count = int_of(name, "groups", groups, least=1)
    if x.ndim != ndim or weight.ndim != ndim:
        raise ValueError(
            f"{name}: expected tensors of {ndim} dimensions, got x {describe(x)}, weight "
            f"{describe(weight)}"
        )
    if x.shape[1] != weight.shape[1] * count or weight.shape[0] % count:
        raise ValueError(
            f"{name}: expected x[batch, inputs, ...], weight[outputs, inputs / groups, ...] with "
            f"outputs a multiple of groups, got x {describe(x)}, weight {describe(weight)}, "
            f"groups {groups}"
        )
    if 0 in weight.shape[2:]:
        raise ValueError(f"{name}: weight: expected a window, got {describe(weight)}")
    return count


def _result_dtype(
    name: str, x: NDArray[Any], weight: NDArray[Any], out: NDArray[Any]
) -> np.dtype[Any]:
    dtype = result_dtype(name, np.subtract, x=x, weight=weight)  # numbers, not bools
    if isinstance(out, np.ndarray) and dtype.kind in "iuf" and np.can_cast(dtype, out.dtype):
        return native(out.dtype)
    return dtype


def _convolve(
    x: NDArray[Any], weight: NDArray[Any], windows: Windows, groups: int, out: NDArray[Any]
) -> None:
    """out = the convolution, one image at a time."""
    if not out.size:
        return
    x, weight = private(x, out), private(weight, out)
    dtype = working_dtype(native(out.dtype)) or native(out.dtype)
    weight = weight.astype(dtype, copy=False)
    convolve: _Depthwise | _Columns
    if weight.shape[:2] == (groups, 1):
        convolve = _Depthwise(weight, windows)
    else:
        convolve = _Columns(x[0], weight, windows, groups)
    is_plain = out.dtype == dtype and out.flags.c_contiguous
    result = None if is_plain else np.empty(out.shape[1:], dtype)
    for image, written in zip(x, out, strict=True):
        if result is None:
            convolve(image, written)
        else:
            convolve(image, result)
            np.copyto(written, result, casting="same_kind")


class _Depthwise:
    """A channel at a time goes to a channel: tap by tap, for BLAS has nothing to gain there."""

    def __init__(self, weight: NDArray[Any], windows: Windows) -> None:
        self.weight = weight[:, 0]
        self.windows = windows

    def __call__(self, image: NDArray[Any], out: NDArray[Any]) -> None:
        for results, channels, weight in row_blocks(out, image, self.weight, row=2):
            np.copyto(results, 0)
            for i, j, elements, reached in taps(self.windows, channels, results):
                np.add(reached, elements * weight[..., i, j, None, None], out=reached)


class _Columns:
    """The elements of each window side by side as a column; weights @ columns is the result."""

    def __init__(
        self, image: NDArray[Any], weight: NDArray[Any], windows: Windows, groups: int
    ) -> None:
        """`weight` has the data type that is computed in; all images are like `image`."""
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
            np.copyto(self.inner, image, casting="same_kind")
            image = self.padded
        results = out.reshape(*self.weight.shape[:2], *out.shape[1:])
        if self.are_pixels and image.flags.c_contiguous:
            self._multiply(image, results)
            return
        for start in range(0, out.shape[1], self.rows):
            rows = results[:, :, start : start + self.rows]
            columns = self.buffer[..., : rows.shape[2], :]
            np.copyto(columns, self._windows(image, start, rows.shape[2]))
            # Of the last rows there may be fewer than the buffer has: then the reshape copies.
            self._multiply(columns, rows)

    def _multiply(self, columns: NDArray[Any], results: NDArray[Any]) -> None:
        groups, outputs, taps_per_window = self.weight.shape
        pixels = results.shape[2] * results.shape[3]
        columns = columns.reshape(groups, taps_per_window, pixels)
        np.matmul(self.weight, columns, out=results.reshape(groups, outputs, pixels))

    def _windows(self, image: NDArray[Any], start: int, rows: int) -> NDArray[Any]:
        """The elements of windows: image[channel, row, column] by channel, tap, and window."""
        (down, right), (far_down, far_right) = self.windows.strides, self.windows.dilation
        channel, row, column = image.strides
        return as_strided(
            image[:, start * down :],
            (image.shape[0], *self.windows.size, rows, self.windows.count[1]),
            (channel, row * far_down, column * far_right, row * down, column * right),
            writeable=False,
        )
