"""What pads, spreads and rearranges the places of images."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ....ir import prim
from ....ir.arith import simplify
from ....ir.expr import Expr
from ....ir.prim import as_scalar
from ....tir import intrinsics
from ...tensor import Tensor, compute
from .. import basic
from .layers import _index, _named, pad

__all__ = [
    "batch_to_space_nd",
    "circular_pad",
    "depth_to_space",
    "dilate",
    "mirror_pad",
    "reflect_pad",
    "replicate_pad",
    "space_to_batch_nd",
    "space_to_depth",
]


def dilate(
    data: Tensor, strides: Sequence[Any], dilation_value: float = 0.0, name: str = "DilatedInput"
) -> Tensor:
    """The elements at every `strides`-th place of each axis, with a value between them.

    Raises:
        ValueError: there is not one stride for each axis.
    """
    if len(strides) != data.ndim:
        raise ValueError(f"dilate: expected {data.ndim} strides, got {len(strides)}")
    steps = [int(getattr(step, "value", step)) for step in strides]
    dims = [simplify((dim - 1) * step + 1) for dim, step in zip(data.shape, steps, strict=True)]
    value = prim.cast(as_scalar(dilation_value), data.dtype)

    def element(*i: Expr) -> Any:
        places, fits = [], []
        for at, step in zip(i, steps, strict=True):
            places.append(at if step == 1 else prim.floordiv(at, step))
            if step != 1:
                fits.append(prim.equal(prim.floormod(at, step), 0))
        if not fits:
            return data[tuple(places)]
        condition = functools.reduce(prim.logical_and, fits)
        return intrinsics.if_then_else(condition, data[tuple(places)], value)

    return compute(dims, element, name, varargs_names=_named("i", data.ndim))


# Padding with elements of the data


def _padded(
    data: Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None,
    name: str,
    place: Callable[[Any, Expr], Any],
) -> Tensor:
    """The tensor with more places around it: `place` says which element is at one of them."""
    after = pad_before if pad_after is None else pad_after
    if len(pad_before) != data.ndim or len(after) != data.ndim:
        raise ValueError(
            f"{name}: expected a width for each of {data.ndim} dimensions, got {len(pad_before)} "
            f"and {len(after)}"
        )
    before = [_index(p) for p in pad_before]
    dims = [
        simplify(dim + low + _index(high))
        for dim, low, high in zip(data.shape, before, after, strict=True)
    ]

    def element(*i: Expr) -> Any:
        at = zip(i, before, data.shape, strict=True)
        return data[tuple([place(index - low, dim) for index, low, dim in at])]

    return compute(dims, element, name, varargs_names=_named("i", data.ndim))


def _reflected(at: Any, dim: Expr) -> Any:
    low = prim.select(at < 0, -at, at)
    return prim.select(low >= dim, 2 * dim - low - 2, low)


def _mirrored(at: Any, dim: Expr) -> Any:
    low = prim.select(at < 0, -at - 1, at)
    return prim.select(low >= dim, 2 * dim - low - 1, low)


def mirror_pad(
    data: Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    mode: str = "SYMMETRIC",
    name: str = "MirrorPadInput",
) -> Tensor:
    """The tensor with its mirror image around it, with the border twice ("SYMMETRIC") or once
    ("REFLECT").

    Raises:
        ValueError: another mode, or there is not one width for each axis.
    """
    if mode not in ("SYMMETRIC", "REFLECT"):
        raise ValueError(f"mirror_pad: mode: expected 'SYMMETRIC' or 'REFLECT', got {mode!r}")
    place = _mirrored if mode == "SYMMETRIC" else _reflected
    return _padded(data, pad_before, pad_after, name, place)


def reflect_pad(
    data: Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    name: str = "ReflectPadInput",
) -> Tensor:
    """The tensor with its mirror image around it, the border once."""
    return _padded(data, pad_before, pad_after, name, _reflected)


def replicate_pad(
    data: Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    name: str = "ReplicatePadInput",
) -> Tensor:
    """The tensor with its border repeated around it."""
    return _padded(
        data, pad_before, pad_after, name,
        lambda at, dim: intrinsics.min(intrinsics.max(at, 0), dim - 1),
    )  # fmt: skip


def circular_pad(
    data: Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    name: str = "CircularPadInput",
) -> Tensor:
    """The tensor with what is on the other side around it."""
    return _padded(data, pad_before, pad_after, name, prim.floormod)


# Between channels, batches and places


def _image_axes(data: Tensor, layout: str, what: str) -> tuple[int, int, int]:
    if layout not in ("NCHW", "NHWC") or data.ndim != 4:
        raise ValueError(
            f"{what}: layout: expected 'NCHW' or 'NHWC' of 4 dimensions, got {layout!r} of "
            f"{data.ndim}"
        )
    return layout.index("C"), layout.index("H"), layout.index("W")


def depth_to_space(
    data: Tensor, block_size: Any, layout: str = "NCHW", mode: str = "DCR"
) -> Tensor:
    """Blocks of channels as blocks of places.

    Args:
        block_size: places of a block along each axis.
        mode: "DCR" if the places of a block come before its channels, "CDR" if after them.

    Raises:
        ValueError: another layout or mode.
    """
    c, h, w = _image_axes(data, layout, "depth_to_space")
    if mode not in ("DCR", "CDR"):
        raise ValueError(f"depth_to_space: mode: expected 'DCR' or 'CDR', got {mode!r}")
    size = int(getattr(block_size, "value", block_size))
    channels = simplify(prim.floordiv(data.shape[c], size * size))
    dims = list(data.shape)
    dims[c], dims[h], dims[w] = (
        channels, simplify(data.shape[h] * size), simplify(data.shape[w] * size),
    )  # fmt: skip

    def element(*i: Expr) -> Any:
        places: list[Any] = list(i)
        places[h], places[w] = prim.floordiv(i[h], size), prim.floordiv(i[w], size)
        part = prim.floormod(i[h], size) * size + prim.floormod(i[w], size)
        places[c] = part * channels + i[c] if mode == "DCR" else i[c] * (size * size) + part
        return data[tuple(places)]

    return compute(dims, element, "depth_to_space", varargs_names=_named("i", 4))


def space_to_depth(data: Tensor, block_size: Any, layout: str = "NCHW") -> Tensor:
    """Blocks of places as blocks of channels, the places first."""
    c, h, w = _image_axes(data, layout, "space_to_depth")
    size = int(getattr(block_size, "value", block_size))
    dims = list(data.shape)
    dims[c] = simplify(data.shape[c] * (size * size))
    for axis in (h, w):
        dims[axis] = simplify(prim.floordiv(data.shape[axis], size))

    def element(*i: Expr) -> Any:
        places: list[Any] = list(i)
        part = prim.floordiv(i[c], data.shape[c])
        places[c] = prim.floormod(i[c], data.shape[c])
        places[h] = i[h] * size + prim.floordiv(part, size)
        places[w] = i[w] * size + prim.floormod(part, size)
        return data[tuple(places)]

    return compute(dims, element, "space_to_depth", varargs_names=_named("i", 4))


def _check_blocks(
    what: str, data: Tensor, block_shape: Sequence[int], *widths: Sequence[int]
) -> None:
    count = len(block_shape)
    if count >= data.ndim or any(size < 1 for size in block_shape):
        raise ValueError(
            f"{what}: block_shape: expected a size of at least 1 for some of the axes after the "
            f"first, got {list(block_shape)} for {data}"
        )
    if any(len(width) != count for width in widths):
        raise ValueError(
            f"{what}: expected {count} widths before and after, got "
            f"{' and '.join(str(len(width)) for width in widths)}"
        )


def space_to_batch_nd(
    data: Tensor,
    block_shape: Sequence[int],
    pad_before: Sequence[int],
    pad_after: Sequence[int],
    pad_value: float = 0.0,
) -> Tensor:
    """Blocks of places of the axes after the first as elements of the first, after padding."""
    _check_blocks("space_to_batch_nd", data, block_shape, pad_before, pad_after)
    count = len(block_shape)
    rest = [0] * (data.ndim - 1 - count)
    padded = pad(data, [0, *pad_before, *rest], [0, *pad_after, *rest], pad_value)
    split: list[Any] = [padded.shape[0]]
    for k, size in enumerate(block_shape):
        split += [simplify(prim.floordiv(padded.shape[k + 1], size)), size]
    split += padded.shape[count + 1 :]
    order = [2 * k + 2 for k in range(count)] + [0] + [2 * k + 1 for k in range(count)]
    order += range(2 * count + 1, len(split))
    moved = basic.transpose(basic.reshape(padded, split), order)
    blocks = functools.reduce(lambda a, b: a * b, block_shape, 1)
    joined = [
        simplify(padded.shape[0] * blocks),
        *split[1 : 2 * count : 2],
        *split[2 * count + 1 :],
    ]
    return basic.reshape(moved, joined)


def batch_to_space_nd(
    data: Tensor,
    block_shape: Sequence[int],
    crop_begin_list: Sequence[int],
    crop_end_list: Sequence[int],
) -> Tensor:
    """Elements of the first axis as blocks of places of the next ones, which are then cropped."""
    _check_blocks("batch_to_space_nd", data, block_shape, crop_begin_list, crop_end_list)
    count = len(block_shape)
    blocks = functools.reduce(lambda a, b: a * b, block_shape, 1)
    batch = simplify(prim.floordiv(data.shape[0], blocks))
    split = [*block_shape, batch, *data.shape[1:]]
    order = [count]
    for k in range(count):
        order += [count + 1 + k, k]
    order += range(2 * count + 1, len(split))
    moved = basic.transpose(basic.reshape(data, split), order)
    whole = [simplify(data.shape[k + 1] * size) for k, size in enumerate(block_shape)]
    joined = basic.reshape(moved, [batch, *whole, *data.shape[count + 1 :]])
    begin = [0, *crop_begin_list]
    end = [batch] + [simplify(w - c) for w, c in zip(whole, crop_end_list, strict=True)]
    return basic.strided_slice(joined, begin, end, axes=list(range(count + 1)))
