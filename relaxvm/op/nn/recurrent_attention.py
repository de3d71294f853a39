"""Attention as a recurrence."""

from __future__ import annotations

from ...ir.expr import Call, IntImm, TensorType, TupleType, Type
from ..kinds import IllValued
from ..registry import Takes, Unsupported, operator
from ..rules import common_dtype, like, need_equal_dims, need_floats, need_rank

__all__ = ["linear_attention"]

_NO_LOOPS = Unsupported("TVM has no such operator.")


def _inputs(call: Call) -> list[object]:
    return [*call.args, *[None] * (6 - len(call.args))]


_TAKES: Takes = _inputs


@operator("nn.linear_attention", loops=_NO_LOOPS, takes=_TAKES)
def linear_attention(
    query: TensorType,
    key: TensorType,
    value: TensorType,
    state: TensorType,
    decay: TensorType,
    rate: TensorType | None = None,
) -> Type:
    """A recurrence over the steps of query[batch, heads, steps, k], key[batch, groups, steps, k]
    and value[batch, groups, steps, v]: the state[batch, groups, k, v] is multiplied by
    decay[batch, groups, steps, 1 or k], the outer product of key and value is added, and the result
    of a step is the product of query and state.  With rate[batch, 1 or groups, steps, 1], what the
    state has for the key is subtracted from the value first, and the difference multiplied by rate.
    A tuple of the results and the last state."""
    operands = {"query": query, "key": key, "value": value, "state": state, "decay": decay}
    if rate is not None:
        operands["rate"] = rate
    need_floats(**operands)
    need_rank(4, **operands)
    common_dtype(**operands)
    found = {name: (None,) * 4 if ty.dims is None else ty.dims for name, ty in operands.items()}
    q, k, v, s = (found[name] for name in ("query", "key", "value", "state"))
    need_equal_dims("the batch (dimension 0)", **{name: dims[0] for name, dims in found.items()})
    need_equal_dims("the number of groups (dimension 1)", key=k[1], value=v[1], state=s[1],
                    decay=found["decay"][1])  # fmt: skip
    steps = {name: dims[2] for name, dims in found.items() if name != "state"}
    need_equal_dims("the number of steps (dimension 2)", **steps)
    need_equal_dims("the size of a key", query=q[3], key=k[3], state=s[2])
    need_equal_dims("the size of a value", value=v[3], state=s[3])
    if isinstance(q[1], IntImm) and isinstance(k[1], IntImm) and q[1].value % max(1, k[1].value):
        raise IllValued(f"query: expected a multiple of {k[1]} heads, got {q[1]}")
    if query.dims is None or value.dims is None:
        return TupleType((like(query, None, ndim=4), state))
    return TupleType((like(query, (*query.dims[:3], value.dims[3])), state))
