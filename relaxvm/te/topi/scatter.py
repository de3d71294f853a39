"""Operators that write elements to places that a tensor holds.

Places may be negative: they count from the end.  One outside of the tensor is an error of the run.
Where several elements go to one place, they are applied in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ...ir import prim
from ...ir.expr import Expr
from ...ir.prim import as_scalar
from ...tir import intrinsics
from ...tir.buffer import Buffer
from ...tir.stmt import Stmt
from .. import gather as _gather
from ..extern import extern
from ..tensor import Tensor, compute
from . import basic
from ._loops import axis_of, index, nest, run, store, when

__all__ = [
    "index_put",
    "scatter_elements",
    "scatter_nd",
    "slice_scatter",
    "sparse_to_dense",
    "strided_set",
]

_REDUCTIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": intrinsics.min,
    "max": intrinsics.max,
}


def _from_front(place: Any, length: Expr) -> Any:
    at = prim.cast(place, length.dtype)
    return prim.select(at < 0, at + length, at)


def _reduction(name: str, what: str) -> Callable[[Any, Any], Any]:
    if name not in _REDUCTIONS:
        raise ValueError(f"{what}: expected one of {', '.join(_REDUCTIONS)}, got {name!r}")
    return _REDUCTIONS[name]


def _copied(source: Buffer, target: Buffer) -> Stmt:
    return nest(source.shape, lambda i: store(target, i, source[i]))


def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "update"
) -> Tensor:
    """The data, with ``updates[i, j, ...]`` at the place ``indices[i, j, ...]`` of an axis.

    Args:
        reduction: "update", or how what is there is joined with what comes: "add", "mul", "min",
            "max", "mean".

    Raises:
        ValueError: there is no such axis or reduction, or the ranks differ.
    """
    at = axis_of(axis, data.ndim, "scatter_elements")
    if not data.ndim == indices.ndim == updates.ndim:
        raise ValueError(
            "scatter_elements: expected tensors of equal rank, got "
            f"{data.ndim}, {indices.ndim} and {updates.ndim} dimensions"
        )
    if reduction == "mean":
        return _scattered_mean(data, indices, updates, at)
    join = _reduction(reduction, "scatter_elements: reduction")

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        source, places, values = ins
        (out,) = outs

        def one(i: tuple[Expr, ...]) -> Stmt:
            place = (*i[:at], _from_front(places[i], data.shape[at]), *i[at + 1 :])
            return store(out, place, join(out[place], values[i]))

        return run(_copied(source, out), nest(updates.shape, one))

    out: Tensor = extern(data.shape, [data, indices, updates], body, "scatter_elements", data.dtype)
    return out


def _scattered_mean(data: Tensor, indices: Tensor, updates: Tensor, at: int) -> Tensor:
    """The mean of what is there and all that comes."""
    total = scatter_elements(data, indices, updates, at, "add")
    ones = compute(updates.shape, lambda *i: as_scalar(1, "int32"), "ones")
    start = compute(data.shape, lambda *i: as_scalar(1, "int32"), "one")
    counts = scatter_elements(start, indices, ones, at, "add")

    def mean(*i: Expr) -> Any:
        count = prim.cast(counts[i], data.dtype)
        return total[i] / count if prim.is_float(data.dtype) else prim.floordiv(total[i], count)

    return compute(data.shape, mean, "scatter_mean")


def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, mode: str = "update") -> Tensor:
    """The data, with slices of `updates` at places that the first dimension of `indices` has the
    coordinates of.

    Args:
        mode: how what is there is joined with what comes, as `reduction` of `scatter_elements`.
    """
    join = _reduction(mode, "scatter_nd: mode")
    depth = getattr(indices.shape[0], "value", None) if indices.ndim else None
    if depth is None or depth > data.ndim:
        raise ValueError(
            f"scatter_nd: indices: expected at most {data.ndim} coordinates, got {indices}"
        )
    rank = indices.ndim - 1
    if updates.ndim != rank + data.ndim - depth:
        raise ValueError(
            f"scatter_nd: updates: expected {rank + data.ndim - depth} dimensions, got {updates}"
        )

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        source, places, values = ins
        (out,) = outs

        def one(i: tuple[Expr, ...]) -> Stmt:
            start = [_from_front(places[(k, *i[:rank])], data.shape[k]) for k in range(depth)]
            place = (*start, *i[rank:])
            return store(out, place, join(out[place], values[i]))

        return run(_copied(source, out), nest(updates.shape, one))

    out: Tensor = extern(data.shape, [data, indices, updates], body, "scatter_nd", data.dtype)
    return out


def index_put(
    data: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False
) -> Tensor:
    """The data, with values at the places whose coordinates the tensors of `indices` hold, one for
    each of the first axes.

    Args:
        values: broadcast to the shape of the indices, followed by the other axes.
        accumulate: add to what is there.
    """
    if not 0 < len(indices) <= data.ndim:
        raise ValueError(f"index_put: expected 1 to {data.ndim} indices, got {len(indices)}")
    dims: list[Expr] = list(indices[0].shape)
    for each in indices[1:]:
        dims = basic.broadcast_shape(dims, each.shape, "index_put")
    places = [basic.broadcast_to(each, dims) for each in indices]
    shape = [*dims, *data.shape[len(indices) :]]
    wide = basic.broadcast_to(values, shape)

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        source, news, *at = ins
        (out,) = outs

        def one(i: tuple[Expr, ...]) -> Stmt:
            start = [
                _from_front(a[i[: len(dims)]], d) for a, d in zip(at, data.shape, strict=False)
            ]
            place = (*start, *i[len(dims) :])
            return store(out, place, out[place] + news[i] if accumulate else news[i])

        return run(_copied(source, out), nest(shape, one))

    out: Tensor = extern(data.shape, [data, wide, *places], body, "index_put", data.dtype)
    return out


def slice_scatter(
    input_tensor: Tensor, src: Tensor, start: Any, end: Any, step: Any, axis: int
) -> Tensor:
    """The data, with `src` at every `step`-th place of an axis from `start` to before `end`."""
    at = axis_of(axis, input_tensor.ndim, "slice_scatter")
    return _gather.slice_scatter(input_tensor, src, start, end, step, at)


def strided_set(
    a: Tensor, v: Tensor, begin: Tensor, end: Tensor, strides: Tensor | None = None
) -> Tensor:
    """The data, with `v` at the places ``begin:end:strides`` of each axis, which tensors hold."""
    if v.ndim != a.ndim:
        raise ValueError(f"strided_set: v: expected the rank of {a}, got {v}")
    for name, bounds in (("begin", begin), ("end", end), ("strides", strides)):
        if bounds is not None and bounds.ndim != 1:
            raise ValueError(f"strided_set: {name}: expected a vector, got {bounds}")

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        source, values, first, last, *by = ins
        (out,) = outs

        def one(i: tuple[Expr, ...]) -> Stmt:
            place: list[Any] = []
            fits: Any = as_scalar(True)
            for k, dim in enumerate(a.shape):
                step = prim.cast(by[0][k], dim.dtype) if by else index(1)
                at = _from_front(first[k], dim) + i[k] * step
                stop = _from_front(last[k], dim)
                before = prim.select(step > 0, at < stop, at > stop)
                fits = prim.logical_and(fits, before)
                place.append(at)
            return when(fits, store(out, place, values[i]))

        return run(_copied(source, out), nest(v.shape, one))

    inputs = [a, v, begin, end, *([] if strides is None else [strides])]
    out: Tensor = extern(a.shape, inputs, body, "strided_set", a.dtype)
    return out


def sparse_to_dense(
    sparse_indices: Tensor, output_shape: Any, sparse_values: Tensor, default_value: Any = 0
) -> Tensor:
    """A tensor with values at some places, and another one elsewhere.

    Args:
        sparse_indices: a scalar, a vector of places, or a matrix with the coordinates of one place
            in each row.
        output_shape: its dimensions.
        sparse_values: a scalar for all places, or one value for each.
        default_value: a number, or a scalar tensor.
    """
    dims = [index(d) for d in output_shape]
    rank = getattr(sparse_indices.shape[1], "value", None) if sparse_indices.ndim == 2 else 1
    if sparse_indices.ndim > 2 or rank != len(dims):
        raise ValueError(
            f"sparse_to_dense: sparse_indices: expected places in {len(dims)} dimensions, got "
            f"{sparse_indices}"
        )

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        places, values, *default = ins
        (out,) = outs
        rest = default[0][()] if default else as_scalar(default_value, sparse_values.dtype)

        def one(i: tuple[Expr, ...]) -> Stmt:
            if sparse_indices.ndim == 2:
                at = [prim.cast(places[i[0], k], d.dtype) for k, d in enumerate(dims)]
            else:
                at = [prim.cast(places[i], dims[0].dtype)]
            return store(out, at, values[i if sparse_values.ndim else ()])

        count = sparse_indices.shape[:1]
        return run(nest(dims, lambda i: store(out, i, rest)), nest(count, one))

    inputs = [sparse_indices, sparse_values]
    inputs += [default_value] if isinstance(default_value, Tensor) else []
    out: Tensor = extern(dims, inputs, body, "sparse_to_dense",
                         sparse_values.dtype)  # fmt: skip
    return out
