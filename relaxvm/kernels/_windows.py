"""Windows that move over the last two axes of images: what convolutions and pools share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._attributes import ints_of

__all__ = ["Windows", "taps"]


class Windows:
    """Where windows lie on an image, by axis: height, then width.

    Attributes:
        size: of a window, in taps.
        strides: distance between windows.
        padding: in front of each axis, then behind each.
        dilation: distance between the taps of a window.
        count: windows along each axis.
    """

    __slots__ = ("count", "dilation", "padding", "size", "strides")

    def __init__(
        self,
        name: str,
        image: tuple[int, ...],
        size: tuple[int, ...],
        strides: Any,
        padding: Any,
        dilation: Any,
        *,
        ceil_mode: bool = False,
    ) -> None:
        """Check the attributes of a kernel.

        Args:
            name: of the kernel.
            image: the lengths of the axes.
            size: of a window.
            strides: one for each axis.
            padding: in front of each axis, then behind each.
            dilation: one for each axis.
            ceil_mode: whether a last window may reach beyond the padding, if it begins before it.

        Raises:
            TypeError: an attribute is no shape of ints.
            ValueError: it has another length or a number out of range, or no window fits.
        """
        axes = len(image)
        self.size = size
        self.strides = ints_of(name, "strides", strides, axes, 1)
        self.padding = ints_of(name, "padding", padding, 2 * axes, 0)
        self.dilation = ints_of(name, "dilation", dilation, axes, 1)
        count = []
        for i, length in enumerate(image):
            room = length + self.padding[i] + self.padding[axes + i] - self.reach(i)
            if room < 0:
                raise ValueError(
                    f"{name}: expected windows that fit the padded image, got a window of "
                    f"{self.reach(i)} for {room + self.reach(i)}"
                )
            steps = room // self.strides[i]
            if ceil_mode and room % self.strides[i]:
                # One more, unless it begins in the padding behind the image.
                steps += (steps + 1) * self.strides[i] < length + self.padding[i]
            count.append(steps + 1)
        self.count = tuple(count)

    def reach(self, axis: int) -> int:
        """The length of a window from its first to its last tap."""
        return self.dilation[axis] * (self.size[axis] - 1) + 1

    def inside(self, axis: int, tap: int, length: int) -> tuple[slice, slice]:
        """Which windows have a tap on an image of a length, and the elements that it lies on."""
        stride = self.strides[axis]
        offset = tap * self.dilation[axis] - self.padding[axis]
        first, last = self._first_and_last(axis, offset, length)
        start = first * stride + offset
        return slice(first, last), slice(start, start + (last - first) * stride, stride)

    def taps_inside(self, axis: int, length: int, *, padded: bool) -> NDArray[np.int64]:
        """How many taps of each window lie on an image of a length, or on the padded image."""
        counts = np.zeros(self.count[axis], np.int64)
        before, after = self.padding[axis], self.padding[axis + len(self.count)]
        for tap in range(self.size[axis]):
            offset = tap * self.dilation[axis]
            if padded:
                first, last = self._first_and_last(axis, offset, length + before + after)
            else:
                first, last = self._first_and_last(axis, offset - before, length)
            counts[first:last] += 1
        return counts

    def _first_and_last(self, axis: int, offset: int, length: int) -> tuple[int, int]:
        """The windows, from first to before last, whose start and an offset are within a length."""
        stride = self.strides[axis]
        first = max(0, -(offset // stride))
        return first, max(first, min(self.count[axis], -(-(length - offset) // stride)))


def taps(
    windows: Windows, image: NDArray[Any], out: NDArray[Any]
) -> Iterator[tuple[int, int, NDArray[Any], NDArray[Any]]]:
    """For each tap of a window: its index along both axes, the elements of `image` that it lies
    on, and those of `out` whose windows have them."""
    for i in range(windows.size[0]):
        out_rows, rows = windows.inside(0, i, image.shape[-2])
        for j in range(windows.size[1]):
            out_columns, columns = windows.inside(1, j, image.shape[-1])
            yield i, j, image[..., rows, columns], out[..., out_rows, out_columns]
