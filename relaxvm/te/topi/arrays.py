"""Operators that arrange elements, find places, and make tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir import prim
from ...ir.arith import simplify
from ...ir.expr import MOST_TYPE_PARTS, Expr, IntImm
from ...ir.prim import as_scalar, is_float
from ...tir import intrinsics
from ...tir.buffer import as_index
from .. import gather as _gather
from .. import tensor as te
from ..tensor import INDEX_DTYPE, Tensor, compute
from . import basic
from ._loops import axis_of as _axis

__all__ = [
    "arange",
    "argmax",
    "argmin",
    "elemwise_sum",
    "eye",
    "flip",
    "gather",
    "gather_nd",
    "meshgrid",
    "one_hot",
    "repeat",
    "reverse_sequence",
    "shape",
    "split",
    "stack",
    "tile",
    "trilu",
]


def _axes(count: int) -> list[str]:
    return [f"ax{i}" for i in range(count)]


def _index(value: Any) -> Expr:
    return as_index(value, INDEX_DTYPE.get())


# Arranging


def split(ary: Tensor, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """Parts of a tensor along an axis.

    Args:
        indices_or_sections: the number of equal parts, or the places where parts begin but the
            first.

    Raises:
        ValueError: the axis does not exist, or the number of parts does not divide its length.
    """
    at = _axis(axis, ary.ndim, "split")
    length = ary.shape[at]
    starts: list[Expr] = [_index(0)]
    if isinstance(indices_or_sections, (int, IntImm)):
        count = int(getattr(indices_or_sections, "value", indices_or_sections))
        if count > MOST_TYPE_PARTS:
            raise ValueError(f"split: {count} parts, more than {MOST_TYPE_PARTS}")
        if count < 1 or (type(length) is IntImm and length.value % count):
            size = getattr(length, "value", length)
            raise ValueError(f"split: dimension {at} is {size}, expected a multiple of {count}")
        part = simplify(length // count)
        starts += [simplify(part * k) for k in range(1, count)]
        name = "T_split_sections"
    else:
        starts += [_index(place) for place in indices_or_sections]
        name = "T_split_indices"
    ends = [*starts[1:], length]
    return [
        _part(ary, at, start, simplify(end - start), name)
        for start, end in zip(starts, ends, strict=True)
    ]


def _part(a: Tensor, at: int, start: Expr, length: Expr, name: str) -> Tensor:
    return compute(
        [*a.shape[:at], length, *a.shape[at + 1 :]],
        lambda *i: a[(*i[:at], i[at] + start, *i[at + 1 :])],
        name,
        varargs_names=_axes(a.ndim),
    )


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis."""
    at = _axis(axis, tensors[0].ndim + 1, "stack")
    for k, t in enumerate(tensors):
        if t.ndim != tensors[0].ndim:
            raise ValueError(f"stack: tensors[{k}]: expected the rank of {tensors[0]}, got {t}")
    dims = [*tensors[0].shape[:at], _index(len(tensors)), *tensors[0].shape[at:]]

    def element(*i: Expr) -> Any:
        rest = (*i[:at], *i[at + 1 :])
        value: Expr = tensors[-1][rest]
        for k in reversed(range(len(tensors) - 1)):
            value = intrinsics.if_then_else(prim.equal(i[at], k), tensors[k][rest], value)
        return value

    return compute(dims, element, "T_stack", varargs_names=_axes(len(dims)))


def flip(a: Tensor, axis: int = 0) -> Tensor:
    """The elements of an axis in reverse order."""
    at = _axis(axis, a.ndim, "flip")
    last = a.shape[at] - 1
    return compute(
        a.shape,
        lambda *i: a[(*i[:at], last - i[at], *i[at + 1 :])],
        "T_flip",
        varargs_names=_axes(a.ndim),
    )


def repeat(a: Tensor, repeats: int, axis: int | None = None) -> Tensor:
    """Every element of an axis, by default of the flat tensor, repeated."""
    if axis is None:
        count = _index(1)
        for dim in a.shape:
            count = count * dim
        a, axis = basic.reshape(a, [simplify(count)]), 0
    at, source = _axis(axis, a.ndim, "repeat"), a
    dims = [*a.shape[:at], simplify(a.shape[at] * repeats), *a.shape[at + 1 :]]
    return compute(
        dims,
        lambda *i: source[(*i[:at], prim.floordiv(i[at], max(repeats, 1)), *i[at + 1 :])],
        "T_repeat",
        varargs_names=_axes(len(dims)),
    )


