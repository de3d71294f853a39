"""Operators of neural networks."""

from __future__ import annotations

from typing import Any

from .... import op
from ....ir import Expr, IntImm
from .elementwise import along
from .equal_dims import channels
from .operands import (
    axes_of,
    axis_of,
    dims_of,
    integers_of,
    number_of,
    or_none,
    rank_of,
    scalar_like,
)
from .table import Make, relay

__all__ = ["pool2d"]


@relay("nn.softmax", "nn.fast_softmax")
def _softmax(x: Expr, *, axis: int = -1) -> Any:
    return op.nn.softmax(x, axis)


@relay("nn.log_softmax")
def _log_softmax(x: Expr, *, axis: int = -1) -> Any:
    return op.nn.log_softmax(x, axis)


@relay("nn.dropout")
def _dropout(x: Expr, *, rate: float = 0.5) -> Any:
    return op.nn.dropout(x, rate)


@relay("nn.cross_entropy")
def _cross_entropy(predictions: Expr, targets: Expr) -> Any:
    return op.nn.cross_entropy_with_logits(op.log(predictions), targets)


@relay("nn.conv1d")
def _conv1d(
    x: Expr,
    weight: Expr,
    *,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    channels: Any = None,
    kernel_size: Any = None,
    data_layout: str = "NCW",
    kernel_layout: str = "OIW",
    out_layout: str | None = "",
    out_dtype: str | None = "",
) -> Any:
    return op.nn.conv1d(x, weight, strides, padding, dilation, groups, data_layout, kernel_layout,
                        or_none(out_layout), or_none(out_dtype))  # fmt: skip


@relay("nn.conv2d")
def _conv2d(
    x: Expr,
    weight: Expr,
    *,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    channels: Any = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str | None = "",
    out_dtype: str | None = "",
) -> Any:
    return op.nn.conv2d(x, weight, strides, padding, dilation, groups, data_layout, kernel_layout,
                        or_none(out_layout), or_none(out_dtype))  # fmt: skip


@relay("nn.max_pool2d")
def _max_pool2d(
    x: Expr,
    *,
    pool_size: Any,
    strides: Any = 1,
    dilation: Any = 1,
    padding: Any = 0,
    layout: str = "NCHW",
    out_layout: str | None = "",
    ceil_mode: bool = False,
) -> Any:
    return op.nn.max_pool2d(x, pool_size, strides, padding, dilation, bool(ceil_mode), False,
                            layout, or_none(out_layout))  # fmt: skip


