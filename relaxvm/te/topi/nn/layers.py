"""``topi.nn``: layers of networks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ....ir import prim
from ....ir.arith import simplify
from ....ir.expr import Expr, IntImm
from ....ir.prim import as_scalar, is_float
from ....tir import intrinsics
from ....tir.buffer import as_index
from ... import tensor as te
from ...tensor import INDEX_DTYPE, Tensor, compute
from .. import basic
from .._loops import axis_of as _axis

__all__ = [
    "adaptive_pool",
    "adaptive_pool1d",
    "adaptive_pool3d",
    "batch_matmul",
    "batch_norm",
    "conv1d",
    "conv2d",
    "conv2d_hwcn",
    "conv2d_nchw",
    "conv2d_nhwc",
    "conv3d_ncdhw",
    "dense",
    "depthwise_conv2d_nchw",
    "flatten",
    "global_pool",
    "group_conv2d_nchw",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "matmul",
    "pad",
    "pool1d",
    "pool2d",
    "pool3d",
    "prelu",
    "relu",
    "rms_norm",
    "softmax",
    "softplus",
    "upsampling",
]


def _index(value: Any) -> Expr:
    return as_index(value, INDEX_DTYPE.get())


def _number(value: float, dtype: str) -> Expr:
    result: Expr = as_scalar(float(value) if is_float(dtype) else int(value), dtype)
    return result


def _named(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{i}" for i in range(count)]


def _elementwise(x: Tensor, formula: Callable[[Expr], Any]) -> Tensor:
    return compute(x.shape, lambda *i: formula(x[i]), "compute", varargs_names=_named("i", x.ndim))


# Activations


def relu(x: Tensor) -> Tensor:
    """max(x, 0)"""
    return _elementwise(x, lambda e: intrinsics.max(e, _number(0, x.dtype)))


def leaky_relu(x: Tensor, alpha: float) -> Tensor:
    """x where it is positive, else alpha * x"""
    zero, slope = _number(0, x.dtype), _number(alpha, x.dtype)
    return _elementwise(x, lambda e: prim.select(e > zero, e, e * slope))


def prelu(x: Tensor, slope: Tensor, axis: int = 1) -> Tensor:
    """x where it is positive, else slope * x, where `slope` has a value for each place of an
    axis."""
    at, zero = _axis(axis, x.ndim, "prelu"), _number(0, x.dtype)
    return compute(
        x.shape,
        lambda *i: prim.select(x[i] > zero, x[i], x[i] * slope[i[at]]),
        "T_prelu",
        varargs_names=_named("i", x.ndim),
    )


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x where beta * x is above the threshold."""
    scale, most = _number(beta, x.dtype), _number(threshold, x.dtype)

    def formula(e: Expr) -> Any:
        scaled = e * scale
        soft = intrinsics.log1p(intrinsics.exp(scaled)) / scale
        return prim.select(scaled > most, e, soft)

    return _elementwise(x, formula)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x - greatest) / total, along an axis."""
    at = _axis(axis, x.ndim, "softmax")
    spread, without = _around(at)
    greatest = _greatest(x, at, "T_softmax_maxelem")
    names = _named("i", x.ndim)
    powers = compute(
        x.shape,
        lambda *i: intrinsics.exp(x[i] - greatest[without(i)]),
        "T_softmax_exp",
        varargs_names=names,
    )
    k = te.reduce_axis((0, x.shape[at]), "k")
    total = compute(
        greatest.shape,
        lambda *i: te.sum(powers[spread(i, k.var)], k),
        "T_softmax_expsum",
        varargs_names=names[:-1],
    )
    return compute(
        x.shape,
        lambda *i: powers[i] / total[without(i)],
        "T_softmax_norm",
        attrs={"axis": at},
        varargs_names=names,
    )


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of `softmax`."""
    at = _axis(axis, x.ndim, "log_softmax")
    spread, without = _around(at)
    greatest = _greatest(x, at, "T_softmax_maxelem")
    k = te.reduce_axis((0, x.shape[at]), "k")
    total = compute(
        greatest.shape,
        lambda *i: te.sum(intrinsics.exp(x[spread(i, k.var)] - greatest[i]), k),
        "compute",
        varargs_names=_named("i", x.ndim - 1),
    )
    return compute(
        x.shape,
        lambda *i: x[i] - greatest[without(i)] - intrinsics.log(total[without(i)]),
        "compute",
        attrs={"axis": at},
        varargs_names=_named("i", x.ndim),
    )


