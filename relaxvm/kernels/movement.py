"""Moving, converting and selecting elements."""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import PIECE, apply, check_time, converted, copy_pieces, flat, pieces
from ..pieces.reduce import reduced
from ..registry import KERNEL_PREFIX
from ..support import Unsupported
from ._arrays import assign, copy_if_overlapping
from ._blocks import BLOCK
from ._kernel import ChainStep, kernel
from ._positions import take_pieces
from .checks import (
    Dims,
    WrongType,
    WrongValue,
    as_operand,
    broadcast,
    check_out,
    float_dtype,
)
from .kinds import (
    Axes,
    Axis,
    Integers,
    Ints,
    Number,
    Numbers,
    Out,
    OutAny,
    OutLike,
    SameType,
    Tensor,
    a_choice,
    an_axis,
    an_int,
    axes_or_all,
    int_or_ints,
    ints,
    passed,
    to_float,
    to_int,
    to_ints,
)

__all__: list[str] = []


@kernel(
    "cast",
    "astype",
    step=ChainStep(2, is_exact=True, takes_dtype=True),
    in_place=Unsupported("The result has another data type than the operand."),
)
def cast(x: Tensor, out: Out) -> None:
    """out = x converted to out's data type; a copy if x has that data type.  x broadcasts to out's
    shape.  Converted to integers, floats lose their fraction; numbers that do not fit wrap or
    saturate as in numpy."""
    if x.dtype.hasobject or out.dtype.hasobject:
        raise WrongType(f"expected tensors of numbers, got x {describe(x)}, out {describe(out)}")
    check_out(out, out.dtype, broadcast(x=x, out=out))
    assign(out, x)


@kernel("fill")
def fill(value: Annotated[Any, passed("int|float")], out: OutAny) -> None:
    """All elements of out = a number of a kind that out's data type holds."""
    if isinstance(value, np.ndarray):
        raise WrongType(
            f"value: expected a number, got {describe(value)}; "
            f"{KERNEL_PREFIX}cast broadcasts a tensor"
        )
    copy_pieces(out, as_operand("value", value, out.dtype))


@kernel("full")
def full(value: Annotated[Any, passed("tensor|int|float")], out: OutAny) -> None:
    """All elements of out = a number or the element of a tensor without axes, converted to out's
    data type as by `cast`."""
    if isinstance(value, np.ndarray) and value.ndim:
        raise WrongValue(f"value: expected a tensor without axes, got {describe(value)}")
    if not isinstance(value, (np.ndarray, int, float)):
        raise WrongType(f"value: expected a tensor or a number, got {describe(value)}")
    if isinstance(value, np.ndarray) or out.dtype.kind == "b" or isinstance(value, float):
        cast(np.asarray(value), out)
    else:
        copy_pieces(out, as_operand("value", value, out.dtype))


@kernel("zeros")
def zeros(out: OutAny) -> None:
    """All elements of out = 0; false for bools."""
    copy_pieces(out, as_operand("value", False, out.dtype))


@kernel("ones")
def ones(out: OutAny) -> None:
    """All elements of out = 1; true for bools."""
    copy_pieces(out, as_operand("value", True, out.dtype))


