"""Convolutions and transposed convolutions along one to three axes, by products of BLAS."""

from __future__ import annotations

import itertools
import math
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

__all__ = ["Groups", "Padding2d", "Step2d", "convolve"]

_COLUMNS: Final = 1 << 18
"""Most elements copied for one product, unless a row of results needs more: 1 MiB of float32."""

Groups: TypeAlias = Annotated[int, an_int(least=1)]
Step1d: TypeAlias = Annotated[Dims, ints(count=1, least=1)]
Step2d: TypeAlias = Annotated[Dims, ints(count=2, least=1)]
Step3d: TypeAlias = Annotated[Dims, ints(count=3, least=1)]
Padding1d: TypeAlias = Annotated[Dims, ints(count=2, least=0)]
Padding2d: TypeAlias = Annotated[Dims, ints(count=4, least=0)]
Padding3d: TypeAlias = Annotated[Dims, ints(count=6, least=0)]
More1d: TypeAlias = Annotated[Dims, ints(count=1, least=0)]
More2d: TypeAlias = Annotated[Dims, ints(count=2, least=0)]
More3d: TypeAlias = Annotated[Dims, ints(count=3, least=0)]


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
    convolve(x[:, :, None], weight[:, :, None], windows, groups, out[:, :, None])


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
    _convolution(x, weight, strides, padding, dilation, groups, out)


@kernel("nn.conv3d")
def conv3d(
    x: Tensor,
    weight: Tensor,
    strides: Step3d,
    padding: Padding3d,
    dilation: Step3d,
    groups: Groups,
    out: Out,
) -> None:
    """As `nn.conv2d`, along depth, height and width: x[batch, inputs, depth, height, width],
    weight[outputs, inputs / groups, depth, height and width of the window]; strides and dilation:
    three numbers; padding: front, top, left, back, bottom, right."""
    _convolution(x, weight, strides, padding, dilation, groups, out)


def _convolution(
    x: NDArray[Any],
    weight: NDArray[Any],
    strides: Dims,
    padding: Dims,
    dilation: Dims,
    groups: int,
    out: NDArray[Any],
) -> None:
    _check_shapes(x, weight, groups, 2 + len(strides))
    windows = Windows(x.shape[2:], weight.shape[2:], strides, padding, dilation)
    check_out(out, _result_dtype(x, weight, out), (x.shape[0], weight.shape[0], *windows.count))
    convolve(x, weight, windows, groups, out)


def _check_shapes(x: NDArray[Any], weight: NDArray[Any], groups: int, ndim: int) -> None:
    """Check that the inputs fit each other.

    Raises:
        WrongValue: they do not.
    """
    _check_ranks(x, weight, ndim)
    if x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise WrongValue(
            f"expected x[batch, inputs, ...], weight[outputs, inputs / groups, ...] with outputs a "
            f"multiple of groups, got x {describe(x)}, weight {describe(weight)}, groups {groups}"
        )


def _check_ranks(x: NDArray[Any], weight: NDArray[Any], ndim: int) -> None:
    if x.ndim != ndim or weight.ndim != ndim:
        raise WrongValue(
            f"expected tensors of {ndim} dimensions, got x {describe(x)}, weight "
            f"{describe(weight)}"
        )
    if 0 in weight.shape[2:]:
        raise WrongValue(f"weight: expected a window, got {describe(weight)}")


def _result_dtype(x: NDArray[Any], weight: NDArray[Any], out: NDArray[Any]) -> np.dtype[Any]:
    dtype = result_dtype(np.subtract, x=x, weight=weight)  # numbers, not bools
    is_wider = dtype.kind in "iuf" and np.can_cast(dtype, out.dtype)
    return native(out.dtype) if is_wider else dtype


