"""Losses of classes, normalizations that few models have, and channels that become pixels."""

from __future__ import annotations

from typing import Any

from ....ir import Expr, IntImm, TensorType
from ...common.values import Value
from ..graph import Graph, Problem
from ..registry import onnx
from .elementwise import scalar
from .ranks import as_image
from .windows import spatial_axes

__all__: list[str] = []

_NO_CLASS = -(1 << 62)
"""An `ignore_index` that no target has."""


@onnx("NegativeLogLikelihoodLoss", since=12)
def nll_loss(
    g: Graph,
    x: Value,
    target: Value,
    weight: Value | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Expr:
    """R.nn.nll_loss."""
    weights = () if weight is None else (weight,)
    index = _NO_CLASS if ignore_index is None else ignore_index
    return g.op("nn.nll_loss", x, target, *weights, reduction=reduction, ignore_index=index)


@onnx("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy(
    g: Graph,
    scores: Value,
    labels: Value,
    weights: Value | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:
    """R.nn.nll_loss of R.nn.log_softmax; the latter is the second result."""
    logarithms = Value(g.op("nn.log_softmax", scores, 1))
    loss = nll_loss(g, logarithms, labels, weights, ignore_index=ignore_index, reduction=reduction)
    return loss, logarithms


# Normalizations


@onnx("GroupNormalization", since=21)
def group_norm(
    g: Graph,
    x: Value,
    scale: Value,
    bias: Value,
    *,
    epsilon: float = 1e-5,
    num_groups: int,
    stash_type: int = 1,
) -> Expr:
    """R.nn.group_norm."""
    if x.ndim < 0:
        return as_image(g, x, lambda image: group_norm(
            g, image, scale, bias, epsilon=epsilon, num_groups=num_groups, stash_type=stash_type
        ))  # fmt: skip
    axes = list(range(2, spatial_axes(x, "x") + 2))
    return g.op("nn.group_norm", x, scale, bias, num_groups, 1, axes, epsilon)


@onnx("GroupNormalization", since=18)
def group_norm_of_groups(
    g: Graph, x: Value, scale: Value, bias: Value, *, epsilon: float = 1e-5, num_groups: int
) -> Expr:
    """R.nn.group_norm; the channels of a group share a factor and an offset."""
    if x.ndim < 0:
        return as_image(g, x, lambda image: group_norm_of_groups(
            g, image, scale, bias, epsilon=epsilon, num_groups=num_groups
        ))  # fmt: skip
    dims = g.named_dims(x, spatial_axes(x, "x") + 2)
    assert dims is not None, "the rank is known"
    channels = dims[1]
    if num_groups < 1 or (isinstance(channels, IntImm) and channels.value % num_groups):
        raise Problem(f"num_groups: expected a divisor of {channels}, got {num_groups}")
    wide = []
    for each in (scale, bias):
        column = g.op("reshape", each, (num_groups, 1))
        both = g.op("broadcast_to", column, (num_groups, channels // num_groups))
        wide.append(g.op("reshape", both, (-1,)))
    if not isinstance(channels, IntImm):
        ty = TensorType([channels], x.dtype)
        wide = [g.context.builder.match_cast(each, ty) for each in wide]
    factor, offset = map(Value, wide)
    return group_norm(g, x, factor, offset, epsilon=epsilon, num_groups=num_groups)


@onnx("LpNormalization", since=1)
def lp_norm(g: Graph, x: Value, *, axis: int = -1, p: int = 2) -> Expr:
    """x / the norm of x along an axis; 0 where that is 0."""
    if p not in (1, 2):
        raise Problem(f"p: expected 1 or 2, got {p}")
    total: Any = g.op("abs", x) if p == 1 else g.op("multiply", x, x)
    norm: Any = g.op("sum", total, axis, True)
    if p == 2:
        norm = g.op("sqrt", norm)
    is_zero = g.op("equal", norm, scalar(g, 0, x))
    divisor = g.op("where", is_zero, scalar(g, 1, x), norm)
    return g.op("where", is_zero, scalar(g, 0, x), g.op("divide", x, divisor))


# Channels and pixels


def _pixels(x: Value, mode: str, blocksize: int) -> tuple[Any, Any, Any, Any]:
    if x.dims is None or x.ndim != 4:
        raise Problem(f"x: expected a tensor of rank 4 and known shape, got {x.type}")
    if mode not in ("DCR", "CRD"):
        raise Problem(f"mode: {mode!r} is not a mode")
    if blocksize < 1:
        raise Problem(f"blocksize: expected at least 1, got {blocksize}")
    batch, channels, height, width = x.dims
    return batch, channels, height, width


@onnx("DepthToSpace", since=1)
def depth_to_space(g: Graph, x: Value, *, blocksize: int, mode: str = "DCR") -> Expr:
    """R.nn.pixel_shuffle, of channels that are rearranged for mode "DCR"."""
    if mode == "DCR" and blocksize > 1:
        batch, channels, height, width = _named(g, x, mode, blocksize)
        area = blocksize * blocksize
        parts = g.op("reshape", x, [batch, area, channels // area, height, width])
        moved = g.op("permute_dims", parts, [0, 2, 1, 3, 4])
        x = Value(g.op("reshape", moved, [batch, channels, height, width]))
    elif mode not in ("DCR", "CRD"):
        raise Problem(f"mode: {mode!r} is not a mode")
    return g.op("nn.pixel_shuffle", x, blocksize)


@onnx("SpaceToDepth", since=1)
def space_to_depth(g: Graph, x: Value, *, blocksize: int, mode: str = "DCR") -> Expr:
    """R.nn.pixel_unshuffle, whose channels are rearranged for mode "DCR"."""
    found = g.op("nn.pixel_unshuffle", x, blocksize)
    if mode == "CRD" or blocksize == 1:
        return found
    batch, channels, height, width = _named(g, Value(found), mode, blocksize)
    area = blocksize * blocksize
    parts = g.op("reshape", found, [batch, channels // area, area, height, width])
    moved = g.op("permute_dims", parts, [0, 2, 1, 3, 4])
    return g.op("reshape", moved, [batch, channels, height, width])


def _named(g: Graph, x: Value, mode: str, blocksize: int) -> tuple[Any, Any, Any, Any]:
    """The dimensions of x; those that only the run knows get names."""
    if g.named_dims(x, 4) is None:
        raise Problem(f"x: expected a tensor of rank 4, got {x.type}")
    return _pixels(x, mode, blocksize)
