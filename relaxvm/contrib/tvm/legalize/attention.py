"""Attention, as TVM composes it."""

from __future__ import annotations

from typing import Any

from ....ir import Call, prim
from ....ir.arith import prove_equal, simplify
from ....ir.expr import FloatImm, IntImm
from ....ir.prim import as_scalar
from ....te import Tensor, topi
from ....tir import intrinsics
from .arrays import reshape
from .rules import LOOPS, loops

__all__: list[str] = []


def _batched(x: Tensor, heads: Any) -> Any:
    """``[batch, length, shared, size]`` as a matrix for each batch and head."""
    batch, length, shared, size = x.shape
    turned = topi.transpose(x, [0, 2, 1, 3])
    if not prove_equal(shared, heads):
        times = simplify(heads // shared)
        if not isinstance(times, IntImm):
            raise NotImplementedError(f"attention: {heads} heads that share {shared} of keys")
        turned = topi.repeat(turned, times.value, 1)
    return reshape(turned, [simplify(batch * heads), length, size])


def _product(a: Tensor, b: Tensor, transpose_b: bool) -> Any:
    free = {"layout_free_placeholders": [b]}
    return topi.nn.layers.product_of(a, b, transpose_b=transpose_b, attrs=free)


def _name(call: Call) -> str:
    return "attention_bias" if len(call.args) > 3 else "attention"


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    *,
    scale: Any,
    causal_mask: str | None,
    window_size: Any,
) -> Any:
    if window_size is not None:
        raise NotImplementedError("attention: window_size")
    batch, length, heads, size = query.shape
    count = simplify(batch * heads)
    scores = _product(_batched(query, heads), _batched(key, heads), True)
    if scale is None:
        root = intrinsics.sqrt(prim.cast(size, scores.dtype))
        scores = topi.divide(scores, root)
    else:
        number = scale.value if isinstance(scale, (FloatImm, IntImm)) else scale
        scores = topi.multiply(scores, as_scalar(float(number), scores.dtype))
    if bias is not None:
        keys = key.shape[1]
        wide = reshape(scores, [batch, heads, length, keys])
        scores = reshape(topi.add(wide, bias), [count, length, keys])
    if causal_mask is None:
        weights = topi.nn.softmax(scores, -1)
    else:
        weights = _masked(scores, causal_mask)
    found = _product(weights, _batched(value, heads), False)
    whole = reshape(found, [batch, heads, length, value.shape[3]])
    return topi.transpose(whole, [0, 2, 1, 3])


def _masked(scores: Tensor, mask: str) -> Any:
    """The softmax over the keys up to the query's own place."""
    below = LOOPS["tril"].formula
    assert below is not None
    lengths = scores.shape[-2:]
    if mask == "TopLeft":
        offset: Any = 0
    else:
        offset = getattr(simplify(lengths[1] - lengths[0]), "value", None)
        if offset is None:
            raise NotImplementedError(f"attention: causal_mask {mask} of {lengths}")
    kept = below(scores, offset)
    exponents = topi.exp(topi.subtract(kept, topi.max(kept, -1, True)))
    kept = below(exponents, offset)
    return topi.divide(kept, topi.sum(kept, -1, True))


for _op in ("nn.attention", "nn.attention_bias"):
    loops(_op, hint=_name)(_attention)
