"""Which results share the memory of an argument, by the strides that a graph states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from . import messages

__all__ = ["REPEATING", "SAME", "is_in_order", "may_share", "shares_memory"]

SAME: Final = frozenset({
    "alpha_dropout", "contiguous", "dropout", "feature_dropout", "to", "type_as",
})  # fmt: skip
"""Operators of ATen that return their argument itself where there is nothing to do."""
REPEATING: Final = frozenset({
    "as_strided", "broadcast_tensors", "broadcast_to", "expand", "expand_as", "meshgrid", "unfold",
})  # fmt: skip
"""Operators of ATen whose results may have an element of their argument in several places."""
_RESHAPING: Final = frozenset({"flatten", "ravel", "reshape", "reshape_as"})
"""Operators of ATen that return a view where the strides allow it, else a copy."""


def is_in_order(meta: messages.TensorMeta | None) -> bool:
    """Whether the elements of a tensor are all of its memory, in row-major order."""
    return meta is not None and _is_contiguous(meta) and meta.storage_offset == ("as_int", 0)


def may_share(name: str, is_view: bool) -> bool:
    """Whether an operator may return a tensor that shares memory with its first argument.

    Args:
        name: of the operator, without namespace and overload.
        is_view: whether it is registered as a view.
    """
    return (is_view and not name.endswith("_copy")) or name in SAME


def shares_memory(
    name: str,
    is_view: bool,
    before: messages.TensorMeta | None,
    after: messages.TensorMeta | None,
) -> bool:
    """Whether the result of an operator shares memory with its first argument.

    Args:
        name, is_view: as of `may_share`.
        before, after: what is known of the argument and of the result.
    """
    if not may_share(name, is_view):
        return False
    if name not in SAME and name not in _RESHAPING:
        return True
    if before is None or after is None:
        return False
    if name in SAME:
        return before.dtype == after.dtype and before.strides == after.strides
    return _is_contiguous(before) or _is_viewable(before, after)


def _is_contiguous(meta: messages.TensorMeta) -> bool:
    """Whether the strides of a tensor are those of its sizes in row-major order; lengths that are
    not known count as different from 1."""
    expected: Any = 1
    for size, stride in zip(reversed(meta.sizes), reversed(meta.strides), strict=True):
        if size.kind == "as_int" and size.value == 1:
            continue
        if stride.kind == "as_int" and isinstance(expected, int):
            if stride.value != expected:
                return False
        elif stride.kind == "as_int":
            return False
        expected = expected * size.value if (
            isinstance(expected, int) and size.kind == "as_int") else None  # fmt: skip
    return True


def _numbers(sizes: Sequence[messages.Sized]) -> list[int] | None:
    found = [size.value for size in sizes if size.kind == "as_int"]
    return found if len(found) == len(sizes) else None


def _is_viewable(before: messages.TensorMeta, after: messages.TensorMeta) -> bool:
    """Whether strides exist with which the elements of one shape are those of the other: each run
    of axes that is contiguous in memory has to be split and joined by itself."""
    sizes, strides, wanted = map(_numbers, (before.sizes, before.strides, after.sizes))
    if sizes is None or strides is None or wanted is None:
        return False
    if 0 in sizes:
        return True
    rest = [size for size in wanted if size != 1]
    runs: list[int] = []
    last: int | None = None
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if last is not None and last == size * stride:
            runs[-1] *= size
        else:
            runs.append(size)
        last = stride
    for run in runs:
        found = 1
        while found < run and rest:
            found *= rest.pop(0)
        if found != run:
            return False
    return not rest
