"""Convolutions, pools, normalizations and softmax."""

from __future__ import annotations

from typing import Any, Final

from ....ir import Expr, IntImm
from ..graph import Graph, Problem
from ..registry import onnx
from ..values import Value
from .elementwise import scalar
from .movement import flatten

__all__ = ["conv", "stepwise_softmax"]


def _spatial(x: Value, what: str) -> int:
    if x.ndim < 3:
        raise Problem(f"{what}: expected a tensor of known rank, 3 or more, got {x.type}")
    return x.ndim - 2


def _lengths(x: Value) -> list[int | None]:
    dims = x.dims
    if dims is None:
        return [None] * (x.ndim - 2)
    return [dim.value if isinstance(dim, IntImm) else None for dim in dims[2:]]


def _padding(
    x: Value,
    auto_pad: str,
    pads: list[int] | None,
    kernel: list[int],
    strides: list[int],
    dilations: list[int],
) -> list[int]:
    """Padding before all axes, then after all."""
    count = len(kernel)
    if auto_pad == "NOTSET":
        found = pads or [0] * (2 * count)
        if len(found) != 2 * count:
            raise Problem(f"pads: expected {2 * count} numbers, got {found}")
        return found
    if auto_pad == "VALID":
        return [0] * (2 * count)
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise Problem(f"auto_pad: {auto_pad!r} is not a mode")
    before, after = [], []
    for length, size, stride, dilation in zip(
        _lengths(x), kernel, strides, dilations, strict=True
    ):
        reach = (size - 1) * dilation + 1
        if length is None:
            if stride != 1:
                raise Problem(f"auto_pad: {auto_pad} needs lengths that are known")
            total = reach - 1
        else:
            total = max(0, (-(-length // stride) - 1) * stride + reach - length)
        less = total // 2
        before.append(less if auto_pad == "SAME_UPPER" else total - less)
        after.append(total - less if auto_pad == "SAME_UPPER" else less)
    return before + after


@onnx("Conv", since=1)
def conv(
    g: Graph,
    x: Value,
    w: Value,
    b: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    """R.nn.conv1d or R.nn.conv2d."""
    count = _spatial(x if x.ndim > 2 else w, "x")
    if count > 2:
        raise Problem(f"convolutions over {count} axes are not supported")
    dims = w.dims
    if kernel_shape is None:
        if dims is None or not all(isinstance(dim, IntImm) for dim in dims[2:]):
            raise Problem("kernel_shape: expected it where the shape of the weights is not known")
        kernel_shape = [dim.value for dim in dims[2:]]  # type: ignore[attr-defined]
    strides, dilations = strides or [1] * count, dilations or [1] * count
    padding = _padding(x, auto_pad, pads, kernel_shape, strides, dilations)
    found = g.op(
        f"nn.conv{count}d", x, w, strides=strides, padding=padding, dilation=dilations,
        groups=group,
    )  # fmt: skip
    if b is None:
        return found
    return g.op("add", found, g.op("reshape", b, (1, -1, *[1] * count)))


def _pool_settings(
    x: Value,
    kernel_shape: list[int],
    auto_pad: str,
    pads: list[int] | None,
    strides: list[int] | None,
    dilations: list[int] | None,
) -> tuple[list[int], list[int], list[int]]:
    count = _spatial(x, "x")
    if len(kernel_shape) != count:
        raise Problem(f"kernel_shape: expected {count} numbers, got {kernel_shape}")
    strides, dilations = strides or [1] * count, dilations or [1] * count
    return strides, _padding(x, auto_pad, pads, kernel_shape, strides, dilations), dilations


def _pool2d(g: Graph, name: str, x: Value, kernel: list[int], *settings: Any, **more: Any) -> Expr:
    """A pool over one or two axes; the former is one over two, of which the first has length 1."""
    strides, padding, dilations, ceil_mode = settings
    if len(kernel) == 2:
        return g.op(
            name, x, kernel, strides, padding, dilations, bool(ceil_mode), **more
        )
    if len(kernel) != 1:
        raise Problem(f"pools over {len(kernel)} axes are not supported")
    wide = g.op("expand_dims", x, (2,))
    pads = [0, padding[0], 0, padding[1]]
    found = g.op(
        name, wide, [1, *kernel], [1, *strides], pads, [1, *dilations], bool(ceil_mode), **more
    )
    return g.op("squeeze", found, (2,))


@onnx("MaxPool", since=1)
def max_pool(
    g: Graph,
    x: Value,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
) -> Expr:
    """R.nn.max_pool2d."""
    assert g.node is not None
    if len(g.node.output) > 1 and g.node.output[1]:
        raise Problem("the indices of the greatest elements are not supported")
    strides, padding, dilations = _pool_settings(
        x, kernel_shape, auto_pad, pads, strides, dilations
    )
    return _pool2d(g, "nn.max_pool2d", x, kernel_shape, strides, padding, dilations, ceil_mode)


@onnx("AveragePool", since=1)
def average_pool(
    g: Graph,
    x: Value,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    """R.nn.avg_pool2d."""
    strides, padding, dilations = _pool_settings(
        x, kernel_shape, auto_pad, pads, strides, dilations
    )
    return _pool2d(
        g, "nn.avg_pool2d", x, kernel_shape, strides, padding, dilations, ceil_mode,
        count_include_pad=bool(count_include_pad),
    )  # fmt: skip


@onnx("GlobalAveragePool", since=1)
def global_average_pool(g: Graph, x: Value) -> Expr:
    """R.mean over all axes but the first two."""
    return g.op("mean", x, list(range(2, _spatial(x, "x") + 2)), True)


@onnx("GlobalMaxPool", since=1)
def global_max_pool(g: Graph, x: Value) -> Expr:
    """R.max over all axes but the first two."""
    return g.op("max", x, list(range(2, _spatial(x, "x") + 2)), True)


@onnx("BatchNormalization", since=7)
def batch_norm(
    g: Graph,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    training_mode: int = 0,
) -> Expr:
    """R.nn.batch_norm, in inference."""
    from ....ir import TupleGetItem

    if training_mode or not spatial:
        raise Problem("batch normalization in training is not supported")
    if len({each.dtype for each in (x, scale, bias, mean, variance)}) > 1:
        raise Problem("operands of several data types are not supported")
    call = g.op("nn.batch_norm", x, scale, bias, mean, variance, 1, epsilon, training=False)
    return TupleGetItem(call, 0)


@onnx("InstanceNormalization", since=6)
def instance_norm(
    g: Graph, x: Value, scale: Value, bias: Value, *, epsilon: float = 1e-5
) -> Expr:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, for each channel of each example."""
    count = _spatial(x, "x")
    axes = list(range(2, count + 2))
    along = (1, -1, *[1] * count)
    distance = g.op("subtract", x, g.op("mean", x, axes, True))
    variance = g.op("mean", g.op("multiply", distance, distance), axes, True)
    deviation = g.op("sqrt", g.op("add", variance, scalar(g, epsilon, x)))
    normal = g.op("divide", distance, deviation)
    scaled = g.op("multiply", normal, g.op("reshape", scale, along))
    return g.op("add", scaled, g.op("reshape", bias, along))


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
    if x.ndim < 1:
        raise Problem(f"x: expected a tensor of known rank, got {x.type}")
    axes = list(range(axis % x.ndim, x.ndim))
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


@onnx("RMSNormalization", since=23)
def rms_norm(
    g: Graph, x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Expr:
    """x / sqrt(mean(x * x) + epsilon) * scale, over the axes from `axis` on."""
    if x.ndim < 1:
        raise Problem(f"x: expected a tensor of known rank, got {x.type}")
    axes = list(range(axis % x.ndim, x.ndim))
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
    return g.op("divide", powers, g.op("sum", powers, [axis], True))


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
    count = _spatial(x, "x")
    before, after = (size - 1) // 2, size // 2
    pads = [0, 0, before, after, *[0] * (2 * count)]
    square = g.op("nn.pad", g.op("multiply", x, x), pads)
    dims = x.dims
    if dims is None:
        raise Problem("the shape of x is not known")
    total: Any = None
    for i in range(size):
        part = g.op("strided_slice", square, [1], [i], [dims[1] + i])
        total = part if total is None else g.op("add", total, part)
    factor = g.op("multiply", total, scalar(g, alpha / size, x))
    power = g.op("power", g.op("add", factor, scalar(g, bias, x)), scalar(g, beta, x))
    return g.op("divide", x, power)


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
    widths = g.sized(pads, "pads")
    if x.ndim < 0:
        raise Problem("the rank of x is not known")
    places = list(range(x.ndim)) if axes is None else [
        int(axis) % x.ndim for axis in g.sized(axes, "axes")
    ]  # fmt: skip
    number = None if value is None else value.constant()
    if value is not None and number is None:
        raise Problem("constant_value: expected a number that is known before the model runs")
    fill = 0 if number is None or not number.size else number.reshape(-1)[0].item()
    return _padded(g, x, places, widths, mode, fill)


@onnx("Pad", since=1)
def pad_by_attributes(
    g: Graph, x: Value, *, pads: list[int], mode: str = "constant", value: float = 0.0
) -> Expr:
    """R.nn.pad."""
    return _padded(g, x, list(range(x.ndim)), pads, mode, value)


_PAD_MODES: Final = {
    "constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"
}  # fmt: skip


def _padded(
    g: Graph, x: Value, places: list[int], widths: list[Any], mode: str, fill: float
) -> Expr:
    if not all(isinstance(width, int) for width in widths) or len(widths) != 2 * len(places):
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

