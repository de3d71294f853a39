"""Gathering and scattering: elements at places that tensors of indices name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import apply, check_time, converted, copied, copy_pieces, flat, pieces
from ._arrays import assign, copy_if_overlapping
from ._kernel import kernel
from ._positions import at_coordinates, at_elements, take_pieces
from .checks import (
    FLOAT32,
    Dims,
    WrongValue,
    broadcast,
    check_out,
    float_dtype,
    native,
    result_dtype,
    working_dtype,
)
from .kinds import (
    Axis,
    Flag,
    Int,
    Integers,
    Number,
    Out,
    OutLike,
    SameType,
    Tensor,
    a_choice,
    an_int,
)

__all__: list[str] = []

_FEW: Final = 1024
"""Elements that numpy's indexing takes at once."""

Reduction: TypeAlias = Annotated[str, a_choice("update", "add", "mul", "mean", "max", "min")]


# Gathering


@kernel("gather_elements")
def gather_elements(x: Tensor, indices: Integers, axis: Axis, out: Out) -> None:
    """out = for each place of indices the element of x at this place, but with the index along an
    axis; negative indices count from the end.  indices: integers, of x's rank, and along the other
    axes not longer than x.  out: x's data type, the shape of indices.  IndexError for an index out
    of range.  Uses memory for a copy of indices; an x that is not contiguous is copied."""
    _check_beside(x, indices, axis)
    check_out(out, x.dtype, indices.shape)
    at = at_elements("gather_elements: indices", x.shape, indices, axis)
    elements = flat(copy_if_overlapping(x, out))
    for written, where in pieces(out, at):
        np.take(elements, where, out=written, mode="clip")


@kernel("gather_nd")
def gather_nd(
    x: Tensor, indices: Integers, batch_dims: Annotated[int, an_int(least=0)], out: Out
) -> None:
    """out = the elements or slices of x at coordinates, which are the rows of indices; negative
    ones count from the end.  The first batch_dims axes of x and indices are the same: the
    coordinates are for the axes after them.  out: x's data type, the shape of indices without its
    last axis, then the axes of x after those of the coordinates.  IndexError for a coordinate out
    of range.  Uses memory for a copy of indices; an x that is not contiguous is copied."""
    count = indices.shape[-1] if indices.ndim else 0
    outer, end = x.shape[:batch_dims], batch_dims + count
    if indices.ndim <= batch_dims or end > x.ndim or indices.shape[:batch_dims] != outer:
        raise WrongValue(
            f"indices: expected {batch_dims} axes in common with x {describe(x)} and coordinates "
            f"of at most {max(0, x.ndim - batch_dims)} axes, got {describe(indices)}"
        )
    places, inner = indices.shape[:-1], x.shape[end:]
    check_out(out, x.dtype, (*places, *inner))
    if not out.size:
        _coordinates("gather_nd", x.shape, indices, batch_dims)  # which have to be valid
        return
    if not batch_dims and _take_few(x, [indices[..., i] for i in range(count)], out):
        return
    at = _coordinates("gather_nd", x.shape, indices, batch_dims)
    x = copy_if_overlapping(x, out)
    rows = flat(x).reshape(math.prod(x.shape[:end]), *inner)
    take_pieces(rows, at, 0, out)


@kernel("index_tensor")
def index_tensor(x: Tensor, *indices: Integers, out: Out) -> None:
    """out = x[indices[0], indices[1], ...]: the elements or slices of x at coordinates in its first
    axes, one tensor for each, which broadcast; negative ones count from the end.  out: x's data
    type, the shape that indices broadcast to, then the other axes of x.  IndexError for an index
    out of range.  Uses memory for copies of indices; an x that is not contiguous is copied."""
    places = _broadcast_places(x, indices)
    count = len(indices)
    check_out(out, x.dtype, (*places, *x.shape[count:]))
    if _take_few(x, indices, out):
        return
    at = at_coordinates(
        "index_tensor: indices", x.shape[:count], [np.broadcast_to(i, places) for i in indices]
    )
    if out.size:
        x = copy_if_overlapping(x, out)
        rows = flat(x).reshape(math.prod(x.shape[:count]), *x.shape[count:])
        take_pieces(rows, at, 0, out)


