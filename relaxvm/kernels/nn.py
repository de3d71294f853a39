"""Neural networks: normalization, attention, loss; nn.relu and its like are element by element."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..values import describe
from ._attributes import axes_of, choice_of, flag_of, ints_of, number_of
from ._blocks import by_rows, float_dtype, row_blocks, working_dtype
from ._kernel import Dims, assign, at_end, axis_of, check_out, check_tensors, kernel, private

__all__: list[str] = []


@kernel("nn.softmax", "x: tensor, axis: int, out: tensor", direct=True)
def softmax(x: NDArray[Any], axis: int, out: NDArray[Any]) -> None:
    """out = exp(x) / the sum of exp(x) along an axis.  x: floats; so that nothing overflows, the
    maximum is subtracted first."""
    _along("nn.softmax", _softmax, x, axis, out)


@kernel("nn.log_softmax", "x: tensor, axis: int, out: tensor", direct=True)
def log_softmax(x: NDArray[Any], axis: int, out: NDArray[Any]) -> None:
    """out = x - the logarithm of the sum of exp(x) along an axis; as `nn.softmax` else."""
    _along("nn.log_softmax", _log_softmax, x, axis, out)


def _along(name: str, step: Any, x: NDArray[Any], axis: int, out: NDArray[Any]) -> None:
    """A step over rows along an axis."""
    check_tensors(name, x=x)
    dtype = float_dtype(name, x=x)
    axis = axis_of(name, x, axis)
    check_out(name, out, dtype, x.shape)
    if x.size:
        by_rows(step, at_end(out, (axis,)), at_end(x, (axis,)), dtype=_working(dtype))


def _softmax(out: NDArray[Any], x: NDArray[Any]) -> None:
    np.subtract(x, x.max(-1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= out.sum(-1, keepdims=True)


def _log_softmax(out: NDArray[Any], x: NDArray[Any]) -> None:
    np.subtract(x, x.max(-1, keepdims=True), out=out)
    out -= np.log(np.exp(out).sum(-1, keepdims=True))


def _working(dtype: np.dtype[Any]) -> np.dtype[Any]:
    found = working_dtype(dtype)
    assert found is not None  # float_dtype has checked
    return found


@kernel(
    "nn.layer_norm",
    "x: tensor, gamma: tensor, beta: tensor, axes: shape, epsilon: float|int, "
    "center: bool|int, scale: bool|int, out: tensor",
    direct=True,
)
def layer_norm(
    x: NDArray[Any],
    gamma: NDArray[Any],
    beta: NDArray[Any],
    axes: Any,
    epsilon: Any,
    center: Any,
    scale: Any,
    out: NDArray[Any],
) -> None:
    """out = (x - mean) / sqrt(variance + epsilon) over axes, * gamma if scale, + beta if center.
    gamma and beta have the shape of those axes; all are floats of one data type."""
    name = "nn.layer_norm"
    check_tensors(name, x=x, gamma=gamma, beta=beta)
    dtype = float_dtype(name, x=x, gamma=gamma, beta=beta)
    axes = axes_of(name, x, ints_of(name, "axes", axes))
    epsilon = number_of(name, "epsilon", epsilon)
    center, scale = flag_of(name, "center", center), flag_of(name, "scale", scale)
    _check_shape(name, "gamma", gamma, tuple([x.shape[axis] for axis in axes]))
    _check_shape(name, "beta", beta, gamma.shape)
    check_out(name, out, dtype, x.shape)
    last = tuple(range(-len(axes), 0))
    working = _working(dtype)
    factor = private(gamma, out).astype(working, copy=False) if scale else None
    offset = private(beta, out).astype(working, copy=False) if center else None

    def step(out: NDArray[Any], x: NDArray[Any]) -> None:
        np.subtract(x, _mean(x, last), out=out)
        _normalize(out, out, last, epsilon)
        if factor is not None:
            np.multiply(out, factor, out=out)
        if offset is not None:
            np.add(out, offset, out=out)

    _over(step, axes, x, out, working)


@kernel(
    "nn.rms_norm",
    "x: tensor, weight: tensor, axes: shape, epsilon: float|int, out: tensor",
    direct=True,
)
def rms_norm(
    x: NDArray[Any], weight: NDArray[Any], axes: Any, epsilon: Any, out: NDArray[Any]
) -> None:
    """out = x / sqrt(the mean of x * x over axes + epsilon) * weight.  weight has the shape of
    those axes; both are floats of one data type."""
    name = "nn.rms_norm"
    check_tensors(name, x=x, weight=weight)
    dtype = float_dtype(name, x=x, weight=weight)
    axes = axes_of(name, x, ints_of(name, "axes", axes))
    epsilon = number_of(name, "epsilon", epsilon)
    _check_shape(name, "weight", weight, tuple([x.shape[axis] for axis in axes]))
    check_out(name, out, dtype, x.shape)
    last = tuple(range(-len(axes), 0))
    working = _working(dtype)
    factor = private(weight, out).astype(working, copy=False)

    def step(out: NDArray[Any], x: NDArray[Any]) -> None:
        _normalize(out, x, last, epsilon)
        np.multiply(out, factor, out=out)

    _over(step, axes, x, out, working)


def _normalize(out: NDArray[Any], x: NDArray[Any], axes: Dims, epsilon: float) -> None:
    """out = x / sqrt(the mean of x * x over axes + epsilon); `out` may be `x`."""
    square = _mean(np.square(x), axes)
    square += epsilon
    np.sqrt(square, out=square)
    np.divide(x, square, out=out)


def _mean(x: NDArray[Any], axes: Dims) -> NDArray[Any]:
    """The mean over axes, which stay with length 1.  For tensors of a few elements `x.mean` takes
    most of the time of a kernel."""
    total = np.asarray(np.add.reduce(x, axes, keepdims=True))
    total /= math.prod([x.shape[axis] for axis in axes])
    return total


def _over(step: Any, axes: Dims, x: NDArray[Any], out: NDArray[Any], dtype: np.dtype[Any]) -> None:
    """A step over rows of several axes."""
    if x.size:
        by_rows(step, at_end(out, axes), at_end(x, axes), dtype=dtype, row=len(axes))


def _check_shape(name: str, parameter: str, value: NDArray[Any], shape: Dims) -> None:
    if value.shape != shape:
        raise ValueError(
            f"{name}: {parameter}: expected shape {list(shape)}, got {describe(value)}"
        )


@kernel(
    "nn.batch_norm",
    "x: tensor, gamma: tensor, beta: tensor, mean: tensor, variance: tensor, axis: int, "
    "epsilon: float|int, center: bool|int, scale: bool|int, out: tensor",
)
def batch_norm(
    x: NDArray[Any],
    gamma: NDArray[Any],
    beta: NDArray[Any],
    mean: NDArray[Any],
    variance: NDArray[Any],
    axis: int,
    epsilon: Any,
    center: Any,
    scale: Any,
    out: NDArray[Any],
) -> None:
    """out = (x - mean) / sqrt(variance + epsilon), * gamma if scale, + beta if center: the
    normalization of inference.  gamma, beta, mean and variance are vectors along an axis of x; all
    are floats of one data type."""
    name = "nn.batch_norm"
    vectors = {"gamma": gamma, "beta": beta, "mean": mean, "variance": variance}
    check_tensors(name, x=x, **vectors)
    dtype = float_dtype(name, x=x, **vectors)
    axis = axis_of(name, x, axis)
    for parameter, vector in vectors.items():
        _check_shape(name, parameter, vector, (x.shape[axis],))
    epsilon = number_of(name, "epsilon", epsilon)
    center, scale = flag_of(name, "center", center), flag_of(name, "scale", scale)
    check_out(name, out, dtype, x.shape)
    working = _working(dtype)
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
        np.multiply(x, factor, out=out)
        np.add(out, offset, out=out)

    by_rows(step, out, x, dtype=working, row=x.ndim - axis)


@kernel("nn.dropout", "x: tensor, out: tensor, mask: tensor")
def dropout(x: NDArray[Any], out: NDArray[Any], mask: NDArray[Any]) -> None:
    """out = x, mask = 1: dropout in inference drops nothing."""
    check_tensors("nn.dropout", x=x)
    check_out("nn.dropout", out, x.dtype, x.shape)
    check_out("nn.dropout", mask, x.dtype, x.shape)
    assign(out, x)
    np.copyto(mask, x.dtype.type(1))


@kernel("nn.cross_entropy_with_logits", "predictions: tensor, labels: tensor, out: tensor")
def cross_entropy_with_logits(
    predictions: NDArray[Any], labels: NDArray[Any], out: NDArray[Any]
) -> None:
    """out = - the sum of predictions * labels, divided by the length of the first axis if there are
    more.  predictions: the logarithms of probabilities, as of `nn.log_softmax`; both are floats of
    one shape and data type, out has no axes."""
    name = "nn.cross_entropy_with_logits"
    check_tensors(name, predictions=predictions, labels=labels)
    dtype = float_dtype(name, predictions=predictions, labels=labels)
    if predictions.ndim < 1 or predictions.shape != labels.shape:
        raise ValueError(
            f"{name}: expected tensors of one shape with axes, got predictions "
            f"{describe(predictions)}, labels {describe(labels)}"
        )
    check_out(name, out, dtype, ())
    total = np.zeros((), np.float64)
    if predictions.size:
        for rows, weights in row_blocks(predictions, labels):
            total -= np.multiply(rows, weights, dtype=_working(dtype)).sum(dtype=np.float64)
    if predictions.ndim > 1:
        total /= len(predictions)
    np.copyto(out, total, casting="same_kind")


_SCORES: Final = 1 << 18
"""Scores that attention has at a time, at least those of one query: 1 MiB of float32."""
_MASKS: Final = ("TopLeft", "BottomRight")


@kernel(
    "nn.attention",
    "query: tensor, key: tensor, value: tensor, bias: tensor|none, scale: float|int|none, "
    "causal_mask: str|none, out: tensor",
    "nn.attention_bias",
    direct=True,
)
def attention(
    query: NDArray[Any],
    key: NDArray[Any],
    value: NDArray[Any],
    bias: NDArray[Any] | None,
    scale: Any,
    causal_mask: Any,
    out: NDArray[Any],
) -> None:
    """out = softmax(query @ key transposed * scale + bias) @ value, for each head.
    query[batch, queries, heads, width], key[batch, keys, heads, width], value[batch, keys, heads,
    depth], out[batch, queries, heads, depth], floats of one data type; bias broadcasts to [batch,
    heads, queries, keys].  scale: None for 1 / sqrt(width).  causal_mask: None, or what the queries
    do not see: "TopLeft", query i the keys behind i; "BottomRight", the last query none, the one
    before it the last key, and so on; a query that sees no key gives zeros.  Uses memory for scores
    of a block of queries."""
    name = "nn.attention"
    given = {"query": query, "key": key, "value": value}
    check_tensors(name, **given)
    if bias is not None:
        check_tensors(name, bias=bias)
    dtype = float_dtype(name, **given, **({} if bias is None else {"bias": bias}))
    if any(tensor.ndim != 4 for tensor in given.values()) or not (
        query.shape[0] == key.shape[0] == value.shape[0]
        and query.shape[2] == key.shape[2] == value.shape[2]
        and query.shape[3] == key.shape[3]
        and key.shape[1] == value.shape[1]
    ):
        got = ", ".join(f"{parameter} {describe(tensor)}" for parameter, tensor in given.items())
        raise ValueError(
            f"{name}: expected query[b, s, n, h], key[b, t, n, h], value[b, t, n, d], got {got}"
        )
    batch, queries, heads, width = query.shape
    keys = key.shape[1]
    factor = number_of(name, "scale", scale) if scale is not None else _default_scale(width)
    if causal_mask is not None:
        choice_of(name, "causal_mask", causal_mask, _MASKS)
    check_out(name, out, dtype, (batch, queries, heads, value.shape[3]))
    if bias is not None:
        bias = np.broadcast_to(_bias(name, bias, (batch, heads, queries, keys), out), (
            batch, heads, queries, keys))  # fmt: skip
    if not keys:
        out.fill(0)
        return
    hidden = None
    if causal_mask is not None:
        hidden = keys - queries if causal_mask == "BottomRight" else 0
    # Heads first: then each is a matrix, whose rows BLAS takes as far apart as they are.
    by_head = [np.swapaxes(private(tensor, out), 1, 2) for tensor in given.values()]
    step = max(1, _SCORES // max(1, heads * keys))
    working = _working(dtype)
    for i in range(batch):
        q, k, v = (tensor[i].astype(working, copy=False) for tensor in by_head)
        written = np.swapaxes(out[i], 0, 1)
        for start in range(0, queries, step):
            rows = slice(start, min(start + step, queries))
            scores = np.matmul(q[:, rows], np.swapaxes(k, 1, 2))
            scores *= factor
            if bias is not None:
                scores += bias[i, :, rows]
            if hidden is not None:
                ends = np.arange(rows.start, rows.stop)[:, None] + hidden
                np.copyto(scores, -np.inf, where=np.arange(keys) > ends)
            _weigh(scores)
            if written.dtype == working:
                np.matmul(scores, v, out=written[:, rows])
            else:
                np.copyto(written[:, rows], np.matmul(scores, v), casting="same_kind")


def _default_scale(width: int) -> float:
    return 1 / math.sqrt(width) if width else 1.0


def _bias(name: str, bias: NDArray[Any], shape: Dims, out: NDArray[Any]) -> NDArray[Any]:
    if bias.ndim != 4 or any(
        dim not in (1, full) for dim, full in zip(bias.shape, shape, strict=True)
    ):
        raise ValueError(
            f"{name}: bias: expected a tensor that broadcasts to {list(shape)}, got "
            f"{describe(bias)}"
        )
    found: NDArray[Any] = private(bias, out)
    return found


def _weigh(scores: NDArray[Any]) -> None:
    """Softmax in place; a row of -infinity gives zeros."""
    peak = scores.max(-1, keepdims=True)
    np.copyto(peak, 0, where=peak == -np.inf)
    scores -= peak
    np.exp(scores, out=scores)
    total = scores.sum(-1, keepdims=True)
    np.copyto(total, 1, where=total == 0)
    scores /= total