@kernel("arange")
def arange(start: Number, end: Number, step: Number, out: Numbers) -> None:
    """out = the vector start, start + step, start + 2 * step, and so on before end.  out has a
    number type; floats are computed in float64."""
    if step == 0:
        raise WrongValue("step: expected a number other than 0, got 0")
    is_integer = all(isinstance(value, int) for value in (start, end, step))
    try:
        if is_integer:
            if any(not -(2**63) <= value < 2**63 for value in (start, end, step)):
                raise OverflowError
            length = -((start - end) // step)
        else:
            start, end, step = float(start), float(end), float(step)
            length = math.ceil((end - start) / step)
    except (OverflowError, ValueError):  # infinity, NaN, an int beyond 64 bits or float64
        raise WrongValue(
            "expected numbers of 64 bits and a finite number of elements, got start "
            f"{describe(start)}, end {describe(end)}, step {describe(step)}"
        ) from None
    check_out(out, out.dtype, (max(0, int(length)),))
    for begin in range(0, len(out), BLOCK):
        if begin:
            check_time()
        numbers = np.arange(begin, min(begin + BLOCK, len(out))) * step + start
        np.copyto(out[begin : begin + BLOCK], numbers, casting="unsafe")


@kernel("reshape", "expand_dims", "squeeze", "flatten")
def reshape(x: Tensor, out: Out) -> None:
    """out = the elements of x, in their order, in another shape.  If neither tensor is contiguous,
    x is copied."""
    if x.size != out.size:
        raise WrongValue(f"out: expected {x.size} elements, got {describe(out)}")
    check_out(out, x.dtype, out.shape)
    if out.flags.c_contiguous:
        assign(out.reshape(x.shape), x)
    else:
        assign(out, flat(x).reshape(out.shape))


@kernel("permute_dims")
def permute_dims(
    x: Tensor, *axes: Annotated[int, axes_or_all(is_reversed=True)], out: Out
) -> None:
    """out = x with its axes in another order: out's axis i is x's axis axes[i].  axes: a Shape, or
    ints; None, or none at all, reverses their order, as in the transpose of a matrix."""
    if len(axes) != x.ndim:
        raise WrongValue(f"axes: expected each axis of {describe(x)} once, got {list(axes)}")
    permuted = x.transpose(axes)
    check_out(out, x.dtype, permuted.shape)
    assign(out, permuted)


@kernel("take")
def take(
    x: Tensor,
    indices: Integers,
    axis: Axis | None,
    *mode: Annotated[str, a_choice("fast", "wrap", "clip", "nan", "python")],
    out: Out,
) -> None:
    """out = the slices of x at indices along an axis; the axis may be None if x is a vector.
    indices: tensor of integers.  out has x's data type, and x's shape with the axis replaced by the
    shape of indices.  mode: the meaning of an index that is negative or not below the length of the
    axis; "fast", the default, raises IndexError; "wrap" takes it modulo the length; "clip" takes
    the nearest valid index; "nan" writes NaN, x being floats; "python" counts negative ones from
    the end, and raises IndexError beyond either end.  An x that is not contiguous is copied."""
    if len(mode) > 1:
        raise WrongType(
            f"expected x, indices, axis, mode and out, got {4 + len(mode)} arguments"
        )
    (mode_,) = mode or ("fast",)
    if axis is None and x.ndim != 1:
        raise WrongValue(f"axis: expected an axis of {describe(x)}, got None")
    axis = 0 if axis is None else axis
    check_out(out, x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))
    if mode_ == "nan":
        float_dtype(x=x)
    if indices.size == 0:
        return
    length = x.shape[axis]
    # A copy: what is checked is what is used, whatever another thread writes meanwhile.
    given = indices
    indices = np.empty(given.shape, np.uint64 if given.dtype == np.uint64 else np.int64)
    copy_pieces(indices, given)
    every = tuple(range(-indices.ndim, 0))
    least, greatest = (
        reduced(ufunc, indices, every).item() for ufunc in (np.minimum, np.maximum)
    )
    lowest = -length if mode_ == "python" else 0
    is_inside = lowest <= least and greatest < length
    if not is_inside and (
        mode_ in ("fast", "python") or (length == 0 and mode_ != "nan")
    ):
        got = least if least < lowest else greatest
        raise IndexError(f"take: indices: expected {lowest} <= index < {length}, got {got}")
    if least < 0 and mode_ == "python":
        for numbers in pieces(indices):
            numbers[0][numbers[0] < 0] += length
    if mode_ == "nan" and not is_inside:
        is_outside = np.empty(indices.shape, np.bool_)
        for written, at in pieces(is_outside, indices):
            written[...] = (at < 0) | (at >= length)
    if length:
        # Not by numpy's modes: "wrap" subtracts the length until an index is inside, which may
        # never end, and "raise" writes the result to a temporary array first.
        number = indices.dtype.type
        if mode_ == "wrap":
            apply(np.remainder, indices, indices, number(length))
        elif not is_inside:
            apply(np.clip, indices, indices, number(0), number(length - 1))
        take_pieces(x, converted(indices, np.intp), axis, out)
    if mode_ == "nan" and not is_inside:
        results = np.moveaxis(out, range(axis, axis + indices.ndim), range(indices.ndim))
        for written, where in pieces(results, is_outside, row=x.ndim - 1):
            written[where] = np.nan


