"""Rearranging the elements of batches and of channels."""

from __future__ import annotations

import math
from typing import Any

from ...ir.arith import simplify
from ...ir.expr import Call, Expr, TensorType, Type
from ..kinds import IllValued
from ..manipulate import reshape
from ..registry import Unsupported, operator
from ..rules import like, need_divisor

__all__ = ["batch_flatten", "pixel_shuffle", "pixel_unshuffle"]


def _lower_batch_flatten(builder: Any, call: Call) -> Expr:
    data = call.args[0]
    if call.ty.dims is None:
        return call
    found: Expr = reshape(data, list(call.ty.dims))
    return found


def _flatten_result(call: Call) -> tuple[str, list[Any]]:
    return "flatten", [call.args[0], 1]


@operator("nn.batch_flatten", lower=_lower_batch_flatten, returns=_flatten_result)
def batch_flatten(data: TensorType) -> Type:
    """A matrix with a row for each index of the first axis of data."""
    if data.ndim in (0, 1):
        raise IllValued(f"data: expected a tensor of rank 2 or more, got {data}")
    if data.dims is None:
        return like(data, None, ndim=2)
    return like(data, [data.dims[0], math.prod(data.dims[1:])])


_MOVES = Unsupported("The kernel copies elements in one pass.")


def _check_pixels(data: TensorType, name: str, factor: int) -> None:
    if data.ndim in (0, 1, 2):
        raise IllValued(f"data: expected a tensor of rank 3 or more, got {data}")
    if factor < 1:
        raise IllValued(f"{name}: expected at least 1, got {factor}")


@operator("nn.pixel_shuffle", loops=_MOVES)
def pixel_shuffle(data: TensorType, upscale_factor: int) -> Type:
    """Images with more pixels and fewer channels: of data[..., channels, height, width], each pixel
    becomes a square of `upscale_factor` ** 2, one of each of as many consecutive channels."""
    _check_pixels(data, "upscale_factor", upscale_factor)
    if data.dims is None:
        return like(data, None, ndim=data.ndim)
    *batch, channels, height, width = data.dims
    area = upscale_factor * upscale_factor
    need_divisor("upscale_factor ** 2", area, channels, "channels")
    sides = [simplify(dim * upscale_factor) for dim in (height, width)]
    return like(data, [*batch, simplify(channels // area), *sides])


@operator("nn.pixel_unshuffle", loops=_MOVES)
def pixel_unshuffle(data: TensorType, downscale_factor: int) -> Type:
    """The inverse of `nn.pixel_shuffle`: squares of pixels become channels."""
    _check_pixels(data, "downscale_factor", downscale_factor)
    if data.dims is None:
        return like(data, None, ndim=data.ndim)
    *batch, channels, height, width = data.dims
    for name, dim in (("rows", height), ("columns", width)):
        need_divisor("downscale_factor", downscale_factor, dim, name)
    deep = simplify(channels * (downscale_factor * downscale_factor))
    sides = [simplify(dim // downscale_factor) for dim in (height, width)]
    return like(data, [*batch, deep, *sides])
