"""Moving, converting and selecting elements."""

from __future__ import annotations

import itertools
import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..values import describe
from ._attributes import axes_of, choice_of, int_of, ints_of, number_of
from ._blocks import BLOCK, float_dtype, working_dtype
from ._kernel import (
    PREFIX,
    as_operand,
    assign,
    axis_of,
    broadcast,
    check_out,
    check_tensors,
    kernel,
    native,
    private,
)

__all__: list[str] = []


@kernel("cast", "x: tensor, out: tensor", "astype", direct=True)
def cast(x: NDArray[Any], out: NDArray[Any]) -> None:
    """out = x converted to out's data type; a copy where that is x's.  x broadcasts to out's shape.
    Floats lose their fraction on the way to integers; what does not fit wraps or saturates as in
    numpy."""
    check_tensors("cast", x=x, out=out)
    if x.dtype.hasobject or out.dtype.hasobject:
        raise TypeError(
            f"cast: expected tensors of numbers, got x {describe(x)}, out {describe(out)}"
        )
    check_out("cast", out, out.dtype, broadcast("cast", x=x, out=out))
    assign(out, x)


@kernel("fill", "value: int|float, out: tensor", direct=True)
def fill(value: Any, out: NDArray[Any]) -> None:
    """All elements of out = a number, which goes with out's data type."""
    check_tensors("fill", out=out)
    check_out("fill", out, out.dtype, out.shape)
    if isinstance(value, np.ndarray):
        raise TypeError(
            f"fill: value: expected a number, got {describe(value)}; "
            f"{PREFIX}cast broadcasts a tensor"
        )
    np.copyto(out, as_operand("fill", "value", value, out.dtype))


@kernel("full", "value: tensor|int|float, out: tensor", direct=True)
def full(value: Any, out: NDArray[Any]) -> None:
    """All elements of out = a number or the element of a tensor without axes, converted to out's
    data type as by `cast`."""
    check_tensors("full", out=out)
    if isinstance(value, np.ndarray) and value.ndim:
        raise ValueError(f"full: value: expected a tensor without axes, got {describe(value)}")
    if not isinstance(value, (np.ndarray, int, float)):
        raise TypeError(f"full: value: expected a tensor or a number, got {describe(value)}")
    check_out("full", out, out.dtype, out.shape)
    if isinstance(value, np.ndarray) or out.dtype.kind == "b" or isinstance(value, float):
        cast(np.asarray(value), out)
    else:
        np.copyto(out, as_operand("full", "value", value, out.dtype))


@kernel("zeros", "out: tensor", direct=True)
def zeros(out: NDArray[Any]) -> None:
    """All elements of out = 0, which is false of bools."""
    check_out("zeros", out, np.dtype(getattr(out, "dtype", np.float32)), getattr(out, "shape", ()))
    np.copyto(out, as_operand("zeros", "value", False, out.dtype))


@kernel("ones", "out: tensor", direct=True)
def ones(out: NDArray[Any]) -> None:
    """All elements of out = 1, which is true of bools."""
    check_out("ones", out, np.dtype(getattr(out, "dtype", np.float32)), getattr(out, "shape", ()))
    np.copyto(out, as_operand("ones", "value", True, out.dtype))


