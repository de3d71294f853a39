"""Layers of networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir import Call, prim
from ....ir.arith import simplify
from ....ir.expr import Expr, FloatImm, IntImm
from ....ir.prim import as_scalar
from ....te import Tensor, compute, reduce_axis, topi
from ....te import sum as te_sum
from ....te.topi.nn import layers
from ....tir import intrinsics
from .arrays import reshape
from .reductions import mean
from .rules import LOOPS, Entry, loops

__all__: list[str] = []


def _axes(count: int) -> list[str]:
    return [f"ax{k}" for k in range(count)]


LOOPS["nn.softmax"] = Entry("softmax", topi.nn.softmax, None)
LOOPS["nn.log_softmax"] = Entry("log_softmax", topi.nn.log_softmax, None)


@loops("nn.cross_entropy_with_logits")
def _cross_entropy(x: Tensor, y: Tensor) -> Any:
    total = topi.multiply(topi.sum(topi.multiply(x, y)), -1.0)
    return topi.divide(total, prim.cast(x.shape[0], x.dtype)) if x.ndim > 1 else total


def _name_of_loss(call: Call) -> str:
    return "nll_loss" if len(call.args) > 2 else "nll_loss_without_weight"


@loops("nn.nll_loss", hint=_name_of_loss)
def _nll_loss(
    predictions: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    *,
    reduction: str,
    ignore_index: int,
) -> Any:
    if weights is None:
        weights = topi.full([predictions.shape[int(predictions.ndim > 1)]], predictions.dtype, 1.0)
    ignored = as_scalar(ignore_index, targets.dtype)
    zero = as_scalar(0.0, predictions.dtype)
    is_batch = predictions.ndim > 1

    def chosen(value: Any) -> Tensor:
        def element(*i: Expr) -> Any:
            return prim.select(prim.not_equal(targets[i], ignored), value(i), zero)

        return compute(targets.shape, element, "nll_loss", varargs_names=_axes(targets.ndim))

    def loss(i: Sequence[Expr]) -> Any:
        place = (*i[:1], targets[tuple(i)], *i[1:]) if is_batch else (targets[()],)
        return (zero - predictions[place]) * weights[targets[tuple(i)]]

    losses = chosen(loss)
    if reduction == "none":
        return losses

    def total(x: Tensor) -> Any:
        return topi.sum(x, list(range(x.ndim))) if x.ndim else x

    if reduction == "sum":
        return total(losses)
    return topi.divide(total(losses), total(chosen(lambda i: weights[targets[tuple(i)]])))


@loops("nn.dropout")
def _dropout(x: Tensor, rate: float) -> list[Tensor]:
    return [topi.identity(x), topi.full_like(x, 1.0)]


# Convolutions and pools


def _convolution(data: Tensor, weight: Tensor, **attrs: Any) -> Any:
    layouts = attrs["data_layout"], attrs["kernel_layout"]
    return layers._convolution(
        data, weight, attrs["strides"], attrs["padding"], attrs["dilation"], layouts,
        attrs["out_dtype"] or data.dtype, "conv", always_pads=True,
    )  # fmt: skip


for _name in ("conv1d", "conv2d", "conv3d"):
    loops(f"nn.{_name}")(_convolution)


@loops("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def _conv_transpose(data: Tensor, weight: Tensor, **attrs: Any) -> Any:
    """A convolution of the data, spread by the strides, with the kernel in reverse."""
    rank = data.ndim - 2
    usual = {1: ("NCW", "IOW"), 2: ("NCHW", "IOHW"), 3: ("NCDHW", "IODHW")}[rank]
    if (attrs["data_layout"], attrs["kernel_layout"]) != usual or set(attrs["dilation"]) != {1}:
        raise NotImplementedError(f"transposed convolution of {attrs['data_layout']}")
    groups, strides, extra = attrs["groups"], attrs["strides"], attrs["output_padding"]
    dtype = attrs["out_dtype"] or data.dtype
    taps = weight.shape[2:]
    channels, outs = weight.shape[:2]
    before, after = layers._paddings(attrs["padding"], taps, "conv_transpose")
    zero = as_scalar(0.0, data.dtype)
    wide = [simplify((dim - 1) * s + 1) for dim, s in zip(data.shape[2:], strides, strict=True)]

    def spread(*i: Expr) -> Any:
        steps = [(index, s) for index, s in zip(i[2:], strides, strict=True)]
        at = (*i[:2], *(prim.floordiv(index, s) for index, s in steps))
        tests = [prim.equal(prim.floormod(index, s), 0) for index, s in steps if s != 1]
        value: Any = data[at]
        return intrinsics.if_then_else(intrinsics.all(*tests), value, zero) if tests else value

    names = [f"i{a}" for a in range(data.ndim)]
    dilated = compute([*data.shape[:2], *wide], spread, "data_dilate", varargs_names=names)
    low = [simplify(k - 1 - p) for k, p in zip(taps, before, strict=True)]
    high = [simplify(k - 1 - p + e) for k, p, e in zip(taps, after, extra, strict=True)]
    padded = topi.nn.pad(dilated, [0, 0, *low], [0, 0, *high], zero, name="data_pad")
    turned = compute(
        [outs, channels, *taps],
        lambda *i: weight[(i[1], i[0], *(k - 1 - t for k, t in zip(taps, i[2:], strict=True)))],
        "kernel_transform",
        varargs_names=["i", "o", *"dhw"[3 - rank :]],
    )
    own = simplify(prim.floordiv(channels, groups))
    channel = reduce_axis((0, own), "dc")
    windows = [reduce_axis((0, k), f"d{c}") for k, c in zip(taps, "dhw"[3 - rank :], strict=True)]
    dims = [simplify(p - k + 1) for p, k in zip(padded.shape[2:], taps, strict=True)]

    def element(*i: Expr) -> Any:
        inner = channel.var if groups == 1 else prim.floordiv(i[1], outs) * own + channel.var
        out = i[1] if groups == 1 else prim.floormod(i[1], outs)
        at = [a + w.var for a, w in zip(i[2:], windows, strict=True)]
        factor = turned[(out, inner, *(w.var for w in windows))]
        value = padded[(i[0], inner, *at)]
        return te_sum(prim.cast(value, dtype) * prim.cast(factor, dtype), [channel, *windows])

    return compute([data.shape[0], simplify(outs * groups), *dims], element, "compute",
                   varargs_names=["b", "c", *"dhw"[3 - rank :]])  # fmt: skip


def _pool(op: str, pool: Any, kind: str) -> None:
    @loops(f"nn.{op}")
    def formula(data: Tensor, **attrs: Any) -> Any:
        return pool(
            data, attrs["pool_size"], attrs["strides"], attrs["dilation"], attrs["padding"], kind,
            attrs["ceil_mode"], attrs["layout"], attrs["count_include_pad"],
        )  # fmt: skip


def _adaptive(op: str, pool: Any) -> None:
    @loops(f"nn.{op}")
    def formula(data: Tensor, output_size: Any, layout: str, out_layout: str | None) -> Any:
        size = output_size
        if size is None:
            size = [data.shape[layout.index(c)] for c in layout if c in "DHW"]
        return pool(data, list(size), "avg", layout)


for _rank, _pool_function in ((1, topi.nn.pool1d), (2, topi.nn.pool2d), (3, topi.nn.pool3d)):
    _pool(f"max_pool{_rank}d", _pool_function, "max")
_adaptive("adaptive_avg_pool1d", topi.nn.adaptive_pool1d)
_adaptive("adaptive_avg_pool2d", topi.nn.adaptive_pool)
_adaptive("adaptive_avg_pool3d", topi.nn.adaptive_pool3d)


# Normalization


def _beside(x: Tensor, v: Tensor, axis: int) -> Any:
    """A vector in the shape that broadcasts along an axis of another tensor."""
    one = IntImm("int64", 1)
    return reshape(v, [dim if a == axis else one for a, dim in enumerate(x.shape)])


@loops("nn.batch_norm")
def _batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
    momentum: float,
    training: bool,
) -> list[Any]:
    if training:
        others = [a for a in range(data.ndim) if a != axis]
        found_mean = mean(data, others)
        centre = _beside(data, found_mean, axis)
        out = topi.subtract(data, centre)
        square = topi.multiply(topi.subtract(data, centre), topi.subtract(data, centre))
        found_var = mean(square, others)
        spread = _beside(data, found_var, axis)
    else:
        out = topi.subtract(data, _beside(data, moving_mean, axis))
        spread = _beside(data, moving_var, axis)
    out = topi.divide(out, topi.sqrt(topi.add(spread, epsilon)))
    if scale:
        out = topi.multiply(out, _beside(data, gamma, axis))
    if center:
        out = topi.add(out, _beside(data, beta, axis))
    if not training:
        return [out, topi.multiply(moving_mean, 1.0), topi.multiply(moving_var, 1.0)]

    def moved(old: Tensor, new: Any) -> Any:
        return topi.add(topi.multiply(1 - momentum, old), topi.multiply(momentum, new))

    return [out, moved(moving_mean, found_mean), moved(moving_var, found_var)]


def _count(x: Tensor, axes: Sequence[int], dtype: str) -> Expr:
    """The number of elements along some axes, as a float."""
    number: Expr | None = None
    for a in axes:
        length = prim.cast(x.shape[a], dtype)
        if isinstance(number, FloatImm) and isinstance(length, FloatImm):
            number = FloatImm(dtype, number.value * length.value)
        else:
            number = length if number is None else number * length
    return as_scalar(1.0, dtype) if number is None else number


@loops("nn.layer_norm")
def _layer_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    axes: Sequence[int],
    epsilon: float,
    center: bool,
    scale: bool,
) -> Tensor:
    """Mean first, then the sum of the squared distances from it; of float16 in float32."""
    within = "float32" if data.dtype in ("float16", "bfloat16") else data.dtype
    gone = sorted(int(a) % data.ndim for a in axes)
    kept = [dim for a, dim in enumerate(data.shape) if a not in gone]
    number = _count(data, gone, within)

    def total(name: str, value: Any) -> Tensor:
        taps = {a: reduce_axis((0, data.shape[a]), f"k{a}") for a in gone}

        def element(*i: Expr) -> Any:
            rest = iter(i)
            at = tuple(taps[a].var if a in taps else next(rest) for a in range(data.ndim))
            return te_sum(value(prim.cast(data[at], within), i), list(taps.values()))

        return compute(kept, element, f"{data.name}_{name}", varargs_names=_axes(len(kept)))

    sums = total("sum", lambda e, _: e)
    means = compute(
        kept, lambda *i: sums[i] / number, f"{data.name}_mean", varargs_names=_axes(len(kept))
    )
    squares = total("var_sum", lambda e, i: (e - means[i]) * (e - means[i]))

    def normal(*i: Expr) -> Any:
        own = tuple(index for a, index in enumerate(i) if a not in gone)
        weights = tuple(i[a] for a in gone)
        spread = intrinsics.rsqrt(squares[own] / number + as_scalar(epsilon, within))
        value = prim.cast((prim.cast(data[i], within) - means[own]) * spread, data.dtype)
        return value * gamma[weights] + beta[weights]

    return compute(data.shape, normal, "T_layer_norm", varargs_names=_axes(data.ndim))


@loops("nn.instance_norm")
def _instance_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float,
    center: bool,
    scale: bool,
) -> Any:
    return topi.nn.instance_norm(data, gamma, beta, channel_axis, axes, epsilon)


@loops("nn.group_norm")
def _group_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float,
    center: bool,
    scale: bool,
) -> Any:
    at = channel_axis % data.ndim
    size = simplify(prim.floordiv(data.shape[at], num_groups))
    groups = IntImm("int64", num_groups)
    grouped = reshape(data, [*data.shape[:at], groups, size, *data.shape[at + 1 :]])
    scales, shifts = (reshape(each, [groups, size]) for each in (gamma, beta))
    gone = sorted([at + 1, *((a % data.ndim) + (a % data.ndim > at) for a in axes)])
    source = grouped
    if data.dtype == "float16":
        source = compute(
            grouped.shape,
            lambda *i: prim.cast(grouped[i], "float32"),
            "T_cast",
            varargs_names=_axes(grouped.ndim),
        )
    sums = layers._moments(source, gone)
    number = _count(grouped, gone, source.dtype)

    def normal(*i: Expr) -> Any:
        own = tuple(index for a, index in enumerate(i) if a not in gone)
        average = intrinsics.div(sums[0][own], number)
        variance = intrinsics.div(sums[1][own], number) - average * average
        spread = intrinsics.rsqrt(variance + as_scalar(epsilon, source.dtype))
        value = prim.cast((source[i] - average) * spread, data.dtype)
        weights = i[at], i[at + 1]
        return value * scales[weights] + shifts[weights]

    result = compute(grouped.shape, normal, "T_group_norm", varargs_names=_axes(grouped.ndim))
    return reshape(result, data.shape)


@loops("nn.rms_norm")
def _rms_norm(data: Tensor, weight: Tensor, axes: Sequence[int], epsilon: float) -> Any:
    """In float32, whatever the data type."""
    gone = sorted(int(a) % data.ndim for a in axes)

    def converted(x: Tensor, dtype: str) -> Tensor:
        return compute(
            x.shape, lambda *i: prim.cast(x[i], dtype), "T_cast", varargs_names=_axes(x.ndim)
        )

    x = converted(data, "float32")
    total = topi.sum(topi.multiply(x, x), gone)
    number = _count(data, gone, "float32")
    scale = compute(
        total.shape,
        lambda *i: intrinsics.rsqrt(total[i] / number + as_scalar(epsilon, "float32")),
        "rsqrt",
        varargs_names=_axes(total.ndim),
    )
    factor = converted(weight, "float32")

    def element(*i: Expr) -> Any:
        own = tuple(index for a, index in enumerate(i) if a not in gone)
        return scale[own] * x[i] * factor[tuple(i[a] for a in gone)]

    normal = compute(data.shape, element, "T_rms_norm", varargs_names=_axes(data.ndim))
    return converted(normal, data.dtype)


# Images


def _float32(value: float) -> Expr:
    number: Expr = as_scalar(float(np.float32(value)), "float32")
    return number


@loops("image.resize2d")
def _resize2d(data: Tensor, size: Sequence[Expr], **attrs: Any) -> Any:
    """The nearest elements, or a mean of the four around a place."""
    layout, method = attrs["layout"], attrs["method"]
    mode, dtype = attrs["coordinate_transformation_mode"], attrs["out_dtype"] or data.dtype
    axes = [layout.index("H"), layout.index("W")]
    lengths = [data.shape[a] for a in axes]

    def source(index: Expr, length: Any, new: Any) -> Any:
        """The place in the data, as a float."""
        place = prim.cast(index, "float32")
        if mode == "align_corners":
            return _float32((length.value - 1) / max(new.value - 1, 1)) * place
        scale = _float32(length.value / new.value)
        if mode == "asymmetric":
            return scale * place
        half = as_scalar(0.5, "float32")
        return (place + half) * scale - half

    def taken(i: Sequence[Expr], places: Sequence[Any]) -> Any:
        at = list(i)
        for axis, place, length in zip(axes, places, lengths, strict=True):
            zero = as_scalar(0, "int64")
            at[axis] = intrinsics.max(intrinsics.min(place, length - 1), zero)
        value = data[tuple(at)]
        return value if method == "nearest_neighbor" else prim.cast(value, "float32")

    def nearest(*i: Expr) -> Any:
        choose = {
            "round": intrinsics.round,
            "floor": intrinsics.floor,
            "ceil": intrinsics.ceil,
        }.get(attrs["rounding_method"] or "floor")
        if choose is None:
            raise NotImplementedError(f"resize2d: {attrs['rounding_method']}")
        found = [source(i[a], n, new) for a, n, new in zip(axes, lengths, size, strict=True)]
        return prim.cast(taken(i, [prim.cast(choose(f), "int64") for f in found]), dtype)

    def linear(*i: Expr) -> Any:
        found = [source(i[a], n, new) for a, n, new in zip(axes, lengths, size, strict=True)]
        low = [prim.cast(intrinsics.floor(f), "int64") for f in found]
        weights = [
            f - prim.cast(prim.cast(intrinsics.floor(f), "int32"), "float32") for f in found
        ]

        def mixed(a: Any, b: Any, weight: Any) -> Any:
            return a * (as_scalar(1.0, "float32") - weight) + b * weight

        corners = [[taken(i, [low[0] + y, low[1] + x]) for x in (0, 1)] for y in (0, 1)]
        upper, lower = (mixed(left, right, weights[1]) for left, right in corners)
        return prim.cast(mixed(upper, lower, weights[0]), dtype)

    if method not in ("nearest_neighbor", "linear"):
        raise NotImplementedError(f"resize2d: {method}")
    dims = list(data.shape)
    for axis, new in zip(axes, size, strict=True):
        dims[axis] = new
    names = [f"i{a}" for a in range(data.ndim)]
    return compute(dims, nearest if method == "nearest_neighbor" else linear, "resize",
                   varargs_names=names)  # fmt: skip
