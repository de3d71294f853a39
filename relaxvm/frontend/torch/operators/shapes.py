"""Shapes and views: the same elements in another shape or order, and parts of tensors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ....dtypes import as_dtype
from ....ir import ShapeType, Var, prim
from ....op.index import slice_of
from ....op.registry import CONSTRUCTORS
from ...common.emitter import Emitter, Problem
from ...common.values import as_expr
from ..checked import index_within
from ..forms import (
    Tensor,
    axis_of,
    broadcast_dims,
    cast,
    constant_of,
    dims_of,
    dtype_of,
    each_of,
    is_float,
    known,
    length,
    number,
    numel,
    promoted_dtype,
    rank_of,
    reshaped,
    same_dim,
    sliced,
)
from ..registry import aten

__all__ = ["expand", "moved", "permuted", "select", "slice_", "stack", "swapped", "unsqueeze"]


def permuted(c: Emitter, x: Tensor, order: Sequence[int]) -> Tensor:
    """x with its axes in another order."""
    order = list(order)
    return x if order == list(range(len(order))) else c.op("permute_dims", x, order)


def moved(c: Emitter, x: Tensor, source: int, target: int) -> Tensor:
    """x with an axis at another place."""
    order = [i for i in range(rank_of(x)) if i != source]
    order.insert(target, source)
    return permuted(c, x, order)


def swapped(c: Emitter, x: Tensor, a: int, b: int) -> Tensor:
    """x with two axes swapped."""
    order = list(range(rank_of(x)))
    order[a], order[b] = order[b], order[a]
    return permuted(c, x, order)


# The same elements


def _as_before(c: Emitter, self: Tensor, new: Tensor, **arguments: Any) -> Tensor:
    return reshaped(c, cast(c, new, dtype_of(self)), dims_of(self))


def view_back(
    c: Emitter, self: Tensor, new: Tensor, size: Any, stride: Any = None
) -> Tensor:
    return _as_before(c, self, new)


@aten("view", "_unsafe_view", "_reshape_alias", "view_copy", back=view_back)
def view(c: Emitter, self: Tensor, size: Any, stride: Any = None) -> Tensor:
    """R.reshape."""
    return reshaped(c, self, size)


def bits_back(c: Emitter, self: Tensor, new: Tensor, dtype: str) -> Tensor:
    return bits(c, new, dtype_of(self))


@aten("view.dtype", "view_copy.dtype", back=bits_back)
def bits(c: Emitter, self: Tensor, dtype: str) -> Tensor:
    """R.memory.view: the bytes of the elements as elements of another data type."""
    if dtype == "bool" != dtype_of(self):
        return cast(c, bits(c, self, "uint8"), dtype)
    old, new = as_dtype(dtype_of(self)).itemsize, as_dtype(dtype).itemsize
    if old == new:
        return c.op("memory.view", self, None, dtype)
    *rest, last = dims_of(self)
    return c.op("memory.view", self, [*rest, length(last * old // new)], dtype)


@aten("reshape", back=lambda c, self, new, shape: _as_before(c, self, new))
def reshape(c: Emitter, self: Tensor, shape: Any) -> Tensor:
    """R.reshape."""
    return reshaped(c, self, shape)


@aten("ravel", back=lambda c, self, new: _as_before(c, self, new))
def ravel(c: Emitter, self: Tensor) -> Tensor:
    """R.reshape to a vector."""
    return reshaped(c, self, [-1])


def same_back(c: Emitter, self: Tensor, new: Tensor, **arguments: Any) -> Tensor:
    return new


@aten("alias", "detach", "lift_fresh", "lift", "positive", "conj", "_conj", "resolve_conj",
      "resolve_neg", "contiguous", "real", back=same_back)  # fmt: skip
def same(c: Emitter, self: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor itself."""
    return self


