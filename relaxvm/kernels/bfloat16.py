"""Products and convolutions of float32 with weights of 16 bits, which take half the memory.

Those of bfloat16 are bits, in uint16, so that programs need no package for the data type.  Where
the processor has instructions for products of such numbers (AMX, AVX512_BF16), x is rounded to
bfloat16, too, but for products of up to three rows; elsewhere, and by the references, it is not.
Results of processors differ by that.  Sums are float32.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ._arrays import aligned_copy
from ._functions import Function
from ._kernel import kernel
from .blocks import BLOCK, conv2d_blocks
from .checks import WrongType, WrongValue, native
from .convolution import Groups, Padding2d, Step2d
from .kinds import Flag, Float, Floats, Integers, Out, Tensor
from .linear import linear_blocks

__all__ = ["bits_of", "narrowed_blocks", "pack_convolution", "pack_halves", "pack_matrix",
           "widened"]  # fmt: skip

LINE: Final = 32
"""Elements of a row, or channels of a pixel, of which the pairs are side by side."""

_PAIRS: Final = LINE // 2


def bits_of(x: NDArray[Any]) -> NDArray[np.uint16]:
    """float32 as bits of bfloat16, rounded to the nearest even number."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    halves = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    nans = np.isnan(x)
    if nans.any():
        halves[nans] = (bits[nans] >> 16 | 0x40).astype(np.uint16)
    return halves


def widened(bits: NDArray[Any]) -> NDArray[np.float32]:
    """Bits of bfloat16 as float32."""
    return (np.ascontiguousarray(bits).astype(np.uint32) << 16).view(np.float32)