@kernel("arange", "start: int|float, end: int|float, step: int|float, out: tensor")
def arange(start: Any, end: Any, step: Any, out: NDArray[Any]) -> None:
    """out = the vector start, start + step, start + 2 * step, and so on before end.  Of a number
    type; floats are computed in float64."""
    for parameter, value in (("start", start), ("end", end), ("step", step)):
        number_of("arange", parameter, value)
    if step == 0:
        raise ValueError("arange: step: expected a number other than 0, got 0")
    check_tensors("arange", out=out)
    is_integer = all(isinstance(value, int) for value in (start, end, step))
    length = -((start - end) // step) if is_integer else math.ceil((end - start) / step)
    check_out("arange", out, out.dtype, (max(0, length),))
    if out.dtype.kind not in "iuf" and working_dtype(out.dtype) is None:
        raise TypeError(f"arange: out: expected a tensor of numbers, got {describe(out)}")
    for begin in range(0, len(out), BLOCK):
        numbers = np.arange(begin, min(begin + BLOCK, len(out))) * step + start
        np.copyto(out[begin : begin + BLOCK], numbers, casting="unsafe")


@kernel("reshape", "x: tensor, out: tensor", "expand_dims", "squeeze", "flatten", direct=True)
def reshape(x: NDArray[Any], out: NDArray[Any]) -> None:
    """out = the elements of x, in their order, in another shape.  If neither is contiguous, they
    pass through a copy."""
    check_tensors("reshape", x=x, out=out)
    if x.size != out.size:
        raise ValueError(f"reshape: out: expected {x.size} elements, got {describe(out)}")
    check_out("reshape", out, x.dtype, out.shape)
    if out.flags.c_contiguous:
        assign(out.reshape(x.shape), x)
    else:
        assign(out, x.reshape(out.shape))


@kernel("permute_dims", "x: tensor, *axes: int|shape|none, out: tensor", direct=True)
def permute_dims(*args: Any) -> None:
    """out = x with its axes in another order: out's axis i is x's axis axes[i].  axes: a Shape, or
    ints; None, or none at all, reverses their order: the transpose of a matrix."""
    if len(args) < 2:
        raise TypeError(f"permute_dims: expected x, axes and out, got {len(args)} arguments")
    x, *given, out = args
    check_tensors("permute_dims", x=x, out=out)
    if len(given) == 1 and isinstance(given[0], tuple):
        axes = [axis_of("permute_dims", x, axis) for axis in given[0]]
    elif given in ([], [None]):
        axes = list(range(x.ndim))[::-1]
    else:
        axes = [axis_of("permute_dims", x, axis) for axis in given]
    if sorted(axes) != list(range(x.ndim)):
        raise ValueError(
            f"permute_dims: axes: expected each axis of {describe(x)} once, got {given}"
        )
    permuted = x.transpose(axes)
    check_out("permute_dims", out, x.dtype, permuted.shape)
    assign(out, permuted)


_take: Final[Any] = np.take  # numpy's stubs want a literal mode
_TAKE_MODES: Final = ("fast", "wrap", "clip", "nan")


@kernel("take", "x: tensor, indices: tensor, axis: int|none, *mode: str, out: tensor", direct=True)
def take(*args: Any) -> None:
    """out = the slices of x at indices along an axis, None if x is a vector.  indices: tensor of
    integers; out has x's data type, and x's shape with the shape of indices in the place of the
    axis.  mode: what an index outside 0 to the length of the axis less one does; "fast", which is
    also without a mode, IndexError; "wrap", counts modulo the length; "clip", stands for the
    nearest; "nan", gives NaN, of floats.  An x that is not contiguous is copied."""
    if not 4 <= len(args) <= 5:
        raise TypeError(f"take: expected x, indices, axis, mode and out, got {len(args)} arguments")
    x, indices, axis, *given, out = args
    check_tensors("take", x=x, indices=indices)
    mode = choice_of("take", "mode", given[0], _TAKE_MODES) if given else "fast"
    if indices.dtype.kind not in "iu":
        raise ValueError(f"take: indices: expected a tensor of integers, got {describe(indices)}")
    if axis is None and x.ndim != 1:
        raise ValueError(f"take: axis: expected an axis of {describe(x)}, got None")
    axis = 0 if axis is None else axis_of("take", x, axis)
    check_out("take", out, x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))
    if mode == "nan":
        float_dtype("take", x=x)
    if indices.size == 0:
        return
    length = x.shape[axis]
    least, greatest = int(indices.min()), int(indices.max())
    is_inside = 0 <= least and greatest < length
    if not is_inside and (mode == "fast" or (length == 0 and mode != "nan")):
        raise IndexError(
            f"take: indices: expected 0 <= index < {length}, got {least if least < 0 else greatest}"
        )
    indices = private(indices, out)
    if length:
        # With mode "raise", numpy collects the result elsewhere before it writes to out.
        numpys = "wrap" if mode == "wrap" else "clip"
        _take(x, indices.astype(np.intp, copy=False), axis, out, mode=numpys)
    if mode == "nan" and not is_inside:
        is_outside = (indices < 0) | (indices >= length)
        out[(slice(None),) * axis + (is_outside,)] = np.nan