def _fill(value: Any, dtype: np.dtype[Any]) -> float:
    """The value of padding, which may be infinite in a tensor of floats."""
    if isinstance(value, float) and math.isinf(value) and dtype.kind not in "biu":
        return value
    return to_float("pad_value", value)


@kernel("nn.pad")
def pad(
    x: Tensor,
    pad_width: Ints,
    pad_mode: Annotated[str, a_choice("constant", "reflect", "replicate", "circular")],
    pad_value: Annotated[Any, passed("float|int")],
    out: Out,
) -> None:
    """out = x with more elements along axis i: pad_width[2 * i] before, pad_width[2 * i + 1] after
    those of x.  pad_mode: their values; "constant", pad_value converted to x's data type, and a
    negative width removes elements; "reflect", the elements of x mirrored at its end, so fewer than
    it has; "replicate", the last element of x at that end; "circular", the elements of x at the
    other end."""
    to_ints("pad_width", pad_width, count=2 * x.ndim)
    value = _fill(pad_value, x.dtype) if pad_mode == "constant" else 0
    before, after = pad_width[::2], pad_width[1::2]
    shape: list[int] = []
    source: list[Any] = [...]  # so that tensors without axes give tensors
    inner: list[Any] = [...]
    for axis, (dim, front, back) in enumerate(zip(x.shape, before, after, strict=True)):
        if not _can_pad(pad_mode, dim, front, back):
            raise WrongValue(
                f"pad_width: expected widths that go with mode {pad_mode!r}, got {front} and "
                f"{back} for axis {axis} of {describe(x)}"
            )
        shape.append(front + dim + back)
        start = max(0, -front)
        stop = max(start, dim + min(0, back))
        source.append(slice(start, stop))
        inner.append(slice(max(0, front), max(0, front) + stop - start))
    check_out(out, x.dtype, tuple(shape))
    copy_pieces(out[tuple(inner)], copy_if_overlapping(x, out)[tuple(source)])
    for axis, part in enumerate(inner[1:]):
        lane = np.moveaxis(out, axis, 0)
        if pad_mode == "constant":
            fill = np.asarray(value).astype(out.dtype)
            copy_pieces(lane[: part.start], fill)
            copy_pieces(lane[part.stop :], fill)
        else:
            _PADDERS[pad_mode](lane, part.start, part.stop)


def _can_pad(mode: str, dim: int, front: int, back: int) -> bool:
    if mode == "constant":
        return front + dim + back >= 0
    if front == back == 0:
        return True
    return min(front, back) >= 0 and dim > 0 and (mode != "reflect" or max(front, back) < dim)


def _pad_reflect(lane: NDArray[Any], start: int, stop: int) -> None:
    after = len(lane) - stop
    copy_pieces(lane[:start], lane[start + 1 : 2 * start + 1][::-1])
    copy_pieces(lane[stop:], lane[stop - 1 - after : stop - 1][::-1])


def _pad_replicate(lane: NDArray[Any], start: int, stop: int) -> None:
    if start:
        copy_pieces(lane[:start], lane[start])
    if stop < len(lane):
        copy_pieces(lane[stop:], lane[stop - 1])