def tile(a: Tensor, reps: Sequence[int]) -> Tensor:
    """The tensor repeated as a whole along each axis; missing axes in front are of length 1."""
    rank = max(a.ndim, len(reps))
    counts = [1] * (rank - len(reps)) + list(reps)
    dims = [_index(1)] * (rank - a.ndim) + list(a.shape)
    lengths = [simplify(dim * count) for dim, count in zip(dims, counts, strict=True)]

    def element(*i: Expr) -> Any:
        own = zip(i[rank - a.ndim :], a.shape, strict=True)
        return a[tuple(prim.floormod(index, dim) for index, dim in own)]

    return compute(lengths, element, "T_tile", varargs_names=_axes(rank))


def trilu(data: Tensor, k: Any, upper: bool) -> Tensor:
    """The elements on one side of a diagonal of the last two axes, and 0 elsewhere.

    Args:
        k: the diagonal: 0 is the main one, 1 the one above it.
        upper: whether the elements above are kept, the diagonal included, or those below.
    """
    if data.ndim < 2:
        raise ValueError(f"trilu: expected at least 2 dimensions, got {data.ndim}")
    zero = as_scalar(0.0 if is_float(data.dtype) else 0, data.dtype)

    def element(*i: Expr) -> Any:
        row, column = i[-2], i[-1]
        offset = prim.cast(as_scalar(k, row.dtype), row.dtype)
        edge = row + offset
        keep = edge <= column if upper else edge >= column
        return prim.select(keep, data[i], zero)

    return compute(data.shape, element, "trilu", varargs_names=[f"i{n}" for n in range(data.ndim)])


def reverse_sequence(
    a: Tensor, seq_lengths: Tensor, seq_axis: int = 1, batch_axis: int = 0
) -> Tensor:
    """The first elements of each sequence in reverse order."""
    sequence = _axis(seq_axis, a.ndim, "reverse_sequence: seq_axis")
    batch = _axis(batch_axis, a.ndim, "reverse_sequence: batch_axis")
    return _gather.reverse_sequence(a, seq_lengths, sequence, batch)


def gather(data: Tensor, axis: int, indices: Tensor) -> Tensor:
    """The elements of an axis at places that a tensor of the result's shape holds."""
    return _gather.gather_elements(data, indices, _axis(axis, data.ndim, "gather"))


