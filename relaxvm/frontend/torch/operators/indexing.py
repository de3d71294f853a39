"""Gathering and scattering elements by index, and what is selected by a condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ...common.emitter import Emitter, Problem
from ...common.values import Value
from ..checked import index_within
from ..forms import (
    Tensor,
    axis_of,
    broadcast_dims,
    cast,
    constant_of,
    dims_of,
    dtype_of,
    is_float,
    is_tensor,
    known,
    length,
    number,
    promoted,
    promoted_dtype,
    rank_of,
    reshaped,
    same_dim,
    sliced,
)
from ..registry import aten
from .reductions import limit_of, renorm
from .shapes import expand, permuted, slice_scatter

__all__ = ["nonzero_places"]


# Lists of indices


def _as_indices(c: Emitter, x: Tensor, indices: Sequence[Any]) -> list[Tensor | None]:
    """Tensors of integers for axes, None for whole axes; a tensor of bools stands for the places
    where it is true, for as many axes as it has."""
    found: list[Tensor | None] = []
    for each in indices:
        if each is None:
            found.append(None)
        elif dtype_of(each) in ("bool", "uint8"):
            rank = rank_of(each)
            places = nonzero_places(c, cast(c, each, "bool"))
            for i in range(rank):
                row = c.op("strided_slice", places, [0], [i], [i + 1])
                found.append(reshaped(c, row, [dims_of(row)[1]]))
        else:
            found.append(each if dtype_of(each) in ("int32", "int64") else cast(c, each, "int64"))
    if len(found) > rank_of(x):
        raise Problem(f"expected at most {rank_of(x)} indices, got {len(found)}")
    return found


def nonzero_places(c: Emitter, x: Tensor) -> Tensor:
    """The places where x is not 0, as rows for axes; their number gets a name."""
    found = c.op("nonzero", x)
    value = Value(found)
    dims = value.dims
    if dims is not None:
        return found
    named = c.named_dims(value, 2)
    assert named is not None
    return c.expr(value)


def _in_front(indices: Sequence[Any], rank: int) -> tuple[list[int], list[int], int]:
    """The axes with indices and those without, and the place of the result's axes of indices."""
    chosen = [i for i, each in enumerate(indices) if each is not None]
    rest = [i for i in range(rank) if i not in chosen]
    is_block = chosen == list(range(chosen[0], chosen[0] + len(chosen)))
    return chosen, rest, chosen[0] if is_block else 0


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(c: Emitter, self: Tensor, indices: Any) -> Tensor:
    """Elements at coordinates, as ``x[indices]``."""
    places = _as_indices(c, self, indices)
    rank = rank_of(self)
    if not any(each is not None for each in places):
        return self
    chosen, rest, at = _in_front(places, rank)
    tensors: list[Any] = [places[i] for i in chosen]
    if len(tensors) == 1:
        return c.op("take", self, _from_front(c, self, chosen[0], tensors[0]), chosen[0])
    x = permuted(c, self, [*chosen, *rest])
    dtype = "int64" if "int64" in map(dtype_of, tensors) else "int32"
    dims = broadcast_dims(*map(dims_of, tensors))
    wide = [c.expr(expand(c, cast(c, each, dtype), dims)) for each in tensors]
    found = c.op("index_tensor", x, wide)
    count = len(dims)
    if at == 0:
        return found
    order = [*range(count, count + at), *range(count), *range(count + at, count + len(rest))]
    return permuted(c, found, order)


def _from_front(c: Emitter, x: Tensor, axis: int, indices: Tensor) -> Tensor:
    """Indices counted from the front, as `take` needs them."""
    size = dims_of(x)[axis]
    elements = constant_of(indices)
    if elements is not None:
        if not elements.size or elements.min() >= 0:
            return indices
        if isinstance(size, int):
            return c.expr(np.where(elements < 0, elements + size, elements))
    dtype = dtype_of(indices)
    is_negative = c.op("less", indices, number(c, 0, dtype))
    return c.op("where", is_negative, c.op("add", indices, number(c, size, dtype)), indices)


