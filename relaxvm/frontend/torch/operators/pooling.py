"""Pools: the greatest elements and the means of windows, and of parts of an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....ir import Expr, TensorType, TupleType
from ...common.emitter import Emitter, Problem
from ..checked import index_within
from ..forms import (
    Tensor,
    cast,
    dims_of,
    dtype_of,
    each_of,
    is_float,
    items,
    length,
    number,
    numel,
    per_axis,
    rank_of,
    reshaped,
    same_dim,
    tensor_type,
)
from .neural import padded
from .shapes import expand, moved, permuted

__all__: list[str] = []


def _batched(c: Emitter, x: Tensor, count: int) -> tuple[Tensor, bool]:
    """x with batch and channels in front."""
    if rank_of(x) == count + 1:
        return reshaped(c, x, [1, *dims_of(x)]), True
    return x, False


def _single(c: Emitter, x: Tensor, is_single: bool) -> Tensor:
    return reshaped(c, x, dims_of(x)[1:]) if is_single else x


def _strides(stride: Any, size: list[Any], count: int) -> list[Any]:
    if stride is None or (isinstance(stride, (list, tuple)) and not stride):
        return size
    return per_axis(stride, count)


def _max_pooled(
    c: Emitter, x: Tensor, count: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool, with_indices: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    x, is_single = _batched(c, x, count)
    size = per_axis(kernel_size, count)
    strides = _strides(stride, size, count)
    pads, dilations = per_axis(padding, count) * 2, per_axis(dilation, count)
    found = c.op(f"nn.max_pool{count}d", x, size, strides, pads, dilations, bool(ceil_mode))
    if not with_indices:
        return _single(c, found, is_single), None
    # The kernel counts the places in the whole tensor; torch in each channel.
    dims = dims_of(found)
    inputs = [c.expr(x), size, strides, pads, dilations, bool(ceil_mode), 0]
    places: Expr = c.run("nn.max_pool_indices", inputs, TensorType(dims, "int64"), "int64")
    area = number(c, numel(dims_of(x)[2:]), "int64")
    places = c.op("floor_mod", places, area)
    return _single(c, found, is_single), _single(c, places, is_single)


@each_of("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(
    name: str, c: Emitter, self: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """R.nn.max_pool1d, R.nn.max_pool2d or R.nn.max_pool3d."""
    return _max_pooled(c, self, int(name[8]), kernel_size, stride, padding, dilation, ceil_mode,
                       False)[0]  # fmt: skip


@each_of("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(
    name: str, c: Emitter, self: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False,
) -> Any:  # fmt: skip
    """The same, with the places of the elements."""
    return _max_pooled(c, self, int(name[8]), kernel_size, stride, padding, dilation, ceil_mode,
                       True)  # fmt: skip


@each_of("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    name: str, c: Emitter, self: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """R.nn.avg_pool1d, R.nn.avg_pool2d or R.nn.avg_pool3d."""
    count = int(name[8])
    x, is_single = _batched(c, self, count)
    dtype = dtype_of(x)
    size = per_axis(kernel_size, count)
    strides, pads = _strides(stride, size, count), per_axis(padding, count)
    wide = x if is_float(dtype) else cast(c, x, "float64")
    if divisor_override is not None or ceil_mode:
        found = _averaged(c, wide, size, strides, pads, ceil_mode, count_include_pad,
                          divisor_override)  # fmt: skip
    else:
        found = c.op(f"nn.avg_pool{count}d", wide, size, strides, pads * 2, [1] * count, False,
                     bool(count_include_pad))  # fmt: skip
    if not is_float(dtype):
        found = cast(c, c.op("trunc", found), dtype)
    return _single(c, found, is_single)


def _averaged(
    c: Emitter, x: Tensor, size: list[int], strides: list[int], pads: list[int], ceil_mode: bool,
    include: bool, divisor: int | None,
) -> Tensor:  # fmt: skip
    """Sums of windows divided by their numbers of elements, where a last window may reach beyond
    the padding, which does not count."""
    count = len(size)
    dims = dims_of(x)
    more = []
    for i, dim in enumerate(dims[2:]):
        if not isinstance(dim, int):
            raise Problem("avg_pool: expected axes of known lengths with ceil_mode")
        whole = dim + 2 * pads[i] - size[i]
        steps = -(-whole // strides[i]) if ceil_mode else whole // strides[i]
        if ceil_mode and steps * strides[i] >= dim + pads[i]:
            steps -= 1
        more.append(max(steps * strides[i] + size[i] - dim - 2 * pads[i], 0))
    both = [each for i in reversed(range(count)) for each in (pads[i], pads[i] + more[i])]
    plain = [0] * (2 * count)
    elements = math.prod(size)
    pool = f"nn.avg_pool{count}d"

    def total(y: Tensor, last: list[int]) -> Tensor:
        wide = padded(c, y, last) if any(last) else y
        return c.op(pool, wide, size, strides, plain, [1] * count, False, True)

    means = total(x, both)
    dtype = dtype_of(x)
    if divisor is not None:
        return c.op("multiply", means, number(c, elements / divisor, dtype))
    # The part of each window that counts: the padding, too, but not what is beyond it.
    ones = np.ones([1, 1, *[d + (2 * p if include else 0) for d, p in
                            zip(dims[2:], pads, strict=True)]])  # fmt: skip
    last = [each for i in reversed(range(count))
            for each in ((0, more[i]) if include else (pads[i], pads[i] + more[i]))]  # fmt: skip
    parts = total(cast(c, c.expr(ones), dtype), last)
    return c.op("divide", means, parts)


def _means_of_parts(c: Emitter, x: Tensor, sizes: list[Any]) -> Tensor:
    """adaptive_avg_pool for sizes that only the run knows: products with the weights that the
    elements of each axis have in each part."""
    dtype = dtype_of(x)
    found = x if dtype == "float64" else cast(c, x, "float32")
    for axis, new in enumerate(sizes, 2):
        old = dims_of(x)[axis]
        if same_dim(old, new):
            continue
        first, end = _bounds_of_parts(c, old, new)
        place = c.op("arange", 0, old, 1, "int64")
        inside = c.op("logical_and", c.op("greater_equal", place, first),
                      c.op("less", place, end))  # fmt: skip
        weights = c.op("divide", cast(c, inside, dtype_of(found)),
                       cast(c, c.op("subtract", end, first), dtype_of(found)))  # fmt: skip
        rows = moved(c, found, axis, rank_of(x) - 1)
        product = c.op("matmul", rows, permuted(c, weights, [1, 0]))
        found = moved(c, product, rank_of(x) - 1, axis)
    return cast(c, found, dtype)


def _bounds_of_parts(c: Emitter, old: Any, new: Any) -> tuple[Tensor, Tensor]:
    """Where the parts of an axis begin and end, as columns; lengths are known by the run alone."""
    count, whole, one = (number(c, each, "int64") for each in (new, old, 1))
    part = reshaped(c, c.op("arange", 0, new, 1, "int64"), [new, 1])
    first = c.op("floor_divide", c.op("multiply", part, whole), count)
    last = c.op("multiply", c.op("add", part, one), whole)
    end = c.op("floor_divide", c.op("subtract", c.op("add", last, count), one), count)
    return first, end


def _parts(size: int, count: int) -> tuple[list[int], list[int]]:
    return ([i * size // count for i in range(count)],
            [-(-(i + 1) * size // count) for i in range(count)])  # fmt: skip


def _adaptive_sizes(x: Tensor, output_size: Any, count: int) -> list[Any]:
    dims = dims_of(x)
    found = []
    for i, each in enumerate(per_axis(output_size, count)):
        found.append(dims[rank_of(x) - count + i] if each is None else length(each))
    return found


@each_of("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
         "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")  # fmt: skip
def adaptive_avg_pool(name: str, c: Emitter, self: Tensor, output_size: Any) -> Tensor:
    """R.nn.adaptive_avg_pool1d, R.nn.adaptive_avg_pool2d or R.nn.adaptive_avg_pool3d."""
    count = int(name[-2])
    x, is_single = _batched(c, self, count)
    sizes = _adaptive_sizes(self, output_size, count)
    if all(isinstance(each, int) and each == 1 for each in sizes):
        found: Tensor = c.op("mean", x, list(range(2, 2 + count)), True)
    elif all(isinstance(each, int) for each in sizes):
        found = c.op(f"nn.adaptive_avg_pool{count}d", x, sizes)
    else:
        found = _means_of_parts(c, x, sizes)
    return _single(c, found, is_single)


def _rows_of_parts(c: Emitter, old: Any, new: Any) -> Tensor:
    """Each part of an axis as a row of indices, which repeat where the part is short."""
    if isinstance(old, int) and isinstance(new, int):
        starts, ends = _parts(old, new)
        width = max(b - a for a, b in zip(starts, ends, strict=True))
        return c.expr(np.array([[min(a + j, b - 1) for j in range(width)]
                                for a, b in zip(starts, ends, strict=True)]))  # fmt: skip
    first, end = _bounds_of_parts(c, old, new)
    width = length((old + (new - 1)) // new + 1)
    places = c.op("add", first, c.op("arange", 0, width, 1, "int64"))
    return c.op("minimum", places, c.op("subtract", end, number(c, 1, "int64")))


@each_of("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(name: str, c: Emitter, self: Tensor, output_size: Any) -> Any:
    """The greatest element of each of several parts of axes, and its place in the channel."""
    count = int(name[-2])
    x, is_single = _batched(c, self, count)
    sizes = _adaptive_sizes(self, output_size, count)
    dims = dims_of(x)
    dtype = dtype_of(x)
    values = x
    places: Tensor = c.op("arange", 0, numel(dims[2:]), 1, "int64")
    places = expand(c, reshaped(c, places, [1, 1, *dims[2:]]), dims)
    for i, size in enumerate(sizes):
        axis = 2 + i
        index = _rows_of_parts(c, dims[axis], size)
        rows = c.op("take", values, index, axis)
        row_places = c.op("take", places, index, axis)
        best = c.op("argmax", rows, axis + 1, True)
        values = c.op("squeeze", c.op("gather_elements", rows, best, axis + 1), [axis + 1])
        places = c.op("squeeze", c.op("gather_elements", row_places, best, axis + 1), [axis + 1])
    return _single(c, cast(c, values, dtype), is_single), _single(c, places, is_single)


@each_of("max_unpool2d", "max_unpool3d")
def max_unpool(
    name: str, c: Emitter, self: Tensor, indices: Tensor, output_size: Any, stride: Any = None,
    padding: Any = None,
) -> Tensor:  # fmt: skip
    """Zeros with the elements at places in the channels."""
    count = int(name[10])
    dims = dims_of(self)
    front, size = dims[:-count], [length(each) for each in output_size]
    flat = [*front, numel(dims[-count:])]
    zeros = c.op("zeros", [*front, numel(size)], dtype_of(self))
    places = index_within(c, reshaped(c, indices, flat), numel(size), f"{name}: indices")
    found = c.op("scatter_elements", zeros, places, reshaped(c, self, flat), len(front))
    return reshaped(c, found, [*front, *size])


@each_of("fractional_max_pool2d", "fractional_max_pool3d")
def fractional_max_pool(
    name: str, c: Emitter, self: Tensor, kernel_size: Any, output_size: Any,
    random_samples: Tensor,
) -> Any:  # fmt: skip
    """The greatest elements of windows at places that are drawn, and their places."""
    count = int(name[-2])
    x, is_single = _batched(c, self, count)
    size, new = per_axis(kernel_size, count), [length(each) for each in output_size]
    dims, dtype = [*dims_of(x)[:2], *new], dtype_of(x)
    types = TupleType([tensor_type(dims, dtype), tensor_type(dims, "int64")])
    given = [c.expr(x), c.expr(cast(c, random_samples, dtype)), size, new]
    found = items(c, c.run("nn.fractional_max_pool", given, types, f"{dtype},int64"))
    return [_single(c, each, is_single) for each in found]
