"""Losses."""

from __future__ import annotations

from typing import Any

from ...common.emitter import Emitter, Problem
from ..checked import index_within
from ..forms import (
    Tensor,
    axes_of,
    cast,
    dims_of,
    dtype_of,
    floating,
    is_float,
    number,
    numel,
    promoted,
    rank_of,
    reshaped,
)
from ..registry import aten
from .activations import log_sigmoid_of
from .products import pairwise_distance
from .reductions import reduced

__all__: list[str] = []


def _joined(c: Emitter, losses: Tensor, reduction: int) -> Tensor:
    """The losses (0), their mean (1) or their sum (2)."""
    if reduction == 0:
        return losses
    return reduced(c, "mean" if reduction == 1 else "sum", losses, axes_of(losses, None), False)


@aten("mse_loss")
def mse_loss(c: Emitter, self: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    """(x - y) ** 2."""
    a, b = promoted(c, self, target)
    apart = c.op("subtract", a, b)
    return _joined(c, c.op("multiply", apart, apart), reduction)


@aten("l1_loss")
def l1_loss(c: Emitter, self: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    """|x - y|."""
    return _joined(c, c.op("abs", c.op("subtract", *promoted(c, self, target))), reduction)


def _bent(c: Emitter, self: Tensor, target: Tensor, bound: float, is_huber: bool) -> Tensor:
    a, b = promoted(c, self, target)
    dtype = dtype_of(a)
    size = c.op("abs", c.op("subtract", a, b))
    half, limit = number(c, 0.5, dtype), number(c, bound, dtype)
    square = c.op("multiply", c.op("multiply", size, size), half)
    line = c.op("subtract", size, number(c, bound / 2, dtype))
    if is_huber:
        line = c.op("multiply", line, limit)
    elif bound:
        square = c.op("divide", square, limit)
    return c.op("where", c.op("less", size, limit), square, line)


@aten("smooth_l1_loss")
def smooth_l1_loss(
    c: Emitter, self: Tensor, target: Tensor, reduction: int = 1, beta: float = 1.0
) -> Tensor:
    """|x - y|, rounded off below beta."""
    return _joined(c, _bent(c, self, target, beta, False), reduction)


@aten("huber_loss")
def huber_loss(
    c: Emitter, self: Tensor, target: Tensor, reduction: int = 1, delta: float = 1.0
) -> Tensor:
    """delta * |x - y|, rounded off below delta."""
    return _joined(c, _bent(c, self, target, delta, True), reduction)


@aten("soft_margin_loss")
def soft_margin_loss(c: Emitter, self: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    """log(1 + exp(-x * y))."""
    a, b = promoted(c, self, target)
    negative = c.op("negative", c.op("multiply", a, b))
    return _joined(c, c.op("log_add_exp", negative, number(c, 0, dtype_of(a))), reduction)


@aten("kl_div")
def kl_div(
    c: Emitter, self: Tensor, target: Tensor, reduction: int = 1, log_target: bool = False
) -> Tensor:
    """y * (log(y) - x)."""
    a, b = promoted(c, self, target)
    dtype = dtype_of(a)
    if log_target:
        found = c.op("multiply", c.op("exp", b), c.op("subtract", b, a))
    else:
        zero = number(c, 0, dtype)
        entropy = c.op("where", c.op("equal", b, zero), zero,
                       c.op("multiply", b, c.op("log", b)))  # fmt: skip
        found = c.op("subtract", entropy, c.op("multiply", b, a))
    return _joined(c, found, reduction)


@aten("poisson_nll_loss")
def poisson_nll_loss(
    c: Emitter, input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float,  # noqa: A002
    reduction: int,
) -> Tensor:  # fmt: skip
    """The negative logarithm of a Poisson distribution."""
    a, b = promoted(c, input, target)
    dtype = dtype_of(a)
    if log_input:
        found = c.op("subtract", c.op("exp", a), c.op("multiply", b, a))
    else:
        logs = c.op("log", c.op("add", a, number(c, eps, dtype)))
        found = c.op("subtract", a, c.op("multiply", b, logs))
    if full:
        logs = c.op("subtract", c.op("multiply", b, c.op("log", b)), b)
        more = c.op("log", c.op("multiply", number(c, 2 * 3.141592653589793, dtype), b))
        stirling = c.op("add", logs, c.op("multiply", number(c, 0.5, dtype), more))
        is_one = c.op("less_equal", b, number(c, 1, dtype))
        found = c.op("add", found, c.op("where", is_one, number(c, 0, dtype), stirling))
    return _joined(c, found, reduction)


@aten("binary_cross_entropy")
def binary_cross_entropy(
    c: Emitter, self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """-(y * log(x) + (1 - y) * log(1 - x)); logarithms are at least -100."""
    dtype = dtype_of(self)
    one, least = number(c, 1, dtype), number(c, -100, dtype)
    first = c.op("maximum", c.op("log", self), least)
    second = c.op("maximum", c.op("log", c.op("subtract", one, self)), least)
    rest = c.op("multiply", c.op("subtract", target, one), second)
    found = c.op("subtract", rest, c.op("multiply", target, first))
    if weight is not None:
        found = c.op("multiply", found, weight)
    return _joined(c, found, reduction)


@aten("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    c: Emitter, self: Tensor, target: Tensor, weight: Tensor | None = None,
    pos_weight: Tensor | None = None, reduction: int = 1,
) -> Tensor:  # fmt: skip
    """The same of sigmoid(x)."""
    dtype = dtype_of(self)
    one = number(c, 1, dtype)
    rest = c.op("multiply", c.op("subtract", one, target), self)
    logs = log_sigmoid_of(c, self)
    if pos_weight is not None:
        more = c.op("multiply", c.op("subtract", pos_weight, one), target)
        logs = c.op("multiply", logs, c.op("add", more, one))
    found = c.op("subtract", rest, logs)
    if weight is not None:
        found = c.op("multiply", found, weight)
    return _joined(c, found, reduction)


@aten("margin_ranking_loss")
def margin_ranking_loss(
    c: Emitter, input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0,
    reduction: int = 1,
) -> Tensor:  # fmt: skip
    """max(0, -y * (a - b) + margin)."""
    a, b, y = promoted(c, input1, input2, target)
    dtype = floating(dtype_of(a))
    found = c.op("multiply", c.op("negative", y), c.op("subtract", a, b))
    found = c.op("add", cast(c, found, dtype), number(c, margin, dtype))
    return _joined(c, c.op("maximum", found, number(c, 0, dtype)), reduction)


@aten("hinge_embedding_loss")
def hinge_embedding_loss(
    c: Emitter, self: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 1
) -> Tensor:
    """x where y is 1, max(0, margin - x) where it is -1."""
    a, y = promoted(c, self, target)
    dtype = dtype_of(a)
    zero = number(c, 0, dtype)
    apart = c.op("maximum", c.op("subtract", number(c, margin, dtype), a), zero)
    first = c.op("where", c.op("not_equal", y, number(c, 1, dtype)), apart, zero)
    second = c.op("where", c.op("not_equal", y, number(c, -1, dtype)), a, zero)
    return _joined(c, c.op("add", first, second), reduction)


@aten("cosine_embedding_loss")
def cosine_embedding_loss(
    c: Emitter, input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0,
    reduction: int = 1,
) -> Tensor:  # fmt: skip
    """1 - cosine where y is 1, max(0, cosine - margin) where it is -1."""
    a, b = promoted(c, input1, input2)
    dtype = dtype_of(a)
    last = [rank_of(a) - 1]
    small = number(c, 1e-12, dtype)

    def dot(x: Tensor, y: Tensor) -> Tensor:
        return c.op("sum", c.op("multiply", x, y), last, False)

    sizes = c.op("multiply", c.op("add", dot(a, a), small), c.op("add", dot(b, b), small))
    cosine = c.op("divide", dot(a, b), c.op("sqrt", sizes))
    zero, one = number(c, 0, dtype), number(c, 1, dtype)
    near = c.op("subtract", one, cosine)
    far = c.op("maximum", c.op("subtract", cosine, number(c, margin, dtype)), zero)
    y = cast(c, target, dtype)
    first = c.op("where", c.op("equal", y, one), near, zero)
    second = c.op("where", c.op("equal", y, number(c, -1, dtype)), far, zero)
    return _joined(c, c.op("add", first, second), reduction)


@aten("triplet_margin_loss")
def triplet_margin_loss(
    c: Emitter, anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0,
    p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: int = 1,
) -> Tensor:  # fmt: skip
    """max(0, margin + the distance to the positive - that to the negative)."""
    near = pairwise_distance(c, anchor, positive, p, eps)
    far = pairwise_distance(c, anchor, negative, p, eps)
    if swap:
        far = c.op("minimum", far, pairwise_distance(c, positive, negative, p, eps))
    dtype = dtype_of(near)
    found = c.op("add", c.op("subtract", near, far), number(c, margin, dtype))
    return _joined(c, c.op("maximum", found, number(c, 0, dtype)), reduction)


# By classes


def _classes_last(c: Emitter, x: Tensor) -> Tensor:
    """x[batch, classes, ...] as [batch, ..., classes]."""
    if rank_of(x) <= 2:
        return x
    return c.op("permute_dims", x, [0, *range(2, rank_of(x)), 1])


def _likelihoods(
    c: Emitter, logs: Tensor, target: Tensor, weight: Tensor | None, reduction: int,
    ignore_index: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The losses and the total weight."""
    dtype = dtype_of(logs)
    x = _classes_last(c, logs)
    dims = dims_of(x)
    y = cast(c, target, "int64")
    ignored = c.op("equal", y, number(c, ignore_index, "int64"))
    classes = c.op("where", ignored, number(c, 0, "int64"), y)
    safe = index_within(c, classes, dims[-1], "target")
    index = reshaped(c, safe, [*dims[:-1], 1])
    picked = reshaped(c, c.op("gather_elements", x, index, len(dims) - 1), dims[:-1])
    zero = number(c, 0, dtype)
    rates: Tensor
    if weight is None:
        rates = c.op("where", ignored, zero, number(c, 1, dtype))
    else:
        rates = c.op("where", ignored, zero, c.op("take", weight, safe, 0))
    found = c.op("negative", c.op("multiply", picked, rates))
    found = c.op("where", ignored, zero, found)
    axes = axes_of(found, None)
    total = reduced(c, "sum", rates, axes, False)
    if reduction == 0:
        return found, total
    joined = reduced(c, "sum", found, axes, False)
    return (c.op("divide", joined, total) if reduction == 1 else joined), total


@aten("nll_loss", "nll_loss_nd", "nll_loss2d")
def nll_loss(
    c: Emitter, self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1,
    ignore_index: Any = -100,
) -> Tensor:  # fmt: skip
    """Minus the logarithm of the class that the target says."""
    return _likelihoods(c, self, target, weight, reduction, ignore_index)[0]


@aten("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(
    c: Emitter, self: Tensor, target: Tensor, weight: Tensor | None, reduction: int,
    ignore_index: Any,
) -> Any:  # fmt: skip
    """The same, with the total weight."""
    return _likelihoods(c, self, target, weight, reduction, ignore_index)


@aten("cross_entropy_loss")
def cross_entropy(
    c: Emitter, self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1,
    ignore_index: Any = -100, label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """nll_loss of log_softmax, or of probabilities as targets."""
    dtype = dtype_of(self)
    axis = 0 if rank_of(self) == 1 else 1
    logs = c.op("nn.log_softmax", self, axis)
    classes = dims_of(self)[axis]
    if is_float(dtype_of(target)):
        if label_smoothing:
            rest = c.op("multiply", cast(c, target, dtype), number(c, 1 - label_smoothing, dtype))
            share = c.op("divide", number(c, label_smoothing, dtype), number(c, classes, dtype))
            target = c.op("add", rest, share)
        products = c.op("multiply", logs, target)
        if weight is not None:
            along = [1] * rank_of(self)
            along[axis] = classes
            products = c.op("multiply", products, reshaped(c, weight, along))
        found: Tensor = c.op("negative", c.op("sum", products, [axis], False))
        if reduction == 0:
            return found
        total = reduced(c, "sum", found, axes_of(found, None), False)
        if reduction == 2:
            return total
        dims = dims_of(found)
        return c.op("divide", total, number(c, numel(dims), dtype))
    found, total = _likelihoods(c, logs, target, weight, reduction, ignore_index)
    if not label_smoothing:
        return found
    wide = logs
    if weight is not None:
        along = [1] * rank_of(self)
        along[axis] = classes
        wide = c.op("multiply", logs, reshaped(c, weight, along))
    smooth: Tensor = c.op("negative", c.op("sum", wide, [axis], False))
    ignored = c.op("equal", cast(c, target, "int64"), number(c, ignore_index, "int64"))
    smooth = c.op("where", ignored, number(c, 0, dtype), smooth)
    if reduction:
        smooth = reduced(c, "sum", smooth, axes_of(smooth, None), False)
        if reduction == 1:
            smooth = c.op("divide", smooth, total)
    share = c.op("divide", number(c, label_smoothing, dtype), number(c, classes, dtype))
    first = c.op("multiply", found, number(c, 1 - label_smoothing, dtype))
    return c.op("add", first, c.op("multiply", smooth, share))


@aten("multilabel_margin_loss")
def multilabel_margin_loss(
    c: Emitter, self: Tensor, target: Tensor, reduction: int = 1
) -> Tensor:
    """The sum of max(0, 1 - x[y] + x) over targets y, which end at -1, and over the other classes,
    divided by the number of classes."""
    dtype, classes = dtype_of(self), dims_of(self)[-1] if rank_of(self) else 1
    x = reshaped(c, self, [-1, 1, classes])
    y = reshaped(c, target, [-1, classes])
    zero, one = number(c, 0, dtype), number(c, 1, dtype)
    ended = c.op("cumsum", cast(c, c.op("less", y, number(c, 0, "int64")), "int64"), 1)
    is_given = c.op("equal", ended, number(c, 0, "int64"))
    y = c.op("where", is_given, y, number(c, 0, "int64"))
    y = index_within(c, y, classes, "target")
    given = reshaped(c, is_given, [-1, classes, 1])
    places = c.op("arange", 0, classes, 1, "int64")
    is_here = c.op("logical_and", c.op("equal", c.op("expand_dims", y, 2), places), given)
    is_target = c.op("max", cast(c, is_here, dtype), [1], True)
    right = c.op("expand_dims", c.op("gather_elements", reshaped(c, self, [-1, classes]), y, 1), 2)
    found = c.op("maximum", c.op("add", c.op("subtract", x, right), one), zero)
    found = c.op("where", given, c.op("multiply", found, c.op("subtract", one, is_target)), zero)
    found = c.op("divide", c.op("sum", found, [1, 2], False), number(c, classes, dtype))
    if reduction == 0 and rank_of(self) < 2:
        return reshaped(c, found, [])
    return _joined(c, found, reduction)


@aten("multi_margin_loss")
def multi_margin_loss(
    c: Emitter, self: Tensor, target: Tensor, p: Any = 1, margin: Any = 1,
    weight: Tensor | None = None, reduction: int = 1,
) -> Tensor:  # fmt: skip
    """The mean over classes of max(0, margin - x[y] + x) ** p."""
    dtype = dtype_of(self)
    is_single = rank_of(self) < 2
    x = reshaped(c, self, [1, -1]) if is_single else self
    y = reshaped(c, target, [-1, 1])
    classes = dims_of(x)[1]
    y = index_within(c, y, classes, "target")
    right = c.op("gather_elements", x, y, 1)
    found = c.op("add", c.op("subtract", x, right), number(c, margin, dtype))
    found = c.op("maximum", found, number(c, 0, dtype))
    if p == 2:
        found = c.op("multiply", found, found)
    elif p != 1:
        raise Problem(f"p: expected 1 or 2, got {p}")
    if weight is not None:
        found = c.op("multiply", found, c.op("take", weight, y, 0))
    places = c.op("arange", 0, classes, 1, "int64")
    found = c.op("where", c.op("equal", places, y), number(c, 0, dtype), found)
    found = c.op("divide", c.op("sum", found, [1], False), number(c, classes, dtype))
    if reduction == 0 and is_single:
        return reshaped(c, found, dims_of(target))
    return _joined(c, found, reduction)

