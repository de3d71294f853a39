"""Operators that make tensors, and that arrange and choose elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir import Call, prim
from ....ir.arith import simplify
from ....ir.expr import Expr, FloatImm, IntImm
from ....ir.prim import as_scalar, is_float
from ....op.index import slice_of
from ....te import Tensor, compute, reduce_axis, topi
from ....te import sum as te_sum
from ....te.topi import basic
from ....tir import intrinsics
from .flat import places_of
from .rules import loops, shape_of

__all__ = ["reshape"]


def _axes(count: int) -> list[str]:
    return [f"ax{k}" for k in range(count)]


def reshape(x: Tensor, shape: Sequence[Expr]) -> Tensor:
    """The same elements in another shape."""
    return compute(
        shape,
        lambda *i: x[tuple(places_of(i, shape, x.shape))],
        "T_reshape",
        varargs_names=_axes(len(shape)),
    )


# Creation


@loops("full", hint="full")
def _full(shape: Sequence[Any], value: Any, dtype: str) -> Tensor:
    def element(*_: Expr) -> Any:
        if isinstance(value, FloatImm) and not is_float(dtype):
            return as_scalar(int(value.value), dtype)
        return prim.cast(value[()] if isinstance(value, Tensor) else value, dtype)

    return compute(shape, element, "T_full", varargs_names=_axes(len(shape)))


def _shape_and_dtype(call: Call) -> Sequence[Any]:
    """What is known of the first operand, which is not read."""
    return shape_of(call.args[0]), call.args[0].ty.dtype


@loops("full_like", hint="full", operands=lambda call: (*_shape_and_dtype(call), call.args[1]))
def _full_like(shape: Sequence[Any], own: str, value: Any, dtype: str | None = None) -> Any:
    return _full(shape, value, dtype or own)


def _filled(number: int) -> Any:
    def make(shape: Sequence[Any], own: str = "float32", dtype: str | None = None) -> Tensor:
        kind = dtype or own
        return topi.full(shape, kind, bool(number) if kind == "bool" else number)

    return make


for _name, _number in (("ones", 1), ("zeros", 0)):
    loops(_name)(_filled(_number))
    loops(f"{_name}_like", hint=_name, operands=_shape_and_dtype)(_filled(_number))


def _triangle(upper: bool) -> Any:
    def make(x: Tensor, k: Any = 0) -> Tensor:
        zero = as_scalar(0.0 if is_float(x.dtype) else 0, x.dtype)

        def element(*i: Expr) -> Any:
            row, column = i[-2], i[-1]
            offset = prim.cast(as_scalar(k, row.dtype), row.dtype)
            if not isinstance(offset, IntImm):
                return prim.select(_is_kept(row, column - offset, upper), x[i], zero)
            if offset.value < 0:  # constants are written as added
                column, edge = column + -offset.value, row
            else:
                edge = row + offset
            return prim.select(_is_kept(edge, column, upper), x[i], zero)

        names = [f"i{a}" for a in range(x.ndim)]
        return compute(x.shape, element, "trilu", varargs_names=names)

    return make


def _is_kept(edge: Expr, column: Expr, upper: bool) -> Any:
    return edge <= column if upper else column <= edge


loops("tril")(_triangle(upper=False))
loops("triu")(_triangle(upper=True))


def _eye(rows: Expr, columns: Expr, k: Any, dtype: str) -> Tensor:
    one, zero = (as_scalar(float(n) if is_float(dtype) else n, dtype) for n in (1, 0))
    offset = int(k)

    def element(i: Expr, j: Expr) -> Any:
        column = j if not offset else j - offset
        return intrinsics.if_then_else(prim.equal(i, column), one, zero)

    return compute([rows, columns], element, "eye")


loops("eye")(_eye)


@loops("eye_like", operands=lambda call: (*_shape_and_dtype(call), *call.args[1:]))
def _eye_like(shape: Sequence[Any], own: str, k: Any = 0, dtype: str | None = None) -> Any:
    return _eye(shape[0], shape[1], k, dtype or own)


# Arranging


loops("broadcast_to")(topi.broadcast_to)


@loops("concat", hint="concatenate")
def _concat(tensors: Sequence[Tensor], axis: int | None) -> Any:
    if axis is None:
        tensors, axis = [reshape(t, [_size(t)]) for t in tensors], 0
    starts: list[Expr] = [IntImm("int64", 0)]
    for tensor in tensors:
        starts.append(simplify(starts[-1] + tensor.shape[axis]))
    shape = [*tensors[0].shape[:axis], starts[-1], *tensors[0].shape[axis + 1 :]]

    def element(*i: Expr) -> Any:
        value: Any = tensors[0][i]
        for tensor, start in zip(tensors[1:], starts[1:], strict=False):
            own = tensor[(*i[:axis], i[axis] - start, *i[axis + 1 :])]
            value = intrinsics.if_then_else(i[axis] - start >= 0, own, value)
        return value

    return compute(shape, element, "T_concat", varargs_names=_axes(len(shape)))


@loops("expand_dims")
def _expand_dims(x: Tensor, axis: Sequence[int]) -> Tensor:
    rank = x.ndim + len(axis)
    new = {int(a) % rank for a in axis}
    rest = iter(x.shape)
    shape = [IntImm("int64", 1) if a in new else next(rest) for a in range(rank)]
    names = [f"i{a}" for a in range(rank)]
    return compute(
        shape,
        lambda *i: x[tuple(index for a, index in enumerate(i) if a not in new)],
        "expand_dims",
        varargs_names=names,
    )


loops("squeeze")(topi.squeeze)
loops("permute_dims", hint="transpose")(lambda x, axes: topi.transpose(x, axes))
def _from_end(length: Expr, index: Expr) -> Expr:
    place: Expr = (length - 1) - index if isinstance(length, IntImm) else length - index - 1
    return place


@loops("flip")
def _flip(x: Tensor, axis: int) -> Tensor:
    return compute(
        x.shape,
        lambda *i: x[(*i[:axis], _from_end(x.shape[axis], i[axis]), *i[axis + 1 :])],
        "T_flip",
        varargs_names=_axes(x.ndim),
    )


loops("tile")(lambda x, repeats: topi.tile(x, repeats))


def _size(x: Tensor) -> Expr:
    size: Expr = IntImm("int64", 1)
    for dim in x.shape:
        size = size * dim
    return simplify(size)


loops("reshape")(reshape)
loops("flatten", hint="reshape", operands=lambda call: (call.args[0], shape_of(call)))(reshape)


@loops("repeat")
def _repeat(x: Tensor, repeats: int, axis: int | None) -> Tensor:
    if axis is None:
        x, axis = reshape(x, [_size(x)]), 0
    dims = [*x.shape[:axis], prim.multiply(repeats, x.shape[axis]), *x.shape[axis + 1 :]]
    return compute(
        dims,
        lambda *i: x[(*i[:axis], prim.floordiv(i[axis], repeats), *i[axis + 1 :])],
        "T_repeat",
        varargs_names=_axes(x.ndim),
    )


@loops("split")
def _split(x: Tensor, indices_or_sections: Any, axis: int) -> Any:
    if isinstance(indices_or_sections, int):
        length = x.shape[axis]
        if not isinstance(length, IntImm):
            return _parts(x, indices_or_sections, axis)
        if length.value % indices_or_sections:
            part = -(-length.value // indices_or_sections)
            indices_or_sections = [part * k for k in range(1, indices_or_sections)]
    if not isinstance(indices_or_sections, int):
        places = [0, *map(int, indices_or_sections)]
        if places != sorted(places):
            # The caller makes of it what LegalizeOps does, as of other operators without a formula.
            raise NotImplementedError("split: topi.split takes indices in increasing order only")
    return topi.split(x, indices_or_sections, axis)


def _parts(x: Tensor, count: int, axis: int) -> list[Tensor]:
    """Parts of a length that is not known; the last one is shorter if need be."""
    length = x.shape[axis]
    part = prim.floordiv(length + count - 1, count)
    starts = [part * k if k > 1 else part for k in range(1, count)]
    ends: list[Any] = [*starts, length]

    def taken(start: Any, end: Any) -> Tensor:
        size = end if start is None else end - start
        return compute(
            [*x.shape[:axis], size, *x.shape[axis + 1 :]],
            lambda *i: x[
                (*i[:axis], i[axis] if start is None else simplify(start) + i[axis], *i[axis + 1 :])
            ],
            "T_split_sections",
            varargs_names=_axes(x.ndim),
        )

    return [taken(start, end) for start, end in zip([None, *starts], ends, strict=True)]


@loops("stack")
def _stack(tensors: Sequence[Tensor], axis: int) -> Tensor:
    at = axis % (tensors[0].ndim + 1)
    first = tensors[0].shape
    dims = [*first[:at], IntImm("int64", len(tensors)), *first[at:]]

    def element(*i: Expr) -> Any:
        rest = (*i[:at], *i[at + 1 :])
        value: Any = tensors[0][rest]
        for k, tensor in enumerate(tensors[1:], 1):
            value = intrinsics.if_then_else(prim.equal(i[at], k), tensor[rest], value)
        return value

    return compute(dims, element, "T_stack", varargs_names=_axes(len(dims)))


def _collapse(x: Tensor, shape: Sequence[Any]) -> Any:
    """The sum over the axes that broadcasting `shape` to that of `x` would repeat."""
    missing = x.ndim - len(shape)
    taps = {}
    for a, dim in enumerate(x.shape):
        target = None if a < missing else shape[a - missing]
        if target is None or (
            getattr(target, "value", None) == 1 and getattr(dim, "value", None) != 1
        ):
            taps[a] = reduce_axis((0, dim), f"k{a}")

    def element(*i: Expr) -> Any:
        places = [taps[a].var if a in taps else i[a - missing] for a in range(x.ndim)]
        return te_sum(x[tuple(places)], list(taps.values()))

    if not taps:
        return topi.identity(x)
    return compute(shape, element, f"{x.name}_red", varargs_names=_axes(len(shape)))


loops("collapse_sum_like", hint="collapse_sum",
      operands=lambda call: (call.args[0], shape_of(call.args[1])))(_collapse)  # fmt: skip
loops("collapse_sum_to", hint="collapse_sum")(_collapse)


@loops("meshgrid")
def _meshgrid(tensors: Sequence[Tensor], indexing: str | None) -> Any:
    return topi.meshgrid(tensors, indexing or "ij")


# Choosing


@loops("take", numbers=False)
def _take(x: Tensor, indices: Any, axis: int | None, mode: str) -> Tensor:
    if axis is None and mode != "python" and isinstance(indices, Tensor):
        return compute(
            indices.shape,
            lambda *i: x[tuple(places_of([indices[i]], [_size(x)], x.shape))],
            "T_take",
            varargs_names=_axes(indices.ndim),
        )
    axis = axis or 0
    if isinstance(indices, Expr):
        dims = [*x.shape[:axis], *x.shape[axis + 1 :]]
        return compute(
            dims,
            lambda *i: _chosen(x, i[:axis], indices, axis, mode, i[axis:]),
            "T_take",
            varargs_names=_axes(len(dims)),
        )
    rank = indices.ndim
    dims = [*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]]

    def element(*i: Expr) -> Any:
        place = indices[i[axis : axis + rank]]
        return _chosen(x, i[:axis], place, axis, mode, i[axis + rank :])

    return compute(dims, element, "T_take", varargs_names=_axes(len(dims)))


def _chosen(
    x: Tensor, front: Sequence[Expr], place: Any, axis: int, mode: str, rest: Sequence[Expr]
) -> Any:
    length = x.shape[axis]
    value = x[(*front, _within(place, length, mode), *rest)]
    if mode != "nan":
        return value
    inside = prim.logical_and(as_scalar(0, place.dtype) <= place, place < length)
    return intrinsics.if_then_else(inside, value, as_scalar(float("nan"), x.dtype))


def _within(place: Any, length: Expr, mode: str) -> Any:
    if mode == "clip":
        return intrinsics.min(intrinsics.max(as_scalar(0, place.dtype), place), length - 1)
    if mode == "wrap":
        return prim.truncmod(prim.truncmod(place, length) + length, length)
    if mode == "python":
        return prim.select(place < as_scalar(0, place.dtype), place + length, place)
    return place


@loops("gather_elements", hint="gather")
def _gather(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    return compute(
        indices.shape,
        lambda *i: x[(*i[:axis], indices[i], *i[axis + 1 :])],
        "T_gather",
        varargs_names=_axes(indices.ndim),
    )


@loops("gather_nd", hint="te_gather_nd")
def _gather_nd(x: Tensor, indices: Tensor, batch_dims: int) -> Tensor:
    """TVM's formula has the coordinates in the first dimension."""
    last = indices.ndim - 1
    turned = topi.transpose(indices, [last, *range(last)])
    count = int(indices.shape[-1])  # type: ignore[call-overload]
    dims = [*indices.shape[:-1], *x.shape[batch_dims + count :]]

    def element(*i: Expr) -> Any:
        places = [turned[(k, *i[:last])] for k in range(count)]
        return x[(*i[:batch_dims], *places, *i[last:])]

    return compute(dims, element, "T_gather_nd", varargs_names=_axes(len(dims)))


