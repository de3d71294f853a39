"""Convolutions and pools of images in blocks of 16 channels, the layout of the C kernels.

An image in blocks is x[batch, block, row, column, channel of the block].  Where the number of
channels is no multiple of 16, the last block is filled up: what its other channels hold does not
matter as long as it is finite, since weights have zeros there.

The functions ``pack_*`` bring the weights of a convolution into the form that a kernel takes.  They
are data like other constants: the same for all processors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ..messages import describe
from ..pieces import reduce as cut
from ..pieces.cut import check_time, copy_pieces
from ._arrays import (
    aligned_copy,
    aligned_zeros,
    copy_if_overlapping,
    copy_if_overlapping_differently,
)
from ._blocks import piecewise
from ._functions import Function, apply_function
from ._kernel import kernel
from ._multiply import multiply
from ._windows import Windows
from .checks import FLOAT32, Dims, WrongType, WrongValue, check_out, native
from .convolution import Groups, Padding2d, Step2d, convolve
from .kinds import Flag, Float, Floats, Integers, Out, OutLike, SameType
from .pooling import Size2d, avg_pool2d, max_pool2d

__all__ = ["BLOCK", "blocks_of", "pack_bias", "pack_depthwise", "pack_direct", "pack_gathered",
           "pack_planes", "pack_winograd", "planes_of", "scale_outputs",
           "whole_blocks"]  # fmt: skip

BLOCK: Final = 16
"""Channels of a block: a line of 64 bytes of float32."""

Images: TypeAlias = NDArray[Any]

# Transforms of F(4x4, 3x3) with the points 0, 1, -1, 1/2, -2 and infinity, by Cook and Toom.
_OF_IMAGE: Final = np.array([
    [1, -1.5, -2, 1.5, 1, 0],
    [0, -1, 0.5, 2.5, 1, 0],
    [0, 1, -2.5, 0.5, 1, 0],
    [0, -2, -1, 2, 1, 0],
    [0, 0.5, -1, -0.5, 1, 0],
    [0, 1, -1.5, -2, 1.5, 1],
])  # fmt: skip
_OF_WEIGHT: Final = np.array([
    [1, 0, 0],
    [1 / 3, 1 / 3, 1 / 3],
    [-1 / 3, 1 / 3, -1 / 3],
    [-16 / 15, -8 / 15, -4 / 15],
    [1 / 15, -2 / 15, 4 / 15],
    [0, 0, 1],
])  # fmt: skip
_BACK: Final = np.array([
    [1, 1, 1, 1, 1, 0],
    [0, 1, -1, 0.5, -2, 0],
    [0, 1, 1, 0.25, 4, 0],
    [0, 1, -1, 0.125, -8, 1],
])  # fmt: skip
_RESULTS: Final = len(_BACK)
_POINTS: Final = len(_OF_IMAGE)
_MOST_TILES: Final = 1 << 13
"""Tiles that are transformed at once, without a look at the clock."""


# Layout


def blocks_of(channels: int) -> int:
    """How many blocks so many channels are."""
    return -(-channels // BLOCK)


@kernel("nn.to_blocks")
def to_blocks(x: SameType, out: Out) -> None:
    """out = images x[batch, channels, height, width] in blocks of channels: out[batch, blocks,
    height, width, 16].  Channels that fill the last block are 0."""
    if x.ndim != 4:
        raise WrongValue(f"x: expected a tensor of 4 dimensions, got {describe(x)}")
    batch, channels, height, width = x.shape
    check_out(out, x.dtype, (batch, blocks_of(channels), height, width, BLOCK))
    x = copy_if_overlapping(x, out)
    for block in range(out.shape[1]):
        part = x[:, block * BLOCK : (block + 1) * BLOCK]
        count = part.shape[1]
        copy_pieces(out[:, block, :, :, :count], part.transpose(0, 2, 3, 1))
        if count < BLOCK:
            copy_pieces(out[:, block, :, :, count:], 0)


@kernel("nn.from_blocks")
def from_blocks(x: SameType, out: Out) -> None:
    """out = images of x[batch, blocks, height, width, 16], blocks of channels: out[batch, channels,
    height, width], where the last block may have more channels than out."""
    _check_blocks("x", x)
    batch, blocks, height, width, _ = x.shape
    channels = out.shape[1] if out.ndim == 4 and blocks_of(out.shape[1]) == blocks else 0
    check_out(out, x.dtype, (batch, channels or blocks * BLOCK, height, width))
    x = copy_if_overlapping(x, out)
    for block in range(blocks):
        part = out[:, block * BLOCK : (block + 1) * BLOCK]
        copy_pieces(part, x[:, block, :, :, : part.shape[1]].transpose(0, 3, 1, 2))


def _check_blocks(name: str, x: Images) -> None:
    if x.ndim != 5 or x.shape[-1] != BLOCK:
        raise WrongValue(
            f"{name}: expected [batch, blocks, height, width, {BLOCK}], got {describe(x)}"
        )


def planes_of(x: Images) -> Images:
    """A copy of blocks as x[batch, channels, height, width]."""
    batch, blocks, height, width, _ = x.shape
    planes = np.empty((batch, blocks * BLOCK, height, width), x.dtype)
    for block in range(blocks):
        part = planes[:, block * BLOCK : (block + 1) * BLOCK]
        copy_pieces(part, x[:, block].transpose(0, 3, 1, 2))
    return planes


# Pools


@kernel("nn.max_pool2d_blocks")
def max_pool2d_blocks(
    x: Floats,
    pool_size: Size2d,
    strides: Size2d,
    padding: Padding2d,
    dilation: Size2d,
    ceil_mode: Flag,
    out: Out,
) -> None:
    """As `nn.max_pool2d`, of images in blocks of channels: x and out[batch, blocks, height, width,
    16]."""
    _check_blocks("x", x)
    windows = Windows(
        x.shape[2:4], pool_size, strides, padding, dilation, ceil_mode=ceil_mode
    )
    check_out(out, x.dtype, (*x.shape[:2], *windows.count, BLOCK))
    result = np.empty((x.shape[0], x.shape[1] * BLOCK, *windows.count), x.dtype)
    max_pool2d(planes_of(x), pool_size, strides, padding, dilation, ceil_mode, result)
    to_blocks(result, out)


@kernel("nn.avg_pool2d_blocks")
def avg_pool2d_blocks(
    x: Floats,
    pool_size: Size2d,
    strides: Size2d,
    padding: Padding2d,
    dilation: Size2d,
    ceil_mode: Flag,
    count_include_pad: Flag,
    out: Out,
) -> None:
    """As `nn.avg_pool2d`, of images in blocks of channels: x and out[batch, blocks, height, width,
    16]."""
    _check_blocks("x", x)
    windows = Windows(
        x.shape[2:4], pool_size, strides, padding, dilation, ceil_mode=ceil_mode
    )
    check_out(out, x.dtype, (*x.shape[:2], *windows.count, BLOCK))
    result = np.empty((x.shape[0], x.shape[1] * BLOCK, *windows.count), x.dtype)
    planes = planes_of(x)
    avg_pool2d(
        planes, pool_size, strides, padding, dilation, ceil_mode, count_include_pad, result
    )
    to_blocks(result, out)


# Means and gates


@kernel("nn.mean_blocks")
def mean_blocks(x: Floats, out: Out) -> None:
    """out[batch, blocks, 1, 1, 16] = the mean of images in blocks of channels, x[batch, blocks,
    height, width, 16], over height and width."""
    _check_blocks("x", x)
    check_out(out, x.dtype, (*x.shape[:2], 1, 1, BLOCK))
    cut.mean(copy_if_overlapping(x, out), (2, 3), out)


@kernel("nn.gate_blocks", in_place=True)
def gate_blocks(x: Floats, gate: Floats, residual: Floats | None, out: OutLike) -> None:
    """out = x * gate + residual: images in blocks of channels, x[batch, blocks, height, width, 16],
    a number for each channel, gate[batch, blocks, 1, 1, 16], and images of the shape of x, or
    None."""
    _check_blocks("x", x)
    shape = (*x.shape[:2], 1, 1, BLOCK)
    if gate.shape != shape:
        raise WrongValue(f"gate: expected {list(shape)}, got {describe(gate)}")
    if residual is not None and residual.shape != x.shape:
        raise WrongValue(f"residual: expected the shape of x, got {describe(residual)}")
    if residual is not None:
        residual = copy_if_overlapping(residual, out)
    piecewise(np.multiply, out, x, gate)
    if residual is not None:
        piecewise(np.add, out, out, residual)


# Convolutions


def whole_blocks(x: NDArray[Any], *axes: int) -> NDArray[Any]:
    """x as float32 with zeros behind these axes, up to a multiple of 16."""
    widths = [(0, -x.shape[i] % BLOCK if i in axes else 0) for i in range(x.ndim)]
    return np.pad(np.asarray(x, np.float32), widths)


def pack_bias(bias: NDArray[Any]) -> NDArray[np.float32]:
    """A number for each output, with zeros up to a whole block."""
    return whole_blocks(bias.reshape(-1), 0)


def pack_direct(weight: NDArray[Any]) -> NDArray[np.float32]:
    """weight[outputs, inputs of a group, height, width] as [blocks of outputs, blocks of inputs,
    height, width, 16 inputs, 16 outputs]."""
    padded = whole_blocks(weight, 0, 1)
    outputs, inputs, tall, wide = padded.shape
    split = padded.reshape(outputs // BLOCK, BLOCK, inputs // BLOCK, BLOCK, tall, wide)
    return aligned_copy(split.transpose(0, 2, 4, 5, 3, 1))


def pack_planes(weight: NDArray[Any]) -> NDArray[np.float32]:
    """weight[outputs, inputs, height, width] as [blocks of outputs, inputs, height, width, 16]."""
    padded = whole_blocks(weight, 0)
    split = padded.reshape(-1, BLOCK, *weight.shape[1:])
    return np.ascontiguousarray(split.transpose(0, 2, 3, 4, 1))


def pack_depthwise(weight: NDArray[Any]) -> NDArray[np.float32]:
    """weight[channels, 1, height, width] as [blocks, height, width, 16]."""
    padded = whole_blocks(weight, 0)
    split = padded.reshape(-1, BLOCK, *weight.shape[2:])
    return np.ascontiguousarray(split.transpose(0, 2, 3, 1))


def pack_gathered(
    weight: NDArray[Any], groups: int, channels: NDArray[Any]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """weight[outputs, inputs of a group, height, width] for `nn.conv2d_gathered_blocks`.

    Args:
        channels: for each input of the convolution, its place among the channels of the image.

    Returns:
        The weights, and the channels of each block of outputs: those of all groups that the block
        has outputs of.
    """
    outputs, inputs, tall, wide = weight.shape
    of_group = outputs // groups
    blocks = [range(first, min(first + BLOCK, outputs)) for first in range(0, outputs, BLOCK)]
    found = [range(block[0] // of_group, block[-1] // of_group + 1) for block in blocks]
    places = max(map(len, found)) * inputs
    packed = np.zeros((len(blocks), places, tall, wide, BLOCK), np.float32)
    table = np.full((len(blocks), places), -1, np.int64)
    for number, (block, own) in enumerate(zip(blocks, found, strict=True)):
        for i, group in enumerate(own):
            here = slice(i * inputs, (i + 1) * inputs)
            table[number, here] = channels[group * inputs : (group + 1) * inputs]
            for output in block:
                if output // of_group == group:
                    packed[number, here, :, :, output - block[0]] = weight[output]
    return packed, table


def pack_winograd(weight: NDArray[Any]) -> NDArray[np.float32]:
    """weight[outputs, inputs, 3, 3], transformed, as [36, blocks of outputs, blocks of inputs, 16
    inputs, 16 outputs]: four times the memory."""
    padded = whole_blocks(weight, 0, 1)
    outputs, inputs = padded.shape[:2]
    packed = aligned_zeros(
        (_POINTS**2, outputs // BLOCK, inputs // BLOCK, BLOCK, BLOCK), np.float32
    )
    for block in range(outputs // BLOCK):
        part = padded[block * BLOCK : (block + 1) * BLOCK].astype(np.float64)
        points = _OF_WEIGHT @ part @ _OF_WEIGHT.T  # [16, inputs, 6, 6]
        packed[:, block] = points.reshape(BLOCK, -1, BLOCK, _POINTS**2).transpose(3, 1, 2, 0)
    return packed


def scale_outputs(
    weight: NDArray[Any], factors: NDArray[Any], kernel_name: str
) -> NDArray[np.float32]:
    """Packed weights whose outputs are multiplied by a number for each, as `pack_bias` gives them.

    Args:
        kernel_name: the kernel that the weights are packed for.
    """
    lines = factors.reshape(-1, BLOCK)
    axis = 1 if kernel_name == "nn.conv2d_winograd_blocks" else 0
    shape = [1] * weight.ndim
    shape[axis], shape[-1] = lines.shape
    return np.asarray(weight * lines.reshape(shape), np.float32)


@dataclass(frozen=True)
class _Finish:
    """What follows the sums of a convolution."""

    bias: NDArray[Any] | None
    residual: Images | None
    low: float | None
    high: float | None
    slope: NDArray[Any] | None
    function: str | None
    scale: float | None
    shift: float | None

    def write(self, result: Images, out: Images) -> None:
        """out = the sums result[batch, channels, height, width] in blocks, after what follows."""
        vectors: list[NDArray[Any] | None] = []
        for name, vector in (("bias", self.bias), ("slope", self.slope)):
            if vector is not None and vector.shape != (result.shape[1],):
                raise WrongValue(
                    f"{name}: expected {result.shape[1]} elements, got {describe(vector)}"
                )
            vectors.append(None if vector is None else copy_if_overlapping(vector, out))
        bias, slope = vectors
        residual = self.residual
        if residual is not None:
            if residual.shape != out.shape:
                raise WrongValue(f"residual: expected the shape of out, got {describe(residual)}")
            residual = copy_if_overlapping_differently(residual, out)
        for block in range(out.shape[1]):
            channels = slice(block * BLOCK, (block + 1) * BLOCK)
            part = result[:, channels].transpose(0, 2, 3, 1)
            if bias is not None:
                part = part + bias[channels]
            if residual is not None:
                part = part + residual[:, block]
            if self.low is not None:
                part = np.maximum(part, np.float32(self.low))
            if self.high is not None:
                part = np.minimum(part, np.float32(self.high))
            if slope is not None:
                part = np.where(part < 0, part * slope[channels], part)
            if self.function is not None:
                part = np.ascontiguousarray(part)
                apply_function(self.function, part, part)
            if self.scale is not None:
                part = part * np.float32(self.scale)
            if self.shift is not None:
                part = part + np.float32(self.shift)
            copy_pieces(out[:, block], part)


@kernel("nn.conv2d_blocks")
def conv2d_blocks(
    x: Floats,
    weight: Floats,
    bias: Floats | None,
    residual: Floats | None,
    strides: Step2d,
    padding: Padding2d,
    dilation: Step2d,
    groups: Groups,
    low: Float | None,
    high: Float | None,
    slope: Floats | None,
    function: Function | None,
    scale: Float | None,
    shift: Float | None,
    out: Out,
) -> None:
    """out = `nn.conv2d` of images in blocks of channels, x[batch, blocks, height, width, 16], or of
    images x[batch, channels, height, width] with few channels; plus bias, a number for each output,
    plus residual, of the shape of out; then at least low and at most high, where NaN stays NaN;
    then, where negative, times slope, a number for each output; then a function, as of `nn.apply`;
    then times scale, plus shift.  out[batch, blocks, height, width, 16].  weight[blocks of outputs,
    blocks of inputs of a group, height, width, 16 inputs, 16 outputs], or of images that are not in
    blocks [blocks of outputs, channels, height, width, 16].  float32.  The reference uses memory
    for its operands in another layout."""
    if weight.ndim == 6:
        _check_blocks("x", x)
        planes = planes_of(x)
        outputs, inputs, tall, wide = weight.shape[:4]
        plain = weight.transpose(0, 5, 1, 4, 2, 3).reshape(
            outputs * weight.shape[5], inputs * weight.shape[4], tall, wide
        )
    else:
        if weight.ndim != 5 or x.ndim != 4:
            raise WrongValue(
                f"expected x[batch, blocks, height, width, 16] and weights of 6 dimensions, or "
                f"x[batch, channels, height, width] and weights of 5, got x {describe(x)}, weight "
                f"{describe(weight)}"
            )
        planes = x
        plain = weight.transpose(0, 4, 1, 2, 3).reshape(-1, *weight.shape[1:4])
    finish = _Finish(bias, residual, low, high, slope, function, scale, shift)
    _convolve(planes, plain, (strides, padding, dilation), groups, finish, out)


@kernel("nn.conv2d_gathered_blocks")
def conv2d_gathered_blocks(
    x: Floats,
    weight: Floats,
    bias: Floats | None,
    residual: Floats | None,
    channels: Integers,
    strides: Step2d,
    padding: Padding2d,
    dilation: Step2d,
    groups: Groups,
    low: Float | None,
    high: Float | None,
    slope: Floats | None,
    function: Function | None,
    scale: Float | None,
    shift: Float | None,
    out: Out,
) -> None:
    """As `nn.conv2d_blocks`, of some channels of x for each block of outputs:
    channels[blocks of outputs, places] are their indices, up to the first negative one, of int64;
    weight[blocks of outputs, places, height, width, 16].  groups: 1."""
    _check_blocks("x", x)
    if weight.ndim != 5 or weight.shape[4] != BLOCK or channels.shape != weight.shape[:2]:
        raise WrongValue(
            f"expected weight[blocks, places, height, width, {BLOCK}] and channels[blocks, "
            f"places], got weight {describe(weight)}, channels {describe(channels)}"
        )
    if native(channels.dtype) != np.int64:
        raise WrongType(f"channels: expected int64, got {channels.dtype}")
    _check_one_group(groups)
    windows = Windows(x.shape[2:4], weight.shape[2:4], strides, padding, dilation)
    batch, outputs = len(x), len(weight)
    check_out(out, FLOAT32, (batch, outputs, *windows.count, BLOCK))
    places = channels.astype(np.int64)  # a copy: another thread may change them
    used = np.cumprod(places >= 0, axis=1, dtype=bool)
    if (places[used] >= x.shape[1] * BLOCK).any():
        raise WrongValue(
            f"channels: expected at most {x.shape[1] * BLOCK - 1}, got {places[used].max()}"
        )
    planes = planes_of(x)
    result = np.zeros((batch, outputs * BLOCK, *windows.count), np.float32)
    for block in range(outputs):
        own = places[block][used[block]]
        if own.size:
            plain = weight[block, : own.size].transpose(3, 0, 1, 2)
            part = result[:, block * BLOCK : (block + 1) * BLOCK]
            convolve(planes[:, own], plain, windows, 1, part)
    _Finish(bias, residual, low, high, slope, function, scale, shift).write(result, out)


@kernel("nn.conv2d_depthwise_blocks")
def conv2d_depthwise_blocks(
    x: Floats,
    weight: Floats,
    bias: Floats | None,
    residual: Floats | None,
    strides: Step2d,
    padding: Padding2d,
    dilation: Step2d,
    groups: Groups,
    low: Float | None,
    high: Float | None,
    slope: Floats | None,
    function: Function | None,
    scale: Float | None,
    shift: Float | None,
    out: Out,
) -> None:
    """As `nn.conv2d_blocks`, with a window for each channel: weight[blocks, height, width, 16].
    groups: 1."""
    _check_blocks("x", x)
    if weight.ndim != 4 or weight.shape[3] != BLOCK or weight.shape[0] != x.shape[1]:
        raise WrongValue(
            f"weight: expected [{x.shape[1]}, height, width, {BLOCK}], got {describe(weight)}"
        )
    _check_one_group(groups)
    plain = weight.transpose(0, 3, 1, 2).reshape(-1, 1, *weight.shape[1:3])
    finish = _Finish(bias, residual, low, high, slope, function, scale, shift)
    _convolve(planes_of(x), plain, (strides, padding, dilation), len(plain), finish, out)


@kernel("nn.conv2d_winograd_blocks")
def conv2d_winograd_blocks(
    x: Floats,
    weight: Floats,
    bias: Floats | None,
    residual: Floats | None,
    strides: Step2d,
    padding: Padding2d,
    dilation: Step2d,
    groups: Groups,
    low: Float | None,
    high: Float | None,
    slope: Floats | None,
    function: Function | None,
    scale: Float | None,
    shift: Float | None,
    out: Out,
) -> None:
    """As `nn.conv2d_blocks`, of windows 3 x 3 whose weights are transformed by F(4x4, 3x3) (Lavin
    and Gray, 2016): weight[36, blocks of outputs, blocks of inputs, 16 inputs, 16 outputs].
    strides, dilation and groups: 1.  A result differs from the sum of products by at most some
    1e-5 of the root mean square of all results."""
    _check_blocks("x", x)
    if weight.ndim != 5 or weight.shape[0] != _POINTS**2 or weight.shape[3:] != (BLOCK, BLOCK):
        raise WrongValue(
            f"weight: expected [36, blocks, blocks, {BLOCK}, {BLOCK}], got {describe(weight)}"
        )
    _check_one_group(groups)
    if {*strides, *dilation} != {1} or weight.shape[2] != x.shape[1]:
        raise WrongValue(
            f"expected strides and dilation 1, and x of {weight.shape[2]} blocks, got x "
            f"{describe(x)}, strides {list(strides)}, dilation {list(dilation)}"
        )
    windows = Windows(x.shape[2:4], (3, 3), strides, padding, dilation)
    batch, outputs = x.shape[0], weight.shape[1]
    check_out(out, FLOAT32, (batch, outputs, *windows.count, BLOCK))
    result = np.empty((batch, outputs * BLOCK, *windows.count), np.float32)
    matrices = np.ascontiguousarray(weight.transpose(0, 1, 4, 2, 3))
    matrices = matrices.reshape(_POINTS**2, outputs * BLOCK, -1)
    for image, written in zip(planes_of(x), result, strict=True):
        _winograd(image, matrices, padding, written)
    _Finish(bias, residual, low, high, slope, function, scale, shift).write(result, out)


def _check_one_group(groups: int) -> None:
    if groups != 1:
        raise WrongValue(f"groups: expected 1, got {groups}")


def _winograd(image: Images, matrices: NDArray[Any], padding: Dims, out: Images) -> None:
    """out[outputs, rows, columns] = the convolution of image[inputs, height, width]."""
    rows, columns = out.shape[1:]
    down, across = -(-rows // _RESULTS), -(-columns // _RESULTS)
    top, left = padding[:2]
    padded = np.zeros((image.shape[0], down * _RESULTS + 2, across * _RESULTS + 2), np.float32)
    height, width = padded.shape[1] - top, padded.shape[2] - left
    part = image[:, :height, :width]
    copy_pieces(padded[:, top : top + part.shape[1], left : left + part.shape[2]], part)
    of_image, back = _OF_IMAGE.astype(np.float32), _BACK.astype(np.float32)
    inputs, outputs = len(image), len(out)
    for y in range(down):
        strip = padded[:, y * _RESULTS : y * _RESULTS + _POINTS]
        tiles = sliding_window_view(strip, _POINTS, 2)[:, :, ::_RESULTS].transpose(0, 2, 1, 3)
        lines = np.empty((_POINTS**2, inputs, across), np.float32)
        for some, at in _tiles(inputs, across):
            points = of_image @ tiles[some, at] @ of_image.T  # [inputs, tiles, 6, 6]
            lines[:, some, at] = points.reshape(*points.shape[:2], -1).transpose(2, 0, 1)
        products = np.empty((_POINTS**2, outputs, across), np.float32)
        multiply(matrices, lines, products)
        here = out[:, y * _RESULTS : (y + 1) * _RESULTS]
        for some, at in _tiles(outputs, across):
            sums = products[:, some, at].transpose(1, 2, 0)
            sums = sums.reshape(*sums.shape[:2], _POINTS, _POINTS)
            found = (back @ sums @ back.T).transpose(0, 2, 1, 3)  # [outputs, 4, tiles, 4]
            found = found.reshape(*found.shape[:2], -1)
            written = here[some, :, at.start * _RESULTS : at.stop * _RESULTS]
            written[...] = found[:, : written.shape[1], : written.shape[2]]


def _tiles(channels: int, across: int) -> Iterator[tuple[slice, slice]]:
    """Parts of some channels and some tiles of a row of tiles; the time limit is checked after each
    one."""
    wide = min(across, _MOST_TILES)
    tall = _MOST_TILES // wide
    for channel in range(0, channels, tall):
        for tile in range(0, across, wide):
            yield (
                slice(channel, min(channel + tall, channels)),
                slice(tile, min(tile + wide, across)),
            )
            check_time()


def _convolve(
    planes: Images,
    weight: NDArray[Any],
    settings: tuple[Dims, Dims, Dims],
    groups: int,
    finish: _Finish,
    out: Images,
) -> None:
    strides, padding, dilation = settings
    inputs = planes.shape[1]
    is_depthwise = groups == len(weight)
    are_whole = is_depthwise or not len(weight) % (BLOCK * groups)
    if weight.shape[1] * groups != inputs or not are_whole:
        raise WrongValue(
            f"expected weights for {inputs} channels in {groups} groups of whole blocks, got "
            f"{weight.shape[1]} inputs and {weight.shape[0]} outputs"
        )
    windows = Windows(planes.shape[2:], weight.shape[2:], strides, padding, dilation)
    shape = (len(planes), weight.shape[0], *windows.count)
    check_out(out, FLOAT32, (len(planes), len(weight) // BLOCK, *windows.count, BLOCK))
    result = np.empty(shape, np.float32)
    convolve(planes, weight, windows, groups, result)
    finish.write(result, out)