def convolve(
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
    _by_image(convolve, x, out, dtype)


def _by_image(compute: Any, x: NDArray[Any], out: NDArray[Any], dtype: np.dtype[Any]) -> None:
    """Run a function of an image and a contiguous result of a data type for each image."""
    is_plain = out.dtype == dtype and out.flags.c_contiguous
    result = None if is_plain else np.empty(out.shape[1:], dtype)
    done = 0
    for image, written in zip(x, out, strict=True):
        if result is None:
            compute(image, written)
        else:
            compute(image, result)
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
        axes = len(self.windows.size)
        for results, channels, weight in row_blocks(out, image, self.weight, row=axes):
            copy_pieces(results, 0)
            for tap, elements, reached in taps(self.windows, channels, results):
                factor = weight[(..., *tap, *[None] * axes)]
                np.add(reached, elements * factor, out=reached)


class _Columns:
    """Copies the elements of each window to a column; weights @ columns is the result."""

    def __init__(
        self, image: NDArray[Any], weight: NDArray[Any], windows: Windows, groups: int
    ) -> None:
        """`weight` has the data type of the computation; all images have the shape of `image`."""
        size, axes = windows.size, len(windows.size)
        self.windows = windows
        self.groups = groups
        self.weight = weight.reshape(groups, weight.shape[0] // groups, -1)
        self.are_pixels = set(size) == set(windows.strides) == {1}
        window = max(1, self.weight.shape[2] * groups)
        *_, rows, columns = windows.count
        self.rows = min(rows, max(1, _COLUMNS // (window * columns)))
        self.buffer = np.empty((image.shape[0], *size, self.rows, columns), weight.dtype)
        self.padded: NDArray[Any] | None = None
        if any(windows.padding) or image.dtype != weight.dtype:
            before, after = windows.padding[:axes], windows.padding[axes:]
            lengths = image.shape[1:]
            widths = [a + n + b for a, n, b in zip(before, lengths, after, strict=True)]
            self.padded = np.zeros((image.shape[0], *widths), weight.dtype)
            inner = [slice(a, a + n) for a, n in zip(before, lengths, strict=True)]
            self.inner = self.padded[(slice(None), *inner)]

    def __call__(self, image: NDArray[Any], out: NDArray[Any]) -> None:
        """Compute an image; `out` is contiguous."""
        if self.padded is not None:
            copy_pieces(self.inner, image)
            image = self.padded
        results = out.reshape(*self.weight.shape[:2], *out.shape[1:])
        if self.are_pixels and image.flags.c_contiguous:
            self._multiply(image, results)
            return
        *outer, height, _ = self.windows.count
        for place in itertools.product(*map(range, outer)):
            at: Any = (slice(None), slice(None), *place)
            plane = results[at]
            for start in range(0, height, self.rows):
                rows = plane[:, :, start : start + self.rows]
                columns = self.buffer[..., : rows.shape[2], :]
                copy_pieces(columns, self._windows(image, (*place, start), rows.shape[2]))
                # At the end there may be fewer rows than the buffer has: then the reshape copies.
                self._multiply(columns, rows)
                if columns.size > _COLUMNS >> 2:
                    check_time()

    def _multiply(self, columns: NDArray[Any], results: NDArray[Any]) -> None:
        groups, outputs, taps_per_window = self.weight.shape
        pixels = math.prod(results.shape[2:])
        columns = columns.reshape(groups, taps_per_window, pixels)
        multiply(self.weight, columns, results.reshape(groups, outputs, pixels))

    def _windows(self, image: NDArray[Any], start: Dims, rows: int) -> NDArray[Any]:
        """A view of image[channel, ..., row, column] by channel, tap and window; the windows are
        rows of a plane, from a place on."""
        windows = self.windows
        first = [at * step for at, step in zip(start, windows.strides, strict=False)]
        channel, *along = image.strides
        far = [n * step for n, step in zip(along, windows.dilation, strict=True)]
        steps = [n * step for n, step in zip(along, windows.strides, strict=True)]
        return as_strided(
            image[(slice(None), *[slice(at, None) for at in first])],
            (image.shape[0], *windows.size, rows, windows.count[-1]),
            (channel, *far, *steps[-2:]),
            writeable=False,
        )


# Transposed convolutions


@kernel("nn.conv1d_transpose")
def conv1d_transpose(
    x: Tensor,
    weight: Tensor,
    strides: Step1d,
    padding: Padding1d,
    output_padding: More1d,
    dilation: Step1d,
    groups: Groups,
    out: Out,
) -> None:
    """As `nn.conv2d_transpose`, along one axis: x[batch, inputs, width], weight[inputs, outputs /
    groups, window]; strides, dilation and output_padding: one number; padding: left, right."""
    _check_transposed(x, weight, strides, padding, output_padding, dilation, groups, out)
    left, right = padding
    windows = Windows.transposed(
        (1, x.shape[2]), (1, weight.shape[2]), (1, *strides), (0, left, 0, right), (1, *dilation)
    )
    _spread(x[:, :, None], weight[:, :, None], windows, groups, out[:, :, None])


@kernel("nn.conv2d_transpose")
def conv2d_transpose(
    x: Tensor,
    weight: Tensor,
    strides: Step2d,
    padding: Padding2d,
    output_padding: More2d,
    dilation: Step2d,
    groups: Groups,
    out: Out,
) -> None:
    """out = weight, times each element of images x, added up at strides: what the gradient of
    `nn.conv2d` does.  x[batch, inputs, height, width], weight[inputs, outputs / groups, height of
    the window, width of the window]; padding: top, left, bottom, right, removed from the result;
    output_padding: added at its bottom and right.  The length of the result along an axis is
    (length - 1) * stride + dilation * (window - 1) + 1 - padding + output_padding.  Otherwise as
    `nn.conv2d`."""
    _transposed(x, weight, strides, padding, output_padding, dilation, groups, out)


@kernel("nn.conv3d_transpose")
def conv3d_transpose(
    x: Tensor,
    weight: Tensor,
    strides: Step3d,
    padding: Padding3d,
    output_padding: More3d,
    dilation: Step3d,
    groups: Groups,
    out: Out,
) -> None:
    """As `nn.conv2d_transpose`, along depth, height and width; padding: front, top, left, back,
    bottom, right."""
    _transposed(x, weight, strides, padding, output_padding, dilation, groups, out)


def _transposed(
    x: NDArray[Any],
    weight: NDArray[Any],
    strides: Dims,
    padding: Dims,
    output_padding: Dims,
    dilation: Dims,
    groups: int,
    out: NDArray[Any],
) -> None:
    _check_transposed(x, weight, strides, padding, output_padding, dilation, groups, out)
    windows = Windows.transposed(x.shape[2:], weight.shape[2:], strides, padding, dilation)
    _spread(x, weight, windows, groups, out)


def _check_transposed(
    x: NDArray[Any],
    weight: NDArray[Any],
    strides: Dims,
    padding: Dims,
    output_padding: Dims,
    dilation: Dims,
    groups: int,
    out: NDArray[Any],
) -> None:
    """Check that the arguments fit each other.

    Raises:
        WrongValue: they do not.
    """
    axes = len(strides)
    _check_ranks(x, weight, 2 + axes)
    if x.shape[1] != weight.shape[0] or x.shape[1] % groups:
        raise WrongValue(
            f"expected x[batch, inputs, ...], weight[inputs, outputs / groups, ...] with inputs a "
            f"multiple of groups, got x {describe(x)}, weight {describe(weight)}, groups {groups}"
        )
    lengths = []
    for i, (length, size) in enumerate(zip(x.shape[2:], weight.shape[2:], strict=True)):
        if output_padding[i] >= max(strides[i], dilation[i]):
            raise WrongValue(
                f"output_padding: expected less than strides or dilation, got "
                f"{list(output_padding)}, strides {list(strides)}, dilation {list(dilation)}"
            )
        whole = (length - 1) * strides[i] + dilation[i] * (size - 1) + 1 + output_padding[i]
        lengths.append(whole - padding[i] - padding[i + axes])
        if lengths[-1] < 0 or not length:
            raise WrongValue(
                f"expected a result of at least 0 along each axis, got x {describe(x)}, padding "
                f"{list(padding)}"
            )
    check_out(
        out, _result_dtype(x, weight, out), (x.shape[0], weight.shape[1] * groups, *lengths)
    )


def _spread(
    x: NDArray[Any], weight: NDArray[Any], windows: Windows, groups: int, out: NDArray[Any]
) -> None:
    """out = the transposed convolution, image by image."""
    if not out.size:
        return
    x, weight = copy_if_overlapping(x, out), copy_if_overlapping(weight, out)
    dtype = working_dtype(native(out.dtype)) or native(out.dtype)
    _by_image(_Spread(converted(weight, dtype), windows, groups), x, out, dtype)


class _Spread:
    """Weights transposed @ elements has a column for each window, which is added to the result."""

    def __init__(self, weight: NDArray[Any], windows: Windows, groups: int) -> None:
        """`weight` has the data type of the computation."""
        inputs, outputs = weight.shape[:2]
        self.windows = windows
        # [groups, taps, outputs, inputs]
        parts = weight.reshape(groups, inputs // groups, outputs, -1).transpose(0, 3, 2, 1)
        self.weight = np.ascontiguousarray(parts)
        *_, rows, columns = windows.count
        # Rows of x for one product, and taps for one product where a row has too many.
        window = outputs * groups * self.weight.shape[1]
        self.rows = min(rows, max(1, _COLUMNS // max(1, window * columns)))
        self.taps = max(1, _COLUMNS // max(1, outputs * groups * self.rows * columns))
        self.places = list(itertools.product(*map(range, windows.size)))

    def __call__(self, image: NDArray[Any], out: NDArray[Any]) -> None:
        """Compute an image; `out` is contiguous."""
        copy_pieces(out, 0)
        groups, _, outputs, inputs = self.weight.shape
        *outer, height, width = self.windows.count
        results = out.reshape(groups, outputs, *out.shape[1:])
        for place in itertools.product(*map(range, outer)):
            at: Any = (slice(None), *place)
            plane = image[at]
            for start in range(0, height, self.rows):
                part = plane[:, start : start + self.rows]
                rows = part.shape[1]
                elements = np.ascontiguousarray(part, self.weight.dtype)
                elements = elements.reshape(groups, inputs, rows * width)
                for first in range(0, len(self.places), self.taps):
                    weight = self.weight[:, first : first + self.taps]
                    count = weight.shape[1]
                    columns = np.empty((groups, count * outputs, rows * width), weight.dtype)
                    multiply(weight.reshape(groups, -1, inputs), elements, columns)
                    columns = columns.reshape(groups, count, outputs, rows, width)
                    for k, tap in enumerate(self.places[first : first + self.taps]):
                        self._add(results, columns[:, k], tap, (*place, start))
                    if columns.size > _COLUMNS >> 2:
                        check_time()

    def _add(self, results: NDArray[Any], columns: NDArray[Any], tap: Dims, start: Dims) -> None:
        """Add the columns of a tap, for the windows from a place on: rows of one plane."""
        lengths = results.shape[2:]
        outer = len(lengths) - 2
        windows = self.windows
        at: list[Any] = [slice(None), slice(None)]
        for axis in range(outer):
            place = start[axis] * windows.strides[axis] + tap[axis] * windows.dilation[axis]
            place -= windows.padding[axis]
            if not 0 <= place < lengths[axis]:
                return
            at.append(place)
        rows, down = windows.inside(outer, tap[outer], lengths[outer])
        first, last = max(rows.start, start[-1]), min(rows.stop, start[-1] + columns.shape[2])
        if first >= last:
            return
        stride = windows.strides[outer]
        top = down.start + (first - rows.start) * stride
        across, right = windows.inside(outer + 1, tap[outer + 1], lengths[outer + 1])
        at += [slice(top, top + (last - first) * stride, stride), right]
        reached = results[tuple(at)]
        np.add(reached, columns[:, :, first - start[-1] : last - start[-1], across], out=reached)
