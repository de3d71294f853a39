"""Cases of neural network operators; references follow the definitions, with plain loops."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from .table import ROUNDED, cases, kernel


def softmax(data: Any, axis: int = -1) -> Any:
    e = np.exp(data - data.max(axis, keepdims=True)) if data.size else data
    return e / e.sum(axis, keepdims=True)


def log_softmax(data: Any, axis: int = -1) -> Any:
    x = data - data.max(axis, keepdims=True) if data.size else data
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def layer_norm(
    data: Any, gamma: Any, beta: Any, axes: Any, epsilon: float = 1e-5, center: bool = True,
    scale: bool = True,
) -> Any:  # fmt: skip
    last = tuple(range(-len(axes), 0))
    rows = np.moveaxis(data, axes, last)
    apart = rows - rows.mean(last, keepdims=True)
    y = apart / np.sqrt((apart * apart).mean(last, keepdims=True) + np.longdouble(epsilon))
    y = y * gamma if scale else y
    y = y + beta if center else y
    return np.moveaxis(y, last, axes)


def group_norm(
    data: Any, gamma: Any, beta: Any, num_groups: int, channel_axis: int, axes: Any,
    epsilon: float = 1e-5, center: bool = True, scale: bool = True,
) -> Any:  # fmt: skip
    """Group by group."""
    at = channel_axis % data.ndim
    size = data.shape[at] // num_groups
    out = np.empty_like(data)
    for start in range(0, data.shape[at], size):
        group = (slice(None),) * at + (slice(start, start + size),)
        over = (at, *[axis % data.ndim for axis in axes])
        apart = data[group] - data[group].mean(over, keepdims=True)
        variance = (apart * apart).mean(over, keepdims=True)
        out[group] = apart / np.sqrt(variance + np.longdouble(epsilon))
    along = (-1,) + (1,) * (data.ndim - at - 1)
    out = out * gamma.reshape(along) if scale else out
    return out + beta.reshape(along) if center else out


def rms_norm(data: Any, weight: Any, axes: Any = (-1,), epsilon: float = 1e-5) -> Any:
    last = tuple(range(-len(axes), 0))
    rows = np.moveaxis(data, axes, last)
    y = rows / np.sqrt((rows * rows).mean(last, keepdims=True) + np.longdouble(epsilon)) * weight
    return np.moveaxis(y, last, axes)


def batch_norm(
    data: Any, gamma: Any, beta: Any, mean: Any, variance: Any, axis: int, epsilon: float = 1e-5,
    center: bool = True, scale: bool = True, momentum: float = 0.1, training: bool = True,
) -> Any:  # fmt: skip
    rows = np.moveaxis(data, axis, -1)
    others = tuple(range(rows.ndim - 1))
    by = (rows.mean(others), ((rows - rows.mean(others)) ** 2).mean(others))
    used = by if training else (mean, variance)
    y = (rows - used[0]) / np.sqrt(used[1] + np.longdouble(epsilon))
    y = y * gamma if scale else y
    y = y + beta if center else y
    moved = (mean, variance)
    if training:
        part = np.longdouble(momentum)
        moved = tuple((1 - part) * old + part * new for old, new in zip(moved, by, strict=True))
    return (np.moveaxis(y, -1, axis), *moved)


def cross_entropy(predictions: Any, labels: Any) -> Any:
    rows = len(predictions) if predictions.ndim > 1 else 1
    return -(predictions * labels).sum() / rows


def in_layout(x: Any, have: str, want: str) -> Any:
    return x.transpose([have.index(letter) for letter in want])


def convolved(spatial: str) -> Any:
    """A convolution by plain loops, for images of any rank."""

    def convolve(
        data: Any, weight: Any, strides: Any, padding: Any, dilation: Any, groups: int = 1,
        data_layout: str = "", kernel_layout: str = "", out_layout: str = "",
        out_dtype: str | None = None,
    ) -> Any:  # fmt: skip
        plain = f"NC{spatial}"
        x = in_layout(data, data_layout or plain, plain)
        weight = in_layout(weight, kernel_layout or f"OI{spatial}", f"OI{spatial}")
        axes = len(spatial)
        size = weight.shape[2:]
        counts = [
            (x.shape[2 + i] + padding[i] + padding[axes + i] - dilation[i] * (size[i] - 1) - 1)
            // strides[i] + 1
            for i in range(axes)
        ]  # fmt: skip
        inputs, outputs = weight.shape[1], len(weight) // groups
        out = np.zeros((len(x), len(weight), *counts), x.dtype)
        for o, *at in np.ndindex(*out.shape[1:]):
            for c, *tap in np.ndindex(*weight.shape[1:]):
                place = [
                    at[i] * strides[i] + tap[i] * dilation[i] - padding[i] for i in range(axes)
                ]
                if all(0 <= p < n for p, n in zip(place, x.shape[2:], strict=True)):
                    out[(slice(None), o, *at)] += (
                        x[(slice(None), o // outputs * inputs + c, *place)] * weight[(o, c, *tap)]
                    )
        return in_layout(out, plain, out_layout or data_layout or plain)

    return convolve


def pooled(mean: bool, spatial: str = "HW", counts_padding: bool = False) -> Any:
    """Pooling by plain loops."""
    plain, axes = f"NC{spatial}", len(spatial)

    def pool(
        data: Any, pool_size: Any, strides: Any, padding: Any, dilation: Any = (1,) * axes,
        ceil_mode: bool = False, count_include_pad: bool = counts_padding, layout: str = plain,
        out_layout: str = plain,
    ) -> Any:  # fmt: skip
        x = in_layout(data, layout, plain)
        counts = []
        for i, length in enumerate(x.shape[2:]):
            room = length + padding[i] + padding[axes + i] - dilation[i] * (pool_size[i] - 1) - 1
            steps = math.ceil(room / strides[i]) if ceil_mode else room // strides[i]
            if ceil_mode and steps * strides[i] >= length + padding[i]:
                steps -= 1  # no window starts in the padding at the end
            counts.append(steps + 1)
        out = np.zeros((*x.shape[:2], *counts), x.dtype)
        for n, c, *at in np.ndindex(*out.shape):
            inside, padded = [], 0
            for tap in itertools.product(*map(range, pool_size)):
                place = [
                    at[i] * strides[i] + tap[i] * dilation[i] - padding[i] for i in range(axes)
                ]
                if all(0 <= p < size for p, size in zip(place, x.shape[2:], strict=True)):
                    inside.append(x[(n, c, *place)])
                padded += all(place[i] < x.shape[2 + i] + padding[axes + i] for i in range(axes))
            if mean:
                count = padded if count_include_pad else len(inside)
                out[(n, c, *at)] = sum(inside) / max(1, count)
            else:
                out[(n, c, *at)] = max(inside, default=-math.inf)
        return in_layout(out, plain, out_layout)

    return pool


def attention(
    query: Any, key: Any, value: Any, bias: Any = None, scale: Any = None, causal_mask: Any = None,
    window_size: Any = None,
) -> Any:  # fmt: skip
    """Attention, one query at a time."""
    batch, queries, heads, width = query.shape
    keys = key.shape[1]
    factor = 1 / np.sqrt(np.longdouble(width)) if scale is None else np.longdouble(scale)
    out = np.zeros((batch, queries, heads, value.shape[3]), query.dtype)
    key, value = (np.repeat(x, heads // max(1, x.shape[2]), 2) for x in (key, value))
    for b, s, n in np.ndindex(batch, queries, heads):
        scores = (key[b, :, n] * query[b, s, n]).sum(-1) * factor
        if bias is not None:
            scores = scores + np.broadcast_to(bias, (batch, heads, queries, keys))[b, n, s]
        seen = {None: keys, "TopLeft": s + 1, "BottomRight": s + 1 + keys - queries}[causal_mask]
        seen = min(keys, seen)
        if seen > 0:
            weights = softmax(scores[:seen], 0)
            out[b, s, n] = (weights[:, None] * value[b, :seen, n]).sum(0)
    return out


def padded(data: Any, pad_width: Any, pad_mode: str = "constant", pad_value: float = 0.0) -> Any:
    """Padding, computed for each element from its source index."""
    widths = list(zip(pad_width[::2], pad_width[1::2], strict=True))
    shape = [n + a + b for n, (a, b) in zip(data.shape, widths, strict=True)]
    out = np.empty(shape, data.dtype)
    for index in np.ndindex(*shape):
        place = []
        for i, n, (before, _) in zip(index, data.shape, widths, strict=True):
            at = i - before
            if not 0 <= at < n and pad_mode == "reflect":
                at = -at if at < 0 else 2 * (n - 1) - at
            elif pad_mode == "replicate":
                at = min(max(at, 0), n - 1)
            elif pad_mode == "circular":
                at %= n
            place.append(at)
        inside = all(0 <= at < n for at, n in zip(place, data.shape, strict=True))
        out[index] = data[tuple(place)] if inside else pad_value
    return out


cases(
    "nn.softmax",
    """