def _pad_circular(lane: NDArray[Any], start: int, stop: int) -> None:
    length = stop - start
    done = 0
    while start > 0:
        count = min(length, start)
        copy_pieces(lane[start - count : start], lane[start - count + length : start + length])
        start -= count
        done += 1
        if done % 1024 == 0:
            check_time()
    while stop < len(lane):
        count = min(length, len(lane) - stop)
        copy_pieces(lane[stop : stop + count], lane[stop - length : stop - length + count])
        stop += count
        done += 1
        if done % 1024 == 0:
            check_time()


_PADDERS: Final = {
    "reflect": _pad_reflect,
    "replicate": _pad_replicate,
    "circular": _pad_circular,
}


@kernel("broadcast_to")
def broadcast_to(x: Tensor, out: Out) -> None:
    """out = x repeated to out's shape, along axes of length 1 and axes that x does not have."""
    check_out(out, x.dtype, broadcast(x=x, out=out))
    assign(out, x)


@kernel("concat", of_shapes=True)
def concat(*tensors: SameType, axis: Axis, out: Out) -> None:
    """out = the tensors joined along an axis.  Their other axes have equal lengths."""
    shape = list(tensors[0].shape)
    for tensor in tensors:
        if len(tensor.shape) != len(shape) or any(
            dim != shape[i] for i, dim in enumerate(tensor.shape) if i != axis
        ):
            raise WrongValue(
                f"expected tensors whose shapes differ in axis {axis} only, got "
                f"{describe(tensors[0])} and {describe(tensor)}"
            )
    shape[axis] = sum(tensor.shape[axis] for tensor in tensors)
    check_out(out, tensors[0].dtype, tuple(shape))
    parts = [copy_if_overlapping(tensor, out) for tensor in tensors]
    if out.size <= PIECE:
        np.concatenate(parts, axis, out)
        return
    end = 0
    for part in parts:
        start, end = end, end + part.shape[axis]
        copy_pieces(out[(slice(None),) * axis + (slice(start, end),)], part)


@kernel("stack")
def stack(*tensors: SameType, axis: Annotated[int, an_axis(is_new=True)], out: Out) -> None:
    """out = the tensors, all of one shape, joined along a new axis, at this index in out's
    shape."""
    first = tensors[0]
    for tensor in tensors:
        if tensor.shape != first.shape:
            raise WrongValue(
                f"expected tensors of one shape, got {describe(first)} and {describe(tensor)}"
            )
    check_out(out, first.dtype, (*first.shape[:axis], len(tensors), *first.shape[axis:]))
    parts = np.moveaxis(out, axis, 0)
    for i, tensor in enumerate([copy_if_overlapping(tensor, out) for tensor in tensors]):
        copy_pieces(parts[i, ...], tensor)


@kernel("split")
def split(
    x: Tensor,
    indices_or_sections: Annotated[Any, passed("int|shape")],
    axis: Axis,
    *outs: Out,
) -> None:
    """outs = the parts of x along an axis.  indices_or_sections: the number of parts, which
    have equal lengths, the quotient rounded up, except that the last parts may be shorter or empty;
    or a Shape of the indices at which parts begin: a part whose end comes first is empty."""
    bounds = _split_bounds(indices_or_sections, x.shape[axis], len(outs))
    lead = (slice(None),) * axis
    parts = [x[(*lead, slice(a, max(a, b)))] for a, b in itertools.pairwise(bounds)]
    for part, out in zip(parts, outs, strict=True):
        check_out(out, x.dtype, part.shape)
    if any(np.may_share_memory(x, out) for out in outs):
        parts = [part.copy() for part in parts]
    for part, out in zip(parts, outs, strict=True):
        copy_pieces(out, part)


