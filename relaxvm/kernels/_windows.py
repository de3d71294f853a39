"""Windows that move over the last two axes of images: what convolutions and pools share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
            ceil_mode: whether a last window may reach beyond the padding.

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
            steps = -(-room // self.strides[i]) if ceil_mode else room // self.strides[i]
            count.append(steps + 1)
        self.count = tuple(count)

    def reach(self, axis: int) -> int:
        """The length of a window from its first to its last tap."""
        return self.dilation[axis] * (self.size[axis] - 1) + 1

    def inside(self, axis: int, tap: int, length: int) -> tuple[slice, slice]:
        """Which windows have a tap on the image, and the elements that it lies on."""
        stride = self.strides[axis]
        offset = tap * self.dilation[axis] - self.padding[axis]
        first = max(0, -(offset // stride))
        last = min(self.count[axis], -(-(length - offset) // stride))
        if last <= first:
            return slice(0, 0), slice(0, 0)
        start = first * stride + offset
        return slice(first, last), slice(start, start + (last - first - 1) * stride + 1, stride)


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