@aten("clone", "lift_fresh_copy", "alias_copy", "detach_copy")
def clone(c: Emitter, self: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor itself: what is written to it makes a new one."""
    return self


@aten("prims::copy_strided")
def copy_strided(c: Emitter, a: Tensor, stride: Any) -> Tensor:
    """The tensor itself: strides are not kept."""
    return a


@aten("view_as", "reshape_as", back=lambda c, self, new, other: _as_before(c, self, new))
def view_as(c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """R.reshape to the shape of another tensor."""
    return reshaped(c, self, dims_of(other))


@aten("flatten.using_ints",
      back=lambda c, self, new, start_dim=0, end_dim=-1: _as_before(c, self, new))  # fmt: skip
def flatten(c: Emitter, self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """R.reshape, with several axes as one."""
    dims = dims_of(self)
    if not dims:
        return reshaped(c, self, [1])
    first, last = axis_of(self, start_dim), axis_of(self, end_dim)
    return reshaped(c, self, [*dims[:first], numel(dims[first : last + 1]), *dims[last + 1 :]])


@aten("unflatten.int", back=lambda c, self, new, dim, sizes: _as_before(c, self, new))
def unflatten(c: Emitter, self: Tensor, dim: int, sizes: Any) -> Tensor:
    """R.reshape, with an axis as several."""
    dims, axis = dims_of(self), axis_of(self, dim)
    sizes = [length(each) for each in sizes]
    if -1 in [each for each in sizes if isinstance(each, int)]:
        at = sizes.index(-1)
        rest = numel(sizes[:at] + sizes[at + 1 :])
        sizes[at] = length(dims[axis] // rest)
    return reshaped(c, self, [*dims[:axis], *sizes, *dims[axis + 1 :]])


@aten("unsqueeze", "unsqueeze_copy", back=lambda c, self, new, dim: _as_before(c, self, new))
def unsqueeze(c: Emitter, self: Tensor, dim: int) -> Tensor:
    """R.expand_dims."""
    dims = dims_of(self)
    dims.insert(axis_of(len(dims) + 1, dim), 1)
    return reshaped(c, self, dims)


@aten("squeeze", "squeeze.dim", "squeeze.dims", "squeeze_copy", "squeeze_copy.dim",
      "squeeze_copy.dims",
      back=lambda c, self, new, dim=None: _as_before(c, self, new))  # fmt: skip
def squeeze(c: Emitter, self: Tensor, dim: Any = None) -> Tensor:
    """R.squeeze of the axes of length 1."""
    dims = dims_of(self)
    places = range(len(dims)) if dim is None else [
        axis_of(self, each) for each in (dim if isinstance(dim, (list, tuple)) else [dim])
    ]  # fmt: skip
    kept = [d for i, d in enumerate(dims) if i not in places or not same_dim(d, 1)]
    return reshaped(c, self, kept)


def atleast_each_back(name: str, c: Emitter, tensors: Any, new: Tensor, part: int = 0) -> Tensor:
    return _as_before(c, tensors[part], new)


@each_of("atleast_1d.Sequence", "atleast_2d.Sequence", "atleast_3d.Sequence",
         back=atleast_each_back)  # fmt: skip
def atleast_each(name: str, c: Emitter, tensors: Any) -> Any:
    """The tensors with axes of length 1, so that each has 1, 2 or 3."""
    return [atleast(name, c, each) for each in tensors]


def atleast_back(name: str, c: Emitter, self: Tensor, new: Tensor) -> Tensor:
    return _as_before(c, self, new)


@each_of("atleast_1d", "atleast_2d", "atleast_3d", back=atleast_back)
def atleast(name: str, c: Emitter, self: Tensor) -> Tensor:
    """The tensor with axes of length 1, so that it has 1, 2 or 3."""
    dims, count = dims_of(self), int(name[-2])
    if count == 3 and len(dims) in (1, 2):
        return reshaped(c, self, [1, *dims, 1] if len(dims) == 1 else [*dims, 1])
    return reshaped(c, self, [*[1] * max(count - len(dims), 0), *dims])


def permute_back(c: Emitter, self: Tensor, new: Tensor, dims: Any) -> Tensor:
    order = [axis_of(self, each) for each in dims]
    return permuted(c, new, [order.index(i) for i in range(len(order))])


@aten("permute", "permute_copy", back=permute_back)
def permute(c: Emitter, self: Tensor, dims: Any) -> Tensor:
    """R.permute_dims."""
    return permuted(c, self, [axis_of(self, each) for each in dims])


def transpose_back(c: Emitter, self: Tensor, new: Tensor, **axes: int) -> Tensor:
    return transpose(c, new, **axes)


@aten("transpose.int", "swapaxes", "swapdims", "transpose_copy.int", back=transpose_back)
def transpose(
    c: Emitter, self: Tensor, dim0: int = 0, dim1: int = 1, axis0: Any = None, axis1: Any = None
) -> Tensor:
    """R.permute_dims of two axes."""
    dim0, dim1 = (dim0 if axis0 is None else axis0), (dim1 if axis1 is None else axis1)
    if rank_of(self) < 2:
        return self
    return swapped(c, self, axis_of(self, dim0), axis_of(self, dim1))


def t_back(c: Emitter, self: Tensor, new: Tensor) -> Tensor:
    return permuted(c, new, list(range(rank_of(self)))[::-1])


@aten("t", "numpy_T", "t_copy", back=t_back)
def t(c: Emitter, self: Tensor) -> Tensor:
    """R.permute_dims in reversed order."""
    return permuted(c, self, list(range(rank_of(self)))[::-1])


def matrix_transpose_back(c: Emitter, self: Tensor, new: Tensor) -> Tensor:
    return swapped(c, new, rank_of(self) - 2, rank_of(self) - 1)


@aten("mT", "mH", "adjoint", "matrix_H", back=matrix_transpose_back)
def matrix_transpose(c: Emitter, self: Tensor) -> Tensor:
    """R.permute_dims of the last two axes."""
    rank = rank_of(self)
    return swapped(c, self, rank - 2, rank - 1)


def movedim_back(c: Emitter, self: Tensor, new: Tensor, source: Any, destination: Any) -> Tensor:
    return movedim(c, new, destination, source)


@aten("movedim.intlist", "movedim.int", "moveaxis.intlist", "moveaxis.int", back=movedim_back)
def movedim(c: Emitter, self: Tensor, source: Any, destination: Any) -> Tensor:
    """R.permute_dims of some axes."""
    sources = source if isinstance(source, (list, tuple)) else [source]
    targets = destination if isinstance(destination, (list, tuple)) else [destination]
    if not rank_of(self):
        return self
    both = {axis_of(self, b): axis_of(self, a) for a, b in zip(sources, targets, strict=True)}
    rest = iter([i for i in range(rank_of(self)) if i not in both.values()])
    return permuted(c, self, [both[i] if i in both else next(rest) for i in range(rank_of(self))])


# Repeated elements


def expand_back(c: Emitter, self: Tensor, new: Tensor, size: Any, implicit: bool = False) -> Tensor:
    """Of the repetitions of an element the one that was written to, else the element itself."""
    dims, after = dims_of(self), dims_of(new)
    added = len(after) - len(dims)
    repeated = [
        i for i, dim in enumerate(after)
        if not same_dim(dim, 1) and (i < added or same_dim(dims[i - added], 1))
    ]  # fmt: skip
    if not repeated:
        return reshaped(c, new, dims)
    kept = [i for i in range(len(after)) if i not in repeated]
    shape = [*[after[i] for i in kept], -1]
    old, new = [
        reshaped(c, permuted(c, x, kept + repeated), shape)
        for x in (expand(c, self, after), new)
    ]
    changed = cast(c, c.op("not_equal", _as_bits(c, new), _as_bits(c, old)), "int8")
    first = c.op("argmax", changed, len(kept), True)
    return reshaped(c, c.op("gather_elements", new, first, len(kept)), dims)


def _as_bits(c: Emitter, x: Tensor) -> Tensor:
    """The elements of a tensor as integers, where equal ones have the same bits."""
    dtype = dtype_of(x)
    return bits(c, x, f"int{8 * as_dtype(dtype).itemsize}") if is_float(dtype) else x


@aten("expand", "expand_copy", back=expand_back)
def expand(c: Emitter, self: Tensor, size: Any, implicit: bool = False) -> Tensor:
    """R.broadcast_to."""
    old = dims_of(self)
    new = [length(each) for each in size]
    for i, dim in enumerate(old, len(new) - len(old)):
        if isinstance(new[i], int) and new[i] == -1:
            new[i] = dim
    if len(old) == len(new) and all(map(same_dim, old, new)):
        return self
    return c.op("broadcast_to", self, new)


@aten("expand_as", back=lambda c, self, new, other: expand_back(c, self, new, None))
def expand_as(c: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """R.broadcast_to the shape of another tensor."""
    return expand(c, self, dims_of(other))


@aten("broadcast_to", back=expand_back)
def broadcast_to(c: Emitter, self: Tensor, size: Any) -> Tensor:
    """R.broadcast_to."""
    return expand(c, self, size)


def broadcast_tensors_back(c: Emitter, tensors: Any, new: Tensor, part: int = 0) -> Tensor:
    return expand_back(c, tensors[part], new, None)


@aten("broadcast_tensors", back=broadcast_tensors_back)
def broadcast_tensors(c: Emitter, tensors: Any) -> Any:
    """R.broadcast_to a common shape."""
    dims = broadcast_dims(*map(dims_of, tensors))
    return [expand(c, each, dims) for each in tensors]


def meshgrid_back(
    c: Emitter, tensors: Any, new: Tensor, indexing: str = "ij", part: int = 0
) -> Tensor:
    vector, count = tensors[part], len(tensors)
    wide = swapped(c, new, 0, 1) if indexing == "xy" and count > 1 else new
    shape: list[Any] = [1] * count
    shape[part] = numel(dims_of(vector))
    return _as_before(c, vector, expand_back(c, reshaped(c, vector, shape), wide, None))


@aten("meshgrid", "meshgrid.indexing", back=meshgrid_back)
def meshgrid(c: Emitter, tensors: Any, indexing: str = "ij") -> Any:
    """For each vector a tensor that varies along its own axis."""
    count = len(tensors)
    vectors = [reshaped(c, each, [-1]) for each in tensors]
    dims = [dims_of(each)[0] for each in vectors]
    found = []
    for i, each in enumerate(vectors):
        shape: list[Any] = [1] * count
        shape[i] = dims[i]
        wide = expand(c, reshaped(c, each, shape), dims)
        found.append(swapped(c, wide, 0, 1) if indexing == "xy" and count > 1 else wide)
    return found


@aten("repeat")
def repeat(c: Emitter, self: Tensor, repeats: Any) -> Tensor:
    """R.tile."""
    return _tiled(c, self, [length(each) for each in repeats])


@aten("tile")
def tile(c: Emitter, self: Tensor, dims: Any) -> Tensor:
    """R.tile."""
    times = [length(each) for each in dims]
    return _tiled(c, self, [*[1] * (rank_of(self) - len(times)), *times])


def _tiled(c: Emitter, x: Tensor, times: list[Any]) -> Tensor:
    dims = dims_of(x)
    dims = [*[1] * (len(times) - len(dims)), *dims]
    x = reshaped(c, x, dims)
    if all(isinstance(each, int) and each == 1 for each in times):
        return x
    # Each axis becomes two: how often, and what is repeated.
    pairs = list(itertools.chain.from_iterable((1, dim) for dim in dims))
    wide = list(itertools.chain.from_iterable(zip(times, dims, strict=True)))
    both = expand(c, reshaped(c, x, pairs), wide)
    return reshaped(c, both, [length(a * b) for a, b in zip(times, dims, strict=True)])


@aten("repeat_interleave.self_int")
def repeat_interleave(
    c: Emitter, self: Tensor, repeats: Any, dim: int | None = None, output_size: Any = None
) -> Tensor:
    """R.repeat: each slice along an axis several times."""
    x, axis = (reshaped(c, self, [-1]), 0) if dim is None else (self, axis_of(self, dim))
    dims = dims_of(x)
    if not dims:
        x, dims = reshaped(c, x, [1]), [1]
    wide = reshaped(c, x, [*dims[: axis + 1], 1, *dims[axis + 1 :]])
    both = expand(c, wide, [*dims[: axis + 1], repeats, *dims[axis + 1 :]])
    return reshaped(c, both, [*dims[:axis], length(dims[axis] * repeats), *dims[axis + 1 :]])


@aten("repeat_interleave.self_Tensor")
def repeat_interleave_each(
    c: Emitter, self: Tensor, repeats: Tensor, dim: int | None = None, output_size: Any = None
) -> Tensor:
    """Each slice along an axis as often as a vector says."""
    x, axis = (reshaped(c, self, [-1]), 0) if dim is None else (self, axis_of(self, dim))
    return c.op("take", x, _interleaved(c, repeats, dims_of(x)[axis], output_size), axis)


@aten("repeat_interleave.Tensor")
def repeat_interleave_indices(c: Emitter, repeats: Tensor, output_size: Any = None) -> Tensor:
    """0 and so on, each as often as a vector says."""
    return _interleaved(c, repeats, dims_of(repeats)[0], output_size)


def counted(c: Emitter, total: Tensor) -> Any:
    """The element of a tensor without axes, int64, as a dimension."""
    known = constant_of(total)
    if known is not None:
        return int(known)
    symbol = Var("count", "int64")
    one = c.expr(reshaped(c, total, [1]))
    shape = c.emit(CONSTRUCTORS["tensor_to_shape"](one), "shape")
    c.context.builder.match_cast(shape, ShapeType([symbol]))
    return symbol


def _interleaved(c: Emitter, repeats: Tensor, count: Any, output_size: Any) -> Tensor:
    repeats = cast(c, repeats, "int64")
    repeats = index_within(c, repeats, None, "repeat_interleave: repeats")
    times = constant_of(repeats)
    if times is not None and isinstance(count, int):
        return c.expr(np.repeat(np.arange(count), times))
    size = output_size
    ends = c.op("cumsum", expand(c, repeats, [count]), 0)
    if size is None:
        last = c.op("max", ends, [0], False) if not isinstance(count, int) or count else None
        total = number(c, 0, "int64") if last is None else last
        size = counted(c, total)
    places = c.op("arange", 0, size, 1, "int64")
    return c.op("bucketize", places, ends, False, True)


# Parts


def _bound(value: Any, size: Any, default: Any) -> Any:
    """A bound of a slice, within 0 and the length of the axis."""
    if value is None:
        return default
    value = length(value)
    if isinstance(value, int) and isinstance(size, int):
        return min(max(value + size if value < 0 else value, 0), size)
    if isinstance(value, int) and value >= (1 << 62):
        return size
    if isinstance(value, int) and value < 0:
        return length(prim.maximum(size + value, 0))
    if isinstance(value, int) and value == 0:
        return 0
    return value


def slice_back(
    c: Emitter, self: Tensor, new: Tensor, dim: int = 0, start: Any = None, end: Any = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    return slice_scatter(c, self, new, dim, start, end, step)


@aten("slice.Tensor", "slice_copy.Tensor", back=slice_back)
def slice_(
    c: Emitter, self: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """R.strided_slice."""
    axis = axis_of(self, dim)
    size = dims_of(self)[axis]
    first, last = _bound(start, size, 0), _bound(end, size, size)
    if isinstance(first, int) and isinstance(last, int):
        last = max(first, last)
    return sliced(c, self, axis, first, last, step)


def select_back(c: Emitter, self: Tensor, new: Tensor, dim: int, index: Any) -> Tensor:
    return select_scatter(c, self, new, dim, index)


@aten("select.int", "select_copy.int", back=select_back)
def select(c: Emitter, self: Tensor, dim: int, index: Any) -> Tensor:
    """R.strided_slice of one slice, without its axis."""
    axis = axis_of(self, dim)
    dims = dims_of(self)
    at = length(index)
    if isinstance(at, int):
        at = at if at >= 0 else length(dims[axis] + at)
        part = c.op("strided_slice", self, [axis], [at], [length(at + 1)], [1])
        return reshaped(c, part, [*dims[:axis], *dims[axis + 1 :]])
    return c.op("take", self, number(c, at, "int64"), axis)


def narrow_back(c: Emitter, self: Tensor, new: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    start = _start(c, self, dim, start)
    return slice_scatter(c, self, new, dim, start, start + length)


def _start(c: Emitter, x: Tensor, dim: int, start: Any) -> Any:
    start = length(start)
    if isinstance(start, int) and start < 0:
        return length(dims_of(x)[axis_of(x, dim)] + start)
    return start


@aten("narrow", "narrow_copy", back=narrow_back)
def narrow(c: Emitter, self: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    """R.strided_slice of a number of slices."""
    start = _start(c, self, dim, start)
    return sliced(c, self, axis_of(self, dim), start, start + length)


@aten("select_scatter")
def select_scatter(c: Emitter, self: Tensor, src: Tensor, dim: int, index: Any) -> Tensor:
    """A tensor with another slice at an index."""
    axis = axis_of(self, dim)
    at = length(index)
    if isinstance(at, int) and at < 0:
        at = length(dims_of(self)[axis] + at)
    wide = unsqueeze(c, cast(c, src, dtype_of(self)), axis)
    return slice_scatter(c, self, wide, axis, at, length(at + 1))


@aten("slice_scatter")
def slice_scatter(
    c: Emitter, self: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    """R.slice_scatter."""
    axis = axis_of(self, dim)
    dims = dims_of(self)
    size = dims[axis]
    first, last = _bound(start, size, 0), _bound(end, size, size)
    src = cast(c, src, dtype_of(self))
    if isinstance(first, int) and first == 0 and step == 1 and same_dim(last, size):
        return expand(c, src, dims)
    if not (isinstance(first, int) and isinstance(last, int)):
        return _with_part(c, self, src, axis, *_within(size, first, last, step), step)
    part = list(dims)
    part[axis] = max(-(-(last - first) // step), 0)
    if not part[axis]:
        return self
    return c.op("slice_scatter", self, expand(c, src, part), first, last, step, axis)


def _within(size: Any, start: Any, end: Any, step: int) -> tuple[Any, Any]:
    """Where a slice of an axis begins, and how many elements it has, by Python's rules."""
    first, count = slice_of(as_expr(size), as_expr(start), as_expr(end), step, False)
    return length(first), length(count)


def _with_part(
    c: Emitter, x: Tensor, new: Tensor, axis: int, first: Any, count: Any, step: int = 1
) -> Tensor:
    """x with `count` new slices from `first`, which lie within it."""
    dims = dims_of(x)
    part = list(dims)
    part[axis] = count
    new = expand(c, cast(c, new, dtype_of(x)), part)
    last = length(first + count * step)
    if step == 1:
        before = sliced(c, x, axis, 0, first, is_within=True)
        after = sliced(c, x, axis, last, dims[axis], is_within=True)
        return c.op("concat", [c.expr(before), c.expr(new), c.expr(after)], axis)
    shape = [1] * len(dims)
    shape[axis] = count
    places = reshaped(c, c.op("arange", first, last, step, "int64"), shape)
    return c.op("scatter_elements", x, expand(c, places, part), new, axis)


def _parts(c: Emitter, x: Tensor, axis: int, sizes: Sequence[Any]) -> list[Tensor]:
    found = []
    start: Any = 0
    for size in sizes:
        end = length(start + size)
        found.append(sliced(c, x, axis, start, end))
        start = end
    return found


def _part_back(
    c: Emitter, self: Tensor, new: Tensor, axis: int, sizes: Sequence[Any], part: int
) -> Tensor:
    """The whole, with another part."""
    start: Any = 0
    for size in sizes[:part]:
        start = start + size
    return slice_scatter(c, self, new, axis, length(start), length(start + sizes[part]))


def _equal_part_back(
    c: Emitter, self: Tensor, new: Tensor, axis: int, size: Any, part: int
) -> Tensor:
    """The whole, with another part: all parts but the last one are equally long."""
    start, whole = size * part, dims_of(self)[axis]
    start, end = [length(prim.minimum(each, whole)) for each in (start, start + size)]
    return _with_part(c, self, new, axis, start, length(end - start))


def split_back(
    c: Emitter, self: Tensor, new: Tensor, split_size: Any, dim: int = 0, part: int = 0
) -> Tensor:
    axis = axis_of(self, dim)
    return _equal_part_back(c, self, new, axis, length(split_size), part)


def split_sizes_back(
    c: Emitter, self: Tensor, new: Tensor, split_sizes: Any = None, dim: int = 0,
    split_size: Any = None, part: int = 0,
) -> Tensor:  # fmt: skip
    sizes = split_size if split_sizes is None else split_sizes
    return _part_back(c, self, new, axis_of(self, dim), sizes, part)


def chunk_back(
    c: Emitter, self: Tensor, new: Tensor, chunks: int, dim: int = 0, part: int = 0
) -> Tensor:
    axis = axis_of(self, dim)
    size = length((dims_of(self)[axis] + (chunks - 1)) // chunks)
    return _equal_part_back(c, self, new, axis, size, part)


def unbind_back(
    c: Emitter, self: Tensor, new: Tensor, dim: int = 0, part: int = 0
) -> Tensor:
    return select_scatter(c, self, new, dim, part)


def _chunk_sizes(size: int, part: int) -> list[Any]:
    if part == 0:
        return [0]
    return [min(part, size - start) for start in range(0, size, part)] or [0]


@aten("split.Tensor", "unsafe_split.Tensor", "split_copy.Tensor", back=split_back)
def split(c: Emitter, self: Tensor, split_size: Any, dim: int = 0) -> Any:
    """R.strided_slice of parts of equal size."""
    axis = axis_of(self, dim)
    size, part = dims_of(self)[axis], length(split_size)
    if same_dim(size, part):
        return [self]
    if isinstance(size, int) and isinstance(part, int):
        return _parts(c, self, axis, _chunk_sizes(size, part))
    count = _count_of_results(c)  # for which the program was exported
    return _parts(c, self, axis, [*[part] * (count - 1), length(size - part * (count - 1))])


def _count_of_results(c: Any) -> int:
    """How many tensors the graph takes from the current node."""
    return len(c.node.outputs[0].value)


@aten("split_with_sizes", "split.sizes", "split_with_sizes_copy", "unsafe_split_with_sizes",
      back=split_sizes_back)  # fmt: skip
def split_with_sizes(
    c: Emitter, self: Tensor, split_sizes: Any = None, dim: int = 0, split_size: Any = None
) -> Any:
    """R.strided_slice of parts."""
    sizes = split_size if split_sizes is None else split_sizes
    return _parts(c, self, axis_of(self, dim), [length(each) for each in sizes])


@aten("chunk", "unsafe_chunk", back=chunk_back)
def chunk(c: Emitter, self: Tensor, chunks: int, dim: int = 0) -> Any:
    """R.strided_slice of a number of parts."""
    axis = axis_of(self, dim)
    size = dims_of(self)[axis]
    if not isinstance(size, int):
        part = length((size + (chunks - 1)) // chunks)
        ends = [prim.minimum(part * (i + 1), size) if i + 1 < chunks else size
                for i in range(chunks)]  # fmt: skip
        starts = [0, *ends[:-1]]
        return [sliced(c, self, axis, a, b, is_within=True)
                for a, b in zip(starts, ends, strict=True)]  # fmt: skip
    return _parts(c, self, axis, _chunk_sizes(size, -(-size // chunks)))


_SPLIT_AXES = {"hsplit": 1, "vsplit": 0, "dsplit": 2, "tensor_split": 0}


_Ranges: TypeAlias = list[tuple[Any, Any]]
"""Where parts begin and end."""


def _sections(size: Any, count: int) -> _Ranges:
    """Parts whose sizes differ by one at most."""
    lengths = [length((size + (count - 1 - i)) // count) for i in range(count - 1)]
    bounds = [0, *[length(each) for each in itertools.accumulate(lengths)], size]
    return [*itertools.pairwise(bounds)]


def _between(size: Any, indices: Any) -> _Ranges:
    """Parts between indices; one that ends before it begins is empty."""
    bounds = [0, *[length(each) for each in indices], size]
    found = [_within(size, a, b, 1) for a, b in itertools.pairwise(bounds)]
    return [(first, length(first + count)) for first, count in found]


def _slices(c: Any, x: Tensor, axis: int, ranges: _Ranges) -> list[Tensor]:
    c.ranges = [(axis, start, end, 1) for start, end in ranges]
    return [sliced(c, x, axis, start, end, is_within=True) for start, end in ranges]


def _slice_back(
    c: Emitter, x: Tensor, new: Tensor, axis: int, bounds: tuple[Any, Any]
) -> Tensor:
    start, end = bounds
    return _with_part(c, x, new, axis, start, length(end - start))


def tensor_split_back(
    name: str, c: Emitter, self: Tensor, new: Tensor, sections: int, dim: int | None = None,
    part: int = 0,
) -> Tensor:  # fmt: skip
    axis = _split_axis(name, self, dim)
    return _slice_back(c, self, new, axis, _sections(dims_of(self)[axis], sections)[part])


@each_of("tensor_split.sections", "hsplit.int", "vsplit.int", "dsplit.int", back=tensor_split_back)
def tensor_split(
    name: str, c: Emitter, self: Tensor, sections: int, dim: int | None = None
) -> Any:
    """R.strided_slice of a number of parts whose sizes differ by one at most."""
    axis = _split_axis(name, self, dim)
    return _slices(c, self, axis, _sections(dims_of(self)[axis], sections))


def tensor_split_at_back(
    name: str, c: Emitter, self: Tensor, new: Tensor, indices: Any, dim: int | None = None,
    part: int = 0,
) -> Tensor:  # fmt: skip
    axis = _split_axis(name, self, dim)
    return _slice_back(c, self, new, axis, _between(dims_of(self)[axis], indices)[part])


@each_of("tensor_split.indices", "hsplit.array", "vsplit.array", "dsplit.array",
         back=tensor_split_at_back)  # fmt: skip
def tensor_split_at(
    name: str, c: Emitter, self: Tensor, indices: Any, dim: int | None = None
) -> Any:
    """R.strided_slice of the parts between indices."""
    axis = _split_axis(name, self, dim)
    return _slices(c, self, axis, _between(dims_of(self)[axis], indices))


def _split_ranges(c: Emitter, x: Tensor, axis: int, indices_or_sections: Tensor) -> _Ranges:
    """Parts as a tensor says."""
    size = dims_of(x)[axis]
    given = constant_of(indices_or_sections)
    if given is not None:
        return _between(size, given.tolist()) if given.ndim else _sections(size, int(given))
    if rank_of(indices_or_sections) == 0:
        raise Problem("tensor_split: expected a constant number of parts, got a tensor")
    whole, none = number(c, size, "int64"), number(c, 0, "int64")
    places = cast(c, indices_or_sections, "int64")
    places = c.op("where", c.op("less", places, none), c.op("add", places, whole), places)
    places = c.op("minimum", c.op("maximum", places, none), whole)
    count = known(dims_of(places)[0], "tensor_split")
    before: Tensor = none
    ranges = []
    for i in range(count):  # a part that ends before it begins is empty
        end = c.op("take", places, number(c, i, "int64"), 0)
        ranges.append((counted(c, before), counted(c, c.op("maximum", before, end))))
        before = end
    return [*ranges, (counted(c, before), size)]


def tensor_split_by_back(
    c: Emitter, self: Tensor, new: Tensor, tensor_indices_or_sections: Tensor, dim: int = 0,
    part: int = 0,
) -> Tensor:  # fmt: skip
    axis = axis_of(self, dim)
    ranges = _split_ranges(c, self, axis, tensor_indices_or_sections)
    return _slice_back(c, self, new, axis, ranges[part])


@aten("tensor_split.tensor_indices_or_sections", back=tensor_split_by_back)
def tensor_split_by(
    c: Emitter, self: Tensor, tensor_indices_or_sections: Tensor, dim: int = 0
) -> Any:
    """R.strided_slice of a constant number of parts, or of the parts between indices."""
    axis = axis_of(self, dim)
    return _slices(c, self, axis, _split_ranges(c, self, axis, tensor_indices_or_sections))


def _split_axis(name: str, x: Tensor, dim: int | None) -> int:
    if name == "hsplit" and rank_of(x) == 1:
        return 0
    return axis_of(x, _SPLIT_AXES[name] if dim is None else dim)


@aten("unbind.int", "unbind_copy.int", back=unbind_back)
def unbind(c: Emitter, self: Tensor, dim: int = 0) -> Any:
    """The slices along an axis, without it."""
    size = known(dims_of(self)[axis_of(self, dim)], "unbind")
    return [select(c, self, dim, i) for i in range(size)]


def diagonal_back(
    c: Emitter, self: Tensor, new: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    return diagonal_scatter(c, self, new, offset, dim1, dim2)


def _diagonal_places(c: Emitter, x: Tensor, offset: int, dim1: int, dim2: int) -> Any:
    """x with the two axes last and flat, the places of the diagonal on them, and the axes."""
    a, b = axis_of(x, dim1), axis_of(x, dim2)
    rest = [i for i in range(rank_of(x)) if i not in (a, b)]
    order = [*rest, a, b]
    dims = dims_of(x)
    rows, columns = dims[a], dims[b]
    flat = reshaped(c, permuted(c, x, order), [*[dims[i] for i in rest], length(rows * columns)])
    if isinstance(rows, int) and isinstance(columns, int):
        count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
        start = -offset * columns if offset < 0 else offset
        return flat, c.expr(start + np.arange(count) * (columns + 1)), order
    count = rows
    if offset or not same_dim(rows, columns):
        left = rows + min(offset, 0), columns - max(offset, 0)
        count = length(prim.maximum(prim.minimum(*left), 0))
    places = c.op("arange", 0, count, 1, "int64")
    places = c.op("multiply", places, number(c, columns + 1, "int64"))
    if offset:
        start = -offset * columns if offset < 0 else offset
        places = c.op("add", places, number(c, start, "int64"))
    return flat, places, order


def linalg_diagonal_back(
    c: Emitter, A: Tensor, new: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> Tensor:
    return diagonal_scatter(c, A, new, offset, dim1, dim2)


@aten("linalg_diagonal", back=linalg_diagonal_back)
def linalg_diagonal(
    c: Emitter, A: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> Tensor:
    """The elements whose indices along two axes are equal, as the last axis."""
    return diagonal(c, A, offset, dim1, dim2)


@aten("diagonal", "diagonal_copy", back=diagonal_back)
def diagonal(c: Emitter, self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The elements whose indices along two axes are equal, as the last axis."""
    flat, places, _ = _diagonal_places(c, self, offset, dim1, dim2)
    return c.op("take", flat, places, rank_of(flat) - 1)


_diagonal = diagonal


@aten("diagonal_scatter")
def diagonal_scatter(
    c: Emitter, self: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A tensor with another diagonal."""
    flat, places, order = _diagonal_places(c, self, offset, dim1, dim2)
    last = rank_of(flat) - 1
    dims = dims_of(self)
    size = [*dims_of(flat)[:-1], dims_of(places)[0]]
    wide = expand(c, places, size)
    src = expand(c, cast(c, src, dtype_of(self)), size)
    found: Tensor = c.op("scatter_elements", flat, wide, src, last)
    found = reshaped(c, found, [dims[i] for i in order])
    return permuted(c, found, [order.index(i) for i in range(len(order))])


@aten("diag")
def diag(c: Emitter, self: Tensor, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, or the matrix that has a diagonal."""
    if rank_of(self) == 2:
        return _diagonal(c, self, diagonal)
    return diag_embed(c, self, diagonal)


@aten("diagflat")
def diagflat(c: Emitter, self: Tensor, offset: int = 0) -> Tensor:
    """A matrix of zeros with the elements of a tensor as its diagonal."""
    return diag_embed(c, reshaped(c, self, [-1]), offset)


@aten("diag_embed")
def diag_embed(
    c: Emitter, self: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> Tensor:
    """Matrices of zeros with the last axis as their diagonal."""
    dims = dims_of(self)
    if not dims:
        dims = [1]
        self = reshaped(c, self, dims)
    side = length(dims[-1] + abs(offset))
    zeros = c.op("zeros", [*dims[:-1], side, side], dtype_of(self))
    rank = len(dims) + 1
    found = diagonal_scatter(c, zeros, self, offset, rank - 2, rank - 1)
    a, b = axis_of(rank, dim1), axis_of(rank, dim2)
    rest = iter(range(rank - 2))
    order = [rank - 2 if i == a else rank - 1 if i == b else next(rest) for i in range(rank)]
    return permuted(c, found, order)


def unfold_back(
    c: Emitter, self: Tensor, new: Tensor, dimension: int, size: int, step: int
) -> Tensor:
    if step < size:
        raise Problem("writing to overlapping windows of unfold is not supported")
    axis = axis_of(self, dimension)
    total = dims_of(new)[axis]
    wide = moved(c, new, rank_of(new) - 1, axis + 1)
    dims = dims_of(self)
    wide = reshaped(c, wide, [*dims[:axis], length(total * size), *dims[axis + 1 :]])
    places = c.op("reshape", _window_places(c, total, size, step), [-1])
    shape = [1] * len(dims)
    shape[axis] = length(total * size)
    index = expand(c, reshaped(c, places, shape), dims_of(wide))
    return c.op("scatter_elements", self, index, wide, axis)


def _window_places(c: Emitter, total: Any, size: int, step: int) -> Tensor:
    starts = c.op("multiply", c.op("arange", 0, total, 1, "int64"), number(c, step, "int64"))
    return c.op("add", c.op("expand_dims", starts, 1), c.expr(np.arange(size)))


@aten("unfold", "unfold_copy", back=unfold_back)
def unfold(c: Emitter, self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows along an axis; the place within a window is the last axis."""
    if not rank_of(self):
        return reshaped(c, self, [size])
    axis = axis_of(self, dimension)
    total = length((dims_of(self)[axis] - size) // step + 1)
    found = c.op("take", self, _window_places(c, total, size, step), axis)
    return moved(c, found, axis + 1, rank_of(self))


def _strided_places(
    c: Emitter, size: list[Any], stride: list[Any], offset: Any
) -> Tensor:
    if all(isinstance(each, int) for each in [*size, *stride, offset]):
        found = np.full(size, offset, np.int64)
        for i, (n, by) in enumerate(zip(size, stride, strict=True)):
            found += (np.arange(n) * by).reshape([-1, *[1] * (len(size) - 1 - i)])
        return c.expr(found)
    places: Tensor = number(c, offset, "int64")
    for i, (n, by) in enumerate(zip(size, stride, strict=True)):
        steps = c.op("multiply", c.op("arange", 0, n, 1, "int64"), number(c, by, "int64"))
        places = c.op("add", places, reshaped(c, steps, [n, *[1] * (len(size) - 1 - i)]))
    return expand(c, places, size)


def as_strided_back(
    c: Emitter, self: Tensor, new: Tensor, size: Any, stride: Any, storage_offset: Any = None
) -> Tensor:
    places = _strided_places(c, list(size), list(stride), storage_offset or 0)
    flat = reshaped(c, self, [-1])
    index, part = reshaped(c, places, [-1]), reshaped(c, new, [-1])
    return reshaped(c, c.op("scatter_elements", flat, index, part, 0), dims_of(self))


@aten("as_strided", "as_strided_copy", back=as_strided_back)
def as_strided(
    c: Emitter, self: Tensor, size: Any, stride: Any, storage_offset: Any = None
) -> Tensor:
    """Elements at multiples of strides, of a tensor whose elements are in order."""
    sizes, strides = [length(each) for each in size], [length(each) for each in stride]
    places = _strided_places(c, sizes, strides, length(storage_offset or 0))
    return c.op("take", reshaped(c, self, [-1]), places, 0)


@aten("as_strided_scatter")
def as_strided_scatter(
    c: Emitter, self: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: Any = None
) -> Tensor:
    """A tensor with other elements at the places of as_strided."""
    return as_strided_back(c, self, src, size, stride, storage_offset)


# Several tensors


@aten("cat", "concat", "concatenate")
def cat(c: Emitter, tensors: Any, dim: int = 0) -> Tensor:
    """R.concat; vectors without elements are left out."""
    dtype = promoted_dtype(*tensors)
    rank = max(map(rank_of, tensors))
    parts = [
        each for each in tensors
        if not (rank_of(each) == 1 and rank > 1 and same_dim(dims_of(each)[0], 0))
    ]  # fmt: skip
    wide = [c.expr(cast(c, each, dtype)) for each in parts]
    return wide[0] if len(wide) == 1 else c.op("concat", wide, axis_of(rank, dim))


@aten("stack")
def stack(c: Emitter, tensors: Any, dim: int = 0) -> Tensor:
    """R.concat along a new axis."""
    dtype = promoted_dtype(*tensors)
    axis = axis_of(rank_of(tensors[0]) + 1, dim)
    wide = [c.expr(unsqueeze(c, cast(c, each, dtype), axis)) for each in tensors]
    return wide[0] if len(wide) == 1 else c.op("concat", wide, axis)


@aten("hstack")
def hstack(c: Emitter, tensors: Any) -> Tensor:
    """R.concat along the second axis, of vectors along the first."""
    wide = [reshaped(c, each, dims_of(each) or [1]) for each in tensors]
    return cat(c, wide, 0 if rank_of(wide[0]) == 1 else 1)


@aten("vstack", "row_stack")
def vstack(c: Emitter, tensors: Any) -> Tensor:
    """R.concat along the first axis; vectors are rows."""
    return cat(c, [reshaped(c, x, [1] * (2 - rank_of(x)) + dims_of(x)) for x in tensors], 0)


@aten("dstack")
def dstack(c: Emitter, tensors: Any) -> Tensor:
    """R.concat along the third axis; matrices and vectors get one."""

    def deep(x: Tensor) -> Tensor:
        dims = dims_of(x)
        if len(dims) >= 3:
            return x
        return reshaped(c, x, [*([1, 1, 1], [1, *dims, 1], [*dims, 1])[len(dims)]])

    return cat(c, [deep(each) for each in tensors], 2)


@aten("cartesian_prod")
def cartesian_prod(c: Emitter, tensors: Any) -> Tensor:
    """All combinations of the elements of vectors, as rows."""
    if len(tensors) == 1:
        return reshaped(c, tensors[0], dims_of(tensors[0]))
    return stack(c, [reshaped(c, each, [-1]) for each in meshgrid(c, tensors)], 1)


@aten("sum_to_size")
def sum_to_size(c: Emitter, self: Tensor, size: Any) -> Tensor:
    """Sums over the axes along which a shape was broadcast."""
    dims = dims_of(self)
    before = len(dims) - len(size)
    axes = [i for i, dim in enumerate(dims)
            if i < before or (same_dim(size[i - before], 1) and not same_dim(dim, 1))]  # fmt: skip
    if not axes:
        if rank_of(self) == 0 and dtype_of(self) == "bool":
            return cast(c, self, "int64")
        return self
    x = cast(c, self, "int64") if dtype_of(self) == "bool" else self
    return reshaped(c, c.op("sum", x, axes, True), list(size))


@aten("pad_sequence")
def pad_sequence(
    c: Emitter, sequences: Any, batch_first: bool = False, padding_value: Any = 0.0,
    padding_side: str = "right",
) -> Tensor:  # fmt: skip
    """Sequences of several lengths, filled up to the longest, side by side."""
    lengths = [known(dims_of(each)[0], "pad_sequence") for each in sequences]
    filled = []
    for x, size in zip(sequences, lengths, strict=True):
        wide = [0] * (2 * rank_of(x))
        wide[padding_side == "right"] = max(lengths) - size
        dtype = dtype_of(x)
        given = cast(c, x, "uint8") if dtype == "bool" else x
        fill = padding_value if is_float(dtype) else int(padding_value)
        filled.append(cast(c, c.op("nn.pad", given, wide, "constant", fill), dtype))
    return stack(c, filled, 0 if batch_first else 1)


@aten("_chunk_cat")
def chunk_cat(c: Emitter, tensors: Any, dim: int, num_chunks: int) -> Tensor:
    """The chunks of tensors, filled up with zeros to one length, as rows side by side."""
    parts = []
    for x in tensors:
        dims = dims_of(x)
        dim = axis_of(x, dim)
        size = known(dims[dim], "_chunk_cat")
        each = -(-size // num_chunks)
        wide = [0] * (2 * len(dims))
        wide[2 * dim + 1] = each * num_chunks - size
        filled = c.op("nn.pad", cast(c, x, "uint8") if dtype_of(x) == "bool" else x, wide)
        rest = numel([each, *dims[dim + 1 :]])
        parts.append(reshaped(c, cast(c, filled, dtype_of(x)), [*dims[:dim], num_chunks, rest]))
    return cat(c, parts, dim + 1)


@aten("column_stack")
def column_stack(c: Emitter, tensors: Any) -> Tensor:
    """R.concat along the second axis; vectors are columns."""
    return cat(c, [reshaped(c, x, [-1, 1]) if rank_of(x) < 2 else x for x in tensors], 1)


@aten("block_diag")
def block_diag(c: Emitter, tensors: Any) -> Tensor:
    """A matrix of zeros with matrices along its diagonal."""
    dtype = promoted_dtype(*tensors)
    matrices = [cast(c, reshaped(c, x, [1] * (2 - rank_of(x)) + dims_of(x)), dtype)
                for x in tensors]  # fmt: skip
    widths = [dims_of(each)[1] for each in matrices]
    rows = []
    for i, each in enumerate(matrices):
        before, after = sum(widths[:i]), sum(widths[i + 1 :])
        rows.append(c.op("nn.pad", each, [0, 0, before, after]) if before or after else each)
    return cat(c, rows, 0)


# Other orders


@aten("flip")
def flip(c: Emitter, self: Tensor, dims: Any) -> Tensor:
    """R.flip."""
    found = self
    for each in dims if rank_of(self) else []:
        found = c.op("flip", found, axis_of(self, each))
    return found


@each_of("fliplr", "flipud")
def flip_side(name: str, c: Emitter, self: Tensor) -> Tensor:
    """R.flip."""
    return c.op("flip", self, 1 if name == "fliplr" else 0)


@aten("roll")
def roll(c: Emitter, self: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """Elements moved along axes, from the end to the front."""
    shifts = shifts if isinstance(shifts, (list, tuple)) else [shifts]
    places = dims if isinstance(dims, (list, tuple)) else [dims]
    if not places:
        flat = reshaped(c, self, [-1])
        return reshaped(c, _rolled(c, flat, 0, shifts[0]), dims_of(self))
    found = self
    for by, each in zip(shifts, places, strict=True):
        if rank_of(self):
            found = _rolled(c, found, axis_of(self, each), by)
    return found


def _rolled(c: Emitter, x: Tensor, axis: int, by: Any) -> Tensor:
    size = dims_of(x)[axis]
    if isinstance(size, int) and size == 0:
        return x
    cut = length((size - by) % size)
    if isinstance(cut, int) and cut == 0:
        return x
    return c.op("concat", [c.expr(sliced(c, x, axis, cut, size)),
                           c.expr(sliced(c, x, axis, 0, cut))], axis)  # fmt: skip


@aten("rot90")
def rot90(c: Emitter, self: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """A plane turned by a number of right angles."""
    a, b = (axis_of(self, each) for each in dims)
    turns = k % 4
    if turns == 0:
        return self
    if turns == 2:
        return flip(c, self, [a, b])
    if turns == 1:
        return swapped(c, c.op("flip", self, b), a, b)
    return c.op("flip", swapped(c, self, a, b), b)


@aten("pixel_shuffle")
def pixel_shuffle(c: Emitter, self: Tensor, upscale_factor: int) -> Tensor:
    """R.nn.pixel_shuffle."""
    return c.op("nn.pixel_shuffle", self, upscale_factor)


@aten("pixel_unshuffle")
def pixel_unshuffle(c: Emitter, self: Tensor, downscale_factor: int) -> Tensor:
    """R.nn.pixel_unshuffle."""
    return c.op("nn.pixel_unshuffle", self, downscale_factor)


@aten("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(c: Emitter, self: Tensor, groups: int) -> Tensor:
    """Channels of groups in turn."""
    dims = dims_of(self)
    apart = reshaped(c, self, [dims[0], groups, length(dims[1] // groups), *dims[2:]])
    return reshaped(c, swapped(c, apart, 1, 2), dims)


@each_of("tril", "triu")
def triangle(name: str, c: Emitter, self: Tensor, diagonal: int = 0) -> Tensor:
    """R.tril or R.triu."""
    return c.op(name, self, diagonal)


@aten("trace")
def trace(c: Emitter, self: Tensor) -> Tensor:
    """The sum of the diagonal."""
    found = diagonal(c, self)
    wide = dtype_of(self) if "float" in dtype_of(self) else "int64"
    return c.op("sum", cast(c, found, wide), [0], False)

