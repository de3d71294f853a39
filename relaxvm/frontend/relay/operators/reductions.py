"""Reductions, scans and sorting."""

from __future__ import annotations

from typing import Any

from .... import op
from ....ir import Expr
from .operands import as_bool, axes_of, or_none
from .table import Make, relay

__all__: list[str] = []


def _reduction(reduce: Make) -> Make:
    def make(x: Expr, *, axis: Any = None, keepdims: bool = False, exclude: bool = False) -> Any:
        axes = axes_of(axis, x, bool(exclude))
        return x if axes == [] else reduce(x, axes, bool(keepdims))

    return make


for _name in ("sum", "max", "min", "mean", "prod"):
    relay(_name)(_reduction(getattr(op, _name)))


@relay("all")
def _all(x: Expr, *, axis: Any = None, keepdims: bool = False, exclude: bool = False) -> Any:
    found = _reduction(op.min)(op.astype(as_bool(x), "int8"), axis=axis, keepdims=keepdims,
                               exclude=exclude)  # fmt: skip
    return op.astype(found, "bool")


@relay("any")
def _any(x: Expr, *, axis: Any = None, keepdims: bool = False, exclude: bool = False) -> Any:
    found = _reduction(op.max)(op.astype(as_bool(x), "int8"), axis=axis, keepdims=keepdims,
                               exclude=exclude)  # fmt: skip
    return op.astype(found, "bool")


def _position(find: Make) -> Make:
    def make(
        x: Expr,
        *,
        axis: Any = None,
        keepdims: bool = False,
        exclude: bool = False,
        select_last_index: bool = False,
    ) -> Any:
        if select_last_index:
            raise ValueError("select_last_index: expected False: there is no such operator")
        axes = axes_of(axis, x, bool(exclude))
        if axes is not None and len(axes) != 1:
            raise ValueError(f"axis: expected one axis or None, got {axis}")
        found = find(x, None if axes is None else axes[0], bool(keepdims))
        return op.astype(found, "int32")

    return make


relay("argmax")(_position(op.argmax))
relay("argmin")(_position(op.argmin))


@relay("variance")
def _variance(
    x: Expr,
    mean: Expr,
    *,
    axis: Any = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> Any:
    if unbiased:
        raise ValueError("unbiased: expected False: there is no such operator")
    off = op.subtract(x, mean)
    return _reduction(op.mean)(op.multiply(off, off), axis=axis, keepdims=keepdims, exclude=exclude)


@relay("cumsum")
def _cumsum(
    x: Expr, *, axis: Any = None, dtype: str | None = None, exclusive: Any = False
) -> Any:
    return op.cumsum(x, axis, or_none(dtype), bool(exclusive))


@relay("cumprod")
def _cumprod(
    x: Expr, *, axis: Any = None, dtype: str | None = None, exclusive: Any = False
) -> Any:
    return op.cumprod(x, axis, or_none(dtype), bool(exclusive))


@relay("sort")
def _sort(x: Expr, *, axis: int = -1, is_ascend: bool = True) -> Any:
    return op.sort(x, axis, not is_ascend)


@relay("argsort")
def _argsort(x: Expr, *, axis: int = -1, is_ascend: bool = True, dtype: str = "int32") -> Any:
    return op.argsort(x, axis, not is_ascend, dtype)


@relay("topk")
def _topk(
    x: Expr,
    *,
    k: Any = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: str = "int32",
) -> Any:
    return op.topk(x, k, axis, ret_type, not is_ascend, dtype)
