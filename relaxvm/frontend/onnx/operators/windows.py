"""Convolutions and pools: operators that move a window over a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ....ir import Expr, IntImm, TensorType, prim
from ....ir.arith import simplify
from ....op.nn._windows import windows
from ...common.values import Value
from ..graph import Graph, Problem
from ..registry import onnx
from .elementwise import scalar
from .ranks import (
    first_axes,
    in_shape,
    part,
    rank_of,
    shape_vector,
    with_unit_axes,
    without_unit_axes,
)

__all__ = ["conv", "over_the_image", "spatial_axes"]

_MOST_AXES = 3


def spatial_axes(x: Value, what: str, *settings: Sequence[int] | None) -> int:
    """The number of axes after batch and channels.

    Args:
        x: the tensor.
        what: its name.
        settings: attributes with a number for each of these axes, which say how many there are if
            the rank of the tensor is not known.

    Raises:
        Problem: there are none.
    """
    if x.ndim < 0:
        for each in settings:
            if each:
                return len(each)
    return rank_of(x, what, 3, _MOST_AXES + 2) - 2


def over_the_image(g: Graph, x: Value, reduce: Callable[[Value, list[int]], Expr]) -> Expr:
    """What `reduce` makes of x and its axes but the first two, which stay with length 1."""
    if x.ndim >= 0:
        return reduce(x, list(range(2, spatial_axes(x, "x") + 2)))
    shape = shape_vector(g, x)
    ones = g.op("ones_like", part(g, shape, 2))
    found = reduce(first_axes(g, x, 2), [2])
    return g.expr(in_shape(g, found, g.op("concat", [part(g, shape, 0, 2), ones], 0)))


class Windows(NamedTuple):
    """How windows are laid on a tensor, from the attributes of a node.

    Attributes:
        size: the length of a window along each axis, as a number or an expression.
        strides: the distance between windows.
        dilations: the distance between the elements of a window.
        padding: before all axes, then after all.
        ceil_mode: whether a last window may reach beyond the padding.
    """

    size: list[Any]
    strides: list[int]
    dilations: list[int]
    padding: list[Any]
    ceil_mode: bool = False

    @property
    def reach(self) -> list[Any]:
        """The length of a window from its first element to its last."""
        return [(n - 1) * d + 1 for n, d in zip(self.size, self.dilations, strict=True)]

    @property
    def is_known(self) -> bool:
        """Whether the lengths of a window are numbers."""
        return all(isinstance(n, int) for n in self.size)


def _per_axis(name: str, given: list[int] | None, count: int, least: int = 1) -> list[int]:
    found = [least] * count if given is None else given
    if len(found) != count or min(found) < least:
        raise Problem(f"{name}: expected {count} numbers of at least {least}, got {found}")
    return found


def _windows(
    size: list[Any] | None,
    count: int,
    auto_pad: str,
    pads: list[int] | None,
    strides: list[int] | None,
    dilations: list[int] | None,
    ceil_mode: int = 0,
) -> Windows:
    """The windows of a node, with the padding that it states."""
    if count > _MOST_AXES:
        raise Problem(f"expected 1 to {_MOST_AXES} axes besides batch and channels, got {count}")
    if auto_pad not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise Problem(f"auto_pad: {auto_pad!r} is not a mode")
    padding = pads if pads and auto_pad == "NOTSET" else [0] * (2 * count)
    if len(padding) != 2 * count:
        raise Problem(f"pads: expected {2 * count} numbers, got {padding}")
    is_known = size is None or all(isinstance(n, int) for n in size)
    return Windows(
        _per_axis("kernel_shape", size, count) if is_known else list(size or ()),
        _per_axis("strides", strides, count),
        _per_axis("dilations", dilations, count),
        padding,
        bool(ceil_mode),
    )


def _cut(x: Value, laid: Windows) -> Windows:
    """The windows of a pool, as long as the padded tensor where that is shorter than a window by
    less than a stride: onnxruntime and the shapes of the standard have one window there, since they
    divide as C does.  Lengths that only the run knows are left as they are."""
    if x.dims is None or not laid.is_known:
        return laid
    size, count = list(laid.size), len(laid.size)
    for i, dim in enumerate(x.dims[2:]):
        stride, dilation = laid.strides[i], laid.dilations[i]
        if not isinstance(dim, IntImm) or dim.value < 1 or (dilation > 1 and laid.ceil_mode):
            continue
        padded = dim.value + laid.padding[i] + laid.padding[count + i]
        # Behind the elements that are left there is no place for a second window.
        if padded < laid.reach[i] < padded + stride and (padded - 1) % dilation < stride:
            size[i] = (padded - 1) // dilation + 1
    return laid._replace(size=size)


def _same(
    g: Graph, x: Value, laid: Windows, auto_pad: str, mode: str = "constant"
) -> tuple[Value, Windows]:
    """The tensor and its windows where `auto_pad` asks for ceil(length / stride) of them.

    Lengths that only the run knows need padding that only the run knows: then the tensor is padded
    by the most that any length needs, and what is too much is cut off.
    """
    count = len(laid.size)
    dims = g.named_dims(x, count + 2)
    if dims is None:
        raise Problem(f"x: expected a tensor of rank {count + 2}, got {x.type}")
    widths: list[tuple[Any, Any]] = []
    most: list[tuple[int, int]] = []
    for dim, reach, stride in zip(dims[2:], laid.reach, laid.strides, strict=True):
        if isinstance(dim, IntImm):
            total: Any = max(0, (-(-dim.value // stride) - 1) * stride + reach - dim.value)
        elif stride == 1:
            total = reach - 1
        else:
            # The last window begins at the last multiple of the stride before the end.
            total = simplify(prim.maximum(reach - 1 - (dim + (stride - 1)) % stride, 0))
        less = total // 2
        more = total - less
        widths.append((less, more) if auto_pad == "SAME_UPPER" else (more, less))
        bound = total if isinstance(total, int) else reach - 1
        most.append((bound - bound // 2,) * 2)
    if all(isinstance(width, int) for pair in widths for width in pair):
        before, after = ([pair[i] for pair in widths] for i in range(2))
        return x, laid._replace(padding=before + after)
    wide = g.op("nn.pad", x, [0] * 4 + [n for pair in most for n in pair], mode)
    axes = list(range(2, count + 2))
    begin = [far[0] - near[0] for far, near in zip(most, widths, strict=True)]
    end = [far[0] + dim + near[1]
           for far, near, dim in zip(most, widths, dims[2:], strict=True)]  # fmt: skip
    return Value(g.op("strided_slice", wide, axes, begin, end)), laid


def _same_of_any_window(g: Graph, x: Value, laid: Windows, auto_pad: str) -> list[Any]:
    """The padding where `auto_pad` asks for ceil(length / stride) windows, whose lengths only the
    run knows."""
    dims = g.named_dims(x, len(laid.size) + 2)
    if dims is None:
        raise Problem(f"x: expected a tensor of rank {len(laid.size) + 2}, got {x.type}")
    totals = [
        ((dim + (stride - 1)) // stride - 1) * stride + reach - dim
        for dim, reach, stride in zip(dims[2:], laid.reach, laid.strides, strict=True)
    ]
    return _split(totals, auto_pad, [0] * len(totals))[0]


def _at_run_time(g: Graph, kernel: str, inputs: list[Any], x: Value) -> Expr:
    """A convolution or pool with settings that only the run knows."""
    return g.run(kernel, inputs, TensorType(None, x.dtype, ndim=x.ndim), x.dtype or "?")


# Convolutions


def _plain(dim: Expr) -> Any:
    return dim.value if isinstance(dim, IntImm) else dim


def _window_of(
    g: Graph, w: Value, kernel_shape: list[int] | None, count: int, *, is_needed: bool
) -> list[Any]:
    """The window of a convolution.  Where padding does not depend on it, it may be one that only
    the run knows, for which ones stand."""
    known = w.lengths(2)
    if kernel_shape is None:
        if known is None and is_needed:
            return [_plain(dim) for dim in (g.named_dims(w, count + 2) or ())[2:]]
        return [1] * count if known is None else known
    if known is not None and known != kernel_shape:
        raise Problem(f"kernel_shape: expected {known}, as the weights have it, got {kernel_shape}")
    return kernel_shape


def _half(pads: list[int] | None) -> list[int] | None:
    return None if pads is None else pads[: len(pads) // 2]


def _with_all_axes(
    g: Graph,
    x: Value,
    w: Value,
    b: Value | None,
    convolve: Callable[[Value, Value, Value | None], Expr],
) -> Expr:
    """A convolution whose number of axes only the run knows: one of three, the first ones of which
    may have length 1."""
    rank = _MOST_AXES + 2
    found = convolve(with_unit_axes(g, x, rank, "X"), with_unit_axes(g, w, rank, "W"), b)
    return g.expr(without_unit_axes(g, found, rank, x))


def _with_bias(g: Graph, found: Any, b: Value | None, count: int) -> Expr:
    if b is None:
        return g.expr(found)
    return g.op("add", found, g.op("reshape", b, (1, -1, *[1] * count)))


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
    """R.nn.conv1d, R.nn.conv2d or R.nn.conv3d."""
    shapes = (kernel_shape, strides, dilations, pads)
    if x.ndim < 0 and w.ndim < 0 and not any(shapes) and not auto_pad.startswith("SAME"):
        return _with_all_axes(g, x, w, b, lambda x, w, b: conv(g, x, w, b, group=group))
    count = spatial_axes(x if x.ndim > 2 else w, "x", kernel_shape, strides, dilations, _half(pads))
    size = _window_of(g, w, kernel_shape, count, is_needed=auto_pad.startswith("SAME"))
    laid = _windows(size, count, auto_pad, pads, strides, dilations)
    if (weight := w.lengths()) is not None:
        g.state_dims(x, [None, weight[1] * group] + [None] * count)
    if auto_pad.startswith("SAME") and not laid.is_known:
        padding = _same_of_any_window(g, x, laid, auto_pad)
        inputs = [x, w, laid.strides, padding, laid.dilations, group]
        return _with_bias(g, _at_run_time(g, f"nn.conv{count}d", inputs, x), b, count)
    if auto_pad.startswith("SAME"):
        x, laid = _same(g, x, laid, auto_pad)
    found = g.op(
        f"nn.conv{count}d", x, w, strides=laid.strides, padding=laid.padding,
        dilation=laid.dilations, groups=group,
    )  # fmt: skip
    return _with_bias(g, found, b, count)


@onnx("ConvTranspose", since=1)
def conv_transpose(
    g: Graph,
    x: Value,
    w: Value,
    b: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    """R.nn.conv1d_transpose, R.nn.conv2d_transpose or R.nn.conv3d_transpose."""
    shapes = (kernel_shape, strides, dilations, pads, output_shape, output_padding)
    if x.ndim < 0 and w.ndim < 0 and not any(shapes) and not auto_pad.startswith("SAME"):
        return _with_all_axes(g, x, w, b, lambda x, w, b: conv_transpose(g, x, w, b, group=group))
    count = spatial_axes(
        x if x.ndim > 2 else w, "x", kernel_shape, strides, dilations, _half(pads), output_padding
    )
    is_needed = bool(output_shape) or auto_pad.startswith("SAME")
    size = _window_of(g, w, kernel_shape, count, is_needed=is_needed)
    laid = _windows(size, count, auto_pad, pads, strides, dilations)
    more = _per_axis("output_padding", output_padding, count, 0)
    padding = laid.padding
    if output_shape or auto_pad.startswith("SAME"):
        lengths = zip(laid.reach, more, laid.strides, strict=True)
        totals = [reach + n - stride for reach, n, stride in lengths]
        if output_shape:
            totals = _totals(g, x, output_shape[-count:], laid.strides, totals)
        padding, more = _split(totals, auto_pad, more)
        if not all(isinstance(n, int) for n in [*padding, *more]):
            inputs = [x, w, laid.strides, padding, more, laid.dilations, group]
            found = _at_run_time(g, f"nn.conv{count}d_transpose", inputs, x)
            return _with_bias(g, found, b, count)
    found = g.op(
        f"nn.conv{count}d_transpose", x, w, strides=laid.strides, padding=padding,
        output_padding=more, dilation=laid.dilations, groups=group,
    )  # fmt: skip
    return _with_bias(g, found, b, count)


def _totals(
    g: Graph, x: Value, output_shape: Sequence[int], strides: list[int], totals: list[Any]
) -> list[Any]:
    """The padding along each axis for a result of a shape; `totals` are those for a result that is
    `strides` times as long as x."""
    dims = g.named_dims(x, len(totals) + 2)
    if dims is None:
        raise Problem(f"x: expected a tensor of rank {len(totals) + 2}, got {x.type}")
    return [
        _plain(dim) * stride + total - length
        for dim, length, stride, total in zip(dims[2:], output_shape, strides, totals, strict=True)
    ]


def _split(totals: list[Any], auto_pad: str, more: list[int]) -> tuple[list[Any], list[Any]]:
    """Padding before all axes and then after all, and the elements that are added to the result,
    where padding is negative."""
    before, after = [], []
    for total in totals:
        half = _positive(total) // 2
        rest = _positive(total) - half
        before.append(half if auto_pad == "SAME_UPPER" else rest)
        after.append(rest if auto_pad == "SAME_UPPER" else half)
    added = [n + _positive(-total) for n, total in zip(more, totals, strict=True)]
    return before + after, added


def _positive(length: Any) -> Any:
    """The greater of a length and 0."""
    return max(0, length) if isinstance(length, int) else simplify(prim.maximum(length, 0))


# Pools


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
) -> Any:
    """R.nn.max_pool1d, R.nn.max_pool2d or R.nn.max_pool3d."""
    assert g.node is not None
    has_indices = len(g.node.output) > 1 and bool(g.node.output[1])
    count = spatial_axes(x, "x", kernel_shape)
    laid = _windows(kernel_shape, count, auto_pad, pads, strides, dilations, ceil_mode)
    if auto_pad.startswith("SAME"):
        # A window that reaches into the padding has the outermost element, too, which the padding
        # repeats, unless it skips elements.
        wide, found = _same(g, x, laid, auto_pad, "replicate")
        if wide is not x and (has_indices or set(laid.dilations) != {1}):
            padding = _same_of_any_window(g, x, laid, auto_pad)
            found = laid._replace(padding=padding)
        else:
            x = wide
        laid = found
    else:
        laid = _cut(x, laid)
    given = [x, laid.size, laid.strides, laid.padding, laid.dilations, laid.ceil_mode]
    name = f"nn.max_pool{count}d"
    are_known = all(isinstance(n, int) for n in laid.padding)
    greatest: Any = g.op(name, *given) if are_known else _at_run_time(g, name, given, x)
    if not has_indices:
        return greatest
    ty = TensorType.of(greatest.ty.dims, "int64", ndim=x.ndim)
    inputs = [*given, storage_order]
    return Value(greatest), Value(g.run("nn.max_pool_indices", inputs, ty, "int64"))


def _averages(g: Graph, x: Value, laid: Windows, include_padding: bool) -> Any:
    return g.op(
        f"nn.avg_pool{len(laid.size)}d", x, laid.size, laid.strides, laid.padding, laid.dilations,
        laid.ceil_mode, include_padding,
    )  # fmt: skip


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
) -> Any:
    """R.nn.avg_pool1d, R.nn.avg_pool2d or R.nn.avg_pool3d."""
    count = spatial_axes(x, "x", kernel_shape)
    laid = _windows(kernel_shape, count, auto_pad, pads, strides, dilations, ceil_mode)
    include = bool(count_include_pad)
    if auto_pad.startswith("SAME"):
        wide, laid = _same(g, x, laid, auto_pad)
        if wide is not x and not include:
            # What is padding is known only at run time: the mean of ones is the part that is not.
            ones = Value(g.op("ones_like", x))
            part, _ = _same(g, ones, laid, auto_pad)
            return g.op("divide", _averages(g, wide, laid, True), _averages(g, part, laid, True))
        x = wide
    else:
        laid = _cut(x, laid)
    return _averages(g, x, laid, include)


def _norms(g: Graph, x: Value, p: float, sums: Any) -> Expr:
    """(sums of |x| ** p) ** (1 / p); `sums` takes the powers."""
    powers = g.op("abs", x)
    if p != 1:
        powers = g.op("power", powers, scalar(g, p, x))
    total = sums(Value(powers))
    found: Expr = total if p == 1 else g.op("power", total, scalar(g, 1 / p, x))
    return found


@onnx("LpPool", since=2)
def lp_pool(
    g: Graph,
    x: Value,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    p: int = 2,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    """(The mean of |x| ** p of each window * its elements) ** (1 / p)."""
    count = spatial_axes(x, "x", kernel_shape)
    laid = _windows(kernel_shape, count, auto_pad, pads, strides, dilations)
    if not auto_pad.startswith("SAME"):
        laid = _cut(x, laid)
    return _pooled_norms(g, x, p, laid, auto_pad, ceil_mode)


def _pooled_norms(
    g: Graph, x: Value, p: float, laid: Windows, auto_pad: str, ceil_mode: int
) -> Expr:
    elements = math.prod(laid.size)

    def sums(powers: Value) -> Any:
        windows = laid
        if auto_pad.startswith("SAME"):
            powers, windows = _same(g, powers, laid, auto_pad)
        elif ceil_mode:
            powers, windows = _whole(g, powers, laid)
        return g.op("multiply", _averages(g, powers, windows, True), scalar(g, elements, x))

    return _norms(g, x, p, sums)


def _whole(g: Graph, x: Value, laid: Windows) -> tuple[Value, Windows]:
    """A tensor with zeros behind it, so that all windows of `ceil_mode` are on it."""
    count = len(laid.size)
    dims = g.named_dims(x, count + 2)
    if dims is None:
        raise Problem(f"x: expected a tensor of rank {count + 2}, got {x.type}")
    before, after = laid.padding[:count], laid.padding[count:]
    widths = [0] * 4
    ends = []
    for i, stride in enumerate(laid.strides):
        widths += [before[i], after[i] + stride - 1]
        number = windows(
            f"axis {2 + i}", dims[2 + i], laid.size[i], stride, (before[i], after[i]),
            laid.dilations[i], ceil_mode=True,
        )  # fmt: skip
        ends.append(simplify((number - 1) * stride + laid.reach[i]))
    wide = g.op("nn.pad", x, widths)
    cut = g.op("strided_slice", wide, list(range(2, count + 2)), [0] * count, ends)
    return Value(cut), laid._replace(padding=[0] * (2 * count))


@onnx("LpPool", since=1)
def lp_pool_of_float(
    g: Graph,
    x: Value,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: list[int],
    p: float = 2.0,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    """As of later versions."""
    laid = _windows(kernel_shape, spatial_axes(x, "x", kernel_shape), auto_pad, pads, strides, None)
    return _pooled_norms(g, x, p, laid, auto_pad, 0)


@onnx("GlobalLpPool", since=1)
def global_lp_pool(g: Graph, x: Value, *, p: float = 2.0) -> Expr:
    """(The sum of |x| ** p over all axes but the first two) ** (1 / p)."""
    def norms(image: Value, axes: list[int]) -> Expr:
        return _norms(g, image, p, lambda powers: g.op("sum", powers, axes, True))

    return over_the_image(g, x, norms)


@onnx("CausalConvWithState", since=27)
def causal_conv(
    g: Graph,
    x: Value,
    w: Value,
    b: Value | None = None,
    past: Value | None = None,
    *,
    activation: str = "none",
) -> Any:
    """R.nn.conv1d of each channel over what came before and x; the state is the end of these."""
    if activation not in ("none", "silu", "swish"):
        raise Problem(f"activation: {activation!r} is not supported")
    dims, weight = g.named_dims(x, 3), g.named_dims(w, 3)
    if dims is None or weight is None:
        raise Problem(f"expected x and weight of rank 3, got {x.type}, {w.type}")
    before = _plain(weight[2]) - 1
    whole: Any
    if past is not None:
        whole = g.op("concat", [past, x], 2)
    else:
        nothing = g.op("zeros", [dims[0], dims[1], before], x.dtype)
        whole = g.op("concat", [nothing, x], 2) if before != 0 else g.expr(x)
    channels = _plain(weight[0])
    found: Any
    if isinstance(channels, int):
        found = g.op("nn.conv1d", whole, w, groups=channels)
    else:
        found = _at_run_time(g, "nn.conv1d", [whole, w, (1,), (0, 0), (1,), channels], x)
    found = _with_bias(g, found, b, 1)
    if activation != "none":
        found = g.op("nn.silu", found)
    length = dims[2]
    state = g.op("strided_slice", whole, [2], [length], [length + before])
    return Value(found), Value(state)
