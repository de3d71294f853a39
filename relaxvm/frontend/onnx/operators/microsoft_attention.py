"""Attention as com.microsoft has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dtypes import as_dtype
from ....ir import Expr, TensorType, Var
from ...common.emitter import identifier
from ...common.values import Value
from ..graph import Graph, Problem
from ..registry import MICROSOFT, onnx
from .attention import Mask, as_number, attend, dims_of, heads_apart, heads_together, length_of
from .attention import positions as places_of
from .microsoft import rotary
from .ranks import rank_of

__all__: list[str] = []


def _sliced(g: Graph, x: Value | Expr, axis: int, begin: Any, end: Any) -> Value:
    return Value(g.op("strided_slice", x, [axis], [begin], [end]))


def _padding(
    g: Graph, stated: Value, batch: Any, queries: Any, keys: Any, low: float, dtype: str
) -> Mask:
    """The mask of keys: their number for each example, or flags by example, query and key.  What
    is masked gets a large negative bias, so that queries without keys see all of them alike."""
    rank = rank_of(stated, "mask", 1, 3)
    if rank == 1:
        count, examples = stated.length, length_of(batch)
        if count is not None and examples is not None and count != examples:
            raise Problem("mask: expected a number of keys for each example, or flags")
        if count is None or examples is None:
            ty = TensorType((batch,), stated.dtype)
            stated = Value(g.context.builder.match_cast(g.expr(stated), ty))
        lengths = g.op("reshape", stated, (-1, 1, 1, 1))
        at = g.op("astype", places_of(g, keys, -1), stated.dtype)
        allowed: Any = g.op("less", at, lengths)
    elif rank in (2, 3):
        shape = (1, 2) if rank == 2 else (1,)
        flags = stated if stated.dtype == "bool" else g.op("astype", stated, "bool")
        allowed = g.op("expand_dims", flags, shape)
    else:
        raise Problem(f"mask: expected 1 to 3 axes, got {stated.type}")
    dt = as_dtype(dtype)
    bias = g.op("where", allowed, np.array(0, dt), np.array(low, dt))
    return Mask(None, bias)


def _added(g: Graph, mask: Mask, bias: Value | Expr | None) -> Mask:
    if bias is None:
        return mask
    both = bias if mask.bias is None else g.op("add", mask.bias, bias)
    return Mask(mask.allowed, both, mask.may_be_empty)


def _causal(g: Graph, mask: Mask, queries: Any, keys: Any, low: float, dtype: str) -> Mask:
    """With a mask of the keys behind each query; the last query sees all keys."""
    own = g.op("add", places_of(g, queries, -2), g.op("subtract", as_number(g, keys),
                                                      as_number(g, queries)))  # fmt: skip
    allowed = g.op("less_equal", places_of(g, keys, -1), own)
    dt = as_dtype(dtype)
    return _added(g, mask, g.op("where", allowed, np.array(0, dt), np.array(low, dt)))


@onnx("Attention", since=1, domain=MICROSOFT)
def attention(
    g: Graph,
    x: Value,
    weights: Value,
    bias: Value | None = None,
    mask_index: Value | None = None,
    past: Value | None = None,
    attention_bias: Value | None = None,
    past_sequence_length: Value | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: list[int] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
) -> Any:
    """Attention of a tensor to itself, with the products that make queries, keys and values."""
    if do_rotary or past_present_share_buffer or past_sequence_length is not None:
        raise Problem("rotary positions and shared buffers are not supported")
    batch, queries, _ = dims_of(g, x, 3, "input")
    columns = dims_of(g, weights, 2, "weights")[1]
    total = length_of(columns)
    sizes: Any = qkv_hidden_sizes or [columns // 3 if total is None else total // 3] * 3
    if len(sizes) != 3 or (total is not None and sum(sizes) != total):
        raise Problem(f"qkv_hidden_sizes: expected three sizes of {total} together, got {sizes}")
    whole = g.op("matmul", x, weights)
    if bias is not None:
        whole = g.op("add", whole, bias)
    ends = [sizes[0], sizes[0] + sizes[1], sum(sizes)]
    q, k, v = [
        heads_apart(g, _sliced(g, whole, 2, end - size, end), num_heads, name)
        for size, end, name in zip(sizes, ends, "QKV", strict=True)
    ]
    present = None
    if past is not None:  # [2, batch, heads, length, size]
        dims_of(g, past, 5, "past")
        k, v = [
            Value(g.op("concat", [g.op("squeeze", _sliced(g, past, 0, i, i + 1), (0,)), new], 2))
            for i, new in enumerate((k, v))
        ]
    if g.node is not None and len(g.node.output) > 1 and g.node.output[1]:
        present = g.op("stack", [g.expr(k), g.expr(v)], 0)
    keys, dtype = dims_of(g, k, 4, "K")[2], x.dtype or "float32"
    mask = Mask()
    if mask_index is not None:
        mask = _padding(g, mask_index, batch, queries, keys, mask_filter_value, dtype)
    if unidirectional:
        mask = _causal(g, mask, queries, keys, mask_filter_value, dtype)
    mask = _added(g, mask, attention_bias)
    found, _ = attend(g, q, k, v, mask, scale, split_scale=False)
    return heads_together(g, found), present


@onnx("MultiHeadAttention", since=1, domain=MICROSOFT)
def multi_head_attention(
    g: Graph,
    query: Value,
    key: Value | None = None,
    value: Value | None = None,
    bias: Value | None = None,
    key_padding_mask: Value | None = None,
    attention_bias: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    past_sequence_length: Value | None = None,
    cache_indirection: Value | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    scale: float | None = None,
    unidirectional: int = 0,
) -> Any:
    """Attention of queries to keys, with masks, biases and caches."""
    if past_sequence_length is not None or cache_indirection is not None:
        raise Problem("shared buffers of caches are not supported")
    if query.ndim not in (-1, 3) or key is None or value is None:
        raise Problem("expected query, key and value; packed ones are not supported")
    batch, queries, hidden = dims_of(g, query, 3, "query")
    parts = [query, key, value]
    for name, each in (("key", key), ("value", value)):
        rank_of(each, name, 3, 4)
    if bias is not None:
        known = length_of(hidden)
        width: Any = hidden if known is None else known
        total = bias.length
        ends = [width, 2 * width, total if total is not None else 1 << 48]
        starts = [0, width, 2 * width]
        parts = [
            x if x.ndim == 4 else Value(g.op("add", x, _sliced(g, bias, 0, start, end)))
            for x, start, end in zip(parts, starts, ends, strict=True)
        ]
    q, k, v = [
        x if x.ndim == 4 else heads_apart(g, x, num_heads, name)
        for x, name in zip(parts, ("query", "key", "value"), strict=True)
    ]
    for name, past in (("past_key", past_key), ("past_value", past_value)):
        if past is not None:
            dims_of(g, past, 4, name)
    if (past_key is None) != (past_value is None):
        raise Problem("expected past_key and past_value, got one of them")
    if past_key is not None:
        k = Value(g.op("concat", [past_key, k], 2))
        v = Value(g.op("concat", [past_value, v], 2))
    keys, dtype = dims_of(g, k, 4, "key")[2], query.dtype or "float32"
    mask = Mask()
    if key_padding_mask is not None:
        mask = _padding(g, key_padding_mask, batch, queries, keys, mask_filter_value, dtype)
    if unidirectional:
        mask = _causal(g, mask, queries, keys, mask_filter_value, dtype)
    mask = _added(g, mask, attention_bias)
    found, _ = attend(g, q, k, v, mask, scale, split_scale=False)
    return heads_together(g, found), k, v


@onnx("GroupQueryAttention", since=1, domain=MICROSOFT)
def group_query_attention(
    g: Graph,
    query: Value,
    key: Value | None,
    value: Value | None,
    past_key: Value | None,
    past_value: Value | None,
    seqlens_k: Value,
    total_sequence_length: Value,
    cos_cache: Value | None = None,
    sin_cache: Value | None = None,
    position_ids: Value | None = None,
    attention_bias: Value | None = None,
    head_sink: Value | None = None,
    *,
    do_rotary: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
) -> Any:
    """Causal attention whose heads share keys, with caches and rotary positions."""
    if head_sink is not None or smooth_softmax > 0 or qk_output:
        raise Problem("smooth_softmax, head_sink and qk_output are not supported")
    if (past_key is None) != (past_value is None):
        raise Problem("expected past_key and past_value, got one of them")
    if key is None or value is None:  # all three side by side
        hidden = dims_of(g, query, 3, "query")[2]
        known = length_of(hidden)
        heads = num_heads + 2 * kv_num_heads
        if known is not None and known % heads:
            raise Problem(f"query: expected {heads} heads of equal size, got {query.type}")
        width: Any = hidden if known is None else known
        size = width // heads
        ends = [num_heads * size, (num_heads + kv_num_heads) * size, width]
        packed, starts = query, [0, *ends]
        query, key, value = [
            _sliced(g, packed, 2, start, end) for start, end in zip(starts, ends, strict=False)
        ]
    q = heads_apart(g, query, num_heads, "query")
    k, v = heads_apart(g, key, kv_num_heads, "key"), heads_apart(g, value, kv_num_heads, "value")
    queries = dims_of(g, q, 4, "query")[2]
    count = g.op("astype", g.op("reshape", seqlens_k, (-1, 1)), "int64")
    whole = g.op("add", count, np.array(1, np.int64))  # keys of each example, [batch, 1]
    # The first prompt may be shorter than the others of its batch: then nothing came before.
    before = g.op("maximum", g.op("subtract", whole, as_number(g, queries)),
                  np.array(0, np.int64))  # fmt: skip
    own = g.op("add", before, places_of(g, queries, -1))
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise Problem("do_rotary: expected cos_cache and sin_cache")
        columns = dims_of(g, cos_cache, 2, "cos_cache")[1]
        half: Any = length_of(columns) or columns
        places = own if position_ids is None else position_ids
        q, k = [
            Value(rotary(g, x, places, cos_cache, sin_cache, 2 * half, bool(rotary_interleaved)))
            for x in (q, k)
        ]
    if past_key is not None and past_value is not None:
        length = g.op("reshape", before, (-1,))
        total = g.op("astype", g.op("reshape", total_sequence_length, ()), "int64")
        k, v = [_extended(g, past, new, length, total) for past, new in
                ((past_key, k), (past_value, v))]  # fmt: skip
    keys = dims_of(g, k, 4, "key")[2]
    at = places_of(g, keys, -1)
    own = g.op("reshape", own, (-1, 1, queries, 1))
    allowed = g.op("less_equal", at, own)
    if local_window_size > 0:
        first = g.op("subtract", own, np.array(local_window_size, np.int64))
        allowed = g.op("logical_and", allowed, g.op("greater", at, first))
    mask = Mask(allowed, attention_bias)
    found, _ = attend(g, q, k, v, mask, scale or None, softcap, split_scale=False)
    return heads_together(g, found), k, v


def _extended(g: Graph, past: Value, new: Value, length: Expr, total: Expr) -> Value:
    """A cache with the new elements behind the first ones of each example."""
    dims_of(g, past, 4, "past")
    batch, heads, _, size = dims_of(g, new, 4, "new")
    ty = TensorType(None, new.dtype, ndim=4)
    found = g.run("extend_cache", [past, new, length, total], ty, str(new.dtype))
    keys = Var(f"{identifier(g.hint)}_keys", "int64")
    known = TensorType((batch, heads, keys, size), new.dtype)
    return Value(g.context.builder.match_cast(found, known))
