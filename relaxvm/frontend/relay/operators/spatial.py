"""Operators of images, signals and volumes that relaxvm's operators can be combined to."""

from __future__ import annotations

from typing import Any

from .... import op
from ....ir import Expr, Tuple
from .nn import pool2d
from .operands import axis_of, dims_of, dtype_of, integers_of, items_of, rank_of, scalar_like
from .table import Make, relay

__all__: list[str] = []


def _positions(x: Expr, layout: str, spatial: str, out_layout: str | None) -> list[int]:
    """The axes of the dimensions that are not N and C."""
    if out_layout and out_layout != layout:
        raise ValueError(f"out_layout: expected {layout!r}, got {out_layout!r}")
    if sorted(layout) != sorted(f"NC{spatial}") or rank_of(x) != len(layout):
        raise ValueError(f"layout: expected an order of the letters NC{spatial}, got {layout!r} "
                         f"for a tensor of rank {rank_of(x)}")  # fmt: skip
    return [layout.index(letter) for letter in spatial]


# Pooling


def _whole(reduce: Make, spatial: str) -> Make:
    def make(x: Expr, *, layout: str = f"NC{spatial}", out_layout: str | None = "") -> Any:
        return reduce(x, _positions(x, layout, spatial, out_layout), True)

    return make


for _rank, _letters in ((1, "W"), (3, "DHW")):
    relay(f"nn.global_avg_pool{_rank}d")(_whole(op.mean, _letters))
    relay(f"nn.global_max_pool{_rank}d")(_whole(op.max, _letters))


def _one(value: Any, what: str, other: int) -> list[int]:
    """An attribute of a pooling of one dimension, with one more dimension before it."""
    numbers = integers_of(value, what)
    if what == "padding":
        numbers = numbers * 2 if len(numbers) == 1 else numbers
        if len(numbers) == 2:
            return [other, numbers[0], other, numbers[1]]
    elif len(numbers) == 1:
        return [other, *numbers]
    raise ValueError(f"{what}: expected numbers for one dimension, got {value}")


def _pool1d(x: Expr, kind: str, layout: str, out_layout: str | None, **attrs: Any) -> Any:
    """A pooling of a signal: one of images whose height is 1."""
    at = _positions(x, layout, "W", out_layout)[0]
    sizes = {"pool_size": 1, "strides": 1, "dilation": 1, "padding": 0}
    attrs = {k: _one(v, k, sizes[k]) if k in sizes else v for k, v in attrs.items()}
    found = pool2d(kind)(op.expand_dims(x, [at]), layout=layout.replace("W", "HW"), **attrs)
    return op.squeeze(found, [at])


@relay("nn.max_pool1d")
def _max_pool1d(
    x: Expr,
    *,
    pool_size: Any,
    strides: Any = 1,
    dilation: Any = 1,
    padding: Any = 0,
    layout: str = "NCW",
    out_layout: str | None = "",
    ceil_mode: bool = False,
) -> Any:
    return _pool1d(x, "max", layout, out_layout, pool_size=pool_size, strides=strides,
                   dilation=dilation, padding=padding, ceil_mode=ceil_mode)  # fmt: skip