def pack_matrix(weight: NDArray[Any]) -> NDArray[np.uint16]:
    """weight[inputs, outputs] in float32 as bits of bfloat16 [blocks of outputs, lines of 32
    inputs, 16 pairs, 16 outputs, 2], with zeros in the last block and line."""
    inputs, outputs = weight.shape
    padded = np.zeros((-(-inputs // LINE) * LINE, -(-outputs // BLOCK) * BLOCK), np.uint16)
    padded[:inputs, :outputs] = bits_of(weight)
    split = padded.reshape(-1, _PAIRS, 2, padded.shape[1] // BLOCK, BLOCK)
    return aligned_copy(split.transpose(3, 0, 1, 4, 2))


def pack_halves(weight: NDArray[Any]) -> NDArray[np.float16]:
    """weight[inputs, outputs] in float16 as [blocks of outputs, lines of 32 inputs, 16 pairs, 2, 16
    outputs], with zeros in the last block and line."""
    inputs, outputs = weight.shape
    padded = np.zeros((-(-inputs // LINE) * LINE, -(-outputs // BLOCK) * BLOCK), np.float16)
    padded[:inputs, :outputs] = weight
    split = padded.reshape(-1, _PAIRS, 2, padded.shape[1] // BLOCK, BLOCK)
    return aligned_copy(split.transpose(3, 0, 1, 2, 4))


def pack_convolution(weight: NDArray[Any]) -> NDArray[np.uint16]:
    """weight[outputs, inputs of a group, height, width] in float32 as bits of bfloat16 [blocks of
    outputs, pairs of blocks of inputs, height, width, 16 pairs, 16 outputs, 2]."""
    outputs, inputs, tall, wide = weight.shape
    shape = -(-outputs // BLOCK) * BLOCK, -(-inputs // LINE) * LINE, tall, wide
    padded = np.zeros(shape, np.uint16)
    padded[:outputs, :inputs] = bits_of(weight)
    split = padded.reshape(-1, BLOCK, shape[1] // LINE, _PAIRS, 2, tall, wide)
    return aligned_copy(split.transpose(0, 2, 5, 6, 3, 1, 4))


def narrowed_blocks(packed: NDArray[Any]) -> NDArray[np.uint16]:
    """Weights that `blocks.pack_direct` has packed, as `pack_convolution` does."""
    bits = bits_of(packed)
    if bits.shape[1] % 2:
        bits = np.concatenate([bits, np.zeros_like(bits[:, :1])], 1)
    outputs, inputs, tall, wide = bits.shape[:4]
    split = bits.reshape(outputs, inputs // 2, 2, tall, wide, BLOCK // 2, 2, BLOCK)
    moved = split.transpose(0, 1, 3, 4, 2, 5, 7, 6)
    return np.ascontiguousarray(
        moved.reshape(outputs, inputs // 2, tall, wide, _PAIRS, BLOCK, 2)
    )


def _check_weight(weight: NDArray[Any], ndim: int) -> None:
    if native(weight.dtype) != np.uint16:
        raise WrongType(f"weight: expected bits of bfloat16 in uint16, got {describe(weight)}")
    if weight.ndim != ndim or weight.shape[-3:] != (_PAIRS, BLOCK, 2):
        raise WrongValue(
            f"weight: expected {ndim} dimensions, the last of them {[_PAIRS, BLOCK, 2]}, got "
            f"{describe(weight)}"
        )


@kernel("nn.linear_bfloat16")
def linear_bfloat16(
    x: Floats,
    weight: Integers,
    bias: Floats | None,
    residual: Floats | None,
    function: Function | None,
    rounds: Flag,
    out: Out,
) -> None:
    """As `nn.linear_blocks`, with weights in bfloat16: weight[blocks of outputs, lines of 32
    inputs, 16 pairs, 16 outputs, 2], bits in uint16.  rounds: whether x may be rounded to bfloat16;
    with more than three rows it is, where the processor has instructions for such products."""
    del rounds  # the reference does not
    _check_weight(weight, 5)
    blocks, lines = weight.shape[:2]
    terms = x.shape[-1] if x.ndim else 0
    if -(-terms // LINE) != lines:
        raise WrongValue(f"weight: expected lines for {terms} inputs, got {describe(weight)}")
    plain = widened(weight).transpose(0, 1, 2, 4, 3).reshape(blocks, lines * LINE, BLOCK)
    linear_blocks(x, plain[:, :terms], bias, residual, function, out)


@kernel("nn.linear_float16")
def linear_float16(
    x: Floats,
    weight: Tensor,
    bias: Floats | None,
    residual: Floats | None,
    function: Function | None,
    out: Out,
) -> None:
    """As `nn.linear_blocks`, with weights in float16: weight[blocks of outputs, lines of 32 inputs,
    16 pairs, 2, 16 outputs].  x is not rounded."""
    if native(weight.dtype) != np.float16:
        raise WrongType(f"weight: expected float16, got {describe(weight)}")
    lines = -(-(x.shape[-1] if x.ndim else 0) // LINE)
    if weight.ndim != 5 or weight.shape[1:] != (lines, _PAIRS, 2, BLOCK):
        raise WrongValue(
            f"weight: expected [blocks, {lines}, {_PAIRS}, 2, {BLOCK}], got {describe(weight)}"
        )
    plain = weight.astype(np.float32).reshape(len(weight), lines * LINE, BLOCK)
    linear_blocks(x, plain[:, : x.shape[-1]], bias, residual, function, out)


@kernel("nn.conv2d_bfloat16")
def conv2d_bfloat16(
    x: Floats,
    weight: Integers,
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
    """As `nn.conv2d_blocks`, of images in blocks of channels, with weights in bfloat16:
    weight[blocks of outputs, pairs of blocks of inputs of a group, height, width, 16 pairs, 16
    outputs, 2], bits in uint16.  x is rounded to bfloat16 where the processor has instructions for
    such products."""
    _check_weight(weight, 7)
    outputs, pairs, tall, wide = weight.shape[:4]
    inputs = x.shape[1] // groups if x.ndim == 5 else 0
    if -(-inputs // 2) != pairs:
        raise WrongValue(
            f"weight: expected pairs of blocks for {inputs} blocks of a group, got "
            f"{describe(weight)}"
        )
    split = widened(weight).transpose(0, 1, 4, 6, 2, 3, 5)
    split = split.reshape(outputs, 2 * pairs, BLOCK, tall, wide, BLOCK).transpose(0, 1, 3, 4, 2, 5)
    conv2d_blocks(
        x, split[:, :inputs], bias, residual, strides, padding, dilation, groups, low, high, slope,
        function, scale, shift, out,
    )  # fmt: skip
