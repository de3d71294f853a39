"""Attention: softmax(query @ key^T * scale + mask) @ value."""

from __future__ import annotations

import math
from typing import Any

from ...common.emitter import Emitter, Problem
from ..forms import (
    Tensor,
    cast,
    dims_of,
    dtype_of,
    length,
    number,
    rank_of,
    reshaped,
    same_dim,
)
from ..registry import aten
from .reductions import logsumexp
from .shapes import swapped

__all__: list[str] = []


def _with_axis(c: Emitter, x: Tensor, place: int, lengths: list[Any]) -> Tensor:
    """x with lengths in place of the one of an axis."""
    dims = dims_of(x)
    return reshaped(c, x, [*dims[:place], *lengths, *dims[place + 1 :]])


def _shared(
    c: Emitter, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Heads of queries that share keys and values, along an axis of their own: keys and values have
    length 1 there, and are not repeated.  A cache of them is not copied for each token."""
    heads, shared, place = dims_of(query)[-3], dims_of(key)[-3], rank_of(query) - 3
    times = length(heads // shared)
    query = _with_axis(c, query, place, [shared, times])
    key = _with_axis(c, key, place, [shared, 1])
    value = _with_axis(c, value, place, [shared, 1])
    if mask is not None and rank_of(mask) >= 3:
        count, at = dims_of(mask)[-3], rank_of(mask) - 3
        mask = _with_axis(c, mask, at, [1, 1] if count == 1 else [shared, times])
    return query, key, value, mask


def _causal(c: Emitter, queries: Any, keys: Any) -> Tensor:
    """Whether a key is not after a query."""
    rows = c.op("arange", 0, queries, 1, "int64")
    columns = c.op("arange", 0, keys, 1, "int64")
    return c.op("less_equal", columns, reshaped(c, rows, [queries, 1]))


def _by_operator(
    c: Emitter, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool,
    scale: Any,
) -> Tensor | None:  # fmt: skip
    """By the operator of attention, which multiplies the keys and values that heads share where
    they are; None where lengths broadcast, or the numbers of heads are not known."""
    q, k, v = map(dims_of, (query, key, value))
    pairs = [(q[0], k[0]), (q[0], v[0]), (k[1], v[1]), (k[2], v[2]), (q[3], k[3])]
    if not all(same_dim(a, b) for a, b in pairs):
        return None
    heads, shared = q[1], k[1]
    if not same_dim(heads, shared) and not (
        isinstance(heads, int) and isinstance(shared, int) and shared and heads % shared == 0
    ):
        return None
    operands = [swapped(c, each, 1, 2) for each in (query, key, value)]
    if mask is not None:
        of = dims_of(mask)
        full = [1] * (4 - len(of)) + list(of)
        whole = (q[0], q[1], q[2], k[2])
        if len(of) > 4 or any(
            each != 1 and not same_dim(each, other)
            for each, other in zip(full, whole, strict=True)
        ):
            return None
        if not same_dim(full[3], k[2]):
            return None
        if dtype_of(mask) == "bool":
            zero, low = number(c, 0.0, "float32"), number(c, -math.inf, "float32")
            mask = c.op("where", mask, zero, low)
        elif dtype_of(mask) != "float32":
            return None
        operands.append(reshaped(c, mask, full))
    name = "nn.attention" if mask is None else "nn.attention_bias"
    found = c.op(name, *operands, scale=float(scale), causal_mask="TopLeft" if is_causal else None)
    return swapped(c, found, 1, 2)


def _attended(
    c: Emitter, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool,
    scale: Any, enable_gqa: bool,
) -> Tensor:  # fmt: skip
    dtype = dtype_of(query)
    scale = _scale(query, scale)
    if dtype == "float32" and rank_of(query) == rank_of(key) == rank_of(value) == 4:
        found = _by_operator(c, query, key, value, mask, is_causal, scale)
        if found is not None:
            return found
    weights, value = _weights(c, query, key, value, mask, is_causal, scale, enable_gqa)
    found = cast(c, c.op("matmul", weights, cast(c, value, dtype_of(weights))), dtype)
    if rank_of(found) == rank_of(query):
        return found
    return reshaped(c, found, [*dims_of(query)[:-1], dims_of(value)[-1]])


def _scale(query: Tensor, scale: Any) -> Any:
    if scale is not None:
        return scale
    size = dims_of(query)[-1]
    if not isinstance(size, int):
        raise Problem("scale: expected it where the size of a head is not known")
    return 1 / math.sqrt(size) if size else 1.0


def _scores(
    c: Emitter, query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: Any
) -> Tensor:
    """What `softmax` is taken of; in float32 if the operands have 16 bits."""
    dtype = dtype_of(query)
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    q = c.op("multiply", cast(c, query, wide), number(c, scale, wide))
    rank = rank_of(key)
    scores = c.op("matmul", q, swapped(c, cast(c, key, wide), rank - 2, rank - 1))
    low = number(c, -math.inf, wide)
    if is_causal:
        allowed = _causal(c, dims_of(query)[-2], dims_of(key)[-2])
        scores = c.op("where", allowed, scores, low)
    if mask is None:
        return scores
    if dtype_of(mask) == "bool":
        return c.op("where", mask, scores, low)
    return c.op("add", scores, cast(c, mask, wide))


def _weights(
    c: Emitter, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool,
    scale: Any, enable_gqa: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The weights, and the values that they are for: heads that share have an axis of their own."""
    if enable_gqa and not same_dim(dims_of(query)[-3], dims_of(key)[-3]):
        query, key, value, mask = _shared(c, query, key, value, mask)
    scores = _scores(c, query, key, mask, is_causal, scale)
    last, dtype = rank_of(scores) - 1, dtype_of(scores)
    weights = c.op("nn.softmax", scores, last)
    if mask is not None:  # a query that no key is allowed for gets 0
        top = c.op("max", scores, [last], True)
        is_masked = c.op("equal", top, number(c, -math.inf, dtype))
        weights = c.op("where", is_masked, number(c, 0, dtype), weights)
    return weights, value


@aten("scaled_dot_product_attention")
def attention(
    c: Emitter, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """softmax(query @ key^T * scale + mask) @ value for each head."""
    if dropout_p:
        raise Problem("dropout_p: dropout is not supported")
    return _attended(c, query, key, value, attn_mask, is_causal, scale, enable_gqa)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    c: Emitter, query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0,
    is_causal: bool = False, attn_mask: Tensor | None = None, scale: Any = None,
) -> Any:  # fmt: skip
    """The same, and the logarithms of the sums that softmax divides by."""
    if dropout_p:
        raise Problem("dropout_p: dropout is not supported")
    found = _attended(c, query, key, value, attn_mask, is_causal, scale, True)
    shape, scale = dims_of(query)[:-1], _scale(query, scale)
    if not same_dim(dims_of(query)[-3], dims_of(key)[-3]):
        query, key, value, attn_mask = _shared(c, query, key, value, attn_mask)
    scores = _scores(c, query, key, attn_mask, is_causal, scale)
    return found, reshaped(c, logsumexp(c, scores, [rank_of(scores) - 1]), shape)


@aten("_scaled_dot_product_attention_math")
def attention_math(
    c: Emitter, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, dropout_mask: Tensor | None = None,
    scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """The same, and the weights."""
    if dropout_p:
        raise Problem("dropout_p: dropout is not supported")
    found = _attended(c, query, key, value, attn_mask, is_causal, scale, enable_gqa)
    shape, dtype = [*dims_of(query)[:-1], dims_of(key)[-2]], dtype_of(query)
    weights, _ = _weights(
        c, query, key, value, attn_mask, is_causal, _scale(query, scale), enable_gqa
    )
    return found, cast(c, reshaped(c, weights, shape), dtype)