def _split_bounds(sections: Any, length: int, num_outs: int) -> list[int]:
    """The indices at which the parts begin, then the length."""
    if isinstance(sections, (tuple, list)):
        indices = to_ints("indices_or_sections", sections)
        bounds = [0, *[min(max(index, 0), length) for index in indices], length]
        _check_num_outs(len(bounds) - 1, num_outs)
        return bounds
    count = to_int("indices_or_sections", sections, least=1)
    _check_num_outs(count, num_outs)
    step = -(-length // count)
    return [min(i * step, length) for i in range(count + 1)]


def _check_num_outs(expected: int, given: int) -> None:
    if given != expected:
        raise WrongValue(f"expected {expected} outs, got {given}")


@kernel("repeat")
def repeat(
    x: Tensor, repeats: Annotated[int, an_int(least=0)], axis: Axis | None, out: Out
) -> None:
    """out = x with each slice along an axis repeated; if the axis is None, x is flattened first."""
    if axis is None:
        check_out(out, x.dtype, (x.size * repeats,))
        copies = out.reshape(*x.shape, repeats)
        copy_pieces(copies, copy_if_overlapping(x, out)[..., None])
        return
    before, after = x.shape[: axis + 1], x.shape[axis + 1 :]
    check_out(out, x.dtype, (*before[:-1], before[-1] * repeats, *after))
    source = copy_if_overlapping(x, out).reshape(*before, 1, *after)
    copy_pieces(out.reshape(*before, repeats, *after), source)


@kernel("tile")
def tile(x: Tensor, repeats: Annotated[Dims, int_or_ints(least=0)], out: Out) -> None:
    """out = copies of x side by side: repeats[i] along axis i.  If there are fewer repeats than
    axes, they are for the last axes; if there are more, x gets axes of length 1 in front."""
    ndim = max(len(repeats), x.ndim)
    counts = (1,) * (ndim - len(repeats)) + repeats
    shape = (1,) * (ndim - x.ndim) + x.shape
    check_out(out, x.dtype, tuple(c * dim for c, dim in zip(counts, shape, strict=True)))
    pairs = itertools.chain.from_iterable(zip(counts, shape, strict=True))
    source = copy_if_overlapping(x, out).reshape([n for dim in shape for n in (1, dim)])
    copy_pieces(out.reshape(*pairs), source)


@kernel("flip")
def flip(x: Tensor, axis: Axis, out: OutLike) -> None:
    """out = x with the order along an axis reversed."""
    assign(out, x[(slice(None),) * axis + (slice(None, None, -1),)])


ForEachAxis: TypeAlias = Annotated[Dims, ints(like="axes")]


@kernel("strided_slice")
def strided_slice(
    x: Tensor,
    axes: Axes,
    begin: ForEachAxis,
    end: ForEachAxis,
    strides: ForEachAxis | None,
    out: Out,
) -> None:
    """out = x sliced along each of axes from begin to end, exclusive, in steps of strides, as by
    Python slices: negative numbers count from the end, and numbers out of range are clipped.
    strides: None for ones."""
    steps = (1,) * len(axes) if strides is None else strides
    if 0 in steps:
        raise WrongValue(f"strides: expected ints other than 0, got {list(steps)}")
    index = [slice(None)] * x.ndim
    for axis, *bounds in zip(axes, begin, end, steps, strict=True):
        index[axis] = slice(*bounds)
    part = x[tuple(index)]
    check_out(out, x.dtype, part.shape)
    assign(out, part)


@kernel("dynamic_strided_slice")
def dynamic_strided_slice(
    x: Tensor, begin: Integers, end: Integers, strides: Integers, out: Out
) -> None:
    """out = x sliced along each of its axes, as by `strided_slice`; begin, end, strides: vectors
    with an element for each axis."""
    bounds = {"begin": begin, "end": end, "strides": strides}
    for name, each in bounds.items():
        if each.shape != (x.ndim,):
            raise WrongValue(
                f"{name}: expected an element for each of {x.ndim} axes, got {describe(each)}"
            )
    lows, highs, steps = [each.tolist() for each in bounds.values()]
    if 0 in steps:
        raise WrongValue(f"strides: expected ints other than 0, got {steps}")
    index: Any = tuple([slice(*each) for each in zip(lows, highs, steps, strict=True)])
    part = x[(..., *index)]
    check_out(out, x.dtype, part.shape)
    assign(out, part)