def _take_few(x: NDArray[Any], indices: Sequence[NDArray[Any]], out: NDArray[Any]) -> bool:
    """Whether numpy's indexing was used: for a few elements it takes a tenth of the time.  An index
    out of range is left to the checks, which name it."""
    if not 0 < out.size <= _FEW or not indices:
        return False
    if any(each.dtype.kind != "i" or each.size > _FEW for each in indices):
        return False
    try:
        # Copies: numpy reads indices twice, and another thread may write them.
        out[...] = x[tuple([each.copy() for each in indices])]
    except IndexError:
        return False
    return True


def _coordinates(
    name: str, shape: Dims, indices: NDArray[Any], batch_dims: int = 0
) -> NDArray[np.int64]:
    """The positions of coordinates, which are the rows of indices, among the slices of the axes
    that they are for."""
    places, count = indices.shape[:-1], indices.shape[-1]
    lengths = shape[: batch_dims + count]
    parts: list[NDArray[Any]] = []
    for i in range(batch_dims):
        numbers = np.arange(shape[i]).reshape(-1, *(1,) * (len(places) - 1 - i))
        parts.append(np.broadcast_to(numbers, places))
    parts += [indices[..., i] for i in range(count)]
    if not parts:
        return np.zeros(places, np.int64)
    return at_coordinates(f"{name}: indices", lengths, parts)


def _check_beside(x: NDArray[Any], indices: NDArray[Any], axis: int) -> None:
    if indices.ndim != x.ndim or any(
        i != axis and length > x.shape[i] for i, length in enumerate(indices.shape)
    ):
        raise WrongValue(
            f"indices: expected the rank of x, and lengths not above those of x but for axis "
            f"{axis}, got x {describe(x)}, indices {describe(indices)}"
        )


def _broadcast_places(x: NDArray[Any], indices: tuple[NDArray[Any], ...]) -> Dims:
    """The shape that indices into the first axes of x broadcast to."""
    if len(indices) > x.ndim:
        raise WrongValue(
            f"indices: expected at most {x.ndim}, for x {describe(x)}, got {len(indices)}"
        )
    return broadcast(**{f"indices[{i}]": each for i, each in enumerate(indices)})


# Scattering


@kernel("scatter_elements")
def scatter_elements(
    x: SameType,
    indices: Integers,
    updates: SameType,
    axis: Axis,
    reduction: Reduction,
    out: OutLike,
) -> None:
    """out = x, with updates at the places of `gather_elements`; indices: the shape of updates.
    reduction: what an update does to an element: "update" replaces it, the last one if there are
    several; "add", "mul", "max" and "min" combine the two; "mean" takes the mean of the two, one
    update after the other, of floats.  Uses memory for a copy of indices; for a copy of x if out is
    not contiguous, or x has floats narrower than 32 bits."""
    _check_beside(x, indices, axis)
    if updates.shape != indices.shape:
        raise WrongValue(
            f"updates: expected the shape of indices {describe(indices)}, got {describe(updates)}"
        )
    at = at_elements("scatter_elements: indices", x.shape, indices, axis)
    _scatter(x, at.reshape(-1), updates, (), reduction, out)


@kernel("scatter_nd")
def scatter_nd(
    x: SameType, indices: Integers, updates: SameType, reduction: Reduction, out: OutLike
) -> None:
    """out = x, with updates at the places of `gather_nd` without batch_dims.  updates: the shape of
    indices without its last axis, then the axes of x after those of the coordinates.  reduction and
    memory: as of `scatter_elements`."""
    count = indices.shape[-1] if indices.ndim else x.ndim + 1
    if count > x.ndim:
        raise WrongValue(
            f"indices: expected coordinates of at most {x.ndim} axes, for x {describe(x)}, got "
            f"{describe(indices)}"
        )
    shape = (*indices.shape[:-1], *x.shape[count:])
    if updates.shape != shape:
        raise WrongValue(f"updates: expected the shape {list(shape)}, got {describe(updates)}")
    at = _coordinates("scatter_nd", x.shape, indices)
    _scatter(x, at.reshape(-1), updates, x.shape[count:], reduction, out)


@kernel("index_put")
def index_put(
    x: SameType, *indices: Integers, values: SameType, accumulate: Flag, out: OutLike
) -> None:
    """out = x, with values at the places of `index_tensor`, or added to the elements there if
    accumulate.  values broadcast to the shape of what `index_tensor` has.  Memory: as of
    `scatter_elements`."""
    places, inner = _broadcast_places(x, indices), x.shape[len(indices) :]
    shape = (*places, *inner)
    try:
        values = np.broadcast_to(values, shape)
    except ValueError:
        raise WrongValue(
            f"values: expected a shape that broadcasts to {list(shape)}, got {describe(values)}"
        ) from None
    at = at_coordinates(
        "index_put: indices",
        x.shape[: len(indices)],
        [np.broadcast_to(each, places) for each in indices],
    )
    _scatter(x, at.reshape(-1), values, inner, "add" if accumulate else "update", out)