nn.softmax(f(n, m)) | R.Tensor((n, m), "float32")
""",
    """
nn.softmax(f(3), 1) | ValueError: relax.nn.softmax: axis: expected an axis in -1 to 0, got 1
nn.softmax(i(3)) | TypeError: relax.nn.softmax: data: expected floats
""",
    """
nn.softmax(x(2, 3), 0)
nn.softmax(x(2, 3, 4), 1)
nn.softmax(x(1, 1))
nn.softmax(x(3, 0, 2), 0)
nn.softmax(x(3, 130), 1)
nn.softmax(x(130, 3), 0)
""",
    reference=softmax,
    dtypes="fhd",
    ulps={"float16": ROUNDED, "float32": 8, "float64": 8},
    of_largest=True,
    large="nn.softmax(f(393216, 3))",
)
cases(
    "nn.log_softmax",
    """
nn.log_softmax(tensor(), 0) | R.Tensor(dtype="float32")
""",
    """
nn.log_softmax(i(3)) | TypeError: relax.nn.log_softmax: data: expected floats
""",
    """
nn.log_softmax(x(2, 3))
nn.log_softmax(x(2, 3, 4), 1)
nn.log_softmax(x(3, 130), 1)
nn.log_softmax(x(130, 3), 0)
""",
    reference=log_softmax,
    dtypes="fhd",
    ulps={"float16": ROUNDED, "float32": 8, "float64": 8},
    of_largest=True,
    large="nn.log_softmax(f(393216, 3))",
)
cases(
    "nn.dropout",
    """