@aten("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(
    c: Emitter, self: Tensor, indices: Any, values: Tensor, accumulate: bool = False,
    unsafe: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor with values at coordinates, or added there."""
    given = list(indices)
    values = cast(c, values, dtype_of(self))
    if (
        len([each for each in given if each is not None]) == 1
        and not accumulate
        and rank_of(values) == 0
    ):
        at = next(i for i, each in enumerate(given) if each is not None)
        mask = given[at]
        if dtype_of(mask) in ("bool", "uint8"):
            after = rank_of(self) - at - rank_of(mask)
            wide = reshaped(c, cast(c, mask, "bool"), [*dims_of(mask), *[1] * after])
            return c.op("where", wide, values, self)
    places = _as_indices(c, self, given)
    rank = rank_of(self)
    chosen, rest, at = _in_front(places, rank)
    tensors: list[Any] = [places[i] for i in chosen]
    order = [*chosen, *rest]
    x = permuted(c, self, order)
    dims = broadcast_dims(*map(dims_of, tensors))
    shape = dims_of(self)
    count = len(dims)
    outer = [*[shape[i] for i in rest[:at]], *dims, *[shape[i] for i in rest[at:]]]
    wide_values = expand(c, values, outer)
    if at:
        inverse = [*range(at, at + count), *range(at), *range(at + count, len(outer))]
        wide_values = permuted(c, wide_values, inverse)
    coordinates = [
        c.expr(reshaped(c, expand(c, cast(c, each, "int64"), dims), [*dims, 1])) for each in tensors
    ]
    rows = coordinates[0] if len(coordinates) == 1 else c.op("concat", coordinates, count)
    if any(isinstance(each, int) and each == 0 for each in dims_of(rows)):
        return self
    if dtype_of(self) == "bool":
        how = "max" if accumulate else "update"
        bits = cast(c, wide_values, "uint8")
        found = cast(c, c.op("scatter_nd", cast(c, x, "uint8"), rows, bits, how), "bool")
    else:
        found = c.op("scatter_nd", x, rows, wide_values, "add" if accumulate else "update")
    return permuted(c, found, [order.index(i) for i in range(rank)])


@aten("_unsafe_masked_index")
def masked_index(c: Emitter, self: Tensor, mask: Tensor, indices: Any, fill: Any) -> Tensor:
    """Elements at coordinates, and a number where the mask is false."""
    found = index(c, self, _limited(c, self, indices))
    return c.op("where", mask, found, number(c, fill, dtype_of(self)))


@aten("_unsafe_masked_index_put_accumulate")
def masked_index_put(
    c: Emitter, self: Tensor, mask: Tensor, indices: Any, values: Tensor
) -> Tensor:
    """A tensor with values added at coordinates where the mask is true."""
    dims = broadcast_dims(dims_of(mask), *[dims_of(each) for each in indices if each is not None])
    given = expand(c, values, broadcast_dims(dims, dims_of(values)))
    kept = c.op("where", mask, given, number(c, 0, dtype_of(values)))
    return index_put(c, self, _limited(c, self, indices), kept, True)


def _limited(c: Emitter, x: Tensor, indices: Any) -> list[Any]:
    found = []
    for each, size in zip(indices, dims_of(x), strict=False):
        if each is not None:
            low, high = number(c, 0, dtype_of(each)), number(c, size - 1, dtype_of(each))
            each = c.op("minimum", c.op("maximum", each, low), high)
        found.append(each)
    return found


# Along an axis


def _vector(c: Emitter, x: Tensor) -> Tensor:
    return reshaped(c, x, [1]) if rank_of(x) == 0 else x


@aten("index_select")
def index_select(c: Emitter, self: Tensor, dim: int, index: Tensor) -> Tensor:
    """R.take along an axis."""
    if rank_of(self) == 0:
        return self
    return c.op("take", self, _vector(c, index), axis_of(self, dim))


@aten("take")
def take(c: Emitter, self: Tensor, index: Tensor) -> Tensor:
    """R.take of the elements in order."""
    flat = reshaped(c, self, [-1])
    return c.op("take", flat, _from_front(c, flat, 0, index), 0)


@aten("put")
def put(
    c: Emitter, self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False
) -> Tensor:
    """A tensor with other elements at places among the elements in order."""
    flat = reshaped(c, self, [-1])
    places, values = reshaped(c, index, [-1]), reshaped(c, source, [-1])
    found = c.op("scatter_elements", flat, places, values, 0, "add" if accumulate else "update")
    return reshaped(c, found, dims_of(self))


@aten("gather")
def gather(
    c: Emitter, self: Tensor, dim: int, index: Tensor, sparse_grad: bool = False
) -> Tensor:
    """R.gather_elements."""
    if any(same_dim(each, 0) for each in dims_of(index)):
        return c.op("zeros", dims_of(index), dtype_of(self))
    if rank_of(self) == 0 or rank_of(index) == 0:
        found = c.op("take", reshaped(c, self, [-1]), reshaped(c, index, [-1]), 0)
        return reshaped(c, found, dims_of(index))
    axis = axis_of(self, dim)
    index = index_within(c, index, dims_of(self)[axis], "gather: index")
    x = _cut(c, self, axis, dims_of(index))
    return c.op("gather_elements", x, index, axis)


def _cut(c: Emitter, x: Tensor, axis: int, dims: list[Any]) -> Tensor:
    """x, as long as indices along the other axes."""
    for i, dim in enumerate(dims):
        if i != axis and not same_dim(dim, dims_of(x)[i]):
            x = sliced(c, x, i, 0, dim)
    return x


@aten("take_along_dim")
def take_along_dim(
    c: Emitter, self: Tensor, indices: Tensor, dim: int | None = None
) -> Tensor:
    """R.gather_elements; the other axes broadcast."""
    if dim is None:
        return c.op("take", reshaped(c, self, [-1]), reshaped(c, indices, [-1]), 0)
    axis = axis_of(self, dim)
    a, b = dims_of(self), dims_of(indices)
    both = broadcast_dims([d for i, d in enumerate(a) if i != axis],
                          [d for i, d in enumerate(b) if i != axis])  # fmt: skip
    x = expand(c, self, [*both[:axis], a[axis], *both[axis:]])
    places = expand(c, indices, [*both[:axis], b[axis], *both[axis:]])
    return c.op("gather_elements", x, places, axis)


_REDUCTIONS: Final = {
    "add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min",
    "mean": "mean",
}  # fmt: skip


def _scattered(
    c: Emitter, x: Tensor, dim: int, index: Tensor, src: Any, reduction: str
) -> Tensor:
    """The elements of `src` put to, or combined with those at, indices that are valid."""
    dtype = dtype_of(x)
    src = cast(c, src, dtype) if is_tensor(src) else number(c, src, dtype)
    if rank_of(x) == 0:
        wide = _scattered(c, reshaped(c, x, [1]), 0, _vector(c, index),
                          _vector(c, src), reduction)  # fmt: skip
        return reshaped(c, wide, [])
    axis = axis_of(x, dim)
    index = _vector(c, cast(c, index, "int64"))
    dims = dims_of(index)
    if rank_of(src) == 0:
        src = expand(c, src, dims)
    elif not all(map(same_dim, dims_of(src), dims)):
        for i, each in enumerate(dims):
            src = sliced(c, src, i, 0, each)
    if any(isinstance(each, int) and each == 0 for each in dims):
        return x
    shape = dims_of(x)
    is_cut = any(i != axis and not same_dim(a, b) for i, (a, b) in
                 enumerate(zip(shape, dims, strict=True)))  # fmt: skip
    numbers = dtype == "bool" and reduction != "update"
    part = _cut(c, x, axis, dims) if is_cut else x
    if numbers:
        part, src = cast(c, part, "uint8"), cast(c, src, "uint8")
    found: Tensor = c.op("scatter_elements", part, index, src, axis, reduction)
    found = cast(c, found, dtype)
    if not is_cut:
        return found
    parts = [x]
    for i, each in enumerate(dims):
        if i != axis:
            parts.append(sliced(c, parts[-1], i, 0, each))
    axes = [i for i in range(len(dims)) if i != axis]
    for i, whole in zip(reversed(axes), reversed(parts[:-1]), strict=True):
        found = slice_scatter(c, whole, found, i, 0, dims[i])
    return found


def _index_of(c: Emitter, x: Tensor, dim: int, index: Tensor, name: str) -> Tensor:
    """Indices along an axis of x, of which none is negative: as an operator of torch has it."""
    size = dims_of(x)[axis_of(x, dim)] if rank_of(x) else 1
    return index_within(c, index, size, f"{name}: index")


@aten("scatter.src", "scatter.value")
def scatter(
    c: Emitter, self: Tensor, dim: int, index: Tensor, src: Any = None, value: Any = None
) -> Tensor:
    """R.scatter_elements."""
    index = _index_of(c, self, dim, index, "scatter")
    return _scattered(c, self, dim, index, value if src is None else src, "update")


@aten("scatter.reduce", "scatter.value_reduce")
def scatter_reduced(
    c: Emitter, self: Tensor, dim: int, index: Tensor, src: Any = None, reduce: str = "add",
    value: Any = None,
) -> Tensor:  # fmt: skip
    """R.scatter_elements with a reduction."""
    given = value if src is None else src
    index = _index_of(c, self, dim, index, "scatter")
    return _scattered(c, self, dim, index, given, _REDUCTIONS[reduce])


@aten("scatter_add")
def scatter_add(c: Emitter, self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """R.scatter_elements that adds."""
    index = _index_of(c, self, dim, index, "scatter_add")
    return _scattered(c, self, dim, index, src, "add")


@aten("scatter_reduce.two")
def scatter_reduce(
    c: Emitter, self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    """R.scatter_elements with a reduction; without `include_self`, of what is scattered alone."""
    if reduce not in _REDUCTIONS:
        raise Problem(f"reduce: {reduce!r} is not supported")
    index = _index_of(c, self, dim, index, "scatter_reduce")
    return _reduced_into(c, self, dim, index, src, reduce, include_self)


def _reduced_into(
    c: Emitter, x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool
) -> Tensor:
    dtype = dtype_of(x)
    kind = _REDUCTIONS[reduce]
    start = x
    if not include_self:
        neutral = {"add": 0, "mean": 0, "mul": 1}.get(kind)
        if neutral is None:
            neutral = limit_of(dtype, kind == "max")
        start = _scattered(c, x, dim, index, neutral, "update")
    if kind != "mean":
        return _scattered(c, start, dim, index, src, kind)
    total = _scattered(c, start, dim, index, src, "add")
    ones: Tensor = c.op("ones" if include_self else "zeros", dims_of(x), dtype)
    if not include_self:  # places that get nothing are divided by 1
        ones = _scattered(c, c.op("ones", dims_of(x), dtype), dim, index, 0, "update")
    count = _scattered(c, ones, dim, index, number(c, 1, dtype), "add")
    return c.op("divide" if is_float(dtype) else "floor_divide", total, count)


def _wide_index(c: Emitter, index: Tensor, axis: int, dims: list[Any]) -> Tensor:
    """A vector of indices as a tensor of the shape of what it is for."""
    shape: list[Any] = [1] * len(dims)
    index = cast(c, _vector(c, index), "int64")
    shape[axis] = dims_of(index)[0]
    return expand(c, reshaped(c, index, shape), dims)


def _along(
    c: Emitter, x: Tensor, dim: int, index: Tensor, source: Tensor, reduction: str,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    if rank_of(x) == 0:
        wide = _along(c, reshaped(c, x, [1]), 0, index, reshaped(c, source, [-1]), reduction,
                      include_self)  # fmt: skip
        return reshaped(c, wide, [])
    axis = axis_of(x, dim)
    if rank_of(source) == 0:
        source = reshaped(c, source, [1])
    places = _wide_index(c, index, axis, dims_of(source))
    if reduction == "update":
        return _scattered(c, x, axis, places, source, "update")
    return _reduced_into(c, x, axis, places, source, reduction, include_self)


@aten("index_add")
def index_add(
    c: Emitter, self: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any = 1
) -> Tensor:
    """A tensor with slices added at indices."""
    if alpha != 1:
        source = c.op("multiply", source, number(c, alpha, dtype_of(source)))
    index = _index_of(c, self, dim, index, "index_add")
    return _along(c, self, dim, index, source, "add")


@aten("index_copy")
def index_copy(c: Emitter, self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A tensor with other slices at indices."""
    index = _index_of(c, self, dim, index, "index_copy")
    return _along(c, self, dim, index, source, "update")


@aten("index_reduce")
def index_reduce(
    c: Emitter, self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    """A tensor with slices reduced into those at indices."""
    index = _index_of(c, self, dim, index, "index_reduce")
    return _along(c, self, dim, index, source, reduce, include_self)


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(c: Emitter, self: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A tensor with a number in the slices at indices."""
    if rank_of(self) == 0:
        fill = cast(c, value, dtype_of(self)) if is_tensor(value) else number(
            c, value, dtype_of(self))  # fmt: skip
        return reshaped(c, fill, [])
    axis = axis_of(self, dim)
    dims = dims_of(self)
    dims[axis] = dims_of(_vector(c, index))[0]
    return _scattered(c, self, axis, _wide_index(c, index, axis, dims), value, "update")


# By conditions


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(c: Emitter, self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """R.where with a number."""
    dtype = dtype_of(self)
    fill = cast(c, value, dtype) if is_tensor(value) else number(c, value, dtype)
    return c.op("where", cast(c, mask, "bool"), fill, self)


@aten("masked_select")
def masked_select(c: Emitter, self: Tensor, mask: Tensor) -> Tensor:
    """The elements in order where the mask is true."""
    dims = broadcast_dims(dims_of(self), dims_of(mask))
    flat = reshaped(c, expand(c, self, dims), [-1])
    places = nonzero_places(c, reshaped(c, expand(c, mask, dims), [-1]))
    return c.op("take", flat, reshaped(c, places, [dims_of(places)[1]]), 0)


@aten("masked_scatter")
def masked_scatter(c: Emitter, self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A tensor with the elements of another, in order, where the mask is true."""
    dims = broadcast_dims(dims_of(self), dims_of(mask))
    self = expand(c, self, dims)
    flat = reshaped(c, expand(c, mask, dims), [-1])
    count = c.op("cumsum", cast(c, flat, "int64"), 0)
    place = c.op("maximum", c.op("subtract", count, number(c, 1, "int64")), number(c, 0, "int64"))
    values = reshaped(c, cast(c, source, dtype_of(self)), [-1])
    if same_dim(dims_of(values)[0], 0):
        return self
    given = c.op("take", values, place, 0)  # which checks that there are enough
    return c.op("where", expand(c, mask, dims), reshaped(c, given, dims), self)


@aten("nonzero", "argwhere")
def nonzero(c: Emitter, self: Tensor) -> Tensor:
    """The places of elements that are not 0, as rows."""
    if rank_of(self) == 0:
        found = nonzero_places(c, reshaped(c, self, [1]))
        count = dims_of(found)[1]
        return c.op("zeros", [count, 0], "int64")
    return permuted(c, nonzero_places(c, self), [1, 0])


@aten("nonzero_static")
def nonzero_static(c: Emitter, self: Tensor, size: int, fill_value: int = -1) -> Tensor:
    """The first places of elements that are not 0, as rows, and behind them rows of a number."""
    rank = rank_of(self)
    if rank == 0:
        return c.op("zeros", [size, 0], "int64")
    found = nonzero(c, self)
    fill = c.op("full", [size, rank], number(c, fill_value, "int64"), "int64")
    return c.op("take", c.op("concat", [found, fill], 0), c.op("arange", 0, size, 1, "int64"), 0)


@aten("nonzero_numpy", "where")
def nonzero_numpy(c: Emitter, self: Tensor | None = None, condition: Tensor | None = None) -> Any:
    """The places of elements that are not 0, as a vector for each axis."""
    x = self if self is not None else condition
    assert x is not None
    places = nonzero_places(c, x if rank_of(x) else reshaped(c, x, [1]))
    count = dims_of(places)[1]
    return [reshaped(c, c.op("strided_slice", places, [0], [i], [i + 1]), [count])
            for i in range(max(rank_of(x), 1))]  # fmt: skip


@aten("one_hot")
def one_hot(c: Emitter, self: Tensor, num_classes: int = -1) -> Tensor:
    """1 where an index is the place along a new last axis, else 0."""
    if isinstance(num_classes, int) and num_classes < 0:
        raise Problem("one_hot: expected a number of classes")
    places = c.op("arange", 0, num_classes, 1, "int64")
    self = index_within(c, self, num_classes, "one_hot: class")
    wide = reshaped(c, self, [*dims_of(self), 1])
    return cast(c, c.op("equal", wide, places), "int64")


# Embeddings


@aten("embedding")
def embedding(
    c: Emitter, weight: Tensor, indices: Tensor, padding_idx: Any = -1,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """R.take of rows."""
    return c.op("take", weight, indices, 0)


@aten("embedding_renorm")
def embedding_renorm(
    c: Emitter, self: Tensor, indices: Tensor, max_norm: float, norm_type: float
) -> Tensor:
    """Rows at indices, scaled down to norms of at most max_norm."""
    scaled = renorm(c, self, norm_type, 0, max_norm)
    flat = cast(c, reshaped(c, indices, [-1]), "int64")
    return _along(c, self, 0, flat, c.op("take", scaled, flat, 0), "update")


@aten("embedding_bag.padding_idx")
def embedding_bag_with_padding(
    c: Emitter, weight: Tensor, indices: Tensor, offsets: Tensor | None = None,
    scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:  # fmt: skip
    """As embedding_bag; a negative padding_idx counts from the last row."""
    if padding_idx is not None and padding_idx < 0:
        padding_idx = known(dims_of(weight)[0], "embedding_bag: rows") + padding_idx
    return embedding_bag(
        c, weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
        include_last_offset, padding_idx,
    )  # fmt: skip


@aten("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    c: Emitter, weight: Tensor, indices: Tensor, offsets: Tensor | None = None,
    scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:  # fmt: skip
    """Sums, means or maxima of the rows of bags, with the bag of each index, the sizes of bags and
    the greatest rows."""
    dtype = dtype_of(weight)
    if offsets is None:
        raise Problem("embedding_bag: expected offsets")
    indices, offsets = cast(c, indices, "int64"), cast(c, offsets, "int64")
    if padding_idx is not None and padding_idx < 0:
        padding_idx = None
    total = dims_of(indices)[0]
    bags = dims_of(offsets)[0]
    if include_last_offset:
        bags = length(bags - 1)
        offsets = sliced(c, offsets, 0, 0, bags)
    rows = c.op("take", weight, indices, 0)
    width = dims_of(weight)[1]
    if per_sample_weights is not None:
        rows = c.op("multiply", rows, reshaped(c, per_sample_weights, [total, 1]))
    places = c.op("arange", 0, total, 1, "int64")
    bag = c.op("bucketize", places, offsets, False, True)  # how many bags begin up to here
    bag = c.op("subtract", bag, number(c, 1, "int64"))
    counted: Tensor = c.op("ones", [total], "int64")
    if padding_idx is not None:
        counted = cast(c, c.op("not_equal", indices, number(c, padding_idx, "int64")), "int64")
    sizes = c.op("scatter_elements", c.op("zeros", [bags], "int64"), bag, counted, 0, "add")
    wide = expand(c, reshaped(c, bag, [total, 1]), [total, width])
    is_in = c.op("not_equal", reshaped(c, counted, [total, 1]), number(c, 0, "int64"))
    is_empty = c.op("equal", reshaped(c, sizes, [bags, 1]), number(c, 0, "int64"))
    if mode == 2:
        low = number(c, limit_of(dtype, True), dtype)
        rows = c.op("where", is_in, rows, low) if padding_idx is not None else rows
        start = c.op("full", [bags, width], low, dtype)
        found = c.op("scatter_elements", start, wide, rows, 0, "max")
    else:
        if padding_idx is not None:
            rows = c.op("where", is_in, rows, number(c, 0, dtype))
        start = c.op("zeros", [bags, width], dtype)
        found = c.op("scatter_elements", start, wide, rows, 0, "add")
        if mode == 1:
            count = cast(c, c.op("maximum", sizes, number(c, 1, "int64")), dtype)
            found = c.op("divide", found, reshaped(c, count, [bags, 1]))
    found = c.op("where", is_empty, number(c, 0, dtype), found)
    return found, *[_as_stated(c, i, each) for i, each in ((1, bag), (2, sizes), (3, None))]


def _as_stated(c: Any, place: int, x: Tensor | None) -> Tensor:
    """A result that serves gradients, in the shape that the graph states: it is left empty in some
    modes."""
    kind = c.kind(c.node.outputs[place].value.name)
    dims = [length(dim) for dim in kind.dims]
    if x is not None and len(dims_of(x)) == len(dims) and all(map(same_dim, dims, dims_of(x))):
        return x
    found: Tensor = c.op("zeros", dims, "int64")
    return found


# Sets


@aten("isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor")
def isin(
    c: Emitter, elements: Any = None, test_elements: Any = None, assume_unique: bool = False,
    invert: bool = False, element: Any = None, test_element: Any = None,
) -> Tensor:  # fmt: skip
    """Whether elements are among others."""
    a = element if elements is None else elements
    b = test_element if test_elements is None else test_elements
    dtype = promoted_dtype(a, b)
    x, y = promoted(c, a, b, dtype=dtype)
    dims = dims_of(x)
    flat = reshaped(c, y, [-1])
    if same_dim(dims_of(flat)[0], 0):
        found: Any = c.op("zeros", dims, "bool")
    else:
        pairs = cast(c, c.op("equal", reshaped(c, x, [*dims, 1]), flat), "uint8")
        found = cast(c, c.op("max", pairs, [len(dims)], False), "bool")
    return c.op("logical_not", found) if invert else found

