"""Convolutions, normalizations, dropout and padding."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ....dtypes import as_dtype
from ....ir import Constant, Expr, TensorType, prim
from ...common.emitter import Emitter, Problem
from ..forms import (
    Tensor,
    cast,
    dims_of,
    dtype_of,
    each_of,
    item,
    known,
    length,
    number,
    numel,
    per_axis,
    rank_of,
    reshaped,
    sliced,
)
from ..graph import Graph
from ..registry import aten
from .random_numbers import dropped

__all__ = ["padded"]


# Convolutions


def _convolved(
    c: Emitter, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any,
    dilation: Any, groups: int, count: int,
) -> Tensor:  # fmt: skip
    is_single = rank_of(x) == count + 1
    if is_single:
        x = reshaped(c, x, [1, *dims_of(x)])
    dilations = per_axis(dilation, count)
    if padding == "valid":
        pads = [0] * (2 * count)
    elif padding == "same":
        sizes = dims_of(weight)[2:]
        totals = [d * (k - 1) for d, k in zip(dilations, sizes, strict=True)]
        pads = [n // 2 for n in totals] + [n - n // 2 for n in totals]
    else:
        pads = per_axis(padding, count) * 2
    if any(not isinstance(each, int) or each < 0 for each in pads):
        raise Problem(f"padding: expected numbers of at least 0, got {padding}")
    found: Tensor = c.op(
        f"nn.conv{count}d", x, weight, strides=per_axis(stride, count), padding=pads,
        dilation=dilations, groups=groups,
    )  # fmt: skip
    return _with_bias(c, found, bias, count, is_single)


def _with_bias(
    c: Emitter, found: Tensor, bias: Tensor | None, count: int, is_single: bool
) -> Tensor:
    if bias is not None:
        found = c.op("add", found, reshaped(c, bias, [1, -1, *[1] * count]))
    return reshaped(c, found, dims_of(found)[1:]) if is_single else found


def _transposed(
    c: Emitter, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any,
    output_padding: Any, groups: int, dilation: Any, count: int,
) -> Tensor:  # fmt: skip
    is_single = rank_of(x) == count + 1
    if is_single:
        x = reshaped(c, x, [1, *dims_of(x)])
    strides, dilations = per_axis(stride, count), per_axis(dilation, count)
    pads, more = per_axis(padding, count), per_axis(output_padding, count)
    # The kernel takes less than a stride of output padding; more is padding that is left out.
    after = list(pads)
    beyond = [0] * count
    for i, (n, by) in enumerate(zip(more, strides, strict=True)):
        if n >= by:
            after[i] -= n
            more[i] = 0
        if after[i] < 0:  # beyond all windows, where there are zeros
            beyond[i], after[i] = -after[i], 0
    found: Tensor = c.op(
        f"nn.conv{count}d_transpose", x, weight, strides=strides, padding=[*pads, *after],
        output_padding=more, dilation=dilations, groups=groups,
    )  # fmt: skip
    if any(beyond):
        found = padded(c, found, [n for each in beyond[::-1] for n in (0, each)])
    return _with_bias(c, found, bias, count, is_single)


@each_of("conv1d", "conv2d", "conv3d", "conv1d.padding", "conv2d.padding", "conv3d.padding")
def conv(
    name: str, c: Emitter, input: Tensor, weight: Tensor, bias: Tensor | None = None,  # noqa: A002
    stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """R.nn.conv1d, R.nn.conv2d or R.nn.conv3d."""
    count = int(name[4])
    return _convolved(c, input, weight, bias, stride, padding, dilation, groups, count)


@each_of("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input")
def conv_transpose(
    name: str, c: Emitter, input: Tensor, weight: Tensor, bias: Tensor | None = None,  # noqa: A002
    stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """R.nn.conv1d_transpose, R.nn.conv2d_transpose or R.nn.conv3d_transpose."""
    count = int(name[14])
    return _transposed(c, input, weight, bias, stride, padding, output_padding, groups, dilation,
                       count)  # fmt: skip


@aten("convolution", "_convolution", "convolution_overrideable")
def convolution(
    c: Emitter, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any,  # noqa: A002
    padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int,
    benchmark: Any = None, deterministic: Any = None, cudnn_enabled: Any = None,
    allow_tf32: Any = None,
) -> Tensor:  # fmt: skip
    """A convolution, or a transposed one, of as many axes as the weights have."""
    count = rank_of(weight) - 2
    if transposed:
        return _transposed(c, input, weight, bias, stride, padding, output_padding, groups,
                           dilation, count)  # fmt: skip
    return _convolved(c, input, weight, bias, stride, padding, dilation, groups, count)


@aten("conv_tbc")
def conv_tbc(c: Emitter, self: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """R.nn.conv1d of [time, batch, channels]."""
    x = c.op("permute_dims", self, [1, 2, 0])
    w = c.op("permute_dims", weight, [2, 1, 0])
    found = _convolved(c, x, w, bias, 1, pad, 1, 1, 1)
    return c.op("permute_dims", found, [2, 0, 1])


# Normalizations


def _constant(c: Emitter, value: float, size: Any, dtype: str) -> Tensor:
    if isinstance(size, int):
        return Constant(np.full(size, value, as_dtype(dtype)))
    return c.op("full", [size], number(c, value, dtype), dtype)


def _batch_normalized(
    c: Emitter, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None,
    variance: Tensor | None, training: bool, momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The result, mean and 1 / deviation of the batch, and the new running statistics."""
    dtype = dtype_of(x)
    if rank_of(x) < 2:  # torch takes it if it has no elements
        empty = c.op("zeros", [0], dtype)
        return x, empty, empty, mean or empty, variance or empty
    channels = dims_of(x)[1]
    wide = dtype_of(mean) if mean is not None else "float32" if dtype != "float64" else dtype
    gamma = _constant(c, 1, channels, wide) if weight is None else cast(c, weight, wide)
    beta = _constant(c, 0, channels, wide) if bias is None else cast(c, bias, wide)
    y = cast(c, x, wide)
    along = [1, channels, *[1] * (rank_of(x) - 2)]
    if not training:
        assert mean is not None
        assert variance is not None
        found = item(c, c.op(
            "nn.batch_norm", y, gamma, beta, mean, variance, 1, eps, training=False
        ), 0)  # fmt: skip
        empty = c.op("zeros", [0], wide)
        return cast(c, found, dtype), empty, empty, mean, variance
    axes = [i for i in range(rank_of(x)) if i != 1]
    middle = c.op("mean", y, axes, False)
    apart = c.op("subtract", y, reshaped(c, middle, along))
    spread = c.op("mean", c.op("multiply", apart, apart), axes, False)
    inverse = c.op("rsqrt", c.op("add", spread, number(c, eps, wide)))
    normal = c.op("multiply", apart, reshaped(c, inverse, along))
    found = c.op("add", c.op("multiply", normal, reshaped(c, gamma, along)),
                 reshaped(c, beta, along))  # fmt: skip
    if mean is None or variance is None:
        return cast(c, found, dtype), middle, inverse, middle, spread
    count = number(c, numel([dims_of(x)[i] for i in axes]), wide)
    unbiased = c.op("divide", c.op("multiply", spread, count),
                    c.op("subtract", count, number(c, 1, wide)))  # fmt: skip
    rate, rest = number(c, momentum, wide), number(c, 1 - momentum, wide)
    new_mean, new_variance = (
        c.op("add", c.op("multiply", old, rest), c.op("multiply", new, rate))
        for old, new in ((mean, middle), (variance, unbiased))
    )
    return cast(c, found, dtype), middle, inverse, new_mean, new_variance


