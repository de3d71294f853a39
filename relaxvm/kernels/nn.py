"""Neural networks: normalization, attention, loss; nn.relu and its like are element by element."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import PIECE, apply, check_time, converted, copy_pieces, pieces
from ..pieces.reduce import reduced
from ._arrays import assign, at_end, copy_if_overlapping
from ._blocks import by_rows, row_blocks
from ._kernel import kernel
from ._multiply import multiply
from .checks import Dims, WrongValue, check_out, native, working_dtype
from .kinds import (
    Axes,
    Axis,
    Flag,
    Float,
    Floats,
    Out,
    OutLike,
    Tensor,
    a_choice,
    an_int,
    floats_over,
)

__all__: list[str] = []


@kernel("nn.softmax")
def softmax(x: Floats, axis: Axis, out: OutLike) -> None:
    """out = exp(x) / the sum of exp(x) along an axis.  x: floats.  The maximum is subtracted
    first, so that nothing overflows."""
    _over(_softmax, (axis,), x, out)


@kernel("nn.log_softmax")
def log_softmax(x: Floats, axis: Axis, out: OutLike) -> None:
    """out = x - the logarithm of the sum of exp(x) along an axis; otherwise as `nn.softmax`."""
    _over(_log_softmax, (axis,), x, out)


def _softmax(out: NDArray[Any], x: NDArray[Any]) -> None:
    apply(np.subtract, out, x, reduced(np.maximum, x, (-1,)))
    apply(np.exp, out, out)
    apply(np.divide, out, out, reduced(np.add, out, (-1,)))


def _log_softmax(out: NDArray[Any], x: NDArray[Any]) -> None:
    apply(np.subtract, out, x, reduced(np.maximum, x, (-1,)))
    powers = np.empty_like(out)
    apply(np.exp, powers, out)
    apply(np.subtract, out, out, np.log(reduced(np.add, powers, (-1,))))


def _working(x: NDArray[Any]) -> np.dtype[Any]:
    """The data type that floats are computed in."""
    found = working_dtype(native(x.dtype))
    assert found is not None  # they are floats, as the kinds have checked
    return found


OverAxes: TypeAlias = Annotated[NDArray[Any], floats_over("axes")]
AlongAxis: TypeAlias = Annotated[NDArray[Any], floats_over("axis")]
PerChannel: TypeAlias = Annotated[NDArray[Any], floats_over("channel_axis")]


@kernel("nn.layer_norm")
def layer_norm(
    x: Floats,
    gamma: OverAxes,
    beta: OverAxes,
    axes: Axes,
    epsilon: Float,
    center: Flag,
    scale: Flag,
    out: OutLike,
) -> None:
    """out = (x - mean) / sqrt(variance + epsilon) over axes, * gamma if scale, + beta if center.
    gamma and beta have the shape of those axes; all are floats of one data type."""
    factor = _along(gamma, axes, x, out) if scale else None
    offset = _along(beta, axes, x, out) if center else None
    _normalize(out, x, axes, epsilon, factor, offset)


@kernel("nn.rms_norm")
def rms_norm(x: Floats, weight: OverAxes, axes: Axes, epsilon: Float, out: OutLike) -> None:
    """out = x / sqrt(the mean of x * x over axes + epsilon) * weight.  weight has the shape of
    those axes; both are floats of one data type."""
    _normalize(out, x, axes, epsilon, _along(weight, axes, x, out), subtract_mean=False)


@kernel("nn.group_norm")
def group_norm(
    x: Floats,
    gamma: PerChannel,
    beta: PerChannel,
    num_groups: Annotated[int, an_int(least=1)],
    channel_axis: Axis,
    axes: Axes,
    epsilon: Float,
    center: Flag,
    scale: Flag,
    out: OutLike,
) -> None:
    """As `nn.layer_norm`, but for each of num_groups groups of equal size that the channels, along
    channel_axis, form: mean and variance are over axes and the channels of a group.  gamma and beta
    have an element for each channel."""
    channels, after = x.shape[channel_axis], x.shape[channel_axis + 1 :]
    if channel_axis in axes or channels % num_groups:
        raise WrongValue(
            f"expected axes without the channel axis {channel_axis}, and its length a multiple of "
            f"num_groups, got axes {list(axes)}, num_groups {num_groups}, x {describe(x)}"
        )
    groups = (*x.shape[:channel_axis], num_groups, channels // num_groups, *after)
    over = (channel_axis + 1, *[axis + (axis > channel_axis) for axis in axes])
    factor = _along(gamma, (channel_axis,), x, out).reshape(groups) if scale else None
    offset = _along(beta, (channel_axis,), x, out).reshape(groups) if center else None
    _normalize(out.reshape(groups), x.reshape(groups), over, epsilon, factor, offset)


@kernel("nn.instance_norm")
def instance_norm(
    x: Floats,
    gamma: PerChannel,
    beta: PerChannel,
    channel_axis: Axis,
    axes: Axes,
    epsilon: Float,
    center: Flag,
    scale: Flag,
    out: OutLike,
) -> None:
    """As `nn.layer_norm`, with mean and variance over axes; gamma and beta have an element for each
    channel, along channel_axis."""
    if channel_axis in axes:
        raise WrongValue(
            f"axes: expected axes other than the channel axis {channel_axis}, got {list(axes)}"
        )
    factor = _along(gamma, (channel_axis,), x, out) if scale else None
    offset = _along(beta, (channel_axis,), x, out) if center else None
    _normalize(out, x, axes, epsilon, factor, offset)


def _along(
    weight: NDArray[Any], axes: Dims, x: NDArray[Any], out: NDArray[Any]
) -> NDArray[Any]:
    """A weight whose axes are some axes of x, broadcast to the shape of x, in the data type that x
    is computed in; writing to `out` does not change it."""
    weight = converted(copy_if_overlapping(weight, out), _working(x))
    others = [axis for axis in range(x.ndim) if axis not in axes]
    weight = weight.reshape(*weight.shape, *[1] * len(others))
    return np.broadcast_to(weight.transpose(np.argsort([*axes, *others])), x.shape)


def _normalize(
    out: NDArray[Any],
    x: NDArray[Any],
    axes: Dims,
    epsilon: float,
    factor: NDArray[Any] | None = None,
    offset: NDArray[Any] | None = None,
    *,
    subtract_mean: bool = True,
) -> None:
    """out = (x - mean) / sqrt(the mean of (x - mean) ** 2 + epsilon) * factor + offset, with means
    over axes; factor and offset are from `_along`.  Without `subtract_mean`, x stands for x - mean.
    """
    last = tuple(range(-len(axes), 0))
    given = [(np.multiply, factor), (np.add, offset)]
    weights = [(function, weight) for function, weight in given if weight is not None]

    def step(out: NDArray[Any], x: NDArray[Any], *rows: NDArray[Any]) -> None:
        if subtract_mean:
            apply(np.subtract, out, x, _mean(x, last))
            x = out
        squares = np.empty_like(x)
        apply(np.square, squares, x)
        deviation = _mean(squares, last)
        deviation += epsilon
        np.sqrt(deviation, out=deviation)
        apply(np.divide, out, x, deviation)
        for (function, _), weight in zip(weights, rows, strict=True):
            apply(function, out, out, weight)

    _over(step, axes, x, out, *[weight for _, weight in weights])


def _mean(x: NDArray[Any], axes: Dims) -> NDArray[Any]:
    """The mean over axes, which keep length 1.  For small tensors, `x.mean` would take most of the
    time of a kernel."""
    total = reduced(np.add, x, axes)
    total /= math.prod([x.shape[axis] for axis in axes])
    return total


def _over(
    step: Any, axes: Dims, x: NDArray[Any], out: NDArray[Any], *weights: NDArray[Any]
) -> None:
    """Run a step over rows that consist of some axes; weights have the shape of x."""
    if x.size:
        rows = [at_end(each, axes) for each in (out, x, *weights)]
        by_rows(step, *rows, dtype=_working(x), row=len(axes))


@kernel("nn.lrn")
def lrn(
    x: Floats,
    size: Annotated[int, an_int(least=1)],
    factor: Float,
    power: Float,
    bias: Float,
    out: OutLike,
) -> None:
    """out = x / (bias + factor * the sum of the squares of size channels) ** power.  x[batch,
    channels, ...]; the channels are those from (size - 1) // 2 before to size // 2 after the
    element's own, as far as there are any.  Computed in float64."""
    if x.ndim < 2:
        raise WrongValue(f"x: expected [batch, channels, ...], got {describe(x)}")
    x, channels = copy_if_overlapping(x, out), x.shape[1]
    for n, c in np.ndindex(x.shape[:2]):
        check_time()
        first, end = max(0, c - (size - 1) // 2), min(channels, c + size // 2 + 1)
        window = [x[n, k : k + 1] for k in range(first, end)]
        for written, own, *parts in pieces(out[n, c : c + 1], x[n, c : c + 1], *window):
            total = np.zeros(own.shape)
            for part in parts:
                total += part.astype(np.float64) ** 2
            with np.errstate(all="ignore"):
                base = bias + factor * total
                if not power.is_integer():
                    base[base < 0] = np.nan  # also of -inf, whose power is inf for numpy
                written[...] = own / base**power


@kernel("nn.batch_norm")
def batch_norm(
    x: Floats,
    gamma: AlongAxis,
    beta: AlongAxis,
    mean: AlongAxis,
    variance: AlongAxis,
    axis: Axis,
    epsilon: Float,
    center: Flag,
    scale: Flag,
    out: OutLike,
) -> None:
    """out = (x - mean) / sqrt(variance + epsilon), * gamma if scale, + beta if center: the
    normalization of inference.  gamma, beta, mean and variance are vectors along an axis of x; all
    are floats of one data type."""
    working = _working(x)
    factor = 1 / np.sqrt(variance.astype(np.float64) + epsilon)
    if scale:
        factor *= gamma
    offset = mean * -factor
    if center:
        offset += beta
    along = (-1,) + (1,) * (x.ndim - axis - 1)
    factor = factor.astype(working).reshape(along)
    offset = offset.astype(working).reshape(along)

    def step(out: NDArray[Any], x: NDArray[Any]) -> None:
        apply(np.multiply, out, x, factor)
        apply(np.add, out, out, offset)

    by_rows(step, out, x, dtype=working, row=x.ndim - axis)


@kernel("nn.dropout")
def dropout(x: Tensor, out: OutLike, mask: OutLike) -> None:
    """out = x, mask = 1: dropout in inference does nothing."""
    assign(out, x)
    copy_pieces(mask, x.dtype.type(1))


@kernel("nn.cross_entropy_with_logits")
def cross_entropy_with_logits(predictions: Floats, labels: Floats, out: Out) -> None:
    """out = - the sum of predictions * labels, divided by the length of the first axis if there are
    more.  predictions: the logarithms of probabilities, as of `nn.log_softmax`; both are floats of
    one shape and data type, out has no axes."""
    if predictions.ndim < 1 or predictions.shape != labels.shape:
        raise WrongValue(
            f"expected tensors of one shape with axes, got predictions {describe(predictions)}, "
            f"labels {describe(labels)}"
        )
    check_out(out, predictions.dtype, ())
    total = np.zeros((), np.float64)
    if predictions.size:
        working = _working(predictions)
        for rows, weights in row_blocks(predictions, labels):
            total -= np.multiply(rows, weights, dtype=working).sum(dtype=np.float64)
    if predictions.ndim > 1:
        total /= len(predictions)
    np.copyto(out, total, casting="same_kind")


_SCORES: Final = 1 << 18
"""Most scores that attention computes at a time, unless one query has more: 1 MiB of float32."""

Mask: TypeAlias = Annotated[str, a_choice("TopLeft", "BottomRight")]


@kernel("nn.attention", "nn.attention_bias")
def attention(
    query: Floats,
    key: Floats,
    value: Floats,
    bias: Floats | None,
    scale: Float | None,
    causal_mask: Mask | None,
    out: Out,
) -> None:
    """out = softmax(query @ key transposed * scale + bias) @ value, for each head.
    query[batch, queries, heads, width], key[batch, keys, shared, width], value[batch, keys, shared,
    depth], out[batch, queries, heads, depth], floats of one data type; heads is a multiple of
    shared, and as many heads of queries in a row have one of keys and values in common.  bias
    broadcasts to [batch, heads, queries, keys].  scale: None for 1 / sqrt(width).  causal_mask:
    None, or the keys that a query ignores: "TopLeft", query i ignores the keys after i;
    "BottomRight", the last query ignores none, the one before it the last key, and so on.  The
    result of a query that ignores all keys is zeros.  Uses memory for the scores of a block of
    queries."""
    given = {"query": query, "key": key, "value": value}
    if any(tensor.ndim != 4 for tensor in given.values()) or not (
        query.shape[0] == key.shape[0] == value.shape[0]
        and key.shape[2] == value.shape[2]
        and (query.shape[2] == key.shape[2] or not query.shape[2] % (key.shape[2] or math.inf))
        and query.shape[3] == key.shape[3]
        and key.shape[1] == value.shape[1]
    ):
        got = ", ".join(f"{parameter} {describe(tensor)}" for parameter, tensor in given.items())
        raise WrongValue(
            "expected query[b, s, n, h], key[b, t, m, h], value[b, t, m, d], n a multiple of m, "
            f"got {got}"
        )
    batch, queries, heads, width = query.shape
    keys = key.shape[1]
    factor = _default_scale(width) if scale is None else scale
    check_out(out, query.dtype, (batch, queries, heads, value.shape[3]))
    if bias is not None:
        bias = _broadcast_bias(bias, (batch, heads, queries, keys), out)
    if not keys:
        out.fill(0)
        return
    hidden = None
    if causal_mask is not None:
        hidden = keys - queries if causal_mask == "BottomRight" else 0
    # With heads first, each head is a matrix that BLAS takes with its strides.
    by_head = [np.swapaxes(copy_if_overlapping(tensor, out), 1, 2) for tensor in given.values()]
    step = max(1, _SCORES // max(1, heads * keys))
    working = _working(query)
    shared = key.shape[2]
    for i in range(batch):
        q, k, v = (converted(tensor[i], working) for tensor in by_head)
        written = np.swapaxes(out[i], 0, 1)
        for start in range(0, queries, step):
            rows = slice(start, min(start + step, queries))
            if i or start:
                check_time()
            scores = np.empty((heads, rows.stop - rows.start, keys), working)
            transposed = np.swapaxes(k, 1, 2)[:, None]
            multiply(_grouped(q[:, rows], shared), transposed, _grouped(scores, shared))
            apply(np.multiply, scores, scores, working.type(factor))
            if bias is not None:
                apply(np.add, scores, scores, bias[i, :, rows])
            if hidden is not None:
                ends = np.arange(rows.start, rows.stop)[:, None] + hidden
                for first in range(0, keys, PIECE):
                    last = min(first + PIECE, keys)
                    later = np.arange(first, last) > ends
                    np.copyto(scores[..., first:last], -np.inf, where=later)
            _weigh(scores)
            if written.dtype == working:
                weighed = written[:, rows]
            else:
                weighed = np.empty((*scores.shape[:2], v.shape[2]), working)
            multiply(_grouped(scores, shared), v[:, None], _grouped(weighed, shared))
            if written.dtype != working:
                copy_pieces(written[:, rows], weighed)


def _grouped(by_head: NDArray[Any], shared: int) -> NDArray[Any]:
    """A view of [heads, ...] as [shared, heads / shared, ...]."""
    times = len(by_head) // shared if shared else 1
    return by_head.reshape(shared, times, *by_head.shape[1:])


def _default_scale(width: int) -> float:
    return 1 / math.sqrt(width) if width else 1.0


def _broadcast_bias(bias: NDArray[Any], shape: Dims, out: NDArray[Any]) -> NDArray[Any]:
    if bias.ndim != 4 or any(
        dim not in (1, full) for dim, full in zip(bias.shape, shape, strict=True)
    ):
        raise WrongValue(
            f"bias: expected a tensor that broadcasts to {list(shape)}, got {describe(bias)}"
        )
    return np.broadcast_to(copy_if_overlapping(bias, out), shape)


def _weigh(scores: NDArray[Any]) -> None:
    """Softmax in place; a row of -infinity becomes zeros."""
    peak = reduced(np.maximum, scores, (-1,))
    np.copyto(peak, 0, where=peak == -np.inf)
    apply(np.subtract, scores, scores, peak)
    apply(np.exp, scores, scores)
    total = reduced(np.add, scores, (-1,))
    np.copyto(total, 1, where=total == 0)
    apply(np.divide, scores, scores, total)