@loops("index_tensor")
def _index_tensor(x: Tensor, indices: Sequence[Tensor]) -> Tensor:
    shape: Any = indices[0].shape
    for each in indices[1:]:
        shape = basic.broadcast_shape(shape, each.shape, "index_tensor")
    dims = [*shape, *x.shape[len(indices) :]]
    if len(indices) > 1:
        indices = [topi.broadcast_to(each, shape) for each in indices]

    def element(*i: Expr) -> Any:
        front = i[: len(shape)]
        places = [basic._element(each, front, shape) for each in indices]
        return x[(*places, *i[len(shape) :])]

    return compute(dims, element, "advanced_index", varargs_names=_axes(len(dims)))


@loops("strided_slice")
def _strided_slice(
    x: Tensor,
    axes: Sequence[Expr],
    begin: Sequence[Expr],
    end: Sequence[Expr],
    strides: Sequence[Expr] | None = None,
    assume_inbound: bool = False,
) -> Tensor:
    shape, starts = list(x.shape), {}
    steps = [1] * len(axes) if strides is None else [int(step) for step in strides]  # type: ignore[call-overload]
    for axis, low, high, step in zip(axes, begin, end, steps, strict=True):
        at = int(axis) % x.ndim  # type: ignore[call-overload]
        start, shape[at] = slice_of(x.shape[at], low, high, step, assume_inbound)
        starts[at] = start, step

    def element(*i: Expr) -> Any:
        places: list[Any] = list(i)
        for at, (start, step) in starts.items():
            places[at] = i[at] * step + start if step > 0 else start - i[at] * -step
        return x[tuple(places)]

    return compute(shape, element, "T_strided_slice_with_axes", varargs_names=_axes(x.ndim))


@loops("one_hot")
def _one_hot(indices: Tensor, on: Any, off: Any, depth: int, axis: int) -> Tensor:
    at = axis % (indices.ndim + 1)
    dims = [*indices.shape[:at], IntImm("int64", depth), *indices.shape[at:]]

    def element(*i: Expr) -> Any:
        place = prim.cast(indices[(*i[:at], *i[at + 1 :])], i[at].dtype)
        return prim.select(prim.equal(place, i[at]), on, off)

    return compute(dims, element, "T_one_hot", varargs_names=_axes(len(dims)))