def gather_nd(a: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """Slices at places that the first dimension of `indices` has the coordinates of."""
    count = getattr(indices.shape[0], "value", None) if indices.ndim else None
    if count is None or not 0 <= batch_dims <= batch_dims + count <= a.ndim:
        raise ValueError(
            f"gather_nd: expected indices whose first dimension is at most {a.ndim}, less "
            f"batch_dims, got {indices} and batch_dims {batch_dims}"
        )
    last = [*range(1, indices.ndim), 0]
    return _gather.gather_nd(a, basic.transpose(indices, last), batch_dims)


# Places


def _extreme_place(
    name: str, is_better: Callable[[Expr, Expr], Expr], worst: Callable[[str], Expr]
) -> Callable[..., Tensor]:
    def make(
        data: Tensor, axis: Any = None, keepdims: bool = False, select_last_index: bool = False
    ) -> Tensor:
        if axis is None:
            gone = list(range(data.ndim))
        else:
            axes = axis if isinstance(axis, (list, tuple)) else [axis]
            gone = sorted({_axis(a, data.ndim, name) for a in axes})

        def better(a: Any, b: Any) -> Any:
            is_first = b[0] < a[0] if select_last_index else a[0] < b[0]
            is_at_end = prim.logical_and(prim.equal(a[1], b[1]), is_first)
            keeps = is_better(a[1], b[1])
            return (
                prim.select(prim.logical_or(keeps, is_at_end), a[0], b[0]),
                prim.select(keeps, a[1], b[1]),
            )

        reducer = te.comm_reducer(
            better, lambda place, value: (as_scalar(-1, place), worst(value)), name
        )
        reduced = {a: te.reduce_axis((0, data.shape[a]), f"k{a}") for a in gone}
        kept = [_index(1) if a in reduced else d for a, d in enumerate(data.shape)]
        dims = kept if keepdims else [d for a, d in enumerate(data.shape) if a not in reduced]

        def element(*i: Expr) -> Any:
            rest = iter([x for a, x in enumerate(i) if a not in reduced] if keepdims else i)
            at = tuple(reduced[a].var if a in reduced else next(rest) for a in range(data.ndim))
            place: Expr = _index(0)
            for a in gone:
                place = place * data.shape[a] + reduced[a].var
            return reducer((simplify(place), data[at]), list(reduced.values()))

        both: Any = compute(dims, element, f"{data.name}_red_temp", varargs_names=_axes(len(dims)))
        found = both[0]
        out: Tensor = compute(
            dims, lambda *i: found[i], f"{data.name}_red", varargs_names=_axes(len(dims))
        )
        return out

    make.__name__ = name
    make.__doc__ = (
        f"The place of the {'greatest' if name == 'argmax' else 'least'} value over an axis, "
        "several, or all; of equal ones the first, or the last."
    )
    return make


argmax = _extreme_place("argmax", lambda a, b: a > b, intrinsics.min_value)
argmin = _extreme_place("argmin", lambda a, b: a < b, intrinsics.max_value)


# Making tensors


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: str = "float32") -> Tensor:
    """The numbers from `start` to before `stop`; from 0 if only one is given.

    Raises:
        ValueError: the step is 0.
    """
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueError("arange: step: expected a number other than 0, got 0")
    numbers = [getattr(x, "value", x) for x in (start, stop, step)]
    if all(isinstance(x, (int, float)) for x in numbers):
        first, last, by = numbers
        count: Any = max(0, -int(-(last - first) // by))
    else:
        low, high = _index(start), _index(stop)
        count = simplify(intrinsics.max((high - low + (step - 1)) // step, 0))

    def element(i: Expr) -> Any:
        return prim.cast(as_scalar(start), dtype) + prim.cast(i, dtype) * prim.cast(
            as_scalar(step), dtype
        )

    return compute([count], element, "T_arange", varargs_names=["ax0"])


def eye(n: int, m: int | None = None, k: int = 0, dtype: str = "float32") -> Tensor:
    """1 on a diagonal of a matrix, else 0."""
    one, zero = (as_scalar(float(x) if is_float(dtype) else x, dtype) for x in (1, 0))

    def element(i: Expr, j: Expr) -> Any:
        return prim.select(prim.equal(j, i + k), one, zero)

    return compute((n, n if m is None else m), element, "eye")


def one_hot(
    indices: Tensor, on_value: Any, off_value: Any, depth: int, axis: int, dtype: str
) -> Tensor:
    """A new axis of length `depth` with one value at the place that an index says, and another
    one elsewhere."""
    at = _axis(axis, indices.ndim + 1, "one_hot")
    dims = [*indices.shape[:at], _index(depth), *indices.shape[at:]]
    on, off = (prim.cast(as_scalar(v), dtype) for v in (on_value, off_value))

    def element(*i: Expr) -> Any:
        place = indices[(*i[:at], *i[at + 1 :])]
        return prim.select(prim.equal(place, prim.cast(i[at], place.dtype)), on, off)

    return compute(dims, element, "T_one_hot", varargs_names=_axes(len(dims)))


def shape(array: Tensor, dtype: str = "int32") -> Tensor:
    """The dimensions of a tensor as a tensor."""

    def element(i: Expr) -> Any:
        value: Expr = as_scalar(0, dtype)
        for k, dim in enumerate(array.shape):
            value = intrinsics.if_then_else(prim.equal(i, k), prim.cast(dim, dtype), value)
        return value

    return compute([_index(array.ndim)], element, "T_shape", varargs_names=["ax0"])


def elemwise_sum(xs: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of one shape."""
    for k, x in enumerate(xs):
        if x.ndim != xs[0].ndim:
            raise ValueError(f"elemwise_sum: xs[{k}]: expected the rank of {xs[0]}, got {x}")

    def element(*i: Expr) -> Any:
        total: Expr = xs[0][i]
        for x in xs[1:]:
            total = total + x[i]
        return total

    return compute(xs[0].shape, element, "T_elemwise_sum", varargs_names=_axes(xs[0].ndim))


def meshgrid(a_tuple: Sequence[Tensor], indexing: str) -> list[Tensor]:
    """Vectors repeated along the axes of a grid.

    Raises:
        ValueError: `indexing` is neither "ij" nor "xy".
    """
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid: indexing: expected 'ij' or 'xy', got {indexing!r}")
    for k, vector in enumerate(a_tuple):
        if vector.ndim != 1:
            raise ValueError(f"meshgrid: a_tuple[{k}]: expected 1 dimension, got {vector}")
    order = list(range(len(a_tuple)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    dims = [a_tuple[k].shape[0] for k in order]

    def grid(k: int) -> Tensor:
        at = order.index(k)
        return compute(
            dims, lambda *i: a_tuple[k][i[at]], "T_meshgrid", varargs_names=_axes(len(dims))
        )

    return [grid(k) for k in range(len(a_tuple))]
