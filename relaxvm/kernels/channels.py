"""Networks: what is done for each channel, losses of classes, and rearranging of channels."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import numpy as np

from ..messages import describe
from ..pieces.cut import copy_pieces, pieces
from ._arrays import copy_if_overlapping
from ._kernel import kernel
from .checks import WrongType, WrongValue, check_out, native, working_dtype
from .kinds import Axis, Floats, Int, Integers, Numbers, Out, OutLike, Tensor, a_choice, an_int

__all__: list[str] = []

Factor: TypeAlias = Annotated[int, an_int(least=1)]
Reduction: TypeAlias = Annotated[str, a_choice("none", "sum", "mean")]


@kernel("nn.prelu")
def prelu(x: Floats, alpha: Floats, axis: Axis, out: OutLike) -> None:
    """out = x where it is positive, else x * alpha.  alpha has an element for each index of axis,
    or one; both are floats of one data type."""
    if alpha.ndim != 1 or len(alpha) not in (1, x.shape[axis]):
        raise WrongValue(
            f"alpha: expected 1 element, or the {x.shape[axis]} of axis {axis}, got "
            f"{describe(alpha)}"
        )
    factors = copy_if_overlapping(alpha, out).reshape(-1, *[1] * (x.ndim - axis - 1))
    factors = np.broadcast_to(factors, x.shape)
    for result, elements, factor in pieces(out, copy_if_overlapping(x, out), factors):
        scaled = np.multiply(elements, factor)
        np.copyto(result, np.where(elements > 0, elements, scaled))


@kernel("nn.nll_loss")
def nll_loss(
    predictions: Numbers,
    targets: Integers,
    weights: Numbers | None,
    reduction: Reduction,
    ignore_index: Int,
    out: Out,
) -> None:
    """out = minus the prediction of the class that targets say, times its weight.
    predictions[batch, classes, ...], the logarithms of probabilities; targets[batch, ...] of
    integers; or predictions[classes] and one target; weights[classes], or None for ones.
    reduction: "none", or "sum" for the sum, or "mean" for the sum divided by that of the weights.
    Targets that are ignore_index have the loss 0 and no weight.  predictions and weights are of one
    data type; the sum of integers wraps around, and is divided towards 0."""
    ndim = predictions.ndim
    axis = 0 if ndim == 1 else 1
    if ndim < 1 or targets.shape != predictions.shape[:axis] + predictions.shape[axis + 1 :]:
        raise WrongValue(
            f"expected predictions[batch, classes, ...] and targets[batch, ...], got predictions "
            f"{describe(predictions)}, targets {describe(targets)}"
        )
    classes = predictions.shape[axis]
    if weights is not None and weights.shape != (classes,):
        raise WrongValue(f"weights: expected {classes} elements, got {describe(weights)}")
    dtype = native(predictions.dtype)
    if weights is not None and native(weights.dtype) != dtype:
        raise WrongType(f"weights: expected {dtype}, as predictions, got {describe(weights)}")
    check_out(out, dtype, targets.shape if reduction == "none" else ())
    is_integer = dtype.kind in "iu"
    working = np.dtype(np.int64) if is_integer else working_dtype(dtype)
    rows = np.moveaxis(copy_if_overlapping(predictions, out), axis, -1)
    targets = copy_if_overlapping(targets, out)
    factors = None if weights is None else weights.astype(working)
    total: Any = 0 if is_integer else 0.0
    count: Any = total
    sums = np.int64 if is_integer else np.float64
    losses = out if reduction == "none" else targets
    for at, row, loss in pieces(targets, rows, losses):
        kept = at != ignore_index
        index = np.where(kept, at, 0)
        if kept.any() and (index.min() < 0 or index.max() >= classes):
            raise WrongValue(
                f"targets: expected classes in 0 to {classes - 1}, or {ignore_index}, got "
                f"{int(at[kept].min())} to {int(at[kept].max())}"
            )
        if not classes:
            part = np.zeros(at.shape, working)
        else:
            index = index.astype(np.intp)
            part = np.take_along_axis(row, index[..., None], -1)[..., 0].astype(working)
        np.negative(part, out=part)
        weight = kept.astype(working) if factors is None else kept * factors[index]
        part = np.where(kept, part * weight, part.dtype.type(0))
        if reduction == "none":
            np.copyto(loss, part, casting="unsafe" if is_integer else "same_kind")
        else:
            total += part.sum(dtype=sums).item()
            count += weight.sum(dtype=sums).item()
    if reduction == "none":
        return
    if is_integer:
        if reduction == "mean" and count == 0:
            raise WrongValue("the weights of the targets add up to 0")
        found = total if reduction == "sum" else abs(total) // abs(count)
        if reduction == "mean" and (total < 0) != (count < 0):
            found = -found
        np.copyto(out, np.array(found % 2**64, np.uint64), casting="unsafe")
        return
    mean = np.float64(total) / np.float64(count) if reduction == "mean" else np.float64(total)
    np.copyto(out, mean, casting="same_kind")


@kernel("nn.pixel_shuffle")
def pixel_shuffle(x: Tensor, upscale_factor: Factor, out: Out) -> None:
    """out = x[..., channels, height, width] with squares of pixels in place of channels:
    upscale_factor ** 2 consecutive channels become one that is upscale_factor times as high and
    wide."""
    f = upscale_factor
    if x.ndim < 3 or x.shape[-3] % (f * f):
        raise WrongValue(
            f"x: expected [..., channels, height, width] with channels a multiple of {f * f}, got "
            f"{describe(x)}"
        )
    *batch, channels, height, width = x.shape
    check_out(out, native(x.dtype), (*batch, channels // (f * f), height * f, width * f))
    x = copy_if_overlapping(x, out)
    squares = x.reshape(*batch, channels // (f * f), f, f, height, width)
    first = len(batch)
    order = (*range(first), first, first + 3, first + 1, first + 4, first + 2)
    pixels = out.reshape(*batch, channels // (f * f), height, f, width, f)
    copy_pieces(pixels, squares.transpose(order))


@kernel("nn.pixel_unshuffle")
def pixel_unshuffle(x: Tensor, downscale_factor: Factor, out: Out) -> None:
    """The inverse of `nn.pixel_shuffle`: squares of downscale_factor ** 2 pixels of x[...,
    channels, height, width] become channels."""
    f = downscale_factor
    if x.ndim < 3 or x.shape[-2] % f or x.shape[-1] % f:
        raise WrongValue(
            f"x: expected [..., channels, height, width] with height and width multiples of {f}, "
            f"got {describe(x)}"
        )
    *batch, channels, height, width = x.shape
    check_out(out, native(x.dtype), (*batch, channels * f * f, height // f, width // f))
    x = copy_if_overlapping(x, out)
    pixels = x.reshape(*batch, channels, height // f, f, width // f, f)
    first = len(batch)
    order = (*range(first), first, first + 2, first + 4, first + 1, first + 3)
    squares = out.reshape(*batch, channels, f, f, height // f, width // f)
    copy_pieces(squares, pixels.transpose(order))
