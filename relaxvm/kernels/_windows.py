"""Windows of the last axes of images, for convolutions and pools."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..pieces.cut import PIECE, check_time, pieces
from .checks import Dims, WrongValue

__all__ = ["Windows", "taps"]

_TAP: Final = 128
"""A tap takes as long as so many elements, if it has none."""


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
        counts = np.zeros(self.count[axis], np.int64)
        before, after = self.padding[axis], self.padding[axis + len(self.count)]
        done = 0
        for tap in range(self.size[axis]):
            offset = tap * self.dilation[axis]
            if padded:
                first, last = self._first_and_last(axis, offset, length + before + after)
            else:
                first, last = self._first_and_last(axis, offset - before, length)
            counts[first:last] += 1
            done += last - first + _TAP
            if done > PIECE:
                done = 0
                check_time()
        return counts

    def _first_and_last(self, axis: int, offset: int, length: int) -> tuple[int, int]:
        """The range of windows for which start + offset is at least 0 and below a length."""
        stride = self.strides[axis]
        first = max(0, -(offset // stride))
        return first, max(first, min(self.count[axis], -(-(length - offset) // stride)))


def taps(
    windows: Windows, image: NDArray[Any], out: NDArray[Any]
) -> Iterator[tuple[Dims, NDArray[Any], NDArray[Any]]]:
    """For each tap of a window: its index along each axis, the elements of `image` at this tap, and
    the elements of `out` for their windows.  Large images without further axes come in pieces."""
    axes = len(windows.size)
    places = [
        [windows.inside(axis, i, image.shape[axis - axes]) for i in range(windows.size[axis])]
        for axis in range(axes)
    ]
    done = 0
    for tap in itertools.product(*map(range, windows.size)):
        inside = [places[axis][i] for axis, i in enumerate(tap)]
        at: Any = (..., *[written for written, _ in inside])
        read_at: Any = (..., *[read for _, read in inside])
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
