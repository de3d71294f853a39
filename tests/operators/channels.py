"""Cases of activations with parameters, of losses, and of what is done for each channel."""

from __future__ import annotations

from typing import Any

import numpy as np

from .nn import layer_norm
from .table import ROUNDED, cases

MEANS = {"float16": ROUNDED, "float32": 16, "float64": 16}
STEPS = {"float16": 4, "float32": 8, "float64": 8}


def prelu(data: Any, alpha: Any, axis: int = 1) -> Any:
    slope = alpha.reshape(-1, *[1] * (data.ndim - axis % data.ndim - 1))
    return np.maximum(data, 0) + slope * np.minimum(data, 0)


def selu(data: Any) -> Any:
    alpha, scale = np.longdouble("1.6732632423543772"), np.longdouble("1.0507009873554805")
    return scale * (np.maximum(data, 0) + alpha * (np.exp(np.minimum(data, 0)) - 1))


def softplus(data: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    soft = np.log1p(np.exp(np.minimum(data * beta, threshold))) / beta
    return np.where(data * beta > threshold, data, soft)


def instance_norm(
    data: Any, gamma: Any, beta: Any, channel_axis: int, axes: Any, epsilon: float = 1e-5,
    center: bool = True, scale: bool = True,
) -> Any:  # fmt: skip
    ones = np.ones([data.shape[a] for a in axes], data.dtype)
    found = layer_norm(data, ones, 0 * ones, axes, epsilon)
    along = (-1,) + (1,) * (data.ndim - channel_axis % data.ndim - 1)
    found = found * gamma.reshape(along) if scale else found
    return found + beta.reshape(along) if center else found


def nll_loss(
    predictions: Any, targets: Any, weights: Any = None, reduction: str = "mean",
    ignore_index: int = -100,
) -> Any:  # fmt: skip
    rows = np.moveaxis(predictions, min(1, predictions.ndim - 1), -1)
    losses = np.zeros(targets.shape, predictions.dtype)
    is_integer = predictions.dtype.kind in "iu"
    count = 0 if is_integer else np.longdouble(0)
    for at in np.ndindex(*targets.shape):
        target = int(targets[at])
        if target != ignore_index:
            weight = type(count)(1) if weights is None else weights[target]
            losses[at] = -rows[at][target] * weight
            count += weight
    if reduction == "none":
        return losses
    if is_integer and reduction == "mean":
        return np.trunc(losses.sum() / count).astype(predictions.dtype)
    return losses.sum() if reduction == "sum" else losses.sum() / count


def shuffled(data: Any, upscale_factor: int) -> Any:
    f = upscale_factor
    *batch, channels, height, width = data.shape
    out = np.empty((*batch, channels // f**2, height * f, width * f), data.dtype)
    for c, i, j in np.ndindex(*out.shape[-3:]):
        out[..., c, i, j] = data[..., c * f * f + i % f * f + j % f, i // f, j // f]
    return out


def unshuffled(data: Any, downscale_factor: int) -> Any:
    f = downscale_factor
    *batch, channels, height, width = data.shape
    out = np.empty((*batch, channels * f**2, height // f, width // f), data.dtype)
    for c, i, j in np.ndindex(*out.shape[-3:]):
        out[..., c, i, j] = data[..., c // f**2, i * f + c // f % f, j * f + c % f]
    return out


cases(
    "nn.leakyrelu",
    """
nn.leakyrelu(f(n, 3)) | R.Tensor((n, 3), "float32")
""",
    """
nn.leakyrelu(i(3)) | TypeError: relax.nn.leakyrelu: data: expected floats
""",
    """
nn.leakyrelu(x(3, 5))
nn.leakyrelu(x(7), 0.3)
""",
    reference=lambda data, alpha=0.01: np.where(data > 0, data, data * np.longdouble(alpha)),
    dtypes="fhd",
    ulps=STEPS,
)
cases(
    "nn.selu",
    """
nn.selu(f(n, 3)) | R.Tensor((n, 3), "float32")
""",
    """
nn.selu(i(3)) | TypeError: relax.nn.selu: data: expected floats
""",
    """
nn.selu(x(3, 5))
""",
    reference=selu,
    dtypes="fhd",
    ulps=STEPS,
    of_largest=True,
)
cases(
    "nn.softplus",
    """
nn.softplus(f(n, 3)) | R.Tensor((n, 3), "float32")
""",
    """
nn.softplus(i(3)) | TypeError: relax.nn.softplus: data: expected floats
nn.softplus(f(3), 0.0) | ValueError: relax.nn.softplus: beta: expected a number other than 0
""",
    """
nn.softplus(x(3, 5))
nn.softplus(x(3, 5), 2.0, 3.0)
""",
    reference=softplus,
    dtypes="fhd",
    ulps=STEPS,
    of_largest=True,
)
cases(
    "nn.prelu",
    """
nn.prelu(f(n, 4, 5), f(4)) | R.Tensor((n, 4, 5), "float32")
nn.prelu(f(n, 4, 5), f(1), -1) | R.Tensor((n, 4, 5), "float32")
nn.prelu(rank(3), f(4)) | R.Tensor(dtype="float32", ndim=3)
""",
    """
nn.prelu(f(2, 4, 5), f(3)) | ValueError: relax.nn.prelu: alpha: expected 1 element, or the 4 of axis
    1, got 3
nn.prelu(f(2, 4, 5), f(4, 5)) | ValueError: relax.nn.prelu: alpha: expected a tensor of rank 1
""",
    """
nn.prelu(x(3, 4, 2), x(4))
nn.prelu(x(3, 4), x(1))
nn.prelu(x(3, 4), x(4), -1)
""",
    reference=prelu,
    dtypes="fhd",
    ulps=ROUNDED,
)
cases(
    "nn.instance_norm",
    """
nn.instance_norm(f(n, 4, m, 3), f(4), f(4), 1, [2, 3]) | R.Tensor((n, 4, m, 3), "float32")
""",
    """
nn.instance_norm(f(2, 4, 3), f(5), f(4), 1, [2]) | ValueError: relax.nn.instance_norm: gamma:
    expected the shape (4,)
nn.instance_norm(f(2, 4, 3), f(4), f(4), 1, [1, 2]) | ValueError: relax.nn.instance_norm: axes:
    expected axes other than channel_axis 1, got [1, 2]
""",
    """
nn.instance_norm(x(2, 4, 3, 3), x(4), x(4), 1, [2, 3])
nn.instance_norm(x(2, 3, 5), x(5), x(5), -1, [1], 0.001)
nn.instance_norm(x(2, 3, 5), x(3), x(3), 1, [2], center=False)
nn.instance_norm(x(2, 3, 5), x(3), x(3), 1, [2], scale=False)
""",
    reference=instance_norm,
    dtypes="fhd",
    ulps=MEANS,
    of_largest=True,
)
cases(
    "nn.nll_loss",
    """
nn.nll_loss(f(n, 4, 5), i(n, 5), f(4)) | R.Tensor((), "float32")
nn.nll_loss(f(n, 4, 5), i(n, 5), reduction="none") | R.Tensor((n, 5), "float32")
nn.nll_loss(f(4), i(), f(4), "sum") | R.Tensor((), "float32")
nn.nll_loss(rank(3), i(n, 6), f(4), "none") | R.Tensor(dtype="float32", ndim=2)
""",
    """
nn.nll_loss(f(3, 4, 5), i(3, 6)) | ValueError: relax.nn.nll_loss: targets: expected the shape (3, 5)
nn.nll_loss(f(3, 4), i(3), f(5)) | ValueError: relax.nn.nll_loss: the number of classes differs: it
    is 4 in predictions and 5 in weights
nn.nll_loss(f(3, 4), f(3)) | TypeError: relax.nn.nll_loss: targets: expected integers
nn.nll_loss(f(3, 4), i(3), reduction="max") | ValueError: relax.nn.nll_loss: reduction: expected
    'none' or 'sum' or 'mean', got str 'max'
nn.nll_loss(f(), i()) | ValueError: relax.nn.nll_loss: predictions: expected a tensor of rank 1
""",
    """
nn.nll_loss(x(5, 4), i(5), x(4), "none")
nn.nll_loss(x(5, 4, 3), i(5, 3), reduction="sum", ignore_index=2)
nn.nll_loss(x(5, 4, 3), i(5, 3), reduction="mean", ignore_index=1)
nn.nll_loss(x(4), i(), reduction="none")
nn.nll_loss(x(3, 4, 2), i(3, 2), x(4), "none", 0)
""",
    reference=nll_loss,
    within=((-9, 9), (0, 3), (1, 9)),
    failures="""
nn.nll_loss(f(2, 3), i(2)) | np.ones((2, 3), "f4"), np.array([1, 3]) | ValueError: nn.nll_loss:
    targets: expected classes in 0 to 2, or -100, got 1 to 3
nn.nll_loss(i(2, 3), i(2), ignore_index=1) | np.ones((2, 3), "i8"), np.array([1, 1]) | ValueError:
    nn.nll_loss: the weights of the targets add up to 0
""",
    dtypes="fhdi",
    ulps=MEANS,
    of_largest=True,
)
cases(
    "nn.batch_flatten",
    """
nn.batch_flatten(f(n, 4, m)) | R.Tensor((n, 4 * m), "float32")
nn.batch_flatten(f(n, 4)) | R.Tensor((n, 4), "float32")
nn.batch_flatten(rank(3)) | R.Tensor(dtype="float32", ndim=2)
""",
    """
nn.batch_flatten(f(3)) | ValueError: relax.nn.batch_flatten: data: expected a tensor of rank 2
""",
    """
nn.batch_flatten(x(3, 4, 2))
nn.batch_flatten(x(3, 4))
""",
    reference=lambda data: data.reshape(len(data), -1),
    dtypes="fi",
)
cases(
    "nn.pixel_shuffle",
    """
nn.pixel_shuffle(f(n, 8, 5, m), 2) | R.Tensor((n, 2, 10, m * 2), "float32")
nn.pixel_shuffle(f(9, 5, m), 3) | R.Tensor((1, 15, m * 3), "float32")
nn.pixel_shuffle(rank(4), 2) | R.Tensor(dtype="float32", ndim=4)
""",
    """
nn.pixel_shuffle(f(1, 7, 5, 5), 2) | ValueError: relax.nn.pixel_shuffle: upscale_factor ** 2:
    expected a divisor of the 7 channels, got 4
nn.pixel_shuffle(f(5, 5), 2) | ValueError: relax.nn.pixel_shuffle: data: expected a tensor of rank 3
nn.pixel_shuffle(f(4, 5, 5), 0) | ValueError: relax.nn.pixel_shuffle: upscale_factor: expected at
    least 1, got 0
""",
    """
nn.pixel_shuffle(x(2, 8, 3, 2), 2)
nn.pixel_shuffle(x(9, 2, 3), 3)
""",
    reference=shuffled,
    dtypes="fi",
    large="nn.pixel_shuffle(f(4, 393216, 1), 2)",
)
cases(
    "nn.pixel_unshuffle",
    """
nn.pixel_unshuffle(f(n, 2, 10, 4), 2) | R.Tensor((n, 8, 5, 2), "float32")
""",
    """
nn.pixel_unshuffle(f(1, 2, 5, 4), 2) | ValueError: relax.nn.pixel_unshuffle: downscale_factor:
    expected a divisor of the 5 rows, got 2
""",
    """
nn.pixel_unshuffle(x(2, 2, 6, 4), 2)
nn.pixel_unshuffle(x(1, 6, 3), 3)
""",
    reference=unshuffled,
    dtypes="fi",
    in_tvm=False,
    large="nn.pixel_unshuffle(f(1, 393216, 4), 2)",
)