_UFUNCS: Final[dict[str, np.ufunc]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _scatter(
    x: NDArray[Any],
    at: NDArray[np.int64],
    updates: NDArray[Any],
    inner: Dims,
    reduction: str,
    out: NDArray[Any],
) -> None:
    """out = x, with slices of shape `inner` replaced or combined with updates."""
    dtype = native(out.dtype)
    if reduction == "mean":
        float_dtype(x=x, updates=updates)
    elif reduction != "update":
        result_dtype(_UFUNCS[reduction], x=x, updates=updates)
    updates = copy_if_overlapping(updates, out)
    assign(out, x)
    size = math.prod(inner)
    if not at.size or not size:
        return
    if reduction != "update" and working_dtype(dtype) is FLOAT32:
        dtype = FLOAT32
    is_plain = out.flags.c_contiguous and out.flags.aligned and out.dtype == dtype
    if is_plain and out.dtype.isnative:
        _put(out.reshape(-1, size), at, updates, inner, reduction)
        return
    work = np.empty(out.shape, dtype)
    copy_pieces(work, out)
    _put(work.reshape(-1, size), at, updates, inner, reduction)
    copy_pieces(out, work)


_LONG: Final = 64
"""Length of a slice from which on slices are combined one by one."""

_TOGETHER: Final = 1 << 14
"""Updates whose means are taken together."""


def _put(
    rows: NDArray[Any], at: NDArray[np.int64], updates: NDArray[Any], inner: Dims, reduction: str
) -> None:
    """Replace the rows at valid positions, or combine them with updates."""
    updates = flat(updates).reshape(len(at), rows.shape[1])
    if reduction == "mean":
        _take_means(rows, at, updates)
        return
    ufunc = _UFUNCS.get(reduction)
    length = rows.shape[1]
    if ufunc is None or length >= _LONG:
        for each, where in pieces(updates, at, row=1):
            if each.ndim == 2 and ufunc is None:
                rows[where] = each
                continue
            for update, i in zip(np.atleast_2d(each), where.reshape(-1).tolist(), strict=True):
                if ufunc is None:
                    copy_pieces(rows[i], update)
                else:
                    apply(ufunc, rows[i], rows[i], update)
        return
    places = np.arange(length)
    elements = rows.reshape(-1)
    for each, where in pieces(updates, at, row=1):
        if length > 1:
            where = (where[:, None] * length + places).reshape(-1)
        ufunc.at(elements, where, each.reshape(-1))


def _take_means(
    rows: NDArray[Any], at: NDArray[np.int64], updates: NDArray[Any]
) -> None:
    """Replace rows by the means of them and updates, one after the other."""
    half = rows.dtype.type(0.5)
    step = max(1, _TOGETHER // rows.shape[1])
    for start in range(0, len(at), step):
        check_time()
        where, each = at[start : start + step], updates[start : start + step]
        # Updates of the same row are taken in rounds: in each round a row has one of them.
        order = np.argsort(where, kind="stable")
        ordered = where[order]
        begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        counts = np.diff(np.append(begins, len(order)))
        by_count = np.argsort(-counts, kind="stable")
        begins, fewest = begins[by_count], -counts[by_count]
        for done in range(-int(fewest[0])):
            chosen = order[begins[: np.searchsorted(fewest, -done)] + done]
            rows[where[chosen]] = (rows[where[chosen]] + each[chosen]) * half
            if done % 1024 == 1023:
                check_time()


@kernel("slice_scatter")
def slice_scatter(
    x: SameType,
    src: SameType,
    start: Int,
    end: Int,
    step: Annotated[int, an_int(least=1)],
    axis: Axis,
    out: OutLike,
) -> None:
    """out = x, with src in place of the slice x[start:end:step] along an axis, by the rules of
    Python's slices."""
    index = (slice(None),) * axis + (slice(start, end, step),)
    if src.shape != x[index].shape:
        raise WrongValue(
            f"src: expected the shape {list(x[index].shape)} of the slice, got {describe(src)}"
        )
    src = copy_if_overlapping(src, out)
    assign(out, x)
    copy_pieces(out[index], src)


# Parts of rows


@kernel("reverse_sequence")
def reverse_sequence(
    x: Tensor, seq_lengths: Integers, seq_axis: Axis, batch_axis: Axis, out: OutLike
) -> None:
    """out = x, with the first elements along seq_axis in reversed order: seq_lengths[i] of them for
    index i of batch_axis.  seq_lengths: a vector of that length, with numbers from 0 up to the
    length of seq_axis.  Uses memory for a copy of it."""
    if seq_axis == batch_axis:
        raise WrongValue(f"batch_axis: expected an axis other than seq_axis, got {batch_axis}")
    count, most = x.shape[batch_axis], x.shape[seq_axis]
    if seq_lengths.shape != (count,):
        raise WrongValue(f"seq_lengths: expected shape {[count]}, got {describe(seq_lengths)}")
    lengths = converted(seq_lengths, np.uint64)  # where negative numbers are large
    if lengths is seq_lengths:
        lengths = copied(lengths)
    for (part,) in pieces(lengths):
        if part.size and part.max() > most:
            raise WrongValue(
                f"seq_lengths: expected numbers from 0 to {most}, got "
                f"{seq_lengths.reshape(-1)[int(np.argmax(lengths > most))]}"
            )
    x = copy_if_overlapping(x, out)
    order = (batch_axis, seq_axis, *[i for i in range(x.ndim) if i not in (batch_axis, seq_axis)])
    batches = zip(x.transpose(order), out.transpose(order), strict=True)
    for i, (read, written) in enumerate(batches):
        if i % 1024 == 1023:
            check_time()
        length = int(lengths[i])
        copy_pieces(written[:length], read[:length][::-1])
        copy_pieces(written[length:], read[length:])


@kernel("one_hot")
def one_hot(
    indices: Integers,
    on_value: Number,
    off_value: Number,
    depth: Annotated[int, an_int(least=0)],
    axis: Int,
    out: Out,
) -> None:
    """out = on_value where the place along a new axis of length depth is the index, off_value
    elsewhere, also for an index out of range.  axis: of out, which may have any data type.  Uses
    memory for the numbers below depth."""
    ndim = indices.ndim + 1
    if not -ndim <= axis < ndim:
        raise WrongValue(f"axis: expected an axis of a tensor of rank {ndim}, got {axis}")
    axis %= ndim
    check_out(out, out.dtype, (*indices.shape[:axis], depth, *indices.shape[axis:]))
    try:
        values = np.array([off_value, on_value]).astype(out.dtype)
    except OverflowError:
        raise WrongValue(
            f"expected numbers within {out.dtype}, got on_value {on_value} and "
            f"off_value {off_value}"
        ) from None
    indices = copy_if_overlapping(indices, out)
    places = np.arange(depth).reshape(-1, *(1,) * (ndim - 1 - axis))
    wide = np.broadcast_to(np.expand_dims(indices, axis), out.shape)
    for written, index, place in pieces(out, wide, np.broadcast_to(places, out.shape)):
        written[...] = values[(index == place).view(np.uint8)]


# Triangles


@kernel("tril")
def tril(x: Tensor, k: Int, out: OutLike) -> None:
    """out = x, with zeros above diagonal k of its matrices, which are the last two axes.  Diagonal
    0 is the main one, k > 0 is above it.  Uses memory for the numbers of rows and columns."""
    _triangle(x, k, out, np.less_equal)


@kernel("triu")
def triu(x: Tensor, k: Int, out: OutLike) -> None:
    """out = x, with zeros below diagonal k of its matrices; otherwise as `tril`."""
    _triangle(x, k, out, np.greater_equal)


def _triangle(
    x: NDArray[Any], k: int, out: NDArray[Any], keeps: Callable[..., Any]
) -> None:
    if x.ndim < 2:
        raise WrongValue(f"x: expected a tensor of rank 2 or more, got {describe(x)}")
    rows, columns = x.shape[-2:]
    k = max(-rows, min(k, columns))  # beyond, all diagonals are alike
    lines = np.broadcast_to(np.arange(k, rows + k)[:, None], x.shape)
    places = np.broadcast_to(np.arange(columns), x.shape)
    assign(out, x)
    zero = np.zeros((), out.dtype)
    for written, line, place in pieces(out, lines, places):
        np.copyto(written, zero, where=~keeps(place, line))
