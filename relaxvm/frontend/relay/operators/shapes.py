"""Changes of shape, and shapes that are values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .... import op
from ....ir import MOST_TYPE_PARTS, Expr, ShapeExpr, get_shape_of
from .operands import dims_of, dtype_of, integers_of, or_none, rank_of
from .table import relay

__all__: list[str] = []


@relay("reshape")
def _reshape(x: Expr, *, newshape: Any, allowzero: bool = False) -> Any:
    newshape = integers_of(newshape, "newshape")
    if all(isinstance(d, int) and d >= -1 for d in newshape) and not (allowzero and 0 in newshape):
        return op.reshape(x, newshape)
    if allowzero:
        return op.reshape(x, ShapeExpr(newshape))
    return op.reshape(x, _new_dims(dims_of(x), newshape))


def _new_dims(dims: Sequence[Expr], codes: Sequence[int]) -> list[Any]:
    """A shape by Relay's codes: 0 keeps a dimension, -1 is what is left, -2 keeps all that remain,
    -3 joins two, -4 splits one into the two numbers that follow."""
    new: list[Any] = []
    at, i = 0, 0

    def take() -> Any:
        nonlocal at
        if at >= len(dims):
            raise ValueError(f"newshape: {list(codes)} needs more than {len(dims)} dimensions")
        at += 1
        return dims[at - 1]

    while i < len(codes):
        code = codes[i]
        i += 1
        if code == 0:
            new.append(take())
        elif code == -2:
            new += dims[at:]
            at = len(dims)
        elif code == -3:
            first = take()
            new.append(first * take())
        elif code == -4:
            pair, whole = list(codes[i : i + 2]), take()
            i += 2
            if len(pair) != 2 or pair == [-1, -1] or 0 in pair:
                raise ValueError(f"newshape: expected two numbers after -4, got {pair}")
            if -1 in pair:
                known = pair[1] if pair[0] == -1 else pair[0]
                pair[pair.index(-1)] = whole // known
            new += pair
        else:
            if code == -1 or code > 0:
                at += 1
            else:
                raise ValueError(f"newshape: expected numbers from -4 on, got {code}")
            new.append(code)
    return new


@relay("reshape_like")
def _reshape_like(
    x: Expr,
    like: Expr,
    *,
    lhs_begin: Any = 0,
    lhs_end: Any = None,
    rhs_begin: Any = 0,
    rhs_end: Any = None,
) -> Any:
    if (lhs_begin, lhs_end, rhs_begin, rhs_end) == (0, None, 0, None):
        return op.reshape(x, get_shape_of(like))
    a, b = list(dims_of(x)), list(dims_of(like))
    return op.reshape(x, [*a[:lhs_begin], *b[slice(rhs_begin, rhs_end)],
                          *(a[lhs_end:] if lhs_end is not None else [])])  # fmt: skip


@relay("transpose")
def _transpose(x: Expr, *, axes: Any = None) -> Any:
    return op.permute_dims(x, axes or None)


@relay("layout_transform")
def _layout_transform(x: Expr, *, src_layout: str, dst_layout: str) -> Any:
    if sorted(src_layout) != sorted(dst_layout) or len(set(src_layout)) != len(src_layout):
        raise ValueError("src_layout, dst_layout: expected two orders of the same letters, got "
                         f"{src_layout!r} and {dst_layout!r}; blocked layouts have no counterpart")
    return op.permute_dims(x, [src_layout.index(letter) for letter in dst_layout])


@relay("expand_dims")
def _expand_dims(x: Expr, *, axis: int, num_newaxis: int = 1) -> Any:
    if not 0 <= num_newaxis <= MOST_TYPE_PARTS:
        raise ValueError(f"num_newaxis: expected 0 to {MOST_TYPE_PARTS}, got {num_newaxis}")
    first = axis if axis >= 0 else axis + rank_of(x) + 1
    return op.expand_dims(x, list(range(first, first + num_newaxis))) if num_newaxis else x


@relay("squeeze")
def _squeeze(x: Expr, *, axis: Any = None) -> Any:
    return op.squeeze(x, axis)


@relay("broadcast_to")
def _broadcast_to(x: Expr, *, shape: Any, dtype: Any = "") -> Any:
    return op.broadcast_to(x, shape)


@relay("broadcast_to_like")
def _broadcast_to_like(x: Expr, like: Expr) -> Any:
    return op.broadcast_to(x, get_shape_of(like))


@relay("shape_of")
def _shape_of(x: Expr, *, dtype: str = "int32") -> Any:
    shape = op.shape_to_tensor(get_shape_of(x))
    return shape if dtype == "int64" else op.astype(shape, dtype)


@relay("ndarray_size")
def _ndarray_size(x: Expr, *, dtype: str = "int32") -> Any:
    size = op.size(x)
    return size if dtype == "int64" else op.astype(size, dtype)


# Shapes that are values


@relay("dyn.reshape")
def _dyn_reshape(x: Expr, shape: Expr, *, newshape: Any = None, allowzero: bool = False) -> Any:
    return op.reshape(x, _as_shape(shape))


@relay("dyn.broadcast_to")
def _dyn_broadcast_to(x: Expr, shape: Expr, *, dtype: Any = "") -> Any:
    return op.broadcast_to(x, _as_shape(shape))


@relay("dyn.zeros")
def _dyn_zeros(shape: Expr, *, dtype: str) -> Any:
    return op.zeros(_as_shape(shape), dtype)


@relay("dyn.ones")
def _dyn_ones(shape: Expr, *, dtype: str) -> Any:
    return op.ones(_as_shape(shape), dtype)


@relay("dyn.full")
def _dyn_full(value: Expr, shape: Expr, *, dtype: str | None = "") -> Any:
    return op.full(_as_shape(shape), value, or_none(dtype))


def _as_shape(shape: Expr) -> Any:
    return op.tensor_to_shape(shape if dtype_of(shape) == "int64" else op.astype(shape, "int64"))
