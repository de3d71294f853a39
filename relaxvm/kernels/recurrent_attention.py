"""Attention as a recurrence: a state of fixed size takes the place of keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import check_time, copy_pieces
from ._arrays import copy_if_overlapping
from ._kernel import kernel
from .checks import WrongValue, check_out, native, working_dtype
from .kinds import Floats, Out

__all__: list[str] = []


@kernel("nn.linear_attention")
def linear_attention(
    query: Floats,
    key: Floats,
    value: Floats,
    state: Floats,
    decay: Floats,
    rate: Floats | None,
    *outs: Out,
) -> None:
    """outs = the products of each step's query[batch, heads, steps, k] and the state[batch, groups,
    k, v] after that step, and the state after all steps.  A step multiplies the state by
    decay[batch, groups, steps, 1 or k] and adds the outer product of key[batch, groups, steps, k]
    and value[batch, groups, steps, v].  With rate[batch, 1 or groups, steps, 1], what the state has
    for the key is subtracted from the value first, and the difference is multiplied by rate.
    `heads` is a multiple of `groups`; neighbouring heads share a group.  Uses memory for two
    states."""
    if len(outs) != 2:
        raise WrongValue(f"expected 2 outs, got {len(outs)}")
    out, last = outs
    operands = {"query": query, "key": key, "value": value, "state": state}
    for name, each in operands.items():
        if each.ndim != 4:
            raise WrongValue(f"{name}: expected 4 axes, got {describe(each)}")
    batch, heads, steps, width = query.shape
    groups, size = key.shape[1], value.shape[3]
    _need("key", key, (batch, groups, steps, width))
    _need("value", value, (batch, groups, steps, size))
    _need("state", state, (batch, groups, width, size))
    if not groups or heads % groups:
        raise WrongValue(f"query: expected a multiple of {groups} heads, got {describe(query)}")
    _need("decay", decay, (batch, groups, steps, 1), (batch, groups, steps, width))
    if rate is not None:
        _need("rate", rate, (batch, 1, steps, 1), (batch, groups, steps, 1))
    dtype = native(query.dtype)
    check_out(out, dtype, (batch, heads, steps, size))
    check_out(last, dtype, state.shape)
    query, key, value, decay = (
        copy_if_overlapping(each, out) for each in (query, key, value, decay)
    )
    rate = None if rate is None else copy_if_overlapping(rate, out)
    working = working_dtype(dtype)
    now = np.empty(state.shape, working)
    copy_pieces(now, state)
    grouped = (batch, groups, heads // groups, width)
    for i in range(steps):
        check_time()
        now *= decay[:, :, i, :, None]
        k, v = key[:, :, i].astype(working), value[:, :, i].astype(working)
        if rate is not None:
            v = (v - (k[:, :, None] @ now)[:, :, 0]) * rate[:, :, i]
        now += k[..., None] * v[:, :, None]
        q = query[:, :, i].astype(working).reshape(grouped)
        out[:, :, i] = (q @ now).reshape(batch, heads, size)
    copy_pieces(last, now)


def _need(name: str, tensor: NDArray[Any], *shapes: tuple[int, ...]) -> None:
    if tensor.shape not in shapes:
        expected = " or ".join(str(list(shape)) for shape in dict.fromkeys(shapes))
        raise WrongValue(f"{name}: expected shape {expected}, got {describe(tensor)}")
