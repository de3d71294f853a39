"""Caches of keys and values."""

from __future__ import annotations

import numpy as np

from ..messages import describe
from ..pieces.cut import copy_pieces
from ._arrays import copy_if_overlapping
from ._kernel import kernel
from .checks import WrongValue, check_out, native
from .kinds import Integers, Out, SameType

__all__: list[str] = []


@kernel("extend_cache")
def extend_cache(
    past: SameType, new: SameType, lengths: Integers, total: Integers, out: Out
) -> None:
    """out[batch, heads, steps, size] = of each example i the first lengths[i] steps of past[batch,
    heads, steps before, size], then new[batch, heads, new steps, size], then 0.  It has as many
    steps as past, or total, if that is more."""
    if past.ndim != 4 or new.ndim != 4 or (past.shape[:2], past.shape[3]) != (
        new.shape[:2], new.shape[3]
    ):  # fmt: skip
        raise WrongValue(
            f"new: expected batch, heads and size of past, got past {describe(past)}, "
            f"new {describe(new)}"
        )
    batch, heads, before, size = past.shape
    if lengths.shape != (batch,) or total.ndim:
        raise WrongValue(
            f"lengths: expected {batch} numbers, and total without axes, got {describe(lengths)} "
            f"and {describe(total)}"
        )
    steps = max(before, int(total))
    starts = [int(each) for each in lengths.tolist()]
    added = new.shape[2]
    if any(start < 0 or start > before or start + added > steps for start in starts):
        raise WrongValue(
            f"lengths: expected up to {before}, and room for {added} more in {steps}, got {starts}"
        )
    check_out(out, native(past.dtype), (batch, heads, steps, size))
    past, new = copy_if_overlapping(past, out), copy_if_overlapping(new, out)
    for i, start in enumerate(starts):
        copy_pieces(out[i, :, :start], past[i, :, :start])
        copy_pieces(out[i, :, start : start + added], new[i])
        copy_pieces(out[i, :, start + added :], np.zeros((), out.dtype))