_PAD_MODES: Final = ("constant", "reflect", "replicate", "circular")


@kernel("nn.pad", "x: tensor, pad_width: shape, pad_mode: str, pad_value: float|int, out: tensor")
def pad(x: NDArray[Any], pad_width: Any, pad_mode: str, pad_value: Any, out: NDArray[Any]) -> None:
    """out = x with more elements along axis i: pad_width[2 * i] in front, pad_width[2 * i + 1]
    behind.  pad_mode: which; "constant", pad_value, converted to x's data type, and a negative
    width takes elements away; "reflect", those of x mirrored at its end, less than it has;
    "replicate", its last; "circular", those of its other end."""
    name = "nn.pad"
    check_tensors(name, x=x)
    mode = choice_of(name, "pad_mode", pad_mode, _PAD_MODES)
    width = ints_of(name, "pad_width", pad_width, 2 * x.ndim)
    value = number_of(name, "pad_value", pad_value) if mode == "constant" else 0
    before, after = width[::2], width[1::2]
    shape: list[int] = []
    source: list[Any] = [...]  # so that tensors without axes give tensors
    inner: list[Any] = [...]
    for axis, (dim, front, back) in enumerate(zip(x.shape, before, after, strict=True)):
        if not _can_pad(mode, dim, front, back):
            raise ValueError(
                f"{name}: pad_width: expected widths that go with mode {mode!r}, got "
                f"{front} and {back} for axis {axis} of {describe(x)}"
            )
        shape.append(front + dim + back)
        start = max(0, -front)
        stop = max(start, dim + min(0, back))
        source.append(slice(start, stop))
        inner.append(slice(max(0, front), max(0, front) + stop - start))
    check_out(name, out, x.dtype, tuple(shape))
    np.copyto(out[tuple(inner)], private(x, out)[tuple(source)])
    for axis, part in enumerate(inner[1:]):
        lane = np.moveaxis(out, axis, 0)
        if mode == "constant":
            fill = np.asarray(value).astype(out.dtype)
            np.copyto(lane[: part.start], fill)
            np.copyto(lane[part.stop :], fill)
        else:
            _PADDERS[mode](lane, part.start, part.stop)


def _can_pad(mode: str, dim: int, front: int, back: int) -> bool:
    if mode == "constant":
        return front + dim + back >= 0
    if front == back == 0:
        return True
    return min(front, back) >= 0 and dim > 0 and (mode != "reflect" or max(front, back) < dim)


def _pad_reflect(lane: NDArray[Any], start: int, stop: int) -> None:
    after = len(lane) - stop
    np.copyto(lane[:start], lane[start + 1 : 2 * start + 1][::-1])
    np.copyto(lane[stop:], lane[stop - 1 - after : stop - 1][::-1])


def _pad_replicate(lane: NDArray[Any], start: int, stop: int) -> None:
    if start:
        np.copyto(lane[:start], lane[start])
    if stop < len(lane):
        np.copyto(lane[stop:], lane[stop - 1])


def _pad_circular(lane: NDArray[Any], start: int, stop: int) -> None:
    length = stop - start
    while start > 0:
        count = min(length, start)
        np.copyto(lane[start - count : start], lane[start - count + length : start + length])
        start -= count
    while stop < len(lane):
        count = min(length, len(lane) - stop)
        np.copyto(lane[stop : stop + count], lane[stop - length : stop - length + count])
        stop += count


_PADDERS: Final = {
    "reflect": _pad_reflect,
    "replicate": _pad_replicate,
    "circular": _pad_circular,
}


@kernel("broadcast_to", "x: tensor, out: tensor", direct=True)
def broadcast_to(x: NDArray[Any], out: NDArray[Any]) -> None:
    """out = x repeated along the axes that it lacks or that have length 1 in it, to out's shape."""
    check_tensors("broadcast_to", x=x, out=out)
    check_out("broadcast_to", out, x.dtype, broadcast("broadcast_to", x=x, out=out))
    assign(out, x)


