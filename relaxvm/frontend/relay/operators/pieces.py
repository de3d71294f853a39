"""Parts of tensors, tensors from parts, and tensors of given shapes."""

from __future__ import annotations

from typing import Any, Final

from .... import op
from ....ir import Call, Expr, Tuple, TupleType
from .equal_dims import all_but_axis, all_dims
from .operands import axis_of, dims_of, dtype_of, integers_of, items_of, number_of, or_none, rank_of
from .table import relay

__all__: list[str] = []


@relay("concatenate", equal=all_but_axis)
def _concatenate(tensors: Expr, *, axis: int = 0) -> Any:
    return op.concat(items_of(tensors), axis)


@relay("stack", equal=all_dims)
def _stack(tensors: Expr, *, axis: Any = 0) -> Any:
    return op.stack(items_of(tensors), axis)


@relay("split")
def _split(x: Expr, *, indices_or_sections: Any, axis: int = 0) -> Any:
    parts = op.split(x, indices_or_sections, axis)
    if isinstance(parts, Call) and not isinstance(parts.ty, TupleType):
        return Tuple([parts])
    return parts


@relay("repeat")
def _repeat(x: Expr, *, repeats: Any, axis: Any = None) -> Any:
    return op.repeat(x, repeats, axis)


@relay("tile")
def _tile(x: Expr, *, reps: Any) -> Any:
    return op.tile(x, reps)


@relay("reverse")
def _reverse(x: Expr, *, axis: Any) -> Any:
    return op.flip(x, axis)


@relay("take")
def _take(
    x: Expr, indices: Expr, *, batch_dims: Any = 0, axis: Any = None, mode: str = "clip"
) -> Any:
    if batch_dims:
        raise ValueError(f"batch_dims: expected 0, got {batch_dims}: there is no such operator")
    if axis is None:
        return op.take(op.flatten(x), indices, 0, mode)
    return op.take(x, indices, axis, mode)


@relay("strided_slice")
def _strided_slice(
    x: Expr,
    *,
    begin: Any,
    end: Any,
    strides: Any = None,
    slice_mode: str = "end",
    axes: Any = None,
) -> Any:
    if slice_mode not in ("end", "size"):
        raise ValueError(f"slice_mode: expected 'end' or 'size', got {slice_mode!r}")
    begin, end = _bounds(begin, "begin"), _bounds(end, "end")
    count = max(len(begin), len(end))
    axes = range(count) if axes is None else integers_of(axes, "axes")
    axes = [axis_of(a, rank_of(x)) for a in axes]
    strides = [1] if not strides else integers_of(strides, "strides")
    strides = strides * count if len(strides) == 1 else strides + [1] * (count - len(strides))
    begin += [0] * (count - len(begin))
    end += [_END] * (count - len(end))
    if slice_mode == "size":
        strides = [1] * count
        end = [_END if size == -1 else first + size for first, size in zip(begin, end, strict=True)]
    begin = [0 if b is None else b for b in begin]
    end = [_END if e is None else e for e in end]
    return op.strided_slice(x, axes, begin, end, strides)


def _bounds(value: Any, what: str) -> list[int | None]:
    """Bounds of a slice; None is the end of the dimension."""
    items = value if isinstance(value, list) else [value]
    return [None if item is None else integers_of(item, what)[0] for item in items]


_END: Final = 2**31 - 1


@relay("slice_like")
def _slice_like(x: Expr, like: Expr, *, axes: Any = None) -> Any:
    chosen = [axis_of(a, rank_of(x)) for a in axes] if axes else list(range(rank_of(x)))
    dims, count = dims_of(like), len(chosen)
    return op.strided_slice(x, chosen, [0] * count, [dims[a] for a in chosen], [1] * count)


# Tensors of given shapes


@relay("zeros")
def _zeros(*, shape: Any, dtype: str) -> Any:
    return op.zeros(shape, dtype)


@relay("ones")
def _ones(*, shape: Any, dtype: str) -> Any:
    return op.ones(shape, dtype)


@relay("full")
def _full(value: Expr, *, shape: Any, dtype: str | None = "") -> Any:
    return op.full(shape, value, or_none(dtype))


@relay("full_like")
def _full_like(x: Expr, value: Expr) -> Any:
    return op.full_like(x, value)


@relay("arange")
def _arange(
    start: Expr,
    stop: Expr,
    step: Expr,
    *,
    dtype: str,
) -> Any:
    bounds = [number_of(x, what) for x, what in ((start, "start"), (stop, "stop"), (step, "step"))]
    return op.arange(*bounds, dtype)


@relay("one_hot")
def _one_hot(
    indices: Expr, on_value: Expr, off_value: Expr, *, depth: int, axis: int = -1, dtype: str
) -> Any:
    at = axis_of(axis, rank_of(indices) + 1)
    numbers = op.arange(0, depth, 1, dtype_of(indices))
    after = rank_of(indices) - at
    if after:
        numbers = op.expand_dims(numbers, list(range(1, after + 1)))
    chosen = op.equal(op.expand_dims(indices, [at]), numbers)
    return op.where(chosen, op.astype(on_value, dtype), op.astype(off_value, dtype))
