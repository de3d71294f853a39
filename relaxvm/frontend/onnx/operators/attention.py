"""Attention, rotary positions, and the layers that take their place."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from ....dtypes import as_dtype
from ....ir import Expr, IntImm, TensorType, TupleGetItem
from ....ir.arith import prove_equal, simplify
from ...common.values import Value, as_expr, elements_of
from .. import messages
from ..graph import Graph, Problem
from ..registry import onnx
from ..tensors import dtype_of
from .neural import stepwise_softmax
from .ranks import last_axes, rank_of

__all__ = [
    "Mask",
    "attend",
    "has_one_axis_of_heads",
    "heads_apart",
    "heads_together",
    "positions",
    "rotated",
    "scale_of",
]

PREVIEW: Final = "ai.onnx.preview"


def as_number(g: Graph, dim: Any) -> Value:
    """A dimension as an int64 tensor without axes."""
    (number,) = elements_of(np.array([dim, None], object)[:1])
    found = np.empty((), np.int64 if isinstance(number, int) else object)
    found[()] = number
    return Value(known=found)


def dims_of(g: Graph, x: Value, rank: int, name: str) -> tuple[Expr, ...]:
    """The dimensions of a tensor of this rank; those that are not known get names."""
    dims = g.named_dims(x, rank)
    if dims is None:
        raise Problem(f"{name}: expected a tensor of rank {rank}, got {x.type}")
    return dims


def length_of(dim: Expr | None) -> int | None:
    """A dimension as a number; None if it is not known."""
    return dim.value if isinstance(dim, IntImm) else None


def heads_apart(g: Graph, x: Value, heads: int, name: str) -> Value:
    """x[batch, length, heads * size] as [batch, heads, length, size]."""
    batch, length, hidden = dims_of(g, x, 3, name)
    width = length_of(hidden)
    if heads < 1 or (width is not None and width % heads):
        raise Problem(f"{name}: expected {heads} heads of equal size, got {x.type}")
    size = hidden // heads if width is None else width // heads
    apart = g.reshaped(x, (batch, length, heads, size))
    return Value(g.op("permute_dims", apart, (0, 2, 1, 3)))


def heads_together(g: Graph, x: Expr | Value) -> Expr:
    """The inverse of `heads_apart`."""
    value = x if isinstance(x, Value) else Value(x)
    batch, heads, length, size = dims_of(g, value, 4, "x")
    swapped = Value(g.op("permute_dims", value, (0, 2, 1, 3)))
    return g.reshaped(swapped, (batch, length, heads * size))


def has_one_axis_of_heads(x: Value, heads: int, name: str, attribute: str) -> bool:
    """Whether heads are side by side on the last axis of [batch, length, heads * size]: so is the
    tensor of unknown rank of a node that states their number.

    Raises:
        Problem: they are, and the node does not state their number.
    """
    if x.ndim == 3 and not heads:
        raise Problem(f"expected {attribute} where {name} has rank 3")
    return x.ndim == 3 or (x.ndim < 0 and heads > 0)


def scale_of(g: Graph, scale: float | None, size: Expr, dtype: str, *, is_split: bool) -> Any:
    """The factor of scores as an operand, or its square root: 1 / sqrt(size) by default.

    Args:
        g: the graph.
        scale: the one that the node states.
        size: of a head.
        dtype: of the factor.
        is_split: whether it is the root.
    """
    width = length_of(size)
    if scale is None and width is not None:
        scale = 1 / math.sqrt(width) if width else 1.0
    if scale is not None:
        return np.array(math.sqrt(scale) if is_split else scale, as_dtype(dtype))
    wide = g.op("maximum", g.op("astype", as_number(g, size), "float64"), np.float64(1))
    found = g.op("divide", np.float64(1), g.op("sqrt", wide))
    return Value(g.op("astype", g.op("sqrt", found) if is_split else found, dtype))


class Mask(NamedTuple):
    """What of the keys a query attends to.

    Attributes:
        allowed: bools that broadcast to the scores; None if all are allowed.
        bias: numbers that are added to the scores; None for none.
        may_be_empty: whether there may be queries without any key; their results are 0.
    """

    allowed: Expr | Value | None = None
    bias: Expr | Value | None = None
    may_be_empty: bool = False

    def narrowed(self, g: Graph, allowed: Expr, may_be_empty: bool = True) -> Mask:
        """With a further condition."""
        both = allowed if self.allowed is None else g.op("logical_and", self.allowed, allowed)
        return Mask(both, self.bias, self.may_be_empty or may_be_empty)


def positions(g: Graph, length: Expr, axis: int) -> Value:
    """0, 1, ... along the last axis (-1) or the one before it (-2)."""
    found: Expr = g.op("arange", 0, length, 1, "int64")
    return Value(g.op("expand_dims", found, (1,)) if axis == -2 else found)


def attend(
    g: Graph,
    q: Value,
    k: Value,
    v: Value,
    mask: Mask,
    scale: float | None,
    softcap: float = 0.0,
    precision: str | None = None,
    split_scale: bool = True,
    scores_after: int | None = None,
) -> tuple[Expr, Expr | None]:
    """softmax(q @ k^T * scale + bias) @ v for each head, with its scores.

    Args:
        g: the graph.
        q: [batch, heads, queries, size].
        k, v: the same for keys; their number of heads divides that of q.
        mask: what is attended to.
        scale: 1 / sqrt(size) by default.
        softcap: a bound of the scores, applied by tanh; 0 for none.
        precision: the data type of softmax.
        split_scale: whether q and k are multiplied by the square root of the scale, rather than
            their product by the scale.
        scores_after: which scores to return: 0 the products, 1 after softcap, 2 with the bias, 3
            after softmax; None for none.
    """
    batch, heads, queries, size = dims_of(g, q, 4, "q")
    _, key_heads, keys, _ = dims_of(g, k, 4, "k")
    *_, value_size = dims_of(g, v, 4, "v")
    dtype = as_dtype(q.dtype or "float32")
    count, key_count = length_of(heads), length_of(key_heads)
    if count is not None and key_count is not None and (not key_count or count % key_count):
        raise Problem(f"expected a multiple of {key_count} query heads, got {count}")
    is_grouped = not prove_equal(heads, key_heads)
    split_scale = split_scale and (scale is None or scale >= 0)
    factor = scale_of(g, scale, size, dtype.name, is_split=split_scale)
    wide_q: Any = q
    wide_k: Any = k
    if split_scale:
        wide_q, wide_k = g.op("multiply", q, factor), g.op("multiply", k, factor)
    turned = g.op("permute_dims", wide_k, (0, 1, 3, 2))
    grouped = (batch, key_heads, heads // key_heads * queries) if is_grouped else ()
    if is_grouped:  # heads that share keys are rows of one matrix
        wide_q = g.reshaped(_value(wide_q), (*grouped, size))
    scores: Any = g.op("matmul", wide_q, turned)
    if is_grouped:
        scores = g.reshaped(Value(scores), (batch, heads, queries, keys))
    if not split_scale:
        scores = g.op("multiply", scores, factor)
    shown = scores if scores_after == 0 else None
    if softcap > 0:
        cap = np.array(softcap, dtype)
        scores = g.op("multiply", g.op("tanh", g.op("divide", scores, cap)), cap)
    if scores_after == 1:
        shown = scores
    low = np.array(-np.inf, dtype)
    if mask.bias is not None:
        scores = g.op("add", scores, mask.bias)
    if mask.allowed is not None:
        scores = g.op("where", mask.allowed, scores, low)
    if scores_after == 2:
        shown = scores
    empty = _empty_rows(g, mask, dtype) if mask.may_be_empty else None
    if empty is not None:  # softmax of no key is not defined
        scores = g.op("where", empty, np.array(0, dtype), scores)
    working = precision or dtype.name
    if working != dtype.name:
        scores = g.op("astype", scores, working)
    if working in ("float16", "bfloat16"):
        weights: Any = stepwise_softmax(g, scores, -1)
    else:
        weights = g.op("nn.softmax", scores, -1)
    if working != dtype.name:
        weights = g.op("astype", weights, dtype.name)
    if empty is not None:
        weights = g.op("where", empty, np.array(0, dtype), weights)
    if scores_after == 3:
        shown = weights
    if is_grouped:
        weights = g.reshaped(Value(weights), (*grouped, keys))
    found: Expr = g.op("matmul", weights, v)
    if is_grouped:
        found = g.reshaped(Value(found), (batch, heads, queries, value_size))
    return found, shown


def _value(x: Any) -> Value:
    return x if isinstance(x, Value) else Value(x)


def _empty_rows(g: Graph, mask: Mask, dtype: np.dtype[Any]) -> Expr | None:
    """Whether a query has no key, by the mask alone."""
    low = np.array(-np.inf, dtype)
    if mask.bias is None:
        if mask.allowed is None:
            return None
        found = g.op("max", g.op("astype", mask.allowed, "int8"), [-1], True)
        return g.op("equal", found, np.array(0, np.int8))
    bias: Any = mask.bias
    if mask.allowed is not None:
        bias = g.op("where", mask.allowed, bias, low)
    return g.op("equal", g.op("max", bias, [-1], True), low)


def _with_cache(g: Graph, new: Value, past: Value | None) -> Value:
    return new if past is None else Value(g.op("concat", [past, new], 2))


def _stated_mask(g: Graph, stated: Value | None, keys: Expr, dtype: str | None) -> Mask:
    """The mask that a model gives: bools, or numbers that are added; a shorter one ends early."""
    if stated is None:
        return Mask()
    if stated.ndim < 0:
        stated = last_axes(g, stated, 4)
    is_bool = stated.dtype == "bool"
    dims = dims_of(g, stated, stated.ndim, "attn_mask")
    if dims and not prove_equal(dims[-1], keys):
        what = np.array(False if is_bool else -math.inf, as_dtype(stated.dtype or "float32"))
        rest = g.op("full", (*dims[:-1], simplify(keys - dims[-1])), what)
        stated = Value(g.op("concat", [stated, rest], stated.ndim - 1))
    if is_bool:
        return Mask(stated, None, True)
    if stated.dtype != dtype:
        stated = Value(g.op("astype", stated, dtype))
    return Mask(None, stated, True)


@onnx("Attention", since=23)
def attention(
    g: Graph,
    q: Value,
    k: Value,
    v: Value,
    attn_mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    nonpad_kv_seqlen: Value | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 0,
    left_window_size: int = -1,
    right_window_size: int = -1,
) -> Any:
    """softmax(Q @ K^T * scale + mask) @ V for each head, with caches of keys and values."""
    if (past_key is None) != (past_value is None):
        raise Problem("expected past_key and past_value, got one of them")
    if nonpad_kv_seqlen is not None and past_key is not None:
        raise Problem("expected past_key or nonpad_kv_seqlen, got both")
    if min(left_window_size, right_window_size) < -1:
        raise Problem("expected windows of -1 or more")
    if qk_matmul_output_mode not in range(4):
        raise Problem(f"qk_matmul_output_mode: expected 0 to 3, got {qk_matmul_output_mode}")
    is_flat = has_one_axis_of_heads(q, q_num_heads, "Q", "q_num_heads and kv_num_heads")
    if is_flat:
        if not kv_num_heads:
            raise Problem("expected q_num_heads and kv_num_heads where Q has rank 3")
        q = heads_apart(g, q, q_num_heads, "Q")
        k, v = heads_apart(g, k, kv_num_heads, "K"), heads_apart(g, v, kv_num_heads, "V")
    for name, each in (("Q", q), ("K", k), ("V", v)):
        dims_of(g, each, 4, name)
    if past_key is not None:
        dims_of(g, past_key, 4, "past_key")
    present_key, present_value = _with_cache(g, k, past_key), _with_cache(g, v, past_value)
    queries = dims_of(g, q, 4, "Q")[2]
    keys = dims_of(g, present_key, 4, "K")[2]
    mask = _stated_mask(g, attn_mask, keys, q.dtype)
    mask = _windowed(
        g, mask, queries, keys, past_key, nonpad_kv_seqlen, bool(is_causal), left_window_size,
        right_window_size,
    )  # fmt: skip
    precision = dtype_of(softmax_precision, "softmax_precision") if softmax_precision else None
    node = g.node
    wants_scores = node is not None and len(node.output) > 3 and bool(node.output[3])
    found, scores = attend(
        g, q, present_key, present_value, mask, scale, softcap, precision,
        scores_after=qk_matmul_output_mode if wants_scores else None,
    )  # fmt: skip
    if is_flat:
        found = heads_together(g, found)
    return found, present_key, present_value, scores


def _windowed(
    g: Graph, mask: Mask, queries: Expr, keys: Expr, past: Value | None, lengths: Value | None,
    is_causal: bool, left: int, right: int,
) -> Mask:  # fmt: skip
    """A mask with causality, windows and the lengths of the sequences."""
    at = positions(g, keys, -1)
    if lengths is not None:
        lengths = Value(g.op("reshape", lengths, (-1, 1, 1, 1)))
        mask = mask.narrowed(g, g.op("less", at, lengths))
    if not is_causal and left < 0 and right < 0:
        return mask
    own = positions(g, queries, -2)
    if lengths is not None:
        own = Value(g.op("add", own, g.op("subtract", lengths, as_number(g, queries))))
    elif past is not None:
        own = Value(g.op("add", own, as_number(g, dims_of(g, past, 4, "past_key")[2])))
    if is_causal:
        mask = mask.narrowed(g, g.op("less_equal", at, own), lengths is not None)
    if left >= 0:
        first = g.op("subtract", own, np.array(left, np.int64))
        mask = mask.narrowed(g, g.op("greater_equal", at, first))
    if right >= 0:
        last = g.op("add", own, np.array(right, np.int64))
        mask = mask.narrowed(g, g.op("less_equal", at, last))
    return mask


@onnx("FlexAttention", since=1, domain=PREVIEW)
def flex_attention(
    g: Graph,
    q: Value,
    k: Value,
    v: Value,
    *,
    prob_mod: messages.Graph | None = None,
    scale: float | None = None,
    score_mod: messages.Graph | None = None,
    softmax_precision: int = 0,
) -> Expr:
    """Attention whose scores and weights a graph of the model changes."""
    for name, each in (("Q", q), ("K", k), ("V", v)):
        dims_of(g, each, 4, name)
    dtype = q.dtype or "float32"
    working = "float32" if dtype in ("float16", "bfloat16") else dtype
    if softmax_precision:
        working = dtype_of(softmax_precision, "softmax_precision")
    _, all_heads, _, size = dims_of(g, q, 4, "Q")
    all_key_heads = dims_of(g, k, 4, "K")[1]
    heads, key_heads = length_of(all_heads), length_of(all_key_heads)
    if heads is None or key_heads is None:
        if not prove_equal(all_heads, all_key_heads):
            k, v = [_shared(g, each, all_heads) for each in (k, v)]
    elif heads != key_heads:
        if not heads or not key_heads or heads % key_heads:
            raise Problem(f"expected a multiple of {key_heads} query heads, got {heads}")
        k, v = [Value(g.op("repeat", each, heads // key_heads, 1)) for each in (k, v)]
    factor = scale_of(g, scale, size, dtype, is_split=True)
    turned = g.op("permute_dims", g.op("multiply", k, factor), (0, 1, 3, 2))
    scores: Any = g.op("matmul", g.op("multiply", q, factor), turned)
    scores = _modified(g, score_mod, _in(g, Value(scores), working), working)
    weights = _modified(g, prob_mod, Value(g.op("nn.softmax", scores, -1)), working)
    return g.expr(_in(g, Value(g.op("matmul", weights, _in(g, v, working))), dtype))


def _shared(g: Graph, x: Value, heads: Expr) -> Value:
    """Keys or values for this number of query heads, a multiple of theirs."""
    batch, key_heads, keys, size = dims_of(g, x, 4, "K")
    apart = g.op("expand_dims", x, (2,))
    wide = g.op("broadcast_to", apart, (batch, key_heads, heads // key_heads, keys, size))
    return Value(g.reshaped(Value(wide), (batch, heads, keys, size)))


def _in(g: Graph, x: Value, dtype: str) -> Value:
    return x if x.dtype == dtype else Value(g.op("astype", x, dtype))


def _modified(g: Graph, graph: messages.Graph | None, x: Value, dtype: str) -> Value:
    if graph is None:
        return x
    results = g.subgraph(graph, [x])
    if len(results) != 1:
        raise Problem(f"expected a graph with one result, got {len(results)}")
    return _in(g, results[0], dtype)


# Positions


def rotated(
    g: Graph, x: Value, cos: Value | Expr, sin: Value | Expr, width: Any, interleaved: bool
) -> Expr:
    """x with pairs of elements rotated by angles.

    Args:
        g: the graph.
        x: [..., size].
        cos, sin: of the angles, [..., width / 2], which broadcast.
        width: how many elements of the last axis are rotated, as a number or an expression; the
            others stay.
        interleaved: whether neighbours are pairs, rather than elements of the two halves.
    """
    axis = [x.ndim - 1]
    size = length_of(x.dims[-1]) if x.dims else None
    is_whole = x.dims is not None and prove_equal(x.dims[-1], as_expr(width))
    step = [2] if interleaved else None
    starts = (0, 1) if interleaved else (0, width // 2)
    ends = (width, width) if interleaved else (width // 2, width)
    first, second = [
        g.op("strided_slice", x, axis, [start], [end], step)
        for start, end in zip(starts, ends, strict=True)
    ]
    real = g.op("subtract", g.op("multiply", cos, first), g.op("multiply", sin, second))
    imaginary = g.op("add", g.op("multiply", sin, first), g.op("multiply", cos, second))
    parts: list[Any] = [real, imaginary]
    if interleaved:
        pairs = Value(g.op("stack", parts, x.ndim))
        dims = x.dims
        assert dims is not None
        parts = [g.reshaped(pairs, (*dims[:-1], width))]
    if not is_whole:
        parts.append(g.op("strided_slice", x, axis, [width], [size or 1 << 48]))
    return parts[0] if len(parts) == 1 else g.op("concat", parts, axis[0])


@onnx("RotaryEmbedding", since=23)
def rotary_embedding(
    g: Graph,
    x: Value,
    cos_cache: Value,
    sin_cache: Value,
    position_ids: Value | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Expr:
    """Pairs of elements of each head rotated by angles of their position."""
    is_flat = has_one_axis_of_heads(x, num_heads, "X", "num_heads")
    apart = heads_apart(g, x, num_heads, "X") if is_flat else x
    caches = [
        cache if position_ids is None else Value(g.op("take", cache, position_ids, 0))
        for cache in (cos_cache, sin_cache)
    ]
    *others, dim = dims_of(g, apart, 4, "X")
    size, known = length_of(dim), length_of(dims_of(g, caches[0], 3, "cos_cache")[2])
    width: Any = rotary_embedding_dim or size
    if width is None:  # the caches say it, and the run checks it
        half = dims_of(g, caches[0], 3, "cos_cache")[2]
        width = 2 * known if known is not None else 2 * half
        ty = TensorType([*others, width], x.dtype)
        apart = Value(g.context.builder.match_cast(g.expr(apart), ty))
    elif width % 2 or (size is not None and width > size):
        raise Problem(f"expected an even number of elements to rotate, of {size}, got {width}")
    angles: list[Any] = []
    for name, found in zip(("cos_cache", "sin_cache"), caches, strict=True):
        count = length_of(dims_of(g, found, 3, name)[2])
        if isinstance(width, int) and count not in (None, width // 2):
            raise Problem(f"{name}: expected {width // 2} numbers for a position, got {count}")
        angles.append(g.op("expand_dims", found, (1,)))
    turned = rotated(g, apart, angles[0], angles[1], width, bool(interleaved))
    return heads_together(g, turned) if is_flat else turned


# Gates and states


@onnx("SwiGLU", since=28)
def swiglu(g: Graph, a: Value, b: Value, *, alpha: float = 1.0) -> Expr:
    """a * sigmoid(alpha * a) * b."""
    if alpha == 1:
        return g.op("multiply", g.op("nn.silu", a), b)
    inner = g.op("multiply", a, np.array(alpha, as_dtype(a.dtype or "float32")))
    return g.op("multiply", g.op("multiply", a, g.op("sigmoid", inner)), b)


@onnx("LinearAttention", since=27)
def linear_attention(
    g: Graph,
    query: Value,
    key: Value,
    value: Value,
    past_state: Value | None = None,
    decay: Value | None = None,
    beta: Value | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> Any:
    """Attention as a recurrence over a state, with decay and the delta rule."""
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise Problem(
            f"update_rule: expected linear, gated, delta or gated_delta, got {update_rule!r}"
        )
    if q_num_heads < 1 or kv_num_heads < 1 or q_num_heads % kv_num_heads:
        raise Problem(f"expected a multiple of {kv_num_heads} query heads, got {q_num_heads}")
    for name, given, is_wanted in (("decay", decay, "gated" in update_rule),
                                   ("beta", beta, "delta" in update_rule)):  # fmt: skip
        if (given is not None) != is_wanted:
            how = "with" if is_wanted else "without"
            raise Problem(f"update_rule {update_rule!r}: expected it {how} {name}")
    dtype = query.dtype or "float32"
    state_dtype = (past_state.dtype if past_state is not None else None) or dtype
    q = _in(g, heads_apart(g, query, q_num_heads, "query"), "float32")
    k = _in(g, heads_apart(g, key, kv_num_heads, "key"), "float32")
    v = _in(g, heads_apart(g, value, kv_num_heads, "value"), "float32")
    batch, _, steps, width = dims_of(g, q, 4, "query")
    size = dims_of(g, v, 4, "value")[3]
    factor = scale_of(g, scale or None, width, "float32", is_split=False)
    q = Value(g.op("multiply", q, factor))
    if past_state is None:
        past_state = Value(g.op("zeros", (batch, kv_num_heads, width, size), "float32"))
    state = _in(g, past_state, "float32")
    rate = None
    if decay is None:
        factor = g.op("ones", (batch, kv_num_heads, steps, 1), "float32")
    else:
        last, known = length_of(dims_of(g, decay, 3, "decay")[2]), length_of(width)
        apart = heads_apart(g, decay, kv_num_heads, "decay")
        if None not in (last, known) and last not in (kv_num_heads, kv_num_heads * (known or -1)):
            raise Problem(f"decay: expected a number for each head or key, got {decay.type}")
        factor = g.op("exp", _in(g, apart, "float32"))
    if beta is not None:
        count = length_of(dims_of(g, beta, 3, "beta")[2])
        if count not in (None, 1, kv_num_heads):
            raise Problem(f"beta: expected 1 or {kv_num_heads} numbers, got {beta.type}")
        if count is None:  # a number for all heads is one for each of them
            batch, steps, _ = dims_of(g, beta, 3, "beta")
            beta = Value(g.op("broadcast_to", beta, (batch, steps, kv_num_heads)))
            count = kv_num_heads
        rate = _in(g, heads_apart(g, beta, count, "beta"), "float32")
    last_operand = () if rate is None else (rate,)
    both = g.op("nn.linear_attention", q, k, v, state, factor, *last_operand)
    found, present = [Value(g.emit(TupleGetItem(both, i))) for i in range(2)]
    together = _in(g, Value(heads_together(g, found)), dtype)
    return together, _in(g, present, state_dtype)


@onnx("TensorScatter", since=24)
def tensor_scatter(
    g: Graph,
    past_cache: Value,
    update: Value,
    write_indices: Value | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Expr:
    """A cache with an update of each example written to it from a position on."""
    if mode not in ("linear", "circular"):
        raise Problem(f"mode: expected linear or circular, got {mode!r}")
    rank = rank_of(past_cache, "past_cache", max(2, axis + 1, 1 - axis))
    if not -rank <= axis < rank or axis % rank == 0:
        raise Problem(f"axis: expected one behind the batch of {past_cache.type}, got {axis}")
    axis %= rank
    length = dims_of(g, past_cache, rank, "past_cache")[axis]
    dims = dims_of(g, update, rank, "update")
    place: Any = g.op("arange", 0, dims[axis], 1, "int64")
    place = g.op("reshape", place, (-1, *[1] * (rank - axis - 1)))
    if write_indices is not None:
        first = g.op("astype", write_indices, "int64")
        place = g.op("add", place, g.op("reshape", first, (-1, *[1] * (rank - 1))))
    if mode == "circular":
        place = g.op("floor_mod", place, as_number(g, length))
    wide = g.op("broadcast_to", place, dims)
    return g.op("scatter_elements", past_cache, wide, update, axis)
