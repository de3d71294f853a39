"""Operators that select elements by their places, and that say what the places are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir import prim
from ...ir.arith import simplify
from ...ir.expr import Expr
from ...ir.prim import as_scalar
from ...messages import describe
from ...tir import intrinsics
from .. import gather as _gather
from .. import tensor as te
from ..tensor import Tensor, compute
from ._loops import axis_of, index

__all__ = [
    "adv_index",
    "collapse_sum",
    "const_vector",
    "dyn_tile",
    "dynamic_strided_slice",
    "expand_like",
    "index_tensor",
    "layout_transform",
    "matrix_set_diag",
    "sequence_mask",
    "sliding_window",
    "tensor_size",
    "unravel_index",
]


def _named(count: int) -> list[str]:
    return [f"ax{k}" for k in range(count)]


def sequence_mask(
    data: Tensor, valid_length: Tensor, mask_value: float = 0, axis: int = 0
) -> Tensor:
    """The first elements of each sequence, and a value in the place of the others.

    Args:
        data: sequences along axis 0 or 1; the other one of these is the batch.
        valid_length: how many elements count, for each of the batch.

    Raises:
        ValueError: another axis, or less than two dimensions.
    """
    if valid_length.ndim != 1:
        raise ValueError(f"sequence_mask: valid_length: expected a vector, got {valid_length}")
    if axis not in (0, 1) or data.ndim < 2:
        raise ValueError(
            f"sequence_mask: expected axis 0 or 1 of at least 2 dimensions, got {axis} of "
            f"{data.ndim}"
        )
    rest = prim.cast(as_scalar(mask_value), data.dtype)

    def element(*i: Expr) -> Any:
        length = valid_length[i[1 - axis]]
        return prim.select(prim.cast(i[axis], length.dtype) >= length, rest, data[i])

    return compute(data.shape, element, "compute", varargs_names=_named(data.ndim))


def unravel_index(indices: Tensor, shape: Tensor) -> Tensor:
    """The coordinates of flat places in a tensor whose dimensions `shape` holds: a row for each
    axis."""
    rank = getattr(shape.shape[0], "value", None) if shape.ndim == 1 else None
    if not rank:
        raise ValueError(
            f"unravel_index: shape: expected a vector of a known length above 0, got {shape}"
        )

    def element(*i: Expr) -> Any:
        at: Any = indices[i[1:]]
        coordinates = []
        for k in reversed(range(rank)):
            dim = prim.cast(shape[k], at.dtype)
            coordinates.append(prim.floormod(at, dim))
            at = prim.floordiv(at, dim)
        value: Expr = coordinates[0]
        for k in range(1, rank):
            value = prim.select(prim.equal(i[0], rank - 1 - k), coordinates[k], value)
        return value

    return compute([index(rank), *indices.shape], element, "T_unravel",
                   varargs_names=_named(indices.ndim + 1))  # fmt: skip


def matrix_set_diag(
    data: Tensor, diagonal: Tensor, k: Any = 0, align: str = "RIGHT_LEFT"
) -> Tensor:
    """The matrices with other values on some diagonals.

    Args:
        diagonal: [..., length] for one diagonal, [..., count, length] for several, from the
            highest one on.
        k: the diagonal, 0 for the main one, or the lowest and the highest one.
        align: for diagonals shorter than the longest one: at which end their values are, of those
            above the main one and of those below: "RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT" or
            "RIGHT_RIGHT".

    Raises:
        ValueError: another alignment.
    """
    sides = align.split("_")
    if len(sides) != 2 or set(sides) - {"LEFT", "RIGHT"}:
        raise ValueError(f"matrix_set_diag: align: got {align!r}")
    if data.ndim < 2 or diagonal.ndim < data.ndim - 1:
        raise ValueError(
            f"matrix_set_diag: expected matrices and their diagonals, got {data} and {diagonal}"
        )
    low, high = (int(v) for v in (k if isinstance(k, (list, tuple)) else (k, k)))
    several = isinstance(k, (list, tuple)) and low != high
    rows, columns = data.shape[-2:]

    def element(*i: Expr) -> Any:
        batch, row, column = i[:-2], i[-2], i[-1]
        offset = column - row
        # Where the diagonal starts, and how much shorter it is than the longest one.
        place: Any = intrinsics.min(row, column)
        if several:
            length = intrinsics.min(
                rows + intrinsics.min(offset, 0), columns - intrinsics.max(offset, 0)
            )
            gap = diagonal.shape[-1] - length
            above, below = (gap if side == "RIGHT" else index(0) for side in sides)
            place = place + prim.select(offset >= 0, above, below)
            value = diagonal[(*batch, high - offset, place)]
        else:
            value = diagonal[(*batch, *([0] * (diagonal.ndim - data.ndim + 1)), place)]
        inside = prim.logical_and(offset >= low, offset <= high)
        return intrinsics.if_then_else(inside, value, data[i])

    return compute(data.shape, element, "matrix_set_diag", varargs_names=_named(data.ndim))


def index_tensor(data: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """Elements at places whose coordinates tensors hold, one for each of the first axes; their
    shapes broadcast."""
    return _gather.index_tensor(data, indices)


adv_index = index_tensor


def sliding_window(
    data: Tensor, axis: int, window_shape: Sequence[int], strides: Sequence[int]
) -> Tensor:
    """All windows over the axes from `axis` on: their places, then what is in them."""
    at = axis_of(axis, data.ndim, "sliding_window")
    windowed = data.shape[at:]
    if not len(window_shape) == len(strides) == len(windowed):
        raise ValueError(
            f"sliding_window: expected {len(windowed)} sizes and strides, got "
            f"{len(window_shape)} and {len(strides)}"
        )
    counts = [
        simplify(prim.floordiv(dim - size, step) + 1)
        for dim, size, step in zip(windowed, window_shape, strides, strict=True)
    ]
    dims = [*data.shape[:at], *counts, *window_shape]

    def element(*i: Expr) -> Any:
        places = i[at : at + len(counts)]
        within = i[at + len(counts) :]
        read = [p * step + w for p, step, w in zip(places, strides, within, strict=True)]
        return data[(*i[:at], *read)]

    return compute(dims, element, "T_sliding_window", varargs_names=_named(len(dims)))


def expand_like(a: Tensor, shape_like: Tensor, axis: Any) -> Tensor:
    """The tensor repeated along new axes, so that it gets the shape of another."""
    axes = [axis] if isinstance(axis, int) else list(axis)
    new = {axis_of(each, shape_like.ndim, "expand_like") for each in axes}
    if a.ndim + len(new) != shape_like.ndim:
        if a.ndim == 1 and getattr(a.shape[0], "value", None) == 1:
            # A tensor of one element is a scalar.
            return compute(shape_like.shape, lambda *i: a[0], "expand_like",
                           varargs_names=_named(shape_like.ndim))  # fmt: skip
        raise ValueError(
            f"expand_like: {a.ndim} dimensions and {len(new)} new ones are not {shape_like.ndim}"
        )

    def element(*i: Expr) -> Any:
        return a[tuple([at for k, at in enumerate(i) if k not in new])]

    return compute(shape_like.shape, element, "expand_like", varargs_names=_named(shape_like.ndim))


def dyn_tile(a: Tensor, new_shape: Sequence[Any], rdim: int) -> Tensor:
    """The tensor repeated as a whole, to a shape that is known when it runs."""
    dims = [index(dim) for dim in new_shape]
    rank = max(a.ndim, rdim)
    if rank != len(dims):
        raise ValueError(f"dyn_tile: new_shape: expected {rank} dimensions, got {len(dims)}")

    def element(*i: Expr) -> Any:
        own = zip(i[rank - a.ndim :], a.shape, strict=True)
        return a[tuple([prim.floormod(at, dim) for at, dim in own])]

    return compute(dims, element, "T_tile", varargs_names=_named(len(dims)))


def dynamic_strided_slice(
    a: Tensor, begin: Tensor, end: Tensor, strides: Tensor, output_shape: Sequence[Any]
) -> Tensor:
    """The elements from ``begin`` on, by ``strides``, along each axis, of which tensors hold one
    number each."""
    dims = [index(dim) for dim in output_shape]
    if len(dims) != a.ndim:
        raise ValueError(
            f"dynamic_strided_slice: output_shape: expected {a.ndim} dimensions, got {len(dims)}"
        )

    def element(*i: Expr) -> Any:
        places = []
        for k, at in enumerate(i):
            start, step = (prim.cast(t[k], at.dtype) for t in (begin, strides))
            dim = prim.cast(a.shape[k], at.dtype)
            first = prim.select(start < 0, start + dim, start)
            lowest = prim.select(step < 0, as_scalar(-1, at.dtype), as_scalar(0, at.dtype))
            highest = prim.select(step < 0, dim - 1, dim)
            first = intrinsics.min(intrinsics.max(first, lowest), highest)
            places.append(first + at * step)
        return a[tuple(places)]

    return compute(dims, element, "T_strided_slice_dynamic", varargs_names=_named(len(dims)))


def const_vector(vector: Any, name: str = "const_vector") -> Tensor:
    """A vector of given numbers, as a formula."""
    numbers = np.asarray(vector)
    if numbers.ndim != 1 or not numbers.size or numbers.dtype.kind not in "biuf":
        raise ValueError(f"const_vector: vector: expected numbers, got {describe(vector)}")
    values = [as_scalar(number.item(), str(numbers.dtype)) for number in numbers]

    def element(i: Expr) -> Any:
        value: Expr = values[-1]
        for k in reversed(range(len(values) - 1)):
            value = prim.select(prim.equal(i, k), values[k], value)
        return value

    return compute([index(len(values))], element, name)


def tensor_size(array: Tensor, dtype: str = "int32") -> Tensor:
    """The number of elements, a scalar."""
    size = as_scalar(1, dtype)
    for dim in array.shape:
        size = size * prim.cast(dim, dtype)
    return compute((), lambda: simplify(size), "T_tensor_size")


def collapse_sum(data: Tensor, target_shape: Sequence[Any]) -> Tensor:
    """The sum over the axes along which a tensor of the target shape is repeated to become one of
    the shape of the data."""
    dims = [index(dim) for dim in target_shape]
    front = data.ndim - len(dims)
    reduced = [
        k < front or (getattr(dims[k - front], "value", None) == 1) for k in range(data.ndim)
    ]
    axes = {k: te.reduce_axis((0, d), f"k{k}")
            for k, d in enumerate(data.shape) if reduced[k]}  # fmt: skip

    def element(*i: Expr) -> Any:
        at = [axes[k].var if k in axes else i[k - front] for k in range(data.ndim)]
        return te.sum(data[tuple(at)], list(axes.values())) if axes else data[tuple(at)]

    return compute(dims, element, "T_collapse_sum", varargs_names=_named(len(dims)))


# Layouts


class _Layout:
    """A layout such as "NCHW4c": an axis by a capital letter, a block of one by a small letter
    after its size."""

    def __init__(self, text: str) -> None:
        self.axes: list[tuple[str, int]] = []
        """Letters, each with the size of the block, 0 for what counts blocks."""
        size = ""
        for letter in text:
            if letter.isdigit():
                size += letter
                continue
            if not letter.isalpha() or bool(size) != letter.islower():
                raise ValueError(
                    f"layout_transform: layout {text!r}: expected capital letters, and small ones "
                    "after their size"
                )
            self.axes.append((letter, int(size or 0)))
            size = ""
        self.letters = {letter for letter, _ in self.axes if letter.isupper()}
        names = [letter for letter, _ in self.axes]
        if size or len(set(names)) < len(names) or {n.upper() for n in names} - self.letters:
            raise ValueError(f"layout_transform: layout {text!r}: an axis is missing or is twice")

    def block(self, letter: str) -> int:
        """The size of the blocks of an axis, 1 if it has none."""
        return next((size for name, size in self.axes if name == letter.lower()), 1)


def layout_transform(
    array: Tensor, src_layout: str, dst_layout: str, schedule_rule: str = "None"
) -> Tensor:
    """The tensor in another layout: "NCHW" as "NHWC", or as "NCHW4c" with the channels in blocks.

    A last block that is not full is filled with zeros.

    Raises:
        ValueError: a layout is malformed, they have other axes, or do not fit the tensor.
    """
    source, target = _Layout(src_layout), _Layout(dst_layout)
    if source.letters != target.letters or len(source.axes) != array.ndim:
        raise ValueError(
            f"layout_transform: {src_layout!r} as {dst_layout!r}, of {array.ndim} dimensions"
        )
    given = dict(zip([name for name, _ in source.axes], array.shape, strict=True))
    whole = {name: simplify(given[name] * source.block(name)) for name in source.letters}
    dims = []
    for name, size in target.axes:
        block = target.block(name)
        count = simplify(prim.floordiv(whole[name.upper()] + (block - 1), block))
        dims.append(index(size) if size else count)

    def element(*i: Expr) -> Any:
        at = dict(zip([name for name, _ in target.axes], i, strict=True))
        place: dict[str, Any] = {}
        inside: Any = None
        for name in sorted(source.letters):
            block = target.block(name)
            place[name] = at[name] * block + at[name.lower()] if block > 1 else at[name]
            size = getattr(whole[name], "value", None)
            if block > 1 and (size is None or size % block):
                fits = place[name] < whole[name]
                inside = fits if inside is None else prim.logical_and(inside, fits)
        read = []
        for name, _ in source.axes:
            block = source.block(name)
            full = place[name.upper()]
            if block > 1:
                split = prim.floormod if name.islower() else prim.floordiv
                full = simplify(split(full, block))
            read.append(full)
        value = array[tuple(read)]
        zero = as_scalar(0.0 if prim.is_float(array.dtype) else 0, array.dtype)
        return value if inside is None else intrinsics.if_then_else(inside, value, zero)

    return compute(dims, element, "T_layout_trans", varargs_names=_named(len(dims)))