@relay("nn.avg_pool1d")
def _avg_pool1d(
    x: Expr,
    *,
    pool_size: Any,
    strides: Any = 1,
    dilation: Any = 1,
    padding: Any = 0,
    layout: str = "NCW",
    out_layout: str | None = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Any:
    return _pool1d(x, "avg", layout, out_layout, pool_size=pool_size, strides=strides,
                   dilation=dilation, padding=padding, ceil_mode=ceil_mode,
                   count_include_pad=count_include_pad)  # fmt: skip


# Rearrangements


def _as_nchw(x: Expr, layout: str, make: Make) -> Any:
    if layout not in ("NCHW", "NHWC") or rank_of(x) != 4:
        raise ValueError(f"layout: expected 'NCHW' or 'NHWC', got {layout!r} for a tensor of rank "
                         f"{rank_of(x)}")  # fmt: skip
    if layout == "NCHW":
        return make(x, dims_of(x))
    n, h, w, c = dims_of(x)
    return op.permute_dims(make(op.permute_dims(x, [0, 3, 1, 2]), [n, c, h, w]), [0, 2, 3, 1])


def _block(block_size: int) -> int:
    if block_size < 1:
        raise ValueError(f"block_size: expected 1 or more, got {block_size}")
    return block_size


@relay("nn.depth_to_space")
def _depth_to_space(x: Expr, *, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Any:
    b = _block(block_size)
    if mode not in ("DCR", "CDR"):
        raise ValueError(f"mode: expected 'DCR' or 'CDR', got {mode!r}")

    def make(y: Expr, dims: Any) -> Any:
        n, c, h, w = dims
        depth = c // (b * b)
        split = [n, b, b, depth, h, w] if mode == "DCR" else [n, depth, b, b, h, w]
        order = [0, 3, 4, 1, 5, 2] if mode == "DCR" else [0, 1, 4, 2, 5, 3]
        return op.reshape(op.permute_dims(op.reshape(y, split), order), [n, depth, h * b, w * b])

    return _as_nchw(x, layout, make)


@relay("nn.space_to_depth")
def _space_to_depth(x: Expr, *, block_size: int, layout: str = "NCHW") -> Any:
    b = _block(block_size)

    def make(y: Expr, dims: Any) -> Any:
        n, c, h, w = dims
        parts = op.permute_dims(op.reshape(y, [n, c, h // b, b, w // b, b]), [0, 3, 5, 1, 2, 4])
        return op.reshape(parts, [n, c * b * b, h // b, w // b])

    return _as_nchw(x, layout, make)


@relay("nn.upsampling")
def _upsampling(
    x: Expr,
    *,
    scale_h: float = 1,
    scale_w: float = 1,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> Any:
    if method != "nearest_neighbor" or scale_h != int(scale_h) or scale_w != int(scale_w):
        raise ValueError("method: expected 'nearest_neighbor' with scales that are integers, got "
                         f"{method!r} with {scale_h} and {scale_w}")  # fmt: skip
    height, width = _positions(x, layout, "HW", "")
    return op.repeat(op.repeat(x, int(scale_h), height), int(scale_w), width)


@relay("nn.mirror_pad")
def _mirror_pad(x: Expr, *, mode: str = "SYMMETRIC", pad_width: Any) -> Any:
    if mode != "REFLECT":
        raise ValueError(f"mode: expected 'REFLECT', got {mode!r}: there is no such operator")
    widths = [w for pair in pad_width for w in integers_of(pair, "pad_width")]
    return op.nn.pad(x, widths, "reflect")


# Grids and masks


@relay("meshgrid")
def _meshgrid(tensors: Expr, *, indexing: str = "ij") -> Any:
    items = items_of(tensors)
    if indexing not in ("ij", "xy"):
        raise ValueError(f"indexing: expected 'ij' or 'xy', got {indexing!r}")
    if any(rank_of(item) != 1 for item in items):
        raise ValueError("expected tensors of rank 1")
    order = list(range(len(items)))
    if indexing == "xy" and len(items) > 1:
        order[:2] = [1, 0]
    shape = [dims_of(items[i])[0] for i in order]
    made = []
    for i, item in enumerate(items):
        after = len(items) - 1 - order.index(i)
        vector = op.expand_dims(item, list(range(1, after + 1))) if after else item
        made.append(op.broadcast_to(vector, shape))
    return Tuple(made)


@relay("sequence_mask")
def _sequence_mask(x: Expr, valid_length: Expr, *, mask_value: float = 0, axis: int = 0) -> Any:
    rank, at = rank_of(x), axis_of(axis, rank_of(x))
    if at > 1 or rank < 2:
        raise ValueError(f"axis: expected 0 or 1 of at least two dimensions, got {axis}")
    steps = op.arange(0, dims_of(x)[at], 1, dtype_of(valid_length))
    inside = op.less(op.expand_dims(steps, [1 - at]), op.expand_dims(valid_length, [at]))
    if rank > 2:
        inside = op.expand_dims(inside, list(range(2, rank)))
    return op.where(inside, x, scalar_like(x, mask_value))