@kernel("concat", "*tensors: tensor, axis: int, out: tensor", direct=True)
def concat(*args: Any) -> None:
    """out = the tensors one behind another along an axis.  Their other axes are equally long."""
    tensors, axis, out = _joined("concat", args)
    axis = axis_of("concat", tensors[0], axis)
    shape = list(tensors[0].shape)
    for tensor in tensors:
        if len(tensor.shape) != len(shape) or any(
            dim != shape[i] for i, dim in enumerate(tensor.shape) if i != axis
        ):
            raise ValueError(
                f"concat: expected tensors whose shapes differ in axis {axis} only, got "
                f"{describe(tensors[0])} and {describe(tensor)}"
            )
    shape[axis] = sum(tensor.shape[axis] for tensor in tensors)
    check_out("concat", out, tensors[0].dtype, tuple(shape))
    np.concatenate([private(tensor, out) for tensor in tensors], axis, out)


@kernel("stack", "*tensors: tensor, axis: int, out: tensor", direct=True)
def stack(*args: Any) -> None:
    """out = the tensors, all of one shape, along a new axis, which has this index in out."""
    tensors, axis, out = _joined("stack", args)
    first = tensors[0]
    for tensor in tensors:
        if tensor.shape != first.shape:
            raise ValueError(
                f"stack: expected tensors of one shape, got {describe(first)} and "
                f"{describe(tensor)}"
            )
    axis = axis_of("stack", first[..., None], axis)
    shape = (*first.shape[:axis], len(tensors), *first.shape[axis:])
    check_out("stack", out, first.dtype, shape)
    parts = np.moveaxis(out, axis, 0)
    for i, tensor in enumerate([private(tensor, out) for tensor in tensors]):
        np.copyto(parts[i, ...], tensor)


def _joined(name: str, args: tuple[Any, ...]) -> tuple[list[NDArray[Any]], Any, NDArray[Any]]:
    """The tensors, the axis and out."""
    if len(args) < 3:
        raise TypeError(f"{name}: expected tensors, axis and out, got {len(args)} arguments")
    *tensors, axis, out = args
    check_tensors(name, **{f"tensors[{i}]": tensor for i, tensor in enumerate(tensors)}, out=out)
    for tensor in tensors:
        if native(tensor.dtype) != native(tensors[0].dtype):
            raise ValueError(
                f"{name}: expected tensors of one data type, got {describe(tensors[0])} and "
                f"{describe(tensor)}; {PREFIX}cast converts"
            )
    return tensors, axis, out


@kernel("split", "x: tensor, indices_or_sections: int|shape, axis: int, *outs: tensor", direct=True)
def split(*args: Any) -> None:
    """outs = the parts of x along an axis.  indices_or_sections: the number of parts, all of the
    same length, the quotient rounded up, but for the last ones if it does not come out even; or a
    Shape of the indices, in increasing order, at which parts begin."""
    if len(args) < 4:
        raise TypeError(
            f"split: expected x, indices_or_sections, axis and outs, got {len(args)} arguments"
        )
    x, sections, axis, *outs = args
    check_tensors("split", x=x, **{f"outs[{i}]": out for i, out in enumerate(outs)})
    axis = axis_of("split", x, axis)
    bounds = _split_bounds(sections, x.shape[axis], len(outs))
    parts = [x[(slice(None),) * axis + (slice(a, b),)] for a, b in itertools.pairwise(bounds)]
    for part, out in zip(parts, outs, strict=True):
        check_out("split", out, x.dtype, part.shape)
    if any(np.may_share_memory(x, out) for out in outs):
        parts = [part.copy() for part in parts]
    for part, out in zip(parts, outs, strict=True):
        np.copyto(out, part)