nn.dropout(f(n), 0.1) | R.Tuple(R.Tensor((n,), "float32"), R.Tensor((n,), "float32"))
""",
    """
nn.dropout(f(3), 1.5) | ValueError: relax.nn.dropout: rate: expected 0 to 1, got 1.5
""",
    """
nn.dropout(x(3), 0.5)
nn.dropout(x(2, 3))
""",
    reference=lambda data, rate: (data, data * 0 + 1),
    dtypes="fhd",
    ulps={"float16": ROUNDED, "float32": ROUNDED, "float64": ROUNDED},
    of_largest=False,
    large="nn.dropout(f(393216, 3))",
)
cases(
    "nn.conv1d",
    """
nn.conv1d(f(2, 3, 10), f(5, 3, 4)) | R.Tensor((2, 5, 7), "float32")
nn.conv1d(f(n, 3, m), f(5, 3, 4), 2, 1, 2) | R.Tensor((n, 5, (m - 5) // 2 + 1), "float32")
""",
    """
nn.conv1d(f(2, 4, 8), f(3, 2, 3), groups=2) | ValueError: relax.nn.conv1d: groups: expected a
    divisor of the 3 channels of the result, got 2
nn.conv1d(rank(3), f(3, 2, 3), groups=2) | ValueError: relax.nn.conv1d: groups: expected a
    divisor of the 3 channels of the result, got 2
""",
    """
nn.conv1d(x(2, 4, 9), x(6, 2, 3), 2, 1, 1, 2)
nn.conv1d(x(2, 3, 9), x(4, 3, 3))
nn.conv1d(x(1, 2, 5), x(3, 2, 2), 2, (1, 0), 2)
""",
    reference=convolved("W"),
    dtypes="fhd",
    ulps={"float16": ROUNDED, "float32": 16, "float64": 16},
    of_largest=True,
)
cases(
    "nn.conv2d",
    """
nn.conv2d(f(n, 3, m, 9), f(5, 3, 3, 3), (2, 1), (1, 2), (1, 2)) |
    R.Tensor((n, 5, (m + 1) // 2, 9), "float32")
nn.conv2d(f(1, 3, m, k), f(5, 3, 3, 3), padding=(1, 2, 3, 4)) |
    R.Tensor((1, 5, m + 2, k + 4), "float32")
nn.conv2d(f(1, 6, 8, 8), f(9, 2, 3, 3), groups=3) | R.Tensor((1, 9, 6, 6), "float32")
nn.conv2d(f(2, 8, 9, 3), f(3, 3, 3, 5), data_layout="NHWC", kernel_layout="HWIO") |
    R.Tensor((2, 6, 7, 5), "float32")
nn.conv2d(h(1, 3, 8, 8), h(5, 3, 3, 3), out_layout="NHWC", out_dtype="float32") |
    R.Tensor((1, 6, 6, 5), "float32")
nn.conv2d(rank(4), f(5, 3, 3, 3)) | R.Tensor(dtype="float32", ndim=4)
""",
    """
nn.conv2d(f(2, 3, 8, 9), f(5, 4, 3, 3)) | ValueError: relax.nn.conv2d: data has 3 channels, weight
    takes 4 in each of 1 groups
nn.conv2d(f(2, 3, 8, 9), f(5, 3, 20, 3)) | ValueError: relax.nn.conv2d: no window fits along H
nn.conv2d(f(2, 3, 8), f(5, 3, 3, 3)) | ValueError: relax.nn.conv2d: data: expected a tensor of
    layout 'NCHW'
nn.conv2d(f(2, 3, 8, 9), f(5, 3, 3, 3), data_layout="NCH") | ValueError: relax.nn.conv2d:
    data_layout: expected an order of the letters of 'NCHW', got 'NCH'
nn.conv2d(f(2, 3, 8, 9), f(5, 3, 3, 3), (1, 2, 3)) | ValueError: relax.nn.conv2d: strides: expected
    one number or 2, got [1, 2, 3]
nn.conv2d(f(2, 3, 8, 9), f(5, 3, 3, 3), 1, (1, 2, 3)) | ValueError: relax.nn.conv2d: padding:
    expected 1, 2 or 4 numbers, got [1, 2, 3]
nn.conv2d(f(2, 3, 8, 9), f(5, 3, 3, 3), groups=0) | ValueError: relax.nn.conv2d: groups: expected 1
    or more each, got [0]
""",
    """
nn.conv2d(x(1, 2, 6, 7), x(3, 2, 2, 3), (2, 1), (1, 0, 0, 2), (1, 2))
nn.conv2d(x(1, 6, 7, 2), x(2, 3, 2, 3), data_layout="NHWC", kernel_layout="HWIO", out_layout="NCHW")
nn.conv2d(x(2, 4, 4, 5), x(2, 2, 2, 3), (1, 2), (1, 0, 0, 2), (2, 1), 2)
nn.conv2d(x(1, 4, 6, 6), x(4, 1, 3, 3), padding=1, groups=4)
nn.conv2d(x(2, 6, 5, 4), x(4, 6, 1, 1))
nn.conv2d(x(1, 3, 9, 9), x(2, 3, 3, 3), 2, 1)
nn.conv2d(x(0, 2, 4, 4), x(3, 2, 2, 2))
nn.conv2d(h(1, 3, 4, 4), h(2, 3, 3, 3), out_dtype='float32')
""",
    reference=convolved("HW"),
    dtypes="fhd",
    ulps={"float16": ROUNDED, "float32": 16, "float64": 16},
    of_largest=True,
)
cases(
    "nn.attention",
    """
nn.attention(f(n, 5, 4, 8), f(n, m, 4, 8), f(n, m, 4, 7)) | R.Tensor((n, 5, 4, 7), "float32")
nn.attention(f(n, 5, 4, 8), f(n, m, 4, 8), f(n, m, 4, 8), f(n, 1, 5, m)) |
    R.Tensor((n, 5, 4, 8), "float32")
nn.attention(f(1, 5, 4, 8), f(1, 6, 2, 8), f(1, 6, 2, 7)) | R.Tensor((1, 5, 4, 7), "float32")
nn.attention(f(1, 5, n, 8), f(1, 6, m, 8), f(1, 6, m, 7)) | R.Tensor((1, 5, n, 7), "float32")
""",
    """
nn.attention(f(2, 5, 4, 8), f(2, 6, 4, 8), f(2, 7, 4, 8)) | ValueError: relax.nn.attention: the
    length (dimension 1) differs: it is 6 in key and 7 in value
nn.attention(f(2, 5, 4, 8), f(2, 6, 3, 8), f(2, 6, 3, 8)) | ValueError: relax.nn.attention: the
    number of heads (dimension 2): expected a multiple of the 3 of key and value in query, got 4
nn.attention(f(2, 5, 4, 8), f(2, 6, 4, 8), f(2, 6, 2, 8)) | ValueError: relax.nn.attention: the
    number of heads (dimension 2) differs: it is 4 in key and 2 in value
nn.attention(f(2, 5, 4, 8), f(2, 6, 0, 8), f(2, 6, 0, 8)) | ValueError: relax.nn.attention: the
    number of heads (dimension 2): expected a multiple of the 0 of key and value in query, got 4
nn.attention(f(2, 5, 4), f(2, 6, 4, 8), f(2, 6, 4, 8)) | ValueError: relax.nn.attention: query:
    expected a tensor of rank 4
nn.attention(f(2, 5, 4, 8), f(2, 6, 4, 8), f(2, 6, 4, 8), causal_mask="foo") | ValueError:
    relax.nn.attention: causal_mask: expected 'TopLeft' or 'BottomRight', got str 'foo'
""",
    """
nn.attention(x(2, 3, 2, 4), x(2, 5, 2, 4), x(2, 5, 2, 6))
nn.attention(x(2, 3, 2, 4), x(2, 5, 2, 4), x(2, 5, 2, 6), scale=0.25, causal_mask="BottomRight")
nn.attention(x(2, 3, 2, 4), x(2, 5, 2, 4), x(2, 5, 2, 6), x(2, 1, 3, 5))
nn.attention(x(1, 4, 2, 3), x(1, 1, 2, 3), x(1, 1, 2, 3), causal_mask='BottomRight')
nn.attention(x(1, 3, 2, 3), x(1, 5, 2, 3), x(1, 5, 2, 3), causal_mask='TopLeft')
nn.attention(x(1, 2, 1, 3), x(1, 0, 1, 3), x(1, 0, 1, 3))
nn.attention(x(2, 3, 4, 5), x(2, 5, 2, 5), x(2, 5, 2, 6), x(2, 4, 3, 5))
nn.attention(x(1, 5, 6, 5), x(1, 5, 2, 5), x(1, 5, 2, 6), causal_mask="TopLeft")
""",
    reference=attention,
    dtypes="fhd",
    ulps={"float16": 2, "float32": 16, "float64": 16},
    of_largest=True,
    within=(-2, 2),
)
cases(
    "nn.attention_bias",
    """
nn.attention_bias(rank(4), f(2, 6, 4, 8), f(2, 6, 4, 8), f(1, 1, 1, 6), 0.5, "TopLeft") |
    R.Tensor(dtype="float32", ndim=4)
""",
    """
nn.attention(f(2, 5, 4, 8), f(2, 6, 4, 8), f(2, 6, 4, 8), f(2, 4, 5, 7)) | ValueError:
    relax.nn.attention_bias: the length of key differs: it is 6 in key and 7 in bias
nn.attention_bias(f(2, 5, 4), f(2, 6, 4, 8), f(2, 6, 4, 8), f(1)) | ValueError:
    relax.nn.attention_bias: query: expected a tensor of rank 4
""",
    """
nn.attention(x(2, 3, 2, 4), x(2, 5, 2, 4), x(2, 5, 2, 6), x(2, 1, 3, 5))
nn.attention_bias(x(2, 5, 3, 4), x(2, 7, 3, 4), x(2, 7, 3, 6), x(1, 1, 1, 7), 0.25, 'TopLeft')
nn.attention_bias(x(2, 5, 3, 4), x(2, 7, 3, 4), x(2, 7, 3, 6), x(2, 1, 5, 7))
""",
    reference=attention,
    dtypes="fhd",
    ulps={"float16": 2, "float32": 16, "float64": 16},
    of_largest=True,
    within=(-2, 2),
)
cases(
    "nn.cross_entropy_with_logits",
    """
nn.cross_entropy_with_logits(f(n, 3), f(n, 3)) | R.Tensor((), "float32")
""",
    """
nn.cross_entropy_with_logits(f(3), f(4)) | ValueError: relax.nn.cross_entropy_with_logits: expected
    predictions and labels of one shape, got (3,) and (4,)
""",
    """
nn.cross_entropy_with_logits(x(4, 3), x(4, 3))
nn.cross_entropy_with_logits(x(5), x(5))
nn.cross_entropy_with_logits(x(100, 30), x(100, 30))
""",
    reference=cross_entropy,
    dtypes="fhd",
    ulps={"float16": ROUNDED, "float32": 16, "float64": 16},
    of_largest=True,
)
cases(
    "nn.layer_norm",
    """
nn.layer_norm(f(n, 4), f(4), f(4), -1) | R.Tensor((n, 4), "float32")
nn.layer_norm(f(n, m), f(n, m), f(n, m), [0, 1]) | R.Tensor((n, m), "float32")
nn.layer_norm(f(n, m), f(4), f(4), [-1]) | R.Tensor(dtype="float32", ndim=2)
""",
    """
nn.layer_norm(f(3, 4), f(4), f(5), -1) | ValueError: relax.nn.layer_norm: beta: expected the shape
    (4,) that data has in axes [1], got (5,)
nn.layer_norm(f(3, 4), f(4), f(4), [0, 1]) | ValueError: relax.nn.layer_norm: gamma: expected a
    tensor of rank 2
nn.layer_norm(f(3, 4), f(4), t(4), -1) | TypeError: relax.nn.layer_norm: beta: expected the
    data type of data, float32, got R.Tensor((4,)); R.match_cast states a data type
""",
    """
nn.layer_norm(x(2, 3, 4), x(3, 4), x(3, 4), [1, -1])
nn.layer_norm(x(2, 3, 4), x(4), x(4), -1)
nn.layer_norm(x(2, 3, 4), x(4, 2), x(4, 2), [2, 0])
nn.layer_norm(x(5, 130), x(130), x(130), -1, 0.001, False)
nn.layer_norm(x(5, 130), x(130), x(130), -1, center=True, scale=False)
""",
    reference=layer_norm,
    odd="""
nn.layer_norm(f(4, 5), f(5), f(5), -1)
""",
    dtypes="fhd",
    ulps={"float16": 2, "float32": 16, "float64": 16},
    of_largest=True,
)
cases(
    "nn.group_norm",
    """
nn.group_norm(f(n, 4, 3, m), f(4), f(4), 2, -3, [-1, 2]) | R.Tensor((n, 4, 3, m), "float32")
nn.group_norm(f(2, n, 3), f(n), f(4), 2, 1, 2) | R.Tensor((2, n, 3), "float32")
nn.group_norm(rank(4), f(4), f(4), 2, 1, [2, 3]) | R.Tensor(dtype="float32", ndim=4)
""",
    """
nn.group_norm(f(2, 4, 3), f(4), f(4), 3, 1, [2]) | ValueError: relax.nn.group_norm: num_groups:
    expected a divisor of the 4 channels, got 3
nn.group_norm(f(2, 4, 3), f(4), f(4), 0, 1, [2]) | ValueError: relax.nn.group_norm: num_groups:
    expected at least 1, got 0
nn.group_norm(f(2, 4, 3), f(4), f(4), 2, 1, [1, 2]) | ValueError: relax.nn.group_norm: axes:
    expected axes other than channel_axis 1, got [1, 2]
nn.group_norm(f(2, 4, 3), f(5), f(4), 2, 1, [2]) | ValueError: relax.nn.group_norm: gamma: expected
    the shape (4,)
""",
    """
nn.group_norm(x(2, 4, 3, 3), x(4), x(4), 2, 1, [2, 3])
nn.group_norm(x(2, 3, 5, 6), x(6), x(6), 3, -1, [2, 1], 0.001)
nn.group_norm(x(2, 40, 30, 20), x(40), x(40), 4, 1, [2, 3])
nn.group_norm(x(5, 6), x(6), x(6), 2, 1, [], center=False)
nn.group_norm(x(4, 3), x(4), x(4), 4, 0, [1], scale=False)
""",
    reference=group_norm,
    dtypes="fhd",
    ulps={"float16": 2, "float32": 16, "float64": 16},
    of_largest=True,
)
cases(
    "nn.rms_norm",
    """
nn.rms_norm(f(n, m), f(m)) | R.Tensor((n, m), "float32")
""",
    """
nn.rms_norm(f(3, 4), h(4)) | TypeError: relax.nn.rms_norm: expected operands of one data type
""",
    """
nn.rms_norm(x(2, 4), x(4), epsilon=0.5)
nn.rms_norm(x(2, 3, 4), x(4))
nn.rms_norm(x(2, 3, 4), x(3, 4), [1, 2])
nn.rms_norm(x(5, 130), x(130))
""",
    reference=rms_norm,
    odd="""
nn.rms_norm(f(4, 5), f(5))
""",
    dtypes="fhd",
    ulps={"float16": 2, "float32": 16, "float64": 16},
    of_largest=True,
)
cases(
    "nn.batch_norm",
    """
nn.batch_norm(f(n, 3, 8), f(3), f(3), f(3), f(3), 1) |
    R.Tuple(R.Tensor((n, 3, 8), "float32"), R.Tensor((3,), "float32"), R.Tensor((3,), "float32"))
""",
    """
nn.batch_norm(f(2, 3), f(3), f(3), f(3), f(4), 1) | ValueError: relax.nn.batch_norm: moving_var:
    expected the shape (3,)
""",
    """
nn.batch_norm(x(2, 3), x(3), x(3), x(3), square(x(3)), -1, training=False)
nn.batch_norm(x(4, 3, 2), x(3), x(3), x(3), x(3), 1, momentum=0.25)
nn.batch_norm(x(2, 3, 4, 5), x(3), x(3), x(3), x(3), 1, 0.001, True, False, training=False)
nn.batch_norm(x(2, 3), x(2), x(2), x(2), x(2), 0, 0.001, False, True, training=False)
""",
    reference=batch_norm,
    dtypes="fhd",
    ulps={"float16": 4, "float32": 16, "float64": 16},
    of_largest=True,
    within=((-3, 3), (-3, 3), (-3, 3), (-3, 3), (0.5, 3)),
)
cases(
    "nn.pad",
    """
nn.pad(f(n, m), (1, 2, 0, 3)) | R.Tensor((n + 3, m + 3), "float32")
nn.pad(tensor(), (1, 1), "reflect") | R.Tensor(dtype="float32", ndim=1)
""",
    """
nn.pad(f(3, 4), (1, 1)) | ValueError: relax.nn.pad: pad_width: expected 4 numbers, got 2
nn.pad(f(3), (1, 1), "foo") | ValueError: relax.nn.pad: pad_mode: expected 'constant' or
""",
    """
nn.pad(x(2, 3), (1, 0, 0, 2), pad_value=7.0)
nn.pad(x(3, 3), (1, 1, 2, 0), "reflect")
nn.pad(x(2, 3, 4), (1, 0, 0, 2, 3, 1), 'constant', 2.0)
nn.pad(x(2, 3, 4), (0, 1, 2, 2, 0, 3), 'constant', 2.0)
nn.pad(x(2, 3, 4), (1, 0, 0, 2, 3, 1), 'reflect', 2.0)
nn.pad(x(2, 3, 4), (0, 1, 2, 2, 0, 3), 'reflect', 2.0)
nn.pad(x(2, 3, 4), (1, 0, 0, 2, 3, 1), 'replicate', 2.0)
nn.pad(x(2, 3, 4), (0, 1, 2, 2, 0, 3), 'replicate', 2.0)
nn.pad(x(2, 3, 4), (1, 0, 0, 2, 3, 1), 'circular', 2.0)
nn.pad(x(2, 3, 4), (0, 1, 2, 2, 0, 3), 'circular', 2.0)
nn.pad(x(3), (7, 8), 'replicate')
nn.pad(x(3), (7, 8), 'circular')
nn.pad(x(0, 2), (1, 0, 0, 1))
""",
    reference=padded,
    dtypes="fhdiju",
)
cases(
    "nn.max_pool2d",
    """
nn.max_pool2d(f(n, 3, 8, 9), (2, 3), 2, 1) | R.Tensor((n, 3, 5, 5), "float32")
nn.max_pool2d(f(1, 3, m, 9), 3, 2, 1, ceil_mode=True) |
    R.Tensor((1, 3, m // 2 + 1, 5), "float32")
# A window that would begin in the padding behind is none.
nn.max_pool2d(f(1, 1, 4, 4), 2, 3, 1, ceil_mode=True) | R.Tensor((1, 1, 2, 2), "float32")
# The only window begins on the image, and reaches beyond the padding.
nn.max_pool2d(f(1, 1, 2, 2), 3, 2, ceil_mode=True) | R.Tensor((1, 1, 1, 1), "float32")
""",
    """
nn.max_pool2d(f(8, 9, 3), 2) | ValueError: relax.nn.max_pool2d: data: expected a tensor of layout
nn.max_pool2d(f(1, 1, 2, 2), 3) | ValueError: relax.nn.max_pool2d: no window fits along H
nn.max_pool2d(f(1, 1, 2, 2), 5, 2, ceil_mode=True) | ValueError: relax.nn.max_pool2d: no window
""",
    """
nn.max_pool2d(x(1, 2, 5, 6), (2, 3), 2, (1, 0), ceil_mode=True)
nn.max_pool2d(x(1, 2, 2, 3), 3, 2, ceil_mode=True)
nn.max_pool2d(x(1, 1, 4, 4), 2, 3, 1, ceil_mode=True)
nn.max_pool2d(x(2, 2, 4, 5), 2, (1, 2), (1, 0, 0, 1), (2, 1), True)
nn.max_pool2d(x(1, 1, 5, 5), 1, 3, 0)
""",
    reference=pooled(mean=False),
    dtypes="fhd",
    ulps={"float16": ROUNDED, "float32": ROUNDED, "float64": ROUNDED},
    of_largest=False,
)
cases(
    "nn.avg_pool2d",
    """
nn.avg_pool2d(f(2, 8, 9, 3), 2, 2, layout="NHWC") | R.Tensor((2, 4, 4, 3), "float32")
""",
    """
nn.avg_pool2d(f(1, 1, 2, 2), 3) | ValueError: relax.nn.avg_pool2d: no window fits along H: it is 3
    long, the padded data 2
""",
    """
nn.avg_pool2d(x(1, 1, 4, 4), 2, 3, 1, ceil_mode=True)
nn.avg_pool2d(x(1, 2, 2, 3), 3, 2, ceil_mode=True)
nn.avg_pool2d(x(1, 4, 6, 2), 2, 2, layout="NHWC")
nn.avg_pool2d(x(2, 2, 4, 5), 2, (1, 2), (1, 0, 0, 1), (2, 1), True)
nn.avg_pool2d(x(2, 2, 4, 5), 2, 1, 1, ceil_mode=False, count_include_pad=True)
nn.avg_pool2d(x(1, 2, 6, 6), 3, 2, 1, 1, True, True)
""",
    reference=pooled(mean=True),
    dtypes="fhd",
    ulps={"float16": ROUNDED, "float32": 4, "float64": 4},
    of_largest=True,
)


def responses(x: Any, size: int, factor: float, power: float, bias: float) -> Any:
    """Element by element."""
    out = np.zeros(x.shape, x.dtype)
    for n, c, i in np.ndindex(x.shape):
        total = 0 * x[n, c, i]
        for k in range(x.shape[1]):
            if -((size - 1) // 2) <= k - c <= size // 2:
                total += x[n, k, i] * x[n, k, i]
        out[n, c, i] = x[n, c, i] / np.exp(power * np.log(bias + factor * total))
    return out


kernel("nn.lrn", lambda draw: (draw(2, 7, 5), 4, 0.25, 0.75, 2.0), responses, ulps=4)
