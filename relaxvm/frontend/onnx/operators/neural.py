"""Normalizations, softmax, padding, and global pools."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ....ir import Expr, IntImm, TensorType, TupleGetItem, int_imm, prim
from ...common.values import Value, as_expr
from ..graph import Graph, Problem
from ..registry import onnx
from .elementwise import scalar
from .movement import flatten
from .ranks import (
    as_image,
    axes_of,
    first_axes,
    length_of_axis,
    like,
    number_of_axes,
    rank_of,
    shape_vector,
)
from .windows import over_the_image, spatial_axes

__all__ = ["stepwise_softmax"]


@onnx("GlobalAveragePool", since=1)
def global_average_pool(g: Graph, x: Value) -> Expr:
    """R.mean over all axes but the first two."""
    return over_the_image(g, x, lambda image, axes: g.op("mean", image, axes, True))


@onnx("GlobalMaxPool", since=1)
def global_max_pool(g: Graph, x: Value) -> Expr:
    """R.max over all axes but the first two."""
    return over_the_image(g, x, lambda image, axes: g.op("max", image, axes, True))


@onnx("BatchNormalization", since=1)
def batch_norm(
    g: Graph,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    consumed_inputs: list[int] | None = None,
    epsilon: float = 1e-5,
    is_test: int = 0,
    momentum: float = 0.9,
    spatial: int = 1,
    training_mode: int = 0,
) -> Any:
    """R.nn.batch_norm."""
    if not spatial:
        raise Problem("batch normalization of each element is not supported")
    if len({each.dtype for each in (x, scale, bias, mean, variance)}) > 1:
        raise Problem("operands of several data types are not supported")
    is_training = bool(training_mode) or (g.version < 7 and not is_test)
    # In training the axes besides that of the channels are added up, so their number matters.
    data = first_axes(g, x, 2) if is_training and x.ndim < 0 else x
    call = g.op(
        "nn.batch_norm", data, scale, bias, mean, variance, 1, epsilon, momentum=1 - momentum,
        training=is_training,
    )  # fmt: skip
    count = 3 if is_training else 1
    first, *moved = [Value(g.emit(TupleGetItem(call, i))) for i in range(count)]
    return (first if data is x else like(g, first, x), *moved)


@onnx("InstanceNormalization", since=6)
def instance_norm(g: Graph, x: Value, scale: Value, bias: Value, *, epsilon: float = 1e-5) -> Expr:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, for each channel of each example."""
    if x.ndim < 0:
        return as_image(g, x, lambda image: instance_norm(g, image, scale, bias, epsilon=epsilon))
    count = spatial_axes(x, "x")
    axes = list(range(2, count + 2))
    along = (1, -1, *[1] * count)
    distance = g.op("subtract", x, g.op("mean", x, axes, True))
    variance = g.op("mean", g.op("multiply", distance, distance), axes, True)
    deviation = g.op("sqrt", g.op("add", variance, scalar(g, epsilon, x)))
    normal = g.op("divide", distance, deviation)
    scaled = g.op("multiply", normal, g.op("reshape", scale, along))
    return g.op("add", scaled, g.op("reshape", bias, along))


@onnx("MeanVarianceNormalization", since=9)
def mean_variance_norm(g: Graph, x: Value, *, axes: list[int] | None = None) -> Expr:
    """(x - mean) / (deviation + 1e-9), over all axes but that of channels."""
    along = [0, 2, 3] if axes is None else axes
    distance = g.op("subtract", x, g.op("mean", x, along, True))
    variance = g.op("mean", g.op("multiply", distance, distance), along, True)
    return g.op("divide", distance, g.op("add", g.op("sqrt", variance), scalar(g, 1e-9, x)))


