"""Results in arrays of the caller: ``vm.main(x, out=y)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..messages import describe, readable
from ..values import Shape

__all__ = ["OUT", "call_into"]

OUT = "out"
"""The keyword."""


def call_into(name: str, function: Callable[..., Any], args: Sequence[Any], out: Any) -> Any:
    """Call a function, and copy its result into arrays.

    The arrays are looked at before anything is written: after an error they are unchanged.  They
    may overlap arguments, since results are complete when they are copied, but not each other.

    Args:
        name: of the function, for messages.
        function: the function.
        args: its arguments.
        out: an array, or for a tuple of results a tuple or list with an array for each, which may
            be nested; with None in the place of a result that is not copied.

    Returns:
        `out`; a result that is not copied takes the place of its None, in a tuple.

    Raises:
        TypeError: `out` does not have the structure of the result, or a result is no array.
        ValueError: an array has another shape or data type than the result, or cannot be written
            to; or two of them overlap, or elements of one.
    """
    targets: list[NDArray[Any]] = []
    _check(name, OUT, out, targets)
    result = function(*args)
    pairs: list[tuple[NDArray[Any], NDArray[Any]]] = []
    filled = _paired(name, OUT, out, result, pairs)
    # A result may be the memory of an argument, and that may be in another one's place.
    for i, (target, _) in enumerate(pairs):
        for j, (other, value) in enumerate(pairs[i + 1 :], i + 1):
            if np.may_share_memory(target, value):
                pairs[j] = other, value.copy()
    for target, value in pairs:
        np.copyto(target, value, casting="no")
    return filled


def _check(name: str, place: str, out: Any, targets: list[NDArray[Any]]) -> None:
    """Check what can be known before the call, and collect the arrays."""
    if out is None:
        return
    if isinstance(out, (tuple, list)) and not isinstance(out, Shape):
        for i, each in enumerate(out):
            _check(name, f"{place}[{i}]", each, targets)
        return
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{readable(name)}: {place}: expected an array, or a tuple of arrays, "
                        f"got {describe(out)}")  # fmt: skip
    if not out.flags.writeable:
        raise ValueError(f"{readable(name)}: {place}: expected an array that can be written to, "
                         f"got a read-only one, {describe(out)}")  # fmt: skip
    if _overlaps_itself(out):
        raise ValueError(f"{readable(name)}: {place}: expected an array whose elements have memory "
                         f"of their own, got {describe(out)} with strides "
                         f"{out.strides}")  # fmt: skip
    for other in targets:
        if np.may_share_memory(out, other) and np.shares_memory(out, other):
            raise ValueError(f"{readable(name)}: {place}: overlaps an array of another result")
    targets.append(out)


def _overlaps_itself(array: NDArray[Any]) -> bool:
    """Whether two elements of an array share memory, as `as_strided` can make them."""
    if array.flags.forc:
        return False
    axes = [(abs(stride), length) for stride, length in
            zip(array.strides, array.shape, strict=True) if length != 1]  # fmt: skip
    reach = array.itemsize  # of the axes so far
    for stride, length in sorted(axes):
        if stride < reach:
            break
        reach += stride * (length - 1)
    else:
        return False
    places = np.zeros((), np.int64)
    for stride, length in axes:
        places = np.add.outer(places, stride * np.arange(length))
    gaps = np.diff(np.sort(places, axis=None))
    return bool((gaps < array.itemsize).any())


def _paired(
    name: str, place: str, out: Any, result: Any, pairs: list[tuple[NDArray[Any], NDArray[Any]]]
) -> Any:
    """Check that arrays fit results, and collect the pairs; return what the call returns."""
    if out is None:
        return result
    subject = f"{readable(name)}: {place}"
    if isinstance(out, np.ndarray):
        if not isinstance(result, np.ndarray):
            what = f"a tuple of {len(result)}" if type(result) is tuple else describe(result)
            raise TypeError(f"{subject}: got an array, the result is {what}")
        if out.shape != result.shape or out.dtype != result.dtype:
            raise ValueError(f"{subject}: expected {describe(result)}, as the result is, got "
                             f"{describe(out)}")  # fmt: skip
        pairs.append((out, result))
        return out
    if type(result) is not tuple:
        raise TypeError(f"{subject}: got a tuple of {len(out)}, the result is {describe(result)}")
    if len(out) != len(result):
        raise TypeError(f"{subject}: expected {len(result)} arrays, got {len(out)}")
    filled = [
        _paired(name, f"{place}[{i}]", each, part, pairs)
        for i, (each, part) in enumerate(zip(out, result, strict=True))
    ]
    return tuple(filled) if isinstance(out, tuple) else filled
