"""Windows of the last axes of images, for convolutions and pools."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..pieces.cut import PIECE, check_time, pieces
from .checks import Dims, WrongValue

__all__ = ["Windows", "taps"]

_TAP: Final = 128
"""A tap takes as long as so many elements, if it has none."""
_MOST_LISTED: Final = 4096
"""Taps along an axis that are kept in a list."""


class Windows:
    """The positions of windows on an image, by axis: depth, height and width, or fewer.

    Attributes:
        size: of a window, in taps.
        strides: distance between windows.
        padding: before each axis, then after each.
        dilation: distance between the taps of a window.
        count: windows along each axis.
    """

    __slots__ = ("count", "dilation", "padding", "size", "strides")

    def __init__(
        self,
        image: Dims,
        size: Dims,
        strides: Dims,
        padding: Dims,
        dilation: Dims,
        *,
        ceil_mode: bool = False,
    ) -> None:
        """Lay windows on an image.

        Args:
            image: the lengths of the axes.
            size: of a window.
            strides: one for each axis.
            padding: before each axis, then after each.
            dilation: one for each axis.
            ceil_mode: whether a last window may extend beyond the padding, if it begins before the
                padding after the image.

        Raises:
            WrongValue: no window fits.
        """
        axes = len(image)
        self.size = size
        self.strides = strides
        self.padding = padding
        self.dilation = dilation
        count = []
        for i, length in enumerate(image):
            room = length + self.padding[i] + self.padding[axes + i] - self.reach(i)
            steps = room // self.strides[i]
            if ceil_mode and room % self.strides[i]:
                # One more, unless it begins in the padding after the image.
                steps += (steps + 1) * self.strides[i] < length + self.padding[i]
            if steps < 0:
                raise WrongValue(
                    f"expected windows that fit the padded image, got a window of "
                    f"{self.reach(i)} for {room + self.reach(i)}"
                )
            count.append(steps + 1)
        self.count = tuple(count)

    @classmethod
    def transposed(
        cls, count: Dims, size: Dims, strides: Dims, padding: Dims, dilation: Dims
    ) -> Windows:
        """Windows of which there are this many along each axis, on an image of any lengths."""
        found = cls.__new__(cls)
        found.size, found.strides, found.padding, found.dilation = size, strides, padding, dilation
        found.count = count
        return found

    def reach(self, axis: int) -> int:
        """The length of a window from its first to its last tap."""
        return self.dilation[axis] * (self.size[axis] - 1) + 1

    def inside(self, axis: int, tap: int, length: int) -> tuple[slice, slice]:
        """The windows whose tap is on an image of this length, and the elements at these taps."""
        stride = self.strides[axis]
        offset = tap * self.dilation[axis] - self.padding[axis]
        first, last = self._first_and_last(axis, offset, length)
        start = first * stride + offset
        return slice(first, last), slice(start, start + (last - first) * stride, stride)

    def taps_inside(self, axis: int, length: int, *, padded: bool) -> NDArray[np.int64]:
        """How many taps of each window are on an image of this length, or on the padded image."""
        counts = np.empty(self.count[axis], np.int64)
        before, after = self.padding[axis], self.padding[axis + len(self.count)]
        size, stride, dilation = self.size[axis], self.strides[axis], self.dilation[axis]
        if padded:
            length, before = length + before + after, 0
        # A program may state windows and paddings of any size.
        is_large = max(length, before, size, len(counts) * stride) >= 1 << 61
        step = PIECE >> 6 if is_large else PIECE
        for at in range(0, len(counts), step):
            part = counts[at : at + step]
            starts = np.arange(at, at + len(part)).astype(object if is_large else np.int64)
            starts = starts * stride - before
            first = np.maximum(0, -(starts // dilation))
            last = np.minimum(size, (length - 1 - starts) // dilation + 1)
            part[...] = np.maximum(0, last - first)
            if at:
                check_time()
        return counts

    def _first_and_last(self, axis: int, offset: int, length: int) -> tuple[int, int]:
        """The range of windows for which start + offset is at least 0 and below a length."""
        stride = self.strides[axis]
        first = max(0, -(offset // stride))
        return first, max(first, min(self.count[axis], -(-(length - offset) // stride)))


_Place: TypeAlias = tuple[int, slice, slice]


class _OnImage:
    """The taps along an axis that are on an image of this length for some window, each with what
    `Windows.inside` says.  A program may state windows of any size, mostly of padding."""

    def __init__(self, windows: Windows, axis: int, length: int) -> None:
        self._windows = windows
        self._axis = axis
        self._length = length

    def __iter__(self) -> Iterator[_Place]:
        windows, axis, length = self._windows, self._axis, self._length
        stride, dilation = windows.strides[axis], windows.dilation[axis]
        before = windows.padding[axis]
        last = (windows.count[axis] - 1) * stride
        # Together the windows may have all taps in between; if they are farther apart than the
        # image is long, few of these are on it.
        is_dense = stride <= length
        starts = [(last, 0)] if is_dense else ((at, at) for at in range(last, -1, -stride))
        for greatest, least in starts:
            first = max(0, -((greatest - before) // dilation))
            end = min(windows.size[axis], (before + length - 1 - least) // dilation + 1)
            for tap in range(first, end):
                yield tap, *windows.inside(axis, tap, length)
            if not is_dense:
                check_time()

    def listed(self) -> Iterable[_Place]:
        """As a list, unless that would be a long one."""
        return list(self) if self._windows.size[self._axis] <= _MOST_LISTED else self


def _product(places: Sequence[Iterable[_Place]]) -> Iterator[tuple[_Place, ...]]:
    """As `itertools.product`, which would keep all items of each iterable."""
    if all(type(each) is list for each in places):
        yield from itertools.product(*places)
        return
    first, *others = places
    for place in first:
        if others:
            for rest in _product(others):
                yield place, *rest
        else:
            yield (place,)


def taps(
    windows: Windows, image: NDArray[Any], out: NDArray[Any]
) -> Iterator[tuple[Dims, NDArray[Any], NDArray[Any]]]:
    """For each tap of a window that is on the image: its index along each axis, the elements of
    `image` at this tap, and the elements of `out` for their windows.  Large images without further
    axes come in pieces."""
    axes = len(windows.size)
    along = [_OnImage(windows, axis, image.shape[axis - axes]) for axis in range(axes)]
    done = 0
    for places in _product([each.listed() for each in along]):
        tap = tuple([i for i, _, _ in places])
        at: Any = (..., *[written for _, written, _ in places])
        read_at: Any = (..., *[read for _, _, read in places])
        elements, results = image[read_at], out[at]
        if results.ndim == axes and results.size > PIECE:
            for read, written in pieces(elements, results):
                yield tap, read, written
        else:
            yield tap, elements, results
        done += results.size + _TAP
        if done > PIECE:
            done = 0
            check_time()