@onnx("LayerNormalization", since=17)
def layer_norm(
    g: Graph,
    x: Value,
    scale: Value,
    bias: Value | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:
    """Normalization over the axes from `axis` on, with mean and 1 / deviation."""
    axes = _from(x, axis)
    wide: Any = g.op("astype", x, "float32") if stash_type == 1 and x.dtype != "float32" else x
    mean = g.op("mean", wide, axes, True)
    distance = g.op("subtract", wide, mean)
    variance = g.op("mean", g.op("multiply", distance, distance), axes, True)
    inverse = g.op("rsqrt", g.op("add", variance, scalar(g, epsilon, variance)))
    normal: Any = g.op("multiply", distance, inverse)
    if normal.ty.dtype != x.dtype:
        normal = g.op("astype", normal, x.dtype)
    found = g.op("multiply", normal, scale)
    if bias is not None:
        found = g.op("add", found, bias)
    return Value(found), Value(mean), Value(inverse)


def _from(x: Value, axis: int) -> list[int]:
    """The axes from `axis` on."""
    if x.ndim < 0 and axis < 0:
        return list(range(axis, 0))
    rank = rank_of(x, "x", max(1, axis + 1))
    return list(range(axis % rank, rank))


@onnx("RMSNormalization", since=23)
def rms_norm(
    g: Graph, x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Expr:
    """x / sqrt(mean(x * x) + epsilon) * scale, over the axes from `axis` on."""
    axes = _from(x, axis)
    wide: Any = g.op("astype", x, "float32") if stash_type == 1 and x.dtype != "float32" else x
    square = g.op("mean", g.op("multiply", wide, wide), axes, True)
    normal = g.op("multiply", wide, g.op("rsqrt", g.op("add", square, scalar(g, epsilon, square))))
    if normal.ty.dtype != x.dtype:
        normal = g.op("astype", normal, x.dtype)
    return g.op("multiply", normal, scale)


def stepwise_softmax(g: Graph, x: Value | Expr, axis: int) -> Expr:
    """Softmax whose steps are each rounded to the data type of x.  The standard states results for
    16-bit floats that depend on it."""
    top = g.op("max", x, [axis], True)
    powers = g.op("exp", g.op("subtract", x, top))
    return g.op("divide", powers, _stepwise_sum(g, powers, axis))


_ADDED_STEPWISE: Final = 128
"""The most elements whose sum is rounded after each addition: beyond, bfloat16's 8 bits lose more
than the last place, and the sum ends at 256 however many elements follow."""


def _stepwise_sum(g: Graph, x: Expr, axis: int) -> Expr:
    """The sum of an axis, which stays.  Few elements of bfloat16 are added one after another in
    bfloat16, as ONNX's reference evaluator does, which the standard's tests are made with."""
    value = Value(x)
    dims = value.dims
    length = dims[axis] if dims is not None else None
    end = length.value if isinstance(length, IntImm) else None
    if value.dtype != "bfloat16" or (end is not None and not 0 < end <= _ADDED_STEPWISE):
        return g.op("sum", x, [axis], True)
    stepwise = g.op("strided_slice", g.op("cumsum", x, axis), [axis], [-1], [1 << 48])
    if end is not None:
        return stepwise
    is_short = g.op("less_equal", length_of_axis(g, value, axis), np.array(_ADDED_STEPWISE))
    return g.op("where", is_short, stepwise, g.op("sum", x, [axis], True))


def _softmax(name: str, target: str) -> None:
    def convert(g: Graph, x: Value, *, axis: int = -1) -> Expr:
        if name == "Softmax" and x.dtype in ("float16", "bfloat16"):
            return stepwise_softmax(g, x, axis)
        return g.op(target, x, axis)

    def flattened(g: Graph, x: Value, *, axis: int = 1) -> Expr:
        if x.ndim > 0 and axis % x.ndim == x.ndim - 1:
            return g.op(target, x, -1)
        rows = g.op(target, g.emit(flatten(g, x, axis=axis)), -1)
        dims = x.dims
        if dims is not None:
            return g.reshaped(Value(rows), dims)
        return g.run("reshape", [rows, g.op("shape_of", x), 1], x.type)

    convert.__doc__ = f"R.{target}."
    flattened.__doc__ = f"R.{target} of rows that reach from the axis to the end."
    onnx(name, since=13)(convert)
    onnx(name, since=1)(flattened)


_softmax("Softmax", "nn.softmax")
_softmax("LogSoftmax", "nn.log_softmax")


@onnx("LRN", since=1)
def lrn(
    g: Graph, x: Value, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int
) -> Expr:
    """Local response normalization over channels."""
    if x.ndim < 0:
        return as_image(
            g, x, lambda image: lrn(g, image, alpha=alpha, beta=beta, bias=bias, size=size)
        )
    count = spatial_axes(x, "x")
    before, after = (size - 1) // 2, size // 2
    pads = [0, 0, before, after, *[0] * (2 * count)]
    square = g.op("nn.pad", g.op("multiply", x, x), pads)
    dims = g.named_dims(x, count + 2)
    assert dims is not None, "the rank is known"
    total: Any = None
    for i in range(size):
        part = g.op("strided_slice", square, [1], [i], [dims[1] + i])
        total = part if total is None else g.op("add", total, part)
    factor = g.op("multiply", total, scalar(g, alpha / size, x))
    base = g.op("add", factor, scalar(g, bias, x))
    if beta == 0.75:  # the usual one: a third of the time of a power
        root = g.op("sqrt", base)
        return g.op("divide", x, g.op("multiply", root, g.op("sqrt", root)))
    return g.op("divide", x, g.op("power", base, scalar(g, beta, x)))


@onnx("Pad", since=11)
def pad(
    g: Graph,
    x: Value,
    pads: Value,
    value: Value | None = None,
    axes: Value | None = None,
    *,
    mode: str = "constant",
) -> Expr:
    """R.nn.pad; negative padding removes elements."""
    fill = 0 if value is None or value.length == 0 else g.number(value)
    if isinstance(fill, bool):
        fill = int(fill)
    if isinstance(fill, int) and int(float(fill)) != fill and mode == "constant":
        # Padding is a float64: the last bits of such a number are added afterwards, modulo 2**64.
        least = np.array(fill % _MULTIPLE, x.dtype)
        shifted = Value(g.op("subtract", x, least))
        return g.op("add", _pad_with(g, shifted, pads, fill - fill % _MULTIPLE, axes, mode), least)
    return _pad_with(g, x, pads, fill, axes, mode)


_MULTIPLE: Final = 1 << 11
"""Of which each integer of 64 bits is a float64."""


def _pad_with(g: Graph, x: Value, pads: Value, fill: Any, axes: Value | None, mode: str) -> Expr:
    if x.ndim < 0:
        if axes is not None or pads.length is None:
            return _padded_in_any_rank(g, x, pads, axes, mode, fill)
        g.named_dims(x, pads.length // 2)  # which gives x its rank
    if axes is not None and axes.known is None:
        pads, axes = _all_pads(g, x.ndim, pads, axes), None
    places = list(range(x.ndim)) if axes is None else [
        int(axis) % x.ndim for axis in g.sized(axes, "axes")
    ]  # fmt: skip
    widths = g.elements(pads, 2 * len(places), "pads")
    if all(isinstance(width, int) for width in widths) and not isinstance(fill, Expr):
        return _padded(g, x, places, widths, mode, fill)
    return _padded_at_run_time(g, x, places, widths, mode, fill)


@onnx("Pad", since=1)
def pad_by_attributes(
    g: Graph, x: Value, *, pads: list[int], mode: str = "constant", value: float = 0.0
) -> Expr:
    """R.nn.pad."""
    rank = len(pads) // 2
    if x.ndim < 0:
        g.named_dims(x, rank)  # which gives x its rank
    return _padded(g, x, list(range(rank)), pads, mode, value)


_PAD_MODES: Final = {
    "constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"
}  # fmt: skip


def _padded(
    g: Graph, x: Value, places: list[int], widths: list[Any], mode: str, fill: float
) -> Expr:
    if len(widths) != 2 * len(places):
        raise Problem(f"pads: expected {2 * len(places)} numbers, got {widths}")
    if mode not in _PAD_MODES:
        raise Problem(f"mode: {mode!r} is not a mode")
    both = {axis: (widths[i], widths[i + len(places)]) for i, axis in enumerate(places)}
    pairs = [both.get(axis, (0, 0)) for axis in range(x.ndim)]
    cut = [axis for axis, pair in enumerate(pairs) if min(pair) < 0]
    found: Any = x
    if cut:
        begin = [max(0, -pairs[axis][0]) for axis in cut]
        end = [min(0, pairs[axis][1]) or 1 << 48 for axis in cut]
        found = g.op("strided_slice", x, cut, begin, end)
    wide = [max(0, width) for pair in pairs for width in pair]
    if any(wide):
        found = g.op("nn.pad", found, wide, _PAD_MODES[mode], fill)
    return g.expr(found)


def _padded_in_any_rank(
    g: Graph, x: Value, pads: Value, axes: Value | None, mode: str, fill: Any
) -> Expr:
    """x, whose rank only the run knows, padded by vectors of numbers for each axis."""
    if mode not in _PAD_MODES:
        raise Problem(f"mode: {mode!r} is not a mode")
    if pads.dtype != "int64":
        pads = Value(g.op("astype", pads, "int64"))
    shape = shape_vector(g, x)
    zeros = g.op("zeros_like", shape)
    if axes is not None:
        count = number_of_axes(g, shape)
        places = axes_of(g, x, axes)
        both = g.op("concat", [places, g.op("add", places, count)], 0)
        none = g.op("concat", [zeros, zeros], 0)
        pads = Value(g.op("scatter_elements", none, both, pads, 0))
    widths = g.run("reshape", [pads, (2, -1), 1], TensorType(None, "int64", ndim=2))
    less, more = (g.op("take", widths, np.array(i), 0) for i in range(2))
    cut = [g.op("maximum", g.op("negative", each), zeros) for each in (less, more)]
    wide = [g.op("maximum", each, zeros) for each in (less, more)]
    end = g.op("subtract", shape, cut[1])
    bounds = [g.shape_in(Value(each)) for each in (axes_of(g, x), cut[0], end)]
    ty, dtype = TensorType(None, x.dtype), x.dtype or "?"
    found = g.run("strided_slice", [x, *bounds, None], ty, dtype)
    pairs = g.op("reshape", g.op("stack", wide, 1), (-1,))
    settings = [g.shape_in(Value(pairs)), _PAD_MODES[mode], fill]
    return g.run("nn.pad", [found, *settings], ty, dtype)


def _all_pads(g: Graph, rank: int, pads: Value, axes: Value) -> Value:
    """The numbers for all axes, where only the run knows which axes are given."""
    places = g.op("floor_mod", g.op("astype", axes, "int64"), np.array(rank))
    both = g.op("concat", [places, g.op("add", places, np.array(rank))], 0)
    return Value(g.op("scatter_elements", np.zeros(2 * rank, np.int64), both, pads, 0))


def _padded_at_run_time(
    g: Graph, x: Value, places: list[int], widths: list[Any], mode: str, fill: Any
) -> Expr:
    """x, padded by numbers of elements, or with a number, that only the run knows."""
    if mode not in _PAD_MODES:
        raise Problem(f"mode: {mode!r} is not a mode")
    count = len(places)
    dims = list(g.named_dims(x, x.ndim) or ())
    dtype = x.dtype or "?"
    cut = [prim.maximum(-as_expr(width), int_imm(0)) for width in widths]
    wide = [prim.maximum(as_expr(width), int_imm(0)) for width in widths]
    kept = {axis: dims[axis] - cut[count + i] for i, axis in enumerate(places)}
    begin = {axis: cut[i] for i, axis in enumerate(places)}
    axes = list(range(x.ndim))
    inner: list[Any] = [kept.get(axis, dims[axis]) for axis in axes]
    first: list[Any] = [begin.get(axis, int_imm(0)) for axis in axes]
    found = g.run("strided_slice", [x, axes, first, inner, None],
                  TensorType(None, x.dtype, ndim=x.ndim), dtype)  # fmt: skip
    pairs: list[Any] = [0] * (2 * x.ndim)
    for i, axis in enumerate(places):
        pairs[2 * axis : 2 * axis + 2] = wide[i], wide[count + i]
    results = list(dims)
    for i, axis in enumerate(places):
        results[axis] = dims[axis] + as_expr(widths[i]) + as_expr(widths[count + i])
    ty = TensorType(None, x.dtype, ndim=x.ndim)
    padded = g.run("nn.pad", [found, pairs, _PAD_MODES[mode], fill], ty, dtype)
    return g.context.builder.match_cast(padded, TensorType(results, x.dtype))