@relay("nn.avg_pool2d")
def _avg_pool2d(
    x: Expr,
    *,
    pool_size: Any,
    strides: Any = 1,
    dilation: Any = 1,
    padding: Any = 0,
    layout: str = "NCHW",
    out_layout: str | None = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Any:
    return op.nn.avg_pool2d(x, pool_size, strides, padding, dilation, bool(ceil_mode),
                            bool(count_include_pad), layout, or_none(out_layout))  # fmt: skip


def pool2d(kind: str) -> Make:
    """The function for ``nn.max_pool2d`` or ``nn.avg_pool2d``: `kind` is "max" or "avg"."""
    return _max_pool2d if kind == "max" else _avg_pool2d


def _spatial(layout: str, x: Expr) -> list[int]:
    if sorted(layout) != sorted("NCHW") or rank_of(x) != 4:
        raise ValueError(f"layout: expected an order of N, C, H and W, got {layout!r} for a tensor "
                         f"of rank {rank_of(x)}")  # fmt: skip
    return [layout.index("H"), layout.index("W")]


def _same_layout(layout: str, out_layout: str | None) -> None:
    if out_layout and out_layout != layout:
        raise ValueError(f"out_layout: expected {layout!r}, got {out_layout!r}")


@relay("nn.global_max_pool2d")
def _global_max(x: Expr, *, layout: str = "NCHW", out_layout: str | None = "") -> Any:
    _same_layout(layout, out_layout)
    return op.max(x, _spatial(layout, x), True)


@relay("nn.global_avg_pool2d")
def _global_avg(x: Expr, *, layout: str = "NCHW", out_layout: str | None = "") -> Any:
    _same_layout(layout, out_layout)
    return op.mean(x, _spatial(layout, x), True)


def _adaptive(x: Expr, pool: Make, whole: Make, output_size: Any, layout: str) -> Any:
    axes, dims = _spatial(layout, x), dims_of(x)
    sizes = list(output_size) if isinstance(output_size, list) else [output_size]
    sizes = sizes * 2 if len(sizes) == 1 else sizes
    if sizes in ([1, 1], [None, None]) and sizes[0] == 1:
        return whole(x, axes, True)
    windows = []
    for axis, size in zip(axes, sizes, strict=True):
        dim = dims[axis]
        if size is None:
            windows.append(1)
        elif isinstance(dim, IntImm) and size > 0 and dim.value % size == 0:
            windows.append(dim.value // size)
        else:
            raise ValueError(f"output_size: expected divisors of {dims[axes[0]]} and "
                             f"{dims[axes[1]]}, got {output_size}")  # fmt: skip
    return pool(x, pool_size=windows, strides=windows, layout=layout)


@relay("nn.adaptive_avg_pool2d")
def _adaptive_avg(
    x: Expr, *, output_size: Any = None, layout: str = "NCHW", out_layout: str | None = ""
) -> Any:
    _same_layout(layout, out_layout)
    return _adaptive(x, _avg_pool2d, op.mean, output_size, layout)


@relay("nn.adaptive_max_pool2d")
def _adaptive_max(
    x: Expr, *, output_size: Any = None, layout: str = "NCHW", out_layout: str | None = ""
) -> Any:
    _same_layout(layout, out_layout)
    return _adaptive(x, _max_pool2d, op.max, output_size, layout)


@relay("nn.batch_norm", equal=channels)
def _batch_norm(
    x: Expr,
    gamma: Expr,
    beta: Expr,
    mean: Expr,
    variance: Expr,
    *,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Any:
    return op.nn.batch_norm(x, gamma, beta, mean, variance, axis, float(epsilon), bool(center),
                            bool(scale), training=False)  # fmt: skip


@relay("nn.layer_norm", equal=channels)
def _layer_norm(
    x: Expr,
    gamma: Expr,
    beta: Expr,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Any:
    return op.nn.layer_norm(x, gamma, beta, [axis], float(epsilon), bool(center), bool(scale))


@relay("nn.group_norm", equal=channels)
def _group_norm(
    x: Expr,
    gamma: Expr,
    beta: Expr,
    *,
    num_groups: int,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Any:
    channel = axis_of(axis, rank_of(x))
    axes = [a for a in range(1, rank_of(x)) if a != channel]
    return op.nn.group_norm(x, gamma, beta, num_groups, channel, axes, float(epsilon), bool(center),
                            bool(scale))  # fmt: skip


@relay("nn.instance_norm", equal=channels)
def _instance_norm(
    x: Expr,
    gamma: Expr,
    beta: Expr,
    *,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Any:
    channel = axis_of(axis, rank_of(x))
    axes = [a for a in range(1, rank_of(x)) if a != channel]
    off = op.subtract(x, op.mean(x, axes, True))
    variance = op.mean(op.multiply(off, off), axes, True)
    made = op.divide(off, op.sqrt(op.add(variance, scalar_like(x, epsilon))))
    made = op.multiply(made, along(gamma, axis, x)) if scale else made
    return op.add(made, along(beta, axis, x)) if center else made


@relay("nn.l2_normalize")
def _l2_normalize(x: Expr, *, eps: float, axis: Any = None) -> Any:
    total = op.sum(op.multiply(x, x), axes_of(axis, x, False), True)
    return op.divide(x, op.sqrt(op.maximum(total, scalar_like(x, eps))))


@relay("nn.pad")
def _pad(x: Expr, pad_value: Expr, *, pad_width: Any, pad_mode: str = "constant") -> Any:
    modes = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}
    if pad_mode not in modes:
        raise ValueError(f"pad_mode: expected one of {', '.join(modes)}, got {pad_mode!r}")
    pairs = [integers_of(pair, "pad_width") for pair in _listed(pad_width)]
    widths = [w for pair in pairs for w in (pair * 2 if len(pair) == 1 else pair)]
    value = number_of(pad_value, "pad_value") if pad_mode == "constant" else 0
    return op.nn.pad(x, widths, modes[pad_mode], float(value))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@relay("nn.batch_flatten")
def _batch_flatten(x: Expr) -> Any:
    if not rank_of(x):
        raise ValueError("expected a tensor with at least one dimension")
    return op.reshape(x, [dims_of(x)[0], -1])
