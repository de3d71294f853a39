"""Attention."""

from __future__ import annotations

from typing import Any, Final, Literal

from ...ir.arith import simplify
from ...ir.expr import Call, Expr, IntImm, TensorType, Type, int_imm
from ..kinds import IllValued
from ..registry import Unsupported, composite, operator
from ..rules import (
    common_dtype,
    common_vdevice,
    differ,
    like,
    need_equal_dims,
    need_floats,
    need_rank,
    same_dim,
)

__all__ = ["attention", "attention_bias"]


def _attended(query: TensorType, key: TensorType, value: TensorType) -> TensorType:
    operands = {"query": query, "key": key, "value": value}
    need_floats(**operands)
    need_rank(4, **operands)
    common_dtype(**operands)
    dtype, vdevice = query.dtype, common_vdevice(**operands)
    q, k, v = (_four_dims(ty) for ty in operands.values())
    need_equal_dims("the batch (dimension 0)", query=q[0], key=k[0], value=v[0])
    need_equal_dims("the length (dimension 1)", key=k[1], value=v[1])
    need_equal_dims("the number of heads (dimension 2)", key=k[2], value=v[2])
    _need_shared_heads(q[2], k[2])
    need_equal_dims("the size of a head (dimension 3)", query=q[3], key=k[3])
    if query.dims is None or value.dims is None:
        return TensorType(None, dtype, vdevice, 4)
    return TensorType((*query.dims[:3], value.dims[3]), dtype, vdevice)


def _need_shared_heads(heads: Expr | None, shared: Expr | None) -> None:
    """Raise if the heads of query are certainly no multiple of those of key and value."""
    if heads is None or shared is None or same_dim(heads, shared):
        return
    if isinstance(shared, IntImm) and (
        shared.value < 1 or differ(simplify(heads % shared.value), int_imm(0))
    ):
        raise IllValued(
            f"the number of heads (dimension 2): expected a multiple of the {shared} of key and "
            f"value in query, got {heads}"
        )


def _four_dims(ty: TensorType) -> tuple[Expr | None, ...]:
    return (None,) * 4 if ty.dims is None else ty.dims


def _inputs(call: Call) -> list[Any]:
    query, key, value = call.args[:3]
    bias = call.args[3] if len(call.args) > 3 else None
    attrs = call.attrs
    if attrs["window_size"] is not None:
        raise ValueError(
            f"{call.op}: window_size: there is no kernel for a window, got {attrs['window_size']}"
        )
    return [query, key, value, bias, attrs["scale"], attrs["causal_mask"]]


_NO_LOOPS: Final = Unsupported(
    "The scores of all queries would take memory; the kernel computes them block by block."
)


@operator("nn.attention", loops=_NO_LOOPS, takes=_inputs, offer=False)
def _attention(
    query: TensorType,
    key: TensorType,
    value: TensorType,
    scale: float | None = None,
    causal_mask: Literal["TopLeft", "BottomRight"] | None = None,
    window_size: int | None = None,
) -> Type:
    """softmax(query @ key^T * scale) @ value for each head.

    query: float[batch, length, heads, size]; key and value the same, of another length or size of
    value's heads, or with fewer heads, each of which as many heads of query in a row share: head i
    of 8 has head i / 4 of 2.  scale: 1 / sqrt(size) if not given.  causal_mask: each element of
    query attends to those of key up to its own position, counted from the start ("TopLeft") or the
    end ("BottomRight").
    """
    return _attended(query, key, value)


@operator("nn.attention_bias", loops=_NO_LOOPS, takes=_inputs)
def attention_bias(
    query: TensorType,
    key: TensorType,
    value: TensorType,
    bias: TensorType,
    scale: float | None = None,
    causal_mask: Literal["TopLeft", "BottomRight"] | None = None,
    window_size: int | None = None,
) -> Type:
    """`attention`, with a bias added before softmax: float[batch, heads or 1, length of query,
    length of key]."""
    result = _attended(query, key, value)
    need_floats(bias=bias)
    need_rank(4, bias=bias)
    common_dtype(query=query, bias=bias)
    if bias.dims is not None and query.dims is not None and key.dims is not None:
        need_equal_dims("the batch", query=query.dims[0], bias=_unless_one(bias.dims[0]))
        need_equal_dims("the number of heads", query=query.dims[2], bias=_unless_one(bias.dims[1]))
        need_equal_dims("the length of query", query=query.dims[1], bias=_unless_one(bias.dims[2]))
        need_equal_dims("the length of key", key=key.dims[1], bias=bias.dims[3])
    return like(result, vdevice=common_vdevice(query=query, key=key, value=value, bias=bias))


def _unless_one(dim: Expr) -> Expr | None:
    return None if isinstance(dim, IntImm) and dim.value == 1 else dim


@composite("nn.attention")
def attention(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Call:
    """softmax(query @ key^T * scale + bias) @ value for each head.

    A call of "relax.nn.attention", or of "relax.nn.attention_bias" if there is a bias; see there.
    """
    settings = (scale, causal_mask, window_size)
    call: Call
    if bias is None:
        call = _attention(query, key, value, *settings)
    else:
        call = attention_bias(query, key, value, bias, *settings)
    return call
