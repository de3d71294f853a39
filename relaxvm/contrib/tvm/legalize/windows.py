"""Means of windows, padding and places in images, as TVM's simplifier writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....ir import Call, prim
from ....ir.arith import simplify
from ....ir.expr import Expr, IntImm
from ....ir.prim import as_scalar
from ....te import Tensor, compute
from ....te.topi.nn import layers
from ....tir import intrinsics
from .rules import loops

__all__: list[str] = []


def _indices(count: int) -> list[str]:
    return [f"i{k}" for k in range(count)]


# Means of windows


def _number(value: Any) -> int:
    return int(getattr(value, "value", value))


def _with_padding(i: Sequence[Expr], window: layers.Window) -> Any:
    """How many places a window has, those of the padding included."""
    start = i[window.axis] * window.stride
    reach = (window.size - 1) * window.dilation - _number(window.before)
    end = simplify(window.length + window.after - 1) - start
    if window.dilation != 1:
        places = intrinsics.min(reach, end) + _number(window.before)
        return prim.truncdiv(places, window.dilation) + 1
    if not _number(window.before) and not isinstance(window.length, IntImm):
        return intrinsics.min(reach + 1, simplify(window.length + window.after) - start)
    return intrinsics.min(reach, end) + (_number(window.before) + 1)


def _without_padding(i: Sequence[Expr], window: layers.Window) -> Any:
    """How many elements a window has."""
    place, stride = i[window.axis], window.stride
    start = place * stride
    before, reach = _number(window.before), window.size - 1 - _number(window.before)
    last = simplify(window.length - 1)
    if before:
        end = start + reach if reach else start
        gone = intrinsics.max(before - start, 0)
        return intrinsics.min(end, last) + (before + 1) - gone - start
    if stride == 1:
        gone = intrinsics.max(as_scalar(0, "int64") - place, 0)
        return intrinsics.min(reach, last - place) + 1 - gone
    front = intrinsics.min(place, 0) * stride
    if isinstance(window.length, IntImm):
        return front + intrinsics.min(start + reach, last) + 1 - start
    return front + intrinsics.min(start + (reach + 1), window.length) - start


def _mean_pool(op: str, what: str) -> None:
    @loops(f"nn.{op}")
    def formula(data: Tensor, **attrs: Any) -> Any:
        with_padding = attrs["count_include_pad"]
        if not with_padding and set(attrs["dilation"]) != {1}:
            raise NotImplementedError(f"{op}: dilation {attrs['dilation']}")
        of_axis = _with_padding if with_padding else _without_padding

        def counted(i: Sequence[Expr], windows: Sequence[layers.Window]) -> Expr:
            number: Any = None
            for window in windows:
                count = of_axis(i, window)
                number = count if number is None else number * count
            most: Expr = number if with_padding else intrinsics.max(number, 1)
            return most

        return layers._pool(
            data, attrs["pool_size"], attrs["strides"], attrs["dilation"], attrs["padding"], "avg",
            attrs["ceil_mode"], attrs["layout"], with_padding, what, counted,
        )  # fmt: skip


for _rank in (1, 2, 3):
    _mean_pool(f"avg_pool{_rank}d", f"pool{_rank}d")


# Padding


def _reflected(index: Expr, before: int, length: int) -> Expr:
    """Mirrored at both ends."""
    at = index if not before else index - before
    front = prim.select(as_scalar(before, "int64") <= index, at, as_scalar(before, "int64") - index)
    last = as_scalar(length - 1, "int64")
    rest = prim.select(front <= last, last - front, front - last)
    place: Expr = last - rest
    return place


def _repeated(index: Expr, before: int, length: int) -> Expr:
    """The first or the last element."""
    at = index if not before else index - before
    zero, last = as_scalar(0, "int64"), as_scalar(length - 1, "int64")
    place: Expr = intrinsics.max(zero, intrinsics.min(last, at))
    return place


def _around(index: Expr, before: int, length: int) -> Expr:
    """From the other end."""
    place = prim.floormod(index if not before else index + (length - before), length)
    return place


_PLACES: dict[str, tuple[str, str, Callable[[Expr, int, int], Expr]]] = {
    "reflect": ("reflect_pad", "ReflectPadInput", _reflected),
    "replicate": ("replicate_pad", "ReplicatePadInput", _repeated),
    "circular": ("circular_pad", "CircularPadInput", _around),
}


def _name_of_pad(call: Call) -> str:
    found = _PLACES.get(call.attrs["pad_mode"])
    return "pad" if found is None else found[0]


@loops("nn.pad", hint=_name_of_pad)
def _pad(data: Tensor, pad_width: Sequence[int], pad_mode: str, pad_value: float) -> Any:
    before, after = list(pad_width[::2]), list(pad_width[1::2])
    if pad_mode == "constant":
        fill = as_scalar(pad_value, data.dtype)
        return layers.pad(data, before, after, fill, name="PadInput")
    if not all(isinstance(dim, IntImm) for dim in data.shape):
        raise NotImplementedError(f"pad: {pad_mode} of {data.shape}")
    _, name, place = _PLACES[pad_mode]
    lengths = [_number(dim) for dim in data.shape]
    dims = [n + low + high for n, low, high in zip(lengths, before, after, strict=True)]

    def element(*i: Expr) -> Any:
        return data[tuple(place(*each) for each in zip(i, before, lengths, strict=True))]

    return compute([as_scalar(dim, "int64") for dim in dims], element, name,
                   varargs_names=_indices(data.ndim))  # fmt: skip


# Places in images


@loops("image.affine_grid")
def _affine_grid(data: Tensor, size: Sequence[Expr], align_corners: bool = True) -> Any:
    """The places of the pixels of an image that is turned and moved, from -1 to 1."""
    sizes = [dim.value if isinstance(dim, IntImm) else None for dim in size]
    if data.dtype != "float32" or None in sizes or not align_corners:
        raise NotImplementedError(f"affine_grid: {data.dtype}, size {size}")

    def at(index: Expr, length: Any) -> Expr:
        step = as_scalar((2 - 1e-7) / (length - 1) if length > 1 else 0.0, "float32")
        place: Expr = as_scalar(-1.0, "float32") + prim.cast(index, "float32") * step
        return place

    def element(n: Expr, dim: Expr, y: Expr, x: Expr) -> Any:
        across, down = at(x, sizes[1]), at(y, sizes[0])
        return data[n, dim, 2] + data[n, dim, 1] * down + data[n, dim, 0] * across

    return compute([data.shape[0], as_scalar(2, "int64"), *size], element, "compute")