def _around(at: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Functions that insert an index at an axis, and that leave it out."""

    def spread(i: Sequence[Expr], k: Expr) -> tuple[Expr, ...]:
        return (*i[:at], k, *i[at:])

    def without(i: Sequence[Expr]) -> tuple[Expr, ...]:
        return (*i[:at], *i[at + 1 :])

    return spread, without


def _greatest(x: Tensor, at: int, name: str) -> Tensor:
    spread, without = _around(at)
    k = te.reduce_axis((0, x.shape[at]), "k")
    return compute(
        without(x.shape),
        lambda *i: te.max(x[spread(i, k.var)], k),
        name,
        varargs_names=_named("i", x.ndim - 1),
    )


def flatten(data: Tensor) -> Tensor:
    """All dimensions after the first joined to one."""
    if not data.ndim:
        raise ValueError(f"flatten: data: expected at least 1 dimension, got {data}")
    count = _index(1)
    for dim in data.shape[1:]:
        count = count * dim
    return basic.reshape(data, [data.shape[0], simplify(count)])


# Products


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None
) -> Tensor:
    """data[n, k] times the transpose of weight[m, k], and the bias[m]."""
    return matmul(data, weight, bias, out_dtype, transpose_b=True)


def matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Tensor:
    """The product of two tensors of at least two dimensions, either of which may be given
    transposed, and the bias; dimensions in front broadcast.

    Raises:
        ValueError: the inner dimensions differ, or an operand has one dimension.
    """
    return product_of(tensor_a, tensor_b, bias, out_dtype, transpose_a, transpose_b)


def product_of(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    attrs: Any = None,
) -> Tensor:
    """`matmul`, with attributes of the block that multiplies."""
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError(f"matmul: expected at least 2 dimensions, got {a.ndim} and {b.ndim}")
    dtype = a.dtype if out_dtype is None else str(out_dtype)
    rows, inner = a.shape[-2:][:: -1 if transpose_a else 1]
    other, columns = b.shape[-2:][:: -1 if transpose_b else 1]
    if type(inner) is IntImm and type(other) is IntImm and inner.value != other.value:
        raise ValueError(f"matmul: the inner dimensions are {inner.value} and {other.value}")
    batch = basic.broadcast_shape(a.shape[:-2], b.shape[:-2], "matmul")
    k = te.reduce_axis((0, inner), "k")
    letters = ("T" if transpose_a else "N") + ("T" if transpose_b else "N")
    name = "T_matmul_" + letters if a.ndim == b.ndim == 2 else "T_batch_matmul_" + letters

    def formula(*i: Expr) -> Any:
        head, (row, column) = i[:-2], i[-2:]
        x = a[(*_of_batch(a, head), *((k.var, row) if transpose_a else (row, k.var)))]
        y = b[(*_of_batch(b, head), *((column, k.var) if transpose_b else (k.var, column)))]
        return te.sum(prim.cast(x, dtype) * prim.cast(y, dtype), k)

    rank = len(batch) + 2
    product: Tensor = compute(
        [*batch, rows, columns], formula, name, varargs_names=_named("i", rank), attrs=attrs
    )
    if bias is None:
        return product
    return compute(
        product.shape,
        lambda *i: product[i] + prim.cast(bias[i[rank - bias.ndim :]], dtype),
        "T_add",
        varargs_names=_named("i", rank),
    )


def _of_batch(x: Tensor, indices: Sequence[Expr]) -> list[Any]:
    dims = x.shape[:-2]
    own = indices[len(indices) - len(dims) :]
    return [0 if basic._is_one(dim) else i for i, dim in zip(own, dims, strict=True)]


def batch_matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    oshape: Any = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Tensor:
    """The products of matrices, one for each place of the first dimension.

    Args:
        oshape: the shape of the result; accepted for compatibility, since it is known.
    """
    if tensor_a.ndim != 3 or tensor_b.ndim != 3:
        raise ValueError(
            f"batch_matmul: expected 3 dimensions, got {tensor_a.ndim} and {tensor_b.ndim}"
        )
    return matmul(tensor_a, tensor_b, None, out_dtype, transpose_a, transpose_b)


# Padding


def pad(
    data: Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    pad_value: Any = 0.0,
    name: str = "PadInput",
    attrs: Any = None,
) -> Tensor:
    """The tensor with a value around it.

    Args:
        pad_before, pad_after: how many places there are before and after each axis; by default
            as many after it as before it.
    """
    after = pad_before if pad_after is None else pad_after
    if len(pad_before) != data.ndim or len(after) != data.ndim:
        raise ValueError(
            f"pad: expected a width for each of {data.ndim} dimensions, got {len(pad_before)} and "
            f"{len(after)}"
        )
    before, behind = [_index(p) for p in pad_before], [_index(p) for p in after]
    dims = [
        simplify(dim + low + high)
        for dim, low, high in zip(data.shape, before, behind, strict=True)
    ]
    value = prim.cast(as_scalar(pad_value), data.dtype)

    def element(*i: Expr) -> Any:
        inside: list[Expr] = []
        places: list[Expr] = []
        for index, dim, low, high in zip(i, data.shape, before, behind, strict=True):
            if not _is_zero(low):
                inside.append(low <= index)
            if not _is_zero(low) or not _is_zero(high):
                inside.append(index < simplify(low + dim))
            places.append(index if _is_zero(low) else index - low)
        if not inside:
            return data[tuple(places)]
        condition = functools.reduce(prim.logical_and, inside)
        return intrinsics.if_then_else(condition, data[tuple(places)], value)

    return compute(dims, element, name, attrs=attrs, varargs_names=_named("i", data.ndim))


def _is_zero(e: Expr) -> bool:
    return type(e) is IntImm and e.value == 0


# Convolutions


def _tuple(value: Any, count: int, what: str) -> list[int]:
    """A value for each of `count` axes."""
    given = list(value) if isinstance(value, (list, tuple)) else [value] * count
    if len(given) == 1:
        given *= count
    if len(given) != count:
        raise ValueError(f"{what}: expected {count} numbers, got {len(given)}")
    return [int(getattr(x, "value", x)) for x in given]


def _paddings(padding: Any, extents: Sequence[Expr], what: str) -> tuple[list[Any], list[Any]]:
    """What is added before and after each axis, given windows of these extents."""
    count = len(extents)
    if isinstance(padding, str):
        if padding == "VALID":
            return [0] * count, [0] * count
        if padding != "SAME":
            raise ValueError(f"{what}: padding: expected 'VALID' or 'SAME', got {padding!r}")
        whole = [simplify(extent - 1) for extent in extents]
        before = [simplify(prim.floordiv(w + 1, 2)) for w in whole]
        return before, [simplify(w - b) for w, b in zip(whole, before, strict=True)]
    given = list(padding) if isinstance(padding, (list, tuple)) else [padding]
    if len(given) == 1:
        given *= count
    if len(given) == count:
        given *= 2
    if len(given) != 2 * count:
        raise ValueError(
            f"{what}: padding: expected 1, {count} or {2 * count} numbers, got {len(given)}"
        )
    return given[:count], given[count:]


def _convolution(
    data: Tensor,
    kernel: Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    layouts: tuple[str, str],
    out_dtype: str | None,
    name: str,
    always_pads: bool = False,
) -> Tensor:
    """A convolution with as many groups as the kernel's input channels make of the data's.  TVM
    pads even by nothing (`always_pads`).

    Raises:
        ValueError: a layout does not fit the tensor, or numbers are missing.
    """
    data_layout, kernel_layout = layouts
    for tensor, layout in ((data, data_layout), (kernel, kernel_layout)):
        if len(layout) != tensor.ndim:
            raise ValueError(f"{name}: layout {layout!r} of a tensor of {tensor.ndim} dimensions")
    dtype = data.dtype if out_dtype is None else str(out_dtype)
    spatial = [letter for letter in data_layout if letter not in "NC"]
    steps = _tuple(strides, len(spatial), f"{name}: strides")
    spreads = _tuple(dilation, len(spatial), f"{name}: dilation")
    x = dict(zip(data_layout, data.shape, strict=True))
    w = dict(zip(kernel_layout, kernel.shape, strict=True))
    extents = [
        simplify((w[letter] - 1) * spread + 1)
        for letter, spread in zip(spatial, spreads, strict=True)
    ]
    before, after = _paddings(padding, extents, name)
    padded = data
    if always_pads or not all(_is_zero(_index(p)) for p in (*before, *after)):
        low, high = dict(zip(spatial, before, strict=True)), dict(zip(spatial, after, strict=True))
        padded = pad(data, [low.get(a, 0) for a in data_layout],
                     [high.get(a, 0) for a in data_layout], name="pad_temp")  # fmt: skip
    sizes = dict(zip(data_layout, padded.shape, strict=True))
    out = {"N": x["N"], "C": w["O"]}
    for letter, extent, step in zip(spatial, extents, steps, strict=True):
        out[letter] = simplify(prim.floordiv(sizes[letter] - extent, step) + 1)
    groups = simplify(prim.floordiv(x["C"], w["I"]))
    channel = te.reduce_axis((0, w["I"]), "rc")
    taps = [te.reduce_axis((0, w[letter]), f"r{letter.lower()}") for letter in spatial]
    order = [channel, *taps] if data_layout.index("C") == 1 else [*taps, channel]

    def formula(*i: Expr) -> Any:
        at = dict(zip(data_layout, i, strict=True))
        read = {"N": at["N"], "C": channel.var}
        if not basic._is_one(groups):
            of_group = prim.floordiv(at["C"], simplify(prim.floordiv(w["O"], groups)))
            read["C"] = of_group * w["I"] + channel.var
        weigh = {"O": at["C"], "I": channel.var}
        for letter, tap, step, spread in zip(spatial, taps, steps, spreads, strict=True):
            weigh[letter] = tap.var
            read[letter] = at[letter] * step + tap.var * spread
        value = padded[tuple(read[letter] for letter in data_layout)]
        factor = kernel[tuple(weigh[letter] for letter in kernel_layout)]
        return te.sum(prim.cast(value, dtype) * prim.cast(factor, dtype), order)

    names = {"N": "nn", "C": "ff", "D": "zz", "H": "yy", "W": "xx"}
    return compute(
        [out[letter] for letter in data_layout],
        formula,
        name,
        varargs_names=[names[letter] for letter in data_layout],
    )


_KERNEL_LAYOUTS: Final = {
    "NCW": "OIW", "NWC": "WIO", "NCHW": "OIHW", "NHWC": "HWIO", "HWCN": "HWIO", "NCDHW": "OIDHW",
    "NDHWC": "DHWIO",
}  # fmt: skip
"""The usual layout of kernels for one of data."""


def _layouts(data_layout: str, kernel_layout: str, what: str) -> tuple[str, str]:
    usual = _KERNEL_LAYOUTS.get(data_layout)
    if usual is None:
        known = ", ".join(_KERNEL_LAYOUTS)
        raise ValueError(f"{what}: data_layout: expected one of {known}, got {data_layout!r}")
    return data_layout, kernel_layout or usual


def conv1d(
    data: Tensor,
    kernel: Tensor,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution along one axis; the shapes of the operands say how many groups there are."""
    layouts = _layouts(data_layout, kernel_layout, "conv1d")
    name = f"conv1d_{data_layout.lower()}"
    return _convolution(data, kernel, strides, padding, dilation, layouts, out_dtype, name)


def conv2d(
    input: Tensor,  # noqa: A002
    filter: Tensor,  # noqa: A002
    strides: Any,
    padding: Any,
    dilation: Any,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution along two axes.

    Args:
        input, filter: the operands; their shapes say how many groups there are.
        strides, dilation: a number, or one for each axis.
        padding: a number, one for each axis, two for each axis (all before, then all after), or
            "VALID" or "SAME".
        data_layout, kernel_layout: the order of dimensions, such as NCHW and OIHW.
        out_dtype: data type of the products and their sum, by default that of the data.
    """
    layouts = _layouts(data_layout, kernel_layout, "conv2d")
    name = f"conv2d_{data_layout.lower()}"
    return _convolution(input, filter, strides, padding, dilation, layouts, out_dtype, name)


def conv2d_nchw(
    Input: Tensor,
    Filter: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    out_dtype: str | None = None,
) -> Tensor:
    """`conv2d` of data in layout NCHW."""
    return conv2d(Input, Filter, stride, padding, dilation, "NCHW", "", out_dtype)


def conv2d_nhwc(
    Input: Tensor,
    Filter: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    out_dtype: str | None = "float32",
) -> Tensor:
    """`conv2d` of data in layout NHWC; the result is of float32 by default."""
    return conv2d(Input, Filter, stride, padding, dilation, "NHWC", "", out_dtype)


def conv2d_hwcn(
    Input: Tensor,
    Filter: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    out_dtype: str | None = None,
) -> Tensor:
    """`conv2d` of data in layout HWCN."""
    return conv2d(Input, Filter, stride, padding, dilation, "HWCN", "", out_dtype)


def group_conv2d_nchw(
    Input: Tensor,
    Filter: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution whose operands' channels are in groups."""
    return _convolution(Input, Filter, stride, padding, dilation, ("NCHW", "OIHW"), out_dtype,
                        "group_conv2d_nchw")  # fmt: skip


def conv3d_ncdhw(
    Input: Tensor,
    Filter: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution along three axes; the shapes of the operands say how many groups there are."""
    return _convolution(Input, Filter, stride, padding, dilation, ("NCDHW", "OIDHW"), out_dtype,
                        "conv3d_ncdhw")  # fmt: skip


def depthwise_conv2d_nchw(
    Input: Tensor,
    Filter: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution of each channel for itself; the kernel is [channels, multiplier, h, w]."""
    channels, multiplier, height, width = Filter.shape
    one = _index(1)
    dims = [simplify(channels * multiplier), one, height, width]
    weight = basic.reshape(Filter, dims)
    return _convolution(Input, weight, stride, padding, dilation, ("NCHW", "OIHW"), out_dtype,
                        "DepthwiseConv2d")  # fmt: skip


# Pools


def _rule(name: str) -> dict[str, str]:
    """TVM's annotation of a block; its schedules look for it."""
    return {"schedule_rule": f"meta_schedule.{name}"}


class Window(NamedTuple):
    """What a pool does along an axis."""

    axis: int
    length: Expr
    size: Any
    stride: Any
    dilation: Any
    before: Any
    """Padding before the elements, and after them."""
    after: Any


def _pool(
    data: Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool,
    layout: str,
    count_include_pad: bool,
    what: str,
    counted: Callable[[Sequence[Expr], Sequence[Window]], Expr] | None = None,
) -> Tensor:
    """`counted` gives the number of elements of the window of a mean, instead of the usual
    formula."""
    if pool_type not in ("max", "avg"):
        raise ValueError(f"{what}: pool_type: expected 'max' or 'avg', got {pool_type!r}")
    if len(layout) != data.ndim:
        raise ValueError(f"{what}: layout {layout!r} of a tensor of {data.ndim} dimensions")
    axes = [layout.index(letter) for letter in sorted(layout) if letter not in "NC"]
    sizes = _tuple(kernel, len(axes), f"{what}: kernel")
    steps = _tuple(stride, len(axes), f"{what}: stride")
    spreads = _tuple(dilation, len(axes), f"{what}: dilation")
    extents = [_index((size - 1) * d + 1) for size, d in zip(sizes, spreads, strict=True)]
    low, high = _paddings(padding, extents, what)
    before, after = [0] * data.ndim, [0] * data.ndim
    dims = list(data.shape)
    for k, axis in enumerate(axes):
        before[axis], after[axis] = low[k], high[k]
        if ceil_mode:
            after[axis] = high[k] + steps[k] - 1
        whole = simplify(dims[axis] - extents[k] + before[axis] + after[axis])
        dims[axis] = (
            simplify(whole + 1) if steps[k] == 1 else prim.floordiv(whole, steps[k]) + 1
        )
    names = _named("ax", data.ndim)
    fill = intrinsics.min_value(data.dtype) if pool_type == "max" else _number(0, data.dtype)
    padded = data
    if any(not _is_zero(_index(p)) for p in (*before, *after)):
        padded = pad(data, before, after, fill, name="pad_temp")
    taps = [te.reduce_axis((0, size), f"rv{k}") for k, size in enumerate(sizes)]
    windows = [
        Window(axis, data.shape[axis], *each)
        for axis, *each in zip(axes, sizes, steps, spreads, low, high, strict=True)
    ]

    def places(i: Sequence[Expr]) -> tuple[Expr, ...]:
        at = list(i)
        for axis, tap, step, spread in zip(axes, taps, steps, spreads, strict=True):
            at[axis] = i[axis] * step + tap.var * spread
        return tuple(at)

    if pool_type == "max":
        largest: Tensor = compute(
            dims, lambda *i: te.max(padded[places(i)], taps), "pool_max", varargs_names=names,
            attrs=_rule("pool_max"),
        )  # fmt: skip
        return largest
    total = compute(
        dims, lambda *i: te.sum(padded[places(i)], taps), "pool_sum", varargs_names=names
    )

    def count(i: Sequence[Expr]) -> Expr:
        if counted is not None:
            return counted(i, windows)
        number: Expr = _index(1)
        for k, axis in enumerate(axes):
            if spreads[k] != 1 or count_include_pad:
                end = simplify(data.shape[axis] + low[k] + high[k])
                first, last = i[axis] * steps[k], i[axis] * steps[k] + extents[k]
                inside = intrinsics.min(last, end) - first
            else:
                first = i[axis] * steps[k] - low[k]
                end = intrinsics.min(first + extents[k], data.shape[axis])
                inside = end - intrinsics.max(first, 0)
            if spreads[k] != 1:
                inside = prim.floordiv(inside + (spreads[k] - 1), spreads[k])
            number = number * inside
        result: Expr = simplify(intrinsics.max(number, 1))
        return result

    return compute(
        dims,
        lambda *i: basic._divide(total[i], prim.cast(count(i), data.dtype)),
        "pool_avg",
        varargs_names=names,
        attrs=_rule("pool_avg"),
    )


def pool1d(
    data: Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCW",
    count_include_pad: bool = True,
) -> Tensor:
    """As `pool2d`, along one axis."""
    return _pool(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout,
                 count_include_pad, "pool1d")  # fmt: skip


def pool2d(
    data: Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> Tensor:
    """The greatest value or the mean of each window.

    Args:
        kernel, stride, dilation: a number for each axis.
        padding: what counts as image around it: before each axis, then after each.
        pool_type: "max" or "avg".
        ceil_mode: whether windows that are only begun count.
        count_include_pad: whether padding counts in a mean.
    """
    return _pool(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout,
                 count_include_pad, "pool2d")  # fmt: skip


def pool3d(
    data: Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCDHW",
    count_include_pad: bool = True,
) -> Tensor:
    """As `pool2d`, along three axes."""
    return _pool(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout,
                 count_include_pad, "pool3d")  # fmt: skip


def adaptive_pool(data: Tensor, output_size: Any, pool_type: str, layout: str = "NCHW") -> Tensor:
    """The greatest value or the mean of windows, so many that the result has a given size."""
    return _adaptive(data, output_size, pool_type, layout, "adaptive_pool")


def adaptive_pool1d(data: Tensor, output_size: Any, pool_type: str, layout: str = "NCW") -> Tensor:
    """As `adaptive_pool`, along one axis."""
    return _adaptive(data, output_size, pool_type, layout, "adaptive_pool1d")


def adaptive_pool3d(
    data: Tensor, output_size: Any, pool_type: str, layout: str = "NCDHW"
) -> Tensor:
    """As `adaptive_pool`, along three axes."""
    return _adaptive(data, output_size, pool_type, layout, "adaptive_pool3d")


def _adaptive(data: Tensor, output_size: Any, pool_type: str, layout: str, what: str) -> Tensor:
    if pool_type not in ("max", "avg"):
        raise ValueError(f"{what}: pool_type: expected 'max' or 'avg', got {pool_type!r}")
    if len(layout) != data.ndim:
        raise ValueError(f"{what}: layout {layout!r} of a tensor of {data.ndim} dimensions")
    axes = [layout.index(letter) for letter in sorted(layout) if letter not in "NC"]
    sizes = _tuple(output_size, len(axes), f"{what}: output_size")
    dims = list(data.shape)
    taps = []
    windows: list[Expr | None] = []
    for k, axis in enumerate(axes):
        length = data.shape[axis]
        dims[axis] = _index(sizes[k])
        # The longest window; shorter ones leave out what is behind their end.
        longest = prim.floordiv(length + (sizes[k] - 1), sizes[k])
        exact = type(length) is IntImm and length.value % sizes[k] == 0
        windows.append(simplify(longest) if exact else None)
        taps.append(te.reduce_axis((0, simplify(longest if exact else longest + 1)), f"rv{k}"))

    def bounds(i: Sequence[Expr], k: int) -> tuple[Expr, Expr]:
        axis, length = axes[k], data.shape[axes[k]]
        first = prim.floordiv(i[axis] * length, sizes[k])
        end = prim.floordiv((i[axis] + 1) * length + (sizes[k] - 1), sizes[k])
        return first, end

    def reduction(reduce: Callable[..., Any]) -> Callable[..., Any]:
        def formula(*i: Expr) -> Any:
            at = list(i)
            inside: list[Expr] = []
            for k, axis in enumerate(axes):
                window = windows[k]
                if window is not None:
                    at[axis] = i[axis] * window + taps[k].var
                    continue
                first, end = bounds(i, k)
                at[axis] = first + taps[k].var
                inside.append(at[axis] < end)
            where = functools.reduce(prim.logical_and, inside) if inside else None
            return reduce(data[tuple(at)], taps, where=where)

        return formula

    names = _named("ax", data.ndim)
    if pool_type == "max":
        largest: Tensor = compute(
            dims, reduction(te.max), "adaptive_pool_max", varargs_names=names,
            attrs=_rule("adaptive_pool_max"),
        )  # fmt: skip
        return largest
    total = compute(dims, reduction(te.sum), "adaptive_pool_sum", varargs_names=names)

    def mean(*i: Expr) -> Any:
        count: Expr = _index(1)
        for k in range(len(axes)):
            window = windows[k]
            if window is None:
                first, end = bounds(i, k)
                window = end - first
            count = count * window
        return basic._divide(total[i], prim.cast(count, data.dtype))

    return compute(
        dims, mean, "adaptive_pool_avg", varargs_names=names, attrs=_rule("adaptive_pool_avg")
    )


def global_pool(data: Tensor, pool_type: str, layout: str = "NCHW") -> Tensor:
    """The greatest value or the mean of each image."""
    size = [1] * (len(layout) - 2)
    return _adaptive(data, size, pool_type, layout, "global_pool")


def upsampling(
    data: Tensor,
    scale_h: Any,
    scale_w: Any,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
    output_shape: Any = None,
) -> Tensor:
    """An image enlarged by whole factors: every element is repeated.

    Raises:
        NotImplementedError: another method; ``R.image.resize2d`` has them.
        ValueError: the layout is neither NCHW nor NHWC, or a factor is not whole.
    """
    if method != "nearest_neighbor" or align_corners or output_shape is not None:
        raise NotImplementedError(
            f"upsampling: method {method!r}, align_corners and output_shape are not available as "
            "loops; R.image.resize2d has them"
        )
    if layout not in ("NCHW", "NHWC") or data.ndim != 4:
        raise ValueError(
            f"upsampling: layout: expected 'NCHW' or 'NHWC' of 4 dimensions, got {layout!r} of "
            f"{data.ndim}"
        )
    scales = {}
    for letter, scale in (("H", scale_h), ("W", scale_w)):
        given: Any = getattr(scale, "value", scale)
        number = float(given)
        if number < 1 or number != int(number):
            raise ValueError(f"upsampling: expected whole factors, got {number:g}")
        scales[layout.index(letter)] = int(number)
    dims = [
        simplify(dim * scales[axis]) if axis in scales else dim
        for axis, dim in enumerate(data.shape)
    ]

    def element(*i: Expr) -> Any:
        return data[
            tuple(
                prim.floordiv(index, scales[axis]) if axis in scales else index
                for axis, index in enumerate(i)
            )
        ]

    return compute(dims, element, "resize", varargs_names=_named("i", 4))


# Normalization


def _gone(axis: Any, rank: int, what: str) -> list[int]:
    axes: Sequence[Any] = axis if isinstance(axis, (list, tuple)) else [axis]
    return sorted({_axis(int(a), rank, what) for a in axes})


def _moments(x: Tensor, gone: Sequence[int]) -> Any:
    """The sums of the elements and of their squares over some axes."""
    taps = {a: te.reduce_axis((0, x.shape[a]), f"k{a}") for a in gone}
    dims = [dim for a, dim in enumerate(x.shape) if a not in taps]
    zero = _number(0, x.dtype)
    sums = te.comm_reducer(
        lambda a, b: (a[0] + b[0], a[1] + b[1]), lambda *_: (zero, zero), "moments"
    )

    def formula(*i: Expr) -> Any:
        rest = iter(i)
        value = x[tuple(taps[a].var if a in taps else next(rest) for a in range(x.ndim))]
        return sums((value, value * value), list(taps.values()))

    return compute(dims, formula, f"{x.name}_red_temp", varargs_names=_named("ax", len(dims)))


def _normalized(
    x: Tensor,
    gone: Sequence[int],
    gamma: Tensor | None,
    beta: Tensor | None,
    epsilon: float,
    of_weights: Callable[[Sequence[Expr]], tuple[Expr, ...]],
    name: str,
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon), times gamma, plus beta."""
    sums = _moments(x, gone)
    count: Expr = _index(1)
    for a in gone:
        count = count * x.shape[a]
    total = prim.cast(simplify(count), x.dtype)
    eps = _number(epsilon, x.dtype)

    def formula(*i: Expr) -> Any:
        own = tuple(index for a, index in enumerate(i) if a not in gone)
        mean = sums[0][own] / total
        variance = sums[1][own] / total - mean * mean
        value = (x[i] - mean) * intrinsics.rsqrt(variance + eps)
        weights = of_weights(i)
        if gamma is not None:
            value = value * gamma[weights]
        return value if beta is None else value + beta[weights]

    return compute(x.shape, formula, name, varargs_names=_named("ax", x.ndim))


def layer_norm(
    data: Tensor, gamma: Tensor, beta: Tensor | None, axis: Any, epsilon: float = 1e-5
) -> Tensor:
    """Normalization over some axes, which `gamma` and `beta` have."""
    gone = _gone(axis, data.ndim, "layer_norm")
    return _normalized(data, gone, gamma, beta, epsilon,
                       lambda i: tuple(i[a] for a in gone), "T_layer_norm")  # fmt: skip


def instance_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    channel_axis: int,
    axis: Any,
    epsilon: float = 1e-5,
) -> Tensor:
    """Normalization over some axes, with a weight for each channel."""
    at = _axis(channel_axis, data.ndim, "instance_norm")
    gone = _gone(axis, data.ndim, "instance_norm")
    return _normalized(data, gone, gamma, beta, epsilon, lambda i: (i[at],), "T_instance_norm")


def group_norm(
    data: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    num_groups: int,
    channel_axis: int,
    axes: Any,
    epsilon: float = 1e-5,
) -> Tensor:
    """Normalization of the channels of each group, with a weight for each channel."""
    at = _axis(channel_axis, data.ndim, "group_norm")
    size = simplify(prim.floordiv(data.shape[at], num_groups))
    dims = [*data.shape[:at], _index(num_groups), size, *data.shape[at + 1 :]]
    grouped = basic.reshape(data, dims)
    gone = [at + 1] + [a + (a > at) for a in _gone(axes, data.ndim, "group_norm") if a != at]
    normal = _normalized(grouped, sorted(gone), gamma, beta, epsilon,
                         lambda i: (i[at] * size + i[at + 1],), "T_group_norm")  # fmt: skip
    return basic.reshape(normal, data.shape)


def rms_norm(data: Tensor, weight: Tensor, axis: Any, epsilon: float = 1e-5) -> Tensor:
    """data / sqrt(mean(data**2) + epsilon) * weight, over some axes."""
    gone = _gone(axis, data.ndim, "rms_norm")
    total = basic.sum(basic.multiply(data, data), gone)
    count: Expr = _index(1)
    for a in gone:
        count = count * data.shape[a]
    number, eps = prim.cast(simplify(count), data.dtype), _number(epsilon, data.dtype)

    def formula(*i: Expr) -> Any:
        own = tuple(index for a, index in enumerate(i) if a not in gone)
        scale = intrinsics.rsqrt(total[own] / number + eps)
        return data[i] * weight[tuple(i[a] for a in gone)] * scale

    return compute(data.shape, formula, "T_rms_norm", varargs_names=_named("ax", data.ndim))


def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int | None = None,
    epsilon: float | None = None,
    center: bool | None = None,
    scale: bool | None = None,
    training: bool | None = None,
    momentum: float | None = None,
) -> list[Tensor]:
    """Normalization by mean and variance of each channel, as they are given: the result, and both.

    Raises:
        NotImplementedError: in training.
    """
    if training:
        raise NotImplementedError("batch_norm: training is not available: relaxvm runs models")
    at = _axis(1 if axis is None else axis, data.ndim, "batch_norm")
    eps = _number(1e-5 if epsilon is None else epsilon, data.dtype)

    def formula(*i: Expr) -> Any:
        c = i[at]
        value = (data[i] - moving_mean[c]) / intrinsics.sqrt(moving_var[c] + eps)
        if scale is None or scale:
            value = value * gamma[c]
        return value + beta[c] if center is None or center else value

    out = compute(data.shape, formula, "T_batch_norm", varargs_names=_named("ax", data.ndim))
    return [out, basic.identity(moving_mean), basic.identity(moving_var)]