_WRITES: Final = ("training", "running_mean", "running_var")


@aten("batch_norm", writes=_WRITES)
def batch_norm(
    c: Graph, input: Tensor, weight: Tensor | None, bias: Tensor | None,  # noqa: A002
    running_mean: Tensor | None, running_var: Tensor | None, training: bool, momentum: float,
    eps: float, cudnn_enabled: bool = False,
) -> Tensor:  # fmt: skip
    """R.nn.batch_norm, or in training by the statistics of the batch."""
    found = _batch_normalized(c, input, weight, bias, running_mean, running_var, training, momentum,
                              eps)  # fmt: skip
    return _remembered(c, training, found)[0]


def _remembered(c: Graph, training: bool, found: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The results, after the running statistics have been written in training."""
    if training:
        c.rewrite("running_mean", found[3])
        c.rewrite("running_var", found[4])
    return found[:3]


@aten("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit.no_stats",
      writes=_WRITES)  # fmt: skip
def native_batch_norm(
    c: Graph, input: Tensor, weight: Tensor | None, bias: Tensor | None,  # noqa: A002
    running_mean: Tensor | None = None, running_var: Tensor | None = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """The same, with mean and 1 / deviation of the batch."""
    found = _batch_normalized(c, input, weight, bias, running_mean, running_var, training, momentum,
                              eps)  # fmt: skip
    return _remembered(c, training, found)


@aten("_native_batch_norm_legit_no_training")
def native_batch_norm_no_training(
    c: Emitter, input: Tensor, weight: Tensor | None, bias: Tensor | None,  # noqa: A002
    running_mean: Tensor, running_var: Tensor, momentum: float, eps: float,
) -> Any:  # fmt: skip
    """R.nn.batch_norm."""
    return _batch_normalized(c, input, weight, bias, running_mean, running_var, False, momentum,
                             eps)[:3]  # fmt: skip


@aten("_native_batch_norm_legit_functional")
def native_batch_norm_functional(
    c: Emitter, input: Tensor, weight: Tensor | None, bias: Tensor | None,  # noqa: A002
    running_mean: Tensor, running_var: Tensor, training: bool, momentum: float, eps: float,
) -> Any:  # fmt: skip
    """Batch normalization, and the new running statistics."""
    return _batch_normalized(c, input, weight, bias, running_mean, running_var, training, momentum,
                             eps)  # fmt: skip


def _layer_normalized(
    c: Emitter, x: Tensor, axes: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dtype = dtype_of(x)
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    y = cast(c, x, wide)
    middle = c.op("mean", y, axes, True)
    apart = c.op("subtract", y, middle)
    spread = c.op("mean", c.op("multiply", apart, apart), axes, True)
    inverse = c.op("rsqrt", c.op("add", spread, number(c, eps, wide)))
    found = c.op("multiply", apart, inverse)
    if weight is not None:
        found = c.op("multiply", found, cast(c, weight, wide))
    if bias is not None:
        found = c.op("add", found, cast(c, bias, wide))
    return cast(c, found, dtype), middle, inverse


@aten("layer_norm")
def layer_norm(
    c: Emitter, input: Tensor, normalized_shape: Any, weight: Tensor | None = None,  # noqa: A002
    bias: Tensor | None = None, eps: float = 1e-5, cudnn_enable: bool = False,
) -> Tensor:  # fmt: skip
    """R.nn.layer_norm."""
    rank, dtype = rank_of(input), dtype_of(input)
    axes = list(range(rank - len(normalized_shape), rank))
    if weight is not None and bias is not None and dtype_of(weight) == dtype_of(bias) == dtype:
        return c.op("nn.layer_norm", input, weight, bias, axes, eps)
    return _layer_normalized(c, input, axes, weight, bias, eps)[0]


@aten("native_layer_norm")
def native_layer_norm(
    c: Emitter, input: Tensor, normalized_shape: Any, weight: Tensor | None,  # noqa: A002
    bias: Tensor | None, eps: float,
) -> Any:  # fmt: skip
    """Layer normalization, with mean and 1 / deviation."""
    rank = rank_of(input)
    axes = list(range(rank - len(normalized_shape), rank))
    return _layer_normalized(c, input, axes, weight, bias, eps)


_EPSILONS: Final = {"float64": 2.220446049250313e-16, "float16": 0.0009765625}


@aten("rms_norm", "_fused_rms_norm")
def rms_norm(
    c: Emitter, input: Tensor, normalized_shape: Any, weight: Tensor | None = None,  # noqa: A002
    eps: float | None = None,
) -> Tensor:  # fmt: skip
    """x / sqrt(mean(x * x) + eps) * weight over the last axes."""
    rank, dtype = rank_of(input), dtype_of(input)
    axes = list(range(rank - len(normalized_shape), rank))
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    x = cast(c, input, wide)
    square = c.op("mean", c.op("multiply", x, x), axes, True)
    small = _EPSILONS.get(wide, 1.1920928955078125e-07) if eps is None else eps
    found = c.op("multiply", x, c.op("rsqrt", c.op("add", square, number(c, small, wide))))
    if weight is not None:
        found = c.op("multiply", found, cast(c, weight, wide))
    return cast(c, found, dtype)


def _grouped(
    c: Emitter, x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dims = dims_of(x)
    dtype = dtype_of(x)
    apart = reshaped(c, x, [dims[0], groups, length(numel(dims[1:]) // groups)])
    normal, mean, inverse = _layer_normalized(c, apart, [2], None, None, eps)
    found = reshaped(c, normal, dims)
    along = [1, dims[1], *[1] * (len(dims) - 2)]
    if weight is not None:
        found = c.op("multiply", found, cast(c, reshaped(c, weight, along), dtype))
    if bias is not None:
        found = c.op("add", found, cast(c, reshaped(c, bias, along), dtype))
    rows = [dims[0], groups]
    return found, reshaped(c, mean, rows), reshaped(c, inverse, rows)


@aten("group_norm")
def group_norm(
    c: Emitter, input: Tensor, num_groups: int, weight: Tensor | None = None,  # noqa: A002
    bias: Tensor | None = None, eps: float = 1e-5, cudnn_enabled: bool = False,
) -> Tensor:  # fmt: skip
    """Normalization over groups of channels."""
    dtype = dtype_of(input)
    if weight is not None and bias is not None and dtype_of(weight) == dtype_of(bias) == dtype:
        axes = list(range(2, rank_of(input)))
        return c.op("nn.group_norm", input, weight, bias, num_groups, 1, axes, eps)
    return _grouped(c, input, num_groups, weight, bias, eps)[0]


@aten("native_group_norm")
def native_group_norm(
    c: Emitter, input: Tensor, weight: Tensor | None, bias: Tensor | None, N: Any, C: Any,  # noqa: A002
    HxW: Any, group: int, eps: float,
) -> Any:  # fmt: skip
    """Group normalization, with mean and 1 / deviation."""
    return _grouped(c, input, group, weight, bias, eps)


def _of_instances(
    c: Emitter, x: Tensor, mean: Tensor, variance: Tensor, momentum: float
) -> tuple[Tensor, Tensor]:
    """The new running statistics: towards the averages of those of the instances."""
    dtype = dtype_of(mean)
    y = cast(c, x, dtype)
    axes = list(range(2, rank_of(x)))
    middle = c.op("mean", y, axes, True)
    apart = c.op("subtract", y, middle)
    squares = c.op("sum", c.op("multiply", apart, apart), axes, False)
    count = number(c, numel([dims_of(x)[i] for i in axes]), dtype)
    unbiased = c.op("divide", squares, c.op("subtract", count, number(c, 1, dtype)))
    rate, rest = number(c, momentum, dtype), number(c, 1 - momentum, dtype)
    new_mean, new_variance = (
        c.op("add", c.op("multiply", old, rest),
             c.op("multiply", c.op("mean", new, [0], False), rate))
        for old, new in ((mean, c.op("mean", y, axes, False)), (variance, unbiased))
    )  # fmt: skip
    return new_mean, new_variance


@aten("instance_norm", writes=("use_input_stats", "running_mean", "running_var"))
def instance_norm(
    c: Graph, input: Tensor, weight: Tensor | None, bias: Tensor | None,  # noqa: A002
    running_mean: Tensor | None, running_var: Tensor | None, use_input_stats: bool,
    momentum: float, eps: float, cudnn_enabled: bool = False,
) -> Tensor:  # fmt: skip
    """Normalization over the axes after the channels, or by running statistics."""
    if not use_input_stats:
        return _batch_normalized(c, input, weight, bias, running_mean, running_var, False, momentum,
                                 eps)[0]  # fmt: skip
    axes = list(range(2, rank_of(input)))
    if running_mean is not None and running_var is not None:
        means, variances = _of_instances(c, input, running_mean, running_var, momentum)
        c.rewrite("running_mean", means)
        c.rewrite("running_var", variances)
    normal = _layer_normalized(c, input, axes, None, None, eps)[0]
    along = [1, dims_of(input)[1], *[1] * len(axes)]
    if weight is not None:
        normal = c.op("multiply", normal, reshaped(c, weight, along))
    if bias is not None:
        normal = c.op("add", normal, reshaped(c, bias, along))
    return normal


@each_of("_weight_norm", "_weight_norm_interface")
def weight_norm(name: str, c: Emitter, v: Tensor, g: Tensor, dim: int = 0) -> Any:
    """v, scaled to the norms g."""
    axes = [i for i in range(rank_of(v)) if i != dim]
    norms = c.op("sqrt", c.op("sum", c.op("multiply", v, v), axes, True))
    found = c.op("multiply", v, c.op("divide", g, norms))
    return found if name == "_weight_norm" else (found, norms)


# Dropout


@aten("dropout")
def dropout(c: Emitter, input: Tensor, p: float, train: bool) -> Tensor:  # noqa: A002
    """The tensor itself; in training with elements set to 0 at random."""
    return dropped(c, input, p)[0] if train and p > 0 else input


@aten("feature_dropout")
def feature_dropout(c: Emitter, input: Tensor, p: float, train: bool) -> Tensor:  # noqa: A002
    """The tensor itself; in training with channels set to 0 at random."""
    return dropped(c, input, p, 2)[0] if train and p > 0 else input


@aten("alpha_dropout", "feature_alpha_dropout")
def alpha_dropout(c: Emitter, input: Tensor, p: float, train: bool) -> Tensor:  # noqa: A002
    """The tensor itself, outside of training."""
    if train and p > 0:
        raise Problem("alpha_dropout in training is not supported")
    return input


@aten("dropout_", "alpha_dropout_", "feature_dropout_", "feature_alpha_dropout_")
def dropout_in_place(c: Emitter, self: Tensor, p: float, train: bool) -> Tensor:
    """The tensor itself, outside of training."""
    if train and p > 0:
        raise Problem("dropout in place is not supported in training")
    return self


@aten("native_dropout")
def native_dropout(c: Emitter, input: Tensor, p: float, train: bool | None) -> Any:  # noqa: A002
    """The tensor itself and a mask of ones; in training with elements set to 0 at random."""
    if train is not False and p > 0:
        return dropped(c, input, p)
    return input, c.op("ones_like", input, "bool")


# Padding

_MODES: Final = {
    "constant": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular",
}  # fmt: skip


def padded(
    c: Emitter, x: Tensor, pad: Sequence[Any], mode: str = "constant", value: Any = 0
) -> Tensor:
    """x with elements before and after; `pad` has two numbers for each axis, from the last."""
    if mode not in _MODES:
        raise Problem(f"mode: {mode!r} is not supported")
    rank, dims = rank_of(x), dims_of(x)
    pairs: list[tuple[Any, Any]] = [(0, 0)] * rank
    for i in range(len(pad) // 2):
        pairs[rank - 1 - i] = length(pad[2 * i]), length(pad[2 * i + 1])
    if any(isinstance(each, Expr) for pair in pairs for each in pair):
        return _padded_at_run_time(c, x, pairs, mode, value)
    for axis, (before, after) in enumerate(pairs):
        if min(before, after) < 0 < max(before, after) and mode == "replicate":
            # Of the whole axis: what is taken away may be repeated on the other side.
            size = known(dims[axis], "pad")
            places = np.clip(np.arange(-before, size + after), 0, size - 1)
            x, pairs[axis] = c.op("take", x, c.expr(places), axis), (0, 0)
        elif min(before, after) < 0:
            size = dims[axis]
            end = length(size + min(after, 0))
            x = sliced(c, x, axis, max(-before, 0), end)
    wide = [max(each, 0) for pair in pairs for each in pair]
    if not any(wide):
        return x
    if dtype_of(x) == "bool":
        found = c.op("nn.pad", cast(c, x, "uint8"), wide, _MODES[mode], int(bool(value)))
        return cast(c, found, "bool")
    return c.op("nn.pad", x, wide, _MODES[mode], 0 if value is None else value)


def _padded_at_run_time(
    c: Emitter, x: Tensor, pairs: list[tuple[Any, Any]], mode: str, value: Any
) -> Tensor:
    dims = dims_of(x)
    flat = list(itertools.chain.from_iterable(pairs))
    wide = [prim.maximum(each, 0) if isinstance(each, Expr) else max(each, 0) for each in flat]
    for axis, (before, after) in enumerate(pairs):
        first = prim.maximum(-before, 0) if isinstance(before, Expr) else max(-before, 0)
        last = prim.minimum(after, 0) if isinstance(after, Expr) else min(after, 0)
        x = sliced(c, x, axis, first, length(dims[axis] + last))
    results = [length(dim + a + b) for dim, (a, b) in zip(dims, pairs, strict=True)]
    ty = TensorType(None, dtype_of(x), ndim=len(dims))
    inputs = [c.expr(x), wide, _MODES[mode], 0 if value is None else value]
    found = c.run("nn.pad", inputs, ty, dtype_of(x))
    return c.context.builder.match_cast(found, TensorType(results, dtype_of(x)))


@aten("pad")
def pad_(
    c: Emitter, self: Tensor, pad: Any, mode: str = "constant", value: Any = None
) -> Tensor:
    """R.nn.pad."""
    return padded(c, self, pad, mode, value)


@aten("constant_pad_nd")
def constant_pad(c: Emitter, self: Tensor, pad: Any, value: Any = 0) -> Tensor:
    """R.nn.pad with a number."""
    return padded(c, self, pad, "constant", value)


@each_of("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(name: str, c: Emitter, self: Tensor, padding: Any) -> Tensor:
    """R.nn.pad with the mirror image."""
    return padded(c, self, padding, "reflect")


@each_of("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(name: str, c: Emitter, self: Tensor, padding: Any) -> Tensor:
    """R.nn.pad with the outermost elements."""
    return padded(c, self, padding, "replicate")


@aten("_pad_circular")
def circular_pad(c: Emitter, self: Tensor, pad: Any) -> Tensor:
    """R.nn.pad with the other end."""
    return padded(c, self, pad, "circular")

