"""Windows and layouts, for convolutions and pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir import prim
from ...ir.arith import simplify
from ...ir.expr import Expr, IntImm, TensorType
from ..kinds import IllValued, to_ints
from ..manipulate import permute_dims

__all__ = [
    "check_layout",
    "check_positive",
    "dims_by_letter",
    "in_layout",
    "paddings",
    "per_axis",
    "pooled",
    "to_layout",
    "windows",
]


def per_axis(name: str, value: Any, axes: int) -> tuple[int, ...]:
    """A number for each spatial axis, from one for all or one for each."""
    numbers = to_ints(name, value)
    if len(numbers) == 1:
        return numbers * axes
    if len(numbers) != axes:
        raise IllValued(f"{name}: expected one number or {axes}, got {list(numbers)}")
    return numbers


def paddings(value: Any, axes: int) -> tuple[int, ...]:
    """Padding before each spatial axis and then after each: from one number for all, one for
    each axis, or all of them."""
    numbers = to_ints("padding", value)
    if len(numbers) == 1:
        numbers *= 2 * axes
    elif len(numbers) == axes:
        numbers *= 2
    elif len(numbers) != 2 * axes:
        counts = f"1, {axes} or {2 * axes}" if axes > 1 else "1 or 2"
        raise IllValued(f"padding: expected {counts} numbers, got {list(numbers)}")
    if min(numbers) < 0:
        raise IllValued(f"padding: expected 0 or more each, got {list(numbers)}")
    return numbers


def check_positive(**attributes: tuple[int, ...]) -> None:
    """Raise unless all numbers are 1 or more."""
    for name, numbers in attributes.items():
        if min(numbers) < 1:
            raise IllValued(f"{name}: expected 1 or more each, got {list(numbers)}")


def check_layout(name: str, layout: str, letters: str) -> None:
    """Raise unless a layout is an order of these letters."""
    if sorted(layout) != sorted(letters):
        raise IllValued(f"{name}: expected an order of the letters of {letters!r}, got {layout!r}")


def dims_by_letter(name: str, ty: TensorType, layout: str) -> dict[str, Expr] | None:
    """The dimensions of a tensor by the letters of its layout; None if they are not known.

    Raises:
        IllValued: the tensor is of another rank.
    """
    if ty.ndim not in (-1, len(layout)):
        raise IllValued(f"{name}: expected a tensor of layout {layout!r}, got {ty}")
    return None if ty.dims is None else dict(zip(layout, ty.dims, strict=True))


def in_layout(dims: dict[str, Expr], layout: str) -> list[Expr]:
    """Dimensions by letter, in the order of a layout."""
    return [dims[letter] for letter in layout]


def to_layout(tensor: Expr, have: str, want: str) -> Expr:
    """A tensor of one layout in another; itself if they are the same."""
    if have == want:
        return tensor
    moved: Expr = permute_dims(tensor, [have.index(letter) for letter in want])
    return moved


def windows(
    axis: str,
    length: Any,
    size: Any,
    stride: int,
    padding: tuple[int, int],
    dilation: int,
    *,
    ceil_mode: bool = False,
) -> Expr:
    """The number of windows along an axis.

    With `ceil_mode` the last one may reach beyond the padding, if it begins before the padding that
    comes after.

    Raises:
        IllValued: it is known that none fits.
    """
    # Numbers are computed as such: that is much faster than to simplify expressions.
    length, size = _number_of(length), _number_of(size)
    reach = (size - 1) * dilation + 1
    room = _simplified(length + sum(padding) - reach)
    count = room // stride + 1
    if ceil_mode:
        count = (room + (stride - 1)) // stride + 1
        if not (isinstance(reach, int) and stride <= reach - padding[1]):
            least = min if isinstance(count, int) else prim.minimum
            count = least(count, (length + (padding[0] + stride - 1)) // stride)
    count = _simplified(count)
    if isinstance(count, int):
        if count < 1:
            raise IllValued(
                f"no window fits along {axis}: it is {_simplified(reach)} long, the padded data "
                f"{_simplified(length + sum(padding))}"
            )
        return prim.as_scalar(count)
    found: Expr = count
    return found


def _number_of(value: Any) -> Any:
    """The number that an expression is; other expressions as they are."""
    return value.value if isinstance(value, IntImm) else value


def _simplified(value: Any) -> Any:
    return value if isinstance(value, int) else _number_of(simplify(value))


def pooled(
    dims: Mapping[str, Expr],
    spatial: Sequence[str],
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> dict[str, Expr]:
    """The dimensions of a pool's result by letter, given those of its data and the letters of the
    spatial axes.

    Raises:
        IllValued: it is known that no window fits.
    """
    result = dict(dims)
    for i, letter in enumerate(spatial):
        pads = padding[i], padding[i + len(spatial)]
        result[letter] = windows(
            letter, dims[letter], pool_size[i], strides[i], pads, dilation[i], ceil_mode=ceil_mode
        )
    return result