def _split_bounds(sections: Any, length: int, num_outs: int) -> list[int]:
    """Where the parts begin, and the length."""
    if isinstance(sections, (tuple, list)):
        indices = [
            max(0, index + length if index < 0 else index)
            for index in ints_of("split", "indices_or_sections", sections)
        ]
        bounds = [0, *[min(index, length) for index in indices], length]
        if bounds != sorted(bounds):
            raise ValueError(
                f"split: indices_or_sections: expected indices in increasing order, got "
                f"{list(sections)}"
            )
        _check_num_outs(len(bounds) - 1, num_outs)
        return bounds
    count = int_of("split", "indices_or_sections", sections, least=1)
    _check_num_outs(count, num_outs)
    step = -(-length // count)
    return [min(i * step, length) for i in range(count + 1)]


def _check_num_outs(expected: int, given: int) -> None:
    if given != expected:
        raise ValueError(f"split: expected {expected} outs, got {given}")


@kernel("repeat", "x: tensor, repeats: int, axis: int|none, out: tensor")
def repeat(x: NDArray[Any], repeats: int, axis: int | None, out: NDArray[Any]) -> None:
    """out = x with each slice along an axis repeated; without an axis (None), each element of x as
    a vector."""
    check_tensors("repeat", x=x, out=out)
    repeats = int_of("repeat", "repeats", repeats, least=0)
    if axis is None:
        check_out("repeat", out, x.dtype, (x.size * repeats,))
        copies = out.reshape(*x.shape, repeats)
        np.copyto(copies, private(x, out)[..., None])
        return
    axis = axis_of("repeat", x, axis)
    before, after = x.shape[: axis + 1], x.shape[axis + 1 :]
    check_out("repeat", out, x.dtype, (*before[:-1], before[-1] * repeats, *after))
    source = private(x, out).reshape(*before, 1, *after)
    np.copyto(out.reshape(*before, repeats, *after), source)


@kernel("tile", "x: tensor, repeats: int|shape, out: tensor")
def tile(x: NDArray[Any], repeats: Any, out: NDArray[Any]) -> None:
    """out = x beside itself: repeats[i] times along axis i, counted from the last axis if there are
    fewer; if there are more, x has axes of length 1 in front."""
    check_tensors("tile", x=x, out=out)
    if isinstance(repeats, int):
        repeats = (int_of("tile", "repeats", repeats, least=0),)
    counts = ints_of("tile", "repeats", repeats, least=0)
    ndim = max(len(counts), x.ndim)
    counts = (1,) * (ndim - len(counts)) + counts
    shape = (1,) * (ndim - x.ndim) + x.shape
    check_out("tile", out, x.dtype, tuple(c * dim for c, dim in zip(counts, shape, strict=True)))
    pairs = itertools.chain.from_iterable(zip(counts, shape, strict=True))
    source = private(x, out).reshape([n for dim in shape for n in (1, dim)])
    np.copyto(out.reshape(*pairs), source)


@kernel("flip", "x: tensor, axis: int, out: tensor", direct=True)
def flip(x: NDArray[Any], axis: int, out: NDArray[Any]) -> None:
    """out = x with the order along an axis reversed."""
    check_tensors("flip", x=x)
    axis = axis_of("flip", x, axis)
    check_out("flip", out, x.dtype, x.shape)
    assign(out, x[(slice(None),) * axis + (slice(None, None, -1),)])


@kernel(
    "strided_slice",
    "x: tensor, axes: shape, begin: shape, end: shape, strides: shape|none, out: tensor",
    direct=True,
)
def strided_slice(
    x: NDArray[Any], axes: Any, begin: Any, end: Any, strides: Any, out: NDArray[Any]
) -> None:
    """out = x from begin to before end in steps of strides, for each of axes, as Python slices:
    negative numbers count from the end, those beyond it stand for it.  strides: None for ones."""
    name = "strided_slice"
    check_tensors(name, x=x)
    axes = axes_of(name, x, ints_of(name, "axes", axes))
    begin = ints_of(name, "begin", begin, len(axes))
    end = ints_of(name, "end", end, len(axes))
    steps = (1,) * len(axes) if strides is None else ints_of(name, "strides", strides, len(axes))
    if 0 in steps:
        raise ValueError(f"{name}: strides: expected ints other than 0, got {list(steps)}")
    index = [slice(None)] * x.ndim
    for axis, *bounds in zip(axes, begin, end, steps, strict=True):
        index[axis] = slice(*bounds)
    part = x[tuple(index)]
    check_out(name, out, x.dtype, part.shape)
    assign(out, part)
